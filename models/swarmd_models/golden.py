"""Golden vectors: does this runtime, on this device, compute the model that was trained?

A bundle carries one input with the raw outputs that the training machine got. A runtime that runs the very same file is
held to a few quantisation steps. One that runs another form of it (the QDQ `.onnx`, rounded by another quantiser) is
held to a signal-to-noise ratio of the real values.
"""

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.backends.litert import LiteRtBackend
from swarmd_models.decoders.anchor_free import find_head
from swarmd_models.decoders.base import real
from swarmd_models.detector import Detector
from swarmd_models.errors import ModelError

MIN_SQNR_DB = 30.0
"""Two good quantisations of one network agree to 37 dB and more; a wrong channel order or scale gives less than 20."""
MAX_ARRAYS = 16


def check_golden(detector: Detector) -> str:
    """Compare this runtime's answer to the bundle's golden vector.

    Returns:
        "" when they agree (or the bundle has no vector), else the sentence that says how they differ.
    """
    golden = detector.bundle.golden
    if golden is None:
        return ""
    try:
        stored = _read(detector)
        outputs = detector.raw_outputs(stored.pop("image"))
        return _compare(detector, stored, outputs, golden.tolerance_steps)
    except KeyError:
        return f"golden vector {golden.path.name} has no array called image"
    except (OSError, ValueError, EOFError) as error:
        return f"golden vector {golden.path.name} cannot be read: {error}"
    except ModelError as error:
        return f"the golden input cannot be run: {error}"


def _read(detector: Detector) -> dict[str, Array]:
    assert detector.bundle.golden is not None
    with np.load(detector.bundle.golden.path, allow_pickle=False) as arrays:
        if len(arrays.files) > MAX_ARRAYS:
            raise ValueError(f"{len(arrays.files)} arrays; at most {MAX_ARRAYS}")
        return {name: arrays[name] for name in arrays.files}


def _compare(detector: Detector, stored: dict[str, Array], outputs: list[Array], tolerance: int) -> str:
    specs = detector.backend.outputs
    roles = _roles(specs, "cls" in stored)
    for name, wanted in stored.items():
        index = roles.get(name, -1)
        if not 0 <= index < len(outputs) or outputs[index].shape != wanted.shape:
            return f"the golden output {name} has no counterpart of its shape {wanted.shape} in the model"
        ours = outputs[index]
        if ours.dtype == wanted.dtype:
            apart = _steps_apart(ours, wanted)
            if not apart <= tolerance:
                return f"the golden output {name} differs by {apart:.1f} steps; {tolerance} are allowed"
        else:
            ratio = sqnr_db(real(wanted, _stored_spec(detector, name, wanted)), real(ours, specs[index]))
            if not ratio >= MIN_SQNR_DB:
                return f"the golden output {name} agrees to {ratio:.1f} dB only; {MIN_SQNR_DB:g} are needed"
    return ""


def _roles(specs: tuple[TensorSpec, ...], is_head: bool) -> dict[str, int]:
    roles = {f"output_{index}": index for index in range(len(specs))}
    if is_head:
        roles["cls"], roles["dist"] = find_head(specs, {})
    return roles


def _stored_spec(detector: Detector, name: str, wanted: Array) -> TensorSpec:
    """The quantisation of a stored output: that of the `.tflite` it came from."""
    if wanted.dtype.kind == "f":
        return TensorSpec(name, wanted.shape, wanted.dtype)
    original = LiteRtBackend.load(detector.bundle.artefact(), 1, lambda text: None)
    try:
        return original.outputs[_roles(original.outputs, name in ("cls", "dist"))[name]]
    finally:
        original.close()


def _steps_apart(ours: Array, theirs: Array) -> float:
    """The greatest difference in steps of 8 bits; NaN when either holds one."""
    difference = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(initial=0.0))
    if theirs.dtype.kind == "f":
        difference *= 256.0 / max(float(np.ptp(theirs)), 1e-9)
    return difference


def sqnr_db(wanted: Array, got: Array) -> float:
    """Signal to quantisation noise, decibels.

    >>> round(sqnr_db(np.array([10.0, 10.0]), np.array([10.0, 11.0])), 1)
    23.0
    """
    noise = float(np.square(wanted.astype(np.float64) - got).mean())
    signal = float(np.square(wanted.astype(np.float64)).mean())
    if noise == 0.0:
        return float("inf")
    return float(10.0 * np.log10(max(signal, 1e-30) / noise))
