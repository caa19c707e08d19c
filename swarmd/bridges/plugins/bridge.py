"""The daemon's side of a plug-in: its process is started, watched, listened to, ended, and started again when it fails.

What a plug-in raises, leaks or blocks stays in its process: it has no more of the daemon than any program with
`import swarmd`. What it prints goes to the daemon's log, `LINE_MAX_BYTES` of each line, as many lines as the log takes
of one sender (`logs.py`), and it is read no faster than `_CHUNK_BYTES` in `PAUSE_S`: who prints more waits.

It leads a process group of its own, and when it has ended, however, what it has started and left is killed with the
group. What has left the group too (a daemon of its own, by setsid(2)) keeps this one neither from telling the plug-in's
end nor from starting it again.
"""

import asyncio
import contextlib
import json
import os
import signal
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
LINES_MAX = 16
"""Lines of one read that are looked at, the last ones, which say why it fails: the log takes ten in ten seconds."""
PAUSE_S = 0.05
"""Seconds between two reads: a program that prints without end costs the daemon a hundredth of a core."""
_CHUNK_BYTES = 65_536
"""Bytes read at a time: a pipe's own buffer on Linux. Source: pipe(7)."""
_LOOK_S = 1.0
"""Seconds between two looks whether it has ended, where a process that it has started holds its output open."""


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
            env=environment_of_eye(), process_group=0,
        )  # fmt: skip
        self._pid, self._last_line = process.pid, ""
        self._counts["starts"] += 1
        try:
            assert process.stdin is not None
            # By a pipe, because everybody on the device may read a command line, and an option may be a password.
            process.stdin.write(json.dumps(self._options).encode() + b"\n")
            process.stdin.close()
            assert process.stdout is not None
            listening = asyncio.create_task(self._listen(process.stdout, daemon))
            try:
                status = await _ended(process)
                await asyncio.wait({listening}, timeout=_LOOK_S)  # Its last words.
                if listening.done():
                    listening.result()
            finally:
                listening.cancel()
        finally:
            self._pid = None
            await _end(process)
        if status:
            self._counts["failures"] += 1
            why = self._last_line or "it said nothing"
            self._problem = f"the plug-in {self._plugin} of {described(self._entry)} ended with status {status}: {why}"
            raise PluginError(self._problem)
        self._problem = ""

    async def _listen(self, output: asyncio.StreamReader, daemon: DaemonView) -> None:
        rest = b""
        while chunk := await output.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            self._counts["lines"] += max(0, len(lines) - LINES_MAX)
            for line in lines[-LINES_MAX:]:
                self._on_line(line, daemon)
            rest = rest[:LINE_MAX_BYTES]
            await asyncio.sleep(PAUSE_S)
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


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Its status, once it has ended: `Process.wait` also waits for whoever holds its output open (CPython 119710)."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait({waiting}, timeout=_LOOK_S)
    finally:
        waiting.cancel()
    return process.returncode


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let it end, or end it, and all that it has left; also when `run` is cancelled."""
    try:
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await _ended(process)
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        await _ended(process)
    finally:
        # The group's number is nobody else's while one of it lives, and it is gone with the last.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # Else the daemon would keep its end of an output that somebody else holds, one more for each start.
        process._transport.close()  # type: ignore[attr-defined]
