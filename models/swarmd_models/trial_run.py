"""Runs a model once, on a picture: can it be loaded, fed and decoded here, and does it answer as its bundle says?"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from swarmd_models.backends.base import Announce
from swarmd_models.bundle import Bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError, SourceError
from swarmd_models.golden import check_golden
from swarmd_models.picture_file import decoded, picture_bytes
from swarmd_models.types import Detection, Image

BACKENDS = ("litert", "onnx", "openvino")
"""The order in which a desk tries them: those that need no accelerator."""
_SEED = 1


@dataclass(frozen=True, slots=True)
class Tried:
    """A model that has run."""

    runtime: str
    reading: str
    """How a bare model was read; "" where a bundle says it."""
    detections: list[Detection]


def try_model(bundle: Bundle, announce: Announce, backends: tuple[str, ...] = BACKENDS) -> Tried:
    """Run a bundle once, on its golden picture or on a drawn one.

    Raises:
        ModelError: It cannot be loaded, fed or decoded here, or answers otherwise than its golden vector.
    """
    detector = Detector.open(bundle, DetectorOptions(backends), announce)
    try:
        problem = check_golden(detector)
        if problem:
            raise ArtefactError(f"{problem} ({detector.backend.runtime})")
        size = (detector.bundle.input.width, detector.bundle.input.height)
        return Tried(detector.backend.runtime, detector.bundle.reading, detector.detect(drawn_picture(*size)))
    finally:
        detector.close()


def drawn_picture(width: int, height: int) -> Image:
    """A picture with some structure, the same every time, for a model of which nothing is known."""
    small = np.random.default_rng(_SEED).integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.uint8, copy=False)


def read_picture(path: Path, width: int, height: int) -> Image:
    """A picture, no larger than fits into the model's input; raises `FrameError`."""
    try:
        image = decoded(picture_bytes(path), path, cv2.IMREAD_COLOR)
    except SourceError as error:
        raise FrameError(str(error)) from error
    scale = min(width / image.shape[1], height / image.shape[0])
    if scale < 1.0:
        fitting = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, fitting, interpolation=cv2.INTER_AREA)
    return image.astype(np.uint8, copy=False)
