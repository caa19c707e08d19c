"""Desks of people and devices that share a stick alone, and do what a page of the documentation says, word by word.

Each command runs in a terminal of its own (a pty), so passphrases are typed and questions answered as a person would.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.daemons import wait_for
from tests.support.paths import ROOT

PASSPHRASE = "correct horse battery"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```sh ([a-z0-9-]+)( waits)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WAITS = re.compile(r'^(listens on|waits:) |"event": ?"up"', re.MULTILINE)
"""What a command prints that goes on by itself while others work."""
_ANSWERS = {b"passphrase of": PASSPHRASE, b"once more:": PASSPHRASE, b"(yes/no)": "yes"}


@dataclass
class Desks:
    """Everybody's machine is a folder; they share the stick alone."""

    home: Path
    page: str
    """Which page of the documentation."""
    knows: dict[str, str] = field(default_factory=dict)
    """What every desk's shell knows besides."""
    stays: frozenset[str] = frozenset({"office"})
    """Desks whose waiting commands go on until the end."""
    waiting: "list[Waiting]" = field(default_factory=list)

    def follow(self, section: str) -> str:
        """Do what a section of the page says, and give back what was on the screens."""
        page = (ROOT / "docs" / self.page).read_text()
        parts = _SECTION.split(page)
        body = dict(zip(parts[1::2], parts[2::2], strict=True))[section]
        found = _BLOCK.findall(body)
        assert found, f"docs/{self.page} has commands under {section!r}"
        said = []
        for desk, waits, commands in found:
            if waits:
                self.waiting.append(Waiting(self, desk, commands))
            else:
                said.append(self.run(desk, commands))
        for one in self.waiting:
            if one.desk not in self.stays:
                one.thread.join(60)
                assert one.status == 0, one.screen
                said.append(one.screen)
        return "".join(said)

    def close(self) -> None:
        """End what still waits."""
        for one in self.waiting:
            one.stop()

    def environment(self, desk: str) -> dict[str, str]:
        """What a desk's shell knows."""
        folder = self.home / desk
        folder.mkdir(exist_ok=True)
        known = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        known |= {"HOME": str(folder), "STICK": str(self.home / "stick"), **self.knows}
        return known | {"PATH": f"{Path(sys.executable).parent}:{known['PATH']}"}

    def run(self, desk: str, commands: str, expect: int = 0) -> str:
        """Run commands at one desk, in a terminal."""
        folder, environment = self.home / desk, self.environment(desk)
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "-eu", "-c", commands], environment)
        screen = b""
        answered = 0
        try:
            while select.select([terminal], [], [], 120)[0]:
                try:
                    piece = os.read(terminal, 65_536)
                except OSError:
                    break  # The terminal is gone: the commands have ended.
                screen += piece
                asked = [(screen.find(words, answered), words) for words in _ANSWERS]
                for at, words in sorted(one for one in asked if one[0] >= 0):
                    if screen.find(b":" if words == b"passphrase of" else words, at) >= 0:
                        os.write(terminal, f"{_ANSWERS[words]}\n".encode())
                        answered = len(screen)
                        break
            else:
                os.kill(process, signal.SIGKILL)  # Silent for two minutes: show what is on the screen.
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        finally:
            os.close(terminal)
        text = screen.decode(errors="replace")
        assert status == expect, f"{desk}: {commands}\nended with {status}:\n{text}"
        return text


class Waiting:
    """A command that goes on while others work."""

    def __init__(self, desks: Desks, desk: str, commands: str) -> None:
        self.desk = desk
        self.screen = ""
        self.status: int | None = None
        environment = desks.environment(desk)
        self._process = subprocess.Popen(
            ["bash", "-eu", "-c", f"exec {commands}"],
            cwd=desks.home / desk,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        wait_for(lambda: _WAITS.search(self.screen) or self.status is not None, f"{commands} waits", seen=self._seen)
        assert self.status is None, self.screen

    def _seen(self) -> str:
        return self.screen

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.screen += line.decode()
        self.status = self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self.thread.join(60)
