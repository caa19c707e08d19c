"""A daemon as a process of a demonstration: begun, read, asked, ended; it never outlives the demonstration."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import DaemonError

STOP_S = 8.0
"""Seconds that a daemon may take to end."""
_WORDS_MAX = 30
"""Lines of a daemon's log that are kept, for the one who asks why it ended."""
_PR_SET_PDEATHSIG = 1
"""A child dies with its parent. Source: prctl(2)."""


@dataclass(slots=True)
class DaemonProcess:
    """One process and what it said."""

    name: str
    control: Path
    process: asyncio.subprocess.Process | None = None
    address: str = ""
    last_words: list[str] = field(default_factory=list)
    _readers: list["asyncio.Task[None]"] = field(default_factory=list)

    async def begin(self, command: Sequence[str], read: Callable[[], Coroutine[None, None, None]]) -> None:
        """Start it.

        Args:
            command: With its arguments.
            read: Reads what it prints (`lines`, `events`) until it ends.
        """
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._readers += [asyncio.create_task(read()), asyncio.create_task(self._read_log())]

    async def lines(self) -> AsyncIterator[bytes]:
        """What it prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            yield line

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What it prints with `--events json`; its address is kept."""
        async for line in self.lines():
            event = json.loads(line)
            if event["event"] == "up":
                self.address = event["address"]
            yield event

    async def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """One answer; empty while it does not answer (it starts, or is about to be reported dead)."""

        def call() -> dict[str, Any]:
            with ControlClient(self.control) as client:
                return client.call(verb, **arguments)

        try:
            return await asyncio.to_thread(call)
        except DaemonError:
            return {}

    @property
    def ended(self) -> bool:
        """Whether it was begun and is gone."""
        return self.process is not None and self.process.returncode is not None

    async def _read_log(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            words = line.decode("utf-8", "replace").rstrip()
            self.last_words = [*self.last_words[1 - _WORDS_MAX :], words]


async def stop_all(daemons: Iterable[DaemonProcess]) -> None:
    """End them in good order, and those that do not end at once after a while."""
    begun = list(daemons)
    running = [one.process for one in begun if one.process is not None and not one.ended]
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in running:
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    readers = [reader for one in begun for reader in one._readers]
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def _die_with_parent() -> None:
    """Runs in the child before it becomes a daemon: SIGTERM when the demo is gone, however it ended (prctl(2))."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
