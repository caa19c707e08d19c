"""All logs of one node, the hashes that sum them up, and the comparison with a peer's.

Rules this file keeps:

- Sums over batch digests are updated with every change, so a digest costs nothing to read.
- A quarantined origin's batches are gone and its place in the digest is a constant: whoever holds a proof has the same
  state, whichever of the origin's payloads it saw before. A proof is a row of a summary like a log, so it is sent to
  whoever does not know it and to nobody twice.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import blake2b
from itertools import islice

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream
from swarmd_protocols.state.crdt.cuts import Cuts
from swarmd_protocols.state.crdt.log import OriginLog, Verdict
from swarmd_protocols.state.crdt.messages import (
    BUCKET_HASH_BYTES,
    BUCKETS,
    HEAD_HASH_BYTES,
    HELD,
    ID_BYTES,
    LASTING,
    PROVEN,
    ROOM,
    ROOM_UNSAID_BYTES,
    VITALS,
    Have,
)

REPAIR_BATCHES = 1_024
"""Batches of one origin in one repair: half of what a log may hold; the rest comes with the next comparison."""
GAPPED_BATCHES = 256
"""The same for a log with gaps: a peer cannot name everything that it holds above them, so some is sent in vain."""
_STRIDE = 197
"""A prime near `GAPPED_BATCHES`, so that one repair after another goes round all that may lack."""
_MASK = (1 << 128) - 1
_NO_RUNS: tuple[list[int], list[int]] = ([], [])


def bucket_of(origin: bytes) -> int:
    """Which of the 32 groups of origins this one belongs to."""
    return origin[0] % BUCKETS


class Store:
    """Everything this node holds, by origin."""

    def __init__(self, origins_max: int, origin_cost_max: int) -> None:
        """Empty."""
        self._origins_max = origins_max
        self._origin_cost_max = origin_cost_max
        self.logs: dict[NodeId, OriginLog] = {}
        self.quarantined: dict[NodeId, tuple[bytes, bytes]] = {}
        self._lasting = [0] * BUCKETS
        self._vitals = [0] * BUCKETS
        self._summary: bytes | None = None
        self._turn = 0
        self.cuts = Cuts(origin_cost_max, origins_max)
        self.size_bytes = 0
        """All batches held."""
        self.names: set[bytes] = set()
        """Of the same, as a `Recent` names them."""

    # --- Changing -----------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> tuple[Verdict, list[Batch]]:
        """Join a verified batch; see `OriginLog.add`."""
        origin = batch.origin
        if origin in self.quarantined:
            return Verdict.STALE, []
        log = self.logs.get(origin)
        if log is None:
            if len(self.logs) >= self._origins_max:
                self.cuts.refused += 1
                return Verdict.FULL, []
            log = self.logs[origin] = OriginLog(origin)
        lasting, vitals, size_bytes, base = log.lasting, log.vitals, log.size_bytes, log.base
        verdict, dropped = log.add(batch, self._origin_cost_max)
        if batch.stream is Stream.FACTS and log.base > log.said and log.base > base:
            refused = [batch] if verdict is Verdict.STALE else []
            if lost := [one for one in (*dropped, *refused) if one.dot >= log.said]:
                self.cuts.note(origin, lost)
        if verdict is Verdict.ADDED:
            batch.origin = log.origin  # Equal bytes; those that came with the batch are let go.
            self.names.add(batch.digest[:ID_BYTES])
        self.names.difference_update(one.digest[:ID_BYTES] for one in dropped)
        self.size_bytes += log.size_bytes - size_bytes
        self._account(origin, log.lasting - lasting, log.vitals - vitals)
        return verdict, dropped

    def size_without(self, origin: NodeId) -> int:
        """Bytes of all batches but this origin's own."""
        log = self.logs.get(origin)
        return self.size_bytes - (log.size_bytes if log else 0)

    def quarantine(self, origin: NodeId, proof: tuple[bytes, bytes]) -> list[Batch]:
        """Shut an origin out for good; returns what it had said."""
        dropped = self._drop_log(origin)
        self.quarantined[origin] = proof
        self._account(origin, _mark(origin), 0)
        return dropped

    def take_out(self, origin: NodeId) -> tuple[list[Batch], tuple[bytes, bytes] | None]:
        """An origin is no longer part of the state; returns what it had said, and the proof against it."""
        proof = self.quarantined.pop(origin, None)
        if proof is not None:
            self._account(origin, -_mark(origin), 0)
        return self._drop_log(origin), proof

    def _drop_log(self, origin: NodeId) -> list[Batch]:
        log = self.logs.pop(origin, None)
        if log is None:
            return []
        dropped = list(log.batches())
        self.size_bytes -= log.size_bytes
        self.names.difference_update(one.digest[:ID_BYTES] for one in dropped)
        self._account(origin, -log.lasting, -log.vitals)
        return dropped

    def _account(self, origin: NodeId, lasting: int, vitals: int) -> None:
        bucket = bucket_of(origin)
        self._summary = None
        if lasting:
            self._lasting[bucket] = (self._lasting[bucket] + lasting) & _MASK
        if vitals:
            self._vitals[bucket] = (self._vitals[bucket] + vitals) & _MASK

    # --- Hashes -------------------------------------------------------------------------------------------------

    def lasting_digest(self) -> bytes:
        """16 bytes over all facts held."""
        return (sum(self._lasting) & _MASK).to_bytes(16, "little")

    def vitals_digest(self) -> bytes:
        """16 bytes over all records held."""
        return (sum(self._vitals) & _MASK).to_bytes(16, "little")

    def summary(self) -> bytes:
        """The first halves of both digests; every probe carries it, so it is kept until something changes."""
        summary = self._summary
        if summary is None:
            summary = self._summary = self.lasting_digest()[:8] + self.vitals_digest()[:8]
        return summary

    def bucket_hashes(self) -> tuple[bytes, bytes]:
        """Four bytes a bucket, facts and records."""
        size = BUCKET_HASH_BYTES
        return (
            b"".join(value.to_bytes(16, "little")[:size] for value in self._lasting),
            b"".join(value.to_bytes(16, "little")[:size] for value in self._vitals),
        )

    # --- Comparing ----------------------------------------------------------------------------------------------

    def have(
        self, origins: Iterable[NodeId], scope: int, reply: bool, buckets: int, room_of: Callable[[NodeId], int | None]
    ) -> Have:
        """What this node holds of these origins, as a message.

        Args:
            origins: Whose logs.
            scope: LASTING, VITALS or both.
            reply: Whether the other's summary is asked for.
            buckets: Groups of origins that are covered completely.
            room_of: How many bytes of an origin are taken in just now; None: whatever there is.
        """
        rows = []
        for origin in origins:
            positions: list[tuple[int, int, int, bytes]] = []
            room = None if origin in self.quarantined else room_of(origin)
            if room is not None:
                positions.append((ROOM, 0, room, b""))
            if room == 0:
                rows.append((origin, tuple(positions)))
                continue
            log = self.logs.get(origin)
            if origin in self.quarantined:
                positions.append((PROVEN, 0, 1, b""))
            if log is not None:
                if scope & LASTING:
                    for incarnation in sorted(log.frontier):
                        n = log.frontier[incarnation]
                        head = log.facts.get((incarnation, n))
                        positions.append((0, incarnation, n, b"" if head is None else head.digest[:HEAD_HASH_BYTES]))
                    for incarnation, n, count in log.islands():
                        positions.append((HELD, incarnation, n, count.to_bytes(4, "little")))
                if scope & VITALS:
                    for stream, incarnation in sorted(log.records):
                        record = log.records[stream, incarnation]
                        positions.append((stream, incarnation, record.dot[1], record.digest[:HEAD_HASH_BYTES]))
            rows.append((origin, tuple(positions)))
        return Have(tuple(rows), scope, reply, buckets)

    def compare(
        self, have: Have, muted: Set[NodeId] = frozenset()
    ) -> tuple[list[Batch], list[NodeId], list[tuple[bytes, bytes]]]:
        """Hold a peer's summary against what is here.

        Args:
            have: The summary.
            muted: Origins of which nothing is asked for or passed on just now.

        Returns:
            Batches that the peer lacks, origins of which this node lacks something, and proofs for origins that the
            peer does not know to be quarantined.
        """
        lacking: list[Batch] = []
        wanted: list[NodeId] = []
        proofs: list[tuple[bytes, bytes]] = []
        named = set()
        for raw_origin, positions in have.rows:
            origin = NodeId(raw_origin)
            named.add(origin)
            is_proven = any(stream == PROVEN for stream, _, _, _ in positions)
            if origin in self.quarantined:
                if not is_proven and have.scope & LASTING:
                    proofs.append(self.quarantined[origin])
            elif is_proven or (origin not in muted and self._compare_origin(origin, positions, have.scope, lacking)):
                wanted.append(origin)
        if have.buckets:
            for origin, log in self.logs.items():
                if origin not in named and origin not in muted and have.buckets >> bucket_of(origin) & 1:
                    own = (batch for batch in log.batches() if _in_scope(batch, have.scope))
                    lacking.extend(_within(islice(own, REPAIR_BATCHES), ROOM_UNSAID_BYTES))
            for origin, proof in self.quarantined.items():
                if origin not in named and have.buckets >> bucket_of(origin) & 1 and have.scope & LASTING:
                    proofs.append(proof)
        return lacking, wanted, proofs

    def lacks(self, origin: NodeId, positions: tuple[tuple[int, int, int, bytes], ...], scope: int) -> bool:
        """Whether a peer that holds this holds something that is not here."""
        if origin in self.quarantined:
            return False
        if any(stream == PROVEN for stream, _, _, _ in positions):
            return True
        return self._compare_origin(origin, positions, scope, [])

    def _compare_origin(
        self, origin: NodeId, positions: tuple[tuple[int, int, int, bytes], ...], scope: int, lacking: list[Batch]
    ) -> bool:
        log = self.logs.get(origin)
        room = room_in(positions)
        if room == 0:
            return False
        first = len(lacking)
        theirs = {
            (stream, incarnation): (n, head) for stream, incarnation, n, head in positions if stream not in (HELD, ROOM)
        }
        if log is None:
            return any(n > 0 for stream, _, n, _ in positions if stream != ROOM)
        wanted = False
        if scope & LASTING:
            known = {incarnation: n for (stream, incarnation), (n, _) in theirs.items() if stream == Stream.FACTS}
            lacking.extend(self._beyond(log, known, [position for position in positions if position[0] == HELD]))
            runs = ((incarnation, n) for stream, incarnation, n, _ in positions if stream == HELD)
            wanted = any(dot not in log.facts and dot >= log.base for dot in runs)
            for incarnation, mine in sorted(log.frontier.items()):
                n, head = theirs.get((0, incarnation), (0, b""))
                here = log.facts.get((incarnation, n))
                if head and here is not None and here.digest[:HEAD_HASH_BYTES] != head:
                    lacking.append(here)
                wanted = wanted or n > mine
        for (stream, incarnation), (n, head) in theirs.items():
            if stream == Stream.FACTS:
                if incarnation not in log.frontier and n > 0 and (incarnation, n) >= log.base:
                    wanted = True
                continue
            record = log.records.get((Stream(stream), incarnation))
            if record is None:
                wanted = wanted or not _is_replaced(log, Stream(stream), incarnation)
            elif n > record.dot[1]:
                wanted = True
            elif n == record.dot[1] and head != record.digest[:HEAD_HASH_BYTES]:
                lacking.append(record)
        if scope & VITALS:
            for (stream, incarnation), record in sorted(log.records.items()):
                if theirs.get((stream, incarnation), (0, b""))[0] < record.dot[1]:
                    lacking.append(record)
        lacking[first:] = _within(lacking[first:], ROOM_UNSAID_BYTES if room is None else room)
        return wanted

    def origins(self) -> list[NodeId]:
        """Everybody of whom a log or a proof is part of the state, sorted."""
        return sorted({*self.logs, *self.quarantined})

    def _beyond(
        self, log: OriginLog, frontier: Mapping[int, int], held: Sequence[tuple[int, int, int, bytes]]
    ) -> list[Batch]:
        """Facts that a peer lacks; where it has gaps, a part of them that is another one each time."""
        lacking = list(log.after(frontier))
        if not held:
            return lacking[:REPAIR_BATCHES]
        runs = _runs(held)
        lacking = [batch for batch in lacking if not _is_within(runs, batch.dot)]
        self._turn += 1
        at = self._turn * _STRIDE % max(1, len(lacking))
        return (lacking[at:] + lacking[:at])[:GAPPED_BATCHES]

    def batches(self) -> Iterator[Batch]:
        """Everything held."""
        for origin in sorted(self.logs):
            yield from self.logs[origin].batches()


