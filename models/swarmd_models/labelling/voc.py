"""Pascal VOC: a folder of XML files, one `<annotation>` for each picture, boxes as corners in pixels.

Read with expat alone; a file that declares a document type or an entity is refused before anything of it is expanded.

The devkit counts pixels from 1 and both corners are of the box, so one of `xmin` 1 and `xmax` 1 is a pixel wide. Many
tools write the same form with corners as numbers from 0 (`first_pixel`). Nothing in a file says which; only a corner at
0 tells, and is refused where 1 is the first.

Source:
    Everingham, Winn: The PASCAL Visual Object Classes Challenge 2012 Development Kit, sections 2.3, 3.4 and 9.1.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from swarmd_models.bounded_file import open_regular
from swarmd_models.labelling import forms
from swarmd_models.labelling.forms import Box, LabelError, Labelled

MAX_FILE_BYTES = 4 << 20
"""Of one picture's file: `forms.MAX_BOXES` objects of 2 KiB, several times what tools write of one."""
_MAX_DEPTH = 16
_MAX_ELEMENTS = 64 * forms.MAX_BOXES
"""Of one file: several times what tools write of an object with its parts and attributes; 4 MiB of empty ones take ten
seconds to read."""
_MAX_TEXT = 4096
"""Characters of an element that is read; a picture's name with its folders is the longest."""
_OF_CLASS = re.compile(r"\s+(-1|0|1)$")
"""What stands behind each name in a class's own list. All of it counts: where nothing of the class is says as much of a
detector as where something is."""
_FLAGS = ("difficult", "truncated", "occluded")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = ("annotation", "object")
_READ = {
    ("annotation", "filename"),
    ("annotation", "size", "width"),
    ("annotation", "size", "height"),
    (*_OBJECT, "name"),
    *((*_OBJECT, flag) for flag in _FLAGS),
    *((*_OBJECT, "bndbox", corner) for corner in _CORNERS),
}
"""What counts, by the whole way to it: an object's `<part>` has a name and a box too, and is none."""


@dataclass(slots=True)
class Counts:
    """What a set's objects say of themselves."""

    objects: int = 0
    difficult: int = 0
    """Neither a find nor a false alarm (`Labelled.unsure`), as the challenge has it."""
    truncated: int = 0
    """Cut by the picture's border or hidden in part; they count as all others."""


@dataclass(slots=True)
class _Reader:
    """Takes the elements of one file in."""

    first_pixel: int
    counts: Counts
    name: str | None = None
    size: dict[str, int] = field(default_factory=dict)
    boxes: list[tuple[str, Box]] = field(default_factory=list)
    unsure: list[tuple[str, Box]] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _characters: int = 0
    _elements: int = 0
    _object: dict[str, str] = field(default_factory=dict)

    def begin(self, tag: str, told: dict[str, str]) -> None:
        del told
        self._path.append(tag)
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise LabelError(f"it has more than {_MAX_ELEMENTS} elements; that is no labelling of a picture")
        if len(self._path) > _MAX_DEPTH:
            raise LabelError(f"elements stand {_MAX_DEPTH} deep in each other; this is no file of Pascal VOC")
        if len(self._path) == 1 and tag != "annotation":
            raise LabelError(f"its first element is <{tag[:40]}>; Pascal VOC's is <annotation>")
        self._text, self._characters = [], 0
        if tuple(self._path) == _OBJECT:
            forms.check_count(len(self.boxes) + len(self.unsure) + 1, self.name or "")
            self._object = {}

    def text(self, data: str) -> None:
        if tuple(self._path) in _READ:
            self._characters += len(data)
            if self._characters > _MAX_TEXT:
                raise LabelError(f"<{self._path[-1]}> is longer than {_MAX_TEXT} characters")
            self._text.append(data)

    def end(self, tag: str) -> None:
        path, text = tuple(self._path), "".join(self._text).strip()
        self._path.pop()
        self._text = []
        if path == _OBJECT:
            self._take_object()
        elif path[:2] == _OBJECT and path in _READ:
            if tag in self._object:
                raise LabelError(f"{self._what} has <{tag}> twice; each object has one")
            self._object[tag] = text
        elif path == ("annotation", "filename"):
            self.name = self._once(self.name, text, tag)
        elif path in _READ:
            self._once(self.size.get(tag), text, tag)
            self.size[tag] = forms.whole(text, f"<{tag}>", 1, forms.MAX_SIDE_PX)

    @staticmethod
    def _once(before: object, text: str, tag: str) -> str:
        if before is not None:
            raise LabelError(f"it has <{tag}> twice; a file is of one picture")
        return text

    @property
    def _what(self) -> str:
        return f"object {len(self.boxes) + len(self.unsure)}"

    def _take_object(self) -> None:
        label = forms.label_of(self._object.get("name"), f"<name> of {self._what}")
        flags = {flag: forms.whole(self._object.get(flag) or 0, f"<{flag}> of {self._what}", 0, 1) for flag in _FLAGS}
        lacking = [corner for corner in _CORNERS if corner not in self._object]
        if lacking:
            raise LabelError(f"{self._what} has no <{lacking[0]}> in a <bndbox>; only boxes can be judged")
        x1, y1, x2, y2 = (forms.number(self._object[corner], f"<{corner}> of {self._what}") for corner in _CORNERS)
        if self.first_pixel == 1:
            if min(x1, y1) < 1:
                remedy = "--first-pixel 0 where the tool that wrote it counts from 0"
                raise LabelError(f"{self._what} begins at pixel {min(x1, y1):g} and Pascal VOC's first is 1; {remedy}")
            x1, y1 = x1 - 1, y1 - 1
        place = (label, forms.boxed(x1, y1, x2, y2, self._what))
        (self.unsure if flags["difficult"] else self.boxes).append(place)
        self.counts.objects += 1
        self.counts.difficult += flags["difficult"]
        self.counts.truncated += flags["truncated"]

    @staticmethod
    def refuse(*what: object) -> None:
        del what
        raise LabelError("it declares a document type or an entity, which no file of Pascal VOC does")


