"""Answers kept for a while, by input, preprocessing and bundle: an equal question is asked once.

- A key names everything that an answer depends on: SHA-256 of the input, what else the program says it depends on (a
  digest of its preprocessing), the bundle's digest. So a new release never meets an old one's answer.
- An answer is good until its time, which the program that asked has set, and for no moment longer.
- Both the number of answers and their bytes are bounded. What is asked for once must not drive out what is asked for
  again and again: new keys stand in a short queue, and only those that were wanted there come into the long one.
- Whoever is found to have answered falsely loses all answers that it gave.

Source:
    Yang, Zhang, Qiu, Yue, Rashmi (2023), "FIFO queues are all you need for cache eviction" (S3-FIFO).
"""

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from swarmd_protocols.ids import NodeId

_HITS_MAX = 3
"""Counted of each answer, two bits as in the paper."""


@dataclass(frozen=True, slots=True)
class Key:
    """What an answer depends on."""

    input_sha256: bytes
    recipe: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer."""

    data: bytes
    lender: NodeId | None
    """Who gave it; None: this device."""
    until_ns: int


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Bounds."""

    entries_max: int = 4_096
    """Answers; with their keys less than a mebibyte beside their bytes."""
    bytes_max: int = 4 << 20
    """Of all answers together; one that is larger than an eighth of it is not kept."""
    keep_max_ns: int = 600_000_000_000
    """Nothing is kept for longer than ten minutes, whatever a program says."""
    short_share: float = 0.05
    """Of the answers, in the short queue: half of the paper's tenth, which the traces of the laws like better."""


@dataclass(slots=True)
class _Entry:
    kept: Kept
    hits: int = 0


class AnswerCache:
    """See the module."""

    def __init__(self, config: CacheConfig) -> None:
        """Nothing is kept."""
        self._config = config
        self._short: dict[Key, _Entry] = {}
        self._long: dict[Key, _Entry] = {}
        self._ghosts: dict[Key, None] = {}
        """Keys that have left the short queue and were not wanted, or that have ended and were; as many as answers."""
        self._ends: list[tuple[int, int, Key]] = []
        """A heap of when answers end; those of answers that have gone already are swept out when they are too many."""
        self._numbers = count()
        self.size_bytes = 0
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """Answers kept, whether or not their time has passed."""
        return len(self._short) + len(self._long)

    def get(self, key: Key, now_ns: int) -> Kept | None:
        """The answer to it, if it is kept and its time has not passed."""
        entry = self._entry(key)
        if entry is not None and entry.kept.until_ns <= now_ns:
            self._end(key)
            entry = None
        if entry is None:
            self.counts["missed"] += 1
            return None
        entry.hits = min(_HITS_MAX, entry.hits + 1)
        self.counts["hit"] += 1
        return entry.kept

    def put(self, key: Key, kept: Kept, now_ns: int) -> None:
        """Keep an answer; it replaces an older one to the same question."""
        config = self._config
        until_ns = min(kept.until_ns, now_ns + config.keep_max_ns)
        if until_ns <= now_ns or len(kept.data) > config.bytes_max // 8:
            return
        entry = _Entry(Kept(kept.data, kept.lender, until_ns))
        old = self._entry(key)
        entry.hits = old.hits if old is not None else 0
        is_known = key in self._long or key in self._ghosts
        self._drop(key)
        self._ghosts.pop(key, None)
        (self._long if is_known else self._short)[key] = entry
        self.size_bytes += len(kept.data)
        heappush(self._ends, (until_ns, next(self._numbers), key))
        self._expire(now_ns)
        while len(self) > config.entries_max or self.size_bytes > config.bytes_max:
            self._evict()

    def forget(self, lender: NodeId) -> None:
        """A lender was found wrong: what it has answered serves nobody."""
        found = [
            key
            for queue in (self._short, self._long)
            for key, entry in queue.items()
            if entry.kept.lender == lender
        ]  # fmt: skip
        for key in found:
            self._drop(key)
        self.counts["forgotten"] += len(found)

    def _expire(self, now_ns: int) -> None:
        """What has ended makes room before anything that is good; it comes back into the long queue if it was there."""
        while self._ends and self._ends[0][0] <= now_ns:
            until_ns, _, key = heappop(self._ends)
            entry = self._entry(key)
            if entry is not None and entry.kept.until_ns == until_ns:
                self._end(key)
        if len(self._ends) > 2 * self._config.entries_max:
            self._ends = [end for end in self._ends if (entry := self._entry(end[2])) and entry.kept.until_ns == end[0]]
            heapify(self._ends)

    def _end(self, key: Key) -> None:
        """An answer's time has passed; whether its question is popular is not forgotten with it."""
        entry = self._entry(key)
        is_popular = key in self._long or (entry is not None and entry.hits > 0)
        self._drop(key)
        if is_popular:
            self._remember(key)

    def _remember(self, key: Key) -> None:
        self._ghosts[key] = None
        while len(self._ghosts) > self._config.entries_max:
            del self._ghosts[next(iter(self._ghosts))]

    def _evict(self) -> None:
        """One step: an answer goes, or comes into the long queue, or gets another round there."""
        if self._short and (not self._long or len(self._short) > self._config.short_share * self._config.entries_max):
            key, entry = next(iter(self._short.items()))
            if entry.hits:
                del self._short[key]
                self._long[key] = _Entry(entry.kept)
                return
            self._drop(key)
            self._remember(key)
            return
        key, entry = next(iter(self._long.items()))
        if entry.hits:
            del self._long[key]
            self._long[key] = _Entry(entry.kept, entry.hits - 1)
            return
        self._drop(key)

    def _entry(self, key: Key) -> _Entry | None:
        return self._short.get(key) or self._long.get(key)

    def _drop(self, key: Key) -> None:
        entry = self._short.pop(key, None) or self._long.pop(key, None)
        if entry is not None:
            self.size_bytes -= len(entry.kept.data)
