"""Agents of either kind as processes, and the timeline of what each of them reports.

A `Report` is one line of one agent in common words: up, join, suspect, degraded, failed, leave, user. Its time is when
this process read the line, the same clock for both kinds.
"""

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.bench.swim.swim_host import CONTROL_PORT, GOSSIP_PORT, address, group_id


@dataclass(frozen=True)
class Report:
    """Agent `observer` said `kind` about `subject`."""

    at_s: float
    observer: int
    kind: str
    subject: str


class Kind(Protocol):
    """How one program is started, read and asked."""

    name: str

    def version(self) -> str: ...
    def command(self, index: int, seed: int | None) -> list[str]: ...
    def environment(self) -> dict[str, str]: ...
    def read(self, line: str) -> tuple[str, str] | None: ...
    def send_event(self, process: "subprocess.Popen[bytes]", index: int, event: str) -> None: ...


class Serf:
    """Debian's serf agent, LAN profile, plain text; reports are read from its log."""

    name = "serf"
    _lines = (
        (re.compile(r"EventMemberJoin: (\S+)"), "join"),
        (re.compile(r"EventMemberFailed: (\S+)"), "failed"),
        (re.compile(r"EventMemberLeave: (\S+)"), "leave"),
        (re.compile(r"memberlist: Suspect (\S+) has failed"), "suspect"),
        (re.compile(r"Received event: user-event: (\S+)"), "user"),
        (re.compile(r"Node name: '(\S+)'"), "up"),
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def version(self) -> str:
        return subprocess.run(["serf", "version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]

    def command(self, index: int, seed: int | None) -> list[str]:
        own = address(index)
        command = ["serf", "agent", f"-node=n{index}", f"-bind={own}:{GOSSIP_PORT}", "-profile=lan", "-log-level=info"]
        command += [f"-rpc-addr={own}:{CONTROL_PORT}", "-rejoin", f"-snapshot={self._folder}/n{index}.snapshot"]
        if seed is None:
            return command
        return [*command, f"-retry-join={address(seed)}:{GOSSIP_PORT}", "-retry-interval=1s"]

    def environment(self) -> dict[str, str]:
        return {}

    def read(self, line: str) -> tuple[str, str] | None:
        for pattern, kind in self._lines:
            found = pattern.search(line)
            if found:
                return kind, found[1]
        return None

    def send_event(self, process: "subprocess.Popen[bytes]", index: int, event: str) -> None:
        rpc = f"-rpc-addr={address(index)}:{CONTROL_PORT}"
        subprocess.run(
            ["serf", "event", rpc, "-coalesce=false", event, "x"], check=True, capture_output=True, timeout=20
        )


class Swarmd:
    """This project's daemon without an eye, encrypted and signed, in a throw-away fleet."""

    name = "swarmd"

    def __init__(self, program: str, profile: str, transport: str, folder: Path) -> None:
        self._program = program
        self._profile = profile
        self._transport = transport
        self._folder = folder

    def version(self) -> str:
        output = subprocess.run(
            [self._program, "version", "--json"], capture_output=True, text=True, check=False
        ).stdout
        return f"swarmd {json.loads(output).get('swarmd', '?') if output.startswith('{') else '?'} ({self._profile})"

    def command(self, index: int, seed: int | None) -> list[str]:
        own = self._folder / f"n{index}"
        command = [self._program, "run", "--no-eye", "--http", "off", "--events", "json"]
        command += ["--dev-fleet", str(self._folder / "fleet"), "--name", f"n{index}"]
        command += ["--listen", f"{address(index)}:{GOSSIP_PORT}", "--state", str(own / "state")]
        command += ["--control", str(own / "control")]
        own.mkdir(exist_ok=True)
        return command if seed is None else [*command, "--join", f"{address(seed)}:{GOSSIP_PORT}"]

    def environment(self) -> dict[str, str]:
        own = {"SWARMD_GOSSIP__PROFILE": self._profile, "SWARMD_TRANSPORT__GOSSIP": self._transport}
        # As on a device, where byte code lies ready: an interpreter that compiles starts late and keeps 2 MB more.
        return {**own, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self._folder / "byte-code")}

    def read(self, line: str) -> tuple[str, str] | None:
        try:
            said = json.loads(line)
            return str(said["event"]), str(said["subject"])
        except (ValueError, KeyError, TypeError):
            return None

    def send_event(self, process: "subprocess.Popen[bytes]", index: int, event: str) -> None:
        assert process.stdin is not None, "started with a pipe"
        process.stdin.write(json.dumps({"cmd": "event", "name": event}).encode() + b"\n")
        process.stdin.flush()


class Swarm:
    """All agents of one run."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.reports: list[Report] = []
        self._news = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._rests: dict[int, bytes] = {}
        self._fresh: list[tuple[int, int]] = []
        self._ended: list[subprocess.Popen[bytes]] = []
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the swarm
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> list[int]:
        """Agents that run, sorted."""
        return sorted(self.processes)

    @property
    def pids(self) -> list[int]:
        """Process ids of the agents that run."""
        return [self.processes[index].pid for index in self.alive]

    def start(self, index: int, seed: int | None) -> float:
        """Start one agent; the time just after."""
        gid = group_id(index)
        # The bench itself runs at a higher priority; its agents at the usual one.
        wrapper = [
            "nice",
            "-n",
            str(max(0, -os.nice(0))),
            "setpriv",
            f"--regid={gid}",
            "--keep-groups",
            "--pdeathsig",
            "KILL",
            "--",
        ]
        process = subprocess.Popen(
            [*wrapper, *self.kind.command(index, seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.kind.name == "serf" else self._errors,
            env={**os.environ, **self.kind.environment()},
        )
        assert process.stdout is not None, "asked for a pipe"
        os.set_blocking(process.stdout.fileno(), False)
        self.processes[index] = process
        self._fresh.append((process.stdout.fileno(), index))
        os.write(self._wake_write, b".")
        return time.monotonic()

    def kill(self, index: int) -> float:
        """SIGKILL one agent; the time just before."""
        process = self.processes.pop(index)
        before = time.monotonic()
        process.kill()
        process.wait()
        self._ended.append(process)
        return before

    def signal(self, indices: Iterable[int], number: signal.Signals) -> None:
        """Send a signal to some agents."""
        for index in indices:
            self.processes[index].send_signal(number)

    def close(self) -> None:
        """Kill what still runs."""
        for index in self.alive:
            self.kill(index)

    def errors(self) -> str:
        """The last that agents wrote to standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2_000))
        return self._errors.read().decode("utf-8", "replace")

    def mark(self) -> int:
        """A place in the timeline."""
        with self._news:
            return len(self.reports)

    def since(self, mark: int) -> list[Report]:
        """What was reported after a mark."""
        with self._news:
            return self.reports[mark:]

    def wait(
        self, mark: int, kinds: set[str], pairs: set[tuple[int, str]], seconds: float
    ) -> dict[tuple[int, str], float]:
        """When each (observer, subject) pair was first reported after a mark; incomplete when the time is up."""
        found: dict[tuple[int, str], float] = {}
        until = time.monotonic() + seconds
        at = mark
        with self._news:
            while True:
                for report in self.reports[at:]:
                    pair = (report.observer, report.subject)
                    if report.kind in kinds and pair in pairs:
                        found.setdefault(pair, report.at_s)
                at = len(self.reports)
                left = until - time.monotonic()
                if len(found) == len(pairs) or left <= 0:
                    return found
                self._news.wait(min(left, 1.0))

    def states(self, mark: int = 0) -> dict[tuple[int, str], str]:
        """The last thing each observer said of each subject since a mark."""
        said = (r for r in self.since(mark) if r.kind in ("join", "suspect", "degraded", "failed", "leave"))
        return {(report.observer, report.subject): report.kind for report in said}

    def _read_all(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(self._wake_read, 4_096)
                    while self._fresh:
                        descriptor, index = self._fresh.pop()
                        self._rests[descriptor] = b""
                        self._selector.register(descriptor, selectors.EVENT_READ, index)
                else:
                    self._read_one(key.fd, key.data)

    def _read_one(self, descriptor: int, index: int) -> None:
        data = os.read(descriptor, 1 << 16)
        now = time.monotonic()
        if not data:
            self._selector.unregister(descriptor)
            return
        *lines, self._rests[descriptor] = (self._rests[descriptor] + data).split(b"\n")
        said = [self.kind.read(line.decode("utf-8", "replace")) for line in lines]
        with self._news:
            self.reports += [Report(now, index, *what) for what in said if what]
            self._news.notify_all()


def find_serf(install: Callable[[], None]) -> bool:
    """Whether serf is there, after one attempt to install it."""
    if shutil.which("serf") is None:
        install()
    return shutil.which("serf") is not None
