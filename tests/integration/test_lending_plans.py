"""Two daemons: a program asks by what a model is able to, has answers kept, and has better models asked in doubt."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.paths import ROOT

SMALL = "zoo:tiny-224"
API = ("--no-eye", "--inference", "127.0.0.1:0")


def ask(daemon: Daemon, *arguments: str) -> dict[str, Any]:
    """What `swarmd infer --json` says, or {"error": …}."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "swarmd", "infer", *arguments, "--json", "--deadline-ms", "60000"),
            *("--control", str(daemon.control)),
        ],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {"error": done.stderr}


def counts(daemon: Daemon) -> dict[str, int]:
    return dict(daemon.status()["lending"]["counts"])


def test_abilities_kept_answers_and_plans_between_real_daemons(start: Start, tmp_path: Path) -> None:
    model = unhurried(tmp_path / "model")
    small, large = load_bundle(SMALL), load_bundle(model)
    plan = tmp_path / "plan.toml"
    plan.write_text(f'[[plan]]\nown = "{SMALL}"\n[[plan.step]]\nmodel = "{model}"\nlow = 0.0\nhigh = 1.0\n')
    for name, served, grade, lending in (
        ("a", model, 0.72, "lend = true"),
        ("b", SMALL, 0.4, f'borrow = true\nplan = "{plan}"'),
    ):
        (tmp_path / f"{name}.toml").write_text(
            f'[inference]\nmodels = ["{served}"]\nabilities = ["{served} detect/pv-fault {grade}"]\n'
            f"[lending]\n{lending}\n"
        )
    a = start("a", *API, "--config", str(tmp_path / "a.toml")).up()
    b = start("b", *API, "--config", str(tmp_path / "b.toml"), join=a.status()["address"]).up()

    def offers() -> Any:
        return (b.status().get("lending") or {}).get("lenders", {}).get("a", [])

    wait_for(lambda: large.digest in offers(), "a's offer", seen=b.log)
    wait_for(lambda: (b.status()["inference"] or {}).get("models"), "b's own model", seen=b.log)
    assert b.status()["inference"]["problem"] == ""
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    picture = str(tmp_path / "picture.png")
    assert cv2.imwrite(picture, grey)
    detector = Detector.open(large, DetectorOptions())
    theirs = sorted(one.label for one in detector.detect(grey))
    detector.close()

    able = ("able:detect/pv-fault", "--input", picture)
    here = ask(b, *able)
    assert (here["version"], here.get("lender", "")) == (small.digest, ""), "what is able here answers here"
    refused = ask(b, *able, "--grade-min", "0.6")
    assert "no bundle of grade 0.6 or more is able to 'detect/pv-fault' here (404)" in refused["error"], refused
    there = ask(b, *able, "--grade-min", "0.6", "--borrow")
    assert (there["version"], there["lender"]) == (large.digest, "a")
    assert sorted(row["label"] for row in there["detections"]) == theirs
    nobody = ask(b, *able, "--grade-min", "0.9", "--borrow")
    assert "(503)" in nobody["error"]

    kept = ("solar-small-320", "--version", large.digest, "--input", picture, "--borrow", "--keep-s", "60")
    first = ask(b, *kept)
    asked = counts(b)["borrow_requests"]
    again = ask(b, *kept)
    assert (first.get("kept", ""), again["kept"], again["lender"]) == ("", "yes", "a")
    assert again["detections"] == first["detections"]
    # The metadata is asked for each time; the inference was not.
    assert (counts(b)["borrow_requests"], counts(b)["borrow_kept_hit"]) == (asked + 1, 1)
    assert "kept" not in ask(b, *kept[:-2]), "only where the program says so"

    unsure = ("solar-tiny-224", "--input", picture, "--unsure")
    found = ask(b, *unsure)
    assert (found["parts"], found["lender"], found["version"]) == (f"{small.digest},{large.digest}", "a", small.digest)
    assert sorted(row["label"] for row in found["detections"]) == theirs, "in doubt about all of it: the larger's word"

    a.kill()
    alone = ask(b, *unsure)
    assert (alone["parts"], alone.get("lender", "")) == (small.digest, ""), "asking is never worse than not asking"
    assert b.alive


def test_a_plan_that_cannot_be_used_is_told_and_the_rest_is_served(start: Start, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("[[plan]]\n")
    config = tmp_path / "a.toml"
    config.write_text(f'[inference]\nmodels = ["{SMALL}"]\n[lending]\nborrow = true\nplan = "{plan}"\n')
    a = start("a", *API, "--config", str(config)).up()
    wait_for(lambda: (a.status()["inference"] or {}).get("models"), "the model", seen=a.log)
    assert "lending.plan" in a.status()["inference"]["problem"]
    picture = str(tmp_path / "picture.png")
    assert cv2.imwrite(picture, np.load(ZOO / "small-320.golden.npz")["image"])
    assert "wants lending.plan" in ask(a, "solar-tiny-224", "--input", picture, "--unsure")["error"]
    assert "detections" in ask(a, "solar-tiny-224", "--input", picture)
