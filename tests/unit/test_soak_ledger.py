"""The soak's bookkeeping: what was acknowledged and lacks is named, what grows is seen, and what is whole passes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.soak.figures import CURVE_S, Sample, curve, growth, slope_h
from tests.bench.soak.ledger import TTL_S, Ledger, cells_by, place_of, spot_at

MIB = 1 << 20
NOW_S = 1.8e9


def an_object(spot: int, last_s: float = 10.0) -> dict[str, Any]:
    east_m, north_m = place_of(spot)
    return {"east_m": east_m + 0.3, "north_m": north_m - 0.2, "last_seen_s": last_s}


def a_cell(name: str, *nodes: str) -> dict[str, Any]:
    return {"id": name, "state": "done" if nodes else "free", "done_by": list(nodes)}


@given(st.integers(0, 5_000))
def test_a_spot_is_found_again_at_its_place(spot: int) -> None:
    assert spot_at(*place_of(spot)) == spot


@given(
    st.dictionaries(st.integers(0, 300), st.floats(NOW_S - TTL_S / 2, NOW_S), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1), min_size=1),
    st.data(),
)
def test_a_whole_picture_lacks_nothing_and_each_loss_is_named(
    spots: dict[int, float], cells: dict[str, set[str]], data: st.DataObject
) -> None:
    ledger = Ledger()
    for cell, nodes in cells.items():
        for node in nodes:
            ledger.cell_done(cell, node)
    objects = [an_object(spot, last_s) for spot, last_s in spots.items()]
    ledger.shown(objects)
    rows = [a_cell(cell, *nodes) for cell, nodes in cells.items()]

    def lacks(rows: list[dict[str, Any]], objects: list[dict[str, Any]]) -> int:
        return len(ledger.missing(rows, objects, NOW_S))

    assert lacks(rows, objects) == 0
    # A later look adds to it; an object that nobody observed on purpose is none of the soak's business.
    assert lacks(rows, [*objects, {"east_m": None}, {"east_m": 3.0, "north_m": 2.0}]) == 0
    lost = data.draw(st.integers(0, len(objects) - 1))
    before, after = objects[:lost], objects[lost + 1 :]
    assert lacks(rows, before + after) == 1
    assert lacks(rows, [*before, {**objects[lost], "last_seen_s": objects[lost]["last_seen_s"] - 0.5}, *after]) == 1
    cell = data.draw(st.sampled_from(sorted(cells)))
    others = [row for row in rows if row["id"] != cell]
    (row,) = (row for row in rows if row["id"] == cell)
    assert lacks([*others, {**row, "state": "claimed"}], objects) == len(cells[cell])
    assert lacks([*others, {**row, "done_by": row["done_by"][1:]}], objects) == 1
    # What nobody has seen for as long as an object is shown leaves the picture, and no earlier.
    oldest = min(spots.values())
    assert ledger.missing(rows, [], oldest + TTL_S - 0.1) != []
    assert ledger.missing(rows, [], max(spots.values()) + TTL_S) == []


def samples(memory_mb_h: float = 0.0, descriptors: int = 60, bytes_h: int = 0, hours: float = 2.0) -> list[Sample]:
    steps = int(hours * 240) + 1
    return [
        Sample(
            15.0 * i, 7, 30.0 + memory_mb_h * i / 240 + 0.004 * (i % 2), descriptors, 6, 4 * MIB + bytes_h * i // 240
        )
        for i in range(steps)
    ]


def failing(found: list[Sample]) -> list[str]:
    return [name for name, holds in growth({"n0": found}, 1_800, 20)["bars"].items() if not holds]


def test_what_grows_is_seen_and_what_is_flat_passes() -> None:
    assert failing(samples()) == []
    assert failing(samples(memory_mb_h=0.08)) == []
    assert "memory" in failing(samples(memory_mb_h=0.15))[0]
    assert "descriptors" in failing(samples(descriptors=200))[0]
    assert "files" in failing(samples(bytes_h=2 * MIB))[0]


def test_what_is_too_short_is_not_judged() -> None:
    bars = growth({"n0": samples(memory_mb_h=50.0, hours=0.75)}, 1_800, 20)["bars"]
    assert [holds for name, holds in bars.items() if "memory" in name] == [None]
    assert growth({"n0": []}, 1_800, 20)["bars"] == {}
    assert slope_h([(0.0, 1.0), (1.0, 2.0)]) is None


def test_the_warm_up_does_not_count() -> None:
    grown = [Sample(one.at_s, 7, min(one.at_s, 1_800.0) / 60, 60, 6, MIB) for one in samples()]
    assert failing(grown) == []


def test_the_report_names_the_file_that_grew() -> None:
    rows = [Sample(15.0 * i, 7, 30.0, 60, 6, 0, {"small": 9, "log": 100 + i, "late": i // 400}) for i in range(481)]
    files = growth({"n0": rows}, 1_800, 20)["files"]["n0"]
    assert list(files.items()) == [("log", (220, 580, 580)), ("late", (0, 1, 1)), ("small", (9, 9, 9))]
    shown = curve(rows)
    assert [row["at_s"] for row in shown] == [CURVE_S * i for i in range(25)]
    assert shown[2] == {"at_s": 600, "memory_mb": 30.0, "files": {"small": 9, "log": 140, "late": 0}}


def test_most_cells_are_done_in_the_warm_up_and_the_last_at_the_end() -> None:
    at = [cells_by(at_s, 1_800, 7_200, 240) for at_s in (0, 900, 1_800, 4_500, 7_200, 9_000)]
    assert at == [0, 108, 216, 228, 240, 240]
    assert cells_by(0.0, 0.0, 10.0, 240) == 216
