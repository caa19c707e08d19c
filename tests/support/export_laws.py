"""What an export has to keep whenever it is killed or the power goes, as laws of a folder and a region's file."""

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from swarmd.errors import DaemonError
from swarmd.federation.history import arrow_of, export
from swarmd.federation.store import FILE_NAME, Store
from swarmd.federation.whole_files import alone_in, write_whole
from tests.support.federation_world import make_world

KILLED = """
import os, signal, sys
from pathlib import Path
from swarmd.federation.history import export
from swarmd.federation.store import Store

step, sound = sys.argv[3], (os.fsync, os.replace, Store.forget_history)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fsync(descriptor):
    if step == "half" and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".parquet.new"):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
        die()
    sound[0](descriptor)

os.fsync = fsync
os.replace = lambda *names: die() if step == "named" else sound[1](*names)
Store.forget_history = lambda *given: die() if step == "forgets" else sound[2](*given)
export(Store(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def region(folder: Path) -> tuple[Path, int]:
    """A region's file, and how many words wait in it."""
    world = make_world(folder, random.Random(3))
    world.misbehave(60)
    world.settle()
    assert world.store is not None
    count = len(world.store.history(10_000))
    world.close()
    (file,) = folder.rglob(FILE_NAME)
    return file, count


def words_in(past: Path) -> int:
    """Words in all files there; each of them is whole."""
    files = sorted(past.rglob("*.parquet"))
    return sum(arrow_of().parquet.read_table(file).num_rows for file in files)


def kill_leaves_whole_files(step: str) -> None:
    """A real process is killed; what a question would read is whole, and the next export has each word once.

    Args:
        step: Where: with "half" of a file written, before it is "named", or before the region "forgets" its words.
    """
    with tempfile.TemporaryDirectory() as name:
        file, count = region(Path(name))
        past = Path(name) / "past"
        command = [sys.executable, "-c", KILLED, str(file), str(past), step]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert bool(list(past.rglob("*.new"))) == (step != "forgets")
        assert words_in(past) == (count if step == "forgets" else 0)
        store = Store(file)
        assert export(store, past) == count
        store.close()
        assert words_in(past) == count
        assert {one.suffix for one in past.rglob("*") if one.is_file()} == {".parquet"}, "a draft was left"


def a_file_is_durable_before_it_is_named(tmp: Path) -> None:
    """A file before its name, its name before anything that counts on it, and each new folder's."""
    told: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def syncs(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        told.append((kind, os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp)))
        fsync(descriptor)

    def names(draft: Path, path: Path) -> None:
        told.append(("name", os.path.relpath(path, tmp)))
        replace(draft, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", syncs)
        patch.setattr(os, "replace", names)
        write_whole(tmp / "a" / "b" / "one", b"whole")
        told.append(("done", ""))
        write_whole(tmp / "a" / "b" / "one", b"anew")
    assert told == [
        ("folder", "."),
        ("folder", "a"),
        ("file", "a/b/one.new"),
        ("name", "a/b/one"),
        ("folder", "a/b"),
        ("done", ""),
        ("file", "a/b/one.new"),
        ("name", "a/b/one"),
        ("folder", "a/b"),
    ]
    assert (tmp / "a" / "b" / "one").read_bytes() == b"anew"


def a_disk_that_refuses_leaves_the_old_file(tmp: Path) -> None:
    write_whole(tmp / "one", b"old")

    def refuses(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, step, refuses)
            with pytest.raises(OSError, match="No space"):
                write_whole(tmp / "one", b"new")
        assert [(one.name, one.read_bytes()) for one in tmp.iterdir()] == [("one", b"old")]


def two_exports_do_not_write_into_each_other(tmp: Path) -> None:
    past = tmp / "past"
    with alone_in(past, "*"), pytest.raises(DaemonError, match="another export"), alone_in(past, "*"):
        pass
    with alone_in(past, "*"):
        pass


def only_drafts_of_the_exports_own_files_go(tmp: Path) -> None:
    """A swarm may be called `farm.new`, and people keep files of their own in the folder."""
    past = tmp / "past"
    file, count = region(tmp)
    store = Store(file)
    draft = past / "objects" / "swarm=farm.new" / "day=2026-01-02" / "000000000001.parquet.new"
    others = [past / "mail" / "letter.new", past / "notes.new", draft.with_name("mine.parquet.new")]
    for one in (draft, *others):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_bytes(b"?")
    assert export(store, past) == count
    store.close()
    assert [one.exists() for one in (draft, *others)] == [False, True, True, True]
