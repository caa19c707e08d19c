"""Daemons that see: dead and frozen eyes, cameras that are no camera, and the real videos of Shows 3."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import PATIENCE_S, Daemon, Start, alive_members, digests, has_ended, wait_for
from tests.support.paths import python_path

FARM = "sim://farm?seed=7&tables=4&fly=lanes&laps=0"


def eye(daemon: Daemon) -> dict[str, Any]:
    return daemon.status().get("eye") or {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_a_dead_or_frozen_eye_is_replaced_and_the_brain_goes_on(start: Start, number: signal.Signals) -> None:
    a = start("a", "--source", FARM, "--model", "zoo:small-320").up()
    wait_for(lambda: eye(a)["frames"] > 5, "frames")
    old = eye(a)["pid"]
    os.kill(old, number)
    wait_for(lambda: eye(a)["pid"] not in (None, old) and eye(a)["state"] == "running", "another eye")
    frames = eye(a)["frames"]
    wait_for(lambda: eye(a)["frames"] > frames + 5, "frames again")
    assert eye(a)["counters"]["restarts"] == 1
    assert "eye_died" in a.log()
    brain = a.process
    assert brain is not None
    assert a.kill(signal.SIGTERM) == 0


def test_whatever_befalls_the_runtime_membership_is_untouched(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash, a hang that keeps the interpreter's lock, no memory, NaN: the eye comes back or steps down, aloud."""
    faults = tmp_path / "faults"
    faults.write_text("Crashes\nHangsWithTheLock\nRunsOutOfMemory\nAnswersNan\n")
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("SWARMD_TEST_ONCE", str(faults))
    a = start("a", "--no-eye").up()
    b = start(
        "b", "--source", FARM + "&pace=max", "--model", "zoo:small-320", "--set",
        "eye.backends=tests.support.bad_runtimes:OneAfterTheOther,litert", join=a.status()["address"],
    ).up()  # fmt: skip
    wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
    wait_for(
        lambda: eye(b).get("state") == "degraded" and eye(b)["frames"] > 4 * 25, "the eye on its second runtime", 90
    )
    said = b.log()
    for words in ("signal: SIGSEGV", "silence: no word for", "exit: status 1", "exit: status 4"):
        assert words in said, words
    assert "steps down to backend litert instead of tests.support.bad_runtimes:OneAfterTheOther" in said
    assert eye(b)["counters"]["restarts"] == 4
    assert alive_members(a) == alive_members(b) == 2
    assert not [event for event in a.events() if event["event"] == "failed"], "nobody was given up"
    assert a.alive
    assert b.alive


def test_a_node_with_a_pose_and_no_mission_origin_says_so(start: Start) -> None:
    lost = start("lost", "--source", FARM, "--model", "zoo:small-320").up()
    wait_for(lambda: "no_origin" in lost.log(), "the warning")
    placed = start("placed", "--source", FARM, "--model", "zoo:small-320", "--set", "node.origin=-18.88,-70.11").up()
    wait_for(lambda: eye(placed)["frames"] > 5 and eye(placed)["position"], "a place")
    assert "no_origin" not in placed.log()
    assert lost.log().count("no_origin") == 1


def test_the_eye_does_not_outlive_its_brain(start: Start) -> None:
    a = start("a", "--source", FARM, "--model", "zoo:small-320").up()
    wait_for(lambda: eye(a)["frames"] > 2, "frames")
    pid = eye(a)["pid"]
    a.kill()
    wait_for(lambda: has_ended(pid), "the eye's end")
    assert not a.alive


