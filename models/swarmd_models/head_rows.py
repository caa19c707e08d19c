"""Rows that teach the head for kinds: what the heads of a detector read in the middle of a fault, and its class.

A device's rows come of the training sets that people labelled for it (`labelling/`), or of drawn modules; from rows a
head is trained by a few steps of gradient descent. The daemon's learner and the simulator use the same functions. What
people deny (there is nothing) is no row: the head for kinds tells faults apart and does not find them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import nominal_pixel_m
from swarmd_models.heads import Features, find_heads, read_head
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.targets import STRIDE

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
REPLAY = 0.5
"""Weight of drawn modules of the cameras that the model was made for, so that what it knew stays known."""
STEPS = 10
"""Of gradient descent in a round, on a device."""
RATE = 0.4
_MIDDLE = 128.0
"""Grey about which contrast is lost."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Modules with a fault."""

    features: F64
    """Shape (rows, inputs + 1): what the heads read, and a 1 for the bias."""
    labels: I64
    """Shape (rows,): class of each."""

    def part(self, chosen: I64 | slice) -> "Rows":
        """Some of them."""
        return Rows(self.features[chosen], self.labels[chosen])


class HeadNet:
    """One of the project's own detectors, run up to its heads.

    Args:
        bundle: The detector.

    Raises:
        ArtefactError: It is none of them.
    """

    def __init__(self, bundle: Bundle) -> None:
        path = Path(bundle.model_path)
        data = path.read_bytes()
        if path.suffix != ".tflite" or bundle.input.channels != "gray":
            raise ArtefactError(f"{bundle.name} is none of the project's own detectors: no head of it can be taught")
        tensor, heads = find_heads(data, len(bundle.labels))
        kernel, bias = read_head(data, heads["kind"])
        self.bundle = bundle
        self.head: F64 = np.concatenate([kernel, bias[:, None]], axis=1)
        """The detector's own head for kinds, shape (classes, inputs + 1)."""
        self._path, self._tensor = path, tensor

    @cached_property
    def _features(self) -> Features:
        """Made when a picture is first read: who only needs the head starts no runtime."""
        return Features(self._path, self._tensor)

    def rows_of(self, scene: Scene) -> tuple[list[npt.NDArray[np.float32]], list[int]]:
        """(features, class) of each fault of a picture of the input's size, in the order of its boxes."""
        columns, lines = self.bundle.input.width // STRIDE, self.bundle.input.height // STRIDE
        cells = self._features.of(scene.image)
        features, labels = [], []
        for box, label in zip(scene.boxes, scene.label_index, strict=True):
            column, line = int((box[0] + box[2]) / 2 // STRIDE), int((box[1] + box[3]) / 2 // STRIDE)
            if label >= 0 and 0 <= column < columns and 0 <= line < lines:
                features.append(cells[line * columns + column])
                labels.append(int(label))
        return features, labels

    def rows(self, scenes: Iterable[Scene], before_each: Callable[[], None] = lambda: None) -> Rows:
        """Rows of some pictures.

        Args:
            scenes: Of the input's size.
            before_each: Called before the net runs: who shares the device waits there.
        """
        features: list[npt.NDArray[np.float32]] = []
        labels: list[int] = []
        for scene in scenes:
            before_each()
            read, known = self.rows_of(scene)
            features += read
            labels += known
        found = np.array(features, np.float64).reshape(len(features), self.head.shape[1] - 1)
        return Rows(np.concatenate([found, np.ones((len(found), 1))], axis=1), np.array(labels, np.int64))


def drawn_scenes(bundle: Bundle, seed: int, scenes: int, contrast: float = 1.0) -> Iterable[Scene]:
    """Drawn modules of which nine in ten have a fault.

    Args:
        bundle: For whose input they are drawn.
        seed: Of the scenes.
        scenes: How many.
        contrast: 1: as the detector knows it; 0: grey.
    """
    options = SceneOptions(
        bundle.input.width,
        bundle.input.height,
        pixel_m=nominal_pixel_m(bundle),
        fault_share=0.9,
        plain_share=0.0,
        real_share=0.0,
        dense_share=1.0,
    )
    maker = SceneMaker(options, seed, None)
    for index in range(scenes):
        scene = maker.scene(index)
        image = np.clip(_MIDDLE + (scene.image.astype(np.float64) - _MIDDLE) * contrast, 0, 255).astype(np.uint8)
        yield replace(scene, image=image)


def gradient(head: F64, rows: Rows, wanted: F64) -> F64:
    """Of the cross entropy.

    Args:
        head: Shape (classes, inputs + 1).
        rows: Features.
        wanted: Shape (rows, classes).
    """
    said = rows.features @ head.T
    said -= said.max(axis=1, keepdims=True)
    share = np.exp(said)
    share /= share.sum(axis=1, keepdims=True)
    found: F64 = (share - wanted).T @ rows.features / len(rows.labels)
    return found


def accuracy(head: F64, rows: Rows) -> float:
    """Share of rows whose class the head names."""
    return float(((rows.features @ head.T).argmax(axis=1) == rows.labels).mean())


def mean_loss(head: F64, rows: Rows) -> float:
    """Mean cross entropy, nats."""
    said = rows.features @ head.T
    said -= said.max(axis=1, keepdims=True)
    right = said[np.arange(len(rows.labels)), rows.labels]
    return float((np.log(np.exp(said).sum(axis=1)) - right).mean())


def one_hot(labels: I64, classes: int) -> F64:
    """Shape (rows, classes)."""
    found: F64 = np.eye(classes)[labels]
    return found


def trained(head: F64, rows: Rows, wanted: F64, replay: Rows | None, steps: int = STEPS) -> F64:
    """The head after some steps on a device's rows and, where it is honest, what it draws itself."""
    new = head.copy()
    known = None if replay is None else one_hot(replay.labels, len(head))
    for _ in range(steps):
        back = gradient(new, rows, wanted)
        if replay is not None and known is not None:
            back = (1 - REPLAY) * back + REPLAY * gradient(new, replay, known)
        new -= RATE * back
    return new
