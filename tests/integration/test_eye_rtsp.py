"""RTSP by a real server, GStreamer's: first frame, newest under load, cut and return, passwords, HEVC, another size."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from swarmd.eye.ipc import SourceState
from swarmd.eye.mailbox import Mailbox
from swarmd_models.errors import SourceRefused
from swarmd_models.sources import ReconnectingSource, open_source
from swarmd_models.types import FrameSource
from tests.support.cut_proxy import CutProxy
from tests.support.eye_process import Watched
from tests.support.gst_camera import STEP, camera, missing, number_of

NEEDED = ("videoconvert", "jpegenc", "rtpjpegpay", "appsrc")
HEVC = ("x265enc", "h265parse", "rtph265pay")
NAMESPACES = ("Gst", "GstRtspServer")
SERVER = "rtsp_server.py"


@pytest.fixture(autouse=True)
def _needs_server() -> None:
    if missing(NEEDED, NAMESPACES):
        pytest.skip(missing(NEEDED, NAMESPACES))


@contextmanager
def serving(*user: str) -> Iterator[int]:
    """The port of a server."""
    with camera(SERVER, *user) as server:
        yield server.port


def patient(url: str) -> ReconnectingSource:
    """The stream, tried as often as a busy machine needs."""
    return ReconnectingSource(lambda: open_source(url), lambda text: None, lambda seconds: False)


def test_frames_come_in_order_from_the_first() -> None:
    with serving() as port:
        source = patient(f"rtsp://127.0.0.1:{port}/cam")
        numbers = []
        for _ in range(10):
            frame = source.read()
            assert frame is not None
            assert frame.image.shape == (96, 128, 3)
            numbers.append(number_of(frame.image))
        source.close()
    steps = [(b - a) % 32 for a, b in itertools.pairwise(numbers)]
    assert all(0 < step < 16 for step in steps), numbers


def _steps(source: FrameSource, many: int) -> list[int]:
    """From frame to frame, modulo 20: how far the grey of HEVC, which has no black and no white, went on."""
    numbers = []
    for _ in range(many):
        frame = source.read()
        assert frame is not None
        # Out of the range of video, 16 to 235, into which the camera's greys were put as they are.
        numbers.append(round((float(frame.image[:, :40].mean()) * 219 / 255 + 16 - 40) / STEP))
    return [(b - a) % 20 for a, b in itertools.pairwise(numbers)]


def test_hevc_comes_in_order() -> None:
    if missing(HEVC, NAMESPACES):
        pytest.skip(missing(HEVC, NAMESPACES))
    with serving() as port:
        source = patient(f"rtsp://127.0.0.1:{port}/hevc")
        steps = _steps(source, 45)
        assert all(0 < step < 10 for step in steps), steps
        source.close()


@pytest.mark.parametrize("codec", ["cam", "hevc"])
def test_a_camera_that_changes_its_size_goes_on(codec: str) -> None:
    """The stream is not lost; what lies in the picture's right half stays there, whole, in either size."""
    if codec == "hevc" and missing(HEVC, NAMESPACES):
        pytest.skip(missing(HEVC, NAMESPACES))
    told: list[str] = []
    with camera(SERVER) as server:
        url = f"rtsp://127.0.0.1:{server.port}/{codec}-changing"
        source = patient(url)
        first = source.read()
        assert first is not None
        assert first.image.shape == (96, 128, 3)
        source.close()
        source = ReconnectingSource(lambda: open_source(url), told.append, lambda seconds: False)
        assert source.read() is not None
        reconnects = source.reconnects
        server.say("160 120")
        marks = []
        # The new size has a mark, which the old one has not.
        while len(marks) < 10:
            frame = source.read()
            assert frame is not None
            height, width = frame.image.shape[:2]
            right = frame.image[height // 4 : height * 3 // 4, width * 5 // 8 : width * 7 // 8]
            if float(right.min()) > 225.0:
                marks.append((height, width))
                left = frame.image[:, : width * 3 // 8]
                assert float(left.max()) < 225.0, "the mark is where it was drawn"
        # JPEG over RTP tells each frame's size; a decoder of video brings all to the first.
        assert set(marks) == {(120, 160) if codec == "cam" else (96, 128)}
        assert source.reconnects == reconnects
        source.close()


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
