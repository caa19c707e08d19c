"""Every file operation of the release service, behind one small interface, so that tests can put a model in its place.

The rules: write to a temporary name, `fsync`, `rename`, `fsync` the directory. An `fsync` that fails is fatal for that
file: it is removed and written again from its source, never synced again (the kernel may have dropped the dirty pages
and reported it only once). Nothing is ever patched in place.
"""

import contextlib
import os
from pathlib import PurePosixPath
from typing import Protocol


class FileSystem(Protocol):
    """What the release service asks of a file system. Paths are relative to one folder, such as "blobs/ab12"."""

    def read(self, path: str) -> bytes | None:
        """The whole file, or None when there is none."""
        ...

    def read_at(self, path: str, offset: int, size: int) -> bytes | None:
        """A piece of a file, short at its end; None when there is no file."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file; durable only after `fsync` and, for its name, `fsync_folder`."""
        ...

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """Write a piece of a cache file, creating it as needed; never durable by promise."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder where there is none."""
        ...

    def fsync(self, path: str) -> None:
        """Make a file's content durable."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what had it; durable after `fsync_folder`."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; no error when there is none."""
        ...

    def fsync_folder(self, path: str) -> None:
        """Make a folder's names durable."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files of a folder, sorted; empty when there is no folder."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file, or None when there is none."""
        ...


class RealFiles:
    """The operating system's files under one folder, 0700 and 0600.

    Args:
        root: An existing folder of the daemon's own.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def path(self, path: str) -> str:
        """The real path; refuses to leave the folder."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{path!r} leaves the folder")
        return os.path.join(self._root, path)

    def read(self, path: str) -> bytes | None:
        """See `FileSystem.read`."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def read_at(self, path: str, offset: int, size: int) -> bytes | None:
        """See `FileSystem.read_at`."""
        try:
            with open(self.path(path), "rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """See `FileSystem.write`."""
        target = self.path(path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def write_at(self, path: str, offset: int, data: bytes) -> None:
        """See `FileSystem.write_at`."""
        target = self.path(path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view, at = memoryview(data), offset
            while view:
                count = os.pwrite(descriptor, view, at)
                view, at = view[count:], at + count
        finally:
            os.close(descriptor)

    def make_folder(self, path: str) -> None:
        """See `FileSystem.make_folder`."""
        os.makedirs(self.path(path), mode=0o700, exist_ok=True)

    def fsync(self, path: str) -> None:
        """See `FileSystem.fsync`."""
        self._sync(self.path(path), os.O_RDONLY)

    def fsync_folder(self, path: str) -> None:
        """See `FileSystem.fsync_folder`."""
        self._sync(self.path(path), os.O_RDONLY | os.O_DIRECTORY)

    def _sync(self, path: str, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """See `FileSystem.rename`."""
        os.rename(self.path(old), self.path(new))

    def unlink(self, path: str) -> None:
        """See `FileSystem.unlink`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(path))

    def names(self, folder: str) -> list[str]:
        """See `FileSystem.names`."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        """See `FileSystem.size`."""
        try:
            return os.stat(self.path(path)).st_size
        except FileNotFoundError:
            return None


def replace_durably(files: FileSystem, path: str, data: bytes) -> None:
    """Write a file so that after a crash either the old content or the new one is there, never anything else.

    Raises:
        OSError: It could not be made durable; the old content still stands.
    """
    folder = path.rpartition("/")[0]
    temporary = f"{path}.tmp"
    try:
        files.write(temporary, data)
        files.fsync(temporary)
    except OSError:
        # Pages of a failed fsync may be gone for good: drop the file, keep the old one.
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    files.rename(temporary, path)
    files.fsync_folder(folder)
