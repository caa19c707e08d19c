"""The door for operators: who comes in, who does not, what strangers cost, and what a renewed certificate needs."""

import asyncio
import contextlib
import io
import random
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swarmd.api import operators
from swarmd.api.control import ControlClient, ControlServer
from swarmd.api.operators import HANDSHAKES_MAX, LOOKING, OperatorDoor
from swarmd.api.remote import place
from swarmd.api.verbs import Verbs
from swarmd.config.sections import OperatorsSection
from swarmd.errors import ControlError, DaemonError
from swarmd.logs import Logger
from tests.support.authority import Authority

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"
)

PATIENCE_S = 90.0
"""Seconds that anything may take to come true."""
CLIENT, SERVER = "extendedKeyUsage=clientAuth\n", "extendedKeyUsage=serverAuth\n"


@dataclass
class Site:
    """One device's door, and folders of operators."""

    folder: Path
    operators: Authority
    devices: Authority
    settings: OperatorsSection
    door: OperatorDoor
    log: io.StringIO
    commands: list[tuple[str, str, str]]
    """Verb, by whom, why it was refused."""
    alerts: list[str]

    def operator(self, name: str, authority: Authority | None = None, extra: str = CLIENT) -> Path:
        """The folder of an operator who holds a certificate."""
        certificate, key = (authority or self.operators).issue(name, extra)
        folder = self.folder / f"{name}-{(authority or self.operators).name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(certificate, folder / "operator.pem")
        shutil.copy(key, folder / "operator.key")
        shutil.copy(self.devices.certificate, folder / "ca.pem")
        return folder

    async def ask(self, folder: Path, verb: str, patch: pytest.MonkeyPatch, **arguments: object) -> dict[str, Any]:
        patch.setenv("SWARMD_OPERATOR", str(folder))
        return await asyncio.to_thread(_call, self.door.address, verb, arguments)

    async def opened(self) -> None:
        """Wait until the door listens."""
        await until(lambda: bool(self.door.address), "the door is open")


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    while not holds():
        assert loop.time() < end_s, f"waited {PATIENCE_S} s until {what}"
        await asyncio.sleep(0.01)


