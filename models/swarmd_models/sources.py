"""Frames from cameras, streams, videos, pictures and folders.

A source gives frames in order and stamps them with the device's monotonic clock at capture. Videos keep their own time
line: frame times are the stream's start plus the video's timestamps, whether it is played at its pace or as fast as
it decodes.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.errors import FrameError, SourceError, SourceRefused
from swarmd_models.levelling import Leveller, is_raw
from swarmd_models.picture_file import decoded, picture_bytes
from swarmd_models.radiometric import kelvin_of
from swarmd_models.stream_probe import is_about_user, why_refused
from swarmd_models.types import Frame, FrameSource
from swarmd_models.v4l2 import open_camera, parse_wish

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
OPEN_TIMEOUT_MS = 10_000
"""Milliseconds for a stream to open; a camera behind Wi-Fi takes some seconds."""
READ_TIMEOUT_MS = 5_000
"""Milliseconds without a frame after which a stream counts as gone."""
FIRST_WAIT_S = 0.5
"""Seconds before the first attempt to open a lost source again; doubled each time."""
MAX_WAIT_S = 30.0
"""Seconds between two attempts at most."""
NOT_FOUND_PATIENCE_S = 60.0
"""Seconds that a path unknown to its server is tried for: servers of other cameras learn of a stream when it begins."""
_NOT_FOUND, _REDIRECTS = 404, 300
_MISSING_SHARE = 0.02
"""Share of a video's frames that may be missing at its end: containers count badly."""
_MISSING_FRAMES = 5
"""Frames that may be missing at its end however short it is."""
_GRAY16 = int.from_bytes(b"Y1\0\x10", "little")
"""FFmpeg's tag of grey pixels of 16 bits, little-endian: what radiometric recordings and Y16 cameras have."""
MAX_VIDEO_PIXELS = 64_000_000
"""Of a video's or a stream's frame, by its header, before one is decoded: twice 8K. A file of 1.5 MB held two frames
that took 2.6 GB and twelve seconds."""
_DEFAULT_FPS = 25.0
"""Frames a second of a video that names none, or nonsense."""
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a source."""

    paced: bool = False
    """Videos at the pace of their timestamps; else as fast as they decode."""
    loop: bool = False
    """Videos, pictures and folders start again at their end."""


_INDEX = r"([0-9]{1,3})"
"""A camera's number; a file of such a name is written with its folder, as ./7."""


def open_source(spec: str, options: SourceOptions | None = None) -> FrameSource:
    """Open what a description names.

    Args:
        spec: A video, picture or folder; a device ("0", "/dev/video0", "camera:0?size=1280x720&fps=30&format=MJPG");
            a URL (rtsp, rtsps, http, https, udp); "gst:PIPELINE".
        options: Pace and loop.

    Raises:
        SourceError: It does not exist, or is of no kind that can be read.
    """
    options = options or SourceOptions()
    quieten_opencv()
    if spec.startswith("gst:"):
        return _open_gstreamer(spec[4:])
    if re.match(r"^(rtsps?|https?|udp|tcp)://", spec):
        return CaptureSource(_open_stream(spec), redacted(spec))
    device = re.fullmatch(rf"(?:camera:|/dev/video)?{_INDEX}(?:\?(.*))?", spec)
    if device:
        capture, gives = open_camera(int(device[1]), parse_wish(device[2] or ""))
        return CaptureSource(capture, spec, gives=gives)
    path = Path(spec)
    if not path.exists():
        raise SourceError(
            f"no source at {spec}: no such file or folder; a camera is /dev/video0, a stream rtsp://HOST/PATH"
        )
    if path.is_dir():
        return PictureSource(_pictures_in(path), options.loop)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return PictureSource([path], options.loop)
    return VideoSource(path, options)


def quieten_opencv() -> None:
    """Keep OpenCV's and its decoders' own messages from standing between our lines; what matters is in our errors.

    Who has set OPENCV_LOG_LEVEL wants to see them.
    """
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    if "OPENCV_LOG_LEVEL" not in os.environ:
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def is_live(spec: str) -> bool:
    """Whether a source may come back after it has gone: cameras and streams."""
    return (
        spec.startswith(("gst:", "camera:", "/dev/video"))
        or re.fullmatch(rf"{_INDEX}(?:\?.*)?", spec) is not None
        or re.match(r"^(rtsps?|https?|udp|tcp)://", spec) is not None
    )


