"""What a node gives of files over any ten seconds: a share of its own, less where its other words need more. Pure.

Chunks are the last in line. They have one account over all files and peers (`bytes_s` over any ten seconds), so no
number of askers, files or repeated requests makes a node give more; and they take from a second account, a quarter
larger, that everything the node sends is charged to: where a storm has emptied it, chunks wait. Half of their rate is
theirs whatever the others send, so that every file arrives: files that wait take turns, and none takes what is left
from the others, however often it is asked for.
"""

from collections.abc import Callable

_NS_PER_S = 1_000_000_000
WINDOW_S = 10
"""What is given is bounded over any so many seconds: a tenth of them is too short for one chunk, sixty hide a storm."""
_BURST_S = 3
"""So many seconds' worth at once, so that small files do not wait; the rest comes evenly, and no giver falls silent."""
_ALL_PERCENT = 125
"""Of the chunks' account is that of all that the node sends: in calm, its other words are less than a quarter of it."""
_LEAST_SHARE = 2
"""One part in so many of the rate is for chunks whatever else is sent."""
_TURN_NS = 1_000_000_000
"""A file that has not tried to give for so long waits no more: those that wait try four times a second."""


class UploadBudget:
    """May the next chunk be given now?

    Args:
        bytes_s: Bytes of chunks a second over any ten seconds, and one chunk at least; 0: as fast as the links carry.
        read_sent: All bytes that the node has sent, chunks included, ever rising.

    >>> budget = UploadBudget(1_000)
    >>> [budget.take(2_000, 0), budget.take(2_000, 0), budget.take(2_000, 3_000_000_000)]
    [True, False, True]
    """

    __slots__ = ("_all", "_at_ns", "_bytes_s", "_chunks", "_given_ns", "_read_sent", "_sent", "_waiting")

    def __init__(self, bytes_s: int, read_sent: Callable[[], int] | None = None) -> None:
        self._bytes_s = bytes_s
        self._read_sent = read_sent
        self._sent = read_sent() if read_sent else 0
        self._chunks = float(_BURST_S * bytes_s)
        self._all = self._chunks * _ALL_PERCENT / 100
        self._at_ns = 0
        self._given_ns: int | None = None
        """When the last chunk was given."""
        self._waiting: dict[bytes, int] = {}
        """Files that have a chunk to give, whose turn it is first, and when each last tried."""

    def watch(self, read_sent: Callable[[], int]) -> None:
        """Charge what the node sends from here on."""
        self._read_sent = read_sent
        self._sent = read_sent()

    def is_spent(self, size: int, now_ns: int) -> bool:
        """Whether a chunk of so many bytes has to wait."""
        if not self._bytes_s:
            return False
        self._refill(now_ns)
        needed = min(size, _BURST_S * self._bytes_s)
        if self._chunks < needed or self._all >= needed:
            return self._chunks < needed
        gap_ns = size * _LEAST_SHARE * _NS_PER_S // self._bytes_s
        return self._given_ns is not None and now_ns - self._given_ns < gap_ns

    def take(self, size: int, now_ns: int, file: bytes = b"") -> bool:
        """Spend what a chunk needs; False, and nothing spent, where it has to wait.

        Args:
            size: Bytes of the chunk.
            now_ns: Own monotonic clock.
            file: Of which file.
        """
        if not self._bytes_s:
            return True
        if self.is_spent(size, now_ns) or not self._is_turn_of(file, now_ns):
            self._waiting[file] = now_ns
            return False
        self._waiting.pop(file, None)
        self._chunks -= size
        self._given_ns = now_ns
        return True

    def _is_turn_of(self, file: bytes, now_ns: int) -> bool:
        """Whether no other file waits for longer."""
        for first, tried_ns in list(self._waiting.items()):
            if first == file or now_ns - tried_ns < _TURN_NS:
                return first == file
            del self._waiting[first]
        return True

    def _refill(self, now_ns: int) -> None:
        """Time has passed, and the node has sent."""
        rate = self._bytes_s * (WINDOW_S - _BURST_S) / WINDOW_S
        gained = max(0, now_ns - self._at_ns) * rate / _NS_PER_S
        self._at_ns = max(now_ns, self._at_ns)
        most = float(_BURST_S * self._bytes_s)
        self._chunks = min(most, self._chunks + gained)
        sent = self._read_sent() if self._read_sent else self._sent
        most, gained = most * _ALL_PERCENT / 100, gained * _ALL_PERCENT / 100
        self._all = max(-most, min(most, self._all + gained) - (sent - self._sent))
        self._sent = sent
