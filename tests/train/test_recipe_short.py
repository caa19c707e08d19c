"""`make model`, short profile, from nothing: a bundle that loads, and the scores that were recorded for it.

Takes a minute or two, in the environment of training (`make test-train`).
"""

from pathlib import Path

import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.golden import check_golden
from swarmd_recipes.__main__ import main

pytestmark = pytest.mark.timeout(900)

RECORDED_AP = 0.46
"""Of 38 drawn faults after 60 steps and six small chunks, seed 20; processors sum in different orders."""


def test_the_short_profile_makes_a_bundle_from_nothing_and_is_not_repeated_when_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["small-320", "--profile", "short", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "zoo")]
    assert main(arguments) == 0
    bundle = load_bundle(str(tmp_path / "zoo" / "small-320.toml"))
    detector = Detector.open(bundle, DetectorOptions())
    assert check_golden(detector) == ""
    detector.close()
    assert bundle.second is not None
    scores = bundle.provenance["scores"]
    assert scores["frames_8.5"]["ap"] == pytest.approx(RECORDED_AP, abs=0.2)
    assert scores["control"]["false_per_1000_normal"] <= 2.0
    assert bundle.provenance["sqnr_db"]["cls"] > 25.0
    for path in (tmp_path / "zoo").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
    capsys.readouterr()
    digest = bundle.digest
    assert main(arguments) == 0
    assert "exporting" not in capsys.readouterr().err
    assert load_bundle(str(tmp_path / "zoo" / "small-320.toml")).digest == digest
