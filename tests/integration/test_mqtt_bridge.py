"""The MQTT bridge against a real mosquitto, read by `mosquitto_sub`."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from swarmd.api.daemon import NodePosition, PositionSeen
from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.bridges.mqtt.topics import spec
from swarmd.bridges.trace import trace_of_view
from swarmd.config.bridges import MqttConfig
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.observations import DetectionLearned, ObjectChanged
from tests.support.bridge_world import (
    ALICE,
    BOB,
    Broker,
    Subscriber,
    World,
    broker,
    detection,
    happened,
    mosquitto_binary,
    object_view,
    own_detection,
    pose,
    sighting,
)

pytestmark = pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")


@asynccontextmanager
async def running(world: World, config: MqttConfig) -> AsyncIterator[MqttBridge]:
    bridge = MqttBridge(config)
    task = asyncio.create_task(bridge.run(world))
    try:
        yield bridge
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)


async def heard(
    port: int, topic: str, wanted: Callable[[str, bool, str], bool], act: Callable[[], None] = lambda: None
) -> tuple[str, bool, str]:
    subscriber = await asyncio.to_thread(Subscriber, port, topic)
    try:
        act()
        return await asyncio.to_thread(subscriber.wait_for, wanted)
    finally:
        subscriber.close()


async def test_picture_is_published_and_retained(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port, homeassistant=True, homie=True)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
            base = "swarm/v1/farm"
            _, retained, text = await heard(server.port, f"{base}/node/alice/state", lambda *_: True)
            assert (retained, text) == (True, "online")
            _, _, text = await heard(server.port, f"{base}/objects/+", lambda *_: True)
            feature = json.loads(text)
            assert feature["geometry"]["type"] == "Point"
            assert feature["properties"]["observers"] == ["alice", "bob"]
            _, _, text = await heard(server.port, f"{base}/members", lambda *_: True)
            assert {name: one["state"] for name, one in json.loads(text).items()} == {"alice": "alive", "bob": "failed"}
            _, _, text = await heard(server.port, "homeassistant/device/+/config", lambda *_: True)
            found = json.loads(text)
            assert {one["platform"] for one in found["components"].values()} == {
                "sensor",
                "binary_sensor",
                "device_tracker",
            }
            assert all("unique_id" in one for one in found["components"].values())
            _, _, text = await heard(server.port, "homie/5/alice/$state", lambda *_: True)
            assert text == "ready"
            _, retained, text = await heard(
                server.port, f"{base}/detections", lambda *_: True, lambda: world.say(detection())
            )
            assert not retained
            assert json.loads(text)["properties"]["node"] == "bob"


async def test_what_happened_is_told_for_those_too_that_are_not_there(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
            own = await heard(server.port, "swarm/v1/farm/#", is_event, lambda: world.say(happened(2)))
            bobs = await heard(server.port, "swarm/v1/farm/#", is_event, lambda: world.say(happened(1, origin=BOB)))
    assert own[:2] == ("swarm/v1/farm/node/alice/events", False)
    row = json.loads(own[2])
    assert row == happened(2).record.row()
    assert (row["kind"], row["level"], row["time"]) == ("failed", "warning", "2026-09-21T14:13:20.123Z")
    assert bobs[0] == "swarm/v1/farm/node/bob/events", "it has failed, and told the swarm before"
    assert json.loads(bobs[2])["origin"] == "bob"


async def test_a_lost_broker_is_an_alert_until_it_is_connected_again(tmp_path: Path) -> None:
    world = World()

    def alerts() -> list[bool]:
        return [bool(arguments["text"]) for verb, arguments in world.commands if verb == "alert"]

    with broker(tmp_path) as server:
        server.stop()
        async with running(world, MqttConfig(enabled=True, port=server.port)):
            await until(lambda: True in alerts())
            assert alerts()[-1]
            server.start()
            await until(lambda: not alerts()[-1])
    said = next(arguments for verb, arguments in world.commands if verb == "alert")
    assert (said["code"], said["subject"]) == ("broker-lost", f"127.0.0.1:{server.port}")


def is_event(topic: str, retained: bool, text: str) -> bool:
    return topic.endswith("/events")


async def test_an_object_that_is_gone_is_taken_back(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
            topic = "swarm/v1/farm/objects/o1"
            gone = StateChanged("state", ObjectChanged("expired", object_view(), ""))
            _, _, text = await heard(server.port, topic, lambda _t, _r, p: p == "", lambda: world.say(gone))
            assert text == ""


async def test_no_fix_no_telemetry(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port, telemetry_hz=100)) as bridge:
            await until(lambda: bridge.counters().get("connects", 0) == 1)

            def act() -> None:
                world.say(pose(has_fix=False))
                world.say(pose(has_fix=True))

            _, _, text = await heard(server.port, "swarm/v1/farm/node/alice/telemetry", lambda *_: True, act)
            assert json.loads(text)["battery"] == 0.8
            assert bridge.counters()["aliases"] == 1


async def test_commands_are_answered_whatever_the_bytes_are(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)

            async def ask(verb: str, payload: str) -> dict[str, object]:
                command = ["mosquitto_rr", "-V", "5", "-p", str(server.port), "-e", "swarm/v1/farm/reply/x", "-W", "50"]
                command += ["-t", f"swarm/v1/farm/cmd/alice/{verb}", "-m", payload]
                done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
                answer: dict[str, object] = json.loads(done.stdout)
                return answer

            assert await ask("status", "{}") == {"ok": True, "result": {"verb": "status"}}
            assert "unknown verb" in str((await ask("format-disk", "{}"))["error"])
            assert "JSON" in str((await ask("status", "[1]"))["error"])
            assert (await ask("status", "{" * 2000))["ok"] is False
            assert (await ask("status", '{"fail": true}'))["error"] == "asked to fail"
            assert bridge.counters()["commands_refused"] == 4


async def test_broker_goes_and_comes_back_buffer_is_bounded_and_drained_in_order(tmp_path: Path) -> None:
    world = World()
    server = Broker(tmp_path)
    server.start()
    try:
        config = MqttConfig(enabled=True, port=server.port, buffer_messages=50, reconnect_max_s=1)
        async with running(world, config) as bridge:
            await until(lambda: bridge.counters().get("connects", 0) == 1)
            server.stop()
            await until(lambda: bridge.counters().get("reconnects", 0) >= 1)
            for number in range(100):
                world.say(own_detection(number))
            assert bridge.gauges()["buffered"] <= 50
            assert bridge.counters()["dropped_buffer_full"] >= 50
            server.start()
            subscriber = Subscriber(server.port, "swarm/v1/farm/detections")
            try:
                tracks: list[int] = []

                def collect(_topic: str, _retained: bool, text: str) -> bool:
                    tracks.append(json.loads(text)["properties"]["track"])
                    return tracks[-1] == 99

                await asyncio.to_thread(subscriber.wait_for, collect)
            finally:
                subscriber.close()
            assert tracks == sorted(tracks)
            assert len(tracks) >= 40
    finally:
        server.stop()


async def test_the_will_says_offline_when_the_daemon_dies(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.support.bridge_world import World\n"
        "from swarmd.config.bridges import MqttConfig\n"
        "from swarmd.bridges.mqtt.bridge import MqttBridge\n"
        "asyncio.run(MqttBridge(MqttConfig(enabled=True, port=int(sys.argv[1]), will_delay_s=0)).run(World()))\n"
    )
    import sys

    with broker(tmp_path) as server:
        process = subprocess.Popen([sys.executable, "-c", program, str(server.port)])
        try:
            topic = "swarm/v1/farm/node/alice/state"
            await heard(server.port, topic, lambda _t, _r, p: p == "online")
            _, _, text = await heard(server.port, topic, lambda _t, _r, p: p == "offline", process.kill)
            assert text == "offline"
        finally:
            process.kill()
            process.wait(timeout=60)


async def test_a_wrong_password_is_said_and_tried_again(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("")
    subprocess.run(["mosquitto_passwd", "-b", str(secrets), "alice", "right"], check=True, capture_output=True)
    secrets.chmod(0o644)
    extra = f"listener {{port}} 127.0.0.1\nallow_anonymous false\npassword_file {secrets}\nuser root\n"
    password = tmp_path / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    with broker(tmp_path, extra) as server:
        config = MqttConfig(
            enabled=True, port=server.port, username="alice", password_file=str(password), reconnect_max_s=1
        )
        async with running(World(), config) as bridge:
            await until(lambda: bridge.counters().get("connect_failed", 0) >= 1)
            assert bridge._link is not None
            assert "Not authorized" in bridge._link.last_problem
            password.write_text("right\n")
            await until(lambda: bridge.counters().get("connects", 0) >= 1)


def test_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    from swarmd.bridges.mqtt.credentials import read_secret
    from swarmd.errors import TransportError

    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o644)
    with pytest.raises(TransportError, match="chmod 600"):
        read_secret(str(file))
    file.chmod(0o600)
    assert read_secret(str(file)) == "secret"


async def test_a_detection_carries_the_trace_that_every_node_derives(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        bridge = MqttBridge(MqttConfig(enabled=True, port=server.port), traced_ratio=1.0)
        task = asyncio.create_task(bridge.run(world))
        command = ["mosquitto_sub", "-V", "5", "-p", str(server.port), "-C", "2", "-W", "60", "-F", "%P"]
        reader = await asyncio.create_subprocess_exec(
            *command, "-t", "swarm/v1/farm/detections", "-t", "$SYS/broker/version", stdout=asyncio.subprocess.PIPE
        )
        assert reader.stdout is not None
        try:
            await until(lambda: bridge.counters().get("connects", 0) == 1)
            await reader.stdout.readline()  # The broker's version: the subscription stands.
            world.say(StateChanged("state", DetectionLearned(sighting())))
            said, _ = await reader.communicate()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        # This node, alice, speaks of bob's sighting: the parent is alice's own span `learn`.
        assert said.decode().strip() == f"traceparent:{trace_of_view(sighting()).traceparent(ALICE, 1.0)}"


async def test_the_whole_picture_comes_however_small_the_buffer_is(tmp_path: Path) -> None:
    world = World()
    world.views = [object_view(f"o{number:03}") for number in range(120)]
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port, buffer_messages=10, inflight_messages=2)
        async with running(world, config) as bridge:
            seen: set[str] = set()

            def all_there(topic: str, _retained: bool, _text: str) -> bool:
                seen.add(topic)
                return len(seen) == 120

            await heard(server.port, "swarm/v1/farm/objects/+", all_there)
            assert "dropped_buffer_full" not in bridge.counters()


async def test_what_lives_is_told_again_before_it_expires(tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        async with running(World(), MqttConfig(enabled=True, port=server.port, object_expiry_s=1)):
            subscriber = Subscriber(server.port, "swarm/v1/farm/objects/o1", "swarm/v1/farm/jobs/c01")
            try:
                told = [
                    await asyncio.to_thread(subscriber.wait_for, lambda topic, _r, _p: "/objects/" in topic)
                    for _ in range(3)
                ]
                job = await asyncio.to_thread(subscriber.wait_for, lambda topic, _r, _p: "/jobs/" in topic)
            finally:
                subscriber.close()
    assert {topic for topic, _, _ in told} == {"swarm/v1/farm/objects/o1"}
    assert len({text for _, _, text in told}) == 1, "the same is said of it each time"
    assert job[2], "a job that lives is never told as gone"


async def test_a_message_that_the_broker_cannot_take_does_not_end_the_connection(tmp_path: Path) -> None:
    world = World()
    extra = "listener {port} 127.0.0.1\nallow_anonymous true\nmax_packet_size 1000\n"
    with broker(tmp_path, extra) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("connects", 0) == 1)
            world.peer_name = "b" * 2000
            world.say(detection())
            await until(lambda: bridge.counters().get("dropped_too_large", 0) == 1)
            world.peer_name = "bob"
            topic = "swarm/v1/farm/detections"
            _, _, text = await heard(server.port, topic, lambda *_: True, lambda: world.say(detection()))
            assert json.loads(text)["properties"]["node"] == "bob"
            assert bridge.counters()["connects"] == 1
    said = [str(arguments["text"]) for verb, arguments in world.commands if verb == "note_problem"]
    assert any("takes 1000 bytes" in text for text in said)


async def test_a_message_that_the_broker_refuses_is_counted_and_said(tmp_path: Path) -> None:
    world, rules = World(), tmp_path / "rules"
    rules.write_text("topic write swarm/v1/farm/node/#\ntopic read #\n")
    rules.chmod(0o644)
    extra = f"listener {{port}} 127.0.0.1\nallow_anonymous true\nacl_file {rules}\nuser root\n"
    with broker(tmp_path, extra) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("refused", 0) >= 2)
            await until(lambda: bridge.counters().get("published", 0) >= 3)
    said = [str(arguments["text"]) for verb, arguments in world.commands if verb == "note_problem"]
    assert len([text for text in said if "refused a message on swarm/v1/farm/" in text]) == 1


class Cable:
    """A TCP relay to the broker that can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Cable":
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._open += [writer, back]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.transport.abort()

        await asyncio.gather(pump(reader, back), pump(there, writer))

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


