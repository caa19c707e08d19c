"""A mutant for each rule of exported files: break the rule, and the law that stands for it must fail."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd.federation import history, whole_files
from tests.support import export_laws as laws
from tests.support.mutants import Mutant, assert_found

pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
Law = Callable[[Path], None]


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    class Quick:
        def __getattr__(self, name: str) -> object:
            return (lambda descriptor: None) if name == "fsync" else getattr(os, name)

    patch.setattr(whole_files, "os", Quick())


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(whole_files, "sync_folder", lambda folder: None)


def written_in_place(patch: pytest.MonkeyPatch) -> None:
    def write_whole(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    for module in (laws, history):
        patch.setattr(module, "write_whole", write_whole)


def drafts_stay_where_a_disk_refuses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)


def nobody_is_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(whole_files.fcntl, "flock", lambda descriptor, how: None)


def drafts_of_the_killed_stay(patch: pytest.MonkeyPatch) -> None:
    whole = Path.glob
    patch.setattr(Path, "glob", lambda self, pattern: [] if pattern.endswith(".new") else whole(self, pattern))


def left_half(tmp: Path) -> None:
    """A draft of an export that was killed is gone when the next one begins."""
    (tmp / "a").mkdir()
    draft = tmp / "a" / "one.new"
    draft.write_bytes(b"half")
    with whole_files.alone_in(tmp, "*/one"):
        assert not draft.exists()


PAIRS: list[tuple[Law, Mutant]] = [
    (laws.a_file_is_durable_before_it_is_named, nothing_is_synced),
    (laws.a_file_is_durable_before_it_is_named, names_are_not_synced),
    (laws.a_file_is_durable_before_it_is_named, written_in_place),
    (laws.a_disk_that_refuses_leaves_the_old_file, written_in_place),
    (laws.a_disk_that_refuses_leaves_the_old_file, drafts_stay_where_a_disk_refuses),
    (laws.two_exports_do_not_write_into_each_other, nobody_is_alone),
    (left_half, drafts_of_the_killed_stay),
]


@pytest.mark.parametrize(("law", "mutant"), PAIRS, ids=[f"{a.__name__}-{b.__name__}" for a, b in PAIRS])
def test_the_mutant_is_found(law: Law, mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, lambda: law(tmp_path), monkeypatch)


def test_the_draft_is_gone(tmp_path: Path) -> None:
    left_half(tmp_path)
