"""Two real brokers between gateways and a region: one freezes, one dies, all are away; nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swarmd.config.bridges import MqttConfig
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.uplink import PREFIX
from swarmd.federation.uplink_mqtt import mqtt_maker
from swarmd_protocols.effects import MemberState
from swarmd_protocols.federation.facts import Fact, encode_fact, message_of, note_key, seal_fact
from swarmd_protocols.federation.shares import CLAIM_KEY
from swarmd_protocols.federation.wire import FactKind
from tests.support.bridge_world import Broker, mosquitto_binary
from tests.support.federation_site import Site
from tests.support.reviewing import ALICE, name_operators
from tests.support.state_mesh import CRYPTO, SWARM

pytestmark = [
    pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.timeout(200),
]


class MqttPipe(Broker):
    """A broker as a path."""

    @property
    def path(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"


class BrokerSite(Site):
    """A site whose pipes are brokers."""

    brokers: list[MqttPipe]


@contextlib.asynccontextmanager
async def site(folder: Path) -> AsyncIterator[BrokerSite]:
    brokers = []
    for at in range(2):
        (folder / f"b{at}").mkdir()
        brokers.append(MqttPipe(folder / f"b{at}"))
    one = BrokerSite(folder, brokers, lambda client: mqtt_maker(MqttConfig(), PREFIX, client))
    one.brokers = brokers
    try:
        await one.begin()
        yield one
    finally:
        await one.end()


BRIDGE = f"""listener {{port}} 127.0.0.1
allow_anonymous true
connection above
address 127.0.0.1:{{above}}
bridge_protocol_version mqttv50
restart_timeout 1
topic {PREFIX}/+/up/+ out 0
topic {PREFIX}/+/down/+ in 0
"""
"""What federation.md says of bridged brokers: frames go up and down, and nothing else crosses."""


class BridgedSite(BrokerSite):
    """Gateways speak with brokers of their own, which mosquitto's bridges join with those of the region."""

    above: list[MqttPipe]

    async def begin(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(pipe.start) for pipe in self.above))
        await super().begin()

    def open_region(self) -> None:
        below, self.pipes = self.pipes, self.above
        super().open_region()
        self.pipes = below

    async def end(self) -> None:
        await super().end()
        for pipe in self.above:
            pipe.stop()


@contextlib.asynccontextmanager
async def bridged(folder: Path) -> AsyncIterator[BridgedSite]:
    above, below = [], []
    for at in range(2):
        for name in ("above", "below"):
            (folder / f"{name}{at}").mkdir()
        above.append(MqttPipe(folder / f"above{at}"))
        config = BRIDGE.replace("{above}", str(above[at].port))
        below.append(MqttPipe(folder / f"below{at}", config))
    one = BridgedSite(folder, below, lambda client: mqtt_maker(MqttConfig(), PREFIX, client))
    one.brokers, one.above = below, above
    try:
        await one.begin()
        yield one
    finally:
        await one.end()


async def test_bridged_brokers_carry_both_ways_and_a_dead_one_loses_nothing(tmp_path: Path) -> None:
    async with bridged(tmp_path) as one:
        one.see(3)
        await one.until(lambda: one.readable() == 3, "three things over bridges", 150)
        # The site's broker stands, so its gateways' connections do: only that nobody answers tells them.
        one.above[0].stop()
        one.see(3)
        await one.until(lambda: one.readable() == 6, "what was seen when a broker of the region was dead", 150)
        await one.until(lambda: all(not len(gateway._outbox) for gateway in one.gateways), "all to be answered", 150)
        assert all(gateway.refused == 0 for gateway in one.gateways)


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
        one.open_region()
        one.tasks[0] = asyncio.create_task(one.region.run())
        one.see(2)
        await one.until(lambda: one.readable() == 4, "what was seen since, and what was there before")
