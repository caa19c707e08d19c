"""Entries by the square of ground that they lie in."""

from typing import TypeAlias, TypeVar

from swarmd_protocols.state.crdt.facts import Sighting
from swarmd_protocols.state.dedup.entry import Entry

_K = TypeVar("_K")
Shelf: TypeAlias = Entry | list[Entry]
"""What stands in one place: nearly always one entry, for which a list would take more memory than the entry's row."""
_AROUND = tuple((column << 24) + row for column in (-1, 0, 1) for row in (-1, 0, 1))
"""A square and its eight neighbours, as differences of keys."""


def bucket_of(row: Sighting, size_cm: int) -> int:
    """The square of a row: (column << 24) + row."""
    return (row.east_cm // size_cm << 24) + row.north_cm // size_cm


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

    def add(self, entry: Entry) -> None:
        """Put an entry where its row says."""
        index = self._entries.setdefault(entry.group, {})
        key = bucket_of(entry.row, self._size_cm)
        shelf = index.get(key)
        if shelf is None:
            index[key] = entry
        elif isinstance(shelf, list):
            shelf.append(entry)
        else:
            index[key] = [shelf, entry]

    def discard(self, entry: Entry) -> None:
        """Take an entry out, where it is in."""
        index = self._entries.get(entry.group, {})
        key = bucket_of(entry.row, self._size_cm)
        shelf = index.get(key)
        if isinstance(shelf, list):
            if entry in shelf:
                shelf.remove(entry)
                clear_up(index, key, shelf)
        elif shelf is entry:
            del index[key]


def clear_up(index: dict[_K, Shelf], key: _K, left: list[Entry]) -> None:
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
