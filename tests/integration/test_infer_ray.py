"""A batch on a real Ray: the lines that the fleet would write, of the same bundle by the same command."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.cli import infer
from swarmd.cli.infer_batch import rows_of
from swarmd.errors import WorkerError
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.service import DETECT, Service
from tests.support.second_stage import write_second


def asked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "swarmd", "infer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def test_a_batch_on_ray_answers_what_the_bundle_does(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    (tmp_path / "bundle").mkdir()
    # Looks twice without a budget of time: equal on every machine.
    weights = {"first_weight": "first_weight = 1.0", "second_weight": "second_weight = 0.0"}
    model = write_second(tmp_path / "bundle", **weights, score_threshold="score_threshold = 0.1")
    bundle, folder = load_bundle(model), tmp_path / "flight"
    folder.mkdir()
    grey = np.load(ZOO / "small-320.golden.npz")["image"].squeeze()
    for at in range(11):
        cv2.imwrite(str(folder / f"{at:02}.png"), np.roll(grey, 8 * at, axis=1))
    (folder / "broken.png").write_bytes(b"no picture")

    done = asked(str(model), "--input", str(folder), "--ray", "local", "--out", str(tmp_path / "found.jsonl"))
    assert done.returncode == 1, done.stderr
    assert "11 frames answered" in done.stderr, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    found = {row["frame"]: row for row in rows}
    assert "error" in found.pop("broken.png")
    service = Service.open(bundle, DetectorOptions(), lambda text: None)
    seen = 0
    for at in range(11):
        run = service.steps(DETECT, {"image": np.roll(grey, 8 * at, axis=1)[..., None]})
        run.step()
        wanted, row = rows_of(run.result()), found[f"{at:02}.png"]
        assert (row["version"], row["lender"].partition(":")[0]) == (bundle.digest, "ray")
        assert row["detections"] == wanted
        seen += len(wanted)
    assert seen
    service.close()


def test_what_ray_cannot_do_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for model, source, sentence in (
        ("solar-small-320", str(tmp_path), "name the bundle"),
        ("zoo:tiny-224", "a.png", "--ray is for a batch"),
        ("zoo:nothing", str(tmp_path), "the zoo has no model"),
        ("zoo:tiny-224", str(tmp_path), r"swarmd\[ray\]"),
    ):
        parser = argparse.ArgumentParser()
        infer.add_parser(parser.add_subparsers())
        with pytest.raises(WorkerError, match=sentence):
            infer.run(parser.parse_args(["infer", model, "--input", source, "--ray", "local"]))
