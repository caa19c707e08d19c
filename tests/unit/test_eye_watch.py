"""Drift, frames out of distribution, the ring of unsure frames, its export, and the swapping of models."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swarmd.eye.ipc import SwapDone
from swarmd.eye.swap import Swapper
from swarmd_models.bundle import load_bundle
from swarmd_models.bundle_rules import Reference
from swarmd_models.errors import SourceError
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.frame_ring import INTERVAL_NS, FrameRing, export_coco, without_private_parts
from swarmd_models.types import Detection, Frame
from swarmd_models.watch import (
    OWN_REFERENCE_FRAMES,
    OWN_REFERENCE_SCORES,
    ModelWatch,
    features_of,
    ks,
    measure_reference,
    psi,
)
from tests.support.bundles import seen, write_bundle

RNG = np.random.default_rng(7)
AT_04 = {f"class{number}": 0.4 for number in range(16)}.__getitem__
"""Thresholds of a model, by label."""
SWAPS = int(os.environ.get("SWARMD_SWAPS", "8"))


def _scores(mean: float, count: int) -> list[Detection]:
    return [seen(50, 50, score=float(s)) for s in np.clip(RNG.normal(mean, 0.1, count), 0.01, 0.99)]


def test_scores_that_stay_are_no_drift_and_scores_that_sink_are() -> None:
    reference = measure_reference([(_scores(0.8, 10), np.zeros(3)) for _ in range(50)])
    same, sunk = ModelWatch(reference), ModelWatch(reference)
    for _ in range(30):
        same.note(_scores(0.8, 10), None)
        sunk.note(_scores(0.5, 10), None)
    assert same.gauges()["drift_psi"] < 0.1
    assert same.gauges()["drift_ks"] < 0.1
    assert sunk.gauges()["drift_psi"] > 0.25
    assert sunk.gauges()["drift_ks"] > 0.5
    assert sunk.gauges()["detections_per_frame"] == 10


def test_without_a_reference_the_first_frames_are_one() -> None:
    watch = ModelWatch(Reference())
    assert "drift_psi" not in watch.gauges()
    for _ in range(OWN_REFERENCE_SCORES // 10 + 10):
        watch.note(_scores(0.8, 10), None)
    assert watch.gauges()["drift_psi"] < 0.2
    for _ in range(100):
        watch.note(_scores(0.4, 10), None)
    assert watch.gauges()["drift_psi"] > 0.25


def test_a_frame_from_another_world_stands_out() -> None:
    usual = [features_of(RNG.normal(120, 20, (64, 64)).astype(np.uint8), RNG.normal(-4, 0.1, 5)) for _ in range(200)]
    watch = ModelWatch(Reference())
    for features in usual[:OWN_REFERENCE_FRAMES]:
        watch.note([], features)
    for features in usual[OWN_REFERENCE_FRAMES:]:
        watch.note([], features)
        assert watch.ood < 3.0
    watch.note([], features_of(np.full((64, 64), 250, np.uint8), RNG.normal(2, 0.1, 5)))
    assert watch.ood > 3.0
    assert 0 < watch.gauges()["ood_share"] < 0.05
    watch.note([], np.array([np.inf, 0, 0, 0, 0, 0, 0]))
    assert np.isfinite(watch.gauges()["ood"])


def test_histograms_far_apart() -> None:
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert psi(a, b) > 5
    assert ks(a, b) == 1.0


# --- The ring --------------------------------------------------------------------------------------------------------


def _frame(index: int, value: int = 90) -> Frame:
    return Frame(index, index * INTERVAL_NS, np.full((40, 60), value, np.uint8))


UNSURE = [seen(20, 20, score=0.45)]


def test_only_unsure_frames_are_kept_and_not_too_often(tmp_path: Path) -> None:
    ring = FrameRing(tmp_path / "r", 1 << 20)
    assert not ring.consider(_frame(1), [], AT_04, 0.0, "m")
    assert not ring.consider(_frame(1), [seen(20, 20, score=0.9)], AT_04, 0.0, "m")
    assert ring.consider(_frame(1), UNSURE, AT_04, 0.0, "m")
    assert not ring.consider(replace(_frame(1), captured_ns=INTERVAL_NS + 5), UNSURE, AT_04, 0.0, "m")
    assert ring.consider(_frame(3), [], AT_04, 5.0, "m"), "a frame out of distribution is kept too"
    assert ring.kept == len(list((tmp_path / "r").glob("*.png"))) == 2


def test_the_ring_never_outgrows_its_size_and_the_oldest_go_first(tmp_path: Path) -> None:
    ring = FrameRing(tmp_path, 3000)
    for index in range(30):
        frame = replace(_frame(index + 1), image=RNG.integers(0, 256, (20, 40), dtype=np.uint8))
        assert ring.consider(frame, UNSURE, AT_04, 0.0, "m")
    kept = sorted(tmp_path.glob("*.png"))
    assert sum(path.stat().st_size for path in kept) <= 3000
    assert kept[-1].name.endswith("00000030.png")
    assert len(list(tmp_path.glob("*.json"))) == len(kept)
    again = FrameRing(tmp_path, 3000)
    assert again.consider(_frame(99), UNSURE, AT_04, 0.0, "m")
    assert sum(path.stat().st_size for path in tmp_path.glob("*.png")) <= 3000, "what an earlier life kept counts too"


def test_after_the_device_has_started_anew_the_oldest_still_go_first(tmp_path: Path) -> None:
    """Names count from the device's start: those of an earlier start come behind, and are older."""
    ring = FrameRing(tmp_path, 1 << 20)
    for index in (500, 501, 502):
        assert ring.consider(_frame(index), UNSURE, AT_04, 0.0, "m")
    for path in tmp_path.glob("*.png"):
        os.utime(path, ns=(10**18, 10**18 + int(path.stem[-8:])))
    first = FrameRing(tmp_path, 1 << 20)
    assert first.consider(_frame(1), UNSURE, AT_04, 0.0, "m")
    size = sum(path.stat().st_size for path in tmp_path.glob("*.png"))
    again = FrameRing(tmp_path, size)
    assert again.consider(_frame(2), UNSURE, AT_04, 0.0, "m")
    assert sorted(int(path.stem[-8:]) for path in tmp_path.glob("*.png")) == [1, 2, 501, 502]


