"""Two devices in one process: worker, brain's link and protocol of each are the daemon's; the wire is a list."""

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from swarmd.brain.lending import LendingLink
from swarmd.worker import words
from swarmd.worker.api import InferenceApi
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.lane import Fetcher, Shelf
from swarmd.worker.lent import is_answer, is_worthless
from swarmd.worker.process import WorkerProcess
from swarmd_models.backends.base import Array
from swarmd_models.service import Tensors
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.purse import CostRule
from swarmd_protocols.offload.tickets import GrantsConfig
from tests.support.offload_swarm import DIGEST, MS, NODES, Swarm
from tests.unit.test_inference_api_laws import Held, World

LARGEST_BYTES = 16 << 20
PAYS = CostRule(price_max_micro=10**9, hour_max_micro=10**12)


class Free(Held):
    """A bundle that adds `plus` and waits for nobody."""

    def __init__(self, plus: float = 1.0) -> None:
        super().__init__(DIGEST.hex())
        self.plus = plus
        self.bundle.threshold_of = lambda label: 0.5

    def _steps(self, items: Array) -> Iterator[Tensors | None]:
        for item in items:
            self.began.append(float(item))
            yield None
        yield {"x": np.asarray(items + self.plus, np.float32)}


class Device:
    """Worker and brain of one node, joined by their words."""

    def __init__(self, pair: "Pair", node: NodeId, service: Held | None, **config: int) -> None:
        self.node = node
        self.world = World(**config)
        self.api: InferenceApi = self.world.api
        self.link = LendingLink(
            pair.swarm.nodes[node], lambda _, request: pair.command(node, request), lambda: None, lambda one: one.hex(),
            lambda: pair.members,
        )  # fmt: skip
        self.borrowing = Borrowing(self.hear)
        self.shelf = Shelf(LARGEST_BYTES) if pair.has_lane else None
        self.fetcher = Fetcher(LARGEST_BYTES) if pair.has_lane else None
        if self.shelf is not None:
            self.shelf.start("127.0.0.1:0")
        self.api = InferenceApi(self.world.batcher, self.world.runner, 20_000, self.borrowing, self.shelf, self.fetcher)
        if service is not None:
            self.api.residency.add(service)  # type: ignore[arg-type]
        self.worker = WorkerProcess.__new__(WorkerProcess)
        self.worker._api, self.worker._lent = self.api, {}
        self.worker._say = self.hear  # type: ignore[method-assign]
        self.said: list[words.FromWorker] = []
        self.link.bind(self.tell)

    def hear(self, word: Any) -> None:
        self.said.append(word)
        self.link.take(word)

    def tell(self, word: words.ToWorker) -> bool:
        match word:
            case words.Lend():
                self.worker._lend(word)
            case words.Drop(job):
                if (lent := self.worker._lent.get(job)) is not None:
                    lent.cancel()
            case words.Borrowed():
                self.borrowing.on_answer(word)
        return True


class Pair:
    """Node 0 borrows, node 1 lends."""

    def __init__(
        self, own: Held | None, lent: Held, own_unit_ns: int = 10_000 * MS, has_lane: bool = False,
        price_micro_s: int = 0, **config: int,
    ) -> None:  # fmt: skip
        lending = LendingConfig(
            input_bytes_max=LARGEST_BYTES,
            grants=GrantsConfig(tickets_max=4, request_bytes_max=LARGEST_BYTES),
            price_micro_s=price_micro_s,
        )
        self.has_lane = has_lane
        self.members: list[Any] = [
            SimpleNamespace(node=one, address="127.0.0.1:7946", heard_at="127.0.0.1:7946", quality="good")
            for one in NODES[:2]
        ]
        self.swarm = Swarm(2, judge=is_answer, lending=lending, is_worthless=is_worthless, cost=PAYS)
        self.swarm.keeps = set(self.swarm.nodes)
        self.now()
        self.borrower = Device(self, NODES[0], own, **config)
        self.lender = Device(self, NODES[1], lent)
        self.borrower.world.batcher.unit_ns = lambda digest: own_unit_ns  # type: ignore[method-assign]
        for node in NODES[:2]:
            self.swarm.stock(node)
        self.pump()

    def close(self) -> None:
        for device in (self.borrower, self.lender):
            for side in (device.shelf, device.fetcher):
                if side is not None:
                    side.close()

    def now(self) -> None:
        self.swarm.now_ns = max(self.swarm.now_ns, time.monotonic_ns())

    def command(self, node: NodeId, request: object) -> None:
        self.now()
        if isinstance(request, requests.Borrow):  # However slow the machine: the offer is fresh.
            self.swarm.stock(NODES[1])
            self.deliver()
        self.swarm.command(node, request)
        asyncio.get_running_loop().call_soon(self.pump)

    def deliver(self) -> None:
        while self.swarm.wire:
            sender, to, payload = self.swarm.wire.popleft()
            self.swarm.perform(to, self.swarm.nodes[to].on_message(sender, payload, self.swarm.now_ns))

    def pump(self) -> None:
        """Everything arrives, and what the protocols order is carried out."""
        self.now()
        devices = {self.borrower.node: self.borrower, self.lender.node: self.lender}
        while self.swarm.wire or any(self.swarm.orders.values()):
            self.deliver()
            for node, orders in self.swarm.orders.items():
                while orders:
                    devices[node].link.carry_out(orders.pop(0))
