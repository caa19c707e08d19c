"""What a node holds: the batches of every origin, the views of them, and what of it the journal still lacks.

Rules this file keeps:

- The state is a function of the batches held and of the trust in force; what is set aside is in no view and no digest:
  batches from the future until their time, origins without a certificate until they have one again.
- What has been taken out of the state for good is deleted from the journal.
"""

from collections.abc import Iterable

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock, stamp_ms
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream
from swarmd_protocols.state.crdt.facts import Facts
from swarmd_protocols.state.crdt.journal_keys import journal_key, proof_key
from swarmd_protocols.state.crdt.log import Verdict, cost_of
from swarmd_protocols.state.crdt.messages import Proof
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.projection import Projection, Reading
from swarmd_protocols.state.reviews import Reviews

_MS = 1_000_000
SHELF_MAX = 64
"""Origins without a certificate whose logs are kept: those enrolled under a replaced key, until signed anew."""
JOURNAL_RECORDS = 256
"""Others' records written in one event; the rest follows in the next ones."""


class Holdings:
    """Store, views and journal of one node, kept in step."""

    def __init__(self, node: NodeId, config: ReplicaConfig, clock: Clock, reviews: Reviews | None = None) -> None:
        """Empty."""
        self._node = node
        self._config = config
        self.clock = clock
        self.store = Store(config.origins_max, config.origin_cost_max)
        self.projection = Projection(node, config, reviews)
        self.deferred: dict[bytes, Batch] = {}
        """By digest: facts whose stamp lies in the future."""
        self._unjournalled: dict[bytes, bytes | None] = {}
        self._shelf: dict[NodeId, dict[bytes, bytes]] = {}
        """Journal records, by key, of origins without a certificate; no part of the state."""
        self.batches_joined = 0
        self.batches_late = 0

    # --- Batches ------------------------------------------------------------------------------------------------

    def is_stale(self, batch: Batch) -> bool:
        """Whether it is below its origin's base, or replaced."""
        log = self.store.logs.get(batch.origin)
        return log is not None and log.is_stale(batch)

    def is_known(self, batch: Batch) -> bool:
        """Whether exactly this batch is held."""
        log = self.store.logs.get(batch.origin)
        held = None if log is None else log.find(batch.stream, batch.dot)
        return held is not None and held.digest == batch.digest

    def join(self, batch: Batch, now_ns: int, is_restored: bool = False) -> tuple[Verdict, Reading]:
        """Join a verified batch into store and views.

        Args:
            batch: Verified.
            now_ns: Own monotonic clock.
            is_restored: It comes out of the own journal, at a time when the clock need not be right yet.

        Returns:
            What became of it, and what it says.

        Raises:
            WireError: The body cannot be read; nothing has changed.
        """
        reading = self.projection.read(batch)
        batch.cost = cost_of(batch, reading.weight if isinstance(reading, Facts) else 0)
        late_ns = self._late_ns(batch, now_ns) if batch.stream is Stream.LEASES and not is_restored else None
        verdict, dropped = self.store.add(batch)
        for old in dropped:
            self.drop(old)
        if verdict is not Verdict.ADDED:
            return verdict, reading
        self.batches_joined += 1
        if late_ns is not None:
            self.projection.survey.claims.delays.heard(batch.origin, late_ns, now_ns)
        if batch.origin != self._node and self._config.journal_others and not is_restored:
            self._unjournalled[journal_key(batch, self._node)] = batch.raw
        if batch.stream is Stream.FACTS and not is_restored and not self.clock.observe(batch.stamp, now_ns):
            self.batches_late += 1
            self.deferred[batch.digest] = batch
        else:
            self.projection.take(batch, reading, now_ns)
        return verdict, reading

    def _late_ns(self, batch: Batch, now_ns: int) -> int | None:
        """How long after its stamp a lease record of another came, where that says how fast claims travel.

        Only what follows the record held does: what ends a gap, after a cut or at a newcomer, is as old as it happens
        to be. And only by a clock that is sure.
        """
        log = self.store.logs.get(batch.origin)
        held = None if log is None else log.records.get((batch.stream, batch.dot[0]))
        if held is None or held.dot[1] + 1 != batch.dot[1] or batch.origin == self._node:
            return None
        if not self.clock.is_sure(now_ns):
            return None
        return self.clock.physical_ns(now_ns) - stamp_ms(batch.stamp) * _MS

    def drop(self, batch: Batch) -> None:
        """A batch is no longer part of the state, for good."""
        self._hide(batch)
        log = self.store.logs.get(batch.origin)
        if log is None or (batch.stream, batch.dot[0]) not in log.records:
            # Else its successor overwrites the same journal record.
            self._unjournalled[journal_key(batch, self._node)] = None

    def _hide(self, batch: Batch) -> None:
        if self.deferred.pop(batch.digest, None) is None:
            self.projection.drop(batch)

    def whole(self) -> frozenset[NodeId]:
        """Origins of which all that is known is in the views: neither they nor batches of theirs are set aside."""
        late = {batch.origin for batch in self.deferred.values()}
        return frozenset(origin for origin in self.store.origins() if origin not in late)

    # --- What lies in the future --------------------------------------------------------------------------------

    def take_due(self, now_ns: int) -> None:
        """Show what was set aside because its stamp lay in the future, and no longer does."""
        for digest, batch in list(self.deferred.items()):
            if self.clock.observe(batch.stamp, now_ns):
                del self.deferred[digest]
                self.projection.show(batch)

    def ahead(self, now_ns: int) -> dict[NodeId, list[Batch]]:
        """Batches that are shown though their stamp lies in the future, by origin.

        They come to lie there when this clock is set back, or out of the journal of a life with a wrong clock.
        """
        if not self.clock.knows_time:
            return {}
        found: dict[NodeId, list[Batch]] = {}
        for origin, log in self.store.logs.items():
            if self.clock.is_ahead(log.newest, now_ns):
                ahead = [
                    batch
                    for batch in log.facts.values()
                    if batch.digest not in self.deferred and self.clock.is_ahead(batch.stamp, now_ns)
                ]
                if ahead:
                    found[origin] = ahead
        return found

    def defer(self, batches: Iterable[Batch]) -> None:
        """Set these aside until their time; what they had replaced of older batches that are held counts again."""
        latest: dict[NodeId, Dot] = {}
        for batch in batches:
            if self.is_known(batch):
                self.deferred[batch.digest] = batch
                self.projection.drop(batch)
                latest[batch.origin] = max(batch.dot, latest.get(batch.origin, batch.dot))
        for origin, dot in latest.items():
            for older in self.store.logs[origin].facts.values():
                if older.dot < dot and older.digest not in self.deferred:
                    self.projection.show_again(older)

    # --- Who counts ---------------------------------------------------------------------------------------------

    def convict(self, origin: NodeId, proof: tuple[bytes, bytes], packed: bytes) -> None:
        """An origin has signed two things under one number: all that it said goes, the proof stays."""
        for batch in self.store.quarantine(origin, proof):
            self.drop(batch)
        self._forget_person(origin)
        self._unjournalled[proof_key(origin)] = packed

    def set_aside(self, origin: NodeId) -> None:
        """No certificate of an origin holds just now; what it said is kept, for it may count again."""
        batches, proof = self.store.take_out(origin)
        for batch in batches:
            self._hide(batch)
            self.shelve(journal_key(batch, self._node), origin, batch.raw)
        if proof is not None:
            self.shelve(proof_key(origin), origin, messages.encode(Proof(*proof)))
        self._forget_person(origin)

    def shelve(self, key: bytes, origin: NodeId, value: bytes) -> None:
        """Keep a journal record of an origin that has no certificate, unless too many have none."""
        if origin not in self._shelf and len(self._shelf) >= SHELF_MAX:
            self._unjournalled[key] = None
        else:
            self._shelf.setdefault(origin, {})[key] = value

    @property
    def shelved(self) -> list[NodeId]:
        """Origins of which something is kept though they have no certificate."""
        return list(self._shelf)

    def unshelve(self, origin: NodeId) -> dict[bytes, bytes]:
        """Give back what was kept of an origin, by journal key."""
        return self._shelf.pop(origin, {})

    def expel(self, origin: NodeId) -> None:
        """An origin that was set aside is out for good: nothing of it is kept, in memory or on disk."""
        for key in self.unshelve(origin):
            self._unjournalled[key] = None

    def _forget_person(self, origin: NodeId) -> None:
        self.projection.forget_origin(origin)
        self.clock.forget(origin)

    # --- Digests and journal ------------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """16 bytes over everything that lasts; see `ReplicaViews.digest`."""
        held = int.from_bytes(self.store.lasting_digest(), "little")
        for digest in self.deferred:
            held -= int.from_bytes(digest, "little")
        return (held & ((1 << 128) - 1)).to_bytes(16, "little")

    @property
    def is_unwritten(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._unjournalled)

    def unwrite(self, key: bytes) -> None:
        """Delete a journal record that belongs to nothing held."""
        self._unjournalled[key] = None

    def write(self) -> list[Persist]:
        """Some of what the journal still lacks."""
        keys = list(self._unjournalled)[:JOURNAL_RECORDS]
        return [Persist(key, self._unjournalled.pop(key)) for key in keys]