def test_people_are_made_unreadable_before_anything_is_written() -> None:
    image = RNG.integers(0, 256, (60, 60, 3), dtype=np.uint8)
    person = Detection(0, "person", 0.5, (10.4, 10.0, 40.0, 50.0))
    hidden = without_private_parts(image, [person, seen(50, 50)])
    assert len(np.unique(hidden[11:49, 11:39].reshape(-1, 3), axis=0)) <= 36
    assert np.array_equal(hidden[:, 41:], image[:, 41:])
    assert not np.array_equal(hidden, image)
    grey = without_private_parts(image[..., 0], [replace(person, box=(-5.0, -5.0, 500.0, 500.0))])
    assert grey.shape == (60, 60)


def test_a_ring_that_cannot_write_stops_itself_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    ring = FrameRing(folder, 1 << 20)
    folder.rmdir()
    assert not ring.consider(_frame(1), UNSURE, AT_04, 0.0, "m")
    assert "frames are no longer kept" in ring.problem
    assert not ring.consider(_frame(2), UNSURE, AT_04, 0.0, "m")
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SourceError, match="frames cannot be kept"):
        FrameRing(blocked / "x", 1)


def test_a_guess_is_judged_by_its_own_threshold_also_where_thresholds_are_near_one(tmp_path: Path) -> None:
    """Joined scores crowd below 1: 0.999 may be a guess, and 0.9999 none."""
    ring = FrameRing(tmp_path, 1 << 20)
    near_one = {"class0": 0.9985, "class1": 0.9}.__getitem__
    assert not ring.consider(_frame(1), [seen(20, 20, score=0.9999)], near_one, 0.0, "m")
    assert not ring.consider(_frame(1), [seen(20, 20, score=0.99, class_index=1)], near_one, 0.0, "m")
    assert ring.consider(_frame(1), [seen(20, 20, score=0.999)], near_one, 0.0, "m")


def test_the_command_exports_what_was_kept(tmp_path: Path) -> None:
    ring = FrameRing(tmp_path / "r", 1 << 20)
    ring.consider(_frame(1), [seen(20, 20, score=0.45)], AT_04, 0.0, "abcd")
    command = [sys.executable, "-m", "swarmd", "frames", "export", "--folder", str(tmp_path / "r"), "--out"]
    done = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out/annotations.json").read_text())
    assert [image["file_name"] for image in document["images"]] == [f"images/{_kept(tmp_path / 'r')}"]


def _kept(folder: Path) -> str:
    return next(folder.glob("*.png")).name


