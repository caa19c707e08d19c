"""`swarmd bench infer`: what it calls the rest of a frame, and what it says of golden vectors."""

import math
import time
from dataclasses import replace

import pytest

from swarmd.cli.bench import _note
from swarmd_models import bench_infer
from swarmd_models.allocations import by_stage
from swarmd_models.backends.litert_batch import LiteRtBatch
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.golden import golden_sqnr_db
from swarmd_models.second import BATCH


def test_all_but_inference_is_measured_where_the_runtime_works_in_threads_of_its_own() -> None:
    """Inference's wall time is not this thread's: taken off its CPU time, nothing was left of the rest."""
    detector = Detector.open(replace(load_bundle("zoo:tiny-224"), second=None), DetectorOptions())
    honest = detector.backend.infer

    def elsewhere() -> None:
        honest()
        time.sleep(0.02)  # Wall time of other threads: the bounds below hold however long it is.

    detector.backend.infer = elsewhere  # type: ignore[method-assign]
    figures = bench_infer._run(detector, bench_infer._frame(detector), 0.3)
    stages, other = figures["stages_ms"], figures["all_but_infer_cpu_ms"]
    assert other["min"] > 0.0
    assert stages["infer"]["min"] >= 20.0
    assert other["min"] < stages["total"]["p99"]
    assert detector.backend.infer == elsewhere, "the detector calls its runtime itself again"


def test_runs_of_several_views_are_inference_too() -> None:
    detector = Detector.open(load_bundle("zoo:tiny-224"), DetectorOptions())
    assert detector.second is not None
    artefact = detector.bundle.second_artefact()
    assert artefact is not None
    batch = detector.second.batch = LiteRtBatch.load(artefact, 1, BATCH)  # Whether it pays is this machine's word.
    assert batch is not None
    honest, burnt_ns = batch.infer, 200_000_000

    def slow() -> None:
        honest()
        end = time.thread_time_ns() + burnt_ns
        while time.thread_time_ns() < end:
            pass

    batch.infer = slow  # type: ignore[method-assign]
    figures = bench_infer._run(detector, bench_infer._frame(detector), 0.0)
    assert figures["second_stage"]["examined"] > 0
    assert figures["all_but_infer_cpu_ms"]["min"] < burnt_ns / 1e6, "the batch's run counts as something else"
    assert batch.infer == slow


def test_a_model_without_a_golden_vector_is_not_said_to_agree_with_one() -> None:
    assert _note("litert 2", "ok") == "litert 2"
    assert _note("litert 2", "none") == "litert 2; no golden vector"
    assert _note("litert 2", "it differs") == "it differs"


def test_one_frame_is_measured_however_short_the_time() -> None:
    figures = bench_infer.measure("zoo:tiny-224", "", "litert", 1, 0.0)
    assert figures["frames"] == figures["from_1080p"]["frames"] == 1


def test_a_runtime_is_held_against_the_training_machine_and_the_float_model() -> None:
    figures = bench_infer.measure("zoo:tiny-224", "", "litert", 1, 0.0)
    assert figures["sqnr_db"]["golden"] == {"cls": "exact", "dist": "exact", "second_cls": "exact"}
    floats = figures["sqnr_db"]["float"]
    # 35.4 and 40.3 dB over many frames (docs/performance/models.md); this is one frame.
    assert floats.keys() == {"cls", "dist"}
    assert all(25.0 < db < 60.0 for db in floats.values())
    assert figures["first_infer_ms"] > 0.0
    assert figures["raw_invoke_ms"].keys() == {"first", "second"}


def test_a_runtime_that_computes_something_else_has_few_decibels(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector.open(load_bundle("zoo:tiny-224"), DetectorOptions())
    assert set(golden_sqnr_db(detector).values()) == {math.inf}
    honest = detector.raw_outputs
    monkeypatch.setattr(detector, "raw_outputs", lambda image: [raw + (raw % 2) for raw in honest(image)])
    assert all(db < 60.0 for name, db in golden_sqnr_db(detector).items() if name != "second_cls")


def test_between_camera_and_tensor_nothing_of_a_pictures_size_is_made() -> None:
    """Resized into the canvas and quantised into the tensor itself: two writes, no third picture."""
    detector = Detector.open(load_bundle("zoo:small-320"), DetectorOptions())
    frame = bench_infer._frame(detector)
    for shown in (frame, bench_infer._enlarged(frame)):
        memory = by_stage(detector, shown)
        assert memory["preprocess"]["written"] == 2 * 320 * 256
        assert memory["preprocess"]["allocated"] < 4_096
        assert memory["infer"]["allocated"] < 4_096
        assert memory["decode"]["allocated"] < 320 * 256
    assert detector.detect(frame), "the detector is as it was"
    assert "fill" not in vars(detector._preprocessor)
