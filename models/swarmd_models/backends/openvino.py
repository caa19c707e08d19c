"""OpenVINO, the fastest runtime on Intel CPUs and their GPUs; an extra (`pip install swarmd[openvino]`).

It reads the bundle's QDQ `.onnx`: its LiteRT front end rejects INT8 `.tflite` files.
"""

import importlib
import importlib.util
from typing import Any, ClassVar

import numpy as np

from swarmd_models.backends.base import Announce, Array, Artefact, Capability, TensorSpec
from swarmd_models.errors import BackendError

_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}  # fmt: skip
SETTINGS = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
"""How a model is compiled. By itself OpenVINO computes what lies between the INT8 layers in bfloat16 wherever the
processor has it, whose 8 bits of mantissa are fewer than the golden vectors allow for (docs/performance/eye.md)."""


class OpenVinoBackend:
    """One compiled OpenVINO model with one request."""

    kind: ClassVar[str] = "openvino"

    def __init__(self, compiled: Any, runtime: str) -> None:
        """Wrap a compiled model; use `load`."""
        self.runtime = runtime
        self.inputs = tuple(_spec(port) for port in compiled.inputs)
        self.outputs = tuple(_spec(port) for port in compiled.outputs)
        self._request: Any | None = compiled.create_infer_request()
        self._input = self._request.get_input_tensor(0).data
        self._views = [self._request.get_output_tensor(index).data for index in range(len(self.outputs))]

    @classmethod
    def probe(cls) -> Capability:
        """Look for the library."""
        if importlib.util.find_spec("openvino") is None:
            return Capability(False, "no OpenVINO here: install the extra, `pip install swarmd[openvino]`")
        try:
            module = importlib.import_module("openvino")
            return Capability(
                True, f"openvino {_version(module)}, devices {', '.join(module.Core().available_devices)}"
            )
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            return Capability(False, f"OpenVINO cannot be loaded: {error}")

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """Devices beside the CPU that OpenVINO finds, the best first."""
        try:
            found = importlib.import_module("openvino").Core().available_devices
        except (ImportError, AttributeError, OSError, RuntimeError):
            return ()
        return tuple(sorted((one for one in found if one != "CPU"), key=lambda one: (not one.startswith("GPU"), one)))

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "OpenVinoBackend":
        """Compile the `.onnx` form of the model for the CPU, or for the device that is named."""
        if artefact.onnx is None:
            raise BackendError(f"model {artefact.name} has no .onnx file, which OpenVINO needs")
        module = importlib.import_module("openvino")
        device = artefact.device.upper() or "CPU"
        # Threads are the CPU's, and other plugins refuse settings that they do not know.
        settings = {**SETTINGS, **({"INFERENCE_NUM_THREADS": threads} if device == "CPU" else {})}
        try:
            core = module.Core()
            if device not in core.available_devices:
                here = ", ".join(core.available_devices)
                raise BackendError(f"OpenVINO finds no {device} here; it has {here}")
            compiled = core.compile_model(str(artefact.onnx), device, settings)
            on = f", {device}" if artefact.device else ""
            return cls(compiled, f"openvino {_version(module)}{on}, {threads} thread{'s' if threads > 1 else ''}")
        except BackendError:
            raise
        except Exception as error:
            # RuntimeError by its documentation; its front ends raise their own kinds.
            raise BackendError(
                f"OpenVINO refuses {artefact.onnx.name}: {' '.join(str(error).split())[:200]}"
            ) from error

    def input_view(self) -> Array:
        """The request's input memory."""
        view: Array = self._input[0]
        return view

    def infer(self) -> None:
        """Run the request once."""
        if self._request is None:
            raise BackendError("the model has been closed")
        try:
            self._request.infer()
        except Exception as error:
            raise BackendError(f"OpenVINO failed while running the model: {str(error)[:200]}") from error

    def output_views(self) -> list[Array]:
        """The request's output memory."""
        return [view[0] if view.ndim > 1 else view for view in self._views]

    def close(self) -> None:
        """Free the request."""
        self._request = None
        self._views = []


def _version(module: Any) -> str:
    return str(module.__version__).split("-")[0]


def _spec(port: Any) -> TensorSpec:
    dtype = _DTYPES.get(port.element_type.get_type_name())
    if dtype is None or port.partial_shape.is_dynamic:
        raise BackendError(f"tensor {port.any_name} of the model has no fixed shape, or is neither 8-bit nor float")
    return TensorSpec(port.any_name, tuple(int(n) for n in port.shape), dtype)
