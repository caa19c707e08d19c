"""What an exporter wrote into a model's file about it: labels, task and family.

Ultralytics writes the same notes into every format: `names`, `task`, `stride`, `imgsz`. They lie in ONNX's metadata,
and in the ZIP archive at a `.tflite`'s end as `metadata.json` or as a Python dictionary in text (`temp_meta.txt`;
YOLOv5: `meta.txt`). Nothing of it is evaluated: names are picked out by their form.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from swarmd_models.onnx_file import onnx_metadata
from swarmd_models.tflite_file import MAX_LABELS, archived, embedded_labels

TASKS = ("detect", "segment", "pose", "obb", "classify")
_FILES = ("metadata.json", "temp_meta.txt", "meta.txt")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ENTRY = re.compile(rf"""\s*(?:["']?(\d{{1,6}})["']?\s*:\s*)?({_QUOTED})\s*(?:,|$)""")
_TASK = re.compile(r"""["']task["']\s*:\s*["'](\w+)["']""")
_NAMES = re.compile(r"""["']names["']\s*:\s*[\[{]""")
_INSIDE = re.compile(rf"""((?:[^\]}}"']|{_QUOTED})*)[\]}}]""")


@dataclass(frozen=True, slots=True)
class ModelNotes:
    """The notes of one file; empty where it has none."""

    labels: tuple[str, ...] = ()
    task: str = ""
    """One of `TASKS`, or "" where nothing is said."""
    is_ultralytics: bool = False
    """The exporter's own mark: its family feeds letterboxed RGB from 0 to 1."""


def notes_of(data: bytes, is_onnx: bool) -> ModelNotes:
    """The notes of a model file's bytes; what cannot be read counts as not there."""
    if is_onnx:
        return notes_of_table(onnx_metadata(data))
    for name, content in archived(data, lambda name: name.rpartition("/")[2] in _FILES):
        text = content.decode("utf-8", "replace")
        found = _of_json(text) if name.endswith(".json") else _of_dictionary(text)
        if found.labels:
            return found
    return ModelNotes(embedded_labels(data))


def notes_of_table(table: Mapping[str, str]) -> ModelNotes:
    """The notes out of keys and values as text.

    >>> notes_of_table({"names": "{0: 'person', 1: \\"dog's bed\\"}", "task": "detect", "stride": "32"})
    ModelNotes(labels=('person', "dog's bed"), task='detect', is_ultralytics=True)
    """
    names, task = table.get("names", ""), table.get("task", "")
    labels = _names(names.strip()[1:-1]) if names.strip()[:1] in ("{", "[") else ()
    marked = "stride" in table and bool(labels)
    return ModelNotes(labels, task if task in TASKS else "", marked)


def _of_json(text: str) -> ModelNotes:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return ModelNotes()
    if not isinstance(read, dict):
        return ModelNotes()
    names = read.get("names")
    if isinstance(names, dict):
        names = [names.get(str(index)) for index in range(len(names))]
    labels: tuple[str, ...] = ()
    if isinstance(names, list) and len(names) <= MAX_LABELS:
        good = all(isinstance(name, str) and _is_label(name) for name in names)
        labels = tuple(names) if good else ()
    task = read.get("task")
    return ModelNotes(labels, task if task in TASKS else "", "stride" in read and bool(labels))


def _of_dictionary(text: str) -> ModelNotes:
    begins, task = _NAMES.search(text), _TASK.search(text)
    inside = _INSIDE.match(text, begins.end()) if begins else None
    labels = _names(inside.group(1)) if inside else ()
    named = task.group(1) if task else ""
    return ModelNotes(labels, named if named in TASKS else "", "'stride'" in text and bool(labels))


def _is_label(text: str) -> bool:
    """Whether a bundle can hold a text as a line of labels, and a terminal can show it."""
    return 0 < len(text) <= 200 and text.isprintable()


def _names(inside: str) -> tuple[str, ...]:
    """Labels out of `0: 'a', 1: 'b'` or `'a', 'b'`; empty unless the numbers run from 0 without a gap."""
    labels: list[str] = []
    at = 0
    while at < len(inside):
        entry = _ENTRY.match(inside, at)
        if entry is None or len(labels) >= MAX_LABELS or (entry.group(1) and int(entry.group(1)) != len(labels)):
            return ()
        label = re.sub(r"\\(.)", r"\1", entry.group(2)[1:-1])
        if not _is_label(label):
            return ()
        labels.append(label)
        at = entry.end()
    return tuple(labels)
