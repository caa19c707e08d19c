"""Reads a parsed TOML table key by key and collects every problem instead of stopping at the first.

Shared by everything here that people write by hand. Keys nobody asked for are problems too, with the nearest known
key as a suggestion.
"""

import math
import re
import tomllib
from collections.abc import Sequence
from typing import Any

MAX_ITEMS = 65_536
"""Items of one list in a description."""
MAX_KEY_PARTS = 16
"""Parts of one dotted key. `tomllib` notes each beginning of a key: 32 kB of dots took a gigabyte."""
_HINTS_MAX = 16
"""Unknown keys that are compared with the known ones: of more nobody reads."""
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^"\\]++|\\.|""?(?!"))*+"{0,5}|"(?:[^"\\\n]++|\\.)*+"?'''
    r"""|'{3}(?:[^']++|''?(?!'))*+'{0,5}|'[^'\n]*+'?|#[^\n]*+""",
    re.DOTALL,
)
"""What holds dots that part no key; one that does not end is refused by `tomllib` where it begins. Each byte is looked
at once. Source: TOML 1.0.0, "Comment" and "String"."""
_LONG_KEY = re.compile(rf"(?:\.[^.\n=,\[\]{{}}]*+){{{MAX_KEY_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text from outside, in time and memory that go with its length.

    Raises:
        ValueError: It is no TOML, its values nest too deeply, or a key has more than `MAX_KEY_PARTS` parts.
    """
    if found := _LONG_KEY.search(_STRING_OR_COMMENT.sub("''", text)):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts ({found[0][:20]!r}...)")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its values nest too deeply") from error


class TomlReader:
    """One table; sub-tables share the list of problems."""

    def __init__(self, data: dict[str, Any], name: str, parent: "TomlReader | None" = None) -> None:
        """Read `data`; `name` stands before the problems of a sub-table, such as "input"."""
        self._data = data
        self._name = name
        self._parent = parent
        self._known: set[str] = set()
        self._children: dict[str, TomlReader] = {}
        self._problems: list[str] = parent._problems if parent is not None else []

    def problem(self, text: str) -> None:
        """Note one more thing that is wrong."""
        self._problems.append(text)

    def finish(self) -> list[str]:
        """Every problem, unknown keys included."""
        unknown = sorted(self._data.keys() - self._known)
        for at, key in enumerate(unknown):
            import difflib

            near = difflib.get_close_matches(key, self._known, 1) if at < _HINTS_MAX else []
            hint = f"; did you mean {near[0]}?" if near else ""
            self.problem(f"unknown key {self._path(key)}{hint}")
        for child in self._children.values():
            child.finish()
        return sorted(set(self._problems))

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self._data

    def table(self, key: str) -> "TomlReader":
        """A sub-table, empty when it is absent; asking twice gives the same reader."""
        if key not in self._children:
            value = self._take(key, {})
            if not isinstance(value, dict):
                self.problem(f"{self._path(key)} must be a table")
                value = {}
            self._children[key] = TomlReader(value, self._path(key), self)
        return self._children[key]

    def tables(self, key: str, most: int) -> list["TomlReader"]:
        """A list of tables, 1 to `most` of them; empty where it does not hold."""
        value = self._take(key, None)
        if not isinstance(value, list) or not 1 <= len(value) <= most or not all(isinstance(v, dict) for v in value):
            self.problem(f"{self._path(key)} must be 1 to {most} tables")
            return []
        rows = [TomlReader(one, f"{self._path(key)}[{at}]", self) for at, one in enumerate(value)]
        self._children |= {f"{key}[{at}]": row for at, row in enumerate(rows)}
        return rows

    def free_table(self, key: str) -> dict[str, Any]:
        """A table whose keys are nobody's business here."""
        value = self._take(key, {})
        if isinstance(value, dict):
            return value
        self.problem(f"{self._path(key)} must be a table")
        return {}

    def text(self, key: str, default: str | None) -> str:
        """A string; required when `default` is None."""
        value = self._take(key, default)
        if isinstance(value, str) and len(value) <= 4096 and "\x00" not in value:
            return value
        self.problem(f"{self._path(key)} {'is missing' if value is None else 'must be a string'}")
        return ""

    def choice(self, key: str, allowed: Sequence[str], default: str | None) -> str:
        """One of `allowed`; required when `default` is None."""
        value = self._take(key, default)
        if isinstance(value, str) and value in allowed:
            return value
        said = "is missing" if value is None else f"is {value!r}"
        self.problem(f"{self._path(key)} {said}; it must be one of {', '.join(allowed)}")
        return allowed[0]

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._take(key, default)
        if isinstance(value, bool):
            return value
        self.problem(f"{self._path(key)} must be true or false")
        return default

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.problem(f"{self._path(key)} is {value!r}; it must be a whole number from {low} to {high}")
        return default

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A finite number in [low, high]."""
        value = self._take(key, default)
        if _is_number(value, low, high):
            return float(value)
        self.problem(f"{self._path(key)} is {value!r}; it must be a number from {low:g} to {high:g}")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        value = self._take(key, [])
        if isinstance(value, list) and len(value) <= MAX_ITEMS and all(_is_label(item) for item in value):
            return tuple(value)
        self.problem(f"{self._path(key)} must be a list of strings of 1 to 200 characters")
        return ()

    def integers(self, key: str, default: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
        """A list of 1 to 16 whole numbers."""
        value = self._take(key, list(default))
        if (
            isinstance(value, list)
            and 1 <= len(value) <= 16
            and all(isinstance(item, int) and not isinstance(item, bool) and low <= item <= high for item in value)
        ):
            return tuple(value)
        self.problem(f"{self._path(key)} must be a list of 1 to 16 whole numbers from {low} to {high}")
        return default

    def numbers(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """A list of numbers, empty when absent."""
        value = self._take(key, [])
        if isinstance(value, list) and len(value) <= MAX_ITEMS and all(_is_number(item, low, high) for item in value):
            return tuple(float(item) for item in value)
        self.problem(f"{self._path(key)} must be a list of numbers from {low:g} to {high:g}")
        return ()

    def number_or_numbers(self, key: str, default: float, low: float, high: float) -> tuple[float, ...]:
        """One number, or a list of them; always given back as a tuple."""
        if isinstance(self._data.get(key), list):
            return self.numbers(key, low, high)
        return (self.number(key, default, low, high),)

    def numbers_by_name(self, key: str, low: float, high: float) -> dict[str, float]:
        """A table of numbers under free names."""
        value = self.free_table(key)
        good = {name: float(item) for name, item in value.items() if _is_number(item, low, high)}
        if len(good) != len(value):
            self.problem(f"{self._path(key)} must hold numbers from {low:g} to {high:g}")
        return good

    def texts_by_name(self, key: str) -> dict[str, str]:
        """A table of strings under free names."""
        value = self.free_table(key)
        good = {name: item for name, item in value.items() if isinstance(item, str)}
        if len(good) != len(value):
            self.problem(f"{self._path(key)} must hold strings")
        return good

    def _take(self, key: str, default: Any) -> Any:
        self._known.add(key)
        return self._data.get(key, default)

    def _path(self, key: str) -> str:
        return key if self._parent is None else f"{self._name}.{key}"


def _is_number(value: object, low: float, high: float) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and low <= value <= high


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and "\x00" not in value
