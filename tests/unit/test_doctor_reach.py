"""`swarmd doctor`: a node that others hear and do not reach is told, with what a router in between needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.diagnosis import Finding, _membership
from swarmd.cli.membership_check import not_reaching
from swarmd.config.loading import load
from tests.support.control_socket import AnsweringSocket

BROKEN = "r hears a, a does not hear r"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[AnsweringSocket]:
    one = AnsweringSocket(tmp_path)
    rows: list[dict[str, Any]] = [
        {"name": name, "quality": "self" if name == "a" else "good", "links": []} for name in "abr"
    ]
    rows[1]["links"] = [BROKEN, "b hears r, r does not hear b"]
    one.answers = {"status": {"node": "a", "alerts": []}, "members": {"members": rows}}
    yield one
    one.close()


def reach(daemon: AnsweringSocket) -> list[Finding]:
    flags = {"node.control": str(daemon.path), "node.name": "a", "swarm.dev_fleet": "fleet"}
    found = _membership(load(None, {}, flags).config)
    return [one for one in found if one.check == "reach"]


def test_who_is_heard_and_not_reached_is_told_with_the_remedy(daemon: AnsweringSocket) -> None:
    [finding] = reach(daemon)
    assert finding.verdict == "warn"
    assert finding.found.startswith("r hear it")
    assert "transport.advertise" in finding.remedy


def test_what_others_say_of_each_other_is_none_of_it(daemon: AnsweringSocket) -> None:
    daemon.answers["members"]["members"][1]["links"].remove(BROKEN)
    assert reach(daemon) == []
    assert not_reaching(str(daemon.path), "b") == []


def test_where_no_daemon_runs_nothing_is_said(tmp_path: Path) -> None:
    assert not_reaching(str(tmp_path / "none.sock"), "a") == []
