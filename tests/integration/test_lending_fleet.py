"""Real daemons do a batch together: every frame answered once and rightly, also when one of them is killed in it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.bundles import unhurried
from tests.support.daemons import Daemon, Start, wait_for
from tests.support.paths import ROOT

API = ("--no-eye", "--inference", "127.0.0.1:0")
PICTURES = 80
FRAMES = 400
"""Of the batch: above a second of work for three devices, so that the kill falls into it on most machines."""
PROBE_FRAMES = 16


def test_a_batch_over_three_devices_of_which_one_is_killed(start: Start, tmp_path: Path) -> None:
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    folder, few = tmp_path / "frames", tmp_path / "few"
    folder.mkdir()
    few.mkdir()
    detector = Detector.open(bundle, DetectorOptions())
    wanted = {}
    for number in range(PICTURES):
        image = np.roll(grey, number, axis=1)
        data = cv2.imencode(".png", image)[1].tobytes()
        labels = [one.label for one in detector.detect(image)]
        for frame in range(number, FRAMES, PICTURES):
            (folder / f"{frame:03}.png").write_bytes(data)
            wanted[f"{frame:03}.png"] = labels
        if number < PROBE_FRAMES:
            (few / f"{number:03}.png").write_bytes(data)
    detector.close()
    daemons: dict[str, Daemon] = {}
    for name, lending in (("a", "lend = true"), ("b", "lend = true"), ("c", "borrow = true")):
        config = tmp_path / f"{name}.toml"
        config.write_text(f'[inference]\nmodels = ["{model}"]\n[lending]\n{lending}\ntensors = "127.0.0.1:0"\n')
        join = daemons["a"].status()["address"] if daemons else ""
        daemons[name] = start(name, *API, "--config", str(config), join=join).up()
    c = daemons["c"]

    def offers() -> list[str]:
        return sorted((c.status().get("lending") or {}).get("lenders", {}))

    wait_for(lambda: offers() == ["a", "b"], "both offers", seen=c.log)
    wait_for(lambda: (c.status()["inference"] or {}).get("models"), "c's worker", seen=c.log)
    out = tmp_path / "rows.jsonl"
    have_answered: set[str] = set()

    def begin(frames: Path) -> "subprocess.Popen[str]":
        command = [
            *(sys.executable, "-m", "swarmd", "infer", bundle.name, "--input", str(frames), "--fleet"),
            *("--out", str(out), "--control", str(c.control)),
        ]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def rows_of_batch() -> list[dict[str, Any]]:
        return [json.loads(line) for line in out.read_text().splitlines()]

    def is_known_to_the_worker() -> bool:
        """The brain knows who lends before its worker is told: small batches, until each lender is given frames."""
        probe = begin(few)
        _, said = probe.communicate(timeout=120)
        assert probe.returncode == 0, (said, c.log())
        have_answered.update(row["lender"] for row in rows_of_batch())
        return {"a", "b"} <= have_answered

    def at_lenders() -> int:
        return int(c.status()["lending"]["counts"].get("borrow_requests", 0))

    wait_for(is_known_to_the_worker, "frames that both lenders answer", seen=lambda: have_answered)

    def is_under_way(batch: "subprocess.Popen[str]", before: int) -> bool:
        """Whether it still runs once some of its frames are at lenders."""
        wait_for(lambda: batch.poll() is not None or at_lenders() > before + 8, "some frames at lenders", seen=c.log)
        return batch.poll() is None

    has_died = False
    for _ in range(5):  # On a quick machine a batch may be through before it is looked at.
        before = at_lenders()
        batch = begin(folder)
        try:
            if has_died := is_under_way(batch, before):
                daemons["a"].kill()
            _, said = batch.communicate(timeout=120)
        finally:
            batch.kill()
        if has_died:
            break
    assert has_died, "the kill falls into a batch"
    assert batch.returncode == 0, (said, c.log())
    rows = rows_of_batch()
    assert sorted(row["frame"] for row in rows) == sorted(wanted), "each frame has one line"
    for row in rows:
        assert [one["label"] for one in row["detections"]] == wanted[row["frame"]], row
    by = Counter(row["lender"] for row in rows)
    assert set(by) <= {"", "a", "b"}
    assert min(by["b"], by[""]) >= 5, f"whoever is idle takes the next: {by}"
    assert f"{FRAMES} frames answered" in said


def test_a_liar_in_a_batch_is_found_by_checks_and_asked_no_more(start: Start, tmp_path: Path) -> None:
    """Its first answers are believed until they are checked: the price of a batch with a lender that lies."""
    model = unhurried(tmp_path / "model")
    bundle = load_bundle(model)
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(40):
        assert cv2.imwrite(str(folder / f"{number:03}.png"), np.roll(grey, number, axis=1))
    config = tmp_path / "models.toml"
    config.write_text(f'[inference]\nmodels = ["{model}"]\n')
    liar = start("liar", *API, "--set", "lending.lend=true", "--config", str(config))
    liar.close()
    liar.command[1:3] = ["-m", "tests.support.lying_daemon", "faulty"]
    liar.start()
    liar.up()
    join = liar.status()["address"]
    c = start("c", *API, "--set", "lending.borrow=true", "--config", str(config), join=join).up()

    def counts() -> dict[str, int]:
        return dict((c.status().get("lending") or {}).get("counts", {}))

    wait_for(lambda: bundle.digest in (c.status().get("lending") or {}).get("lenders", {}).get("liar", []), "an offer",
             seen=c.log)  # fmt: skip
    wait_for(lambda: (c.status()["inference"] or {}).get("models"), "c's worker", seen=c.log)

    def batch() -> list[dict[str, Any]]:
        done = subprocess.run(
            [*(sys.executable, "-m", "swarmd", "infer", bundle.name, "--input", str(folder), "--fleet"),
             *("--control", str(c.control))],
            capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stderr, c.log())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def is_found_out() -> bool:
        assert len(batch()) == 40
        return counts().get("borrow_ejected", 0) >= 1

    wait_for(is_found_out, "the liar to be found out", seen=counts)
    assert {row["lender"] for row in batch()} == {""}, "who was found out is asked no more"
