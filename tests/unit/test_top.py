"""`swarmd top`: what a terminal shows of a swarm."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swarmd.cli.top import SORTS, Watched, look, screen
from tests.support.control_socket import AnsweringSocket

EVIL = "\x1b[2J[red]\u202eevil[/red]" + "a" * 300


def member(name: str, state: str = "alive", **fields: Any) -> dict[str, Any]:
    position = {"battery": fields.pop("battery", 0.9), "age_s": fields.pop("age_s", 1.0)}
    row = {"name": name, "state": state, "quality": "good", "rtt_ms": 4.2, "loss": 0.0, "position": position}
    return row | fields


def seen(*members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    status = {"swarm": "farm", "node": "laptop", "objects": 13, "alerts": fields.pop("alerts", [])}
    return {"status": status, "members": list(members), "cells": [], "events": []} | fields


def shown(what: dict[str, Any], sort: str = "name", find: str = "", height: int = 40, away: str = "") -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(screen(what, sort, find, height, away))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def names(text: str) -> list[str]:
    return re.findall(r"^(n\d+) ", text, re.M)


def test_it_says_who_is_heard_and_what_a_cut_hides() -> None:
    assert "CUT" not in shown(seen(member("n1"), member("n2")))
    text = shown(seen(member("n1"), member("n2", "failed"), member("n3", "failed")))
    assert "1/3 heard" in text
    assert "CUT? 2 members are not heard; you see the side of laptop" in text
    assert "n2 is not heard" in shown(seen(member("n1"), member("n2", "failed")))
    assert "CUT? 2 members" in shown(seen(member("n1"), member("n2", "failed"), member("n3", "unreachable")))


def test_who_is_reached_through_others_is_relayed() -> None:
    what = seen(member("n1"), member("n2", quality="none"))
    assert "relayed" not in shown(what)
    what["status"]["mesh"] = True
    assert "relayed" in shown(what)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["n1", "n2", "n3"]),
        ("state", ["n3", "n1", "n2"]),
        ("rtt", ["n2", "n1", "n3"]),
        ("loss", ["n1", "n2", "n3"]),
        ("battery", ["n2", "n1", "n3"]),
        ("age", ["n3", "n1", "n2"]),
    ],
)
def test_members_are_ordered(sort: str, order: list[str]) -> None:
    what = seen(
        member("n3", "failed", rtt_ms=None, battery=None, age_s=60.0),
        member("n2", rtt_ms=80.0, battery=0.2),
        member("n1", loss=0.5),
    )
    assert names(shown(what, sort)) == order
    assert set(SORTS) == {"name", "state", "rtt", "loss", "battery", "age"}


def test_some_can_be_found_and_the_rest_is_counted() -> None:
    many = seen(*(member(f"n{number:02}") for number in range(50)))
    assert len(names(shown(many, find="n1"))) == 10
    text = shown(many, height=20)
    assert len(names(text)) == 15
    assert "… 35 more" in text
    assert "no member's name, state or link has 'zebra'" in shown(many, find="zebra")


def test_an_event_takes_one_line_and_says_nothing_twice() -> None:
    event = {"time": "2026-01-01T10:00:00.000Z", "origin": "n1", "level": "info"}
    events = [
        event | {"kind": "joined", "subject": "n2", "reason": "joined", "evidence": "unknown to alive"},
        event
        | {"kind": "started", "subject": "n1", "reason": "its first life, " + "as far as it goes " * 9, "evidence": ""},
    ]
    lines = shown(seen(member("n1"), events=events)).splitlines()[-2:]
    assert lines[0].startswith(" 10:00:00  n1: started · its first life")
    assert lines[0].endswith("…")
    assert lines[1] == " 10:00:00  n1: joined n2 · unknown to alive"


def test_what_others_say_steers_no_terminal() -> None:
    event = {"time": "2026-01-01T10:00:00.000Z", "origin": EVIL, "kind": EVIL, "subject": EVIL, "reason": EVIL}
    alert = {"code": EVIL, "text": EVIL, "remedy": EVIL, "level": "error"}
    cells = [{"id": EVIL, "state": "claimed", "holder": "n1"}]
    what = seen(
        member(EVIL, "failed"),
        member("n1"),
        alerts=[alert],
        cells=cells,
        events=[event | {"evidence": "", "level": "info"}],
    )
    text = shown(what)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]" in text
    assert max(map(len, text.splitlines())) <= 120


def test_four_small_questions_are_asked() -> None:
    """No list of objects crosses a slow link."""
    asked: list[str] = []

    def call(verb: str, **arguments: object) -> dict[str, Any]:
        asked.append(verb)
        return {"members": [], "cells": [], "events": [], "objects": 3}

    assert look(call)["status"]["objects"] == 3
    assert asked == ["status", "members", "cells", "events"]


def test_a_daemon_that_hangs_up_is_asked_again_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    """The socket hangs up after each answer, so that each question needs another connection."""
    daemon = AnsweringSocket(tmp_path)
    daemon.answers |= {"status": {"n": 1}, "members": {"members": []}, "cells": {"cells": []}, "events": {"events": []}}
    with Watched(daemon.path) as watched:
        was = {"old": True}
        assert watched._client.call("status") == {"n": 1}
        daemon.questions = 4
        assert watched.look_or_wait(was)["status"] == {"n": 1}
        assert watched.away == ""
        daemon.close()
        daemon.path.unlink()
        assert watched.look_or_wait(was) is was
        assert "nobody answers since 0 s" in watched.away
        assert "no daemon answers on" in watched.away
        text = shown(seen(member("n1")), away=watched.away)
        assert "nobody answers since 0 s, below is what was" in text
        again = AnsweringSocket(tmp_path)
        again.answers, again.questions = daemon.answers, 4
        assert watched.look_or_wait(was)["status"] == {"n": 1}
        assert watched.away == ""
        again.close()
