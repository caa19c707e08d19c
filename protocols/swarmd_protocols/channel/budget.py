"""The byte budget of datagrams: what news may still spend, and how much probes cost lately."""

_S = 1_000_000_000
_NEWS_SHARE = 3
"""News may spend one part in so many of the budget as it comes; the rest is for probes and their answers."""
_BURST_PER_MEMBER = 2_048
"""Bytes that news may borrow for each member known: a join costs a record and its repairs at each."""
_RATE_WINDOW_S = 8
"""Probes and answers are averaged over so many seconds, so that one crash does not slow the next."""


class ByteBudget:
    """Counts what one node sends against its budget."""

    __slots__ = ("_burst_bytes", "_bytes_s", "_debt", "_debt_ns", "_header_bytes", "_rate", "_rate_ns")

    def __init__(self, bytes_s: int, burst_bytes: int, header_bytes: int) -> None:
        """Begin with nothing spent.

        Args:
            bytes_s: Datagram bytes a second in steady state, headers included.
            burst_bytes: What news may borrow ahead.
            header_bytes: Headers of each datagram.
        """
        self._bytes_s = bytes_s
        self._burst_bytes = burst_bytes
        self._header_bytes = header_bytes
        self._debt = 0.0
        self._debt_ns = 0
        self._rate = 0.0
        self._rate_ns = 0

    def burst(self, members: int) -> float:
        """What news may borrow with so many members known, bytes."""
        return float(self._burst_bytes + _BURST_PER_MEMBER * members)

    def left(self, members: int, now_ns: int) -> float:
        """What news may still spend, bytes; negative where more was borrowed than there is."""
        if self._debt:
            gained = (now_ns - self._debt_ns) * self._bytes_s / (_NEWS_SHARE * _S)
            self._debt = max(0.0, self._debt - gained)
        self._debt_ns = now_ns
        return self.burst(members) - self._debt

    def ride(self, rider_bytes: int) -> None:
        """News rode in a datagram that was sent anyway."""
        self._debt += rider_bytes

    def spend(self, frame_bytes: int, members: int) -> None:
        """A datagram was sent for news."""
        self._debt = min(2 * self.burst(members), self._debt + frame_bytes + self._header_bytes)

    def probe(self, frame_bytes: int, now_ns: int) -> None:
        """A probe or an answer was sent."""
        self._decay(now_ns)
        self._rate += (frame_bytes + self._header_bytes) / _RATE_WINDOW_S

    def pressure(self, now_ns: int) -> float:
        """What probes and their answers cost lately, as a share of the budget."""
        self._decay(now_ns)
        return self._rate / self._bytes_s

    def _decay(self, now_ns: int) -> None:
        elapsed = now_ns - self._rate_ns
        if elapsed > 0:
            self._rate *= max(0.0, 1 - elapsed / (_RATE_WINDOW_S * _S))
            self._rate_ns = now_ns
