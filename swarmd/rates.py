"""How often something may happen: a token bucket, and one for each of many that ask, bounded in number."""

from collections import OrderedDict
from collections.abc import Hashable


class TokenBucket:
    """Holds up to `burst` tokens, one more comes every 1/`per_s` seconds; time is the caller's, in nanoseconds.

    >>> bucket = TokenBucket(per_s=1.0, burst=2)
    >>> [bucket.take(0), bucket.take(0), bucket.take(0), bucket.take(1_000_000_000)]
    [True, True, False, True]
    """

    __slots__ = ("_burst", "_per_s", "_tokens", "_updated_ns")

    def __init__(self, per_s: float, burst: float) -> None:
        """Start full.

        Args:
            per_s: Tokens a second; >= 0.
            burst: Tokens at most.
        """
        self._per_s = per_s
        self._burst = self._tokens = float(burst)
        self._updated_ns: int | None = None

    def take(self, now_ns: int, tokens: float = 1.0) -> bool:
        """Take tokens where there are enough; a clock that stands or goes back gives none.

        Args:
            now_ns: Monotonic clock.
            tokens: How many; 0 asks whether a debt has been paid.
        """
        self._refill(now_ns)
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True

    def spend(self, now_ns: int, tokens: float) -> None:
        """Take tokens whether they are there or not: for what is known only when it is done."""
        self._refill(now_ns)
        self._tokens -= tokens

    def _refill(self, now_ns: int) -> None:
        if self._updated_ns is None:
            self._updated_ns = now_ns
        elapsed_ns = max(0, now_ns - self._updated_ns)
        self._updated_ns = max(self._updated_ns, now_ns)
        self._tokens = min(self._burst, self._tokens + elapsed_ns * self._per_s / 1e9)


class TokenBuckets:
    """A bucket for each of those who ask; the one that has not asked for longest is forgotten first."""

    def __init__(self, per_s: float, burst: float, count_max: int) -> None:
        """Start with none.

        Args:
            per_s: Tokens a second of each.
            burst: Tokens of each, at most.
            count_max: Buckets that are remembered. Whoever comes under ever new names meets full ones: what all
                together may do needs a bucket of its own.
        """
        self._per_s, self._burst, self._count_max = per_s, burst, count_max
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._buckets)

    def take(self, who: Hashable, now_ns: int) -> bool:
        """Take one token of `who`."""
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = self._buckets[who] = TokenBucket(self._per_s, self._burst)
            if len(self._buckets) > self._count_max:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(who)
        return bucket.take(now_ns)