def bad_inputs(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Name to (source, model, words of the message)."""
    (folder / "text.mp4").write_text("no video")
    (folder / "text.tflite").write_text("no model")
    (folder / "text.jpg").write_text("no picture")
    return {
        "missing video": (str(folder / "none.mp4"), "zoo:small-320", "none.mp4"),
        "corrupt video": (str(folder / "text.mp4"), "zoo:small-320", "text.mp4"),
        "corrupt image": (str(folder / "text.jpg"), "zoo:small-320", "text.jpg"),
        "missing model": (FARM, str(folder / "none.tflite"), "none.tflite"),
        "corrupt model": (FARM, str(folder / "text.tflite"), "text.tflite"),
        "unknown zoo name": (FARM, "zoo:nothing", "nothing"),
        "unknown farm key": ("sim://farm?sed=7", "zoo:small-320", "seed"),
    }


BAD = ["missing video", "corrupt video", "corrupt image", "missing model", "corrupt model", "unknown zoo name"]


@pytest.mark.parametrize("name", [*BAD, "unknown farm key"])
def test_a_bad_input_ends_with_a_sentence_and_status_1(start: Start, tmp_path: Path, name: str) -> None:
    source, model, words = bad_inputs(tmp_path)[name]
    a = start("a", "--source", source, "--model", model)
    assert a.process is not None
    assert a.process.wait(PATIENCE_S) == 1
    last = a.log().splitlines()[-1]
    assert last.startswith("swarmd run: ")
    assert words in last
    assert "Traceback" not in a.log()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["traffic_model.tflite", "person_detect_micro.tflite"])
def test_a_model_that_cannot_be_used_is_refused_with_the_reason(start: Start, shared: Path, name: str) -> None:
    a = start("a", "--source", FARM, "--model", str(shared / "data" / "models" / name))
    assert a.process is not None
    assert a.process.wait(PATIENCE_S) == 1
    assert Path(name).stem in a.log().splitlines()[-1]


@pytest.mark.shared
@pytest.mark.slow
def test_three_daemons_on_real_videos_lose_an_eye_and_a_brain_and_agree(start: Start, shared: Path) -> None:
    """Shows 3 of the main job."""
    data = shared / "data"
    model = data / "models" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
    flags = ["--model", str(model), "--labels", str(data / "models" / "coco_labelmap.txt"), "--set", "eye.moving=true"]
    cars, people = str(data / "video" / "car-detection.mp4"), str(data / "video" / "one-by-one-person-detection.mp4")
    a = start("a", *flags, "--source", cars).up()
    address = a.status()["address"]
    b = start("b", *flags, "--source", people, join=address)
    c = start("c", *flags, "--source", cars, join=address)
    three = (a, b, c)
    wait_for(lambda: all(alive_members(d) == 3 and eye(d)["frames"] > 5 for d in three), "three that see")
    wait_for(lambda: c.status()["detections"] > 0, "detections")
    id_before, seen_before = c.status()["node_id"], eye(a)["frames"]
    os.kill(eye(b)["pid"], signal.SIGKILL)
    c.kill()
    wait_for(lambda: eye(b)["counters"]["restarts"] == 1 and eye(b)["state"] == "running", "b's eye to come back")
    assert a.alive
    assert b.alive
    c.start()
    c.up()
    assert c.status()["node_id"] == id_before
    wait_for(lambda: all(alive_members(d) == 3 for d in three), "three members again")
    wait_for(lambda: eye(a)["frames"] > seen_before + 5, "a to go on")
    wait_for(lambda: eye(c)["frames"] > 5, "c to see again")
    for daemon in three:
        daemon.ask("eye_stop")
    wait_for(lambda: len(digests(*three)) == 1, "equal digests")
    assert all(row["label"] for row in a.ask("objects")["objects"])


@pytest.mark.slow
def test_the_demo_finds_the_faults_and_agrees(tmp_path: Path) -> None:
    import json

    command = [
        sys.executable, "-m", "swarmd", "demo", "--nodes", "3", "--seconds", "6", "--seed", "11", "--json",
        "--out", str(tmp_path), "--farm", "tables=8", "--faults", "0.03",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary) == [
        "nodes", "seconds", "members", "digests", "frames", "fps", "infer_ms", "capture_to_local_ms",
        "local_to_peer_ms", "detections", "objects", "truth", "claims", "rss_mb",
    ]  # fmt: skip
    assert set(summary["members"].values()) == {3}
    assert len(set(summary["digests"].values())) == 1
    truth = summary["truth"]
    assert truth["found"] / truth["faults"] >= 0.9
    assert truth["duplicates"] == truth["distinct_lost"] == 0
    assert truth["false"] <= 0.05 * summary["objects"] + 1
    assert summary["claims"]["done"] == summary["claims"]["cells"]
    assert (tmp_path / "demo-seed11.png").stat().st_size > 10_000
