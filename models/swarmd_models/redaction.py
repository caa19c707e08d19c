"""People, faces and number plates in pictures that leave the eye: whatever is no finding is not shown.

The running model may know nothing of people, as a model of solar modules does. So of a picture that leaves, nothing is
shown but what lies in the box of a finding and a little around it; all else is one flat grey, or colour. That needs no
detector, and cannot miss anybody who stands elsewhere. Where whole frames are wanted, what leaves can be searched by a
detector of its own, which the configuration names, for people and for the vehicles that bear plates: whole, since a
face or a plate is too small in an aerial picture to be found by itself. Parts of the frame where nobody may ever be
seen (a neighbour's window, a road) are masked by the configuration.

Rules this file keeps:

- Without a word of the configuration, findings alone are shown, and of one with a private label nothing.
- Boxes are made larger before they are covered: they are never exact, and people move.
- Who cannot be searched is not shown: where the named model cannot run, a redactor gives no picture and says why.
- What the model saw itself counts beside it (`frame_ring.without_private_parts`).
"""

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ModelError
from swarmd_models.frame_ring import PRIVATE_LABELS, without_private_parts
from swarmd_models.opencv import cv2
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
SHOWN_AROUND = 0.25
"""Share of a finding's side that is shown around it: an operator and a judge want to see where a thing ends, and the
head for kinds reads a little beyond it (docs/performance/eye.md)."""
SHOWN_LEAST_PX = 8.0
"""Pixels of a frame that are shown around a finding at least: of a few pixels alone nobody can tell what they are."""
_MEDIAN_OF_PX = 1 << 16
"""Pixels whose median is taken, spread evenly: that of a whole 4K frame costs 100 ms and is no greyer."""
PRIVATE = "person"
"""The label under which parts are covered, whatever was found there."""

Box = tuple[float, float, float, float]
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


def only_findings(image: Image, boxes: Sequence[Box]) -> Image:
    """A copy in which what lies in no box, nor close around one, is the picture's median.

    Args:
        image: Shape (rows, columns) or (rows, columns, channels), uint8; not empty.
        boxes: x1, y1, x2, y2, pixels; what is not finite shows nothing.

    >>> only_findings(np.arange(100, dtype=np.uint8).reshape(1, 100), [(50.0, 0.0, 52.0, 1.0)])[0, 40:62].tolist()
    [49, 49, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 49, 49]
    """
    rows, columns = image.shape[:2]
    found = np.empty_like(image)
    step = max(1, math.isqrt(rows * columns // _MEDIAN_OF_PX))
    found[...] = np.median(image[::step, ::step], axis=(0, 1)).astype(image.dtype)
    for box in boxes:
        if not np.isfinite(box).all():
            continue
        x1, y1, x2, y2 = box
        across, down = (max(SHOWN_LEAST_PX, SHOWN_AROUND * side) for side in (x2 - x1, y2 - y1))
        left, right = (int(np.clip(edge, 0, columns)) for edge in (np.floor(x1 - across), np.ceil(x2 + across)))
        top, bottom = (int(np.clip(edge, 0, rows)) for edge in (np.floor(y1 - down), np.ceil(y2 + down)))
        found[top:bottom, left:right] = image[top:bottom, left:right]
    return found


class Redactor:
    """Shows findings alone, or whole frames with people and vehicles made unreadable.

    One detector, loaded when it is first needed; threads take turns.
    """

    def __init__(
        self,
        masks: Sequence[str] = (),
        say: Callable[[str], None] | None = None,
        model: str = "",
        *,
        shows_frames: bool = False,
        never: Sequence[str] = (),
    ) -> None:
        """Load nothing yet.

        Args:
            masks: Parts that are always covered (`read_masks`); with one that cannot be read no picture is given.
            say: Told once where the detector cannot be loaded or fails.
            model: Bundle of the detector; `classes` in it says what is covered. "": none, masks alone.
            shows_frames: Whether what is no finding is shown too.
            never: Words in a label by which a finding is private, beside those that always are.
        """
        self._never = tuple(word.lower() for word in (*PRIVATE_LABELS, *never) if word)
        self.shows_frames = shows_frames
        """Whether what is no finding is shown too."""
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
        """A copy that shows what may be shown; people, vehicles and masked parts are a few flat squares.

        Args:
            image: Shape (H, W) grey or (H, W, 3) BGR, uint8.
            detections: What the running model saw in it.

        Returns:
            None where it cannot be searched, or where somebody is of whom nothing says where.
        """
        boxes = self.find(image)
        if boxes is None:
            return None
        height, width = image.shape[:2]
        masked = [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in self._masks]
        named = [one.box for one in detections if self.is_private(one.label)]
        if not np.isfinite(np.array(named)).all():
            return None  # Somebody is somewhere in it.
        seen = [Detection(0, PRIVATE, 1.0, box) for box in [*boxes, *masked, *map(_grown, named)]]
        # A private one opens no margin of its own, and is covered last: it may stand within another's.
        found = [one.box for one in detections if not self.is_private(one.label)]
        return without_private_parts(image if self.shows_frames else only_findings(image, found), seen)

    def is_private(self, label: str) -> bool:
        """Whether a finding of this label shows nothing of itself."""
        return any(word in label.lower() for word in self._never)

    def shows_somebody(self, image: Image) -> bool:
        """Whether the detector sees somebody, or cannot look."""
        boxes = self.find(image)
        return boxes is None or bool(boxes)

    def is_masked(self, box: Box, width: int, height: int) -> bool:
        """Whether a part of a frame (pixels) touches what is masked."""
        x1, y1, x2, y2 = box
        return any(
            x1 < mask[2] * width and mask[0] * width < x2 and y1 < mask[3] * height and mask[1] * height < y2
            for mask in self._masks
        )

    def find(self, image: Image) -> list[Box] | None:
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

    def _search(self, image: Image) -> list[Box]:
        if self._detector is None:
            self._detector = Detector.open(load_bundle(self._model), DetectorOptions())
        height, width = image.shape[:2]
        found = []
        for number, (left, top, part) in enumerate(_parts(image)):
            for detection in self._detector.detect(part):
                if number and detection.score < TILE_SCORE:
                    continue
                x1, y1, x2, y2 = _grown(detection.box)
                found.append(
                    (
                        max(x1 + left, 0.0),
                        max(y1 + top, 0.0),
                        min(x2 + left, float(width)),
                        min(y2 + top, float(height)),
                    )
                )
        return found


def _grown(box: Box) -> Box:
    dx, dy = (box[2] - box[0]) * GROWS, (box[3] - box[1]) * GROWS
    return box[0] - dx, box[1] - dy, box[2] + dx, box[3] + dy


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
