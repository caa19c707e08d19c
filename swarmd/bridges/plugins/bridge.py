"""The daemon's side of a plug-in: its process is started, watched, listened to, ended, and started again when it fails.

What a plug-in raises, leaks or blocks stays in its process: it has no more of the daemon than any program with
`import swarmd`. What it prints goes to the daemon's log, `LINE_MAX_BYTES` of each line, as many lines as the log takes
of one sender (`logs.py`).
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Mapping

from swarmd.api.daemon import DaemonView
from swarmd.bridges.plugins.found import described, find
from swarmd.errors import DaemonError, PluginError
from swarmd.eye.supervisor import environment_of_eye

LINE_MAX_BYTES = 500
"""Bytes of a line that are shown: as wide as anybody reads."""
STOP_S = 3.0
"""Seconds that a plug-in has for its good-bye; below the 5 s after which the supervisor asks again."""
_CHUNK_BYTES = 65_536
"""Bytes read at a time: a pipe's own buffer on Linux. Source: pipe(7)."""


class PluginBridge:
    """One plug-in that the configuration names."""

    def __init__(self, group: str, name: str, options: Mapping[str, str]) -> None:
        """Find its package; raises `PluginError` where there is none."""
        self._entry = find(group, name)
        self._group, self._plugin, self._options = group, name, dict(options)
        self.name = f"plugin_{name}"
        self._counts: Counter[str] = Counter()
        self._pid: int | None = None
        self._problem = ""
        self._last_line = ""

    def counters(self) -> dict[str, int]:
        """Monotonic counts: starts, failures and lines."""
        return dict(self._counts)

    def row(self) -> dict[str, object]:
        """For `swarmd status`."""
        return {
            "name": self._plugin,
            "group": self._group,
            "package": described(self._entry),
            "pid": self._pid,
            "starts": self._counts["starts"],
            "lines": self._counts["lines"],
            "problem": self._problem,
        }

    async def run(self, daemon: DaemonView) -> None:
        """One life of the plug-in; returns when it has ended by itself and well.

        Raises:
            PluginError: It has failed, and says why.
        """
        control = str(daemon.command("status", {})["control"])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "swarmd.bridges.plugins", self._group, self._plugin, control,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=environment_of_eye(),
        )  # fmt: skip
        self._pid, self._last_line = process.pid, ""
        self._counts["starts"] += 1
        try:
            assert process.stdin is not None
            # By a pipe, because everybody on the device may read a command line, and an option may be a password.
            process.stdin.write(json.dumps(self._options).encode() + b"\n")
            process.stdin.close()
            await self._listen(process, daemon)
            status = await process.wait()
        finally:
            self._pid = None
            await _end(process)
        if status:
            self._counts["failures"] += 1
            why = self._last_line or "it said nothing"
            self._problem = f"the plug-in {self._plugin} of {described(self._entry)} ended with status {status}: {why}"
            raise PluginError(self._problem)
        self._problem = ""

    async def _listen(self, process: asyncio.subprocess.Process, daemon: DaemonView) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_line(line, daemon)
            rest = rest[:LINE_MAX_BYTES]
        if rest:
            self._on_line(rest, daemon)

    def _on_line(self, line: bytes, daemon: DaemonView) -> None:
        text = line[:LINE_MAX_BYTES].decode(errors="replace").rstrip()
        if not text:
            return
        self._last_line = text
        self._counts["lines"] += 1
        with contextlib.suppress(DaemonError):
            daemon.command("note_problem", {"where": self.name, "text": text})


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let it end, or end it; also when `run` is cancelled."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.kill()
    await process.wait()
