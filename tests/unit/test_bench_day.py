"""The day of cameras sees what grows, what breaks, and what was too short to say; a short day runs."""

from typing import Any

from tests.bench.bench_day import SPREAD, WARM_HOURS, bars, measure


def _rows(sizes: list[int]) -> list[dict[str, Any]]:
    return [{"lost": 0, "witnesses": {"n3": {"bytes": size, "batches": 7, "disk_bytes": 9}}} for size in sizes]


WARM = [20, 30, 40, 45, 50, 90]


def test_growth_is_seen_and_a_tooth_of_the_saw_is_not() -> None:
    assert bars(_rows([*WARM, 100, 104, 99, 104, 101]), 0) == {
        "no rule broken": True,
        "nothing lost": True,
        "bytes flat": True,
        "batches flat": True,
        "disk_bytes flat": True,
    }
    grown = int(104 * SPREAD) + 1
    assert bars(_rows([*WARM, 100, 104, 99, grown]), 0)["bytes flat"] is False
    assert bars(_rows([*WARM, 100, 104, 99, grown]), 2)["no rule broken"] is False


def test_a_loss_in_any_hour_is_seen() -> None:
    rows = _rows([*WARM, 100, 104])
    rows[1]["lost"] = 1
    assert bars(rows, 0)["nothing lost"] is False


def test_what_was_too_short_says_nothing() -> None:
    assert bars(_rows([*WARM, 100, 104][: WARM_HOURS + 2]), 0)["bytes flat"] is None


def test_an_hour_of_four_cameras() -> None:
    told: list[dict[str, Any]] = []
    report = measure(4, 1, 3, told.append)
    assert told == report["rows"]
    assert len(told) == 1
    assert told[0]["detections"] > 0
    assert all(one["bytes"] > 10_000 and one["disk_bytes"] > 100 for one in told[0]["witnesses"].values())
    assert report["bars"]["no rule broken"] is True
