"""One origin's sighting in the view, and the order in which sightings are decided."""

import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from heapq import merge
from itertools import islice
from typing import TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.facts import ASSET, FEATURES_BYTES, Place, Sighting, SightingKey
from swarmd_protocols.state.crdt.unsure import NOT_SAID, Alike
from swarmd_protocols.state.dedup.looks import look_of
from swarmd_protocols.thumbs.form import NAME_BYTES

Rank: TypeAlias = int
"""Lower ranks first: without an asset (1 bit), first seen (60 bits), a hash of origin and key (64 bits)."""
HASH_MASK = (1 << 64) - 1
"""64 bits."""
PART = 32
"""Entries of one part of a long answer: told, they take about a millisecond."""
SORTED_AT_ONCE = 1024
"""Entries looked at and sorted in one go: half a millisecond."""

_ROW = struct.Struct("<iiqqqqqqHBB")
"""East, north, covariance (3), first, last, reports, score, marks, bytes of the model; it, picture, features and
`beside` follow."""
_PLACE = struct.Struct("<ii")
_LAST = struct.Struct("<q")
_LAST_AT = 40
"""Where in `_ROW` the stamp of the last sighting begins, bytes."""
_MARKS_AT = 58
"""Where its marks are."""
_MODEL_AT = 59
"""Where the length of the model is."""
POSITIONED = 1
"""Mark of a row whose position says something."""
_MOVING = 2
"""Mark of a row that says that the thing moves."""
PICTURED = 4
"""Mark of a row that names a picture."""
FEATURED = 8
"""Mark of a row that says how its thing looks."""
UNSURE = 16
"""Mark of a row whose author is not sure: what it needs, and how alike looks are, follow in six bytes."""
_NEED = struct.Struct(">HHH")
"""The score, and the two correlations of `Sighting.alike`; thousandths."""
_LINE_BITS = 50
"""Of the second half of a place in a `Spot`: more than `PLACE_MAX` and the offset of a neighbour need, with a sign."""

place_in: Callable[[bytes], tuple[int, int]] = _PLACE.unpack_from
"""East and north, centimetres, out of what an entry has packed; no method, since it is called for every neighbour."""
position_in: Callable[[bytes], tuple[int, int, int, int, int]] = struct.Struct("<iiqqq").unpack_from
"""The same, and the covariance (east-east, east-north, north-north)."""
figures_in: Callable[[bytes], tuple[int, int, int, int, int]] = struct.Struct("<32xqqqHB").unpack_from
"""First and last seen, reports, score and marks."""

Spot: TypeAlias = int | str
"""A place as entries are kept by it: an asset's name, or (first half << `_LINE_BITS`) + second half."""


class Family:
    """What the entries of one origin, label and kind of place have in common, and those entries."""

    __slots__ = ("entries", "group", "kind", "label", "origin")

    def __init__(self, origin: NodeId, label: str, kind: int, group: str) -> None:
        """Empty."""
        self.origin = origin
        self.label = label
        self.kind = kind
        self.group = group
        self.entries: dict[Spot, Entry] = {}


