"""A gateway's answers to questions of this moment: what its swarm shows now, whatever the region has of it.

Rules this file keeps:

- Only who holds the region's key is answered: the question is sealed for this gateway with it, and the answer for it.
- A question is answered once: its life is the asker's clock, milliseconds since 1970, and only rises. One that is dated
  ahead by more than `gate.AHEAD_MS` is refused, so that a clock set wrong silences questions for an hour at most.
- What answers cost is bounded: `ANSWERS_BYTES_S` and a burst, and `LOOK_BYTES` for looking.
- The rows are such as go up, proofs included, so the asker judges them by the swarm's own root. They are numbered
  through; the site's word is the last where these are all objects that were asked for, and is left out where they are
  not.
"""

import os
import time
from collections.abc import Callable, Sequence

from swarmd.federation.outbox import Outbox, Waiting
from swarmd.federation.publisher import Publisher
from swarmd.federation.uplink import Place
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.allowance import Allowance, Numbers
from swarmd_protocols.federation.gate import AHEAD_MS
from swarmd_protocols.federation.wire import (
    ASK_MAX_BYTES,
    FRAME_FILL_BYTES,
    PROOFS_MAX,
    ROWS_MAX,
    SALT_BYTES,
    Have,
    Pair,
    RowKind,
    Up,
    UpRow,
    Way,
    encode_row,
    read_ask,
    read_head,
)

ANSWERS_BYTES_S, ANSWERS_BURST_BYTES = 131_072, 4 << 20
"""What answers may take of the line: 1 Mbit/s, and five of the largest at once."""
LOOK_BYTES = 16_384
"""What a question costs beside its answer: looking through thousands of objects takes tens of milliseconds."""


class Answering:
    """One gateway's.

    Args:
        place: Where its own frames go.
        pair: The seal to the region.
        publisher: Knows what the swarm shows.
        outbox: What waits.
        clock_ms: Milliseconds since 1970.
    """

    def __init__(
        self,
        place: Place,
        pair: Pair,
        publisher: Publisher,
        outbox: Outbox,
        clock_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._place, self._pair = place, pair
        self._publisher, self._outbox = publisher, outbox
        self._clock_ms = clock_ms
        self._asked = Numbers()
        self._allowance = Allowance(ANSWERS_BYTES_S, ANSWERS_BURST_BYTES)
        self.counts = {"questions": 0, "unanswered": 0}

    async def answer(self, frame: bytes, now_ns: int) -> list[bytes]:
        """The frames of an answer; none where there is none.

        Args:
            frame: Bytes from anybody.
            now_ns: Monotonic clock.
        """
        try:
            if len(frame) > ASK_MAX_BYTES:
                raise WireError("a question is shorter")
            head = read_head(frame)
            is_ours = head.way is Way.ASK and head.swarm == self._place.swarm
            is_news = head.life <= self._clock_ms() + AHEAD_MS and not self._asked.is_copy(head.life, head.number)
            if not is_ours or not is_news or self._allowance.pause_ms(now_ns):
                self.counts["unanswered"] += 1
                return []
            ask = read_ask(self._pair.open(frame))
        except (IdentityError, WireError):
            self.counts["unanswered"] += 1
            return []
        self._asked.add(head.life, head.number)
        self._allowance.spend(LOOK_BYTES)
        rows, is_whole = await self._publisher.shown_now(ask)
        if is_whole:
            rows.append(Waiting(RowKind.SITE, b"site", encode_row(self._publisher.site())))
        frames, first = [], 0
        for part in _parts(rows):
            frames.append(self._seal(head.life, head.number, first, part))
            first += len(part)
        self._allowance.spend(sum(map(len, frames)))
        self.counts["questions"] += 1
        return frames

    def _seal(self, life: int, number: int, first: int, rows: Sequence[Waiting]) -> bytes:
        batches: dict[bytes, int] = {}
        said = tuple(
            UpRow(first + at, row.kind, row.body, tuple(batches.setdefault(raw, len(batches)) for raw in row.proofs))
            for at, row in enumerate(rows)
        )
        outbox = self._outbox
        up = Up(
            outbox.epoch, self._clock_ms(), 0, outbox.dropped_rows, Have(*outbox.have), said, tuple(batches)
        )  # fmt: skip
        return self._pair.seal(Way.TELL, self._place.swarm, life, number, os.urandom(SALT_BYTES), up)


def _parts(rows: Sequence[Waiting]) -> list[list[Waiting]]:
    """Rows cut into frames."""
    parts: list[list[Waiting]] = []
    size = proofs = 0
    for row in rows:
        row_bytes = len(row.body) + sum(map(len, row.proofs))
        is_full = size + row_bytes > FRAME_FILL_BYTES or proofs + len(row.proofs) > PROOFS_MAX
        if not parts or is_full or len(parts[-1]) == ROWS_MAX:
            parts.append([])
            size = proofs = 0
        parts[-1].append(row)
        size, proofs = size + row_bytes, proofs + len(row.proofs)
    return parts
