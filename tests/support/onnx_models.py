"""Small detectors that really see, written as `.onnx` and `.tflite` by hand: no exporter, no weights.

Each cell of a grid of strides answers with the mean colour under it: class 0 is red, 1 green, 2 blue, as far as the
input holds RGB. Boxes are the cells. So a coloured square in a picture is one detection of known place and score.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from swarmd_models.decoders.anchor_free import cell_grid

COLOURS = ("red", "green", "blue")
STRIDES = (8, 16, 32)
_FLOAT, _INT64, _INT8, _UINT8 = 1, 7, 3, 2
_KINDS = {"float32": _FLOAT, "int64": _INT64, "int8": _INT8, "uint8": _UINT8}


# --- Protocol Buffers, the little that ONNX needs --------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


# --- ONNX ------------------------------------------------------------------------------------------------------------


def tensor(name: str, value: np.ndarray) -> bytes:
    dims = b"".join(number(1, n) for n in value.shape)
    return dims + number(2, _KINDS[str(value.dtype)]) + block(8, name) + block(9, value.tobytes())


def node(op: str, inputs: Sequence[str], output: str, **attributes: int | Sequence[int]) -> bytes:
    made = b"".join(block(1, one) for one in inputs) + block(2, output) + block(4, op)
    for name, value in attributes.items():
        if isinstance(value, int):
            made += block(5, block(1, name) + number(3, value) + number(20, 2))
        else:
            made += block(5, block(1, name) + b"".join(number(8, n) for n in value) + number(20, 7))
    return made


def value_info(name: str, shape: Sequence[int], kind: str = "float32") -> bytes:
    dims = b"".join(block(1, number(1, n)) for n in shape)
    return block(1, name) + block(2, block(1, number(1, _KINDS[kind]) + block(2, dims)))


def model(
    nodes: Iterable[bytes],
    initialisers: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    notes: Mapping[str, str] | None = None,
) -> bytes:
    graph = b"".join(block(1, one) for one in nodes) + block(2, "g")
    graph += b"".join(block(5, one) for one in initialisers)
    graph += b"".join(block(11, one) for one in inputs) + b"".join(block(12, one) for one in outputs)
    whole = number(1, 8) + block(7, graph) + block(8, block(1, "") + number(2, 13))
    for key, value in (notes or {}).items():
        whole += block(14, block(1, key) + block(2, value))
    return whole


def ultralytics(task: str = "detect", labels: Sequence[str] = COLOURS) -> dict[str, str]:
    """The notes that its exporter writes."""
    return {"task": task, "stride": "32", "names": str(dict(enumerate(labels))), "author": "Ultralytics"}


def cells(size: int) -> np.ndarray:
    """Shape (cells, 4): centre and sides of every cell, pixels."""
    centres, strides = cell_grid(size, size, STRIDES)
    return np.concatenate([centres, strides[:, None], strides[:, None]], axis=1).astype(np.float32)


def colour_onnx(
    kind: str = "v8",
    size: int = 64,
    notes: Mapping[str, str] | None = None,
    boxes_last: bool = True,
    extra: np.ndarray | None = None,
) -> bytes:
    """A float detector of one head of the YOLO family.

    Args:
        kind: "v8" (box, classes), "v5" (three anchors: box, objectness, classes), "v6" (one anchor with objectness),
            "yolox" (the same, boxes as the grid has them), or "seg" (v8 with 32 numbers of a mask, and masks).
        size: Of the square input, RGB from 0 to 1.
        notes: Metadata of the file.
        boxes_last: Whether the boxes lie along the last axis, as Ultralytics writes v8.
        extra: Numbers behind the classes, shape (n, cells).
    """
    boxes = cells(size).T.copy()
    if kind == "yolox":
        boxes[2:] = 0.0  # exp(0) strides
        boxes[:2] = 0.5  # The cell's middle.
    consts = {"boxes": boxes[None], "flat": np.array([1, 3, -1], np.int64)}
    nodes, parts = [], []
    for stride in STRIDES:
        nodes.append(node("AveragePool", ["images"], f"p{stride}", kernel_shape=[stride] * 2, strides=[stride] * 2))
        nodes.append(node("Reshape", [f"p{stride}", "flat"], f"f{stride}"))
        parts.append(f"f{stride}")
    nodes.append(node("Concat", parts, "scores", axis=2))
    rows = ["boxes", "scores"]
    if kind in ("v5", "v6", "yolox"):
        consts["sure"] = np.ones((1, 1, boxes.shape[1]), np.float32)
        rows = ["boxes", "sure", "scores"]
    masks = [value_info("masks", (1, 32, size // 4, size // 4))] if kind == "seg" else []
    if kind == "seg":
        extra = np.full((32, boxes.shape[1]), 0.9, np.float32)
        consts["protos"] = np.zeros((1, 32, size // 4, size // 4), np.float32)
        nodes.append(node("Identity", ["protos"], "masks"))
    if extra is not None:
        consts["extra"] = extra[None].astype(np.float32)
        rows = [*rows, "extra"]
    nodes.append(node("Concat", rows, "joined", axis=1))
    last, numbers, count = "joined", 4 + len(COLOURS) + (rows[1] == "sure") + (0 if extra is None else len(extra)), 1
    if kind == "v5":
        nodes.append(node("Concat", ["joined"] * 3, "three", axis=2))
        last, count = "three", 3
    found = count * boxes.shape[1]
    shape: tuple[int, ...] = (1, numbers, found)
    if boxes_last and kind != "v5":
        nodes.append(node("Identity", [last], "output0"))
    else:
        nodes.append(node("Transpose", [last], "output0", perm=[0, 2, 1]))
        shape = (1, found, numbers)
    return model(
        nodes,
        [tensor(name, value) for name, value in consts.items()],
        [value_info("images", (1, 3, size, size))],
        [value_info("output0", shape), *masks],
        notes,
    )


def constant_onnx(
    outputs: Mapping[str, np.ndarray],
    size: int = 64,
    notes: Mapping[str, str] | None = None,
    input_kind: str = "float32",
) -> bytes:
    """A model that answers the same to every picture; outputs with their batch axis."""
    return model(
        [node("Identity", [f"c_{name}"], name) for name in outputs] + [node("Identity", ["images"], "unused")],
        [tensor(f"c_{name}", value) for name, value in outputs.items()],
        [value_info("images", (1, 3, size, size), input_kind)],
        [value_info(name, value.shape, str(value.dtype)) for name, value in outputs.items()],
        notes,
    )


# --- LiteRT ----------------------------------------------------------------------------------------------------------


def colour_tflite(
    scale: float = 1 / 255, zero_point: int = -128, size: int = 64, in_pixels: bool = False, kind: str = "int8"
) -> bytes:
    """`colour_onnx("v8")` in 8 bits: rows of boxes, everything on the input's scale, boxes as fractions.

    Args:
        scale, zero_point: Of the input and the output.
        size: Of the square input.
        in_pixels: Boxes in pixels, on an output scale that reaches as far.
        kind: "int8" or "uint8".
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    dtype = np.dtype(kind)
    types, ops = schema.TensorType, schema.BuiltinOperator
    tensors, buffers, operators, codes = [], [schema.BufferT()], [], []

    def add(name: str, shape: Sequence[int], data: np.ndarray | None = None, step: float = scale, zero: int = 0) -> int:
        made, buffer = schema.TensorT(), schema.BufferT()
        made.name, made.shape, made.buffer = name.encode(), list(shape), len(buffers)
        made.type = types.INT32 if data is not None and data.dtype == np.int32 else getattr(types, kind.upper())
        if made.type != types.INT32:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [step], [zero]
        if data is not None:
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        buffers.append(buffer)
        tensors.append(made)
        return len(tensors) - 1

    def operate(code: int, inputs: list[int], output: int, name: str, options: object) -> None:
        if code not in codes:
            codes.append(code)
        made = schema.OperatorT()
        made.inputs, made.outputs, made.opcodeIndex = inputs, [output], codes.index(code)
        made.builtinOptionsType, made.builtinOptions = getattr(schema.BuiltinOptions, name), options
        operators.append(made)

    info = np.iinfo(dtype)
    image = add("image", (1, size, size, 3), zero=zero_point)
    parts = []
    for stride in STRIDES:
        side = size // stride
        pooled = add(f"pool{stride}", (1, side, side, 3), zero=zero_point)
        pool = schema.Pool2DOptionsT()
        pool.padding, pool.strideW, pool.strideH = schema.Padding.VALID, stride, stride
        pool.filterWidth = pool.filterHeight = stride
        operate(ops.AVERAGE_POOL_2D, [image], pooled, "Pool2DOptions", pool)
        flat = add(f"flat{stride}", (1, side * side, 3), zero=zero_point)
        reshape = schema.ReshapeOptionsT()
        reshape.newShape = [1, side * side, 3]
        wanted = add(f"shape{stride}", (3,), np.array(reshape.newShape, np.int32))
        operate(ops.RESHAPE, [pooled, wanted], flat, "ReshapeOptions", reshape)
        parts.append(flat)
    real = cells(size) / (1.0 if in_pixels else size)
    step = size / 255 if in_pixels else scale
    zero = int(info.min) if in_pixels else zero_point
    raw = np.clip(np.rint(real / step) + zero, info.min, info.max).astype(dtype)
    boxes = add("boxes", (1, *raw.shape), raw[None], step, zero)
    if in_pixels:  # One scale for all: the scores sink into its first step.
        parts = [add("scores", (1, len(raw), 3), np.full((1, len(raw), 3), zero, dtype), step, zero)]
    joined = parts[0]
    if len(parts) > 1:
        joined = add("joined", (1, len(raw), 3), zero=zero_point)
        along = schema.ConcatenationOptionsT()
        along.axis = 1
        operate(ops.CONCATENATION, parts, joined, "ConcatenationOptions", along)
    answer = add("rows", (1, len(raw), 7), step=step, zero=zero)
    across = schema.ConcatenationOptionsT()
    across.axis = 2
    operate(ops.CONCATENATION, [boxes, joined], answer, "ConcatenationOptions", across)
    graph, whole = schema.SubGraphT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, operators, [image], [answer]
    whole.version, whole.subgraphs, whole.buffers = 3, [graph], buffers
    whole.operatorCodes = []
    for code in codes:
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = code
        made.version = 1 if code == ops.RESHAPE else 2
        whole.operatorCodes.append(made)
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(whole.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def picture(width: int = 96, height: int = 48, colour: str = "red", level: int = 255, at: int = 0) -> np.ndarray:
    """A dark BGR picture with one coloured square of 24 pixels, `at` pixels from its left and top."""
    image = np.zeros((height, width, 3), np.uint8)
    image[at : at + 24, at : at + 24, 2 - COLOURS.index(colour)] = level
    return image
