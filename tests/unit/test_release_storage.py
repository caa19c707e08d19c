"""Files of releases off the event loop: what a file costs the loop does not grow with it, and puts never collide."""

import asyncio
import random
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarmd.release import at_rest, chunks
from swarmd.release.at_rest import SealedBlobs
from swarmd.release.chunks import FileChunks
from swarmd.release.fsx import RealFiles
from swarmd.release.storage import StorageThread
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Order, SetTimer, StateChanged
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import requests, swarming, waiting
from swarmd_protocols.releases.fetching import MAX_UNWRITTEN, Fetcher
from swarmd_protocols.releases.messages import Chunk, TellChunks, decode_message
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.releases.requests import StorageAnswer, StorageOrder
from swarmd_protocols.releases.statements import BundleFile
from swarmd_protocols.releases.stores import MemoryStore, carry_out, describe, failed
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.trust.trust import Trust
from tests.support.release_world import MODEL, Keys, make_release

KEY = b"k" * 32
LOG = SimpleNamespace(error=lambda *_, **__: None)


def store_at(folder: Path, quota_bytes: int = 1 << 30, encrypt: bool = False) -> FileChunks:
    folder.mkdir(exist_ok=True)
    files = RealFiles(str(folder))
    return FileChunks(files, SealedBlobs(files, KEY), quota_bytes, encrypt)


# --- Puts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypt", [False, True])
def test_concurrent_puts_of_the_same_and_of_other_blobs_all_succeed(tmp_path: Path, encrypt: bool) -> None:
    blobs = SealedBlobs(RealFiles(str(tmp_path)), KEY)
    data = [bytes([number % 6]) * 200_000 for number in range(120)]
    with ThreadPoolExecutor(8) as threads:
        digests = list(threads.map(lambda one: blobs.put(one, encrypt), data))
    assert [blobs.get(digest) for digest in digests] == data
    assert not list(tmp_path.rglob("*.tmp")), "nothing is left over"


def test_a_put_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = SealedBlobs(RealFiles(str(tmp_path)), KEY)
    good = blobs.put(b"good" * 1_000)

    def refuse(self: RealFiles, path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RealFiles, "fsync", refuse)
    with pytest.raises(at_rest.SlotError, match="No space left"):
        blobs.put(b"other" * 1_000)
    assert blobs.get(good) == b"good" * 1_000
    assert not list(tmp_path.rglob("*.tmp"))


# --- The thread that owns the files -----------------------------------------------------------------------------------


class LoopCheck(RealFiles):
    """Files that no other thread than the storage's may touch."""

    loop_thread = 0

    def path(self, path: str) -> str:
        assert threading.get_ident() != LoopCheck.loop_thread, f"the event loop touches the file {path}"
        return super().path(path)


class CountedHash:
    """SHA-256 that knows how much the loop hashed in this event."""

    hashed = 0

    def __init__(self, data: bytes) -> None:
        CountedHash.hashed += len(data)
        self._hash = sha256(data)

    def digest(self) -> bytes:
        return self._hash.digest()


class Device:
    """A node's releases, its files in a thread, and the cost of every event on the loop."""

    def __init__(self, at: int, folder: Path, keys: Keys) -> None:
        self.crypto = ModelCrypto()
        seed = bytes([at]) * 32
        public = self.crypto.public_key(seed)
        self.node = node_id_of(public)
        LoopCheck.loop_thread = 0
        folder.mkdir()
        files = LoopCheck(str(folder))
        self.store = FileChunks(files, SealedBlobs(files, KEY), 1 << 30)
        self.thread = StorageThread(self.store, self.answer, LOG)  # type: ignore[arg-type]
        self.releases = Releases(
            public,
            lambda message: self.crypto.sign(seed, message),
            Trust("fleet", [keys.root()], self.crypto),
            ReleasesConfig(models=(MODEL,)),
            random.Random(at),
            {},
        )
        self.others: dict[NodeId, Device] = {}
        self.prepared = asyncio.Event()
        self.costs_s: list[float] = []
        self.hashed: list[int] = []

    def answer(self, answer: StorageAnswer) -> None:
        self.event(lambda now_ns: self.releases.on_command(answer, now_ns))

    def event(self, handle) -> None:  # type: ignore[no-untyped-def]
        CountedHash.hashed = 0
        began = time.thread_time()
        effects = handle(time.monotonic_ns())
        self.costs_s.append(time.thread_time() - began)
        self.hashed.append(CountedHash.hashed)
        loop = asyncio.get_running_loop()
        for effect in effects:
            match effect:
                case Send(to, payload):
                    other = self.others[to]
                    loop.call_soon(
                        other.event, lambda now, p=payload, o=other: o.releases.on_message(self.node, p, now)
                    )
                case Order(_, request) if isinstance(request, StorageOrder):
                    self.thread.give(request)
                case Order(_, requests.Prepare()):
                    self.prepared.set()
                case SetTimer(key, at_ns):
                    delay_s = max(0, at_ns - time.monotonic_ns()) / 1e9
                    loop.call_later(delay_s, self.event, lambda now, k=key: self.releases.on_timer(k, now))
                case StateChanged() | _:
                    pass


