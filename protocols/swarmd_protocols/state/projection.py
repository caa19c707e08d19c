"""What the batches say, read into views: objects, joins, cells, notes, counters, status, leases.

Rules this file keeps: a view depends only on the set of batches held (and, for what is shown and what is leased, on the
time passed), never on the order in which they came. `take` and `drop` are exact inverses.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TypeAlias

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.claims import Claims, cell_hash
from swarmd_protocols.state.clock import LOGICAL_BITS, stamp_ms
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import Batch, Dot, Stream
from swarmd_protocols.state.crdt.facts import ASSET, Facts, Sighting, SightingKey, decode_facts
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import Fact, FactId, fact_id
from swarmd_protocols.state.crdt.records import Lease, decode_counters, decode_leases
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.dedup.own import OwnSightings, fused
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import (
    CellAssigned,
    CellChanged,
    CellLost,
    CellView,
    DetectionLearned,
    DetectionView,
    LocalDetection,
    ObjectChanged,
    ObjectView,
)
from swarmd_protocols.state.quota import BATCH_UNITS, ROW_UNITS

Reading: TypeAlias = Facts | tuple[Lease, ...] | dict[str, int] | bytes
Detail: TypeAlias = ObjectChanged | DetectionLearned | CellChanged
CellOrder: TypeAlias = CellAssigned | CellLost


class _How(Enum):
    """What is to be done with a batch of facts."""

    SHOW = "show"
    HIDE = "hide"
    SHOW_AGAIN = "show again"
    """It is held and shown, but a later batch of its author hid some of it and has been taken out."""


_Change: TypeAlias = tuple[_How, Batch, Facts | None]
"""What to do with a batch, and its facts where they have been read."""

_SUPERSEDED_MAX = 4_096
"""Ids of objects that have become part of others, for readers who still hold one; the oldest go."""
_TOLD_AT_ONCE = 128
"""Changes told in one event; what a peer brings at once is told in the next ones."""


class Projection:
    """All views of one node."""

    def __init__(self, node: NodeId, config: ReplicaConfig) -> None:
        """Empty."""
        self._node = node
        self._config = config
        self.view = DedupView(config.dedup)
        self.own = OwnSightings(node, config.dedup, self.view)
        self.claims = Claims(node, config.claims)
        self.notes = NoteMap()
        self._joins: dict[tuple[NodeId, SightingKey], dict[NodeId, tuple[Dot, int, int]]] = {}
        self._done_dots: dict[tuple[bytes, NodeId], Dot] = {}
        self._counters: dict[tuple[NodeId, int], dict[str, int]] = {}
        self._statuses: dict[NodeId, tuple[Dot, bytes]] = {}
        self._lease_dots: dict[NodeId, Dot] = {}
        self._superseded: dict[str, str] = {}
        self._learned: dict[Entry, None] = {}
        self._orders: list[CellOrder] = []
        self._cells_changed: dict[bytes, None] = {}
        self._cell_views: dict[bytes, CellView] = {}
        self._deadlines: list[tuple[int, int, Entry]] = []
        self._deadline_count = 0
        self._expired: list[ObjectView] = []
        self._backlog: dict[NodeId, deque[_Change]] = {}
        """Batches of others to be shown or taken out of the views, in the order in which they were joined."""
        self._spent: dict[NodeId, int] = {}
        self._faded: dict[Entry, None] = {}
        """Leaders that are no longer shown and whose own facts await a clock that can be trusted."""
        self._now_ns = 0
        self._claims_due = True
        self._claims_at_ns: int | None = None
        self._has_cells = False

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
            if isinstance(item, Sighting):
                self.own.restore(item)

    # --- Batches in and out --------------------------------------------------------------------------------------

    def read(self, batch: Batch) -> Reading:
        """Decode a batch's body without changing anything; raises `WireError`."""
        match batch.stream:
            case Stream.FACTS:
                return decode_facts(batch.body)
            case Stream.LEASES:
                return decode_leases(batch.body)
            case Stream.COUNTERS:
                return decode_counters(batch.body)
            case Stream.STATUS:
                return batch.body

    def take(self, batch: Batch, reading: Reading, now_ns: int) -> None:
        """A batch was joined: let the views show it."""
        origin, dot = batch.origin, batch.dot
        if isinstance(reading, Facts):
            self._change(_How.SHOW, batch, reading)
        elif isinstance(reading, tuple):
            if self._lease_dots.get(origin, (-1, 0)) < dot:
                self._lease_dots[origin] = dot
                self._take_leases(origin, reading, now_ns)
        elif isinstance(reading, dict):
            self._counters[origin, dot[0]] = reading
        else:
            held = self._statuses.get(origin)
            if held is None or held[0] < dot:
                self._statuses[origin] = (dot, reading)

    def _change(self, how: _How, batch: Batch, facts: Facts | None = None) -> None:
        """Change what is shown of a batch of facts: at once where it is an own one, else in its turn."""
        if batch.origin == self._node:
            self._apply(how, batch, facts)
        else:
            self._backlog.setdefault(batch.origin, deque()).append((how, batch, facts))

    def _apply(self, how: _How, batch: Batch, facts: Facts | None) -> int:
        if facts is None:
            facts = decode_facts(batch.body)
        if how is _How.HIDE:
            self._drop_facts(batch.origin, batch.dot, facts)
        else:
            facts = _in_time(facts, batch.stamp)
            self._take_latest(batch.origin, batch.dot, facts)
            if how is _How.SHOW:
                self._take_notes(batch.origin, facts)
        return BATCH_UNITS + ROW_UNITS * facts.weight

    def _take_latest(self, origin: NodeId, dot: Dot, facts: Facts) -> None:
        """Facts of which the latest batch's counts: to take one twice changes nothing."""
        view = self.view
        for row in facts.sightings:
            if view.put(origin, row, dot) and origin != self._node:
                entry = view.get(origin, row.key)
                assert entry is not None
                self._learned[entry] = None
                self.own.row_changed(origin, row.key)
        for join in facts.joins:
            seen_by = self._joins.setdefault((join.origin, join.key), {})
            held = seen_by.get(origin)
            if held is None or held[0] < dot:
                seen_by[origin] = (dot, join.first, join.last)
                self._touch(join.origin, join.key)
        for done in facts.dones:
            by = self.claims.done.setdefault(done.cell, {})
            if self._done_dots.get((done.cell, origin), (-1, 0)) < dot:
                self._done_dots[done.cell, origin] = dot
                by[origin] = done.quality_milli
                self._cells_changed[done.cell] = None
                self._claims_due = True

    def _take_notes(self, origin: NodeId, facts: Facts) -> None:
        """Facts that are counted by the batches that say them."""
        for put in facts.puts:
            self.notes.put((origin, put.incarnation, put.serial), put.key, put.value, put.stamp)
            for removed in put.removes:
                self.notes.remove(removed)
        for removal in facts.removals:
            for removed in removal.removes:
                self.notes.remove(removed)

    def _take_leases(self, origin: NodeId, leases: tuple[Lease, ...], now_ns: int) -> None:
        if origin == self._node:
            for lease in leases:
                self._cells_changed[lease.cell] = None
            return
        for cell in self.claims.hear(origin, leases, now_ns):
            self._cells_changed[cell] = None
        self._claims_due = True

    def drop(self, batch: Batch) -> None:
        """A batch no longer matters: undo what only it said."""
        origin, dot = batch.origin, batch.dot
        if batch.stream is Stream.COUNTERS:
            # A newer record of the same life has replaced it; one of a later life has taken it over.
            self._counters.pop((origin, dot[0]), None)
        if batch.stream is Stream.FACTS:
            self._change(_How.HIDE, batch)

    def show_again(self, batch: Batch) -> None:
        """Show what a batch that is held says of things of which a later one was shown and has been dropped."""
        self._change(_How.SHOW_AGAIN, batch)

    def _drop_facts(self, origin: NodeId, dot: Dot, facts: Facts) -> None:
        for row in facts.sightings:
            entry = self.view.get(origin, row.key)
            if entry is not None and entry.dot == dot:
                self.view.remove(origin, row.key)
                self._learned.pop(entry, None)
                self._faded.pop(entry, None)
                self.own.row_changed(origin, row.key)
        for join in facts.joins:
            seen_by = self._joins.get((join.origin, join.key), {})
            if origin in seen_by and seen_by[origin][0] == dot:
                del seen_by[origin]
                if not seen_by:
                    del self._joins[join.origin, join.key]
                self._touch(join.origin, join.key)
        for done in facts.dones:
            if self._done_dots.get((done.cell, origin)) == dot:
                del self._done_dots[done.cell, origin]
                by = self.claims.done.get(done.cell, {})
                by.pop(origin, None)
                if not by:
                    self.claims.done.pop(done.cell, None)
                self._claims_due = True
                self._cells_changed[done.cell] = None
        for put in facts.puts:
            self.notes.unput((origin, put.incarnation, put.serial))
            for removed in put.removes:
                self.notes.unremove(removed)
        for removal in facts.removals:
            for removed in removal.removes:
                self.notes.unremove(removed)

    def forget_origin(self, origin: NodeId) -> None:
        """An origin was shut out: its records go too."""
        self.claims.forget(origin)
        self._statuses.pop(origin, None)
        self._lease_dots.pop(origin, None)
        for slot in [slot for slot in self._counters if slot[0] == origin]:
            del self._counters[slot]
        self._claims_due = True

    def _touch(self, origin: NodeId, key: SightingKey) -> None:
        entry = self.view.get(origin, key)
        if entry is not None and entry.leader is not None:
            self.view.touched[entry.leader] = None

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
            units = self._apply(*changes.popleft())
            self._spent[origin] = self._spent.get(origin, 0) + units
            done += units
            if changes:
                self._backlog[origin] = changes
        if budget is None or done < budget:
            done += self.view.settle(None if budget is None else budget - done)
        return done

    @property
    def has_backlog(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._backlog or self.view.undecided)

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
        for leader in self.view.touched:
            if leader.leader is leader:
                leader.shown = True
                self._watch(leader)
        self.view.touched.clear()
        self.view.merged.clear()
        for entry in self._learned:
            entry.told = True
        self._learned.clear()
        self._cells_changed.clear()

    def take_orders(self) -> list[CellOrder]:
        """What the driver shall do, since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def finish(self, now_ns: int, physical_ms: int) -> tuple[list[Detail], int | None]:
        """Everything that changed, and when the claims want to be called next (None: not at all)."""
        self._now_ns = now_ns
        details: list[Detail] = [ObjectChanged("expired", gone, "") for gone in self._expired]
        self._expired.clear()
        details += self._own_learned()
        view = self.view
        if self._learned or view.has_changed():
            self._tell_objects(details, physical_ms)
        if self._has_cells and (self._claims_due or self._claims_at_ns is None or now_ns >= self._claims_at_ns):
            self._claims_due = False
            begun, lost = self.claims.step(now_ns)
            self._orders += [CellLost(cell) for cell in lost]
            self._orders += [CellAssigned(cell) for cell in begun]
            for cell in (*begun, *lost):
                self._cells_changed[cell_hash(cell)] = None
            due = self.claims.due_ns(now_ns)
            self._claims_at_ns = due
        if self._cells_changed:
            for key in self._cells_changed:
                self._tell_cell(key, details, now_ns)
            self._cells_changed.clear()
        return details, self._claims_at_ns

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

    def _tell_objects(self, details: list[Detail], physical_ms: int) -> None:
        view = self.view
        learned, self._learned = self._learned, {}
        for entry in learned:
            if entry.leader is None or len(details) >= _TOLD_AT_ONCE:
                self._learned[entry] = None
            else:
                details.append(DetectionLearned(self._detection(entry), "update" if entry.told else "new"))
                entry.told = True
        if view.undecided.is_settling:
            # Who leads is not known yet: told now, an object might be called new, gone and new again.
            return
        for entry in _some(view.merged):
            if entry.leader is None and view.is_in(entry):
                view.merged[entry] = None
            elif entry.shown and entry.leader is not entry:
                self._tell_merged(entry, details)
        for leader in _some(view.touched):
            if leader.leader is not leader:
                continue
            if not self._is_shown(leader, physical_ms):
                self._stop_showing(leader)
                continue
            kind = "update" if leader.shown else "new"
            leader.shown = True
            self._superseded.pop(leader.object_id, None)
            self._watch(leader)
            details.append(ObjectChanged(kind, self._object(leader), ""))

    def _tell_merged(self, entry: Entry, details: list[Detail]) -> None:
        entry.shown = False
        survivor = entry.leader
        if survivor is None:
            gone = self._object(entry)
            details.append(ObjectChanged("expired", gone, ""))
            return
        shown = self._object(survivor)
        if shown.object_id == entry.object_id:
            return
        self._superseded[entry.object_id] = shown.object_id
        if len(self._superseded) > _SUPERSEDED_MAX:
            del self._superseded[next(iter(self._superseded))]
        details.append(ObjectChanged("superseded", replace(shown, object_id=entry.object_id), shown.object_id))

    def _tell_cell(self, key: bytes, details: list[Detail], now_ns: int) -> None:
        cell = self.claims.cells.get(key)
        if cell is None:
            return
        shown = self._cell(key, now_ns)
        if self._cell_views.get(key) != shown:
            self._cell_views[key] = shown
            details.append(CellChanged(shown))

    def orphans(self) -> list[Fact]:
        """What must be said of own sightings because others' rows that stood for them are gone; marks it as said."""
        keys = self.own.take_orphans()
        rows, joins = self.own.to_say(keys, frozenset())
        return [*rows, *joins]

    def renew(self, keys: Iterable[SightingKey], stamp: int, physical_ms: int) -> list[Fact]:
        """Own sightings of these that are too old to be shown, as last seen at this stamp."""
        return [*self.own.renew((key for key in keys if self._is_old(key, physical_ms)), stamp)]

    def _is_old(self, key: SightingKey, physical_ms: int) -> bool:
        entry = self.view.get(self._node, key)
        return entry is not None and stamp_ms(entry.row.last) + self._ttl_ms(entry.row) <= physical_ms

    def reconsider(self) -> None:
        """The clock was set: what is shown must be decided anew."""
        for leader in self.view.leaders():
            if not leader.shown:
                self.view.touched[leader] = None

    def expire(self, physical_ms: int, is_sure: bool) -> list[FactId]:
        """Stop showing what nobody has seen for long.

        Args:
            physical_ms: Swarm time.
            is_sure: The clock can be trusted. What a wrong clock calls old is only not shown, which the right time
                undoes; to let go of an own fact cannot be undone.

        Returns:
            Own facts that no longer matter.
        """
        while self._deadlines and self._deadlines[0][0] <= physical_ms:
            due, _, leader = heappop(self._deadlines)
            if due != leader.watched:
                continue  # Looked at earlier since.
            leader.watched = 0
            if leader.leader is not leader or not leader.shown:
                continue
            if self._is_shown(leader, physical_ms):
                self._watch(leader)
            else:
                self._stop_showing(leader)
        if not is_sure:
            return []
        dead: list[FactId] = []
        for leader in self._faded:
            if leader.leader is not leader or leader.shown or self._is_shown(leader, physical_ms):
                continue
            for member in leader.members or ():
                if member.origin == self._node:
                    self.own.forget(member.row.key)
                    dead.append(fact_id(member.row))
        self._faded.clear()
        return dead

    # --- Reading ---------------------------------------------------------------------------------------------------

    def objects(self) -> list[ObjectView]:
        """Shown objects, by rank."""
        return [self._object(leader) for leader in self.view.leaders() if leader.shown]

    def superseded_by(self, object_id: str) -> str:
        """Where an object went, followed to its present id."""
        seen = object_id
        for _ in range(64):
            after = self._superseded.get(seen)
            if after is None:
                break
            seen = after
        return "" if seen == object_id else seen

    def detections(self) -> list[DetectionView]:
        """Every sighting, by origin and rank."""
        return [self._detection(entry) for entry in sorted(self.view.all(), key=lambda e: (e.origin, e.rank))]

    def cells(self) -> list[CellView]:
        """All cells, as defined."""
        return [self._cell(key, self._now_ns) for key in self.claims.cells]

    def counters(self) -> dict[str, dict[NodeId, int]]:
        """Counter to node to value, lives of one node added up."""
        out: dict[str, dict[NodeId, int]] = {}
        for origin, life in sorted(self._counters):
            for name, value in self._counters[origin, life].items():
                by = out.setdefault(name, {})
                by[origin] = by.get(origin, 0) + value
        return {name: out[name] for name in sorted(out)}

    def status(self, node: NodeId) -> bytes | None:
        """A node's latest status record."""
        held = self._statuses.get(node)
        return None if held is None else held[1]

    def _ttl_ms(self, row: Sighting) -> int:
        fixed = row.kind == ASSET or (row.positioned and not row.moving)
        return self._config.dedup.ttl_ms if fixed else self._config.dedup.track_ttl_ms

    def _last(self, leader: Entry) -> int:
        last = 0
        for member in leader.members or ():
            last = max(last, member.row.last)
            for _, _, seen in self._joins.get((member.origin, member.row.key), {}).values():
                last = max(last, seen)
        return last

    def _is_shown(self, leader: Entry, physical_ms: int) -> bool:
        return stamp_ms(self._last(leader)) + self._ttl_ms(leader.row) > physical_ms

    def _stop_showing(self, leader: Entry) -> None:
        if leader.shown:
            leader.shown = False
            self._expired.append(self._object(leader))
            self._faded[leader] = None

    def _watch(self, leader: Entry) -> None:
        """Look at this object again when it may have expired: earlier, where its author has set its clock back."""
        due = max(1, stamp_ms(self._last(leader)) + self._ttl_ms(leader.row))
        if leader.watched and leader.watched <= due:
            return
        leader.watched = due
        self._deadline_count += 1
        if len(self._deadlines) > 2 * self.view.count + _TOLD_AT_ONCE:
            # Most of them are of things that are gone: what comes and goes must not pile up.
            kept = [item for item in self._deadlines if item[2].leader is item[2]]
            for _, _, entry in self._deadlines:
                entry.watched = entry.watched if entry.leader is entry else 0
            self._deadlines = kept
            heapify(self._deadlines)
        heappush(self._deadlines, (due, self._deadline_count, leader))

    def _object(self, leader: Entry) -> ObjectView:
        members = leader.members or [leader]
        first, last, reports = leader.row.first, leader.row.last, 0
        observers: set[NodeId] = set()
        best = leader.row
        asset = ""
        positioned = False
        for member in members:
            row = member.row
            first, last = min(first, row.first), max(last, row.last)
            observers.add(member.origin)
            reports += row.reports
            if (row.score_milli, row.label) > (best.score_milli, best.label):
                best = row
            if row.kind == ASSET and isinstance(row.place, str):
                asset = row.place
            positioned = positioned or row.positioned
            for other, (_, joined_first, joined_last) in self._joins.get((member.origin, row.key), {}).items():
                observers.add(other)
                first, last = min(first, joined_first), max(last, joined_last)
                reports += 1
        east, north, covariance = fused(members, self._config.dedup)
        return ObjectView(
            leader.object_id,
            best.label,
            best.score_milli,
            east if positioned else None,
            north if positioned else None,
            covariance if positioned else None,
            asset,
            tuple(sorted(observers)),
            first,
            last,
            len(observers) >= self._config.dedup.confirm_observers,
            reports,
        )

    def _detection(self, entry: Entry) -> DetectionView:
        return _detection_view(entry.origin, "" if entry.leader is None else entry.leader.object_id, entry.row)

    def define_cells(self, cells: Sequence[tuple[str, int, int]]) -> None:
        """Set the survey area."""
        self.claims.define(cells)
        self._has_cells = bool(cells)
        self._claims_due = True

    def want_cell(self, east_cm: int, north_cm: int, battery_milli: int) -> None:
        """This node is free."""
        self.claims.want(east_cm, north_cm, battery_milli)
        self._claims_due = True

    def finish_cell(self, cell_id: str) -> bytes:
        """This node has finished a cell."""
        self._claims_due = True
        return self.claims.finish(cell_id)

    def _cell(self, key: bytes, now_ns: int) -> CellView:
        cell = self.claims.cells[key]
        done = self.claims.done.get(key)
        holder = None if done else self.claims.holder(key, now_ns)
        state = "done" if done else "claimed" if holder is not None else "open"
        return CellView(cell.cell_id, cell.east_cm, cell.north_cm, state, holder, tuple(sorted(done or ())))


def _some(waiting: dict[Entry, None]) -> list[Entry]:
    """Take out the first few; the rest waits for the next event."""
    taken = list(islice(waiting, _TOLD_AT_ONCE))
    for entry in taken:
        del waiting[entry]
    return taken


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
    )
