"""What one node holds of every origin: the signed batches that still matter, and nothing else.

This is the semilattice that replicates. An element is a set of batches for each origin; the join is the union followed
by dropping what lies below the highest `base` (FACTS) or what a later batch of the same incarnation replaces (the
register streams). Union and maximum are associative, commutative and idempotent, so the join is. Every view (objects,
cells, notes, counters) is a pure function of the batches held, and the digest is a commutative hash over exactly these:
equal digests, equal batches, equal views.
"""

from collections.abc import Iterator
from enum import Enum

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream

_MASK = (1 << 128) - 1
INCARNATIONS_MAX = 16
"""Incarnations of one origin that may matter at once; its own cleaner keeps it at two or three."""


class Verdict(Enum):
    """What became of a batch offered to a log."""

    ADDED = "added"
    KNOWN = "known"
    STALE = "stale"
    """Below the base, or replaced."""
    CONFLICT = "conflict"
    """Another batch has this dot."""
    FULL = "full"


class OriginLog:
    """The batches of one origin that still matter."""

    __slots__ = ("base", "facts", "frontier", "lasting", "newest", "origin", "records", "size_bytes", "vitals")

    def __init__(self, origin: NodeId) -> None:
        """Empty."""
        self.origin = origin
        self.facts: dict[Dot, Batch] = {}
        self.base: Dot = (0, 0)
        self.frontier: dict[int, int] = {}
        """Incarnation to the n up to which nothing is missing (from the base on)."""
        self.records: dict[tuple[Stream, int], Batch] = {}
        """(stream, incarnation) to the latest batch."""
        self.lasting = 0
        """Sum of the digests of `facts`, modulo 2^128."""
        self.vitals = 0
        """The same over `records`."""
        self.size_bytes = 0
        self.newest = 0
        """Highest stamp of a batch of facts that was ever here."""

    def find(self, stream: Stream, dot: Dot) -> Batch | None:
        """The batch held under a dot."""
        if stream is Stream.FACTS:
            return self.facts.get(dot)
        record = self.records.get((stream, dot[0]))
        return record if record is not None and record.dot == dot else None

    def add(self, batch: Batch, bytes_max: int) -> tuple[Verdict, list[Batch]]:
        """Join one batch.

        Args:
            batch: Verified, of this origin.
            bytes_max: Bound of all batches of one origin together.

        Returns:
            What became of it and the batches that no longer matter because of it.
        """
        if batch.stream is not Stream.FACTS:
            return self._add_record(batch)
        held = self.facts.get(batch.dot)
        if held is not None:
            return (Verdict.KNOWN if held.digest == batch.digest else Verdict.CONFLICT), []
        if batch.dot < self.base:
            return Verdict.STALE, []
        if self.size_bytes + len(batch.raw) > bytes_max:
            return Verdict.FULL, []
        if batch.dot[0] not in self.frontier and len(self.frontier) >= INCARNATIONS_MAX and batch.base <= self.base:
            return Verdict.FULL, []
        self.facts[batch.dot] = batch
        self.newest = max(self.newest, batch.stamp)
        self.lasting = (self.lasting + int.from_bytes(batch.digest, "little")) & _MASK
        self.size_bytes += len(batch.raw)
        dropped = self._raise_base(batch.base) if batch.base > self.base else []
        self._advance(batch.dot[0])
        return Verdict.ADDED, dropped

    def _add_record(self, batch: Batch) -> tuple[Verdict, list[Batch]]:
        incarnation = batch.dot[0]
        slot = (batch.stream, incarnation)
        held = self.records.get(slot)
        if held is not None and held.dot >= batch.dot:
            if held.dot > batch.dot:
                return Verdict.STALE, []
            return (Verdict.KNOWN if held.digest == batch.digest else Verdict.CONFLICT), []
        lives = [inc for stream, inc in self.records if stream is batch.stream]
        if any(self.records[batch.stream, inc].base[0] > incarnation for inc in lives):
            return Verdict.STALE, []
        dropped = [] if held is None else [held]
        dropped += [self.records[batch.stream, inc] for inc in lives if inc < batch.base[0]]
        if held is None and len(lives) - len(dropped) >= INCARNATIONS_MAX:
            return Verdict.FULL, []
        for old in dropped:
            del self.records[old.stream, old.dot[0]]
            self.vitals -= int.from_bytes(old.digest, "little")
        self.records[slot] = batch
        self.vitals = (self.vitals + int.from_bytes(batch.digest, "little")) & _MASK
        return Verdict.ADDED, dropped

    def replace(self, batch: Batch) -> None:
        """Put this batch where a conflicting one is (the larger hash wins until the proof has spread)."""
        if batch.stream is Stream.FACTS:
            held = self.facts[batch.dot]
            self.facts[batch.dot] = batch
            self.lasting = (self.lasting + _value(batch) - _value(held)) & _MASK
        else:
            held = self.records[batch.stream, batch.dot[0]]
            self.records[batch.stream, batch.dot[0]] = batch
            self.vitals = (self.vitals + _value(batch) - _value(held)) & _MASK

    def _raise_base(self, base: Dot) -> list[Batch]:
        dropped = [self.facts[dot] for dot in sorted(dot for dot in self.facts if dot < base)]
        for batch in dropped:
            del self.facts[batch.dot]
            self.lasting = (self.lasting - _value(batch)) & _MASK
            self.size_bytes -= len(batch.raw)
        self.base = base
        for incarnation in [inc for inc in self.frontier if inc < base[0]]:
            del self.frontier[incarnation]
        if self.frontier.get(base[0], 0) < base[1] - 1:
            self.frontier[base[0]] = base[1] - 1
        self._advance(base[0])
        return dropped

    def _advance(self, incarnation: int) -> None:
        n = self.frontier.get(incarnation, 0)
        while (incarnation, n + 1) in self.facts:
            n += 1
        self.frontier[incarnation] = n

    def after(self, incarnation: int, n: int) -> Iterator[Batch]:
        """Facts of one incarnation with a larger n, in order, gaps skipped."""
        for dot in sorted(dot for dot in self.facts if dot[0] == incarnation and dot[1] > n):
            yield self.facts[dot]

    def batches(self) -> Iterator[Batch]:
        """Everything held, facts first, in order."""
        for dot in sorted(self.facts):
            yield self.facts[dot]
        for slot in sorted(self.records):
            yield self.records[slot]


def _value(batch: Batch) -> int:
    return int.from_bytes(batch.digest, "little")
