"""Many clients that learn one head, in lockstep: runs larger than a simulated swarm, on any pool of workers.

A `Shard` holds some of the clients and does in a round what each of them would: train from the head that all have, and
say what the protocol would say of it (`hidden`, `top_k`, `sign_delta`), or, for the observer's average, all of it. An
`Observer` hands heads out and puts together what comes back, with the protocol's own merge. Neither knows where shards
live; the frames between members, what is lost of them and who is late are the simulator's (`learning.py`).

A client's numbers come of the run's seed and its own index, so the pool's size changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from swarmd_models.head_rows import F64, Rows, one_hot, trained
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import UNIT_BITS, Delta, Session, open_delta, sign_delta
from swarmd_protocols.learning.merging import Merger
from swarmd_protocols.learning.privacy import Privacy, hidden
from swarmd_protocols.learning.sparse import in_units, top_k
from swarmd_protocols.state.crdt.batch import NodeSigner

SWARM, AVERAGE = 0, 1
"""Which of the two runs a client's noise is for."""
_SCALE = 20.0
"""How much louder a liar speaks, as in the scenario learning-swarm-20."""


@dataclass(frozen=True, slots=True)
class Client:
    """One device with labels."""

    index: int
    rows: Rows
    lies: bool = False
    """Says its change the other way round, twenty times as loud."""


class Shard:
    """Some of the clients.

    Args:
        clients: Which.
        base: The head to begin with, shape (classes, inputs + 1).
        replay: Drawn rows that each of them has beside its own.
        session: Of all.
        seed: Of their noise.
        privacy: How what they say is hidden; None: it is not.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        base: F64,
        replay: Rows,
        session: Session,
        seed: int,
        privacy: Privacy | None = None,
    ) -> None:
        self._clients, self._base, self._replay, self._session = clients, base, replay, session
        self._seed, self._privacy = seed, privacy
        self._told = {one.index: [0] * session.dim for one in clients}
        crypto = NaClCrypto()
        self._signers = {one.index: NodeSigner(crypto, one.index.to_bytes(32, "little")) for one in clients}

    def tell(self, moved: Sequence[int], number: int) -> list[bytes]:
        """Each client's signed delta of a round.

        Args:
            moved: By how much the head was moved so far, in 2^-24.
            number: The round.
        """
        head, said = head_of(self._base, moved), []
        for client in self._clients:
            told = self._told[client.index]
            meant = in_units(self._change(client, head, number, SWARM))
            exponent, entries = top_k(meant, told, self._session.entries)
            count, signer = len(client.rows.labels), self._signers[client.index]
            delta = sign_delta(author(client.index), self._session.id, number, count, exponent, entries, signer)
            for index, change in delta.units():
                told[index] += change
            said.append(delta.raw)
        return said

    def average(self, head: F64, number: int) -> tuple[F64, int]:
        """The sum of all changes, each as often as its client has rows, and the rows."""
        total, rows = np.zeros_like(head), 0
        for client in self._clients:
            count = len(client.rows.labels)
            total += count * np.array(self._change(client, head, number, AVERAGE)).reshape(head.shape)
            rows += count
        return total, rows

    def _change(self, client: Client, head: F64, number: int, run: int) -> list[float]:
        wanted = one_hot(client.rows.labels, len(head))
        found = trained(head, client.rows, wanted, self._replay) - head
        if client.lies:
            return list(map(float, (-_SCALE * found).ravel()))
        change = found.ravel().tolist()
        if self._privacy is None:
            return list(change)
        return hidden(change, self._privacy, Random(f"{self._seed}/{run}/{client.index}/{number}"))


Everywhere = Callable[[str, object, int], list[object]]
"""Calls a method of every shard, with a head and a round, and gives the answers in the shards' order."""


class Observer:
    """Puts together what shards say, both ways.

    Args:
        base: The head to begin with.
        session: Of all.
        everywhere: Reaches the shards.
    """

    def __init__(self, base: F64, session: Session, everywhere: Everywhere) -> None:
        self._base, self._session, self._everywhere = base, session, everywhere
        self.told_bytes = 0
        """Of all deltas, each once."""

    def swarm(self) -> F64:
        """What members hold after all rounds where each hears every delta."""
        merger, rounds, moved = Merger(), list[dict[NodeId, Delta]](), [0] * self._session.dim
        for number in range(self._session.rounds):
            heard: dict[NodeId, Delta] = {}
            for said in self._everywhere("tell", moved, number):
                assert isinstance(said, list)
                for raw in said:
                    delta = open_delta(raw)
                    heard[delta.author] = delta
                    self.told_bytes += len(raw)
            rounds.append(heard)
            for merged in merger.merge(self._session, rounds):
                if merged is not None:
                    moved = list(merged)
        return head_of(self._base, moved)

    def federated(self) -> F64:
        """The federated average: each round the mean of all changes, by rows.

        Source:
            McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017).
        """
        head = self._base.copy()
        for number in range(self._session.rounds):
            total, rows = np.zeros_like(head), 0
            for said in self._everywhere("average", head, number):
                assert isinstance(said, tuple)
                total += said[0]
                rows += said[1]
            head = head + total / rows
        return head


def head_of(base: F64, moved: Sequence[int]) -> F64:
    """A head as the protocol says it."""
    return base + np.array(moved, np.float64).reshape(base.shape) / (1 << UNIT_BITS)


def author(index: int) -> NodeId:
    """A client's name."""
    return NodeId(index.to_bytes(16, "big"))
