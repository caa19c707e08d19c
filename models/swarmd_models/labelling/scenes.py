"""Labelled pictures as scenes: as the model's input has them, with boxes to learn from and to be judged by."""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from swarmd_models.bundle import Bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.labelling.forms import Box, LabelError
from swarmd_models.labelling.training_set import Picture, TrainingSet
from swarmd_models.synthetic.scenes import Scene
from swarmd_models.synthetic.thermal import FAULT_LABELS


@dataclass(frozen=True, slots=True)
class LabelledScene:
    """A picture at the input's size; boxes in its pixels."""

    scene: Scene
    nothing: tuple[Box, ...]
    unclear: tuple[Box, ...]
    is_whole: bool


def scene_of(bundle: Bundle, labelled: TrainingSet, picture: Picture) -> LabelledScene:
    """One picture as the first stage is shown it.

    Raises:
        ArtefactError: The bundle is none of the project's own detectors.
        LabelError: The picture cannot be read, or bears a label that the bundle does not know.
    """
    if tuple(bundle.labels) != FAULT_LABELS or bundle.input.channels != "gray":
        raise ArtefactError(f"{bundle.name} is none of the project's own detectors; train it with its own tools")
    data = np.frombuffer(labelled.read(picture), np.uint8)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)
    except cv2.error as error:
        raise LabelError(f"{labelled.folder / picture.file} cannot be decoded: {error.err}") from error
    if image is None or image.shape != (picture.height, picture.width):
        raise LabelError(f"{labelled.folder / picture.file} is no picture of {picture.width}x{picture.height}")
    rule = bundle.input
    scale = min(rule.width / picture.width, rule.height / picture.height)
    wide, high = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    left, top = (rule.width - wide) // 2, (rule.height - high) // 2
    canvas = np.full((rule.height, rule.width), rule.pad, np.uint8)
    canvas[top : top + high, left : left + wide] = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    scale_x, scale_y = wide / picture.width, high / picture.height

    def moved(box: Box) -> Box:
        x1, y1, x2, y2 = box
        return (x1 * scale_x + left, y1 * scale_y + top, x2 * scale_x + left, y2 * scale_y + top)

    unknown = sorted({label for label, _ in picture.boxes} - set(bundle.labels))
    if unknown:
        raise LabelError(
            f"{labelled.folder}: {', '.join(unknown)} is no label of {bundle.name}; rename it in the tool to one of "
            f"{', '.join(bundle.labels)}"
        )
    boxes = np.array([moved(box) for _, box in picture.boxes], np.float32).reshape(-1, 4)
    index = np.array([bundle.labels.index(label) for label, _ in picture.boxes], np.int64)
    scene = Scene(canvas, boxes, index, np.full(len(index), -1, np.int64), real=True)
    return LabelledScene(
        scene, tuple(map(moved, picture.nothing)), tuple(map(moved, picture.unclear)), picture.is_whole
    )


def held_scenes(bundle: Bundle, labelled: TrainingSet) -> Iterator[Scene]:
    """The pictures held back that somebody has looked at as a whole: by others no detection can be judged.

    Raises:
        LabelError: There is none, or one cannot be read.
    """
    chosen = [one for one in labelled.pictures if one.is_held and one.is_whole]
    if not chosen:
        raise LabelError(f"{labelled.folder} holds no whole picture back; import with --held-share above 0 and --by")
    return (scene_of(bundle, labelled, one).scene for one in chosen)
