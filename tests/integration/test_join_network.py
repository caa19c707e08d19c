"""`swarmd keys admit` and `swarmd enrol` over a real socket, with devices that are slow, loud, many, or hostile."""

import asyncio
import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmd.cli import admit
from swarmd.cli.admit import CLIENTS_MAX, Listener
from swarmd.cli.main import main
from swarmd.identity.admission import Desk
from swarmd.identity.files import load_identity
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.join_tokens import make_token
from swarmd.identity.officers import Passphrases
from swarmd.identity.signers import open_signer
from tests.support.daemons import PATIENCE_S, wait_for


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = create_fleet(tmp_path / "fleet", "acme", {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1)})
    made.enrol("first", "farm")
    return made


@pytest.fixture
def address(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(admit, "EXCHANGE_S", 8.0)
    key = open_signer(str(fleet.folder / "keys" / "enrol-1.key"), Passphrases())
    listener = Listener(Desk(fleet.folder, [key]))
    loop = asyncio.new_event_loop()

    def serve() -> None:
        # As the command does: what is still connected at the end is hung up on before the loop goes.
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(listener.run("127.0.0.1", 0))

    running = threading.Thread(target=serve)
    running.start()
    wait_for(lambda: listener.address, "the desk listens")
    yield listener.address
    loop.call_soon_threadsafe(listener._done.set)
    running.join()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def enrol(folder: Path, token: str) -> int:
    folder.mkdir(exist_ok=True)
    path = folder / "token"
    path.write_text(token + "\n")
    return main(["enrol", "--identity", str(folder / "identity"), "--token-file", str(path), "--wait", "0"])


def test_a_device_joins_and_a_second_one_with_its_token_does_not(
    fleet: Fleet, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = make_token(fleet, "farm", "drone-1", [address]).text
    assert enrol(tmp_path / "d1", token) == 0
    identity = load_identity(tmp_path / "d1" / "identity")
    assert (identity.name, identity.swarm) == ("drone-1", "farm")
    assert (tmp_path / "d1" / "identity" / "node.identity").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "d1" / "identity" / "node.seed").exists()
    assert identity.seed.hex() not in capsys.readouterr().out
    assert enrol(tmp_path / "d2", token) == 1
    assert "used by another device" in capsys.readouterr().err
    assert enrol(tmp_path / "d1", token) == 1
    assert "exists already" in capsys.readouterr().err


def test_slow_loud_and_hung_clients_keep_no_device_out(
    fleet: Fleet, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than the desk serves at once: some say nothing, some a byte, some a giant's length, some any bytes."""
    with contextlib.ExitStack() as stack:
        for number in range(3 * CLIENTS_MAX):
            client = stack.enter_context(connect(address))
            said = (b"", b"\0", (1 << 31).to_bytes(4, "big") + b"x" * 1_000, b"\0\0\0\x40" + os.urandom(64))[number % 4]
            with contextlib.suppress(OSError):
                client.sendall(said)
        assert enrol(tmp_path / "d1", make_token(fleet, "farm", "drone-1", [address]).text) == 0
    giant = connect(address)
    giant.sendall((1 << 20).to_bytes(4, "big"))
    assert giant.recv(1) == b"", "hung up on without reading it"
    giant.close()
    stranger = connect(address)
    stranger.sendall((100).to_bytes(4, "big") + b"swj1" + os.urandom(96))
    assert stranger.recv(8) == b"\0\0\0\1\0", "refused in one byte"
    stranger.close()


def test_who_only_connects_keeps_no_device_out(
    fleet: Fleet, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent connections that nothing ends but the desk itself: a device joins among them, and few stay open."""
    monkeypatch.setattr(admit, "EXCHANGE_S", 600.0)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(address)) for _ in range(3 * CLIENTS_MAX)]
        assert enrol(tmp_path / "d1", make_token(fleet, "farm", "drone-1", [address]).text) == 0

        def hung_up() -> list[socket.socket]:
            return select.select(silent, [], [], 0)[0]

        wait_for(lambda: len(hung_up()) >= 2 * CLIENTS_MAX, "those that are too many to be hung up on")
        assert len(hung_up()) <= 2 * CLIENTS_MAX + 1


def test_a_desk_that_hangs_or_lies_gets_nothing_from_the_device(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from swarmd.cli import enrol as verb

    monkeypatch.setattr(verb, "EXCHANGE_S", 0.5)
    for number, said in enumerate((b"", b"\xff\xff\xff\xff", (64).to_bytes(4, "big") + os.urandom(64))):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

            def serve(server: socket.socket = server, said: bytes = said) -> None:
                client, _ = server.accept()
                with client:
                    client.recv(1_024)
                    client.sendall(said)
                    with contextlib.suppress(OSError):
                        client.recv(1)

            running = threading.Thread(target=serve)
            running.start()
            token = make_token(fleet, "farm", f"drone-{number}", [f"127.0.0.1:{port}"]).text
            assert enrol(tmp_path / f"d{number}", token) == 1
            running.join()
        assert not (tmp_path / f"d{number}" / "identity" / "node.identity").exists()
        assert "answer" in capsys.readouterr().err
