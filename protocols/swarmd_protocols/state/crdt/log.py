"""What one node holds of every origin: the signed batches that still matter, and nothing else.

This is the semilattice that replicates. An element is a set of batches for each origin; the join is the union followed
by dropping what lies below the highest `base` (FACTS) or what a later batch of the same incarnation replaces (the
register streams). Union and maximum are associative, commutative and idempotent, so the join is. Every view (objects,
cells, notes, counters) is a pure function of the batches held, and the digest is a commutative hash over exactly these:
equal digests, equal batches, equal views.

An origin's log has bounds, and they are part of the join: a batch is kept while the batches above it (by dot) cost less
than the bound, are fewer than `BATCHES_MAX` and span fewer than `INCARNATIONS_MAX` lives. What is dropped lies below
everything kept and the kept ones are its reason, so whoever joins the kept ones drops the same: the order in which
batches come does not show (proof: docs/decisions/0025-bounds-that-are-joins.md). An honest origin cleans long before.
"""

from collections.abc import Iterator, Mapping
from enum import Enum

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream

_MASK = (1 << 128) - 1
INCARNATIONS_MAX = 16
"""Incarnations of one origin that may matter at once; its own cleaner keeps it at two or three."""
BATCHES_MAX = 2_048
"""Batches of facts of one origin; its own cleaner packs them anew once more of their rows have died than live."""
ISLANDS_MAX = 48
"""Runs of batches above a gap that a summary names; an honest log has one or two while news is on its way."""
BATCH_COST_BYTES = 1_200
"""What a batch takes in memory beside its bytes and rows, measured (`tests/bench/hostile_state.py`)."""
ROW_COST_BYTES = 1_200
"""What a row takes in memory in the views, measured with rows as dear as the format allows."""


def cost_of(batch: Batch, rows: int) -> int:
    """Bytes of memory that keeping a batch takes, an upper bound.

    Args:
        batch: The batch.
        rows: Its facts, and what they name beside themselves (`Facts.weight`).
    """
    return len(batch.raw) + BATCH_COST_BYTES + rows * ROW_COST_BYTES


class Verdict(Enum):
    """What became of a batch offered to a log."""

    ADDED = "added"
    KNOWN = "known"
    STALE = "stale"
    """Below the base, replaced, or beyond the origin's bounds."""
    CONFLICT = "conflict"
    """Another batch has this dot."""
    FULL = "full"
    """No room for one more origin."""