def test_the_export_is_coco(tmp_path: Path) -> None:
    ring = FrameRing(tmp_path / "r", 1 << 20)
    ring.consider(_frame(1), [seen(20, 20, score=0.45), seen(40, 20, score=0.5, class_index=2)], AT_04, 0.0, "abcd")
    ring.consider(_frame(2), [seen(20, 20, score=0.45, class_index=2)], AT_04, 0.0, "abcd")
    (tmp_path / "r" / "torn.png").write_bytes(b"x")
    (tmp_path / "r" / "torn.json").write_bytes(b"{")
    assert export_coco(tmp_path / "r", tmp_path / "out") == (2, 3)
    document = json.loads((tmp_path / "out/annotations.json").read_text())
    assert {"images", "annotations", "categories"} <= document.keys()
    assert [c["name"] for c in document["categories"]] == ["class0", "class2"]
    assert document["annotations"][0]["bbox"] == [10, 10, 20, 20]
    assert document["annotations"][0]["area"] == 400
    assert {a["image_id"] for a in document["annotations"]} == {i["id"] for i in document["images"]}
    assert all((tmp_path / "out" / image["file_name"]).exists() for image in document["images"])
    with pytest.raises(SourceError, match="no kept frames"):
        export_coco(tmp_path / "nowhere", tmp_path / "out2")


# --- Swapping --------------------------------------------------------------------------------------------------------


def _swapper(eye: Eye, done: list[SwapDone], kind: type[Swapper] = Swapper, path: str = "") -> Swapper:
    """No model is refused because a busy machine takes long over it."""
    return kind(eye, EyeOptions(), done.append, lambda text: None, path, frame_interval_ms=60_000.0)


@pytest.mark.slow
def test_many_swaps_lose_no_frame_and_never_hold_the_loop(tmp_path: Path) -> None:
    """SWARMD_SWAPS=1000 for the long run; the frames go on while each model is loaded, checked and handed over."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write_bundle(tmp_path / "a"), write_bundle(tmp_path / "b")
    eye = Eye.open(load_bundle(first), EyeOptions())
    done: list[SwapDone] = []
    swapper = _swapper(eye, done)
    frame = Frame(0, 0, RNG.integers(0, 256, (256, 320), dtype=np.uint8))
    frames = 0
    handovers: list[float] = []
    deadline = time.monotonic() + max(60, 10 * SWAPS)
    for swap in range(SWAPS):
        swapper.begin(str(second if swap % 2 == 0 else first), "")
        while len(done) <= swap:
            started = time.thread_time()
            swapper.between_frames(frame)
            handovers.append(time.thread_time() - started)
            frames += 1
            eye.see(replace(frame, index=frames, captured_ns=frames * 1_000_000))
            assert time.monotonic() < deadline
    assert [d.ok for d in done] == [True] * SWAPS
    assert swapper.counters["model_swaps"] == SWAPS
    assert frames >= SWAPS * 8, "each model was shadowed on live frames"
    handovers.sort()
    assert handovers[len(handovers) * 99 // 100] < 0.02, "handing over costs the loop next to nothing"
    assert handovers[-1] < 0.1, "one frame interval at 10 fps"


def _wait_for(done: list[SwapDone], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(done) < count:
        assert time.monotonic() < deadline, "the swapper does not answer"
        time.sleep(0.005)


class _SlowToEnd(Swapper):
    """Its preparing thread lives on for a while after the new model was handed over."""

    may_end = threading.Event()

    def _prepare(self, work: Any) -> str:
        problem = super()._prepare(work)
        self.may_end.wait(30)
        return problem


def test_the_next_swap_need_not_wait_for_the_thread_of_the_last(tmp_path: Path) -> None:
    """A thread that has left its model and is about to end once made one swap in thousands be refused."""
    bundle = write_bundle(tmp_path)
    done: list[SwapDone] = []
    swapper = _swapper(Eye.open(load_bundle(bundle), EyeOptions()), done, _SlowToEnd)
    frame = Frame(0, 0, RNG.integers(0, 256, (256, 320), dtype=np.uint8))
    deadline = time.monotonic() + 60
    for swap in range(3):
        swapper.begin(str(bundle), "")
        while len(done) <= swap:
            swapper.between_frames(frame)
            assert time.monotonic() < deadline
            time.sleep(0.001)
    swapper.may_end.set()
    assert [d.ok for d in done] == [True] * 3, done


def _bundles(folder: Path, names: str) -> list[str]:
    made = []
    for name in names:
        (folder / name).mkdir()
        made.append(str(write_bundle(folder / name)))
    return made


def _seen_until(swapper: Swapper, done: list[SwapDone], count: int) -> None:
    """Frames come until so many orders are answered."""
    frame = Frame(0, 0, RNG.integers(0, 256, (256, 320), dtype=np.uint8))
    deadline = time.monotonic() + 60
    while len(done) < count:
        swapper.between_frames(frame)
        assert time.monotonic() < deadline, done
        time.sleep(0.001)


def test_of_two_orders_the_newer_counts_also_while_the_older_is_prepared(tmp_path: Path) -> None:
    first, second, third = _bundles(tmp_path, "abc")
    done: list[SwapDone] = []
    swapper = _swapper(Eye.open(load_bundle(first), EyeOptions()), done)
    swapper.begin(first, "")  # It waits for live frames to be shadowed.
    swapper.begin(second, "")
    swapper.begin(third, "")
    swapper.begin(first, "", chosen=True)
    _seen_until(swapper, done, 4)
    assert [(d.path, d.ok, d.chosen) for d in done] == [
        (second, False, False), (first, False, True), (first, False, False), (third, True, False),
    ]  # fmt: skip
    assert swapper.counters["model_swaps"] == 1
    assert not swapper.is_busy


def test_a_model_that_waits_for_a_frame_is_not_taken_after_another_was_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A camera stalls while a release is tried: it is given up, the way back is ordered, and then frames come again.

    The way back was refused, since another model waited; that one, rejected by now, ran on for good.
    """
    monkeypatch.setattr("swarmd.eye.swap.SHADOW_TIMEOUT_S", 0.0)
    good, trial = _bundles(tmp_path, "ab")
    eye = Eye.open(load_bundle(good), EyeOptions())
    done: list[SwapDone] = []
    swapper = _swapper(eye, done, path=good)
    swapper.begin(trial, "")
    deadline = time.monotonic() + 60
    while swapper._pending is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    swapper.begin(good, "")
    _seen_until(swapper, done, 2)
    assert [(d.path, d.ok) for d in done] == [(trial, False), (good, True)]
    assert eye.bundle.toml_path == Path(good)


