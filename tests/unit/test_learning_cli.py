"""What people see of learning in the swarm: the verb, its words, its metrics, and what the doctor says of it."""

from pathlib import Path
from typing import Any

import pytest

from swarmd.api.learning import register_learning
from swarmd.api.metrics import Metrics
from swarmd.api.verbs import Verbs
from swarmd.cli import learning as verb
from swarmd.cli.diagnosis import _learning
from swarmd.cli.main import main
from swarmd.config.learning import LearningSection
from swarmd.config.sections import Config
from swarmd.errors import DaemonError
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.learning.requests import NAME, HeadMerged
from tests.unit.test_learning_link import Desk, no_waiting, session, turn

__all__ = ["no_waiting"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    one = Desk(tmp_path)
    turn(one, lambda: one.said)
    return one


@pytest.fixture
def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The verb asks this desk, through the registry of verbs."""
    verbs = Verbs()
    register_learning(verbs, lambda: desk)
    monkeypatch.setattr(verb, "ask", lambda args, name, **arguments: verbs.answer(name, arguments))
    return desk


def test_a_daemon_that_does_not_learn_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verbs = Verbs()
    register_learning(verbs, lambda: None)
    monkeypatch.setattr(verb, "ask", lambda args, name, **arguments: verbs.answer(name, arguments))
    assert main(["learning"]) == 0
    assert capsys.readouterr().out == "learning is off (learning.enabled)\n"
    with pytest.raises(DaemonError, match="does not learn"):
        verbs.answer("learning_head", {})


def test_status_has_what_people_ask_for(asked: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    asked.on_notice(StateChanged(NAME, HeadMerged(session(), 3, [1] * 8, 3, 90, 0)))
    asked.rest = "the battery is at 20 %, below learning.battery_min"
    turn(asked, lambda: False, 20)
    assert main(["learning", "status"]) == 0
    out = capsys.readouterr().out
    for words in (
        "zoo:small d1d1",
        "3 of 4 merged",
        "30 here, and 10 held back",
        "0.700 right at the start, 0.800 now",
    ):
        assert words in out
    assert "resting     the battery is at 20 %" in out


@pytest.mark.parametrize(("authors", "waits"), [(0, True), (2, True), (3, False)])
def test_status_says_that_too_few_have_taught(
    asked: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, authors: int, waits: bool
) -> None:
    status = asked.status
    monkeypatch.setattr(asked, "status", lambda: {**status(), "authors": [f"drone-{n}" for n in range(authors)]})
    assert main(["learning", "status"]) == 0
    assert ("waits       nothing is merged before 3 members have taught" in capsys.readouterr().out) is waits


@pytest.mark.parametrize(
    ("flags", "round_", "problem"),
    [
        ([], 4, "give --out FOLDER --version VERSION"),
        (["--out", "x", "--version", "2"], 3, "round 3 of 4: wait for the last, or give --unfinished"),
        (["--out", "x", "--version", "2"], 0, "nothing is merged yet"),
    ],
)
def test_an_export_says_what_it_lacks(
    asked: Desk, capsys: pytest.CaptureFixture[str], flags: list[str], round_: int, problem: str
) -> None:
    if round_:
        asked.on_notice(StateChanged(NAME, HeadMerged(session(), round_, [1] * 8, 3, 90, 0)))
    assert main(["learning", "export", *flags]) == 1
    assert problem in capsys.readouterr().err


def test_metrics_say_where_it_stands(desk: Desk) -> None:
    metrics = Metrics()
    desk.register(metrics)
    text = metrics.render().decode()
    for line in (
        'swarmd_learning_total{what="trained"} 0',
        'swarmd_learning_total{what="sent_bytes"} 0',
        'swarmd_learning_measure{what="own_rows"} 30',
        'swarmd_learning_measure{what="liars"} 0',
        'swarmd_learning_measure{what="accuracy"} 0.8',
    ):
        assert line in text


def found(**values: Any) -> list[tuple[str, str]]:
    config = Config(learning=LearningSection(**values))
    return [(one.check, one.verdict) for one in _learning(config)]


def test_the_doctor_looks_at_model_and_labels(tmp_path: Path) -> None:
    assert found() == []
    head = ("learning", "ok")
    assert found(enabled=True) == [head, ("labels", "warn")]
    assert found(enabled=True, labels=str(tmp_path / "none")) == [head, ("labels", "warn")]
    assert found(enabled=True, model="/no/such.toml") == [("learning", "warn")]
    (tmp_path / "sets" / "bad").mkdir(parents=True)
    (tmp_path / "sets" / "bad" / "set.json").write_text("[]")
    assert found(enabled=True, labels=str(tmp_path / "sets")) == [head, ("labels", "warn")]
