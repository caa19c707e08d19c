"""The slots' record on disk, safe at every instant of a power cut. What it says is decided in `releases/agent.py`.

The record is kept twice, each with a sequence number and a CRC; the older one is replaced. A record that does not read
is ignored; when neither reads, the model built into the image runs and an alarm is raised.
"""

import msgspec

from swarmd.release.errors import SlotError
from swarmd.release.fsx import FileSystem, replace_durably
from swarmd_protocols.releases.slots import Record, decode_record, encode_record

_RECORDS = ("state/0", "state/1")


class SlotFiles(msgspec.Struct):
    """Where one model's record lies."""

    files: FileSystem
    folder: str
    """Such as "slots/solar"."""
    damaged: bool = False
    """Neither record could be read although one was there."""

    def load(self) -> Record:
        """The newer of the two records that hold; an empty one for none."""
        raw = [self.files.read(f"{self.folder}/{name}") for name in _RECORDS]
        sound = [record for record in map(decode_record, [one for one in raw if one is not None]) if record is not None]
        self.damaged = any(one is not None for one in raw) and not sound
        return max(sound, key=lambda one: one.sequence, default=Record())

    def save(self, record: Record) -> None:
        """Replace the older record; durable when it returns.

        Raises:
            SlotError: It cannot be written. The old state still stands.
        """
        path = f"{self.folder}/{_RECORDS[record.sequence % 2]}"
        try:
            replace_durably(self.files, path, encode_record(record))
        except OSError as error:
            raise SlotError(f"the slots' record {path} cannot be written: {error.strerror or error}") from error
