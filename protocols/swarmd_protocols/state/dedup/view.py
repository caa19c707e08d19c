"""Objects out of sightings: a priority-ordered maximal independent set, kept up to date change by change.

Rules this file keeps:

- The result is a pure function of the set of sightings: no order, batching or repetition of `put` and `remove` shows.
- Sightings are ranked: those with an asset before those without, then by the time they were first seen, then by a
  hash. In that order, a sighting joins the nearest leader that passes the gate and with which it was never seen
  side by side; where there is none it leads. An object is a leader with those that joined it; its id is the leader's.
- So a sighting depends only on higher-ranked ones, and a new sighting, being the youngest, changes no other leader: ids
  change only when objects merge.
- Same asset is the same thing at any distance; different assets never are. What moves, or has no position, is itself.
- At most `crowd_max` sightings of one origin are told apart by place in one square; the youngest beyond are themselves.
  So the neighbourhood of a sighting, and with it the work of one decision, has a bound that no origin can raise.
- Work is done in slices: `settle` stops when its budget is spent and goes on at the next call. What is undecided is a
  queue, so where slices end does not show in the result. Work is charged to the origin whose change caused it.
- Expiry never removes a sighting, it only stops showing the object: removal is its origin's alone. So no late packet
  can bring a thing back: it is shown again only by a newer sighting.
"""

from bisect import insort
from collections.abc import Collection, Iterator

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot
from swarmd_protocols.state.crdt.facts import ASSET, LATTICE, Sighting, SightingKey
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import HASH_MASK, Entry, Rank, rank_in_view, take_out
from swarmd_protocols.state.dedup.gate import distance_milli
from swarmd_protocols.state.dedup.squares import Shelf, Squares, bucket_of, clear_up, discard
from swarmd_protocols.state.dedup.undecided import Undecided


