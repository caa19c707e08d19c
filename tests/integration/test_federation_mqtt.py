"""Two real brokers between gateways and a region: one freezes, one dies, all are away; nothing is lost."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from swarmd.config.bridges import MqttConfig
from swarmd.federation.gateway import Gateway, GatewaySettings
from swarmd.federation.region import Region
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.uplink import PREFIX
from swarmd.federation.uplink_mqtt import mqtt_maker
from swarmd_protocols.effects import MemberState, StateChanged
from swarmd_protocols.federation.facts import Fact, encode_fact, message_of, note_key, seal_fact
from swarmd_protocols.federation.gate import Pin
from swarmd_protocols.federation.shares import CLAIM_KEY, CLAIMED
from swarmd_protocols.federation.wire import FactKind
from swarmd_protocols.state.observations import ObjectChanged
from tests.support.bridge_world import Broker, mosquitto_binary
from tests.support.federation_daemon import MeshDaemon
from tests.support.reviewing import ALICE, name_operators
from tests.support.state_mesh import CRYPTO, SWARM, Mesh, detection

SEED = b"R" * 32
pytestmark = [
    pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.timeout(200),
]


class Site:
    """A mesh, two gateways, two brokers, a region."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mesh = Mesh(3, seed=5)
        self.daemons = [MeshDaemon(self.mesh, index, f"gw{index}") for index in (0, 1)]
        for daemon in self.daemons:
            daemon.beside = self.daemons
        self.brokers = []
        for at in range(2):
            (folder / f"b{at}").mkdir()
            self.brokers.append(Broker(folder / f"b{at}"))
        self.things = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.gateways: list[Gateway] = []

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"mqtt://127.0.0.1:{broker.port}" for broker in self.brokers)

    async def begin(self) -> None:
        for broker in self.brokers:
            await asyncio.to_thread(broker.start)
        self.store = Store(self.folder / FILE_NAME)
        pin = Pin(SWARM, SWARM, self.mesh.roots[0])
        made = mqtt_maker(MqttConfig(), PREFIX)
        self.region = Region([pin], SEED, CRYPTO, self.store, self.paths, PREFIX, made, lambda text: None)
        self.tasks.append(asyncio.create_task(self.region.run()))
        for at in range(2):
            self.start(at)
        await self.until(lambda: all(daemon.told.get(CLAIM_KEY) == CLAIMED for daemon in self.daemons), "both to claim")

    def start(self, at: int) -> None:
        daemon = self.daemons[at]
        key = CRYPTO.public_key(SEED)
        settings = GatewaySettings(self.paths, key, PREFIX, 1 << 24, 1e6, 0.5, 60.0)
        made = mqtt_maker(MqttConfig(), PREFIX, f"gw{at}-{os.getpid()}")
        gateway = Gateway(settings, daemon.identity.seed, CRYPTO, lambda: self.folder / f"g{at}", made)
        self.gateways.append(gateway)
        self.tasks.append(asyncio.create_task(gateway.run(daemon)))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.store.close()
        for broker in self.brokers:
            broker.stop()

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


@contextlib.asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    one = Site(folder)
    try:
        await one.begin()
        yield one
    finally:
        await one.end()


async def test_a_broker_freezes_and_the_other_carries_on(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        one.see(3)
        await one.until(lambda: one.readable() == 3, "three things")
        one.brokers[0].freeze()
        try:
            one.see(3)
            await one.until(lambda: one.readable() == 6, "what was seen while a broker was frozen")
            assert one.brokers[0]._process is not None
            assert one.brokers[0]._process.poll() is None
        finally:
            one.brokers[0].thaw()
        assert all(gateway.refused == 0 for gateway in one.gateways)


async def test_a_gateway_dies_and_the_other_takes_its_shares(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        one.see(4)
        await one.until(lambda: one.readable() == 4, "four things")
        one.tasks[1].cancel()
        one.daemons[0].state = MemberState.FAILED
        one.see(4)
        await one.until(lambda: one.readable() == 8, "what the dead gateway would have said")


async def test_all_brokers_are_away_and_nothing_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        for broker in one.brokers:
            broker.stop()
        one.see(5)
        await one.until(
            lambda: not any(daemon.told[CLAIM_KEY] for daemon in one.daemons), "both to take their claim back"
        )
        one.see(5)
        for broker in one.brokers:
            await asyncio.to_thread(broker.start)
        await one.until(lambda: one.readable() == 10, "everything from the outboxes")


async def test_a_note_comes_down_to_every_member(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        name_operators(one.mesh, ALICE)
        payload = encode_fact(Fact(SWARM, "note", "mast", 1, 1, "ann", "mind the mast"))
        statement = seal_fact(payload, CRYPTO.public_key(ALICE), CRYPTO.sign(ALICE, message_of(payload)))
        key = next(iter(one.region.gates)).hex()
        one.store.send_down(key, FactKind.FACT, b"mast", statement)
        daemon = one.daemons[0]
        await one.until(lambda: daemon.note(note_key("mast")) == statement, "the note at the gateway's member")
        one.mesh.run(3)
        assert all(other.note(note_key("mast")) == statement for other in one.daemons)


async def test_the_region_starts_again_and_asks_for_what_it_lacks(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        one.see(2)
        await one.until(lambda: one.readable() == 2, "two things")
        one.tasks[0].cancel()
        await asyncio.gather(one.tasks[0], return_exceptions=True)
        one.store.close()
        # Its disk is lost, certificates and all: the gateways introduce themselves, and say what they have.
        for file in tmp_path.glob(f"{FILE_NAME}*"):
            file.unlink()
        one.store = Store(tmp_path / FILE_NAME)
        pin = Pin(SWARM, SWARM, one.mesh.roots[0])
        made = mqtt_maker(MqttConfig(), PREFIX)
        one.region = Region([pin], SEED, CRYPTO, one.store, one.paths, PREFIX, made, lambda text: None)
        one.tasks[0] = asyncio.create_task(one.region.run())
        one.see(2)
        await one.until(lambda: one.readable() == 4, "what was seen since, and what was there before")
