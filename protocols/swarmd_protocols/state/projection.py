"""What the batches say, read into views: objects, joins, cells, notes, counters, status, leases, events.

Rules this file keeps: a view depends only on the set of batches held (and, for what is shown and what is leased, on the
time passed), never on the order in which they came. `take` and `drop` are exact inverses.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TypeAlias

from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import LOGICAL_BITS, STAMP_MAX, stamp_ms
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Join, Sighting, SightingKey, decode_facts
from swarmd_protocols.state.crdt.note_rows import NoteDot
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import Fact, FactId, fact_id
from swarmd_protocols.state.crdt.records import (
    EventRow,
    Lease,
    VitalsRecord,
    decode_events,
    decode_leases,
    decode_status,
    decode_vitals,
)
from swarmd_protocols.state.dedup import judged
from swarmd_protocols.state.dedup.entry import Entry, in_ranks
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import (
    CellChanged,
    DetectionLearned,
    DetectionView,
    EventsLearned,
    Judged,
    LocalDetection,
    ObjectChanged,
)
from swarmd_protocols.state.pictures import Pictures
from swarmd_protocols.state.quota import BATCH_UNITS, ROW_UNITS
from swarmd_protocols.state.reviews import Reviews
from swarmd_protocols.state.shown import TOLD_AT_ONCE, Shown
from swarmd_protocols.state.survey import Survey
from swarmd_protocols.state.vitals import Vitals

Reading: TypeAlias = Facts | tuple[Lease, ...] | VitalsRecord | bytes | list[EventRow]
Detail: TypeAlias = ObjectChanged | DetectionLearned | CellChanged | EventsLearned
Doubted: TypeAlias = tuple[NodeId, SightingKey]
"""A row, by author and key, that this node has said or joined in a life whose clock may have been wrong."""


class _How(Enum):
    """What is to be done with a batch of facts."""

    SHOW = "show"
    HIDE = "hide"
    SHOW_AGAIN = "show again"
    """It is held and shown, but a later batch of its author hid some of it and has been taken out."""


_AGEING, _OVER = 500, 1_000
"""Thousandths of the time for which a sighting is shown."""
_Change: TypeAlias = tuple[_How, Batch, Facts | None]
"""What to do with a batch, and its facts where they have been read."""


class Projection:
    """All views of one node."""

    def __init__(self, node: NodeId, config: ReplicaConfig, reviews: Reviews | None = None) -> None:
        """Empty; without `reviews` no operator's word counts."""
        self._node = node
        self._config = config
        self.view = DedupView(config.dedup)
        self.own = OwnSightings(node, config.dedup, self.view)
        self.reviews = Reviews() if reviews is None else reviews
        self.shown = Shown(node, config.dedup, self.view, self.reviews)
        self.survey = Survey(node, config.claims)
        self.vitals = Vitals()
        self.notes = NoteMap()
        self.pictures = Pictures()
        self._learned: dict[Entry, None] = {}
        """Sightings of others to be told of."""
        self._backlog: dict[NodeId, deque[_Change]] = {}
        """Batches of others to be shown or taken out of the views, in the order in which they were joined."""
        self._spent: dict[NodeId, int] = {}
        self._judged: dict[SightingKey, None] = {}
        """Own verdicts (`dedup/judged.py`)."""

    # --- Own observations ------------------------------------------------------------------------------------------

    def observe(
        self, detections: Sequence[LocalDetection], incarnation: int, stamp_at: Callable[[int], int]
    ) -> list[Fact]:
        """Take this node's detections in; returns what of them is worth saying."""
        ended = {detection.track_id for detection in detections if detection.kind == "end"}
        ending = frozenset(key for track in ended if (key := self.own.key_of(track)) is not None)
        changed = self.own.observe(detections, incarnation, stamp_at)
        rows, joins = self.own.to_say(changed, ending)
        return [*rows, *joins]

    def own_restored(self, items: Iterable[Fact]) -> None:
        """Own facts of an earlier life came back."""
        for item in items:
            if isinstance(item, Sighting) and item.reports:
                self.own.restore(item)
            elif isinstance(item, Sighting):
                self._judged[item.key] = None

    # --- Batches in and out --------------------------------------------------------------------------------------

    def read(self, batch: Batch) -> Reading:
        """Decode a batch's body without changing anything; raises `WireError`."""
        match batch.stream:
            case Stream.FACTS:
                return decode_facts(batch.body)
            case Stream.LEASES:
                return decode_leases(batch.body)
            case Stream.COUNTERS:
                return decode_vitals(batch.body)
            case Stream.STATUS:
                return decode_status(batch.body)
            case Stream.EVENTS:
                return list(decode_events(batch.body))

    def take(self, batch: Batch, reading: Reading, now_ns: int) -> None:
        """A batch was joined: let the views show it."""
        origin, dot = batch.origin, batch.dot
        if isinstance(reading, Facts):
            self._change(_How.SHOW, batch, reading)
        elif isinstance(reading, VitalsRecord):
            self.vitals.take_counters(origin, dot[0], reading.counters)
            if reading.status:
                self.vitals.take_status(origin, batch.stream, dot, batch.stamp, reading.status)
        elif isinstance(reading, tuple):
            self.survey.take_leases(origin, dot, reading, now_ns)
        elif isinstance(reading, list):
            self.vitals.take_events(origin, dot, reading, batch.stamp >> LOGICAL_BITS, is_own=origin == self._node)
        else:
            self.vitals.take_status(origin, batch.stream, dot, batch.stamp, reading)

    def _change(self, how: _How, batch: Batch, facts: Facts | None = None) -> None:
        """Change what is shown of a batch of facts: at once where it is an own one, else in its turn."""
        if batch.origin == self._node:
            self._apply(how, batch, facts)
        else:
            self._backlog.setdefault(batch.origin, deque()).append((how, batch, facts))

    def _apply(self, how: _How, batch: Batch, facts: Facts | None) -> int:
        if facts is None:
            facts = decode_facts(batch.body)
        units = BATCH_UNITS + ROW_UNITS * facts.weight
        if how is _How.HIDE:
            self._drop_facts(batch, facts)
            units += sum(map(self.reviews.drop, facts.reviews))
        else:
            facts = _in_time(facts, batch.stamp)
            self._take_latest(batch.origin, batch.dot, facts)
            if how is _How.SHOW:
                self._take_notes(batch, facts)
                units += sum(map(self.reviews.take, facts.reviews))
        return units

    def _take_latest(self, origin: NodeId, dot: Dot, facts: Facts) -> None:
        """Facts of which the latest batch's counts: to take one twice changes nothing."""
        view = self.view
        for row in facts.sightings:
            entry = view.put(origin, row, dot)
            if entry is not None and (row.thumb or self.pictures):
                self.pictures.put(origin, row.key, row.thumb)
            if entry is not None and origin != self._node:
                self._learned[entry] = None
                self.own.leaning.row_changed(origin, entry.key)
        for join in facts.joins:
            self.shown.take_join(origin, dot, join)
            if origin == self._node and view.get(join.origin, join.key) is None:  # It went while this node was away.
                self.own.leaning.parted.setdefault((join.origin, join.key), False)
        for done in facts.dones:
            self.survey.take_done(origin, dot, done.cell, done.quality_milli)

    def _take_notes(self, batch: Batch, facts: Facts) -> None:
        """Facts that are counted by the batches that say them; none is later than its batch."""
        for put in facts.puts:
            dot = batch.origin, put.incarnation, put.serial
            self.notes.put(dot, put.key, put.value, min(put.stamp, batch.stamp), put.removes)
        for removed, by in _removed_by(batch.origin, facts):
            self.notes.remove(removed, _removed_at(removed, batch), by)

    def drop(self, batch: Batch) -> None:
        """A batch no longer matters: undo what only it said."""
        origin, dot = batch.origin, batch.dot
        if batch.stream is Stream.COUNTERS:
            self.vitals.drop_counters(origin, dot[0])
        if batch.stream in (Stream.COUNTERS, Stream.STATUS):
            self.vitals.drop_status(origin, batch.stream, dot[0])
        if batch.stream is Stream.FACTS:
            self._change(_How.HIDE, batch)

    def show(self, batch: Batch) -> None:
        """Show a batch of facts that was set aside until now; thousands may come due at one moment, so it is read in
        its turn."""
        self._change(_How.SHOW, batch)

    def show_again(self, batch: Batch) -> None:
        """Show what a batch that is held says of things of which a later one was shown and has been dropped."""
        self._change(_How.SHOW_AGAIN, batch)

    def _drop_facts(self, batch: Batch, facts: Facts) -> None:
        origin, dot = batch.origin, batch.dot
        for row in facts.sightings:
            entry = self.view.get(origin, row.key)
            if entry is not None and entry.dot == dot:
                self.view.remove(origin, entry.key)
                self.pictures.put(origin, entry.key, b"")
                self._learned.pop(entry, None)
                self.shown.drop_entry(entry)
                self.own.leaning.row_changed(origin, entry.key)
                if self.shown.join_of(self._node, origin, entry.key) is not None:
                    self.own.leaning.parted.setdefault((origin, entry.key), False)
        for join in facts.joins:
            self.shown.drop_join(origin, dot, join)
        for done in facts.dones:
            self.survey.drop_done(origin, dot, done.cell)
        for put in facts.puts:
            note = origin, put.incarnation, put.serial
            self.notes.unput(note, put.key, put.value, min(put.stamp, batch.stamp))
        for removed, by in _removed_by(origin, facts):
            self.notes.unremove(removed, _removed_at(removed, batch), by)

    def forget_origin(self, origin: NodeId) -> None:
        """An origin was shut out: its records go too."""
        self.survey.forget(origin)
        self.vitals.forget(origin)

    # --- After each event -----------------------------------------------------------------------------------------

    def work(self, budget: int | None = None) -> int:
        """Show what was joined and decide what is undecided, every origin in turn, until the budget is spent.

        Args:
            budget: Units of work (`quota.py`) after which to stop; None: until nothing is left.

        Returns:
            Units of work done.
        """
        done = 0
        while self._backlog and (budget is None or done < budget):
            origin = next(iter(self._backlog))
            changes = self._backlog.pop(origin)
            before = self.view.undecided.total
            units = self._apply(*changes.popleft())
            self._spent[origin] = self._spent.get(origin, 0) + units
            done += units + self.view.undecided.total - before
            if changes:
                self._backlog[origin] = changes
        if budget is None or done < budget:
            done += self.view.settle(None if budget is None else budget - done)
        return done

    @property
    def has_backlog(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._backlog or self.view.undecided.waiting)

    @property
    def has_work(self) -> bool:
        """Whether `work` or `finish` has something to do."""
        return bool(self._backlog or self._learned) or self.view.has_changed()

    def take_spent(self) -> dict[NodeId, int]:
        """Units of work since the last call, by the origin that caused it."""
        spent, self._spent = self._spent, {}
        for origin, units in self.view.undecided.spent.items():
            spent[origin] = spent.get(origin, 0) + units
        self.view.undecided.spent.clear()
        return spent

    def forget_changes(self) -> None:
        """What was read from the journal is no news."""
        self.reviews.touched.clear()
        self.shown.forget_changes()
        for entry in self._learned:
            entry.told = True
        self._learned.clear()
        self.vitals.take_learned()
        self.survey.forget_changes()

    def finish(self, now_ns: int, physical_ms: int) -> tuple[list[Detail], int | None]:
        """Everything that changed, and when the claims want to be called next (None: not at all)."""
        details: list[Detail] = []
        if self.shown.has_expired:
            details += self.shown.take_expired()
        if self.own.fed:
            details += self._own_learned()
        if self.vitals.has_learned:
            details += self.vitals.take_learned()
        if self.reviews.touched:
            self.shown.touch_reviewed()
        if self._learned or self.view.has_changed():
            self._tell_learned(details)
            details += self.shown.tell(physical_ms)
        details += self.survey.step(now_ns)
        return details, self.survey.due_ns

    def _own_learned(self) -> list[DetectionLearned]:
        """This node's own detections: told as the others', with what only the origin knows of them."""
        fed, self.own.fed = self.own.fed, []
        told = []
        for register, detection in fed:
            entry = self.view.get(self._node, register.row.key)
            object_id = "" if entry is None or entry.leader is None else entry.leader.object_id
            view = _detection_view(self._node, object_id, register.row)
            told.append(DetectionLearned(view, detection.kind, detection.track_id, detection.captured_ns))
        return told

    def _tell_learned(self, details: list[Detail]) -> None:
        learned, self._learned = self._learned, {}
        for entry in learned:
            if entry.leader is None or len(details) >= TOLD_AT_ONCE:
                self._learned[entry] = None
            else:
                details.append(DetectionLearned(self._detection(entry), "update" if entry.told else "new"))
                entry.told = True

    def judge(self, said: Judged) -> list[Sighting]:
        """What this node says of an object after it was asked again, and what it takes back with it.

        Raises:
            StateError: There is nothing to judge, this node is no other judge of it, or it has judged too many things.
        """
        name = self.shown.superseded_by(said.object_id) or said.object_id
        leaders = [leader for part in self.shown.told({name}) for leader, _ in part]
        found = [one for leader in leaders for one in leader.members or [leader]]
        row = judged.verdict_on(found, self._node, said, self._config.dedup)
        if row.kind == LATTICE and row.positioned:
            group = self._config.dedup.groups.get(row.label, row.label)
            near = self.view.candidates(group, row.east_cm, row.north_cm, row.covariance_cm2)
            if near and near[0] not in leaders:
                raise StateError("by its place another thing is nearer: the verdict would be about that one")
        if row.key in self.own.registers:
            raise StateError("this node's verdict would take the name of what it has seen itself")
        if row.key not in self._judged and len(self._judged) >= judged.JUDGED_MAX:
            raise StateError(f"this node holds verdicts on {len(self._judged)} things; they go with the things")
        self._judged[row.key] = None
        return [row, *judged.withdrawn(found, self._node, row)]

    def orphans(self, physical_ms: int) -> list[Fact]:
        """What must be said of own sightings because others' rows that stood for them are gone; marks it as said."""
        keys = self.own.take_orphans(lambda row: self.shown.age_milli(row, row.last, physical_ms) >= _OVER)
        if not keys:
            return []
        rows, joins = self.own.to_say(keys, frozenset())
        return [*rows, *joins]

    def renew(self, doubted: Iterable[Doubted], stamp: int, physical_ms: int) -> list[Fact]:
        """Own facts about these rows that have passed half of their time, as last seen at this stamp."""
        keys: list[SightingKey] = []
        joins: list[Fact] = []
        for origin, key in doubted:
            entry = self.view.get(origin, key)
            join = self.shown.join_of(self._node, origin, key)
            if entry is None:
                continue
            if origin == self._node and self.shown.age_milli(entry.row, entry.row.last, physical_ms) >= _AGEING:
                keys.append(key)
            elif join is not None and self.shown.age_milli(entry.row, join.last, physical_ms) >= _AGEING:
                joins.append(join._replace(last=max(join.last, stamp)))
        return [*self.own.renew(keys, stamp), *joins]

    def expire(self, physical_ms: int, is_sure: bool) -> list[FactId]:
        """Stop showing what nobody has seen for long.

        Args:
            physical_ms: Swarm time.
            is_sure: The clock can be trusted. What a wrong clock calls old is only not shown, which the right time
                undoes; to let go of an own fact cannot be undone.

        Returns:
            Own facts that no longer matter.
        """
        self.shown.expire(physical_ms)
        if not is_sure:
            return []
        dead: list[FactId] = []
        for leader in self.shown.take_faded(physical_ms):
            for member in leader.members or ():
                if member.origin == self._node:
                    self.own.forget(member.key)
                    self._judged.pop(member.key, None)
                    dead.append(fact_id(member.row))
                elif self.shown.join_of(self._node, member.origin, member.key) is not None:
                    self.own.part(member.origin, member.key)
        self.own.forget_over(lambda row: self.shown.age_milli(row, row.last, physical_ms) >= _OVER)
        parted = self.own.leaning.take_parted(lambda origin, key: self._is_join_over(origin, key, physical_ms))
        return dead + [fact_id(Join(origin, key, 0, 0)) for origin, key in parted]

    def _is_join_over(self, origin: NodeId, key: SightingKey, physical_ms: int) -> bool:
        """Whether the time of an own join of a row that is gone has passed; only what is fixed is joined."""
        join = self.shown.join_of(self._node, origin, key)
        return join is None or stamp_ms(join.last) + self._config.dedup.ttl_ms <= physical_ms

    # --- Reading ---------------------------------------------------------------------------------------------------

    def detections(self) -> list[DetectionView]:
        """Every sighting, by origin and rank."""
        return [self._detection(entry) for entry in sorted(self.view.all(), key=lambda e: (e.origin, e.rank))]

    def detection_parts(self) -> Iterator[list[DetectionView]]:
        """Every sighting, by origin and rank, a few at a time; what has gone meanwhile is left out."""
        for group in self.view.groups():
            for part in in_ranks([group], self.view.is_in):
                yield [self._detection(entry) for entry in part if self.view.is_in(entry)]

    def _detection(self, entry: Entry) -> DetectionView:
        return _detection_view(entry.origin, "" if entry.leader is None else entry.leader.object_id, entry.row)


