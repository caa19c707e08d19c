"""User events of one origin, in order: what was delivered, what came too early, what is kept for repair."""

from collections import deque
from collections.abc import Callable, Iterator

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


class EventLog:
    """User events of one origin: delivered once each, in order, kept for repair."""

    __slots__ = ("_kept_bytes", "_pending_bytes", "delivered", "fp", "kept", "marked_ns", "pending")

    def __init__(self, delivered: int) -> None:
        self.delivered = delivered
        """Sequence of the last one delivered; 0 before the first."""
        self.pending: dict[int, tuple[str, bytes, bytes]] = {}
        """Arrived too early: sequence to (name, payload, encoded message)."""
        self.kept: deque[tuple[int, bytes]] = deque()
        """(sequence, encoded message) of those delivered."""
        self._kept_bytes = self._pending_bytes = 0
        self.marked_ns = -(2**62)
        """When `delivered` last rose."""
        self.fp = 0
        """What counts towards the digest for it, in a partial view."""

    def offer(self, sequence: int, name: str, payload: bytes, encoded: bytes) -> bool:
        """Take an event; False when it is old or already waiting."""
        if sequence <= self.delivered or sequence in self.pending:
            return False
        while len(self.pending) >= _PENDING_MAX:
            self._pop(max(self.pending))
        self.pending[sequence] = (name, payload, encoded)
        self._pending_bytes += len(payload) + len(encoded)
        while self._pending_bytes > _HELD_BYTES_MAX:
            self._pop(max(self.pending))
        return True

    @property
    def held_bytes(self) -> int:
        """Bytes of all that is held of the origin."""
        return self._kept_bytes + self._pending_bytes

    def _pop(self, sequence: int) -> tuple[str, bytes, bytes]:
        waiting = self.pending.pop(sequence)
        self._pending_bytes -= len(waiting[1]) + len(waiting[2])
        return waiting

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
            name, payload, encoded = self._pop(sequence)
            self.delivered = sequence
            self._keep(sequence, encoded)
            yield name, payload

    def recode(self, change: Callable[[bytes], bytes]) -> None:
        """Keep the events in another form."""
        kept, pending = self.kept, self.pending
        self.kept, self.pending = deque(), {}
        self._kept_bytes = self._pending_bytes = 0
        for sequence, encoded in kept:
            self._keep(sequence, change(encoded))
        for sequence, (name, payload, encoded) in pending.items():
            self.offer(sequence, name, payload, change(encoded))

    def after(self, sequence: int) -> list[bytes]:
        """Encoded events beyond this one that are still kept."""
        return [encoded for kept, encoded in self.kept if kept > sequence]


def is_text(value: str) -> bool:
    """Whether a string can travel: lone surrogates (as from undecodable file names) cannot."""
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
