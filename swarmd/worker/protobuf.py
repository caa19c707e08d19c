"""The part of Protocol Buffers that the Open Inference Protocol needs, from tables of what the fields are called.

A message is a dict: field name to value, repeated fields and maps as lists and dicts; what is absent is absent, and
what no table knows is passed over. Nothing is decoded deeper than the tables go, and no more than `ITEMS_MAX` fields
and numbers of one message.

Source:
    Protocol Buffers, "Encoding": varints, length-delimited fields, packed repeated fields, maps as entries of 1 and 2.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups (3, 4) are not read."""
ITEMS_MAX = 1 << 16
"""Each is read by itself, a tenth of a second for all; larger tensors go as raw bytes."""
_VARINT_KINDS = ("bool", "int32", "int64", "uint32", "uint64")
_FIXED = {"float": (FIXED32, struct.Struct("<f")), "double": (FIXED64, struct.Struct("<d"))}


class Field(NamedTuple):
    """One field."""

    name: str
    kind: "str | Schema"
    """"bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes", or a message's table."""
    form: str = ""
    """"": once; "repeated"; "map": from strings."""


Schema: TypeAlias = Mapping[int, Field]


class ProtobufError(ValueError):
    """Bytes are no message of this table."""


def decode(schema: Schema, data: bytes | memoryview) -> dict[str, Any]:
    """Read a message; raises `ProtobufError`."""
    return _Reader().message(schema, memoryview(data))


def encode(schema: Schema, message: Mapping[str, Any]) -> bytes:
    """A message's bytes; a name that the table lacks is a bug of ours."""
    numbers = {field.name: (number, field) for number, field in schema.items()}
    out = bytearray()
    for name, value in message.items():
        number, field = numbers[name]
        if field.form == "map":
            for key, item in value.items():
                _put(
                    out, number, {1: Field("key", "string"), 2: Field("value", field.kind)}, {"key": key, "value": item}
                )
        elif field.form == "repeated":
            if field.kind in _VARINT_KINDS:
                packed = b"".join(_varint(int(item)) for item in value)
                out += _varint(number << 3 | BYTES) + _varint(len(packed)) + packed
            else:
                for item in value:
                    _put(out, number, field.kind, item)
        else:
            _put(out, number, field.kind, value)
    return bytes(out)


def _entry(field: Field) -> Schema:
    return {1: Field("key", "string"), 2: Field("value", field.kind)}


# --- Reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """One message, and how much of it may still be read."""

    def __init__(self) -> None:
        self._left = ITEMS_MAX

    def message(self, schema: Schema, data: memoryview) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, wire, value in self._fields(data):
            field = schema.get(number)
            if field is None:
                continue
            if field.form == "map":
                entry = self._one(_entry(field), wire, value)
                found.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", {})
            elif field.form == "repeated":
                found.setdefault(field.name, []).extend(self._repeated(field.kind, wire, value))
            else:
                found[field.name] = self._one(field.kind, wire, value)
        return found

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ProtobufError(f"more than {ITEMS_MAX} fields and numbers; send tensors as raw bytes")

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, "int | memoryview"]]:
        at = 0
        while at < len(data):
            self._spend(1)
            tag, at = _read_varint(data, at)
            number, wire = tag >> 3, tag & 7
            value: int | memoryview
            if wire == VARINT:
                value, at = _read_varint(data, at)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
                value, at = data[at : at + size], at + size
            elif wire == BYTES:
                size, at = _read_varint(data, at)
                value, at = data[at : at + size], at + size
            else:
                raise ProtobufError(f"wire type {wire}")
            if at > len(data):
                raise ProtobufError("it ends within a field")
            yield number, wire, value

    def _one(self, kind: "str | Schema", wire: int, value: "int | memoryview") -> Any:
        if isinstance(value, int):
            if kind not in _VARINT_KINDS:
                raise ProtobufError("a number where there should be none")
            return _number(str(kind), value)
        if isinstance(kind, str) and kind in _FIXED:
            wanted, form = _FIXED[kind]
            if wire != wanted:
                raise ProtobufError(f"no {kind}")
            return form.unpack(value)[0]
        if wire != BYTES or kind in _VARINT_KINDS:
            raise ProtobufError("bytes where there should be a number, or the other way round")
        if kind == "bytes":
            return value
        if kind == "string":
            try:
                return str(value, "utf-8")
            except UnicodeDecodeError as error:
                raise ProtobufError("a text that is not UTF-8") from error
        assert not isinstance(kind, str)
        return self.message(kind, value)

    def _repeated(self, kind: "str | Schema", wire: int, value: "int | memoryview") -> list[Any]:
        if isinstance(value, int) or not isinstance(kind, str) or kind in ("string", "bytes"):
            return [self._one(kind, wire, value)]
        if kind in _FIXED:
            wanted, form = _FIXED[kind]
            if wire not in (wanted, BYTES) or len(value) % form.size:
                raise ProtobufError(f"packed {kind}s that do not fit")
            self._spend(len(value) // form.size)
            return [item for (item,) in form.iter_unpack(value)]
        if wire != BYTES:
            raise ProtobufError("packed numbers that do not fit")
        items, at = [], 0
        while at < len(value):
            self._spend(1)
            item, at = _read_varint(value, at)
            items.append(_number(kind, item))
        return items


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ProtobufError("a number that does not end")


def _number(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return value != 0
    if kind in ("int32", "int64") and value >= 1 << 63:
        return value - (1 << 64)
    return value


# --- Writing --------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put(out: bytearray, number: int, kind: "str | Schema", value: Any) -> None:
    if isinstance(kind, str) and kind in _VARINT_KINDS:
        out += _varint(number << 3 | VARINT) + _varint(int(value))
    elif isinstance(kind, str) and kind in _FIXED:
        wire, form = _FIXED[kind]
        out += _varint(number << 3 | wire) + form.pack(value)
    else:
        data = value.encode() if kind == "string" else value if isinstance(kind, str) else encode(kind, value)
        out += _varint(number << 3 | BYTES) + _varint(len(data)) + data
