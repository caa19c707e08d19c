"""Device memory, streams and graphs for TensorRT behind one small surface, with `cuda-bindings` and `pycuda` variants.

`cuda-bindings` is the default: wheels for every board, no compiler. `pycuda` serves sites that have it already.
Every pointer and handle is a plain integer here, which is what TensorRT's Python API takes.
"""

import importlib
import threading
from typing import Any, Protocol

import numpy as np

from swarmd_models.backends.base import Array
from swarmd_models.errors import BackendError


class CudaMemory(Protocol):
    """What the TensorRT backend needs of CUDA."""

    name: str

    def device_count(self) -> int:
        """CUDA devices that can be used; raises `BackendError` when there is no driver."""
        ...

    def device_key(self) -> str:
        """Driver and compute capability, such as "13000-sm90": engines are good for exactly one such key."""
        ...

    def allocate(self, size: int) -> int:
        """Device memory; its address."""
        ...

    def release(self, address: int) -> None:
        """Free device memory."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """A host array in page-locked memory."""
        ...

    def stream(self) -> int:
        """A new stream; its handle."""
        ...

    def to_device(self, address: int, source: Array, stream: int) -> None:
        """Copy on the stream."""
        ...

    def to_host(self, target: Array, address: int, stream: int) -> None:
        """Copy on the stream."""
        ...

    def wait(self, stream: int) -> None:
        """Until everything on the stream is done."""
        ...

    def begin_capture(self, stream: int) -> None:
        """Record what follows on the stream instead of running it."""
        ...

    def end_capture(self, stream: int) -> int:
        """An executable graph of what was recorded; its handle."""
        ...

    def launch(self, graph: int, stream: int) -> None:
        """Run a recorded graph."""
        ...

    def close(self) -> None:
        """Give back host memory, streams and graphs; arrays of `pinned` are gone then. May be called twice."""
        ...


class BindingsMemory:
    """CUDA through NVIDIA's `cuda-bindings`; every call there answers (error, values…)."""

    name = "cuda-bindings"

    def __init__(self) -> None:
        """Import the library; raises `BackendError` when it is missing."""
        try:
            self._cuda = importlib.import_module("cuda.bindings.runtime")
        except ImportError as error:
            raise BackendError("no cuda-bindings here: install the extra, `pip install swarmd[tensorrt]`") from error
        self._host: list[Any] = []
        self._streams: list[int] = []
        self._graphs: list[tuple[Any, Any]] = []

    def device_count(self) -> int:
        """CUDA devices that can be used."""
        return int(self._call("cudaGetDeviceCount"))

    def device_key(self) -> str:
        """Driver and compute capability."""
        attributes = self._cuda.cudaDeviceAttr
        major = self._call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMajor, 0)
        minor = self._call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMinor, 0)
        return f"{self._call('cudaDriverGetVersion')}-sm{major}{minor}"

    def allocate(self, size: int) -> int:
        """Device memory."""
        return int(self._call("cudaMalloc", size))

    def release(self, address: int) -> None:
        """Free device memory."""
        self._call("cudaFree", address)

    def pinned(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """A host array in page-locked memory."""
        import ctypes

        size = int(np.prod(shape)) * dtype.itemsize
        address = int(self._call("cudaHostAlloc", size, self._cuda.cudaHostAllocDefault))
        block = (ctypes.c_uint8 * size).from_address(address)
        self._host.append(block)
        array: Array = np.ndarray(shape, dtype, memoryview(block))
        return array

    def stream(self) -> int:
        """A new stream."""
        made = int(self._call("cudaStreamCreateWithFlags", self._cuda.cudaStreamNonBlocking))
        self._streams.append(made)
        return made

    def to_device(self, address: int, source: Array, stream: int) -> None:
        """Copy on the stream."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("cudaMemcpyAsync", address, source.ctypes.data, source.nbytes, kind, stream)

    def to_host(self, target: Array, address: int, stream: int) -> None:
        """Copy on the stream."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("cudaMemcpyAsync", target.ctypes.data, address, target.nbytes, kind, stream)

    def wait(self, stream: int) -> None:
        """Until everything on the stream is done."""
        self._call("cudaStreamSynchronize", stream)

    def begin_capture(self, stream: int) -> None:
        """Record what follows on the stream."""
        self._call("cudaStreamBeginCapture", stream, self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)

    def end_capture(self, stream: int) -> int:
        """An executable graph."""
        graph = self._call("cudaStreamEndCapture", stream)
        executable = self._call("cudaGraphInstantiate", graph, 0)
        self._graphs.append((graph, executable))
        return int(executable)

    def launch(self, graph: int, stream: int) -> None:
        """Run a recorded graph."""
        self._call("cudaGraphLaunch", graph, stream)

    def close(self) -> None:
        """Give back host memory, streams and graphs."""
        import ctypes

        for graph, executable in self._graphs:
            self._call("cudaGraphExecDestroy", executable)
            self._call("cudaGraphDestroy", graph)
        for stream in self._streams:
            self._call("cudaStreamDestroy", stream)
        for block in self._host:
            self._call("cudaFreeHost", ctypes.addressof(block))
        self._graphs, self._streams, self._host = [], [], []

    def _call(self, name: str, *args: Any) -> Any:
        error, *values = getattr(self._cuda, name)(*args)
        if int(error) != 0:
            raise BackendError(f"CUDA: {name} failed with error {int(error)} ({getattr(error, 'name', error)})")
        return values[0] if values else None


class PyCudaMemory:
    """CUDA through `pycuda`, which knows no runtime graphs: the backend then launches call by call.

    A context of the driver belongs to the thread that pushed it; a model is loaded by one thread and run by another, so
    every call makes sure of it.
    """

    name = "pycuda"

    def __init__(self) -> None:
        """Import the library and make a context; raises `BackendError` when either fails."""
        try:
            self._api = importlib.import_module("pycuda.driver")
            self._api.init()
            self._context = self._api.Device(0).retain_primary_context()
        except Exception as error:
            # pycuda's own errors exist only once it could be imported.
            raise BackendError(f"pycuda cannot be used: {error}") from error
        self._threads = threading.local()
        self._kept: dict[int, Any] = {}
        self._pinned: list[Any] = []

    def device_count(self) -> int:
        """CUDA devices that can be used."""
        return int(self._driver().Device.count())

    def device_key(self) -> str:
        """Driver and compute capability."""
        major, minor = self._driver().Device(0).compute_capability()
        return f"{self._api.get_driver_version()}-sm{major}{minor}"

    def allocate(self, size: int) -> int:
        """Device memory."""
        block = self._driver().mem_alloc(size)
        self._kept[int(block)] = block
        return int(block)

    def release(self, address: int) -> None:
        """Free device memory."""
        self._driver()
        self._kept.pop(address).free()

    def pinned(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """A host array in page-locked memory."""
        array: Array = self._driver().pagelocked_empty(shape, dtype)
        self._pinned.append(array)
        return array

    def stream(self) -> int:
        """A new stream."""
        made = self._driver().Stream()
        self._kept[made.handle] = made
        return int(made.handle)

    def to_device(self, address: int, source: Array, stream: int) -> None:
        """Copy on the stream."""
        self._driver().memcpy_htod_async(address, source, self._kept[stream])

    def to_host(self, target: Array, address: int, stream: int) -> None:
        """Copy on the stream."""
        self._driver().memcpy_dtoh_async(target, address, self._kept[stream])

    def wait(self, stream: int) -> None:
        """Until everything on the stream is done."""
        self._driver()
        self._kept[stream].synchronize()

    def begin_capture(self, stream: int) -> None:
        """Not offered."""
        raise BackendError("pycuda records no graphs")

    def end_capture(self, stream: int) -> int:
        """Not offered."""
        raise BackendError("pycuda records no graphs")

    def launch(self, graph: int, stream: int) -> None:
        """Not offered."""
        raise BackendError("pycuda records no graphs")

    def close(self) -> None:
        """Let go of host memory and streams, which free themselves."""
        self._driver()
        self._kept.clear()
        self._pinned.clear()

    def _driver(self) -> Any:
        if not getattr(self._threads, "has_context", False):
            self._context.push()
            self._threads.has_context = True
        return self._api


def open_cuda() -> CudaMemory:
    """The first variant that can be used; raises `BackendError` with every reason."""
    reasons = []
    for variant in (BindingsMemory, PyCudaMemory):
        try:
            memory: CudaMemory = variant()
            if memory.device_count() < 1:
                raise BackendError("CUDA sees no device")
            return memory
        except BackendError as error:
            reasons.append(str(error))
        except Exception as error:
            # cuda-bindings raises its own kind when libcuda is absent.
            reasons.append(f"{variant.name}: {error}")
    raise BackendError("; ".join(reasons))
