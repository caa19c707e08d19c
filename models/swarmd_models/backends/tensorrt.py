"""TensorRT 10 on NVIDIA devices, from the bundle's QDQ `.onnx`; an extra (`pip install swarmd[tensorrt]`).

Rules:
- CUDA is asked first. Without a device, `trt.Runtime` does not raise: it wraps a null pointer, and using it ends the
  process. So nothing of TensorRT is called until CUDA has counted a device.
- Engines are built, and loaded for the first time, in a child process (`tensorrt_build.py`): a crash there is a
  `BackendError` here. Building is told as `building_engine: N %`.
- A built engine is good for exactly one model, TensorRT version, driver and compute capability; they are its file name.
- Only the API of TensorRT 10 and later is used (named tensors, `execute_async_v3`); a contract test holds every
  attribute against the real bindings.
"""

import hashlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from swarmd_models.backends.base import Announce, Array, Artefact, Capability, TensorSpec
from swarmd_models.backends.cuda_memory import CudaMemory, open_cuda
from swarmd_models.errors import BackendError

MIN_MAJOR = 10
"""TensorRT release from which on there is one binding API (the older was removed in it)."""
BUILD_LIMIT_S = 1800.0
"""Seconds for building an engine: half an hour is more than a Jetson takes for our largest model."""
CHECK_LIMIT_S = 120.0
"""Seconds for loading and running a built engine once, driver start included."""
_MODULES = ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_lean_bindings")
"""The full library first: only it can build engines. Names in _bindings are the wheels without their meta package."""
_DTYPES = {"FLOAT": np.float32, "HALF": np.float16, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32}


class TensorRtBackend:
    """One TensorRT engine with its context, stream, pinned memory and, when possible, a recorded graph."""

    kind: ClassVar[str] = "tensorrt"

    def __init__(self, engine: Any, trt: Any, memory: CudaMemory, runtime: str) -> None:
        """Wrap an engine; use `load`."""
        self.runtime = runtime
        self._memory = memory
        self._trt = trt
        self._engine = engine
        self._context = engine.create_execution_context()
        if self._context is None:
            raise BackendError("TensorRT gives no execution context: not enough device memory")
        self._stream = memory.stream()
        specs = {mode: _specs(engine, trt, mode) for mode in ("INPUT", "OUTPUT")}
        self.inputs, self.outputs = specs["INPUT"], specs["OUTPUT"]
        self._host: dict[str, Array] = {}
        self._device: dict[str, int] = {}
        for spec in (*self.inputs, *self.outputs):
            array = memory.pinned(spec.shape, spec.dtype)
            self._host[spec.name] = array
            self._device[spec.name] = memory.allocate(max(array.nbytes, 1))
            if not self._context.set_tensor_address(spec.name, self._device[spec.name]):
                raise BackendError(f"TensorRT refuses the address of tensor {spec.name}")
        self._graph: int | None = None
        self._may_record = True
        self._runs = 0

    @classmethod
    def probe(cls) -> Capability:
        """Ask for the library and for a CUDA device, in an order that cannot crash."""
        try:
            trt = _module()
            memory = open_cuda()
            return Capability(True, f"tensorrt {trt.__version__}, {memory.name}, {memory.device_key()}")
        except BackendError as error:
            return Capability(False, str(error))

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "TensorRtBackend":
        """Load the engine of this model for this device, building it first when there is none."""
        if artefact.device:
            raise BackendError(f"TensorRT chooses its GPU by CUDA_VISIBLE_DEVICES; name it without @{artefact.device}")
        if artefact.onnx is None:
            raise BackendError(f"model {artefact.name} has no .onnx file, which TensorRT needs")
        trt, memory = _module(), open_cuda()
        path = engine_path(artefact.name, artefact.onnx, trt.__version__, memory.device_key())
        if not path.exists():
            build_engine(artefact.onnx, path, announce)
        else:
            check_engine(path, announce)
        logger = trt.Logger(trt.Logger.ERROR)
        runtime = trt.Runtime(logger)
        engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            path.unlink(missing_ok=True)
            raise BackendError(f"TensorRT refuses its engine {path.name}; it has been removed and will be built anew")
        return cls(engine, trt, memory, f"tensorrt {trt.__version__}, {memory.name}, {memory.device_key()}")

    def input_view(self) -> Array:
        """The input in pinned memory."""
        view: Array = self._host[self.inputs[0].name][0]
        return view

    def infer(self) -> None:
        """Copy in, run, copy out, wait; from the third run on as one recorded graph."""
        if self._context is None:
            raise BackendError("the model has been closed")
        if self._graph is not None:
            self._memory.launch(self._graph, self._stream)
        elif self._may_record and self._runs >= 2:
            self._record()
        else:
            self._enqueue()
        self._memory.wait(self._stream)
        self._runs += 1

    def output_views(self) -> list[Array]:
        """The outputs in pinned memory."""
        return [self._host[spec.name][0] if len(spec.shape) > 1 else self._host[spec.name] for spec in self.outputs]

    def layer_times(self, runs: int) -> dict[str, float]:
        """Milliseconds of every layer of the engine, the mean of `runs`; raises `BackendError`.

        A recorded graph tells no layers, so these runs are call by call.
        """
        if self._context is None:
            raise BackendError("the model has been closed")
        sums: dict[str, float] = defaultdict(float)
        self._context.profiler = _profiler(self._trt, sums)
        for _ in range(runs):
            self._enqueue()
            self._memory.wait(self._stream)
        self._context.profiler = None
        return {name: ms / runs for name, ms in sums.items()}

    def close(self) -> None:
        """Free device memory."""
        for address in self._device.values():
            self._memory.release(address)
        self._device.clear()
        self._host.clear()
        if self._context is not None:
            self._memory.close()
        self._context = self._engine = None
        self._graph = None

    def _enqueue(self) -> None:
        for spec in self.inputs:
            self._memory.to_device(self._device[spec.name], self._host[spec.name], self._stream)
        if not self._context.execute_async_v3(self._stream):
            raise BackendError("TensorRT failed while running the model")
        for spec in self.outputs:
            self._memory.to_host(self._host[spec.name], self._device[spec.name], self._stream)

    def _record(self) -> None:
        """Record one run as a graph; a model that cannot be recorded is run call by call for good."""
        try:
            self._memory.begin_capture(self._stream)
            self._enqueue()
            self._graph = self._memory.end_capture(self._stream)
            self._memory.launch(self._graph, self._stream)
        except BackendError:
            self._may_record, self._graph = False, None
            self._enqueue()


