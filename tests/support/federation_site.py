"""One swarm of replicas with two gateways, two real pipes and a region, in one process."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from swarmd.federation.gateway import Gateway, GatewaySettings
from swarmd.federation.region import Region
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.uplink import PREFIX, MakeUplink
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.federation.shares import CLAIM_KEY, CLAIMED
from swarmd_protocols.state.observations import ObjectChanged
from tests.support.federation_daemon import MeshDaemon
from tests.support.state_mesh import CRYPTO, SWARM, Mesh, detection

SEED = b"R" * 32


class Pipe(Protocol):
    """A broker or a router: a process."""

    @property
    def path(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Site:
    """A mesh, two gateways, two pipes, a region.

    Args:
        folder: Of everything that is written.
        pipes: Two brokers or routers.
        make: Client's name → what makes a path.
    """

    def __init__(self, folder: Path, pipes: Sequence[Pipe], make: Callable[[str], MakeUplink]) -> None:
        self.folder, self.pipes, self.make = folder, pipes, make
        self.mesh = Mesh(3, seed=5)
        self.daemons = [MeshDaemon(self.mesh, index, f"gw{index}") for index in (0, 1)]
        for daemon in self.daemons:
            daemon.beside = self.daemons
        self.things = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.gateways: list[Gateway] = []

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(pipe.path for pipe in self.pipes)

    async def begin(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(pipe.start) for pipe in self.pipes))
        self.store = Store(self.folder / FILE_NAME)
        self.open_region()
        self.tasks.append(asyncio.create_task(self.region.run()))
        for at in range(2):
            self.start(at)
        await self.until(lambda: all(daemon.told.get(CLAIM_KEY) == CLAIMED for daemon in self.daemons), "both to claim")

    def open_region(self) -> None:
        pin = Pin(SWARM, SWARM, self.mesh.roots[0])
        self.region = Region([pin], SEED, CRYPTO, self.store, self.paths, PREFIX, self.make(""), lambda text: None)

    def start(self, at: int) -> None:
        daemon = self.daemons[at]
        key = CRYPTO.public_key(SEED)
        settings = GatewaySettings(self.paths, key, PREFIX, 1 << 24, 1e6, 0.5, 60.0)
        made = self.make(f"gw{at}-{os.getpid()}")
        gateway = Gateway(settings, daemon.identity.seed, CRYPTO, lambda: self.folder / f"g{at}", made)
        self.gateways.append(gateway)
        self.tasks.append(asyncio.create_task(gateway.run(daemon)))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.store.close()
        for pipe in self.pipes:
            pipe.stop()

    def see(self, count: int) -> None:
        """Two members see so many new things."""
        for _ in range(count):
            for index in (0, 2):
                self.mesh.see(index, detection(self.mesh.now_ns, self.things, self.things * 900))
            self.things += 1
        self.mesh.run(3)
        for daemon in self.daemons:
            for detail in daemon.member.details:
                if isinstance(detail, ObjectChanged):
                    for heard in daemon.heard:
                        heard(StateChanged("state", detail))
            daemon.member.details.clear()

    def readable(self) -> int:
        answer = self.store.objects(ObjectQuery(label="hot-spot"), 0, 1 << 60)
        assert len({row["object"] for row in answer.objects}) == len(answer.objects)
        return len(answer.objects)

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not holds():
            for task in self.tasks:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    raise task.exception() or AssertionError()
            assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
            await asyncio.sleep(0.05)
