"""What this node says itself: facts into its log, records under numbers of their own, all of it journalled first.

Rules this file keeps:

- What was accepted is on disk with the same list of effects that answers for it.
- Nothing is ever signed twice under one number, whatever became of the disk: a node whose peers hold more of its past
  than it does goes on above that.
- No fact's time lies beyond the stamp of the batch that says it.
- Who has been convicted of signing two things under one number says no facts any more: nobody would take them, this
  node neither, and a journal of them would grow without end.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from swarmd_protocols.effects import Alarm, Persist
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.clock import Clock, stamp_of
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import Batch, Signer, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import Facts, NotePut, NoteRemoval
from swarmd_protocols.state.crdt.journal_keys import INCARNATION_KEY, SURE_KEY, fact_key, record_key
from swarmd_protocols.state.crdt.log import Verdict
from swarmd_protocols.state.crdt.note_rows import NOTE_KEY_MAX_BYTES, NOTE_VALUE_MAX_BYTES
from swarmd_protocols.state.crdt.ownlog import Fact, FactId, OwnLog, facts_of
from swarmd_protocols.state.crdt.records import (
    COUNTER_MAX,
    COUNTER_NAME_MAX_BYTES,
    COUNTERS_BODY_MAX_BYTES,
    COUNTERS_MAX,
    STATUS_MAX_BYTES,
    EventRow,
    add_event,
    decode_events,
    decode_vitals,
    encode_counters,
    encode_events,
    encode_leases,
    encode_status,
)
from swarmd_protocols.state.crdt.reviews import open_review
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.lives import life_above
from swarmd_protocols.state.observations import LocalDetection
from swarmd_protocols.state.projection import Doubted, Reading
from swarmd_protocols.subprotocol import SubEffect

PENDING_MAX = 128
"""Facts that wait for the next flush; more do not wait, they fill a batch."""

_NEVER_NS = -(1 << 62)
"""Earlier than any time."""
_FIRST_AT_ONCE = 4
"""In periods of `vitals_ns`: up to a swarm of 40, where records are said so seldom, a life's first goes at once."""
_NO_HASH = bytes(16)
"""Stands where there is no batch before."""


