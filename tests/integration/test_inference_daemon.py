"""A daemon that serves inference: found by `swarmd infer`, replaced when it dies, second to the own eye."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.daemons import Daemon, Start, has_ended, wait_for
from tests.support.paths import ROOT

NAME = "solar-small-320"
API = ("--inference", "127.0.0.1:0")


def served(daemon: Daemon) -> dict[str, Any]:
    return daemon.status().get("inference") or {}


def serving(daemon: Daemon) -> dict[str, Any]:
    wait_for(lambda: served(daemon).get("models"), "a served model", seen=daemon.log)
    return served(daemon)


def infer(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarmd", "infer", *arguments, "--control", str(daemon.control)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_swarmd_infer_finds_the_api_and_shows_what_the_model_sees(start: Start, tmp_path: Path) -> None:
    a = start("a", "--no-eye", "--http", "127.0.0.1:0", *API).up()
    found = serving(a)
    digest = load_bundle("zoo:small-320").digest
    assert found["models"][NAME]["digest"] == digest
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    picture = tmp_path / "picture.png"
    assert cv2.imwrite(str(picture), grey)
    mine = Detector.open(load_bundle("zoo:small-320"), DetectorOptions()).detect(grey)
    for model in (NAME, "zoo:small-320"):
        done = infer(a, model, "--input", str(picture), "--json", "--deadline-ms", "30000")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["version"] == digest
        assert [row["label"] for row in told["detections"]] == [one.label for one in mine]
    np.save(tmp_path / "tensor.npy", np.zeros((256, 320, 1), np.int8))
    done = infer(
        a, NAME, "--input", str(tmp_path / "tensor.npy"), "--out", str(tmp_path / "out.npz"), "--priority", "1",
        "--deadline-ms", "30000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {array.shape for array in np.load(tmp_path / "out.npz").values()} == {(1, 1280, 11), (1, 1280, 4)}
    (tmp_path / "text.npy").write_text("hello")
    for arguments, status, sentence in (
        (("nothing", "--input", str(picture)), 1, f"there are {NAME}, {NAME}.detect"),
        (("zoo:tiny-224", "--input", str(picture)), 1, "is served"),
        ((NAME, "--input", str(tmp_path / "gone.png")), 1, "cannot read"),
        ((NAME, "--input", __file__), 1, "cannot be decoded"),
        ((NAME, "--input", str(tmp_path / "text.npy")), 1, "is no .npy array of numbers"),
        ((NAME, "--input", str(picture), "--url", "127.0.0.1:1"), 3, "no inference API answers"),
    ):
        done = infer(a, *arguments)
        assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "swarmd", "status", "--control", str(a.control)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"inference   {found['address']}, {NAME}" in shown

    def metrics() -> str:
        with urllib.request.urlopen(f"http://{a.status()['http']}/metrics") as answer:
            text: str = answer.read().decode()
            return text

    # The worker tells its counts once a second.
    wait_for(lambda: 'swarmd_inference_total{what="answered"}' in metrics(), "the count of answers", seen=metrics)
    wait_for(lambda: 'swarmd_inference_measure{what="models"} 2' in metrics(), "the models", seen=metrics)


def test_a_dead_worker_is_replaced_and_the_brain_goes_on(start: Start) -> None:
    a = start("a", "--no-eye", *API).up()
    old = serving(a)["pid"]
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: served(a).get("pid") not in (None, old) and served(a).get("models"), "another worker", seen=a.log)
    assert "the inference worker ended with status -9" in a.log()
    newest = served(a)["pid"]
    assert a.kill(signal.SIGKILL) != 0
    wait_for(lambda: has_ended(newest), "the worker to go with its brain")


def test_without_an_api_infer_says_what_to_set(start: Start, tmp_path: Path) -> None:
    a = start("a", "--no-eye").up()
    assert a.status()["inference"] is None
    (tmp_path / "x.npy").write_bytes(b"")
    np.save(tmp_path / "x.npy", np.zeros(1))
    done = infer(a, "m", "--input", str(tmp_path / "x.npy"))
    assert (done.returncode, "set inference.listen" in done.stderr) == (3, True), done.stderr


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="no Linux here")
def test_beside_an_eye_the_worker_has_its_gate_and_takes_what_is_left(start: Start) -> None:
    a = start("a", "--source", "sim://farm?seed=7&tables=4&fly=lanes&laps=0", "--model", "zoo:small-320", *API).up()
    wait_for(lambda: (a.status().get("eye") or {}).get("frames", 0) > 5, "frames")
    wait_for(lambda: served(a).get("address"), "the API", seen=a.log)
    assert os.sched_getscheduler(served(a)["pid"]) == os.SCHED_IDLE
    words = Path(f"/proc/{a.status()['eye']['pid']}/cmdline").read_bytes().split(b"\0")
    assert b"--gate" in words
    gates = [
        {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if "eye-gate" in os.readlink(link)}
        for pid in (a.status()["eye"]["pid"], served(a)["pid"])
    ]
    assert gates[0] == gates[1] != set(), "both map one gate"
