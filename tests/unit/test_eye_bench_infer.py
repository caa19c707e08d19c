"""`swarmd bench infer`: what it calls the rest of a frame, and what it says of golden vectors."""

import time
from dataclasses import replace

from swarmd.cli.bench import _note
from swarmd_models import bench_infer
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions


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


def test_a_model_without_a_golden_vector_is_not_said_to_agree_with_one() -> None:
    assert _note("litert 2", "ok") == "litert 2"
    assert _note("litert 2", "none") == "litert 2; no golden vector"
    assert _note("litert 2", "it differs") == "it differs"


def test_one_frame_is_measured_however_short_the_time() -> None:
    figures = bench_infer.measure("zoo:tiny-224", "", "litert", 1, 0.0)
    assert figures["frames"] == figures["from_1080p"]["frames"] == 1
