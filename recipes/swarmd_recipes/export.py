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
from swarmd_models.head_bundle import run_tflite
from swarmd_models.second import cut_out
from swarmd_models.synthetic.thermal import Crops
from swarmd_recipes.drawing import labels_of, maker_of
from swarmd_recipes.traffic_scenes import TrafficOptions

_CALIBRATION_FRAMES = 48
_ROUNDING_FRAMES = 1024
_RANGE_FRAMES = 512
_OUTLIERS = (0.0, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""Shares of a tensor's values that may lie beyond its range, on either side."""
_SAME_DB = 60.0
"""A float file that agrees less with its net was converted wrongly."""
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
    maker = maker_of(recipe.scene, recipe.seed + 1000, crops)
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


def export_model(
    net: Any, recipe: Any, crops: Crops | None, work: Path, with_onnx: bool = True, share: float = 1.0
) -> Exported:
    """Convert, quantise and compare.

    Args:
        net: Trained `Detector` in eval mode on the CPU; its batch normalisations are folded in place.
        recipe: What it was trained from.
        crops: Real crops, or None.
        work: Where the files go.
        with_onnx: Also write the QDQ ONNX (needs onnxruntime).
        share: Of the usual number of calibration frames.

    Returns:
        The files and the agreement of INT8 with float.
    """
    frames = sample_frames(recipe, crops, max(4, round(_CALIBRATION_FRAMES * share)), 0)
    held_out = sample_frames(recipe, crops, max(4, round(16 * share)), 10_000)
    return convert(net, recipe.name, ("cls", "dist"), np.stack(frames), np.stack(held_out), work, with_onnx)


def convert(
    net: Any,
    name: str,
    outputs: tuple[str, ...],
    frames: Pixels,
    held_out: Pixels,
    work: Path,
    with_onnx: bool = True,
    with_float: bool = True,
) -> Exported:
    """Convert and quantise any of the project's nets: one grey picture in, one or two tensors out.

    The float model is the net as it was trained. The INT8 one is made of the same net with its weights rounded by
    `rounding.round_weights`, so that the quantiser, which rounds to the nearest, finds them on its grid.

    Args:
        net: In eval mode on the CPU; its batch normalisations are folded in place.
        name: Of the files.
        outputs: Names of the tensors that it returns, in order.
        frames: Shape (n, H, W): what it will see; for rounding and for the ranges of activations.
        held_out: Shape (m, H, W): others, on which INT8 is compared with float.
        work: Where the files go.
        with_onnx: Also write the QDQ ONNX (needs onnxruntime).
        with_float: Convert the net as it was trained, too, and hold the converter to it; without, the rounded net's
            float file stands in its place, at half the time: for nets that are judged and thrown away.

    Returns:
        The files and the agreement of INT8 with float.
    """
    import torch

    from swarmd_recipes.net import fold, private_channels
    from swarmd_recipes.rounding import equalised, round_weights

    work.mkdir(parents=True, exist_ok=True)
    fold(net)
    net.to(memory_format=torch.contiguous_format)  # The converter takes some channels-last weights for one another.
    seen = torch.from_numpy(_real(frames[:_ROUNDING_FRAMES]))
    rounded = round_weights(equalised(net, private_channels(net), seen), seen)
    grid_path, int8_path = work / f"{name}.grid.tflite", work / f"{name}.tflite"
    float_path = work / f"{name}.float.tflite" if with_float else grid_path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if with_float:
            to_tflite(net, frames.shape[1:], float_path)
        to_tflite(rounded, frames.shape[1:], grid_path)
        to_int8(grid_path, int8_path, frames)
        onnx_path = _to_qdq_onnx(rounded, name, outputs, frames, work) if with_onnx else None
    with torch.no_grad():
        said = [net(torch.from_numpy(_real(f[None]))) for f in held_out]
    wanted = [[y[0].numpy() for y in (s if isinstance(s, tuple) else (s,))] for s in said]
    same = _agreement(wanted, float_path, held_out, outputs) if with_float else {}
    if any(decibel < _SAME_DB for decibel, _ in same.values()):
        raise ArtefactError(f"{float_path} does not compute what the net does: {same}")
    found = _agreement(wanted, int8_path, held_out, outputs)
    sqnr, correlation = {name: pair[0] for name, pair in found.items()}, {name: pair[1] for name, pair in found.items()}
    return Exported(float_path, int8_path, onnx_path, sqnr, correlation)


def _agreement(
    wanted: list[Any], path: Path, frames: Pixels, outputs: tuple[str, ...]
) -> dict[str, tuple[float, float]]:
    """Signal to noise in decibel, and correlation, of a file's outputs against the net's, by name."""
    given = [run_tflite(path, f, names=outputs) for f in frames]
    result = {}
    for which, output in enumerate(outputs):
        a = np.stack([w[which] for w in wanted]).ravel().astype(np.float64)
        b = np.stack([g[output] for g in given]).ravel().astype(np.float64)
        ratio = float(10 * np.log10((a**2).mean() / max(((a - b) ** 2).mean(), 1e-12)))
        result[output] = (ratio, float(np.corrcoef(a, b)[0, 1]))
    return result


def _real(frames: Pixels) -> npt.NDArray[np.float32]:
    """Frames (n, H, W) as the nets take them: (n, 1, H, W), 0 to 1."""
    return np.asarray(frames[:, None].astype(np.float32) / np.float32(255.0))


def to_tflite(net: Any, size: tuple[int, ...], path: Path) -> None:
    """Write a net, in eval mode with its normalisations folded, as a float LiteRT file of (rows, columns)."""
    import litert_torch
    import torch

    nhwc = litert_torch.to_channel_last_io(net, args=[0]).eval()
    litert_torch.convert(nhwc, (torch.rand(1, *size, 1),)).export(str(path))


def to_int8(float_path: Path, int8_path: Path, frames: Pixels) -> None:
    """Quantise a float LiteRT file, its ranges from `frames` (n, H, W); raises `ArtefactError` for another input."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer
    from ai_edge_quantizer import recipe as quantizer_recipe

    (signature, names), *_ = Interpreter(str(float_path)).get_signature_list().items()
    samples = [{names["inputs"][0]: f[None, :, :, None].astype(np.float32) / np.float32(255.0)} for f in frames]
    engine = quantizer.Quantizer(str(float_path))
    engine.load_quantization_recipe(quantizer_recipe.static_wi8_ai8())
    ranges = engine.calibrate({signature: samples})
    _set_ranges(ranges, float_path, frames[:_RANGE_FRAMES])
    engine.quantize(ranges).export_model(str(int8_path), overwrite=True)
    details = Interpreter(str(int8_path)).get_input_details()[0]
    scale, zero = details["quantization"]
    if details["dtype"] is not np.int8 or not math.isclose(scale, 1 / 255, rel_tol=1e-5) or zero != -128:
        raise ArtefactError(
            f"{int8_path}: input is {details['dtype']} scale {scale} zero {zero}; wanted int8 1/255 -128"
        )


def _plain_interpreter(path: Path) -> Any:
    """One that keeps every tensor."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        str(path),
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    return interpreter


def _set_ranges(ranges: dict[str, Any], float_path: Path, frames: Pixels) -> None:
    """Give every tensor the range that costs it least (`best_range`); the input exactly 0 to 1.

    The calibrator's own ranges go to the last outlier, and its input's range is that of the frames it was shown;
    0 to 1 makes quantising a frame at run time the flipping of one bit.
    """
    interpreter = _plain_interpreter(float_path)
    given = interpreter.get_input_details()[0]
    tensors = [t for t in interpreter.get_tensor_details() if t["name"] in ranges]
    seen: dict[str, list[npt.NDArray[np.float32]]] = {t["name"]: [] for t in tensors}
    for frame in frames:
        interpreter.set_tensor(given["index"], frame[None, :, :, None].astype(np.float32) / np.float32(255.0))
        interpreter.invoke()
        for tensor in tensors:
            values = interpreter.get_tensor(tensor["index"]).ravel()
            seen[tensor["name"]].append(values[:: 1 + len(values) // 40_000].copy())
    shape = (1, 1, 1, 1)
    for name, parts in seen.items():
        low, high = best_range(np.concatenate(parts))
        ranges[name]["min"], ranges[name]["max"] = np.full(shape, low, np.float32), np.full(shape, high, np.float32)
    ranges[given["name"]] = {"min": np.zeros(shape, np.float32), "max": np.ones(shape, np.float32)}


def best_range(values: npt.NDArray[np.float32]) -> tuple[float, float]:
    """The range (low <= 0, high > 0) whose 256 steps give values back with the smallest mean square error.

    A few outliers are cut off where that makes the steps of all others finer.
    """
    best, error = (0.0, 1e-3), float("inf")
    for share in _OUTLIERS:
        a, b = np.quantile(values, (share, 1.0 - share))
        low, high = min(0.0, float(a)), max(1e-3, float(b))
        step = (high - low) / 255.0
        back = np.clip(np.round((values - low) / step), 0, 255) * step + low
        now = float(np.square(values - back, dtype=np.float64).mean())
        if now < error:
            best, error = (low, high), now
    return best


def _to_qdq_onnx(net: Any, name: str, outputs: tuple[str, ...], frames: Pixels, work: Path) -> Path:
    import torch
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Pixels] = iter([with_ramp(f) for f in frames])

        def get_next(self) -> dict[str, Any] | None:
            frame = next(self._left, None)
            return None if frame is None else {"images": _real(frame[None])}

    plain, shaped, out = work / "plain.onnx", work / "shaped.onnx", work / f"{name}.qdq.onnx"
    torch.onnx.export(
        net,
        (torch.rand(1, 1, *frames.shape[1:]),),
        str(plain),
        input_names=["images"],
        output_names=list(outputs),
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


@dataclass(frozen=True, slots=True)
class SecondFiles:
    """A second stage as a bundle names it."""

    name: str
    """Of the files, without their endings, such as "small-320.second"; bundles of one folder may share them."""
    exported: Exported
    margin: float
    size: tuple[int, int]
    """(width, height) of a cut."""
    million_macs: float = 0.0
    """Of one view."""


def write_bundle(
    exported: Exported,
    recipe: Any,
    out: Path,
    thresholds: dict[str, Any],
    provenance: dict[str, Any],
    second: SecondFiles | None = None,
    with_float: bool = True,
) -> Path:
    """Put the model, its ONNX, golden vector and TOML into a folder.

    Args:
        exported: Of `export_model`.
        recipe: What it was trained from.
        out: The folder, such as the zoo.
        thresholds: `score_threshold` and, optionally, `class_thresholds`, `scale`, `bias`, `reference`; `second`: the
            keys of the bundle's `[second]` table beyond its files.
        provenance: Kept in the bundle as it is.
        second: The second stage; None: there is none.
        with_float: Put the FP32 file there too, which no device needs.

    Returns:
        The path of the TOML.
    """
    out.mkdir(parents=True, exist_ok=True)
    name = recipe.name
    digests = _put(exported, out, name, with_float)
    golden = maker_of(recipe.scene, recipe.seed + 2000, None).scene(0)  # Drawn, so no crop is passed on.
    arrays = {"image": golden.image, **run_tflite(exported.int8_path, golden.image, raw=True)}
    if second is not None:
        digests |= {f"second.{suffix}": digest for suffix, digest in _put(second.exported, out, second.name).items()}
        cut = cut_out(golden.image, golden.boxes[:1], second.margin, "none", *second.size)[0]
        arrays["second_image"] = cut
        arrays |= run_tflite(second.exported.int8_path, cut, raw=True, names=("second_cls",))
    np.savez_compressed(out / f"{name}.golden.npz", **arrays)  # type: ignore[arg-type]
    digests["golden"] = hashlib.sha256((out / f"{name}.golden.npz").read_bytes()).hexdigest()
    path = out / f"{name}.toml"
    path.write_text(_toml(recipe, digests, thresholds, provenance, second), encoding="utf-8")
    return path


def _put(exported: Exported, out: Path, name: str, with_float: bool = True) -> dict[str, str]:
    """Copy a model's files into a folder; returns their digests by ending."""
    files = {"tflite": exported.int8_path.read_bytes()}
    if with_float:
        files["float.tflite"] = exported.float_path.read_bytes()
    if exported.onnx_path is not None:
        files["qdq.onnx"] = exported.onnx_path.read_bytes()
    for suffix, data in files.items():
        (out / f"{name}.{suffix}").write_bytes(data)
    return {suffix: hashlib.sha256(data).hexdigest() for suffix, data in files.items()}


def _toml(
    recipe: Any,
    digests: dict[str, str],
    thresholds: dict[str, Any],
    provenance: dict[str, Any],
    second: SecondFiles | None,
) -> str:
    name = recipe.name
    lines = [
        "# Written by swarmd_recipes.export; docs/models.md says what the numbers mean.",
        "format = 1",
        f'name = "{name if isinstance(recipe.scene, TrafficOptions) else f"solar-{name}"}"',
        f'version = "{recipe.version}"',
        'decoder = "anchor_free"',
        f"labels = {json.dumps(list(labels_of(recipe.scene)))}",
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
    if second is not None:
        lines += _second_table(second, digests, thresholds["second"])
    if "scale" in thresholds:
        lines += ["", "[calibration]", f"scale = {thresholds['scale']}", f"bias = {thresholds['bias']}"]
    lines += ["", "[track]", "min_hits = 3", "lost_ms = 700", "static = true", 'ground_point = "centre"']
    lines += ["", "[golden]", f'file = "{name}.golden.npz"', f'sha256 = "{digests["golden"]}"', "tolerance_steps = 8"]
    reference = thresholds.get("reference")
    if reference is not None:
        lines += ["", "[reference]", f"detections_per_frame = {round(reference.detections_per_frame, 4)}"]
        for key in ("score_histogram", "feature_mean", "feature_std", "feature_deciles", "detail"):
            if values := getattr(reference, key):
                lines.append(f"{key} = {[round(value, 5) for value in values]}")
    lines += ["", "[provenance]", *(f"{key} = {_value(value)}" for key, value in provenance.items()), ""]
    return "\n".join(lines)


def _second_table(second: SecondFiles, digests: dict[str, str], rule: dict[str, Any]) -> list[str]:
    lines = ["", "[second]", f'file = "{second.name}.tflite"', f'sha256 = "{digests["second.tflite"]}"']
    if "second.qdq.onnx" in digests:
        lines += [f'onnx = "{second.name}.qdq.onnx"', f'onnx_sha256 = "{digests["second.qdq.onnx"]}"']
    lines.append(f"margin = {second.margin}")
    lines += [f"{key} = {_value(value)}" for key, value in rule.items() if key != "class_thresholds"]
    if rule.get("class_thresholds"):
        lines += ["[second.class_thresholds]", *(f'"{k}" = {v}' for k, v in rule["class_thresholds"].items())]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{k}" = {_value(v)}' for k, v in value.items()) + " }"
    return json.dumps(value)
