"""Drift against a bundle's reference, on frames whose shift is real: light, contrast, blur, noise, another camera."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd_models import reference
from swarmd_models.bundle import ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import FrameSpec, frames_of
from swarmd_models.types import Image
from swarmd_models.watch import JUDGED_EVERY, LARGE_PSI, MIN_WINDOW, ModelWatch, features_of
from tests.support.bundles import seen

pytestmark = pytest.mark.slow


def _drawn(count: int, seed: int) -> list[Image]:
    bundle = load_bundle("zoo:small-320")
    return [scene.image for scene in frames_of(FrameSpec(prevalence=0.05, frames=count, seed=seed), bundle)]


@pytest.fixture(scope="module")
def known() -> Bundle:
    """The zoo's small-320 with a reference over drawn frames alone."""
    bundle = load_bundle("zoo:small-320")
    return dataclasses.replace(bundle, reference=reference.measure(bundle, _drawn(MIN_WINDOW, 1)))


@pytest.fixture(scope="module")
def flown() -> list[Image]:
    return _drawn(MIN_WINDOW + 10, 2)


def _watched(bundle: Bundle, images: Iterable[Image]) -> ModelWatch:
    detector = Detector.open(bundle, DetectorOptions())
    watch = ModelWatch(bundle.reference)
    for image in images:
        found = detector.detect(image)
        watch.note(found, features_of(image, detector.pooled()))
    detector.close()
    return watch


def test_frames_like_those_of_the_reference_are_no_drift(known: Bundle, flown: list[Image]) -> None:
    watch = _watched(known, flown)
    gauges = watch.gauges()
    assert gauges["drift_feature_psi"] < LARGE_PSI
    assert gauges["ood_share"] < 0.05
    assert watch.counters["frames_measured"] == len(flown)
    assert watch.counters["feature_drift_judged"] >= 1
    assert watch.counters["feature_drift_found"] == 0


@pytest.mark.parametrize(
    "shift",
    [
        lambda image: np.clip(image.astype(int) + 60, 0, 255),
        lambda image: image * 0.5 + 60,
        lambda image: cv2.GaussianBlur(image, (0, 0), 3),
        lambda image: np.clip(image + np.random.default_rng(1).normal(0, 12, image.shape), 0, 255),
    ],
    ids=["brighter", "half the contrast", "blurred", "noisy"],
)
def test_a_shifted_world_is_drift_and_is_counted(
    known: Bundle, flown: list[Image], shift: Callable[[Image], Image]
) -> None:
    watch = _watched(known, (np.ascontiguousarray(shift(image), dtype=np.uint8) for image in flown))
    gauges = watch.gauges()
    assert gauges["drift_feature_psi"] > LARGE_PSI
    assert gauges["drift_feature_ks"] > 0.3
    assert watch.counters["feature_drift_found"] == watch.counters["feature_drift_judged"] >= 1


def test_scores_that_fall_are_counted_as_drift(known: Bundle) -> None:
    counters = []
    for mean in (0.8, 0.5):
        rng = np.random.default_rng(4)
        spread = np.histogram(rng.normal(0.8, 0.05, 5000), bins=10, range=(0.0, 1.0))[0]
        watch = ModelWatch(dataclasses.replace(known.reference, score_histogram=tuple(spread)))
        for score in rng.normal(mean, 0.05, 4 * JUDGED_EVERY):
            watch.note([seen(20, 20, score=float(score))], None)
        counters.append((watch.counters["drift_judged"], watch.counters["drift_found"]))
    assert counters == [(4, 0), (4, 4)]


@pytest.mark.shared
def test_real_frames_of_another_camera_are_out_of_distribution(shared: Path) -> None:
    bundle = load_bundle("zoo:small-320")
    paths = sorted((shared / "data/uav_thermal").glob("*.jpg"))
    images = [cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) for path in paths]
    watch = _watched(bundle, (image for image in images * 2 if image is not None))
    assert watch.gauges()["ood_share"] > 0.9
    assert watch.counters["frames_ood"] > 0.9 * watch.counters["frames_measured"]


def test_counters_go_on_when_the_model_is_swapped(known: Bundle, flown: list[Image]) -> None:
    counters: Counter[str] = Counter()
    for _ in range(2):
        watch = ModelWatch(known.reference, counters)
        watch.note([], np.zeros(13))
    assert counters["frames_measured"] == 2
    assert watch.gauges()["ood_share"] == 1.0


def test_a_window_is_judged_every_so_often_only(known: Bundle) -> None:
    watch = ModelWatch(known.reference)
    middle = np.asarray(known.reference.feature_mean)
    for _ in range(MIN_WINDOW + 2 * JUDGED_EVERY):
        watch.note([], middle)
    assert watch.counters["feature_drift_judged"] == 3


def test_the_command_writes_the_reference_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ZOO / "small-320.toml").read_text()
    path = tmp_path / "small-320.toml"
    path.write_text(text)
    for file in load_bundle("zoo:small-320").files():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = load_bundle(path)
    assert reference.main(["--model", str(path), "--frames", "30"]) == 0
    assert "detections a frame" in capsys.readouterr().out
    after = load_bundle(path)
    assert len(after.reference.feature_deciles) == 9 * len(after.reference.feature_mean) > 0
    assert sum(after.reference.score_histogram) == pytest.approx(1.0, abs=1e-3)
    assert after.digest != before.digest  # It covers the description, and with it the reference.
    assert dataclasses.replace(after, reference=before.reference, digest=before.digest) == before
    assert reference.main(["--model", str(path), "--frames", "30"]) == 0
    assert load_bundle(path) == after, "a second run finds its own table"
    without = text[: text.index("[reference]")] + text[text.index("[provenance]") :]
    path.write_text(without)
    assert reference.main(["--model", str(path), "--frames", "30"]) == 0
    assert load_bundle(path).reference == after.reference


def test_what_cannot_be_a_reference_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArtefactError, match="at least 20"):
        reference.measure(load_bundle("zoo:small-320"), _drawn(3, 1))
    assert reference.main(["--model", str(ZOO / "small-320.tflite")]) == 1
    assert "is no bundle" in capsys.readouterr().err
    assert reference.main(["--model", "zoo:dragon"]) == 1
    assert "the zoo has no model 'dragon'" in capsys.readouterr().err
