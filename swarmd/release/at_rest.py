"""Models encrypted on disk: frames of XChaCha20-Poly1305 under a key of each blob, wrapped by a key of the node.

The content address stays the SHA-256 of the plaintext (delta base, re-verification); the file's name is a keyed hash of
it, so a disk does not tell which model it holds. Frame n of a blob is bound to (digest, n, last?) and cannot be moved
or cut. The runtime reads plaintext from anonymous, sealed memory (`memfd`), which goes with the daemon whatever ends
it; where the system has none, from files in `/dev/shm`, and status says so. Never from the disk.

What this protects: a disk that was taken out, when the node's key lies elsewhere (a systemd credential, which may be
sealed to the TPM). With the key in a 0600 file beside the data it protects nothing but a careless copy; status says so.
"""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, sha256
from pathlib import Path

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem

FRAME_BYTES = 65_536
PIECE_BYTES = 1 << 20
"""Of a plain file so much is read and hashed at a time: one step of the storage's thread, about 1 ms."""
_TAG, _NONCE, _KEY = 16, 24, 32
KEY_BYTES = _KEY
CHUNK_OVERHEAD = _NONCE + _TAG
_MAGIC = b"SWE1"
HEAD_BYTES = len(_MAGIC) + _NONCE + _KEY + _TAG + 8
_NUMBERS = itertools.count()
"""Of temporary files: no two writes of a process share a name. `next` is atomic."""
KEY_FILE = "node.key"
CREDENTIAL = "swarmd-model-key"


class NodeKey(msgspec.Struct, frozen=True):
    """The key that wraps the blobs' keys, and where it came from."""

    key: bytes
    source: str
    """"credential" (systemd, perhaps sealed to the TPM) or "file" (0600, beside the data)."""


def open_node_key(folder: Path) -> NodeKey:
    """The node's key: a systemd credential when there is one, else a file that is made on first use.

    Raises:
        SlotError: The key is there and cannot be used.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and (Path(credentials) / CREDENTIAL).exists():
        return NodeKey(_checked((Path(credentials) / CREDENTIAL).read_bytes()), "credential")
    path = folder / KEY_FILE
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, os.urandom(_KEY))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        if path.stat().st_mode & 0o077:
            raise SlotError(f"{path} can be read by others; run: chmod 600 {path}")
        return NodeKey(_checked(path.read_bytes()), "file")
    except OSError as error:
        raise SlotError(f"the key {path} cannot be used: {error.strerror}") from error


def _checked(key: bytes) -> bytes:
    if len(key) != _KEY:
        raise SlotError(f"the key for models at rest has {len(key)} bytes; it must have {_KEY}")
    return key


def _aad(digest: bytes, frame: int, last: bool) -> bytes:
    return digest + frame.to_bytes(8, "big") + bytes([last])


def _frame_nonce(nonce: bytes, frame: int) -> bytes:
    """Each blob has its own key, so counting from a random start can never repeat a nonce under a key."""
    return nonce[:16] + frame.to_bytes(8, "big")


def seal(data: bytes, digest: bytes, node_key: bytes) -> bytes:
    """The form on disk: magic, nonce, wrapped key, length, frames."""
    pieces = (data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES))
    return b"".join(seal_pieces(pieces, len(data), digest, node_key))


def seal_pieces(pieces: Iterable[bytes], size: int, digest: bytes, node_key: bytes) -> Iterator[bytes]:
    """`seal` in steps: the head, then frame after frame.

    Args:
        pieces: The plaintext in any pieces.
        size: Its bytes in all.
        digest: Its SHA-256.
        node_key: Wraps the blob's own key.
    """
    nonce, key = os.urandom(_NONCE), os.urandom(_KEY)
    wrapped = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(key, digest, nonce, node_key)
    yield _MAGIC + nonce + wrapped + size.to_bytes(8, "big")
    last = _frames_of(size) - 1
    waiting, frame = bytearray(), 0
    for piece in _then_none(pieces):
        waiting += piece or b""
        while frame < last and len(waiting) >= FRAME_BYTES:
            yield _seal_frame(bytes(waiting[:FRAME_BYTES]), digest, frame, False, nonce, key)
            del waiting[:FRAME_BYTES]
            frame += 1
        if piece is None:
            yield _seal_frame(bytes(waiting), digest, frame, True, nonce, key)


def _then_none(pieces: Iterable[bytes]) -> Iterator[bytes | None]:
    yield from pieces
    yield None


def _frames_of(size: int) -> int:
    return max(1, -(-size // FRAME_BYTES))


def _seal_frame(piece: bytes, digest: bytes, frame: int, last: bool, nonce: bytes, key: bytes) -> bytes:
    aad = _aad(digest, frame, last)
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(piece, aad, _frame_nonce(nonce, frame), key)


class SealedReader:
    """Frames of a sealed blob, one at a time.

    Args:
        head: The first `HEAD_BYTES` of the file.
        digest: SHA-256 of the plaintext.
        node_key: Unwraps the blob's key.

    Raises:
        ValueError: It is no sealed blob of this node and name.
    """

    def __init__(self, head: bytes, digest: bytes, node_key: bytes) -> None:
        if len(head) < HEAD_BYTES or head[:4] != _MAGIC:
            raise ValueError("no sealed blob")
        self._nonce, wrapped = head[4 : 4 + _NONCE], head[4 + _NONCE : HEAD_BYTES - 8]
        self._digest = digest
        self.size = int.from_bytes(head[HEAD_BYTES - 8 : HEAD_BYTES], "big")
        self.frames = _frames_of(self.size)
        try:
            self._key = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped, digest, self._nonce, node_key)
        except CryptoError:
            raise ValueError("the key of the blob does not unwrap") from None

    @property
    def file_bytes(self) -> int:
        """How long the file must be."""
        return HEAD_BYTES + self.size + _TAG * self.frames

    def place(self, frame: int) -> tuple[int, int]:
        """Where a frame lies in the file: (offset, bytes)."""
        size = min(FRAME_BYTES, self.size - frame * FRAME_BYTES)
        return HEAD_BYTES + frame * (FRAME_BYTES + _TAG), size + _TAG

    def open(self, frame: int, sealed: bytes) -> bytes:
        """A frame's plaintext; raises `ValueError` when it was changed, cut or moved."""
        aad = _aad(self._digest, frame, frame == self.frames - 1)
        nonce = _frame_nonce(self._nonce, frame)
        try:
            return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, aad, nonce, self._key)
        except CryptoError:
            raise ValueError("a frame was changed") from None


