"""What `swarmd members` prints of a mesh: states with their age."""

import argparse
import json
from typing import Any

import msgspec
import pytest

from swarmd.api import views
from swarmd.cli import members
from swarmd.records import Member
from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.summary import MemberView

NOW_NS = 100_000_000_000


def row(name: str, state: MemberState, unheard_since_ns: int | None) -> dict[str, Any]:
    view = MemberView(
        NodeId(bytes(16)), name, "10.0.0.1:7946", state, 1, None, 0.0, "none", (), "1", "eye", {},
        unheard_since_ns=unheard_since_ns,
    )  # fmt: skip
    return {**views.member_row(view), "unheard_s": views.unheard_s(view, NOW_NS), "position": None}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the daemon says: one that is heard, one that is not."""
    rows = [row("a", MemberState.ALIVE, None), row("d", MemberState.UNREACHABLE, NOW_NS - 12_340_000_000)]
    told = {"members": rows, "dismissed": [], "partial": False, "estimated": 2}
    monkeypatch.setattr(members, "ask", lambda args, verb, **arguments: told)
    return told


def test_the_text_says_since_when_nobody_hears_a_member(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert members.run(argparse.Namespace(json=False, geojson=False, watch=False)) == 0
    heard, unheard = capsys.readouterr().out.splitlines()[-2:]
    assert "unreachable, not heard since 12 s" in unheard
    assert "not heard" not in heard


def test_who_is_reached_through_others_is_relayed_in_a_mesh_alone(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for mesh, said in ((True, ["relayed", "none"]), (False, ["none", "none"])):
        answer["mesh"] = mesh
        assert members.run(argparse.Namespace(json=False, geojson=False, watch=False)) == 0
        lines = capsys.readouterr().out.splitlines()[-2:]
        assert [next(word for word in ("relayed", "none") if f" {word} " in line) for line in lines] == said


def test_json_and_python_have_seconds(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert members.run(argparse.Namespace(json=True, geojson=False, watch=False)) == 0
    rows = json.loads(capsys.readouterr().out)["members"]
    assert [one["unheard_s"] for one in rows] == [None, 12.3]
    assert [one.unheard_s for one in msgspec.convert(rows, list[Member])] == [None, 12.3]


def test_a_clock_that_lags_makes_no_negative_age() -> None:
    assert row("d", MemberState.UNREACHABLE, NOW_NS + 1)["unheard_s"] == 0.0
