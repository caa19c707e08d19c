"""Several views in one run of the second stage: the same answers to the last bit, or not at all."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from swarmd_models.backends.base import Array
from swarmd_models.backends.litert_batch import LiteRtBatch
from swarmd_models.bundle import ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import BackendError
from swarmd_models.golden import check_golden
from swarmd_models.second import BATCH, SecondStage
from swarmd_models.tflite_batch import of_any_batch

CANVAS = np.random.default_rng(7).integers(0, 256, (256, 320), np.uint8)
SECOND = ZOO / "small-320.second.tflite"


def loaded(bundle: Bundle) -> LiteRtBatch:
    artefact = bundle.second_artefact()
    assert artefact is not None
    batch = LiteRtBatch.load(artefact, 1, BATCH)
    assert batch is not None
    return batch


def opened(flips: int = 2) -> tuple[SecondStage, Bundle]:
    """The zoo's second stage, one view at a time."""
    bundle = load_bundle("zoo:small-320")
    assert bundle.second is not None
    bundle = replace(bundle, second=replace(bundle.second, flips=flips))
    stage = SecondStage.open(bundle, ("litert",), 1, lambda text: None)
    if stage.batch is not None:
        stage.batch.close()
    stage.batch = None
    return stage, bundle


def boxes_of(count: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(count)
    corner = rng.uniform(0, 200, (count, 2))
    return np.hstack([corner, corner + rng.uniform(8, 50, (count, 2))])


@pytest.mark.parametrize("flips", [1, 2, 4])
def test_boxes_have_the_same_answers_however_many_share_a_run(flips: int) -> None:
    stage, bundle = opened(flips)
    batch = loaded(bundle)
    for count in (0, 1, 2, 3, 4, 5, 9):
        stage.batch = None
        alone = stage.judge(CANVAS, boxes_of(count))
        stage.batch = batch
        assert np.array_equal(stage.judge(CANVAS, boxes_of(count)), alone), count
    stage.close()


def test_only_full_runs_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, bundle = opened()
    stage.batch = loaded(bundle)
    runs = {"alone": 0, "together": 0}
    for name, owner in (("alone", stage.backend), ("together", stage.batch)):
        infer = owner.infer

        def counted(name: str = name, infer: Any = infer) -> None:
            runs[name] += 1
            infer()

        monkeypatch.setattr(owner, "infer", counted)
    stage.judge(CANVAS, boxes_of(5))
    assert runs == {"alone": 2, "together": 2}, "four boxes in two runs, both views of the fifth by themselves"
    stage.close()


def test_time_that_is_used_up_ends_it_between_two_runs() -> None:
    stage, bundle = opened()
    stage.batch = loaded(bundle)
    assert stage.judge(CANVAS, boxes_of(6), time.perf_counter_ns() - 1).shape == (0, 12)
    assert stage.judge(CANVAS, boxes_of(6), time.perf_counter_ns() + 60_000_000_000).shape == (6, 12)
    stage.close()


class Wrong(LiteRtBatch):
    """Its last place is one step off."""

    def output_view(self) -> Array:
        said = np.array(super().output_view())
        said[-1] += 1
        return said


class Slow(LiteRtBatch):
    """It takes longer than its views would alone."""

    def infer(self) -> None:
        until = time.process_time_ns() + 20_000_000
        while time.process_time_ns() < until:
            pass
        super().infer()


class Broken(LiteRtBatch):
    """It does not run."""

    def infer(self) -> None:
        raise BackendError("no")


@pytest.mark.parametrize("kind", [Wrong, Slow, Broken])
def test_a_batch_that_says_otherwise_takes_longer_or_fails_is_not_used(kind: type[LiteRtBatch]) -> None:
    stage, bundle = opened()
    artefact = bundle.second_artefact()
    assert artefact is not None
    batch = kind.load(artefact, 1, BATCH)
    stage.adopt(batch)
    assert stage.batch is None
    assert batch is not None
    with pytest.raises(BackendError):
        LiteRtBatch.infer(batch)  # It has been closed.
    assert stage.judge(CANVAS, boxes_of(3)).shape == (3, 12)
    stage.close()


def test_golden_vectors_hold_for_every_place_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector.open(load_bundle("zoo:small-320"), DetectorOptions())
    second = detector.second
    assert second is not None
    second.batch = loaded(detector.bundle)
    assert check_golden(detector) == ""
    rows = second.raw_batch
    monkeypatch.setattr(second, "raw_batch", lambda cut: [*rows(cut)[:-1], rows(cut)[-1] + np.int8(20)])
    assert "second_cls" in check_golden(detector)
    detector.close()


def test_only_the_batch_of_reshapes_is_changed() -> None:
    data = SECOND.read_bytes()
    made = of_any_batch(data)
    assert made is not None
    places = [at for at, (old, new) in enumerate(zip(data, made, strict=True)) if old != new]
    assert len(places) == 4, "one number of four bytes"
    assert data[places[0] : places[0] + 8] == b"\1\0\0\0\x0c\0\0\0", "the shape (1, 12)"
    assert made[places[0] : places[0] + 4] == b"\xff" * 4


def test_a_reshape_that_joins_pictures_is_left_as_it_is() -> None:
    data = SECOND.read_bytes()
    at = next(at for at, (old, new) in enumerate(zip(data, of_any_batch(data) or b"", strict=True)) if old != new)
    assert of_any_batch(data[:at] + b"\2" + data[at + 1 :]) is None
    assert of_any_batch(data[:at] + b"\1\0\0\0\0\0\0\0" + data[at + 8 :]) is None


def test_damaged_files_are_told_nothing_of_and_keep_their_length() -> None:
    """Every truncation of the head, and bits anywhere in the tables."""
    data = SECOND.read_bytes()
    rng = random.Random(18)
    for size in range(0, 4096, 7):
        of_any_batch(data[:size])
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.choice((rng.randrange(4096), rng.randrange(len(data))))] ^= 1 << rng.randrange(8)
        made = of_any_batch(bytes(damaged))
        assert made is None or len(made) == len(data)


def test_a_file_that_cannot_take_several_is_none(tmp_path: Path) -> None:
    artefact = load_bundle("zoo:small-320").second_artefact()
    assert artefact is not None
    (tmp_path / "m.tflite").write_bytes(SECOND.read_bytes()[:2000])
    for path in (None, tmp_path / "none.tflite", tmp_path / "m.tflite"):
        assert LiteRtBatch.load(replace(artefact, tflite=path), 1, BATCH) is None
    assert LiteRtBatch.load(replace(artefact, device="plain"), 1, BATCH) is None
