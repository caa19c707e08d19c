"""Commands of a hostile MQTT client: whatever the bytes are, a bounded answer comes and the bridge goes on."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import paho.mqtt.client as paho
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.bridges.mqtt.commands import (
    CLIENT_BURST,
    CLIENT_PER_S,
    CLIENTS_MAX,
    EVENT_BURST,
    EVENT_PER_S,
    REPLY_MAX_BYTES,
    VERB_BURST,
    VERB_PER_S,
    WORK_SHARE,
    Commands,
)
from swarmd.bridges.mqtt.link import COMMAND_MAX_BYTES, Incoming, MqttLink
from swarmd.bridges.mqtt.topics import COMMAND_VERBS
from swarmd.bridges.mqtt.wire import field
from swarmd.config.bridges import MqttConfig, reply_prefix_problem
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


REPLIES = "swarm/v1/farm/reply"
ELSEWHERE = (
    "swarm/v1/farm/node/alice/state",
    "homeassistant/device/swarmd_x/config",
    "swarm/v1/farm/cmd/all/objects",
    "$SYS/x",
    "fleet/other/actuator/set",
    "swarm/v1/farm/reply",
    "swarm/v1/farm/reply/",
    "swarm/v1/farm/reply//x",
    "swarm/v1/farm/replyx/me",
    "swarm/v1/farm/reply/me/a/b/c",
    "swarm/v1/farm/reply/+",
    "swarm/v1/farm/reply/me\0",
    "swarm/v1/farm/reply/" + "x" * 300,
)
"""What a client that may write commands only would like swarmd to write to for it."""


def joined(run: Callable[[str, Mapping[str, object]], Mapping[str, object]], clock: list[int]) -> Commands:
    return Commands(run, REPLIES, lambda: clock[0])


@settings(max_examples=300, deadline=None)
@given(verb=st.sampled_from(COMMAND_VERBS) | st.text(max_size=40), payload=_PAYLOADS, answer=st.text(max_size=20))
def test_any_bytes_have_one_outcome_and_replies_stay_in_their_room(verb: str, payload: bytes, answer: str) -> None:
    for response_topic in ("", answer, f"{REPLIES}/{answer}"):
        bridge, world, wire = MqttBridge(MqttConfig()), World(), Wire()
        bridge._daemon, bridge._link = world, wire  # type: ignore[assignment]
        bridge._commands = Commands(bridge._run_command, REPLIES)
        bridge._on_command(Incoming(f"swarm/v1/farm/cmd/alice/{verb}", payload, response_topic, b"7"))
        assert len(world.commands) == bridge._counts["commands"]
        assert bridge._counts["commands"] + bridge._counts["commands_refused"] == 1
        for topic, body in wire.sent:
            assert topic == response_topic
            assert topic.startswith(REPLIES + "/")
            assert json.loads(body)["ok"] in (True, False)
        assert all(verb in COMMAND_VERBS for verb, _ in world.commands)


@pytest.mark.parametrize("topic", ELSEWHERE)
def test_a_reply_that_would_go_elsewhere_is_not_even_composed(topic: str) -> None:
    world = World()
    answer = joined(world.command, [0]).answer("objects", b"", topic)
    assert (answer.outcome, answer.reply, world.commands) == ("commands_refused", None, [])


def test_a_reply_is_never_retained_and_has_a_largest_size() -> None:
    told: list[Mapping[str, object]] = []
    bridge, world = MqttBridge(MqttConfig()), World()
    bridge._daemon = world
    bridge._link = SimpleNamespace(publish=lambda topic, body, **rest: told.append(rest))  # type: ignore[assignment]
    bridge._commands = Commands(bridge._run_command, REPLIES)
    bridge._on_command(Incoming("swarm/v1/farm/cmd/alice/status", b"", f"{REPLIES}/me", None))
    assert [one["retain"] for one in told] == [False]
    answer = joined(lambda verb, rest: {"objects": "x" * REPLY_MAX_BYTES}, [0]).answer("objects", b"", f"{REPLIES}/me")
    assert answer.reply is not None
    assert len(answer.reply) < 300
    assert b"read the retained topics" in answer.reply


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), pause_ms=st.sampled_from((0, 5, 50, 400)), clients=st.sampled_from((1, 5, 60)))
def test_whatever_is_asked_rates_hold_and_a_quiet_client_is_heard(seed: int, pause_ms: int, clients: int) -> None:
    """At most burst + rate x time of each client and verb, and of each verb; time here is what the asks took."""
    rng = random.Random(seed)
    asks = [
        (rng.randint(0, pause_ms), rng.choice(("status", "objects", "event")), rng.randrange(clients))
        for _ in range(400)
    ]
    clock, ran = [0], Counter[str]()
    commands = joined(lambda verb, rest: {"ok": 1}, clock)
    by_client: Counter[tuple[int, str]] = Counter()
    for waited_ms, verb, client in asks:
        clock[0] += waited_ms * 1_000_000
        if commands.answer(verb, b"{}", f"{REPLIES}/{client}").outcome == "commands":
            ran[verb] += 1
            by_client[client, verb] += 1
    seconds = clock[0] / 1e9
    for verb, count in ran.items():
        burst, per_s = (EVENT_BURST, EVENT_PER_S) if verb == "event" else (VERB_BURST, VERB_PER_S)
        assert count <= burst + per_s * seconds + 1
    assert all(count <= CLIENT_BURST + CLIENT_PER_S * seconds + 1 for count in by_client.values())
    clock[0] += 1_000_000_000
    assert commands.answer("status", b"", f"{REPLIES}/somebody-new").outcome == "commands"


def test_one_client_cannot_use_up_anothers_commands() -> None:
    commands = joined(lambda verb, rest: {}, [0])
    outcomes = Counter(commands.answer("status", b"", f"{REPLIES}/loud").outcome for _ in range(2_000))
    assert outcomes == {"commands": CLIENT_BURST, "commands_limited": 2_000 - CLIENT_BURST}
    assert commands.answer("status", b"", f"{REPLIES}/quiet").outcome == "commands"
    assert commands.answer("members", b"", f"{REPLIES}/loud").outcome == "commands"


def test_dear_answers_are_given_as_rarely_as_they_are_dear() -> None:
    """An answer that takes 100 ms: one client or many, commands take a twentieth of the time."""
    clock, ran = [0], 0

    def slow(verb: str, rest: Mapping[str, object]) -> Mapping[str, object]:
        nonlocal ran
        ran += 1
        clock[0] += 100_000_000
        return {}

    commands = joined(slow, clock)
    asked = 0
    while clock[0] < 60_000_000_000:
        clock[0] += 10_000_000
        asked += 1
        commands.answer("objects", b"", f"{REPLIES}/{asked % 20}")
    assert asked > 1_000
    assert ran * 0.1 <= 60 * WORK_SHARE + 0.25 + 0.2


def test_replies_share_a_budget_of_bytes() -> None:
    commands = joined(lambda verb, rest: {"x": "y" * 200_000}, [0])
    for number in range(30):
        commands.answer(COMMAND_VERBS[number % 5], b"", f"{REPLIES}/{number}")
    sizes = [
        len(answer.reply or b"") for answer in (commands.answer("cells", b"", f"{REPLIES}/z{n}") for n in range(9))
    ]
    assert sizes == [0] * 9


def test_the_table_of_clients_is_bounded() -> None:
    commands = joined(lambda verb, rest: {}, [0])
    for number in range(5_000):
        commands.answer("status", b"", f"{REPLIES}/{number}")
    assert len(commands._clients) <= CLIENTS_MAX


@pytest.mark.parametrize(
    ("prefix", "fits"),
    [
        ("", True),
        ("swarmd-replies", True),
        ("desk/replies", True),
        ("swarm/v1/farm/reply/desk", True),
        ("swarm", False),
        ("swarm/v1", False),
        ("swarm/v1/farm", False),
        ("swarm/v1/farm/cmd/all", False),
        ("homeassistant/x", False),
        ("homie", False),
        ("$SYS", False),
        ("a/+/b", False),
        ("a//b", False),
        ("/a", False),
    ],
)
def test_a_reply_prefix_holds_nothing_else(prefix: str, fits: bool) -> None:
    assert (reply_prefix_problem(MqttConfig(reply_prefix=prefix)) == "") is fits


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
            heard: list[str] = []
            client.on_message = lambda _client, _data, message: heard.append(message.topic)
            client.subscribe("#")
            began = time.monotonic()
            odd = ("swarm/v1/farm/cmd/all/status", "other/thing", "swarm/v1/farm/node/alice/state")
            for topic in odd:
                props = Properties(PacketTypes.PUBLISH)
                props.ResponseTopic = topic
                client.publish("swarm/v1/farm/cmd/all/status", b"{}", qos=1, properties=props)
            for number in range(200):
                verb = COMMAND_VERBS[number % len(COMMAND_VERBS)]
                client.publish(f"swarm/v1/farm/cmd/alice/{verb}", rng.randbytes(rng.randrange(1, 400)), qos=1)
            for size in (COMMAND_MAX_BYTES + 1, 1 << 20):
                client.publish("swarm/v1/farm/cmd/all/status", b" " * size, qos=1)
            props = Properties(PacketTypes.PUBLISH)
            props.ResponseTopic = f"{REPLIES}/quiet"
            client.publish("swarm/v1/farm/cmd/alice/status", b"{}", qos=1, properties=props)
            await until(bridge, "commands", 1)
            counts = bridge.counters()
            assert counts["dropped_oversized"] == 1, "the megabyte stays with the broker: it is above what we take in"
            assert counts["commands_refused"] + counts["commands_limited"] == 203
            admitted = len(COMMAND_VERBS) * (CLIENT_BURST + CLIENT_PER_S * (time.monotonic() - began)) + len(odd)
            assert counts["commands_refused"] <= admitted, "nobody said who asks: they share one client's rates"
            assert [one for one in world.commands if one[0] != "alert"] == [("status", {})], (
                "another client is heard all the same"
            )
            assert counts["connects"] == 1
            assert "other/thing" not in heard
        finally:
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def odd_publish(topic: str) -> bytes:
    """A PUBLISH with a user property that MQTT allows and paho refuses to write and to read (MQTT 5.0, 1.5.4-3)."""
    name, value = "\ufeffname".encode(), b"x"
    properties = b"\x26" + field(name) + field(value)
    body = field(topic.encode()) + b"\0\1" + bytes((len(properties),)) + properties + b"{}"
    return bytes((0x32, len(body))) + body


@pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")
async def test_a_message_that_paho_cannot_read_is_one_message_less(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        bridge = MqttBridge(MqttConfig(enabled=True, port=server.port))
        task = asyncio.create_task(bridge.run(world))
        try:
            await until(bridge, "connects", 1)
            await asyncio.sleep(0.5)  # Its subscriptions stand.
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            hello = field(b"MQTT") + b"\x05\x02\x00\x3c\x00" + field(b"somebody")
            writer.write(bytes((0x10, len(hello))) + hello)
            await reader.read(100)
            writer.write(odd_publish("swarm/v1/farm/cmd/all/status"))
            plain = field(b"swarm/v1/farm/cmd/all/status") + b"\0\2\0{}"
            writer.write(bytes((0x32, len(plain))) + plain)
            await until(bridge, "commands", 1)
            assert bridge.counters()["dropped_unreadable"] == 1
            assert bridge.counters()["connects"] == 1, "its sender ended everybody's connection, and each new one too"
            writer.close()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_broker_that_sends_more_than_was_asked_for_is_left_and_it_is_said() -> None:
    said: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1 << 16)
            writer.write(b"\x20\x03\x00\x00\x00" + b"\x30\xff\xff\xff\x7f")  # CONNACK; a PUBLISH of 256 MiB
            while await reader.read(1 << 16):
                pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = MqttLink(MqttConfig(port=port), "me", "w", b"", lambda: None, lambda _: None, on_problem=said.append)
    task = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(60):
            while link.counters().get("reconnects", 0) < 1:
                await asyncio.sleep(0.01)
        assert "a packet of 268435455 bytes" in link.last_problem
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()


async def until(bridge: MqttBridge, counter: str, least: int) -> None:
    async with asyncio.timeout(60):
        while bridge.counters().get(counter, 0) < least:
            await asyncio.sleep(0.01)