def engine_path(name: str, onnx: Path, version: str, device_key: str) -> Path:
    """Where the engine of this model for this device lies.

    Args:
        name: Of the model, for people who look into the folder.
        onnx: What the engine is built from: its bytes, not its name, are in the key.
        version: Of TensorRT.
        device_key: Driver and compute capability.

    Raises:
        BackendError: The cache folder cannot be written: every start would build for minutes. Or there is no model.
    """
    try:
        digest = hashlib.sha256(onnx.read_bytes()).hexdigest()
    except OSError as error:
        raise BackendError(f"cannot read {onnx}: {error.strerror}") from error
    base = os.environ.get("CACHE_DIRECTORY") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base.split(":")[0]) / "swarmd" / "engines"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BackendError(
            f"engine cache {folder} cannot be written ({error.strerror}); set CACHE_DIRECTORY to a folder that can"
        ) from error
    key = hashlib.sha256(f"{digest}\n{version}\n{device_key}".encode()).hexdigest()[:32]
    plain = "".join(c if c.isalnum() or c in "-." else "_" for c in name)[:40]
    return folder / f"{plain}-trt{version}-{device_key}-{key}.engine"


def build_engine(onnx: Path, path: Path, announce: Announce) -> None:
    """Build an engine in a child process; raises `BackendError` when it fails or crashes."""
    announce(f"building_engine: 0 % ({onnx.name}; this takes minutes, once)")
    _in_child(["build", str(onnx), str(path)], announce, BUILD_LIMIT_S)


def check_engine(path: Path, announce: Announce) -> None:
    """Load an engine in a child process first: a crash there costs nothing here."""
    try:
        _in_child(["check", str(path)], announce, CHECK_LIMIT_S)
    except BackendError:
        path.unlink(missing_ok=True)
        raise


def _in_child(arguments: list[str], announce: Announce, limit_s: float) -> None:
    command = [sys.executable, "-m", "swarmd_models.backends.tensorrt_build", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as child:
        assert child.stdout is not None
        last = ""
        # A child that hangs says nothing more: only a clock beside the reading ends it.
        over = threading.Event()

        def end() -> None:
            over.set()
            child.kill()

        clock = threading.Timer(limit_s, end)
        clock.daemon = True
        clock.start()
        for line in child.stdout:
            last = line.strip()[:300] or last
            if last.startswith("building_engine"):
                announce(last)
        status = child.wait()
        clock.cancel()
    if status == -signal.SIGKILL and over.is_set():
        raise BackendError(f"TensorRT did not end within {limit_s:g} s in its child process: {last}")
    if status < 0:
        raise BackendError(f"TensorRT crashed with signal {-status} in its child process: {last}")
    if status:
        raise BackendError(f"TensorRT: {last or f'status {status}'}")


def _module() -> Any:
    reasons = []
    for name in _MODULES:
        try:
            trt = importlib.import_module(name)
        except (ImportError, OSError) as error:
            reasons.append(str(error))
            continue
        if int(str(trt.__version__).split(".")[0]) < MIN_MAJOR:
            raise BackendError(f"TensorRT {trt.__version__} is too old; {MIN_MAJOR} or later is needed")
        return trt
    raise BackendError(f"no TensorRT here: install the extra, `pip install swarmd[tensorrt]` ({'; '.join(reasons)})")


def _profiler(trt: Any, sums: dict[str, float]) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc]
        """Adds up what TensorRT reports."""

        def __init__(self) -> None:
            """Nothing yet."""
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            """One layer of one run."""
            sums[layer_name] += ms

    return Profiler()


def _specs(engine: Any, trt: Any, mode: str) -> tuple[TensorSpec, ...]:
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if engine.get_tensor_mode(name) != getattr(trt.TensorIOMode, mode):
            continue
        kind = next((k for k in _DTYPES if engine.get_tensor_dtype(name) == getattr(trt.DataType, k)), None)
        shape = tuple(int(n) for n in engine.get_tensor_shape(name))
        if kind is None or any(n <= 0 for n in shape):
            raise BackendError(f"tensor {name} of the engine has the shape {shape}; fixed shapes are needed")
        found.append(TensorSpec(name, shape, np.dtype(_DTYPES[kind])))
    return tuple(found)
