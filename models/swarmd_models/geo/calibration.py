"""A camera's calibration from a file: OpenCV's YAML, or the `camera_info` YAML that ROS's calibrator writes.

Of YAML only what these two write is read: numbers behind a name, and matrices with their `data` as a list. What is
there twice, missing, or of another kind is refused by name.
"""

import math
import re
from pathlib import Path

from swarmd_models.bounded_file import read_bounded
from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import Intrinsics
from swarmd_models.geo.lens import Distortion

MAX_FILE_BYTES = 256 << 10
"""OpenCV adds a row for each picture of the board; a hundred of them take some 60 KiB."""
MAX_SIDE = 65_536
"""Pixels; wider or higher than any camera's picture."""
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
"""With one way alone to read any text: 20 kB of digits and a letter took minutes with two."""
_NAMES = {
    "width": ("image_width", "width"),
    "height": ("image_height", "height"),
    "matrix": ("camera_matrix", "cameramatrix", "k"),
    "distortion": ("distortion_coefficients", "distortioncoefficients", "distcoeffs", "dist_coeffs", "d"),
    "model": ("distortion_model",),
    "fisheye": ("fisheye_model",),
}
_MODELS = {"": False, "plumb_bob": False, "rational_polynomial": False, "equidistant": True, "fisheye": True}


def read_calibration(path: Path) -> Intrinsics:
    """The camera that a file describes, at the size that it was calibrated at.

    Raises:
        SourceError: It cannot be read, is too large, or is no calibration.
    """
    data = read_bounded(path, MAX_FILE_BYTES, "calibration", SourceError)
    try:
        return parse_calibration(data.decode())
    except UnicodeDecodeError as error:
        raise SourceError(f"calibration {path} is no text") from error
    except ValueError as error:
        raise SourceError(f"calibration {path}: {error}") from error


def misfit(intrinsics: Intrinsics, width: int, height: int) -> str:
    """Why frames of a size cannot be placed by a camera; "" where they can."""
    if intrinsics.fits(width, height):
        return ""
    return (
        f"nothing is placed: the camera was calibrated at {intrinsics.width} x {intrinsics.height}, and frames of "
        f"{width} x {height} have another shape"
    )


def parse_calibration(text: str) -> Intrinsics:
    """The camera that a YAML text describes; raises `ValueError` with what is wrong."""
    if text.lstrip().startswith("<"):
        raise ValueError("XML; write it as YAML (OpenCV: FileStorage with a name that ends in .yaml)")
    blocks = _blocks(text)
    width, height = _size(blocks, "width"), _size(blocks, "height")
    matrix = _list(blocks, "matrix")
    if matrix is None or len(matrix) != 9:
        raise ValueError("no camera_matrix of nine numbers")
    fx, skew, cx, _, fy, cy = matrix[:6]
    if not (1.0 < fx < 10 * MAX_SIDE and 1.0 < fy < 10 * MAX_SIDE):
        raise ValueError(f"focal lengths of {fx:g} and {fy:g} pixels")
    if abs(skew) > 1e-3 * fx:
        raise ValueError(f"a skew of {skew:g}; cameras with one are not known")
    if not (-width < cx < 2 * width and -height < cy < 2 * height):
        raise ValueError(f"an axis at ({cx:g}, {cy:g}) in a picture of {width} x {height}")
    return Intrinsics(fx, fy, cx, cy, width, height, _distortion(blocks))


def _distortion(blocks: dict[str, str]) -> Distortion | None:
    name = _word(blocks, "model").lower()
    if name not in _MODELS:
        raise ValueError(f"distortion_model {name!r}; known are {', '.join(filter(None, _MODELS))}")
    is_fisheye = _MODELS[name] or _word(blocks, "fisheye") == "1"
    given = _list(blocks, "distortion") or ()
    if not is_fisheye and len(given) in (12, 14) and not any(given[8:]):
        given = given[:8]
    return Distortion.of(given, is_fisheye) if is_fisheye or any(given) else None


def _blocks(text: str) -> dict[str, str]:
    """What stands behind each name at the left margin, by its lower-case form."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        key = re.match(r"([A-Za-z_][A-Za-z0-9_]{0,63})\s*:(.*)", line)
        if key is not None:
            name = key[1].lower()
            if name in found:
                raise ValueError(f"{name} stands there twice")
            found[name] = [key[2].split("#")[0]]
        elif name and line[:1] in (" ", "\t", "-", "]"):
            found[name].append(line.split("#")[0])
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def _block(blocks: dict[str, str], what: str) -> str | None:
    given = [name for name in _NAMES[what] if name in blocks]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: which of them is meant?")
    return blocks[given[0]] if given else None


def _word(blocks: dict[str, str], what: str) -> str:
    return (_block(blocks, what) or "").strip().strip("\"'")


def _size(blocks: dict[str, str], what: str) -> int:
    word = _word(blocks, what)
    if not re.fullmatch(r"[0-9]{1,6}", word) or not 0 < int(word) <= MAX_SIDE:
        raise ValueError(f"no {_NAMES[what][0]}" if not word else f"{_NAMES[what][0]} is {word[:20]!r}")
    return int(word)


def _list(blocks: dict[str, str], what: str) -> tuple[float, ...] | None:
    """The numbers of a matrix: `data: [..]`, a list of dashes under `data:`, or a list without a name."""
    block = _block(blocks, what)
    if block is None:
        return None
    _, named, behind = block.rpartition("data:")
    body = (behind if named else block).strip()
    inner = body[1:].partition("]")[0] if body.startswith("[") else re.sub(r"(?m)^[ \t]*-[ \t]+", ",", body).lstrip(",")
    words = [word.strip() for word in inner.split(",") if word.strip()]
    if not all(re.fullmatch(_NUMBER, word) for word in words):
        raise ValueError(f"{_NAMES[what][0]} holds something that is no number")
    numbers = tuple(float(word) for word in words)
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"{_NAMES[what][0]} holds a number without an end")
    return numbers