def redacted(url: str) -> str:
    """A URL without the password, for messages and logs.

    >>> redacted("rtsp://admin:secret@10.0.0.9/stream")
    'rtsp://***@10.0.0.9/stream'
    """
    return re.sub(r"//[^/@]*@", "//***@", url)


class CaptureSource:
    """A camera or stream: newest frames as they come, stamped when they arrive."""

    def __init__(self, capture: Any, name: str, clock: Clock = time.monotonic_ns, gives: str = "") -> None:
        """Read from an opened `cv2.VideoCapture`; `name` stands in messages."""
        self.gives = gives
        """What it said that it gives, in words."""
        self._capture = capture
        self._name = name
        self._clock = clock
        self._leveller = Leveller()
        self._index = 0

    def read(self) -> Frame | None:
        """The next frame; raises `SourceError` when the device or stream has gone."""
        capture = self._capture
        if capture is None:
            return None
        try:
            ok, image = capture.read()
        except cv2.error as error:  # An empty JPEG, or a buffer of another size than the camera says.
            raise SourceError(f"{self._name} gives what is no frame: {error.err}") from error
        now_ns = self._clock()
        if not ok or image is None:
            raise SourceError(f"{self._name} gives no more frames")
        frame = _frame(self._index, now_ns, image, self._leveller)
        self._index += 1
        return frame

    def close(self) -> None:
        """Release the device."""
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.release()


class VideoSource:
    """A video file."""

    def __init__(self, path: Path, options: SourceOptions, clock: Clock = time.monotonic_ns) -> None:
        """Open the file; raises `SourceError` when it is none that can be decoded."""
        self._path = path
        self._options = options
        self._clock = clock
        self._closed = threading.Event()
        self._capture: Any = None
        self._leveller = Leveller()
        self._index = 0
        self._start_ns = clock()
        self._last_ns = self._start_ns - 1
        self._open()

    def read(self) -> Frame | None:
        """The next frame; waits for its time when paced. Raises `SourceError` when the file breaks off."""
        if self._closed.is_set():
            return None
        ok, image = self._capture.read()
        if not ok or image is None:
            self._check_end()
            if not self._options.loop:
                return None
            self._start_ns = self._last_ns + self._interval_ns
            self._capture.release()
            self._open()
            ok, image = self._capture.read()
            if not ok or image is None:
                raise SourceError(f"video {self._path} cannot be read again")
        self._in_file += 1
        captured_ns = max(self._start_ns + self._timestamp_ns(), self._last_ns + 1)
        self._last_ns = captured_ns
        if self._options.paced:
            wait_ns = captured_ns - self._clock()
            if wait_ns > 0:
                self._closed.wait(wait_ns / 1e9)
        frame = _frame(self._index, captured_ns, image, self._leveller)
        self._index += 1
        return frame

    def close(self) -> None:
        """Close the file; a `read` that waits for its time gives its frame at once."""
        self._closed.set()
        self._capture.release()

    def _open(self) -> None:
        try:
            size = self._path.stat().st_size
        except OSError as error:
            raise SourceError(f"cannot read video {self._path}: {error.strerror}") from error
        capture = cv2.VideoCapture(str(self._path), cv2.CAP_FFMPEG) if size else None
        if capture is None or not capture.isOpened():
            why = "it is empty" if not size else "truncated, or of a format that this OpenCV does not know"
            raise SourceError(f"video {self._path} cannot be opened: {why}")
        self._capture = _keeping_depth(capture, f"video {self._path}")
        self._expected = max(0, int(min(capture.get(cv2.CAP_PROP_FRAME_COUNT), 1e9)))
        fps = capture.get(cv2.CAP_PROP_FPS)
        self._interval_ns = round(1e9 / (fps if 0.1 <= fps <= 1000 else _DEFAULT_FPS))
        self._in_file = 0

    def _timestamp_ns(self) -> int:
        """Of the frame just read, from the file's start; counted where the file has no timestamps."""
        ms = self._capture.get(cv2.CAP_PROP_POS_MSEC)
        counted = (self._in_file - 1) * self._interval_ns
        return round(ms * 1e6) if 0 < ms < 1e9 else counted

    def _check_end(self) -> None:
        if self._in_file == 0:
            raise SourceError(f"video {self._path} holds no frame that can be decoded: corrupt or truncated")
        missing = self._expected - self._in_file
        if missing > max(_MISSING_FRAMES, self._expected * _MISSING_SHARE):
            raise SourceError(
                f"video {self._path} breaks off after {self._in_file} of {self._expected} frames: truncated or corrupt"
            )


