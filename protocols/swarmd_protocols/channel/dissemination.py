"""Spreading news: a queue of updates that ride in datagrams.

An update is pushed at once to a few members (infection style, SWIM section 4.1) and rides in some further datagrams;
what both miss is found by the digest in every probe and repaired.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable


class Update:
    """One encoded message on its way through the swarm."""

    __slots__ = ("about", "encoded", "priority", "rides", "serial", "urgent")

    def __init__(self, about: Hashable, encoded: bytes, priority: int, rides: int, serial: int, urgent: bool) -> None:
        self.about = about
        self.encoded = encoded
        self.priority = priority
        self.rides = rides
        self.serial = serial
        self.urgent = urgent


class _Lane:
    """The updates of one priority: who has most rides left goes first, then who came first."""

    __slots__ = ("order", "smallest")

    def __init__(self) -> None:
        self.order: list[tuple[int, int, Hashable]] = []
        """(-rides, serial, about), sorted."""
        self.smallest = 0
        """No update of the lane is smaller, bytes: where less room is left, none needs to be looked at."""

    def add(self, about: Hashable, update: Update) -> None:
        size = len(update.encoded)
        self.smallest = min(self.smallest, size) if self.order else size
        insort(self.order, (-update.rides, update.serial, about))

    def remove(self, update: Update) -> None:
        del self.order[bisect_left(self.order, (-update.rides, update.serial))]


class GossipQueue:
    """Updates by what they are about: a newer one takes the older one's place. Bounded; the least urgent goes first."""

    __slots__ = ("_lanes", "_limit", "_serial", "_updates", "_urgent")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._serial = 0
        self._updates: dict[Hashable, Update] = {}
        self._lanes: dict[int, _Lane] = {}
        self._urgent: list[Update] = []

    def __len__(self) -> int:
        return len(self._updates)

    def put(self, about: Hashable, encoded: bytes, priority: int, rides: int, *, urgent: bool) -> None:
        """Spread an encoded message.

        Args:
            about: What it speaks of; an older update about the same is dropped.
            encoded: The message as it travels.
            priority: Lower rides first.
            rides: In how many datagrams it rides besides the push.
            urgent: Push it to several members at the next flush.
        """
        self._discard(about)
        if len(self._updates) >= self._limit:
            worst = max(priority for priority, lane in self._lanes.items() if lane.order)
            self._discard(min(self._lanes[worst].order, key=lambda entry: entry[1])[2])
        self._serial += 1
        update = Update(about, encoded, priority, rides, self._serial, urgent)
        self._updates[about] = update
        self._lane(priority).add(about, update)
        if urgent:
            self._urgent.append(update)

    def _lane(self, priority: int) -> _Lane:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = _Lane()
            self._lanes = dict(sorted(self._lanes.items()))
        return lane

    def _discard(self, about: Hashable) -> Update | None:
        update = self._updates.pop(about, None)
        if update is not None:
            self._lanes[update.priority].remove(update)
        return update

    def drop(self, about: Hashable) -> None:
        """Stop spreading."""
        update = self._discard(about)
        if update is not None:
            update.urgent = False

    def overheard(self, about: Hashable) -> None:
        """Somebody else says the same: it rides once less, and not at all where it would be for the last time."""
        update = self._updates.get(about)
        if update is not None and update not in self._urgent:
            self._ride(about, self._lanes[update.priority])

    def keep(self, wanted: Callable[[Hashable], bool]) -> None:
        """Stop spreading all that is not wanted."""
        for about in [about for about in self._updates if not wanted(about)]:
            self.drop(about)

    def settle(self, priority: int) -> None:
        """Stop spreading what of this priority has been pushed: whoever still lacks it is found by repair."""
        lane = self._lanes.get(priority)
        if lane is not None and lane.order:
            for _, _, about in [entry for entry in lane.order if self._updates[entry[2]] not in self._urgent]:
                self._discard(about)

    @property
    def pressing(self) -> bool:
        """Whether anything waits for the next flush."""
        return bool(self._urgent)

    def take_urgent(self, lowest: int) -> list[Update]:
        """What to push now, most urgent kind first; less urgent than `lowest` only rides on."""
        pushed = [update for update in self._urgent if update.urgent and update.priority <= lowest]
        self._urgent.clear()
        pushed.sort(key=lambda update: update.priority)
        return pushed

    def take(self, room_bytes: int, lowest: int) -> list[bytes]:
        """Updates of priority `lowest` or better that ride in a datagram with this much room; rides are counted."""
        if not self._updates or room_bytes < 16:
            return []
        taken: list[bytes] = []
        for priority, lane in self._lanes.items():
            if priority > lowest or room_bytes < 16:
                break
            if room_bytes < lane.smallest:
                continue
            riding = []
            for entry in lane.order:
                size = len(self._updates[entry[2]].encoded)
                if size <= room_bytes:
                    room_bytes -= size
                    riding.append(entry[2])
                    if room_bytes < lane.smallest or room_bytes < 16:
                        break
            for about in riding:
                taken.append(self._ride(about, lane))
        return taken

    def _ride(self, about: Hashable, lane: _Lane) -> bytes:
        update = self._updates[about]
        lane.remove(update)
        update.rides -= 1
        if update.rides > 0:
            lane.add(about, update)
        else:
            del self._updates[about]
        return update.encoded
