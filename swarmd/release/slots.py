"""Which releases lie on disk and which one runs: slots and their record, safe at every instant of a power cut.

The order (each arrow is durable before the next step):

    blobs written, read back, hashed → record {trial, tries 3} → at each start a try is spent → the trial loads
    → gates pass → record {active = trial, fallback = old} → **then** peers are told → garbage is collected
    → gates fail → record {rejected} → the old one runs on

The record is kept twice, each with a sequence number and a CRC; the older one is replaced. A record that does not read
is ignored; when neither reads, the model built into the image runs and an alarm is raised. Three tries, not two: two
power cuts during one trial must not reject a good release. Tries that run out only back off (soft), a failed gate
rejects for good (hard).
"""

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol
from zlib import crc32

import msgspec

from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem, replace_durably

TRIES = 3
_RECORDS = ("state/0", "state/1")
_MAGIC = b"SWS1"
MAX_REJECTED = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """One release on disk: its digest and its files by name."""

    release: bytes
    files: tuple[tuple[str, bytes], ...]
    """(file name, SHA-256), sorted."""
    model_path: str
    """The file that is the model."""
    encrypt: bool = False


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What survives a power cut, for one model."""

    sequence: int = 0
    active: Slot | None = None
    fallback: Slot | None = None
    trial: Slot | None = None
    tries: int = 0
    loaded: bool = False
    """A try of this trial was spent and it was loaded; it has not ended yet."""
    floor: tuple[int, int] = (0, 0)
    rejected: tuple[bytes, ...] = ()
    backed_off: tuple[bytes, ...] = ()


class BlobStore(Protocol):
    """Blobs by digest, as the slots need them."""

    def verify(self, digest: bytes) -> bool:
        """Whether the blob is here and still hashes to its name."""
        ...

    def keep_only(self, digests: frozenset[bytes]) -> list[bytes]:
        """Remove every other blob; returns what was removed."""
        ...


def encode_record(record: Record) -> bytes:
    """The form on disk: magic, CRC-32, msgpack."""
    body = msgspec.msgpack.encode(record)
    return _MAGIC + crc32(body).to_bytes(4, "big") + body


def decode_record(data: bytes) -> Record | None:
    """A record from disk, or None for anything that is not one."""
    if data[:4] != _MAGIC or crc32(data[8:]).to_bytes(4, "big") != data[4:8]:
        return None
    try:
        return msgspec.msgpack.decode(data[8:], type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(slots=True)
class Slots:
    """The slots of one model. Every method that changes something returns after it is durable."""

    files: FileSystem
    blobs: BlobStore
    folder: str
    """Such as "slots/solar"."""
    record: Record = field(default_factory=Record)
    damaged: bool = False
    """Neither record could be read although one was there."""

    def load(self) -> Record:
        """Read the newer of the two records that hold."""
        raw = [self.files.read(f"{self.folder}/{name}") for name in _RECORDS]
        sound = [record for record in map(decode_record, [one for one in raw if one is not None]) if record is not None]
        self.damaged = any(one is not None for one in raw) and not sound
        self.record = max(sound, key=lambda one: one.sequence, default=Record())
        return self.record

    def _save(self, record: Record) -> None:
        """Replace the older record, durably."""
        numbered = msgspec.structs.replace(record, sequence=self.record.sequence + 1)
        path = f"{self.folder}/{_RECORDS[numbered.sequence % 2]}"
        try:
            replace_durably(self.files, path, encode_record(numbered))
        except OSError as error:
            raise SlotError(f"the slots' record {path} cannot be written: {error.strerror or error}") from error
        self.record = numbered

    def install(self, slot: Slot) -> None:
        """Make a release the next trial; its blobs must be here and sound.

        Raises:
            SlotError: A blob is missing or does not hash, the release was rejected here, or the record cannot be
                written. The old state still stands.
        """
        if slot.release in self.record.rejected:
            raise SlotError(f"release {slot.release.hex()[:8]} was rejected on this node")
        for name, digest in slot.files:
            if not self.blobs.verify(digest):
                raise SlotError(
                    f"{name} of release {slot.release.hex()[:8]} is missing or damaged; it is fetched again"
                )
        if self.record.trial == slot:
            return
        self._save(msgspec.structs.replace(self.record, trial=slot, tries=TRIES, loaded=False))

    def begin_trial(self) -> Slot | None:
        """Spend a try, durably, **before** the trial is loaded; None when there is nothing (left) to try."""
        record = self.record
        if record.trial is None:
            return None
        sound = all(self.blobs.verify(digest) for _, digest in record.trial.files)
        if not sound or record.tries <= 0:
            backed_off = record.backed_off if not sound else _with(record.backed_off, record.trial.release)
            self._save(msgspec.structs.replace(record, trial=None, tries=0, loaded=False, backed_off=backed_off))
            return None
        self._save(msgspec.structs.replace(record, tries=record.tries - 1, loaded=True))
        return self.record.trial

    def promote(self, floor: tuple[int, int] = (0, 0)) -> None:
        """The gates held: the trial becomes active. Peers may be told only after this has returned."""
        record = self.record
        if record.trial is None:
            raise SlotError("there is no trial to promote")
        self._save(
            msgspec.structs.replace(
                record,
                active=record.trial,
                fallback=record.active,
                trial=None,
                tries=0,
                loaded=False,
                floor=max(record.floor, floor),
            )
        )

    def reject(self) -> None:
        """A gate failed: never this release again, here."""
        record = self.record
        if record.trial is None:
            return
        rejected = _with(record.rejected, record.trial.release)
        self._save(msgspec.structs.replace(record, trial=None, tries=0, loaded=False, rejected=rejected))

    def abandon(self) -> None:
        """The trial was taken back by the fleet; not this release's fault here."""
        if self.record.trial is not None:
            self._save(msgspec.structs.replace(self.record, trial=None, tries=0, loaded=False))

    def go_back(self, release: bytes) -> None:
        """Run another release that lies here (b"": the model built into the image) instead of the active one."""
        record = self.record
        if not release:
            self._save(msgspec.structs.replace(record, active=None, fallback=None, trial=None, tries=0, loaded=False))
            return
        for slot in (record.active, record.fallback):
            if slot is not None and slot.release == release:
                self._save(
                    msgspec.structs.replace(record, active=slot, fallback=None, trial=None, tries=0, loaded=False)
                )
                return
        raise SlotError(f"release {release.hex()[:8]} lies in no slot")

    def raise_floor(self, floor: tuple[int, int]) -> None:
        """Remember the signed floor; it never goes down."""
        if floor > self.record.floor:
            self._save(msgspec.structs.replace(self.record, floor=floor))

    def start(self) -> Slot | None:
        """What to run at the start of the daemon: the active release, re-hashed; else the fallback; else None.

        A trial is not run here: the service begins it (and spends a try) when it is safe.
        """
        record = self.load()
        for slot in (record.active, record.fallback):
            if slot is not None and all(self.blobs.verify(digest) for _, digest in slot.files):
                if slot is not record.active:
                    self._save(msgspec.structs.replace(record, active=slot, fallback=None))
                return slot
        return None

    def pinned(self) -> frozenset[bytes]:
        """Digests of blobs that must never be removed."""
        slots = (self.record.active, self.record.fallback, self.record.trial)
        return frozenset(digest for slot in slots if slot is not None for _, digest in slot.files)

    def collect(self, also_keep: frozenset[bytes] = frozenset()) -> list[bytes]:
        """Remove blobs that no slot and nothing else needs; only after the last change is durable, as all are here."""
        return self.blobs.keep_only(self.pinned() | also_keep)


