"""Real `swarmd run` processes for integration tests: start, ask, wait, kill, read what they said."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import DaemonError
from tests.support.paths import ROOT

PATIENCE_S = 90.0
"""Seconds that a test waits for a condition, an answer or an end: many times what they take on a machine that has
nothing else to do. No claim about the product: a claim about time is an assertion of its own."""


def wait_for(done: Callable[[], Any], what: str, seconds: float = PATIENCE_S, seen: Callable[[], object] = str) -> Any:
    """Poll until it holds; fail with what was waited for, and with what was seen last."""
    deadline = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}; last seen: {seen()}"
        time.sleep(0.05)
    return result


class Running:
    """One daemon's process, its control socket and what it wrote."""

    def __init__(self, name: str, control: Path, out: Path, err: Path) -> None:
        self.name = name
        self.control = control
        self.out = out
        self.err = err
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self, command: Sequence[str], environment: dict[str, str] | None = None, directory: Path = ROOT) -> None:
        """Start a life of it; what it writes is appended."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait_up(self) -> None:
        """Wait until it answers."""
        wait_for(lambda: self.status() or not self.alive, f"{self.name} to come up", seen=self.log)
        assert self.alive, self.log()

    def status(self) -> dict[str, Any]:
        try:
            return self.ask("status")
        except DaemonError:
            return {}

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        with ControlClient(self.control, PATIENCE_S) as client:
            return client.call(verb, **arguments)

    def members(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.ask("members")["members"]}

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines() if line.endswith("}")]

    def log(self) -> str:
        return self.err.read_text() if self.err.exists() else ""

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it and what it started, whatever state it is in."""
        if self.process is None:
            return
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
        if self.process.stdin is not None:
            self.process.stdin.close()


class Daemon(Running):
    """One daemon of a development fleet on loopback, started at once."""

    def __init__(self, folder: Path, name: str, *flags: str, join: str = "", listen: str = "127.0.0.1:0") -> None:
        super().__init__(name, folder / f"{name}.sock", folder / f"{name}.out", folder / f"{name}.err")
        self.folder = folder
        self.command = [
            sys.executable, "-m", "swarmd", "run", "--dev-fleet", str(folder / "fleet"), "--name", name,
            "--listen", listen, "--state", str(folder / name), "--control", str(self.control),
            "--http", "off", "--events", "json", "--log-level", "debug", *(["--join", join] if join else []), *flags,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self.spawn(self.command)

    def up(self) -> "Daemon":
        """Wait until it answers."""
        self.wait_up()
        return self


Start = Callable[..., Daemon]
"""What the fixture `start` gives: starts a `Daemon` in the test's folder, which ends with the test."""


class PlainDaemon(Running):
    """One `swarmd run --no-eye` with a folder of its own, without settings from outside, perhaps in a namespace."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], prefix: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(name, folder / "control", folder / "events", folder / "log")
        self.folder = folder
        self.address = ""
        self._command = [*prefix, sys.executable, "-m", "swarmd", "run", "--no-eye", "--http", "off"]
        self._command += ["--events", "json", "--state", str(folder / "state"), "--control", str(self.control)]
        self._command += arguments

    def start(self, join: Sequence[str] = ()) -> "PlainDaemon":
        """Start it and wait until it answers."""
        flags = [flag for address in join for flag in ("--join", address)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        self.spawn([*self._command, *flags], environment)
        self.wait_up()
        self.address = str(self.status()["address"])
        return self

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, wait, and make sure that it has ended."""
        if self.alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.kill(number)
        self.close()


def has_ended(pid: int) -> bool:
    """Whether a process does no more; one whose new parent has not collected it yet has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def alive_members(daemon: Daemon) -> int:
    return sum(state == "alive" for state in daemon.status().get("members", {}).values())


def digests(*daemons: Daemon) -> set[str]:
    return {daemon.status().get("digest", "") for daemon in daemons}


def all_see(daemons: Sequence[PlainDaemon], wanted: dict[str, str], seconds: float = PATIENCE_S) -> None:
    """Wait until each daemon lists exactly these names in these states."""
    wait_for(
        lambda: all(daemon.members() == wanted for daemon in daemons),
        f"{[daemon.name for daemon in daemons]} see {wanted}",
        seconds,
        lambda: {daemon.name: daemon.members() for daemon in daemons},
    )
