"""A borrower of a model in two parts, its lenders, and CURVE between their workers; the brains' wire is a list.

Node 0 borrows and has no part; node 1 has the head, nodes 2 and 3 the tail.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from swarmd.worker import words
from swarmd.worker.answers import LENDER_HEADER
from swarmd.worker.http_server import Call
from swarmd.worker.lent import is_answer, is_worthless
from swarmd.worker.oip import JSON_LENGTH, OipError, read_answer, write_question
from swarmd.worker.splitting import Splitting, read_splits
from swarmd_models.backends.base import Array
from swarmd_models.service import Port, Run, Tensors
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.shards import Part as ShardPart
from swarmd_protocols.offload.shards import Parts, Shards
from swarmd_protocols.offload.tickets import GrantsConfig
from tests.support.lending_pair import LARGEST_BYTES, Device
from tests.support.offload_swarm import NODES, S, Swarm
from tests.unit.test_inference_api_laws import Held

NUMBERS = 50_000
"""200 kB of noise, which does not pack: larger than what goes through the brains beside a lane."""
WHOLE, HEAD, TAIL = "aa" * 32, "bb" * 32, "cc" * 32
FILE = f"""
[[split]]
name = "adder"
model = "{WHOLE}"
[[split.at]]
bytes = {4 * NUMBERS}
tensors = [{{ name = "x", datatype = "FP32", shape = [{NUMBERS}] }}]
[[split.at]]
bytes = {4 * NUMBERS}
tensors = [{{ name = "cut", datatype = "FP32", shape = [{NUMBERS}] }}]
[[split.at]]
bytes = 8
tensors = [{{ name = "y", datatype = "FP32", shape = [2] }}]
[[split.part]]
model = "{HEAD}"
begin = 0
end = 1
[[split.part]]
model = "{TAIL}"
begin = 1
end = 2
"""


class Part(Held):
    """The head adds one, the tail says sum and first number."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.takes, self.gives = ("x", "cut") if digest == HEAD else ("cut", "y")
        self.ran = 0
        self.spoils = False
        """Its first number is none."""
        self.is_huge = False
        """Its numbers are some, and their sum is none."""

    def inputs(self, lane: str) -> tuple[Port, ...]:
        return (Port(self.takes, (-1, NUMBERS), np.dtype(np.float32)),)

    def outputs(self, lane: str) -> tuple[Port, ...]:
        return (Port(self.gives, (-1, NUMBERS if self.gives == "cut" else 2), np.dtype(np.float32)),)

    def steps(self, lane: str, inputs: Tensors) -> Run:
        return Run(len(inputs[self.takes]), lambda: self._compute(inputs[self.takes]))

    def _compute(self, items: Array) -> Iterator[Tensors | None]:
        self.ran += 1
        yield None
        if self.gives == "cut":
            made = np.asarray(items + np.float32(1), np.float32)
            if self.is_huge:
                made[:] = 3e38
        else:
            with np.errstate(over="ignore"):
                made = np.asarray([[one.sum(dtype=np.float64), one[0]] for one in items], np.float32)
        if self.spoils:
            made[0, 0] = np.nan
        yield {self.gives: made}


def expected(array: Array) -> Array:
    """What the whole says."""
    cut = np.asarray(array + np.float32(1), np.float32)
    return np.asarray([[one.sum(dtype=np.float64), one[0]] for one in cut], np.float32)


