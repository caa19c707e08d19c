"""Mutants of folders that appear whole: each loses somebody's work in a crash or a race, and a test finds it."""

import fcntl
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd_models import draft_folder
from tests.unit import test_draft_folder as laws

Mutant = Callable[[pytest.MonkeyPatch], None]


def locks_are_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_folder, "_is_locked", lambda lock, held: True)


def a_lock_that_was_removed_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_locked(lock: Path, held: int) -> bool:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    monkeypatch.setattr(draft_folder, "_is_locked", is_locked)


def whatever_has_a_lock_is_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_folder, "_LOCK", re.compile(r".*\.lock"))


def only_folders_are_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = draft_folder._sync
    monkeypatch.setattr(draft_folder, "_sync", lambda path: sync(path) if path.is_dir() else None)


def only_the_draft_is_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = draft_folder._sync
    monkeypatch.setattr(draft_folder, "_sync", lambda path: sync(path) if ".swarmd-draft-" in str(path) else None)


def a_folder_is_made_durable_before_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_tree(folder: Path) -> None:
        for path in (folder, *sorted(folder.rglob("*"))):
            draft_folder._sync(path)

    monkeypatch.setattr(draft_folder, "_sync_tree", sync_tree)


def living(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laws.test_a_living_writers_draft_is_never_swept(folder)


def strangers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laws.test_what_is_no_draft_of_ours_is_never_swept(folder, monkeypatch)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (living, locks_are_not_heeded),
        (laws.test_a_draft_that_is_swept_before_it_is_held_is_claimed_anew, a_lock_that_was_removed_still_counts),
        (strangers, whatever_has_a_lock_is_a_draft),
        *(
            (laws.test_everything_is_durable_before_its_name_and_the_name_before_the_end, mutant)
            for mutant in (
                only_folders_are_made_durable,
                only_the_draft_is_made_durable,
                a_folder_is_made_durable_before_its_files,
            )
        ),
    ],
)
def test_a_mutant_is_found(
    law: Callable[[Path, pytest.MonkeyPatch], None], mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, FileNotFoundError, pytest.fail.Exception)):
        law(tmp_path, monkeypatch)
