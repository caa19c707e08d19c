"""What lenders keep for this device, and whether each owes it still."""

from dataclasses import dataclass

from swarmd.worker.lent import Kept, Source
from swarmd.worker.outbox import EACH_MAX, KEEP_MAX_NS, SAFE_MAX, SAFE_MAX_BYTES

_OWED_NS = 100_000_000
"""Of the time for which a lender owes what it keeps, left out at its end: what was rounded away of the time left."""


@dataclass(frozen=True, slots=True)
class Far:
    """What a lender has computed and keeps for the next one."""

    kept: Kept
    source: Source
    key: bytes
    """What tokens for it are made with."""
    host: str
    """Where its lender is; "": nobody knows."""
    lender: str
    """Its name."""
    number: int
    """Of the request that it answered, for `Elsewhere.judge`."""
    asked_ns: int = 0
    """When its lender was asked, monotonic."""
    until_ns: int = 0
    """Until when that lender owes it, monotonic."""


@dataclass(slots=True)
class _Standing:
    until_ns: int
    size_bytes: int


class Keeps:
    """What this device has lenders keep: whether one may have had to make room for this device's newer tensors.

    That of all lenders is counted together: while it is less than what is safe with one, each owes all that it keeps.
    """

    def __init__(self) -> None:
        """Nothing."""
        self._standing: list[_Standing] = []
        self._full_ns = -1

    def begin(self, size_bytes: int, until_ns: int, now_ns: int) -> _Standing:
        """A lender is asked to keep so much at most; `until_ns`: the deadline of the request."""
        one = _Standing(until_ns, size_bytes)
        alive = sorted((*(old for old in self._standing if old.until_ns > now_ns), one), key=lambda old: old.until_ns)
        # What ends before so many others says nothing that they do not.
        self._standing = alive[-EACH_MAX:]
        if len(alive) >= SAFE_MAX or sum(old.size_bytes for old in alive) >= SAFE_MAX_BYTES:
            self._full_ns = now_ns
        return one

    def end(self, one: _Standing, now_ns: int) -> None:
        """It has answered: what it keeps, it has by now."""
        one.until_ns = min(one.until_ns, now_ns + KEEP_MAX_NS)

    def is_owed(self, far: Far, now_ns: int) -> bool:
        """Whether a lender that was reached must have what it said to keep."""
        return self._full_ns < far.asked_ns and now_ns < far.until_ns - _OWED_NS
