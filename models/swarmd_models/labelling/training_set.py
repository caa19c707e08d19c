"""A training set: pictures that people have labelled, in a folder that says where everything in it is from.

    SET/set.json    the labels, and the lineage: digests of every source, who labelled, whose guesses were corrected
    SET/images/     the pictures, each named by its digest

Its own digest is that of `set.json`, which holds the digest of every picture: who names it names all of it. The last
share of the frames, in the order of their capture, is held back: neighbours in time show the same things, and a random
share would put the same module on both sides.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from swarmd_models.bounded_file import open_regular
from swarmd_models.draft_folder import drafted, sweep_drafts
from swarmd_models.errors import SourceError
from swarmd_models.labelling import forms
from swarmd_models.labelling.coco import read_coco
from swarmd_models.labelling.cvat import read_cvat
from swarmd_models.labelling.forms import Box, LabelError, Labelled
from swarmd_models.labelling.label_studio import read_label_studio, uploaded_name
from swarmd_models.reviewed import Reviewed, ReviewIndex, is_placed, review_of, reviewed_of

FORMAT = 1
HELD_SHARE = 0.25
"""Of the frames, the last ones: what judges the new model. A quarter of 40 frames is the least that tells anything."""
MAX_PICTURE_BYTES = 64 << 20
MAX_PICTURE_PIXELS = 160 << 20
"""Of a picture, by its header: a few kilobytes can hold gigabytes of them."""
_PNG = b"\x89PNG\r\n\x1a\n"
_DESCRIPTION = "set.json"
_SIDES = ("width", "height")


@dataclass(frozen=True, slots=True)
class Picture:
    """One labelled picture."""

    file: str
    """Below the set's folder."""
    sha256: str
    width: int
    height: int
    captured_ns: int
    model: str
    """Digest of the model whose guesses were corrected; "" where it is not known."""
    is_held: bool
    is_whole: bool
    by: tuple[str, ...]
    boxes: tuple[tuple[str, Box], ...]
    nothing: tuple[Box, ...]
    unclear: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A set as it lies in its folder."""

    folder: Path
    digest: str
    """SHA-256 of `set.json`."""
    pictures: tuple[Picture, ...]
    labelled_by: tuple[str, ...]

    def read(self, picture: Picture) -> bytes:
        """A picture's bytes, which are what the set says.

        Raises:
            LabelError: The file is missing or another one.
        """
        data = _read(self.folder / picture.file, MAX_PICTURE_BYTES, "import the labels again", is_file=True)
        if sha256(data).hexdigest() != picture.sha256:
            raise LabelError(f"{self.folder / picture.file} is not the picture that was labelled; import again")
        return data


def read_labels(path: Path, export: Mapping[str, Any], exported: bytes, by: str) -> tuple[str, bytes, list[Labelled]]:
    """A file of labels, whatever form it has.

    Args:
        path: COCO, CVAT for images 1.1, Label Studio's JSON, or objects as `swarmd objects --geojson` writes them.
        export: The export that was labelled.
        exported: Its bytes.
        by: Who vouches for every picture of the file; "": what the file itself says.

    Returns:
        (form, its bytes, what it says of each picture).

    Raises:
        LabelError: It cannot be read; the message names the file and the remedy.
    """
    data = _read(path, forms.MAX_FILE_BYTES, "export it in parts")
    try:
        if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            return "cvat", data, read_cvat(data)
        document = forms.parse_json(data)
        if isinstance(document, list):
            return "label-studio", data, read_label_studio(document)
        if isinstance(document, dict) and document.get("type") == "FeatureCollection":
            return "reviews", data, _of_reviews(reviewed_of(document), export)
        return "coco", data, read_coco(document, bool(by) and data != exported)
    except SourceError as error:
        raise LabelError(f"{path}: {error}") from error


def import_labels(
    export: Path, labels: Path, out: Path, by: str = "", held_share: float = HELD_SHARE
) -> tuple[TrainingSet, str]:
    """Make a training set of an export and what people say of it.

    Args:
        export: Folder that `swarmd frames export` wrote.
        labels: File of labels.
        out: A new folder.
        by: Who labelled, and vouches that every picture of the file was looked at as a whole.
        held_share: Of the pictures, the last ones, that only judge; 0 to 1.

    Returns:
        (the set, the form of the labels).

    Raises:
        LabelError: Something does not fit; nothing is left behind.
    """
    if by and not forms.person(by):
        raise LabelError(f"--by {forms.shown(by)} is no name that can be written down; say who labelled")
    if not 0.0 <= held_share <= 1.0:
        raise LabelError(f"a share of {held_share:g} to hold back; 0 to 1 is possible")
    if out.exists():
        raise LabelError(f"{out} is there already; a set is never changed: name a new folder")
    sweep_drafts(out.parent)
    source = export / "annotations.json"
    exported = _read(source, forms.MAX_FILE_BYTES, "name the folder that `swarmd frames export --out` wrote")
    try:
        document = forms.table(forms.parse_json(exported), "the file")
        known = _pictures_of(document)
    except LabelError as error:
        raise LabelError(f"{source}: {error}") from error
    form, data, said = read_labels(labels, document, exported, by)
    chosen = _matched(said, known, by, labels)
    if not chosen:
        raise LabelError(
            f"{labels} says nothing that a person has judged: give --by NAME if somebody looked at all of it"
        )
    return _write(export, out, chosen, held_share, _lineage(labels, data, form, source, exported)), form


def load_set(folder: Path) -> TrainingSet:
    """Read a set back, every value checked.

    Raises:
        LabelError: It is none; the message names the file.
    """
    path = folder / _DESCRIPTION
    data = _read(path, forms.MAX_FILE_BYTES, "name a folder that `swarmd frames import --out` wrote")
    try:
        document = forms.table(forms.parse_json(data), "the file")
        if document.get("format") != FORMAT:
            raise LabelError(f"format is {forms.shown(document.get('format'))}; {FORMAT} is read here")
        found = [_picture(one, what) for what, one in forms.rows(document.get("images"), "images", forms.MAX_PICTURES)]
    except LabelError as error:
        raise LabelError(f"{path}: {error}; import the labels again") from error
    people = sorted({name for one in found for name in one.by})
    return TrainingSet(folder, sha256(data).hexdigest(), tuple(found), tuple(people))


# --- Matching ---


def _pictures_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The pictures of an export, by the last part of their names."""
    found: dict[str, Mapping[str, Any]] = {}
    ids: set[int] = set()
    for what, one in forms.rows(document.get("images"), "images", forms.MAX_PICTURES):
        name = _last(one.get("file_name"))
        if not name.endswith(".png") or not name.isprintable() or name in found:
            raise LabelError(f"{what}.file_name is {forms.shown(one.get('file_name'))}; export the frames again")
        number = forms.whole(one.get("id"), f"{what}.id", 0, 1 << 53)
        if number in ids:
            raise LabelError(f"{what}.id {number} stands twice; export the frames again")
        ids.add(number)
        sizes = {side: forms.whole(one.get(side), f"{what}.{side}", 1, forms.MAX_SIDE_PX) for side in _SIDES}
        if sizes["width"] * sizes["height"] > MAX_PICTURE_PIXELS:
            raise LabelError(f"{what} has more than {MAX_PICTURE_PIXELS >> 20} million pixels; export the frames again")
        captured_ns = forms.whole(one.get("captured_ns"), f"{what}.captured_ns", 0, 1 << 63)
        found[name] = {**one, **sizes, "id": number, "captured_ns": captured_ns}
    return found


