"""The judge that rejects: what the model was not made for counts for nothing, and what it was made for counts."""

from dataclasses import replace

import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.bundle_rules import Reference
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import FrameSpec, frames_of
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.strange import REASONS, StrangeJudge
from swarmd_models.types import Detection, Frame, Image

BUNDLE = load_bundle("zoo:tiny-224")


@pytest.fixture(scope="module")
def frames() -> list[Image]:
    return [scene.image for scene in frames_of(FrameSpec(prevalence=0.1, frames=12, seed=31), BUNDLE)]


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector.open(BUNDLE, DetectorOptions())


def reason_of(detector: Detector, image: Image, reference: Reference = BUNDLE.reference) -> str:
    found = detector.detect(image)
    return StrangeJudge(reference).judge(image, detector, found)[1]


def test_frames_like_those_of_the_reference_count(detector: Detector, frames: list[Image]) -> None:
    judge = StrangeJudge(BUNDLE.reference)
    for image in frames:
        found = detector.detect(image)
        assert judge.judge(image, detector, found) == (found, "")
    assert sum(judge.counts.values()) == 0


def test_each_reason_has_its_frame(detector: Detector, frames: list[Image]) -> None:
    rng = np.random.default_rng(1)
    shape = frames[0].shape
    noise = rng.normal(128.0, 1.5, shape).astype(np.uint8)
    loud = np.clip(rng.normal(128.0, 40.0, shape), 0, 255).astype(np.uint8)
    blocks = np.kron(rng.choice(np.array([0, 255], np.uint8), (24, 28)), np.ones((8, 8), np.uint8))
    assert reason_of(detector, noise) == "covered"
    assert reason_of(detector, blocks) == "strange"
    assert reason_of(detector, loud) in ("strange", "detail")
    lenient = replace(BUNDLE.reference, feature_mean=(), feature_std=(), feature_deciles=())
    assert reason_of(detector, loud, lenient) == "detail"
    assert reason_of(detector, loud, Reference()) == "", "without a reference only a covered lens is known"
    assert reason_of(detector, noise, Reference()) == "covered"


def test_a_pattern_within_a_box_is_no_finding(detector: Detector, frames: list[Image]) -> None:
    image = frames[0].copy()
    cells = np.random.default_rng(2).choice(np.array([60, 190], np.uint8), (11, 20))
    image[60:82, 80:120] = np.kron(cells, np.ones((2, 2), np.uint8))
    detector.detect(image)
    honest = Detection(0, "hot-spot", 0.99, (150.0, 100.0, 190.0, 122.0))
    pattern = Detection(0, "hot-spot", 0.99, (80.0, 60.0, 120.0, 82.0))
    judge = StrangeJudge(BUNDLE.reference)
    kept, reason = judge.judge(image, detector, [pattern, honest])
    assert (kept, reason) == ([honest], "")
    assert judge.counts == {"patch": 1}


def test_boxes_are_looked_at_where_the_net_saw_them(detector: Detector) -> None:
    """In a frame of another shape: the pattern lies in the letterboxed picture, not at the frame's pixels."""
    scene = np.full((800, 600), 120, np.uint8)
    scene[::7] = 90
    scene[400:480, 300:380] = np.random.default_rng(2).choice(np.array([0, 255], np.uint8), (80, 80))
    detector.detect(scene)
    judge = StrangeJudge(replace(BUNDLE.reference, feature_mean=(), feature_std=(), detail=(0.0, 1e3, 30.0)))
    there = Detection(0, "x", 0.9, (310.0, 410.0, 370.0, 470.0))
    elsewhere = Detection(0, "x", 0.9, (80.0, 100.0, 140.0, 160.0))
    assert judge.judge(scene, detector, [there, elsewhere]) == ([elsewhere], "")


def test_an_eye_that_rejects_makes_no_tracks_of_what_it_rejects(frames: list[Image]) -> None:
    eye = Eye.open(BUNDLE, EyeOptions(reject=True, min_hits=1))
    strange = np.full_like(frames[0], 99)
    result = eye.see(Frame(0, 0, strange))
    assert (result.rejected, list(result.detections), list(result.events)) == ("covered", [], [])
    assert eye.strange is not None
    assert eye.strange.counts["covered"] == 1
    judge = eye.strange
    eye.replace_detector(Detector.open(BUNDLE, DetectorOptions()))
    assert eye.see(Frame(1, 10**9, strange)).rejected == "covered"
    assert eye.strange is not judge
    assert eye.strange.counts["covered"] == 2, "another model's judge counts on"
    assert eye.see(Frame(2, 2 * 10**9, frames[0])).rejected == ""
    plain = Eye.open(BUNDLE, EyeOptions(min_hits=1))
    assert plain.see(Frame(0, 0, strange)).rejected == ""
    assert plain.strange is None


def test_reasons_are_those_that_counters_have() -> None:
    assert REASONS == ("covered", "strange", "detail", "patch")
    assert all(
        len(load_bundle(f"zoo:{name}").reference.detail) == 3 for name in ("small-320", "tiny-224", "medium-640")
    )
