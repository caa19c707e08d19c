"""How a thing looks, in 17 bytes: what lets another device tell it from its neighbours where places are poor.

A cut of the frame becomes its 64 lowest frequencies, without its mean and spread; a head that the recipe learnt
(`swarmd_recipes.looks`) makes 16 numbers of them in which looks at one thing differ little and things differ much. The
frequencies fall in two kinds, by what becomes of them when a thing is seen upside down: they stay, or they change their
sign. The head keeps the kinds apart, eight numbers each, so who compares two looks tries both ways up at no cost.

Rules this file keeps:

- Of what bears a private label no look is taken: people are not told apart.
- A look is of a whole thing: a box that touches the frame's border, or is only a few pixels, has none.
- A track's look is the one of its best score so far; a new one is taken only for a better score, so a still camera does
  not pay for a look a frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.frame_ring import PRIVATE_LABELS
from swarmd_models.types import Image, TrackEvent

Floats = npt.NDArray[np.float32]

FORM = 1
"""First byte of a look: another head gets another number, and numbers of two forms are never compared."""
FEATURES_BYTES = 17
"""Of a look: the form and 16 numbers."""
HALF = 8
"""Numbers of each kind."""
CUT = (48, 24)
"""Columns and rows of a cut: what stands is turned until it lies."""
_SMALL = (32, 16)
"""Columns and rows of which frequencies are taken."""
KEPT = 8
"""Frequencies kept, down and across."""
_BLUR = 1.0
"""Pixels of a cut: noise has no neighbours that look like it."""
SIDE_MIN_PX = 8.0
"""The shorter side of a box, pixels of the frame, that shows enough."""
BETTER = 0.05
"""By which a score must rise before a track is looked at anew."""
TRACKS_MAX = 4096
"""Tracks whose best score is remembered; the oldest are forgotten first."""
PER_FRAME_MAX = 16
"""Looks taken in one frame: some 2 ms of a slow core."""
HEAD = Path(__file__).with_name("looks.npz")
"""The head that ships."""

_PARITY = np.add.outer(np.arange(KEPT), np.arange(KEPT)).ravel() % 2
EVEN = np.flatnonzero(_PARITY == 0)[1:]
"""Frequencies that stay as they are upside down; the mean is none of them."""
ODD = np.flatnonzero(_PARITY == 1)
"""Frequencies that change their sign."""


@dataclass(frozen=True)
class Head:
    """Two linear maps."""

    even: Floats
    """Shape (31, 8)."""
    odd: Floats
    """Shape (32, 8)."""
    mean: Floats
    """Shape (31,): of the even frequencies; the odd ones have none, as a thing is upside down as often as not."""

    @classmethod
    def load(cls, path: Path = HEAD) -> "Head":
        """Read what the recipe wrote."""
        with np.load(path, allow_pickle=False) as kept:
            return cls(*(np.asarray(kept[name], np.float32) for name in ("even", "odd", "mean")))

    def numbers(self, frequencies: Floats) -> Floats:
        """Shape (n, 64) to (n, 16)."""
        return np.concatenate(
            [(frequencies[:, EVEN] - self.mean) @ self.even, frequencies[:, ODD] @ self.odd], axis=1, dtype=np.float32
        )

    def features(self, cut: Image) -> bytes:
        """What a cut looks like; b"" where it is all of one grey.

        Args:
            cut: Shape (24, 48), uint8.
        """
        frequencies = frequencies_of(cut)
        numbers: Floats = self.numbers(frequencies[None])[0]
        most = float(np.abs(numbers).max())
        if not frequencies.any() or most <= 0.0:
            return b""
        return bytes([FORM, *np.round(numbers / most * 127).astype(np.int8).view(np.uint8).tolist()])


@cache
def head() -> Head:
    """The one that ships."""
    return Head.load()


def frequencies_of(cut: Image) -> Floats:
    """The lowest frequencies of a cut without its mean, of length 1 before they are cut off; shape (64,)."""
    small = cv2.resize(cv2.GaussianBlur(cut, (0, 0), _BLUR), _SMALL, interpolation=cv2.INTER_AREA).astype(np.float32)
    small -= small.mean()
    length = float(np.linalg.norm(small))
    if length < 1.0:
        return np.zeros(KEPT * KEPT, np.float32)
    return np.asarray(cv2.dct(small / length)[:KEPT, :KEPT], np.float32).ravel()


def cut_of(image: Image, box: tuple[float, float, float, float]) -> Image | None:
    """A thing cut out of a frame, lying; None where not enough of it is to be seen.

    Args:
        image: Shape (H, W) or (H, W, 3), uint8.
        box: x1, y1, x2, y2 in pixels, within the frame.

    Returns:
        Shape (24, 48), uint8, grey.
    """
    height, width = image.shape[:2]
    x1, y1, x2, y2 = box
    if not (0 < x1 < x2 < width and 0 < y1 < y2 < height) or min(x2 - x1, y2 - y1) < SIDE_MIN_PX:
        return None
    part = image[round(y1) : round(y2), round(x1) : round(x2)]
    grey = cv2.cvtColor(part, cv2.COLOR_BGR2GRAY) if part.ndim == 3 else part
    if grey.shape[0] > grey.shape[1]:
        grey = np.rot90(grey)
    shrinks = grey.shape[1] > CUT[0] and grey.shape[0] > CUT[1]
    return np.asarray(
        cv2.resize(np.ascontiguousarray(grey), CUT, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR),
        np.uint8,
    )


class Looks:
    """Takes looks at tracks.

    Args:
        never: Words in a label of which none is taken, beside `PRIVATE_LABELS`.
    """

    def __init__(self, never: Sequence[str] = ()) -> None:
        self._never = tuple(word.lower() for word in (*PRIVATE_LABELS, *never) if word)
        self._best: dict[int, tuple[float, str]] = {}
        """Track to the score and label of its last look."""

    def noted(self, image: Image, events: Sequence[TrackEvent]) -> list[TrackEvent]:
        """The same events; those that show a thing better than any before say how it looks."""
        told, left = [], PER_FRAME_MAX
        for event in events:
            features = b""
            if event.kind == "end":
                self._best.pop(event.track_id, None)
            elif left and self._is_wanted(event) and (cut := cut_of(image, event.box)) is not None:
                left -= 1
                features = head().features(cut)
            if features:
                self._best.pop(event.track_id, None)
                self._best[event.track_id] = (event.score, event.label)
                if len(self._best) > TRACKS_MAX:
                    del self._best[next(iter(self._best))]
                event = replace(event, features=features)
            told.append(event)
        return told

    def _is_wanted(self, event: TrackEvent) -> bool:
        if any(word in event.label.lower() for word in self._never):
            return False
        score, label = self._best.get(event.track_id, (-1.0, ""))
        return event.label != label or event.score >= score + BETTER
