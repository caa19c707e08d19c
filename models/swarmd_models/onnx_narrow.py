"""A narrow place in an ONNX graph: an encoder and a decoder at a cut, with 8-bit numbers between them.

```
 … QuantizeLinear ─ cut ─ DequantizeLinear ─ Conv ─ QuantizeLinear ─▶ NARROW        what travels
                       DequantizeLinear ─ ConvTranspose ─ QuantizeLinear ─▶ the rest
```

The graph is another model from here on, with a digest and scores of its own; cut at `NARROW` (`onnx_parts.py`) its
parts do what the whole does, to the bit.

Source:
    onnx.proto3: `NodeProto` input 1, output 2, name 3, op_type 4, attribute 5; `AttributeProto` name 1, ints 8, type 20
    (INTS is 7); `TensorProto` dims 1, data_type 2 (float 1, int8 3), name 8, raw_data 9.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import ArtefactError
from swarmd_models.onnx_file import field, fields_of, varint

NARROW = "narrow_QuantizeLinear_Output"
"""Name of the tensor that travels."""
_GRAPH, _NODE, _WEIGHT = 7, 1, 5
_FLOAT, _INT8 = 1, 3
_INTS = 7
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Coder:
    """Linear maps of blocks of the tensor at the cut."""

    encoder: Floats
    """Shape (numbers, channels, block, block)."""
    decoder: Floats
    """Shape (numbers, channels, block, block)."""
    mean: Floats
    """Shape (channels,): taken away before the encoder and added after the decoder."""
    step: float
    """What one of the numbers' 255 steps is worth."""


def levels_of(data: bytes, tensor: str) -> tuple[float, int]:
    """Scale and zero point of a quantised tensor; raises `ArtefactError` where there are none."""
    names: list[str] = []
    weights: dict[str, bytes] = {}
    try:
        graph = next(value for number, value in fields_of(data) if number == _GRAPH and not isinstance(value, int))
        for number, value in fields_of(graph):
            if isinstance(value, int):
                continue
            if number == _NODE and _texts(value, 2) == [tensor] and _texts(value, 4) == ["QuantizeLinear"]:
                names = _texts(value, 1)[1:]
            elif number == _WEIGHT:
                weights["".join(_texts(value, 8))] = bytes(value)
        scale, zero = (_numbers(weights[name]) for name in names)
        return scale, int(zero)
    except (ValueError, KeyError, IndexError, OverflowError, StopIteration) as error:
        raise ArtefactError(f"the tensor {tensor!r} is given by no QuantizeLinear with a zero point") from error


def _texts(raw: bytes | memoryview, field: int) -> list[str]:
    return [bytes(v).decode() for number, v in fields_of(raw) if number == field and not isinstance(v, int)]


def _numbers(raw: bytes) -> float:
    """The one number of a tensor, in whichever of its three forms."""
    is_float = dict(fields_of(raw)).get(2) == _FLOAT
    for number, value in fields_of(raw):
        if number in (4, 9) and not isinstance(value, int):
            kind = np.float32 if is_float else np.int8
            return float(np.frombuffer(bytes(value), kind)[0])
        if number == 5:
            whole = value if isinstance(value, int) else _read_varint(bytes(value))
            return float((whole + (1 << 63)) % (1 << 64) - (1 << 63))
    return 0.0


def _read_varint(data: bytes) -> int:
    """Of ten bytes at most, as 64 bits take: what more there is would cost its square."""
    return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data[:10]))


def narrowed(data: bytes, tensor: str, coder: Coder) -> bytes:
    """A model with a narrow place at a tensor.

    Args:
        data: An ONNX model with quantise/dequantise pairs.
        tensor: Given by a `QuantizeLinear`, shape (1, channels, rows, columns), rows and columns whole blocks.
        coder: See there.

    Raises:
        ArtefactError: The model cannot be read, or there is no such tensor.
    """
    try:
        return _narrowed(data, tensor, coder)
    except (ValueError, UnicodeDecodeError) as error:
        raise ArtefactError(f"the ONNX graph cannot be read: {error}") from error


