"""A gateway's sending: which rows leave now, by which path, and whether a path works at all.

Rules this file keeps:

- A row leaves in the order of its number, and again until it is acknowledged, each time after a longer wait.
- What the first path has not answered within `ANSWER_NS` leaves by the other too; whichever answers is the first from
  then on.
- At most `WINDOW_BYTES` are on their way.
- Where nothing is to be said an empty frame is, each `POLL_NS`: its answer says that the path works, and brings what
  the region has. What a region that was away for `AWAY_NS` has not answered leaves again at its first answer.

It holds numbers and times, no rows and no sockets; `Gateway` (swarmd/federation/gateway.py) does what it says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ANSWER_NS = 1_000_000_000
"""Nanoseconds within which a region answers: ten round trips of a mobile line, and the region's commit. With the frame
sent again by the other path, half of the 2 s in which a path is changed."""
AGAIN_MAX_NS = 30_000_000_000
"""The longest wait before a row is sent again: what a region that comes back waits for at most."""
POLL_NS = 3_000_000_000
"""Between two empty frames: with `ANSWER_NS` a silent region is noticed within 4 s, and a take-over takes 5 s."""
LOST_NS = 1_500_000_000
"""A frame that nobody answered for so long: no path works."""
AWAY_NS = 15_000_000_000
"""After so long without any answer the first one sends what waits again at once. A region that is only slow is not
to get everything twice: below, waits are 8 s at most anyway."""
WINDOW_BYTES = 262_144
"""On their way at once: 2 s of a line of 1 Mbit/s."""
PATIENT_TRIES = 4
"""A row that left so often weighs nothing in the window: the region lacks something to take it, and others go on."""
_TRIES_MAX = 16
"""Beyond, waits grow no longer."""


@dataclass(slots=True)
class _Sent:
    """A row on its way."""

    size: int
    sent_ns: int
    path: int
    tries: int = 1


@dataclass(slots=True)
class Plan:
    """What leaves now."""

    rows: list[int]
    path: int
    """Index of the path; -1 where none is connected."""


@dataclass(slots=True)
class Flow:
    """The sending of one gateway over so many paths."""

    paths: int
    first: int = 0
    """The path that new rows take."""
    switches: int = 0
    paused_until_ns: int = 0
    _sent: dict[int, _Sent] = field(default_factory=dict)
    _asked_ns: int | None = None
    """When the oldest frame without any answer since was sent."""
    _spoke_ns: int = -(1 << 62)
    _answered_ns: dict[int, int] = field(default_factory=dict)
    """Path to when it last answered."""

    @property
    def flying_bytes(self) -> int:
        """On their way, and expected to be answered."""
        return sum(one.size for one in self._sent.values() if one.tries < PATIENT_TRIES)

    def plan(self, waiting: Sequence[tuple[int, int]], connected: Sequence[bool], now_ns: int) -> list[Plan]:
        """What to send now, at most one plan a path and one more.

        Args:
            waiting: (number, bytes) of unacknowledged rows, the lowest numbers first; those on their way may be in it.
            connected: Which paths are.
            now_ns: Monotonic clock.
        """
        if not any(connected) and self._asked_ns is None:
            self._asked_ns = now_ns  # Nobody can be asked, which is no answer either.
        if now_ns < self.paused_until_ns or not any(connected):
            return []
        held = {seq for seq, _ in waiting}
        for seq in [seq for seq in self._sent if seq not in held]:
            del self._sent[seq]
        late = [seq for seq, one in self._sent.items() if now_ns - one.sent_ns >= self._wait_ns(one)]
        if late and self._asked_ns is not None and now_ns - self._asked_ns >= ANSWER_NS:
            self._change(connected)
        first = self._usable(self.first, connected)
        plans = []
        for path in range(self.paths):
            # By another path than the time before, where there is one.
            rows = [seq for seq in late if self._other(self._sent[seq].path, connected) == path]
            if rows:
                plans.append(Plan(sorted(rows), path))
        room = WINDOW_BYTES - self.flying_bytes
        fresh: list[int] = []
        for seq, size in waiting:
            if seq in self._sent:
                continue
            if room < size and (fresh or self._sent):
                break
            room -= size
            fresh.append(seq)
        if fresh:
            plans.append(Plan(fresh, first))
        silent_ns = 0 if self._asked_ns is None else now_ns - self._asked_ns
        # An empty frame that nobody answers is followed by one on the other path, before the region counts as lost.
        if not plans and now_ns - self._spoke_ns >= (ANSWER_NS if 0 < silent_ns < POLL_NS else POLL_NS):
            if silent_ns >= ANSWER_NS:
                self._change(connected)
            plans.append(Plan([], self._usable(self.first, connected)))
        return plans

    def sent(self, rows: Iterable[tuple[int, int]], path: int, now_ns: int) -> None:
        """A frame with these (number, bytes) has left."""
        self._spoke_ns = now_ns
        if self._asked_ns is None:
            self._asked_ns = now_ns
        for seq, size in rows:
            held = self._sent.get(seq)
            self._sent[seq] = _Sent(size, now_ns, path, 1 if held is None else min(held.tries + 1, _TRIES_MAX))

    def answered(self, acked: Iterable[tuple[int, int]], path: int, pause_ms: int, now_ns: int) -> None:
        """The region has answered by a path."""
        was_away = self._asked_ns is not None and now_ns - self._asked_ns >= AWAY_NS
        self._asked_ns = None
        self._answered_ns[path] = now_ns
        # Both answer where a row went by both: the first stays while it does.
        if path != self.first and now_ns - self._answered_ns.get(self.first, now_ns - ANSWER_NS) >= ANSWER_NS:
            self.first, self.switches = path, self.switches + 1
        for first, last in acked:
            for seq in [seq for seq in self._sent if first <= seq <= last]:
                del self._sent[seq]
        if was_away:
            # It was away, or all paths were: long waits would only be added to its absence.
            for one in self._sent.values():
                one.sent_ns, one.tries = now_ns - ANSWER_NS, 1
        if pause_ms:
            self.paused_until_ns = now_ns + pause_ms * 1_000_000

    def works(self, now_ns: int) -> bool:
        """Whether the region is heard: it has answered once, and no frame since has gone unanswered for long."""
        return bool(self._answered_ns) and (self._asked_ns is None or now_ns - self._asked_ns < LOST_NS)

    def _wait_ns(self, one: _Sent) -> int:
        return min(ANSWER_NS << (one.tries - 1), AGAIN_MAX_NS)

    def _usable(self, path: int, connected: Sequence[bool]) -> int:
        return path if connected[path] else next(at for at in range(self.paths) if connected[at])

    def _other(self, path: int, connected: Sequence[bool]) -> int:
        others = [at for at in range(self.paths) if connected[at] and at != path]
        return others[0] if others else self._usable(path, connected)

    def _change(self, connected: Sequence[bool]) -> None:
        other = self._other(self.first, connected)
        if other != self.first:
            self.first, self.switches = other, self.switches + 1