def read_voc(data: bytes, stem: str, first_pixel: int = 1, counts: Counts | None = None) -> Labelled:
    """What one file says of its picture.

    Args:
        data: The file.
        stem: Its name without `.xml`: the picture's too, where the file does not name it.
        first_pixel: 1 as the challenge has it, both corners within the box; 0: corners as they stand.
        counts: Added to.

    Raises:
        LabelError: It is no such file, or a value is out of bounds.
    """
    reader = _Reader(first_pixel, counts or Counts())
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise LabelError(f"it is no XML ({error}); export it from the tool anew") from error
    sides = reader.size
    if len(sides) == 1:
        raise LabelError("<size> has one side; a picture has <width> and <height>")
    return Labelled(
        reader.name or stem,
        tuple(reader.boxes),
        unsure=tuple(reader.unsure),
        size=(sides["width"], sides["height"]) if sides else None,
    )


def read_voc_folder(folder: Path, first_pixel: int = 1, only: Sequence[str] = ()) -> tuple[list[Labelled], Counts]:
    """What a folder of files says of its pictures, by the files' names.

    Args:
        folder: Its files that end in `.xml`; others, and folders in it, are passed over.
        first_pixel: As in `read_voc`, for all of them.
        only: Names without `.xml` of those to read, each as it stands or with a class's 1, -1 or 0 behind it; empty:
            all.

    Raises:
        LabelError: One of them cannot be used, two are of one picture, there is none, or one of `only` is missing; the
            message names the file.
    """
    try:
        found = (path for path in folder.iterdir() if path.suffix.lower() == ".xml")
        paths = sorted(itertools.islice(found, forms.MAX_PICTURES + 1))
    except OSError as error:
        raise LabelError(f"cannot read {folder}: {error.strerror}") from error
    if len(paths) > forms.MAX_PICTURES:
        raise LabelError(f"{folder} has more than {forms.MAX_PICTURES} files; judge it in parts")
    if only:
        there = {path.stem: path for path in paths}
        only = [name if name in there else _OF_CLASS.sub("", name) for name in only]
        missing = [name for name in only if name not in there]
        if missing:
            raise LabelError(f"{folder} lacks {len(missing)} of {len(only)} files listed, as {missing[0]!r}.xml")
        paths = sorted({there[name] for name in only})
    if not paths:
        raise LabelError(f"{folder} has no .xml; Pascal VOC's files lie in the folder Annotations of a set")
    counts = Counts()
    labelled = [_read(path, first_pixel, counts) for path in paths]
    twice = [name for name, times in Counter(one.name for one in labelled).items() if times > 1]
    if twice:
        both = [path.name for path, one in zip(paths, labelled, strict=True) if one.name == twice[0]]
        raise LabelError(f"{folder}: {both[0]} and {both[1]} are both of picture {forms.shown(twice[0])}")
    return labelled, counts


def listed(text: str) -> Iterator[str]:
    """Names of a list as `ImageSets/Main` has them: one a line, which may have spaces in it.

    >>> list(listed("000005\\nroof 3\\n\\n"))
    ['000005', 'roof 3']
    """
    return (line.strip() for line in text.splitlines() if line.strip())


def _read(path: Path, first_pixel: int, counts: Counts) -> Labelled:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise LabelError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise LabelError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; no picture has that many things in it")
    try:
        return read_voc(data, path.stem, first_pixel, counts)
    except LabelError as error:
        raise LabelError(f"{path}: {error}") from error
