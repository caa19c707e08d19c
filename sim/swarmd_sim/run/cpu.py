"""What it costs a process to run: cores that are shared, events that take time, stalls."""

_ASLEEP_NS = 10_000_000
"""A process that has not run for so long finds its caches cold."""


class Cores:
    """Processor cores that several hosts share, as the daemons of one machine do; first come, first served.

    Args:
        count: How many.
    """

    __slots__ = ("_free_ns",)

    def __init__(self, count: int) -> None:
        self._free_ns = [0] * count

    def free_ns(self) -> int:
        """When the first of them is free."""
        return min(self._free_ns)

    def take(self, now_ns: int, cost_ns: int) -> None:
        """Keep the core that has been free for longest busy."""
        free_ns = self._free_ns
        free_ns[free_ns.index(min(free_ns))] = now_ns + cost_ns


class Cpu:
    """The time that one process gets. All times are virtual.

    Args:
        event_ns: What handling one event costs at full speed; 0: nothing.
        wake_ns: What the first one after a sleep costs on top.
        cores: Shared with other hosts; None where each has its own.
    """

    __slots__ = (
        "_cores",
        "_event_ns",
        "_full_speed_ns",
        "_slowdown_milli",
        "_stalled_from_ns",
        "_stalled_until_ns",
        "_wake_ns",
        "busy_until_ns",
    )

    def __init__(self, event_ns: int, wake_ns: int, cores: Cores | None = None) -> None:
        self._event_ns = self._full_speed_ns = event_ns
        self._wake_ns = wake_ns
        self._cores = cores
        self._slowdown_milli = 1_000
        self._stalled_from_ns = self._stalled_until_ns = -1
        self.busy_until_ns = 0

    def boot(self) -> None:
        """A new process begins: nothing holds it up. A slow machine stays slow."""
        self._stalled_from_ns = self._stalled_until_ns = -1
        self.busy_until_ns = 0

    def slow_down(self, factor: int, least_ns: int) -> None:
        """Make every event cost more.

        Args:
            factor: How many times as much.
            least_ns: What an event costs at full speed, where the scenario says less.
        """
        self._event_ns = max(self._full_speed_ns, least_ns)
        self._slowdown_milli = 1_000 * factor

    def full_speed(self) -> None:
        """Undo `slow_down`."""
        self._slowdown_milli = 1_000
        self._event_ns = self._full_speed_ns

    def stall(self, now_ns: int, duration_ns: int) -> None:
        """The process does not run for a while."""
        if self._stalled_until_ns <= now_ns:
            self._stalled_from_ns = now_ns
        self._stalled_until_ns = max(self._stalled_until_ns, now_ns + duration_ns)
        self.busy_until_ns = max(self.busy_until_ns, now_ns + duration_ns)

    def wait(self, now_ns: int, duration_ns: int) -> None:
        """The process waits, once it is done with what it does, for something slow."""
        self.busy_until_ns = max(self.busy_until_ns, now_ns) + duration_ns

    def is_held_up(self, now_ns: int) -> bool:
        """Whether the process cannot run now; then `busy_until_ns` says when to ask again."""
        if self.busy_until_ns > now_ns:
            return True
        if self._cores is None:
            return False
        free_ns = self._cores.free_ns()
        if free_ns <= now_ns:
            return False
        self.busy_until_ns = free_ns
        return True

    def last_ran_ns(self, now_ns: int) -> int:
        """When the process ran last: now, or when the stall that goes on began."""
        return self._stalled_from_ns if self._stalled_until_ns > now_ns else now_ns

    def spend(self, now_ns: int) -> None:
        """One event was handled."""
        if self._event_ns:
            cost_ns = self._event_ns * self._slowdown_milli // 1_000
            if now_ns - self.busy_until_ns >= _ASLEEP_NS:
                cost_ns += self._wake_ns
            self.busy_until_ns = now_ns + cost_ns
            if self._cores is not None:
                self._cores.take(now_ns, cost_ns)
