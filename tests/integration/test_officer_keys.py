"""docs/keys.md, word by word: four officers at their own desks, three real daemons, one thief.

Each command runs in a terminal of its own (a pty), so passphrases are typed and questions answered as a person would.
"""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swarmd.identity.fleet import Fleet
from swarmd.identity.renewal import due
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import decode_envelope
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.paths import ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PASSPHRASE = "correct horse battery"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```sh ([a-z0-9-]+)( waits)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WAITS = re.compile(r"^(listens on|waits:) ", re.MULTILINE)
"""What a command prints that goes on by itself while others work."""
_ANSWERS = {b"passphrase of": PASSPHRASE, b"once more:": PASSPHRASE, b"(yes/no)": "yes"}


@dataclass
class Desks:
    """Everybody's machine is a folder; they share the stick alone."""

    home: Path
    control: str = ""
    at: str = ""
    """Where the office listens for devices."""
    waiting: "list[Waiting]" = field(default_factory=list)

    def follow(self, section: str) -> str:
        """Do what a section of the page says, and give back what was on the screens."""
        page = (ROOT / "docs" / "keys.md").read_text()
        parts = _SECTION.split(page)
        body = dict(zip(parts[1::2], parts[2::2], strict=True))[section]
        found = _BLOCK.findall(body)
        assert found, f"docs/keys.md has commands under {section!r}"
        said = []
        for desk, waits, commands in found:
            if waits:
                self.waiting.append(Waiting(self, desk, commands))
            else:
                said.append(self.run(desk, commands))
        for one in self.waiting:
            if one.desk != "office":
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
        known |= {"HOME": str(folder), "STICK": str(self.home / "stick"), "CONTROL": self.control, "DESK": self.at}
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
        wait_for(lambda: _WAITS.search(self.screen) or self.status is not None, f"{commands} waits", 60, self._seen)
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
        self.thread.join(10)


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Desks]:
    (tmp_path / "stick").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Desks(tmp_path, at=f"127.0.0.1:{server.getsockname()[1]}")
    yield made
    made.close()


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
    said = desks.follow("Let nodes in")
    assert said.count("waits: officers sign enrol-drone-") == 3
    office = desks.waiting[0].screen
    for name in daemons:
        assert f"{name} with the key SHA256:" in office
    assert office.count(": enrolled; node ") == 3
    assert not list((desks.home / "office" / "fleet" / "pending").glob("*")), "nothing waits any more"
    token = 'swarmd keys token ~/fleet drone-1 --at "$DESK"'
    assert "is node" in desks.run("office", token, expect=1), "a name is given once"
    one, two, thief = daemons.values()
    one.start()
    two.start([one.address])
    thief.start([one.address])
    everybody = dict.fromkeys(daemons, "alive")
    all_see([one, two, thief], everybody)

    desks.control = str(one.control)
    wait_for(lambda: all(row["certificate"] for row in one.ask("trust_status")["members"]), "all tell", 20)
    said = desks.follow("See who holds what")
    assert said.count(" alive ") == 3
    assert "nothing is due" in said
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

    # The thief says why it is out: it hears it from whoever it greets.
    problem = wait_for(lambda: thief.status().get("problems"), "the thief knows", 30, thief.log)[0]
    assert "revoked: stolen at the north gate" in problem
    wait_for(lambda: "revoked: stolen at the north gate" in thief.log(), "and its log says so", 10, thief.log)
    assert re.search(r"alarm.*revoked: stolen at the north gate", thief.log())

    said = desks.follow("Replace the enrol keys")
    assert "root: taken" in said
    assert said.count("node: taken") == 2
    wait_for(lambda: two.ask("trust_status")["root"] == 3, "everybody follows", 20)
    assert fleet.root().version == 3
    right = renewed(fleet)
    wait_for(lambda: two.ask("trust_status")["certificate"] in right, "drone-2 is renewed without a visit", 20)
    two.stop(signal.SIGKILL)
    two.start([one.address])
    wait_for(lambda: one.members().get("drone-2") == "alive", "it is in with its new certificate", 20, one.members)
    assert two.ask("trust_status")["certificate"] in right
    assert two.status()["problems"] == []
    assert is_out()


def renewed(fleet: Fleet) -> set[str]:
    """Digests of the certificates that the enrol keys in force have signed, as members tell theirs."""
    assert due(fleet, "farm") == []
    best = [fleet.trust_of("farm").certificate_statement(NodeId(one.node)) for one in fleet.nodes("farm")]
    return {decode_envelope(one).digest.hex()[:16] for one in best if one is not None}
