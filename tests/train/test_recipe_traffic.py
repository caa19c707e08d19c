"""The recipes of traffic: three sizes with five classes, and a bundle from nothing by the short profile."""

from pathlib import Path

import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.golden import check_golden
from swarmd_recipes.__main__ import main
from swarmd_recipes.traffic import RECIPES, data_sha256
from swarmd_recipes.traffic_scenes import LABELS, TrafficOptions
from swarmd_recipes.train import load_recipe

pytestmark = pytest.mark.timeout(600)


def test_three_sizes_see_the_same_classes_of_the_same_frames() -> None:
    recipes = [load_recipe(name) for name in RECIPES]
    assert [one.scene.width for one in recipes] == [192, 288, 384]
    assert {one.net.classes for one in recipes} == {len(LABELS)}
    assert {one.seed for one in recipes} == {15}
    few = TrafficOptions(width=96, height=64, crossings=2)
    assert data_sha256(few, 15) == data_sha256(few, 15) != data_sha256(few, 16)


def test_the_short_profile_makes_a_bundle_that_says_what_it_was_made_of(tmp_path: Path) -> None:
    work, out = str(tmp_path / "work"), tmp_path / "zoo"
    assert main(["traffic-192", "--profile", "short", "--work", work, "--out", str(out)]) == 0
    bundle = load_bundle(str(out / "traffic-192.toml"))
    assert bundle.labels == LABELS
    detector = Detector.open(bundle, DetectorOptions())
    assert check_golden(detector) == ""
    detector.close()
    said = bundle.provenance
    assert said["recipe"]["seed"] == 15
    assert said["sqnr_db"]["cls"] > 15.0
    assert 0.0 <= said["scores"]["map_50"] <= 1.0
    assert len(said["data_sha256"]) == 64
    assert sum(path.stat().st_size for path in out.iterdir()) < 5_000_000
    for path in out.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
