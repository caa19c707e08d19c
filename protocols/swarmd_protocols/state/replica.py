"""The replicated state as one sub-protocol of the node: signed logs below, objects, cells and counters above.

How the parts meet: `author` writes what this node says, `intake` admits what others say, both into `holdings`: the
batches of every origin (`crdt.store`) and the views of them (`projection`). `anti_entropy` makes news travel and
repairs what differs, `clock` gives swarm time, `replica_views` is what people and bridges read. Everything is
journalled before it is said.
"""

import random
from collections.abc import Mapping, Sequence

from swarmd_protocols.effects import Alarm, Order, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.clock import Clock
from swarmd_protocols.state.config import ReplicaConfig as ReplicaConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Signer, Stream, open_batch, verify_batch
from swarmd_protocols.state.crdt.facts import Done
from swarmd_protocols.state.crdt.journal_keys import (
    INCARNATION_KEY,
    OTHERS_PREFIX,
    OWN_PREFIXES,
    PROOF_PREFIX,
    SURE_KEY,
)
from swarmd_protocols.state.crdt.messages import (
    Batches,
    Buckets,
    CertificateAsk,
    Certificates,
    ClockAsk,
    ClockTell,
    Have,
    Message,
    Proof,
    Recent,
    Wanted,
)
from swarmd_protocols.state.heirs import Heirs
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.intake import Intake
from swarmd_protocols.state.lives import life_above
from swarmd_protocols.state.observations import (
    CellDone,
    CellProgress,
    Count,
    DefineCells,
    Judged,
    Observed,
    SayEvent,
    SayReview,
    SetNote,
    StatusReport,
    WantCell,
)
from swarmd_protocols.state.observations import (
    DetectionView as DetectionView,
)
from swarmd_protocols.state.quota import Quotas
from swarmd_protocols.state.replica_views import ReplicaViews
from swarmd_protocols.state.reviews import Reviews, operators_of
from swarmd_protocols.state.spent_notes import SpentNotes
from swarmd_protocols.subprotocol import Peer, SubEffect
from swarmd_protocols.trust.view import TrustView

NAME = "state"
_FLUSH, _RUMOR, _ASK, _VITALS, _EXPIRE = (
    (NAME, "flush"),
    (NAME, "rumor"),
    (NAME, "ask"),
    (NAME, "vitals"),
    (NAME, "expire"),
)
_LATE, _JOURNAL, _CLOCK, _WORK, _CLAIMS = (
    (NAME, "late"),
    (NAME, "journal"),
    (NAME, "clock"),
    (NAME, "work"),
    (NAME, "claims"),
)
_LATE_NS = 500_000_000
"""How often batches from the future are looked at again."""
_UNSURE_ASK_NS = 1_000_000_000
"""How often others are asked for the time until this clock is trusted."""
_RESTORE_UNITS = 2_000_000
"""Decisions made before the node starts, about two seconds of work; what a flood left beyond is decided in slices."""
_SUMMARY_BYTES = 16
"""Of the digest that goes round with membership's probes."""


