"""TrackEval's own code judges the tracker, and `trackers.eval` says the same of the same answers."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JUDGES = ROOT / ".venv-judges" / "bin" / "python"
FLOORS = {"drawn, sways False": (0.80, 0.70), "drawn, sways True": (0.60, 0.56), "modules": (0.90, 0.71)}
"""IDF1 and HOTA of our tracker, some hundredths below what TrackEval gave: 0.833, 0.738; 0.635, 0.594; 0.926, 0.741."""


@pytest.mark.skipif(not JUDGES.exists(), reason="TrackEval is not installed (make setup-extras)")
def test_trackeval_itself_judges_the_tracker_and_both_judges_agree() -> None:
    """Drawn clips, whose truth is exact; in an environment of its own, since TrackEval wants an OpenCV with windows."""
    command = [str(JUDGES), "-W", "ignore", "-m", "tests.bench.bench_tracking", "--agree"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'models'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["apart"] < 1e-9
    rows = {(row["clip"], row["answer"]): row for row in said["clips"]}
    for clip, (idf1, hota) in FLOORS.items():
        assert rows[clip, "ours"]["idf1"] >= idf1
        assert rows[clip, "ours"]["hota"] >= hota
        assert rows[clip, "right"]["hota"] == pytest.approx(1.0), "the truth itself"
        assert rows[clip, "nothing"]["hota"] == 0.0
        assert rows[clip, "renamed"]["assa"] < 0.05, "found, and never known again"
        assert rows[clip, "renamed"]["deta"] == pytest.approx(1.0)
