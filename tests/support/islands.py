"""Real daemons on two networks which cannot hear each other, and one with an interface in each. Needs root."""

from pathlib import Path

from tests.support.namespaces import Networks
from tests.support.radio_line import Lettered, devices

NAMES = "abcde"
JOINING = "c"
_NETWORKS = (("air", "10.7.0", (1, 2, 3)), ("sea", "10.8.0", (3, 4, 5)))
_JOIN = {"b": ["10.7.0.1:7946"], "c": ["10.7.0.1:7946", "10.8.0.4:7946"], "e": ["10.8.0.4:7946"]}


class Islands(Lettered):
    """a and b by `air`, d and e by `sea`, c by both. Nobody is told where to listen or what others are to be told."""

    def __init__(self, networks: Networks, folder: Path, patience_s: float) -> None:
        """Make the devices; nobody runs yet."""
        for network, prefix, members in _NETWORKS:
            networks.network(network)
            for index in members:
                networks.plug(index, network, f"{network}0", f"{prefix}.{index}/24")
        super().__init__(NAMES, devices(NAMES, folder, networks), patience_s)

    def start(self, names: str) -> None:
        """Each is told a member of its own island, the joining one a member of each."""
        for name in names:
            self.of(name).start(_JOIN.get(name, []))


ISLANDS = {who: dict.fromkeys(island, "alive") for island in ("ab", "de") for who in island}
"""What is seen before anybody joins the two."""
JOINED = {name: dict.fromkeys(NAMES, "alive") for name in NAMES}
"""What is seen when c has an interface in each."""
PARTED = {
    who: {**dict.fromkeys(island, "alive"), **dict.fromkeys(other, "unreachable"), JOINING: "failed"}
    for island, other in (("ab", "de"), ("de", "ab"))
    for who in island
}
"""What is seen when c was killed: its own host says that it has ended, and nobody knows more of the other island."""
