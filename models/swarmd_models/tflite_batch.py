"""A `.tflite` of one picture at a time, made to take several.

Exporters write a graph for a batch of one, and LiteRT can resize its input; what stands in the way are reshapes whose
wanted shape, a constant of the file, begins with that one. With -1 in its place the runtime works it out. Nothing else
of the file is touched, and whether the graph then still says the same of each picture is for who uses it to try: a
reshape may have had another reason to begin with a one.

Source:
    FlatBuffers' binary format; LiteRT's schema (`schema.fbs`, version 3): fields by their place in each table.
"""

import struct
from collections.abc import Iterator

_RESHAPE = 22
"""BuiltinOperator.RESHAPE."""
_INT32 = 2
"""TensorType.INT32."""
_MODEL_CODES, _MODEL_GRAPHS, _MODEL_BUFFERS = 1, 2, 4
_CODE_OLD, _CODE = 0, 3
_GRAPH_TENSORS, _GRAPH_OPERATORS = 0, 3
_OPERATOR_CODE, _OPERATOR_INPUTS = 0, 1
_TENSOR_TYPE, _TENSOR_BUFFER = 1, 2
_BUFFER_DATA = 0
_MAX_ENTRIES = 100_000
"""Of a vector that is read; the largest networks on devices have some thousand tensors."""
_MAX_AXES = 8


def of_any_batch(data: bytes) -> bytes | None:
    """The model with reshapes that keep whatever batch comes in.

    Args:
        data: A `.tflite` file of one graph.

    Returns:
        The file with as many bytes; the same where no reshape stands in the way; None where it cannot be told.

    >>> of_any_batch(b"no model")
    """
    out = bytearray(data)
    try:
        for at, axes in _shapes(data):
            shape = struct.unpack_from(f"<{axes}i", data, at)
            if axes > 1 and shape[0] == 1 and min(shape) > 0:
                struct.pack_into("<i", out, at, -1)
            elif shape[0] >= 0:
                return None  # It puts pictures together, or leaves two sizes open.
    except (struct.error, _OddError):
        return None
    return bytes(out)


class _OddError(Exception):
    """The file is not what this reads."""


def _shapes(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the wanted shape of each reshape lies, and how many axes it has."""
    model = _u32(data, 0)
    graphs = list(_tables(data, _field(data, model, _MODEL_GRAPHS)))
    if len(graphs) != 1:
        raise _OddError
    codes = [_kind(data, one) for one in _tables(data, _field(data, model, _MODEL_CODES))]
    tensors = list(_tables(data, _field(data, graphs[0], _GRAPH_TENSORS)))
    buffers = list(_tables(data, _field(data, model, _MODEL_BUFFERS)))
    for operator in _tables(data, _field(data, graphs[0], _GRAPH_OPERATORS)):
        at = _field(data, operator, _OPERATOR_CODE)
        if _entry(codes, _u32(data, at) if at else 0) != _RESHAPE:
            continue
        inputs, count = _vector(data, _field(data, operator, _OPERATOR_INPUTS))
        if count != 2:
            raise _OddError  # The shape is an option of the operator, or none.
        tensor = _entry(tensors, struct.unpack_from("<i", data, inputs + 4)[0])
        kind, which = _field(data, tensor, _TENSOR_TYPE), _field(data, tensor, _TENSOR_BUFFER)
        if not kind or data[kind] != _INT32 or not which:
            raise _OddError
        values, size = _vector(data, _field(data, _entry(buffers, _u32(data, which)), _BUFFER_DATA))
        if size % 4 or not 4 <= size <= 4 * _MAX_AXES:
            raise _OddError  # Computed, or behind the FlatBuffer.
        yield values, size // 4


def _kind(data: bytes, code: int) -> int:
    """The operator of a code: in an old field of a byte, or a newer one for what has no room there."""
    old, new = _field(data, code, _CODE_OLD), _field(data, code, _CODE)
    return max(data[old] if old else 0, struct.unpack_from("<i", data, new)[0] if new else 0)


def _u32(data: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


def _field(data: bytes, table: int, number: int) -> int:
    """Where a table's field lies; 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise _OddError
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    if offset and table + offset >= len(data):
        raise _OddError
    return table + offset if offset else 0


def _vector(data: bytes, field: int) -> tuple[int, int]:
    """Where a vector's entries begin, and how many there are."""
    if not field:
        raise _OddError
    at = field + _u32(data, field)
    count = _u32(data, at)
    if at + 4 + count > len(data):
        raise _OddError
    return at + 4, count


def _tables(data: bytes, field: int) -> Iterator[int]:
    """Where each table of a vector lies."""
    at, count = _vector(data, field)
    if count > _MAX_ENTRIES:
        raise _OddError
    for place in range(at, at + 4 * count, 4):
        yield place + _u32(data, place)


def _entry(listed: list[int], index: int) -> int:
    if not 0 <= index < len(listed):
        raise _OddError
    return listed[index]
