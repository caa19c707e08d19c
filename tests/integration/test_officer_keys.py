"""docs/keys.md, word by word: four officers at their own desks, three real daemons, one thief."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmd.identity.fleet import Fleet
from swarmd.identity.renewal import due
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import decode_envelope
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.desks import Desks
from tests.support.exclusive import own_port

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Desks]:
    (tmp_path / "stick").mkdir()
    made = Desks(tmp_path, "keys.md", {"DESK": f"127.0.0.1:{own_port()}", "CONTROL": ""})
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
    one, two, thief = daemons.values()
    found_the_fleet_and_enrol(desks, list(daemons))
    one.start()
    two.start([one.address])
    thief.start([one.address])
    all_see([one, two, thief], dict.fromkeys(daemons, "alive"))
    desks.knows["CONTROL"] = str(one.control)

    # They work: what one finds, all know; until the thief is out, it knows too.
    find(one, 10.0)
    wait_for(lambda: [d.status()["detections"] for d in (one, two, thief)] == [1, 1, 1], "all know of the find")
    shut_out(desks, one, two)
    find(two, 90.0)
    wait_for(lambda: one.status()["detections"] == 2, "the others go on")
    assert thief.status()["detections"] == 1, "of which the thief hears nothing"

    fleet = Fleet(desks.home / "office" / "fleet")
    replace_an_officer(desks, fleet)
    who_comes_back_remembers(one, two, thief)
    replace_the_enrol_keys(desks, fleet, one, two)
    assert is_out(one, two)
    read_yesterday(desks)


def found_the_fleet_and_enrol(desks: Desks, names: list[str]) -> None:
    desks.follow("Make keys")
    assert "missing: root takes 2 signatures and has 1; 1 of: bob, carol" in desks.follow("Found the fleet")
    said = desks.follow("Let nodes in")
    assert said.count("waits: officers sign enrol-drone-") == 3
    office = desks.waiting[0].screen
    for name in names:
        assert f"{name} with the key SHA256:" in office
    assert office.count(": enrolled; node ") == 3
    assert not list((desks.home / "office" / "fleet" / "pending").glob("*")), "nothing waits any more"
    token = 'swarmd keys token ~/fleet drone-1 --at "$DESK"'
    assert "is node" in desks.run("office", token, expect=1), "a name is given once"


def shut_out(desks: Desks, one: PlainDaemon, two: PlainDaemon) -> None:
    wait_for(lambda: all(row["certificate"] for row in one.ask("trust_status")["members"]), "all tell")
    said = desks.follow("See who holds what")
    assert said.count(" alive ") == 3
    assert "nothing is due" in said
    said = desks.follow("Shut a node out")
    assert "drone-3 (node " in said
    assert "revoke: taken" in said
    assert "group: taken" in said
    wait_for(lambda: is_out(one, two), "the thief is out", seen=lambda: (one.members(), two.members()))
    wait_for(lambda: "group_key_changed" in two.log(), "the new group key is there", seen=two.log)


def is_out(*daemons: PlainDaemon) -> bool:
    return all(daemon.members().get("drone-3") not in ("alive", "suspect", "degraded") for daemon in daemons)


def replace_an_officer(desks: Desks, fleet: Fleet) -> None:
    said = desks.follow("Replace an officer")
    assert "out: carol" in said
    assert "in: dave" in said
    assert "root: taken" in said
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


def who_comes_back_remembers(one: PlainDaemon, two: PlainDaemon, thief: PlainDaemon) -> None:
    """The thief stays out and says why, as it hears it from whoever it greets; the others find each other."""
    two.stop(signal.SIGKILL)
    thief.stop(signal.SIGKILL)
    two.start([one.address])
    thief.start([one.address, two.address])
    wait_for(lambda: one.members().get("drone-2") == "alive", "drone-2 is back", seen=one.members)
    assert is_out(one, two)
    # What it remembers of others ends with its first questions: nobody answers.
    wait_for(lambda: thief.members().get("drone-1") != "alive", "nobody answers the thief", seen=thief.members)
    problem = wait_for(lambda: thief.status().get("problems"), "the thief knows", seen=thief.log)[0]
    assert "revoked: stolen at the north gate" in problem
    wait_for(lambda: "revoked: stolen at the north gate" in thief.log(), "and its log says so", seen=thief.log)
    assert re.search(r"alarm.*revoked: stolen at the north gate", thief.log())


def replace_the_enrol_keys(desks: Desks, fleet: Fleet, one: PlainDaemon, two: PlainDaemon) -> None:
    said = desks.follow("Replace the enrol keys")
    assert "root: taken" in said
    assert said.count("node: taken") == 2
    wait_for(lambda: two.ask("trust_status")["root"] == 3, "everybody follows")
    assert fleet.root().version == 3
    right = renewed(fleet)
    wait_for(lambda: two.ask("trust_status")["certificate"] in right, "drone-2 is renewed without a visit")
    two.stop(signal.SIGKILL)
    two.start([one.address])
    wait_for(lambda: one.members().get("drone-2") == "alive", "it is in with its new certificate", seen=one.members)
    assert two.ask("trust_status")["certificate"] in right
    assert two.status()["problems"] == []


def read_yesterday(desks: Desks) -> None:
    """What officers did and who was away, as one member has written it down."""
    said = " ".join(desks.follow("Read what happened").split())
    for told in (
        r"revoked drone-3 stolen at the north gate",
        r"group-key group key \d+ the swarm seals with a new key",
        r"root-replaced root 2 ",
        r"root-replaced root 3 ",
        r"failed drone-2 ",
        r"returned drone-2 ",
    ):
        assert re.search(told, said), f"{told} in: {said}"


def find(daemon: PlainDaemon, east_m: float) -> None:
    daemon.ask("observe", detections=[{"label": "crack", "score": 0.8, "east_m": east_m, "north_m": 2.0}])


def renewed(fleet: Fleet) -> set[str]:
    """Digests of the certificates that the enrol keys in force have signed, as members tell theirs."""
    assert due(fleet, "farm") == []
    best = [fleet.trust_of("farm").certificate_statement(NodeId(one.node)) for one in fleet.nodes("farm")]
    return {decode_envelope(one).digest.hex()[:16] for one in best if one is not None}
