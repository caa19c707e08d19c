"""COCO's mean average precision of a bundle on anybody's pictures.

`python -m swarmd_models.evaluate_coco --labels instances.json|Annotations/ --pictures FOLDER [--model BUNDLE] [--json]`

Labels are a file of COCO's form, or a folder of Pascal VOC's. Boxes are judged by pycocotools, whose figure is the one
that others publish. Classes meet by name; those that only one side has are named and not judged. A picture's name
chooses among the files of the folder, and no path is made of it. What a file marks as `iscrowd` counts for no class and
against none, and what VOC calls difficult neither for nor against its own. A picture of another size than its labels
were drawn on is refused.
"""

import argparse
import contextlib
import importlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarmd_models.bounded_file import read_bounded
from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError, ModelError
from swarmd_models.evaluate import lenient, write_figures
from swarmd_models.labelling.coco import read_coco
from swarmd_models.labelling.forms import MAX_FILE_BYTES, MAX_PICTURES, LabelError, Labelled, parse_json
from swarmd_models.labelling.voc import listed, read_voc_folder
from swarmd_models.levelling import Leveller, is_raw
from swarmd_models.sources import IMAGE_SUFFIXES, read_picture
from swarmd_models.types import Detection

_NAMES = (
    "ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large",
    "ar_1", "ar_10", "ar_100", "ar_small", "ar_medium", "ar_large",
)  # fmt: skip
"""COCO's twelve figures, in its order."""
_PER_PICTURE = 100
"""Detections that COCO counts of a picture."""
_MAX_LIST_BYTES = 16 << 20
"""Of a list of pictures: `MAX_PICTURES` names of 160 bytes."""
Look = Callable[[Path], tuple[Sequence[Detection], tuple[int, int]]]
"""What a model says of a picture's file, and the width and height in pixels that its boxes are in."""


