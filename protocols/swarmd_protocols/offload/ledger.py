"""What an owner wants to read afterwards: who lent what to whom, whom a lender refused, whom a borrower asks no more.

Lines are coalesced: what happened with one member and one bundle since the driver last took them is one line with a
count, so that a busy or hostile peer fills no log. `proof` covers the answers in their order, so that two devices can
show each other that they speak of the same ones. Each member has `LINES_EACH` lines of its own, whatever others do.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from swarmd_protocols.ids import NodeId

LINES_EACH = 16
"""Of one member until the driver takes them: granted, lent, refused and late of four bundles; what is beyond is counted
together, in one line more."""
_JUDGEMENTS = ("found_wrong", "ejected", "withheld", "malformed")
"""What no member hides behind other lines of its own: beyond its share each kind has a line, of whatever bundle."""
LINES_MAX = 64 * (LINES_EACH + 1 + len(_JUDGEMENTS))
"""Of all: of as many members as a lender gives tickets to; more are counted together, of nobody."""
MORE = "more"
"""What happened that is not told apart."""
NOBODY = NodeId(bytes(16))
"""Whose line it is where there are too many."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """What happened, so many times."""

    what: str
    member: NodeId
    """The other side; `NOBODY`: several."""
    digest: bytes
    """Of the bundle; empty where it is about the member."""
    count: int
    size_bytes: int
    """Of all inputs."""
    proof: bytes
    """SHA-256 over the SHA-256 of each answer, in their order; empty: there was none."""
    price_micro: int = 0
    """Of all answers, by the lender's offers."""
    took_ns: int = 0
    """Of all answers: at their lender from the request to the answer, at their borrower the way included."""


@dataclass(slots=True)
class _Sum:
    count: int = 0
    size_bytes: int = 0
    price_micro: int = 0
    took_ns: int = 0
    answers: bytearray = field(default_factory=bytearray)
    """SHA-256 of the proof so far."""


class Ledger:
    """Lines that the driver has not taken."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self._sums: dict[tuple[str, NodeId, bytes], _Sum] = {}
        self._lines: Counter[NodeId] = Counter()

    def __len__(self) -> int:
        """Lines."""
        return len(self._sums)

    def note(
        self,
        what: str,
        member: NodeId,
        digest: bytes = b"",
        size_bytes: int = 0,
        answer: bytes | None = None,
        price_micro: int = 0,
        took_ns: int = 0,
    ) -> None:
        """Something has happened.

        Args:
            what: In a word, of few.
            member: The other side.
            digest: Of the bundle.
            size_bytes: Of the input.
            answer: What was answered.
            price_micro: What it costs.
            took_ns: How long that took.
        """
        where = what, member, digest
        if where not in self._sums and self._lines[member] >= LINES_EACH:
            where = (what if what in _JUDGEMENTS else MORE), member, b""
        if where not in self._sums and len(self._sums) >= LINES_MAX - 1:
            where = MORE, NOBODY, b""
        if where not in self._sums:
            self._lines[where[1]] += 1
        one = self._sums.setdefault(where, _Sum())
        one.count += 1
        one.size_bytes += size_bytes
        one.price_micro += price_micro
        one.took_ns += took_ns
        if answer is not None:
            one.answers[:] = sha256(bytes(one.answers) + sha256(answer).digest()).digest()

    def take(self, but: Collection[NodeId] = ()) -> list[Line]:
        """Lines, in the order in which they began; they are forgotten here.

        Args:
            but: Members whose lines stay and go on counting.
        """
        sums = {where: one for where, one in self._sums.items() if where[1] not in but}
        for where in sums:
            del self._sums[where]
        self._lines = Counter(member for _, member, _ in self._sums)
        return [
            Line(*where, one.count, one.size_bytes, bytes(one.answers), one.price_micro, one.took_ns)
            for where, one in sums.items()
        ]