class Entry:
    """One origin's sighting and its part in an object.

    There may be tens of thousands, so the numbers of a row are packed into some 70 bytes; as a `Sighting` with its
    numbers they would take 500. `row` makes one of them where all of it is needed.
    """

    __slots__ = (
        "dot",
        "family",
        "group",
        "leader",
        "members",
        "origin",
        "packed",
        "placed",
        "rank",
        "shown",
        "spot",
        "told",
        "watched",
    )

    def __init__(self, family: Family, spot: Spot, row: Sighting, dot: Dot) -> None:
        """Not yet decided: `leader` is None until the view settles."""
        self.family = family
        self.origin = family.origin
        self.group = family.group
        self.spot = spot
        self.packed = _pack(row)
        """The numbers of its row; `position_in` and the properties read them."""
        self.dot = dot
        self.rank: Rank = rank_of(family.origin, row)
        self.placed = False
        """Told from others by its place: it has one, does not move, and is not one too many in a crowd."""
        self.leader: Entry | None = None
        self.members: list[Entry] | None = None
        self.told = False
        """People have been told of this sighting."""
        self.shown = False
        """Leaders only: people have been told of this object."""
        self.watched = 0
        """Leaders only: swarm time in milliseconds at which its expiry is looked at; 0 where it is not waited for."""

    @property
    def key(self) -> SightingKey:
        """What finds it among its origin's."""
        family = self.family
        return family.label, family.kind, place_of(self.spot)

    @property
    def row(self) -> Sighting:
        """What its origin says, made anew."""
        packed, family = self.packed, self.family
        east, north, ee, en, nn, first, last, reports, score, marks, length = _ROW.unpack_from(packed)
        values = (
            family.label, family.kind, place_of(self.spot), marks & _MOVING != 0, marks & POSITIONED != 0,
            east, north, (ee, en, nn), score, first, last, reports,
            packed[_ROW.size : _ROW.size + length], self.beside, self.thumb, self.features, self.need_milli, self.alike,
        )  # fmt: skip
        return tuple.__new__(Sighting, values)  # As `Sighting._make`, at half the time.

    def replace(self, row: Sighting) -> None:
        """Take a later row of the same key."""
        self.packed = _pack(row)
        self.rank = (self.rank >> 124 << 124) | (row.first << 64) | (self.rank & HASH_MASK)

    @property
    def positioned(self) -> bool:
        """Whether its position says anything."""
        return self.packed[_MARKS_AT] & POSITIONED != 0

    @property
    def is_fixed(self) -> bool:
        """Whether it has a place that can tell it from others: a position, and it does not move."""
        return self.packed[_MARKS_AT] & (POSITIONED | _MOVING) == POSITIONED

    @property
    def last(self) -> int:
        """Stamp at which it was last seen."""
        stamp: int = _LAST.unpack_from(self.packed, _LAST_AT)[0]
        return stamp

    @property
    def beside(self) -> tuple[tuple[int, int], ...]:
        """See `Sighting.beside`."""
        packed = self.packed
        begin = self._need_at + (_NEED.size if packed[_MARKS_AT] & UNSURE else 0)
        return () if begin == len(packed) else tuple(_PLACE.iter_unpack(packed[begin:]))

    @property
    def thumb(self) -> bytes:
        """The name of its picture, b"" for none."""
        packed = self.packed
        begin = _ROW.size + packed[_MODEL_AT]
        return packed[begin : begin + NAME_BYTES] if packed[_MARKS_AT] & PICTURED else b""

    @property
    def _features_at(self) -> int:
        packed = self.packed
        return _ROW.size + packed[_MODEL_AT] + (NAME_BYTES if packed[_MARKS_AT] & PICTURED else 0)

    @property
    def _need_at(self) -> int:
        return self._features_at + (FEATURES_BYTES if self.packed[_MARKS_AT] & FEATURED else 0)

    @property
    def is_verdict(self) -> bool:
        """Whether it is another judge's word (`judged.py`), and no sighting."""
        return figures_in(self.packed)[2] == 0

    @property
    def is_unsure(self) -> bool:
        """Whether its author says what score would make it sure, which is not reached."""
        return self.packed[_MARKS_AT] & UNSURE != 0

    @property
    def need_milli(self) -> int:
        """See `Sighting.need_milli`."""
        return _NEED.unpack_from(self.packed, self._need_at)[0] if self.is_unsure else 0

    @property
    def alike(self) -> Alike:
        """See `Sighting.alike`."""
        return _NEED.unpack_from(self.packed, self._need_at)[1:] if self.is_unsure else NOT_SAID

    @property
    def model(self) -> bytes:
        """See `Sighting.model`."""
        return self.packed[_ROW.size : _ROW.size + self.packed[_MODEL_AT]]

    @property
    def features(self) -> bytes:
        """See `Sighting.features`."""
        begin = self._features_at
        return self.packed[begin : begin + FEATURES_BYTES] if self.packed[_MARKS_AT] & FEATURED else b""

    @property
    def look(self) -> bytes:
        """What is compared with other sightings' where places are poor; b"" for nothing."""
        packed = self.packed
        if not packed[_MARKS_AT] & FEATURED:
            return b""
        return look_of(packed[_ROW.size : _ROW.size + packed[_MODEL_AT]], self.features)

    @property
    def object_id(self) -> str:
        """The id of the object that this entry leads: the asset's where there is one, else its own."""
        if self.family.kind != ASSET:
            return f"{self.rank & HASH_MASK:016x}"
        name = f"{self.group}\0{self.spot}".encode()
        return blake2b(name, digest_size=8, person=b"swarmd-asset").hexdigest()


