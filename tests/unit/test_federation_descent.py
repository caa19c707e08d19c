"""What comes down: in order, each once, by who may sign it; what does not hold is said and keeps nothing back."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from swarmd.errors import DaemonError
from swarmd.federation import descent as module
from swarmd.federation.descent import Descent
from swarmd.federation.outbox import FILE_NAME, Outbox
from swarmd.release.author import STATEMENT
from swarmd_protocols.errors import WireError
from swarmd_protocols.federation.facts import Fact, encode_fact, message_of, note_key, seal_fact
from swarmd_protocols.federation.wire import ROWS_MAX, BundleRow, DownRow, FactKind, encode_row
from swarmd_protocols.trust.envelopes import Envelope, sign_statement
from tests.support.federation_daemon import MeshDaemon
from tests.support.release_world import make_release
from tests.support.reviewing import ALICE, BOB, CAROL, name_operators
from tests.support.state_mesh import CRYPTO, SWARM, Mesh

LOG = b"a-log-8b"


class Below:
    """A gateway's way down."""

    def __init__(self, folder: Path, sources: tuple[str, ...] = ()) -> None:
        self.mesh = Mesh(2)
        name_operators(self.mesh, ALICE)
        self.daemon = MeshDaemon(self.mesh, 0)
        self.path = folder / FILE_NAME
        self.sources = sources
        self.outbox = Outbox(self.path, 1 << 20, 1e9)

    async def take(self, rows: list[DownRow], log: bytes = LOG, sources: tuple[str, ...] = ()) -> Descent:
        """Until everything is done."""
        descent = Descent(self.daemon, self.outbox, CRYPTO, sources)
        descent.take(log, rows)
        task = asyncio.create_task(descent.run())
        while (descent._rows or descent._bundles) and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self.mesh.run(3)
        return descent

    def note(self, name: str) -> bytes:
        """As the other member has it."""
        replica = self.mesh.members[1].replica
        assert replica is not None
        held = replica.views.note(note_key(name))
        return b"" if held is None else held[0]


@pytest.fixture
def below(tmp_path: Path) -> Iterator[Below]:
    one = Below(tmp_path)
    yield one
    one.outbox.close()


def fact(name: str = "mast", revision: int = 1, seed: bytes = ALICE, swarm: str = SWARM) -> bytes:
    payload = encode_fact(Fact(swarm, "note", name, revision, 1, "ann", f"revision {revision}"))
    return seal_fact(payload, CRYPTO.public_key(seed), CRYPTO.sign(seed, message_of(payload)))


async def test_a_fact_reaches_every_member_as_it_was_signed(below: Below) -> None:
    await below.take([DownRow(4, FactKind.FACT, fact())])
    assert below.note("mast") == fact()
    assert below.outbox.have == (LOG, 4)


async def test_what_no_operator_of_the_swarm_signed_is_passed_over_and_said(below: Below) -> None:
    rows = [fact(seed=BOB), fact(swarm="other"), b"nothing", fact("tower")]
    descent = await below.take([DownRow(at + 1, FactKind.FACT, row) for at, row in enumerate(rows)])
    assert below.note("mast") == b""
    assert below.note("tower") == fact("tower")
    assert descent.refused == len(below.daemon.problems) == 3


async def test_a_fact_that_comes_before_the_root_that_names_its_operator_counts_with_it(below: Below) -> None:
    rows = [fact(revision=2, seed=BOB), fact(revision=1, seed=BOB), fact("tower", seed=BOB, swarm="other")]
    descent = await below.take([DownRow(at + 1, FactKind.FACT, row) for at, row in enumerate(rows)])
    descent.look_again()
    below.mesh.run(3)
    assert below.note("mast") == b"", "no root has come"
    name_operators(below.mesh, ALICE, BOB)
    descent.look_again()
    below.mesh.run(3)
    assert below.note("mast") == rows[0]
    assert not descent._early


async def test_a_stranger_that_comes_after_the_root_keeps_no_fact_waiting(below: Below) -> None:
    """Between two looks comes the root that names one operator, and a fact of another whom none names yet."""
    descent = Descent(below.daemon, below.outbox, CRYPTO, ())
    for statement, names in ((fact(seed=BOB), (ALICE, BOB)), (fact("tower", seed=CAROL), ())):
        with pytest.raises(WireError, match="it counts once a root"):
            descent._put(statement)
        if names:
            name_operators(below.mesh, *names)
    descent.look_again()
    below.mesh.run(3)
    assert below.note("mast") == fact(seed=BOB)
    assert [key for key, _ in descent._early] == [note_key("tower")]


