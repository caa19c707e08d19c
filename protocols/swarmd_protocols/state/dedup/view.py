"""Objects out of sightings: a priority-ordered maximal independent set, kept up to date change by change.

Rules this file keeps:

- The result is a pure function of the set of sightings: no order, batching or repetition of `put` and `remove` shows.
- Sightings are ranked: those with an asset before those without, then by the time they were first seen, then by a
  hash. In that order, a sighting joins the nearest leader that passes the gate and with which it was never seen
  side by side; where there is none it leads. An object is a leader with those that joined it; its id is the leader's.
- So a sighting depends only on higher-ranked ones, and a new sighting, being the youngest, changes no other leader: ids
  change only when objects merge.
- Where places are poor, what looks unlike is two things, and the nearest is so by place and look (`looks.py`).
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
from swarmd_protocols.state.crdt.facts import LATTICE, Sighting, SightingKey
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import (
    Entry,
    Family,
    Rank,
    Spot,
    place_in,
    position_in,
    rank_in_view,
    spot_of,
    take_out,
)
from swarmd_protocols.state.dedup.gate import Covariance, distance_milli
from swarmd_protocols.state.dedup.looks import COMPARE_UNITS, order_milli
from swarmd_protocols.state.dedup.squares import Squares, bucket_of, discard
from swarmd_protocols.state.dedup.undecided import Undecided

STALE_UNITS = 1
"""Work of a look at an entry that needs no decision any more, about a microsecond: thousands wait where an author takes
back at once what it has stacked up."""


class DedupView:
    """All sightings, decided."""

    def __init__(self, config: DedupConfig) -> None:
        """Empty."""
        self._config = config
        self._families: dict[NodeId, dict[tuple[str, int], Family]] = {}
        """Origin to label and kind of place to the entries; none is empty."""
        self._placed = Squares(config.radius_cm)
        self._labels: dict[str, dict[str, int]] = {}
        """Group to the labels of it that lattice rows bear, and how many do."""
        self._assets: dict[tuple[str, str], list[Entry]] = {}
        self._listed_by: dict[tuple[NodeId, str, int], list[Entry]] = {}
        """Origin, group and spot of a lattice point to the entries that name it as beside them, by rank."""
        self._displaced: dict[tuple[NodeId, str, int], list[Entry]] = {}
        """Origin, group and bucket to the entries there that are too many to be told apart by place, by rank."""
        self.undecided = Undecided()
        self.count = 0
        self.touched: dict[Entry, None] = {}
        """Leaders whose objects changed since the caller last cleared this."""
        self.merged: dict[Entry, None] = {}
        """Entries that stopped leading, or left, since the caller last cleared this."""

    # --- Reading ------------------------------------------------------------------------------------------------

    def get(self, origin: NodeId, key: SightingKey) -> Entry | None:
        """An origin's entry."""
        return self._find(origin, key[0], key[1], spot_of(key[2]))

    def _find(self, origin: NodeId, label: str, kind: int, spot: Spot) -> Entry | None:
        families = self._families.get(origin)
        family = None if families is None else families.get((label, kind))
        return None if family is None else family.entries.get(spot)

    def all(self) -> Iterator[Entry]:
        """Every entry, by origin."""
        for origin in sorted(self._families):
            for family in self._families[origin].values():
                yield from family.entries.values()

    def groups(self) -> Iterator[Collection[Entry]]:
        """The entries of each origin there is when this is first asked, by origin."""
        for origin in sorted(self._families):
            families = self._families.get(origin, {}).values()
            yield [entry for family in families for entry in family.entries.values()]

    def leaders(self) -> list[Entry]:
        """The entry that leads each object, by rank."""
        return sorted((entry for entry in self.all() if entry.leader is entry), key=lambda entry: entry.rank)

    def candidates(
        self, group: str, east_cm: int, north_cm: int, covariance: tuple[int, int, int], look: bytes = b""
    ) -> list[Entry]:
        """Leaders that a position and a look (`looks.look_of`) may belong to, nearest first."""
        near = []
        for leader in self._leaders_near(group, east_cm, north_cm):
            east, north, ee, en, nn = position_in(leader.packed)
            distance = self._distance(east_cm - east, north_cm - north, covariance, (ee, en, nn))
            if distance >= 0 and look:
                distance = order_milli(distance, covariance, (ee, en, nn), look, leader.look, self._config)
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
        spot = spot_of(row.place)
        family = self._family_of(origin, row.label, row.kind)
        old = family.entries.get(spot)
        if old is None:
            self.count += 1
            entry = family.entries[spot] = Entry(family, spot, row, dot)
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

    def _family_of(self, origin: NodeId, label: str, kind: int) -> Family:
        families = self._families.get(origin)
        if families is None:
            families = self._families[origin] = {}
        family = families.get((label, kind))
        if family is None:
            family = families[label, kind] = Family(origin, label, kind, self._config.groups.get(label, label))
        return family

    def _change(self, old: Entry, row: Sighting) -> bool:
        before = old.row
        if row == before:
            return False
        same_look = before.features == row.features and (before.model == row.model or not row.features)
        if before[:9] == row[:9] and before.first == row.first and before.beside == row.beside and same_look:
            # Neither place nor rank nor look: nobody's choice can change.
            old.replace(row)
            if old.leader is not None:
                self.touched[old.leader] = None
            return True
        self._leave(old)
        old.replace(row)
        self._enter(old)
        self.undecided.push(old)
        self._push_siblings(old)
        if old.leader is old:
            self._push_below(old)
        return True

    def remove(self, origin: NodeId, key: SightingKey) -> bool:
        """Forget an origin's row; `settle` must follow."""
        entry = self.get(origin, key)
        if entry is None:
            return False
        family = entry.family
        del family.entries[entry.spot]
        if not family.entries:
            families = self._families[origin]
            del families[family.label, family.kind]
            if not families:
                del self._families[origin]
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
                done += STALE_UNITS
                continue
            last = entry
            self._decide(entry)
            done += self.undecided.account()
        return done

    def is_in(self, entry: Entry) -> bool:
        """Whether an entry is still there."""
        return entry.family.entries.get(entry.spot) is entry

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
            self._push_below(entry)
        else:
            assert new.members is not None
            new.members.append(entry)
        self.touched[new] = None
        self._push_siblings(entry)

    def _choose(self, entry: Entry) -> Entry:
        if isinstance(entry.spot, str):
            first = self.leader_of_asset(entry.group, entry.spot)
            return entry if first is None else first
        if not entry.placed:
            return entry
        best: Entry | None = None
        best_order: tuple[int, Rank] | None = None
        rank, (east, north, ee, en, nn) = entry.rank, position_in(entry.packed)
        covariance, reach = (ee, en, nn), self._config.radius_cm * self._config.radius_cm
        siblings: list[Entry] | None = None
        look = entry.look
        for leader in self._leaders_near(entry.group, east, north):
            if leader.rank >= rank:
                continue
            dx, dy, ee, en, nn = position_in(leader.packed)
            dx, dy = east - dx, north - dy
            if dx * dx + dy * dy > reach:
                continue  # Most are: not even a call is spent on them.
            distance = self._distance(dx, dy, covariance, (ee, en, nn))
            if look and distance >= 0:
                self.undecided.work += COMPARE_UNITS
                distance = order_milli(distance, covariance, (ee, en, nn), look, leader.look, self._config)
            if distance < 0 or (best_order is not None and (distance, leader.rank) >= best_order):
                continue
            if siblings is None:
                siblings = [sibling for sibling in self._siblings(entry) if sibling.rank < rank]
            if any(sibling.leader is leader for sibling in siblings):
                continue
            best, best_order = leader, (distance, leader.rank)
        return entry if best is None else best

    def _distance(self, dx: int, dy: int, a: Covariance, b: Covariance) -> int:
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

    def _leaders_near(self, group: str, east_cm: int, north_cm: int) -> list[Entry]:
        found = [entry for entry in self._placed.near(group, east_cm, north_cm) if entry.leader is entry]
        self.undecided.work += len(found)
        return found

    def _join_crowd(self, entry: Entry) -> None:
        """Place an entry, unless as many older ones of its origin are here as may be; the youngest makes room."""
        origin, most, bucket = entry.origin, self._config.crowd_max, bucket_of(entry, self._config.radius_cm)
        crowd = [other for other in self._placed.at(entry.group, bucket) if other.origin == origin]
        if len(crowd) < most:
            self._placed.add(entry, bucket)
            entry.placed = True
            return
        youngest = max(crowd, key=rank_in_view)
        if entry.rank > youngest.rank:
            self._wait(entry, bucket)
            return
        self._placed.add(entry, bucket)
        entry.placed = True
        self._displace(youngest)

    def _displace(self, entry: Entry) -> None:
        """Have a placed entry make room for an older one of its crowd."""
        bucket = bucket_of(entry, self._config.radius_cm)
        if entry.leader is entry:
            self._push_below(entry)
        self._placed.discard(entry, bucket)
        entry.placed = False
        self._wait(entry, bucket)
        self.undecided.push(entry)

    def _wait(self, entry: Entry, bucket: int) -> None:
        insort(self._displaced.setdefault((entry.origin, entry.group, bucket), []), entry, key=rank_in_view)

    def _leave_crowd(self, entry: Entry) -> None:
        """Undo `_join_crowd`; the oldest of those who made room comes back."""
        bucket = bucket_of(entry, self._config.radius_cm)
        slot = (entry.origin, entry.group, bucket)
        displaced = self._displaced.get(slot)
        if entry.placed:
            self._placed.discard(entry, bucket)
            entry.placed = False
            if displaced is None:
                return
            heir = displaced.pop(0)
            self._placed.add(heir, bucket)
            heir.placed = True
            if heir.leader is heir:
                self._push_below(heir)
            self.undecided.push(heir)
        else:
            assert displaced is not None, "who has a place and is not placed has made room"
            take_out(displaced, entry)
        if not displaced:
            del self._displaced[slot]

    def _enter(self, entry: Entry) -> None:
        if isinstance(entry.spot, str):
            self._assets.setdefault((entry.group, entry.spot), []).append(entry)
        if entry.is_fixed:
            self._join_crowd(entry)
        if entry.family.kind == LATTICE:
            labels, label = self._labels.setdefault(entry.group, {}), entry.family.label
            labels[label] = labels.get(label, 0) + 1
            for offset in dict.fromkeys(entry.beside):
                listed = self._listed_by.setdefault((entry.origin, entry.group, _spot_beside(entry, offset)), [])
                insort(listed, entry, key=rank_in_view)
                self._relist(listed, entry)

    def _leave(self, entry: Entry) -> None:
        """Undo `_enter`, and have those decided anew that looked at this entry's old place and rank."""
        if entry.leader is entry:
            self._push_below(entry)
        self._push_siblings(entry)
        if isinstance(entry.spot, str):
            discard(self._assets, (entry.group, entry.spot), entry)
            for other in self._assets.get((entry.group, entry.spot), ()):
                self.undecided.push(other)
        if entry.is_fixed:
            self._leave_crowd(entry)
        if entry.family.kind == LATTICE:
            labels, label = self._labels[entry.group], entry.family.label
            labels[label] -= 1
            if not labels[label]:
                del labels[label]
                if not labels:
                    del self._labels[entry.group]
            for offset in dict.fromkeys(entry.beside):
                slot = (entry.origin, entry.group, _spot_beside(entry, offset))
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
        beside = entry.beside
        if not (beside or self._listed_by) or entry.family.kind != LATTICE:
            return []
        origin, group, most = entry.origin, entry.group, self._config.listed_max
        found: list[Entry] = []
        if isinstance(entry.spot, int):
            found += self._listed_by.get((origin, group, entry.spot), [])[:most]
        for offset in beside:
            spot = _spot_beside(entry, offset)
            listed = self._listed_by.get((origin, group, spot), [])
            if len(listed) > most and entry.rank > listed[most - 1].rank:
                continue
            for label in self._labels.get(group, ()):
                other = self._find(origin, label, LATTICE, spot)
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
        rank, (east, north) = leader.rank, place_in(leader.packed)
        reach = self._config.radius_cm * self._config.radius_cm
        if leader.placed:
            found = self._placed.near(leader.group, east, north)
            self.undecided.work += len(found)
            for other in found:
                if other.rank > rank:
                    there = place_in(other.packed)
                    dx, dy = there[0] - east, there[1] - north
                    if dx * dx + dy * dy <= reach:
                        self.undecided.push(other)
        for member in leader.members or ():
            if member is not leader:
                self.undecided.push(member)
        if isinstance(leader.spot, str):
            for other in self._assets.get((leader.group, leader.spot), ()):
                if other is not leader:
                    self.undecided.push(other)

    def _resign(self, entry: Entry) -> None:
        """Stop leading; members keep pointing here until they are decided anew."""
        self._push_below(entry)
        for member in entry.members or ():
            if member.leader is entry and member is not entry:
                member.leader = None
                self.undecided.push(member)
        entry.members = None
        self.touched.pop(entry, None)


def _spot_beside(entry: Entry, offset: tuple[int, int]) -> int:
    """The spot of the lattice point so many columns and rows from a lattice entry's."""
    assert isinstance(entry.spot, int), "only lattice points have neighbours"
    step = spot_of(offset)
    assert isinstance(step, int)
    return entry.spot + step