class OriginLog:
    """The batches of one origin that still matter."""

    __slots__ = (
        "base", "cost", "facts", "frontier", "lasting", "newest", "origin", "records", "said", "size_bytes", "vitals",
    )  # fmt: skip

    def __init__(self, origin: NodeId) -> None:
        """Empty."""
        self.origin = origin
        self.facts: dict[Dot, Batch] = {}
        self.base: Dot = (0, 0)
        """Below it nothing is held: the author said so, or the bounds."""
        self.said: Dot = (0, 0)
        """The highest base that the author said."""
        self.frontier: dict[int, int] = {}
        """Incarnation to the n up to which nothing is missing (from the base on)."""
        self.records: dict[tuple[Stream, int], Batch] = {}
        """(stream, incarnation) to the latest batch."""
        self.lasting = 0
        """Sum of the digests of `facts`, modulo 2^128."""
        self.vitals = 0
        """The same over `records`."""
        self.size_bytes = 0
        self.cost = 0
        """Sum of the costs of `facts`."""
        self.newest = 0
        """Highest stamp of a batch of facts that was ever here."""

    def find(self, stream: Stream, dot: Dot) -> Batch | None:
        """The batch held under a dot."""
        if stream is Stream.FACTS:
            return self.facts.get(dot)
        record = self.records.get((stream, dot[0]))
        return record if record is not None and record.dot == dot else None

    def is_stale(self, batch: Batch) -> bool:
        """Whether `add` would find it below the base, or replaced; says nothing of batches that are not verified."""
        if batch.stream is Stream.FACTS:
            return batch.dot < self.base
        lives = [held for (stream, _), held in self.records.items() if stream is batch.stream]
        return any(
            held.base[0] > batch.dot[0] or (held.dot[0] == batch.dot[0] and held.dot > batch.dot) for held in lives
        )

    def add(self, batch: Batch, cost_max: int) -> tuple[Verdict, list[Batch]]:
        """Join one batch.

        Args:
            batch: Verified, of this origin, its cost set.
            cost_max: Bound of what the batches above a batch may cost for it to be kept.

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
        self.facts[batch.dot] = batch
        self.newest = max(self.newest, batch.stamp)
        self.said = max(self.said, batch.base)
        self.lasting = (self.lasting + int.from_bytes(batch.digest, "little")) & _MASK
        self.size_bytes += len(batch.raw)
        self.cost += batch.cost
        dropped = self._raise_base(batch.base) if batch.base > self.base else []
        self._advance(batch.dot[0])
        dropped += self._cut(cost_max)
        if batch.dot in self.facts:
            return Verdict.ADDED, dropped
        return Verdict.STALE, [other for other in dropped if other is not batch]

    def _cut(self, cost_max: int) -> list[Batch]:
        """Drop the oldest batches beyond the bounds; what they still keep is the reason to refuse older ones."""
        over = self.cost > cost_max or len(self.facts) >= BATCHES_MAX or len(self.frontier) > INCARNATIONS_MAX
        if not over:
            return []
        dots = sorted(self.facts)
        lives = sorted({dot[0] for dot in dots})
        floor = (lives[-INCARNATIONS_MAX], 1) if len(lives) > INCARNATIONS_MAX else self.base
        cost, first = self.cost, 0
        while dots[first] < floor or len(dots) - first > BATCHES_MAX or cost - self.facts[dots[first]].cost > cost_max:
            cost -= self.facts[dots[first]].cost
            first += 1
        if cost > cost_max or len(dots) - first == BATCHES_MAX:
            floor = max(floor, dots[first])
        return self._raise_base(floor) if floor > self.base else []

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
        kept = sorted(({*lives} | {incarnation}) - {old.dot[0] for old in dropped if old is not held})
        if len(kept) > INCARNATIONS_MAX:
            if kept[0] == incarnation:
                return Verdict.STALE, []
            dropped.append(self.records[batch.stream, kept[0]])
        for old in dropped:
            del self.records[old.stream, old.dot[0]]
            self.vitals -= int.from_bytes(old.digest, "little")
        self.records[slot] = batch
        self.vitals = (self.vitals + int.from_bytes(batch.digest, "little")) & _MASK
        return Verdict.ADDED, dropped

    def _raise_base(self, base: Dot) -> list[Batch]:
        dropped = [self.facts[dot] for dot in sorted(dot for dot in self.facts if dot < base)]
        for batch in dropped:
            del self.facts[batch.dot]
            self.lasting = (self.lasting - _value(batch)) & _MASK
            self.size_bytes -= len(batch.raw)
            self.cost -= batch.cost
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

    def islands(self) -> list[tuple[int, int, int]]:
        """(incarnation, first n, count) of what is held above a gap, the lowest `ISLANDS_MAX`."""
        found: list[tuple[int, int, int]] = []
        for incarnation, n in sorted(dot for dot in self.facts if dot[1] > self.frontier.get(dot[0], 0)):
            if found and found[-1][0] == incarnation and found[-1][1] + found[-1][2] == n:
                found[-1] = (incarnation, found[-1][1], found[-1][2] + 1)
            elif len(found) == ISLANDS_MAX:
                break
            else:
                found.append((incarnation, n, 1))
        return found

    def after(self, frontier: Mapping[int, int]) -> Iterator[Batch]:
        """Facts with a larger n than a peer has of their incarnation, in order, gaps skipped."""
        for dot in sorted(dot for dot in self.facts if dot[1] > frontier.get(dot[0], 0)):
            yield self.facts[dot]

    def batches(self) -> Iterator[Batch]:
        """Everything held, facts first, in order."""
        for dot in sorted(self.facts):
            yield self.facts[dot]
        for slot in sorted(self.records):
            yield self.records[slot]


def _value(batch: Batch) -> int:
    return int.from_bytes(batch.digest, "little")
