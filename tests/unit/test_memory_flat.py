"""What a daemon keeps for later does not grow while it lives: counted in bytes, not in time."""

import asyncio
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from swarmd.brain import heap
from swarmd.sqlite_files import CACHE_KIB, open_sound
from swarmd.transports.zmq_link import DATAGRAM_PATH, STREAM_PATH, routing_id_of
from swarmd.transports.zmq_listener import _SENDERS_MAX, Listener
from swarmd_protocols.channel import channel
from swarmd_protocols.channel.channel import Channel
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.state import shown as shown_module
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, open_batch, seal_batch
from swarmd_protocols.state.crdt.facts import Done, Facts, encode_facts
from swarmd_protocols.state.crdt.store import Store
from tests.support.held import held
from tests.support.state_mesh import Mesh, detection


def test_verdicts_take_the_same_room_however_many() -> None:
    crypto = NaClCrypto()
    seed = bytes(32)
    public = crypto.public_key(seed)
    empty = held(crypto)[1]
    for number in range(300):
        message = number.to_bytes(4, "big")
        signature = crypto.sign(seed, message)
        assert crypto.verify(public, message, signature)
        assert not crypto.verify(public, message + b"!", signature)
    assert held(crypto)[1] - empty < 100  # The number of checks itself.
    assert crypto.checks == 600
    assert crypto.verify(public, message, signature)
    assert not crypto.verify(public, message + b"!", signature)
    assert crypto.checks == 600


def test_a_session_that_is_over_takes_little_and_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PAST_MAX", 60)
    crypto = NaClCrypto()
    mine, theirs = bytes(32), bytes((1,)) * 32
    public = crypto.public_key(theirs)
    own = Channel(mine, bytes(16), crypto)
    boots = iter(range(1, 1_000))

    def retire(count: int) -> int:
        for _ in range(count):
            peer = Channel(theirs, next(boots).to_bytes(16, "big"), crypto)
            session = own.session(node_id_of(public), public, peer.public)
            session.resume((300,) * 8)  # Beyond the small numbers that the interpreter shares.
            own.retire(session, peer.public)
        return held(own, without=(crypto,))[1]

    few = retire(10)
    assert (retire(50) - few) / 50 <= 300
    full = retire(1)
    assert retire(100) - full < 5_000  # A hash table that is rebuilt, and not 100 sessions.


def test_a_peer_that_connects_again_and_again_is_remembered_once() -> None:
    """Each stream that was idle for ten seconds is another connection, with digits of its own in its routing id."""
    listener = Listener(None, None, lambda path, source, data: None, Counter())  # type: ignore[arg-type]
    for _ in range(3_000):
        for path in (STREAM_PATH, DATAGRAM_PATH):
            assert listener._sender_of(routing_id_of(path, "10.0.0.1:7946")) == (path, "10.0.0.1:7946")
    assert listener._sender_of(b"s|10.0.0.1:7946|" + bytes(200)) is None
    assert listener._sender_of(b"nobody") is None
    assert len(listener._senders) <= 3
    for number in range(3_000):
        listener._sender_of(routing_id_of(STREAM_PATH, f"10.1.{number >> 8}.{number & 255}:7946"))
    assert len(listener._senders) == _SENDERS_MAX


def test_a_batch_that_is_held_takes_little_beside_its_bytes() -> None:
    crypto, life = NaClCrypto(), 119 << 40
    node, signer = node_id_of(crypto.public_key(bytes(32))), NodeSigner(crypto, bytes(32))
    store, raws, previous = Store(10, 1 << 40), list[bytes](), bytes(16)
    for number in range(1, 401):
        body = encode_facts(Facts(dones=[Done(number.to_bytes(6, "big"), 900)]))
        batch = seal_batch(
            Stream.FACTS, node, (life, number), (life, 1), previous, (1 << 57) + (number << 16), body, signer
        )
        assert batch.previous == previous
        previous = batch.digest
        raws.append(batch.raw)
    empty = held(store)[1]
    for raw in raws:
        store.add(open_batch(bytes(bytearray(raw))))  # Bytes of their own, as they come out of a datagram.
    assert (held(store)[1] - empty) / len(raws) <= len(raws[0]) + 490


def test_pages_that_sqlite_keeps_are_bounded(tmp_path: Path) -> None:
    database = open_sound(tmp_path / "file", (), "CREATE TABLE IF NOT EXISTS rows (body BLOB)")
    try:
        assert database.execute("PRAGMA cache_size").fetchone()[0] == -CACHE_KIB
    finally:
        database.close()
    assert CACHE_KIB <= 64
    assert sqlite3.connect(":memory:").execute("PRAGMA cache_size").fetchone()[0] < -CACHE_KIB


def test_free_blocks_go_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[None] = []
    monkeypatch.setattr(heap, "GIVE_BACK_S", 0.0)
    monkeypatch.setattr(heap, "give_back_heap", lambda: given.append(None))

    async def live() -> None:
        task = asyncio.get_running_loop().create_task(heap.keep_heap_small())
        while len(given) < 3:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(asyncio.wait_for(live(), 60))


def test_a_numeric_address_is_found_without_tables_of_unicode() -> None:
    program = (
        "import asyncio, sys; from swarmd.transports.address import resolve\n"
        "print(asyncio.run(resolve('127.0.0.1:7946')), 'unicodedata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "127.0.0.1:7946 False\n"


def held_for_deadlines(rounds: int) -> tuple[int, int]:
    """Rows, and those of them or of rows before that wait for their hour, after each row was replaced so often."""
    mesh = Mesh(1, seed=1)
    mesh.run(1)
    mesh.see(0, *(detection(mesh.now_ns, track_id=n, east_cm=1_000 * n) for n in range(60)))
    mesh.run(1)
    projection = mesh.replicas[0]._projection
    view, shown = projection.view, projection.shown
    for number in range(rounds):
        for entry in list(view.all()):
            # As when a batch is dropped, and the next one says the same of the same thing.
            view.remove(entry.origin, entry.key)
            shown.drop_entry(entry)
            view.put(entry.origin, entry.row, entry.dot)
        view.settle()
        shown.tell(stamp_ms(entry.row.last) + number)
    return view.count, len(shown._deadlines)


def test_rows_that_are_replaced_are_not_held_for_their_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thing that is seen again and again replaces its row; each row would stay for an hour, 1 kB."""
    rows, waiting = held_for_deadlines(10)
    assert rows == 60
    assert waiting <= rows + rows // 4 + shown_module._GONE_MAX
    monkeypatch.setattr(shown_module, "_GONE_MAX", 4_000)
    assert held_for_deadlines(10)[1] > 5 * rows
