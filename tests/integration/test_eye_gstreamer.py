"""A pipeline of GStreamer beside the daemon, over TCP: what an OpenCV without GStreamer reads of it."""

import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from swarmd.eye.mailbox import Mailbox
from swarmd_models.sources import ReconnectingSource, is_live, open_source
from tests.support.exclusive import own_port

SERVER = Path(__file__).parents[1] / "support" / "gst_server.py"
PYTHON = "/usr/bin/python3"
"""Debian's, for which its bindings of GStreamer are built."""
NEEDED = ("videoconvert", "jpegenc", "matroskamux", "appsrc", "tcpserversink")
STEP = 8
"""Grey levels from frame to frame (`gst_server.py`)."""


@cache
def _missing() -> str:
    look = (
        "import gi; gi.require_version('Gst', '1.0')\nfrom gi.repository import Gst; Gst.init(None)\n"
        f"assert all(Gst.ElementFactory.find(name) for name in {NEEDED!r})"
    )
    try:
        done = subprocess.run([PYTHON, "-c", look], capture_output=True, check=False, timeout=120)
    except OSError:
        return "no Python of the system's here"
    return "" if done.returncode == 0 else "no GStreamer here (python3-gi, gstreamer1.0-plugins-base, -good)"


@contextmanager
def piping(size: str, port: int) -> Iterator[int]:
    """The port of a pipeline."""
    command = [PYTHON, str(SERVER), size, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(60)


def _number(image: object) -> int:
    """The frame's number, modulo 32, out of its grey."""
    return round(float(image.mean()) / STEP) % (256 // STEP)  # type: ignore[attr-defined]


def test_a_pipeline_gives_its_newest_frames_ends_and_comes_back_in_another_size() -> None:
    if _missing():
        pytest.skip(_missing())
    told: list[str] = []
    with piping(
        "128x96", own_port()
    ) as port:  # It is listened on twice; one of the kernel's may go to another between.
        url = f"tcp://127.0.0.1:{port}"
        assert is_live(url)
        source = ReconnectingSource(lambda: open_source(url), told.append, lambda seconds: False)
        numbers = []
        for _ in range(10):
            frame = source.read()
            assert frame is not None
            assert frame.image.shape == (96, 128, 3)
            numbers.append(_number(frame.image))
        assert all(0 < (b - a) % 32 < 16 for a, b in itertools.pairwise(numbers)), numbers
        # The model is busy while twenty frames come in.
        mailbox, many = Mailbox(newest=True), threading.Semaphore(0)

        def capture() -> None:
            for _ in range(20):
                taken = source.read()
                assert taken is not None
                mailbox.put(taken)
                many.release()

        thread = threading.Thread(target=capture, daemon=True)
        thread.start()
        for _ in range(20):
            assert many.acquire(timeout=60)
        thread.join(60)
        newest = mailbox.take(60)
        assert newest is not None
        assert newest.index == 29
        assert mailbox.dropped == 19
        mailbox.close()
    # The pipeline has ended; what is still on its way is read, and then it is told.
    with piping("160x120", port):
        while True:
            frame = source.read()
            assert frame is not None
            if frame.image.shape == (120, 160, 3):
                break
            assert frame.image.shape == (96, 128, 3)
    assert told[0]
    assert told[-1] == "", "frames came again"
    source.close()
