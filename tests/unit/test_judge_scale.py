"""A judge sees a thumbnail as large as it was trained for: what leaves the eye keeps its worth."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from swarmd.brain.eyelink import EyeLink
from swarmd.brain.judgelink import JudgeLink
from swarmd.eye.ipc import Crop
from swarmd.eye.thumbs import ThumbMaker, jpeg_of
from swarmd.worker import looking
from swarmd.worker.words import Look, Looked
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.scale import as_trained, frame_pixel_m, trained_pixel_m
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.types import Detection, EyeResult, Frame, TrackEvent
from swarmd_protocols.thumbs.form import name_of
from tests.property.test_judging_laws import MODEL, Loop, change, stated

SMALL, MEDIUM = load_bundle("zoo:small-320"), load_bundle("zoo:medium-640")


def drawn(large: float) -> Iterator[tuple[Scene, int, np.ndarray, tuple[float, ...]]]:
    """Faulty modules of drawn frames, as a camera gives them whose pixels are `large` times small-320's."""
    options = SceneOptions(width=320, height=256, pixel_m=trained_pixel_m(SMALL), fault_share=0.1)
    for index in range(16):
        scene = SceneMaker(options, 5).scene(index)
        size = round(320 * large), round(256 * large)
        image = np.asarray(cv2.resize(scene.image, size, interpolation=cv2.INTER_LINEAR))
        for place, box in enumerate(scene.boxes):
            x1, y1, x2, y2 = (float(side) * large for side in box)
            if scene.label_index[place] >= 0 and x1 > 4 and y1 > 4 and x2 < size[0] - 4 and y2 < size[1] - 4:
                yield scene, place, image, (x1, y1, x2, y2)


class Judge:
    """The judge's answers without a server, and what it was shown."""

    def __init__(self) -> None:
        self.detector = Detector.open(MEDIUM, DetectorOptions())
        self.shown: list[np.ndarray] = []
        self.beside: list[Detection] = []

    def infer(self, address: str, model: str, image: np.ndarray, wish: object) -> tuple[dict[str, Any], dict[str, Any]]:
        assert (address, model) == ("here", "solar-medium-640.detect")
        self.shown.append(image)
        found = [*self.detector.detect(image[..., 0]), *self.beside]
        outputs = {
            "scores": np.array([one.score for one in found], np.float32),
            "boxes": np.array([one.box for one in found], np.float32).reshape(-1, 4),
        }
        return {"model_version": MEDIUM.digest, "lender": "", "parameters": {"took_us": 1}}, outputs


def asked(crop: Crop) -> Look:
    return Look(1, "zoo:medium-640", crop.jpeg, 1000, pixel_m=crop.pixel_m, place=crop.place)


def cropped(image: np.ndarray, box: tuple[float, ...], track_id: int = 1) -> Crop:
    """What leaves the eye of a small-320."""
    height, width = image.shape
    event = TrackEvent("new", track_id, 0, "cell", 0.9, box, 0, 3, None)  # type: ignore[arg-type]
    result = EyeResult(0, 0, [], [event])
    (crop,) = ThumbMaker().crops(Frame(0, 0, image, None), result, frame_pixel_m(SMALL, width, height))
    return crop


