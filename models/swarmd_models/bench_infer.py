"""Measures one bundle on one or all runtimes: load, inference, every stage, layers where the runtime tells them.

How near a runtime comes to the reference is told in decibels of signal to noise, by output: `golden` is the training
machine's answer with the same 8-bit model, `float` the answer of the float model beside it (`NAME.float.tflite`, as
the zoo has it). The first inference is the first that a process makes, but for a device that was named
(`onnx@cuda`), which golden vectors have judged by then.

Each runtime is measured in a process of its own, so that memory is its own and a crash is a line in the table. Two
frames are shown: one of exactly the model's input size, as a thermal camera or a sub-stream gives it, and one of 1080p
colour, as a common camera does. Both hold the bundle's golden picture where there is one. Ratios within one run are
what counts on a shared machine.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from swarmd_models.allocations import by_stage
from swarmd_models.backends import BACKENDS, Backend, backend_class, split_device
from swarmd_models.backends.base import Array
from swarmd_models.backends.layers import layers_of
from swarmd_models.backends.litert_batch import LiteRtBatch
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.decoders.anchor_free import find_head
from swarmd_models.decoders.base import real
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ModelError
from swarmd_models.evaluate import float_twin
from swarmd_models.golden import check_golden, golden_sqnr_db, sqnr_db
from swarmd_models.types import Image

WARM_UP = 10
"""Frames that are not timed."""
MAX_FRAMES = 2000
"""Timed frames at most, so that a fast model on a long run keeps memory bounded."""
FRAME_WIDTH, FRAME_HEIGHT = 1920, 1080
CHILD_LIMIT_S = 2400
"""Seconds for one backend in a child process: longer than TensorRT's build takes."""


def measure_all(model: str, labels: str, kinds: list[str], threads: int, seconds: float) -> list[dict[str, Any]]:
    """Figures of each runtime, in the order of `kinds`; a runtime that cannot be used has an "error" instead."""
    return [_in_child(model, labels, kind, threads, seconds) for kind in (kinds or list(BACKENDS))]


def measure(model: str, labels: str, kind: str, threads: int, seconds: float) -> dict[str, Any]:
    """Figures of one runtime in this process; raises `ModelError`."""
    capability = backend_class(split_device(kind)[0]).probe()
    if not capability.available:
        return {"backend": kind, "error": capability.detail}
    cv2.setNumThreads(threads)
    bundle = load_bundle(model, labels or None)
    started = time.perf_counter()
    detector = Detector.open(bundle, DetectorOptions((kind,), threads), lambda text: None)
    load_ms = (time.perf_counter() - started) * 1e3
    frame = _frame(detector)
    first_ms = _first_infer_ms(detector, frame)
    figures = _run(detector, frame, seconds)
    return {
        "backend": kind,
        "runtime": detector.backend.runtime,
        "model": bundle.name,
        "threads": threads,
        "load_ms": round(load_ms, 2),
        "first_infer_ms": round(first_ms, 3),
        "golden": check_golden(detector) or ("ok" if bundle.golden is not None else "none"),
        "sqnr_db": {"golden": _rounded(golden_sqnr_db(detector)), "float": _rounded(_float_sqnr_db(detector, frame))},
        **figures,
        "raw_invoke_ms": _raw_invoke_ms(detector, seconds),
        "memory_bytes": by_stage(detector, frame),
        "from_1080p": _run(detector, _enlarged(frame), seconds),
        "rss_mb": round(_rss_mb(), 1),
        "layers": layers_of(bundle.artefact(), detector.backend, threads),
        **_second_layers(bundle, detector, threads),
    }


def _first_infer_ms(detector: Detector, frame: Image) -> float:
    detector.fitted(frame)
    started = time.perf_counter_ns()
    detector.backend.infer()
    return (time.perf_counter_ns() - started) / 1e6


def _raw_invoke_ms(detector: Detector, seconds: float) -> dict[str, dict[str, float]]:
    """Times of the runtimes alone, in a bare loop: of the `first` and, where there is one, the `second` stage."""
    backends = {"first": detector.backend}
    if detector.second is not None:
        backends["second"] = detector.second.backend
    return {name: _bare(backend, seconds / len(backends)) for name, backend in backends.items()}


def _bare(backend: Backend, seconds: float) -> dict[str, float]:
    took: list[int] = []
    end = time.perf_counter() + seconds
    while not took or (time.perf_counter() < end and len(took) < MAX_FRAMES):
        started = time.perf_counter_ns()
        backend.infer()
        took.append(time.perf_counter_ns() - started)
    return _spread(np.asarray(took) / 1e6)


def _float_sqnr_db(detector: Detector, frame: Image) -> dict[str, float]:
    """Decibels of the first stage against the float model beside the bundle's; empty where there is none."""
    twin = float_twin(detector.bundle)
    if twin is None:
        return {}
    ours = _real_outputs(detector, frame)
    reference = Detector.open(replace(twin, second=None), DetectorOptions())
    try:
        wanted = _real_outputs(reference, frame)
    finally:
        reference.close()
    return {name: sqnr_db(reals, ours[name]) for name, reals in wanted.items() if name in ours}


def _real_outputs(detector: Detector, frame: Image) -> dict[str, Array]:
    specs = detector.backend.outputs
    names = [f"output_{index}" for index in range(len(specs))]
    if detector.bundle.decoder == "anchor_free":
        for index, name in zip(find_head(specs, {}), ("cls", "dist"), strict=True):
            names[index] = name
    return {name: real(raw, spec) for name, raw, spec in zip(names, detector.raw_outputs(frame), specs, strict=True)}


