"""Bundles with a second stage for the tests: the zoo's net, and one layer whose weights a test chooses."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.second import cut_out
from tests.support.bundles import ZOO_TOML

WIDTH, HEIGHT = 40, 24
OUT_SCALE = 0.125
_INPUT_SCALE = 1.0 / 255.0


def linear_model(weights: npt.NDArray[np.int8], bias: list[float], weight_scale: float = 1 / 1024) -> bytes:
    """An INT8 `.tflite`: logits (rows of `weights`) of a grey picture, weights @ (pixels / 255) * scale + bias.

    Args:
        weights: Shape (logits, HEIGHT * WIDTH).
        bias: One a logit, real.
        weight_scale: Of the weights.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    logits, pixels = weights.shape
    tensors, buffers = [], [schema.BufferT()]

    def tensor(name: str, shape: tuple[int, ...], kind: int, scale: float, zero: int, data: bytes | None) -> int:
        made, buffer, quantised = schema.TensorT(), schema.BufferT(), schema.QuantizationParametersT()
        quantised.scale, quantised.zeroPoint = [scale], [zero]
        made.name, made.shape, made.type = name.encode(), list(shape), kind
        made.quantization, made.buffer = quantised, len(buffers)
        if data is not None:
            buffer.data = np.frombuffer(data, np.uint8)
        buffers.append(buffer)
        tensors.append(made)
        return len(tensors) - 1

    kinds = schema.TensorType
    image = tensor("image", (1, HEIGHT, WIDTH, 1), kinds.INT8, _INPUT_SCALE, -128, None)
    matrix = tensor("weights", (logits, pixels), kinds.INT8, weight_scale, 0, weights.tobytes())
    scale = _INPUT_SCALE * weight_scale
    steps = np.rint(np.asarray(bias) / scale).astype(np.int32)
    offset = tensor("bias", (logits,), kinds.INT32, scale, 0, steps.tobytes())
    answer = tensor("logits", (1, logits), kinds.INT8, OUT_SCALE, 0, None)
    layer = schema.OperatorT()
    layer.inputs, layer.outputs, layer.opcodeIndex = [image, matrix, offset], [answer], 0
    layer.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    layer.builtinOptions = schema.FullyConnectedOptionsT()
    graph, code, model = schema.SubGraphT(), schema.OperatorCodeT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, [layer], [image], [answer]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    code.version = 4
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], buffers
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def brightness_model(classes: int = 11, named: int = 3, gain: float = 1.0) -> bytes:
    """Twelve logits: class `named` rises with the mean brightness, the healthy class falls with it."""
    weights = np.zeros((classes + 1, HEIGHT * WIDTH), np.int8)
    weights[named], weights[-1] = 8, -8
    full = 8 * HEIGHT * WIDTH / 1024
    bias = [-4.0] * classes + [full / 2]
    bias[named] = -full / 2
    return linear_model(weights, [gain * b for b in bias], gain / 1024)


def write_second(folder: Path, content: bytes | None = None, **changes: str) -> Path:
    """The zoo's small-320 in `folder` with a second stage; `changes` are lines of `[second]`, by key."""
    data = brightness_model() if content is None else content
    for name in ("small-320.tflite", "small-320.qdq.onnx"):
        (folder / name).write_bytes((ZOO_TOML.parent / name).read_bytes())
    (folder / "head.tflite").write_bytes(data)
    image = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    with np.load(ZOO_TOML.parent / "small-320.golden.npz") as arrays:
        golden = {name: arrays[name] for name in arrays.files if not name.startswith("second_")}
    np.savez(folder / "golden.npz", second_image=image, second_cls=_answer(folder / "head.tflite", image), **golden)
    lines = {
        "file": 'file = "head.tflite"',
        "sha256": f'sha256 = "{hashlib.sha256(data).hexdigest()}"',
        "budget_ms": "budget_ms = 0",
        "first_weight": "first_weight = 0.0",
        "second_weight": "second_weight = 1.0",
        "kind_weight": "kind_weight = 0.0",
    }
    second = "\n".join({**lines, **changes}.values())
    text, kept = ZOO_TOML.read_text(), []
    for part in text.replace("\n[", "\n\0[").split("\0"):
        if part.startswith("[golden]"):
            digest = hashlib.sha256((folder / "golden.npz").read_bytes()).hexdigest()
            part = f'[golden]\nfile = "golden.npz"\nsha256 = "{digest}"\n\n'
        if not part.startswith("[second"):
            kept.append(part)
    path = folder / "small-320.toml"
    path.write_text("".join(kept) + f"\n[second]\n{second}\n", encoding="utf-8")
    return path


def load_second(folder: Path, **changes: Any) -> Bundle:
    """`write_second`, loaded."""
    return load_bundle(write_second(folder, **changes))


def _answer(path: Path, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], (image ^ 0x80).view(np.int8)[None, ..., None])
    interpreter.invoke()
    answer: npt.NDArray[np.int8] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0]
    return answer


def mean_of(image: npt.NDArray[np.uint8], box: tuple[float, float, float, float]) -> float:
    """Mean grey level that the second stage sees of a box."""
    return float(cut_out(image, np.array([box]), 0.15, "none", WIDTH, HEIGHT).mean())
