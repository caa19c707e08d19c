"""LiteRT, the default runtime (`ai-edge-litert`; `tflite_runtime` where a board has only that).

`Interpreter.invoke` releases the GIL; `CompiledModel` of the same library holds it for the whole run, so it is not
used here.
"""

import contextlib
import ctypes.util
import importlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from swarmd_models.backends.base import Announce, Array, Artefact, Capability, TensorSpec
from swarmd_models.backends.emulation import hide_foreign_processor
from swarmd_models.bounded_file import open_regular
from swarmd_models.errors import BackendError

DELEGATES = {"edgetpu": "libedgetpu.so.1"}
"""Devices to the libraries of their delegates."""
_DELEGATE_SYMBOL = "tflite_plugin_create_delegate"
"""What LiteRT calls in a delegate's library (`external_delegate.h`)."""
PLAIN = "plain"
"""The device that is the CPU without XNNPACK: slower kernels, which run what XNNPACK refuses."""
_MODULES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter")


class LiteRtBackend:
    """One LiteRT interpreter with zero-copy access to its tensors."""

    kind: ClassVar[str] = "litert"

    def __init__(self, interpreter: Any, runtime: str) -> None:
        """Wrap an interpreter whose tensors are allocated; use `load`."""
        self.runtime = runtime
        self._interpreter: Any | None = interpreter
        self.inputs = tuple(_spec(detail) for detail in interpreter.get_input_details())
        details = interpreter.get_output_details()
        self.outputs = tuple(_spec(detail) for detail in details)
        self._input = interpreter.tensor(interpreter.get_input_details()[0]["index"])
        self._outputs = [(interpreter.tensor(d["index"]), len(d["shape"]) > 1) for d in details]

    @classmethod
    def probe(cls) -> Capability:
        """Look for one of the two libraries."""
        try:
            module = runtime_module()
        except BackendError as error:
            return Capability(False, str(error))
        return Capability(True, _describe(module))

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """Delegates whose library is here: the Edge TPU's."""
        return tuple(name for name, library in DELEGATES.items() if ctypes.util.find_library(library[3:].split(".")[0]))

    @classmethod
    def load(cls, artefact: Artefact, threads: int, announce: Announce) -> "LiteRtBackend":
        """Load the `.tflite` form of the model."""
        if artefact.tflite is None:
            raise BackendError(f"model {artefact.name} has no .tflite file, which LiteRT needs")
        module = runtime_module()
        hide_foreign_processor()
        chosen = _chosen(module, artefact.device)
        try:
            with quiet_stderr():
                # Read, not mapped: who writes over the file in place would end this process with SIGBUS, or have it
                # answer with other weights than its digest names.
                with open_regular(artefact.tflite) as file:
                    data = file.read()
                interpreter = module.Interpreter(model_content=data, num_threads=threads, **chosen)
                interpreter.allocate_tensors()
        except (OSError, ValueError, RuntimeError) as error:
            raise BackendError(f"LiteRT refuses {artefact.tflite.name}: {_first_sentence(error)}") from error
        on = f", {artefact.device}" if artefact.device else ""
        return cls(interpreter, f"{_describe(module)}{on}, {threads} thread{'s' if threads > 1 else ''}")

    def input_view(self) -> Array:
        """The input tensor itself, without its batch axis."""
        view: Array = self._input()[0]
        return view

    def infer(self) -> None:
        """Run the interpreter once."""
        if self._interpreter is None:
            raise BackendError("the model has been closed")
        try:
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise BackendError(f"LiteRT failed while running the model: {_first_sentence(error)}") from error

    def output_views(self) -> list[Array]:
        """The output tensors themselves."""
        return [view()[0] if batched else view() for view, batched in self._outputs]

    def close(self) -> None:
        """Free the interpreter."""
        self._interpreter = None
        self._input = None
        self._outputs = []


def runtime_module() -> ModuleType:
    """The library that is installed; raises `BackendError` when none is."""
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise BackendError("no LiteRT here: install `ai-edge-litert` (or, on 32-bit Arm, `tflite-runtime`)")


def _chosen(module: ModuleType, device: str) -> dict[str, Any]:
    """What an interpreter is told of a device: nothing for XNNPACK, plain kernels, or a delegate that was loaded.

    Args:
        module: The library.
        device: "", `PLAIN`, one of `DELEGATES`, or a library's path; options follow as `?option=value&…`.

    Raises:
        BackendError: The delegate's library is missing, or is none.
    """
    if not device:
        return {}
    if device == PLAIN:
        return {"experimental_op_resolver_type": module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
    name, _, text = device.partition("?")
    library = DELEGATES.get(name, name if "/" in name else "")
    if not library:
        raise BackendError(f"LiteRT has no device {name!r}; it may have {PLAIN}, {', '.join(DELEGATES)} or a library")
    options = dict(one.partition("=")[::2] for one in text.split("&") if one)
    try:
        # Looked at here first: LiteRT's own object for a library that does not load complains once more as it dies.
        if not hasattr(ctypes.CDLL(library), _DELEGATE_SYMBOL):
            raise BackendError(f"{library} is no delegate: it lacks {_DELEGATE_SYMBOL}")
        with quiet_stderr():
            return {"experimental_delegates": [module.load_delegate(library, options)]}
    except (ValueError, OSError, RuntimeError) as error:
        raise BackendError(f"the delegate {name} cannot be loaded: {_first_sentence(error)}") from error


def _describe(module: ModuleType) -> str:
    package = module.__name__.split(".")[0]
    version = getattr(importlib.import_module(package), "__version__", "") or "?"
    return f"{package.replace('_', '-')} {version}"


def _spec(detail: dict[str, Any]) -> TensorSpec:
    scale, zero_point = detail["quantization"]
    shape = tuple(int(n) for n in detail["shape"])
    return TensorSpec(detail["name"], shape, np.dtype(detail["dtype"]), float(scale), int(zero_point))


def _first_sentence(error: Exception) -> str:
    """LiteRT repeats itself for every tensor; the first 200 characters tell the story."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """LiteRT writes INFO lines to file descriptor 2 from C++; they would stand between our JSON logs."""
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
