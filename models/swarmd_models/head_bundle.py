"""A detector's bundle with other weights in its heads: its files in a new folder, with digests that hold."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.heads import find_heads, write_head
from swarmd_models.tflite_file import digest_of

F64 = npt.NDArray[np.float64]


def with_kinds(data: bytes, classes: int, head: F64) -> tuple[bytes, int]:
    """A detector's file with another head for kinds.

    Args:
        data: The `.tflite` file.
        classes: How many fault classes it tells apart.
        head: Shape (classes, inputs + 1), the bias last.

    Returns:
        The new file, and how many weights have another INT8 value than before.

    Raises:
        ArtefactError: It is none of the project's own detectors, or its head has another shape.
    """
    _, heads = find_heads(data, classes)
    rows, *_, inputs = heads["kind"].weights.shape
    if head.shape != (rows, inputs + 1) or not np.isfinite(head).all():
        raise ArtefactError(f"a head of shape {head.shape} for one of {(rows, inputs + 1)}, or with what is no number")
    new = bytearray(data)
    changed = write_head(new, heads["kind"], head[:, :-1], head[:, -1])
    return bytes(new), changed


def write_bundle(bundle: Bundle, out: Path, data: bytes, version: str) -> Path:
    """The bundle's files in a new folder, with the new model, its own golden outputs, and digests that hold."""
    source = Path(bundle.model_path)
    out.mkdir(parents=True, exist_ok=True)
    for file in bundle.files():
        if file != source and file.suffix != ".onnx":
            shutil.copyfile(file, out / file.name)
    model = out / source.name
    model.write_bytes(data)
    text = source.with_suffix(".toml").read_text(encoding="utf-8")
    text = re.sub(r"^onnx\w* = .*\n", "", text, flags=re.MULTILINE)  # The twin is of the old weights.
    line = f"version = {json.dumps(version, ensure_ascii=False)}"
    text = re.sub(r'^version = "[^"]*"', lambda _: line, text, count=1, flags=re.MULTILINE)
    text = text.replace(digest_of(source.read_bytes()), digest_of(data))
    if bundle.golden is not None:
        golden = out / bundle.golden.path.name
        was = digest_of(golden.read_bytes())
        with np.load(golden, allow_pickle=False) as arrays:
            kept = {name: arrays[name] for name in arrays.files}
        kept |= run_tflite(model, kept["image"], raw=True)
        np.savez_compressed(golden, **kept)
        text = text.replace(was, digest_of(golden.read_bytes()))
    path = out / source.with_suffix(".toml").name
    path.write_text(text, encoding="utf-8")
    return path


def run_tflite(
    path: Path, frame: npt.NDArray[np.uint8], raw: bool = False, names: tuple[str, ...] = ("cls", "dist")
) -> dict[str, npt.NDArray[Any]]:
    """Run one of the project's own models on one frame of its size.

    Args:
        path: FP32 or INT8 model.
        frame: Shape (H, W), uint8.
        raw: Give the tensors' own integers instead of real values.
        names: Of its outputs; where there are two, the second is the one of four columns.

    Returns:
        By name: `cls` (cells, classes) and `dist` (cells, 4); of a second stage (classes,).
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()[0]
    pixels = frame[None, :, :, None]
    is_int8 = details["dtype"] is np.int8
    interpreter.set_tensor(
        details["index"], (pixels ^ 0x80).view(np.int8) if is_int8 else pixels.astype(np.float32) / np.float32(255.0)
    )
    interpreter.invoke()
    out = {}
    for detail in interpreter.get_output_details():
        value = interpreter.get_tensor(detail["index"])[0]
        if value.dtype == np.int8 and not raw:
            scale, zero = detail["quantization"]
            value = (value.astype(np.float32) - zero) * np.float32(scale)
        out[names[-1] if value.shape[-1] == 4 else names[0]] = value
    return out
