"""A frame that is preprocessed while the one before it is inferred.

The thread that captures fits a frame that waits (`fit`); the thread that infers takes it, if it is the frame whose turn
it is (`take`). Whoever finds nothing fitted preprocesses by itself, so nothing is ever older, lost or in another order
for it, and a frame that cannot be used is refused when its turn comes. There is no thread of its own that could be left
behind.
"""

import threading
import time

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import InputRule
from swarmd_models.errors import FrameError
from swarmd_models.opencv import cv2
from swarmd_models.preprocess import Preprocessor
from swarmd_models.types import Image


class FittedAhead:
    """Room for one frame, in buffers of its own."""

    def __init__(self, rule: InputRule, spec: TensorSpec) -> None:
        """For an input that the rule fits; raises `ArtefactError` as `Preprocessor` does."""
        self._preprocessor = Preprocessor(rule, spec)
        self._tensor = np.empty(spec.shape[1:], spec.dtype)
        self._lock = threading.Lock()
        self._fitting: Image | None = None
        self._fitted: Image | None = None
        self.taken = 0
        """Frames that were fitted when their turn came."""

    def fit(self, image: Image) -> int:
        """Preprocess a frame whose turn may come; one that cannot be used is left to whose turn it is.

        Returns:
            Nanoseconds of the processor's time that it took.
        """
        with self._lock:
            self._fitted, self._fitting = None, image
            started = time.thread_time_ns()
            try:
                self._preprocessor.fill(image, self._tensor)
                self._fitted = image
            except (FrameError, cv2.error):
                pass  # Whose turn it is will say so.
            finally:
                self._fitting = None
            return time.thread_time_ns() - started

    def take(self, image: Image, own: Preprocessor, view: Array) -> Preprocessor | None:
        """Write a fitted frame into the input.

        Args:
            image: The frame whose turn it is; the very object that was fitted.
            own: The preprocessor of the frame before, which is used for a frame to come.
            view: The input without its batch axis; not kept.

        Returns:
            The preprocessor that fitted it, with its canvas and mapping; None where this frame was not fitted. One that
            is being fitted is waited for: less is left of it than to begin anew.
        """
        if not self._lock.acquire(blocking=self._fitting is image):
            return None
        try:
            if self._fitted is not image:
                return None
            self._fitted = None
            np.copyto(view, self._tensor)
            fitted, self._preprocessor = self._preprocessor, own
            self.taken += 1
            return fitted
        finally:
            self._lock.release()
