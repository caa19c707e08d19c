"""A pipeline of GStreamer beside the daemon, over TCP: what an OpenCV without GStreamer reads of it."""

import itertools
import threading

import pytest

from swarmd.eye.mailbox import Mailbox
from swarmd_models.sources import ReconnectingSource, is_live, open_source
from tests.support.exclusive import own_port
from tests.support.gst_camera import camera, missing, number_of

NEEDED = ("videoconvert", "jpegenc", "matroskamux", "appsrc", "tcpserversink")


def test_a_pipeline_gives_its_newest_frames_ends_and_comes_back_in_another_size() -> None:
    if missing(NEEDED):
        pytest.skip(missing(NEEDED))
    told: list[str] = []
    port = str(own_port())  # It is listened on twice; one of the kernel's may go to another between.
    with camera("gst_server.py", "128x96", port):
        url = f"tcp://127.0.0.1:{port}"
        assert is_live(url)
        source = ReconnectingSource(lambda: open_source(url), told.append, lambda seconds: False)
        numbers = []
        for _ in range(10):
            frame = source.read()
            assert frame is not None
            assert frame.image.shape == (96, 128, 3)
            numbers.append(number_of(frame.image))
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
    with camera("gst_server.py", "160x120", port):
        while True:
            frame = source.read()
            assert frame is not None
            if frame.image.shape == (120, 160, 3):
                break
            assert frame.image.shape == (96, 128, 3)
    assert told[0]
    assert told[-1] == "", "frames came again"
    source.close()
