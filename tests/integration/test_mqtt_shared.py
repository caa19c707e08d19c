"""Several devices on one real mosquitto: each shared topic is told once, and taken over; and what a broker may hold."""

import asyncio
import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from swarmd.api.daemon import MemberView, NodeInfo, PictureSeen
from swarmd.bridges.mqtt.bridge import RETELL_S, SETTLE_S, MqttBridge
from swarmd.bridges.mqtt.link import Incoming
from swarmd.config.bridges import MqttConfig
from swarmd_protocols.effects import MemberChanged, MemberState, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import ObjectChanged
from tests.integration.test_mqtt_bridge import heard, running, until
from tests.support.bridge_world import ALICE, BOB, Subscriber, World, broker, happened, mosquitto_binary, object_view
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)")

BASE = "swarm/v1/farm"
QUIET_S = RETELL_S + SETTLE_S
"""Nothing more comes after this: a device that met or lost another tells its share of everything by then."""


class Device(World):
    """One of several devices of a swarm in which everybody is alive until a test says otherwise."""

    def __init__(self, node: NodeId, name: str) -> None:
        super().__init__(name)
        self.node = node
        self.model = "small-320"
        self.states = {"alice": MemberState.ALIVE, "bob": MemberState.ALIVE}

    def info(self) -> NodeInfo:
        labels = ("hot-spot",) if self.model else ()
        return NodeInfo(self.node, self.name, "farm", "0.1.0", -18.88, -70.11, self.model, "ab" * 32, labels)

    def members(self) -> Sequence[MemberView]:
        return [
            MemberView(node, name, "127.0.0.1:7946", self.states[name], 3, None, 0.0, "good", (), "0.1.0", "eye", {})
            for node, name in ((ALICE, "alice"), (BOB, "bob"))
        ]


def devices() -> tuple[Device, Device]:
    return Device(ALICE, "alice"), Device(BOB, "bob")


def objects(count: int) -> list[ObjectChanged]:
    return [ObjectChanged("new", object_view(f"o{number}"), "") for number in range(count)]


async def settled(*bridges: MqttBridge) -> None:
    """Each has said what it had to say when they met: nothing was published for a while."""
    deadline, last, turns = time.monotonic() + 60, -1, 0
    while turns * 0.02 < QUIET_S:  # Counted in turns that they had too: a process that was stopped was not quiet.
        assert time.monotonic() < deadline, "they never end"
        turns += 1
        if (said := sum(bridge.counters().get("published", 0) for bridge in bridges)) != last:
            last, turns = said, 0
        await asyncio.sleep(0.02)


async def everything(ear: Subscriber, enough: int = 0) -> list[tuple[str, bool, str]]:
    """What it hears until there is `enough` and nothing comes any more; it is closed then."""
    try:
        return await asyncio.to_thread(ear.rest, enough, QUIET_S)
    finally:
        ear.close()


async def test_each_shared_topic_has_one_publisher(tmp_path: Path) -> None:
    alice, bob = devices()
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port)
        async with running(alice, config) as first, running(bob, config) as second:
            await until(lambda: "bob" in first._shares._online and "alice" in second._shares._online)
            await settled(first, second)
            ear = await asyncio.to_thread(Subscriber, server.port, f"{BASE}/objects/+")
            for change in objects(40):
                for world in (alice, bob):
                    world.say(StateChanged("state", change))
            told = [topic for topic, retained, _ in await everything(ear, 40) if not retained]
    assert len(told) == len(set(told)) == 40


async def test_each_event_is_told_once_by_the_device_where_it_happened(tmp_path: Path) -> None:
    alice, bob = devices()
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port)
        async with running(alice, config) as first, running(bob, config) as second:
            await until(lambda: "bob" in first._shares._online and "alice" in second._shares._online)
            await settled(first, second)
            ear = await asyncio.to_thread(Subscriber, server.port, f"{BASE}/node/+/events")
            for number in range(10):
                for world in (alice, bob):
                    world.say(happened(number, origin=ALICE))
                    world.say(happened(number, origin=BOB))
            heard_ = await everything(ear, 20)
    told = [(topic, json.loads(text)["id"]) for topic, _, text in heard_]
    assert len(told) == len(set(told)) == 20
    assert all(json.loads(text)["origin"] in topic for topic, _, text in heard_)


async def test_nobodys_word_takes_a_living_device_off_the_broker(tmp_path: Path) -> None:
    alice, bob = devices()
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port, homeassistant=True)
        async with running(alice, config) as first, running(bob, config) as second:
            await until(lambda: "bob" in first._shares._online)
            await settled(first, second)
            ear = await asyncio.to_thread(Subscriber, server.port, "#")
            for kind in ("revoked", "dismissed"):
                alice.say(happened(kind=kind, subject="bob"))
            await asyncio.to_thread(ear.wait_for, lambda topic, _, text: "/events" in topic and "dismissed" in text)
            said = await everything(ear)
    assert [topic for topic, retained, text in said if not retained and not text] == []


