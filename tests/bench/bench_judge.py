"""What another judge is worth on thumbnails: `python -m tests.bench.bench_judge --crops FILE.npz [--judge MODEL]`.

Crops of the validation split in frames as they are judged in flight, and of each what leaves the eye (`ThumbMaker`'s
picture). One row each, AUROC of faulty or not by the judge's surest answer, as `MODEL.detect` gives it, so that what
lies below its own thresholds is 0; in brackets, graded, what it says of the place itself:

- `frame`: the whole frame at the judge's own size: the best that it can know;
- `thumbnail`: the picture at the scale that the judge was trained for, as the worker asks (`swarmd_models.scale`);
- `blown up`: the picture as it is, which the model's preprocessing enlarges to its input.

`aside` counts the crops so near the frame's border that their picture does not have them in its middle.

Without the crops there is nothing to measure, and it says so (exit 2).
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from swarmd.eye.thumbs import jpeg_of, place_of, scale_of, visible_part, window_of
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import ModuleScorer, nominal_pixel_m, score_crops
from swarmd_models.metrics import auroc
from swarmd_models.scale import Place, as_trained, frame_pixel_m
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.staging import stage_crops
from swarmd_models.synthetic.thermal import NORMAL_LABEL, Crops
from swarmd_models.types import Image
from tests.bench.bench_flight import VALIDATION

Box = tuple[float, float, float, float]
_ASIDE = 0.01
"""Share of a picture's side: farther from its middle than by rounding."""


def staged(crops: Crops, judged: npt.NDArray[np.int64], bundle: Bundle) -> Iterator[tuple[int, Image, Box]]:
    """Crop, frame and box, as `bundle` would see them in flight."""
    size = SceneOptions(width=bundle.input.width, height=bundle.input.height, pixel_m=nominal_pixel_m(bundle))
    for frame in stage_crops(crops, judged, size):
        for crop, box in zip(frame.crops, frame.boxes, strict=True):
            x1, y1, x2, y2 = (float(side) for side in box)
            yield crop, frame.image, (x1, y1, x2, y2)


def thumbnail(image: Image, box: Box, eye: Bundle, shows_frames: bool) -> tuple[Image, float, Place, Box]:
    """What leaves the eye of a box: pixels, metres a pixel, the box's place, and where it lies in them."""
    height, width = image.shape[:2]
    shown = window_of(box, width, height)
    assert shown is not None
    left, top, right, bottom = shown
    jpeg = jpeg_of(visible_part(image, shown, box, shows_frames))
    scale = scale_of(bottom - top, right - left)
    picture = np.asarray(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_UNCHANGED), np.uint8)
    inside = ((box[0] - left) * scale, (box[1] - top) * scale, (box[2] - left) * scale, (box[3] - top) * scale)
    return picture, frame_pixel_m(eye, width, height) / scale, place_of(box, shown), inside


def surest(detector: Detector, image: Image, within: Box | None = None) -> float:
    """The highest score, of detections whose centre lies in a box where one is given."""
    scores = [0.0]
    for one in detector.detect(image):
        x, y = (one.box[0] + one.box[2]) / 2, (one.box[1] + one.box[3]) / 2
        if within is None or (within[0] < x < within[2] and within[1] < y < within[3]):
            scores.append(one.score)
    return max(scores)


def main(arguments: list[str] | None = None) -> int:
    """Print one JSON object; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--crops", type=Path, required=True, metavar="FILE.npz")
    parser.add_argument("--eye", default="zoo:small-320", metavar="MODEL")
    parser.add_argument("--judge", default="zoo:medium-640", metavar="MODEL")
    parser.add_argument("--show", choices=("findings", "frames"), default="findings", help="as privacy.show")
    parser.add_argument("--count", type=int, default=0, help="crops, drawn; 0: all of the validation split")
    options = parser.parse_args(arguments)
    if not options.crops.exists():
        sys.stderr.write(f"{options.crops} is not there: without real crops there is nothing to measure\n")
        return 2
    crops = Crops.load(options.crops)
    judged = np.flatnonzero(crops.split == VALIDATION)
    if options.count:
        judged = np.sort(np.random.default_rng(18).choice(judged, options.count, replace=False))
    eye, judge = load_bundle(options.eye), load_bundle(options.judge)
    faulty = np.array([crops.labels[index] != NORMAL_LABEL for index in crops.label_index[judged]])
    where = {int(crop): at for at, crop in enumerate(judged)}
    detector, scorer = Detector.open(judge, DetectorOptions()), ModuleScorer(judge)
    said = {row: np.zeros(len(judged)) for row in ("frame", "thumbnail", "blown up", "thumbnail, graded")}
    for crop, image, box in staged(crops, judged, judge):
        said["frame"][where[crop]] = surest(detector, image, box)
    aside = 0
    for crop, image, box in staged(crops, judged, eye):
        picture, pixel_m, place, inside = thumbnail(image, box, eye, options.show == "frames")
        aside += max(abs(share - 0.5) for share in place) > _ASIDE
        shown, middle = as_trained(picture, pixel_m, judge, place)
        said["thumbnail"][where[crop]] = surest(detector, shown, middle)
        said["blown up"][where[crop]] = surest(detector, picture)
        factor = pixel_m / nominal_pixel_m(judge)
        off = [
            (whole - part * factor) / 2 for whole, part in zip(shown.shape[1::-1], picture.shape[1::-1], strict=True)
        ]
        at = [side * factor + off[index % 2] for index, side in enumerate(inside)]
        said["thumbnail, graded"][where[crop]] = scorer.scores(shown, np.array([at], np.float32)).max()
    said["frame, graded"] = score_crops(judge, crops, judged).max(axis=1)
    detector.close()
    scorer.close()
    result = {
        row: {
            "auroc": round(auroc(scores, faulty), 4),
            "faulty_found": round(float((scores[faulty] > 0).mean()), 4),
            "healthy_accused": round(float((scores[~faulty] > 0).mean()), 4),
        }
        for row, scores in said.items()
    }
    sys.stdout.write(
        json.dumps({"crops": len(judged), "show": options.show, "aside": aside, **result}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
