"""COCO: `{"images": […], "annotations": […], "categories": […]}`, boxes as left, top, width, height in pixels.

An annotation with a `score` and no `reviewed_by` is a model's guess: it counts only where somebody vouches for the
whole file (`vouched`). `iscrowd` marks what nobody has judged.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from swarmd_models.labelling import forms
from swarmd_models.labelling.forms import Box, LabelError, Labelled


def read_coco(document: object, vouched: bool) -> list[Labelled]:
    """What a COCO file says of its pictures.

    Args:
        document: The parsed file.
        vouched: Somebody says that every picture in it was looked at as a whole.

    Raises:
        LabelError: It is no such file, or a value is out of bounds.
    """
    top = forms.table(document, "the file")
    categories: dict[int, str] = {}
    for what, one in forms.rows(top.get("categories"), "categories", forms.MAX_BOXES):
        number = forms.whole(one.get("id"), f"{what}.id", 0, 1 << 31)
        if number in categories:
            raise LabelError(f"{what}.id {number} stands twice; each category has an id of its own")
        categories[number] = forms.label_of(one.get("name"), f"{what}.name")
    pictures: dict[int, Mapping[str, Any]] = {}
    for what, one in forms.rows(top.get("images"), "images", forms.MAX_PICTURES):
        number = forms.whole(one.get("id"), f"{what}.id", 0, 1 << 53)
        if number in pictures:
            raise LabelError(f"{what}.id {number} stands twice; each picture has an id of its own")
        if not isinstance(one.get("file_name"), str):
            raise LabelError(f"{what}.file_name is {forms.shown(one.get('file_name'))}; a picture's name is needed")
        pictures[number] = one
    boxes: dict[int, list[tuple[str, Box]]] = {number: [] for number in pictures}
    unclear: dict[int, list[Box]] = {number: [] for number in pictures}
    by: dict[int, dict[str, None]] = {number: {} for number in pictures}
    counts: Counter[int] = Counter()
    for what, one in forms.rows(top.get("annotations"), "annotations", forms.MAX_PICTURES * 10):
        image = forms.whole(one.get("image_id"), f"{what}.image_id", 0, 1 << 53)
        if image not in pictures:
            raise LabelError(f"{what}.image_id {image} names no picture of this file")
        counts[image] += 1
        forms.check_count(counts[image], pictures[image]["file_name"])
        box = _box(one.get("bbox"), f"{what}.bbox")
        category = forms.whole(one.get("category_id"), f"{what}.category_id", 0, 1 << 31)
        if category not in categories:
            raise LabelError(f"{what}.category_id {category} is none of this file's categories")
        people = _people(one.get("reviewed_by"))
        by[image].update(dict.fromkeys(people))
        is_said = bool(people) or vouched or ("score" not in one)
        if one.get("iscrowd") or not is_said:
            unclear[image].append(box)
        else:
            boxes[image].append((categories[category], box))
    return [
        Labelled(
            picture["file_name"],
            tuple(boxes[number]),
            unclear=tuple(unclear[number]),
            by=tuple(by[number]),
            is_whole=vouched,
            size=_size(picture),
        )
        for number, picture in pictures.items()
    ]


def _size(picture: Mapping[str, Any]) -> tuple[int, int] | None:
    if "width" not in picture or "height" not in picture:
        return None
    sides = (forms.whole(picture[side], f"images.{side}", 1, forms.MAX_SIDE_PX) for side in ("width", "height"))
    width, height = sides
    return width, height


def _box(value: object, what: str) -> Box:
    if not isinstance(value, list) or len(value) != 4:
        raise LabelError(f"{what} is {forms.shown(value)}; [left, top, width, height] is needed")
    left, top, width, height = (forms.number(one, what) for one in value)
    return forms.boxed(left, top, left + width, top + height, what)


def _people(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(name for one in listed[:64] for name in forms.person(one))
