"""A batch over a simulated fleet: the last node has frames for all, and whoever is idle takes the next.

The bound is what no schedule can beat: all work at the speed of all processors together, or the longest job and its way
at the quickest of them. Nothing else runs on them meanwhile.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.stealing import Lease, Pool
from swarmd_sim.run.choices import MILLION
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.offload_device import Asked, Device, answer_to
from swarmd_sim.run.offload_fleet import BUNDLE
from swarmd_sim.run.processor import LENT, Task
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario

_SHOWN = 32
"""Jobs in the queue at once, as `swarmd infer` sends them."""
_LOOK_NS = 100 * MILLION
"""Between two looks at what is over."""
_HERE = ""


class Asking(Protocol):
    """What a batch needs of the world."""

    devices: dict[int, Device]
    first_ns: int

    def ask(self, device: Device, asked: Asked, local_ns: int) -> None:
        """A program asks."""

    def way_ns(self, size_bytes: int, back_bytes: int = 0) -> int:
        """The way there of so many bytes, and of others back."""


class Batch:
    """See the module.

    Args:
        world: Where jobs are lent.
        scenario: What was asked for.
    """

    def __init__(self, world: Asking, scenario: Scenario) -> None:
        self._world = world
        self._section = scenario.offload
        self._pool = Pool()
        self._next = 0
        self._began_ns = 0
        self._ended_ns = 0
        self._units: list[int] = []
        """What a job takes each processor that is there at the beginning."""
        self.answers: Counter[int] = Counter()
        """Answers by job."""
        self.wrong = 0
        self.by: Counter[str] = Counter()

    def plan(self, engine: Engine, hosts: list[Host]) -> None:
        """Begin when the swarm stands."""
        home = hosts[-1].index
        engine.at(self._world.first_ns, lambda _: self._begin(engine, home), None)

    def _begin(self, engine: Engine, home: int) -> None:
        device = self._world.devices[home]
        self._began_ns = engine.now_ns
        self._units = [one.unit_ns(BUNDLE) for one in self._world.devices.values()]
        self._look(device)

    def _look(self, device: Device) -> None:
        if self._ended_ns:
            return
        engine = device.host.engine
        engine.at(engine.now_ns + _LOOK_NS, lambda _: self._look(device), None)
        assert device.protocol is not None
        offers = device.protocol.offers(device.host.clock.local_ns(engine.now_ns))
        units = {one.node.hex(): bundle.unit_ns for one in offers for bundle in one.bundles if bundle.digest == BUNDLE}
        self._pool.offered({**units, _HERE: device.unit_ns(BUNDLE)})
        self._pool.overdue(engine.now_ns)
        self._pump(device)

    def _pump(self, device: Device) -> None:
        while self._next < self._section.jobs and self._pool.size < _SHOWN:
            self._pool.put(self._next)
            self._next += 1
        for lease in self._pool.take(device.host.engine.now_ns):
            self._run(device, lease)

    def _run(self, device: Device, lease: Lease) -> None:
        engine = device.host.engine
        frame = lease.job.to_bytes(8, "big").ljust(self._section.input_bytes, b"\0")
        if lease.puller == _HERE:
            unit_ns = device.unit_ns(BUNDLE)
            done: Callable[[], None] = lambda: self._done(device, lease, answer_to(BUNDLE, frame), unit_ns)  # noqa: E731
            device.processor.put(Task(LENT, unit_ns, engine.now_ns, done))
            return

        def settled(asked: Asked, settle: requests.Settle) -> None:
            if settle.data is not None:
                self._done(device, lease, settle.data, 0)
                return
            self._pool.failed(lease.number, engine.now_ns)
            self._pump(device)

        only = NodeId(bytes.fromhex(lease.puller))
        asked = Asked(
            device.host.index, device.host.boots, 0, BUNDLE, frame, engine.now_ns, lease.until_ns, 0,
            then=settled, only=only,
        )  # fmt: skip
        self._world.ask(device, asked, 0)

    def _done(self, device: Device, lease: Lease, data: bytes, ran_ns: int) -> None:
        now_ns = device.host.engine.now_ns
        found = self._pool.done(lease.number, ran_ns, now_ns)
        if found is not None:
            job = found[0]
            self.answers[job] += 1
            frame = job.to_bytes(8, "big").ljust(self._section.input_bytes, b"\0")
            self.wrong += data != answer_to(BUNDLE, frame)
            self.by[lease.puller[:8]] += 1
            if len(self.answers) == self._section.jobs:
                self._ended_ns = now_ns
        if not self._ended_ns:
            self._pump(device)

    def figures(self) -> dict[str, object]:
        """How long it took, beside the bound."""
        speed = sum(1.0 / unit_ns for unit_ns in self._units if unit_ns)
        way_ns = self._world.way_ns(self._section.input_bytes)
        bound_ns = max(self._section.jobs / speed, min(self._units, default=0) + way_ns) if speed else 0.0
        took_ns = self._ended_ns - self._began_ns
        return {
            "batch_answered": len(self.answers),
            "batch_twice": sum(count > 1 for count in self.answers.values()),
            "batch_wrong": self.wrong,
            "batch_s": round(took_ns / NS_PER_S, 3) if self._ended_ns else None,
            "batch_of_bound": round(took_ns / bound_ns, 3) if self._ended_ns and bound_ns else None,
            "batch_by": dict(sorted(self.by.items())),
            "batch_counts": dict(self._pool.counts),
        }