def _rounded(ratios: dict[str, float]) -> dict[str, float | str]:
    """For JSON, which has no infinity: "exact" where both are the same."""
    return {name: round(db, 1) if np.isfinite(db) else "exact" for name, db in ratios.items()}


def _second_layers(bundle: Bundle, detector: Detector, threads: int) -> dict[str, Any]:
    artefact = bundle.second_artefact()
    if artefact is None or detector.second is None:
        return {}
    return {"second_layers": layers_of(artefact, detector.second.backend, threads)}


def _run(detector: Detector, frame: Image, seconds: float) -> dict[str, Any]:
    """Times of frames by stage, and the CPU time of all but inference."""
    walls: dict[str, list[int]] = defaultdict(list)
    cpu: list[int] = []
    second = detector.second
    runtimes: list[Backend | LiteRtBatch] = [detector.backend]
    if second is not None:
        runtimes += [second.backend] if second.batch is None else [second.backend, second.batch]
    spent = _InferCpu(runtimes)
    for _ in range(WARM_UP):
        detector.detect(frame)
    end = time.perf_counter() + seconds
    # One frame at least, however late a loaded machine comes to it.
    while not walls["total"] or (time.perf_counter() < end and len(walls["total"]) < MAX_FRAMES):
        spent.ns = 0
        start, cpu_start = time.perf_counter_ns(), time.thread_time_ns()
        detector.detect(frame)
        walls["total"].append(time.perf_counter_ns() - start)
        cpu.append(time.thread_time_ns() - cpu_start - spent.ns)
        for stage, ns in detector.stage_ns.items():
            walls[stage].append(ns)
        walls["runtime"].append(detector.stage_ns["infer"] + (second.infer_ns if second else 0))
    ms = {stage: np.asarray(values) / 1e6 for stage, values in walls.items()}
    spent.restore()
    runtime = ms.pop("runtime")
    other = np.asarray(cpu) / 1e6
    ratio = float(np.median(runtime) / np.median(ms["total"]))
    looked = {} if second is None else {"second_stage": dataclasses.asdict(second.counts)}
    return {
        "frames": len(ms["total"]),
        "stages_ms": {stage: _spread(values) for stage, values in ms.items()},
        "all_but_infer_cpu_ms": _spread(other),
        "infer_share": round(ratio, 4),
        **looked,
    }


class _InferCpu:
    """Counts the CPU time that this thread spends inside of runtimes.

    What threads of a runtime's own spend is not among it, nor among what is measured around it: neither may be taken
    for the other, so inference's wall time is no measure of it.
    """

    def __init__(self, backends: Sequence[Backend | LiteRtBatch]) -> None:
        """Stand between the detector and its runtimes until `restore`."""
        self.ns = 0
        self._before = [(backend, vars(backend).get("infer")) for backend in backends]
        for backend in backends:
            backend.infer = self._counted(backend.infer)  # type: ignore[method-assign]

    def _counted(self, infer: Callable[[], None]) -> Callable[[], None]:
        def counted() -> None:
            start = time.thread_time_ns()
            infer()
            self.ns += time.thread_time_ns() - start

        return counted

    def restore(self) -> None:
        """Let the detector call its runtimes itself again."""
        for backend, own in self._before:
            del backend.infer
            if own is not None:
                backend.infer = own  # type: ignore[method-assign]


def _spread(values: "np.typing.NDArray[np.float64]") -> dict[str, float]:
    return {
        "min": round(float(values.min()), 4),
        "p50": round(float(np.median(values)), 4),
        "p99": round(float(np.percentile(values, 99)), 4),
    }


def _frame(detector: Detector) -> Image:
    """The golden picture, or noise with some structure, in the model's own size."""
    golden, rule = detector.bundle.golden, detector.bundle.input
    if golden is not None:
        with np.load(golden.path, allow_pickle=False) as arrays:
            image: Image = arrays["image"]
            return image
    small = np.random.default_rng(0).integers(0, 256, (rule.height // 16 + 1, rule.width // 16 + 1, 3), dtype=np.uint8)
    return _resized(small, rule.width, rule.height)


def _enlarged(frame: Image) -> Image:
    """The frame as a 1080p colour camera would give it."""
    big = _resized(frame, FRAME_WIDTH, FRAME_HEIGHT)
    return big if big.ndim == 3 else np.repeat(big[..., None], 3, axis=2)


def _resized(image: Image, width: int, height: int) -> Image:
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.uint8, copy=False)


def _rss_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _in_child(model: str, labels: str, kind: str, threads: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "swarmd_models.bench_infer", model, labels, kind, str(threads), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=CHILD_LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"backend": kind, "error": f"it did not end within {CHILD_LIMIT_S} s"}
    if done.returncode < 0:
        return {"backend": kind, "error": f"it crashed with signal {-done.returncode}"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    except (ValueError, IndexError):
        return {"backend": kind, "error": done.stderr.strip()[-300:] or f"status {done.returncode}"}


def main(arguments: list[str]) -> int:
    """Measure one runtime and print one JSON object: MODEL LABELS KIND THREADS SECONDS."""
    model, labels, kind, threads, seconds = arguments
    try:
        figures = measure(model, labels, kind, int(threads), float(seconds))
    except ModelError as error:
        figures = {"backend": kind, "error": str(error)}
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