class PictureSource:
    """Pictures, one frame each."""

    def __init__(self, paths: list[Path], loop: bool, clock: Clock = time.monotonic_ns) -> None:
        """Show `paths` in order."""
        self._paths = paths
        self._loop = loop
        self._clock = clock
        self._leveller = Leveller()
        self._index = 0
        self._closed = False

    def read(self) -> Frame | None:
        """The next picture; raises `FrameError` for a bad one among others, and goes on with the one after it."""
        if self._closed or (self._index >= len(self._paths) and not self._loop):
            return None
        index, self._index = self._index, self._index + 1
        try:
            return _frame(index, self._clock(), read_picture(self._paths[index % len(self._paths)]), self._leveller)
        except SourceError as error:
            if len(self._paths) == 1:
                raise
            raise FrameError(str(error)) from error

    def close(self) -> None:
        """Show no more."""
        self._closed = True


class ReconnectingSource:
    """A live source that is opened again, with back-off, whenever it goes."""

    def __init__(
        self,
        opener: Callable[[], FrameSource],
        report: Callable[[str], None],
        wait: Callable[[float], bool] | None = None,
        is_patient: bool = True,
    ) -> None:
        """Keep a source open.

        Args:
            opener: Opens it; raises `SourceError`.
            report: Told why it went, each time, and "" when frames come again.
            wait: Waits so many seconds and says whether to stop; by default until `close`.
            is_patient: Whether it is waited for before its first frame; else the first `SourceError` is raised.
        """
        self._opener = opener
        self._report = report
        self._closed = threading.Event()
        self._wait = wait or self._closed.wait
        self._source: FrameSource | None = None
        self._index = 0
        self._wait_s = FIRST_WAIT_S
        self._waited_s = 0.0
        self._is_patient = is_patient
        self._is_lost = False
        self.reconnects = 0
        """Times it was opened again."""

    @property
    def gives(self) -> str:
        """What the source that is open said that it gives; "" where it does not say."""
        return str(getattr(self._source, "gives", ""))

    def read(self) -> Frame | None:
        """The next frame, however long that takes; None once closed.

        Raises:
            SourceError: It has given no frame yet, and waiting for it is of no use.
        """
        while not self._closed.is_set():
            try:
                if self._source is None:
                    self._source = self._opener()
                frame = self._source.read()
            except SourceError as error:
                if not self._index and not self._is_worth_waiting(error):
                    self.close()
                    raise
                if self._lost(str(error)):
                    return None
                continue
            if frame is None:
                if self._lost("the stream has ended"):
                    return None
                continue
            self._wait_s = FIRST_WAIT_S
            if self._is_lost:
                self._is_lost = False
                self._report("")
            index, self._index = self._index, self._index + 1
            return replace(frame, index=index)
        return None

    def close(self) -> None:
        """Stop, also in the middle of a back-off."""
        self._closed.set()
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _is_worth_waiting(self, error: SourceError) -> bool:
        """Whether a source that has never given a frame may still come; one that has, may always come back."""
        if not self._is_patient:
            return False
        return not isinstance(error, SourceRefused) or self._waited_s < error.patience_s

    def _lost(self, reason: str) -> bool:
        source, self._source = self._source, None
        if source is not None:
            source.close()
        if self._closed.is_set():
            return True
        self._is_lost = True
        self._report(f"{reason}; trying again in {self._wait_s:g} s")
        self._waited_s += self._wait_s
        stop = self._wait(self._wait_s)
        self._wait_s = min(self._wait_s * 2, MAX_WAIT_S)
        self.reconnects += 1
        return stop


