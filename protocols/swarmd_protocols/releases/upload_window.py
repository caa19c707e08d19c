"""How many chunks an uploader has on their way at once."""

from collections.abc import Iterable

import msgspec

_LATE_PERCENT = 150
"""Of the usual, from which on a chunk is late."""
_STEP = 16
"""The usual moves by that part of itself with each receipt: it follows a link that slows to half in 12 chunks."""
_LATE_LEAST_NS = 100_000_000
"""Below it nothing is late, nanoseconds: receipts are gathered for 20 ms and links of a fleet answer within 80."""
_FIRST_LATE_NS = 400_000_000
"""What is late before the first receipt, nanoseconds: TCP says a lost packet again after 0.2 s, and then 0.4 later."""


class UploadWindow(msgspec.Struct):
    """Enough chunks to fill the uplink, and no more, which would only queue before it.

    A chunk that takes far longer than usual waits for a lost packet, or for a connection that is being made: the
    uplink stands idle meanwhile. So the late ones do not count, up to a bound.
    """

    least: int
    """Chunks on their way that are not late."""
    most: int
    """With the late ones."""
    usual_ns: int = 0
    """The median from sending to receipt, followed in steps: what is late, however much, moves it no further."""

    @property
    def late_ns(self) -> int:
        """From when on a chunk is late."""
        return max(_LATE_LEAST_NS, self.usual_ns * _LATE_PERCENT // 100) if self.usual_ns else _FIRST_LATE_NS

    def on_receipt(self, took_ns: int) -> None:
        """A chunk has arrived."""
        if not self.usual_ns:
            self.usual_ns = max(_STEP, took_ns)
        step_ns = self.usual_ns // _STEP
        self.usual_ns = max(_STEP, self.usual_ns + (step_ns if took_ns > self.usual_ns else -step_ns))

    def room(self, since_ns: Iterable[int], now_ns: int) -> int:
        """How many more may be sent, given when those on their way were; negative where there are too many."""
        late_ns, sent = now_ns - self.late_ns, list(since_ns)
        return min(self.least - sum(one > late_ns for one in sent), self.most - len(sent))
