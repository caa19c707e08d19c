"""Real Zenoh routers between gateways and a region: one is killed, one freezes, all are away; nothing is lost.

Routers are processes of `swarmd region router`, or in this one; ports are their own.
"""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from swarmd.config.bridges import MqttConfig
from swarmd.federation.live import ask_gateways
from swarmd.federation.pipes import apart, pipe_maker
from swarmd.federation.rows import ObjectQuery, ObjectsAnswer
from swarmd.federation.settings import read_config
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.uplink import PREFIX, Place
from swarmd.federation.uplink_zenoh import ZenohUplink, read_address, zenoh_maker
from swarmd_protocols.federation.shares import CLAIM_KEY
from swarmd_protocols.federation.wire import FRAME_MAX_BYTES, Way
from swarmd_protocols.ids import NodeId
from tests.support.authority import Authority
from tests.support.daemons import PATIENCE_S
from tests.support.exclusive import own_port
from tests.support.federation_site import SEED, Site
from tests.support.state_mesh import CRYPTO, SWARM

zenoh = pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra zenoh)")
pytestmark = pytest.mark.timeout(200)
UP = Place(b"s" * 16, Way.UP, NodeId(b"g" * 16))
EVERY_UP = f"{PREFIX}/+/up/+"


class Router:
    """`swarmd region router`, a process."""

    def __init__(self) -> None:
        self.port = own_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def path(self) -> str:
        return f"zenoh://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = ("-m", "swarmd", "region", "router", f"zenoh://?listen=127.0.0.1:{self.port}")
        self._process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert "a router at" in self._process.stdout.readline()

    def tell(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.poll() is None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def test_a_router_says_where_it_listens_once_it_does() -> None:
    with socket.create_server(("127.0.0.1", own_port())) as other:
        port = other.getsockname()[1]
        words = ("-m", "swarmd", "region", "router", f"zenoh://?listen=127.0.0.1:{port}")
        router = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert router.stdout is not None
            assert "Address already in use" in router.stdout.readline()
            other.close()
            while "a router at" not in (line := router.stdout.readline()):
                assert line
            socket.create_connection(("127.0.0.1", port)).close()
        finally:
            router.kill()
            router.communicate()


@contextlib.asynccontextmanager
async def site(folder: Path) -> AsyncIterator[tuple[Site, list[Router]]]:
    routers = [Router(), Router()]
    one = Site(folder, routers, lambda client: pipe_maker(MqttConfig(), PREFIX, client))
    try:
        await one.begin()
        yield one, routers
    finally:
        await one.end()


async def test_a_router_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as (one, routers):
        one.see(3)
        await one.until(lambda: one.readable() == 3, "three things")
        routers[0].stop()
        one.see(3)
        await one.until(lambda: one.readable() == 6, "what was seen when a router was dead")
        routers[1].stop()
        one.see(3)
        await asyncio.to_thread(routers[0].start)
        await one.until(lambda: one.readable() == 9, "what was seen without any router")
        assert all(gateway.refused == 0 for gateway in one.gateways)


async def test_a_router_freezes_and_the_other_carries_on(tmp_path: Path) -> None:
    async with site(tmp_path) as (one, routers):
        one.see(3)
        await one.until(lambda: one.readable() == 3, "three things")
        routers[0].tell(signal.SIGSTOP)
        try:
            one.see(3)
            await one.until(lambda: one.readable() == 6, "what was seen while a router was frozen")
        finally:
            routers[0].tell(signal.SIGCONT)


async def test_all_routers_are_away_and_nothing_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as (one, routers):
        for router in routers:
            router.stop()
        one.see(5)
        await one.until(
            lambda: not any(daemon.told[CLAIM_KEY] for daemon in one.daemons), "both to take their claim back"
        )
        for router in routers:
            await asyncio.to_thread(router.start)
        one.see(5)
        await one.until(lambda: one.readable() == 10, "everything from the outboxes")


async def test_gateways_are_asked_themselves_without_the_regions_process(tmp_path: Path) -> None:
    async with site(tmp_path) as (one, _):
        one.see(2)
        await one.until(lambda: one.readable() == 2, "two things")
        folder = region_folder(tmp_path / "asker", one)
        one.tasks[0].cancel()  # The region: from now on nobody above takes anything in.
        await asyncio.gather(one.tasks.pop(0), return_exceptions=True)
        one.see(3)

        def asked() -> ObjectsAnswer:
            store = Store(tmp_path / FILE_NAME, is_reader=True)
            try:
                query = ObjectQuery(label="hot-spot")
                known = store.objects(query, 0, 1 << 60)
                assert len(known.objects) == 2
                return ask_gateways(folder, read_config(folder), store, query, known, PATIENCE_S, CRYPTO)
            finally:
                store.close()

        answer = await asyncio.to_thread(asked)
        assert len(answer.objects) == 5
        assert [site.stale for site in answer.sites] == [False]


def region_folder(folder: Path, one: Site) -> Path:
    """What `swarmd region init` and `pin` write, of a site's region."""
    (folder / "roots").mkdir(parents=True)
    key = folder / "region.key"
    key.touch(0o600)
    key.write_bytes(SEED)
    (folder / "roots" / f"{SWARM}.root").write_bytes(one.mesh.roots[0])
    words = json.dumps(one.paths)
    (folder / "region.toml").write_text(f'paths = {words}\n[[swarm]]\nname = "{SWARM}"\nswarm = "{SWARM}"\n')
    return folder


class Paths:
    """Paths in this process, and what each heard."""

    def __init__(self, files: MqttConfig | None = None) -> None:
        self.files = files or MqttConfig()
        self.tasks: list[asyncio.Task[None]] = []
        self.heard: dict[str, list[tuple[Place, bytes]]] = {}

    def open(self, name: str, address: str, *patterns: str) -> ZenohUplink:
        heard = self.heard.setdefault(name, [])
        made: Any = zenoh_maker(self.files, PREFIX)
        one = made(address, patterns, lambda place, frame: heard.append((place, frame)))
        assert isinstance(one, ZenohUplink)
        self.tasks.append(asyncio.create_task(one.run()))
        return one

    async def until(self, holds: Any, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def paths(files: MqttConfig | None = None) -> AsyncIterator[Paths]:
    one = Paths(files)
    try:
        yield one
    finally:
        await one.end()


async def test_a_gateway_opens_the_router_itself_and_the_region_connects() -> None:
    port = own_port()
    async with paths() as all_:
        gateway = all_.open("gateway", f"zenoh://?listen=127.0.0.1:{port}", UP._replace(way=Way.DOWN).path())
        assert not gateway.send(UP, b"nobody is there")
        region = all_.open("region", f"zenoh://127.0.0.1:{port}", EVERY_UP)
        await all_.until(lambda: gateway.connected and region.connected, "both ends to be connected")
        largest = bytes(FRAME_MAX_BYTES)
        await all_.until(lambda: gateway.send(UP, largest) and all_.heard["region"], "a frame at the region")
        assert all_.heard["region"][0] == (UP, largest)
        down = UP._replace(way=Way.DOWN)
        await all_.until(lambda: region.send(down, b"answer") and all_.heard["gateway"], "an answer")
        assert {place for place, _ in all_.heard["gateway"]} == {down}
        all_.tasks[1].cancel()
        await all_.until(lambda: not gateway.connected, "the gateway to notice that it is alone")
        assert "nobody" in gateway.problem


async def test_a_large_frame_takes_no_shared_memory() -> None:
    """The library would keep 16 MB of it from the first frame of 3 KiB on, for peers on the same machine."""
    before, router = shared_maps(), Router()
    await asyncio.to_thread(router.start)
    try:
        async with paths() as all_:
            gateway = all_.open("gateway", router.path)
            region = all_.open("region", router.path, EVERY_UP)
            await all_.until(lambda: gateway.connected and region.connected, "both ends to be connected")
            await all_.until(
                lambda: gateway.send(UP, bytes(FRAME_MAX_BYTES)) and len(all_.heard["region"]) >= 3, "frames"
            )
            assert shared_maps() <= before
    finally:
        router.stop()


def shared_maps() -> set[str]:
    """Zenoh's segments of shared memory that this process has."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if line.endswith(".zenoh")}


async def test_a_region_hears_the_routers_of_several_gateways_whenever_they_begin() -> None:
    """They may begin after it, end, and begin again under the port that they had: frames cross both ways each time."""
    ports = own_port(), own_port()
    down = UP._replace(way=Way.DOWN)
    async with paths() as all_:
        named = "zenoh://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        regions = [all_.open("region", path, EVERY_UP) for path in apart([named])]
        await all_.until(lambda: all("not connected yet" not in one.problem for one in regions), "nobody to be there")
        opened: list[asyncio.Task[None]] = []
        for at in (0, 1, 0, 0, 1, 0):
            if len(opened) == 2:
                opened[at].cancel()
                await asyncio.gather(opened[at], return_exceptions=True)
                await all_.until(lambda at=at: not regions[at].connected, "the region to notice")
            gateway = all_.open(f"gw{at}", f"zenoh://?listen=127.0.0.1:{ports[at]}", down.path())
            opened[at : at + 1] = [all_.tasks[-1]]
            for heard in all_.heard.values():
                heard.clear()
            await all_.until(
                lambda gateway=gateway: gateway.send(UP, b"up") and (UP, b"up") in all_.heard["region"], "a frame up"
            )
            await all_.until(
                lambda at=at: regions[at].send(down, b"down") and (down, b"down") in all_.heard[f"gw{at}"], "one down"
            )


async def test_two_routers_are_linked_and_frames_cross_both() -> None:
    first, second = own_port(), own_port()
    async with paths() as all_:
        one = all_.open("first", f"zenoh://?listen=127.0.0.1:{first}")
        all_.open("second", f"zenoh://127.0.0.1:{first}?listen=127.0.0.1:{second}")
        await all_.until(lambda: one.connected, "the routers to be linked")
        gateway = all_.open("gateway", f"zenoh://127.0.0.1:{first}")
        all_.open("region", f"zenoh://127.0.0.1:{second}", EVERY_UP)
        await all_.until(lambda: gateway.send(UP, b"over both") and all_.heard["region"], "a frame over two routers")


async def test_the_answers_of_one_turn_are_not_lost() -> None:
    """A region answers all gateways that it has heard within a moment in one turn of its loop."""
    port, count = own_port(), 300
    down = [UP._replace(way=Way.DOWN, gateway=NodeId(at.to_bytes(16, "big"))) for at in range(count)]
    async with paths() as all_:
        all_.open("router", f"zenoh://?listen=127.0.0.1:{port}")
        region = all_.open("region", f"zenoh://127.0.0.1:{port}")
        all_.open("gateways", f"zenoh://127.0.0.1:{port}", f"{PREFIX}/+/down/+")
        await all_.until(lambda: region.send(down[0], b"0") and all_.heard["gateways"], "the first answer")
        assert all(region.send(place, bytes(500)) for place in down)
        await all_.until(
            lambda: {place for place, frame in all_.heard["gateways"] if len(frame) == 500} == set(down), "all answers"
        )


async def test_a_router_of_ours_carries_only_what_lies_below_the_prefix() -> None:
    port = own_port()
    async with paths() as all_:
        all_.open("router", f"zenoh://?listen=127.0.0.1:{port}")
        gateway = all_.open("gateway", f"zenoh://127.0.0.1:{port}")
        all_.open("region", f"zenoh://127.0.0.1:{port}", EVERY_UP)
        await all_.until(lambda: gateway.connected, "a gateway")
        config = zenoh.Config()
        for key, value in (("mode", '"client"'), ("connect/endpoints", f'["tcp/127.0.0.1:{port}"]')):
            config.insert_json5(key, value)
        config.insert_json5("scouting/multicast/enabled", "false")
        heard: list[str] = []
        with await asyncio.to_thread(zenoh.open, config) as stranger, zenoh.open(config) as other:
            stranger.declare_subscriber("**", lambda sample: heard.append(str(sample.key_expr)))
            stranger.declare_subscriber("films/**", lambda sample: heard.append(str(sample.key_expr)))
            stranger.declare_subscriber(f"{PREFIX}/no/**", lambda sample: heard.append(str(sample.key_expr)))
            # What is too large, or no place of ours, is counted and dropped.
            other.put(UP.path(), bytes(FRAME_MAX_BYTES + 1))

            def say() -> bool:
                other.put("films/1", b"not for this router")
                other.put(f"{PREFIX}/no/up/place", b"x")
                return gateway.send(UP, b"frame") and len(all_.heard["region"]) >= 5

            await all_.until(say, "some frames")
            assert {frame for _, frame in all_.heard["region"]} == {b"frame"}
            # By now or soon all that the stranger asks for stands; then a film goes before what it may hear.
            await all_.until(lambda: say() and heard.count(f"{PREFIX}/no/up/place") > 1, "the stranger hears")
            assert "films/1" not in heard


async def test_over_tls_only_who_bears_the_authoritys_certificate_is_let_in(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours").make(), Authority(tmp_path, "theirs").make()
    certificate, key = map(str, ours.issue("site"))
    files = MqttConfig(ca_file=str(ours.certificate), cert_file=certificate, key_file=key)
    port = own_port()
    async with paths(files) as all_:
        all_.open("router", f"zenohs://?listen=127.0.0.1:{port}")
        gateway = all_.open("gateway", f"zenohs://127.0.0.1:{port}")
        all_.open("region", f"zenohs://127.0.0.1:{port}", EVERY_UP)
        await all_.until(lambda: gateway.send(UP, b"over TLS") and all_.heard["region"], "a frame over TLS")
        certificate, key = map(str, theirs.issue("stranger"))
        all_.files = MqttConfig(ca_file=str(ours.certificate), cert_file=certificate, key_file=key)
        stranger = all_.open("stranger", f"zenohs://127.0.0.1:{port}")
        await all_.until(lambda: "not connected yet" not in stranger.problem, "the stranger to be told")
        assert not stranger.connected


async def test_what_is_wrong_is_said() -> None:
    port = own_port()
    async with paths(MqttConfig(ca_file="/nowhere/ca.pem")) as all_:
        lost = all_.open("lost", f"zenohs://127.0.0.1:{port}")
        await all_.until(lambda: "/nowhere/ca.pem is missing" in lost.problem, "the file to be named")
        first = all_.open("first", f"zenoh://?listen=127.0.0.1:{port}")
        await all_.until(lambda: "nobody" in first.problem, "the first to listen")
        second = all_.open("second", f"zenoh://?listen=127.0.0.1:{port}")
        await all_.until(lambda: "in use" in second.problem, "the port to be named")


def test_who_listens_is_a_router() -> None:
    assert not read_address("zenoh://a").is_router
    assert not read_address("zenoh://a,b").is_router
    assert read_address("zenoh://a,b?listen=a:1").is_router
    assert read_address("zenoh://?listen=a:1").is_router
