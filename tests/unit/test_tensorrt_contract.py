"""TensorRT held to its contract without a device.

Its attributes are held against the real bindings when those are installed (the full ones against libraries stubbed with
the C compiler), and its logic runs against a stand-in; who runs what is in child processes is part of it.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import swarmd_models.backends.tensorrt as trt_backend
import swarmd_models.backends.tensorrt_build as trt_build
from swarmd_models.backends import Artefact, backend_class, cuda_memory
from swarmd_models.backends.cuda_memory import BindingsMemory, PyCudaMemory
from swarmd_models.backends.layers import layers_of
from swarmd_models.errors import BackendError
from tests.support.bundles import ZOO_MODEL


def _quiet(text: str) -> None:
    pass


# --- TensorRT -------------------------------------------------------------------------------------------------------

OBJECTS = {
    "engine": "ICudaEngine",
    "_engine": "ICudaEngine",
    "context": "IExecutionContext",
    "_context": "IExecutionContext",
    "runtime": "Runtime",
    "builder": "Builder",
    "config": "IBuilderConfig",
    "parser": "OnnxParser",
    "trt": "",
}
"""Names that our code gives to TensorRT's objects, and the class behind each ("" = the module)."""
GONE = {
    "execute_async_v2",
    "set_binding_shape",
    "get_binding_shape",
    "num_bindings",
    "get_binding_name",
    "max_batch_size",
}


def _used() -> set[tuple[str, str]]:
    """(class, attribute) for everything that our code asks of TensorRT."""
    used = set()
    for module in (trt_backend, trt_build):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute):
                continue
            base = node.value
            name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
            if name in OBJECTS:
                used.add((OBJECTS[name], node.attr))
    # Our own backend has a field called runtime; what is text there is no TensorRT object.
    return {(c, a) for c, a in used if a not in ("__version__",)}


def _called() -> set[tuple[str, str, int]]:
    """(class, method, number of arguments) for every call of a method that our code makes."""
    called = set()
    for module in (trt_backend, trt_build):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            base = node.func.value
            name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
            if OBJECTS.get(name):
                called.add((OBJECTS[name], node.func.attr, len(node.args) + len(node.keywords)))
    return called


def test_our_code_asks_for_nothing_that_tensorrt_10_dropped() -> None:
    used = _used()
    assert {"execute_async_v3", "set_tensor_address"} <= {attribute for _, attribute in used}
    assert not GONE & {attribute for _, attribute in used}


LOOK = """
import importlib, json, re, sys
module = importlib.import_module(sys.argv[1])
checked = []
def takes(owner, name, count):
    # Signatures stand in pybind's docstrings; a name without one is checked for being there only.
    text = getattr(getattr(module, owner), name).__doc__ or ""
    found = re.findall(rf"{name}\\(([^)]*)\\)", text)
    checked.extend([name] * bool(found))
    for parameters in found:
        parts = [p for p in re.sub(r"\\[[^\\]]*\\]", "", parameters).split(",") if p.strip() and "self" not in p]
        if sum("=" not in p for p in parts) <= count <= len(parts):
            return True
    return not found
is_full = hasattr(module, "Builder")
only_full = {"Builder", "IBuilderConfig", "OnnxParser", "IProgressMonitor", "MemoryPoolType"}
missing = [
    f"{owner or 'module'}.{name}" for owner, name in json.loads(sys.argv[2])
    if (is_full or not {owner, name} & only_full) and not hasattr(getattr(module, owner) if owner else module, name)
]
wrong = [
    f"{owner}.{name} with {count} arguments" for owner, name, count in json.loads(sys.argv[3])
    if (is_full or not {owner, name} & only_full) and not takes(owner, name, count)
]
answer = {"version": module.__version__, "is_full": is_full, "missing": missing}
print(json.dumps({**answer, "checked": checked, "wrong": wrong}))
"""
STUBS = {
    "nvinfer_lean": ["createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL", "getPluginRegistry"],
    "nvinfer": ["createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
                "getBuilderPluginRegistry", "getPluginRegistry"],
    "nvonnxparser": ["createNvOnnxParserRefitter_INTERNAL", "createNvOnnxParser_INTERNAL", "getNvOnnxParserVersion"],
    "nvinfer_plugin": ["initLibNvInferPlugins"],
}  # fmt: skip
"""Every symbol that the bindings take from the libraries of a device."""


