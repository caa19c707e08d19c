"""Tasks that may fail alone: restarted with back-off, counted and logged, never silently lost.

`keep` runs a coroutine function for ever. What it raises is logged; it starts again after a pause that doubles up to
`max_pause_s` and shrinks back once it has run well for a while. `close` cancels all and waits for them; what is
cancelled does not start again, whatever it raises then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from swarmd.errors import DaemonError
from swarmd.logs import Logger

GOOD_RUN_S = 30.0
"""Seconds of running after which a task's next failure is a first one again: as long as the longest pause."""
AGAIN_S = 5.0
"""Until a task that did not end is told once more; longer than any good-bye takes."""


async def next_look(period_s: float = 1.0) -> None:
    """Sleep until the clock's next whole period: parts that look at something once a second wake the device together.

    Args:
        period_s: Seconds between two looks; > 0.
    """
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(period_s - now_s % period_s)


class Supervisor:
    """Owns the daemon's background tasks."""

    def __init__(self, log: Logger) -> None:
        """Start with none."""
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self.restarts: dict[str, int] = {}

    def keep(
        self, name: str, run: Callable[[], Awaitable[None]], *, pause_s: float = 0.5, max_pause_s: float = 30.0
    ) -> asyncio.Task[None]:
        """Run it until it returns; start it again when it raises."""
        task = asyncio.get_running_loop().create_task(self._keep(name, run, pause_s, max_pause_s), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]], pause_s: float, max_pause_s: float) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        pause = pause_s
        self.restarts.setdefault(name, 0)
        problem: str | Exception
        while True:
            began = loop.time()
            try:
                await run()
                return
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                # Something that it waited for was cancelled, by a library or another task: nobody ends it.
                event, problem = "task_failed", "what it waited for was cancelled"
            except DaemonError as error:
                event, problem = "task_failed", str(error)
            except Exception as error:  # Whatever a bridge's library raises, the swarm goes on.
                event, problem = "task_crashed", error
            if task.cancelling():  # Only its good-bye failed.
                self._log.error(event, task=name, error=problem)
                return
            self._log.error(event, task=name, error=problem, again_in_s=pause)
            self.restarts[name] += 1
            if loop.time() - began > GOOD_RUN_S:
                pause = pause_s
            await asyncio.sleep(pause)
            pause = min(pause * 2, max_pause_s)

    async def close(self) -> None:
        """Cancel everything and wait; again where a task took the first word for something else.

        `asyncio.wait_for` of Python 3.11 loses a cancellation that comes with what it waits for.
        """
        while tasks := [task for task in self._tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=AGAIN_S)
