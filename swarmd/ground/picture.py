"""Everything that is known, as JSON that only has to be joined; and what changed, numbered.

Rules this file keeps: a row is encoded once, when it changes; a row that did not change makes no change; each change
has the next number of this epoch. Whoever reads a snapshot in pieces while rows change, and then every change after
its number, holds what is there: a row is whole, so that a newer one may be in the snapshot and come again.
"""

import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from swarmd.ground.rows import KINDS, Change, Object, Position, Row

RING_MAX = 4096
"""Changes that a reader may lag behind; 20 s of 200 drones that say each second where they are."""
EVENTS_KEPT = 300
"""Newest events of a snapshot; the history has the rest."""
PIECE_ROWS = 256
"""Rows of one piece: some 80 kB, which are joined in a tenth of a millisecond."""
_encode = msgspec.json.encode
_Row = TypeVar("_Row", bound=msgspec.Struct)


class Picture:
    """What one node knows.

    Args:
        on_change: Told of each change, in order.
    """

    def __init__(self, on_change: Callable[[Change], None] = lambda change: None) -> None:
        self.epoch = secrets.token_hex(8)
        """Another one in each life of the server: its numbers begin anew."""
        self.seq = 0
        self._rows: dict[str, dict[str, bytes]] = {kind: {} for kind in KINDS}
        self._ring: deque[Change] = deque(maxlen=RING_MAX)
        self._on_change = on_change

    def put(self, kind: str, row: Row, at_s: float) -> bool:
        """Take in a thing as it is from now on; whether that was news.

        Args:
            kind: One of `rows.KINDS`.
            row: The whole thing.
            at_s: When it became so, UTC seconds since 1970.
        """
        encoded, rows = _encode(row), self._rows[kind]
        if rows.get(row.id) == encoded:
            return False
        rows[row.id] = encoded
        if kind == "event" and len(rows) > EVENTS_KEPT:
            del rows[next(iter(rows))]
        self._say(at_s, kind, row.id, encoded)
        return True

    def held(self, kind: str, name: str, struct: type[_Row]) -> _Row | None:
        """One row as it is; None where there is none."""
        encoded = self._rows[kind].get(name)
        return None if encoded is None else msgspec.json.decode(encoded, type=struct)

    def lose_fix(self, name: str, at_s: float) -> None:
        """A member does not know any more where it is: its last place stays, and says so."""
        held = self.held("position", name, Position)
        if held is not None:
            self.put("position", msgspec.structs.replace(held, has_fix=False), at_s)

    def put_dateless(self, row: Object, at_s: float) -> bool:
        """Take in an object whose own times mean nothing here: it was first seen when it was first put, last when it
        changed."""
        held = self.held("object", row.id, Object)
        if held is not None:
            row = msgspec.structs.replace(row, first_seen_s=held.first_seen_s, last_seen_s=held.last_seen_s)
        if row == held:
            return False
        first_s = at_s if held is None else held.first_seen_s
        return self.put("object", msgspec.structs.replace(row, first_seen_s=first_s, last_seen_s=at_s), at_s)

    def drop(self, kind: str, name: str, at_s: float) -> None:
        """A thing is gone."""
        if self._rows[kind].pop(name, None) is not None:
            self._say(at_s, kind, name, None)

    def names(self, kind: str) -> list[str]:
        """Ids of all things of a kind."""
        return list(self._rows[kind])

    def frozen(self) -> dict[str, dict[str, bytes]]:
        """All rows as they are at this moment, by kind and id."""
        return {kind: dict(rows) for kind, rows in self._rows.items()}

    def since(self, epoch: str, after: int) -> Iterator[Change] | None:
        """The changes after a number; None where they are gone, or it is another epoch's."""
        if epoch != self.epoch or not self.seq - len(self._ring) <= after <= self.seq:
            return None
        return islice(self._ring, len(self._ring) - (self.seq - after), None)

    def snapshot(self, at_s: float) -> Iterator[bytes]:
        """A `rows.Snapshot` in pieces of JSON, between which rows may change."""
        yield from snapshot(self.epoch, self.seq, at_s, self._rows)

    def _say(self, at_s: float, kind: str, name: str, encoded: bytes | None) -> None:
        self.seq += 1
        at_s = (
            math.floor(at_s * 1000) / 1000
        )  # Nanoseconds are noise that no store can pack; downwards: not in the future.
        change = Change(self.seq, at_s, kind, name, None if encoded is None else msgspec.Raw(encoded))
        self._ring.append(change)
        self._on_change(change)


def snapshot(epoch: str, seq: int, at_s: float, rows: dict[str, dict[str, bytes]]) -> Iterator[bytes]:
    """A `rows.Snapshot` in pieces of JSON.

    >>> b"".join(snapshot("e", 3, 1.5, {"alert": {"x": b"{}"}}))[:66]
    b'{"epoch":"e","seq":3,"at_s":1.5,"rows":{"member":[],"position":[],'
    """
    yield b'{"epoch":%b,"seq":%d,"at_s":%b,"rows":{' % (_encode(epoch), seq, _encode(at_s))
    before = b""
    for kind in KINDS:
        yield b'%b"%b":[' % (before, kind.encode())
        before, comma = b",", b""
        held = rows.get(kind, {})
        names = iter(list(held))
        while part := list(islice(names, PIECE_ROWS)):
            piece = b",".join(row for name in part if (row := held.get(name)) is not None)
            if piece:
                yield comma + piece
                comma = b","
        yield b"]"
    yield b"}}\n"
