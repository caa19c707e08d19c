"""What the tables of trust took and gave up since their reader last asked: what the journal is to write and to delete.

A statement that is taken and given up again in between was neither; so the journal holds what counts, and no more.
"""

from collections.abc import Iterable, Iterator


class News:
    """Changes that the reader has not taken yet, in order."""

    def __init__(self) -> None:
        self._came: dict[tuple[str, bytes], None] = {}
        self._went: dict[tuple[str, bytes], None] = {}
        self.count = 0
        """How often something was taken."""

    def __bool__(self) -> bool:
        return bool(self._came)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._came)

    def came(self, kind: str, statement: bytes) -> None:
        """A statement is held."""
        self.count += 1
        self._went.pop((kind, statement), None)
        self._came[kind, statement] = None

    def went(self, kind: str, statement: bytes) -> None:
        """A statement is held no more: it fell, was replaced, or had no room."""
        self._came.pop((kind, statement), None)
        self._went[kind, statement] = None

    def became(self, held: set[tuple[str, bytes]], left: Iterable[tuple[str, bytes]]) -> None:
        """Of all that was held this is left, and what is new of it counts again."""
        now = list(left)
        for kind, statement in sorted(held.difference(now)):
            self.went(kind, statement)
        for kind, statement in now:
            if kind != "root" and (kind, statement) not in held:
                self.came(kind, statement)

    def take(self) -> list[tuple[str, bytes]]:
        """What came since the last call."""
        came, self._came = list(self._came), {}
        return came

    def take_gone(self) -> list[tuple[str, bytes]]:
        """What went since the last call."""
        went, self._went = list(self._went), {}
        return went
