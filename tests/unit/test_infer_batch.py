"""Batches of `swarmd infer` that do not come to their end: nothing is lost in silence, and Ctrl-C ends them."""

import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from swarmd.cli import infer_batch as module
from swarmd.worker.asking import Wish

FRAMES = 100
ANSWER = ({"lender": "", "model_version": "1"}, {"labels": [], "scores": [], "boxes": []})


def frames() -> Iterator[tuple[str, Any]]:
    return ((str(number), np.zeros((1, 1), np.uint8)) for number in range(FRAMES))


def test_rows_that_a_full_disk_does_not_take_are_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread ended by itself with what it could not write, and the batch said that all was answered."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "infer", lambda *_: ANSWER)
    with pytest.raises(OSError, match="No space"):
        module._Batch("", "m.detect", Wish(), Full()).run(frames())


def test_a_frame_that_breaks_the_reader_is_no_end_of_the_video(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[tuple[str, Any]]:
        yield from list(frames())[:3]
        raise RuntimeError("a damaged frame")

    monkeypatch.setattr(module, "infer", lambda *_: ANSWER)
    with pytest.raises(RuntimeError, match="damaged"):
        module._Batch("", "m.detect", Wish(), io.StringIO()).run(broken())


def test_ctrl_c_ends_it_and_nothing_is_written_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on until the last frame was answered, and wrote into a file that was closed."""
    answered, asked, out = threading.Event(), threading.Event(), io.StringIO()
    started: list[threading.Thread] = []

    def infer(*_: object) -> Any:
        asked.set()
        assert answered.wait(60)
        return ANSWER

    class Thread(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()

        def join(self, timeout: float | None = None) -> None:
            if timeout is None:
                assert asked.wait(60)
                raise KeyboardInterrupt
            super().join(timeout)

    monkeypatch.setattr(module, "infer", infer)
    monkeypatch.setattr(threading, "Thread", Thread)
    with pytest.raises(KeyboardInterrupt):
        module._Batch("", "m.detect", Wish(), out).run(frames())
    answered.set()
    for thread in started:
        thread.join(60)
    assert out.getvalue() == ""
    assert all(thread.daemon for thread in started)
