"""The eye's messages and its mailbox."""

import threading
from typing import Any, cast

import numpy as np
import pytest

from swarmd.errors import EyeError
from swarmd.eye import link as eye_link
from swarmd.eye.ipc import (
    MAX_MESSAGE_BYTES,
    CellDone,
    Configure,
    FrameDone,
    Here,
    PoseUpdate,
    Ready,
    Splitter,
    Stats,
    Stop,
    SwapModel,
    decode_from_eye,
    decode_to_eye,
    encode,
)
from swarmd.eye.mailbox import Mailbox
from swarmd.eye.process import EyeProcess
from swarmd_models.geo.poses import make_pose
from swarmd_models.types import Frame, GroundPosition, TrackEvent

POSE = make_pose(1, -18.0, -70.0, 30.0, 10.0, -80.0, 0.0)
EVENT = TrackEvent("new", 7, 1, "cell", 0.5, (1.0, 2.0, 3.0, 4.0), 5, 2, GroundPosition(1.0, 2.0, (1.0, 0.0, 1.0)))
TO_EYE = [Configure("camera:0", "zoo:x"), PoseUpdate(POSE), SwapModel("a.toml"), Stop()]
FROM_EYE = [
    Ready("m", "1", "00", ("a", "b"), "litert", "r", 1.5),
    FrameDone(1, 2, 3, 4, 0.5, (EVENT,), {"infer": 5}),
    Stats({"a": 1}, {"b": 2.0}),
    CellDone("c01", 990),
    Here(POSE, -1, ""),
    Here(None, 500, "c01"),
]


@pytest.mark.parametrize("chunk", [1, 3, 10_000])
def test_messages_survive_any_cut_of_the_stream(chunk: int) -> None:
    stream = b"".join(encode(m) for m in FROM_EYE)
    splitter, got = Splitter(), []
    for at in range(0, len(stream), chunk):
        got += [decode_from_eye(body) for body in splitter.feed(stream[at : at + chunk])]
    assert got == FROM_EYE
    assert [decode_to_eye(Splitter().feed(encode(m))[0]) for m in TO_EYE] == TO_EYE


def test_a_length_beyond_the_limit_breaks_the_stream() -> None:
    with pytest.raises(EyeError, match="the stream is broken"):
        Splitter().feed((MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(EyeError, match="are allowed"):
        encode(SwapModel("x" * MAX_MESSAGE_BYTES))


def test_a_message_of_the_other_direction_is_refused() -> None:
    with pytest.raises(EyeError, match="no message"):
        decode_from_eye(encode(Stop())[4:])
    with pytest.raises(EyeError, match="no message"):
        decode_to_eye(encode(Stats({}, {}))[4:])


def _frame(index: int) -> Frame:
    return Frame(index, index, np.zeros((2, 2), np.uint8))


def test_the_newest_frame_wins_and_the_others_are_counted() -> None:
    mailbox = Mailbox(newest=True)
    for index in range(5):
        assert mailbox.put(_frame(index))
    taken = mailbox.take(0.0)
    assert taken is not None
    assert (taken.index, mailbox.dropped) == (4, 4)
    assert mailbox.take(0.0) is None


def test_lossless_waits_and_loses_nothing() -> None:
    mailbox, got = Mailbox(newest=False), []

    def capture() -> None:
        for index in range(50):
            mailbox.put(_frame(index))
        mailbox.close()

    thread = threading.Thread(target=capture)
    thread.start()
    while not mailbox.is_drained:
        frame = mailbox.take(1.0)
        if frame is not None:
            got.append(frame.index)
    thread.join()
    assert got == list(range(50))
    assert mailbox.dropped == 0


def test_a_closed_mailbox_gives_its_last_frame_and_takes_no_more() -> None:
    mailbox = Mailbox(newest=True)
    mailbox.put(_frame(1))
    mailbox.close()
    assert not mailbox.is_drained
    assert mailbox.take(0.0) is not None
    assert mailbox.is_drained
    assert not mailbox.put(_frame(2))


@pytest.mark.parametrize(("is_stopping", "left"), [(False, [5]), (True, [])])
def test_an_eye_whose_thread_has_ended_on_what_nobody_foresaw_ends(
    is_stopping: bool, left: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the thread that captures it would say that it runs, and see nothing for ever."""
    ended: list[int] = []
    monkeypatch.setattr(eye_link, "leave", ended.append)
    eye = EyeProcess(cast("Any", None), Configure("sim://farm", "zoo:small-320"))
    before = set(threading.enumerate())

    class Source:
        def read(self) -> Frame:
            raise ValueError("a frame of another world")

    eye._source = cast("Any", Source())
    if is_stopping:
        monkeypatch.setattr(Source, "read", lambda self: eye._stop.set() or int("x"))
    eye._start(eye._capture)
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)
    assert ended == left
    assert ("a frame of another world" in capfd.readouterr().err) is not is_stopping
