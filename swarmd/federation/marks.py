"""How a region notices that its file was put back from a backup: gateways know more of its log than it does.

Rules this file keeps:

- The log of what goes down gets a row that does nothing for each swarm that is heard, each `MARK_S`, so gateways have
  taken in all up to some moment.
- Numbers of the log are milliseconds of the clock, or more (`Store.send_down`). None lies between the last that a file
  had when a run began and the beginning of that run: a gateway that has taken such a one in, or one above the last, has
  heard of a region that this file has forgotten, and of what it acknowledged.
- That gateway is answered once with the name of no log. It says again what its swarm still shows, as it does to a
  region whose disk was lost. Others are told nothing: a gateway that lies about it has only itself speak again.
"""

import os
from collections.abc import Iterable

import msgspec

from swarmd.federation.store import Store, put_down
from swarmd_protocols.federation.wire import EPOCH_BYTES, FactKind

MARK_S = 600.0
"""Seconds between two marks of a swarm: what was acknowledged within it after a backup may stay unnoticed."""
RUNS_MAX = 1_000
"""Beginnings that are kept: some kilobytes."""
_encode = msgspec.msgpack.Encoder().encode
_GAPS = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode


class Marks:
    """Of one region's run, which begins.

    Args:
        store: Its memory.
        now_ms: Milliseconds since 1970.
    """

    def __init__(self, store: Store, now_ms: int) -> None:
        self._store = store
        self._marked_s: dict[bytes, float] = {}
        self._none = os.urandom(EPOCH_BYTES)
        """Name of no log; one, so that several answers before a gateway speaks again have it begin anew once."""
        held = store._fact("gaps")
        self._gaps = _GAPS(held) if held else []
        """(last number that was given, moment when a run began): none lies between, the end included."""
        last = store.down_count()
        if now_ms > last:
            self._gaps = [*self._gaps, (last, now_ms)][-RUNS_MAX:]
            with store.transaction():
                store._keep("gaps", _encode(self._gaps))
                store._db.execute("DELETE FROM sqlite_sequence WHERE name = 'down'")
                store._db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('down', ?)", (now_ms,))

    def say(self, swarms: Iterable[bytes], now_s: float) -> None:
        """Give each of these swarms a mark, where it is time."""
        due = [one for one in swarms if now_s - self._marked_s.get(one, float("-inf")) >= MARK_S]
        if not due:
            return
        with self._store.transaction():
            for swarm in due:
                put_down(self._store, swarm.hex(), FactKind.MARK, b"", b"")
        self._marked_s |= dict.fromkeys(due, now_s)

    def name_for(self, log: bytes, have: int) -> bytes:
        """What the log is called in an answer to a gateway.

        Args:
            log: What the gateway calls it.
            have: Up to where it has taken it in.
        """
        if log == self._store.log and (
            have > self._store.down_count() or any(last < have <= began for last, began in self._gaps)
        ):
            return self._none
        return self._store.log
