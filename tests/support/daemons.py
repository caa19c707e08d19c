"""Real `swarmd run` processes for integration tests: start, ask, kill, read what they said."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import DaemonError

UP_S = 30.0


def wait_for(done: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Poll until it holds; fail with what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        result = done()
        if result:
            return result
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)


class Daemon:
    """One daemon of a development fleet on loopback."""

    def __init__(self, folder: Path, name: str, *flags: str, join: str = "", listen: str = "127.0.0.1:0") -> None:
        self.name = name
        self.folder = folder
        self.control = folder / f"{name}.sock"
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        self.command = [
            sys.executable, "-m", "swarmd", "run", "--dev-fleet", str(folder / "fleet"), "--name", name,
            "--listen", listen, "--state", str(folder / name), "--control", str(self.control),
            "--http", "off", "--events", "json", "--log-level", "debug", *(["--join", join] if join else []), *flags,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )

    def up(self) -> "Daemon":
        """Wait until it answers."""
        wait_for(lambda: self.status() or not self.alive, f"{self.name} to come up\n{self.log()}", UP_S)
        assert self.alive, self.log()
        return self

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def status(self) -> dict[str, Any]:
        try:
            return self.ask("status")
        except DaemonError:
            return {}

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        with ControlClient(self.control) as client:
            return client.call(verb, **arguments)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines() if line.endswith("}")]

    def log(self) -> str:
        return self.err.read_text()

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def close(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)
        if self.process.stdin is not None:
            self.process.stdin.close()


def alive_members(daemon: Daemon) -> int:
    return sum(state == "alive" for state in daemon.status().get("members", {}).values())


def digests(*daemons: Daemon) -> set[str]:
    return {daemon.status().get("digest", "") for daemon in daemons}
