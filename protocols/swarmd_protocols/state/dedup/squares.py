"""Entries by the square of ground that they lie in."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from swarmd_protocols.state.dedup.entry import Entry, place_in

_K = TypeVar("_K")
Shelf: TypeAlias = Entry | list[Entry]
"""What stands in one place: nearly always one entry, for which a list would take more memory than the entry's row."""
_AROUND = tuple((column << 24) + row for column in (-1, 0, 1) for row in (-1, 0, 1))
"""A square and its eight neighbours, as differences of keys."""


def bucket_of(entry: Entry, size_cm: int) -> int:
    """The square of an entry: (column << 24) + row."""
    east_cm, north_cm = place_in(entry.packed)
    return (east_cm // size_cm << 24) + north_cm // size_cm


class Squares:
    """Entries of each class group in squares as wide as the outer limit.

    Args:
        size_cm: That limit.
    """

    def __init__(self, size_cm: int) -> None:
        self._size_cm = size_cm
        self._entries: dict[str, dict[int, Shelf]] = {}

    def near(self, group: str, east_cm: int, north_cm: int) -> list[Entry]:
        """Everybody within the limit of a point, and some beyond."""
        index = self._entries.get(group)
        if not index:
            return []
        size = self._size_cm
        here = (east_cm // size << 24) + north_cm // size
        found: list[Entry] = []
        for step in _AROUND:
            shelf = index.get(here + step)
            if type(shelf) is list:
                found += shelf
            elif shelf is not None:
                found.append(shelf)  # type: ignore[arg-type]
        return found

    def at(self, group: str, bucket: int) -> Sequence[Entry]:
        """Everybody on one square."""
        index = self._entries.get(group)
        shelf = None if index is None else index.get(bucket)
        if shelf is None:
            return ()
        return shelf if isinstance(shelf, list) else (shelf,)

    def add(self, entry: Entry, bucket: int) -> None:
        """Put an entry on its square."""
        index = self._entries.setdefault(entry.group, {})
        shelf = index.get(bucket)
        if shelf is None:
            index[bucket] = entry
        elif isinstance(shelf, list):
            shelf.append(entry)
        else:
            index[bucket] = [shelf, entry]

    def discard(self, entry: Entry, bucket: int) -> None:
        """Take an entry off its square, where it is there."""
        index = self._entries.get(entry.group, {})
        shelf = index.get(bucket)
        if isinstance(shelf, list):
            if entry in shelf:
                shelf.remove(entry)
                _clear_up(index, bucket, shelf)
        elif shelf is entry:
            del index[bucket]


def _clear_up(index: dict[int, Shelf], key: int, left: list[Entry]) -> None:
    """Some were taken out of a list: what is left stands there without one, or nothing."""
    if len(left) == 1:
        index[key] = left[0]
    elif not left:
        del index[key]


def discard(index: dict[_K, list[Entry]], key: _K, entry: Entry) -> None:
    """Take an entry out of a list, where it is in, and the list with its last one."""
    entries = index.get(key)
    if entries is None:
        return
    try:
        entries.remove(entry)
    except ValueError:
        return
    if not entries:
        del index[key]
