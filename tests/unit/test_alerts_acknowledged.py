"""Acknowledged alerts: they stand all the same, the first word counts, and what comes back is new."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.brain.history import acknowledged
from swarmd.events import alerts
from swarmd.events.alerts import STANDING_MAX, Acknowledged, Alerts
from swarmd.events.record import EventRecord


def made() -> Alerts:
    return Alerts(lambda alert, is_raised: None)


def row(kind: str, subject: str, reason: str = "", evidence: str = "") -> EventRecord:
    fields = {"kind": kind, "subject": subject, "reason": reason, "evidence": evidence, "at_ms": 5, "level": "info"}
    return EventRecord(
        **{name: fields.get(name, "") for name in EventRecord.__struct_fields__}  # type: ignore[arg-type]
    )


def test_it_stands_all_the_same_and_says_who_and_when() -> None:
    table = made()
    table.set("clock-wrong", "12 s ahead")
    before_ms = time.time_ns() // 1_000_000
    assert table.acknowledge("clock-wrong", "", "ann", "on my way") is not None
    (alert,) = table.standing()
    assert alert.acknowledged is not None
    assert (alert.acknowledged.by, alert.acknowledged.note) == ("ann", "on my way")
    assert before_ms <= alert.acknowledged.at_ms <= time.time_ns() // 1_000_000
    assert table.stands("clock-wrong")
    table.set("clock-wrong", "13 s ahead")
    assert table.standing()[0].acknowledged == alert.acknowledged, "other words of the same reason"


def test_the_first_word_counts() -> None:
    table = made()
    table.set("clock-wrong", "12 s ahead")
    assert table.acknowledge("clock-wrong", "", "ann", "")
    assert table.acknowledge("clock-wrong", "", "bob", "mine") is None
    (alert,) = table.standing()
    assert alert.acknowledged is not None
    assert alert.acknowledged.by == "ann"


def test_what_comes_back_is_new() -> None:
    table = made()
    table.set("clock-wrong", "12 s ahead")
    table.acknowledge("clock-wrong", "", "ann", "")
    table.set("clock-wrong", "")
    table.set("clock-wrong", "9 s ahead")
    assert table.standing()[0].acknowledged is None


def test_one_subject_is_not_another() -> None:
    table = made()
    for subject in ("eye", "ear"):
        table.set("release-halted", "it sees ghosts", subject)
    assert table.acknowledge("release-halted", "nose", "ann", "") is None
    assert table.acknowledge("release-halted", "ear", "ann", "")
    assert {one.subject: one.acknowledged is not None for one in table.standing()} == {"eye": False, "ear": True}


def test_it_holds_over_a_restart_for_what_stands_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(alerts.time, "monotonic", lambda: now_s[0])
    table, seen = made(), Acknowledged("ann", 5, "")
    table.restore({("clock-wrong", ""): seen, ("broker-lost", "mqtt"): seen})
    table.set("clock-wrong", "12 s ahead")
    assert table.standing()[0].acknowledged == seen
    table.set("clock-wrong", "")
    table.set("clock-wrong", "12 s ahead")
    assert table.standing()[0].acknowledged is None, "it was solved meanwhile"
    now_s[0] += alerts.RESTORED_S + 1
    table.set("broker-lost", "no answer", "mqtt")
    late = next(one for one in table.standing() if one.code == "broker-lost")
    assert late.acknowledged is None, "another loss, days later"


def test_the_file_of_events_says_what_was_acknowledged_and_not_solved() -> None:
    rows = [
        row("alert-acknowledged", "clock-wrong", "soon", "ann"),
        row("alert-acknowledged", "broker-lost mqtt", "", "bob"),
        row("alert-cleared", "clock-wrong"),
        row("alert-acknowledged", "release-halted eye 7", "", "cy"),
        row("alert-cleared", "broker-lost dds"),
    ]
    found = acknowledged(rows)
    assert {key: one.by for key, one in found.items()} == {
        ("broker-lost", "mqtt"): "bob",
        ("release-halted", "eye 7"): "cy",
    }


@given(st.lists(st.tuples(st.sampled_from(["set", "clear", "ack"]), st.integers(0, 99)), max_size=300))
def test_whatever_happens_only_what_stands_was_acknowledged(steps: list[tuple[str, int]]) -> None:
    """A model: an alert was acknowledged if and only if somebody said so since it was raised; and all is bounded."""
    table = made()
    model: dict[str, bool] = {}
    for step, number in steps:
        subject = f"s{number}"
        if step == "set":
            if subject in model or len(model) < STANDING_MAX:
                model.setdefault(subject, False)
            table.set("release-halted", "bad", subject)
        elif step == "clear":
            model.pop(subject, None)
            table.set("release-halted", "", subject)
        else:
            first = model.get(subject) is False
            assert (table.acknowledge("release-halted", subject, "ann", "x" * 500) is not None) == first
            if subject in model:
                model[subject] = True
        assert {one.subject: one.acknowledged is not None for one in table.standing()} == model
    assert all(one.acknowledged is None or len(one.acknowledged.note) <= 120 for one in table.standing())
