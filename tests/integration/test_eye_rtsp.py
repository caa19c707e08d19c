"""RTSP by a real server, GStreamer's: first frame, newest under load, cut and return, wrong password."""

import asyncio
import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from swarmd.eye.ipc import SourceState
from swarmd.eye.mailbox import Mailbox
from swarmd_models.errors import SourceRefused
from swarmd_models.sources import ReconnectingSource, open_source
from swarmd_models.types import FrameSource
from tests.support.cut_proxy import CutProxy
from tests.support.eye_process import Watched

SERVER = Path(__file__).parents[1] / "support" / "rtsp_server.py"
PYTHON = "/usr/bin/python3"
"""Debian's, for which its bindings of GStreamer are built."""
NEEDED = ("videoconvert", "jpegenc", "rtpjpegpay", "appsrc")
STEP = 8
"""Grey levels from frame to frame (`rtsp_server.py`)."""


@cache
def _missing() -> str:
    look = (
        "import gi; gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0')\n"
        "from gi.repository import Gst, GstRtspServer; Gst.init(None)\n"
        f"assert all(Gst.ElementFactory.find(name) for name in {NEEDED!r})"
    )
    try:
        done = subprocess.run([PYTHON, "-c", look], capture_output=True, check=False, timeout=120)
    except OSError:
        return "no Python of the system's here"
    return "" if done.returncode == 0 else "no GStreamer RTSP server here (gir1.2-gst-rtsp-server-1.0, plugins-good)"


@pytest.fixture(autouse=True)
def _needs_server() -> None:
    if _missing():
        pytest.skip(_missing())


@contextmanager
def serving(user: str = "") -> Iterator[int]:
    """The port of a server."""
    command = [PYTHON, str(SERVER), *([user] if user else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(60)


def patient(url: str) -> ReconnectingSource:
    """The stream, tried as often as a busy machine needs."""
    return ReconnectingSource(lambda: open_source(url), lambda text: None, lambda seconds: False)


def _number(image: object) -> int:
    """The frame's number, modulo 32, out of its grey."""
    return round(float(image.mean()) / STEP) % (256 // STEP)  # type: ignore[attr-defined]


def test_frames_come_in_order_from_the_first() -> None:
    with serving() as port:
        source = patient(f"rtsp://127.0.0.1:{port}/cam")
        numbers = []
        for _ in range(10):
            frame = source.read()
            assert frame is not None
            assert frame.image.shape == (96, 128, 3)
            numbers.append(_number(frame.image))
        source.close()
    steps = [(b - a) % 32 for a, b in itertools.pairwise(numbers)]
    assert all(0 < step < 16 for step in steps), numbers


def test_whoever_is_slow_gets_the_newest_frame() -> None:
    with serving() as port:
        source = patient(f"rtsp://127.0.0.1:{port}/cam")
        mailbox, enough, many = Mailbox(newest=True), threading.Event(), threading.Semaphore(0)

        def capture(source: FrameSource) -> None:
            while not enough.is_set():
                frame = source.read()
                if frame is None or not mailbox.put(frame):
                    return
                many.release()

        thread = threading.Thread(target=capture, args=(source,), daemon=True)
        thread.start()
        first = mailbox.take(60)
        assert first is not None
        # The model is busy while forty frames come in.
        for _ in range(40):
            assert many.acquire(timeout=60)
        newest = mailbox.take(60)
        assert newest is not None
        assert newest.index >= 39
        assert mailbox.dropped >= 37, "what lay between was counted"
        enough.set()
        thread.join(60)
        mailbox.close()
        source.close()


def test_a_cut_stream_comes_back() -> None:
    with serving() as port, CutProxy(port) as proxy:
        told: list[str] = []

        def wait(_: float) -> bool:
            if len(told) == 2:
                proxy.mend()
            return False

        source = ReconnectingSource(lambda: open_source(f"rtsp://127.0.0.1:{proxy.port}/cam"), told.append, wait)
        assert source.read() is not None
        proxy.cut()
        while not told or told[-1]:
            frame = source.read()
            assert frame is not None
        assert told[-1] == ""
        assert len(told) >= 3
        assert source.reconnects >= 2
        source.close()


def test_the_eyes_state_follows_the_camera() -> None:
    async def scenario(proxy: CutProxy) -> None:
        async with Watched(f"rtsp://127.0.0.1:{proxy.port}/cam") as eye:
            await eye.until(eye.frames, "a first frame")
            proxy.cut()
            await eye.until(lambda: eye.supervisor.state == "source_lost", "the loss")
            before = eye.frames()
            proxy.mend()
            await eye.until(lambda: eye.frames() > before and eye.supervisor.state == "running", "the return")
            assert eye.of(SourceState)[-1].problem == ""
            assert eye.supervisor.restarts == 0

    with serving() as port, CutProxy(port) as proxy:
        asyncio.run(scenario(proxy))


def test_a_wrong_password_and_a_wrong_path_are_said_by_name() -> None:
    with serving("me:right") as port:
        good = patient(f"rtsp://me:right@127.0.0.1:{port}/cam")
        assert good.read() is not None
        good.close()
        for url, sentence in (
            (f"rtsp://127.0.0.1:{port}/cam", "wants a user and a password"),
            (f"rtsp://me:wrong@127.0.0.1:{port}/cam", "refuses this user and password"),
        ):
            with pytest.raises(SourceRefused, match=sentence) as caught:
                open_source(url)
            assert "wrong" not in str(caught.value)
    with serving() as port, pytest.raises(SourceRefused, match="has no stream of this path"):
        open_source(f"rtsp://127.0.0.1:{port}/elsewhere")
