"""A judge sees a thumbnail as large as it was trained for: what leaves the eye keeps its worth."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd.brain.eyelink import EyeLink
from swarmd.eye.ipc import Crop
from swarmd.eye.thumbs import ThumbMaker, jpeg_of
from swarmd.worker import looking
from swarmd.worker.words import Look
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.scale import as_trained, frame_pixel_m, trained_pixel_m
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.types import Detection, EyeResult, Frame, TrackEvent
from swarmd_protocols.thumbs.form import name_of

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
            beside, above = x2 - x1, y2 - y1  # So much of the frame is around it: the picture has it in its middle.
            is_whole = x1 > beside and y1 > above and x2 < size[0] - beside and y2 < size[1] - above
            if scene.label_index[place] >= 0 and is_whole:
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


@pytest.mark.parametrize("large", [1.0, 2.0])
def test_a_judge_finds_in_thumbnails_what_it_would_find_in_frames(
    large: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn faults through the thumbnail's maker and the worker's question; blown up, hardly one is seen."""
    judge = Judge()
    monkeypatch.setattr(looking.asking, "infer", judge.infer)
    found = blown_up = count = 0
    for _, place, image, box in drawn(large):
        height, width = image.shape
        event = TrackEvent("new", place + 1, 0, "cell", 0.9, box, 0, 3, None)  # type: ignore[arg-type]
        result = EyeResult(0, 0, [], [event])
        (crop,) = ThumbMaker().crops(Frame(0, 0, image, None), result, frame_pixel_m(SMALL, width, height))
        said = looking.look(Look(1, "zoo:medium-640", crop.jpeg, 1000, pixel_m=crop.pixel_m), "here")
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
        scores.append(looking.look(Look(1, "zoo:medium-640", jpeg, 1000, pixel_m=0.0225), "here").score)
    judge.detector.close()
    assert scores == [0.0, pytest.approx(0.99)]


def test_the_brain_knows_the_scale_of_each_picture_and_takes_the_newest_for_those_of_an_earlier_life() -> None:
    link: Any = EyeLink.__new__(EyeLink)
    link._driver, link._scales = SimpleNamespace(command=lambda name, request: None), {}
    assert link.pixel_m_of(b"any") == 0.0
    for number in range(1_100):
        assert link._shelve(Crop(1, "cell", b"%d" % number, float(number + 1)))
    assert len(link._scales) == 1_024
    assert link.pixel_m_of(name_of(b"500")) == 501.0
    assert link.pixel_m_of(name_of(b"3")) == link.pixel_m_of(b"of an earlier life") == 1_100.0
