"""Runtimes behind one interface, and the order in which they are tried.

A backend is named in `BACKENDS` by module and class, and imported only when it is asked for: no runtime is loaded
that is not used. "kind@device" names what it shall compute on; such a one is held to the bundle's golden vectors before
it counts. A runtime of one's own is named in full, "package.module:Class"; the class is a `Backend` (`base.py`)
and should pass the conformance suite (tests/unit/test_eye_backends.py).
"""

import dataclasses
import importlib
from collections.abc import Callable, Sequence

from swarmd_models.backends.base import Announce, Artefact, Backend, Capability, TensorSpec
from swarmd_models.errors import BackendError, ModelError

__all__ = [
    "BACKENDS",
    "Artefact",
    "Backend",
    "Capability",
    "TensorSpec",
    "backend_class",
    "devices_of",
    "in_order",
    "open_backend",
    "probe_all",
    "split_device",
]

BACKENDS: dict[str, str] = {
    "litert": "swarmd_models.backends.litert:LiteRtBackend",
    "onnx": "swarmd_models.backends.onnx:OnnxBackend",
    "openvino": "swarmd_models.backends.openvino:OpenVinoBackend",
    "tensorrt": "swarmd_models.backends.tensorrt:TensorRtBackend",
}
"""Kind to "module:Class"."""


AUTO = "auto"
"""The device that stands for all that are here."""
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


def split_device(entry: str) -> tuple[str, str]:
    """Kind and device of "kind@device"; no device where none is named.

    >>> split_device("onnx@cuda"), split_device("litert")
    (('onnx', 'cuda'), ('litert', ''))
    """
    kind, _, device = entry.partition("@")
    return kind, device


def devices_of(kind: str) -> tuple[str, ...]:
    """Devices beside the CPU that a runtime finds here, the best first; none where it cannot be asked."""
    try:
        ask = getattr(backend_class(kind), "devices", tuple)
        return tuple(ask())
    except BackendError:
        return ()


def in_order(order: Sequence[str]) -> tuple[str, ...]:
    """An order with each "kind@auto" as the devices that are here, the best first and the CPU last."""
    found: list[str] = []
    for entry in order:
        kind, device = split_device(entry)
        found += [*(f"{kind}@{one}" for one in devices_of(kind)), kind] if device == AUTO else [entry]
    return tuple(dict.fromkeys(found))


def probe_all() -> dict[str, Capability]:
    """What every known backend says of this device."""
    return {kind: backend_class(kind).probe() for kind in BACKENDS}


def _nobody_judges(backend: Backend) -> str:
    """Every runtime will do."""
    return ""


def open_backend(
    artefact: Artefact,
    order: Sequence[str],
    threads: int,
    announce: Announce,
    judge: Callable[[Backend], str] = _nobody_judges,
) -> Backend:
    """Load the model into the first runtime of `order` that can; each step down is announced.

    Args:
        artefact: The model's files.
        order: Kinds, "kind@device" or "kind@auto", the preferred first; at least one.
        threads: Threads for inference; >= 1.
        announce: Told why a runtime was passed over.
        judge: Says what is wrong with a loaded runtime on a device that was chosen, or "".

    Raises:
        BackendError: None of them could load it; the message has every reason.
    """
    reasons: list[str] = []
    order = in_order(order)
    if artefact.tflite is None and not any(_may_read_onnx(split_device(entry)[0]) for entry in order):
        announce(
            f"model {artefact.name} is an .onnx file, which {', '.join(order)} cannot read; "
            f"trying {', '.join(_READ_ONNX)}"
        )
        order = _READ_ONNX
    for entry in order:
        try:
            return _load(artefact, entry, threads, announce, judge)
        except BackendError as error:
            reasons.append(str(error) if len(order) == 1 else f"{entry}: {error}")
            if entry != order[-1]:
                announce(f"backend {entry} cannot be used ({error}); trying the next")
    raise BackendError("; ".join(reasons) if reasons else "no backend was named")


def _load(artefact: Artefact, entry: str, threads: int, announce: Announce, judge: Callable[[Backend], str]) -> Backend:
    kind, device = split_device(entry)
    found = backend_class(kind)
    capability = found.probe()
    if not capability.available:
        raise BackendError(capability.detail)
    backend = found.load(dataclasses.replace(artefact, device=device), threads, announce)
    try:
        problem = judge(backend) if device else ""
    except ModelError:
        backend.close()
        raise
    if problem:
        backend.close()
        raise BackendError(f"{device} computes another model than the bundle's: {problem}")
    return backend