def entry_of(origin: NodeId, row: Sighting, dot: Dot, group: str) -> Entry:
    """An entry of no view, for what a row's entry would answer."""
    return Entry(Family(origin, row.label, row.kind, group), spot_of(row.place), row, dot)


def _pack(row: Sighting) -> bytes:
    (
        _, _, _, moving, positioned, east, north, covariance, score, first, last, reports, model, beside, thumb, look,
        need, alike,
    ) = row  # fmt: skip
    is_unsure = need > score or not reports  # Another judge's word is none of who is sure, whatever it claims.
    marks = positioned * POSITIONED | moving * _MOVING | (PICTURED if thumb else 0) | (FEATURED if look else 0)
    marks |= UNSURE if is_unsure else 0
    packed = _ROW.pack(east, north, *covariance, first, last, reports, score, marks, len(model)) + model + thumb + look
    if is_unsure:
        packed += _NEED.pack(need, *alike)
    return b"".join((packed, *(_PLACE.pack(x, y) for x, y in beside))) if beside else packed


def spot_of(place: Place) -> Spot:
    """A place in the form in which entries are kept by it.

    >>> place_of(spot_of((-3, 7)))
    (-3, 7)
    """
    return place if isinstance(place, str) else (place[0] << _LINE_BITS) + place[1]


def place_of(spot: Spot) -> Place:
    """The place that `spot_of` was given."""
    if isinstance(spot, str):
        return spot
    half = 1 << (_LINE_BITS - 1)
    first = (spot + half) >> _LINE_BITS
    return first, spot - (first << _LINE_BITS)


def rank_of(origin: NodeId, row: Sighting) -> Rank:
    """A sighting's place in the order of decision; total, up to a collision of 64 bits."""
    name = f"{row.label}\0{row.kind}\0{row.place}".encode()
    digest = blake2b(name + origin, digest_size=8, person=b"swarmd-object").digest()
    return ((row.kind != ASSET) << 124) | (row.first << 64) | int.from_bytes(digest, "big")


def rank_in_view(entry: Entry) -> Rank:
    """The key of lists that are kept by rank."""
    return entry.rank


def in_ranks(groups: Iterable[Collection[Entry]], is_wanted: Callable[[Entry], bool]) -> Iterator[list[Entry]]:
    """Entries by rank, a few at a time, so that a long answer holds nobody up.

    Between two parts anything may change: who reads them looks again whether an entry is still what it was.

    Args:
        groups: All entries, in any order.
        is_wanted: Which of them.

    Yields:
        At most `PART` entries; none while there is still to be sorted.
    """
    runs = []
    for group in groups:
        entries = list(group)
        for at in range(0, len(entries), SORTED_AT_ONCE):
            runs.append(sorted(filter(is_wanted, entries[at : at + SORTED_AT_ONCE]), key=rank_in_view))
            yield []
    ranked = merge(*runs, key=rank_in_view)
    while part := list(islice(ranked, PART)):
        yield part


def take_out(ranked: list[Entry], entry: Entry) -> None:
    """Remove an entry from a list by rank that holds it."""
    at = bisect_left(ranked, entry.rank, key=rank_in_view)
    while ranked[at] is not entry:  # Only where two hashes of 64 bits are equal.
        at += 1
    del ranked[at]