def _narrowed(data: bytes, tensor: str, coder: Coder) -> bytes:
    rest, nodes, others, scale = b"", list[bytes](), b"", b""
    for number, value in fields_of(data):
        if number != _GRAPH or isinstance(value, int):
            rest += _again(number, value)
            continue
        for inner, one in fields_of(value):
            if inner != _NODE or isinstance(one, int):
                others += _again(inner, one)
                continue
            raw = bytes(one)
            names = [bytes(v).decode() for n, v in fields_of(raw) if n == 1 and not isinstance(v, int)]
            outputs = [bytes(v).decode() for n, v in fields_of(raw) if n == 2 and not isinstance(v, int)]
            kinds = [bytes(v) for n, v in fields_of(raw) if n == 4 and not isinstance(v, int)]
            nodes.append(_renamed(raw, tensor, "narrow_wide") if tensor in names else raw)
            if tensor in outputs:
                if kinds != [b"QuantizeLinear"] or len(names) != 3:
                    raise ArtefactError(f"the tensor {tensor!r} is given by no QuantizeLinear with a zero point")
                scale = b"".join(field(1, name.encode()) for name in names[1:])
                nodes += _coder_nodes(tensor, scale, coder)
    if not scale:
        raise ArtefactError(f"the graph has no tensor {tensor!r}")
    graph = b"".join(field(_NODE, raw) for raw in nodes) + others
    for name, array in _weights(coder).items():
        graph += field(_WEIGHT, _tensor(name, array))
    return rest + field(_GRAPH, graph)


def _coder_nodes(tensor: str, scale: bytes, coder: Coder) -> list[bytes]:
    block = coder.encoder.shape[2]
    by = _attribute("strides", [block, block]) + _attribute("kernel_shape", [block, block])
    own = ["narrow_scale", "narrow_zero"]
    return [
        _node("DequantizeLinear", [tensor], "narrow_in", b"", scale),
        _node("Conv", ["narrow_in", "narrow_encoder", "narrow_encoder_bias"], "narrow_numbers", by),
        _node("QuantizeLinear", ["narrow_numbers", *own], NARROW),
        _node("DequantizeLinear", [NARROW, *own], "narrow_heard"),
        _node("ConvTranspose", ["narrow_heard", "narrow_decoder", "narrow_decoder_bias"], "narrow_out", by),
        _node("QuantizeLinear", ["narrow_out"], "narrow_wide", b"", scale),
    ]


def _weights(coder: Coder) -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int8]]:
    bias = -np.einsum("ncij,c->n", coder.encoder.astype(np.float64), coder.mean.astype(np.float64))
    return {
        "narrow_encoder": coder.encoder.astype(np.float32),
        "narrow_encoder_bias": bias.astype(np.float32),
        "narrow_decoder": coder.decoder.astype(np.float32),
        "narrow_decoder_bias": coder.mean.astype(np.float32),
        "narrow_scale": np.array(coder.step, np.float32),
        "narrow_zero": np.array(0, np.int8),
    }


def _node(kind: str, inputs: list[str], output: str, attributes: bytes = b"", more: bytes = b"") -> bytes:
    names = b"".join(field(1, name.encode()) for name in inputs) + more
    return names + field(2, output.encode()) + field(3, output.encode()) + field(4, kind.encode()) + attributes


def _attribute(name: str, values: list[int]) -> bytes:
    ints = b"".join(varint(8 << 3) + varint(value) for value in values)
    return field(5, field(1, name.encode()) + ints + varint(20 << 3) + varint(_INTS))


def _tensor(name: str, array: npt.NDArray[np.float32] | npt.NDArray[np.int8]) -> bytes:
    dims = b"".join(varint(1 << 3) + varint(size) for size in array.shape)
    kind = _FLOAT if array.dtype == np.float32 else _INT8
    return dims + varint(2 << 3) + varint(kind) + field(8, name.encode()) + field(9, array.tobytes())


def _renamed(raw: bytes, old: str, new: str) -> bytes:
    """A node that takes another tensor in the place of one."""
    out = b""
    for number, value in fields_of(raw):
        is_it = number == 1 and not isinstance(value, int) and bytes(value) == old.encode()
        out += field(1, new.encode()) if is_it else _again(number, value)
    return out


def _again(number: int, value: int | memoryview) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return field(number, bytes(value))
