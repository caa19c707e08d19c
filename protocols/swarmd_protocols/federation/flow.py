"""A gateway's sending: which rows leave now, by which path, and whether a path works at all.

Rules this file keeps:

- A row leaves in the order of its number, and again until it is acknowledged, each time after a longer wait.
- What the first path has not answered within the patience leaves by the other too; whichever answers is the first from
  then on. The patience is `ANSWER_NS`, and more where answers are seen to take longer: from the time to first answers
  (RFC 6298; of rows that left once, as Karn has it), and twice as long where a row turns out to have left again for
  nothing. A region with too much to do is not given everything several times.
- What is on its way by a path whose connection breaks leaves by the other at once, the first time.
- At most a window is on its way, `WINDOW_BYTES`; each time something is missed half of it, `WINDOW_LEAST_BYTES` at
  least, and it grows with what is acknowledged.
- Where nothing is to be said an empty frame is, each `POLL_NS`, each `ANSWER_NS` while nobody answers: its answer says
  that the path works, and brings what the region has.
- After `QUIET_NS` without any answer nothing but that question leaves, by the paths in turn, each `ANSWER_NS` and at a
  moment of this gateway's own in it: a pipe that takes what nobody answers is not given the same rows for ever. Where
  answers have been seen to take longer it is once in a patience: a thousand questions a second would keep it so.
- At the first answer after a silence longer than the patience, what has waited for longer than that counts as never
  sent: waits that have grown would only be added to the absence. It leaves by the least window, and at a moment of this
  gateway's own within `RETURN_NS`, and so does what was said while only the question left: a thousand gateways do not
  return at once.

It holds numbers and times, no rows and no sockets; `Gateway` (swarmd/federation/gateway.py) does what it says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ANSWER_NS = 1_000_000_000
"""Nanoseconds within which a region answers: ten round trips of a mobile line, and the region's commit. With the frame
sent again by the other path, half of the 2 s in which a path is changed."""
AGAIN_MAX_NS = 30_000_000_000
"""The longest wait before a row is sent again that a region which answers does not take."""
QUIET_NS = 15_000_000_000
"""Without any answer for so long only the question leaves: a row has left after 0, 1, 3 and 7 s by then, twice by each
path, and twice the longest patience is over."""
PATIENCE_MAX_NS = 8_000_000_000
"""The longest patience: a path that dies behind a region this slow is left after as long."""
POLL_NS = 3_000_000_000
"""Between two empty frames: with `ANSWER_NS` a silent region is noticed within 4 s, and a take-over takes 5 s."""
LOST_NS = 1_500_000_000
"""A frame that nobody answered for so long: no path works."""
RETURN_NS = 1_000_000_000
"""Within this after a region's return a gateway sends again what has waited: with `ANSWER_NS` between two questions
whether it is there, a path that comes back is used within about 2 s."""
WINDOW_BYTES = 262_144
"""On their way at once: 2 s of a line of 1 Mbit/s."""
WINDOW_LEAST_BYTES = 32_768
"""A full frame (`wire.FRAME_FILL_BYTES`)."""
PATIENT_TRIES = 4
"""A row that left so often weighs nothing in the window: the region lacks something to take it, and others go on."""
_TRIES_MAX = 16
"""Beyond, waits grow no longer."""
_REPEATED_MAX = 1_024
"""Rows that left more than once and are acknowledged, kept to notice a second answer."""


@dataclass(slots=True)
class _Sent:
    """A row on its way."""

    size: int
    sent_ns: int
    path: int
    tries: int = 1
    again: bool = False
    """It left more than once: which of them is answered nobody can say."""


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
    place: float = 0.0
    """Where in `RETURN_NS` this gateway's moment is, 0 to 1."""
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
    _returns_ns: int = -(1 << 62)
    """Before this nothing new leaves."""
    window_bytes: int = WINDOW_BYTES
    _missed_ns: int = -(1 << 62)
    """When the window was halved last."""
    _mean_ns: int = 0
    _spread_ns: int = 0
    """Of the time to an answer, smoothed; zeros before the first."""
    _doubled: int = 0
    _doubled_ns: int = -(1 << 62)
    _repeated: dict[int, None] = field(default_factory=dict)
    _before: set[int] = field(default_factory=set)
    """Rows that count as never sent, and were."""

    @property
    def flying_bytes(self) -> int:
        """On their way, and expected to be answered."""
        return sum(one.size for one in self._sent.values() if one.tries < PATIENT_TRIES)

    @property
    def patience_ns(self) -> int:
        """How long an answer may take before a row leaves again."""
        usual_ns = max(ANSWER_NS, self._mean_ns + 4 * self._spread_ns)
        return min(usual_ns << self._doubled, PATIENCE_MAX_NS)

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
        self._before &= held
        if self._asked_ns is not None and now_ns - self._asked_ns >= QUIET_NS:
            return self._question(self._asked_ns, connected, now_ns)
        late = [seq for seq, one in self._sent.items() if now_ns - one.sent_ns >= self._wait_ns(one)]
        broken = [seq for seq, one in self._sent.items() if self._is_broken(one, connected)]
        if late:
            self._miss(now_ns)
            if self._asked_ns is not None and now_ns - self._asked_ns >= self.patience_ns:
                self._change(connected)
        first = self._usable(self.first, connected)
        plans = []
        again = {*late, *broken}
        for path in range(self.paths):
            # By another path than the time before, where there is one.
            rows = [seq for seq in again if self._other(self._sent[seq].path, connected) == path]
            if rows:
                plans.append(Plan(sorted(rows), path))
        room = self.window_bytes - self.flying_bytes
        fresh: list[int] = []
        for seq, size in waiting if now_ns >= self._returns_ns else ():
            if seq in self._sent:
                continue
            if room < size and (fresh or self._sent):
                break
            room -= size
            fresh.append(seq)
        if fresh:
            plans.append(Plan(fresh, first))
        silent_ns = self.silent_ns(now_ns)
        # An empty frame that nobody answers is followed by one on the other path, before the region counts as lost.
        if not plans and now_ns - self._spoke_ns >= (ANSWER_NS if silent_ns else POLL_NS):
            if silent_ns >= ANSWER_NS:
                self._change(connected)
            plans.append(Plan([], self._usable(self.first, connected)))
        return plans

    def _question(self, asked_ns: int, connected: Sequence[bool], now_ns: int) -> list[Plan]:
        """Nobody has answered for long: an empty frame, once in the time that an answer takes, `ANSWER_NS` at least."""
        each_ns = self.patience_ns
        due_ns = now_ns - (now_ns - asked_ns - round(self.place * each_ns)) % each_ns
        if self._spoke_ns >= due_ns:
            return []
        self._change(connected)
        return [Plan([], self._usable(self.first, connected))]

    def sent(self, rows: Iterable[tuple[int, int]], path: int, now_ns: int) -> None:
        """A frame with these (number, bytes) has left."""
        self._spoke_ns = now_ns
        if self._asked_ns is None:
            self._asked_ns = now_ns
        for seq, size in rows:
            held = self._sent.get(seq)
            tries = 1 if held is None else min(held.tries + 1, _TRIES_MAX)
            self._sent[seq] = _Sent(size, now_ns, path, tries, held is not None or seq in self._before)

    def answered(self, acked: Iterable[tuple[int, int]], path: int, pause_ms: int, now_ns: int) -> None:
        """The region has answered by a path."""
        silent_ns = self.silent_ns(now_ns)
        was_away = silent_ns >= self.patience_ns
        self._asked_ns = None
        self._answered_ns[path] = now_ns
        # Both answer where a row went by both: the first stays while it does.
        if path != self.first and now_ns - self._answered_ns.get(self.first, now_ns - ANSWER_NS) >= ANSWER_NS:
            self.first, self.switches = path, self.switches + 1
        for first, last in acked:
            self._take(first, last, now_ns)
        if was_away:
            self._return(silent_ns, now_ns)
        if pause_ms:
            self.paused_until_ns = now_ns + pause_ms * 1_000_000

    def _take(self, first: int, last: int, now_ns: int) -> None:
        """These are acknowledged."""
        if any(first <= seq <= last for seq in self._repeated) and now_ns - self._doubled_ns >= self.patience_ns:
            # A second answer: what left again had not been lost, the region takes its time.
            self._doubled, self._doubled_ns = min(self._doubled + 1, 3), now_ns
        for seq in [seq for seq in self._sent if first <= seq <= last]:
            one = self._sent.pop(seq)
            self.window_bytes = min(self.window_bytes + one.size, WINDOW_BYTES)
            if one.again:
                self._repeated[seq] = None
                if len(self._repeated) > _REPEATED_MAX:
                    del self._repeated[next(iter(self._repeated))]
            else:
                self._measure(now_ns - one.sent_ns)

    def _measure(self, took_ns: int) -> None:
        """An answer to a row that left once took so long."""
        if not self._mean_ns:
            self._mean_ns, self._spread_ns = took_ns, took_ns // 2
        else:
            self._spread_ns = (3 * self._spread_ns + abs(self._mean_ns - took_ns)) // 4
            self._mean_ns = (7 * self._mean_ns + took_ns) // 8
        self._doubled = 0

    def _miss(self, now_ns: int) -> None:
        if now_ns - self._missed_ns >= self.patience_ns:
            self._missed_ns = now_ns
            self.window_bytes = max(self.window_bytes // 2, WINDOW_LEAST_BYTES)

    def _return(self, silent_ns: int, now_ns: int) -> None:
        """The region was away, or all paths were, for so long."""
        long_ago = [seq for seq, one in self._sent.items() if now_ns - one.sent_ns >= self.patience_ns]
        for seq in long_ago:
            del self._sent[seq]
        self._before.update(long_ago)
        for one in self._sent.values():
            one.tries = 1
        # What was said while only the question left has not been sent at all, and returns with as many others.
        if long_ago or silent_ns >= QUIET_NS:
            self.window_bytes = WINDOW_LEAST_BYTES
            self._returns_ns = now_ns + round(self.place * RETURN_NS)

    def works(self, now_ns: int) -> bool:
        """Whether the region is heard: it has answered once, and no frame since has gone unanswered for long."""
        return bool(self._answered_ns) and (self._asked_ns is None or now_ns - self._asked_ns < LOST_NS)

    def silent_ns(self, now_ns: int) -> int:
        """For how long nobody has answered what was asked; 0 where nothing waits for an answer."""
        return 0 if self._asked_ns is None else now_ns - self._asked_ns

    def _wait_ns(self, one: _Sent) -> int:
        return min(self.patience_ns << (one.tries - 1), AGAIN_MAX_NS)

    def _is_broken(self, one: _Sent, connected: Sequence[bool]) -> bool:
        """Whether its path is gone; only of a row that left once: paths that come and go cost each row one frame."""
        return one.tries == 1 and not connected[one.path]

    def _usable(self, path: int, connected: Sequence[bool]) -> int:
        return path if connected[path] else next(at for at in range(self.paths) if connected[at])

    def _other(self, path: int, connected: Sequence[bool]) -> int:
        others = [at for at in range(self.paths) if connected[at] and at != path]
        return others[0] if others else self._usable(path, connected)

    def _change(self, connected: Sequence[bool]) -> None:
        other = self._other(self.first, connected)
        if other != self.first:
            self.first, self.switches = other, self.switches + 1