def unseal(sealed: bytes, digest: bytes, node_key: bytes) -> bytes | None:
    """The plaintext, or None when anything of it was changed, cut, or belongs to another node or blob."""
    try:
        reader = SealedReader(sealed[:HEAD_BYTES], digest, node_key)
        if len(sealed) != reader.file_bytes:
            return None
        places = [reader.place(frame) for frame in range(reader.frames)]
        data = b"".join(reader.open(frame, sealed[at : at + size]) for frame, (at, size) in enumerate(places))
    except ValueError:
        return None
    return data if sha256(data).digest() == digest else None


def seal_chunk(data: bytes, digest: bytes, index: int, node_key: bytes) -> bytes:
    """One chunk of a blob that is still being fetched: nonce, ciphertext, tag; bound to the blob and its place."""
    nonce = os.urandom(_NONCE)
    aad = b"chunk" + _aad(digest, index, False)
    return nonce + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(data, aad, nonce, node_key)


def unseal_chunk(sealed: bytes, digest: bytes, index: int, node_key: bytes) -> bytes | None:
    """The chunk, or None when it is not that one, or was changed."""
    aad = b"chunk" + _aad(digest, index, False)
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed[_NONCE:], aad, sealed[:_NONCE], node_key)
    except (CryptoError, ValueError, TypeError):
        return None


def rewrap(sealed: bytes, digest: bytes, old_key: bytes, new_key: bytes) -> bytes | None:
    """The same blob under another node key, without touching its frames; None when the old key does not open it."""
    nonce, wrapped = sealed[4 : 4 + _NONCE], sealed[4 + _NONCE : HEAD_BYTES - 8]
    try:
        key = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped, digest, nonce, old_key)
    except (CryptoError, ValueError):
        return None
    # The nonce stays, for the frames' sake; under the new node key it was never used.
    again = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(key, digest, nonce, new_key)
    return sealed[: 4 + _NONCE] + again + sealed[HEAD_BYTES - 8 :]


