"""Where files and chunks lie: what the orders about files mean, and a store in memory for the simulator.

The protocol never touches a store: it gives orders (`requests.StorageOrder`) and takes answers. The daemon carries them
out in one thread, in order; the simulator on its next turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from swarmd_protocols.releases.requests import (
    BlobFinished,
    BlobOpened,
    BlobsFound,
    ChunkRead,
    ChunkStored,
    FinishBlob,
    LookFor,
    OpenBlob,
    ReadChunk,
    StorageAnswer,
    StorageOrder,
    StoreChunk,
    StoreList,
)
from swarmd_protocols.releases.statements import Blob, chunk_bytes_for


class ChunkStore(Protocol):
    """Chunks by content address. Partly filled blobs are a cache, never a slot. Owned by one thread."""

    def hashes(self, blob: Blob) -> bytes | None:
        """The chunk list that hashes to `blob.chunks_sha256`, if it is here."""
        ...

    def put_hashes(self, blob: Blob, hashes: bytes) -> None:
        """Keep a chunk list that was checked."""
        ...

    def have(self, blob: Blob) -> int:
        """Bit mask of the chunks that are here and were checked since the start."""
        ...

    def read(self, blob: Blob, index: int) -> bytes | None:
        """One chunk, or None when it has gone."""
        ...

    def write(self, blob: Blob, index: int, data: bytes) -> bool:
        """Keep one checked chunk; False when there is no room."""
        ...

    def has_blob(self, digest: bytes) -> bool:
        """Whether the whole blob of this SHA-256 is here, so that a delta from it can be applied."""
        ...

    def finish(self, blob: Blob) -> Iterator[bool]:
        """Make a blob of its chunks, durably, in short steps; the last step says whether it holds."""
        ...


def carry_out(store: ChunkStore, order: StorageOrder) -> Iterator[StorageAnswer | None]:
    """Do what an order says, in steps; a None is a step that was not the last.

    Args:
        store: Where chunks lie.
        order: What to do.

    Yields:
        The answer, if the order has one; before it None for each step that left more to do.
    """
    match order:
        case LookFor(digests):
            found = {}
            for digest in digests:
                found[digest] = store.has_blob(digest)
                yield None
            here = tuple(digest for digest, is_here in found.items() if is_here)
            yield BlobsFound(here, tuple(digest for digest in digests if not found[digest]))
        case OpenBlob(blob):
            is_whole = store.has_blob(blob.sha256)
            yield None
            hashes = store.hashes(blob)
            have = store.have(blob) if hashes is not None else 0
            yield BlobOpened(blob, hashes, have, is_whole)
        case StoreList(blob, hashes):
            store.put_hashes(blob, hashes)
        case StoreChunk(blob, index, data):
            yield ChunkStored(blob, index, store.write(blob, index, data))
        case ReadChunk(blob, index):
            yield ChunkRead(blob, index, store.read(blob, index))
        case FinishBlob(blob):
            ok = False
            for step in store.finish(blob):
                ok = step
                yield None
            yield BlobFinished(blob, ok)


def failed(order: StorageOrder) -> StorageAnswer | None:
    """What answers an order that the disk refused altogether; None where it has no answer."""
    match order:
        case LookFor(digests):
            return BlobsFound((), digests)
        case OpenBlob(blob):
            return BlobOpened(blob, None, 0, False)
        case StoreList():
            return None
        case StoreChunk(blob, index):
            return ChunkStored(blob, index, False)
        case ReadChunk(blob, index):
            return ChunkRead(blob, index, None)
        case FinishBlob(blob):
            return BlobFinished(blob, False)


def describe(data: bytes, chunk_bytes: int | None = None) -> tuple[Blob, bytes]:
    """Make the description of a blob and its chunk list.

    Args:
        data: The whole blob, not empty.
        chunk_bytes: Chunk size; by the rule of `chunk_bytes_for` where absent.

    Returns:
        The description for a manifest, and the list of chunk hashes.
    """
    size = chunk_bytes or chunk_bytes_for(len(data))
    hashes = b"".join(sha256(data[at : at + size]).digest() for at in range(0, len(data), size))
    return Blob(len(data), sha256(data).digest(), size, sha256(hashes).digest()), hashes


@dataclass(slots=True)
class MemoryStore:
    """Chunks in memory."""

    lists: dict[bytes, bytes] = field(default_factory=dict)
    chunks: dict[bytes, dict[int, bytes]] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)

    def put_blob(self, data: bytes) -> Blob:
        """Take a whole blob in."""
        blob, hashes = describe(data)
        self.put_hashes(blob, hashes)
        for index in range(blob.chunk_count):
            self.write(blob, index, data[index * blob.chunk_bytes : (index + 1) * blob.chunk_bytes])
        return blob

    def blob(self, blob: Blob) -> bytes:
        """The whole blob; all chunks must be here."""
        return b"".join(self.chunks[blob.sha256][index] for index in range(blob.chunk_count))

    def hashes(self, blob: Blob) -> bytes | None:
        """See `ChunkStore.hashes`."""
        return self.lists.get(blob.chunks_sha256)

    def put_hashes(self, blob: Blob, hashes: bytes) -> None:
        """See `ChunkStore.put_hashes`."""
        self.lists[blob.chunks_sha256] = hashes

    def have(self, blob: Blob) -> int:
        """See `ChunkStore.have`."""
        return sum(1 << index for index in self.chunks.get(blob.sha256, {}))

    def read(self, blob: Blob, index: int) -> bytes | None:
        """See `ChunkStore.read`."""
        return self.chunks.get(blob.sha256, {}).get(index)

    def write(self, blob: Blob, index: int, data: bytes) -> bool:
        """See `ChunkStore.write`."""
        self.chunks.setdefault(blob.sha256, {})[index] = data
        self.sizes[blob.sha256] = blob.chunk_count
        return True

    def has_blob(self, digest: bytes) -> bool:
        """See `ChunkStore.has_blob`."""
        return digest in self.sizes and len(self.chunks.get(digest, {})) == self.sizes[digest]

    def finish(self, blob: Blob) -> Iterator[bool]:
        """See `ChunkStore.finish`; a file whose bytes do not hash is forgotten."""
        ok = self.has_blob(blob.sha256) and sha256(self.blob(blob)).digest() == blob.sha256
        if not ok:
            self.chunks.pop(blob.sha256, None)
        yield ok
