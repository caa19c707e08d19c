"""Deterministic CBOR (RFC 8949, section 4.2), the small part that statements need, decoded strictly.

One value has one encoding, so "the bytes that were signed" and "the value that was meant" cannot drift apart. Allowed:
unsigned and negative integers of 64 bits, byte strings, text, arrays, maps with text keys, booleans and null. Refused,
each as `WireError`: longer-than-needed integers, indefinite lengths, floats, tags, duplicate or unsorted keys, more
than `MAX_DEPTH` levels, bytes left over, anything larger than the caller's limit.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from swarmd_protocols.errors import WireError

Value: TypeAlias = "int | bytes | str | bool | Sequence[Value] | Mapping[str, Value] | None"

MAX_DEPTH = 8
MAX_BYTES = 65_536

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
_LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
_CONSTANTS: dict[int, bool | None] = {20: False, 21: True, 22: None}


def _head(major: int, argument: int) -> bytes:
    """The shortest initial bytes for an argument."""
    if argument < 24:
        return bytes([major << 5 | argument])
    for info, width in _WIDTHS.items():
        if argument < 1 << 8 * width:
            return bytes([major << 5 | info]) + argument.to_bytes(width, "big")
    raise ValueError(f"{argument} does not fit 64 bits")


def encode(value: Value) -> bytes:
    """The one encoding of a value.

    Args:
        value: Integers of 64 bits, bytes, text, booleans, None, sequences, and mappings with text keys.

    Returns:
        Deterministic CBOR.

    Raises:
        ValueError: The value has no encoding here; our own bug, never a peer's.

    >>> encode({"b": 1, "a": [True, b"x"]}).hex()
    'a2616182f54178616201'
    """
    if value is None or isinstance(value, bool):
        return bytes([_SIMPLE << 5 | {False: 20, True: 21, None: 22}[value]])
    if isinstance(value, int):
        return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, Mapping):
        pairs = sorted((encode(key), encode(item)) for key, item in value.items())
        return _head(_MAP, len(pairs)) + b"".join(key + item for key, item in pairs)
    if isinstance(value, Sequence):
        return _head(_ARRAY, len(value)) + b"".join(encode(item) for item in value)
    raise ValueError(f"{type(value).__name__} has no deterministic encoding")


def decode(data: bytes, max_bytes: int = MAX_BYTES) -> Value:
    """Read one value, refusing every encoding but the one that `encode` gives.

    Args:
        data: Bytes from outside.
        max_bytes: More than this is refused before anything is read.

    Returns:
        The value; arrays as lists, maps as dicts in key order.

    Raises:
        WireError: Says what is wrong and at which byte.
    """
    if len(data) > max_bytes:
        raise WireError(f"{len(data)} bytes of CBOR; at most {max_bytes} are read")
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise WireError(f"{len(data) - reader.at} bytes after the CBOR value")
    return value


class _Reader:
    """A cursor over bytes from outside; every step is checked against their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise WireError(f"CBOR ends at byte {len(self._data)}, {end - len(self._data)} bytes early")
        piece = self._data[self.at : end]
        self.at = end
        return piece

    def _argument(self, info: int) -> int:
        if info < 24:
            return info
        width = _WIDTHS.get(info)
        if width is None:
            raise WireError(f"indefinite or reserved CBOR length at byte {self.at - 1}")
        argument = int.from_bytes(self._take(width), "big")
        if argument < _LEAST[info]:
            raise WireError(f"CBOR integer longer than needed at byte {self.at - width - 1}")
        return argument

    def value(self, depth: int) -> Value:
        """One value at this depth."""
        if depth > MAX_DEPTH:
            raise WireError(f"CBOR is nested more than {MAX_DEPTH} levels deep")
        initial = self._take(1)[0]
        major, info = initial >> 5, initial & 31
        if major == _SIMPLE:
            if info not in _CONSTANTS:
                raise WireError(f"CBOR floats and simple values are refused (byte {self.at - 1})")
            return _CONSTANTS[info]
        argument = self._argument(info)
        match major:
            case 0:
                return argument
            case 1:
                return -1 - argument
            case 2:
                return self._take(argument)
            case 3:
                return self._text(argument)
            case 4:
                return [self.value(depth + 1) for _ in range(self._count(argument))]
            case 5:
                return self._map(self._count(argument), depth)
            case _:
                raise WireError(f"CBOR tags are refused (byte {self.at - 1})")

    def _count(self, argument: int) -> int:
        """An element takes at least one byte, so a count beyond the bytes left is a lie; refuse before looping."""
        if argument > len(self._data) - self.at:
            raise WireError(f"CBOR claims {argument} elements in {len(self._data) - self.at} bytes")
        return argument

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"CBOR text is not UTF-8: {error.reason}") from None

    def _map(self, count: int, depth: int) -> dict[str, Value]:
        result: dict[str, Value] = {}
        previous = b""
        for _ in range(count):
            start = self.at
            key = self.value(depth + 1)
            encoded = self._data[start : self.at]
            if not isinstance(key, str):
                raise WireError(f"CBOR map key at byte {start} is not text")
            if encoded <= previous:
                raise WireError(f"CBOR map keys are unsorted or repeated at {key!r}")
            previous = encoded
            result[key] = self.value(depth + 1)
        return result
