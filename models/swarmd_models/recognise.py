"""Finds out from a loaded model's tensors how it is to be used, or says why it cannot be.

A bundle says all of this itself; then only the tensors are checked against it. A bare model is used when its tensors
and the exporter's notes leave one reading, never on a guess: where two are left, both are named.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import Bundle, DecodeRule, GivenInput, InputRule
from swarmd_models.decoders.yolo_heads import is_like_yolo, read_head
from swarmd_models.errors import ArtefactError
from swarmd_models.input_reading import UNIT, PixelRange, range_of
from swarmd_models.preprocess import input_size

_STRIDES = (8, 16, 32)
"""Pixels a cell of the three scales that detectors of the YOLO family answer at."""
_BARE_CLASSIFIER_THRESHOLD = 0.1
"""Score for a classifier without a bundle: among a thousand classes 0.1 already says something."""
_BARE_YOLO_THRESHOLD = 0.25
"""Score for a YOLO without a bundle, as its family's own tools have it."""
_LEAST_LOGIT = 0.5
"""Below zero by more than this no probability is quantised."""
_KINDS_OF_TASK = {
    "detect": ("v8", "v5", "end2end"),
    "segment": ("v8", "v5", "end2end"),
    "pose": ("pose", "end2end"),
    "obb": ("obb",),
}
"""An exporter's task to the heads that it may have."""


def recognise(bundle: Bundle, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Bundle:
    """The bundle with everything filled in.

    Raises:
        ArtefactError: The model cannot be used, or not without a bundle.
    """
    if len(inputs) != 1:
        names = ", ".join(f"{spec.name} {spec.shape}" for spec in inputs)
        raise ArtefactError(
            f"model {bundle.name} has {len(inputs)} inputs ({names}); the eye feeds one image and carries no state "
            "from frame to frame"
        )
    height, width, channels, _ = input_size(inputs[0])
    if bundle.decoder:
        rule = bundle.input
        if (rule.width or width, rule.height or height) != (width, height):
            raise ArtefactError(f"bundle says {rule.width}x{rule.height}; the model's input is {width}x{height}")
        return replace(bundle, input=replace(rule, width=width, height=height))
    decoder, decode, head = _recognise_head(bundle, outputs, width, height)
    is_yolo, is_own = decoder == "yolo", decoder == "anchor_free"
    # Others' models too end in rows of boxes after NMS: their shape alone names no family.
    is_family = is_yolo and (decode.head != "end2end" or bundle.notes.is_ultralytics)
    given = bundle.given or GivenInput()
    if given.mean is not None or given.std is not None:
        mean, std = given.mean if given.mean is not None else 0.0, given.std if given.std is not None else 255.0
        pixels, as_is, how = PixelRange("", mean, std), False, f"mean {mean} and std {std}, as given"
    else:
        pixels, as_is, how = range_of(bundle.name, inputs[0], UNIT if is_family else None)
    # A range that is given a channel is of RGB; swarmd's own models are trained on what OpenCV reads.
    order = "gray" if channels == 1 else "bgr" if is_own and not isinstance(pixels.mean, tuple) else "rgb"
    order = given.channels or order
    resize = given.resize or ("letterbox" if is_yolo or is_own else "stretch")
    if not bundle.labels:
        raise ArtefactError(f"model {bundle.name} has no labels inside; give them with --labels, one a line")
    rule = InputRule(width, height, order, resize, mean=pixels.mean, std=pixels.std, as_is=as_is)
    reading = f"{head}; {resize} to {width}x{height}, {order}, {how}; {len(bundle.labels)} labels"
    return replace(bundle, decoder=decoder, input=rule, decode=_asked(bundle.decode, decode), reading=reading)


def _asked(asked: DecodeRule, read: DecodeRule) -> DecodeRule:
    """What was read of a head, with what a person asked for."""
    return replace(read, classes=asked.classes, rename=asked.rename)


def _recognise_head(
    bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int
) -> tuple[str, DecodeRule, str]:
    """Decoder, rule and the words for it."""
    shapes = [spec.shape for spec in outputs]
    if len(shapes) == 4 and (1,) in shapes and any(len(s) == 3 and s[-1] == 4 for s in shapes):
        return "ssd", DecodeRule(), "SSD with postprocess inside"
    cells = sum(-(-width // s) * -(-height // s) for s in _STRIDES)
    if len(shapes) == 2 and all(len(s) == 3 and s[1] == cells for s in shapes) and (1, cells, 4) in shapes:
        _check_own_head(bundle, outputs)
        return "anchor_free", DecodeRule(), f"the anchor-free head of swarmd ({cells:,} cells)"
    if len(shapes) == 1 and sum(n > 1 for n in shapes[0]) == 1:
        return "classifier", DecodeRule(score_threshold=_BARE_CLASSIFIER_THRESHOLD), "a classifier"
    if is_like_yolo(outputs, (width, height)):
        kinds = (bundle.decode.head,) if bundle.decode.head != "auto" else _KINDS_OF_TASK.get(bundle.notes.task, ())
        found = read_head(outputs, len(bundle.labels), (width, height), kinds)
        return "yolo", DecodeRule(score_threshold=_BARE_YOLO_THRESHOLD, head=found.kind), str(found)
    said = ", ".join(f"{spec.name} {spec.shape}" for spec in outputs)
    raise ArtefactError(
        f"model {bundle.name} has outputs that no decoder here knows ({said}); known are SSD with postprocess, the "
        "anchor-free head, YOLOv5/v8/11 and classifiers; a bundle that is written by hand can name the `decoder` "
        "(docs/eye.md)"
    )


def _check_own_head(bundle: Bundle, outputs: Sequence[TensorSpec]) -> None:
    """Boxes and classes a cell are ours, or YOLO-NAS' and PP-YOLOE's: logits fall below zero, probabilities do not."""
    scores = next((spec for spec in outputs if spec.shape[-1] != 4), outputs[0])
    boxes = next(spec for spec in outputs if spec.shape[-1] == 4)
    if scores.is_quantised and boxes.is_quantised:
        low = scores.scale * (int(np.iinfo(scores.dtype).min) - scores.zero_point)
        if low < -_LEAST_LOGIT:
            return
    raise ArtefactError(
        f"model {bundle.name} answers {scores.shape} and {boxes.shape}: swarmd's anchor-free head (logits; distances "
        "in strides), or another's of the same shapes, as YOLO-NAS (probabilities; corners in pixels), which no "
        'decoder here reads. If it is the first, say so in a bundle: decoder = "anchor_free"'
    )
