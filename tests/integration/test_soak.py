"""A soak of a few seconds: the daemons meet, die, come back and agree, and a report says so; a loss makes it fail."""

import json
import time
from pathlib import Path

import pytest

from tests.bench.soak.__main__ import Soak, main
from tests.bench.soak.ledger import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SHORT = ["--loopback", "--nodes", "3", "--witnesses", "1", "--minutes", "0.4", "--warm", "0.1"]


def test_daemons_are_killed_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.soak.__main__.FAULT_S", 2.0)
    monkeypatch.setattr("tests.bench.soak.__main__.SAMPLE_S", 2.0)
    heal = Soak._heal

    def disturb_enough_and_heal(soak: Soak) -> None:
        """How much happens within half a minute is chance, and the less the slower the machine is."""
        while not soak.counts["brain-kill"] + soak.counts["brain-term"]:
            soak._fault()
            time.sleep(0.2)
        while len(soak.ledger.cells) < 10:
            soak._finish_cell_at(soak._any())
        heal(soak)

    monkeypatch.setattr(Soak, "_heal", disturb_enough_and_heal)
    report = tmp_path / "soak.json"
    assert main([*SHORT, "--out", str(report)]) == 0
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["faults"]["brain-kill"] + found["faults"]["brain-term"] >= 1
    assert found["acknowledged"]["cells"] >= 10
    assert found["growth"]["brains"] == 1
    assert found["problems"] == []


def test_a_loss_makes_it_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heal = Soak._heal

    def heal_and_forget(soak: Soak) -> None:
        heal(soak)
        # A cell that a daemon answered for, and that none of them holds.
        ledger: Ledger = soak.ledger
        ledger.cell_done("s999", "n1")

    monkeypatch.setattr(Soak, "_heal", heal_and_forget)
    report = tmp_path / "soak.json"
    assert main([*SHORT, "--minutes", "0.05", "--out", str(report)]) == 1
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["lost"] == {name: ["s999 done by n1"] for name in ("n0", "n1", "n2")}