MEBIBYTES = 256


async def spread(folder: Path, monkeypatch: pytest.MonkeyPatch, mebibytes: int) -> tuple[list[float], list[int], bool]:
    """A release of this size from one node to another; costs and hashed bytes of every event of the receiver."""
    keys = Keys("fleet", ModelCrypto())
    giver, taker = Device(1, folder / "giver", keys), Device(2, folder / "taker", keys)
    path = folder / "giver" / "blobs"
    path.mkdir()
    piece = random.Random(1).randbytes(1 << 20)
    hashing, hashes, chunk = sha256(), [], 65_536
    with (path / "new").open("wb") as file:
        for number in range(mebibytes):
            data = number.to_bytes(4, "big") + piece[4:]
            file.write(data)
            hashing.update(data)
            hashes += [sha256(data[at : at + chunk]).digest() for at in range(0, len(data), chunk)]
    (path / "new").rename(path / hashing.hexdigest())
    blob = requests.Blob(mebibytes << 20, hashing.digest(), chunk, sha256(b"".join(hashes)).digest())
    release = make_release(b"x", bundle=(BundleFile("model.tflite", "model", blob),))
    envelope = keys.sign("release", release.payload(), "release").encode()
    monkeypatch.setattr(swarming, "sha256", CountedHash)
    monkeypatch.setattr(waiting, "sha256", CountedHash)
    for one, other in ((giver, taker), (taker, giver)):
        one.others = {other.node: other}
    LoopCheck.loop_thread = threading.get_ident()
    try:
        for one, other in ((giver, taker), (taker, giver)):
            one.event(one.releases.start)
            one.event(lambda now, d=one: d.releases.on_command(requests.Running(MODEL, b""), now))
            one.event(lambda now, d=one, o=other: d.releases.on_peers([Peer(o.node, "o", b"", True)], now))
        giver.event(lambda now: giver.releases.on_command(requests.Provide(blob, True), now))
        giver.event(lambda now: giver.releases.on_command(requests.Publish((envelope,)), now))
        async with asyncio.timeout(300):
            await taker.prepared.wait()
    finally:
        LoopCheck.loop_thread = 0
        giver.thread.close()
        taker.thread.close()
    costs = giver.costs_s + taker.costs_s
    return costs, giver.hashed + taker.hashed, taker.store.has_blob(blob.sha256)


@pytest.mark.parametrize("mebibytes", [4, pytest.param(MEBIBYTES, marks=pytest.mark.slow)])
def test_no_event_of_a_release_touches_a_file_or_hashes_more_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mebibytes: int
) -> None:
    """The trace of a release, whatever its size: files are touched in the storage's thread only (`LoopCheck`), an event
    hashes one chunk or one list of chunks, and none takes longer than 5 ms of the loop's own CPU time. What the kernel
    of a busy machine charges to one event falls on another one the next time: the best of three runs is the code's."""
    longest = []
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        costs, hashed, is_whole = asyncio.run(spread(folder, monkeypatch, mebibytes))
        shutil.rmtree(folder)
        assert is_whole
        assert len(costs) > 16 * mebibytes
        assert max(hashed) <= 32 * 4_096, "a chunk has 64 KiB, the list of the largest file 128 KiB"
        longest.append(max(costs))
        print(f"{mebibytes} MiB: {len(costs)} events, longest {longest[-1] * 1e3:.2f} ms of CPU")
        if longest[-1] <= 0.005:
            return
    pytest.fail(f"seconds of CPU in one event, three times: {longest}")


def test_a_chunk_is_read_while_a_file_is_being_hashed(tmp_path: Path) -> None:
    data = random.Random(2).randbytes(8 << 20)
    blob, hashes = describe(data)
    store = store_at(tmp_path / "s")
    store.put_hashes(blob, hashes)
    for index in range(blob.chunk_count):
        store.write(blob, index, data[index * blob.chunk_bytes :][: blob.chunk_bytes])
    answers: list[StorageAnswer] = []

    async def run() -> None:
        thread = StorageThread(store, answers.append, LOG)  # type: ignore[arg-type]
        for order in (requests.FinishBlob(blob), requests.ReadChunk(blob, 3), requests.FinishBlob(blob)):
            thread.give(order)
        while len(answers) < 3:
            await asyncio.sleep(0.001)
        thread.close()

    asyncio.run(run())
    kinds = [type(answer) for answer in answers]
    assert kinds[0] is requests.ChunkRead, "it did not wait for the whole file"
    assert answers[1:] == [requests.BlobFinished(blob, True)] * 2
    assert store.get(blob.sha256) == data


