"""Three real daemons with labels of their own learn one head; it comes out as a bundle that is better than the start.

Most of the time passes in rounds, which have a least length, and in drawing what is labelled.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.main import main
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.golden import check_golden
from tests.support.daemons import Daemon, wait_for
from tests.support.label_sets import MODEL, drawn_set

NAMES = ("lea", "leo", "lia")
ROUND_S = 15
"""Many times what a device takes that has read its pictures, also beside much else: who trains longer than that has
others train from heads that lag."""
PATIENCE_S = 250.0


def flags(labels: Path, **more: object) -> list[str]:
    values = {
        "learning.enabled": "true", "learning.model": MODEL, "learning.labels": labels, "learning.round_s": ROUND_S,
        "learning.rounds": 24, "learning.share": 0.5, "learning.kib_s": 0, **more,
    }  # fmt: skip
    return ["--no-eye", *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]


def learning(daemon: Daemon) -> dict[str, Any]:
    return daemon.ask("learning")


def has_learned(said: dict[str, Any]) -> bool:
    """Whether words of all three are merged."""
    return len(said["authors"]) == 3 and max(said["deltas"][: said["round"]], default=0) == 3


@pytest.mark.slow
def test_three_daemons_learn_a_candidate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at, name in enumerate(NAMES):
        drawn_set(tmp_path / f"{name}-labels" / "first", 21 + at, 6, held_share=0.0)
    judge = tmp_path / "judge"
    drawn_set(judge, 31, 6, held_share=1.0)
    first = Daemon(tmp_path, NAMES[0], *flags(tmp_path / f"{NAMES[0]}-labels")).up()
    address = first.ask("status")["address"]
    daemons = [first]
    try:
        for name in NAMES[1:]:
            daemons.append(Daemon(tmp_path, name, *flags(tmp_path / f"{name}-labels"), join=address))
        for daemon in daemons[1:]:
            daemon.up()
        # Whoever is slow misses rounds, never the session: from some round on all three have spoken.
        wait_for(
            lambda: all(has_learned(learning(one)) for one in daemons),
            "a head that all three have taught",
            PATIENCE_S,
            lambda: [learning(one) for one in daemons],
        )
        found = learning(first)
        assert found["model_digest"] == load_bundle(MODEL).digest
        assert found["own_rows"] > 100
        assert found["liars"] == []
        assert {one["session"] for one in map(learning, daemons)} == {found["session"]}

        tried: set[int] = set()
        said = ("learning", "export", "--out", tmp_path / "new", "--version", "9", "--set", judge, "--unfinished")

        def exported() -> bool:
            """A round that is no better is refused; then a later one is tried."""
            if (number := learning(first)["round"]) in tried:
                return False
            tried.add(number)
            capsys.readouterr()
            return main([*map(str, said), "--control", str(first.control), "--json"]) == 0

        wait_for(exported, "a candidate that is better", PATIENCE_S, lambda: (capsys.readouterr(), learning(first)))
        made = json.loads(capsys.readouterr().out)
        print(f"of round {max(tried)}: {json.dumps(made)}")  # For -rP.
        assert made["held"] > 100
        assert made["after"]["right"] >= made["before"]["right"]
        assert made["after"]["loss"] < made["before"]["loss"]
        bundle = load_bundle(made["path"])
        detector = Detector.open(bundle, DetectorOptions())
        assert check_golden(detector) == ""
        detector.close()
        told = tomllib.loads(Path(made["path"]).read_text())["provenance"]["learning"]
        assert sorted(told["authors"]) == sorted(NAMES)
        assert told["from"] == found["model_digest"]
        # Nobody runs it: it is a candidate, and the session goes on with the model that it began with.
        assert all(learning(one)["model_digest"] == found["model_digest"] for one in daemons)
    finally:
        for daemon in daemons:
            daemon.close()