class SealedBlobs:
    """Blobs at rest, plain or sealed. Implements `slots.BlobStore`."""

    def __init__(self, files: FileSystem, node_key: bytes, folder: str = "blobs") -> None:
        self.files = files
        self.node_key = node_key
        self.folder = folder

    def path(self, digest: bytes, encrypted: bool) -> str:
        """Where a blob lies: under its digest, or, sealed, under a keyed hash of it."""
        if not encrypted:
            return f"{self.folder}/{digest.hex()}"
        return f"{self.folder}/x{blake2b(digest, key=self.node_key, digest_size=24).hexdigest()}"

    def put(self, data: bytes, encrypted: bool = False) -> bytes:
        """Write a blob durably, read it back and check it; returns its digest.

        Raises:
            SlotError: The disk gave other bytes back, or the blob could not be written.
        """
        digest = sha256(data).digest()
        if self._holds(digest, encrypted):
            return digest
        for _ in self.put_pieces((data,), len(data), digest, encrypted):
            pass
        return digest

    def put_pieces(self, pieces: Iterable[bytes], size: int, digest: bytes, encrypted: bool) -> Iterator[None]:
        """`put` in steps, of a blob that need not be in memory.

        Every call writes to a name of its own, so that two threads that put the same blob cannot spoil each other's.

        Args:
            pieces: The plaintext, each piece read only when the one before it was written.
            size: Its bytes in all.
            digest: The SHA-256 that it must have.
            encrypted: Whether to seal it.

        Raises:
            SlotError: The disk gave other bytes back, or the blob could not be written.
        """
        path, temporary = self.path(digest, encrypted), f"{self.folder}/incoming-{next(_NUMBERS)}.tmp"
        at = 0
        try:
            for piece in seal_pieces(pieces, size, digest, self.node_key) if encrypted else pieces:
                if at:
                    self.files.write_at(temporary, at, piece)
                else:
                    self.files.write(temporary, piece)
                at += len(piece)
                yield
            for _ in self.pieces(temporary, digest, encrypted):
                yield
            self.files.fsync(temporary)
            self.files.rename(temporary, path)
            self.files.fsync_folder(self.folder)
        except OSError as error:
            self._drop(temporary)
            raise SlotError(f"blob {digest.hex()[:8]} cannot be written: {error.strerror or error}") from error
        except ValueError as error:
            self._drop(temporary)
            raise SlotError(f"blob {digest.hex()[:8]} reads back differently; the disk is failing") from error

    def adopt(self, path: str, digest: bytes) -> Iterator[None]:
        """Make a plain file that lies here the blob of this digest, in steps; it is hashed on the way, never copied.

        Raises:
            SlotError: It does not hash to its name, or could not be made durable.
        """
        try:
            for _ in self.pieces(path, digest, False):
                yield
            self.files.fsync(path)
            self.files.make_folder(self.folder)
            self.files.rename(path, self.path(digest, False))
            self.files.fsync_folder(self.folder)
        except (OSError, ValueError) as error:
            raise SlotError(f"blob {digest.hex()[:8]} cannot be made of its chunks: {error}") from error

    def hide(self, digest: bytes) -> None:
        """Seal a blob that lies here in the open; what the disk itself keeps of the old file is beyond us."""
        path = self.path(digest, False)
        size = self.files.size(path)
        if size is not None and self._holds(digest, False):
            for _ in self.put_pieces(self.pieces(path, digest, False), size, digest, True):
                pass
            self._drop(path)

    def _drop(self, path: str) -> None:
        try:
            self.files.unlink(path)
        except OSError:
            return  # The disk refuses everything; what is left is a temporary file that the next collection removes.

    def pieces(self, path: str, digest: bytes, encrypted: bool) -> Iterator[bytes]:
        """The plaintext of a file, piece after piece; when the last was taken, the whole has been hashed.

        Raises:
            ValueError: There is no such file, or anything of it was changed.
            OSError: It cannot be read.
        """
        hashing = sha256()
        for piece in self._sealed_pieces(path, digest) if encrypted else self._plain_pieces(path):
            hashing.update(piece)
            yield piece
        if hashing.digest() != digest:
            raise ValueError("it does not hash to its name")

    def _plain_pieces(self, path: str) -> Iterator[bytes]:
        size = self.files.size(path)
        if size is None:
            raise ValueError("it is missing")
        for at in range(0, size, PIECE_BYTES):
            yield self.files.read_at(path, at, PIECE_BYTES) or b""

    def _sealed_pieces(self, path: str, digest: bytes) -> Iterator[bytes]:
        reader = SealedReader(self.files.read_at(path, 0, HEAD_BYTES) or b"", digest, self.node_key)
        if self.files.size(path) != reader.file_bytes:
            raise ValueError("it was cut")
        for frame in range(reader.frames):
            yield reader.open(frame, self.files.read_at(path, *reader.place(frame)) or b"")

    def _holds(self, digest: bytes, encrypted: bool) -> bool:
        try:
            return all(True for _ in self.pieces(self.path(digest, encrypted), digest, encrypted))
        except (ValueError, OSError):
            return False

    def get(self, digest: bytes) -> bytes | None:
        """The plaintext, hashed; None when it is missing or damaged."""
        for encrypted in (False, True):
            with contextlib.suppress(ValueError, OSError):
                return b"".join(self.pieces(self.path(digest, encrypted), digest, encrypted))
        return None

    def verify(self, digest: bytes) -> bool:
        """See `slots.BlobStore.verify`."""
        return self._holds(digest, False) or self._holds(digest, True)

    def read_at(self, digest: bytes, offset: int, size: int) -> bytes | None:
        """A piece of a blob, for serving: not hashed here, the receiver does; None when it has gone or was changed."""
        try:
            found = self.files.read_at(self.path(digest, False), offset, size)
            if found is not None:
                return found if len(found) == size else None
            path = self.path(digest, True)
            reader = SealedReader(self.files.read_at(path, 0, HEAD_BYTES) or b"", digest, self.node_key)
            first, last = offset // FRAME_BYTES, (offset + size - 1) // FRAME_BYTES
            frames = range(first, min(last + 1, reader.frames))
            data = b"".join(reader.open(one, self.files.read_at(path, *reader.place(one)) or b"") for one in frames)
        except (ValueError, OSError):
            return None
        start = offset - first * FRAME_BYTES
        return data[start : start + size] if len(data) >= start + size else None

    def keep_only(self, digests: frozenset[bytes]) -> list[bytes]:
        """See `slots.BlobStore.keep_only`."""
        names = {self.path(digest, encrypted).rpartition("/")[2] for digest in digests for encrypted in (False, True)}
        removed = []
        for name in self.files.names(self.folder):
            if name not in names:
                self.files.unlink(f"{self.folder}/{name}")
                removed.append(bytes.fromhex(name) if len(name) == 64 else b"")
        if removed:
            self.files.fsync_folder(self.folder)
        return removed


