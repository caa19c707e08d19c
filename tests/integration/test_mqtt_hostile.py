"""Commands of a hostile MQTT client: whatever the bytes are, a bounded answer comes and the bridge goes on."""

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.enums import CallbackAPIVersion

from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.bridges.mqtt.link import COMMAND_MAX_BYTES, Incoming
from swarmd.bridges.mqtt.topics import COMMAND_VERBS
from swarmd.config.bridges import MqttConfig
from tests.support.bridge_world import World, broker, mosquitto_binary

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
_PAYLOADS = st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode())


class Wire:
    """What the bridge would send, kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, **_: object) -> None:
        self.sent.append((topic, payload))


@settings(max_examples=300, deadline=None)
@given(verb=st.sampled_from(COMMAND_VERBS) | st.text(max_size=40), payload=_PAYLOADS, answer=st.text(max_size=20))
def test_any_bytes_get_one_answer(verb: str, payload: bytes, answer: str) -> None:
    bridge, world, wire = MqttBridge(MqttConfig()), World(), Wire()
    bridge._daemon, bridge._link = world, wire  # type: ignore[assignment]
    bridge._on_command(Incoming(f"swarm/v1/farm/cmd/alice/{verb}", payload, answer, b"7"))
    assert len(world.commands) == bridge._counts["commands"]
    assert bridge._counts["commands"] + bridge._counts["commands_refused"] == 1
    for topic, body in wire.sent:
        assert topic == answer
        assert json.loads(body)["ok"] in (True, False)
    assert all(verb in COMMAND_VERBS for verb, _ in world.commands)


@pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
async def test_a_flood_of_rubbish_and_oversized_commands_through_a_real_broker(tmp_path: Path) -> None:
    world, rng = World(), random.Random(4711)
    with broker(tmp_path) as server:
        bridge = MqttBridge(MqttConfig(enabled=True, port=server.port))
        task = asyncio.create_task(bridge.run(world))
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        try:
            await until(bridge, "connects", 1)
            await asyncio.to_thread(client.connect, "127.0.0.1", server.port)
            client.loop_start()
            for number in range(200):
                verb = COMMAND_VERBS[number % len(COMMAND_VERBS)]
                client.publish(f"swarm/v1/farm/cmd/alice/{verb}", rng.randbytes(rng.randrange(1, 400)), qos=1)
            for size in (COMMAND_MAX_BYTES + 1, 1 << 20):
                client.publish("swarm/v1/farm/cmd/all/status", b" " * size, qos=1)
            client.publish("swarm/v1/farm/cmd/alice/status", b"{}", qos=1)
            await until(bridge, "received", 203)
            assert bridge.counters()["dropped_oversized"] == 2
            assert bridge.counters()["commands_refused"] == 200
            assert world.commands == [("status", {})]
            assert bridge.counters()["connects"] == 1
        finally:
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(bridge: MqttBridge, counter: str, least: int) -> None:
    async with asyncio.timeout(60):
        while bridge.counters().get(counter, 0) < least:
            await asyncio.sleep(0.01)
