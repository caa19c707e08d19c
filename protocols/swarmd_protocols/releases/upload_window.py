"""How many chunks an uploader has on their way at once."""

from dataclasses import dataclass

_JUDGED = 8
"""Receipts over which a window's worth is judged."""
_UNEVEN = 4
"""Times that the slowest of them takes the fastest's, from which on packets seem to be lost."""


@dataclass(slots=True)
class UploadWindow:
    """How many chunks are on their way at once: enough to fill the uplink, and no more, which would only queue.

    An uplink that is full gives no more receipts for a larger window; one that waits for lost packets does, and there
    some chunks take many times as long as others. Only then is a larger one tried.
    """

    least: int
    most: int
    size: int
    _rising: bool = False
    _patience: int = 2
    """Judgements to wait before the next try; doubles with every try that brought nothing."""
    _wait: int = 2
    _count: int = 0
    _since_ns: int = 0
    _fastest_ns: int = 0
    _slowest_ns: int = 0
    _best: float = 0.0
    """Receipts a second with the window before."""

    def on_receipt(self, now_ns: int, took_ns: int, is_full: bool) -> None:
        """A chunk has arrived after `took_ns`; `is_full`: more were wanted than the window took."""
        if not is_full or not self._since_ns:
            self._count, self._since_ns = 0, now_ns
            self._fastest_ns = self._slowest_ns = max(1, took_ns)
            return
        self._count += 1
        self._fastest_ns, self._slowest_ns = min(self._fastest_ns, took_ns), max(self._slowest_ns, took_ns)
        if self._count < _JUDGED or now_ns <= self._since_ns:
            return
        rate = self._count * 1e9 / (now_ns - self._since_ns)
        is_uneven = self._slowest_ns > _UNEVEN * self._fastest_ns
        self._count, self._since_ns = 0, now_ns
        self._fastest_ns = self._slowest_ns = max(1, took_ns)
        if self._rising and rate < 1.1 * self._best:
            self.size, self._rising = max(self.least, self.size - 1), False
            self._patience = min(64, 2 * self._patience)
            self._wait = self._patience
        elif self._wait:
            self._wait -= 1
        else:
            self._rising = is_uneven and self.size < self.most
            self.size += self._rising
        self._best = rate
