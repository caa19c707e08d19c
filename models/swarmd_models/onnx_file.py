"""What an `.onnx` file tells by itself, read without a runtime: that it is one, and its metadata.

Source:
    onnx.proto3: `ModelProto.ir_version` is field 1, `graph` field 7, `metadata_props` field 14, each of the last a
    `StringStringEntryProto` (key 1, value 2). Protocol Buffers' encoding: a tag is `number << 3 | kind`.
"""

from collections.abc import Iterator
from pathlib import Path

from swarmd_models.errors import ArtefactError
from swarmd_models.tflite_file import MAX_LABEL_BYTES, MAX_MODEL_BYTES

_IR_VERSION, _GRAPH, _METADATA = 1, 7, 14
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 65_536
"""Of the outermost message; an exporter writes a few dozen."""
_NOTE_FIELDS = 16
"""Of a note: it has two. A model of 256 MiB may be notes alone, each of as many fields as the outermost message."""


def read_onnx(path: Path) -> bytes:
    """The file's bytes, after the checks that need no runtime.

    Raises:
        ArtefactError: Missing, empty, too large, truncated, or no ONNX model.
    """
    try:
        if path.is_dir():
            raise ArtefactError(f"{path} is a folder; name the .onnx file inside")
        size = path.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise ArtefactError(f"{path} is {size >> 20} MiB; models may have {MAX_MODEL_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"cannot read model {path}: {error.strerror}") from error
    try:
        found = {number for number, _ in fields_of(data)}
    except ValueError as error:
        raise ArtefactError(f"{path} is no ONNX model, or is truncated: {error}") from error
    if not {_IR_VERSION, _GRAPH} <= found:
        raise ArtefactError(f"{path} is no ONNX model: it has no version and graph (truncated or another format)")
    return data


def onnx_metadata(data: bytes) -> dict[str, str]:
    """The exporter's notes (`metadata_props`), by key; empty where there are none that can be read."""
    notes: dict[str, str] = {}
    try:
        for number, value in fields_of(data):
            if number == _METADATA and isinstance(value, memoryview) and len(value) <= MAX_LABEL_BYTES:
                entry = {n: bytes(v) for n, v in fields_of(value, _NOTE_FIELDS) if isinstance(v, memoryview)}
                notes[entry.get(_KEY, b"").decode()] = entry.get(_VALUE, b"").decode()
    except ValueError:  # Of which UnicodeDecodeError is one.
        return {}
    return notes


def fields_of(data: bytes | memoryview, most: int = MAX_FIELDS) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of one message; raises `ValueError` where it is none, or has over `most`."""
    view, at = memoryview(data), 0
    for _ in range(most):
        if at == len(view):
            return
        tag, at = _varint(view, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"byte {at} begins no field")
        if kind == _VARINT:
            value, at = _varint(view, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"byte {at} begins a field of the unknown kind {kind}")
        if size > len(view) - at:
            raise ValueError(f"field {number} has {size} bytes, of which {len(view) - at} are there")
        yield number, view[at : at + size]
        at += size
    raise ValueError(f"over {most} fields")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"byte {at} ends a number that has no end")


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as `fields_of` reads it."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """A whole number, 0 or more, as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