def _last(name: object) -> str:
    """The last part of a path or address: a name, never a way anywhere."""
    text = name if isinstance(name, str) else ""
    return text.replace("\\", "/").rsplit("/", 1)[-1].rsplit("=", 1)[-1]


def _of_reviews(reviewed: Sequence[Reviewed], export: Mapping[str, Any]) -> list[Labelled]:
    """What operators have said of things as labels: a detection is of a thing where its place and label fit."""
    names = {
        forms.whole(one.get("id"), f"{what}.id", 0, 1 << 31): one.get("name")
        for what, one in forms.rows(export.get("categories"), "categories", 1 << 16)
    }
    index = ReviewIndex(reviewed)
    parts: dict[int, tuple[list[tuple[str, Box]], list[Box], list[Box], dict[str, None]]] = {}
    for what, one in forms.rows(export.get("annotations"), "annotations", forms.MAX_PICTURES * 10):
        image = forms.whole(one.get("image_id"), f"{what}.image_id", 0, 1 << 53)
        boxes, nothing, unclear, by = parts.setdefault(image, ([], [], [], {}))
        left, top, width, height = (forms.number(side, f"{what}.bbox") for side in _four(one.get("bbox"), what))
        box = forms.boxed(left, top, left + width, top + height, f"{what}.bbox")
        category = forms.whole(one.get("category_id"), f"{what}.category_id", 0, 1 << 31)
        found = {**one, "label": one.get("detected") or names.get(category)}
        review = review_of(found, index) if is_placed(found) else None
        if review is None:
            unclear.append(box)
            continue
        by.update(dict.fromkeys(name for said in review.operators for name in forms.person(said)))
        if review.is_rejected:
            nothing.append(box)
        else:
            boxes.append((forms.label_of(review.label, what), box))
    return [
        Labelled(str(one.get("file_name")), tuple(boxes), tuple(nothing), tuple(unclear), tuple(by), is_whole=False)
        for _, one in forms.rows(export.get("images"), "images", forms.MAX_PICTURES)
        for boxes, nothing, unclear, by in [parts.get(int(one["id"]), ([], [], [], {}))]
        if boxes or nothing
    ]