class Replica:
    """What the swarm knows, at this node."""

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        trust: TrustView,
        config: ReplicaConfig,
        rng: random.Random,
        restored: Mapping[bytes, bytes],
        life: int,
        wall_offset_ns: int = 0,
        public_key: bytes = b"",
    ) -> None:
        """Read the journal; nothing is sent before `start`.

        Args:
            node: This node.
            signer: Its key.
            trust: Who is a member.
            config: Bounds and periods.
            rng: Source of every random choice.
            restored: Journal records whose keys start with b"state/"; may be empty, torn or corrupt.
            life: What `life_number` gave for this start; where the journal knows a higher one, `life_above` that.
            wall_offset_ns: Wall clock (UTC since 1970) minus monotonic clock; 0 where there is no wall clock.
            public_key: This node's own: its own log is its own state, whether or not its certificate holds just now.
        """
        self._node = node
        self._signer = signer
        self._config = config
        self._rng = rng
        self.clock = Clock(config.clock, wall_offset_ns)
        self._trust = trust
        reviews = Reviews(trust.swarm, config.dedup.groups, signer.verify)
        reviews.know_operators(operators_of(trust.chain))
        self._holdings = Holdings(node, config, self.clock, reviews)
        self._projection = self._holdings.projection
        quotas = Quotas()
        self._anti_entropy = AntiEntropy(node, config, rng, self._holdings.store, quotas)
        incarnation = _first_incarnation(restored, life)
        self._author = Author(node, incarnation, signer, config, self._holdings, self._anti_entropy)
        self._intake = Intake(
            node, public_key, config, trust, signer, self._holdings, self._anti_entropy, self._author, quotas
        )
        self._heirs = Heirs(node, reviews)
        self._spent_notes = SpentNotes(node, self._projection.notes)
        self._has_agreed = False
        """Whether this life has held the same facts as a peer."""
        self.views = ReplicaViews(node, self._holdings, self._author, self._intake)
        self._timers: dict[TimerKey, int] = {}
        self._problems: list[str] = []
        self._begun_ns = 0
        """When this life began, own monotonic clock."""
        self._sliced_ns = -(1 << 62)
        """When a slice of work last used up its budget."""
        self._restore(restored)

    # --- Boot ---------------------------------------------------------------------------------------------------

    def _restore(self, restored: Mapping[bytes, bytes]) -> None:
        """Take in what the journal holds; what does not read or verify is named and left out."""
        bad = 0
        self._author.sure_life = self._author.sure_before = int.from_bytes(restored.get(SURE_KEY, b"")[:6], "big")
        for key in sorted(key for key in restored if key.startswith((*OWN_PREFIXES, OTHERS_PREFIX))):
            bad += not self._restore_batch(key, restored[key])
        self._intake.judge()
        for key in sorted(key for key in restored if key.startswith(PROOF_PREFIX)):
            if not self._intake.restore_proof(key, restored[key]):
                self._problems.append("a quarantine record was corrupt and was left out")
        if bad:
            self._problems.append(
                f"{bad} journal records were torn or corrupt and were left out; peers will repair them"
            )
        self._author.restore_records()
        self._author.log.may_clean = bool(restored) and not bad
        self._projection.work(_RESTORE_UNITS)
        self._projection.forget_changes()

    def _restore_batch(self, key: bytes, raw: bytes) -> bool:
        try:
            batch = open_batch(raw)
            author_key = self._intake.key_of(batch.origin)
            if author_key is None:
                # Its author was a member when this was written; nothing of it counts unless it is one again.
                self._holdings.shelve(key, batch.origin, batch.raw)
                return True
            if not verify_batch(batch, author_key, self._signer):
                return False
            _, reading = self._holdings.join(batch, 0, is_restored=True)
        except WireError:
            return False
        if batch.origin == self._node:
            self._author.meet(batch, reading, is_restored=True)
            if batch.stream is Stream.LEASES:
                # Whatever was held before the restart is not worked on now: say so instead of letting it run out.
                self._projection.survey.claims.dirty = True
        return True

    # --- SubProtocol --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys and the prefix of journal keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """Journal the new incarnation, then begin."""
        self._begun_ns = now_ns
        self._author.begun_ns = now_ns
        self._projection.survey.claims.turns.begin(now_ns)
        effects: list[SubEffect] = [Persist(INCARNATION_KEY, self._author.incarnation.to_bytes(6, "big"))]
        effects += [Alarm("state-journal", problem) for problem in self._problems]
        self._set(effects, _EXPIRE, now_ns + self._config.expire_ns)
        self._set(effects, _CLOCK, now_ns + self._rng.randrange(1, 1_000_000_000))
        return effects

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Learn who is there."""
        self._anti_entropy.know_peers(peers)
        roster = sorted([self._node, *(peer.node for peer in peers)])
        reachable = [self._node, *(peer.node for peer in peers if peer.reachable)]
        swarm = max((peer.swarm for peer in peers), default=0)
        self._projection.survey.claims.know_roster(roster, reachable, now_ns, swarm)
        self._author.log.know_swarm(max(len(roster), swarm))
        effects: list[SubEffect] = []
        # Who was asked for a certificate and is no peer any more cannot answer; repair brings the batch again.
        self._intake.expire(now_ns, here=frozenset(roster))
        self._intake.take_back()
        self._intake.retry(effects, now_ns)
        return self._finish(effects, now_ns)

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """Who counts may have changed: hold everybody against it."""
        effects: list[SubEffect] = []
        self._projection.reviews.know_operators(operators_of(self._trust.chain))
        self._intake.judge()
        self._intake.retry(effects, now_ns)
        return self._finish(effects, now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A peer speaks; whatever the bytes are, nothing is raised."""
        effects: list[SubEffect] = []
        if sender in self._holdings.store.quarantined:
            return effects
        if not self._intake.may_speak(sender, len(payload), effects, now_ns):
            return effects
        try:
            message = messages.decode(payload)
        except WireError as error:
            self._intake.counts["rejected"] += 1
            return [*effects, Rejected(sender.hex(), str(error))]
        self._dispatch(sender, message, effects, now_ns)
        return self._finish(effects, now_ns)

    def _dispatch(self, sender: NodeId, message: Message, effects: list[SubEffect], now_ns: int) -> None:
        match message:
            case Batches(raws):
                self._intake.queue(sender, raws)
            case Proof():
                self._intake.on_proof(sender, message, effects, now_ns)
            case ClockTell(sent_ns, physical_ns):
                if self._anti_entropy.time.is_answer(sender, message):
                    self.clock.vote(sender, sent_ns, physical_ns, now_ns)
                    self._projection.survey.claims.delays.answered(sender, now_ns - sent_ns, now_ns)
                    self._follow_clock(effects, now_ns)
            case Certificates():
                self._intake.on_certificates(sender, message, effects, now_ns)
            case Have() | Buckets() | Recent() | Wanted() | ClockAsk() | CertificateAsk():
                self._intake.on_question(sender, message, effects, now_ns)

    def _follow_clock(self, effects: list[SubEffect], now_ns: int) -> None:
        """Where the clock was set: correct what this life has stamped, and look at everything again."""
        step_ms = self.clock.take_step_ms()
        if step_ms:
            self._author.correct(step_ms, effects)
            self._projection.shown.reconsider()
            self._author.flush(effects, now_ns)
            self._author.set_aside_future(effects, self._is_settled(now_ns), now_ns)

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """Do what is due; a stale firing does nothing."""
        due = self._timers.get(key)
        if due is None or due > now_ns:
            return []
        del self._timers[key]
        effects: list[SubEffect] = []
        match key[1]:
            case "flush":
                self._author.flush(effects, now_ns)
            case "rumor":
                effects += self._anti_entropy.rumor(now_ns)
                if self._anti_entropy.has_news():
                    self._set(effects, _RUMOR, now_ns + self._config.rumor_ns)
            case "ask":
                if not self._intake.is_reading:
                    effects += self._anti_entropy.ask_again(now_ns)
                effects += self._intake.ask_again(now_ns)
            case "vitals":
                self._author.say_vitals(effects, now_ns)
            case "expire":
                self._expire(effects, now_ns)
                self._set(effects, _EXPIRE, now_ns + self._config.expire_ns)
            case "late":
                self._holdings.take_due(now_ns)
            case "journal":
                effects += self._holdings.write()
            case "clock":
                effects += self._anti_entropy.time.ask(now_ns, self.clock)
                self.clock.slew(now_ns)
                pause = self._config.clock_ask_ns if self.clock.is_sure(now_ns) else _UNSURE_ASK_NS
                self._set(effects, _CLOCK, now_ns + pause)
            case _:
                pass  # "work" and "claims": `_finish` does what is due.
        return self._finish(effects, now_ns)

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """A request of `observations.py`; raises `StateError` when it cannot be carried out."""
        effects: list[SubEffect] = []
        author, projection = self._author, self._projection
        match request:
            case Observed(detections):
                author.observe(detections, now_ns)
                if news := projection.own.left_out.news():
                    effects.append(Alarm("sightings-full", news))
            case Judged():
                author.pending.extend(projection.judge(request))
                author.flush(effects, now_ns)
            case StatusReport(payload):
                author.report(payload, effects, now_ns)
            case SayEvent(row):
                author.say_event(row, effects, now_ns)
            case Count(increments):
                author.count(increments, effects, now_ns)
            case DefineCells(cells):
                projection.survey.define(cells)
            case WantCell(east_cm, north_cm, battery_milli):
                projection.survey.want(east_cm, north_cm, battery_milli)
            case CellProgress(cell_id):
                projection.survey.claims.progress(cell_id)
            case CellDone(cell_id, quality_milli):
                if not 0 <= quality_milli <= 1000:
                    raise StateError(f"quality_milli is {quality_milli}; it must be 0 to 1000")
                author.pending.append(Done(projection.survey.finish(cell_id), quality_milli))
                author.flush(effects, now_ns)
            case SayReview(statement):
                author.say_review(statement)
                author.flush(effects, now_ns)
            case SetNote(key, value):
                author.set_note(key, value, now_ns)
                author.flush(effects, now_ns)
            case _:
                raise StateError(f"the replicated state knows no request {type(request).__name__}")
        return self._finish(effects, now_ns)

    def summary(self) -> bytes:
        """Eight bytes over the facts, eight over the records."""
        return self._holdings.store.summary()

    def due(self, now_ns: int) -> bytes:
        """See `ComparesInTurn.due`: facts and records, as far as a comparison may begin."""
        lasting, vitals = self._anti_entropy.due(now_ns)
        # Who has begun anew looks until it has seen a peer that holds the same facts.
        vitals = vitals or not self._author.log.may_clean
        return self.summary()[0 if lasting else 8 : 16 if vitals else 8]

    def selections(self) -> Sequence[bytes]:
        """See `ComparesInTurn.selections`."""
        summary = self.summary()
        return summary, summary[:8], summary[8:], b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Compare; where it differs, ask the sender at a bounded rate."""
        if sender in self._holdings.store.quarantined or len(summary) != _SUMMARY_BYTES:
            return []
        own = self.summary()
        if own[:8] == summary[:8]:
            # The records differ by a tick most of the time; what is cleaned are facts.
            self._author.log.may_clean = self._has_agreed = True
            if own == summary:
                return []
        if self._intake.is_reading:
            return []
        return self._anti_entropy.ask_sync(sender, summary[:8] != own[:8], summary[8:] != own[8:], now_ns, summary[:8])

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Names of records; other news has datagrams of its own, and its names too."""
        anti_entropy, muted = self._anti_entropy, self._intake.quotas.muted(now_ns)
        return anti_entropy.sent.ride("names", anti_entropy.records.riders(budget_bytes, muted, now_ns))

    # --- Time passes --------------------------------------------------------------------------------------------

    def _expire(self, effects: list[SubEffect], now_ns: int) -> None:
        if news := self._holdings.store.cuts.news(now_ns):
            effects.append(Alarm("state-full", news))
        for node in self._projection.survey.claims.takes.news():
            text = f"{node.hex()} claimed cells of others again and again and did none: its claims do not count for now"
            effects.append(Alarm("claims-taken", text))
        self.clock.slew(now_ns)
        self._holdings.take_due(now_ns)
        self._author.set_aside_future(effects, self._is_settled(now_ns), now_ns)
        self._intake.expire(now_ns)
        self._intake.take_back()
        # In a swarm too small to confirm a clock, a life as long as the time after which facts are old is sure enough.
        is_sure = self.clock.is_sure(now_ns) or now_ns - self._begun_ns >= self._config.dedup.ttl_ms * 1_000_000
        if is_sure:
            self._author.trust_clock(effects, self._begun_ns, now_ns)
        self._author.kill(self._projection.expire(self.clock.physical_ms(now_ns), is_sure))
        own_notes = self._author.log.notes()
        if own_notes and self._has_agreed:
            self._projection.notes.whole = self._holdings.whole() | self._trust.revoked
        self._author.log.spend(self._spent_notes.due(own_notes, now_ns))
        if self._node not in self._holdings.store.quarantined:  # Else nobody takes it, and it would be missed for ever.
            self._author.pending += self._heirs.due(self._anti_entropy.peers, now_ns)

    def _is_settled(self, now_ns: int) -> bool:
        """Whether the clock will not be set by a single peer, or nobody came in the time in which three would have."""
        return self.clock.synced or now_ns - self._begun_ns >= self._config.clock.young_ns

    def _work(self, effects: list[SubEffect], now_ns: int) -> None:
        """A slice of what has come: show what was joined, then read more; charge both to who caused it."""
        config, intake, projection = self._config, self._intake, self._projection
        if not (intake.has_work or projection.has_work) or now_ns < self._sliced_ns + config.slice_pause_ns:
            return
        projection.view.undecided.slow = intake.quotas.muted(now_ns)
        left = config.slice_units
        while left > 0 and (intake.has_work or projection.has_backlog):
            left -= projection.work(left)
            if left > 0:
                left -= intake.work(min(left, config.slice_units // 4), effects, now_ns)
        if left <= 0:
            self._sliced_ns = now_ns
        for origin, units in projection.take_spent().items():
            intake.quotas.authors.charge(origin, units, now_ns)

    def _finish(self, effects: list[SubEffect], now_ns: int) -> list[SubEffect]:
        """What every event ends with: work, decide, tell, and set the timers that follow."""
        self._work(effects, now_ns)
        author, projection = self._author, self._projection
        details, lease_due = projection.finish(now_ns, self.clock.physical_ms(now_ns))
        author.pending += projection.orphans(self.clock.physical_ms(now_ns))
        if author.pending and author.flush_due_ns(now_ns) == now_ns:
            author.flush(effects, now_ns)
            self._work(effects, now_ns)
            more, lease_due = projection.finish(now_ns, self.clock.physical_ms(now_ns))
            details += more
        survey = projection.survey
        if survey.claims.dirty:
            survey.claims.dirty = False
            author.say_leases(effects, now_ns)
        if author.has_said:
            effects += self._anti_entropy.publish(author.take_said(), self._node, now_ns)
        if survey.has_orders:
            effects += [Order(NAME, order) for order in survey.take_orders()]
        effects += [StateChanged(NAME, detail) for detail in details]
        if lease_due is not None and self._timers.get(_CLAIMS) != lease_due:
            self._set(effects, _CLAIMS, lease_due)
        self._follow_up(effects, now_ns)
        return effects

    def _follow_up(self, effects: list[SubEffect], now_ns: int) -> None:
        """Set the timers of what is left to do."""
        author, anti_entropy, timers, config = self._author, self._anti_entropy, self._timers, self._config
        if author.pending:
            self._set_earlier(effects, _FLUSH, author.flush_due_ns(now_ns))
        if author.has_vitals:
            self._set_earlier(effects, _VITALS, author.vitals_due_ns())
        if _RUMOR not in timers and anti_entropy.has_news():
            self._set(effects, _RUMOR, now_ns + config.rumor_ns)
        if self._holdings.deferred and _LATE not in timers:
            self._set(effects, _LATE, now_ns + _LATE_NS)
        if _ASK not in timers and (anti_entropy.has_wants() or self._intake.awaits_certificates):
            self._set(effects, _ASK, now_ns + config.ask_ns)
        if _JOURNAL not in timers and self._holdings.is_unwritten:
            self._set(effects, _JOURNAL, now_ns + config.journal_ns)
        if _WORK not in timers and (self._intake.has_work or self._projection.has_work):
            self._set(effects, _WORK, now_ns + config.slice_pause_ns)

    def _set_earlier(self, effects: list[SubEffect], key: TimerKey, at_ns: int | None) -> None:
        if at_ns is not None and self._timers.get(key, at_ns + 1) > at_ns:
            self._set(effects, key, at_ns)

    def _set(self, effects: list[SubEffect], key: TimerKey, at_ns: int) -> None:
        self._timers[key] = at_ns
        effects.append(SetTimer(key, at_ns))


def _first_incarnation(restored: Mapping[bytes, bytes], life: int) -> int:
    stored = restored.get(INCARNATION_KEY, b"")
    last = int.from_bytes(stored, "big") if len(stored) == 6 else -1
    for key in restored:
        if key.startswith(OWN_PREFIXES):
            last = max(last, int.from_bytes(key[8:14], "big"))
    return life_above(last, life)
