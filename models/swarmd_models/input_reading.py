"""How a bare model wants its pixels: read off the input's quantisation, or known of the family.

The range of a quantised input says what it was calibrated with: [0, 1], [-1, 1], [0, 255], [-128, 127], or ImageNet's
mean and deviation. A range that is none of these, and a float input of no known family, leave the reading open.
"""

from dataclasses import dataclass

import numpy as np

from swarmd_models.backends.base import TensorSpec
from swarmd_models.errors import ArtefactError

_TOLERANCE = 0.02
"""Of the range's width, at either end: 1/128 for 2/255, and what a converter rounds, differ by less than half of it."""
_WRITE_ONE = "write a bundle (`swarmd bundle init`) with [input] mean and std"


@dataclass(frozen=True, slots=True)
class PixelRange:
    """real input = (pixel - mean) / std, for pixels from 0 to 255."""

    name: str
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    @property
    def ends(self) -> tuple[float, float]:
        """Least and greatest real input."""
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        return float(np.min((0.0 - mean) / std)), float(np.max((255.0 - mean) / std))


UNIT = PixelRange("0 to 1", 0.0, 255.0)
RANGES = (
    UNIT,
    PixelRange("-1 to 1", 127.5, 127.5),
    PixelRange("0 to 255", 0.0, 1.0),
    PixelRange("-128 to 127", 128.0, 1.0),
    # torchvision's transforms: mean (0.485, 0.456, 0.406) and deviation (0.229, 0.224, 0.225) of RGB from 0 to 1.
    PixelRange("ImageNet's mean and deviation", (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
)
_PER_CHANNEL = RANGES[-1]


def range_of(model: str, spec: TensorSpec, of_family: PixelRange | None) -> tuple[PixelRange, bool, str]:
    """The range of an input.

    Args:
        model: Its name, for people.
        spec: The input.
        of_family: What the family of the model's head is trained on; None: nothing is known.

    Returns:
        The range, whether pixel bytes go in unchanged, and how that is known, for people.

    Raises:
        ArtefactError: Nothing says which it is.
    """
    if spec.dtype.kind == "f":
        if of_family is None:
            known = ", ".join(one.name for one in RANGES)
            raise ArtefactError(
                f"model {model} takes floats, and the file does not say of which range (known are {known}); "
                f"{_WRITE_ONE}"
            )
        return of_family, False, f"{of_family.name}, as its family has it"
    if not spec.is_quantised:
        if spec.dtype == np.dtype(np.uint8):
            return RANGES[2], True, "pixel bytes as they are"
        raise ArtefactError(f"input {spec.name} of model {model} is {spec.dtype} without a scale; {_WRITE_ONE}")
    info = np.iinfo(spec.dtype)
    low, high = (spec.scale * (end - spec.zero_point) for end in (info.min, info.max))
    said = f"scale {spec.scale:.5g} and zero point {spec.zero_point}"
    slack = _TOLERANCE * (high - low)
    for one in RANGES:
        ends = one.ends
        if abs(ends[0] - low) <= slack and abs(ends[1] - high) <= slack:
            if one is _PER_CHANNEL and spec.shape[-1] != 3 and spec.shape[1] != 3:
                continue
            return one, one is not _PER_CHANNEL, f"{one.name}, by its {said}"
    raise ArtefactError(
        f"input {spec.name} of model {model} has {said}, values from {low:.3g} to {high:.3g}: no range that pictures "
        f"are usually brought to ({', '.join(one.name for one in RANGES)}); {_WRITE_ONE}"
    )
