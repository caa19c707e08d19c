"""MQTT over TLS with client certificates, against a real mosquitto and a throw-away authority made by openssl."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.config.bridges import MqttConfig
from tests.support.authority import Authority
from tests.support.bridge_world import World, broker, detection, mosquitto_binary

pytestmark = [
    pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"),
]


@dataclass(frozen=True)
class Site:
    """A broker that asks for client certificates, and a configuration that it accepts."""

    port: int
    config: MqttConfig
    stranger: Authority


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    ours, stranger = Authority(tmp_path, "ours").make(), Authority(tmp_path, "stranger").make()
    certificate, key = ours.issue("broker")
    client_certificate, client_key = ours.issue("alice")
    extra = (
        "listener {port} 127.0.0.1\nallow_anonymous true\nrequire_certificate true\nuse_identity_as_username true\n"
        f"user root\ncafile {ours.certificate}\ncertfile {certificate}\nkeyfile {key}\ntls_version tlsv1.3\n"
    )
    with broker(tmp_path, extra) as server:
        config = MqttConfig(
            enabled=True,
            port=server.port,
            tls=True,
            ca_file=str(ours.certificate),
            cert_file=str(client_certificate),
            key_file=str(client_key),
            reconnect_max_s=1,
        )
        yield Site(server.port, config, stranger)


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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def problem_with(config: MqttConfig) -> str:
    """What is said about a connection that cannot be; meanwhile the swarm goes on and nothing piles up."""
    world = World()
    async with running(world, config) as bridge:
        await until(lambda: bridge.counters().get("connect_failed", 0) >= 2)
        world.say(detection())
        assert bridge.gauges()["buffered"] == 1
        assert "connects" not in bridge.counters()
        said = [str(arguments["text"]) for verb, arguments in world.commands if verb == "note_problem"]
        assert bridge._link is not None
        assert said[-1] == bridge._link.last_problem
        return said[-1]


async def test_the_right_certificates_connect_over_tls_1_3(site: Site) -> None:
    async with running(World(), site.config) as bridge:
        await until(lambda: bridge.counters().get("published", 0) >= 4)
        assert bridge._link is not None
        assert bridge._link.last_problem == ""
        assert "connect_failed" not in bridge.counters()


async def test_a_broker_of_another_authority_is_refused(site: Site) -> None:
    said = await problem_with(replace(site.config, ca_file=str(site.stranger.certificate)))
    assert "its certificate is not accepted" in said
    assert "mqtt.ca_file" in said


async def test_a_broker_under_another_name_is_refused(site: Site) -> None:
    said = await problem_with(replace(site.config, host="localhost"))
    assert "mqtt.host" in said


async def test_a_client_certificate_of_another_authority_is_refused_by_the_broker(site: Site) -> None:
    certificate, key = site.stranger.issue("alice")
    said = await problem_with(replace(site.config, cert_file=str(certificate), key_file=str(key)))
    assert "it refuses our certificate" in said
    assert "mqtt.cert_file" in said


async def test_no_client_certificate_is_refused_by_the_broker(site: Site) -> None:
    said = await problem_with(replace(site.config, cert_file="", key_file=""))
    assert "it refuses our certificate" in said


async def test_a_key_that_does_not_belong_to_the_certificate_is_said(site: Site) -> None:
    _, key = site.stranger.issue("alice")
    assert "cannot use ca_file/cert_file/key_file" in await problem_with(replace(site.config, key_file=str(key)))


async def test_a_certificate_that_is_not_there_is_said(site: Site, tmp_path: Path) -> None:
    said = await problem_with(replace(site.config, cert_file=str(tmp_path / "none.crt")))
    assert "none.crt" in said


async def test_plain_mqtt_to_a_tls_port_is_said(site: Site) -> None:
    said = await problem_with(replace(site.config, tls=False))
    assert f"127.0.0.1:{site.port}" in said
