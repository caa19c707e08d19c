"""Real daemons without an eye, for tests of identities and networks: start, ask, wait, kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import ControlError

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Daemon:
    """One `swarmd run --no-eye`."""

    name: str
    folder: Path
    arguments: list[str]
    prefix: Sequence[str] = ()
    process: "subprocess.Popen[bytes] | None" = None
    address: str = ""
    _lines: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines = self.folder / "events"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    def start(self, join: Sequence[str] = ()) -> "Daemon":
        command = [*self.prefix, sys.executable, "-m", "swarmd", "run", "--no-eye", "--http", "off", "--events", "json"]
        command += ["--state", str(self.folder / "state"), "--control", str(self.control), *self.arguments]
        for address in join:
            command += ["--join", address]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        with self._lines.open("ab") as lines, (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=lines, stderr=log, cwd=ROOT, env=environment
            )
        wait_for(lambda: self._is_up(), 30, f"{self.name} is up", self.log)
        return self

    def _is_up(self) -> bool:
        assert self.process is not None, "started above"
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")
        try:
            self.address = str(self.ask("status")["address"])
        except ControlError:
            return False
        return True

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        with ControlClient(self.control) as client:
            return client.call(verb, **arguments)

    def members(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.ask("members")["members"]}

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.read_text().splitlines() if line.endswith("}")]

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text()[-3_000:] if path.exists() else ""

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None, "has been started"
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(condition: Callable[[], bool], seconds: float, what: str, context: Callable[[], object] = str) -> None:
    """Look ten times a second until it holds; fails the test with what was seen last."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}; last seen: {context()}")
        time.sleep(0.1)


def all_see(daemons: Sequence[Daemon], wanted: dict[str, str], seconds: float = 15) -> None:
    """Wait until each daemon lists exactly these names in these states."""
    wait_for(
        lambda: all(daemon.members() == wanted for daemon in daemons),
        seconds,
        f"{[d.name for d in daemons]} see {wanted}",
        lambda: {daemon.name: daemon.members() for daemon in daemons},
    )
