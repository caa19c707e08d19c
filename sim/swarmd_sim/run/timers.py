"""The timers of one process, on the clock of its node."""

from collections.abc import Callable
from typing import Any, TypeAlias

from swarmd_protocols.effects import SetTimer, TimerFired, TimerKey
from swarmd_sim.faults.clocks import NodeClock
from swarmd_sim.run.engine import Engine

_Due: TypeAlias = tuple[TimerKey, int, int]
"""Key, token, when by the node's monotonic clock."""


class Timers:
    """Timers that are set, each under its key.

    Args:
        engine: Virtual time.
        fire: Handed each event when it is due.
    """

    __slots__ = ("_clock", "_engine", "_fire", "_token", "_tokens")

    def __init__(self, engine: Engine, fire: Callable[[TimerFired], None]) -> None:
        self._engine = engine
        self._fire = fire
        self._clock = NodeClock(0, 0, 0, 0)
        self._tokens: dict[TimerKey, int] = {}
        self._token = 0

    def __len__(self) -> int:
        """How many are set."""
        return len(self._tokens)

    def boot(self, clock: NodeClock) -> None:
        """A new process begins, with none set and this clock."""
        self._clock = clock
        self._tokens.clear()

    def clear(self) -> None:
        """The process is gone."""
        self._tokens.clear()

    def set(self, effect: SetTimer) -> None:
        """Set a timer, anew where it is set."""
        token = self._token = self._token + 1
        key, at_ns = effect.key, effect.at_ns
        self._tokens[key] = token
        self._engine.at(self._clock.virtual_ns(at_ns), self._due, (key, token, at_ns))

    def cancel(self, key: TimerKey) -> None:
        """Let a timer not fire."""
        self._tokens.pop(key, None)

    def _due(self, due: _Due) -> None:
        key, token, at_ns = due
        if self._tokens.get(key) == token:
            if self._clock.local_ns(self._engine.now_ns) < at_ns:
                # The oscillator has slowed down since the timer was set.
                self._engine.at(self._clock.virtual_ns(at_ns), self._due, due)
                return
            del self._tokens[key]
            self._fire(TimerFired(key))

    def _is_dead(self, due: _Due) -> bool:
        return self._tokens.get(due[0]) != due[1]


def is_dead_timer(call: Callable[[Any], None], argument: Any) -> bool:
    """Whether a scheduled call is a timer's that would do nothing (for `Engine.sweep`)."""
    timers = getattr(call, "__self__", None)
    return isinstance(timers, Timers) and call.__name__ == "_due" and timers._is_dead(argument)