class _Late(list[SwapDone]):
    """Answers that are written slowly: an order arrives while the first of them is."""

    def __init__(self, order: Callable[[], None]) -> None:
        super().__init__()
        self._order = order

    def append(self, answer: SwapDone) -> None:
        super().append(answer)
        if len(self) == 1:
            self._order()


class _Held(Swapper):
    """Looks for a model that is nowhere for as long as it is held."""

    held = threading.Event()

    def _prepare(self, work: Any) -> str:
        if not Path(work.model).exists():
            self.held.wait(30)
        return super()._prepare(work)


@pytest.mark.parametrize("chosen", [False, True])
def test_an_order_is_the_newest_also_where_it_comes_while_another_ends(tmp_path: Path, chosen: bool) -> None:
    """Between the end of a model and the order that waited for it there was a gap, in which a newer one fell behind."""
    first, waits, newest = _bundles(tmp_path, "abc")
    done = _Late(lambda: swapper.begin(newest, ""))
    swapper = _swapper(Eye.open(load_bundle(first), EyeOptions()), done, _Held)
    swapper.begin(first if chosen else str(tmp_path / "nowhere.toml"), "", chosen)
    swapper.begin(waits, "")
    swapper.held.set()
    _seen_until(swapper, done, 3)
    assert [(d.path, d.ok) for d in done[1:]] == [(waits, False), (newest, True)]
    assert not swapper.is_busy


def test_a_swap_that_runs_out_of_memory_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(tmp_path)
    done: list[SwapDone] = []
    swapper = _swapper(Eye.open(load_bundle(bundle), EyeOptions()), done)

    def exhausted(*arguments: object) -> str:
        raise MemoryError("no more")

    monkeypatch.setattr("swarmd.eye.swap.Detector.open", exhausted)
    swapper.begin(str(bundle), "")
    _wait_for(done, 1)
    assert not done[0].ok
    assert "MemoryError" in done[0].text
    monkeypatch.undo()
    swapper.begin(str(tmp_path / "nowhere.toml"), "")
    _wait_for(done, 2)
    assert "no model at" in done[1].text, "the next one is prepared again"


def test_a_bad_model_never_becomes_the_running_one(tmp_path: Path) -> None:
    eye = Eye.open(load_bundle("zoo:small-320"), EyeOptions())
    done: list[SwapDone] = []
    swapper = _swapper(eye, done)
    running = eye.detector
    other = tmp_path / "other"
    other.mkdir()
    bad = write_bundle(other, decoder='decoder = "ssd"')
    for count, (model, sentence) in enumerate((("nowhere.toml", "no model at"), (str(bad), "four outputs")), 1):
        swapper.begin(model, "")
        _wait_for(done, count)
        assert not done[-1].ok
        assert sentence in done[-1].text
    assert eye.detector is running
    assert swapper.counters["model_swaps_refused"] == 2