async def test_what_a_dead_device_told_is_taken_over(tmp_path: Path) -> None:
    """Its connection still stands: the swarm knows of the death before the broker does."""
    alice, bob = devices()
    alice.views = bob.views = [object_view(f"o{number}") for number in range(40)]
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port)
        async with running(alice, config) as first, running(bob, config) as second:
            await until(lambda: "bob" in first._shares._online)
            await settled(first, second)
            ear = await asyncio.to_thread(Subscriber, server.port, f"{BASE}/objects/+")
            await asyncio.to_thread(ear.rest, 40)  # What is retained.
            alice.states["bob"] = MemberState.FAILED
            alice.say(MemberChanged(BOB, "bob", MemberState.ALIVE, MemberState.FAILED, "silent"))
            told = {topic for topic, retained, _ in await everything(ear, 40) if not retained}
    assert len(told) == 40


async def test_who_comes_and_goes_without_end_keeps_no_picture_back(tmp_path: Path) -> None:
    """Anybody who may publish a state can: the share changes again and again while the picture is about to be told."""
    alice, _ = devices()
    alice.views = [object_view(f"o{number}") for number in range(40)]
    with broker(tmp_path) as server:
        async with running(alice, MqttConfig(enabled=True, port=server.port)) as bridge:
            told: Counter[float] = Counter()
            real = bridge._publish

            def publish(name: str, body: object, **rest: str) -> None:
                told[time.monotonic()] += name == "object"
                real(name, body, **rest)

            bridge._publish = publish  # type: ignore[method-assign,assignment]
            await until(lambda: bridge._link is not None and bridge._link.connected)
            began_s = time.monotonic()
            for word in ["online", "offline"] * 25:
                bridge._on_message(Incoming(f"{BASE}/node/mallory/state", word.encode(), "", None))
                await asyncio.sleep(SETTLE_S / 5)
            took_s = time.monotonic() - began_s
    assert 10 <= told.total() <= 40 * (2 + took_s / RETELL_S), (
        "its share, with mallory there or not; not with each word"
    )


async def test_birth_and_discovery_come_again_when_the_eye_is_ready(tmp_path: Path) -> None:
    alice, _ = devices()
    alice.model = ""
    with broker(tmp_path) as server:
        async with running(alice, MqttConfig(enabled=True, port=server.port, homeassistant=True)):
            _, _, text = await heard(server.port, f"{BASE}/node/alice/birth", lambda *_: True)
            assert json.loads(text)["model"] == ""

            def ready() -> None:
                alice.model = "small-320"
                alice.say(happened(kind="eye-ready"))

            wanted = lambda _topic, _retained, text: json.loads(text)["model"] == "small-320"  # noqa: E731
            _, _, text = await heard(server.port, f"{BASE}/node/alice/birth", wanted, ready)
            assert json.loads(text)["labels"] == ["hot-spot"]
            found = lambda _topic, _retained, text: json.loads(text)["device"]["model"] == "small-320"  # noqa: E731
            await heard(server.port, "homeassistant/device/+/config", found)


async def test_a_retained_command_is_not_run(tmp_path: Path) -> None:
    alice, _ = devices()
    with broker(tmp_path) as server:
        command = ["mosquitto_pub", "-p", str(server.port), "-t", f"{BASE}/cmd/all/event", "-m", '{"name":"land"}']
        subprocess.run([*command, "-r"], check=True, timeout=60)
        async with running(alice, MqttConfig(enabled=True, port=server.port)) as bridge:
            await until(lambda: bridge.counters().get("commands_retained", 0) == 1)
            assert not [verb for verb, _ in alice.commands if verb == "event"]
            subprocess.run(command, check=True, timeout=60)
            await until(lambda: any(verb == "event" for verb, _ in alice.commands))


async def test_a_dismissed_member_leaves_nothing_retained(tmp_path: Path) -> None:
    alice, bob = devices()
    with broker(tmp_path) as server:
        config = MqttConfig(enabled=True, port=server.port, homeassistant=True, homie=True)
        async with running(alice, config) as first:
            async with running(bob, config) as second:
                await until(lambda: "bob" in first._shares._online)
                await settled(first, second)
            await until(lambda: "bob" not in first._shares._online)
            alice.states["bob"] = MemberState.FAILED
            alice.say(happened(kind="dismissed", subject="bob"))
            await settled(first)
            ear = await asyncio.to_thread(Subscriber, server.port, "#")
            topics = {topic for topic, retained, _ in await everything(ear) if retained}
    left = {topic for topic in topics if "bob" in topic or BOB.hex()[:16] in topic}
    assert left == set()
    assert "homie/5/alice/swarm/members" in topics, "a device that is there keeps its own"
    assert f"{BASE}/node/alice/birth" in topics


