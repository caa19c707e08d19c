"""ONNX Runtime, for the bundle's QDQ `.onnx`; an extra (`pip install swarmd[onnx]`)."""

import importlib
import importlib.util
from typing import Any, ClassVar

import numpy as np

from swarmd_models.backends.base import Announce, Array, Artefact, Capability, TensorSpec
from swarmd_models.errors import BackendError

DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
}


PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dml": "DmlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
"""Devices to execution providers, the best first; a wheel has those that it was built with."""
_CPU = "CPUExecutionProvider"


class OnnxBackend:
    """One ONNX Runtime session."""

    kind: ClassVar[str] = "onnx"

    def __init__(self, session: Any, runtime: str) -> None:
        """Wrap a session; use `load`."""
        self.runtime = runtime
        self._session: Any | None = session
        self.inputs = tuple(_spec(node) for node in session.get_inputs())
        self.outputs = tuple(_spec(node) for node in session.get_outputs())
        self._names = [spec.name for spec in self.outputs]
        self._input = np.zeros(self.inputs[0].shape, self.inputs[0].dtype)
        self._feed = {self.inputs[0].name: self._input}
        self._results: list[Array] = []

    @classmethod
    def probe(cls) -> Capability:
        """Look for the library."""
        if importlib.util.find_spec("onnxruntime") is None:
            return Capability(False, "no ONNX Runtime here: install the extra, `pip install swarmd[onnx]`")
        try:
            version = importlib.import_module("onnxruntime").__version__
        except (ImportError, AttributeError, OSError) as error:
            return Capability(False, f"ONNX Runtime cannot be loaded: {error}")
        return Capability(True, f"onnxruntime {version}")

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """Devices that this wheel was built for, the best first; whether they are there shows on loading."""
        try:
            built = importlib.import_module("onnxruntime").get_available_providers()
        except (ImportError, AttributeError, OSError):
            return ()
        return tuple(device for device, provider in PROVIDERS.items() if provider in built)

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "OnnxBackend":
        """Load the `.onnx` form of the model."""
        if artefact.onnx is None:
            raise BackendError(f"model {artefact.name} has no .onnx file, which ONNX Runtime needs")
        ort = importlib.import_module("onnxruntime")
        provider = _provider(artefact.device, ort.get_available_providers())
        options = options_for(ort, threads)
        try:
            wanted = [provider] if provider == _CPU else [provider, _CPU]
            session = ort.InferenceSession(str(artefact.onnx), options, providers=wanted)
            # It falls back by itself where a device's libraries are missing, and says so only in its log.
            if session.get_providers()[0] != provider:
                raise BackendError(f"ONNX Runtime could not begin with {provider}: its libraries or its device lack")
            on = f", {artefact.device}" if artefact.device else ""
            return cls(session, f"onnxruntime {ort.__version__}{on}, {threads} thread{'s' if threads > 1 else ''}")
        except BackendError:
            raise
        except Exception as error:
            # The library's exceptions share no base class but Exception.
            raise BackendError(
                f"ONNX Runtime refuses {artefact.onnx.name}: {' '.join(str(error).split())[:200]}"
            ) from error

    def input_view(self) -> Array:
        """The input array."""
        view: Array = self._input[0]
        return view

    def infer(self) -> None:
        """Run the session once."""
        if self._session is None:
            raise BackendError("the model has been closed")
        try:
            self._results = self._session.run(self._names, self._feed)
        except Exception as error:
            raise BackendError(f"ONNX Runtime failed while running the model: {str(error)[:200]}") from error

    def output_views(self) -> list[Array]:
        """The results of the last run."""
        return [result[0] if result.ndim > 1 else result for result in self._results]

    def close(self) -> None:
        """Free the session."""
        self._session = None
        self._results = []


def options_for(ort: Any, threads: int) -> Any:
    """How a model runs on a processor: ONNX Runtime's `SessionOptions`.

    Args:
        ort: The library.
        threads: Of one run.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # A spinning thread pool takes a whole core from the brain for nothing.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Without VNNI (Zen 2, Skylake) sums of int8 products saturate at 16 bits, and answers are wrong. Source: ONNX
    # Runtime, kOrtSessionOptionsAvx2PrecisionMode.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def _provider(device: str, built: list[str]) -> str:
    if device.lower() in ("", "cpu"):
        return _CPU
    provider = PROVIDERS.get(device.lower())
    if provider is None:
        raise BackendError(f"ONNX Runtime has no device {device!r}; it may have {', '.join(PROVIDERS)}")
    if provider not in built:
        raise BackendError(f"this ONNX Runtime was built without {provider}; it has {', '.join(built)}")
    return provider


def _spec(node: Any) -> TensorSpec:
    dtype = DTYPES.get(node.type)
    shape = tuple(node.shape)
    if dtype is None or not all(isinstance(n, int) and n > 0 for n in shape):
        raise BackendError(
            f"tensor {node.name} of the model is {node.type} {shape}; fixed shapes of 8-bit, float "
            "or whole numbers needed"
        )
    return TensorSpec(node.name, shape, dtype)