class Trio:
    """See the module."""

    def __init__(self, folder: Path, tails: int = 1) -> None:
        lending = LendingConfig(
            input_bytes_max=LARGEST_BYTES, grants=GrantsConfig(tickets_max=4, request_bytes_max=LARGEST_BYTES)
        )
        nodes = NODES[: 2 + tails]
        self.has_lane = True
        self.members: list[Any] = [
            SimpleNamespace(node=one, address="127.0.0.1:7946", heard_at="127.0.0.1:7946", quality="good")
            for one in nodes
        ]
        self.held = {node: HEAD if at == 1 else TAIL for at, node in enumerate(nodes) if at}
        self.swarm = Swarm(len(nodes), judge=is_answer, lending=lending, is_worthless=is_worthless)
        self.swarm.keeps = set(self.swarm.nodes)
        self.now()
        self.parts = {node: Part(digest) for node, digest in self.held.items()}
        self.devices = {node: Device(self, node, self.parts.get(node)) for node in nodes}  # type: ignore[arg-type]
        self.borrower, self.head, *self.tails = self.devices.values()
        self.judged: list[requests.Judged] = []
        self.lent: list[words.Lend] = []
        """What brains told their workers to run for others."""
        for device in self.devices.values():
            self._listening(device)
        (folder / "split.toml").write_text(FILE)
        api = self.borrower.api
        api.splitting = Splitting(read_splits(str(folder / "split.toml")), api, 20_000)
        self.rng = np.random.default_rng(7)
        self.swarm.wire.clear()  # Offers of what `Swarm` has everybody lend.
        self.restock()
        self.pump()

    def close(self) -> None:
        for device in self.devices.values():
            for side in (device.shelf, device.fetcher):
                if side is not None:
                    side.close()

    def hide(self, node: NodeId, of: Device) -> None:
        """A device hears another from elsewhere than its record says."""
        members: list[Any] = [SimpleNamespace(**vars(one)) for one in self.members]
        for one in members:
            one.heard_at = "10.0.0.66:7946" if one.node == node else one.heard_at
        of.link._members = lambda: members

    def give(self, node: NodeId) -> None:
        """The borrower has this lender's part too, and would be slow at it."""
        self.borrower.api.residency.add(Part(self.held[node]))  # type: ignore[arg-type]
        self.borrower.api.batcher.unit_ns = lambda digest: 600 * S  # type: ignore[method-assign]

    def stray(self) -> None:
        """The file names another tail first, which nobody has."""
        splitting = self.borrower.api.splitting
        assert splitting is not None
        ((digest, split),) = splitting._splits.items()
        head, tail = split.parts.parts
        parts = Parts(split.parts.sizes, (head, ShardPart(b"\xee" * 32, 1, 2), tail))
        splitting._splits = {digest: replace(split, parts=parts)}
        splitting._shards = {digest: Shards(parts)}

    def bar(self, seconds: int) -> None:
        """The time for which nothing is handed on is no shorter, however slow the machine."""
        assert self.borrower.api.splitting is not None
        (shards,) = self.borrower.api.splitting._shards.values()
        assert shards._handing.until_ns > 0
        shards._handing.until_ns += seconds * S

    @property
    def counts(self) -> Any:
        """Of the borrower's walks."""
        assert self.borrower.api.splitting is not None
        return self.borrower.api.splitting.counters

    def now(self) -> None:
        self.swarm.now_ns = max(self.swarm.now_ns, time.monotonic_ns())

    def restock(self) -> None:
        for node, digest in self.held.items():
            self.swarm.stock(node, bytes.fromhex(digest))

    def command(self, node: NodeId, request: object) -> None:
        self.now()
        if isinstance(request, requests.Borrow):  # However slow the machine: the offers are fresh.
            self.restock()
            self.deliver()
        if isinstance(request, requests.Judged):
            self.judged.append(request)
        self.swarm.command(node, request)
        asyncio.get_running_loop().call_soon(self.pump)

    def deliver(self) -> None:
        while self.swarm.wire:
            sender, to, payload = self.swarm.wire.popleft()
            self.swarm.perform(to, self.swarm.nodes[to].on_message(sender, payload, self.swarm.now_ns))

    def pump(self) -> None:
        """Everything arrives, and what the protocols order is carried out."""
        self.now()
        while self.swarm.wire or any(self.swarm.orders.values()):
            self.deliver()
            for node, orders in self.swarm.orders.items():
                while orders:
                    self.devices[node].link.carry_out(orders.pop(0))

    def _listening(self, device: Device) -> None:
        tell = device.tell

        def told(word: words.ToWorker) -> bool:
            if isinstance(word, words.Lend):
                self.lent.append(word)
            return tell(word)

        device.link.bind(told)

    async def infer(self, timeout_ms: int = 20_000) -> tuple[bool, str]:
        """Whether the answer is the whole's, and who gave it; raises `OipError`."""
        array = self.rng.random((1, NUMBERS), np.float32)
        body, length = write_question({"x": array}, timeout_ms * 1000)
        headers = {JSON_LENGTH.lower(): str(length), "swarmd-borrow": "split"}
        answer = await self.borrower.api.handle(Call("POST", "/v2/models/adder/infer", headers, bytearray(body)))
        told = dict(answer.headers)
        json_bytes = told.get(JSON_LENGTH)
        found = read_answer(b"".join(answer.pieces), None if json_bytes is None else int(json_bytes))["y"]
        return found.tobytes() == expected(array).tobytes(), str(told.get(LENDER_HEADER, ""))


__all__ = ["HEAD", "NUMBERS", "TAIL", "OipError", "Part", "Trio"]