def _stub_libraries(folder: Path) -> None:
    for library, symbols in STUBS.items():
        source = folder / f"{library}.c"
        source.write_text("".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in symbols))
        target = folder / f"lib{library}.so.10"
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", str(target), str(source)]
        subprocess.run(command, check=True)


@pytest.mark.parametrize("name", ["tensorrt_lean_bindings", "tensorrt_bindings"])
def test_every_attribute_that_we_use_exists_in_the_real_bindings(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for the stubs of the device's libraries (apt install gcc)")
    _stub_libraries(tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-c", LOOK, name, json.dumps(sorted(_used())), json.dumps(sorted(_called()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["missing"] == []
    assert answer["wrong"] == []
    assert {"execute_async_v3", "set_tensor_address", "deserialize_cuda_engine"} <= set(answer["checked"])
    assert answer["is_full"] == (name == "tensorrt_bindings")
    assert answer["version"].startswith("10.")


def test_every_call_that_we_make_exists_in_the_real_cuda_bindings() -> None:
    cuda = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    source = Path(cuda_memory.__file__).read_text(encoding="utf-8")
    names = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"cuda[A-Z]\w+", node.value)
    }
    assert {"cudaMalloc", "cudaFreeHost", "cudaGraphLaunch", "cudaStreamDestroy"} <= names
    assert [name for name in sorted(names) if not hasattr(cuda, name)] == []


class _FakeCuda:
    """A device whose memory is host memory; counts what is called."""

    name = "fake"

    def __init__(self, records: bool) -> None:
        self.blocks: dict[int, np.ndarray] = {}
        self.records = records
        self.calls: list[str] = []
        self.graph: list[tuple[str, tuple[object, ...]]] | None = None

    def device_count(self) -> int:
        return 1

    def device_key(self) -> str:
        return "13000-sm90"

    def allocate(self, size: int) -> int:
        self.blocks[1000 + len(self.blocks)] = np.zeros(size, np.uint8)
        return 1000 + len(self.blocks) - 1

    def release(self, address: int) -> None:
        del self.blocks[address]

    def pinned(self, shape: tuple[int, ...], dtype: "np.dtype[object]") -> np.ndarray:
        return np.zeros(shape, dtype)

    def stream(self) -> int:
        return 7

    def to_device(self, address: int, source: np.ndarray, stream: int) -> None:
        self.calls.append("in")
        self.blocks[address][:] = source.view(np.uint8).ravel()

    def to_host(self, target: np.ndarray, address: int, stream: int) -> None:
        self.calls.append("out")
        target.view(np.uint8).ravel()[:] = self.blocks[address]

    def wait(self, stream: int) -> None:
        self.calls.append("wait")

    def begin_capture(self, stream: int) -> None:
        if not self.records:
            raise BackendError("no graphs here")

    def end_capture(self, stream: int) -> int:
        return 99

    def launch(self, graph: int, stream: int) -> None:
        self.calls.append("launch")

    def close(self) -> None:
        self.calls.append("close")


class _FakeContext:
    def __init__(self, cuda: _FakeCuda) -> None:
        self.cuda, self.addresses, self.fails = cuda, {}, False
        self.profiler: Any = None

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        if self.fails:
            return False
        self.cuda.blocks[self.addresses["y"]][:] = self.cuda.blocks[self.addresses["x"]]
        if self.profiler is not None:
            self.profiler.report_layer_time("conv", 2.0)
            self.profiler.report_layer_time("relu", 0.5)
        return True


class _FakeTrt:
    class IProfiler:
        pass

    class TensorIOMode:
        INPUT, OUTPUT = "in", "out"

    class DataType:
        FLOAT, HALF, INT8, UINT8, INT32 = "f", "h", "i", "u", "l"


class _FakeEngine:
    num_io_tensors = 2

    def __init__(self, cuda: _FakeCuda) -> None:
        self.context = _FakeContext(cuda)

    def create_execution_context(self) -> _FakeContext:
        return self.context

    def get_tensor_name(self, index: int) -> str:
        return "xy"[index]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> str:
        return "f"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (1, 3, 2, 2)


