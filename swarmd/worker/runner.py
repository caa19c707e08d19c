"""The thread that infers: one batch at a time, out of the eye's way, leaving off when something more urgent waits.

A runtime is called from this thread alone. Between two inferences the eye's gate is looked at; between two requests,
whether a more urgent one has come.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swarmd.eye.gate import PAUSE_MAX_NS, EyeGate, pause_ns
from swarmd_models.errors import ModelError
from swarmd_models.service import Run, Tensors

Outcome: TypeAlias = Tensors | ModelError


@dataclass(frozen=True, slots=True)
class Task:
    """One request's work."""

    number: int
    run: Run
    answer: Callable[[int, "Outcome"], None]
    """Called in the runner's thread with the number and what came out; the last one of a batch is in its `Ran`."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a batch."""

    done: int
    """Requests that ran, the first ones."""
    units: int
    took_ns: int
    """Without the waits for the eye."""
    waited_ns: int
    last: tuple[int, Outcome] | None = None
    """Number and outcome of the last request that ran: told with the batch, since each word wakes the loop once."""


class Runner:
    """Owns the thread."""

    def __init__(self, gate: EyeGate | None = None) -> None:
        """Start the thread."""
        self._gate = gate
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._outranked = threading.Event()
        self._since_ns = 0
        self._unit_ns = 0.0
        self._thread = threading.Thread(target=self._work, name="infer", daemon=True)
        self._thread.start()

    @property
    def busy_ns(self) -> int:
        """How long the running inference has taken; 0: none runs."""
        since = self._since_ns
        return time.monotonic_ns() - since if since else 0

    def submit(self, tasks: Sequence[Task], done: Callable[[Ran], None]) -> None:
        """Run a batch; `done` is called in the runner's thread after it."""
        self._outranked.clear()
        self._inbox.put(lambda: done(self._batch(tasks)))

    def outrank(self) -> None:
        """Leave the running batch after the request at hand."""
        self._outranked.set()

    def call(self, work: Callable[[], None]) -> None:
        """Do something else with a runtime between two batches: close it."""
        self._inbox.put(work)

    def stop(self) -> None:
        """End the thread after what was submitted."""
        self._inbox.put(None)

    def _work(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()

    def _batch(self, tasks: Sequence[Task]) -> Ran:
        took_ns = waited_ns = units = done = 0
        last: tuple[int, Outcome] | None = None
        for task in tasks:
            if last is not None:
                if self._outranked.is_set():
                    break
                tasks[done - 1].answer(*last)
            outcome: Outcome
            try:
                for _ in range(task.run.units):
                    waited_ns += self._let_the_eye_pass()
                    took_ns += self._timed(task.run.step)
                    units += 1
                outcome = task.run.result()
            except ModelError as error:
                outcome = error
                units += 1
            except Exception as error:  # A runtime may raise anything; the sender is told, the worker goes on.
                outcome = ModelError(f"the model failed: {type(error).__name__}: {str(error)[:200]}")
                units += 1
            done += 1
            last = task.number, outcome
        return Ran(done, units, took_ns, waited_ns, last)

    def _timed(self, step: Callable[[], None]) -> int:
        self._since_ns = started = time.monotonic_ns()
        try:
            step()
        finally:
            self._since_ns = 0
        took_ns = time.monotonic_ns() - started
        self._unit_ns += (took_ns - self._unit_ns) * (0.2 if self._unit_ns else 1.0)
        return took_ns

    def _let_the_eye_pass(self) -> int:
        """Wait while the eye works or is about to, `PAUSE_MAX_NS` at most; the nanoseconds that it took."""
        gate = self._gate
        if gate is None:
            return 0
        started = now_ns = time.monotonic_ns()
        while now_ns - started < PAUSE_MAX_NS and (wait := pause_ns(now_ns, *gate.look(), round(self._unit_ns))):
            time.sleep(min(wait, PAUSE_MAX_NS) / 1e9)
            now_ns = time.monotonic_ns()
        return now_ns - started


def run_only_when_idle() -> str:
    """Give all threads of this process what no other wants of the processor; what was not possible, or "".

    Source:
        sched(7), SCHED_IDLE; a busy lender under it cost an eye a tenth of what nice 19 did.
    """
    policy = getattr(os, "SCHED_IDLE", None)
    if policy is None:
        with contextlib.suppress(OSError):
            os.nice(19)
        return "this system has no SCHED_IDLE; the worker runs at nice 19"
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(0))
    except OSError as error:
        return f"the worker cannot run at SCHED_IDLE: {error.strerror}"
    return ""
