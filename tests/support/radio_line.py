"""Real daemons a–b–c–d–e in namespaces on one bridge, each hearing its neighbours only. Needs root and nft."""

import itertools
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from swarmd.identity.files import dev_fleet_secret
from tests.support import namespaces
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.namespaces import Networks

NAMES = "abcde"
_AIR = "r"


def marks(timeout_s: int) -> list[pytest.MarkDecorator]:
    """What a test with a line is marked with; it is skipped, and says so, where there can be none."""
    missing = pytest.mark.skipif(shutil.which("nft") is None, reason="nftables is not installed (apt install nftables)")
    return [*namespaces.marks(timeout_s), missing]


def devices(names: str, folder: Path, networks: Networks) -> list[PlainDaemon]:
    """A daemon for each letter on a device of its own, numbered from 1, all of one fleet; nobody runs yet."""
    dev_fleet_secret(folder / "fleet")
    fleet = ["--dev-fleet", str(folder / "fleet")]
    return [
        PlainDaemon(name, folder / name, [*fleet, "--name", name], networks.prefix(index))
        for index, name in enumerate(names, 1)
    ]


class Lettered:
    """Daemons of one letter each, and how they see each other; stopped by `close`."""

    def __init__(self, names: str, daemons: Sequence[PlainDaemon], patience_s: float) -> None:
        """Nobody runs yet.

        Args:
            names: One letter each, in the order of the daemons.
            daemons: Their processes to be.
            patience_s: How long anything is waited for.
        """
        self.names, self.daemons, self._patience_s = names, daemons, patience_s
        self.all_alive = {name: dict.fromkeys(names, "alive") for name in names}

    def of(self, name: str) -> PlainDaemon:
        """The daemon of a letter."""
        return self.daemons[self.names.index(name)]

    def counts(self, name: str) -> dict[str, int]:
        """What a daemon has counted in this life."""
        return dict(self.of(name).ask("counters")["own"])

    def kill(self, name: str) -> None:
        """End a daemon at once."""
        self.of(name).stop(signal.SIGKILL)

    def see(self, wanted: dict[str, dict[str, str]]) -> float:
        """Wait until daemons see others so: by name, by name the state. Seconds that took."""

        def seen() -> dict[str, dict[str, str]]:
            return {name: self.of(name).members() for name in wanted}

        return self.wait(
            lambda: all(
                {other: states.get(other) for other in wanted[name]} == wanted[name] for name, states in seen().items()
            ),
            f"members seen as {wanted}",
            seen,
        )

    def tell(self, name: str) -> float:
        """An event of the first comes to the last. Seconds that took."""
        self.daemons[0].ask("event", name=name)
        last = self.daemons[-1]
        return self.wait(lambda: any(row["subject"] == name for row in last.events()), f"the event {name} at the last")

    def failures(self) -> list[tuple[str, str]]:
        """Every `failed` that anybody said: who, about whom."""
        said = ((daemon.name, event) for daemon in self.daemons for event in daemon.events())
        return [(name, event["subject"]) for name, event in said if event["event"] == "failed"]

    def wait(self, done: Callable[[], bool], what: str, seen: Callable[[], object] = str) -> float:
        """Seconds until something holds."""
        begun = time.monotonic()
        wait_for(done, what, self._patience_s, seen)
        return time.monotonic() - begun

    def close(self) -> None:
        """Stop everybody."""
        for daemon in self.daemons:
            daemon.stop(signal.SIGKILL)


class RadioLine(Lettered):
    """The daemons and what lies between them."""

    def __init__(
        self, networks: Networks, folder: Path, patience_s: float, *flags: str, names: str = NAMES, reach: int = 1
    ) -> None:
        """Make the devices; nobody runs yet.

        Args:
            networks: Where.
            folder: For keys, states and logs.
            patience_s: How long anything is waited for.
            flags: For each daemon; such as `TRANSPORT__CASTS=off` are settings.
            names: One letter each.
            reach: How many on each side a daemon hears.
        """
        self._networks = networks
        numbers = range(1, len(names) + 1)
        self._hidden = [(a, b) for a, b in itertools.combinations(numbers, 2) if b - a > reach]
        dev_fleet_secret(folder / "fleet")
        networks.network(_AIR)
        for index in numbers:
            networks.plug(index, _AIR, "eth0", f"10.77.0.{index}/24")
        networks.part(_AIR, self._hidden)
        settings = [f"SWARMD_{flag}" for flag in flags if "=" in flag]
        flags = ("--dev-fleet", str(folder / "fleet"), *(flag for flag in flags if "=" not in flag))
        daemons = [
            PlainDaemon(
                name,
                folder / name,
                [*flags, "--name", name, "--listen", f"10.77.0.{index}:7946"],
                (*networks.prefix(index), "env", *settings),
            )
            for index, name in enumerate(names, 1)
        ]
        super().__init__(names, daemons, patience_s)

    def start(self) -> None:
        """Each is told the one before it; until everybody sees everybody over hops."""
        for index, daemon in enumerate(self.daemons, 1):
            daemon.start([f"10.77.0.{index - 1}:7946"] if index > 1 else [])
        self.see(self.all_alive)
        self.wait(lambda: all(daemon.status().get("mesh") for daemon in self.daemons), "views that are a mesh")

    def restart(self, name: str) -> None:
        """A daemon that was killed begins again beside both its neighbours."""
        at = self.names.index(name) + 1
        self.daemons[at - 1].start([f"10.77.0.{at - 1}:7946", f"10.77.0.{at + 1}:7946"])

    def cut(self, *pairs: str) -> None:
        """From here on these pairs of neighbours, such as "cd", hear each other no more either."""
        cut = [(self.names.index(pair[0]) + 1, self.names.index(pair[1]) + 1) for pair in pairs]
        self._networks.part(_AIR, [*self._hidden, *cut])

    def sent(self) -> int:
        """Packets that all devices have sent so far, acknowledgements of TCP and all."""
        counter = "/sys/class/net/eth0/statistics/tx_packets"
        numbers = range(1, len(self.names) + 1)
        return sum(int(self._networks.exec(self._networks.device(index), "cat", counter)) for index in numbers)


ALL_ALIVE = {name: dict.fromkeys(NAMES, "alive") for name in NAMES}
"""Everybody sees everybody."""
CUT = {
    **{name: {"d": "unreachable", "e": "unreachable"} for name in "abc"},
    **{name: {"a": "unreachable", "b": "unreachable", "c": "unreachable"} for name in "de"},
}
"""What is seen where c and d hear each other no more."""
KILLED = {
    **{name: {"c": "failed", "d": "unreachable", "e": "unreachable"} for name in "ab"},
    **{name: {"a": "unreachable", "b": "unreachable", "c": "failed"} for name in "de"},
}
"""What is seen where c was killed."""
