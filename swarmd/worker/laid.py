"""What a borrower's worker has laid out for lenders (`lane.py`): a body to fetch, and room for their answers."""

from collections import Counter
from dataclasses import dataclass, field

READS_MAX = 8
"""Times that one lender may fetch one body: as often as a request goes out. Each byte is the borrower's air, and a
lender's question for a chunk is a ten-thousandth of it."""


@dataclass(slots=True)
class Answer:
    """An answer that is being left, or has been."""

    where: tuple[bytes, bytes]
    """The connection it comes over, and its SHA-256."""
    size_bytes: int
    data: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Laid:
    """A body, while its request lasts."""

    body: memoryview
    key: bytes
    answers: dict[bytes, Answer] = field(default_factory=dict)
    """One of each lender, and of this device."""
    read_bytes: Counter[bytes] = field(default_factory=Counter)
    """Of the body, by the lender that has fetched them."""

    def read(self, who: bytes, offset: int, most_bytes: int) -> bytes | None:
        """A chunk for a lender; None where it has had the body too often."""
        chunk = self.body[offset : offset + most_bytes]
        if self.read_bytes[who] + len(chunk) > READS_MAX * len(self.body):
            return None
        self.read_bytes[who] += len(chunk)
        return chunk.tobytes()