class Author:
    """Writer of this node's log and records."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        signer: Signer,
        config: ReplicaConfig,
        holdings: Holdings,
        anti_entropy: AntiEntropy,
    ) -> None:
        """Begin a life under an incarnation that no earlier one had."""
        self._node = node
        self._config = config
        self._signer = signer
        self._holdings = holdings
        self._anti_entropy = anti_entropy
        self.incarnation = incarnation
        self.log = OwnLog(node, incarnation, signer, config.slack_rows)
        self.pending: list[Fact] = []
        self._flushed_ns = _NEVER_NS
        self._records_n: dict[Stream, int] = {}
        self.counters: dict[str, int] = {}
        self._status = b""
        self._rode = False
        """Whether the latest word on the status went beside counters, so that the next ones take it away."""
        self.begun_ns = _NEVER_NS
        """When this life began, own monotonic clock."""
        self._turn = int.from_bytes(blake2b(node + incarnation.to_bytes(6, "big"), digest_size=4).digest(), "big")
        """When this life's first record is due among those of others, of 2^32."""
        self._events: tuple[EventRow, ...] = ()
        self._said_ns: dict[Stream, int] = {}
        self._dirty: dict[Stream, None] = {}
        self._said: list[Batch] = []
        self._note_serial = 0
        self._has_counted_before = False
        self.sure_life = 0
        """The latest life whose clock was confirmed; what later ones stamped may be off by what three peers were."""
        self.sure_before = 0
        """The same of the lives before this one."""
        self._doubted: dict[Doubted, None] = {}
        """What such lives said they had seen, out of the journal."""

    @property
    def _clock(self) -> Clock:
        return self._holdings.clock

    # --- Earlier lives --------------------------------------------------------------------------------------------

    def restore_records(self) -> None:
        """Take over the counters and the latest events of earlier lives that the journal holds."""
        log = self._holdings.store.logs.get(self._node)
        for record in [] if log is None else log.records.values():
            if record.stream is Stream.COUNTERS:
                self._has_counted_before = True
                said = decode_vitals(record.body)
                self._rode = self._rode or bool(said.status)
                for name, value in said.counters.items():
                    self.counters[name] = self.counters.get(name, 0) + value
            elif record.stream is Stream.EVENTS:
                for row in decode_events(record.body):
                    self._events = add_event(self._events, row)
        # What it said of itself goes on beside the counters until it says something else.
        self._status = self._holdings.projection.vitals.status(self._node) or b""

    def meet(self, batch: Batch, reading: Reading, is_restored: bool) -> list[SubEffect]:
        """An own batch was joined: adopt one of an earlier life, go on above one that this life does not know."""
        if isinstance(reading, Facts) and batch.dot[0] != self.incarnation:
            items = facts_of(reading)
            self.log.adopt(batch, items)
            self._holdings.projection.own_restored(items)
            if is_restored and batch.dot[0] > self.sure_life:
                self._doubted.update(((self._node, row.key), None) for row in reading.sightings)
                self._doubted.update(((join.origin, join.key), None) for join in reading.joins)
        if is_restored or batch.dot[0] < self.incarnation:
            return []
        written = self.log.written if batch.stream is Stream.FACTS else self._records_n.get(batch.stream, 0)
        if batch.dot <= (self.incarnation, written):
            return []
        self.incarnation = life_above(batch.dot[0], self.incarnation)
        self.log.restart(self.incarnation)
        self._records_n.clear()
        return [
            Persist(INCARNATION_KEY, self.incarnation.to_bytes(6, "big")),
            Alarm("state-rollback", "peers hold newer facts of this node than its journal; it goes on above"),
        ]

    def trust_clock(self, effects: list[SubEffect], begun_ns: int, now_ns: int) -> None:
        """The clock is confirmed: say so in the journal, and say again what a life with a wrong one made old.

        Such a sighting was made at the latest when this life began. Taken for that, it stays too long rather than go
        at once, as nobody knows how wrong the clock was.
        """
        if self.sure_life >= self.incarnation:
            return
        self.sure_life = self.incarnation
        effects.append(Persist(SURE_KEY, self.incarnation.to_bytes(6, "big")))
        begun = stamp_of(self._clock.physical_ms(begun_ns))
        self.pending += self._holdings.projection.renew(self._doubted, begun, self._clock.physical_ms(now_ns))
        self._doubted.clear()
        self.flush(effects, now_ns)

    def correct(self, step_ms: int, effects: list[SubEffect]) -> None:
        """The clock was set: what this life has stamped is off by that, and nobody knows whether it is right at last.

        Args:
            step_ms: By how much; above 0 where it was slow.
            effects: What to do.
        """
        uncut = self.log.uncut(stamp_of(step_ms) if step_ms >= 0 else -stamp_of(-step_ms))
        if step_ms > 0:
            self.pending = [*uncut, *self.pending]
        self.pending += self._holdings.projection.own.restamp(step_ms)
        if self.sure_life >= self.incarnation:
            self.sure_life = self.sure_before
            effects.append(Persist(SURE_KEY, self.sure_life.to_bytes(6, "big")))

    # --- Facts ----------------------------------------------------------------------------------------------------

    def observe(self, detections: Sequence[LocalDetection], now_ns: int) -> None:
        """Take own detections in; what of them is worth saying waits for the next flush."""
        self.pending += self._holdings.projection.observe(detections, self.incarnation, self._stamp_at(now_ns))

    def _stamp_at(self, now_ns: int) -> Callable[[int], int]:
        clock = self._clock
        return lambda captured_ns: stamp_of(clock.physical_ms(min(captured_ns, now_ns)))

    def set_note(self, key: str, value: bytes, now_ns: int) -> None:
        """Put or (b"") remove an operator note."""
        if not 0 < len(key.encode()) <= NOTE_KEY_MAX_BYTES or len(value) > NOTE_VALUE_MAX_BYTES:
            raise StateError("a note's key has 1 to 64 bytes and its value at most 512")
        removes = self._holdings.projection.notes.replaced_by(key)
        if value:
            self._note_serial += 1
            stamp = self._clock.tick(now_ns)
            self.pending.append(NotePut(self.incarnation, self._note_serial, stamp, key, value, removes))
        elif removes:
            self.pending.append(NoteRemoval(key, removes))

    def say_review(self, statement: bytes) -> None:
        """Put an operator's statement before everybody; said again it changes nothing.

        Raises:
            StateError: It does not hold, or the operator has said something newer in its place.
            WireError: The bytes are no statement.
        """
        said = open_review(statement)
        self._holdings.projection.reviews.check(said)
        self.pending.append(said)

    def kill(self, names: Iterable[FactId]) -> None:
        """These own facts no longer matter."""
        for name in names:
            self.log.kill(name)

    def flush_due_ns(self, now_ns: int) -> int | None:
        """When what is pending must be flushed: `now_ns` where it has been quiet; None where nothing is pending."""
        if not self.pending:
            return None
        due = self._flushed_ns + self._config.flush_ns
        return now_ns if now_ns >= due or len(self.pending) >= PENDING_MAX else due

    def flush(self, effects: list[SubEffect], now_ns: int) -> None:
        """Sign, journal, join and say what is pending."""
        items, self.pending = self.pending, []
        if not items or self._node in self._holdings.store.quarantined:
            return
        self._flushed_ns = now_ns
        batches = self.log.append(items, lambda: self._clock.tick(now_ns))
        for batch in batches:
            effects.append(Persist(fact_key(batch), batch.raw))
            self._join(batch, effects, now_ns)
        self._said += batches

    def _join(self, batch: Batch, effects: list[SubEffect], now_ns: int) -> None:
        verdict, reading = self._holdings.join(batch, now_ns)
        if verdict is Verdict.ADDED:
            effects += self.meet(batch, reading, is_restored=False)

    def set_aside_future(self, effects: list[SubEffect], is_settled: bool, now_ns: int) -> None:
        """What lies in the future counts for nobody, its author included; the author says its living facts again.

        Args:
            effects: What to do.
            is_settled: Enough peers have said what time it is, or there are too few of them. Until then one peer with a
                slow clock could make this node say its whole log again.
            now_ns: Own monotonic clock.
        """
        for origin, batches in self._holdings.ahead(now_ns).items():
            if origin == self._node:
                if not is_settled:
                    continue
                self.pending = [*self.log.rewrite({batch.dot for batch in batches}), *self.pending]
                self.flush(effects, now_ns)
            self._holdings.defer(batches)

    @property
    def has_said(self) -> bool:
        """Whether `take_said` has something."""
        return bool(self._said)

    def take_said(self) -> list[Batch]:
        """What was said since the last call: what one event makes travels together."""
        said, self._said = self._said, []
        return said

    # --- Records --------------------------------------------------------------------------------------------------

    def count(self, increments: Sequence[tuple[str, int]], effects: list[SubEffect], now_ns: int) -> None:
        """Raise own counters; they are on disk at once and said in the rhythm of `vitals_ns`."""
        after = dict(self.counters)
        for name, amount in increments:
            if not 0 < len(name.encode()) <= COUNTER_NAME_MAX_BYTES or not amount >= 0:
                raise StateError(f"counter {name!r} by {amount}: names have 1 to 48 bytes and counters only grow")
            after[name] = min(COUNTER_MAX, after.get(name, 0) + amount)
        if len(after) > COUNTERS_MAX or len(encode_counters(after)) > COUNTERS_BODY_MAX_BYTES:
            raise StateError(f"a node has at most {COUNTERS_MAX} counters in {COUNTERS_BODY_MAX_BYTES} bytes")
        self.counters = after
        if not self._say_soon(Stream.COUNTERS, effects, now_ns):
            self._carry_status(effects, now_ns, is_said=False)
            self._seal(Stream.COUNTERS, self._body(Stream.COUNTERS), effects, now_ns)

    def report(self, payload: bytes, effects: list[SubEffect], now_ns: int) -> None:
        """Set the own status record; b"" takes it back."""
        if len(payload) > STATUS_MAX_BYTES:
            raise StateError(f"a status record has at most {STATUS_MAX_BYTES} bytes, not {len(payload)}")
        self._status = payload
        self._say_soon(Stream.COUNTERS if rides(self.counters, payload) else Stream.STATUS, effects, now_ns)

    def say_event(self, row: EventRow, effects: list[SubEffect], now_ns: int) -> None:
        """Put an event before everybody, together with the latest before it."""
        try:
            self._events = add_event(self._events, row)
        except WireError as error:
            raise StateError(str(error)) from error
        if not self._say_soon(Stream.EVENTS, effects, now_ns):
            self._seal(Stream.EVENTS, encode_events(self._events), effects, now_ns)

    def say_leases(self, effects: list[SubEffect], now_ns: int) -> None:
        """Say the own claims, which have changed."""
        record = encode_leases(self._holdings.projection.survey.claims.record())
        batch = self._seal(Stream.LEASES, record, effects, now_ns)
        self._join(batch, effects, now_ns)
        self._said.append(batch)

    @property
    def has_vitals(self) -> bool:
        """Whether records wait to be said."""
        return bool(self._dirty)

    def vitals_due_ns(self) -> int | None:
        """When the records that wait must be said."""
        if not self._dirty:
            return None
        return min(self._due_ns(stream) for stream in self._dirty)

    def say_vitals(self, effects: list[SubEffect], now_ns: int) -> None:
        """Say the records that are due."""
        # Counters first: they take the status along, or have it said.
        for stream in sorted(stream for stream in self._dirty if now_ns >= self._due_ns(stream)):
            if stream in self._dirty:
                self._say(stream, effects, now_ns)

    def _due_ns(self, stream: Stream) -> int:
        period_ns = self._anti_entropy.stretch(self._config.vitals_ns)
        said_ns = self._said_ns.get(stream)
        if said_ns is not None:
            return said_ns + period_ns
        # Where many begin together their first records come one after the other, at the rate of those that follow.
        crowd_ns = 0 if stream is Stream.EVENTS else max(0, period_ns - _FIRST_AT_ONCE * self._config.vitals_ns)
        return self.begun_ns + (crowd_ns * self._turn >> 32)

    def _say_soon(self, stream: Stream, effects: list[SubEffect], now_ns: int) -> bool:
        """The first of a quiet time goes at once (True), the rest in the rhythm of `vitals_ns`."""
        if now_ns >= self._due_ns(stream):
            self._say(stream, effects, now_ns)
            return True
        self._dirty[stream] = None
        return False

    def _say(self, stream: Stream, effects: list[SubEffect], now_ns: int) -> None:
        self._dirty.pop(stream, None)
        self._said_ns[stream] = now_ns
        if stream is Stream.COUNTERS:
            self._carry_status(effects, now_ns)
        elif stream is Stream.STATUS:
            self._rode = False
        batch = self._seal(stream, self._body(stream), effects, now_ns)
        self._join(batch, effects, now_ns)
        self._said.append(batch)

    def _carry_status(self, effects: list[SubEffect], now_ns: int, *, is_said: bool = True) -> None:
        """Counters are about to be sealed: with the status, or alone, after what takes the place of one beside them."""
        rode, self._rode = self._rode, rides(self.counters, self._status)
        if rode and not self._rode:
            if is_said:
                self._say(Stream.STATUS, effects, now_ns)
            else:
                self._dirty[Stream.STATUS] = None
                self._seal(Stream.STATUS, self._body(Stream.STATUS), effects, now_ns)
        elif self._rode and is_said:
            self._dirty.pop(Stream.STATUS, None)

    def _body(self, stream: Stream) -> bytes:
        if stream is Stream.STATUS:
            return encode_status(self._status)
        if stream is Stream.EVENTS:
            return encode_events(self._events)
        return encode_counters(self.counters, self._status if rides(self.counters, self._status) else b"")

    def _seal(self, stream: Stream, body: bytes, effects: list[SubEffect], now_ns: int) -> Batch:
        """Sign and journal a record under a number of its own; nobody sees it until it is said."""
        n = self._records_n.get(stream, 0) + 1
        self._records_n[stream] = n
        held = self._holdings.store.logs.get(self._node)
        last = None if held is None else held.records.get((stream, self.incarnation))
        # Counters of a life whose journal was lost go on counting beside this one's.
        is_beside = stream is Stream.COUNTERS and not self._has_counted_before
        base = (0, 0) if is_beside else (self.incarnation, 0)
        previous = _NO_HASH if last is None else last.digest
        stamp = self._clock.tick(now_ns)
        batch = seal_batch(stream, self._node, (self.incarnation, n), base, previous, stamp, body, self._signer)
        effects.append(Persist(record_key(batch), batch.raw))
        return batch


def rides(counters: dict[str, int], status: bytes) -> bool:
    """Whether a status goes beside the counters, under their signature, which is most of what either costs."""
    return bool(counters and status) and len(encode_counters(counters, status)) <= COUNTERS_BODY_MAX_BYTES