def judge(labelled: Sequence[Labelled], folder: Path, labels: Sequence[str], look: Look) -> dict[str, Any]:
    """COCO's figures of what a model says.

    Args:
        labelled: What is in the pictures.
        folder: Where they lie.
        labels: All classes of the model.
        look: Shows the model a picture.

    Returns:
        COCO's figures by `_NAMES` (-1 where nothing is of that size), `ap_by_class`, `pictures`, and `not_judged`:
        classes that only the labels or only the model have.

    Raises:
        ArtefactError: pycocotools is not installed, a picture is missing, stands there twice or has another size than
            its labels say, or no class is on both sides.
    """
    try:
        coco, cocoeval = (importlib.import_module(f"pycocotools.{name}") for name in ("coco", "cocoeval"))
    except ImportError as error:
        raise ArtefactError("pycocotools is not installed: pip install pycocotools") from error
    known = {one.casefold(): one for one in labels}
    named = sorted({label for picture in labelled for label, _ in picture.boxes + picture.unsure})
    shared = [label for label in named if label.casefold() in known]
    if not shared:
        raise ArtefactError("the labels and the model have no class in common")
    numbers = {label.casefold(): number for number, label in enumerate(shared, 1)}
    files = _files(folder)
    missing = [one.name for one in labelled if _last(one.name) not in files]
    if missing:
        raise ArtefactError(f"{folder} lacks {len(missing)} of {len(labelled)} pictures, as {missing[0]!r}")
    shares = Counter(files[_last(one.name)] for one in labelled)
    twice = [path.name for path, times in shares.items() if times > 1]
    if twice:
        raise ArtefactError(f"the labels name picture {twice[0]!r} twice; give each picture a name of its own")
    truth: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for image, one in enumerate(labelled, 1):
        crowds = [(number, box, 1) for box in one.unclear for number in numbers.values()]
        boxes = [
            (numbers[name.casefold()], box, is_crowd)
            for is_crowd, places in ((0, one.boxes), (1, one.unsure))
            for name, box in places
            if name.casefold() in numbers
        ]
        for number, (x1, y1, x2, y2), is_crowd in boxes + crowds:
            place = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": is_crowd}
            truth.append({"id": len(truth) + 1, "image_id": image, "category_id": number, **place})
        path = files[_last(one.name)]
        told, size = look(path)
        if one.size is not None and one.size != size:
            said, has = (f"{width}x{height}" for width, height in (one.size, size))
            raise ArtefactError(f"{path} is {has} and its labels are of {said}: name the pictures that were labelled")
        for seen in sorted(told, key=lambda seen: -seen.score)[:_PER_PICTURE]:
            if seen.label.casefold() in numbers:
                x1, y1, x2, y2 = (float(side) for side in seen.box)
                row = {"image_id": image, "category_id": numbers[seen.label.casefold()], "score": float(seen.score)}
                found.append({**row, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    only = sorted(set(named) - set(shared)) + sorted(known[name] for name in set(known) - set(numbers))
    figures = _figures(coco, cocoeval, len(labelled), shared, truth, found)
    return {**figures, "pictures": len(labelled), "not_judged": only}


def _figures(
    coco: Any, cocoeval: Any, pictures: int, shared: list[str], truth: list[dict[str, Any]], found: list[dict[str, Any]]
) -> dict[str, Any]:
    if not found:
        return {**dict.fromkeys(_NAMES, 0.0), "ap_by_class": dict.fromkeys(shared, 0.0)}
    with contextlib.redirect_stdout(io.StringIO()):  # It prints tables of its own.
        right = coco.COCO()
        right.dataset = {
            "images": [{"id": image} for image in range(1, pictures + 1)],
            "categories": [{"id": number, "name": name} for number, name in enumerate(shared, 1)],
            "annotations": truth,
        }
        right.createIndex()
        judged = cocoeval.COCOeval(right, right.loadRes(found), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    precision = judged.eval["precision"]  # Thresholds, recalls, classes, areas, most detections.
    by_class = {}
    for index, label in enumerate(shared):
        values = precision[:, :, index, 0, -1]
        by_class[label] = round(float(values[values > -1].mean()), 4) if (values > -1).any() else -1.0
    stats = (round(float(value), 4) for value in judged.stats)
    return {**dict(zip(_NAMES, stats, strict=True)), "ap_by_class": by_class}


def _files(folder: Path) -> dict[str, Path]:
    """Pictures of a folder by name, and without its ending where only one has it: VOC's files may leave that out."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    except OSError as error:
        raise ArtefactError(f"cannot read {folder}: {error.strerror}") from error
    paths = paths[:MAX_PICTURES]
    stems = Counter(path.stem for path in paths)
    return {path.stem: path for path in paths if stems[path.stem] == 1} | {path.name: path for path in paths}


def _last(name: str) -> str:
    """A picture's name without the folders that whoever labelled it had."""
    return name.replace("\\", "/").rpartition("/")[2]


def _labels(path: Path, chosen: Path | None, first_pixel: int | None) -> tuple[list[Labelled], dict[str, Any]]:
    """What is in the pictures, and what the form says beside it; raises `ModelError`."""
    if path.is_dir():
        text = b"" if chosen is None else read_bounded(chosen, _MAX_LIST_BYTES, "list", ArtefactError)
        try:
            only = list(listed(text.decode()))
        except UnicodeDecodeError as error:
            raise ArtefactError(f"{chosen} is no list of names ({error}); one a line is needed") from error
        if chosen is not None and not only:
            raise ArtefactError(f"{chosen} names no picture; one a line is needed")
        labelled, counts = read_voc_folder(path, 1 if first_pixel is None else first_pixel, only)
        return labelled, asdict(counts)
    if chosen is not None or first_pixel is not None:
        raise ArtefactError(f"--list and --first-pixel are for a folder of Pascal VOC's, and {path} is none")
    data = read_bounded(path, MAX_FILE_BYTES, "labels", ArtefactError, "judge it in parts")
    try:
        return read_coco(parse_json(data), vouched=True), {}
    except LabelError as error:
        raise LabelError(f"{path}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_models.evaluate_coco", description="COCO's mAP of a model bundle.")
    parser.add_argument(
        "--labels", type=Path, required=True, metavar="PATH", help="a file of COCO's form, or a folder of Pascal VOC's"
    )
    parser.add_argument("--list", type=Path, metavar="FILE", help="VOC: only these, one a line (ImageSets/Main/…)")
    parser.add_argument(
        "--first-pixel", type=int, choices=(0, 1), help="VOC: 1 (default) as the challenge counts, 0 as many tools do"
    )
    parser.add_argument("--pictures", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"bundle, model or zoo:NAME (default {DEFAULT_MODEL})")
    parser.add_argument("--names", default="", metavar="FILE", help="labels, one a line, instead of the model's own")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    try:
        labelled, more = _labels(options.labels, options.list, options.first_pixel)
        bundle = lenient(load_bundle(options.model, options.names or None))
        detector = Detector.open(bundle, DetectorOptions())
        try:
            leveller = Leveller()

            def look(path: Path) -> tuple[Sequence[Detection], tuple[int, int]]:
                image = read_picture(path)
                height, width = image.shape[:2]
                return detector.detect(leveller.level(image)[0] if is_raw(image) else image), (width, height)

            result = judge(labelled, options.pictures, detector.bundle.labels, look) | more
        finally:
            detector.close()
    except (ModelError, FrameError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    write_figures(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