async def test_a_strangers_fact_of_the_same_name_takes_no_place(below: Below) -> None:
    rows = [fact(seed=BOB), fact(revision=9, seed=CAROL)]
    descent = await below.take([DownRow(at + 1, FactKind.FACT, row) for at, row in enumerate(rows)])
    name_operators(below.mesh, ALICE, BOB)
    descent.look_again()
    below.mesh.run(3)
    assert below.note("mast") == rows[0]


async def test_a_fact_that_waited_and_cannot_be_put_is_said(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(key: str, value: bytes) -> None:
        raise DaemonError("no room")

    descent = Descent(below.daemon, below.outbox, CRYPTO, ())
    with pytest.raises(WireError, match="it counts once a root"):
        descent._put(fact(seed=BOB))
    name_operators(below.mesh, ALICE, BOB)
    monkeypatch.setattr(below.daemon.above, "set_note", full)
    descent.look_again()
    assert below.daemon.problems == ["a fact that waited for a root is passed over: no room"]


async def test_facts_of_strangers_fill_nothing(below: Below) -> None:
    rows = [fact(f"n{at}", seed=BOB) for at in range(module.EARLY_MAX + 10)]
    descent = await below.take([DownRow(at + 1, FactKind.FACT, row) for at, row in enumerate(rows)])
    assert [key for key, _ in descent._early] == [note_key(f"n{at}") for at in range(10, module.EARLY_MAX + 10)]


async def test_an_older_revision_replaces_nothing(below: Below) -> None:
    await below.take([DownRow(1, FactKind.FACT, fact(revision=2)), DownRow(2, FactKind.FACT, fact(revision=1))])
    assert below.note("mast") == fact(revision=2)


async def test_rows_are_done_once_and_in_order_and_a_new_log_starts_again(below: Below) -> None:
    rows = [DownRow(at, FactKind.FACT, fact(f"n{at}")) for at in (3, 1, 2)]
    await below.take(rows)
    assert below.outbox.have == (LOG, 3)
    below.daemon.set_note = None  # type: ignore[assignment, method-assign]  # A second time would raise.
    assert (await below.take(rows)).refused == 0
    await below.take([DownRow(1, 99, b"")], b"other-lg")
    assert below.outbox.have == (b"other-lg", 1)
    below.outbox.close()
    below.outbox = Outbox(below.path, 1 << 20, 1e9)
    assert below.outbox.have == (b"other-lg", 1)


async def test_officers_statements_go_where_a_file_would(below: Below) -> None:
    root = below.mesh.roots[-1]
    release = sign_statement("release", make_release(), [b"o" * 32], CRYPTO)
    group = below.mesh.group_keys[0]
    rows = [DownRow(at + 1, FactKind.STATEMENT, one) for at, one in enumerate((root, release, group))]
    descent = await below.take(rows)
    assert below.daemon.statements_in == [("root", root)]
    assert below.daemon.commands == [("model_publish", {"envelopes": [release.hex()]})]
    assert descent.refused == 1, "a group key is nothing that comes from above"


def publication(folder: Path, data: bytes = b"model-bytes" * 1000) -> bytes:
    """A release with its files, as `swarmd model build` writes it; returns its digest."""
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / sha256(data).hexdigest()).write_bytes(data)
    statement = sign_statement("release", make_release(data), [b"o" * 32], CRYPTO)
    (folder / STATEMENT).write_bytes(statement)
    from swarmd_protocols.trust.envelopes import decode_envelope

    envelope: Envelope = decode_envelope(statement)
    return envelope.digest


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


async def test_a_bundle_is_fetched_by_digest_over_http_and_from_a_folder(below: Below, tmp_path: Path) -> None:
    digest = publication(tmp_path / "pub")
    with served(tmp_path / "pub") as address:
        for source in (address, str(tmp_path / "pub")):
            below.daemon.commands.clear()
            below.outbox.have = (LOG, 0)
            row = encode_row(BundleRow(digest, ("http://127.0.0.1:9/nowhere", source)))
            descent = await below.take([DownRow(1, FactKind.BUNDLE, row)], sources=(source,))
            assert descent.fetched == 1
            assert [verb for verb, _ in below.daemon.commands][-1] == "model_publish"


