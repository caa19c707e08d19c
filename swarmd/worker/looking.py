"""A picture of this device before a model, asked for by its own brain: at the worker's front door, as programs ask.

So whatever holds for programs holds here: places in the queue, deadlines, the eye that goes first, who may be borrowed
from and what is held against the own model. It goes at the lowest priority, and one at a time. Where both scales are
known the model sees the thing as large as it was trained for (`swarmd_models/scale.py`), and what it says of the place
where the thing lies counts. Where that place is not known it is looked for in the middle; what is seen beside it then
is no answer, rather than that nothing is there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd.errors import ControlError, WorkerError
from swarmd.worker import asking
from swarmd.worker.words import Look, Looked
from swarmd_models.bundle import Bundle
from swarmd_models.errors import ModelError
from swarmd_models.opencv import cv2
from swarmd_models.scale import Box, as_trained
from swarmd_protocols.thumbs.form import problem_of

_LOW = 3
"""Priority: nobody waits for it."""
_REASON_MAX_CHARS = 300
"""Of why there is no answer."""


def look(word: Look, address: str, served: Bundle | None = None) -> Looked:
    """Ask; blocks until the answer or the deadline.

    Args:
        word: What is asked.
        address: HOST:PORT where this worker serves.
        served: The bundle that is served here under that name; None: none, and only a file's or the zoo's is known.
    """
    try:
        if problem := problem_of(word.jpeg):
            raise WorkerError(problem)
        picture = cv2.imdecode(np.frombuffer(word.jpeg, np.uint8), cv2.IMREAD_UNCHANGED)
        if picture is None:
            raise WorkerError("the picture cannot be decoded")
        image = np.asarray(picture[..., None] if picture.ndim == 2 else picture, np.uint8)
        bundle = asking.bundle_of(word.model)
        name, version = (word.model, "") if bundle is None else (bundle.name, bundle.digest)
        middle: Box | None = None
        if (judge := bundle or served) is not None:
            image, middle = as_trained(image, word.pixel_m, judge, word.place or (0.5, 0.5))
        # It was a JPEG before: once more would lose once more.
        wish = asking.Wish(version, _LOW, word.left_ms, word.borrow, cause=word.cause, form="lossless")
        head, outputs = asking.infer(address, name.removesuffix(".detect") + ".detect", image, wish)
        score, digest, lender = _surest(outputs, middle), str(head["model_version"]), str(head["lender"])
        took_us = int(head["parameters"]["took_us"])
        if not score and word.place is None and _surest(outputs, None):
            # At a frame's border the thing is not in the picture's middle.
            reason = "what it sees lies beside the middle, and where the thing lies is not known"
            return Looked(word.number, None, digest, lender, took_us, reason, is_unclear=True)
        return Looked(word.number, min(max(score, 0.0), 1.0), digest, lender, took_us)
    except (ControlError, WorkerError, ModelError, KeyError, ValueError) as error:
        return Looked(word.number, None, reason=str(error)[:_REASON_MAX_CHARS])


def _surest(outputs: Mapping[str, npt.NDArray[Any]], middle: Box | None) -> float:
    """The highest score, of what has its centre in the middle where one is given; 0.0: it sees nothing."""
    scores = [float(one) for one in outputs["scores"].reshape(-1)]
    if middle is None:
        return max(scores, default=0.0)
    x1, y1, x2, y2 = middle
    boxes = outputs["boxes"].reshape(-1, 4).astype(np.float64)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return max(
        (score for score, (x, y) in zip(scores, centres, strict=True) if x1 < x < x2 and y1 < y < y2), default=0.0
    )