def _four(value: object, what: str) -> list[object]:
    if not isinstance(value, list) or len(value) != 4:
        raise LabelError(f"{what}.bbox is {forms.shown(value)}; export the frames again")
    return value


def _matched(
    said: Sequence[Labelled], known: Mapping[str, Mapping[str, Any]], by: str, labels: Path
) -> list[tuple[Mapping[str, Any], Labelled]]:
    """Each labelled picture with the export's entry; those of which nobody has judged anything are left out."""
    chosen: dict[str, tuple[Mapping[str, Any], Labelled]] = {}
    strangers: list[str] = []
    for one in said:
        name = _last(one.name)
        name = name if name in known else uploaded_name(name)
        if name not in known:
            strangers.append(one.name)
            continue
        people = forms.person(by) or one.by
        if not people and (one.is_whole or one.boxes):
            raise LabelError(f"{labels} does not say who labelled {forms.shown(name)}; give --by NAME")
        if name in chosen:
            raise LabelError(f"{labels} has picture {forms.shown(name)} twice; export the task anew")
        if one.is_whole or one.boxes or one.nothing:
            chosen[name] = known[name], _in_pixels(one, known[name], people, labels)
    if strangers:
        raise LabelError(
            f"{labels} has {len(strangers)} pictures that the export has not, such as {forms.shown(strangers[0])}; "
            "name the export that was labelled"
        )
    return [chosen[name] for name in sorted(chosen, key=lambda one: (known[one]["captured_ns"], one))]


def _in_pixels(one: Labelled, picture: Mapping[str, Any], by: tuple[str, ...], labels: Path) -> Labelled:
    """With boxes in the picture's own pixels, cut at its border; raises `LabelError` where none of a box is in it."""
    width, height = int(picture["width"]), int(picture["height"])
    scale_x, scale_y = (width / 100, height / 100) if one.is_percent else (1.0, 1.0)
    if one.size is not None:
        scale_x, scale_y = width / one.size[0], height / one.size[1]
        if not math.isclose(scale_x, scale_y, rel_tol=0.02):
            raise LabelError(
                f"{labels}: picture {forms.shown(one.name)} was {one.size[0]}x{one.size[1]} in the tool and is "
                f"{width}x{height} in the export; name the export that was labelled"
            )

    def cut(box: Box) -> Box:
        x1, y1, x2, y2 = box[0] * scale_x, box[1] * scale_y, box[2] * scale_x, box[3] * scale_y
        inside = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
        return forms.boxed(*inside, f"{labels}: a box of picture {forms.shown(one.name)}, cut at its border,")

    boxes = tuple((label, cut(box)) for label, box in one.boxes)
    return Labelled(
        one.name, boxes, tuple(map(cut, one.nothing)), tuple(map(cut, one.unclear)), by, one.is_whole, False, None
    )


# --- Writing and reading ---


def _lineage(labels: Path, data: bytes, form: str, source: Path, exported: bytes) -> list[dict[str, str]]:
    return [
        {"what": "labels", "form": form, "file": labels.name, "sha256": sha256(data).hexdigest()},
        {"what": "export", "form": "coco", "file": source.name, "sha256": sha256(exported).hexdigest()},
    ]


