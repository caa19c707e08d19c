"""Entries of the view keep a row in packed form: whatever a batch may say comes out as it went in."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import (
    ASSET,
    BESIDE_MAX,
    FEATURES_BYTES,
    LATTICE,
    POSITION_MAX_CM,
    TRACK,
    VARIANCE_MAX_CM2,
    Sighting,
)
from swarmd_protocols.state.crdt.places import PLACE_MAX
from swarmd_protocols.state.dedup import entry as entry_module
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import place_of, position_in, spot_of
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.thumbs.form import NAME_BYTES
from tests.support.mutants import Mutant, assert_found, each_mutant

NODE = NodeId(b"n" * 16)
_HALF = st.sampled_from([0, 1, -1, 255, 1 << 20, -(1 << 20), PLACE_MAX, -PLACE_MAX]) | st.integers(
    -PLACE_MAX, PLACE_MAX
)
_PLACES = st.tuples(_HALF, _HALF)
_CM = st.integers(-POSITION_MAX_CM, POSITION_MAX_CM)
_CM2 = st.integers(0, VARIANCE_MAX_CM2)
_STAMPS = st.integers(0, (1 << 44) - 2).map(lambda ms: ms << 16)
_OFFSETS = st.tuples(st.integers(-(1 << 16), 1 << 16), st.integers(-(1 << 16), 1 << 16))


@st.composite
def rows(draw: st.DrawFn) -> Sighting:
    """Whatever `facts.decode_facts` lets through, and somewhat more."""
    kind = draw(st.sampled_from([LATTICE, ASSET, TRACK]))
    place = draw(st.text(max_size=8) if kind == ASSET else _PLACES)
    return Sighting(
        draw(st.sampled_from(["a", "hot-spot", "ü"])), kind, place, draw(st.booleans()), draw(st.booleans()),
        draw(_CM), draw(_CM), (draw(_CM2), draw(_CM) * 100, draw(_CM2)), draw(st.integers(0, 1000)), draw(_STAMPS),
        draw(_STAMPS), draw(st.integers(0, 1 << 40)), draw(st.binary(max_size=8)),
        tuple(draw(st.lists(_OFFSETS, max_size=BESIDE_MAX))), draw(st.sampled_from([b"", b"p" * NAME_BYTES])),
        draw(st.sampled_from([b"", b"f" * FEATURES_BYTES])), draw(st.sampled_from([0, 0, 1001, 60_000])),
    )  # fmt: skip


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(rows(), rows())
def test_law_a_row_comes_out_as_it_went_in(first: Sighting, second: Sighting) -> None:
    view = DedupView(DedupConfig())
    for number, row in enumerate((first, second._replace(label=first.label, kind=first.kind, place=first.place))):
        view.put(NODE, row, (1, number + 1))
        view.settle()
        entry = view.get(NODE, first.key)
        assert entry is not None
        assert (entry.row, entry.key, entry.origin) == (row, row.key, NODE)
        assert (entry.last, entry.beside, entry.positioned) == (row.last, row.beside, row.positioned)
        assert (entry.thumb, entry.features, entry.need_milli) == (row.thumb, row.features, row.need_milli)
        assert position_in(entry.packed) == (row.east_cm, row.north_cm, *row.covariance_cm2)
        assert entry.is_fixed == (row.positioned and not row.moving)
        assert entry.rank == entry_module.rank_of(NODE, row)
    assert view.remove(NODE, first.key)
    assert not list(view.all())
    assert not view._families


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(_PLACES, _PLACES, _OFFSETS)
def test_law_no_two_places_share_a_spot(a: tuple[int, int], b: tuple[int, int], offset: tuple[int, int]) -> None:
    assert (spot_of(a) == spot_of(b)) == (a == b)
    assert place_of(spot_of(a)) == a
    beside = (a[0] + offset[0], a[1] + offset[1])
    assert spot_of(beside) == int(spot_of(a)) + int(spot_of(offset))
    assert place_of(spot_of(beside)) == beside


def _narrow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry_module, "_LINE_BITS", 48)


def _unmarked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry_module, "_MOVING", 1)


@each_mutant([(test_law_no_two_places_share_a_spot, _narrow), (test_law_a_row_comes_out_as_it_went_in, _unmarked)])
def test_mutants_of_packing_are_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
