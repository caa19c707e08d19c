"""Finds out from a loaded model's tensors how it is to be used, or says why it cannot be.

A bundle says all of this itself; then only the tensors are checked against it. A bare `.tflite` is used when its
tensors leave one reading, never on a guess.
"""

from collections.abc import Sequence
from dataclasses import replace

from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import Bundle, DecodeRule, InputRule
from swarmd_models.decoders.yolo import yolo_layout
from swarmd_models.errors import ArtefactError
from swarmd_models.preprocess import input_size

_STRIDES = (8, 16, 32)
"""Pixels a cell of the three scales that detectors of the YOLO family answer at."""
_BARE_CLASSIFIER_THRESHOLD = 0.1
"""Score for a classifier without a bundle: among a thousand classes 0.1 already says something."""


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
    if inputs[0].dtype.kind == "f":
        raise ArtefactError(
            f"model {bundle.name} takes floats, and the file does not say of which range; write a bundle with "
            "[input] mean and std"
        )
    decoder, decode = _recognise_head(bundle, outputs, width, height)
    rule = InputRule(width, height, "gray" if channels == 1 else "rgb", "stretch", as_is=True)
    if not bundle.labels:
        raise ArtefactError(f"model {bundle.name} has no labels inside; give them with --labels, one a line")
    return replace(bundle, decoder=decoder, input=rule, decode=decode)


def _recognise_head(bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> tuple[str, DecodeRule]:
    shapes = [spec.shape for spec in outputs]
    classes = len(bundle.labels)
    if len(shapes) == 4 and (1,) in shapes and any(len(s) == 3 and s[-1] == 4 for s in shapes):
        return "ssd", DecodeRule()
    cells = sum(-(-width // s) * -(-height // s) for s in _STRIDES)
    if len(shapes) == 2 and all(len(s) == 3 and s[1] == cells for s in shapes) and (1, cells, 4) in shapes:
        return "anchor_free", DecodeRule()
    if len(shapes) == 1:
        shape = shapes[0]
        if sum(n > 1 for n in shape) == 1:
            return "classifier", DecodeRule(score_threshold=_BARE_CLASSIFIER_THRESHOLD)
        if len(shape) == 3 and (cells in shape or 3 * cells in shape) and yolo_layout(shape, classes) is not None:
            return "yolo", DecodeRule(score_threshold=0.25)
    said = ", ".join(f"{spec.name} {spec.shape}" for spec in outputs)
    raise ArtefactError(
        f"model {bundle.name} has outputs that no decoder here knows ({said}); known are SSD with postprocess, the "
        "anchor-free head, YOLOv5/v8/11 and classifiers; a bundle can name the decoder"
    )