def _runs(held: Iterable[tuple[int, int, int, bytes]]) -> dict[int, tuple[list[int], list[int]]]:
    """Incarnation to where its runs begin, in order, and before which number those up to each of them end.

    A summary names 143 of them at most, and a log has thousands of batches: each is looked up, not held against all.
    """
    runs: dict[int, tuple[list[int], list[int]]] = {}
    for _, incarnation, first, count in sorted(held):
        begins, ends = runs.setdefault(incarnation, ([], []))
        begins.append(first)
        ends.append(max(first + int.from_bytes(count, "little"), ends[-1] if ends else 0))
    return runs


def _is_within(runs: Mapping[int, tuple[list[int], list[int]]], dot: Dot) -> bool:
    begins, ends = runs.get(dot[0], _NO_RUNS)
    at = bisect_right(begins, dot[1])
    return at > 0 and dot[1] < ends[at - 1]


def _within(batches: Iterable[Batch], room_bytes: int) -> Iterator[Batch]:
    """The first of these, up to the one with which they are so many bytes or more."""
    for batch in batches:
        if room_bytes <= 0:
            break
        yield batch
        room_bytes -= len(batch.raw)


def room_in(positions: Iterable[tuple[int, int, int, bytes]]) -> int | None:
    """How many bytes of its origin a row of a summary asks for at most; None: whatever there is."""
    return next((n for stream, _, n, _ in positions if stream == ROOM), None)


def _is_replaced(log: OriginLog, stream: Stream, incarnation: int) -> bool:
    return any(held is stream and log.records[held, life].base[0] > incarnation for held, life in log.records)


def _in_scope(batch: Batch, scope: int) -> bool:
    return bool(scope & (LASTING if batch.stream is Stream.FACTS else VITALS))


def _mark(origin: NodeId) -> int:
    return int.from_bytes(blake2b(origin, digest_size=16, person=b"quarantined").digest(), "little")
