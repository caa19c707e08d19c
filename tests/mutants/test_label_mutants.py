"""Mutants of labels that come back: each lets something be taught that no person has said, and a test finds it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd_models.labelling import coco, training_set
from swarmd_models.labelling.forms import Labelled
from tests.unit import test_labelling as laws

Mutant = Callable[[pytest.MonkeyPatch], None]


def guesses_count_as_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    read = coco.read_coco
    monkeypatch.setattr(training_set, "read_coco", lambda document, vouched: read(document, True))


def the_export_vouches_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    read = training_set.read_labels
    monkeypatch.setattr(training_set, "read_labels", lambda path, export, exported, by: read(path, export, b"", by))


def what_is_denied_is_taught_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    match = training_set._matched

    def mutated(*arguments: object) -> list[tuple[object, Labelled]]:
        found = match(*arguments)  # type: ignore[arg-type]
        return [
            (entry, Labelled(one.name, (*one.boxes, *(("class0", box) for box in one.nothing)), by=one.by))
            for entry, one in found
        ]

    monkeypatch.setattr(training_set, "_matched", mutated)


def pictures_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        training_set.TrainingSet, "read", lambda self, picture: (self.folder / picture.file).read_bytes()
    )


def guesses(folder: Path) -> None:
    laws.test_guesses_that_nobody_has_judged_are_no_labels(laws.make_export(folder), folder)


def reviews(folder: Path) -> None:
    laws.test_what_operators_said_of_things_is_the_same_statement(folder)


def changed(folder: Path) -> None:
    laws.test_a_set_whose_picture_was_changed_is_refused(laws.make_export(folder), folder)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (guesses, guesses_count_as_labels),
        (guesses, the_export_vouches_for_itself),
        (reviews, what_is_denied_is_taught_as_there),
        (changed, pictures_are_not_looked_at_again),
    ],
)
def test_a_mutant_is_found(
    law: Callable[[Path], None], mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(tmp_path)