def test_a_disk_that_refuses_everything_is_answered_for(tmp_path: Path) -> None:
    class Broken(MemoryStore):
        def read(self, blob: requests.Blob, index: int) -> bytes | None:
            raise OSError(5, "Input/output error")

    store, answers = Broken(), list[StorageAnswer]()
    blob = store.put_blob(b"model" * 10_000)

    async def run() -> None:
        thread = StorageThread(store, answers.append, LOG)  # type: ignore[arg-type]
        thread.give(requests.ReadChunk(blob, 0))
        while not answers:
            await asyncio.sleep(0.001)
        thread.close()

    asyncio.run(run())
    assert answers == [requests.ChunkRead(blob, 0, None)]


def test_every_order_that_is_answered_is_answered_when_it_fails() -> None:
    blob, hashes = describe(b"model" * 1_000)
    orders: list[StorageOrder] = [
        requests.LookFor((blob.sha256,)),
        requests.OpenBlob(blob),
        requests.StoreList(blob, hashes),
        requests.StoreChunk(blob, 0, b"x"),
        requests.ReadChunk(blob, 0),
        requests.FinishBlob(blob),
    ]
    for order in orders:
        good = [answer for answer in carry_out(MemoryStore(), order) if answer is not None]
        bad = failed(order)
        assert [type(answer) for answer in good] == ([] if bad is None else [type(bad)])


# --- What the protocol makes of the answers ---------------------------------------------------------------------------


def opened(data: bytes, have: int = 0, is_whole: bool = False) -> tuple[Fetcher, requests.Blob, list[object]]:
    blob, hashes = describe(data, 4_096)
    fetcher = Fetcher(random.Random(1), SwarmingConfig(requests=1_000, neighbours=200))
    peers = [NodeId(bytes([at]) * 16) for at in range(100)]
    fetcher.on_peers(peers, 0)
    assert fetcher.want(blob) == [Order("releases", requests.OpenBlob(blob))]
    return fetcher, blob, list(fetcher.on_opened(requests.BlobOpened(blob, hashes, have, is_whole), 0))


def test_an_earlier_life_that_ended_before_the_file_was_made_makes_it_now() -> None:
    data = bytes(range(256)) * 128
    _, blob, effects = opened(data, (1 << 8) - 1)
    assert Order("releases", requests.FinishBlob(blob)) in effects


def test_a_disk_that_does_not_keep_up_stops_the_asking_not_the_memory() -> None:
    data = bytes(range(256)) * 16 * 200
    fetcher, blob, _ = opened(data)
    everything = ((1 << blob.chunk_count) - 1).to_bytes(blob.chunk_count // 8 + 1, "little")[
        : -(-blob.chunk_count // 8)
    ]
    tag, stored, asked = blob.sha256[:8], 0, 0
    queue: list[tuple[NodeId, object]] = []
    for at in range(100):
        queue += [(NodeId(bytes([at]) * 16), TellChunks(tag, everything))]
    while queue:
        sender, message = queue.pop(0)
        for effect in fetcher.on_message(sender, message, 1):  # type: ignore[arg-type]
            if isinstance(effect, Order) and isinstance(effect.request, requests.StoreChunk):
                stored += 1
            elif isinstance(effect, Send):
                sent = decode_message(effect.payload)
                if hasattr(sent, "index"):
                    asked += 1
                    start = sent.index * 4_096
                    queue.append((effect.to, Chunk(tag, sent.index, data[start : start + 4_096])))
    assert MAX_UNWRITTEN <= stored <= MAX_UNWRITTEN + 100, "what was asked for already still comes"
    assert stored == asked < blob.chunk_count
    effects = [one for at in range(stored) for one in fetcher.on_stored(requests.ChunkStored(blob, at, True), 2)]
    assert any(isinstance(one, Send) for one in effects), "and goes on when the disk has caught up"


def steps(iterator: Iterator[bool]) -> list[bool]:
    return list(iterator)


def test_bytes_that_the_disk_changed_are_no_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 128
    blob, hashes = describe(data, 4_096)
    store = store_at(tmp_path / "s")
    store.put_hashes(blob, hashes)
    for index in range(blob.chunk_count):
        store.write(blob, index, data[index * 4_096 :][:4_096])
    part = tmp_path / "s" / "cache" / f"{blob.sha256.hex()}.part"
    part.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert steps(store.finish(blob))[-1] is False
    assert store.have(blob) == 0
    assert not store.has_blob(blob.sha256)


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_chunk_of_a_whole_file_is_read_from_its_place(tmp_path: Path, encrypt: bool) -> None:
    data = random.Random(3).randbytes(400_001)
    blob, _ = describe(data, 8_192)
    store = store_at(tmp_path / "s", encrypt=encrypt)
    store.put(data)
    assert b"".join(store.read(blob, index) or b"" for index in range(blob.chunk_count)) == data
    assert chunks.FileChunks.hashes(store, blob) == describe(data, 8_192)[1]
