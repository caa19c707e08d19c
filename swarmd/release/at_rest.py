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
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path

from nacl import bindings
from nacl.exceptions import CryptoError

from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem

FRAME_BYTES = 65_536
_TAG, _NONCE, _KEY = 16, 24, 32
KEY_BYTES = _KEY
CHUNK_OVERHEAD = _NONCE + _TAG
_MAGIC = b"SWE1"
_HEAD = len(_MAGIC) + _NONCE + _KEY + _TAG + 8
KEY_FILE = "node.key"
CREDENTIAL = "swarmd-model-key"


@dataclass(frozen=True, slots=True)
class NodeKey:
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
    nonce, key = os.urandom(_NONCE), os.urandom(_KEY)
    wrapped = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(key, digest, nonce, node_key)
    parts = [_MAGIC, nonce, wrapped, len(data).to_bytes(8, "big")]
    count = max(1, -(-len(data) // FRAME_BYTES))
    for frame in range(count):
        piece = data[frame * FRAME_BYTES : (frame + 1) * FRAME_BYTES]
        aad = _aad(digest, frame, frame == count - 1)
        parts.append(bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(piece, aad, _frame_nonce(nonce, frame), key))
    return b"".join(parts)


def unseal(sealed: bytes, digest: bytes, node_key: bytes) -> bytes | None:
    """The plaintext, or None when anything of it was changed, cut, or belongs to another node or blob."""
    if len(sealed) < _HEAD or sealed[:4] != _MAGIC:
        return None
    nonce = sealed[4 : 4 + _NONCE]
    wrapped = sealed[4 + _NONCE : _HEAD - 8]
    size = int.from_bytes(sealed[_HEAD - 8 : _HEAD], "big")
    count = max(1, -(-size // FRAME_BYTES))
    if len(sealed) != _HEAD + size + _TAG * count:
        return None
    try:
        key = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped, digest, nonce, node_key)
        parts = []
        for frame in range(count):
            start = _HEAD + frame * (FRAME_BYTES + _TAG)
            piece = sealed[start : start + FRAME_BYTES + _TAG]
            aad = _aad(digest, frame, frame == count - 1)
            nonce_now = _frame_nonce(nonce, frame)
            parts.append(bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(piece, aad, nonce_now, key))
    except (CryptoError, ValueError):
        return None
    data = b"".join(parts)
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
    nonce, wrapped = sealed[4 : 4 + _NONCE], sealed[4 + _NONCE : _HEAD - 8]
    try:
        key = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped, digest, nonce, old_key)
    except (CryptoError, ValueError):
        return None
    # The nonce stays, for the frames' sake; under the new node key it was never used.
    again = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(key, digest, nonce, new_key)
    return sealed[: 4 + _NONCE] + again + sealed[_HEAD - 8 :]


@dataclass(slots=True)
class SealedBlobs:
    """Blobs at rest, plain or sealed. Implements `slots.BlobStore`."""

    files: FileSystem
    node_key: bytes
    folder: str = "blobs"

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
        if self._read(digest, encrypted) is not None:
            return digest
        path, temporary = self.path(digest, encrypted), f"{self.folder}/incoming.tmp"
        try:
            self.files.write(temporary, seal(data, digest, self.node_key) if encrypted else data)
            if self._open(self.files.read(temporary), digest, encrypted) is None:
                raise SlotError(f"blob {digest.hex()[:8]} reads back differently; the disk is failing")
            self.files.fsync(temporary)
            self.files.rename(temporary, path)
            self.files.fsync_folder(self.folder)
        except OSError as error:
            self._drop(temporary)
            raise SlotError(f"blob {digest.hex()[:8]} cannot be written: {error.strerror or error}") from error
        return digest

    def hide(self, digest: bytes) -> None:
        """Seal a blob that lies here in the open; what the disk itself keeps of the old file is beyond us."""
        data = self._read(digest, False)
        if data is not None:
            self.put(data, True)
            self._drop(self.path(digest, False))

    def _drop(self, path: str) -> None:
        try:
            self.files.unlink(path)
        except OSError:
            return  # The disk refuses everything; what is left is a temporary file that the next start removes.

    def _open(self, raw: bytes | None, digest: bytes, encrypted: bool) -> bytes | None:
        if raw is None:
            return None
        if encrypted:
            return unseal(raw, digest, self.node_key)
        return raw if sha256(raw).digest() == digest else None

    def _read(self, digest: bytes, encrypted: bool) -> bytes | None:
        return self._open(self.files.read(self.path(digest, encrypted)), digest, encrypted)

    def get(self, digest: bytes) -> bytes | None:
        """The plaintext, hashed; None when it is missing or damaged."""
        plain = self._read(digest, False)
        return plain if plain is not None else self._read(digest, True)

    def verify(self, digest: bytes) -> bool:
        """See `slots.BlobStore.verify`."""
        return self.get(digest) is not None

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


@dataclass(slots=True)
class MemoryFolders:
    """Folders of links to anonymous files in memory: what is sealed on disk, for the runtime to open by name.

    Nothing but links lies in any file system. The eye opens them through this process, `/proc/PID/fd/N`.
    """

    kind: str = "memfd"
    """"memfd", or "tmpfs" once the system has refused it."""
    _open: dict[Path, list[int]] = field(default_factory=dict)

    def fill(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Make a folder that holds these files; one that was filled before stays: its content cannot have changed."""
        if self._open.get(folder):
            self._open[folder] = self._open.pop(folder)
            return
        self.drop(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        self._open[folder] = []
        for name, data in files.items():
            path = folder / name
            path.unlink(missing_ok=True)
            descriptor = self._memory(data)
            if descriptor is None:
                path.touch(0o600)
                path.write_bytes(data)
            else:
                self._open[folder].append(descriptor)
                path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
        while len(self._open) > _KEPT_FOLDERS:
            self.drop(next(iter(self._open)))

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
