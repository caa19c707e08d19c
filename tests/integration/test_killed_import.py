"""Imports that are killed: what they left goes with the next import, and no other living import's draft does."""

import os
import subprocess
import sys
from pathlib import Path

from swarmd.cli.main import main
from swarmd_models.labelling.training_set import load_set
from tests.support.daemons import wait_for
from tests.unit.test_labelling import coco, make_export


class Blocked:
    """A real import that waits for its last picture, which comes out of a pipe, with the others in its draft."""

    def __init__(self, folder: Path, out: Path) -> None:
        command = importing(folder, out)
        picture = folder / "export" / "images" / "3.png"
        self._picture = picture.read_bytes()
        picture.unlink()
        os.mkfifo(picture)
        self.process = subprocess.Popen([sys.executable, "-m", "swarmd", *command], stdout=subprocess.DEVNULL)
        self._pipe = -1
        try:
            self._pipe = wait_for(lambda: self._opened(picture), "the import's asking for its last picture", 300.0)
        except BaseException:
            self.kill()
            raise

    def _opened(self, picture: Path) -> int | None:
        assert self.process.poll() is None, "the import ended before its last picture"
        try:
            return os.open(picture, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # Nobody reads it yet.
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def finish(self) -> int:
        os.write(self._pipe, self._picture)
        self._close()
        return self.process.wait(300.0)

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1


def importing(folder: Path, out: Path) -> list[str]:
    folder.mkdir()
    export, labels = make_export(folder), folder / "labels"
    labels.write_bytes(coco(export))
    return ["frames", "import", "--export", str(export), "--labels", str(labels), "--by", "alice", "--out", str(out)]


def drafts(folder: Path) -> set[str]:
    """Folders that are being written: no name of ours is asked for."""
    return {path.name for path in folder.iterdir() if path.name.startswith(".") and path.is_dir()}


def test_the_next_import_removes_a_killed_ones_draft_and_no_living_ones(tmp_path: Path) -> None:
    sets = tmp_path / "sets"
    sets.mkdir()
    killed = Blocked(tmp_path / "one", sets / "one")
    its = drafts(sets)
    assert len(its) == 1
    try:
        living = Blocked(tmp_path / "two", sets / "two")
        try:
            assert main(importing(tmp_path / "three", sets / "three")) == 0
            both = drafts(sets)
            assert len(both) == 2, "both live"
            killed.kill()
            assert main(importing(tmp_path / "four", sets / "four")) == 0
            assert drafts(sets) == both - its
            assert living.finish() == 0
        finally:
            living.kill()
    finally:
        killed.kill()
    assert sorted(path.name for path in sets.iterdir()) == ["four", "three", "two"]
    assert len(load_set(sets / "two").pictures) == 4
