"""A modelled processor: one inference at a time, the most urgent kind of work first."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from swarmd_sim.run.engine import Engine

FRAME, OWN, LENT = range(3)
"""Kinds of work, the most urgent first."""


@dataclass(slots=True)
class Task:
    """One inference."""

    kind: int
    time_ns: int
    at_ns: int
    done: Callable[[], None]
    job: int = 0
    turn_ns: int = 0
    """Of lent work the earliest turn runs first; of all other the first to come."""


class Processor:
    """Runs one inference at a time, the most urgent kind first; what runs is not interrupted.

    Args:
        engine: Virtual time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: tuple[deque[Task], ...] = (deque(), deque(), deque())
        self._running: Task | None = None
        self._life = 0
        self.free_ns = 0
        self.on_start: Callable[[Task, int], None] = lambda task, frames_waiting: None
        """Told what starts, and how many frames wait meanwhile."""

    def clear(self) -> None:
        """The process has gone, with all that waited."""
        self._life += 1
        self._running = None
        for waiting in self._waiting:
            waiting.clear()

    def put(self, task: Task) -> None:
        """Something to run."""
        self._waiting[task.kind].append(task)
        self._start()

    def drop(self, job: int) -> None:
        """Nobody waits for it; what runs already runs to its end."""
        for waiting in self._waiting[OWN:]:
            for task in [one for one in waiting if one.job == job]:
                waiting.remove(task)

    def backlog_ns(self, *kinds: int) -> int:
        """Time of what runs and of what waits of these kinds."""
        left = max(0, self.free_ns - self._engine.now_ns) if self._running is not None else 0
        return left + sum(task.time_ns for kind in kinds for task in self._waiting[kind])

    def next_task(self) -> Task | None:
        """What runs next: the most urgent kind, in the order of turns, then of arrival."""
        for waiting in self._waiting:
            if waiting:
                task = min(waiting, key=lambda one: one.turn_ns)
                waiting.remove(task)
                return task
        return None

    def _start(self) -> None:
        if self._running is not None:
            return
        task = self.next_task()
        if task is None:
            return
        self._running = task
        self.on_start(task, len(self._waiting[FRAME]))
        self.free_ns = self._engine.now_ns + task.time_ns
        self._engine.at(self.free_ns, self._ended, (self._life, task))

    def _ended(self, what: tuple[int, Task]) -> None:
        life, task = what
        if life != self._life:
            return
        self._running = None
        task.done()
        self._start()
