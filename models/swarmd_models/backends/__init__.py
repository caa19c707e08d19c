"""Runtimes behind one interface, and the order in which they are tried.

A backend is named in `BACKENDS` by module and class, and imported only when it is asked for: no runtime is loaded
that is not used. A runtime of one's own is named in full, "package.module:Class"; the class is a `Backend` (`base.py`)
and should pass the conformance suite (tests/unit/test_eye_backends.py).
"""

import importlib
from collections.abc import Sequence

from swarmd_models.backends.base import Announce, Artefact, Backend, Capability, TensorSpec
from swarmd_models.errors import BackendError

__all__ = ["BACKENDS", "Artefact", "Backend", "Capability", "TensorSpec", "backend_class", "open_backend", "probe_all"]

BACKENDS: dict[str, str] = {
    "litert": "swarmd_models.backends.litert:LiteRtBackend",
    "onnx": "swarmd_models.backends.onnx:OnnxBackend",
    "openvino": "swarmd_models.backends.openvino:OpenVinoBackend",
    "tensorrt": "swarmd_models.backends.tensorrt:TensorRtBackend",
}
"""Kind to "module:Class"."""


_READ_ONNX = ("onnx", "openvino")
"""Which are asked for a model that is an `.onnx` file alone, where none of the order reads one."""


def _may_read_onnx(kind: str) -> bool:
    return kind in _READ_ONNX or kind == "tensorrt" or kind not in BACKENDS


def backend_class(kind: str) -> type[Backend]:
    """The class behind a kind, or behind "package.module:Class"; raises `BackendError` when there is none."""
    target = BACKENDS.get(kind, kind if ":" in kind else "")
    if not target:
        raise BackendError(f"no backend is called {kind!r}; there are {', '.join(BACKENDS)}")
    module, _, name = target.partition(":")
    try:
        found: type[Backend] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BackendError(f"backend {kind} cannot be imported: {error}") from error
    return found


def probe_all() -> dict[str, Capability]:
    """What every known backend says of this device."""
    return {kind: backend_class(kind).probe() for kind in BACKENDS}


def open_backend(artefact: Artefact, order: Sequence[str], threads: int, announce: Announce) -> Backend:
    """Load the model into the first runtime of `order` that can; each step down is announced.

    Args:
        artefact: The model's files.
        order: Kinds, the preferred first; at least one.
        threads: Threads for inference; >= 1.
        announce: Told why a runtime was passed over.

    Raises:
        BackendError: None of them could load it; the message has every reason.
    """
    reasons: list[str] = []
    if artefact.tflite is None and not any(_may_read_onnx(kind) for kind in order):
        announce(
            f"model {artefact.name} is an .onnx file, which {', '.join(order)} cannot read; "
            f"trying {', '.join(_READ_ONNX)}"
        )
        order = _READ_ONNX
    for kind in order:
        try:
            found = backend_class(kind)
            capability = found.probe()
            if not capability.available:
                raise BackendError(capability.detail)
            return found.load(artefact, threads, announce)
        except BackendError as error:
            reasons.append(str(error) if len(order) == 1 else f"{kind}: {error}")
            if kind != order[-1]:
                announce(f"backend {kind} cannot be used ({error}); trying the next")
    raise BackendError("; ".join(reasons) if reasons else "no backend was named")
