"""From the outbox into frames, by the path that answers, until the region has each row."""

import os
import time
from collections.abc import Callable, Sequence

from swarmd.federation.lives import LIFE_MAX
from swarmd.federation.outbox import Done, Held, Outbox
from swarmd.federation.uplink import Place, Uplink
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.federation.allowance import TELL_NS, Numbers
from swarmd_protocols.federation.flow import Flow, Plan
from swarmd_protocols.federation.wire import (
    FRAME_FILL_BYTES,
    LIFE_HEARD,
    PROOFS_MAX,
    ROWS_MAX,
    SALT_BYTES,
    Down,
    Have,
    Head,
    Pair,
    RowKind,
    Up,
    UpRow,
    Way,
    read_down,
    read_head,
)

LOOK_ROWS = 1_024
"""Waiting rows looked at in one go: more than the window of the flow holds."""


class Sending:
    """One gateway's.

    Args:
        outbox: What waits.
        pair: The seal to the region.
        place: Where this gateway's frames go.
        paths: How many there are.
        on_down: Told what the region answered, and which rows it has taken.
    """

    def __init__(
        self, outbox: Outbox, pair: Pair, place: Place, paths: int, on_down: Callable[[Down, Sequence[Done]], None]
    ) -> None:
        self._outbox = outbox
        self._pair = pair
        self._place = place
        self._on_down = on_down
        self.uplinks: list[Uplink] = []
        self.flow = Flow(paths, place.gateway[-1] / 256)
        self._heard = Numbers()
        self._number = 0
        self._is_past = False
        """The region speaks in a life below one that was heard, and is to be told."""
        self.counts = {"frames": 0, "bytes": 0, "answers": 0, "unopened": 0, "acknowledged": 0}

    def pump(self, now_ns: int) -> None:
        """Send what can leave now."""
        connected = [uplink.connected for uplink in self.uplinks]
        for plan in self.flow.plan(self._outbox.waiting(LOOK_ROWS), connected, now_ns):
            for rows in self._frames(plan):
                if not self._send(rows, plan.path, now_ns):
                    break

    def _frames(self, plan: Plan) -> Sequence[list[Held]]:
        """The rows of a plan, cut into frames."""
        oldest = self._outbox.oldest()
        frames: list[list[Held]] = []
        size = proofs = 0
        for row in self._outbox.read(plan.rows):
            # The site's word says that everything before it is above: it waits until it is.
            if row.kind == RowKind.SITE and row.seq != oldest:
                continue
            row_bytes = _bytes_of(row)
            is_full = size + row_bytes > FRAME_FILL_BYTES or proofs + len(row.proofs) > PROOFS_MAX
            if not frames or is_full or len(frames[-1]) == ROWS_MAX:
                frames.append([])
                size = proofs = 0
            frames[-1].append(row)
            size, proofs = size + row_bytes, proofs + len(row.proofs)
        return frames if frames or plan.rows else [[]]

    def _send(self, rows: Sequence[Held], path: int, now_ns: int) -> bool:
        batches: dict[bytes, int] = {}
        said = [
            UpRow(row.seq, row.kind, row.body, tuple(batches.setdefault(raw, len(batches)) for raw in row.proofs))
            for row in rows
        ]
        outbox = self._outbox
        up = Up(
            outbox.epoch,
            round(time.time() * 1000),
            outbox.oldest(),
            outbox.dropped_rows,
            Have(LIFE_HEARD, self._heard.life) if self._is_past else Have(*outbox.have),
            tuple(said),
            tuple(batches),
        )
        frame = self._pair.seal(Way.UP, self._place.swarm, outbox.life, self._number, os.urandom(SALT_BYTES), up)
        self._number += 1
        if not self.uplinks[path].send(self._place, frame):
            return False
        self._is_past = False
        self.flow.sent([(row.seq, _bytes_of(row)) for row in rows], path, now_ns)
        self.counts["frames"] += 1
        self.counts["bytes"] += len(frame)
        return True

    def on_frame(self, path: int, frame: bytes, now_ns: int) -> bool:
        """A frame came down by a path, bytes from anybody; whether it is the region's and new."""
        try:
            head = read_head(frame)
            if head.way is not Way.DOWN or head.swarm != self._place.swarm:
                return False
            if self._heard.is_copy(head.life, head.number):
                self._hear_past(head, frame, now_ns)
                return False
            down = read_down(self._pair.open(frame))
        except (IdentityError, WireError):
            self.counts["unopened"] += 1
            return False
        self._heard.add(head.life, head.number)
        self.counts["answers"] += 1
        outbox = self._outbox
        is_ours = down.epoch == outbox.epoch
        # The disk first: rows that it still has are not answered, or they would leave again with every round trip.
        done = outbox.acknowledge(down.acked) if is_ours else []
        self.flow.answered(down.acked if is_ours else (), path, down.pause_ms, now_ns)
        self.counts["acknowledged"] += len(done)
        if outbox.life < down.life <= LIFE_MAX:
            outbox.begin_life(down.life)
        self._on_down(down, done)
        return True

    def _hear_past(self, head: Head, frame: bytes, now_ns: int) -> None:
        """A frame that was there, or of a life that is over: the region's clock was set back, or its file is another.

        Or somebody plays it back: a region that is told a life which is not above its own does nothing.
        """
        if head.life < self._heard.life and now_ns - self._heard.told_ns >= TELL_NS:
            self._pair.open(frame)
            self._heard.told_ns, self._is_past = now_ns, True


def _bytes_of(row: Held) -> int:
    return len(row.body) + sum(map(len, row.proofs))
