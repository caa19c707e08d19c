"""Where chunks lie: the interface that the protocol asks of the daemon, and a store in memory for the simulator."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from swarmd_protocols.releases.statements import Blob, chunk_bytes_for


class ChunkStore(Protocol):
    """Chunks by content address. Partly filled blobs are a cache, never a slot; all calls are short and synchronous."""

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
