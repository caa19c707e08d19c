"""Real daemons: a member flies between two islands that never hear each other, and loses its power on the way.

Its radio gets another address on each island, as from each one's access point. Until the islands hold each other for
failed and a flight is over some 15 s pass.
"""

from pathlib import Path

import pytest

from tests.support import namespaces
from tests.support.namespaces import Networks
from tests.support.radio_line import Lettered, devices

pytestmark = [*namespaces.marks(300), pytest.mark.slow]
PATIENCE_S = 60.0
NAMES, MULE = "abm", "m"
_NETWORKS = {"air": "10.7.0", "sea": "10.8.0"}
SAID = [f"event-{number}" for number in range(5)]


class Flight(Lettered):
    """a on `air`, b on `sea`, m where it flies; `sky` is on the way, where nobody hears it."""

    def __init__(self, networks: Networks, folder: Path) -> None:
        """Make the devices; nobody runs yet."""
        self._networks = networks
        for network in (*_NETWORKS, "sky"):
            networks.network(network)
        networks.plug(1, "air", "wlan0", "10.7.0.1/24")
        networks.plug(2, "sea", "wlan0", "10.8.0.2/24")
        networks.plug(3, "sky", "wlan0")
        super().__init__(NAMES, devices(NAMES, folder, networks), PATIENCE_S)

    def fly(self, network: str) -> None:
        """The mule's radio is in this network from here on, with an address of it."""
        networks, device = self._networks, self._networks.device(3)
        networks.ip(networks.hub, "link", "set", "sky3", "master", network)
        networks.ip(device, "address", "flush", "dev", "wlan0")
        if network in _NETWORKS:
            networks.ip(device, "address", "add", f"{_NETWORKS[network]}.3/24", "dev", "wlan0")

    def told(self, name: str) -> list[str]:
        """The events that a daemon was told, in the order in which it was."""
        return [event["subject"] for event in self.of(name).events() if event["subject"] in SAID]


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_mule_brings_events_and_facts_across_whatever_happens_on_the_way(tmp_path: Path, loses_power: bool) -> None:
    with Networks() as networks:
        flight = Flight(networks, tmp_path)
        try:
            flight.fly("air")
            for name in NAMES:
                flight.of(name).start(["10.7.0.1:7946"] if name == MULE else [])
            flight.see({"a": {"a": "alive", MULE: "alive"}})
            flight.fly("sea")
            flight.wait(lambda: set(flight.of("b").members()) == set(NAMES), "all known at the far island")
            flight.fly("air")
            flight.see({MULE: {"a": "alive", "b": "failed"}})

            for number, name in enumerate(SAID):
                flight.of("a").ask("event", name=name)
                flight.of("a").ask("observe", detections=[_seen(number)])
            flight.wait(lambda: flight.of(MULE).status()["objects"] == len(SAID), "all that was seen, at the mule")
            flight.wait(lambda: flight.told(MULE) == SAID, "all events, at the mule")
            flight.fly("sky")
            flight.see({MULE: {"a": "failed"}})
            if loses_power:
                flight.kill(MULE)
            flight.fly("sea")
            if loses_power:
                flight.of(MULE).start(["10.7.0.1:7946"])
            flight.wait(lambda: flight.of("b").status()["objects"] == len(SAID), "all that was seen, at the far island")
            flight.wait(lambda: flight.told("b") == SAID, "all events in order", lambda: flight.told("b"))
            assert flight.told(MULE) == SAID, "nothing is told twice"
        finally:
            flight.close()


def _seen(number: int) -> dict[str, object]:
    return {
        "label": "hot-spot", "score": 0.9, "east_m": 20.0 * number, "north_m": 0.0, "covariance_m2": [0.01, 0.0, 0.01],
        "track": f"x{number}", "event": "new",
    }  # fmt: skip
