"""`import swarmd` asks a real daemon's models; every way in which it cannot be answered is one sentence."""

from pathlib import Path

import numpy as np
import pytest

import swarmd
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.daemons import Start, wait_for

NAME = "solar-small-320"


def test_a_program_asks_the_models_of_its_device(start: Start, tmp_path: Path) -> None:
    a = start("a", "--no-eye", "--inference", "127.0.0.1:0", "--set", "inference.deadline_ms=30000").up()
    wait_for(lambda: (a.status().get("inference") or {}).get("models"), "a served model", seen=a.log)
    node, digest = swarmd.connect(a.control), load_bundle("zoo:small-320").digest
    grey = np.load(ZOO / "small-320.golden.npz")["image"]
    mine = Detector.open(load_bundle("zoo:small-320"), DetectorOptions()).detect(grey)
    assert mine
    for model in (NAME, f"{NAME}.detect", "zoo:small-320"):
        seen = node.detect(model, grey.squeeze())
        assert [one.label for one in seen] == [one.label for one in mine]
        assert all(0 < one.score <= 1 for one in seen)  # How many are looked at twice is a matter of time.
        assert all(0 <= one.box[0] < one.box[2] <= 320 and 0 <= one.box[1] < one.box[3] <= 256 for one in seen)
    answer = node.infer(NAME, np.zeros((256, 320, 1), np.int8), version=digest, priority=1)
    assert (answer.model, answer.version, answer.lender) == (NAME, digest, "")
    assert {array.shape for array in answer.outputs.values()} == {(1, 1280, 11), (1, 1280, 4)}
    assert answer.took_us > 0

    tensor = np.zeros((256, 320, 1), np.int8)
    refused: list[tuple[str, dict[str, object], str]] = [
        ("nothing", {}, f"there are {NAME}, {NAME}.detect"),
        ("zoo:none", {}, "none"),
        (NAME, {"version": "0" * 64}, "404"),
        (NAME, {"deadline_ms": 60_001}, "must lie within 1 and 60000"),
        (NAME, {"priority": 4}, "write 1"),
        (NAME, {"borrow": "maybe"}, "'yes', 'quickest'"),
    ]
    for model, wish, sentence in refused:
        with pytest.raises(swarmd.WorkerError, match=sentence):
            node.infer(model, tensor, **wish)  # type: ignore[arg-type]
    with pytest.raises(swarmd.WorkerError, match="complex"):
        node.infer(NAME, np.zeros((256, 320, 1), np.complex64))
    with pytest.raises(swarmd.WorkerError, match="400"):
        node.infer(NAME, np.zeros((2, 2, 1), np.int8))


def test_another_device_s_model_judges_what_one_has_seen_and_takes_its_word_back(start: Start) -> None:
    a = start("a", "--no-eye", "--set", "node.origin=48.0,11.0").up()
    flags = ("--no-eye", "--set", "node.origin=48.0,11.0", "--inference", "127.0.0.1:0")
    b = start("b", *flags, "--set", "inference.deadline_ms=60000", join=a.status()["address"]).up()
    wait_for(lambda: (b.status().get("inference") or {}).get("models"), "a served model", seen=b.log)
    author, judge = swarmd.connect(a.control), swarmd.connect(b.control)
    author.observe([swarmd.Sighting(label="cell", score=0.9, east_m=3.0, north_m=4.0, track="a")])
    [thing] = wait_for(lambda: judge.objects(), "what the other has seen", seen=b.log)
    grey = np.load(ZOO / "small-320.golden.npz")["image"].squeeze()

    def verdicts() -> list[float]:
        return [round(one.score, 2) for one in author.detections() if one.node == "b"]

    score = judge.judge(thing.id, "zoo:small-320", grey, need=0.9)
    assert score > 0
    wait_for(lambda: verdicts() == [round(score, 2)], "its verdict", seen=a.log)
    assert judge.judge(thing.id, "zoo:small-320", np.full((256, 320), 128, np.uint8), need=0.9) == 0
    wait_for(lambda: verdicts() == [0.0], "another verdict", seen=a.log)
    judge.judge(thing.id, "zoo:small-320", grey, need=0.9)
    judge.withdraw_verdict(thing.id)
    wait_for(lambda: verdicts() == [0.0], "no verdict", seen=a.log)
    assert [one.observers for one in author.objects()] == [("a",)], "who judges has not seen it"
    with pytest.raises(swarmd.DaemonError, match="seen it itself"):
        author.withdraw_verdict(thing.id)


def test_a_daemon_that_serves_no_inference_says_what_to_set(start: Start) -> None:
    b = start("b", "--no-eye").up()
    with pytest.raises(swarmd.ControlError, match=r"set inference\.listen"):
        swarmd.connect(b.control).detect(NAME, np.zeros((256, 320), np.uint8))
