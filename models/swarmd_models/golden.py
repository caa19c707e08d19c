"""Golden vectors: does this runtime, on this device, compute the model that was trained?

A bundle carries one input with the raw outputs that the training machine got, and one cut for its second stage. A
runtime that runs the very same file is held to a few quantisation steps. One that runs another form of it (the QDQ
`.onnx`, rounded by another quantiser) is held to a signal-to-noise ratio of the real values.
"""

import io
import tokenize
import zlib
from collections.abc import Callable
from functools import partial
from typing import Protocol
from zipfile import BadZipFile

import numpy as np

from swarmd_models.backends.base import Array, Backend, TensorSpec
from swarmd_models.backends.litert import LiteRtBackend
from swarmd_models.bounded_file import read_bounded
from swarmd_models.bundle import Bundle
from swarmd_models.decoders.anchor_free import find_head
from swarmd_models.decoders.base import real
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.second import SecondStage
from swarmd_models.tflite_file import has_small_directory

MIN_SQNR_DB = 30.0
"""Two good quantisations of one network agree to 37 dB and more; a wrong channel order or scale gives less than 20."""
MAX_ARRAYS = 16
"""Arrays of a golden file: inputs and outputs of two stages have six."""
MAX_GOLDEN_BYTES = 64 << 20
"""Of the file, and of its arrays unpacked; ours have 3 MB. Packed, 64 KB may be 64 MB, and a bundle is from outside."""


class Answering(Protocol):
    """A loaded model that can be asked: a `Detector`."""

    bundle: Bundle
    backend: Backend
    second: SecondStage | None

    def raw_outputs(self, image: Array) -> list[Array]:
        """Copies of the raw outputs for one frame."""
        ...


def check_golden(detector: Answering) -> str:
    """Compare this runtime's answer to the bundle's golden vector.

    Returns:
        "" when they agree (or the bundle has no vector), else the sentence that says how they differ.
    """
    golden = detector.bundle.golden
    if golden is None:
        return ""
    try:
        stored = _read(detector)
        cut, answer = stored.pop("second_image", None), stored.pop("second_cls", None)
        outputs = detector.raw_outputs(stored.pop("image"))
        problem = _compare(detector, stored, outputs, golden.tolerance_steps)
        return problem or _compare_second(detector, cut, answer, golden.tolerance_steps)
    except KeyError:
        return f"golden vector {golden.path.name} has no array called image"
    except (OSError, ValueError, EOFError, MemoryError, RuntimeError, BadZipFile, zlib.error) as error:
        return f"golden vector {golden.path.name} cannot be read: {error}"
    except ArtefactError as error:
        return str(error)
    except ModelError as error:
        return f"the golden input cannot be run: {error}"


def golden_sqnr_db(detector: Answering) -> dict[str, float]:
    """How near this runtime comes to the training machine's answer, by output.

    Args:
        detector: A loaded model.

    Returns:
        Decibels of signal to the difference of real values, by the golden vector's names; infinite where both are the
        same. Empty where the bundle has no vector that this model's outputs have counterparts to.

    Raises:
        ModelError: The golden input cannot be run.
    """
    if detector.bundle.golden is None:
        return {}
    stored = _read(detector)
    cut, answer = stored.pop("second_image", None), stored.pop("second_cls", None)
    specs, found = detector.backend.outputs, {}
    outputs = detector.raw_outputs(stored.pop("image"))
    roles = _roles(specs, "cls" in stored)
    for name, wanted in stored.items():
        index = roles.get(name, -1)
        if 0 <= index < len(outputs) and outputs[index].shape == wanted.shape:
            ours = real(outputs[index], specs[index])
            found[name] = sqnr_db(real(wanted, _stored_spec(detector, name, wanted)), ours)
    second = detector.second
    if second is not None and cut is not None and answer is not None:
        ours = real(second.raw_output(cut), second.backend.outputs[0])
        if ours.shape == answer.shape:
            found["second_cls"] = sqnr_db(real(answer, _second_spec(detector, answer)), ours)
    return found


def _read(detector: Answering) -> dict[str, Array]:
    assert detector.bundle.golden is not None
    data = read_bounded(detector.bundle.golden.path, MAX_GOLDEN_BYTES, "golden vector", ArtefactError)
    if not has_small_directory(data):
        raise ValueError("it is no archive of arrays, or one of very many")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        if len(arrays.files) > MAX_ARRAYS:
            raise ValueError(f"{len(arrays.files)} arrays; at most {MAX_ARRAYS}")
        if sum(info.file_size for info in arrays.zip.infolist()) > MAX_GOLDEN_BYTES:
            raise ValueError(f"its arrays have more than {MAX_GOLDEN_BYTES >> 20} MiB")
        try:
            return {name: arrays[name] for name in arrays.files}
        except (SyntaxError, tokenize.TokenError) as error:  # numpy lets through what its second reading of one raises.
            raise ValueError("an array's header is none") from error