class DedupView:
    """All sightings, decided."""

    def __init__(self, config: DedupConfig) -> None:
        """Empty."""
        self._config = config
        self._entries: dict[NodeId, dict[SightingKey, Entry]] = {}
        self._placed = Squares(config.radius_cm)
        self._leaders = Squares(config.radius_cm)
        self._labels: dict[str, dict[str, int]] = {}
        """Group to the labels of it that lattice rows bear, and how many do."""
        self._assets: dict[tuple[str, str], list[Entry]] = {}
        self._listed_by: dict[tuple[NodeId, str, int, int], list[Entry]] = {}
        self._crowds: dict[tuple[NodeId, str], dict[int, Shelf]] = {}
        """Origin and group to bucket to the entries there that have a place, by rank."""
        self.undecided = Undecided()
        self.count = 0
        self.touched: dict[Entry, None] = {}
        """Leaders whose objects changed since the caller last cleared this."""
        self.merged: dict[Entry, None] = {}
        """Entries that stopped leading, or left, since the caller last cleared this."""

    # --- Reading ------------------------------------------------------------------------------------------------

    def get(self, origin: NodeId, key: SightingKey) -> Entry | None:
        """An origin's entry."""
        entries = self._entries.get(origin)
        return None if entries is None else entries.get(key)

    def all(self) -> Iterator[Entry]:
        """Every entry, by origin."""
        for origin in sorted(self._entries):
            yield from self._entries[origin].values()

    def groups(self) -> Iterator[Collection[Entry]]:
        """The entries of each origin there is when this is first asked, by origin."""
        for origin in sorted(self._entries):
            yield self._entries.get(origin, {}).values()

    def leaders(self) -> list[Entry]:
        """The entry that leads each object, by rank."""
        return sorted((entry for entry in self.all() if entry.leader is entry), key=lambda entry: entry.rank)

    def candidates(self, group: str, east_cm: int, north_cm: int, covariance: tuple[int, int, int]) -> list[Entry]:
        """Leaders that a position may belong to, nearest first."""
        near = []
        found = self._leaders.near(group, east_cm, north_cm)
        self.undecided.work += len(found)
        for leader in found:
            row = leader.row
            distance = self._distance(east_cm - row.east_cm, north_cm - row.north_cm, covariance, row.covariance_cm2)
            if distance >= 0:
                near.append((distance, leader.rank, leader))
        return [leader for _, _, leader in sorted(near, key=lambda item: item[:2])]

    def leader_of_asset(self, group: str, asset: str) -> Entry | None:
        """The leader of an asset's object."""
        entries = self._assets.get((group, asset))
        return min(entries, key=lambda entry: entry.rank) if entries else None

    # --- Changing -----------------------------------------------------------------------------------------------

    def put(self, origin: NodeId, row: Sighting, dot: Dot) -> Entry | None:
        """Take an origin's row; a row of an older or the same batch is ignored.

        Returns:
            Its entry where anything changed; `settle` must follow.
        """
        self.undecided.cause = origin
        entries = self._entries.get(origin)
        if entries is None:
            entries = self._entries[origin] = {}
        old = entries.get(row.key)
        if old is None:
            self.count += 1
            group = self._config.groups.get(row.label, row.label)
            entry = Entry(origin, row, dot, group)
            entries[entry.key] = entry
            self._enter(entry)
            self.undecided.push(entry)
            self.undecided.account()
            return entry
        if old.dot >= dot:
            return None
        old.dot = dot
        changed = self._change(old, row)
        self.undecided.account()
        return old if changed else None

    def _change(self, old: Entry, row: Sighting) -> bool:
        before = old.row
        if row == before:
            return False
        if before[:9] == row[:9] and before.first == row.first and before.beside == row.beside:
            # Neither place nor rank: nobody's choice can change.
            old.row = row
            if old.leader is not None:
                self.touched[old.leader] = None
            return True
        self._leave(old)
        old.row = row
        old.rank = (old.rank >> 124 << 124) | (row.first << 64) | (old.rank & HASH_MASK)
        self._enter(old)
        self.undecided.push(old)
        self._push_siblings(old)
        if old.leader is old:
            self._push_below(old)
        return True

    def remove(self, origin: NodeId, key: SightingKey) -> bool:
        """Forget an origin's row; `settle` must follow."""
        entry = self._entries.get(origin, {}).pop(key, None)
        if entry is None:
            return False
        if not self._entries[origin]:
            del self._entries[origin]
        self.count -= 1
        self.undecided.cause = origin
        self._leave(entry)
        leader = entry.leader
        if leader is entry:
            self._resign(entry)
            self.merged[entry] = None
        elif leader is not None and leader.members is not None:
            leader.members.remove(entry)
            self.touched[leader] = None
            self._push_siblings(entry)
        entry.leader = None
        self.touched.pop(entry, None)
        self.undecided.account()
        return True

    def has_changed(self) -> bool:
        """Whether `settle` has work, or changes wait to be told."""
        return bool(self.touched or self.merged or self.undecided.waiting)

    def settle(self, budget: int | None = None) -> int:
        """Decide what is undecided, in the order of rank; the cost is that of the neighbourhoods that changed.

        Any other order gives the same result, since a decision that a later one contradicts is made again.

        Args:
            budget: Units of work after which to stop; None: until nothing is left.

        Returns:
            Units of work done.
        """
        done = 0
        last: Entry | None = None
        while self.undecided.waiting and (budget is None or done < budget):
            rank, entry = self.undecided.pop()
            if entry is last or rank != entry.rank or not self.is_in(entry):
                continue
            last = entry
            self._decide(entry)
            done += self.undecided.account()
        return done

    def is_in(self, entry: Entry) -> bool:
        """Whether an entry is still there."""
        entries = self._entries.get(entry.origin)
        return entries is not None and entries.get(entry.key) is entry

    def _decide(self, entry: Entry) -> None:
        old, new = entry.leader, self._choose(entry)
        if new is old:
            self.touched[new] = None
            return
        if new is not entry and new.members is None:
            self._decide(new)  # An asset's first entry leads it, though its own turn has not come.
        if old is entry:
            self._resign(entry)
            self.merged[entry] = None
        elif old is not None and old.members is not None:
            old.members.remove(entry)
            self.touched[old] = None
        entry.leader = new
        if new is entry:
            entry.members = [entry]
            self.merged.pop(entry, None)
            if entry.placed:
                self._leaders.add(entry)
            self._push_below(entry)
        else:
            assert new.members is not None
            new.members.append(entry)
        self.touched[new] = None
        self._push_siblings(entry)

    def _choose(self, entry: Entry) -> Entry:
        row = entry.row
        if row.kind == ASSET:
            assert isinstance(row.place, str)
            first = self.leader_of_asset(entry.group, row.place)
            return entry if first is None else first
        if not entry.placed:
            return entry
        best: Entry | None = None
        best_order: tuple[int, Rank] | None = None
        rank, covariance, east, north = entry.rank, row.covariance_cm2, row.east_cm, row.north_cm
        siblings: list[Entry] | None = None
        for leader in self._near(self._leaders, entry.group, row):
            if leader.rank >= rank:
                continue
            other = leader.row
            distance = self._distance(east - other.east_cm, north - other.north_cm, covariance, other.covariance_cm2)
            if distance < 0 or (best_order is not None and (distance, leader.rank) >= best_order):
                continue
            if siblings is None:
                siblings = [sibling for sibling in self._siblings(entry) if sibling.rank < rank]
            if any(sibling.leader is leader for sibling in siblings):
                continue
            best, best_order = leader, (distance, leader.rank)
        return entry if best is None else best

    def _distance(self, dx: int, dy: int, a: tuple[int, int, int], b: tuple[int, int, int]) -> int:
        """Order of nearness within the gate, or -1 outside of it."""
        config = self._config
        square = dx * dx + dy * dy
        if square > config.radius_cm * config.radius_cm:
            return -1
        if not config.use_covariance:
            return square
        distance = distance_milli(dx, dy, a, b, config.floor_cm)
        return distance if distance <= config.gate_milli else -1

    # --- Index --------------------------------------------------------------------------------------------------

    def _near(self, squares: Squares, group: str, row: Sighting) -> list[Entry]:
        found = squares.near(group, row.east_cm, row.north_cm)
        self.undecided.work += len(found)
        return found

    def _place(self, entry: Entry) -> None:
        """Let an entry be told from others by its place."""
        entry.placed = True
        self._placed.add(entry)
        if entry.leader is entry:
            self._leaders.add(entry)

    def _unplace(self, entry: Entry) -> None:
        self._placed.discard(entry)
        if entry.leader is entry:
            self._leaders.discard(entry)
        entry.placed = False

    def _join_crowd(self, entry: Entry) -> None:
        """Place an entry, unless as many older ones of its origin are here as may be; the youngest makes room."""
        crowds = self._crowds.setdefault((entry.origin, entry.group), {})
        bucket = bucket_of(entry.row, self._config.radius_cm)
        crowd = crowds.get(bucket)
        if crowd is None:
            crowds[bucket] = entry
            self._place(entry)
            return
        if not isinstance(crowd, list):
            crowd = crowds[bucket] = [crowd]
        insort(crowd, entry, key=rank_in_view)
        most = self._config.crowd_max
        if entry.rank <= crowd[:most][-1].rank:
            self._place(entry)
            if len(crowd) > most:
                self._displace(crowd[most])

    def _displace(self, entry: Entry) -> None:
        if entry.leader is entry:
            self._push_below(entry)
        self._unplace(entry)
        self.undecided.push(entry)

    def _leave_crowd(self, entry: Entry) -> None:
        crowds, bucket = self._crowds[entry.origin, entry.group], bucket_of(entry.row, self._config.radius_cm)
        crowd = crowds[bucket]
        if not isinstance(crowd, list):
            crowd = [crowd]
        take_out(crowd, entry)
        clear_up(crowds, bucket, crowd)
        if not crowds:
            del self._crowds[entry.origin, entry.group]
        if not entry.placed:
            return
        self._unplace(entry)
        if len(crowd) >= self._config.crowd_max:
            heir = crowd[self._config.crowd_max - 1]
            self._place(heir)
            if heir.leader is heir:
                self._push_below(heir)
            self.undecided.push(heir)

    def _enter(self, entry: Entry) -> None:
        row = entry.row
        if row.kind == ASSET:
            assert isinstance(row.place, str)
            self._assets.setdefault((entry.group, row.place), []).append(entry)
        if _is_placed(row):
            self._join_crowd(entry)
        if row.kind == LATTICE:
            assert not isinstance(row.place, str)
            labels = self._labels.setdefault(entry.group, {})
            labels[row.label] = labels.get(row.label, 0) + 1
            x, y = row.place
            for dx, dy in dict.fromkeys(row.beside):
                listed = self._listed_by.setdefault((entry.origin, entry.group, x + dx, y + dy), [])
                insort(listed, entry, key=rank_in_view)
                self._relist(listed, entry)

    def _leave(self, entry: Entry) -> None:
        """Undo `_enter`, and have those decided anew that looked at this entry's old place and rank."""
        row = entry.row
        if entry.leader is entry:
            self._push_below(entry)
        self._push_siblings(entry)
        if row.kind == ASSET:
            assert isinstance(row.place, str)
            discard(self._assets, (entry.group, row.place), entry)
            for other in self._assets.get((entry.group, row.place), ()):
                self.undecided.push(other)
        if _is_placed(row):
            self._leave_crowd(entry)
        if row.kind == LATTICE:
            assert not isinstance(row.place, str)
            labels = self._labels[entry.group]
            labels[row.label] -= 1
            if not labels[row.label]:
                del labels[row.label]
                if not labels:
                    del self._labels[entry.group]
            x, y = row.place
            for dx, dy in dict.fromkeys(row.beside):
                slot = (entry.origin, entry.group, x + dx, y + dy)
                listed = self._listed_by[slot]
                self._relist(listed, entry)
                take_out(listed, entry)
                if not listed:
                    del self._listed_by[slot]

    def _relist(self, listed: list[Entry], entry: Entry) -> None:
        """Of those that name one point only the oldest count: decide anew the one that `entry` moves in or out."""
        most = self._config.listed_max
        if len(listed) > most and entry.rank < listed[most].rank:
            self.undecided.push(listed[most])

    def _siblings(self, entry: Entry) -> list[Entry]:
        """Entries of the same origin that were seen beside this one."""
        row = entry.row
        if row.kind != LATTICE or not (row.beside or self._listed_by):
            return []
        assert not isinstance(row.place, str)
        x, y = row.place
        most = self._config.listed_max
        found = self._listed_by.get((entry.origin, entry.group, x, y), [])[:most]
        entries = self._entries.get(entry.origin, {})
        for dx, dy in row.beside:
            listed = self._listed_by.get((entry.origin, entry.group, x + dx, y + dy), [])
            if len(listed) > most and entry.rank > listed[most - 1].rank:
                continue
            for label in self._labels.get(entry.group, ()):
                other = entries.get((label, LATTICE, (x + dx, y + dy)))
                if other is not None:
                    found.append(other)
        self.undecided.work += len(found)
        return found

    # --- Who must be decided anew ---------------------------------------------------------------------------------

    def _push_siblings(self, entry: Entry) -> None:
        for sibling in self._siblings(entry):
            if sibling.rank > entry.rank:
                self.undecided.push(sibling)

    def _push_below(self, leader: Entry) -> None:
        """Everybody of lower rank who may look at this leader, here and where it leads already."""
        row, rank = leader.row, leader.rank
        reach = self._config.radius_cm * self._config.radius_cm
        if leader.placed:
            for other in self._near(self._placed, leader.group, row):
                if other.rank > rank:
                    dx, dy = other.row.east_cm - row.east_cm, other.row.north_cm - row.north_cm
                    if dx * dx + dy * dy <= reach:
                        self.undecided.push(other)
        for member in leader.members or ():
            if member is not leader:
                self.undecided.push(member)
        if row.kind == ASSET:
            assert isinstance(row.place, str)
            for other in self._assets.get((leader.group, row.place), ()):
                if other is not leader:
                    self.undecided.push(other)

    def _resign(self, entry: Entry) -> None:
        """Stop leading; members keep pointing here until they are decided anew."""
        if entry.placed:
            self._leaders.discard(entry)
        self._push_below(entry)
        for member in entry.members or ():
            if member.leader is entry and member is not entry:
                member.leader = None
                self.undecided.push(member)
        entry.members = None
        self.touched.pop(entry, None)


def _is_placed(row: Sighting) -> bool:
    """Whether a sighting has a place that can tell it from others."""
    return row.positioned and not row.moving