def read_picture(path: Path) -> npt.NDArray[Any]:
    """Decode one picture.

    Returns:
        Shape (H, W, 3), BGR, uint8; of a thermal camera's measurements (H, W), uint16 or floats, as they are.

    Raises:
        SourceError: Missing, too large, truncated, or no picture.
    """
    data = picture_bytes(path)
    if data[:2] == b"\xff\xd8" and (kelvin := kelvin_of(data)) is not None:
        return kelvin
    # IMREAD_COLOR would make measurements of 16 bits flat, so those are asked for first.
    if _may_be_raw(data):
        image = decoded(data, path, cv2.IMREAD_UNCHANGED)
        if is_raw(image):
            return image
    return decoded(data, path, cv2.IMREAD_COLOR).astype(np.uint8, copy=False)


def _may_be_raw(data: bytes) -> bool:
    """Whether a file may hold 16 bits or floats of one channel: a TIFF, a PGM, a PNG whose header says so."""
    return (
        data[:4] in (b"II*\0", b"MM\0*") or data[:2] == b"P5" or (data[:4] == b"\x89PNG" and data[24:26] == b"\x10\0")
    )


def _pictures_in(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if not paths:
        raise SourceError(f"folder {folder} holds no pictures ({', '.join(IMAGE_SUFFIXES)})")
    return paths


def _frame(index: int, captured_ns: int, image: npt.NDArray[Any], leveller: Leveller) -> Frame:
    """A frame of what was decoded, levelled where it is measurements."""
    if not is_raw(image):
        return Frame(index, captured_ns, image)
    grey, level = leveller.level(image)
    return Frame(index, captured_ns, grey, level=level)


def _keeping_depth(capture: Any, name: str) -> Any:
    """A video whose pixels are 16 bits of grey gives them as they are; by itself OpenCV keeps their upper byte.

    Raises:
        SourceError: Its frames are larger than any camera's.
    """
    width, height = (capture.get(side) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    if width * height > MAX_VIDEO_PIXELS:
        capture.release()
        raise SourceError(
            f"{name} has frames of {width:.0f} x {height:.0f}; {MAX_VIDEO_PIXELS // 1_000_000} million pixels are read"
        )
    if int(capture.get(cv2.CAP_PROP_CODEC_PIXEL_FORMAT)) == _GRAY16:
        capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)
    return capture


def _open_stream(url: str) -> Any:
    limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_TIMEOUT_MS]
    capture = cv2.VideoCapture(url, cv2.CAP_FFMPEG, limits)
    if not capture.isOpened():
        raise _why_not(url)
    return _keeping_depth(capture, f"stream {redacted(url)}")


def _why_not(url: str) -> SourceError:
    """Why a stream could not be opened, by its server's own word."""
    name, answer = redacted(url), why_refused(url)
    if answer is None:
        return SourceError(f"stream {name} cannot be opened: no answer, refused, or not a video")
    if is_about_user(answer):
        given = "refuses this user and password" if "@" in url else "wants a user and a password"
        return SourceRefused(f"stream {name}: the server {given} (status {answer.status})")
    if answer.status == _NOT_FOUND:
        return SourceRefused(f"stream {name}: the server has no stream of this path (status 404)", NOT_FOUND_PATIENCE_S)
    said = "it answers, but not with a video" if answer.status < _REDIRECTS else f"the server says {answer.status}"
    return SourceError(f"stream {name} cannot be opened: {said}")


def _open_gstreamer(pipeline: str) -> FrameSource:
    if not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        raise SourceRefused(
            "this OpenCV has no GStreamer (the wheels from PyPI never have); use a device, a file or an rtsp:// or "
            "http:// URL, or an OpenCV that was built with GStreamer"
        )
    capture = cv2.VideoCapture(pipeline, cv2.CAP_GSTREAMER)
    if not capture.isOpened():
        raise SourceError(f"GStreamer pipeline {redacted(pipeline)!r} cannot be opened; it must end in appsink")
    return CaptureSource(capture, "the GStreamer pipeline")
