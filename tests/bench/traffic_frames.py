"""Frames of traffic judged by detectors of three sizes, and the walks of the daemon's cascade through what they say.

`Judged` is one frame of one camera and what each detector says of it: the small one of the camera's own pixels, the
others of the JPEG that travels to them. `walked` takes a plan through it with the worker's own code
(`swarmd.worker.cascade.Scene`); `Table` has what every object would be after each step, so that thousands of bands can
be tried at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from swarmd.worker.cascade import Asking
from swarmd.worker.cascade import Scene as Walks
from swarmd.worker.leaving import CROPS, FRAMES, redacted
from swarmd_models.association import iou
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import lenient
from swarmd_models.metrics import average_precision
from swarmd_models.synthetic.scenes import Scene
from swarmd_protocols.offload.cascade import Plan, Step, logit
from swarmd_recipes.crossing import HEIGHT, WIDTH
from swarmd_recipes.logistic import regression
from swarmd_recipes.traffic_scenes import LABELS, TrafficMaker, TrafficOptions
from swarmd_recipes.traffic_scores import SAME_IOU, SEED, Found, heard

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SIZES = ("traffic-192", "traffic-288", "traffic-384")
SMALL, LARGER, LARGEST = range(3)
DIGESTS = tuple(bytes([size]) * 32 for size in range(3))
"""By which plans of these benches name the three."""
QUALITY = 85
"""Of the JPEGs that travel, as in `bench_offload.py`."""
MISSING = 0.02
"""Score of what a detector does not see: the floor down to which it is heard."""
CROPS_FLOOR = 0.004
"""Of the small detector where crops leave."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One frame.

    Attributes:
        scene: What is true of it; label -1 is clutter.
        said: Of each detector, small to largest.
        bytes: That travel to each; 0 to the own one.
        leave: What travels, as `lending.leave`.
    """

    scene: Scene
    said: tuple[list[Found], ...]
    bytes: tuple[int, ...]
    leave: str = FRAMES


def bundles(folder: Path) -> list[Bundle]:
    """The three, small to largest; raises `ArtefactError`."""
    return [load_bundle(str(folder / f"{name}.toml")) for name in SIZES]


def judged(models: Sequence[Bundle], frames: Iterable[tuple[int, int]], leave: str = FRAMES) -> list[Judged]:
    """Show the frames of these crossings and numbers to each detector.

    Args:
        models: The detectors, small to largest.
        frames: Crossing and number.
        leave: As `lending.leave`: whole frames, or crops around what the small detector has seen, all else one grey.
            Where crops leave it is heard down to `CROPS_FLOOR`: what lies in no box nobody else sees.
    """
    maker = TrafficMaker(TrafficOptions(), SEED)
    low = [lenient(one) for one in models]
    if leave == CROPS:
        low[SMALL] = replace(low[SMALL], decode=replace(low[SMALL].decode, score_threshold=CROPS_FLOOR))
    detectors = [Detector.open(one, DetectorOptions()) for one in low]
    rows = []
    for number, index in frames:
        scene = maker.seen(number, index)
        said, sent = [heard(detectors[SMALL], scene.image)], [0]
        picture = scene.image
        if leave == CROPS:
            picture = np.ascontiguousarray(
                redacted(picture[..., None], np.array([one.box for one in said[SMALL]]))[..., 0]
            )
        for detector, model in zip(detectors[1:], models[1:], strict=True):
            size = (model.input.width, model.input.height)
            image = picture if size == (WIDTH, HEIGHT) else cv2.resize(picture, size)
            _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            said.append(heard(detector, cv2.imdecode(data, cv2.IMREAD_GRAYSCALE), WIDTH / size[0]))
            sent.append(len(data))
        rows.append(Judged(scene, tuple(said), tuple(sent), leave))
    for detector in detectors:
        detector.close()
    return rows


# --- The worker's own walk -------------------------------------------------------------------------------------------


def tensors(said: Sequence[Found]) -> dict[str, Any]:
    """Detections as the lane gives them."""
    return {
        "boxes": np.array([one.box for one in said], np.float32).reshape(-1, 4),
        "scores": np.array([one.score for one in said], np.float32),
        "labels": np.array([LABELS[one.kind] for one in said], object),
    }


def found_in(walks: Walks) -> list[Found]:
    """What is known of a frame, the surest first."""
    out = walks.outputs(LABELS)
    rows = zip(out["boxes"].tolist(), out["classes"].tolist(), out["scores"].tolist(), strict=True)
    return [Found((box[0], box[1], box[2], box[3]), kind, score) for box, kind, score in rows]


def walked(plan: Plan, frame: Judged) -> tuple[list[Found], tuple[int, ...]]:
    """What a plan makes of a frame, and which detectors it asks for that."""
    walks = Walks(Asking(plan, MISSING, 0.0))
    walks.begin(DIGESTS[SMALL].hex(), tensors(frame.said[SMALL]))
    asked = []
    while (walks.objects or frame.leave == FRAMES) and (digest := walks.wanted(1 << 60)) is not None:
        asked.append(DIGESTS.index(digest))
        walks.join(digest, tensors(frame.said[asked[-1]]))
    return found_in(walks), tuple(asked)


def banded(plan: Plan, doubts: Sequence[float]) -> Plan:
    """The plan with other bands: a step is asked where the smaller of p and 1 - p is at least its doubt."""
    steps = zip(plan.steps, doubts, strict=True)
    return Plan(plan.own, tuple(replace(step, low=doubt, high=1.0 - doubt) for step, doubt in steps), plan.prior)


# --- What a plan learns ----------------------------------------------------------------------------------------------


def _fitted(x: Floats, wanted: npt.NDArray[np.bool_]) -> Floats:
    """Weights of the columns and an offset."""
    return regression(np.column_stack([x, np.ones(len(x))]), wanted)


def learned(frames: Sequence[Judged], judges: Sequence[int]) -> Plan:
    """A plan that asks these in order, about everything; its weights are fitted on these frames, step after step."""
    plan = Plan(Step(DIGESTS[SMALL]), ())
    table = Table.of(frames, plan, ())
    weight, offset = _fitted(table.logits(0)[:, None], table.is_right(0))
    plan = Plan(Step(DIGESTS[SMALL], weight=float(weight), offset=float(offset)), ())
    for at, judge in enumerate(judges):
        # First the judge's own word, to learn from; what only it sees keeps that word.
        word = Table.of(frames, Plan(plan.own, (*plan.steps, Step(DIGESTS[judge]))), judges[: at + 1])
        known = word.begins <= at
        x = np.column_stack([word.logits(at)[known], word.logits(at + 1)[known]])
        keep, weight, offset = (float(one) for one in _fitted(x, word.is_right(at + 1)[known]))
        plan = Plan(plan.own, (*plan.steps, Step(DIGESTS[judge], 0.0, 1.0, keep, weight, offset)))
    return plan


# --- Every object after every step -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """All objects of many frames, each asked about at every step.

    Attributes:
        frame: Shape (n,): of each object.
        kind: Shape (n,).
        begins: Shape (n,): the step after which it is known; 0: the small detector has seen it.
        said: Shape (steps + 1, n): confidence after each step; NaN before it is known.
        thing: Shape (steps + 1, n): which thing of all frames its box is then of, -1 for none: a road user of its class
            that it overlaps most, by half at least, or else the clutter that its middle lies in.
        right: Shape (steps + 1, n): whether that thing is a road user.
        truth: Shape (things,): class of each thing of all frames, -1 for clutter.
        bytes: Shape (frames, steps): that travel at each step.
    """

    frame: Ints
    kind: Ints
    begins: Ints
    said: Floats
    thing: Ints
    right: npt.NDArray[np.bool_]
    truth: Ints
    bytes: Ints

    @classmethod
    def of(cls, frames: Sequence[Judged], plan: Plan, judges: Sequence[int]) -> "Table":
        """Walk every step of a plan in every frame."""
        wide = banded(plan, [0.0] * len(plan.steps))
        rows: list[_Object] = []
        first = 0
        for at, frame in enumerate(frames):
            walks = Walks(Asking(wide, MISSING, 0.0))
            walks.begin(DIGESTS[SMALL].hex(), tensors(frame.said[SMALL]))
            objects: list[_Object] = []
            _note(objects, walks, frame.scene, at, first, 0)
            for step, judge in enumerate(judges, start=1):
                walks.wanted(1 << 60)  # Each object is given the step.
                walks.join(DIGESTS[judge], tensors(frame.said[judge]))
                _note(objects, walks, frame.scene, at, first, step)
            rows += objects
            first += len(frame.scene.label_index)
        steps = len(judges) + 1
        truth = [frame.scene.label_index for frame in frames]
        return cls(
            np.array([one.frame for one in rows], np.int64),
            np.array([one.kind for one in rows], np.int64),
            np.array([one.begins for one in rows], np.int64),
            np.array([one.said for one in rows], np.float64).reshape(-1, steps).T,
            np.array([one.thing for one in rows], np.int64).reshape(-1, steps).T,
            np.array([one.right for one in rows], bool).reshape(-1, steps).T,
            np.concatenate(truth) if truth else np.zeros(0, np.int64),
            np.array([[frame.bytes[judge] for judge in judges] for frame in frames], np.int64).reshape(len(frames), -1),
        )

    def logits(self, step: int) -> Floats:
        """Of the confidence after a step."""
        return np.array([logit(float(one)) for one in self.said[step]])

    def is_right(self, step: int) -> npt.NDArray[np.bool_]:
        """Whether each object is a road user's, and the surest of its own, after a step."""
        return _surest(self.said[step], np.where(self.right[step], self.thing[step], -1))


