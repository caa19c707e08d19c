"""The child process that builds and test-loads TensorRT engines: `build ONNX ENGINE` or `check ENGINE`.

It may crash; whoever started it sees that as an error. Progress goes to standard output.
"""

import os
import sys
from pathlib import Path
from typing import Any

from swarmd_models.backends.cuda_memory import open_cuda
from swarmd_models.backends.tensorrt import _module
from swarmd_models.errors import BackendError

WORKSPACE_BYTES = 1 << 30
"""Scratch memory that the builder may use; a quarter of a small Jetson's."""


def build(onnx: Path, target: Path) -> None:
    """Build an engine from a QDQ ONNX file, FP16 where layers are not quantised; raises `BackendError`."""
    trt = _module()
    if not hasattr(trt, "OnnxParser"):
        raise BackendError("the lean TensorRT runtime cannot build engines; install the full one, or ship the engine")
    open_cuda()
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx.read_bytes()):
        reasons = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise BackendError(f"TensorRT cannot parse {onnx.name}: {reasons[:300]}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    for flag in (trt.BuilderFlag.FP16, trt.BuilderFlag.INT8):
        config.set_flag(flag)
    config.progress_monitor = _monitor(trt)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise BackendError(f"TensorRT could not build {onnx.name}")
    # Whole or not at all: a torn engine would be refused at every start.
    partial = target.with_suffix(f".part{os.getpid()}")
    partial.write_bytes(bytes(engine))
    partial.replace(target)
    _say(100)


def check(path: Path) -> None:
    """Load an engine once; raises `BackendError` when TensorRT refuses it."""
    trt = _module()
    open_cuda()
    logger = trt.Logger(trt.Logger.ERROR)
    runtime = trt.Runtime(logger)
    if runtime.deserialize_cuda_engine(path.read_bytes()) is None:
        raise BackendError(f"TensorRT refuses the engine {path.name}")


def _monitor(trt: Any) -> Any:
    """A progress monitor that prints the share of the outermost phase."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """Prints the share of the outermost phase."""

        def __init__(self) -> None:
            """Start with no phase."""
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}
            self._outermost = ""

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            """A phase of so many steps begins."""
            self._steps[phase_name] = num_steps
            if parent_phase is None:
                self._outermost = phase_name

        def step_complete(self, phase_name: str, step: int) -> bool:
            """One step is done; True: go on."""
            if phase_name == self._outermost:
                _say(100 * (step + 1) // max(self._steps[phase_name], 1))
            return True

        def phase_finish(self, phase_name: str) -> None:
            """A phase is over."""
            self._steps.pop(phase_name, None)

    return Monitor()


def _say(percent: int) -> None:
    sys.stdout.write(f"building_engine: {min(percent, 100)} %\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run one of the two jobs; the exit status."""
    try:
        if len(arguments) == 3 and arguments[0] == "build":
            build(Path(arguments[1]), Path(arguments[2]))
        elif len(arguments) == 2 and arguments[0] == "check":
            check(Path(arguments[1]))
        else:
            sys.stdout.write("usage: tensorrt_build build ONNX ENGINE | check ENGINE\n")
            return 2
    except (BackendError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
