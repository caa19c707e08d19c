"""People, faces and number plates in pictures that leave the eye: found by a detector of its own, or under masks.

The running model may know nothing of people, as a model of solar modules does. So what leaves can be searched by
another one, which the configuration names, for people and for the vehicles that bear plates: whole, since a face or a
plate is too small in an aerial picture to be found by itself. Parts of the frame where nobody may ever be seen (a
neighbour's window, a road) are masked by the configuration.

Rules this file keeps:

- Boxes are made larger before they are covered: they are never exact, and people move.
- Who cannot be searched is not shown: where the named model cannot run, a redactor gives no picture and says why.
- What the model saw itself counts beside it (`frame_ring.without_private_parts`).
"""

import threading
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ModelError
from swarmd_models.frame_ring import without_private_parts
from swarmd_models.types import Detection, Image

TILED_FROM_PX = 600
"""Longer side of a picture from which it is searched in parts too: twice the detector's input."""
TILE_SHARE = 0.6
"""Side of a part, of the picture's: four parts overlap by a fifth, which a person of a tenth is not cut by."""
TILE_SCORE = 0.4
"""Score from which a part's detection counts; the bundle has that of the whole picture. Parts have no surroundings, and
of 61 thermal frames of a plant without people 37 had a false one at 0.3 there, 8 at 0.4, by SSD MobileNet v1
(docs/performance/eye.md)."""
GROWS = 0.25
"""Share of a box's side by which it is made larger on each side."""
PRIVATE = "person"
"""The label under which parts are covered, whatever was found there."""

Masks = tuple[tuple[float, float, float, float], ...]


def read_masks(texts: Sequence[str]) -> Masks:
    """Parts of a frame as `left,top,right,bottom`, each a share of the frame's width or height.

    Raises:
        ValueError: It is none; the message says how one is written.

    >>> read_masks(["0,0,0.5,0.25"])
    ((0.0, 0.0, 0.5, 0.25),)
    """
    masks = []
    for text in texts:
        try:
            x1, y1, x2, y2 = (float(number) for number in text.split(","))
        except ValueError:
            x1 = y1 = x2 = y2 = float("nan")
        if not (0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0):
            raise ValueError(f"{text!r} is no mask: left,top,right,bottom as shares of the frame, such as 0,0,0.5,0.25")
        masks.append((x1, y1, x2, y2))
    return tuple(masks)


class Redactor:
    """Makes people and vehicles unreadable. One detector, loaded when it is first needed; threads take turns."""

    def __init__(self, masks: Sequence[str] = (), say: Callable[[str], None] | None = None, model: str = "") -> None:
        """Load nothing yet.

        Args:
            masks: Parts that are always covered (`read_masks`); with one that cannot be read no picture is given.
            say: Told once where the detector cannot be loaded or fails.
            model: Bundle of the detector; `classes` in it says what is covered. "": none, masks alone.
        """
        self._say = say
        self._model = model
        self._detector: Detector | None = None
        self._lock = threading.Lock()
        self.problem = ""
        """Why nothing is shown, or ""."""
        self._masks: Masks = ()
        try:
            self._masks = read_masks(masks)
        except ValueError as error:
            self._give_up(str(error))
        self.found = 0
        """Pictures in which the detector saw somebody."""

    def clean(self, image: Image, detections: Sequence[Detection] = ()) -> Image | None:
        """A copy in which people, vehicles and masked parts are a few flat squares; None where it cannot be searched.

        Args:
            image: Shape (H, W) grey or (H, W, 3) BGR, uint8.
            detections: What the running model saw in it.
        """
        boxes = self.find(image)
        if boxes is None:
            return None
        height, width = image.shape[:2]
        masked = [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in self._masks]
        seen = [Detection(0, PRIVATE, 1.0, box) for box in [*boxes, *masked]]
        return without_private_parts(image, [*detections, *seen])

    def shows_somebody(self, image: Image) -> bool:
        """Whether the detector sees somebody, or cannot look."""
        boxes = self.find(image)
        return boxes is None or bool(boxes)

    def is_masked(self, box: tuple[float, float, float, float], width: int, height: int) -> bool:
        """Whether a part of a frame (pixels) touches what is masked."""
        x1, y1, x2, y2 = box
        return any(
            x1 < mask[2] * width and mask[0] * width < x2 and y1 < mask[3] * height and mask[1] * height < y2
            for mask in self._masks
        )

    def find(self, image: Image) -> list[tuple[float, float, float, float]] | None:
        """Boxes of people and vehicles, made larger, within the picture; None where it cannot be searched."""
        with self._lock:
            if self.problem:
                return None
            if self._model == "":
                return []
            try:
                boxes = self._search(image)
            except (ModelError, cv2.error) as error:
                self._give_up(f"people in it cannot be looked for: {error}")
                return None
            self.found += bool(boxes)
            return boxes

    def _give_up(self, why: str) -> None:
        self.problem = f"no picture leaves this device: {why}"
        if self._say is not None:
            self._say(self.problem)

    def _search(self, image: Image) -> list[tuple[float, float, float, float]]:
        if self._detector is None:
            self._detector = Detector.open(load_bundle(self._model), DetectorOptions())
        height, width = image.shape[:2]
        found = []
        for number, (left, top, part) in enumerate(_parts(image)):
            for detection in self._detector.detect(part):
                if number and detection.score < TILE_SCORE:
                    continue
                x1, y1, x2, y2 = detection.box
                dx, dy = (x2 - x1) * GROWS, (y2 - y1) * GROWS
                found.append(
                    (
                        max(x1 - dx + left, 0.0),
                        max(y1 - dy + top, 0.0),
                        min(x2 + dx + left, float(width)),
                        min(y2 + dy + top, float(height)),
                    )
                )
        return found


def _parts(image: Image) -> list[tuple[int, int, Image]]:
    """(left, top, pixels) of the picture and, where it is large, of its four overlapping parts."""
    height, width = image.shape[:2]
    parts = [(0, 0, image)]
    if max(height, width) >= TILED_FROM_PX:
        tall, wide = round(height * TILE_SHARE), round(width * TILE_SHARE)
        for top in (0, height - tall):
            for left in (0, width - wide):
                parts.append((left, top, np.ascontiguousarray(image[top : top + tall, left : left + wide])))
    return parts
