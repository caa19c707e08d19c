"""A token bucket over the caller's clock."""


class TokenBucket:
    """So many tokens a second, and a reserve for when much happens at once."""

    __slots__ = ("_at_ns", "_burst", "_rate_per_ns", "_tokens")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        """Begin full.

        Args:
            rate_per_s: Tokens gained per second; > 0.
            burst: Tokens held at most; >= 1.
        """
        self._rate_per_ns = rate_per_s / 1e9
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at_ns = 0

    def take(self, now_ns: int, count: float = 1) -> bool:
        """Take a token where there is one, or so many at once.

        >>> bucket = TokenBucket(10, 2)
        >>> [bucket.take(0), bucket.take(0), bucket.take(0), bucket.take(100_000_000)]
        [True, True, False, True]
        """
        tokens = min(self._burst, self._tokens + (now_ns - self._at_ns) * self._rate_per_ns)
        self._at_ns = now_ns
        if tokens < count:
            self._tokens = tokens
            return False
        self._tokens = tokens - count
        return True
