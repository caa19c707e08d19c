"""The modelled journal: what a node persisted, and what of it is left after a crash.

A write is durable when `write` says so. Faults: the disk is lost (restart finds nothing), torn (the write under way
at the crash is missing, as an atomic journal leaves it), corrupt (a bit of one record has flipped), full (writes go
to memory only and vanish in a crash, which is how the daemon degrades), slow (each write takes long).
"""

from swarmd_sim.run.choices import Choices


class ModelledDisk:
    """One node's journal.

    Args:
        fsync_ns: How long one durable write takes; 0 costs no event.
    """

    __slots__ = ("_durable", "_volatile", "bytes_written", "fsync_ns", "full", "generation", "usual_fsync_ns", "writes")

    def __init__(self, fsync_ns: int) -> None:
        self._durable: dict[bytes, bytes] = {}
        self._volatile: dict[bytes, bytes | None] = {}
        self.fsync_ns = self.usual_fsync_ns = fsync_ns
        self.full = False
        self.generation = 0
        """Rises when the medium is lost: other files on it are gone then too."""
        self.writes = 0
        self.bytes_written = 0

    def write(self, key: bytes, value: bytes | None) -> bool:
        """Write or delete one record.

        Args:
            key: The record's key.
            value: Its bytes; None deletes it.

        Returns:
            True when the record is durable, False when it only lives in memory (the disk is full).
        """
        self.writes += 1
        if self.full:
            self._volatile[key] = value
            return False
        self._volatile.pop(key, None)
        if value is None:
            self._durable.pop(key, None)
        else:
            self._durable[key] = value
            self.bytes_written += len(key) + len(value)
        return True

    def crash(self) -> None:
        """The process is gone: what was only in memory is lost."""
        self._volatile.clear()

    def lose(self) -> None:
        """The medium is gone: the next start finds nothing."""
        self.generation += 1
        self._durable.clear()
        self._volatile.clear()

    def restore(self, records: dict[bytes, bytes]) -> None:
        """Put an old copy back."""
        self._durable = dict(records)
        self._volatile.clear()

    def tear(self, key: bytes, previous: bytes | None) -> None:
        """Undo the write that was under way when the power went.

        Args:
            key: The record that was being written.
            previous: What it held before; None when it did not exist.
        """
        if previous is None:
            self._durable.pop(key, None)
        else:
            self._durable[key] = previous

    def corrupt(self, choices: Choices) -> bytes | None:
        """Flip one bit of one record.

        Args:
            choices: Picks record and bit.

        Returns:
            The key of the record, or None when there was nothing to corrupt.
        """
        keys = sorted(key for key, value in self._durable.items() if value)
        if not keys:
            return None
        key = keys[choices.choose("disk.corrupt", len(keys))]
        damaged = bytearray(self._durable[key])
        bit = choices.choose("disk.corrupt", len(damaged) * 8)
        damaged[bit // 8] ^= 1 << (bit % 8)
        self._durable[key] = bytes(damaged)
        return key

    def get(self, key: bytes) -> bytes | None:
        """The record as a reader in this life sees it."""
        if key in self._volatile:
            return self._volatile[key]
        return self._durable.get(key)

    @property
    def is_behind(self) -> bool:
        """Whether some writes only live in memory."""
        return bool(self._volatile)

    def sizes(self, prefixes: tuple[bytes, ...], owner_bytes: int) -> dict[bytes, int]:
        """Durable bytes, names included, by whose they are.

        Args:
            prefixes: Of the names that are looked at.
            owner_bytes: How many bytes of a name behind its prefix say whose it is.

        Returns:
            Bytes by owner.
        """
        found: dict[bytes, int] = {}
        for key, value in self._durable.items():
            for prefix in prefixes:
                if key.startswith(prefix):
                    owner = key[len(prefix) : len(prefix) + owner_bytes]
                    found[owner] = found.get(owner, 0) + len(key) + len(value)
        return found

    def everything(self) -> dict[bytes, bytes]:
        """All records as a reader in this life sees them."""
        seen = {**self._durable, **self._volatile}
        return {key: value for key, value in seen.items() if value is not None}

    def records(self) -> dict[bytes, bytes]:
        """What a starting node finds, sorted by key."""
        return dict(sorted(self._durable.items()))
