"""The replicated state as one sub-protocol of the node: signed logs below, objects, cells and counters above.

How the parts meet: `crdt.store` holds the batches of every origin, `crdt.ownlog` writes this node's own, `anti_entropy`
makes news travel and repairs what differs, `projection` reads batches into views (`dedup.view`, `claims`, notes,
counters), `clock` gives swarm time. Everything is journalled before it is said.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.effects import Alarm, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.clock import Clock, stamp_of
from swarmd_protocols.state.config import ReplicaConfig as ReplicaConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch, Signer, Stream, open_batch, seal_batch, verify_batch
from swarmd_protocols.state.crdt.facts import Done, NotePut, NoteRemoval, decode_facts
from swarmd_protocols.state.crdt.journal_keys import fact_key, journal_key, record_key
from swarmd_protocols.state.crdt.log import Verdict
from swarmd_protocols.state.crdt.messages import Batches, ClockAsk, ClockTell, Have, KeyAsk, KeyTell, Message, Proof
from swarmd_protocols.state.crdt.ownlog import Fact, OwnLog, facts_of
from swarmd_protocols.state.crdt.records import (
    COUNTER_MAX,
    COUNTER_NAME_MAX_BYTES,
    COUNTERS_BODY_MAX_BYTES,
    COUNTERS_MAX,
    STATUS_MAX_BYTES,
    decode_counters,
    encode_counters,
    encode_leases,
)
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.observations import (
    CellDone,
    CellProgress,
    Count,
    DefineCells,
    LocalDetection,
    Observed,
    SetNote,
    StatusReport,
    WantCell,
)
from swarmd_protocols.state.observations import (
    DetectionView as DetectionView,
)
from swarmd_protocols.state.projection import Projection
from swarmd_protocols.state.replica_views import ReplicaViews
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect

NAME = "state"
_NO_HASH = bytes(16)
_LATE_NS = 500_000_000
"""How often batches from the future are looked at again."""
_UNSURE_ASK_NS = 1_000_000_000
"""How often others are asked for the time until this clock is trusted."""


class Replica(ReplicaViews):
    """What the swarm knows, at this node."""

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        config: ReplicaConfig,
        rng: random.Random,
        restored: Mapping[bytes, bytes],
        boot_incarnation: int,
        wall_offset_ns: int = 0,
        public_key: bytes = b"",
    ) -> None:
        """Read the journal; nothing is sent before `start`.

        Args:
            node: This node.
            signer: Its key.
            config: Bounds and periods.
            rng: Source of every random choice.
            restored: Journal records whose keys start with b"state/"; may be empty, torn or corrupt.
            boot_incarnation: A number that grows with every boot, such as Unix seconds.
            wall_offset_ns: Wall clock (UTC since 1970) minus monotonic clock; 0 where there is no wall clock.
            public_key: This node's own; needed to recover own facts from peers after the loss of the disk.
        """
        self._node = node
        self._signer = signer
        self._config = config
        self._rng = rng
        self.clock = Clock(config.clock, wall_offset_ns)
        self._store = Store(config.origins_max, config.origin_bytes_max)
        self._projection = Projection(node, config)
        self._anti_entropy = AntiEntropy(node, config, rng, self._store)
        self._keys: dict[NodeId, bytes] = {node: public_key} if public_key else {}
        self._waiting: dict[bytes, tuple[NodeId, Batch]] = {}
        self._asked_keys: dict[NodeId, int] = {}
        self._deferred: dict[bytes, Batch] = {}
        self._unjournalled: dict[bytes, bytes | None] = {}
        self._pending: list[Fact] = []
        self._flushed_ns = -(1 << 62)
        self._timers: dict[TimerKey, int] = {}
        self._records_n: dict[Stream, int] = {}
        self._counters: dict[str, int] = {}
        self._status = b""
        self._vitals_ns: dict[Stream, int] = {}
        self._dirty_vitals: dict[Stream, None] = {}
        self._note_serial = 0
        self._begun_ns = 0
        """When this life began, own monotonic clock."""
        self._reads = {"batches": 0, "rejected": 0, "invalid": 0, "late": 0}
        self._problems: list[str] = []
        self._restored_counters = False
        self._incarnation = self._first_incarnation(restored, boot_incarnation)
        self._own = OwnLog(node, self._incarnation, signer, config.slack_rows)
        self._restore(restored)

    # --- Boot ---------------------------------------------------------------------------------------------------

    def _first_incarnation(self, restored: Mapping[bytes, bytes], boot_incarnation: int) -> int:
        stored = restored.get(b"state/i", b"")
        last = int.from_bytes(stored, "big") if len(stored) == 6 else -1
        for key in restored:
            if key.startswith((b"state/f/", b"state/r/")):
                last = max(last, int.from_bytes(key[8:14], "big"))
        return min(max(last + 1, boot_incarnation, 1), (1 << 48) - 2)

    def _restore(self, restored: Mapping[bytes, bytes]) -> None:
        """Take in what the journal holds; what does not read or verify is named and left out."""
        bad = 0
        for key in sorted(key for key in restored if key.startswith(b"state/k/")):
            if node_id_of(restored[key]) == key[8:]:
                self._keys.setdefault(NodeId(key[8:]), restored[key])
        for key in sorted(key for key in restored if key.startswith((b"state/f/", b"state/r/", b"state/o/"))):
            try:
                batch = open_batch(restored[key])
            except WireError:
                bad += 1
                continue
            known = self._keys.get(batch.origin)
            if known is None:
                if batch.origin == self._node:
                    bad += not self._take_restored(batch)
                else:
                    self._waiting[batch.digest] = (self._node, batch)
                continue
            bad += not (verify_batch(batch, known, self._signer) and self._take_restored(batch))
        for key in sorted(key for key in restored if key.startswith(b"state/q/")):
            if len(restored[key]) > 2:
                self._restore_proof(restored[key])
        if bad:
            self._problems.append(
                f"{bad} journal records were torn or corrupt and were left out; peers will repair them"
            )
        self._restore_counters()
        self._own.may_clean = bool(restored) and not bad
        self._projection.settle()
        self._projection.forget_changes()

    def _take_restored(self, batch: Batch) -> bool:
        try:
            self._accept(batch, 0)
        except WireError:
            return False
        if batch.origin == self._node and batch.stream is not Stream.FACTS:
            self._records_n[batch.stream] = 0
            if batch.stream is Stream.LEASES:
                # Whatever was held before the restart is not worked on now: say so instead of letting it run out.
                self._projection.claims.dirty = True
        return True

    def _restore_proof(self, packed: bytes) -> None:
        try:
            message = messages.decode(packed)
            if isinstance(message, Proof):
                self._judge_proof(message)
        except WireError:
            self._problems.append("a quarantine record was corrupt and was left out")

    def _restore_counters(self) -> None:
        log = self._store.logs.get(self._node)
        for record in [] if log is None else log.records.values():
            if record.stream is Stream.COUNTERS:
                self._restored_counters = True
                for name, value in decode_counters(record.body).items():
                    self._counters[name] = self._counters.get(name, 0) + value

    # --- SubProtocol --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys and the prefix of journal keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """Journal the new incarnation, then begin."""
        self._begun_ns = now_ns
        effects: list[SubEffect] = [Persist(b"state/i", self._incarnation.to_bytes(6, "big"))]
        effects += [Alarm("state-journal", problem) for problem in self._problems]
        self._set(effects, "expire", now_ns + self._config.expire_ns)
        self._set(effects, "clock", now_ns + self._rng.randrange(1, 1_000_000_000))
        return effects

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Learn who is there and whose key is whose."""
        for peer in peers:
            if peer.public_key:
                self._learn_key(peer.node, peer.public_key)
        self._anti_entropy.know_peers(peers)
        roster = sorted([self._node, *(peer.node for peer in peers)])
        reachable = [self._node, *(peer.node for peer in peers if peer.reachable)]
        self._projection.claims.know_roster(roster, reachable)
        # Who was asked for a key and is no peer any more cannot answer; repair brings the batch again.
        here = set(roster)
        for digest in [digest for digest, (sender, _) in self._waiting.items() if sender not in here]:
            del self._waiting[digest]
        effects: list[SubEffect] = []
        self._retry_waiting(effects, now_ns)
        return self._finish(effects, now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A peer speaks; whatever the bytes are, nothing is raised."""
        try:
            message = messages.decode(payload)
        except WireError as error:
            self._reads["rejected"] += 1
            return [Rejected(sender.hex(), str(error))]
        if sender in self._store.quarantined:
            return []
        effects: list[SubEffect] = []
        self._dispatch(sender, message, effects, now_ns)
        return self._finish(effects, now_ns)

    def _dispatch(self, sender: NodeId, message: Message, effects: list[SubEffect], now_ns: int) -> None:
        match message:
            case Batches(raws):
                self._on_batches(sender, raws, effects, now_ns)
            case Have():
                self._on_have(sender, message, effects)
            case messages.Buckets():
                effects += self._anti_entropy.answer_buckets(sender, message)
            case Proof():
                self._on_proof(message, effects)
            case ClockAsk(sent_ns):
                answer = messages.encode(ClockTell(sent_ns, self.clock.physical_ns(now_ns)))
                effects.append(Send(sender, answer, False, Priority.SYNC))
            case ClockTell(sent_ns, physical_ns):
                self.clock.vote(sender, sent_ns, physical_ns, now_ns)
                step_ms = self.clock.take_step_ms()
                if step_ms:
                    self._pending += self._projection.own.restamp(step_ms)
                    self._projection.reconsider()
                    self._flush(effects, now_ns)
                    self._set_aside(effects, now_ns)
            case KeyAsk(origins):
                keys = tuple(self._keys[NodeId(origin)] for origin in origins if origin in self._keys)
                if keys:
                    effects.append(Send(sender, messages.encode(KeyTell(keys)), True, Priority.SYNC))
            case KeyTell(keys):
                for key in keys:
                    if node_id_of(key) in self._asked_keys:
                        self._learn_key(node_id_of(key), key)
                self._retry_waiting(effects, now_ns)

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """Do what is due; a stale firing does nothing."""
        due = self._timers.get(key)
        if due is None or due > now_ns:
            return []
        del self._timers[key]
        effects: list[SubEffect] = []
        match key[1]:
            case "flush":
                self._flush(effects, now_ns)
            case "rumor":
                effects += self._anti_entropy.rumor()
                if self._anti_entropy.has_news():
                    self._set(effects, "rumor", now_ns + self._config.rumor_ns)
            case "ask":
                effects += self._anti_entropy.ask_again()
            case "vitals":
                self._say_vitals(effects, now_ns)
            case "expire":
                self._expire(effects, now_ns)
                self._set(effects, "expire", now_ns + self._config.expire_ns)
            case "late":
                self._take_deferred(now_ns)
            case "claims":
                pass
            case "journal":
                self._journal(effects)
            case "clock":
                effects += self._anti_entropy.ask_clock(now_ns, self.clock)
                self.clock.slew(now_ns)
                unsure = not self.clock.synced or self.clock.is_young(now_ns)
                pause = _UNSURE_ASK_NS if unsure else self._config.clock_ask_ns
                self._set(effects, "clock", now_ns + pause)
        return self._finish(effects, now_ns)

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """A request of `observations.py`; raises `StateError` when it cannot be carried out."""
        effects: list[SubEffect] = []
        match request:
            case Observed(detections):
                self._observe(detections, now_ns)
                self._flush_soon(effects, now_ns)
            case StatusReport(payload):
                if len(payload) > STATUS_MAX_BYTES:
                    raise StateError(f"a status record has at most {STATUS_MAX_BYTES} bytes, not {len(payload)}")
                self._status = payload
                self._vitals_soon(effects, Stream.STATUS, now_ns)
            case Count(increments):
                self._count(increments)
                if not self._vitals_soon(effects, Stream.COUNTERS, now_ns):
                    # Said later, kept now: a crash must not lose what was accepted.
                    self._seal_record(Stream.COUNTERS, encode_counters(self._counters), effects, now_ns)
            case DefineCells(cells):
                self._projection.define_cells(cells)
            case WantCell(east_cm, north_cm, battery_milli):
                self._projection.want_cell(east_cm, north_cm, battery_milli)
            case CellProgress(cell_id):
                self._projection.claims.progress(cell_id)
            case CellDone(cell_id, quality_milli):
                if not 0 <= quality_milli <= 1000:
                    raise StateError(f"quality_milli is {quality_milli}; it must be 0 to 1000")
                self._pending.append(Done(self._projection.finish_cell(cell_id), quality_milli))
                self._flush(effects, now_ns)
            case SetNote(key, value):
                self._set_note(key, value, now_ns)
                self._flush(effects, now_ns)
            case _:
                raise StateError(f"the replicated state knows no request {type(request).__name__}")
        return self._finish(effects, now_ns)

    def summary(self) -> bytes:
        """Eight bytes over the facts, eight over the records."""
        return self._store.summary()

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Compare; where it differs, ask the sender at a bounded rate."""
        if sender in self._store.quarantined or len(summary) != 16:
            return []
        own = self.summary()
        if own[:8] == summary[:8]:
            # The records differ by a tick most of the time; what is cleaned are facts.
            self._own.may_clean = True
            if own == summary:
                return []
        effects: list[SubEffect] = []
        effects += self._anti_entropy.ask_sync(sender, summary[:8] != own[:8], summary[8:] != own[8:], now_ns)
        return effects

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """News for the datagram now being built."""
        return self._anti_entropy.piggyback(budget_bytes)

    # --- Own facts ----------------------------------------------------------------------------------------------

    def _observe(self, detections: Sequence[LocalDetection], now_ns: int) -> None:
        self._pending += self._projection.observe(detections, self._incarnation, self._capture_stamp(now_ns))

    def _capture_stamp(self, now_ns: int) -> Callable[[int], int]:
        clock = self.clock
        return lambda captured_ns: stamp_of(clock.physical_ms(min(captured_ns, now_ns)))

    def _set_note(self, key: str, value: bytes, now_ns: int) -> None:
        if not 0 < len(key.encode()) <= 64 or len(value) > 512:
            raise StateError("a note's key has 1 to 64 bytes and its value at most 512")
        removes = self._projection.notes.dots_of(key)[:16]
        if value:
            self._note_serial += 1
            stamp = self.clock.tick(now_ns)
            self._pending.append(NotePut(self._incarnation, self._note_serial, stamp, key, value, removes))
        elif removes:
            self._pending.append(NoteRemoval(key, removes))

    def _count(self, increments: Sequence[tuple[str, int]]) -> None:
        after = dict(self._counters)
        for name, amount in increments:
            if not 0 < len(name.encode()) <= COUNTER_NAME_MAX_BYTES or not amount >= 0:
                raise StateError(f"counter {name!r} by {amount}: names have 1 to 48 bytes and counters only grow")
            after[name] = min(COUNTER_MAX, after.get(name, 0) + amount)
        if len(after) > COUNTERS_MAX or len(encode_counters(after)) > COUNTERS_BODY_MAX_BYTES:
            raise StateError(f"a node has at most {COUNTERS_MAX} counters in {COUNTERS_BODY_MAX_BYTES} bytes")
        self._counters = after

    def _flush_soon(self, effects: list[SubEffect], now_ns: int) -> None:
        """At once when it has been quiet, else together with what follows."""
        if not self._pending:
            return
        due = self._flushed_ns + self._config.flush_ns
        if now_ns >= due or len(self._pending) >= 128:
            self._flush(effects, now_ns)
        elif ("state", "flush") not in self._timers:
            self._set(effects, "flush", due)

    def _flush(self, effects: list[SubEffect], now_ns: int) -> None:
        items, self._pending = self._pending, []
        if not items:
            return
        self._flushed_ns = now_ns
        batches = self._own.append(items, lambda: self.clock.tick(now_ns))
        for batch in batches:
            effects.append(Persist(fact_key(batch), batch.raw))
            self._accept(batch, now_ns, effects)
        effects += self._anti_entropy.publish(batches, self._node)

    def _say_record(self, stream: Stream, body: bytes, effects: list[SubEffect], now_ns: int) -> Batch:
        batch = self._seal_record(stream, body, effects, now_ns)
        self._accept(batch, now_ns, effects)
        return batch

    def _seal_record(self, stream: Stream, body: bytes, effects: list[SubEffect], now_ns: int) -> Batch:
        """Sign and journal a record under a number of its own; nobody sees it until it is said."""
        n = self._records_n.get(stream, 0) + 1
        self._records_n[stream] = n
        held = self._store.logs.get(self._node)
        last = None if held is None else held.records.get((stream, self._incarnation))
        # Counters of a life whose journal was lost go on counting beside this one's.
        base = (0, 0) if stream is Stream.COUNTERS and not self._restored_counters else (self._incarnation, 0)
        previous = _NO_HASH if last is None else last.digest
        dot = (self._incarnation, n)
        batch = seal_batch(stream, self._node, dot, base, previous, self.clock.tick(now_ns), body, self._signer)
        effects.append(Persist(record_key(batch), batch.raw))
        return batch

    def _vitals_soon(self, effects: list[SubEffect], stream: Stream, now_ns: int) -> bool:
        """The first of a quiet time goes at once (True), the rest in the rhythm of `vitals_ns`."""
        due = self._vitals_ns.get(stream, -(1 << 62)) + self._anti_entropy.stretch(self._config.vitals_ns)
        if now_ns >= due:
            self._say_vital(stream, effects, now_ns)
            return True
        self._vitals_ns.setdefault(stream, now_ns)
        self._dirty_vitals[stream] = None
        self._set(effects, "vitals", min(due, self._timers.get(("state", "vitals"), due)))
        return False

    def _say_vitals(self, effects: list[SubEffect], now_ns: int) -> None:
        for stream in list(self._dirty_vitals):
            due = self._vitals_ns.get(stream, 0) + self._anti_entropy.stretch(self._config.vitals_ns)
            if now_ns >= due:
                del self._dirty_vitals[stream]
                self._say_vital(stream, effects, now_ns)
            else:
                self._set(effects, "vitals", due)

    def _say_vital(self, stream: Stream, effects: list[SubEffect], now_ns: int) -> None:
        self._vitals_ns[stream] = now_ns
        body = self._status if stream is Stream.STATUS else encode_counters(self._counters)
        if body:
            effects += self._anti_entropy.publish([self._say_record(stream, body, effects, now_ns)], self._node)

    # --- What arrives -------------------------------------------------------------------------------------------

    def _on_batches(self, sender: NodeId, raws: tuple[bytes, ...], effects: list[SubEffect], now_ns: int) -> None:
        fresh: list[Batch] = []
        unknown: set[NodeId] = set()
        for raw in raws:
            try:
                batch = open_batch(raw)
            except WireError as error:
                self._refuse(effects, sender, str(error))
                continue
            if self._is_known(batch):
                continue
            key = self._keys.get(batch.origin)
            if key is None:
                if len(self._waiting) < self._config.waiting_max:
                    self._waiting[batch.digest] = (sender, batch)
                    unknown.add(batch.origin)
                continue
            if self._admit(sender, batch, key, effects, now_ns):
                fresh.append(batch)
        if unknown:
            for origin in sorted(unknown)[:64]:
                self._asked_keys[origin] = now_ns
            effects.append(Send(sender, messages.encode(KeyAsk(tuple(sorted(unknown)[:64]))), True, Priority.SYNC))
        effects += self._anti_entropy.publish(fresh, sender)

    def _is_known(self, batch: Batch) -> bool:
        log = self._store.logs.get(batch.origin)
        if log is None:
            return False
        held = log.find(batch.stream, batch.dot)
        return held is not None and held.digest == batch.digest

    def _admit(self, sender: NodeId, batch: Batch, key: bytes, effects: list[SubEffect], now_ns: int) -> bool:
        """Verify one batch and join it; True when it was news."""
        if not verify_batch(batch, key, self._signer):
            self._reads["invalid"] += 1
            self._refuse(effects, sender, f"a batch of {batch.origin.hex()[:8]} has no valid signature")
            return False
        try:
            added = self._accept(batch, now_ns, effects)
        except WireError as error:
            self._refuse(effects, sender, f"a signed batch of {batch.origin.hex()[:8]} cannot be read: {error}")
            return False
        if added and self._config.journal_others:
            self._unjournalled[journal_key(batch, self._node)] = batch.raw
        return added

    def _refuse(self, effects: list[SubEffect], sender: NodeId, reason: str) -> None:
        self._reads["rejected"] += 1
        effects.append(Rejected(sender.hex(), reason))

    def _accept(self, batch: Batch, now_ns: int, effects: list[SubEffect] | None = None) -> bool:
        """Join a verified batch into store and views.

        Raises:
            WireError: The body cannot be read; nothing has changed.
        """
        reading = self._projection.read(batch)
        verdict, dropped = self._store.add(batch)
        if verdict is Verdict.CONFLICT:
            self._on_conflict(batch, effects)
            return False
        if verdict is not Verdict.ADDED:
            return False
        self._reads["batches"] += 1
        for old in dropped:
            self._drop(old)
        if batch.origin == self._node and batch.dot[0] != self._incarnation and batch.stream is Stream.FACTS:
            items = facts_of(decode_facts(batch.body))
            self._own.adopt(batch, items)
            self._projection.own_restored(items)
        if batch.origin == self._node and batch.dot[0] >= self._incarnation and now_ns and effects is not None:
            self._meet_own_past(batch, effects)
        if batch.stream is Stream.FACTS and not self.clock.observe(batch.stamp, now_ns) and effects is not None:
            # A clock that runs ahead: the bytes are kept and passed on, what they say waits for its time.
            self._reads["late"] += 1
            self._deferred[batch.digest] = batch
            return True
        self._projection.take(batch, reading, now_ns)
        return True

    def _meet_own_past(self, batch: Batch, effects: list[SubEffect]) -> None:
        """A peer holds a batch of this node that this node does not: never contradict it, go on above it."""
        written = self._own.written if batch.stream is Stream.FACTS else self._records_n.get(batch.stream, 0)
        if batch.dot <= (self._incarnation, written):
            return
        self._incarnation = batch.dot[0] + 1
        self._own.restart(self._incarnation)
        self._records_n.clear()
        effects.append(Persist(b"state/i", self._incarnation.to_bytes(6, "big")))
        effects.append(
            Alarm("state-rollback", "peers hold newer facts of this node than its journal; it goes on above")
        )

    def _drop(self, batch: Batch) -> None:
        if self._deferred.pop(batch.digest, None) is None:
            self._projection.drop(batch)
        log = self._store.logs.get(batch.origin)
        if log is not None and (batch.stream, batch.dot[0]) in log.records:
            # Its successor overwrites the same journal record.
            return
        self._unjournalled[journal_key(batch, self._node)] = None

    def _on_conflict(self, batch: Batch, effects: list[SubEffect] | None) -> None:
        held = self._store.logs[batch.origin].find(batch.stream, batch.dot)
        if held is None or effects is None:
            return
        first, second = sorted((held.raw, batch.raw))
        self._on_proof(Proof(first, second), effects)

    def _on_proof(self, proof: Proof, effects: list[SubEffect]) -> None:
        origin = self._judge_proof(proof)
        if origin is None:
            return
        effects.append(
            Alarm("state-equivocation", f"{origin.hex()} signed two batches under one number: it is quarantined")
        )
        packed = messages.encode(proof)
        self._unjournalled[b"state/q/" + origin] = packed
        effects += self._anti_entropy.tell_all(packed)

    def _judge_proof(self, proof: Proof) -> NodeId | None:
        """The author that two batches convict, unless it is shut out already."""
        try:
            a, b = open_batch(proof.first), open_batch(proof.second)
        except WireError:
            return None
        key = self._keys.get(a.origin)
        if (a.origin, a.stream, a.dot) != (b.origin, b.stream, b.dot) or a.digest == b.digest or key is None:
            return None
        if a.origin in self._store.quarantined:
            return None
        if not (verify_batch(a, key, self._signer) and verify_batch(b, key, self._signer)):
            return None
        for batch in self._store.quarantine(a.origin, (proof.first, proof.second)):
            self._drop(batch)
        self._projection.forget_origin(a.origin)
        self.clock.forget(a.origin)
        return a.origin

    def _on_have(self, sender: NodeId, have: Have, effects: list[SubEffect]) -> None:
        lacking, wanted, proofs = self._store.compare(have)
        effects += self._anti_entropy.answer_have(sender, have, lacking, wanted, proofs)

    def _learn_key(self, node: NodeId, key: bytes) -> None:
        if self._keys.get(node) != key and node_id_of(key) == node:
            self._keys[node] = key
            self._asked_keys.pop(node, None)
            if self._config.journal_others:
                self._unjournalled[b"state/k/" + node] = key

    def _retry_waiting(self, effects: list[SubEffect], now_ns: int) -> None:
        ready = [digest for digest, (_, batch) in self._waiting.items() if batch.origin in self._keys]
        fresh: dict[NodeId, list[Batch]] = {}
        for digest in ready:
            sender, batch = self._waiting.pop(digest)
            if self._admit(sender, batch, self._keys[batch.origin], effects, now_ns):
                fresh.setdefault(sender, []).append(batch)
        for sender, batches in fresh.items():
            effects += self._anti_entropy.publish(batches, sender)

    # --- Time passes --------------------------------------------------------------------------------------------

    def _expire(self, effects: list[SubEffect], now_ns: int) -> None:
        self.clock.slew(now_ns)
        self._take_deferred(now_ns)
        self._set_aside(effects, now_ns)
        # In a swarm too small to confirm a clock, a life as long as the time after which facts are old is sure enough.
        is_sure = self.clock.is_sure(now_ns) or now_ns - self._begun_ns >= self._config.dedup.ttl_ms * 1_000_000
        for name in self._projection.expire(self.clock.physical_ms(now_ns), is_sure):
            self._own.kill(name)

    def _set_aside(self, effects: list[SubEffect], now_ns: int) -> None:
        """What lies in the future counts for nobody, its author included; the author says its living facts again.

        Batches come to lie there when this clock is set back, or out of the journal of a life with a wrong clock.
        """
        if not self.clock.knows_time:
            return
        for origin, log in self._store.logs.items():
            if not self.clock.is_ahead(log.newest, now_ns):
                continue
            ahead = [
                batch
                for batch in log.facts.values()
                if batch.digest not in self._deferred and self.clock.is_ahead(batch.stamp, now_ns)
            ]
            if origin == self._node and ahead:
                self._pending = [*self._own.rewrite({batch.dot for batch in ahead}), *self._pending]
                self._flush(effects, now_ns)
            for batch in ahead:
                if batch.dot in log.facts:
                    self._deferred[batch.digest] = batch
                    self._projection.drop(batch)

    def _take_deferred(self, now_ns: int) -> None:
        """What was set aside because its stamp lay in the future, and no longer does."""
        for digest, batch in list(self._deferred.items()):
            if self.clock.observe(batch.stamp, now_ns):
                del self._deferred[digest]
                self._projection.take(batch, self._projection.read(batch), now_ns)

    def _journal(self, effects: list[SubEffect]) -> None:
        waiting, self._unjournalled = self._unjournalled, {}
        effects += [Persist(key, value) for key, value in waiting.items()]

    def _finish(self, effects: list[SubEffect], now_ns: int) -> list[SubEffect]:
        """What every event ends with: decide, tell, and set the timers that follow."""
        details, lease_due = self._projection.finish(now_ns, self.clock.physical_ms(now_ns))
        if self._projection.claims.dirty:
            self._projection.claims.dirty = False
            batch = self._say_record(Stream.LEASES, encode_leases(self._projection.claims.record()), effects, now_ns)
            effects += self._anti_entropy.publish([batch], self._node)
        effects += [StateChanged(NAME, detail) for detail in details]
        if lease_due is not None and self._timers.get(("state", "claims")) != lease_due:
            self._set(effects, "claims", lease_due)
        if self._anti_entropy.has_news() and ("state", "rumor") not in self._timers:
            self._set(effects, "rumor", now_ns + self._config.rumor_ns)
        if self._deferred and ("state", "late") not in self._timers:
            self._set(effects, "late", now_ns + _LATE_NS)
        if self._anti_entropy.has_wants() and ("state", "ask") not in self._timers:
            self._set(effects, "ask", now_ns + self._config.ask_ns)
        if self._unjournalled and ("state", "journal") not in self._timers:
            self._set(effects, "journal", now_ns + self._config.journal_ns)
        return effects

    def _set(self, effects: list[SubEffect], what: str, at_ns: int) -> None:
        key: TimerKey = (NAME, what)
        self._timers[key] = at_ns
        effects.append(SetTimer(key, at_ns))
