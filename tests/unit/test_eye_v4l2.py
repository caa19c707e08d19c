"""What is asked of a camera and what it says: against a driver that answers as V4L2's structures say.

No machine of this project has a camera. The driver here lists what uvcvideo lists of a webcam; that our numbers and
structures are the kernel's is held against its own header, where a compiler is.
"""

import errno
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import cv2
import pytest

from swarmd_models import v4l2
from swarmd_models.errors import SourceError, SourceRefused
from swarmd_models.sources import is_live, open_source
from swarmd_models.v4l2 import Mode, Wish, listed, offers, parse_wish, settle

YUYV, MJPG = (int.from_bytes(name, "little") for name in (b"YUYV", b"MJPG"))
SIZES = {YUYV: [(640, 480), (1280, 720)], MJPG: [(640, 480), (1280, 720), (1920, 1080)]}
RATES = {(YUYV, (640, 480)): [30, 15], (YUYV, (1280, 720)): [10, 5]}


def driver(request: int, data: bytearray) -> None:
    """A webcam's answers, by the layout of linux/videodev2.h."""
    (index,) = struct.unpack_from("=I", data, 0)
    codes = list(SIZES)
    if request == v4l2.ENUM_FMT and index < len(codes):
        struct.pack_into("=32sI", data, 12, b"a format", codes[index])
        return
    (code,) = struct.unpack_from("=I", data, 4)
    if request == v4l2.ENUM_FRAMESIZES and index < len(SIZES[code]):
        struct.pack_into("=3I", data, 8, 1, *SIZES[code][index])
        return
    if request == v4l2.ENUM_FRAMEINTERVALS:
        rates = RATES.get((code, struct.unpack_from("=2I", data, 8)), [30])
        if index < len(rates):
            struct.pack_into("=3I", data, 16, 1, 1, rates[index])
            return
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def ranging(request: int, data: bytearray) -> None:
    """A camera of a board: sizes and rates in ranges."""
    (index,) = struct.unpack_from("=I", data, 0)
    if index:
        raise OSError(errno.EINVAL, "")
    if request == v4l2.ENUM_FMT:
        struct.pack_into("=32sI", data, 12, b"", int.from_bytes(b"RG10", "little"))
    elif request == v4l2.ENUM_FRAMESIZES:
        struct.pack_into("=7I", data, 8, 3, 32, 4056, 2, 16, 3040, 2)
    else:
        struct.pack_into("=7I", data, 16, 2, 1, 120, 2, 1, 1, 1)


class Opened:
    """An opened capture that has modes of its own, as OpenCV's has: what it cannot do it does not do."""

    def __init__(self, **gives: float) -> None:
        """Give these, whatever is asked."""
        self.asked: dict[int, float] = {}
        self._gives = {getattr(cv2, f"CAP_PROP_{name}"): value for name, value in gives.items()}

    def set(self, what: int, value: float) -> bool:
        self.asked[what] = value
        return True

    def get(self, what: int) -> float:
        return self._gives.get(what, 0.0)


def test_all_modes_of_a_webcam_are_told() -> None:
    modes = offers(driver)
    assert len(modes) == 5
    assert str(modes[0]) == "YUYV 640x480 at 30, 15"
    assert str(modes[-1]) == "MJPG 1920x1080 at 30"
    assert listed(modes * 4).endswith("; and 8 more")


def test_ranges_are_told_and_asked_within() -> None:
    (mode,) = offers(ranging)
    assert str(mode) == "RG10 32x16 to 4056x3040 at 0.5 to 120"
    assert mode.has(Wish(1920, 1080, 60.0))
    assert not mode.has(Wish(4057, 1080))
    assert not mode.has(Wish(1920, 1080, 240.0))


@pytest.mark.parametrize(
    ("wish", "is_offered"),
    [
        (Wish(), True),
        (Wish(1280, 720), True),
        (Wish(1280, 720, 30.0), True),
        (Wish(1280, 720, 30.0, "YUYV"), False),
        (Wish(1280, 720, 10.1, "YUYV"), True),
        (Wish(1920, 1080, 0.0, "MJPG"), True),
        (Wish(1024, 768), False),
        (Wish(0, 0, 60.0), False),
        (Wish(0, 0, 0.0, "Y16"), False),
    ],
)
def test_what_is_asked_is_held_against_what_is_offered(wish: Wish, is_offered: bool) -> None:
    assert any(mode.has(wish) for mode in offers(driver)) == is_offered