async def test_only_allowed_sources_are_asked_and_only_what_hashes_is_taken(
    below: Below, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarmd.federation.descent._PAUSE_S", 0.0)
    digest = publication(tmp_path / "pub")
    row = encode_row(BundleRow(digest, (str(tmp_path / "pub"),)))
    descent = await below.take([DownRow(1, FactKind.BUNDLE, row)], sources=("/srv/elsewhere",))
    assert (descent.fetched, below.daemon.commands) == (0, [])
    [blob] = (tmp_path / "pub" / "blobs").iterdir()
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    descent = await below.take([DownRow(2, FactKind.BUNDLE, row)], sources=(str(tmp_path),))
    assert (descent.fetched, below.daemon.commands) == (0, [])
    assert "damaged" in below.daemon.problems[-1]


@contextlib.contextmanager
def answering(words: bytes) -> Iterator[str]:
    """A server that says the same to whoever connects, and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    with one:
                        one.recv(4096)
                        one.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("words", "below_it"),
    [
        (b"nonsense\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", ""),
        (b"", "/a b"),
    ],
    ids=["no HTTP", "cut short", "a blank in the address"],
)
async def test_a_source_that_answers_nonsense_ends_no_gateway(
    below: Below, monkeypatch: pytest.MonkeyPatch, words: bytes, below_it: str
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    with answering(words) as place:
        row = BundleRow(bytes(32), (place + below_it,))
        rows = [DownRow(1, FactKind.BUNDLE, encode_row(row)), DownRow(2, FactKind.FACT, fact())]
        descent = await below.take(rows, sources=(place,))
    assert descent.refused == 1
    assert below.note("mast") == fact()
    assert below.outbox.have == (LOG, 2)


async def test_a_bundle_that_does_not_come_keeps_no_statement_back(
    below: Below, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor one that follows beyond what the region sends at once; and it is fetched after a restart."""
    goes_on = threading.Event()

    def hang(*_: object) -> bytes:
        goes_on.wait(30)
        raise OSError("the line is cut")

    monkeypatch.setattr(module, "_read", hang)
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    last = 2 * ROWS_MAX
    log = [DownRow(1, FactKind.BUNDLE, encode_row(BundleRow(bytes(32), (str(tmp_path),))))]
    log += [DownRow(at, FactKind.FACT, fact()) for at in range(2, last)]
    log += [DownRow(last, FactKind.STATEMENT, below.mesh.roots[-1])]

    async def descend(turns: int, *, to_its_end: bool) -> Descent:
        descent = Descent(below.daemon, below.outbox, CRYPTO, (str(tmp_path),))
        task = asyncio.create_task(descent.run())
        for _ in range(turns):
            descent.take(LOG, [row for row in log if row.seq > below.outbox.have[1]][:ROWS_MAX])
            await asyncio.sleep(0.05)
        while descent._bundles and to_its_end:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return descent

    try:
        await descend(4, to_its_end=False)
        said = [("root", below.mesh.roots[-1])]
        assert below.daemon.statements_in == said, "an officer's statement waits, or came twice"
        assert below.outbox.have == (LOG, last)
    finally:
        goes_on.set()
    below.outbox.close()
    below.outbox = Outbox(below.path, 1 << 20, 1e9)
    log.append(DownRow(last + 1, FactKind.MARK, b""))
    assert (await descend(1, to_its_end=True)).refused == 1, "a bundle that was to be fetched is forgotten"
    assert "row 1 from above" in below.daemon.problems[-1]
    assert below.outbox.bundles(LOG) == {}


async def test_of_very_many_bundles_the_oldest_are_passed_over_and_a_new_log_begins_anew(
    below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUNDLES_MAX", 3)
    bundle = encode_row(BundleRow(bytes(32), ("/nowhere",)))
    descent = Descent(below.daemon, below.outbox, CRYPTO, ())
    descent._keep_fetching = asyncio.Event().wait  # type: ignore[assignment, method-assign]  # A server that hangs.
    task = asyncio.create_task(descent.run())
    for log, count, waits in ((LOG, 5, (3, 4, 5)), (b"other-lg", 1, (1,))):
        descent.take(log, [DownRow(at + 1, FactKind.BUNDLE, bundle) for at in range(count)])
        await asyncio.sleep(0.05)
        assert below.outbox.have == (log, count)
        assert descent._bundles == below.outbox.bundles(log) == dict.fromkeys(waits, bundle)
    assert descent.refused == 2
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert below.outbox.bundles(LOG) == {}
