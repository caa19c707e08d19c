"""Objects as people see them: what is shown, merged, gone, and until when."""

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from msgspec.structs import replace

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.facts import ASSET, Join, Sighting, SightingKey
from swarmd_protocols.state.crdt.reviews import basis_of
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import PICTURED, POSITIONED, UNSURE, Entry, figures_in, in_ranks
from swarmd_protocols.state.dedup.own import fused
from swarmd_protocols.state.dedup.tiers import SURE_MILLI, evidence_milli, is_confirmed, witnesses_of
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import ObjectChanged, ObjectView, ReviewSubject, ReviewView
from swarmd_protocols.state.reviews import Reviews, settled

_SUPERSEDED_MAX = 4_096
"""Ids of objects that have become part of others, for readers who still hold one; the oldest go."""
TOLD_AT_ONCE = 128
"""Changes told in one event; what a peer brings at once is told in the next ones."""
_GONE_MAX = 16
"""Objects that are gone and still waited for, beside a quarter of those held: so few that the list is seldom sorted."""

_NOBODY: dict[NodeId, tuple[Dot, int, int]] = {}
"""Who joined what nobody has joined."""


class Shown:
    """The objects of a view.

    Args:
        config: Settings of objects.
        view: Whose leaders are the objects.
        reviews: What operators say of them.
    """

    def __init__(self, node: NodeId, config: DedupConfig, view: DedupView, reviews: Reviews) -> None:
        self._node = node
        self._config = config
        self._view = view
        self._reviews = reviews
        self._joins: dict[tuple[NodeId, SightingKey], dict[NodeId, tuple[Dot, int, int]]] = {}
        self._superseded: dict[str, str] = {}
        self._deadlines: list[tuple[int, int, Entry]] = []
        self._deadline_count = 0
        self._expired: list[ObjectView] = []
        self._faded: dict[Entry, None] = {}
        """Leaders that are not shown and whose own facts await a clock that can be trusted."""

    # --- Joins ---

    def take_join(self, origin: NodeId, dot: Dot, join: Join) -> None:
        """An origin has seen what another one said."""
        seen_by = self._joins.setdefault((join.origin, join.key), {})
        held = seen_by.get(origin)
        if held is None or held[0] < dot:
            seen_by[origin] = (dot, join.first, join.last)
            self._touch(join.origin, join.key)

    def drop_join(self, origin: NodeId, dot: Dot, join: Join) -> None:
        """Undo what only this batch said."""
        seen_by = self._joins.get((join.origin, join.key), {})
        if origin in seen_by and seen_by[origin][0] == dot:
            del seen_by[origin]
            if not seen_by:
                del self._joins[join.origin, join.key]
            self._touch(join.origin, join.key)

    def join_of(self, node: NodeId, origin: NodeId, key: SightingKey) -> Join | None:
        """What a node has said of having seen a row of another one."""
        held = self._joins.get((origin, key), _NOBODY).get(node)
        return None if held is None else Join(origin, key, held[1], held[2])

    def drop_entry(self, entry: Entry) -> None:
        """An entry has left the view."""
        self._faded.pop(entry, None)

    def _touch(self, origin: NodeId, key: SightingKey) -> None:
        entry = self._view.get(origin, key)
        if entry is not None and entry.leader is not None:
            self._view.touched[entry.leader] = None

    # --- Reviews ---

    def touch_reviewed(self) -> None:
        """Operators have said something of things: their objects have changed."""
        for origin, label, kind, place in self._reviews.touched:
            if kind == ASSET:
                assert isinstance(place, str), "an asset has a name"
                entry = self._view.leader_of_asset(label, place)
            else:
                entry = self._view.get(NodeId(origin), (label, kind, place))
            if entry is not None and entry.leader is not None:
                self._view.touched[entry.leader] = None
        self._reviews.touched.clear()

    def subject(self, object_id: str) -> ReviewSubject | None:
        """What a review of a shown object has to name; None where there is none of that id."""
        wanted = self.superseded_by(object_id) or object_id
        for leader in filter(_is_told, self._view.all()):
            if leader.object_id == wanted:
                (label, kind, place), view = leader.key, self._object(leader)
                return ReviewSubject(
                    self._reviews.swarm,
                    b"" if kind == ASSET else leader.origin,
                    label,
                    kind,
                    place,
                    view.label,
                    basis_of(said.digest for said in view.reviews),
                    1 + max((said.revision for said in view.reviews), default=0),
                )
        return None

    def _said_of(self, members: Iterable[Entry]) -> tuple[ReviewView, ...]:
        target = self._reviews.target
        return self._reviews.of(dict.fromkeys(target(member.origin, *member.key) for member in members))

    # --- Telling ---

    @property
    def has_expired(self) -> bool:
        """Whether `take_expired` has something."""
        return bool(self._expired)

    def take_expired(self) -> list[ObjectChanged]:
        """Objects that stopped being shown since the last call."""
        gone, self._expired = self._expired, []
        return [ObjectChanged("expired", one, "") for one in gone]

    def tell(self, physical_ms: int) -> list[ObjectChanged]:
        """The next few objects that changed."""
        view, details = self._view, list[ObjectChanged]()
        if view.undecided.is_settling:
            # Who leads is not known yet: told now, an object might be called new, gone and new again.
            return details
        for entry in _some(view.merged):
            if entry.leader is None and view.is_in(entry):
                view.merged[entry] = None
            elif entry.shown and entry.leader is not entry:
                self._tell_merged(entry, details)
        for leader in _some(view.touched):
            if leader.leader is not leader:
                continue
            until_ms = self._until_ms(leader)
            if until_ms <= physical_ms:
                self._stop_showing(leader)
                continue
            kind = "update" if leader.shown else "new"
            leader.shown = True
            if self._superseded:
                self._superseded.pop(leader.object_id, None)
            self._watch(leader, until_ms)
            details.append(ObjectChanged(kind, self._object(leader), ""))
        return details

    def _tell_merged(self, entry: Entry, details: list[ObjectChanged]) -> None:
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

    def forget_changes(self) -> None:
        """What was read from the journal is no news."""
        for leader in self._view.touched:
            if leader.leader is leader:
                leader.shown = True
                self._watch(leader, self._until_ms(leader))
        self._view.touched.clear()
        self._view.merged.clear()

    def reconsider(self) -> None:
        """The clock was set: what is shown must be decided anew."""
        for leader in self._view.leaders():
            if not leader.shown:
                self._view.touched[leader] = None

    def expire(self, physical_ms: int) -> None:
        """Stop showing what nobody has seen for long.

        Args:
            physical_ms: Swarm time.
        """
        while self._deadlines and self._deadlines[0][0] <= physical_ms:
            due, _, leader = heappop(self._deadlines)
            if due != leader.watched:
                continue  # Looked at earlier since.
            leader.watched = 0
            if leader.leader is not leader or not leader.shown:
                continue
            until_ms = self._until_ms(leader)
            if until_ms > physical_ms:
                self._watch(leader, until_ms)
            else:
                self._stop_showing(leader)

    def take_faded(self, physical_ms: int) -> list[Entry]:
        """Leaders of objects that nobody is shown any more, since the last call."""
        faded, self._faded = self._faded, {}
        return [
            leader
            for leader in faded
            if leader.leader is leader and not leader.shown and self._until_ms(leader) <= physical_ms
        ]

    # --- Reading ---

    def objects(self) -> list[ObjectView]:
        """Shown objects, by rank."""
        return [self._object(leader) for leader in self._view.leaders() if leader.shown]

    def parts(self) -> Iterator[list[ObjectView]]:
        """Shown objects as they are when their turn comes, by rank, a few at a time; what has gone is left out."""
        for part in in_ranks(self._view.groups(), _is_told):
            yield [self._object(leader) for leader in part if _is_told(leader)]

    def told(self, wanted: Collection[str] | None = None) -> Iterator[list[tuple[Entry, ObjectView]]]:
        """As `parts`, with who leads each object; of these ids alone where some are named."""

        def is_wanted(entry: Entry) -> bool:
            return _is_told(entry) and (wanted is None or entry.object_id in wanted)

        for part in in_ranks(self._view.groups(), is_wanted):
            yield [(leader, self._object(leader)) for leader in part if _is_told(leader)]

    def joined(self, entry: Entry) -> list[tuple[NodeId, Dot]]:
        """Who has joined a sighting, and in which of its batches."""
        return [(node, said[0]) for node, said in self._joins.get((entry.origin, entry.key), _NOBODY).items()]

    @property
    def count(self) -> int:
        """How many objects are shown."""
        return sum(map(_is_told, self._view.all()))

    def superseded_by(self, object_id: str) -> str:
        """Where an object went, followed to its present id."""
        seen = object_id
        for _ in range(64):
            after = self._superseded.get(seen)
            if after is None:
                break
            seen = after
        return "" if seen == object_id else seen

    def age_milli(self, row: Sighting, last: int, physical_ms: int) -> int:
        """How much of the time for which a sighting is shown has passed since it was last seen, in thousandths."""
        is_fixed = row.kind == ASSET or (row.positioned and not row.moving)
        return (physical_ms - stamp_ms(last)) * 1_000 // self._ttl_ms(is_fixed)

    def _ttl_ms(self, is_fixed: bool) -> int:
        return self._config.ttl_ms if is_fixed else self._config.track_ttl_ms

    def _until_ms(self, leader: Entry) -> int:
        """Swarm time, milliseconds, until which an object is shown unless it is seen again."""
        members, joins = leader.members or (), self._joins
        last = max([member.last for member in members if not member.is_verdict], default=0)
        if not last:
            return 0
        if joins:
            for member in members:
                for _, _, seen in joins.get((member.origin, member.key), _NOBODY).values():
                    last = max(last, seen)
        return stamp_ms(last) + self._ttl_ms(leader.family.kind == ASSET or leader.is_fixed)

    def _stop_showing(self, leader: Entry) -> None:
        if leader.shown:
            leader.shown = False
            self._expired.append(self._object(leader))
            self._faded[leader] = None
            return
        members, node = leader.members or [leader], self._node
        if any(one.origin == node or self.join_of(node, one.origin, one.key) for one in members) or all(
            one.is_verdict for one in members
        ):
            self._faded[leader] = None  # Late news of it; or what was judged is gone: a verdict on nothing goes too.

    def _watch(self, leader: Entry, until_ms: int) -> None:
        """Look at this object again when it may have expired: earlier, where its author has set its clock back."""
        due = max(1, until_ms)
        if leader.watched and leader.watched <= due:
            return
        leader.watched = due
        self._deadline_count += 1
        if len(self._deadlines) >= self._view.count + self._view.count // 4 + _GONE_MAX:
            # A fifth of them are of things that are gone, or looked at earlier: each would hold a row for an hour.
            kept = [item for item in self._deadlines if item[2].leader is item[2] and item[0] == item[2].watched]
            for _, _, entry in self._deadlines:
                entry.watched = entry.watched if entry.leader is entry else 0
            self._deadlines = kept
            heapify(self._deadlines)
        heappush(self._deadlines, (due, self._deadline_count, leader))

    def _object(self, leader: Entry) -> ObjectView:
        members, joins = leader.members or [leader], self._joins
        base = leader
        first, last, own_reports, score, marks = figures_in(base.packed)
        if not own_reports:  # A liar's verdict may claim to be older than what it is about, and so lead.
            base = next((member for member in members if not member.is_verdict), leader)
            first, last, own_reports, score, marks = figures_in(base.packed)
        score = score if own_reports else 0
        sure, unsure = not marks & UNSURE, False
        reports, label = 0, base.family.label
        observers: set[NodeId] = set()
        thumb, thumb_score = base.thumb, score
        asset = ""
        positioned = False
        for member in members:
            seen_first, seen_last, seen_reports, seen_score, marks = figures_in(member.packed)
            if not seen_reports:  # A verdict: worth something as evidence, and nothing else.
                unsure = True
                continue
            first, last = min(first, seen_first), max(last, seen_last)
            observers.add(member.origin)
            reports += seen_reports
            seen_sure = not marks & UNSURE
            unsure = unsure or not seen_sure
            if (seen_sure, seen_score, member.family.label) > (sure, score, label):
                sure, score, label = seen_sure, seen_score, member.family.label
            if marks & PICTURED and (not thumb or seen_score > thumb_score):
                thumb, thumb_score = member.thumb, seen_score
            if isinstance(member.spot, str):
                asset = member.spot
            positioned = positioned or marks & POSITIONED != 0
            if not joins:
                continue
            for other, (_, joined_first, joined_last) in joins.get((member.origin, member.key), _NOBODY).items():
                observers.add(other)
                first, last = min(first, joined_first), max(last, joined_last)
                reports += 1
        east, north, covariance = fused(members, self._config)
        confirmed, evidence = len(observers) >= self._config.confirm_observers, SURE_MILLI
        if unsure:
            said = witnesses_of(members, self._joined_by, self._config)
            evidence = evidence_milli(said, self._config)
            confirmed = is_confirmed(said, self._config, self._config.confirm_observers)
        reviews = self._said_of(members) if self._reviews.has_any else ()
        verdict, said_label = settled(reviews)
        return ObjectView(
            leader.object_id,
            said_label or label,
            score,
            east if positioned else None,
            north if positioned else None,
            covariance if positioned else None,
            asset,
            tuple(sorted(observers)),
            first,
            last,
            confirmed,
            reports,
            verdict,
            label if said_label not in ("", label) else "",
            reviews,
            thumb,
            evidence,
        )

    def _joined_by(self, entry: Entry) -> Iterable[NodeId]:
        return self._joins.get((entry.origin, entry.key), _NOBODY)


def _is_told(entry: Entry) -> bool:
    return entry.shown and entry.leader is entry


def _some(waiting: dict[Entry, None]) -> list[Entry]:
    """Take out the first few; the rest waits for the next event."""
    taken = list(islice(waiting, TOLD_AT_ONCE))
    for entry in taken:
        del waiting[entry]
    return taken
