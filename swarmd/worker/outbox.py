"""What a lender keeps of its own answers for the lender of the next part to fetch (`lane.py`), bounded and for a while.

The borrower of a model in parts asks the head to keep what it computed, and gets where it lies; the tail fetches it
from there. Nothing here does I/O or knows the time: the lane asks, and says what time it is.

- A token opens one tensor for one reader (`lent.token_of` under a key that the borrower made for this tensor alone).
  The first connection that shows a token is its reader's; it reads each chunk once, in order. Shown again, over another
  connection, or after the end, it opens nothing, and no token leaves anything here.
- A tensor is gone at the deadline of the request that it came of, and after `KEEP_MAX_NS` in any case; `READERS_MAX`
  readers and its borrower may have it, so a lender sends no more than so many times what it computed, and whoever comes
  first keeps no borrower from seeing what was kept for it.
- Each borrower has a share, all of them together have `TOTAL_MAX_BYTES`. Who fills its share makes room with what was
  read already, the oldest first, and else keeps nothing more: its tensors travel over itself, as they do without this.
  Nobody's tensor makes way for another borrower's, and where all room is taken only who has half a share makes room.
"""

from collections import Counter
from dataclasses import dataclass, field
from hmac import compare_digest

from swarmd.worker.lent import BORROWER, KEY_BYTES, WHO_BYTES, token_of

TOTAL_MAX_BYTES = 64 << 20
"""Of all tensors that are kept: as much as of bodies that are fetched."""
EACH_MAX_BYTES = 16 << 20
"""Of one borrower's: a second of ten pictures of 1.2 MB."""
EACH_MAX = 32
"""Tensors of one borrower."""
TOTAL_MAX = 256
"""Tensors: a token is looked for among all of them."""
READERS_MAX = 3
"""Of one tensor: the next lender, and those that are asked where it is slow or dies. Beside them the borrower."""
SAFE_MAX, SAFE_MAX_BYTES = EACH_MAX // 2, EACH_MAX_BYTES // 2
"""Whoever has less than so much here loses nothing that was read before its time, however much others have: a borrower
that stays below knows that its lender has what it said to keep."""
KEEP_MAX_NS = 10_000_000_000
"""The next part is asked for within a way through the air; ten seconds outlive a connection that was lost."""


@dataclass(slots=True)
class _Reader:
    connection: bytes
    next_offset: int = 0


@dataclass(slots=True)
class _Kept:
    borrower: str
    key: bytes
    body: bytes
    until_ns: int
    readers: dict[bytes, _Reader] = field(default_factory=dict)
    """By whose token."""

    @property
    def was_read(self) -> bool:
        """Whether somebody has had all of it."""
        return any(one.next_offset >= len(self.body) for one in self.readers.values())


class Outbox:
    """See the module."""

    def __init__(self, chunk_bytes: int) -> None:
        """Keep nothing yet; `chunk_bytes`: read at once."""
        self._chunk_bytes = chunk_bytes
        self._kept: dict[bytes, _Kept] = {}
        """By key, the oldest first."""
        self.counters: Counter[str] = Counter()
        """outbox_kept, outbox_full: tensors; outbox_read: of them, by readers who had all; outbox_replayed: chunks that
        were asked for twice, over another connection, out of order or by one reader too many."""

    @property
    def held_bytes(self) -> int:
        """Of all that is kept."""
        return sum(len(one.body) for one in self._kept.values())

    def held_bytes_of(self, borrower: str) -> int:
        """Of what is kept for one borrower."""
        return sum(len(one.body) for one in self._of(borrower))

    def count_of(self, borrower: str) -> int:
        """Tensors that are kept for it."""
        return len(self._of(borrower))

    def keep(self, borrower: str, key: bytes, body: bytes, until_ns: int, now_ns: int) -> bool:
        """Keep a tensor for who shows a token made with a key; whether there was room.

        Args:
            borrower: Who asked for it.
            key: Made for this tensor alone, `KEY_BYTES`.
            body: The tensor as it travels.
            until_ns: The deadline of the request, monotonic.
            now_ns: Monotonic.
        """
        self.expire(now_ns)
        is_fit = len(key) == KEY_BYTES and key not in self._kept and 0 < len(body) <= EACH_MAX_BYTES
        is_fit = is_fit and now_ns < until_ns
        if not is_fit or not self._make_room(borrower, len(body)):
            self.counters["outbox_full"] += 1
            return False
        self._kept[key] = _Kept(borrower, key, body, min(until_ns, now_ns + KEEP_MAX_NS))
        self.counters["outbox_kept"] += 1
        return True

    def read(self, token: bytes, connection: bytes, offset: int, now_ns: int) -> bytes | None:
        """The next chunk for a reader; None: this token opens nothing, here, now, or at this place.

        Args:
            token: As it was shown.
            connection: Over which.
            offset: Of the chunk.
            now_ns: Monotonic.
        """
        self.expire(now_ns)
        who = token[:WHO_BYTES]
        kept = next((one for one in self._kept.values() if compare_digest(token_of(one.key, who), token)), None)
        if kept is None:
            return None
        reader = kept.readers.get(who)
        if reader is None and (who == BORROWER or len(kept.readers.keys() - {BORROWER}) < READERS_MAX):
            reader = kept.readers[who] = _Reader(connection)
        size_bytes = len(kept.body)
        if reader is None or reader.connection != connection or reader.next_offset != offset or offset >= size_bytes:
            self.counters["outbox_replayed"] += 1
            return None
        chunk = kept.body[offset : offset + self._chunk_bytes]
        reader.next_offset += len(chunk)
        self.counters["outbox_read"] += reader.next_offset >= size_bytes
        return chunk

    def read_whole(self, token: bytes, now_ns: int) -> bytes:
        """All of it, for a reader in this process; empty where `read` gives nothing."""
        body = bytearray()
        while chunk := self.read(token, b"", len(body), now_ns):
            body += chunk
        return bytes(body)

    def expire(self, now_ns: int) -> None:
        """Throw away what is over."""
        for key in [key for key, one in self._kept.items() if now_ns >= one.until_ns]:
            del self._kept[key]

    def clear(self) -> None:
        """Throw everything away."""
        self._kept.clear()

    # --- inside -------------------------------------------------------------------------------------------------

    def _of(self, borrower: str) -> list[_Kept]:
        return [one for one in self._kept.values() if one.borrower == borrower]

    def _make_room(self, borrower: str, size_bytes: int) -> bool:
        own = self._of(borrower)
        spare = [one for one in own if one.was_read]
        bytes_own, bytes_all = sum(len(one.body) for one in own), self.held_bytes
        count_own, count_all = len(own), len(self._kept)
        gone: list[_Kept] = []
        while (
            (is_own := bytes_own + size_bytes > EACH_MAX_BYTES or count_own >= EACH_MAX)
            or bytes_all + size_bytes > TOTAL_MAX_BYTES
            or count_all >= TOTAL_MAX
        ):
            is_safe = not is_own and bytes_own < SAFE_MAX_BYTES and count_own < SAFE_MAX
            if is_safe or not spare:
                return False  # What was read is left where it would not be enough.
            gone.append(spare.pop(0))
            freed = len(gone[-1].body)
            bytes_own, bytes_all, count_own, count_all = (
                bytes_own - freed,
                bytes_all - freed,
                count_own - 1,
                count_all - 1,
            )
        for one in gone:
            del self._kept[one.key]
        return True
