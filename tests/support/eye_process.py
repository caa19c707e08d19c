"""A supervisor around a real eye process, for tests: collects what it says and waits for conditions."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from swarmd.eye.ipc import Configure, FrameDone, FromEye
from swarmd.eye.supervisor import EyeSupervisor

T = TypeVar("T")
FARM = "sim://farm?drone=1&of=1&seed=7&fly=lanes&faults=0.1"


class Watched:
    """One supervised eye with everything it said."""

    def __init__(self, source: str = FARM, model: str = "zoo:small-320", **changes: object) -> None:
        settings: dict[str, object] = {"stats_interval_s": 0.2, **changes}
        self.said: list[FromEye] = []
        self.log: list[tuple[str, str]] = []
        self.states: list[str] = []
        """The supervisor's at each message."""
        config = Configure(source, model, **settings)  # type: ignore[arg-type]
        self.supervisor = EyeSupervisor(config, self._hear, log=lambda e, t: self.log.append((e, t)))
        self.task: asyncio.Task[None] | None = None

    def _hear(self, message: FromEye) -> None:
        self.said.append(message)
        self.states.append(self.supervisor.state)

    async def __aenter__(self) -> "Watched":
        self.task = asyncio.create_task(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.supervisor.stop()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.task, 60)

    def of(self, kind: type[T]) -> list[T]:
        """Messages of one kind."""
        return [message for message in self.said if isinstance(message, kind)]

    def frames(self) -> int:
        """Frames seen so far."""
        return sum(1 for message in self.of(FrameDone) if message.frame_index >= 0)

    async def until(self, condition: Callable[[], object], what: str, limit_s: float = 120.0) -> None:
        """Poll until a condition holds; fails with `what` after the limit."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while not condition():
            assert loop.time() < deadline, f"waited {limit_s:g} s for {what}; said: {self.said[-3:]} log: {self.log}"
            assert self.task is not None
            if self.task.done() and not condition():
                self.task.result()
                raise AssertionError(f"the supervisor ended before {what}; log: {self.log}")
            await asyncio.sleep(0.02)
