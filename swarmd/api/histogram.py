"""Latency histograms that cost a fraction of a microsecond to feed and nothing to keep.

Buckets are powers of two split in `STEPS` parts from 1 µs to about 137 s, so a quantile is right to within 9 %.
"""

STEPS = 8
"""Buckets for each doubling: neighbouring bounds differ by 9 %, and so far a quantile may be off."""
BUCKETS = 27 * STEPS
"""27 doublings: from the first bound up by a factor of 134 million."""


class Histogram:
    """Counts of durations by size; durations are integer nanoseconds."""

    __slots__ = ("count", "counts", "max_ns", "sum_ns")

    def __init__(self) -> None:
        """Start empty."""
        self.counts = [0] * (BUCKETS + 1)
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration; negative ones (clock of another host) count as zero."""
        duration_ns = max(0, duration_ns)
        self.counts[_bucket(duration_ns)] += 1
        self.count += 1
        self.sum_ns += duration_ns
        self.max_ns = max(self.max_ns, duration_ns)

    def quantile_ns(self, share: float) -> int | None:
        """The duration that this share of all stays below, nanoseconds; None while empty.

        Args:
            share: 0..1.
        """
        if self.count == 0:
            return None
        rank = share * self.count
        seen = 0
        for index, number in enumerate(self.counts):
            seen += number
            if number and seen >= rank and index < BUCKETS:
                return min(_upper_ns(index), self.max_ns)
        return self.max_ns

    def summary_ms(self) -> dict[str, float | None]:
        """p50 and p99, milliseconds to three decimals; None while empty."""
        return {name: _ms(self.quantile_ns(share)) for name, share in (("p50", 0.5), ("p99", 0.99))}

    def merge(self, counts: dict[int, int], sum_ns: int, max_ns: int) -> None:
        """Add another histogram's `sparse()`."""
        for index, number in counts.items():
            self.counts[min(max(0, index), BUCKETS)] += number
            self.count += number
        self.sum_ns += sum_ns
        self.max_ns = max(self.max_ns, max_ns)

    def sparse(self) -> dict[int, int]:
        """Non-empty buckets, index to count."""
        return {index: number for index, number in enumerate(self.counts) if number}

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound in seconds, count up to it), one bound per power of two, for Prometheus."""
        rows = []
        total = 0
        for index, number in enumerate(self.counts[:BUCKETS]):
            total += number
            if index % STEPS == STEPS - 1:
                rows.append((_upper_ns(index) / 1e9, total))
        return rows


def _bucket(duration_ns: int) -> int:
    units = duration_ns >> 10
    if units == 0:
        return 0
    power = units.bit_length() - 1
    part = (duration_ns * STEPS >> (power + 10)) - STEPS
    return min(power * STEPS + part + 1, BUCKETS)


def _upper_ns(index: int) -> int:
    if index == 0:
        return 1024
    power, part = divmod(index - 1, STEPS)
    return ((part + 1 + STEPS) << (power + 10)) // STEPS


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else round(value_ns / 1e6, 3)
