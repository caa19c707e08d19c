"""What a program makes durable, and when: every `fsync` and `rename`, in their order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Syncs:
    """What was made durable by the name that it had then, and what was renamed."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []

    def assert_durable(self, out: Path) -> None:
        """All of a folder that took its name was durable before, files before their folder, and its parent after."""
        at = next((at for at, (what, _, name) in enumerate(self.done) if (what, name) == ("rename", str(out))), None)
        assert at is not None, f"{out} was not renamed to its place"
        draft = self.done[at][1]
        before = [old for what, old, _ in self.done[:at] if what == "fsync"]
        paths = [out, *out.rglob("*")]
        order = {path: before.index(old) for path in paths if (old := f"{draft}{str(path)[len(str(out)) :]}") in before}
        assert set(order) == set(paths), f"{set(paths) - set(order)} were not durable before the rename"
        for path in paths[1:]:
            assert order[path] < order[path.parent], f"{path.parent} before {path}"
        self.assert_synced_after_rename(out.parent)

    def assert_synced_after_rename(self, folder: Path) -> None:
        """A folder's names were made durable once the last of them was there."""
        at = max(at for at, (what, *_) in enumerate(self.done) if what == "rename")
        assert ("fsync", str(folder), "") in self.done[at:], f"{folder} was not made durable after the rename"


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Record what is made durable within the block, which goes on being done."""
    syncs, sync, rename = Syncs(), os.fsync, os.rename

    def synced(descriptor: int) -> None:
        syncs.done.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}"), ""))
        sync(descriptor)

    def renamed(old: Any, new: Any, **options: Any) -> None:
        rename(old, new, **options)
        syncs.done.append(("rename", os.fspath(old), os.fspath(new)))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "rename", renamed)
        yield syncs
