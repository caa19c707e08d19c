"""How good is a model? `python -m swarmd_models.evaluate --crops FILE.npz | --frames SPEC | --labelled SET
[--model BUNDLE] [--json]`.

`--crops`: every real crop is shown to the bundle as in flight (`recipes/staging.py`) and scored by the highest that the
bundle says of that module. `--frames composed://?prevalence=0.02&frames=200&seed=5&crops=FILE`: whole frames with exact
truth; without `crops` all modules are drawn. Frames are composed, from real crops at best; none was flown.
"""

import argparse
import dataclasses
import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import DEFAULT_MODEL, Bundle, at_rate, load_bundle
from swarmd_models.decoders.anchor_free import find_head
from swarmd_models.decoders.base import real
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.labelling.scenes import held_scenes
from swarmd_models.labelling.training_set import load_set
from swarmd_models.metrics import auroc, average_precision, calibration_error, macro_f1
from swarmd_models.second import fuse, sigmoid
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.staging import stage_crops
from swarmd_models.synthetic.targets import core_cells
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops
from swarmd_models.types import Detection, Image

_MAX_FRAMES = 100_000
"""Composed frames of one evaluation; more than a day of rendering."""
_LOWEST_SCORE = 0.02
"""Threshold that curves are drawn down to; what scores less is never shown."""


# --- Single crops ----------------------------------------------------------------------------------------------------


