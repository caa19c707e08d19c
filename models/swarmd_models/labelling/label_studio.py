"""Label Studio: its JSON export, whole (`annotations` with `result`) or "JSON-MIN" (one key with the boxes).

Boxes are per cent of the picture's sides. Tasks that nobody has finished are left out: they teach nothing. Of several
people's annotations of one task the one made last counts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from swarmd_models.labelling import forms
from swarmd_models.labelling.forms import Box, LabelError, Labelled

_PICTURE_KEYS = ("image", "img", "picture", "captioning")
_BOXES = "rectanglelabels"
_UPLOADED = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts before the name of a picture that somebody uploaded."""
_MAX_ANNOTATIONS = 1_000


def read_label_studio(document: object) -> list[Labelled]:
    """What a JSON export of Label Studio says of its pictures.

    Raises:
        LabelError: It is no such file, or a value is out of bounds.
    """
    found = []
    for what, task in forms.rows(document, "tasks", forms.MAX_PICTURES):
        one = _of_task(task, what) if "annotations" in task or "completions" in task else _of_minimum(task, what)
        if one is not None:
            found.append(one)
    return found


def uploaded_name(name: str) -> str:
    """The name that a picture had before Label Studio took it in."""
    return _UPLOADED.sub("", name)


def _of_task(task: Mapping[str, Any], what: str) -> Labelled | None:
    name = _name_of(forms.table(task.get("data"), f"{what}.data"), f"{what}.data")
    listed = task.get("annotations", task.get("completions"))
    finished = [one for _, one in forms.rows(listed, f"{what}.annotations", _MAX_ANNOTATIONS)]
    finished = [one for one in finished if not one.get("was_cancelled")]
    if not finished:
        return None
    last = max(finished, key=lambda one: str(one.get("updated_at") or one.get("created_at") or ""))
    people = last.get("completed_by")
    if isinstance(people, dict):
        people = people.get("email") or people.get("id")
    results = forms.rows(last.get("result"), f"{what}.result", forms.MAX_BOXES)
    boxes = tuple(_boxes(((place, one) for place, one in results), name))
    return Labelled(name, boxes, by=forms.person(people), is_percent=True)


def _boxes(results: Iterator[tuple[str, Mapping[str, Any]]], name: str) -> Iterator[tuple[str, Box]]:
    for place, one in results:
        kind = one.get("type")
        if kind in ("choices", "textarea", "rating"):
            continue
        if kind != _BOXES:
            raise LabelError(f"picture {forms.shown(name)} has {forms.shown(kind)}; {_BOXES} can be used")
        yield _box(forms.table(one.get("value"), f"{place}.value"), f"{place}.value")


def _of_minimum(task: Mapping[str, Any], what: str) -> Labelled | None:
    name = _name_of(task, what)
    listed = [value for value in task.values() if isinstance(value, list) and value and _is_boxes(value)]
    if not listed and "annotator" not in task:
        return None
    boxes = tuple(
        _box(one, place) for value in listed[:16] for place, one in forms.rows(value, f"{what}.label", forms.MAX_BOXES)
    )
    forms.check_count(len(boxes), name)
    return Labelled(name, boxes, by=forms.person(task.get("annotator")), is_percent=True)


def _is_boxes(value: list[Any]) -> bool:
    return all(isinstance(one, dict) and _BOXES in one for one in value)


def _box(value: Mapping[str, Any], what: str) -> tuple[str, Box]:
    names = value.get(_BOXES)
    if not isinstance(names, list) or len(names) != 1:
        raise LabelError(f"{what}.{_BOXES} is {forms.shown(names)}; one label a box can be used")
    label = forms.label_of(names[0], f"{what}.{_BOXES}")
    if forms.number(value.get("rotation", 0), f"{what}.rotation") % 360:
        raise LabelError(f"{what} is turned by {value['rotation']} degrees; draw upright boxes")
    x, y, width, height = (forms.number(value.get(key), f"{what}.{key}", -100.0, 200.0) for key in _SIDES)
    return label, forms.boxed(x, y, x + width, y + height, what)


_SIDES = ("x", "y", "width", "height")


def _name_of(data: Mapping[str, Any], what: str) -> str:
    for key in (*_PICTURE_KEYS, *data):
        value = data.get(key)
        if isinstance(value, str) and value.lower().endswith((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")):
            return value
    raise LabelError(f"{what} names no picture; export with the task's data")
