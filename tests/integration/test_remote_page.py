"""docs/remote.md, word by word: an observer on a laptop, and two operators at the door of a real daemon."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import PlainDaemon, wait_for
from tests.support.desks import Desks
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"),
]


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Desks]:
    (tmp_path / "stick").mkdir()
    knows = {"DRONE": "127.0.0.1", "DOOR": f"127.0.0.1:{own_port()}", "XDG_CONFIG_HOME": ""}
    made = Desks(tmp_path, "remote.md", knows, stays=frozenset({"laptop"}))
    yield made
    made.close()


@pytest.fixture
def drone(desks: Desks) -> Iterator[PlainDaemon]:
    """drone-1 and the laptop are enrolled; the office's copy of the fleet is on the laptop."""
    home = desks.home
    desks.run("laptop", "swarmd keys root fleet --name acme")
    desks.run("laptop", "swarmd keys enrol fleet drone-1 --swarm farm --out ../drone-1/identity")
    desks.run("laptop", "swarmd keys enrol fleet laptop --swarm farm --out identity")
    folder = home / "drone-1"
    config = ["--config", str(folder / "swarmd.toml"), "--identity", str(folder / "identity")]
    daemon = PlainDaemon("drone-1", folder / "life", [*config, "--name", "drone-1", "--listen", "127.0.0.1:0"])
    yield daemon
    daemon.stop(signal.SIGKILL)


def the_door(desks: Desks) -> str:
    """The configuration that the page shows, with the places of this test."""
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs" / "remote.md").read_text(), re.M | re.S)
    folder = desks.home / "drone-1"
    for name in ("operators.pem", "door.pem"):
        shown = shown.replace(f"/etc/swarmd/{name}", str(folder / name))
    shown = shown.replace("/run/credentials/swarmd.service/swarmd_door.key", str(folder / "door.key"))
    return shown.replace("[::]:7981", desks.knows["DOOR"])


def test_the_page_can_be_followed_word_by_word(desks: Desks, drone: PlainDaemon) -> None:
    config = desks.home / "drone-1" / "swarmd.toml"
    config.write_text('[log]\nlevel = "info"\n')
    drone.start()
    desks.knows["MEMBER"] = drone.address
    said = desks.follow("An observer on the laptop")
    assert re.search(r"drone-1 +alive", said)
    assert "started" in said
    assert "nothing is due" in said

    desks.follow("Certificates")
    config.write_text(config.read_text() + the_door(desks))
    check = f"swarmd check-config -c {config} --identity identity"
    desks.run("drone-1", check)
    assert drone.status()["operators"] == ""
    drone.ask("reload")
    wait_for(lambda: drone.status()["operators"] == desks.knows["DOOR"], "the door is open", seen=drone.log)
    said = desks.follow("The door")
    assert "drone-1" in said

    door = "--control tls://$DOOR"
    refused = desks.run("bob", f"swarmd reload {door}", expect=1)
    assert "bob may only look" in refused
    desks.run("alice", f"swarmd reload {door}")
    rows = json.loads(desks.run("alice", f"swarmd events --kind command --json {door}"))["events"]
    told = [(row["subject"], row["reason"].split(" from ")[0], "refused" in row["reason"]) for row in rows]
    assert ("reload", "by operator bob", True) in told
    assert ("reload", "by operator alice", False) in told

    # What is signed at the office goes in through the door as it does through a socket.
    desks.run("laptop", "mkdir -p .config/swarmd && cp -r ../alice/.config/swarmd/operator .config/swarmd/")
    said = desks.run("laptop", f'swarmd keys revoke fleet laptop --reason "left on a train" {door}')
    assert "revoke: taken" in said

    # Without her name on the list alice is out, and reads why.
    config.write_text(config.read_text().replace('"alice", ', ""))
    drone.ask("reload")
    wait_for(lambda: "does not list 'alice'" in desks.run("alice", f"swarmd status {door} || true"), "alice is out")
    assert "operator_refused" in drone.log()
    assert re.search(r"drone-1 +alive", desks.run("bob", f"swarmd members {door}"))