@dataclass(slots=True)
class _Object:
    frame: int
    kind: int
    begins: int
    said: list[float] = field(default_factory=list)
    thing: list[int] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)


def _note(objects: list[_Object], walks: Walks, scene: Scene, frame: int, first: int, step: int) -> None:
    """Write down what each object is after a step."""
    for seen in walks.objects[len(objects) :]:
        objects.append(_Object(frame, LABELS.index(seen.label), step, [np.nan] * step, [-1] * step, [False] * step))
    for one, seen in zip(objects, walks.objects, strict=True):
        x1, y1, x2, y2 = (float(side) for side in seen.box)
        at, is_right = thing_of(scene, Found((x1, y1, x2, y2), one.kind, 0.0))
        one.said.append(seen.walk.confidence)
        one.thing.append(first + at if at >= 0 else -1)
        one.right.append(is_right)


def thing_of(scene: Scene, one: Found) -> tuple[int, bool]:
    """Which thing of a scene a detection is of, -1 for none, and whether that is a road user of its class."""
    best, overlap = -1, 0.0
    for at, (box, label) in enumerate(zip(scene.boxes.tolist(), scene.label_index.tolist(), strict=True)):
        if label == one.kind and (share := iou((box[0], box[1], box[2], box[3]), one.box)) > overlap:
            best, overlap = at, share
    if overlap >= SAME_IOU:
        return best, True
    x, y = (one.box[0] + one.box[2]) / 2, (one.box[1] + one.box[3]) / 2
    for at, (box, label) in enumerate(zip(scene.boxes.tolist(), scene.label_index.tolist(), strict=True)):
        if label < 0 and box[0] <= x <= box[2] and box[1] <= y <= box[3]:
            return at, False
    return -1, False


