"""Mutants of labels that come back: each lets something be taught that no person has said, and a test finds it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd_models.labelling import coco, training_set, voc
from swarmd_models.labelling.forms import Labelled
from tests.unit import test_labelling as laws
from tests.unit import test_voc as voc_laws

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


def entities_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voc._Reader, "refuse", staticmethod(lambda *what: None))


def difficult_things_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voc, "_FLAGS", ())
    monkeypatch.setattr(voc._Reader, "_take_object", _as_any_other)


def _as_any_other(reader: voc._Reader) -> None:
    corners = (float(reader._object[one]) for one in ("xmin", "ymin", "xmax", "ymax"))
    x1, y1, x2, y2 = corners
    reader.boxes.append((reader._object["name"], (x1 - 1, y1 - 1, x2, y2)))


def guesses(folder: Path) -> None:
    laws.test_guesses_that_nobody_has_judged_are_no_labels(laws.make_export(folder), folder)


def reviews(folder: Path) -> None:
    laws.test_what_operators_said_of_things_is_the_same_statement(folder)


def changed(folder: Path) -> None:
    laws.test_a_set_whose_picture_was_changed_is_refused(laws.make_export(folder), folder)


def entities(folder: Path) -> None:
    del folder
    voc_laws.test_what_cannot_be_meant_is_refused_by_what_it_is(voc_laws.BOMB, "declares")


def difficult(folder: Path) -> None:
    del folder
    voc_laws.test_corners_count_from_one_and_are_within_and_parts_are_no_objects()


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (guesses, guesses_count_as_labels),
        (guesses, the_export_vouches_for_itself),
        (reviews, what_is_denied_is_taught_as_there),
        (entities, entities_are_expanded),
        (difficult, difficult_things_count),
        (changed, pictures_are_not_looked_at_again),
    ],
)
def test_a_mutant_is_found(
    law: Callable[[Path], None], mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(tmp_path)
