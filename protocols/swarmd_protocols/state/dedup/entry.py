"""One origin's sighting in the view, and the order in which sightings are decided."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from heapq import merge
from itertools import islice
from typing import TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.facts import ASSET, Sighting

Rank: TypeAlias = int
"""Lower ranks first: without an asset (1 bit), first seen (60 bits), a hash of origin and key (64 bits)."""
HASH_MASK = (1 << 64) - 1
"""64 bits."""
PART = 32
"""Entries of one part of a long answer: told, they take about a millisecond."""
SORTED_AT_ONCE = 1024
"""Entries looked at and sorted in one go: half a millisecond."""


class Entry:
    """One origin's sighting and its part in an object."""

    __slots__ = (
        "dot",
        "group",
        "key",
        "leader",
        "members",
        "origin",
        "placed",
        "rank",
        "row",
        "shown",
        "told",
        "watched",
    )

    def __init__(self, origin: NodeId, row: Sighting, dot: Dot, group: str) -> None:
        """Not yet decided: `leader` is None until the view settles."""
        self.origin = origin
        self.row = row
        self.key = row.key
        """One tuple for the entry and for the tables that find it."""
        self.dot = dot
        self.group = group
        self.rank: Rank = rank_of(origin, row)
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
    def object_id(self) -> str:
        """The id of the object that this entry leads: the asset's where there is one, else its own."""
        row = self.row
        if row.kind != ASSET:
            return f"{self.rank & HASH_MASK:016x}"
        name = f"{self.group}\0{row.place}".encode()
        return blake2b(name, digest_size=8, person=b"swarmd-asset").hexdigest()


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