async def test_homie_has_typed_properties(tmp_path: Path) -> None:
    alice, _ = devices()
    with broker(tmp_path) as server:
        async with running(alice, MqttConfig(enabled=True, port=server.port, homie=True)):
            _, _, text = await heard(server.port, "homie/5/alice/$description", lambda *_: True)
            nodes = json.loads(text)["nodes"]
            for node, described in nodes.items():
                for key, one in described["properties"].items():
                    assert one["datatype"] in ("integer", "float"), (node, key)
            kept = lambda _topic, retained, text: retained and text == "2"  # noqa: E731
            await heard(server.port, "homie/5/alice/swarm/members", lambda *_: True)
            await heard(server.port, "homie/5/alice/swarm/members", kept)


async def test_a_picture_comes_when_asked_and_only_then(tmp_path: Path) -> None:
    alice, _ = devices()
    with broker(tmp_path) as server:
        async with running(alice, MqttConfig(enabled=True, port=server.port, pictures=True)) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 2)
            assert not alice.watchers
            ask = ["mosquitto_pub", "-p", str(server.port), "-t", f"{BASE}/cmd/alice/picture", "-m", "{}"]
            subscriber = await asyncio.to_thread(Subscriber, server.port, f"{BASE}/node/alice/picture")
            try:
                subprocess.run(ask, check=True, timeout=60)
                await until(lambda: bool(alice.watchers))
                alice.watchers[0](PictureSeen(b"a picture", 640, 480, 1))
                _, _, text = await asyncio.to_thread(subscriber.wait_for, lambda *_: True)
            finally:
                subscriber.close()
            assert text == "a picture"
            assert not alice.watchers


def documented_acl() -> str:
    """The access list of docs/security.md, as it stands there."""
    page = (ROOT / "docs" / "security.md").read_text()
    found = re.search(r"```\n((?:  )?user drone-1\n.*?)\n *```", page, re.DOTALL)
    assert found is not None
    return "\n".join(line.strip() for line in found.group(1).splitlines()) + "\n"


async def test_the_documented_access_list_lets_everything_through_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(documented_acl())
    passwords = tmp_path / "passwords"
    for user in ("drone-1", "desk", "viewer"):
        flags = ["-b"] if passwords.exists() else ["-b", "-c"]
        subprocess.run(["mosquitto_passwd", *flags, str(passwords), user, "secret"], check=True, timeout=60)
    for file in (passwords, tmp_path / "acl"):
        file.chmod(0o644)
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    extra = (
        f"listener {{port}} 127.0.0.1\nuser root\nallow_anonymous false\npassword_file {passwords}\n"
        f"acl_file {tmp_path / 'acl'}\n"
    )
    with broker(tmp_path, extra) as server:
        config = MqttConfig(
            enabled=True, port=server.port, homeassistant=True, homie=True,
            username="drone-1", password_file=str(secret),
        )  # fmt: skip
        alice, _ = devices()
        client = ["-p", str(server.port), "-V", "5", "-P", "secret"]
        async with running(alice, config) as bridge:
            await until(lambda: bridge.counters().get("published", 0) >= 4)
            await settled(bridge)
            reply = f"{BASE}/reply/desk"
            ask = ["mosquitto_rr", *client, "-u", "desk", "-t", f"{BASE}/cmd/alice/status", "-e", reply, "-m", "{}"]
            done = await asyncio.to_thread(
                subprocess.run, [*ask, "-W", "50"], capture_output=True, text=True, timeout=60
            )
            assert json.loads(done.stdout)["ok"] is True
            assert bridge.counters().get("refused", 0) == 0
        sub = ["mosquitto_sub", *client, "-u", "viewer", "-t", "#", "-W", "2", "-F", "%t"]
        topics: set[str] = set()
        wanted = {"homie/5/alice/$state", f"{BASE}/node/alice/birth"}
        for _ in range(10):  # What is retained comes in two seconds, on a machine that has the time.
            shown = await asyncio.to_thread(subprocess.run, sub, capture_output=True, text=True, timeout=60)
            topics |= set(shown.stdout.split())
            if wanted <= topics and any(topic.startswith("homeassistant/device/") for topic in topics):
                break
        assert any(topic.startswith("homeassistant/device/") for topic in topics)
        assert wanted <= topics
        event = ["-t", f"{BASE}/cmd/all/event", "-m", '{"name":"land"}', "-q", "1"]
        await asyncio.to_thread(
            subprocess.run, ["mosquitto_pub", *client, "-u", "viewer", *event], capture_output=True, timeout=60
        )
        assert not [verb for verb, _ in alice.commands if verb == "event"]
