"""Real daemons at two sites behind routers, and a relay outside that both reach. Needs root and nft.

Each router translates addresses (NAT) and forwards the daemon's port, so a daemon is told what others are to call it.
"""

from pathlib import Path

from swarmd.identity.files import dev_fleet_secret
from tests.support.daemons import PlainDaemon
from tests.support.namespaces import Networks
from tests.support.radio_line import Lettered

NAMES = "arb"
_OUTSIDE = {"a": "10.9.0.11", "r": "10.9.0.2", "b": "10.9.0.12"}
_ROUTERS = (11, 12)
_NAT = """
table ip translated {{
    chain before {{
        type nat hook prerouting priority -100
        iifname "wan0" tcp dport 7946 dnat to {inside}
        iifname "wan0" udp dport 7946 dnat to {inside}
    }}
    chain after {{
        type nat hook postrouting priority 100
        oifname "wan0" masquerade
    }}
}}
"""


class Sites(Lettered):
    """a behind one router, b behind the other, r outside. Nobody but r can be reached yet by the other side."""

    def __init__(self, networks: Networks, folder: Path, patience_s: float) -> None:
        """Make devices and routers; nobody runs yet."""
        self._networks = networks
        networks.network("wan")
        networks.plug(2, "wan", "eth0", f"{_OUTSIDE['r']}/24")
        for site, (index, router) in enumerate(zip((1, 3), _ROUTERS, strict=True), 1):
            networks.network(f"lan{site}")
            networks.plug(index, f"lan{site}", "eth0", f"192.168.{site}.2/24")
            networks.plug(router, f"lan{site}", "lan0", f"192.168.{site}.1/24")
            networks.plug(router, "wan", "wan0", f"10.9.0.{router}/24")
            networks.ip(networks.device(index), "route", "add", "default", "via", f"192.168.{site}.1")
            networks.exec(networks.device(router), "sysctl", "-qw", "net.ipv4.ip_forward=1")
            networks.exec(networks.device(router), "nft", _NAT.format(inside=f"192.168.{site}.2"))
        self.block()
        dev_fleet_secret(folder / "fleet")
        fleet = ["--dev-fleet", str(folder / "fleet")]
        super().__init__(
            NAMES,
            [
                PlainDaemon(
                    name,
                    folder / name,
                    [*fleet, "--name", name],
                    (*networks.prefix(index), "env", f"SWARMD_TRANSPORT__ADVERTISE={_OUTSIDE[name]}:7946"),
                )
                for index, name in enumerate(NAMES, 1)
            ],
            patience_s,
        )

    def start(self) -> None:
        """The relay first; the two others are told its address and not each other's."""
        for name in "rab":
            self.of(name).start([] if name == "r" else [f"{_OUTSIDE['r']}:7946"])
        self.see(self.all_alive)

    def block(self) -> None:
        """From here on nothing passes between the two routers."""
        self._networks.part("wan", [_ROUTERS])

    def unblock(self) -> None:
        """From here on it passes."""
        self._networks.part("wan", [])
