"""What a camera of Linux offers, what is asked of it, and what it then gives: size, rate and pixel format.

A camera that is asked for a size that it does not have gives another one and says nothing, so what is asked for is
held against what the driver lists before the camera is opened, and against what the driver says afterwards. Asking is
done by ioctls of our own; frames come through OpenCV.

Source:
    Linux' userspace API for video, V4L2: VIDIOC_ENUM_FMT, VIDIOC_ENUM_FRAMESIZES, VIDIOC_ENUM_FRAMEINTERVALS and their
    structures in linux/videodev2.h.
"""

import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import cv2

from swarmd_models.errors import SourceError, SourceRefused

MAX_FORMATS, MAX_SIZES, MAX_RATES = 64, 256, 64
"""Of a driver's lists; a webcam has three formats of twenty sizes."""
MAX_SIDE = 16_384
"""Pixels of a side that may be asked for."""
MAX_RATE = 1000.0
"""Frames a second that may be asked for."""
_TOLD = 12
"""Modes named in an error."""
_RATE_SHARE = 0.02
"""By which a rate may differ from what was asked: 30 is 29.97."""
_CAPTURE = 1
"""V4L2_BUF_TYPE_VIDEO_CAPTURE."""
_DISCRETE = 1
"""V4L2_FRMSIZE_TYPE_DISCRETE and V4L2_FRMIVAL_TYPE_DISCRETE; other types are ranges."""
_FORMAT, _SIZE, _RATE = struct.Struct("=3I32s5I"), struct.Struct("=3I6I2I"), struct.Struct("=5I6I2I")
_RAW = ("Y16 ", "Y16")
"""Measurements of 16 bits, which are wanted as they are."""
Ask = Callable[[int, bytearray], None]
"""An ioctl on the camera: the request's number and its structure, which it fills. `OSError` EINVAL ends a list."""


def _request(number: int, size: int) -> int:
    """`_IOWR('V', number, size)` of asm-generic/ioctl.h, which x86 and ARM share."""
    return 3 << 30 | size << 16 | ord("V") << 8 | number


ENUM_FMT = _request(2, _FORMAT.size)
ENUM_FRAMESIZES = _request(74, _SIZE.size)
ENUM_FRAMEINTERVALS = _request(75, _RATE.size)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a camera; nothing is asked where it is empty or 0."""

    width: int = 0
    height: int = 0
    fps: float = 0.0
    format: str = ""
    """FourCC, as "MJPG"."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One line of what a camera offers."""

    format: str
    least: tuple[int, int]
    most: tuple[int, int]
    """Width and height; equal to `least` where there is one size."""
    rates: tuple[float, ...] = ()
    """Frames a second: each, or with `is_range` the slowest and the fastest; () where the driver does not say."""
    is_range: bool = False

    def has(self, wish: Wish) -> bool:
        """Whether the wish can come true with this."""
        if wish.format and wish.format.strip() != self.format.strip():
            return False
        if wish.width and not (
            self.least[0] <= wish.width <= self.most[0] and self.least[1] <= wish.height <= self.most[1]
        ):
            return False
        if not wish.fps or not self.rates:
            return True
        if self.is_range:
            return self.rates[0] * (1 - _RATE_SHARE) <= wish.fps <= self.rates[-1] * (1 + _RATE_SHARE)
        return any(abs(rate - wish.fps) <= _RATE_SHARE * wish.fps for rate in self.rates)

    def __str__(self) -> str:
        """As errors name it: `MJPG 1280x720 at 30, 15`."""
        size = f"{self.least[0]}x{self.least[1]}"
        if self.most != self.least:
            size += f" to {self.most[0]}x{self.most[1]}"
        rates = (" to " if self.is_range else ", ").join(f"{rate:.4g}" for rate in self.rates)
        return f"{self.format.strip()} {size}" + (f" at {rates}" if rates else "")


def parse_wish(text: str) -> Wish:
    """The wish behind a camera's name.

    Args:
        text: `size=1280x720&fps=30&format=MJPG`, any of them.

    Raises:
        SourceError: It says something else, or something that no camera has.

    >>> parse_wish("size=1280x720&fps=30")
    Wish(width=1280, height=720, fps=30.0, format='')
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=8) if text else []
    except ValueError as error:
        raise SourceError(f"a camera's wish {text[:60]!r}: write it as size=1280x720&fps=30&format=MJPG") from error
    asked = dict(pairs)
    if len(asked) != len(pairs) or set(asked) - {"size", "fps", "format"}:
        raise SourceError(f"a camera's wish {text[:60]!r}: known are size, fps and format, each once")
    size = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", asked.get("size", f"{1}x{1}"))
    rate = re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,3})?", asked.get("fps", "1"))
    kind = re.fullmatch(r"[A-Za-z0-9 ]{3,4}", asked.get("format", "MJPG"))
    if size is None or not (0 < int(size[1]) <= MAX_SIDE and 0 < int(size[2]) <= MAX_SIDE):
        raise SourceError(f"a camera's size {asked['size'][:20]!r}: write it as 1280x720")
    if rate is None or not 0 < float(rate[0]) <= MAX_RATE:
        raise SourceError(f"a camera's fps {asked['fps'][:20]!r}: frames a second, up to {MAX_RATE:g}")
    if kind is None:
        raise SourceError(f"a camera's format {asked['format'][:20]!r}: a FourCC, as MJPG, YUYV or Y16")
    width, height = (int(size[1]), int(size[2])) if "size" in asked else (0, 0)
    return Wish(width, height, float(rate[0]) if "fps" in asked else 0.0, kind[0].upper() if "format" in asked else "")


def offers(ask: Ask) -> list[Mode]:
    """All that a camera's driver lists; what is no list of it ends it."""
    modes: list[Mode] = []
    for index in range(MAX_FORMATS):
        answer = _asked(ask, ENUM_FMT, _FORMAT, (index, _CAPTURE, 0, b"", 0, 0, 0, 0, 0))
        if answer is None:
            break
        code = int(answer[4])
        modes += _sizes(ask, code)
    return modes