def _compare(detector: Answering, stored: dict[str, Array], outputs: list[Array], tolerance: int) -> str:
    specs = detector.backend.outputs
    roles = _roles(specs, "cls" in stored)
    for name, wanted in stored.items():
        index = roles.get(name, -1)
        if not 0 <= index < len(outputs) or outputs[index].shape != wanted.shape:
            return f"the golden output {name} has no counterpart of its shape {wanted.shape} in the model"
        of_file = partial(_stored_spec, detector, name, wanted)
        # A YOLO's boxes in pixels would hide its scores from 0 to 1 behind steps of their own size.
        if detector.bundle.decoder == "yolo" and wanted.ndim == 2 and outputs[index].dtype == wanted.dtype:
            apart = _steps_apart_by_number(outputs[index], wanted)
            problem = "" if apart <= tolerance else _too_far(name, apart, tolerance)
        else:
            problem = _apart(name, outputs[index], wanted, specs[index], tolerance, of_file)
        if problem:
            return problem
    return ""


def _compare_second(detector: Answering, cut: Array | None, wanted: Array | None, tolerance: int) -> str:
    """The second stage's answer to one cut; a bundle that has one must bring vectors for it."""
    second = detector.second
    if second is None:
        return ""
    if cut is None or wanted is None:
        return "the golden vector has no second_image and second_cls for the bundle's second stage"
    ours = second.raw_output(cut)
    if ours.shape != wanted.shape:
        return f"the golden output second_cls has the shape {wanted.shape}; the second stage answers {ours.shape}"
    of_file = partial(_second_spec, detector, wanted)
    for one in (ours, *second.raw_batch(cut)):
        problem = _apart("second_cls", one, wanted, second.backend.outputs[0], tolerance, of_file)
        if problem:
            return problem
    return ""


def _apart(
    name: str, ours: Array, wanted: Array, spec: TensorSpec, tolerance: int, stored_spec: Callable[[], TensorSpec]
) -> str:
    """How one output differs from its golden one, or ""."""
    if ours.dtype == wanted.dtype:
        apart = _steps_apart(ours, wanted)
        if apart <= tolerance:
            return ""
        return _too_far(name, apart, tolerance)
    ratio = sqnr_db(real(wanted, stored_spec()), real(ours, spec))
    if ratio >= MIN_SQNR_DB:
        return ""
    return f"the golden output {name} agrees to {ratio:.1f} dB only; {MIN_SQNR_DB:g} are needed"


def _too_far(name: str, apart: float, tolerance: int) -> str:
    return f"the golden output {name} differs by {apart:.1f} steps; {tolerance} are allowed"


def _roles(specs: tuple[TensorSpec, ...], is_head: bool) -> dict[str, int]:
    roles = {f"output_{index}": index for index in range(len(specs))}
    if is_head:
        roles["cls"], roles["dist"] = find_head(specs, {})
    return roles


def _stored_spec(detector: Answering, name: str, wanted: Array) -> TensorSpec:
    """The quantisation of a stored output: that of the `.tflite` it came from."""
    if wanted.dtype.kind == "f":
        return TensorSpec(name, wanted.shape, wanted.dtype)
    original = LiteRtBackend.load(detector.bundle.artefact(), 1, lambda text: None)
    try:
        return original.outputs[_roles(original.outputs, name in ("cls", "dist"))[name]]
    finally:
        original.close()


def _second_spec(detector: Answering, wanted: Array) -> TensorSpec:
    if wanted.dtype.kind == "f":
        return TensorSpec("second_cls", wanted.shape, wanted.dtype)
    artefact = detector.bundle.second_artefact()
    assert artefact is not None
    original = LiteRtBackend.load(artefact, 1, lambda text: None)
    try:
        return original.outputs[0]
    finally:
        original.close()


def _steps_apart(ours: Array, theirs: Array) -> float:
    """The greatest difference in steps of 8 bits; NaN when either holds one."""
    difference = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(initial=0.0))
    if theirs.dtype.kind == "f":
        difference *= 256.0 / max(float(np.ptp(theirs)), 1e-9)
    return difference


def _steps_apart_by_number(ours: Array, theirs: Array) -> float:
    """The same, each of a box's numbers against its own reach (at least 1: a score's, or a pixel)."""
    if theirs.dtype.kind != "f":
        return _steps_apart(ours, theirs)
    boxes = int(theirs.shape[1] > theirs.shape[0])
    reach = np.maximum(np.ptp(theirs, axis=boxes, keepdims=True), 1.0)
    return float((np.abs(ours.astype(np.float64) - theirs) * 256.0 / reach).max(initial=0.0))


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