def _write(
    export: Path,
    out: Path,
    chosen: Sequence[tuple[Mapping[str, Any], Labelled]],
    held_share: float,
    lineage: list[dict[str, str]],
) -> TrainingSet:
    held = round(len(chosen) * held_share)
    images: list[dict[str, Any]] = []
    seen: set[str] = set()
    try:
        with drafted(out) as draft:
            (draft / "images").mkdir()
            for at, (picture, one) in enumerate(chosen):
                path = export / "images" / _last(picture["file_name"])
                data = _read(path, MAX_PICTURE_BYTES, "export the frames again")
                _check_picture(data, picture, path)
                digest = sha256(data).hexdigest()
                if digest in seen:
                    continue  # The same picture twice teaches nothing, and must not stand on both sides.
                seen.add(digest)
                (draft / "images" / f"{digest}.png").write_bytes(data)
                images.append(_described(picture, one, digest, at >= len(chosen) - held))
            people = sorted({name for one in images for name in one["by"]})
            counts = Counter(label for one in images for label, *_ in one["boxes"])
            document = {
                "format": FORMAT,
                "made_from": lineage,
                "labelled_by": people,
                "labels": dict(sorted(counts.items())),
            }
            text = json.dumps({**document, "images": images}, indent=1, ensure_ascii=False) + "\n"
            (draft / _DESCRIPTION).write_bytes(text.encode("utf-8", "replace"))  # A file's name may be no text.
    except OSError as error:
        raise LabelError(f"the set cannot be written to {out}: {error.strerror or error}") from error
    return load_set(out)


def _described(picture: Mapping[str, Any], one: Labelled, digest: str, is_held: bool) -> dict[str, Any]:
    return {
        "file": f"images/{digest}.png",
        "sha256": digest,
        "width": picture["width"],
        "height": picture["height"],
        "captured_ns": picture["captured_ns"],
        "model": str(picture.get("model", ""))[:64],
        "held": is_held,
        "whole": one.is_whole,
        "by": list(one.by),
        "boxes": [[label, *(round(side, 2) for side in box)] for label, box in one.boxes],
        "nothing": [[round(side, 2) for side in box] for box in one.nothing],
        "unclear": [[round(side, 2) for side in box] for box in one.unclear],
    }


def _check_picture(data: bytes, picture: Mapping[str, Any], path: Path) -> None:
    """The picture is a PNG of the size that the export says: nothing is decoded here."""
    size = (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))
    if data[:8] != _PNG or size != (picture["width"], picture["height"]):
        raise LabelError(f"{path} is not the picture that was exported; export the frames again")


def _picture(one: Mapping[str, Any], what: str) -> Picture:
    digest = one.get("sha256")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise LabelError(f"{what}.sha256 is {forms.shown(digest)}")
    width, height = (forms.whole(one.get(side), f"{what}.{side}", 1, forms.MAX_SIDE_PX) for side in _SIDES)
    if width * height > MAX_PICTURE_PIXELS:
        raise LabelError(f"{what} has more than {MAX_PICTURE_PIXELS >> 20} million pixels")
    boxes = []
    for row in _listed(one.get("boxes"), f"{what}.boxes"):
        if not isinstance(row, list) or len(row) != 5:
            raise LabelError(f"{what}.boxes has {forms.shown(row)}")
        boxes.append((forms.label_of(row[0], f"{what}.boxes"), _box(row[1:], f"{what}.boxes")))
    return Picture(
        f"images/{digest}.png",
        digest,
        width,
        height,
        forms.whole(one.get("captured_ns"), f"{what}.captured_ns", 0, 1 << 63),
        str(one.get("model", ""))[:64],
        one.get("held") is True,
        one.get("whole") is True,
        tuple(name for said in _listed(one.get("by"), f"{what}.by") for name in forms.person(said)),
        tuple(boxes),
        tuple(_box(box, f"{what}.nothing") for box in _listed(one.get("nothing"), f"{what}.nothing")),
        tuple(_box(box, f"{what}.unclear") for box in _listed(one.get("unclear"), f"{what}.unclear")),
    )


def _listed(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > forms.MAX_BOXES:
        raise LabelError(f"{what} is {forms.shown(value)}")
    return value


def _box(value: object, what: str) -> Box:
    if not isinstance(value, list) or len(value) != 4:
        raise LabelError(f"{what} has {forms.shown(value)}")
    x1, y1, x2, y2 = (forms.number(side, what) for side in value)
    return forms.boxed(x1, y1, x2, y2, what)


def _read(path: Path, most: int, remedy: str, *, is_file: bool = False) -> bytes:
    try:
        if path.stat().st_size > most:
            raise LabelError(f"{path} has more than {most >> 20} MiB; {remedy}")
        with open_regular(path) if is_file else path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise LabelError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    if len(data) > most:
        raise LabelError(f"{path} has more than {most >> 20} MiB; {remedy}")
    return data
