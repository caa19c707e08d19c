"""Real daemons on networks as they are: no default route, several at once, link-local, and addresses that change.

Nothing is configured: the daemons listen where they do by default, and are told one member's address.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmd.identity.files import dev_fleet_secret
from tests.support import namespaces
from tests.support.daemons import PATIENCE_S, PlainDaemon, all_see, wait_for
from tests.support.namespaces import Networks

pytestmark = namespaces.marks(120)


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Networks and devices that go with the test."""
    with Networks() as made:
        yield made


class Fleet:
    """Daemons on devices, stopped at the end of the test."""

    def __init__(self, networks: Networks, folder: Path) -> None:
        self._networks, self._folder = networks, folder
        self.daemons: list[PlainDaemon] = []
        dev_fleet_secret(folder / "fleet")

    def start(self, index: int, join: str = "", *flags: str) -> PlainDaemon:
        """A daemon on a device."""
        arguments = ["--dev-fleet", str(self._folder / "fleet"), "--name", f"n{index}", "--no-eye", *flags]
        daemon = PlainDaemon(f"n{index}", self._folder / f"n{index}", arguments, self._networks.prefix(index))
        self.daemons.append(daemon)
        return daemon.start([join] if join else [])

    def all_alive(self, seconds: float = PATIENCE_S) -> None:
        """Everybody sees everybody."""
        all_see(self.daemons, {daemon.name: "alive" for daemon in self.daemons}, seconds)

    def failures(self) -> list[dict[str, object]]:
        """Every `failed` that any of them said."""
        return [event for daemon in self.daemons for event in daemon.events() if event["event"] == "failed"]


@pytest.fixture
def fleet(networks: Networks, tmp_path: Path) -> Iterator[Fleet]:
    """Nobody yet."""
    made = Fleet(networks, tmp_path)
    yield made
    for daemon in made.daemons:
        daemon.stop(signal.SIGKILL)


def address_at(watcher: PlainDaemon, name: str) -> str:
    """What one daemon holds for another's address."""
    return next(str(row["address"]) for row in watcher.ask("members")["members"] if row["name"] == name)


@pytest.mark.parametrize("transport", ["udp", "zmq"])
def test_a_swarm_forms_without_a_default_route(networks: Networks, fleet: Fleet, transport: str) -> None:
    networks.network("air")
    for index in (1, 2, 3):
        networks.plug(index, "air", "wlan0", f"10.7.0.{index}/24")
    assert networks.ip(networks.device(1), "route", "show", "default") == ""
    first = fleet.start(1, "", "--transport", transport)
    assert first.status()["address"] == "10.7.0.1:7946"
    for index in (2, 3):
        fleet.start(index, "10.7.0.1:7946", "--transport", transport)
    fleet.all_alive()


def test_an_address_change_in_flight_fails_nobody(networks: Networks, fleet: Fleet) -> None:
    networks.network("air")
    for index in (1, 2, 3):
        networks.plug(index, "air", "wlan0", f"10.7.0.{index}/24")
    for index in (1, 2, 3):
        fleet.start(index, "" if index == 1 else "10.7.0.1:7946")
    fleet.all_alive()
    networks.ip(networks.device(2), "address", "delete", "10.7.0.2/24", "dev", "wlan0")
    networks.ip(networks.device(2), "address", "add", "10.7.0.99/24", "dev", "wlan0")
    for watcher in fleet.daemons:
        wait_for(lambda here=watcher: address_at(here, "n2") == "10.7.0.99:7946", "the new address")
    fleet.all_alive()
    assert fleet.failures() == []


@pytest.mark.parametrize("transport", ["udp", "zmq"])
def test_a_network_that_is_numbered_anew_fails_nobody(networks: Networks, fleet: Fleet, transport: str) -> None:
    """An access point gives everybody an address of another network at once: nobody can tell anybody by the old ones,
    and mDNS is off here. What they cast shows where they are."""
    networks.network("air")
    for index in (1, 2, 3):
        networks.plug(index, "air", "wlan0", f"10.7.0.{index}/24")
    for index in (1, 2, 3):
        fleet.start(index, "" if index == 1 else "10.7.0.1:7946", "--transport", transport)
    fleet.all_alive()
    for index in (1, 2, 3):
        networks.ip(networks.device(index), "address", "flush", "dev", "wlan0")
        networks.ip(networks.device(index), "address", "add", f"10.9.0.{index}/24", "dev", "wlan0")
    for watcher in fleet.daemons:
        for index in (1, 2, 3):
            wait_for(
                lambda here=watcher, name=f"n{index}": address_at(here, name).startswith("10.9.0."),
                f"the new address of n{index}",
                seen=watcher.members,
            )
    fleet.all_alive()
    if transport == "udp":  # TCP alone takes longer to notice than a member may be silent.
        assert fleet.failures() == []


