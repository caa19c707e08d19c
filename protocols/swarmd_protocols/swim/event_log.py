"""User events of one origin, in order: what was delivered, what came too early, what is kept for repair."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from swarmd_protocols.swim.rules import BOOT_SHIFT

_COUNT_MASK = (1 << BOOT_SHIFT) - 1
"""The number of an event within its boot."""
_PENDING_MAX = 64
"""Events held that came before their turn; the one furthest ahead is dropped first."""
_KEPT_MAX = 64
"""Delivered events kept for repair: an hour's at one a minute, and what a partition of minutes leaves behind."""
_HELD_BYTES_MAX = 1 << 20
"""Bytes of each that are held of one origin: 64 events of the largest size that a node sends. With a log's 64 events of
the largest size that can travel it would be 4 MB and twice as much."""
LARGE_REPAIR_BYTES = 24 * 1_100
"""More than so many bytes of one origin go to a peer over the reliable path: 24 full datagrams."""
_LARGE_REPAIR_NS = 2_000_000_000
"""They are not repeated for so long, nanoseconds: twice within the patience for a gap, should a connection break."""
_LARGE_REPAIRS_MAX = 4_096
"""Peers and origins of which that is known; the oldest goes first."""


@dataclass(slots=True)
class Early:
    """An event that came before its turn."""

    name: str
    payload: bytes
    encoded: bytes
    until_ns: int
    """What is missing right before it is awaited until then."""
    came_ns: int
    """When it came."""


