"""Nodes of a real fleet's folder in the small network, and statements handed to them as `swarmd keys push` does."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from swarmd.identity.fleet import Fleet, create_fleet
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Command, MemberState
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.requests import AddStatement
from swarmd_protocols.trust.trust import Trust
from tests.support.swim_net import Net

CRYPTO = NaClCrypto()
ALIVE = MemberState.ALIVE


class FleetNet(Net):
    """Nodes with identities of a real fleet's folder."""

    def __init__(self, fleet: Fleet, identities: list[Identity]) -> None:
        self.fleet, self.identities = fleet, identities
        super().__init__(len(identities), crypto=CRYPTO)

    def make(self, index: int, journal: dict[bytes, bytes]) -> Node:
        seeds = () if index == 0 else (self.address(0),)
        config = NodeConfig(seeds=seeds, swim=self.swim)
        rng = Random(self.rng.getrandbits(64))
        return Node(self.identities[index], config, self.crypto, rng, journal, [], self.address(index))

    def push(self, to: int) -> None:
        """`swarmd keys push`."""
        for kind, statement in self.fleet.statements("farm"):
            self.feed(to, Command("node", AddStatement(kind, statement)))

    def trust(self, index: int) -> Trust:
        return self.hosts[index].node._core.trust

    def seen(self, index: int, name: str) -> MemberState | None:
        return self.states(index).get(name)


@contextmanager
def fleet_folder() -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory() as folder:
        yield create_fleet(Path(folder) / "fleet", "acme")