def _removed_by(origin: NodeId, facts: Facts) -> Iterator[tuple[NoteDot, NoteDot | None]]:
    """Each put that facts remove, and the put that does (None: a removal)."""
    for put in facts.puts:
        yield from ((removed, (origin, put.incarnation, put.serial)) for removed in put.removes)
    for removal in facts.removals:
        yield from ((removed, None) for removed in removal.removes)


def _removed_at(dot: NoteDot, batch: Batch) -> int:
    """Up to which stamp a batch removes a note: its own; whoever wrote the note removes it whatever clocks said."""
    return STAMP_MAX if dot[0] == batch.origin else batch.stamp


def _in_time(facts: Facts, stamp: int) -> Facts:
    """Facts whose times lie no later than the batch that says them: nobody has seen what was not yet."""
    stamp = stamp >> LOGICAL_BITS << LOGICAL_BITS
    if any(row.last > stamp for row in facts.sightings):
        facts.sightings = [
            row._replace(first=min(row.first, stamp), last=min(row.last, stamp)) for row in facts.sightings
        ]
    if any(row.last > stamp for row in facts.joins):
        facts.joins = [row._replace(first=min(row.first, stamp), last=min(row.last, stamp)) for row in facts.joins]
    return facts


def _detection_view(origin: NodeId, object_id: str, row: Sighting) -> DetectionView:
    return DetectionView(
        origin,
        object_id,
        row.label,
        row.score_milli,
        row.east_cm if row.positioned else None,
        row.north_cm if row.positioned else None,
        row.covariance_cm2 if row.positioned else None,
        row.place if isinstance(row.place, str) else "",
        row.moving,
        row.first,
        row.last,
        row.reports,
        row.model,
        f"{row.label}|{row.kind}|{row.place}",
        row.thumb,
        row.need_milli if row.reports else max(row.need_milli, row.score_milli + 1),
    )