def _surest(said: Floats, thing: Ints) -> npt.NDArray[np.bool_]:
    """Of the objects that are of one thing, the surest; none of what is of no thing."""
    order = np.argsort(-said, kind="stable")
    _, first = np.unique(thing[order], return_index=True)
    found = np.zeros(len(said), bool)
    found[order[first]] = True
    return np.asarray(found & (thing >= 0))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What some way of asking comes to.

    Attributes:
        mean_ap: At an overlap of a half.
        accuracy: Share of the things, road users and clutter, that are taken for what they are at a confidence of 0.5.
        asked: Frames in which each step is asked.
        bytes: That travel.
    """

    mean_ap: float
    accuracy: float
    asked: tuple[int, ...]
    bytes: int


def outcome(table: Table, doubts: Sequence[float]) -> Outcome:
    """Of bands of doubt that get no wider from step to step."""
    step = stages(table, doubts)
    asked = [np.unique(table.frame[step >= at]) for at in range(1, len(doubts) + 1)]
    sent = sum(int(table.bytes[rows, at].sum()) for at, rows in enumerate(asked))
    return Outcome(*quality(table, step), tuple(len(rows) for rows in asked), sent)


def stages(table: Table, doubts: Sequence[float]) -> Ints:
    """After which step each object is what it stays; -1: nobody learns of it."""
    step = np.where(table.begins == 0, 0, -1)
    for at, doubt in enumerate(doubts):
        said = table.said[at]
        unsure = (step == at) & (np.minimum(said, 1.0 - said) >= doubt)
        asked = np.isin(table.frame, np.unique(table.frame[unsure]))
        step = np.where(unsure | (asked & (table.begins == at + 1)), at + 1, step)
    return np.asarray(step, np.int64)


def quality(table: Table, step: Ints) -> tuple[float, float]:
    """mAP and accuracy where each object stands after a step of its own."""
    known = np.flatnonzero(step >= 0)
    said, thing, right = (part[step[known], known] for part in (table.said, table.thing, table.right))
    kind = table.kind[known]
    hit = _surest(said, np.where(right, thing, -1))
    values = [
        average_precision(said[kind == one], hit[kind == one], int((table.truth == one).sum()))
        for one in range(len(LABELS))
        if (table.truth == one).any()
    ]
    told = np.zeros(len(table.truth))
    np.maximum.at(told, thing[thing >= 0], said[thing >= 0])
    return float(np.mean(values)), float(((told >= 0.5) == (table.truth >= 0)).mean())


def told_of(frame: Judged, said: Sequence[Found]) -> Floats:
    """How sure somebody is of each thing of a frame: that it is a road user of its class, or clutter one of any."""
    told = np.zeros(len(frame.scene.label_index))
    for one in said:
        at, _ = thing_of(frame.scene, one)
        if at >= 0:
            told[at] = max(told[at], one.score)
    return told


def accuracy(frames: Sequence[Judged], said: Sequence[Sequence[Found]]) -> float:
    """Share of the things that are taken for what they are at a confidence of 0.5."""
    right = [
        (told_of(frame, told) >= 0.5) == (frame.scene.label_index >= 0)
        for frame, told in zip(frames, said, strict=True)
    ]
    return float(np.concatenate(right).mean())