class ModuleScorer:
    """What a bundle with the project's own head says of one place in a frame, also far below its threshold."""

    def __init__(self, bundle: Bundle, backends: tuple[str, ...] = ("litert",)) -> None:
        """Load the bundle on the first of these runtimes that can; raises `ModelError` when it cannot be used."""
        if bundle.decoder != "anchor_free" or len(bundle.decode.strides) != 1:
            raise ArtefactError(f"{bundle.name}: crops are scored with an anchor_free head of one stride")
        unknown = sorted(set(bundle.labels) - set(FAULT_LABELS))
        if unknown:
            raise ArtefactError(f"{bundle.name} has labels that are no module faults: {', '.join(unknown)}")
        self.bundle = bundle
        self._detector = Detector.open(bundle, DetectorOptions(backends))
        self._specs = self._detector.backend.outputs
        self._head = find_head(self._specs, bundle.decode.outputs)
        self._width, self._height = bundle.input.width, bundle.input.height

    def scores(self, image: Image, boxes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Score of every label for every box, shape (boxes, labels): the best of the cells near its centre.

        With a second stage it is the joined score: the second stage looks at the box that the first one gives.

        Raises:
            ArtefactError: The image does not have the input's size.
        """
        if image.shape != (self._height, self._width):
            raise ArtefactError(f"frames of {image.shape} for an input of {(self._height, self._width)}")
        outputs = self._detector.raw_outputs(image)
        logits, reach = (real(outputs[i], self._specs[i]) for i in self._head)
        rule = self.bundle.calibration
        logits = logits * np.asarray(rule.scale, np.float32) + np.asarray(rule.bias, np.float32)
        stride = self.bundle.decode.strides[0]
        columns, rows = self._width // stride, self._height // stride
        out = np.zeros((len(boxes), len(self.bundle.labels)), np.float32)
        chosen = {}
        for index, box in enumerate(boxes):
            cells = core_cells(box, columns, rows)
            if len(cells):  # The cell that is surest decides, as in flight after suppression.
                chosen[index] = int(cells[int(logits[cells].max(axis=1).argmax())])
        which, cells = list(chosen), np.array(list(chosen.values()), np.int64)
        second = self._detector.second
        if second is None or not which:
            out[which] = sigmoid(logits[cells])
            return out
        found = boxes_of(cells, reach, columns, stride)
        joined, kinds = fuse(second.rule, logits[cells].max(axis=1), logits[cells], second.judge(image, found))
        out[which] = sigmoid(joined[:, None] + kinds)
        return out

    def close(self) -> None:
        """Free the runtime."""
        self._detector.close()


def boxes_of(
    cells: npt.NDArray[np.int64], reach: npt.NDArray[np.float32], columns: int, stride: int
) -> npt.NDArray[np.float32]:
    """Boxes (n, 4: x1, y1, x2, y2) that a head of one stride gives for cells, from its `dist` in real values."""
    x, y = (cells % columns + 0.5) * stride, (cells // columns + 0.5) * stride
    left, top, right, bottom = (np.maximum(reach[cells], 0.0) * stride).T
    return np.stack([x - left, y - top, x + right, y + bottom], axis=1).astype(np.float32)


def score_crops(bundle: Bundle, crops: Crops, judged: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Scores (judged, labels) of crops, each shown as in flight."""
    scorer = ModuleScorer(bundle)
    options = SceneOptions(width=bundle.input.width, height=bundle.input.height, pixel_m=nominal_pixel_m(bundle))
    where = {int(crop): position for position, crop in enumerate(judged)}
    out = np.zeros((len(judged), len(bundle.labels)), np.float32)
    for frame in stage_crops(crops, judged, options):
        out[[where[crop] for crop in frame.crops]] = scorer.scores(frame.image, frame.boxes)
    scorer.close()
    return out


def nominal_pixel_m(bundle: Bundle) -> float:
    """Ground per pixel that the bundle was trained for."""
    scene = bundle.provenance.get("recipe", {}).get("scene", {})
    value = scene.get("pixel_m", SceneOptions().pixel_m) if isinstance(scene, dict) else SceneOptions().pixel_m
    if not isinstance(value, int | float) or not 0.005 < value < 1.0:
        raise ArtefactError(f"{bundle.name}: provenance.recipe.scene.pixel_m is {value!r}; 0.005 to 1 m is possible")
    return float(value)


def evaluate_crops(bundle: Bundle, crops: Crops, judged: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The figures of `--crops`."""
    scores = score_crops(bundle, crops, judged)
    truth = np.array([crops.labels[i] for i in crops.label_index[judged]])
    faulty: npt.NDArray[np.bool_] = np.array([name != NORMAL_LABEL for name in truth])
    best = scores.max(axis=1)
    area = auroc(best, faulty)
    names = [*bundle.labels, NORMAL_LABEL]
    thresholds = np.array([bundle.threshold_of(name) for name in bundle.labels])
    crop_threshold = float(bundle.provenance.get("crop_threshold", 0.5))
    said = np.where(best >= crop_threshold, scores.argmax(axis=1), len(names) - 1)
    actual = np.array([names.index(name) if name in names else -1 for name in truth])
    flagged = np.greater_equal(scores, thresholds).any(axis=1)
    at_crop = np.greater_equal(best, crop_threshold)
    of = {n: np.flatnonzero(truth == n) for n in names if (truth == n).any()}
    recall = {n: _share(at_crop[rows]) for n, rows in of.items() if n != NORMAL_LABEL}
    in_flight = {n: _share(flagged[rows]) for n, rows in of.items() if n != NORMAL_LABEL}
    named = {n: _share(np.equal(said[rows], names.index(n))) for n, rows in of.items()}
    result: dict[str, Any] = {
        "model": bundle.name,
        "n": len(judged),
        "auroc": round(area, 5),
        "macro_f1": round(macro_f1(actual, said, len(names)), 4),
        "recall": recall,
        "recall_by_name": named,
        "recall_in_flight": in_flight,
        "false_alarm_share": _share(at_crop[~faulty]),
        "false_alarm_share_in_flight": _share(flagged[~faulty]),
        "threshold": crop_threshold,
        "ece": round(calibration_error(best, faulty), 4),
        "int8_minus_float": None,
    }
    reference = float_twin(bundle)
    if reference is not None:
        float_best = score_crops(reference, crops, judged).max(axis=1)
        result["int8_minus_float"] = round(area - auroc(float_best, faulty), 5)
    return result


def float_twin(bundle: Bundle) -> Bundle | None:
    """The float model that the bundle's INT8 was made from, if it lies beside it."""
    name = bundle.provenance.get("float_file")
    path = bundle.model_path.parent / str(name)
    if not name or path.parent != bundle.model_path.parent or not path.is_file():
        return None
    second = bundle.second
    if second is not None:
        second_path = bundle.model_path.parent / str(bundle.provenance.get("second_float_file"))
        if second_path.parent != bundle.model_path.parent or not second_path.is_file():
            return None
        second = dataclasses.replace(second, path=second_path, onnx_path=None)
    return dataclasses.replace(bundle, model_path=path, onnx_path=None, golden=None, second=second)


# --- Whole frames ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """Every key of a `composed://` address."""

    prevalence: float = 0.02
    frames: int = 200
    seed: int = 5
    crops: str = ""
    split: int = 1


def parse_spec(text: str) -> FrameSpec:
    """Read `composed://?prevalence=0.02&frames=200&…`.

    Raises:
        ArtefactError: It is no such address; the message says what would be.

    >>> parse_spec("composed://?prevalence=0.085").prevalence
    0.085
    """
    try:
        parts = urlsplit(text)
        pairs = parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ArtefactError(f"{text!r} is no address: {error}") from error
    if parts.scheme != "composed" or parts.netloc or len(text) > 4000:
        raise ArtefactError(f"{text!r}: composed frames are composed://?prevalence=0.02&frames=200&seed=5&crops=FILE")
    kinds: dict[str, Any] = {f.name: type(f.default) for f in dataclasses.fields(FrameSpec)}
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(kinds)}"
            raise ArtefactError(f"{text!r}: unknown key {key!r}; {hint}")
        try:
            values[key] = kinds[key](value)
        except ValueError as error:
            raise ArtefactError(f"{text!r}: {key} is {value!r}; it must be a number") from error
    spec = FrameSpec(**values)
    if (
        not 0.0 <= spec.prevalence <= 1.0
        or not 1 <= spec.frames <= _MAX_FRAMES
        or spec.seed < 0
        or spec.split not in (0, 1)
    ):
        raise ArtefactError(f"{text!r}: prevalence 0 to 1, frames 1 to {_MAX_FRAMES}, seed >= 0, split 0 or 1")
    return spec


def frames_of(spec: FrameSpec, bundle: Bundle) -> Iterable[Scene]:
    """The frames that a spec describes, at the bundle's size and nominal scale."""
    crops = Crops.load(Path(spec.crops)) if spec.crops else None
    options = SceneOptions(
        width=bundle.input.width,
        height=bundle.input.height,
        pixel_m=nominal_pixel_m(bundle),
        fault_share=spec.prevalence,
        plain_share=0.0,
        real_share=1.0,
        dense_share=0.0,
        scale_jitter=0.08,
        max_tilt_rad=0.12,
    )
    maker = SceneMaker(options, spec.seed, crops, spec.split)
    return (maker.scene(index) for index in range(spec.frames))


@dataclass(slots=True)
class _Tally:
    """Detections and modules of many frames, side by side."""

    scores: list[float]
    hits: list[bool]
    said: list[bool]
    """Whether the score reaches the bundle's threshold for its class."""
    module_scores: list[float]
    module_found: list[bool]
    module_labels: list[int]
    module_ranges: list[float]


def evaluate_frames(bundle: Bundle, scenes: Iterable[Scene], options: DetectorOptions | None = None) -> dict[str, Any]:
    """The figures of `--frames`: every detection against every module, frame by frame."""
    detector = Detector.open(lenient(bundle), options or DetectorOptions())
    tally = _Tally([], [], [], [], [], [], [])
    wanted = [bundle.threshold_of(name) for name in bundle.labels]
    count, stages = 0, dict.fromkeys(detector.stage_ns, 0)
    for scene in scenes:
        count += 1
        _match(scene, detector.detect(scene.image), wanted, tally)
        stages = {name: total + detector.stage_ns[name] for name, total in stages.items()}
    detector.close()
    scores, hits = np.array(tally.scores), np.array(tally.hits, dtype=bool)
    best, labels, ranges = np.array(tally.module_scores), np.array(tally.module_labels), np.array(tally.module_ranges)
    faulty, threshold = labels >= 0, bundle.threshold
    said, found = np.array(tally.said, dtype=bool), np.array(tally.module_found, dtype=bool)
    normals = int((~faulty).sum())
    thirds = {"centre": (0.0, 0.35), "middle": (0.35, 0.7), "edge": (0.7, 9.9)}
    return {
        "model": bundle.name,
        "frames": count,
        "modules": len(labels),
        "faults": int(faulty.sum()),
        "ap": _rounded(average_precision(scores, hits, int(faulty.sum()))),
        "precision": _rounded(float(hits[said].mean()) if said.any() else float("nan")),
        "recall": _share(found[faulty]),
        "false_per_1000_normal": _rounded(1000.0 * float((said & ~hits).sum()) / normals if normals else float("nan")),
        "threshold": threshold,
        "recall_per_class": {
            n: _share(found[labels == FAULT_LABELS.index(n)])
            for n in FAULT_LABELS
            if (labels == FAULT_LABELS.index(n)).any()
        },
        "recall_per_range": {n: _share(found[faulty & (ranges >= a) & (ranges < b)]) for n, (a, b) in thirds.items()},
        "ece": _rounded(calibration_error(best, faulty)),
        "stage_ms": {name: round(total / max(count, 1) / 1e6, 4) for name, total in stages.items()},
        "second_stage": None if detector.second is None else dataclasses.asdict(detector.second.counts),
    }


def lenient(bundle: Bundle) -> Bundle:
    """The bundle with thresholds so low that all it says is heard, and all the time that its second stage wants."""
    low = dataclasses.replace(bundle.decode, max_detections=1000)
    if bundle.second is not None:
        second = dataclasses.replace(bundle.second, score_threshold=_LOWEST_SCORE, class_thresholds={}, budget_ms=0.0)
        return dataclasses.replace(bundle, decode=low, second=second)
    low = dataclasses.replace(low, score_threshold=_LOWEST_SCORE, class_thresholds={})
    return dataclasses.replace(bundle, decode=low)


@dataclass(frozen=True, slots=True)
class Said:
    """One detection of a composed frame, and the module that it is of."""

    score: float
    class_index: int
    module: int
    """Position among the scene's boxes; -1 where it is of none."""
    counts: bool
    """False for the weaker ones of several of one module."""


def said_of(scene: Scene, detections: Iterable[Detection]) -> list[Said]:
    """Give every detection to the module that holds its centre, the surest first.

    What lies at the frame's border and on no module is left out: it may be of one whose centre is outside.
    """
    height, width = scene.image.shape
    told: list[Said] = []
    taken: set[int] = set()
    for d in sorted(detections, key=lambda d: -d.score):
        x, y = (d.box[0] + d.box[2]) / 2, (d.box[1] + d.box[3]) / 2
        b = scene.boxes
        inside = np.flatnonzero((b[:, 0] <= x) & (x <= b[:, 2]) & (b[:, 1] <= y) & (y <= b[:, 3]))
        owner = -1
        if len(inside):
            centre_y = (b[inside, 1] + b[inside, 3]) / 2
            owner = int(inside[int(np.abs(centre_y - y).argmin())])
        elif x < 30 or y < 15 or x > width - 30 or y > height - 15:
            continue
        told.append(Said(d.score, d.class_index, owner, owner not in taken))
        if owner >= 0:
            taken.add(owner)
    return told


def _match(scene: Scene, detections: list[Detection], wanted: list[float], tally: _Tally) -> None:
    """Count what is said of a frame; the surest detection of a faulty module is a hit."""
    height, width = scene.image.shape
    best = np.zeros(len(scene.boxes))
    found = np.zeros(len(scene.boxes), dtype=bool)
    for one in said_of(scene, detections):
        if one.module >= 0:
            best[one.module] = max(best[one.module], one.score)
            found[one.module] |= one.score >= wanted[one.class_index]
        if one.counts:
            tally.scores.append(one.score)
            tally.said.append(one.score >= wanted[one.class_index])
            tally.hits.append(one.module >= 0 and bool(scene.label_index[one.module] >= 0))
    tally.module_scores.extend(best.tolist())
    tally.module_found.extend(found.tolist())
    tally.module_labels.extend(scene.label_index.tolist())
    x = (scene.boxes[:, 0] + scene.boxes[:, 2]) / width - 1.0
    y = (scene.boxes[:, 1] + scene.boxes[:, 3]) / height - 1.0
    tally.module_ranges.extend(np.maximum(np.abs(x), np.abs(y)).tolist())


def _share(flags: npt.NDArray[np.bool_]) -> float | None:
    return round(float(flags.mean()), 4) if len(flags) else None


def _rounded(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None


# --- Command ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_models.evaluate", description="Figures of a model bundle.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--crops", type=Path, metavar="FILE.npz", help="real module crops, as modules_ir_visible.npz")
    what.add_argument("--frames", metavar="SPEC", help="composed://?prevalence=0.02&frames=200&seed=5&crops=FILE")
    what.add_argument("--labelled", type=Path, metavar="SET", help="pictures held back by `swarmd frames import`")
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"bundle or zoo:NAME (default {DEFAULT_MODEL})")
    parser.add_argument(
        "--split", choices=["train", "val", "all"], help="of --crops; default val where the file has it"
    )
    parser.add_argument(
        "--false-per-1000",
        type=float,
        default=0.0,
        metavar="R",
        help="--frames: at the bundle's thresholds for this rate",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    try:
        bundle = load_bundle(options.model)
        if options.false_per_1000:
            bundle = at_rate(bundle, options.false_per_1000)
        if options.frames:
            result = evaluate_frames(bundle, frames_of(parse_spec(options.frames), bundle))
        elif options.labelled:
            labelled = load_set(options.labelled)
            result = {**evaluate_frames(bundle, held_scenes(bundle, labelled)), "set": labelled.digest}
        else:
            crops = Crops.load(options.crops)
            result = evaluate_crops(bundle, crops, choose_split(crops, options.split))
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    write_figures(result, options.json)
    return 0


def write_figures(figures: Mapping[str, Any], is_json: bool) -> None:
    """Write figures to stdout by their names: one JSON object, or a line each."""
    if is_json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        sys.stdout.write("".join(f"{name}: {figure}\n" for name, figure in figures.items()))


def choose_split(crops: Crops, split: str | None) -> npt.NDArray[np.int64]:
    """Indices of the crops to judge: the validation split where there is one, else all."""
    if split is None:
        split = "val" if (crops.split == 1).any() else "all"
    if split == "all":
        return np.arange(len(crops.images), dtype=np.int64)
    return np.flatnonzero(crops.split == (1 if split == "val" else 0)).astype(np.int64)


if __name__ == "__main__":
    sys.exit(main())
