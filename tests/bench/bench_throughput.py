"""What batches and overlap gain on this machine: `python -m tests.bench.bench_throughput [--seconds 2]`.

One JSON object:

- `invoke`: processor time of a view, in runs of 1, 2, 4 and 8 views, by net (LiteRT, one thread; the file with
  reshapes that keep any batch, `swarmd_models.tflite_batch`); `same`: whether every view's answer is that of a run of
  its own, to the last bit.
- `boxes`: processor time of the second stage for so many boxes of a frame, alone and as `SecondStage` shares runs.
- `overlap`: frames of a source that always has the next one, each preprocessed while the one before is inferred
  (`Detector.fit_ahead`, by another thread), beside one after the other: wall time and processor time of a frame, how
  long after its turn began its answer is there, and how many were fitted when their turn came.

Ways are taken in turn, and the least and the median of each are told: on a shared machine the least is the code's.
"""

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from swarmd_models.backends.litert import quiet_stderr, runtime_module
from swarmd_models.backends.litert_batch import LiteRtBatch
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.second import BATCH
from swarmd_models.tflite_batch import of_any_batch

NETS = ("small-320.second", "tiny-224", "small-320", "medium-640")
VIEWS = (1, 2, 4, 8)
BOXES = (1, 2, 3, 5, 8, 16)
SOURCES = {"320 x 256 grey": (256, 320), "1080p colour": (1080, 1920, 3), "4K colour": (2160, 3840, 3)}
FRAMES = 8
"""Of a run of the overlap: after them both ways begin anew."""


def told(values: list[int], share: int = 1) -> list[float]:
    """Least and median, milliseconds."""
    return [round(one / share / 1e6, 4) for one in (min(values), statistics.median(values))]


def in_turn(ways: dict[Any, Any], seconds: float) -> dict[Any, list[int]]:
    """Nanoseconds of each way, each as often as the others."""
    taken: dict[Any, list[int]] = {name: [] for name in ways}
    until = time.process_time() + seconds
    while time.process_time() < until or not all(taken.values()):
        for name, way in ways.items():
            taken[name].append(way())
    return taken


def invokes(net: str, seconds: float) -> dict[str, Any]:
    """A net of the zoo with several views in one run."""
    data = of_any_batch((ZOO / f"{net}.tflite").read_bytes())
    assert data is not None
    rng = np.random.default_rng(1)
    runs, answers = {}, {}
    for size in VIEWS:
        with quiet_stderr():
            interpreter = runtime_module().Interpreter(model_content=data, num_threads=1)
            given = interpreter.get_input_details()[0]
            interpreter.resize_tensor_input(given["index"], [size, *given["shape"][1:]])
            interpreter.allocate_tensors()
        if size == 1:
            pictures = rng.integers(-128, 128, (VIEWS[-1], *given["shape"][1:]), np.int8)
            rows = []
            for picture in pictures:
                interpreter.set_tensor(given["index"], picture[None])
                interpreter.invoke()
                rows.append([interpreter.get_tensor(one["index"])[0] for one in interpreter.get_output_details()])
        interpreter.set_tensor(given["index"], pictures[:size])
        interpreter.invoke()
        found = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
        answers[size] = all(
            np.array_equal(f[at], row[n]) for at, row in enumerate(rows[:size]) for n, f in enumerate(found)
        )

        def run(interpreter: Any = interpreter) -> int:
            started = time.thread_time_ns()
            interpreter.invoke()
            return time.thread_time_ns() - started

        runs[size] = run
    taken = in_turn(runs, seconds)
    return {"ms_a_view": {size: told(taken[size], size) for size in VIEWS}, "same": all(answers.values())}


def boxes(seconds: float) -> dict[str, Any]:
    """The second stage of small-320, over boxes of one frame."""
    bundle = load_bundle("zoo:small-320")
    detector = Detector.open(bundle, DetectorOptions())
    stage, artefact = detector.second, bundle.second_artefact()
    assert stage is not None
    assert artefact is not None
    batch = stage.batch or LiteRtBatch.load(artefact, 1, BATCH)
    canvas = np.random.default_rng(2).integers(0, 256, (256, 320), np.uint8)
    found: dict[str, Any] = {"chosen": stage.batch is not None}
    for count in BOXES:
        corner = np.linspace(10, 200, count)[:, None]
        places = np.hstack([corner, corner, corner + 34, corner + 18])

        def run(used: LiteRtBatch | None, places: Any = places) -> int:
            stage.batch = used
            started = time.thread_time_ns()
            stage.judge(canvas, places)
            return time.thread_time_ns() - started

        taken = in_turn({"alone": lambda run=run: run(None), "shared": lambda run=run: run(batch)}, seconds / 4)  # type: ignore[misc]
        found[f"{count}"] = {name: told(values) for name, values in taken.items()}
    detector.close()
    return found


class Overlap:
    """A detector with preprocessing before each inference, or beside that of the frame before."""

    def __init__(self, model: str, shape: tuple[int, ...]) -> None:
        self.detector = Detector.open(load_bundle(model), DetectorOptions())
        self.detector.looks_twice = False  # It takes as long either way.
        self.frames = [np.random.default_rng(n).integers(0, 256, shape, np.uint8) for n in range(2)]
        self._thread = ThreadPoolExecutor(1)
        self.ages: dict[str, list[int]] = {"serial": [], "overlapped": []}
        self.fill_ns: list[int] = []
        self.cpu_ns: dict[str, list[int]] = {"serial": [], "overlapped": []}

    def _run(self, name: str, is_ahead: bool) -> int:
        clock, cpu, began = time.perf_counter_ns, time.process_time_ns(), time.perf_counter_ns()
        for number in range(FRAMES):
            taken = clock()
            waiting = self._thread.submit(self.detector.fit_ahead, self.frames[(number + 1) % 2]) if is_ahead else None
            self.detector.detect(self.frames[number % 2])
            self.ages[name].append(clock() - taken)
            if waiting is None:
                self.fill_ns.append(self.detector.stage_ns["preprocess"])
            else:
                waiting.result()
        self.cpu_ns[name].append((time.process_time_ns() - cpu) // FRAMES)
        return (clock() - began) // FRAMES

    def serial(self) -> int:
        """Nanoseconds of a frame, one thing after the other."""
        return self._run("serial", is_ahead=False)

    def overlapped(self) -> int:
        """The same with the next frame's preprocessing beside an inference, where it pays."""
        return self._run("overlapped", is_ahead=True)

    def figures(self, seconds: float) -> dict[str, Any]:
        """Both ways in turn."""
        taken = in_turn({"serial": self.serial, "overlapped": self.overlapped}, seconds)
        self._thread.shutdown()
        self.detector.close()
        return {
            "preprocess_ms": told(self.fill_ns),
            "fitted_ahead": self.detector.ahead.taken if self.detector.ahead is not None else 0,
            **{
                name: {"wall_ms": told(taken[name]), "cpu_ms": told(self.cpu_ns[name]), "age_ms": told(self.ages[name])}
                for name in taken
            },
        }


def main(arguments: list[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of processor time for each comparison")
    options = parser.parse_args(arguments)
    found = {
        "invoke": {net: invokes(net, options.seconds) for net in NETS},
        "boxes": boxes(options.seconds),
        "overlap": {
            f"{model}, {name}": Overlap(f"zoo:{model}", shape).figures(options.seconds)
            for model in ("small-320", "medium-640")
            for name, shape in SOURCES.items()
            if not (model == "medium-640" and len(shape) == 2)
        },
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
