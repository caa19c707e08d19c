"""A model of a POSIX file system with a volatile cache, for the real install and recovery code.

What is not synced may or may not reach the disk at a crash, in any combination; an unsynced file may be absent, empty,
torn or whole; an unsynced name may be the old or the new one. `Crash` is raised before operation number `crash_at`.
"""

import itertools
from collections.abc import Iterator
from typing import Any


class Crash(Exception):
    """The power is cut."""


class ModelFiles:
    """Implements `swarmd.release.fsx.FileSystem` in memory.

    Args:
        disk: What is durable, path -> bytes.
        crash_at: Cut the power before this operation, counted from 0.
        drop: Operations that are silently skipped, such as "fsync blobs" or "fsync_folder slots": mutants.
    """

    def __init__(self, disk: dict[str, bytes], crash_at: int | None = None, drop: frozenset[str] = frozenset()) -> None:
        self.disk = dict(disk)
        self.cache = dict(disk)
        self.pending: list[tuple[Any, ...]] = []
        self.count = 0
        self.crash_at = crash_at
        self.drop = drop

    def _step(self, what: str, path: str) -> bool:
        """Count an operation; False when a mutant drops it."""
        if self.crash_at is not None and self.count == self.crash_at:
            raise Crash
        self.count += 1
        return f"{what} {path.split('/')[0]}" not in self.drop

    def read(self, path: str) -> bytes | None:
        return self.cache.get(path)

    def read_at(self, path: str, offset: int, size: int) -> bytes | None:
        data = self.cache.get(path)
        return None if data is None else data[offset : offset + size]

    def size(self, path: str) -> int | None:
        return len(self.cache[path]) if path in self.cache else None

    def names(self, folder: str) -> list[str]:
        return sorted(path[len(folder) + 1 :] for path in self.cache if path.startswith(folder + "/"))

    def write(self, path: str, data: bytes) -> None:
        self._step("write", path)
        self.cache[path] = data
        self.pending.append(("data", path, data))

    def make_folder(self, path: str) -> None:
        """Folders are names here."""

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        old = self.cache.get(path, b"").ljust(offset, b"\0")
        self.write(path, old[:offset] + data + old[offset + len(data) :])

    def fsync(self, path: str) -> None:
        if self._step("fsync", path):
            self.pending = [("name", *one[1:]) if one[0] == "data" and one[1] == path else one for one in self.pending]

    def rename(self, old: str, new: str) -> None:
        self._step("rename", old)
        data = self.cache.pop(old)
        self.cache[new] = data
        mine = [one for one in self.pending if one[0] in ("data", "name") and one[1] == old]
        sound = not any(one[0] == "data" for one in mine)
        self.pending = [one for one in self.pending if one not in mine] + [("rename", old, new, data, sound)]

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self.cache.pop(path, None)
        self.pending.append(("unlink", path))

    def fsync_folder(self, path: str) -> None:
        if not self._step("fsync_folder", path):
            return
        kept = []
        for one in self.pending:
            target = one[2] if one[0] == "rename" else one[1]
            if target.rpartition("/")[0] != path:
                kept.append(one)
            elif one[0] == "rename":
                self.disk.pop(one[1], None)
                self.disk[one[2]] = one[3]
                if not one[4]:
                    kept.append(("data", one[2], one[3]))
            elif one[0] == "unlink":
                self.disk.pop(one[1], None)
            elif one[0] == "name":
                self.disk[one[1]] = one[2]
            else:
                kept.append(one)
        self.pending = kept

    def crash_states(self, most: int = 4_000) -> Iterator[dict[str, bytes]]:
        """Every disk that a crash now may leave."""
        options: list[list[tuple[Any, ...]]] = []
        for one in self.pending:
            match one:
                case ("data", path, data):
                    options.append([(), ("put", path, b""), ("put", path, data[: len(data) // 2]), ("put", path, data)])
                case ("name", path, data):
                    options.append([(), ("put", path, data)])
                case ("rename", old, new, data, sound):
                    contents = [data] if sound else [data, data[: len(data) // 2], b""]
                    options.append([(), *(("move", old, new, content) for content in contents)])
                case ("unlink", path):
                    options.append([(), ("drop", path)])
        seen = set()
        for choice in itertools.islice(itertools.product(*options), most):
            disk = dict(self.disk)
            for step in choice:
                if step[:1] == ("put",):
                    disk[step[1]] = step[2]
                elif step[:1] == ("move",):
                    disk.pop(step[1], None)
                    disk[step[2]] = step[3]
                elif step[:1] == ("drop",):
                    disk.pop(step[1], None)
            key = tuple(sorted(disk.items()))
            if key not in seen:
                seen.add(key)
                yield disk