_KEPT_FOLDERS = 3
"""The model that runs, the one before it, and one on trial."""


class MemoryFolders:
    """Folders of links to anonymous files in memory: what is sealed on disk, for the runtime to open by name.

    Nothing but links lies in any file system. The eye opens them through this process, `/proc/PID/fd/N`.
    """

    def __init__(self) -> None:
        self.kind = "memfd"
        """"memfd", or "tmpfs" once the system has refused it."""
        self._open: dict[Path, list[int]] = {}

    def fill(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Make a folder that holds these files; one that was filled before stays: its content cannot have changed.

        Raises:
            SlotError: There is no room for them; none of them is there.
        """
        if self._open.get(folder):
            self._open[folder] = self._open.pop(folder)
            return
        self.drop(folder)
        self._open[folder] = []
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            for name, data in files.items():
                self._lay_out(folder, name, data)
        except (OSError, SlotError) as error:
            self.drop(folder)  # A part of a bundle would be taken for the whole of it the next time.
            raise SlotError(f"a model cannot be laid out in memory: {error}") from error
        while len(self._open) > _KEPT_FOLDERS:
            self.drop(next(iter(self._open)))

    def _lay_out(self, folder: Path, name: str, data: bytes) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        descriptor = self._memory(data)
        if descriptor is None:
            path.touch(0o600)
            path.write_bytes(data)
        else:
            self._open[folder].append(descriptor)
            path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")

    def _memory(self, data: bytes) -> int | None:
        if self.kind != "memfd":
            return None
        try:
            descriptor = os.memfd_create("swarmd-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (OSError, AttributeError):
            self.kind = "tmpfs"
            return None
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        except OSError as error:
            os.close(descriptor)
            raise SlotError(f"there is no memory for a model of {len(data)} bytes: {error.strerror}") from error
        return descriptor

    def drop(self, folder: Path) -> None:
        """Give the memory of a folder back; what a runtime has mapped stays until it lets go."""
        for descriptor in self._open.pop(folder, ()):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        for path in folder.glob("*"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give everything back."""
        for folder in list(self._open):
            self.drop(folder)
