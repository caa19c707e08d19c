"""How often a model may cry wolf is the user's: thresholds by class along the bundle's measured curve."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.cli.main import main
from swarmd_models.bundle import ZOO, at_rate, load_bundle
from swarmd_models.choose import measure_zoo
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.operating_point import Curve
from swarmd_recipes import settings as recipe
from tests.support.bundles import write_bundle

MODELS = ("nano-160", "tiny-224", "small-320", "medium-640")
LABELS = tuple(f"class{i}" for i in range(11))


@pytest.mark.parametrize("model", MODELS)
def test_the_zoos_curves_have_one_threshold_for_all_classes(model: str) -> None:
    """What seemed cheap for a class on the crops held back was not on others: docs/performance/models.md."""
    bundle = load_bundle(f"zoo:{model}")
    assert bundle.curve is not None
    assert bundle.curve.rates == (0.1, 0.3, 0.6, 1.0, 3.0, 10.0, 30.0)
    assert len(set(bundle.curve.thresholds.values())) == 1
    assert {at_rate(bundle, 3.0).threshold_of(label) for label in bundle.labels} == {bundle.curve.thresholds["cell"][4]}


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
        with pytest.raises(ArtefactError, match="the model's curve runs from 1 to 100"):
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


def test_a_bundle_without_a_curve_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Other thresholds than those that were asked for would be a silent wrong answer for as long as the eye runs."""
    bundle = load_bundle(write_bundle(tmp_path))
    with pytest.raises(ArtefactError, match=r"has no \[curve\]; 0 takes the thresholds that it has"):
        Detector.open(bundle, DetectorOptions(false_per_1000=3.0))
    with pytest.raises(ArtefactError, match=r"the model's curve runs from 0\.1 to 30"):
        Detector.open(load_bundle("zoo:small-320"), DetectorOptions(false_per_1000=31.0))


def test_a_zoo_of_ones_own_is_chosen_from_without_what_has_no_curve(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    rungs, problems = measure_zoo(DetectorOptions(false_per_1000=3.0), tmp_path)
    assert not rungs
    assert len(problems) == 1
    assert "has no [curve]" in problems[0]


def test_show_prints_the_thresholds_and_the_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_bundle(tmp_path, extra=_curve("[1, 10]", "[0.9, 0.2]"))
    assert main(["bundle", "show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["digest"] == load_bundle(path).digest
    assert shown["thresholds"]["class3"] == 0.4
    assert shown["curve"]["thresholds"]["class3"] == [0.9, 0.2]
    assert main(["bundle", "show", str(path), "--false-per-1000", "10"]) == 0
    text = capsys.readouterr().out
    assert "10 in 1,000" in text
    assert "class3   0.20000  0.90000     0.20000" in text
    assert main(["bundle", "show", str(path), "--false-per-1000", "11"]) == 1
    assert "runs from 1 to 10" in capsys.readouterr().err


def test_show_prints_no_threshold_for_each_word_of_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "show", "zoo:events-text"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 2
    assert f"a vocabulary of {len(load_bundle('zoo:events-text').labels)} pieces" in shown
    assert main(["bundle", "show", "zoo:events-text", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["thresholds"] == {}


def test_one_crop_with_a_wrong_label_does_not_set_a_curves_tail() -> None:
    """665 crops cannot show one in a thousand; one of them that scores like the surest fault says little of others."""
    rng = np.random.default_rng(3)
    logits = np.log(0.1) + rng.exponential(1.0, 1000)  # The highest tenth of 10,000 modules, slope 1.
    wrong = np.concatenate([logits, np.full(16, 7.5)])
    for rate in (0.3, 1.0, 3.0):
        clean, noisy = (
            recipe.pooled_threshold(recipe.Said(1 / (1 + np.exp(-said)), np.zeros(len(said), int), 10_000), rate)
            for said in (logits, wrong)
        )
        assert math.log(clean / (1 - clean)) == pytest.approx(np.log(0.1) + math.log(100 / rate), abs=0.4)
        assert abs(math.log(noisy / (1 - noisy)) - math.log(clean / (1 - clean))) < 0.4
    quiet = recipe.Said(np.full(9, 0.9), np.zeros(9, int), 10_000)
    assert recipe.pooled_threshold(quiet, 1.0) == 0.0


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
