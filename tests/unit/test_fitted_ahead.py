"""A frame that is preprocessed while the one before is inferred: the same answers in the same order."""

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from swarmd.eye.ipc import Configure
from swarmd.eye.mailbox import Mailbox
from swarmd.eye.process import EyeProcess
from swarmd_models import detector as detectors
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import FrameError
from swarmd_models.synthetic.scenes import SceneMaker, SceneOptions
from swarmd_models.types import Detection, Frame, Image


def opened() -> Detector:
    """With all the time that the second stage wants."""
    bundle = load_bundle("zoo:small-320")
    assert bundle.second is not None
    return Detector.open(replace(bundle, second=replace(bundle.second, budget_ms=0.0)), DetectorOptions())


@pytest.fixture
def detector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Detector]:
    """With two cores, and however little preprocessing takes."""
    monkeypatch.setattr(detectors, "CORES", 2)
    monkeypatch.setattr(detectors, "AHEAD_FROM_NS", 0)
    found = opened()
    yield found
    found.close()


def pictures() -> list[Image]:
    """Frames of the model's size with something in them, and larger ones, grey and in colour."""
    maker = SceneMaker(SceneOptions(fault_share=0.3), 18)
    small = [maker.scene(index).image for index in range(3)]
    large = [np.repeat(np.repeat(one, 2, axis=0), 3, axis=1) for one in small]
    return [*small, *large, np.stack([large[0]] * 3, axis=2)]


def answers(detector: Detector, image: Image) -> tuple[list[Detection], bytes, bytes]:
    """What it says, what the net saw, and what the net made of that."""
    found = detector.detect(image)
    return found, detector.seen()[0].tobytes(), detector.pooled().tobytes()


def test_whatever_was_fitted_ahead_every_frame_has_the_answer_that_it_has_alone(detector: Detector) -> None:
    images = pictures()
    alone = [answers(detector, image) for image in images]
    assert any(found for found, _, _ in alone)
    rng = random.Random(18)
    for _ in range(60):
        turn = rng.randrange(len(images))
        for ahead in rng.sample(range(len(images)), rng.randrange(3)):
            detector.fit_ahead(images[ahead])
        if rng.random() < 0.5:
            detector.fit_ahead(images[turn])
        assert answers(detector, images[turn]) == alone[turn]
    assert detector.ahead is not None
    assert detector.ahead.taken > 15


def test_a_frame_is_taken_once_and_only_as_the_object_that_was_fitted(detector: Detector) -> None:
    image = pictures()[0]
    detector.fit_ahead(image)
    detector.detect(image.copy())
    assert detector.ahead is not None
    assert detector.ahead.taken == 0
    detector.detect(image)
    detector.detect(image)
    assert detector.ahead.taken == 1


def test_what_the_net_saw_stays_while_the_next_frame_is_fitted(detector: Detector) -> None:
    """Thumbnails and the second stage cut out of it."""
    first, second = pictures()[:2]
    detector.detect(first)
    for _ in range(2):  # Preprocessed in its turn, then fitted ahead.
        canvas, _ = detector.seen()
        before = canvas.copy()
        detector.fit_ahead(second)
        assert np.array_equal(detector.seen()[0], before)
        assert np.array_equal(canvas, before)
        detector.detect(second)
        first, second = second, first


def test_a_frame_that_cannot_be_used_is_refused_when_its_turn_comes(detector: Detector) -> None:
    image = pictures()[0]
    detector.detect(image)
    bad = np.zeros((256, 320), np.float64)
    detector.fit_ahead(bad)  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="8-bit"):
        detector.detect(bad)  # type: ignore[arg-type]
    detector.fit_ahead(image)
    assert detector.detect(image) == detector.detect(image)


def test_with_one_core_or_little_to_do_nothing_is_fitted(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pictures()[0]
    detector.detect(image)
    monkeypatch.setattr(detectors, "CORES", 1)
    detector.fit_ahead(image)
    monkeypatch.setattr(detectors, "CORES", 2)
    monkeypatch.setattr(detectors, "AHEAD_FROM_NS", 60_000_000_000)
    detector.fit_ahead(image)
    assert detector.ahead is None


def test_two_threads_at_once_give_the_answers_of_one(detector: Detector) -> None:
    """The capturing one fits whatever comes, also the frame whose turn it is."""
    images = pictures()
    alone = [answers(detector, image) for image in images]
    is_over = threading.Event()

    def capture() -> None:
        rng = random.Random(4)
        while not is_over.is_set():
            detector.fit_ahead(rng.choice(images))

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        for turn in range(40):
            assert answers(detector, images[turn % len(images)]) == alone[turn % len(images)]
    finally:
        is_over.set()
        thread.join(60.0)
    assert not thread.is_alive()


def test_a_mailbox_holds_what_was_neither_taken_nor_replaced() -> None:
    mailbox = Mailbox(newest=True)
    one, two = (Frame(index, index, pictures()[0]) for index in range(2))
    assert not mailbox.holds(one)
    mailbox.put(one)
    assert mailbox.holds(one)
    mailbox.put(two)
    assert (mailbox.holds(one), mailbox.holds(two)) == (False, True)
    mailbox.take(1.0)
    assert not mailbox.holds(two)


class _Source:
    """Three frames, then no more."""

    def __init__(self) -> None:
        self.frames = [Frame(index, index, np.zeros((8, 8), np.uint8)) for index in range(3)]
        self._left = list(self.frames)

    def read(self) -> Frame | None:
        return self._left.pop(0) if self._left else None


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_eye_fits_what_waits_while_it_is_at_work_and_else_hands_it_over_as_it_is(is_busy: bool) -> None:
    eye = EyeProcess(cast("Any", None), Configure("sim://farm", "zoo:small-320"))
    source, fitted = _Source(), []
    eye._source = cast("Any", source)
    eye._eye = cast("Any", SimpleNamespace(detector=SimpleNamespace(fit_ahead=fitted.append)))
    eye._mailbox = Mailbox(newest=True)
    eye._busy_since_ns = int(is_busy)
    eye._capture()
    assert [id(image) for image in fitted] == [id(frame.image) for frame in source.frames if is_busy]
    assert eye._mailbox.take(1.0) is source.frames[-1]
