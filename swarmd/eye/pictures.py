"""Pictures that leave the eye: for a recording, small, rare, while somebody asks; and thumbnails (`thumbs.py`).

What the model takes for people, faces or number plates is made unreadable before a picture leaves the eye, as in the
ring of kept frames. Nothing is kept here.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from swarmd.eye.ipc import Crop, Picture, ShowFrames
from swarmd.eye.thumbs import ThumbMaker
from swarmd_models.frame_ring import without_private_parts
from swarmd_models.types import Detection, EyeResult, Frame

PICTURE_MAX_BYTES = 256 * 1024
"""Bytes of one JPEG: a quarter of what a message to the brain may have."""
_QUALITY_STEP = 15
"""JPEG quality given up at a time until a picture fits."""
_QUALITY_MIN = 10
"""JPEG quality below which a picture is not shown: nothing could be recognised."""


class PictureMaker:
    """Decides which frames are shown, and makes them small."""

    def __init__(self, thumbs: ThumbMaker | None = None) -> None:
        """Show nothing until asked; without `thumbs` there are no thumbnails either."""
        self._thumbs = thumbs
        self._wish = ShowFrames()
        self._last_ns = -(1 << 62)

    def want(self, wish: ShowFrames) -> None:
        """Follow this wish from the next frame on; an interval of 0 ends it."""
        self._wish = wish

    def crops(self, frame: Frame, result: EyeResult) -> list[Crop]:
        """Thumbnails that the brain shall have before it hears of this frame."""
        return [] if self._thumbs is None else self._thumbs.crops(frame, result)

    def last_crops(self, track_ids: Sequence[int], now_ns: int) -> list[Crop]:
        """The same of tracks that end with the source."""
        return [] if self._thumbs is None else self._thumbs.last(track_ids, now_ns)

    def picture(self, frame: Frame, detections: Sequence[Detection]) -> Picture | None:
        """The frame as a JPEG, when one is wanted and due."""
        wish = self._wish
        if not wish.interval_ms or frame.captured_ns - self._last_ns < wish.interval_ms * 1_000_000:
            return None
        self._last_ns = frame.captured_ns
        image = without_private_parts(frame.image, detections)
        height, width = image.shape[:2]
        if width > wish.width:
            height, width = max(1, height * wish.width // width), wish.width
            image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
        for quality in range(wish.quality, 0, -_QUALITY_STEP):
            _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, max(quality, _QUALITY_MIN)])
            if data.size <= PICTURE_MAX_BYTES:
                return Picture(frame.index, frame.captured_ns, width, height, data.tobytes())
        return None
