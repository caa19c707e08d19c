"""Typed reading of a decoded map: every key once, every value within its range, nothing left over."""

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from swarmd_protocols.errors import WireError
from swarmd_protocols.trust.canonical import Value

MODEL_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
U63 = (1 << 63) - 1


class Fields:
    """A map from outside; as a context manager it refuses keys that nobody asked for.

    >>> with Fields({"a": 1}, "thing") as fields:
    ...     fields.integer("a", 0, 9)
    1
    """

    def __init__(self, value: Value, what: str) -> None:
        if not isinstance(value, Mapping):
            raise WireError(f"{what} is not a map")
        self._left = dict(value)
        self._what = what

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and self._left:
            raise WireError(f"{self._what} has unknown keys: {', '.join(sorted(self._left))[:100]}")

    def _take(self, key: str) -> Value:
        if key not in self._left:
            raise WireError(f"{self._what} lacks {key!r}")
        return self._left.pop(key)

    def integer(self, key: str, low: int = 0, high: int = U63) -> int:
        """An integer within [low, high]."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WireError(f"{self._what}: {key} must be an integer within [{low}, {high}]")
        return value

    def boolean(self, key: str) -> bool:
        """True or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            raise WireError(f"{self._what}: {key} must be true or false")
        return value

    def octets(self, key: str, *sizes: int) -> bytes:
        """A byte string of one of these lengths."""
        value = self._take(key)
        if not isinstance(value, bytes) or len(value) not in sizes:
            raise WireError(f"{self._what}: {key} must be {' or '.join(map(str, sizes))} bytes")
        return value

    def text(self, key: str, max_length: int, pattern: re.Pattern[str] | None = None) -> str:
        """Text of at most so many characters, of this shape."""
        value = self._take(key)
        if not isinstance(value, str) or len(value) > max_length or (pattern and not pattern.fullmatch(value)):
            raise WireError(f"{self._what}: {key} is not text of the expected form")
        return value

    def choice(self, key: str, *allowed: str) -> str:
        """One of these words."""
        value = self._take(key)
        if not isinstance(value, str) or value not in allowed:
            raise WireError(f"{self._what}: {key} must be one of {', '.join(allowed)}")
        return value

    def sequence(self, key: str, max_count: int) -> list[Value]:
        """An array of at most so many elements."""
        value = self._take(key)
        if not isinstance(value, list) or len(value) > max_count:
            raise WireError(f"{self._what}: {key} must be an array of at most {max_count}")
        return value

    def strings(self, key: str, max_count: int, max_length: int = 64) -> tuple[str, ...]:
        """An array of short, distinct, sorted strings."""
        values = self.sequence(key, max_count)
        texts = tuple(value for value in values if isinstance(value, str) and len(value) <= max_length)
        if len(texts) != len(values) or list(texts) != sorted(set(texts)):
            raise WireError(f"{self._what}: {key} must be sorted, distinct strings of at most {max_length} characters")
        return texts

    def map(self, key: str) -> Value:
        """A nested map, for a `Fields` of its own."""
        return self._take(key)