def _call(address: str, verb: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    with ControlClient(place(f"tls://{address}")) as client:
        return client.call(verb, **arguments)


def _watched(address: str) -> list[dict[str, Any]]:
    with ControlClient(place(f"tls://{address}")) as client:
        return list(client.watch())


async def _one_notice() -> AsyncIterator[Mapping[str, Any]]:
    yield {"event": "join", "subject": "a"}


@contextlib.asynccontextmanager
async def site(tmp_path: Path, *, opens: bool = True) -> AsyncIterator[Site]:
    both = [Authority(tmp_path, name).make() for name in ("operators", "devices")]
    certificate, key = both[1].issue("drone-1", SERVER)
    settings = OperatorsSection(
        listen="127.0.0.1:0",
        ca_file=str(both[0].certificate),
        cert_file=str(certificate),
        key_file=str(key),
        allow=("alice", "bob:look"),
    )
    verbs, log = Verbs(), io.StringIO()
    for verb in ("status", "members", "leave", "observe", "reload"):
        verbs.add(verb, lambda arguments: {"got": dict(arguments)})
    commands: list[tuple[str, str, str]] = []
    logger = Logger("n", stream=log)
    control = ControlServer(
        tmp_path / "control",
        verbs.answer,
        _one_notice,
        logger,
        on_command=lambda verb, arguments, by, problem: commands.append((verb, by, problem)),
    )
    alerts: list[str] = []
    door = OperatorDoor(settings if opens else OperatorsSection(), control, logger, alerts.append)
    task = asyncio.create_task(door.run())
    made = Site(tmp_path, *both, settings, door, log, commands, alerts)
    try:
        if opens:
            await made.opened()
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_who_is_on_the_list_asks_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            alice, bob = here.operator("alice"), here.operator("bob")
            assert await here.ask(alice, "leave", monkeypatch, when=1) == {"got": {"when": 1}}
            verb, by, problem = here.commands[-1]
            assert (verb, problem) == ("leave", "")
            assert by.startswith("operator alice from 127.0.0.1 (certificate ")
            assert await here.ask(bob, "members", monkeypatch) == {"got": {}}
            with pytest.raises(DaemonError, match="bob may only look"):
                await here.ask(bob, "leave", monkeypatch)
            assert here.commands[-1][2].startswith("bob may only look")
            assert here.door.counts["connected"] == 3
            assert await asyncio.to_thread(_watched, here.door.address) == [{"event": "join", "subject": "a"}]
            long = "x" * 60_000  # Of several TLS records, there and back.
            assert await here.ask(alice, "leave", monkeypatch, when=long) == {"got": {"when": long}}
            with pytest.raises(DaemonError, match=r"hung up|at most"):
                await here.ask(alice, "leave", monkeypatch, when=long * 2)

    asyncio.run(story())


def test_who_may_only_look_asks_nothing_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            bob = here.operator("bob")
            for verb in ("observe", "reload", "leave", "no such verb"):
                assert verb not in LOOKING
                with pytest.raises(DaemonError, match="may only look"):
                    await here.ask(bob, verb, monkeypatch)

    asyncio.run(story())


def test_the_verbs_of_who_may_only_look_change_nothing() -> None:
    from swarmd.api.node_verbs import _CHANGING, _VERBS

    assert LOOKING.isdisjoint(_CHANGING)
    others = set(_VERBS) - LOOKING - _CHANGING
    assert others == {"cell_next", "cell_done", "observe"}, "a new verb is put on a list by somebody who thought of it"


def test_nobody_else_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            stranger = Authority(tmp_path, "stranger").make()
            carol = here.operator("carol")
            for folder, said in (
                (here.operator("alice", stranger), "does not accept this operator's certificate|hung up"),
                (here.operator("alice", here.devices, SERVER), "does not accept this operator's certificate|hung up"),
                (here.operator("alice", None, SERVER), "does not accept this operator's certificate|hung up"),
                (carol, "does not list 'carol'"),
            ):
                with pytest.raises(DaemonError, match=said):
                    await here.ask(folder, "status", monkeypatch)
            assert here.commands == []
            assert here.door.counts["refused_certificate"] == 3
            assert here.door.counts["refused_name"] == 1
            assert "connected" not in here.door.counts
            assert here.log.getvalue().count("operator_refused") >= 2

    asyncio.run(story())


def test_plain_text_no_certificate_and_older_tls_are_turned_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            host, _, port = here.door.address.rpartition(":")
            plain = await asyncio.to_thread(_say, host, int(port), b'{"verb":"leave"}\n')
            assert b"ok" not in plain
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            bare.load_verify_locations(here.devices.certificate)
            assert b"ok" not in await asyncio.to_thread(_say_tls, bare, host, int(port))
            certificate, key = here.operators.issue("alice", CLIENT)
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.load_verify_locations(here.devices.certificate)
            old.load_cert_chain(certificate, key)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            assert await asyncio.to_thread(_say_tls, old, host, int(port)) == b""
            assert here.commands == []

    asyncio.run(story())


def _connect(host: str, port: str) -> socket.socket:
    return socket.create_connection((host, int(port)), PATIENCE_S)


def _say(host: str, port: int, data: bytes) -> bytes:
    with socket.create_connection((host, port), PATIENCE_S) as sock, contextlib.suppress(OSError):
        sock.sendall(data)
        return sock.recv(1 << 16)
    return b""


def _say_tls(context: ssl.SSLContext, host: str, port: int) -> bytes:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), PATIENCE_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as sealed,
    ):
        sealed.sendall(b'{"verb":"leave"}\n')
        return sealed.recv(1 << 16)
    return b""


def test_a_false_device_gets_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers at the device's address with a certificate of another authority hears not a word."""

    async def story() -> None:
        async with site(tmp_path) as here:
            alice = here.operator("alice")
            shutil.copy(here.operators.certificate, alice / "ca.pem")
            with pytest.raises(ControlError, match="its certificate is not accepted"):
                await here.ask(alice, "leave", monkeypatch)
            assert here.commands == []

    asyncio.run(story())


def test_an_operators_files_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            alice = here.operator("alice")
            (alice / "operator.key").chmod(0o644)
            with pytest.raises(ControlError, match="chmod 600"):
                await here.ask(alice, "status", monkeypatch)
            (alice / "operator.key").unlink()
            with pytest.raises(ControlError, match=r"holds operator\.pem, operator\.key, ca\.pem"):
                await here.ask(alice, "status", monkeypatch)

    asyncio.run(story())


def test_a_device_without_a_door_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for text in ("tls://", "tls://drone-1:99999", "tls://::1", "tls://drone-1:x"):
        with pytest.raises(ControlError, match="names no daemon"):
            place(text)
    assert str(place(f"tls://127.0.0.1:{port}")) == f"tls://127.0.0.1:{port}"