class _FakeCudart:
    """`cuda.bindings.runtime` as it answers: (error, values…). Counts what is made and given back."""

    cudaHostAllocDefault = 0
    cudaStreamNonBlocking = 1
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self) -> None:
        self.open: list[str] = []
        self._host: list[Any] = []

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        import ctypes

        self._host.append(ctypes.create_string_buffer(size))
        self.open.append("host")
        return 0, ctypes.addressof(self._host[-1])

    def __getattr__(self, name: str) -> Any:
        made = {"StreamCreateWithFlags": "stream", "StreamEndCapture": "graph", "GraphInstantiate": "executable"}
        gone = {
            "FreeHost": "host",
            "StreamDestroy": "stream",
            "GraphDestroy": "graph",
            "GraphExecDestroy": "executable",
        }

        def call(*args: object) -> tuple[int, ...]:
            what = name.removeprefix("cuda")
            if what in gone:
                self.open.remove(gone[what])
                return (0,)
            if what in made:
                self.open.append(made[what])
                return 0, 7
            return (0,)

        return call


def test_cuda_memory_streams_and_graphs_are_given_back() -> None:
    memory = BindingsMemory.__new__(BindingsMemory)
    cuda = _FakeCudart()
    memory._cuda, memory._host, memory._streams, memory._graphs = cuda, [], [], []
    array = memory.pinned((4, 4), np.dtype(np.float32))
    array[...] = 3.0
    stream = memory.stream()
    memory.begin_capture(stream)
    assert memory.end_capture(stream) == 7
    assert sorted(cuda.open) == ["executable", "graph", "host", "stream"]
    del array
    memory.close()
    memory.close()
    assert cuda.open == []


