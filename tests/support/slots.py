"""The slots' transitions as the agent makes them, at once and on any file system: for tests of crashes."""

from typing import Protocol

from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem
from swarmd.release.slots import SlotFiles
from swarmd_protocols.releases import slots
from swarmd_protocols.releases.slots import Record, Slot


class Blobs(Protocol):
    """Files by digest."""

    def verify(self, digest: bytes) -> bool: ...

    def keep_only(self, digests: frozenset[bytes]) -> list[bytes]: ...


class Slots:
    """One model's slots; every method that changes something returns after it is durable."""

    def __init__(self, files: FileSystem, blobs: Blobs, folder: str) -> None:
        self.disk = SlotFiles(files, folder)
        self.blobs = blobs
        self.record = Record()

    @property
    def damaged(self) -> bool:
        return self.disk.damaged

    def load(self) -> Record:
        self.record = self.disk.load()
        return self.record

    def save(self, record: Record) -> None:
        if record != self.record:
            numbered = slots.numbered(record, self.record)
            self.disk.save(numbered)
            self.record = numbered

    def install(self, slot: Slot) -> None:
        if slot.release in self.record.rejected:
            raise SlotError(f"release {slot.release.hex()[:8]} was rejected on this node")
        if not all(self.blobs.verify(digest) for _, digest in slot.files):
            raise SlotError("a file is missing or damaged")
        self.save(slots.installed(self.record, slot))

    def begin_trial(self) -> Slot | None:
        trial = self.record.trial
        if trial is None or not all(self.blobs.verify(digest) for _, digest in trial.files):
            return None
        self.save(slots.try_spent(self.record))
        return self.record.trial

    def promote(self) -> None:
        self.save(slots.promoted(self.record))

    def reject(self) -> None:
        self.save(slots.rejected(self.record))

    def go_back(self, release: bytes) -> None:
        self.save(slots.gone_back(self.record, release))

    def raise_floor(self, floor: tuple[int, int], root_epoch: int = 1) -> None:
        self.save(slots.floored(self.record, root_epoch, floor))

    def start(self) -> Slot | None:
        record = self.load()
        sound = frozenset(digest for digest in slots.pinned(record) if self.blobs.verify(digest))
        slot = slots.to_start(record, sound)
        if slot is not None and slot is not record.active:
            self.save(slots.running_only(record, slot))
        return slot

    def collect(self) -> list[bytes]:
        return self.blobs.keep_only(slots.pinned(self.record))