def test_rubbish_and_hung_strangers_keep_no_operator_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bytes of strangers, and more of those who say nothing than there is room for."""
    monkeypatch.setattr(operators, "PER_SOURCE_BURST", 1_000)
    monkeypatch.setattr(operators, "TOTAL_BURST", 1_000)

    async def story() -> None:
        async with site(tmp_path) as here:
            alice = here.operator("alice")
            host, _, port = here.door.address.rpartition(":")
            draw = random.Random(14)
            with contextlib.ExitStack() as open_ones:
                for _ in range(50):
                    head = draw.choice((b"", b"\x16\x03\x01", b"\x16\x03\x03\x00\xff\x01", b"\x15\x03\x03\x00\x02"))
                    with await asyncio.to_thread(_connect, host, port) as sock, contextlib.suppress(OSError):
                        sock.sendall(head + draw.randbytes(draw.randrange(0, 2000)))
                for _ in range(2 * HANDSHAKES_MAX):
                    open_ones.enter_context(await asyncio.to_thread(_connect, host, port))
                assert await here.ask(alice, "status", monkeypatch) == {"got": {}}
                assert len(here.door._greeting) <= HANDSHAKES_MAX
                assert here.door.counts["crowded_out"] >= HANDSHAKES_MAX
            assert [verb for verb, _, _ in here.commands] == ["status"]
            assert len(here.log.getvalue().splitlines()) < 60, "strangers do not fill the log"

    asyncio.run(story())


def test_a_peer_that_is_gone_before_it_is_met_shuts_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to set anything on a socket whose peer has reset it."""
    meet, failures = operators._notice_silence, [OSError(22, "Invalid argument")]

    def gone_once(sock: socket.socket) -> None:
        if failures:
            raise failures.pop()
        meet(sock)

    monkeypatch.setattr(operators, "_notice_silence", gone_once)

    async def story() -> None:
        async with site(tmp_path) as here:
            alice = here.operator("alice")
            with pytest.raises(ControlError):
                await here.ask(alice, "status", monkeypatch)
            assert await here.ask(alice, "status", monkeypatch) == {"got": {}}

    asyncio.run(story())


def test_who_knocks_too_often_is_hung_up_on_unseen(tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            host, _, port = here.door.address.rpartition(":")
            for _ in range(operators.PER_SOURCE_BURST + 20):
                (await asyncio.to_thread(_connect, host, port)).close()
            await until(lambda: here.door.counts["limited"] >= 10, "they are limited")
            assert "connected" not in here.door.counts
            assert here.commands == [], "nobody was asked anything"

    asyncio.run(story())


def test_an_operators_oldest_connection_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path) as here:
            monkeypatch.setenv("SWARMD_OPERATOR", str(here.operator("alice")))
            remote = place(f"tls://{here.door.address}")
            with contextlib.ExitStack() as held:
                clients = []
                for _ in range(operators.OPERATOR_MAX + 1):
                    clients.append(held.enter_context(await asyncio.to_thread(ControlClient, remote)))
                    assert await asyncio.to_thread(clients[-1].call, "status") == {"got": {}}
                with pytest.raises(ControlError):
                    await asyncio.to_thread(clients[0].call, "status")
                assert len(here.door._inside) <= operators.OPERATOR_MAX

    asyncio.run(story())


def test_a_name_that_goes_is_out_at_once_and_a_renewed_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "LOOK_S", 0.05)

    async def story() -> None:
        async with site(tmp_path) as here:
            monkeypatch.setenv("SWARMD_OPERATOR", str(here.operator("alice")))
            inside = await asyncio.to_thread(ControlClient, place(f"tls://{here.door.address}"))
            here.door.configure(replace(here.settings, allow=("bob",)))
            with contextlib.closing(inside), pytest.raises(ControlError):
                await _ask_on(inside)  # The door opens anew on the loop.
            await here.opened()
            with pytest.raises(DaemonError, match="does not list 'alice'"):
                await here.ask(here.operator("alice"), "status", monkeypatch)
            # The device's certificate is renewed in place; then it is broken, which shuts the door and says so.
            bob, before = here.operator("bob"), here.door.address
            here.devices.issue("drone-1", SERVER)
            await until(lambda: here.door.address not in ("", before), "it opens anew")
            assert await here.ask(bob, "leave", monkeypatch) == {"got": {}}
            good = Path(here.settings.cert_file).read_text()
            Path(here.settings.cert_file).write_text("nothing")
            await until(lambda: here.alerts[-1] != "", "it says why it is shut")
            assert "cannot use ca_file, cert_file, key_file" in here.alerts[-1]
            Path(here.settings.cert_file).write_text(good)
            await here.opened()
            assert here.alerts[-1] == ""

    asyncio.run(story())


async def _ask_on(client: ControlClient) -> None:
    for _ in range(100):
        await asyncio.to_thread(client.call, "status")


def test_the_door_opens_by_a_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with site(tmp_path, opens=False) as here:
            alice = here.operator("alice")
            assert here.door.address == ""
            here.door.configure(here.settings)
            await here.opened()
            assert await here.ask(alice, "status", monkeypatch) == {"got": {}}
            here.door.configure(OperatorsSection())
            await until(lambda: here.door.address == "", "it is shut")

    asyncio.run(story())
