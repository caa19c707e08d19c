"""From a trained net to a bundle: FP32 and INT8 LiteRT, QDQ ONNX, golden vector, thresholds, provenance.

Needs the extra `train`. `pipeline.py` calls it.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import ArtefactError
from swarmd_models.recipes.scenes import SceneMaker
from swarmd_models.recipes.thermal import FAULT_LABELS, Crops

_CALIBRATION_FRAMES = 48
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Exported:
    """Files of one model and how well they agree with the float net."""

    float_path: Path
    int8_path: Path
    onnx_path: Path | None
    sqnr_db: dict[str, float]
    """INT8 against float over frames it was not calibrated on, by output."""
    correlation: dict[str, float]


def sample_frames(recipe: Any, crops: Crops | None, count: int, first: int) -> list[Pixels]:
    """Frames of the recipe's look that training never sees."""
    maker = SceneMaker(recipe.scene, recipe.seed + 1000, crops, split=0)
    return [maker.scene(index).image for index in range(first, first + count)]


def with_ramp(frame: Pixels) -> Pixels:
    """The frame with a smooth ramp from black to white along its top.

    Every calibration frame must hold 0 and 255: that pins the input's scale to exactly 1/255 and its zero point to
    -128, and quantising a frame at run time is then flipping one bit. Two single pixels would do, but their edge
    drives the first layer ten times beyond anything in flight, and its INT8 scale with it (27 dB instead of 38).
    """
    out = frame.copy()
    out[: frame.shape[0] // 8] = np.rint(np.linspace(0, 255, frame.shape[1])).astype(np.uint8)
    return out


def export_model(net: Any, recipe: Any, crops: Crops | None, work: Path, with_onnx: bool = True) -> Exported:
    """Convert, quantise and compare.

    Args:
        net: Trained `Detector` in eval mode on the CPU; its batch normalisations are folded in place.
        recipe: What it was trained from.
        crops: Real crops, or None.
        work: Where the files go.
        with_onnx: Also write the QDQ ONNX (needs onnxruntime).

    Returns:
        The files and the agreement of INT8 with float.
    """
    import torch

    from swarmd_models.recipes.net import fold

    work.mkdir(parents=True, exist_ok=True)
    fold(net)
    frames = [with_ramp(f) for f in sample_frames(recipe, crops, _CALIBRATION_FRAMES, 0)]
    float_path, int8_path = work / f"{recipe.name}.float.tflite", work / f"{recipe.name}.tflite"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _to_tflite(net, recipe, float_path)
        _to_int8(float_path, int8_path, frames)
        onnx_path = _to_qdq_onnx(net, recipe, frames, work) if with_onnx else None
    held_out = sample_frames(recipe, crops, 16, 10_000)
    with torch.no_grad():
        wanted = [[y[0].numpy() for y in net(torch.from_numpy(_real(f)[None]))] for f in held_out]
    given = [run_tflite(int8_path, f) for f in held_out]
    sqnr, correlation = {}, {}
    for which, name in enumerate(("cls", "dist")):
        a = np.stack([w[which] for w in wanted]).ravel().astype(np.float64)
        b = np.stack([g[name] for g in given]).ravel().astype(np.float64)
        sqnr[name] = float(10 * np.log10((a**2).mean() / max(((a - b) ** 2).mean(), 1e-12)))
        correlation[name] = float(np.corrcoef(a, b)[0, 1])
    return Exported(float_path, int8_path, onnx_path, sqnr, correlation)


def _real(frame: Pixels) -> npt.NDArray[np.float32]:
    return frame[None].astype(np.float32) / np.float32(255.0)


def _to_tflite(net: Any, recipe: Any, path: Path) -> None:
    import litert_torch
    import torch

    nhwc = litert_torch.to_channel_last_io(net, args=[0]).eval()
    sample = torch.rand(1, recipe.scene.height, recipe.scene.width, 1)
    litert_torch.convert(nhwc, (sample,)).export(str(path))


def _to_int8(float_path: Path, int8_path: Path, frames: list[Pixels]) -> None:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer
    from ai_edge_quantizer import recipe as quantizer_recipe

    (signature, names), *_ = Interpreter(str(float_path)).get_signature_list().items()
    samples = [{names["inputs"][0]: (f[None, :, :, None].astype(np.float32) / np.float32(255.0))} for f in frames]
    engine = quantizer.Quantizer(str(float_path))
    engine.load_quantization_recipe(quantizer_recipe.static_wi8_ai8())
    engine.quantize(engine.calibrate({signature: samples})).export_model(str(int8_path), overwrite=True)
    details = Interpreter(str(int8_path)).get_input_details()[0]
    scale, zero = details["quantization"]
    if details["dtype"] is not np.int8 or not math.isclose(scale, 1 / 255, rel_tol=1e-5) or zero != -128:
        raise ArtefactError(
            f"{int8_path}: input is {details['dtype']} scale {scale} zero {zero}; wanted int8 1/255 -128"
        )


def _to_qdq_onnx(net: Any, recipe: Any, frames: list[Pixels], work: Path) -> Path:
    import torch
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Pixels] = iter(frames)

        def get_next(self) -> dict[str, Any] | None:
            frame = next(self._left, None)
            return None if frame is None else {"images": _real(frame)[None]}

    plain, shaped, out = work / "plain.onnx", work / "shaped.onnx", work / f"{recipe.name}.qdq.onnx"
    sample = torch.rand(1, 1, recipe.scene.height, recipe.scene.width)
    torch.onnx.export(
        net,
        (sample,),
        str(plain),
        input_names=["images"],
        output_names=["cls", "dist"],
        dynamo=True,
        external_data=False,
        opset_version=18,
        verbose=False,
    )
    quant_pre_process(str(plain), str(shaped), skip_symbolic_shape=True)
    quantize_static(
        str(shaped),
        str(out),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    forget_origin(out)
    return out


def forget_origin(path: Path) -> None:
    """Take out of an ONNX file what the exporter notes about where it ran: stack traces with this machine's paths.

    Args:
        path: The model, rewritten in place.
    """
    import onnx

    model = onnx.load(str(path))
    for holder in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        holder.ClearField("doc_string")
        if "metadata_props" in holder.DESCRIPTOR.fields_by_name:
            del holder.metadata_props[:]
    for function in model.functions:
        for holder in (function, *function.node):
            holder.ClearField("doc_string")
            del holder.metadata_props[:]
    onnx.save(model, str(path))


def run_tflite(path: Path, frame: Pixels, raw: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Run a model on one frame of its size.

    Args:
        path: FP32 or INT8 model with the project's own head.
        frame: Shape (H, W), uint8.
        raw: Give the tensors' own integers instead of real values.

    Returns:
        `cls` (cells, classes) and `dist` (cells, 4).
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
        out["dist" if value.shape[-1] == 4 else "cls"] = value
    return out


def write_bundle(
    exported: Exported,
    recipe: Any,
    out: Path,
    thresholds: dict[str, Any],
    provenance: dict[str, Any],
) -> Path:
    """Put the model, its ONNX, golden vector and TOML into a folder.

    Args:
        exported: Of `export_model`.
        recipe: What it was trained from.
        out: The folder, such as the zoo.
        thresholds: `score_threshold` and, optionally, `class_thresholds`, `scale`, `bias`, `reference`.
        provenance: Kept in the bundle as it is.

    Returns:
        The path of the TOML.
    """
    out.mkdir(parents=True, exist_ok=True)
    name = recipe.name
    files = {"tflite": exported.int8_path.read_bytes(), "float.tflite": exported.float_path.read_bytes()}
    if exported.onnx_path is not None:
        files["qdq.onnx"] = exported.onnx_path.read_bytes()
    golden = SceneMaker(recipe.scene, recipe.seed + 2000, None).scene(0).image  # Drawn, so no crop is passed on.
    raw = run_tflite(exported.int8_path, golden, raw=True)
    np.savez_compressed(out / f"{name}.golden.npz", image=golden, cls=raw["cls"], dist=raw["dist"])
    digests = {}
    for suffix, data in files.items():
        (out / f"{name}.{suffix}").write_bytes(data)
        digests[suffix] = hashlib.sha256(data).hexdigest()
    digests["golden"] = hashlib.sha256((out / f"{name}.golden.npz").read_bytes()).hexdigest()
    path = out / f"{name}.toml"
    path.write_text(_toml(recipe, digests, thresholds, provenance), encoding="utf-8")
    return path


def _toml(recipe: Any, digests: dict[str, str], thresholds: dict[str, Any], provenance: dict[str, Any]) -> str:
    name = recipe.name
    lines = [
        "# Written by swarmd_models.recipes.export; docs/models.md says what the numbers mean.",
        "format = 1",
        f'name = "solar-{name}"',
        f'version = "{recipe.version}"',
        'decoder = "anchor_free"',
        f"labels = {json.dumps(list(FAULT_LABELS))}",
        "",
        "[model]",
        f'file = "{name}.tflite"',
        f'sha256 = "{digests["tflite"]}"',
    ]
    if "qdq.onnx" in digests:
        lines += [f'onnx = "{name}.qdq.onnx"', f'onnx_sha256 = "{digests["qdq.onnx"]}"']
    lines += [
        "",
        "[input]",
        f"width = {recipe.scene.width}",
        f"height = {recipe.scene.height}",
        'channels = "gray"',
        'resize = "letterbox"',
        "pad = 114",
        "mean = 0.0",
        "std = 255.0",
        "",
        "[decode]",
        "strides = [8]",
        f"score_threshold = {thresholds['score_threshold']}",
        "iou_threshold = 0.4",
        "max_detections = 100",
        "class_agnostic_nms = true",
    ]
    if thresholds.get("class_thresholds"):
        lines += ["[decode.class_thresholds]", *(f'"{k}" = {v}' for k, v in thresholds["class_thresholds"].items())]
    if "scale" in thresholds:
        lines += ["", "[calibration]", f"scale = {thresholds['scale']}", f"bias = {thresholds['bias']}"]
    lines += ["", "[track]", "min_hits = 3", "lost_ms = 700", "static = true", 'ground_point = "centre"']
    lines += ["", "[golden]", f'file = "{name}.golden.npz"', f'sha256 = "{digests["golden"]}"', "tolerance_steps = 8"]
    reference = thresholds.get("reference")
    if reference is not None:
        lines += ["", "[reference]", f"detections_per_frame = {round(reference.detections_per_frame, 4)}"]
        for key in ("score_histogram", "feature_mean", "feature_std"):
            lines.append(f"{key} = {[round(value, 5) for value in getattr(reference, key)]}")
    lines += ["", "[provenance]", *(f"{key} = {_value(value)}" for key, value in provenance.items()), ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{k}" = {_value(v)}' for k, v in value.items()) + " }"
    return json.dumps(value)