def test_pycuda_has_its_context_in_every_thread_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A swap loads the model in one thread, and another one runs it."""
    pushed: list[int] = []
    context = SimpleNamespace(push=lambda: pushed.append(threading.get_ident()))
    device = SimpleNamespace(retain_primary_context=lambda: context, compute_capability=lambda: (8, 7))

    class Device:
        count = staticmethod(lambda: 1)

        def __new__(cls, index: int) -> Any:
            return device

    stream = SimpleNamespace(handle=5, synchronize=lambda: None)
    driver = SimpleNamespace(
        init=lambda: None, Device=Device, Stream=lambda: stream, get_driver_version=lambda: 12060,
        mem_alloc=lambda size: 99, pagelocked_empty=lambda shape, dtype: np.zeros(shape, dtype),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    memory = PyCudaMemory()
    assert memory.device_key() == "12060-sm87"
    handle = memory.stream()
    worker = threading.Thread(target=memory.wait, args=(handle,))
    worker.start()
    worker.join()
    memory.wait(handle)
    assert len(pushed) == len(set(pushed)) == 2
    memory.close()


@pytest.mark.parametrize("records", [True, False])
def test_tensorrt_runs_call_by_call_then_as_a_graph_when_it_can(records: bool) -> None:
    cuda = _FakeCuda(records)
    backend = trt_backend.TensorRtBackend(_FakeEngine(cuda), _FakeTrt, cuda, "fake")  # type: ignore[arg-type]
    for run in range(5):
        backend.input_view()[...] = run
        backend.infer()
        if not records or run < 3:
            assert (backend.output_views()[0] == run).all()
    assert cuda.calls.count("launch") == (3 if records else 0)
    assert cuda.calls.count("wait") == 5
    backend.close()
    assert cuda.blocks == {}
    with pytest.raises(BackendError, match="closed"):
        backend.infer()
    backend.close()
    assert cuda.calls.count("close") == 1, "a thousand swaps must not leave a thousand streams behind"


def test_tensorrt_tells_the_time_of_every_layer() -> None:
    cuda = _FakeCuda(records=True)
    engine = _FakeEngine(cuda)
    backend = trt_backend.TensorRtBackend(engine, _FakeTrt, cuda, "fake")  # type: ignore[arg-type]
    assert backend.layer_times(4) == {"conv": 2.0, "relu": 0.5}
    assert engine.context.profiler is None, "the model at work is not slowed down"
    assert layers_of(Artefact("m", None, None), backend, 1) == [
        {"layer": "conv", "type": "", "ms": 2.0},
        {"layer": "relu", "type": "", "ms": 0.5},
    ]
    backend.close()
    assert layers_of(Artefact("m", None, None), backend, 1) == (
        "the runtime's profile could not be read: the model has been closed"
    )


def test_tensorrt_that_fails_to_run_says_so() -> None:
    cuda = _FakeCuda(False)
    engine = _FakeEngine(cuda)
    backend = trt_backend.TensorRtBackend(engine, _FakeTrt, cuda, "fake")  # type: ignore[arg-type]
    engine.context.fails = True
    with pytest.raises(BackendError, match="failed while running"):
        backend.infer()


def test_the_engine_cache_is_keyed_by_all_that_an_engine_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    one, same, other = (tmp_path / name for name in ("one.onnx", "same.onnx", "other.onnx"))
    one.write_bytes(b"weights")
    same.write_bytes(b"weights")
    other.write_bytes(b"other weights")
    of = trt_backend.engine_path
    paths = {
        of("m", one, "10.16.1", "13000-sm90"),
        of("m", one, "10.17.0", "13000-sm90"),
        of("m", one, "10.16.1", "12900-sm90"),
        of("m", one, "10.16.1", "13000-sm87"),
        of("m", other, "10.16.1", "13000-sm90"),
    }
    assert len(paths) == 5
    assert of("m", same, "10.16.1", "13000-sm90") in paths, "what is in the file counts, not where it lies"
    assert of("m (second)", one, "10", "x").name.startswith("m__second_-trt10-x-")
    with pytest.raises(BackendError, match="cannot read"):
        of("m", tmp_path / "gone.onnx", "10", "x")
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("CACHE_DIRECTORY", str(blocked))
    with pytest.raises(BackendError, match=r"engine cache .* cannot be written .*; set CACHE_DIRECTORY"):
        of("m", one, "10", "x")


def _child_that(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Stand in for the child process that builds engines."""
    package = folder / "swarmd_models" / "backends"
    package.mkdir(parents=True)
    (folder / "swarmd_models/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "tensorrt_build.py").write_text(f"print('building_engine: 40 %', flush=True)\n{code}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_child_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output stays open and says nothing: only the clock helps."""
    _child_that(tmp_path, monkeypatch, "import time\ntime.sleep(3600)")
    spoke = threading.Event()

    class Clock(threading.Timer):
        """Half an hour is over as soon as the child has come up and spoken, however long that takes."""

        def run(self) -> None:
            spoke.wait(60)
            self.function(*self.args, **self.kwargs)

    def announce(text: str) -> None:
        if "40 %" in text:
            spoke.set()

    monkeypatch.setattr(threading, "Timer", Clock)
    with pytest.raises(BackendError, match=r"did not end within 1800 s in its child process: building_engine: 40 %"):
        trt_backend.build_engine(tmp_path / "m.onnx", tmp_path / "m.engine", announce)


def test_a_crash_in_the_child_process_is_an_error_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT without a device ends its process with SIGSEGV; here a child stands in for it that does the same."""
    _child_that(tmp_path, monkeypatch, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    said: list[str] = []
    with pytest.raises(BackendError, match=r"TensorRT crashed with signal 11 in its child process"):
        trt_backend.build_engine(tmp_path / "m.onnx", tmp_path / "m.engine", said.append)
    assert said[-1] == "building_engine: 40 %"
    engine = tmp_path / "old.engine"
    engine.touch()
    with pytest.raises(BackendError, match="crashed"):
        trt_backend.check_engine(engine, said.append)
    assert not engine.exists(), "an engine that crashes is not tried at every start"


def test_without_a_device_nothing_of_tensorrt_is_called(tmp_path: Path) -> None:
    capability = backend_class("tensorrt").probe()
    if capability.available:
        pytest.skip("an NVIDIA GPU is here")
    with pytest.raises(BackendError):
        backend_class("tensorrt").load(Artefact("m", None, ZOO_MODEL), 1, _quiet)
    status = trt_build.main(["check", str(tmp_path / "gone.engine")])
    assert status == 1
    assert trt_build.main([]) == 2
