"""Streams over HTTP by a server on loopback: first frame, cut and return, and what no waiting mends."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmd.errors import EyeError
from swarmd.eye.ipc import Problem, SourceState
from swarmd.eye.mailbox import Mailbox
from swarmd_models.errors import SourceError, SourceRefused
from swarmd_models.sources import ReconnectingSource, open_source
from tests.support.eye_process import Watched
from tests.support.mjpeg_server import MjpegServer

ROOT = Path(__file__).parents[2]


def grey(number: int) -> np.ndarray:
    """A picture whose brightness is the frame's number, 8 levels a frame."""
    return np.full((96, 128, 3), 8 * number % 256, np.uint8)


def test_a_stream_gives_frames_is_cut_and_comes_back() -> None:
    with MjpegServer(grey) as server:
        told: list[str] = []
        source = ReconnectingSource(lambda: open_source(server.url), told.append, lambda seconds: False)
        first = source.read()
        assert first is not None
        assert first.image.shape == (96, 128, 3)
        # Cut: the connection ends in the middle, and nobody is there until the third attempt.
        server.is_open.clear()
        attempts = 0

        def wait(_: float) -> bool:
            nonlocal attempts
            attempts += 1
            if attempts == 3:
                server.is_open.set()
            return False

        source._wait = wait
        while not told or told[-1]:
            frame = source.read()
            assert frame is not None
        assert frame.image.shape == (96, 128, 3)
        assert len(told) == 4
        assert ["says 503" in text for text in told] == [False, True, True, False], told
        assert source.reconnects == 3
        source.close()


def test_a_camera_that_changes_its_size_goes_on() -> None:
    with MjpegServer(grey) as server:
        source = ReconnectingSource(lambda: open_source(server.url), lambda text: None, lambda seconds: False)
        assert source.read() is not None
        blue = np.zeros((48, 160, 3), np.uint8)
        blue[..., 0] = 255
        server.picture = lambda number: blue
        for _ in range(400):
            frame = source.read()
            assert frame is not None
            if frame.image[..., 0].mean() > 200 > 60 > frame.image[..., 2].mean():
                break
        # The decoder brings a stream to the size that it began with.
        assert frame.image.shape == (96, 128, 3)
        assert frame.image[..., 0].mean() > 200
        source.close()


def test_whoever_is_slow_gets_the_newest_frame() -> None:
    with MjpegServer(grey) as server:
        source = ReconnectingSource(lambda: open_source(server.url), lambda text: None, lambda seconds: False)
        mailbox, many = Mailbox(newest=True), threading.Semaphore(0)

        def capture() -> None:
            for _ in range(41):
                frame = source.read()
                if frame is None or not mailbox.put(frame):
                    return
                many.release()

        thread = threading.Thread(target=capture, daemon=True)
        thread.start()
        # The model is busy while all but the newest go by.
        for _ in range(41):
            assert many.acquire(timeout=60)
        newest = mailbox.take(60)
        assert newest is not None
        assert newest.index == 40
        assert mailbox.dropped == 40, "what lay between was counted"
        thread.join(60)
        mailbox.close()
        source.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://{}/stream", "wants a user and a password"),
        ("http://me:wrong@{}/stream", "refuses this user and password"),
        ("http://me:right@{}/elsewhere", "has no stream of this path"),
    ],
)
def test_what_no_waiting_mends_is_refused_without_the_password_in_it(url: str, sentence: str) -> None:
    with MjpegServer(grey, user="me:right") as server:
        with pytest.raises(SourceRefused, match=sentence) as caught:
            open_source(url.format(server.authority))
        assert "wrong" not in str(caught.value)
        assert "right" not in str(caught.value)
        good = open_source(f"http://me:right@{server.authority}/stream")
        assert good.read() is not None
        good.close()


def test_a_daemons_eye_ends_with_one_sentence_when_the_password_is_wrong() -> None:
    async def scenario(url: str) -> None:
        eye = Watched(url)
        with pytest.raises(EyeError, match="refuses this user and password"):
            await asyncio.wait_for(eye.supervisor.run(), 120)
        assert [p.fatal for p in eye.of(Problem)] == [True]

    with MjpegServer(grey, user="me:right") as server:
        asyncio.run(scenario(f"http://me:wrong@{server.authority}/stream"))


def test_a_source_that_is_lost_is_told_and_taken_back_when_it_returns() -> None:
    async def scenario(server: MjpegServer) -> None:
        async with Watched(server.url, max_frames=0) as eye:
            await eye.until(eye.frames, "a first frame")
            assert eye.supervisor.state == "running"
            assert not eye.of(SourceState)
            server.is_open.clear()
            await eye.until(lambda: eye.supervisor.state == "source_lost", "the loss")
            assert eye.of(SourceState)[0].problem
            before = eye.frames()
            server.is_open.set()
            await eye.until(lambda: eye.frames() > before and eye.supervisor.state == "running", "the return")
            assert eye.of(SourceState)[-1].problem == ""
            assert eye.supervisor.restarts == 0

    with MjpegServer(grey) as server:
        asyncio.run(scenario(server))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("camera:77", "/dev/video77 cannot be opened"),
        ("gst:videotestsrc ! appsink", "this OpenCV has no GStreamer"),
        ("rtsp://127.0.0.1:9/nothing", "cannot be opened: no answer"),
    ],
)
def test_detect_ends_where_a_source_cannot_be_opened(source: str, sentence: str) -> None:
    command = [sys.executable, "-m", "swarmd", "detect", "--source", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT, env=os.environ)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert sentence in done.stderr


def _attempts(error: Callable[[], Exception], given: int) -> ReconnectingSource:
    def opener() -> object:
        raise error()

    source = ReconnectingSource(opener, lambda text: None, lambda seconds: False)  # type: ignore[arg-type]
    source._index = given
    return source


def test_a_path_that_its_server_learns_of_late_is_tried_for_a_minute_and_no_longer() -> None:
    source = _attempts(lambda: SourceRefused("no such stream", 60.0), given=0)
    with pytest.raises(SourceError, match="no such stream"):
        source.read()
    # 0.5 + 1 + 2 + 4 + 8 + 16 + 30 s: the first sum over a minute.
    assert source.reconnects == 7
    with pytest.raises(SourceError):
        _attempts(lambda: SourceRefused("a wrong password"), given=0).read()


def test_a_stream_that_has_given_frames_is_waited_for_whatever_its_server_says() -> None:
    """A camera that starts again answers 404, and 401, before it is whole."""
    enough = threading.Event()
    source = _attempts(lambda: SourceRefused("a wrong password"), given=1)
    source._wait = lambda seconds: source.reconnects >= 50 or enough.is_set()
    assert source.read() is None
    assert source.reconnects >= 50