async def test_a_short_loss_of_the_connection_is_no_news(tmp_path: Path) -> None:
    """The will's delay holds only while the session lives on: whoever comes back within it was never offline."""
    world = World()
    with broker(tmp_path) as server:
        async with Cable(server.port) as cable:
            config = MqttConfig(enabled=True, port=cable.port, will_delay_s=60, reconnect_max_s=1)
            async with running(world, config) as bridge:
                await until(lambda: bridge.counters().get("published", 0) >= 4)
                subscriber = Subscriber(server.port, "swarm/v1/farm/node/alice/state", "swarm/v1/farm/detections")
                try:
                    await asyncio.to_thread(subscriber.wait_for, lambda _t, retained, _p: retained)
                    cable.cut()
                    await until(lambda: bridge.counters().get("connects", 0) == 2)
                    world.say(detection())
                    states: list[str] = []

                    def until_detection(topic: str, _retained: bool, text: str) -> bool:
                        if topic.endswith("/state"):
                            states.append(text)
                        return topic.endswith("/detections")

                    await asyncio.to_thread(subscriber.wait_for, until_detection)
                finally:
                    subscriber.close()
    assert states == ["online"]


async def test_a_stop_says_offline(tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        async with running(World(), MqttConfig(enabled=True, port=server.port, will_delay_s=60)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
        _, retained, text = await heard(server.port, "swarm/v1/farm/node/alice/state", lambda *_: True)
        assert (retained, text) == (True, "offline")


async def test_a_stop_says_offline_even_when_the_broker_is_behind(tmp_path: Path) -> None:
    world = World()
    server = Broker(tmp_path)
    server.start()
    try:
        async with running(world, MqttConfig(enabled=True, port=server.port, will_delay_s=0)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
            server.freeze()
            for number in range(100):
                world.say(own_detection(number))
        server.thaw()
        _, _, text = await heard(server.port, "swarm/v1/farm/node/alice/state", lambda _t, _r, p: p == "offline")
        assert text == "offline"
    finally:
        server.stop()


async def test_homie_says_lost_when_the_daemon_dies(tmp_path: Path) -> None:
    world = World()
    with broker(tmp_path) as server:
        async with Cable(server.port) as cable:
            config = MqttConfig(enabled=True, port=cable.port, homie=True, will_delay_s=0, reconnect_max_s=1)
            async with running(world, config):
                subscriber = Subscriber(server.port, "homie/5/alice/$state")
                try:
                    await asyncio.to_thread(subscriber.wait_for, lambda _t, _r, text: text == "ready")
                    cable.cut()
                    await asyncio.to_thread(subscriber.wait_for, lambda _t, _r, text: text == "lost")
                    await asyncio.to_thread(subscriber.wait_for, lambda _t, _r, text: text == "ready")
                finally:
                    subscriber.close()
            _, _, text = await heard(server.port, "homie/5/alice/$state", lambda *_: True)
            assert text == "disconnected"


async def test_where_others_are_is_told_and_taken_back(tmp_path: Path) -> None:
    world = World()
    place = NodePosition(BOB, -18.88, -70.11, 25.0, None, 1.5, 800, time.monotonic_ns())
    with broker(tmp_path) as server:
        async with running(world, MqttConfig(enabled=True, port=server.port, telemetry_hz=100)) as bridge:
            await until(lambda: bridge.counters().get("connects", 0) == 1)
            topic = "swarm/v1/farm/positions/bob"
            await heard(server.port, topic, lambda *_: True, lambda: world.say(PositionSeen(BOB, "bob", place)))
            _, retained, text = await heard(server.port, topic, lambda *_: True)
            assert retained
            told = json.loads(text)
            jsonschema.validate(told, dict(spec("position").schema))
            assert told["geometry"]["coordinates"] == [-70.11, -18.88]
            assert (told["properties"]["yaw_deg"], told["properties"]["battery"]) == (None, 0.8)
            lost = PositionSeen(BOB, "bob", None)
            await heard(server.port, topic, lambda _t, _r, p: p == "", lambda: world.say(lost))