class EventLog:
    """User events of one origin: delivered once each, in order, kept for repair."""

    __slots__ = (
        "_displaced",
        "_kept_bytes",
        "_pending_bytes",
        "awaits",
        "delivered",
        "fp",
        "kept",
        "marked_ns",
        "pending",
    )

    def __init__(self, delivered: int) -> None:
        self.delivered = delivered
        """Sequence of the last one delivered; 0 before the first."""
        self.pending: dict[int, Early] = {}
        """Arrived too early, by sequence."""
        self.awaits = False
        """Whether a timer runs for what is missing before them."""
        self.kept: deque[tuple[int, bytes]] = deque()
        """(sequence, encoded message) of those delivered."""
        self._kept_bytes = self._pending_bytes = 0
        self._displaced: tuple[int, int] | None = None
        """The first and the last of those that came too early and had no room."""
        self.marked_ns = -(2**62)
        """When `delivered` last rose."""
        self.fp = 0
        """What counts towards the digest for it, in a partial view."""

    def offer(
        self,
        sequence: int,
        name: str,
        payload: bytes,
        encoded: bytes,
        until_ns: int = 0,
        now_ns: int = 0,
        *,
        newest: bool = False,
    ) -> bool:
        """Take an event; what is missing right before it is awaited until then. False when it is old or waits.

        Where there is no room, the latest goes, which comes again once it is its turn; with `newest` the oldest: while
        it is not known where this node begins, whoever brings what was said long ago pushes out nothing that is new.
        """
        if sequence <= self.delivered or sequence in self.pending:
            return False
        self.pending[sequence] = Early(name, payload, encoded, until_ns, now_ns)
        self._pending_bytes += len(payload) + len(encoded)
        if len(self.pending) > _PENDING_MAX:
            self._displace(min(self.pending) if newest else max(one for one in self.pending if one != sequence), newest)
        while self._pending_bytes > _HELD_BYTES_MAX:
            self._displace((min if newest else max)(self.pending), newest)
        return sequence in self.pending

    @property
    def held_bytes(self) -> int:
        """Bytes of all that is held of the origin."""
        return self._kept_bytes + self._pending_bytes

    def _pop(self, sequence: int) -> Early:
        early = self.pending.pop(sequence)
        self._pending_bytes -= len(early.payload) + len(early.encoded)
        return early

    def _displace(self, sequence: int, newest: bool) -> None:
        self._pop(sequence)
        if not newest:
            first, last = self._displaced or (sequence, sequence)
            self._displaced = min(first, sequence), max(last, sequence)

    def spare(self, given_up: int, until_ns: int) -> int:
        """What was awaited in vain up to an event is given up; what came, and had no room, was not: it comes again.

        Args:
            given_up: What is missing up to here was awaited for long enough.
            until_ns: Until when what had no room is awaited now; it is spared once each time.

        Returns:
            The last event that may count as delivered.
        """
        first, last = self._displaced or (0, 0)
        first = max(first, self.delivered + 1)
        if not first <= min(last, given_up):
            return given_up
        self._displaced = None
        for early in self.pending.values():
            early.until_ns = max(early.until_ns, until_ns)
        return first - 1

    def _keep(self, sequence: int, encoded: bytes) -> None:
        self.kept.append((sequence, encoded))
        self._kept_bytes += len(encoded)
        while len(self.kept) > _KEPT_MAX or self._kept_bytes > _HELD_BYTES_MAX:
            self._kept_bytes -= len(self.kept.popleft()[1])

    def follows(self, sequence: int) -> bool:
        """Whether this is the next one: no gap within a boot, and the first of a later boot."""
        if sequence == self.delivered + 1:
            return True
        return sequence > self.delivered and sequence & _COUNT_MASK == 1

    def due(self, *, skip_gap: bool = False) -> Iterator[tuple[str, bytes]]:
        """Deliver what can be delivered; `skip_gap` gives up on what is missing before the earliest waiting one."""
        while self.pending:
            sequence = min(self.pending)
            if not skip_gap and not self.follows(sequence):
                return
            skip_gap = False
            early = self._pop(sequence)
            self.delivered = sequence
            self._keep(sequence, early.encoded)
            yield early.name, early.payload

    def begin(self, delivered: int) -> None:
        """Events up to this one count as delivered; what waits of them is dropped."""
        self.delivered = delivered
        for sequence in [one for one in self.pending if one <= delivered]:
            self._pop(sequence)

    def take_back(self, sequence: int, encoded: bytes) -> None:
        """An event that an earlier life delivered is kept for repair again; those are taken back in order."""
        if sequence in self.pending or any(kept >= sequence for kept, _ in self.kept):
            return
        if not self.pending or sequence < min(self.pending):
            self.delivered = max(self.delivered, sequence)
        self._keep(sequence, encoded)

    def reopen(self, delivered: int, until_ns: int, now_ns: int, read: Callable[[bytes], tuple[str, bytes]]) -> None:
        """Something behind this event was never held: what is kept beyond it comes after that, which is awaited.

        Args:
            delivered: The last event that counts as delivered.
            until_ns: How long what is missing is awaited.
            now_ns: The time.
            read: Name and payload of an encoded event.
        """
        kept, self.kept, self._kept_bytes = self.kept, deque(), 0
        self.delivered = delivered
        for sequence, encoded in kept:
            if sequence <= delivered:
                self._keep(sequence, encoded)
            else:
                self.offer(sequence, *read(encoded), encoded, until_ns, now_ns)

    def next_until_ns(self) -> int:
        """Until when the earliest gap is awaited; there is one."""
        return self.pending[min(self.pending)].until_ns

    def number_anew(self, first: int, start: int, change: Callable[[bytes, int], bytes]) -> None:
        """Number the kept events from `first` on from `start` on: their encoded form for a new number is `change`'s."""
        kept, self.kept, self._kept_bytes = self.kept, deque(), 0
        number = start
        for sequence, encoded in kept:
            if sequence < first:
                self._keep(sequence, encoded)
                continue
            self._keep(number, change(encoded, number))
            self.delivered = number
            number += 1

    def recode(self, change: Callable[[bytes], bytes]) -> None:
        """Keep the events in another form."""
        kept, pending = self.kept, self.pending
        self.kept, self.pending = deque(), {}
        self._kept_bytes = self._pending_bytes = 0
        for sequence, encoded in kept:
            self._keep(sequence, change(encoded))
        for sequence, early in pending.items():
            self.offer(sequence, early.name, early.payload, change(early.encoded), early.until_ns, early.came_ns)

    def after(self, sequence: int) -> list[tuple[int, bytes]]:
        """Events beyond this one that are still kept: (sequence, encoded message)."""
        return [(kept, encoded) for kept, encoded in self.kept if kept > sequence]


class LargeRepairs:
    """What peers were sent of an origin's events over the reliable path, which they may not have delivered yet.

    A peer that waits for a gap asks with every probe for all behind it. Bounded.
    """

    def __init__(self) -> None:
        self._reached: OrderedDict[tuple[bytes, bytes], tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reached)

    def note(self, peer: bytes, origin: bytes, sequence: int, now_ns: int) -> None:
        """A peer is being sent an origin's events up to this one."""
        self._reached[peer, origin] = sequence, now_ns
        self._reached.move_to_end((peer, origin))
        oldest = next(iter(self._reached))
        if len(self._reached) > _LARGE_REPAIRS_MAX or now_ns - self._reached[oldest][1] > _LARGE_REPAIR_NS:
            del self._reached[oldest]

    def reached(self, peer: bytes, origin: bytes, now_ns: int) -> int:
        """Up to which event of an origin a peer has lately been sent them; 0 for none."""
        sequence, sent_ns = self._reached.get((peer, origin), (0, 0))
        return sequence if now_ns - sent_ns < _LARGE_REPAIR_NS else 0


def is_text(value: str) -> bool:
    """Whether a string can travel: lone surrogates (as from undecodable file names) cannot."""
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
