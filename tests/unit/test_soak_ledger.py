"""The soak's bookkeeping: what was acknowledged and lacks is named, what grows is seen, and what is whole passes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.soak.figures import Sample, growth, slope_h
from tests.bench.soak.ledger import Ledger, place_of, spot_at

MIB = 1 << 20


def an_object(spot: int, last_s: float = 10.0) -> dict[str, Any]:
    east_m, north_m = place_of(spot)
    return {"east_m": east_m + 0.3, "north_m": north_m - 0.2, "last_seen_s": last_s}


def a_cell(name: str, *nodes: str) -> dict[str, Any]:
    return {"id": name, "state": "done" if nodes else "free", "done_by": list(nodes)}


@given(st.integers(0, 5_000))
def test_a_spot_is_found_again_at_its_place(spot: int) -> None:
    assert spot_at(*place_of(spot)) == spot


@given(
    st.dictionaries(st.integers(0, 300), st.floats(1, 1e9), min_size=1),
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
    assert ledger.missing(rows, objects) == []
    # A later look adds to it; an object that nobody observed on purpose is none of the soak's business.
    assert ledger.missing(rows, [*objects, {"east_m": None}, {"east_m": 3.0, "north_m": 2.0}]) == []
    lost = data.draw(st.integers(0, len(objects) - 1))
    assert len(ledger.missing(rows, objects[:lost] + objects[lost + 1 :])) == 1
    older = {**objects[lost], "last_seen_s": objects[lost]["last_seen_s"] / 2}
    assert len(ledger.missing(rows, [*objects[:lost], older, *objects[lost + 1 :]])) == 1
    cell = data.draw(st.sampled_from(sorted(cells)))
    (row,) = (row for row in rows if row["id"] == cell)
    assert len(ledger.missing([{**row, "state": "claimed"} if one is row else one for one in rows], objects)) == len(
        cells[cell]
    )
    assert (
        len(ledger.missing([{**row, "done_by": row["done_by"][1:]} if one is row else one for one in rows], objects))
        == 1
    )


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
