"""The table of bounds: a figure beyond its limit is missed, and what could not be measured does not hold."""

from tests.bench.bench_hostile import BOUNDS, ROOMS, rows_of

ATTACK = {
    "memory_mb": 3.0,
    "cpu_share": 0.01,
    "longest_ms": 4.0,
    "journal_bytes": 9_000,
    "recovery_s": 2.0,
    "restart_s": 0.1,
}


def test_a_figure_beyond_its_limit_is_missed() -> None:
    good = rows_of({"state": {"attacks": [ATTACK, {**ATTACK, "memory_mb": 31.9}]}}, {})
    assert good
    assert all(row["holds"] for row in good)
    bad = rows_of({"state": {"attacks": [ATTACK, {**ATTACK, "longest_ms": 20.1}]}}, {})
    assert [row["bound"] for row in bad if not row["holds"]] == ["longest event of a member under it"]


def test_what_was_not_measured_does_not_hold() -> None:
    rows = rows_of({"swim": {"accuser": {}}}, {"state": "there is no bench"})
    assert rows
    assert not any(row["holds"] for row in rows)
    assert {row["why"] for row in rows if row["room"] == "state"} == {"there is no bench"}


def test_every_bound_has_a_room_and_a_law() -> None:
    assert all(bound.room in ROOMS and bound.law in (4, 6, 7, 9) for bound in BOUNDS)
    assert len({bound.text for bound in BOUNDS}) == len(BOUNDS)
