"""Chunks on disk: whole blobs in the blob store, half-fetched ones in a cache that is never trusted after a restart.

    blobs/<digest>        whole, verified (plain or sealed; see at_rest.py)
    cache/<digest>.part   chunks at their places; re-hashed against the chunk list when the daemon starts
    cache/<digest>.list   chunk list, content-addressed

The quota covers both; a fetch that would exceed it is refused, and what no slot needs is collected first. One thread
owns a `FileChunks` (`storage.py`): nothing here is called from the event loop once the daemon runs.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from swarmd.release.at_rest import CHUNK_OVERHEAD, SealedBlobs, seal_chunk, unseal_chunk
from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem
from swarmd_protocols.releases.statements import Blob

_CACHE = "cache"
MAX_LIST_BYTES = 32 * 65_536


class FileChunks:
    """Implements `swarmd_protocols.releases.stores.ChunkStore` on files.

    Args:
        files: The file module.
        blobs: Where whole blobs lie.
        quota_bytes: Blobs and cache together take at most this.
        encrypt: Whether new blobs are sealed.
    """

    def __init__(self, files: FileSystem, blobs: SealedBlobs, quota_bytes: int, encrypt: bool = False) -> None:
        self._files = files
        self._blobs = blobs
        self._quota_bytes = quota_bytes
        self.encrypt = encrypt
        self.secret: frozenset[bytes] = frozenset()
        """Blobs that are sealed although this node does not seal everything: their releases say so. Replaced, never
        changed."""
        self._masks: dict[bytes, int] = {}
        self._whole: dict[bytes, bool] = {}
        self._finishing: set[bytes] = set()
        self._used = self._count()
        self.full = False
        """A write was refused for want of room since this was last set to False."""

    def _count(self) -> int:
        return sum(
            self._files.size(f"{folder}/{name}") or 0
            for folder in (_CACHE, self._blobs.folder)
            for name in self._files.names(folder)
        )

    @property
    def used_bytes(self) -> int:
        """Bytes of blobs and cache."""
        return self._used

    # --- ChunkStore -----------------------------------------------------------------------------------------------

    def hashes(self, blob: Blob) -> bytes | None:
        """See `ChunkStore.hashes`."""
        found = self._files.read(f"{_CACHE}/{blob.chunks_sha256.hex()}.list")
        if found is not None and sha256(found).digest() == blob.chunks_sha256:
            return found
        if not self.has_blob(blob.sha256):
            return None
        pieces = (self.read(blob, index) or b"" for index in range(blob.chunk_count))
        made = b"".join(sha256(piece).digest() for piece in pieces)
        return made if sha256(made).digest() == blob.chunks_sha256 else None

    def put_hashes(self, blob: Blob, hashes: bytes) -> None:
        """See `ChunkStore.put_hashes`."""
        try:
            self._files.write(f"{_CACHE}/{blob.chunks_sha256.hex()}.list", hashes[:MAX_LIST_BYTES])
            self._used += len(hashes)
        except OSError:
            self.full = True  # It is a cache: without it the list is asked for again after a restart.

    def have(self, blob: Blob) -> int:
        """See `ChunkStore.have`."""
        if self.has_blob(blob.sha256):
            return (1 << blob.chunk_count) - 1
        if blob.sha256 not in self._masks:
            self._masks[blob.sha256] = self._rehash(blob)
        return self._masks[blob.sha256]

    def _rehash(self, blob: Blob) -> int:
        """What an earlier life left of a fetch, believed only where it hashes."""
        hashes = self.hashes(blob)
        path = self._part(blob.sha256)
        if hashes is None or not self._files.size(path):
            return 0
        mask = 0
        for index in range(blob.chunk_count):
            piece = self._read_part(blob, index)
            if piece is not None and sha256(piece).digest() == hashes[32 * index : 32 * index + 32]:
                mask |= 1 << index
        return mask

    def read(self, blob: Blob, index: int) -> bytes | None:
        """See `ChunkStore.read`."""
        start, size = index * blob.chunk_bytes, blob.chunk_size(index)
        if self.has_blob(blob.sha256):
            return self._blobs.read_at(blob.sha256, start, size)
        return self._read_part(blob, index)

    def _sealed(self, digest: bytes) -> bool:
        return self.encrypt or digest in self.secret

    def _read_part(self, blob: Blob, index: int) -> bytes | None:
        path, size = self._part(blob.sha256), blob.chunk_size(index)
        if not self._sealed(blob.sha256):
            return self._files.read_at(path, index * blob.chunk_bytes, size)
        start = index * (blob.chunk_bytes + CHUNK_OVERHEAD)
        sealed = self._files.read_at(path, start, size + CHUNK_OVERHEAD)
        return unseal_chunk(sealed, blob.sha256, index, self._blobs.node_key) if sealed else None

    def _write_part(self, blob: Blob, index: int, data: bytes) -> None:
        if not self._sealed(blob.sha256):
            self._files.write_at(self._part(blob.sha256), index * blob.chunk_bytes, data)
            return
        start = index * (blob.chunk_bytes + CHUNK_OVERHEAD)
        sealed = seal_chunk(data, blob.sha256, index, self._blobs.node_key)
        self._files.write_at(self._part(blob.sha256), start, sealed)

    def write(self, blob: Blob, index: int, data: bytes) -> bool:
        """See `ChunkStore.write`."""
        if self._used + len(data) > self._quota_bytes:
            self.full = True
            return False
        try:
            self._write_part(blob, index, data)
        except OSError:
            self.full = True
            return False
        self._used += len(data)
        self._masks[blob.sha256] = self._masks.get(blob.sha256, 0) | 1 << index
        return True

    def finish(self, blob: Blob) -> Iterator[bool]:
        """See `ChunkStore.finish`: the whole is hashed as it is read back, synced, and takes its name."""
        digest, path = blob.sha256, self._part(blob.sha256)
        while digest in self._finishing:
            yield False  # Ordered twice; the first does it.
        if self.has_blob(digest):
            yield True
            return
        self._finishing.add(digest)
        try:
            if self._sealed(digest):
                parts = (self._read_part(blob, index) or b"" for index in range(blob.chunk_count))
                steps = self._blobs.put_pieces(parts, blob.size, digest, True)
            else:
                steps = self._blobs.adopt(path, digest)
            for _ in steps:
                yield False
            self._whole[digest] = True
        except SlotError:
            self._whole[digest] = False  # The disk gave other bytes back, or took none: start over.
        finally:
            self._finishing.discard(digest)
            self._masks.pop(digest, None)
            self._forget(path)
            self._used = self._count()
        yield self._whole[digest]

    def _forget(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except OSError:
            self.full = True

    def has_blob(self, digest: bytes) -> bool:
        """See `ChunkStore.has_blob`; hashed once a life, and again at every load into a slot."""
        if digest not in self._whole:
            self._whole[digest] = self._blobs.verify(digest)
        return self._whole[digest]

    # --- Whole blobs ------------------------------------------------------------------------------------------------

    def put(self, data: bytes) -> bytes:
        """Take a whole blob in, durably; returns its digest.

        Raises:
            SlotError: It cannot be written, or there is no room.
        """
        digest = sha256(data).digest()
        if not self.has_blob(digest):
            if self._used + len(data) > self._quota_bytes:
                self.full = True
                raise SlotError(f"no room for {len(data)} bytes: models.quota_mib is used up")
            self._blobs.put(data, self._sealed(digest))
            self._whole[digest] = True
            self._used = self._count()
        return digest

    def recheck(self, digests: Iterable[bytes]) -> list[bytes]:
        """Hash these blobs again; those that do not hold are forgotten, so that they are fetched anew, and returned."""
        lost = [digest for digest in digests if not self._blobs.verify(digest)]
        self._whole.update(dict.fromkeys(lost, False))
        return lost

    def hide(self, digests: Iterable[bytes]) -> None:
        """Seal what lies here in the open; raises `SlotError` when it cannot be written."""
        for digest in digests:
            self._blobs.hide(digest)
        self._used = self._count()

    def get(self, digest: bytes) -> bytes | None:
        """A whole blob, hashed now."""
        return self._blobs.get(digest)

    def collect(self, keep: frozenset[bytes], lists: Iterable[Blob]) -> int:
        """Remove what is neither kept nor described by `lists`; returns the bytes that became free."""
        before = self._used
        self._blobs.keep_only(keep)
        wanted = {f"{one.chunks_sha256.hex()}.list" for one in lists} | {f"{one.sha256.hex()}.part" for one in lists}
        for name in self._files.names(_CACHE):
            if name not in wanted:
                self._files.unlink(f"{_CACHE}/{name}")
        self._whole.clear()
        self._masks.clear()
        self._used = self._count()
        self.full = False
        return before - self._used

    def _part(self, digest: bytes) -> str:
        return f"{_CACHE}/{digest.hex()}.part"