def _sizes(ask: Ask, code: int) -> list[Mode]:
    name = "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in code.to_bytes(4, "little"))
    modes = []
    for index in range(MAX_SIZES):
        answer = _asked(ask, ENUM_FRAMESIZES, _SIZE, (index, code, *[0] * 9))
        if answer is None:
            break
        kind, *sides = answer[2:9]
        if kind == _DISCRETE:
            size = (sides[0], sides[1])
            modes.append(Mode(name, size, size, *_rates(ask, code, size)))
        else:
            least, most = (sides[0], sides[3]), (sides[1], sides[4])
            modes.append(Mode(name, least, most, *_rates(ask, code, most)))
            break
    return modes


def _rates(ask: Ask, code: int, size: tuple[int, int]) -> tuple[tuple[float, ...], bool]:
    found: list[float] = []
    for index in range(MAX_RATES):
        answer = _asked(ask, ENUM_FRAMEINTERVALS, _RATE, (index, code, *size, *[0] * 9))
        if answer is None:
            break
        kind, *parts = answer[4:11]
        fractions = [(parts[0], parts[1])] if kind == _DISCRETE else [(parts[2], parts[3]), (parts[0], parts[1])]
        found += [below / above for above, below in fractions if above]
        if kind != _DISCRETE:
            return tuple(found), True
    return tuple(found), False


def _asked(ask: Ask, request: int, form: struct.Struct, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The driver's answer; None at the end of its list, and where it knows no such list."""
    data = bytearray(form.pack(*values))
    try:
        ask(request, data)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOTTY, errno.ENODATA):
            return None
        raise
    return form.unpack(data)


def open_camera(number: int, wish: Wish) -> tuple[Any, str]:
    """Open `/dev/videoN` as it is wished.

    Returns:
        OpenCV's capture, and what the camera gives in words.

    Raises:
        SourceRefused: It does not offer what is asked for; says what it does offer.
        SourceError: It is not there, busy, or not permitted.
    """
    name = f"camera /dev/video{number}"
    if wish != Wish():
        known = _offers_of(number, name)
        if known and not any(mode.has(wish) for mode in known):
            raise SourceRefused(f"{name} does not offer {words(wish)}; it offers {listed(known)}")
    capture = cv2.VideoCapture(number, cv2.CAP_V4L2)
    if not capture.isOpened():
        raise SourceError(f"{name} cannot be opened: absent, busy, or not permitted (group video)")
    try:
        return capture, settle(capture, wish, name)
    except SourceError:
        capture.release()
        raise


def settle(capture: Any, wish: Wish, name: str) -> str:
    """Ask an opened capture for the wish, and hold what it then has against it.

    Returns:
        What it gives, in words.

    Raises:
        SourceRefused: It took another size or format.
    """
    if wish.format:
        capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*wish.format.ljust(4)))
    if wish.width:
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, wish.width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, wish.height)
    if wish.fps:
        capture.set(cv2.CAP_PROP_FPS, wish.fps)
    if wish.format in _RAW:
        capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
    width, height = (int(capture.get(p)) for p in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    code = int(capture.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
    kind = "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in code.to_bytes(4, "little")).strip()
    rate = float(capture.get(cv2.CAP_PROP_FPS))
    gives = f"{width}x{height}, {kind or 'a format that it does not name'}" + (f", {rate:.4g} fps" if rate > 0 else "")
    is_other = wish.width and (width, height) != (wish.width, wish.height)
    if is_other or (wish.format and kind != wish.format.strip()):
        raise SourceRefused(f"{name} was asked for {words(wish)} and gives {gives}")
    if wish.fps and abs(rate - wish.fps) > _RATE_SHARE * wish.fps:
        gives += f" (asked for {wish.fps:g})"
    return f"{name} gives {gives}"


def words(wish: Wish) -> str:
    """A wish as errors say it."""
    size = f"{wish.width}x{wish.height}" if wish.width else ""
    return " ".join(part for part in (wish.format, size, f"at {wish.fps:g} fps" if wish.fps else "") if part)


def listed(modes: list[Mode]) -> str:
    """What is offered, the first of it in words and the rest as a number."""
    rest = len(modes) - _TOLD
    return "; ".join(str(mode) for mode in modes[:_TOLD]) + (f"; and {rest} more" if rest > 0 else "")


def _offers_of(number: int, name: str) -> list[Mode]:
    path = f"/dev/video{number}"
    try:
        device = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        raise SourceError(f"{name} cannot be opened: {error.strerror}") from error
    try:
        return offers(lambda request, data: _ioctl(device, request, data))
    except OSError as error:
        raise SourceError(f"{name} does not say what it offers: {error.strerror}") from error
    finally:
        os.close(device)


def _ioctl(device: int, request: int, data: bytearray) -> None:
    fcntl.ioctl(device, request, data, True)
