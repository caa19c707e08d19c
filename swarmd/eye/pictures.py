"""Pictures that leave the eye: frames to be labelled, thumbnails (`thumbs.py`), and for a recording, while one asks.

Each of them shows findings alone, all else is flat, unless the configuration wants whole frames; and people, vehicles
and masked parts are made unreadable first (`swarmd_models.redaction`): what the model itself says and, where one is
named, what a detector of its own finds, which takes 20 ms of a core and more a picture.
So frames to be labelled and pictures for a recording are made by threads, one of each at a time, and the eye goes on;
one that is due while another is made is left out.
"""

import threading
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from swarmd.eye.ipc import Configure, Crop, Picture, ShowFrames
from swarmd.eye.thumbs import ThumbMaker
from swarmd_models.detector import Detector
from swarmd_models.frame_ring import FrameRing
from swarmd_models.redaction import Redactor
from swarmd_models.types import Detection, EyeResult, Frame

PICTURE_MAX_BYTES = 256 * 1024
"""Bytes of one JPEG: a quarter of what a message to the brain may have."""
_QUALITY_STEP = 15
"""JPEG quality given up at a time until a picture fits."""
_QUALITY_MIN = 10
"""JPEG quality below which a picture is not shown: nothing could be recognised."""


_LAST_S = 10.0
"""Seconds that the end waits for the last frame of each kind."""


class PictureMaker:
    """Decides which frames are shown and kept, and makes them fit for it."""

    def __init__(self, thumbs: ThumbMaker | None = None, redactor: Redactor | None = None) -> None:
        """Show nothing until asked; without `thumbs` there are no thumbnails either.

        Args:
            thumbs: Makes them.
            redactor: Of all pictures; by default one that shows findings alone.
        """
        self._thumbs = thumbs
        self.redactor = redactor or Redactor()
        self.ring: FrameRing | None = None
        """Of frames for people to label; None: none are kept."""
        self._writer: threading.Thread | None = None
        self._painter: threading.Thread | None = None
        self._wish = ShowFrames()
        self._last_ns = -(1 << 62)

    def want(self, wish: ShowFrames) -> None:
        """Follow this wish from the next frame on; an interval of 0 ends it."""
        self._wish = wish

    def crops(self, frame: Frame, result: EyeResult, pixel_m: float = 0.0) -> list[Crop]:
        """Thumbnails that the brain shall have before it hears of this frame, a pixel of which shows `pixel_m`."""
        return [] if self._thumbs is None else self._thumbs.crops(frame, result, pixel_m)

    def last_crops(self, track_ids: Sequence[int], now_ns: int) -> list[Crop]:
        """The same of tracks that end with the source."""
        return [] if self._thumbs is None else self._thumbs.last(track_ids, now_ns)

    def keep(self, frame: Frame, result: EyeResult, detector: Detector, ood: float) -> None:
        """Have the frame written where the model was unsure of it; one that comes while another is written is not."""
        ring = self.ring
        redactor = self.redactor
        if not redactor.shows_frames and all(redactor.is_private(one.label) for one in result.detections):
            return  # Nothing of it would be shown.
        if ring is None or (self._writer is not None and self._writer.is_alive()):
            return
        if ring.wants(frame, result.detections, detector.sure_from, ood):
            digest, clean = detector.bundle.digest, self.redactor.clean
            self._writer = threading.Thread(
                target=ring.keep, args=(frame, result.detections, ood, digest, result.events, clean), daemon=True
            )
            self._writer.start()

    def finish(self) -> None:
        """Wait for what is being made."""
        for worker in (self._writer, self._painter):
            if worker is not None:
                worker.join(_LAST_S)

    def show(
        self,
        frame: Frame,
        detections: Sequence[Detection],
        send: Callable[[Picture], None],
        say: Callable[[str], None],
    ) -> None:
        """Have the frame's picture made and sent, when one is wanted and due; `say` hears why one could not be."""

        def paint() -> None:
            try:
                picture = self._painted(frame, detections)
            except cv2.error as error:
                say(f"a picture could not be made: {error}")
                return
            if picture is not None:
                send(picture)

        if (self._painter is None or not self._painter.is_alive()) and self._is_due(frame):
            self._painter = threading.Thread(target=paint, daemon=True)
            self._painter.start()

    def picture(self, frame: Frame, detections: Sequence[Detection]) -> Picture | None:
        """The frame as a JPEG, when one is wanted and due."""
        return self._painted(frame, detections) if self._is_due(frame) else None

    def _is_due(self, frame: Frame) -> bool:
        wish = self._wish
        if not wish.interval_ms or frame.captured_ns - self._last_ns < wish.interval_ms * 1_000_000:
            return False
        self._last_ns = frame.captured_ns
        return True

    def _painted(self, frame: Frame, detections: Sequence[Detection]) -> Picture | None:
        wish = self._wish
        if not wish.interval_ms:
            return None
        image = self.redactor.clean(frame.image, detections)
        if image is None:
            return None
        height, width = image.shape[:2]
        if width > wish.width:
            height, width = max(1, height * wish.width // width), wish.width
            image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
        for quality in range(wish.quality, 0, -_QUALITY_STEP):
            _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, max(quality, _QUALITY_MIN)])
            if data.size <= PICTURE_MAX_BYTES:
                return Picture(frame.index, frame.captured_ns, width, height, data.tobytes())
        return None


def pictures_of(config: Configure, say: Callable[[str], None]) -> PictureMaker:
    """The maker of an eye's pictures, as its configuration wants them.

    Args:
        config: Of the eye.
        say: Told once where no picture can leave.
    """
    private = config.private
    redactor = Redactor(private.masks, say, private.detector, shows_frames=private.shows_frames, never=private.never)
    return PictureMaker(ThumbMaker(private.never, redactor) if config.thumbnails else None, redactor)
