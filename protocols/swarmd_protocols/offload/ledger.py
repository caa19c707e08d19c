"""What an owner wants to read afterwards: who lent what to whom, whom a lender refused, whom a borrower asks no more.

Lines are coalesced: what happened with one member and one bundle since the driver last took them is one line with a
count, so that a busy or hostile peer fills no log. `proof` covers the answers in their order, so that two devices can
show each other that they speak of the same ones.
"""

from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from swarmd_protocols.ids import NodeId

LINES_MAX = 256
"""Kept until the driver takes them: four kinds for each of 64 lenders; more are counted together, of nobody."""
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


@dataclass(slots=True)
class _Sum:
    count: int = 0
    size_bytes: int = 0
    answers: bytearray = field(default_factory=bytearray)
    """SHA-256 of the proof so far."""


class Ledger:
    """Lines that the driver has not taken."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self._sums: dict[tuple[str, NodeId, bytes], _Sum] = {}

    def __len__(self) -> int:
        """Lines."""
        return len(self._sums)

    def note(
        self, what: str, member: NodeId, digest: bytes = b"", size_bytes: int = 0, answer: bytes | None = None
    ) -> None:
        """Something has happened.

        Args:
            what: In a word, of few.
            member: The other side.
            digest: Of the bundle.
            size_bytes: Of the input.
            answer: What was answered.
        """
        where = what, member, digest
        if where not in self._sums and len(self._sums) >= LINES_MAX - 1:
            where = "more", NOBODY, b""
        one = self._sums.setdefault(where, _Sum())
        one.count += 1
        one.size_bytes += size_bytes
        if answer is not None:
            one.answers[:] = sha256(bytes(one.answers) + sha256(answer).digest()).digest()

    def take(self) -> list[Line]:
        """All lines, in the order in which they began; they are forgotten here."""
        sums, self._sums = self._sums, {}
        return [Line(*where, one.count, one.size_bytes, bytes(one.answers)) for where, one in sums.items()]