def test_a_driver_that_lists_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(request: int, data: bytearray) -> None:
        if request == v4l2.ENUM_FMT:
            struct.pack_into("=32sI", data, 12, b"", 0xFFFFFFFF)
        elif request == v4l2.ENUM_FRAMESIZES:
            struct.pack_into("=3I", data, 8, 1, 0xFFFFFFFF, 0)
        else:
            struct.pack_into("=3I", data, 16, 1, 0, 0)

    for name, least in (("MAX_FORMATS", 4), ("MAX_SIZES", 5), ("MAX_RATES", 6)):
        assert getattr(v4l2, name) <= 256
        monkeypatch.setattr(v4l2, name, least)
    modes = offers(endless)
    assert len(modes) == 20
    assert modes[0] == Mode("????", (0xFFFFFFFF, 0), (0xFFFFFFFF, 0))


def test_a_capture_says_what_it_gives_and_may_not_give_another_size() -> None:
    mjpg = float(MJPG)
    opened = Opened(FRAME_WIDTH=1280, FRAME_HEIGHT=720, FPS=30, FOURCC=mjpg)
    assert settle(opened, Wish(1280, 720, 30.0, "MJPG"), "camera /dev/video0") == (
        "camera /dev/video0 gives 1280x720, MJPG, 30 fps"
    )
    assert opened.asked[cv2.CAP_PROP_FRAME_WIDTH] == 1280
    assert opened.asked[cv2.CAP_PROP_FOURCC] == MJPG
    assert cv2.CAP_PROP_CONVERT_RGB not in opened.asked
    assert settle(opened, Wish(fps=60.0), "it") == "it gives 1280x720, MJPG, 30 fps (asked for 60)"
    for wish in (Wish(1920, 1080), Wish(format="YUYV")):
        with pytest.raises(SourceRefused, match="and gives 1280x720, MJPG, 30 fps"):
            settle(opened, wish, "it")


def test_measurements_are_asked_for_as_they_are() -> None:
    opened = Opened(FRAME_WIDTH=160, FRAME_HEIGHT=120, FOURCC=float(int.from_bytes(b"Y16 ", "little")))
    assert settle(opened, Wish(format="Y16"), "it") == "it gives 160x120, Y16"
    assert opened.asked[cv2.CAP_PROP_CONVERT_RGB] == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size=1280", "write it as 1280x720"),
        ("size=0x720", "write it as 1280x720"),
        ("size=99999x720", "write it as 1280x720"),
        ("fps=nan", "frames a second"),
        ("fps=0", "frames a second"),
        ("fps=2000", "frames a second"),
        ("format=MJPEGS", "a FourCC"),
        ("gain=3", "known are size, fps and format"),
        ("fps=3&fps=4", "each once"),
        ("720p", "write it as size="),
        ("&".join("fps=3" for _ in range(99)), "write it as size="),
    ],
)
def test_a_wish_that_is_none_is_refused_by_name(text: str, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        parse_wish(text)


def test_a_camera_with_a_wish_is_one_and_its_absence_is_told() -> None:
    for spec in ("camera:77?size=640x480", "/dev/video77?fps=30"):
        assert is_live(spec)
        with pytest.raises(SourceError, match="camera /dev/video77 cannot be opened: No such file"):
            open_source(spec)


def test_what_a_camera_lacks_is_said_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, over a file in place of the device and the driver above in place of the kernel."""
    real = os.open

    def opened(path: Any, *how: Any) -> int:
        return real("/dev/null" if path == "/dev/video3" else path, *how)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(v4l2, "_ioctl", lambda device, request, data: driver(request, data))
    with pytest.raises(
        SourceRefused, match=r"does not offer 1024x768; it offers YUYV 640x480 at 30, 15; YUYV 1280x720"
    ):
        open_source("camera:3?size=1024x768")


def test_numbers_and_structures_are_the_kernels(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not Path("/usr/include/linux/videodev2.h").exists():
        pytest.skip("no C compiler with the kernel's headers here")
    (tmp_path / "a.c").write_text("""#include <stdio.h>
#include <stddef.h>
#include <linux/videodev2.h>
int main(void) {
  printf("%lu %lu %lu\\n", (unsigned long)VIDIOC_ENUM_FMT, (unsigned long)VIDIOC_ENUM_FRAMESIZES,
         (unsigned long)VIDIOC_ENUM_FRAMEINTERVALS);
  printf("%zu %zu %zu %zu %zu\\n", offsetof(struct v4l2_fmtdesc, pixelformat), offsetof(struct v4l2_frmsizeenum, type),
         offsetof(struct v4l2_frmsizeenum, discrete), offsetof(struct v4l2_frmivalenum, type),
         offsetof(struct v4l2_frmivalenum, discrete));
}
""")
    subprocess.run([compiler, "-o", tmp_path / "a", tmp_path / "a.c"], check=True, timeout=120)
    told = subprocess.run([tmp_path / "a"], check=True, capture_output=True, text=True, timeout=60).stdout
    requests, places = (tuple(int(word) for word in line.split()) for line in told.splitlines())
    assert requests == (v4l2.ENUM_FMT, v4l2.ENUM_FRAMESIZES, v4l2.ENUM_FRAMEINTERVALS)
    assert places == (44, 8, 12, 16, 20)
