"""How often a model may cry wolf is the user's: thresholds by class along the bundle's measured curve."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models.bundle import ZOO, at_rate, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.operating_point import Curve
from tests.support.bundles import write_bundle

MODELS = ("tiny-224", "small-320")
LABELS = tuple(f"class{i}" for i in range(11))


@pytest.mark.parametrize("model", MODELS)
def test_the_zoos_own_thresholds_are_a_point_of_its_curve(model: str) -> None:
    bundle = load_bundle(f"zoo:{model}")
    assert bundle.curve is not None
    chosen = at_rate(bundle, 0.6)
    for label in bundle.labels:
        # A threshold that would rise with the rate is held up: never below the bundle's own.
        assert chosen.threshold_of(label) >= bundle.threshold_of(label) - 1e-5, label
    assert sum(abs(chosen.threshold_of(one) - bundle.threshold_of(one)) < 1e-5 for one in bundle.labels) >= 6


@settings(max_examples=100, deadline=None)
@given(st.floats(0.1, 30.0), st.floats(0.1, 30.0))
def test_more_false_alarms_never_mean_a_higher_threshold(one: float, other: float) -> None:
    bundle = load_bundle("zoo:small-320")
    assert bundle.curve is not None
    few, many = (bundle.curve.at(rate) for rate in sorted((one, other)))
    assert all(few[label] >= many[label] - 1e-12 for label in bundle.labels)


def test_between_two_points_logits_lie_on_a_line_over_the_rates_logarithm() -> None:
    curve = Curve((1.0, 100.0), {"a": (0.9, 0.1)})
    assert curve.at(1.0) == {"a": 0.9}
    assert curve.at(100.0) == {"a": 0.1}
    assert curve.at(10.0)["a"] == pytest.approx(0.5)
    assert curve.at(10.0**0.5)["a"] == pytest.approx(1 / (1 + math.exp(-math.log(9) / 2)))
    for beyond in (0.99, 100.1):
        with pytest.raises(ArtefactError, match="the bundle's curve runs from 1 to 100"):
            curve.at(beyond)


def test_a_looser_point_says_more_of_the_same_frame() -> None:
    bundle = replace(load_bundle("zoo:small-320"))
    assert bundle.golden is not None
    with np.load(bundle.golden.path) as arrays:
        image = arrays["image"]
    counts = []
    for rate in (0.1, 1.0, 30.0):
        said: list[str] = []
        options = DetectorOptions(false_per_1000=rate)
        detector = Detector.open(replace(bundle, second=replace(bundle.second, budget_ms=0.0)), options, said.append)
        counts.append(len(detector.detect(image)))
        assert not said
    assert counts == sorted(counts)


def test_a_bundle_without_a_curve_keeps_its_thresholds_aloud(tmp_path: Path) -> None:
    bundle, said = load_bundle(write_bundle(tmp_path)), list[str]()
    detector = Detector.open(bundle, DetectorOptions(false_per_1000=3.0), said.append)
    assert detector.bundle.threshold_of("class3") == 0.4
    assert said == [f"model {bundle.name} keeps its own thresholds (3 false alarms in 1,000: bundle {bundle.name} has "
                    "no [curve])"]  # fmt: skip


def _curve(rates: str, values: str) -> str:
    rows = "\n".join(f'"{label}" = {values}' for label in LABELS)
    return f"[curve]\nfalse_per_1000 = {rates}\n[curve.thresholds]\n{rows}"


def test_a_curve_of_a_bundle_with_one_stage_is_of_its_scores(tmp_path: Path) -> None:
    bundle = load_bundle(write_bundle(tmp_path, extra=_curve("[1, 10]", "[0.9, 0.2]")))
    detector = Detector.open(bundle, DetectorOptions(false_per_1000=10.0))
    assert {detector.bundle.threshold_of(label) for label in LABELS} == {0.2}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (_curve("[1, 10]", "[0.2, 0.9]"), "curve.thresholds of 'class0' must not rise with the rate"),
        (_curve("[10, 1]", "[0.9, 0.2]"), "curve.false_per_1000 must ascend"),
        (_curve("[1, 10]", "[0.9]"), "has 1 numbers for 'class0'; 2 are needed"),
        ("[curve]\nfalse_per_1000 = [1]", "has 0 numbers for 'class0'; 1 are needed"),
        (_curve("[1]", "[0.9]") + '\n"dragon" = [0.5]', "dragon"),
    ],
)
def test_a_curve_that_does_not_hold_is_refused(tmp_path: Path, table: str, sentence: str) -> None:
    with pytest.raises(ArtefactError) as caught:
        load_bundle(write_bundle(tmp_path, extra=table))
    assert sentence in str(caught.value)


def test_every_model_of_the_zoo_brings_its_curve() -> None:
    assert {path.stem for path in ZOO.glob("*.toml") if "[curve]" in path.read_text()} == set(MODELS)
