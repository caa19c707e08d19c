"""Small nets of fully connected layers: taught, and written as LiteRT and ONNX, with numpy alone.

A field desk that can run a model can make one of these; PyTorch is for what has convolutions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.onnx_file import field, varint

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Layers = list[tuple[F64, F64]]
"""Of each layer its weights, shape (outputs, inputs), and its offsets; ReLU between two of them."""

_BATCH = 128
_MOMENTUM, _SPREAD, _TINY = 0.9, 0.999, 1e-8
"""Adam's constants.

Source:
    Kingma and Ba, "Adam: a method for stochastic optimization" (2015).
"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a net is taught."""

    hidden: tuple[int, ...]
    """Widths of the layers between input and output."""
    epochs: int = 40
    rate: float = 1e-3
    decay: float = 1e-4
    """Of the weights, a step and rate."""
    seed: int = 15
    noise: float = 0.1
    """Of each input, in its deviations: a sound is never heard twice alike."""


def taught(x: F32, y: npt.NDArray[Any], outputs: int, lesson: Lesson, say: Callable[[str], None]) -> Layers:
    """A net that has learnt, with the inputs' scale folded into its first layer.

    Args:
        x: Shape (n, inputs).
        y: Whole numbers, shape (n,): classes, by cross entropy; else shape (n, outputs): numbers, by squared error.
        outputs: Classes, or numbers.
        lesson: See there.
        say: Told of progress.
    """
    rng = np.random.default_rng(lesson.seed)
    mean, spread = x.mean(0, np.float64), x.std(0, dtype=np.float64) + 1e-6
    scaled = ((x - mean) / spread).astype(np.float32)
    widths = (x.shape[1], *lesson.hidden, outputs)
    net: Layers = [(rng.normal(0.0, np.sqrt(2.0 / a), (b, a)), np.zeros(b)) for a, b in pairwise(widths)]
    first = [(np.zeros_like(w), np.zeros_like(b)) for w, b in net]
    second = [(np.zeros_like(w), np.zeros_like(b)) for w, b in net]
    steps, step = lesson.epochs * max(1, len(x) // _BATCH), 0
    for epoch in range(lesson.epochs):
        order, lost = rng.permutation(len(x)), 0.0
        for at in range(0, len(x) - _BATCH + 1, _BATCH):
            chosen = order[at : at + _BATCH]
            batch = scaled[chosen] + rng.normal(0.0, lesson.noise, (len(chosen), x.shape[1]))
            loss, slopes = _slopes(net, batch, y[chosen])
            lost, step = lost + loss, step + 1
            rate = lesson.rate * 0.5 * (1.0 + np.cos(np.pi * step / steps))
            for layer, slope in enumerate(slopes):
                for part in (0, 1):
                    m, v, g = first[layer][part], second[layer][part], slope[part]
                    m += (1 - _MOMENTUM) * (g - m)
                    v += (1 - _SPREAD) * (g * g - v)
                    ahead = (m / (1 - _MOMENTUM**step)) / (np.sqrt(v / (1 - _SPREAD**step)) + _TINY)
                    weights = net[layer][part]
                    weights -= rate * (ahead + (lesson.decay * weights if part == 0 else 0.0))
        if epoch % 10 == 9:
            say(f"epoch {epoch + 1}: loss {lost / max(1, len(x) // _BATCH):.4f}")
    weights, offsets = net[0]
    net[0] = (weights / spread, offsets - weights @ (mean / spread))
    return net


def said(net: Layers, x: F32) -> F64:
    """What a net gives; shape (n, inputs) to (n, outputs)."""
    value = x.astype(np.float64)
    for at, (weights, offsets) in enumerate(net):
        value = value @ weights.T + offsets
        if at < len(net) - 1:
            value = np.maximum(value, 0.0)
    return value


def _slopes(net: Layers, x: F64, y: npt.NDArray[Any]) -> tuple[float, Layers]:
    """Loss, and how it changes with each weight."""
    values = [x]
    for at, (weights, offsets) in enumerate(net):
        value = values[-1] @ weights.T + offsets
        values.append(np.maximum(value, 0.0) if at < len(net) - 1 else value)
    last = values[-1]
    if y.ndim == 1:
        shares = np.exp(last - last.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        loss = float(-np.log(shares[np.arange(len(y)), y] + 1e-12).mean())
        back = shares
        back[np.arange(len(y)), y] -= 1.0
    else:
        back = last - y
        loss = float((back**2).mean())
    back = back / len(x)
    slopes: Layers = []
    for at in range(len(net) - 1, -1, -1):
        slopes.append((back.T @ values[at], back.sum(0)))
        if at:
            back = (back @ net[at][0]) * (values[at] > 0.0)
    return loss, slopes[::-1]


# --- Files ------------------------------------------------------------------------------------------------------------


def as_onnx(net: Layers) -> bytes:
    """The net as an ONNX model, float32: `features` (1, inputs) to `outputs` (1, outputs).

    Source:
        onnx.proto3: `ModelProto` ir_version 1, graph 7, opset_import 8; `GraphProto` node 1, name 2, initializer 5,
        input 11, output 12; `NodeProto` input 1, output 2, op_type 4, attribute 5; `AttributeProto` name 1, i 3,
        type 20 (INT is 2).
    """
    nodes, weights = b"", b""
    name = "features"
    trans = field(5, field(1, b"transB") + _number(3, 1) + _number(20, 2))
    for at, (kernel, offsets) in enumerate(net):
        is_last = at == len(net) - 1
        out = "outputs" if is_last else f"layer{at}"
        weights += field(5, _tensor(f"w{at}", kernel)) + field(5, _tensor(f"b{at}", offsets))
        made = b"".join(field(1, one.encode()) for one in (name, f"w{at}", f"b{at}"))
        nodes += field(1, made + field(2, out.encode()) + field(4, b"Gemm") + trans)
        if not is_last:
            nodes += field(1, field(1, out.encode()) + field(2, f"relu{at}".encode()) + field(4, b"Relu"))
        name = f"relu{at}"
    graph = nodes + field(2, b"series") + weights
    graph += field(11, _info("features", net[0][0].shape[1])) + field(12, _info("outputs", net[-1][0].shape[0]))
    return _number(1, 8) + field(7, graph) + field(8, field(1, b"") + _number(2, 13))


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _tensor(name: str, value: F64) -> bytes:
    dims = b"".join(_number(1, n) for n in value.shape)
    return dims + _number(2, 1) + field(8, name.encode()) + field(9, value.astype("<f4").tobytes())


def _info(name: str, count: int) -> bytes:
    dims = b"".join(field(1, _number(1, n)) for n in (1, count))
    return field(1, name.encode()) + field(2, field(1, _number(1, 1) + field(2, dims)))


def as_tflite(net: Layers) -> bytes:
    """The net as a LiteRT model, float32, with the same names and shapes."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    tensors: list[Any] = []
    buffers: list[Any] = [schema.BufferT()]
    operators: list[Any] = []

    def tensor(name: str, shape: Sequence[int], value: F64 | None = None) -> int:
        made, buffer = schema.TensorT(), schema.BufferT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), schema.TensorType.FLOAT32, len(buffers)
        if value is not None:
            buffer.data = np.frombuffer(value.astype("<f4").tobytes(), np.uint8)
        buffers.append(buffer)
        tensors.append(made)
        return len(tensors) - 1

    taken = last = tensor("features", (1, net[0][0].shape[1]))
    for at, (kernel, offsets) in enumerate(net):
        is_last = at == len(net) - 1
        inputs = [last, tensor(f"w{at}", kernel.shape, kernel), tensor(f"b{at}", offsets.shape, offsets)]
        last = tensor("outputs" if is_last else f"layer{at}", (1, len(offsets)))
        layer, options = schema.OperatorT(), schema.FullyConnectedOptionsT()
        kinds = schema.ActivationFunctionType
        options.fusedActivationFunction = kinds.NONE if is_last else kinds.RELU
        layer.inputs, layer.outputs, layer.opcodeIndex = inputs, [last], 0
        layer.builtinOptionsType, layer.builtinOptions = schema.BuiltinOptions.FullyConnectedOptions, options
        operators.append(layer)
    graph, code, model = schema.SubGraphT(), schema.OperatorCodeT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, operators, [taken], [last]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    code.version = 1
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], buffers
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