def _with(items: tuple[bytes, ...], item: bytes) -> tuple[bytes, ...]:
    return (*[one for one in items if one != item], item)[-MAX_REJECTED:]


@dataclass(slots=True)
class PlainBlobs:
    """Blobs as plain files, `blobs/<digest in hex>`. `at_rest.SealedBlobs` is the encrypted kind."""

    files: FileSystem
    folder: str = "blobs"

    def put(self, data: bytes) -> bytes:
        """Write a blob durably, read it back and hash it; returns its digest.

        Raises:
            SlotError: The disk gave other bytes back, or the blob could not be written.
        """
        digest = sha256(data).digest()
        if self.verify(digest):
            return digest
        path, temporary = self.path(digest), f"{self.folder}/incoming.tmp"
        try:
            self.files.write(temporary, data)
            back = self.files.read(temporary)
            if back is None or sha256(back).digest() != digest:
                raise SlotError(f"blob {digest.hex()[:8]} reads back differently; the disk is failing")
            self.files.fsync(temporary)
            self.files.rename(temporary, path)
            self.files.fsync_folder(self.folder)
        except OSError as error:
            self.files.unlink(temporary)
            raise SlotError(f"blob {digest.hex()[:8]} cannot be written: {error.strerror or error}") from error
        return digest

    def path(self, digest: bytes) -> str:
        """Where a blob lies."""
        return f"{self.folder}/{digest.hex()}"

    def get(self, digest: bytes) -> bytes | None:
        """The blob, hashed; None when it is missing or damaged."""
        data = self.files.read(self.path(digest))
        return data if data is not None and sha256(data).digest() == digest else None

    def verify(self, digest: bytes) -> bool:
        """See `BlobStore.verify`."""
        return self.get(digest) is not None

    def keep_only(self, digests: frozenset[bytes]) -> list[bytes]:
        """See `BlobStore.keep_only`."""
        removed = []
        for name in self.files.names(self.folder):
            if len(name) != 64:
                self.files.unlink(f"{self.folder}/{name}")
            elif (digest := bytes.fromhex(name)) not in digests:
                self.files.unlink(f"{self.folder}/{name}")
                removed.append(digest)
        if removed:
            self.files.fsync_folder(self.folder)
        return removed


def fresh_slot(release: bytes, files: dict[str, bytes], model_path: str, encrypt: bool = False) -> Slot:
    """A slot from file names and digests."""
    return replace(Slot(release, tuple(sorted(files.items())), model_path), encrypt=encrypt)
