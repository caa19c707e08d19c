"""A folder appears whole and durable or not at all, and what a killed writer left goes, but no living writer's."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from swarmd_models.draft_folder import drafted, sweep_drafts
from swarmd_models.labelling.forms import LabelError
from swarmd_models.labelling.training_set import import_labels
from tests.support.syncs import recorded
from tests.unit.test_labelling import coco, make_export

DEAD = ".swarmd-draft-0123456789abcdef"


def leave_dead_draft(folder: Path, name: str = DEAD) -> None:
    """As a writer leaves it that was killed: nobody holds its lock."""
    (folder / name / "images").mkdir(parents=True)
    (folder / name / "images" / "0.png").write_bytes(b"half")
    (folder / f"{name}.lock").touch(0o600)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_takes_its_name_when_all_of_it_is_there(tmp_path: Path) -> None:
    out = tmp_path / "far" / "away" / "set"
    with drafted(out) as draft:
        (draft / "file").write_bytes(b"whole")
        assert not out.exists()
    assert (out / "file").read_bytes() == b"whole"
    assert names(out.parent) == ["set"]
    assert out.stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    def write_half() -> None:
        with drafted(tmp_path / "set") as draft:
            (draft / "file").write_bytes(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert names(tmp_path) == []


def test_everything_is_durable_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "set"
    with recorded(monkeypatch) as syncs:
        with drafted(out) as draft:
            (draft / "images").mkdir()
            for name in ("images/0", "images/1", "set.json"):
                (draft / name).write_bytes(b"whole")
        syncs.assert_durable(out)
        syncs.assert_synced_after_rename(tmp_path)  # It holds the name of a folder that was made on the way.


def test_an_imported_set_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export, labels, out = make_export(tmp_path), tmp_path / "labels", tmp_path / "set"
    labels.write_bytes(coco(export))
    with recorded(monkeypatch) as syncs:
        import_labels(export, labels, out, by="alice")
        syncs.assert_durable(out)


def test_what_cannot_be_made_durable_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export, labels = make_export(tmp_path), tmp_path / "labels"
    labels.write_bytes(coco(export))

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LabelError, match="cannot be written"):
        import_labels(export, labels, tmp_path / "set", by="alice")
    assert names(tmp_path) == ["export", "labels"]


def test_an_import_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """Also one that is refused: what was left may be what fills the disk."""
    export, labels = make_export(tmp_path), tmp_path / "labels"
    labels.write_bytes(b"no labels")
    leave_dead_draft(tmp_path)
    with pytest.raises(LabelError):
        import_labels(export, labels, tmp_path / "set", by="alice")
    assert names(tmp_path) == ["export", "labels"]


def test_a_living_writers_draft_is_never_swept(tmp_path: Path) -> None:
    leave_dead_draft(tmp_path)
    with drafted(tmp_path / "set") as draft:
        (draft / "file").write_bytes(b"half")
        sweep_drafts(tmp_path)
        assert names(tmp_path) == [draft.name, f"{draft.name}.lock"], "the dead one has gone, the living one has not"
        assert (draft / "file").read_bytes() == b"half"
    assert names(tmp_path) == ["set"]


def test_what_is_no_draft_of_ours_is_never_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for name in (".set-training", ".swarmd-draft-notes", ".swarmd-draft-0123456789abcde", f"x{DEAD}"):
        leave_dead_draft(tmp_path, name)
    (tmp_path / ".swarmd-draft-aaaaaaaaaaaaaaaa.lock").symlink_to(kept / "file")
    (tmp_path / ".swarmd-draft-bbbbbbbbbbbbbbbb.lock").mkdir()
    os.mkfifo(tmp_path / ".swarmd-draft-cccccccccccccccc.lock")
    (tmp_path / ".swarmd-draft-dddddddddddddddd").mkdir()
    before = names(tmp_path)
    sweep_drafts(tmp_path)
    sweep_drafts(tmp_path / "nowhere")
    assert names(tmp_path) == before
    leave_dead_draft(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        sweep_drafts(tmp_path)
        assert DEAD in names(tmp_path), "another user's"
    sweep_drafts(tmp_path)
    assert names(tmp_path) == before


def test_a_link_in_a_drafts_place_takes_nothing_with_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / DEAD).symlink_to(kept)
    (tmp_path / f"{DEAD}.lock").touch()
    sweep_drafts(tmp_path)
    assert names(kept) == ["file"]
    assert f"{DEAD}.lock" in names(tmp_path), "its lock stays where what it stands for cannot be removed"


def test_a_draft_that_is_swept_before_it_is_held_is_claimed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of a lock and its holding another's start may take it for a dead one's."""
    lock, pending = fcntl.flock, [True]

    def overtaken(descriptor: int, operation: int) -> None:
        if pending and pending.pop():
            sweep_drafts(tmp_path)
            assert names(tmp_path) == []
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with drafted(tmp_path / "set") as draft:
        sweep_drafts(tmp_path)
        assert names(tmp_path) == [draft.name, f"{draft.name}.lock"]
    assert names(tmp_path) == ["set"]
