"""Answers that are too long to be made at once: lists told a few rows at a time, so that the loop turns in between.

Rules this file keeps: no step makes, or encodes, more than one part, and a part is about a millisecond of work. What is
written is the same JSON object in one line, however many steps it takes.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Parts:
    """A list that is made while it is read, once; in place of a list in the mapping that a verb answers.

    Args:
        parts: Its rows, a few at a time; a part may be empty, where work was done that made none.
    """

    __slots__ = ("_parts",)
    ends = "[]"
    """What the JSON of it begins and ends with."""

    def __init__(self, parts: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        self._parts = iter(parts)

    @classmethod
    def of(cls, parts: Iterable[Sequence[_T]], row: Callable[[_T], object]) -> "Parts":
        """The list of what `row` makes of each."""
        return cls([row(one) for one in part] for part in parts)

    def __iter__(self) -> Iterator[Sequence[Any] | Mapping[str, Any]]:
        """The parts that are left."""
        return self._parts

    def whole(self) -> object:
        """All that is left, made at once."""
        return [row for part in self for row in part]


class Pairs(Parts):
    """The same for a mapping: its parts are mappings, and no two have a key in common."""

    __slots__ = ()
    ends = "{}"

    def whole(self) -> object:
        """All that is left, made at once."""
        return {key: value for part in self if isinstance(part, Mapping) for key, value in part.items()}


def whole(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer with its long lists made, for callers in this process that need them whole."""
    if not any(isinstance(value, Parts) for value in answer.values()):
        return answer
    return {name: value.whole() if isinstance(value, Parts) else value for name, value in answer.items()}


def encoded(answer: Mapping[str, Any]) -> Iterator[str]:
    """The JSON of an answer in pieces, one for each part and one for the rest; mappings in it may hold `Parts` too.

    Parts are made in the order of the answer, so what is told later may be made of what was told before.

    >>> list(encoded({"ok": True, "result": {"rows": Parts([[1, 2], [], [3]]), "more": 0}}))
    ['{"ok":true,"result":{"rows":[1,2', '', ',3', '],"more":0}}']
    """
    waiting = ""
    for text, is_part in _pieces(answer):
        waiting += text
        if is_part:
            yield waiting
            waiting = ""
    yield waiting


def _pieces(answer: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Text, and whether a part was made for it."""
    before = "{"
    for name, value in answer.items():
        yield f"{before}{_encode(name)}:", False
        before = ","
        if isinstance(value, Parts):
            yield value.ends[0], False
            comma = ""
            for part in value:
                yield comma + _encode(part)[1:-1] if part else "", True
                comma = "," if part else comma
            yield value.ends[1], False
        elif isinstance(value, dict) and any(isinstance(inner, Parts) for inner in value.values()):
            yield from _pieces(value)
        else:
            yield _encode(value), False
    yield "}" if answer else "{}", False