def test_a_node_without_address_says_so_and_joins_when_it_gets_one(networks: Networks, fleet: Fleet) -> None:
    networks.network("air")
    networks.plug(1, "air", "wlan0", "10.7.0.1/24")
    networks.plug(2, "air", "wlan0")
    fleet.start(1)
    late = fleet.start(2, "10.7.0.1:7946")
    wait_for(lambda: "loopback-advertised" in late.log(), "the alarm")
    assert "no interface has an address" in late.log()
    networks.ip(networks.device(2), "address", "add", "10.7.0.2/24", "dev", "wlan0")
    fleet.all_alive()
    # Who answers is met, whatever address it says that it has: it looks for its own from time to time.
    wait_for(lambda: late.status()["address"] == "10.7.0.2:7946", "its own address", seen=late.log)
    fleet.all_alive()


@pytest.mark.parametrize("transport", ["udp", "zmq", "dds"])
def test_of_two_networks_the_one_that_answers_is_taken(networks: Networks, fleet: Fleet, transport: str) -> None:
    for number, network in enumerate(("air", "sea")):
        networks.network(network)
        for index in (1, 2):
            networks.plug(index, network, f"{network}0", f"10.{number + 7}.0.{index}/24")
    first = fleet.start(1, "", "--transport", transport)
    ways = ["10.7.0.1:7946", "10.8.0.1:7946"]
    # Over DDS one of them stands for all: it is a name, every frame goes by both networks.
    assert first.status()["address"] == (ways[0] if transport == "dds" else "+".join(ways))
    fleet.start(2, ways[0] if transport == "dds" else ways[1], "--transport", transport)
    fleet.all_alive()
    for cut, left in (("air", "sea"), ("sea", "air")):
        networks.ip(networks.hub, "link", "set", left, "up")
        networks.ip(networks.hub, "link", "set", cut, "down")  # The devices' own interfaces stay up: silence.
        before = {daemon.name: received(daemon) for daemon in fleet.daemons}
        for daemon in fleet.daemons:
            wait_for(
                lambda here=daemon, begun=before[daemon.name]: received(here) > begun + 10,
                f"frames without {cut}",
                seen=lambda here=daemon: (here.members(), here.status()["transport"]),
            )
        fleet.all_alive()
    if transport != "zmq":
        assert fleet.failures() == []


def received(daemon: PlainDaemon) -> int:
    """Small frames that came in."""
    return int(daemon.status()["transport"].get("datagrams_in", 0))


def test_a_relay_joins_two_networks(networks: Networks, fleet: Fleet) -> None:
    for number, (network, members) in enumerate((("air", (1, 2)), ("sea", (2, 3)))):
        networks.network(network)
        for index in members:
            networks.plug(index, network, f"{network}0", f"10.{number + 7}.0.{index}/24")
    fleet.start(1)
    fleet.start(2, "10.7.0.1:7946")
    fleet.start(3, "10.8.0.2:7946")
    for daemon in fleet.daemons:
        wait_for(lambda here=daemon: set(here.members()) == {"n1", "n2", "n3"}, f"{daemon.name} knows all")
    wait_for(lambda: fleet.daemons[1].members() == {"n1": "alive", "n2": "alive", "n3": "alive"}, "the relay sees both")
    wait_for(lambda: fleet.daemons[2].members()["n2"] == "alive", "its neighbour sees the relay")


def test_link_local_ipv6_is_enough(networks: Networks, fleet: Fleet) -> None:
    networks.network("air")
    for index in (1, 2, 3):
        networks.plug(index, "air", "wlan0", ipv6=True)
    hosts = {index: wait_for(lambda at=index: link_local(networks, at), "an address") for index in (1, 2, 3)}
    first = fleet.start(1)
    assert first.status()["address"] == f"[{hosts[1]}]:7946"
    for index in (2, 3):
        fleet.start(index, f"[{hosts[1]}]:7946")
    fleet.all_alive()


def link_local(networks: Networks, index: int) -> str:
    """The device's link-local address once the kernel lets it be used, or ""."""
    shown = networks.ip(networks.device(index), "-o", "-6", "address", "show", "dev", "wlan0", "scope", "link")
    return "" if "tentative" in shown or not shown else shown.split()[3].partition("/")[0]
