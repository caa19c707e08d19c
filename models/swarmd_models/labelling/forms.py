"""What every file of labels says in the end, and the bounds that hold for all of them.

Rules this package keeps:

- A file of labels comes from outside: it has a limit of bytes, every value is checked, and what cannot be read is a
  `LabelError` that names what is wrong and the remedy. Names in it choose among pictures that are there; no path is
  ever made of one.
- A picture that a person has looked at as a whole (`is_whole`) teaches also where nothing is. Of others only the boxes
  that somebody has judged teach anything.
- What a model has guessed and nobody has judged is never a label.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from swarmd_models.errors import SourceError

Box: TypeAlias = tuple[float, float, float, float]
"""(x1, y1, x2, y2); pixels of the picture, or per cent of its sides where `Labelled.is_percent`."""

MAX_FILE_BYTES = 256 << 20
"""Of a file of labels: a million boxes."""
MAX_PICTURES = 100_000
"""Of one file, as many as a ring of kept frames holds."""
MAX_BOXES = 2_000
"""Of one picture; a wide frame shows some hundred modules."""
MAX_NAME = 64
"""Bytes of a label and characters of a person's name: what travels through the swarm has the same bound."""
MAX_SIDE_PX = 65_536
"""Pixels of a picture's side, and how far outside of it a box may begin."""


class LabelError(SourceError):
    """A file of labels cannot be used; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """What people say of one picture."""

    name: str
    """As the file names the picture; only its last part counts."""
    boxes: tuple[tuple[str, Box], ...] = ()
    """(label, where)."""
    nothing: tuple[Box, ...] = ()
    """Where a model saw something and people say that there is none."""
    unclear: tuple[Box, ...] = ()
    """Where nobody has judged."""
    by: tuple[str, ...] = ()
    """Who said so, as far as the file knows."""
    is_whole: bool = True
    """Whether somebody has looked at all of it: where there is no box there is nothing."""
    is_percent: bool = False
    size: tuple[int, int] | None = None
    """(width, height) in pixels of the picture that the boxes were drawn on, where the file says so."""
    unsure: tuple[tuple[str, Box], ...] = ()
    """(label, where) of what is there, and which nobody is blamed for missing: Pascal VOC's difficult objects."""


def number(value: object, what: str, low: float = -MAX_SIDE_PX, high: float = MAX_SIDE_PX) -> float:
    """A finite number within bounds, from JSON or an XML attribute; raises `LabelError`."""
    try:
        read = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        read = math.nan
    if not low <= read <= high:
        raise LabelError(f"{what} is {shown(value)}; a number from {low:g} to {high:g} is needed")
    return read


def whole(value: object, what: str, low: int, high: int) -> int:
    """A whole number within bounds; raises `LabelError`."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value  # Times in nanoseconds are more than a float holds.
    read = number(value, what, low, high)
    if read != int(read):
        raise LabelError(f"{what} is {shown(value)}; a whole number is needed")
    return int(read)


def label_of(value: object, what: str) -> str:
    """A label that may travel; raises `LabelError`."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise LabelError(f"{what} is {shown(value)}; a printable name is needed")
    text = value.strip()
    if len(text.encode()) > MAX_NAME:
        raise LabelError(f"{what} is longer than {MAX_NAME} bytes; give the class a shorter name in the tool")
    return text


def person(value: object) -> tuple[str, ...]:
    """A person's name as a tuple of one; empty where there is none that can be written down."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        return ()
    text = str(value).strip()
    return (text[:MAX_NAME],) if text.isprintable() else ()


def boxed(x1: float, y1: float, x2: float, y2: float, what: str) -> Box:
    """A box that has an area; raises `LabelError`."""
    if x2 <= x1 or y2 <= y1:
        raise LabelError(f"{what} has no area ({x1:g}, {y1:g}, {x2:g}, {y2:g}); delete it in the tool")
    return (x1, y1, x2, y2)


def table(value: object, what: str) -> Mapping[str, Any]:
    """A JSON object; raises `LabelError`."""
    if not isinstance(value, dict):
        raise LabelError(f"{what} is {shown(value)}; an object is needed")
    return value


def rows(value: object, what: str, most: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSON list with what to call each; raises `LabelError`."""
    if not isinstance(value, list):
        raise LabelError(f"{what} is {shown(value)}; a list is needed")
    if len(value) > most:
        raise LabelError(f"{what} has {len(value)} entries; {most} are possible: export in parts")
    for at, one in enumerate(value):
        yield f"{what}[{at}]", table(one, f"{what}[{at}]")


def check_count(boxes: int, name: str) -> None:
    """Refuse a picture with more boxes than any has; raises `LabelError`."""
    if boxes > MAX_BOXES:
        raise LabelError(f"picture {shown(name)} has more than {MAX_BOXES} boxes; that is no labelling of a frame")


def parse_json(data: bytes) -> object:
    """The value that bytes of JSON hold; raises `LabelError`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LabelError(f"it is no JSON ({error}); export it from the tool anew") from error


def shown(value: object) -> str:
    """A value for a message: short, one line, nothing that moves a cursor."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