@pytest.mark.parametrize("large", [1.0, 2.0])
def test_a_judge_finds_in_thumbnails_what_it_would_find_in_frames(
    large: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn faults through the thumbnail's maker and the worker's question; blown up, hardly one is seen."""
    judge = Judge()
    monkeypatch.setattr(looking.asking, "infer", judge.infer)
    found = blown_up = count = 0
    for _, place, image, box in drawn(large):
        crop = cropped(image, box, place + 1)
        said = looking.look(asked(crop), "here")
        assert said.score is not None, said.reason
        assert judge.shown[-1].shape == (512, 640, 1)
        found += said.score > 0
        blown_up += (looking.look(Look(2, "zoo:medium-640", crop.jpeg, 1000), "here").score or 0) > 0
        count += 1
    judge.detector.close()
    assert count >= 10
    assert found >= 0.75 * count, f"{found} of {count}"
    assert blown_up < 0.4 * found


def test_a_thing_is_as_large_as_in_a_frame_of_the_models_own_scale() -> None:
    """A square of 40 pixels in a frame twice as fine as small-320's is one of 20 in the picture for medium-640."""
    picture = np.full((66, 88, 1), 90, np.uint8)
    picture[13:53, 24:64] = 200
    pixel_m = frame_pixel_m(SMALL, 640, 512)
    assert pixel_m == pytest.approx(trained_pixel_m(SMALL) / 2)
    shown, middle = as_trained(picture, pixel_m, MEDIUM)
    assert shown.shape == (512, 640, 1)
    assert middle == pytest.approx((320 - 44 / 6, 256 - 33 / 6, 320 + 44 / 6, 256 + 33 / 6), abs=1)
    assert math.sqrt((shown > 145).sum()) == pytest.approx(20 * trained_pixel_m(SMALL) / trained_pixel_m(MEDIUM), abs=1)
    assert (shown[:200] == 90).all()
    assert int(np.argwhere(shown[..., 0] > 145).mean()) == pytest.approx((320 + 256) / 2, abs=2)


@pytest.mark.parametrize("shape", [(8, 8, 1), (144, 192, 3), (144, 192), (9, 192, 3)])
@pytest.mark.parametrize("pixel_m", [1e-4, 0.045, 900.0])
def test_no_scale_makes_a_picture_larger_than_the_input(shape: tuple[int, ...], pixel_m: float) -> None:
    shown, _ = as_trained(np.zeros(shape, np.uint8), pixel_m, MEDIUM)
    assert shown.shape == (512, 640, *shape[2:])


def test_without_a_scale_the_picture_stays_as_it_is() -> None:
    picture = np.zeros((66, 88, 1), np.uint8)
    silent = replace(MEDIUM, provenance={})
    for shown, middle in (as_trained(picture, 0.0, MEDIUM), as_trained(picture, 0.045, silent)):
        assert shown is picture
        assert middle is None
    assert frame_pixel_m(silent, 640, 512) == 0.0
    for odd in ({"recipe": 3}, {"recipe": {"scene": []}}, {"recipe": {"scene": {"pixel_m": "0.04"}}}):
        assert trained_pixel_m(replace(MEDIUM, provenance=odd)) == 0.0


def test_what_a_judge_sees_beside_the_thing_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are cut off at the picture's edge, and look like faults there."""
    judge = Judge()
    monkeypatch.setattr(looking.asking, "infer", judge.infer)
    jpeg = jpeg_of(np.full((66, 88), 90, np.uint8))
    scores = []
    for at in ((300.0, 240.0, 312.0, 260.0), (312.0, 250.0, 328.0, 262.0)):
        judge.beside = [Detection(0, "cell", 0.99, at)]
        crop = Crop(1, "cell", jpeg, 0.0225, (0.5, 0.5))
        scores.append(looking.look(asked(crop), "here").score)
    judge.detector.close()
    assert scores == [0.0, pytest.approx(0.99)]


AT_BORDERS = [
    (0.0, 100.0, 40.0, 130.0),  # At 0.23 and 0.50 of its picture.
    (8.0, 100.0, 48.0, 130.0),  # At 0.32, and touching no border.
    (600.0, 440.0, 640.0, 480.0),
    (300.0, -15.0, 340.0, 30.0),  # As a track goes on that leaves the frame.
    (300.0, 200.0, 340.0, 230.0),
]


class Sees:
    """A judge that sees one thing: what is bright, or something between it and the picture's farther side."""

    def __init__(self) -> None:
        self.is_beside = self.is_blind = False

    def infer(self, address: str, model: str, image: np.ndarray, wish: object) -> tuple[dict[str, Any], dict[str, Any]]:
        y, x = np.argwhere(image[..., 0] > 170).mean(axis=0)
        if self.is_beside:
            x += math.copysign(16.0, 320 - x)
        boxes = [] if self.is_blind else [(x - 4, y - 4, x + 4, y + 4)]
        outputs = {"scores": np.full(len(boxes), 0.99), "boxes": np.array(boxes)}
        return {"model_version": MEDIUM.digest, "lender": "", "parameters": {"took_us": 1}}, outputs


@pytest.mark.parametrize("box", AT_BORDERS)
def test_a_thing_at_the_frames_border_is_heard_where_it_lies(
    box: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its picture is of the frame, so it is not in the picture's middle."""
    image = np.full((480, 640), 90, np.uint8)
    image[max(0, int(box[1])) : int(box[3]), max(0, int(box[0])) : int(box[2])] = 220
    judge, crop = Sees(), cropped(image, box)
    monkeypatch.setattr(looking.asking, "infer", judge.infer)
    assert looking.look(asked(crop), "here").score == pytest.approx(0.99)
    judge.is_beside = True
    beside = looking.look(asked(crop), "here")
    assert (beside.score, beside.is_unclear) == (0.0, False)
    # The same of a picture of which nobody knows any more where the thing lies in it.
    judge.is_beside, old = False, msgspec.structs.replace(crop, place=None)
    said = looking.look(asked(old), "here")
    if crop.place is not None and max(abs(share - 0.5) for share in crop.place) < 1 / 6:
        assert said.score == pytest.approx(0.99)
    else:
        assert (said.score, said.is_unclear, said.digest) == (None, True, MEDIUM.digest)
    judge.is_blind = True
    said = looking.look(asked(old), "here")
    assert (said.score, said.is_unclear) == (0.0, False)


def test_what_may_be_a_neighbour_is_an_answer_that_says_nothing_and_needs_no_rest() -> None:
    loop = Loop()
    stated(loop)
    question = loop.ask()
    assert question is not None
    link: Any = JudgeLink.__new__(JudgeLink)
    link.judging, link._worker = loop.rules, SimpleNamespace(digest_of=lambda model: MODEL)
    link._settings, link._told = SimpleNamespace(deadline_s=1e9, model="any"), ""
    link._cost = {"own_us": 0, "borrowed_us": 0, "borrowed": 0}
    link.on_looked(Looked(question.number, None, MODEL, took_us=5, reason="beside", is_unclear=True))
    assert (loop.rules.counts["unclear"], loop.rules.counts["unanswered"], link.counts()["own_us"]) == (1, 0, 5)
    loop.rules.hear(change(2))
    assert loop.ask() is not None


def test_the_brain_knows_the_scale_of_each_picture_and_takes_the_newest_for_those_of_an_earlier_life() -> None:
    link: Any = EyeLink.__new__(EyeLink)
    link._driver, link._scales = SimpleNamespace(command=lambda name, request: None), {}
    assert link.pixel_m_of(b"any") == 0.0
    for number in range(1_100):
        assert link._shelve(Crop(1, "cell", b"%d" % number, float(number + 1), (0.25, number / 2_000)))
    assert len(link._scales) == 1_024
    assert link.pixel_m_of(name_of(b"500")) == 501.0
    assert link.pixel_m_of(name_of(b"3")) == link.pixel_m_of(b"of an earlier life") == 1_100.0
    assert link.place_in(name_of(b"500")) == (0.25, 0.25)
    assert link.place_in(name_of(b"3")) is link.place_in(b"of an earlier life") is None
