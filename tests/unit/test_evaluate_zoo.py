"""The zoo as it ships: sizes, golden vectors, and the scores that its bundles claim."""

from dataclasses import replace
from pathlib import Path

import pytest

from swarmd_models.bundle import BLIND, DEFAULT_MODEL, ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import FrameSpec, choose_split, evaluate_crops, float_twin, frames_of, nominal_pixel_m
from swarmd_models.golden import check_golden
from swarmd_models.synthetic.thermal import FAULT_LABELS, Crops

BUNDLES = sorted(path.stem for path in ZOO.glob("*.toml") if load_bundle(path).decoder not in BLIND)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_of_the_zoo_computes_what_it_did_where_it_was_made(name: str) -> None:
    bundle = load_bundle(f"zoo:{name}")
    detector = Detector.open(bundle, DetectorOptions())
    assert check_golden(detector) == ""
    detector.close()
    assert bundle.labels == FAULT_LABELS
    assert "never" in bundle.provenance["about"]
    assert 0.02 < nominal_pixel_m(bundle) < 0.2
    if "narrow" in bundle.provenance:
        return  # Made of its twin's INT8 form.
    twin = float_twin(bundle)
    assert twin is not None
    assert twin.model_path.name.endswith(".float.tflite")


def test_every_file_of_the_zoo_is_small_and_belongs_to_a_bundle() -> None:
    for path in ZOO.iterdir():
        assert path.stat().st_size <= 5_000_000, path
        assert path.name == "README.md" or (ZOO / f"{path.name.split('.')[0]}.toml").is_file(), path
    assert load_bundle("zoo:small-320").model_path.stat().st_size <= 1_000_000
    assert DEFAULT_MODEL == "zoo:small-320"


def test_the_bundle_that_exits_early_differs_from_its_twin_in_how_many_boxes_are_looked_at_again() -> None:
    early, twin = load_bundle("zoo:small-320-early"), load_bundle("zoo:small-320")
    assert early.second is not None
    assert twin.second is not None
    assert early.model_path == twin.model_path
    assert early.decode == twin.decode
    same = {"candidate_threshold": 0.5, "budget_ms": 1.0}
    assert early.second == replace(twin.second, **same)
    assert early.curve is None, "the twin's curve was measured with every suspicion looked at again"
    asked = []
    for bundle in (early, twin):
        detector = Detector.open(bundle, DetectorOptions())
        for scene in frames_of(FrameSpec(prevalence=0.05, frames=6, seed=5), bundle):
            detector.detect(scene.image)
        assert detector.second is not None
        asked.append(detector.second.counts.examined + detector.second.counts.late)
        detector.close()
    assert 2 * asked[0] < asked[1]


@pytest.mark.slow
@pytest.mark.shared
def test_the_demos_model_scores_on_real_crops_what_its_bundle_says(shared: Path) -> None:
    bundle = load_bundle(DEFAULT_MODEL)
    crops = Crops.load(shared / "data/modules_ir/modules_ir_visible.npz")
    figures = evaluate_crops(bundle, crops, choose_split(crops, None))
    claimed = bundle.provenance["scores"]["crops"]
    assert figures["n"] == claimed["n"] == 2612
    assert figures["auroc"] == pytest.approx(claimed["auroc"], abs=0.002)
    assert figures["macro_f1"] == pytest.approx(claimed["macro_f1"], abs=0.01)
    assert abs(figures["int8_minus_float"]) <= 0.01
    assert figures["recall"]["cracking"] >= 0.95
