"""docs/keys.md, word by word: four officers at their own desks, three real daemons, one thief.

Each command runs in a terminal of its own (a pty), so passphrases are typed and questions answered as a person would.
"""

import os
import pty
import re
import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swarmd.identity.fleet import Fleet
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.paths import ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PASSPHRASE = "correct horse battery"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```sh ([a-z0-9-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANSWERS = {b"passphrase of": PASSPHRASE, b"once more:": PASSPHRASE, b"(yes/no)": "yes"}


@dataclass
class Desks:
    """Everybody's machine is a folder; they share the stick alone."""

    home: Path
    control: str = ""

    def follow(self, section: str) -> str:
        """Do what a section of the page says, and give back what was on the screens."""
        page = (ROOT / "docs" / "keys.md").read_text()
        parts = _SECTION.split(page)
        body = dict(zip(parts[1::2], parts[2::2], strict=True))[section]
        found = _BLOCK.findall(body)
        assert found, f"docs/keys.md has commands under {section!r}"
        return "".join(self.run(desk, commands) for desk, commands in found)

    def run(self, desk: str, commands: str, expect: int = 0) -> str:
        """Run commands at one desk, in a terminal."""
        folder = self.home / desk
        folder.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        environment |= {"HOME": str(folder), "STICK": str(self.home / "stick"), "CONTROL": self.control}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "-eu", "-c", commands], environment)
        screen = b""
        answered = 0
        try:
            while select.select([terminal], [], [], 60)[0]:
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
                os.kill(process, signal.SIGKILL)  # Silent for a minute: show what is on the screen.
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        finally:
            os.close(terminal)
        text = screen.decode(errors="replace")
        assert status == expect, f"{desk}: {commands}\nended with {status}:\n{text}"
        return text


@pytest.fixture
def desks(tmp_path: Path) -> Desks:
    (tmp_path / "stick").mkdir()
    return Desks(tmp_path)


@pytest.fixture
def daemons(desks: Desks) -> Iterator[dict[str, PlainDaemon]]:
    found: dict[str, PlainDaemon] = {}
    for name in ("drone-1", "drone-2", "drone-3"):
        home = desks.home / name
        arguments = ["--identity", str(home / "identity"), "--listen", "127.0.0.1:0"]
        found[name] = PlainDaemon(name, home, arguments)
    yield found
    for daemon in found.values():
        daemon.stop(signal.SIGKILL)


def test_the_page_can_be_followed_word_by_word(desks: Desks, daemons: dict[str, PlainDaemon]) -> None:
    desks.follow("Make keys")
    assert "missing: root takes 2 signatures and has 1; 1 of: bob, carol" in desks.follow("Found the fleet")
    desks.follow("Let nodes in")
    one, two, thief = daemons.values()
    one.start()
    two.start([one.address])
    thief.start([one.address])
    everybody = dict.fromkeys(daemons, "alive")
    all_see([one, two, thief], everybody)

    desks.control = str(one.control)
    said = desks.follow("Shut a node out")
    assert "drone-3 (node " in said
    assert "revoke: taken" in said
    assert "group: taken" in said

    def is_out() -> bool:
        return all(d.members().get("drone-3") not in ("alive", "suspect", "degraded") for d in (one, two))

    wait_for(is_out, "the thief is out", 20, lambda: (one.members(), two.members()))
    wait_for(lambda: "group_key_changed" in two.log(), "the new group key is there", 20, two.log)

    said = desks.follow("Replace an officer")
    assert "out: carol" in said
    assert "in: dave" in said
    assert "root: taken" in said
    fleet = Fleet(desks.home / "office" / "fleet")
    assert fleet.root().version == 2
    if "next: swarm farm: say again who is out" in said:
        again = 'swarmd keys prepare revoke ~/fleet --again --swarm farm --reason "said again" -o "$STICK"/again'
        desks.run("office", again)
        desks.run("alice", 'swarmd keys sign "$STICK"/again --key alice')
        desks.run("dave", 'swarmd keys sign "$STICK"/again --key dave')
        desks.run("office", 'swarmd keys submit "$STICK"/again --fleet ~/fleet --control "$CONTROL"')
    assert len(fleet.trust_of("farm").revoked) == 1

    # Carol's old key shuts nobody out any more, and says so before it asks for a passphrase.
    prepare = 'swarmd keys prepare revoke ~/fleet drone-2 --swarm farm --reason x -o "$STICK"/no'
    desks.run("office", prepare)
    assert "carol is a key of" in desks.run("carol", 'swarmd keys sign "$STICK"/no --key carol', expect=1)

    # Who comes back remembers: the thief stays out, the others find each other.
    two.stop(signal.SIGKILL)
    thief.stop(signal.SIGKILL)
    two.start([one.address])
    thief.start([one.address, two.address])
    wait_for(lambda: one.members().get("drone-2") == "alive", "drone-2 is back", 20, one.members)
    assert is_out()
    assert thief.members().get("drone-1") != "alive"
