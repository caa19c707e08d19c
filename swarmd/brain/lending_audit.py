"""Who lent what to whom, in `STATE/lending/audit.jsonl`: a chain of hashes (`swarmd audit verify STATE/lending`).

What happened with one member and one bundle within a minute is one line, of one member 16 and three that sum up
or judge. The files have 8 MiB together; the oldest goes when the newest is full. In each file a member has a share of
an eighth: once it is used up, what happens with that member is one line an hour, until the next file begins. So one
member, whatever it does, pushes out nothing of others for weeks, and its own lines are the coarser for it.

    {"n": 7, "what": "lent", "member": "9f0c…", "name": "drone-4", "bundle": "eac4…", "count": 31, "bytes": 2539520,
     "proof": "…", "t_s": …, "prev": "…", "hash": "…"}

`what`: granted, denied_WHY, lent, urgent, over_share, refused_WHY and over_rate of a lender; borrowed, found_wrong,
withheld and ejected of a borrower; more: what was too much to tell apart. `proof` is equal at lender and borrower where
both speak of the same answers (`swarmd_protocols.offload.ledger`).
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from swarmd.logs import Logger
from swarmd.release.audit import FILE_NAME, KEPT_FILES, AuditLog, lines_of
from swarmd.release.errors import ReleaseError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.ledger import NOBODY, Line

PERIOD_S = 60.0
"""Seconds between two writes: a sync a minute is what a memory card does not notice."""
FILE_BYTES = (8 << 20) // (1 + KEPT_FILES)
"""As many files as any audit has: by that `verify` knows whether the oldest had to go."""
SHARE_BYTES = FILE_BYTES // 8
"""Of one member in one file: some 300 lines, five hours of a busy neighbour. Seven of eight parts of every file are
others'."""
OVER_PERIOD_S = 3_600.0
"""Seconds between two writes of what happens with a member whose share is used up: at most 19 lines, 8 kB, so that
one member fills a file in four days and all in five weeks."""

_AROUND_BYTES = 280
"""Bytes of a line around what its fields hold: their names, its number, two hashes."""


class LendingAudit:
    """One writer; a thread of its own waits for the disk."""

    def __init__(
        self,
        folder: Path,
        name_of: Callable[[NodeId], str],
        log: Logger,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open nothing before there is something to write."""
        self._folder = folder
        self._name_of = name_of
        self._log = log
        self._clock_s = clock_s
        self._written_s = clock_s()
        self._file: AuditLog | None = None
        self._thread = ThreadPoolExecutor(1, "lending-audit")
        self._bytes: Counter[str] = Counter()
        """Of the newest file, by the member whose lines they are; nobody looks while the thread works."""
        self._over_s: dict[str, float] = {}
        """When something was last written of a member whose share is used up."""
        self._last: Future[None] = self._thread.submit(self._weigh)

    @property
    def is_due(self) -> bool:
        """Whether lines may be written again."""
        return self._last.done() and self._clock_s() - self._written_s >= PERIOD_S

    def resting(self) -> set[NodeId]:
        """Members of which nothing is written just now, since their share is used up: for `Ledger.take`."""
        now_s, counts = self._clock_s(), dict(self._bytes)
        over = {member for member, size_bytes in counts.items() if size_bytes >= SHARE_BYTES}
        self._over_s = {member: self._over_s.get(member, now_s) for member in over}
        due = {member for member in over if now_s - self._over_s[member] >= OVER_PERIOD_S}
        self._over_s |= dict.fromkeys(due, now_s)
        return {NodeId(bytes.fromhex(member)) for member in over - due}

    def write(self, lines: Sequence[Line]) -> None:
        """Append them, some time soon."""
        self._written_s = self._clock_s()
        if lines:
            self._last = self._thread.submit(self._append, [self._row(line) for line in lines])

    def close(self, lines: Sequence[Line] = ()) -> None:
        """Append the last ones; back when all are written."""
        self.write(lines)
        self._thread.shutdown()

    def _row(self, line: Line) -> dict[str, str | int | bool]:
        row: dict[str, str | int | bool] = {"what": line.what, "t_s": int(time.time()), "count": line.count}
        if line.member != NOBODY:
            row |= {"member": line.member.hex(), "name": self._name_of(line.member)}
        if line.digest:
            row["bundle"] = line.digest.hex()
        if line.size_bytes:
            row["bytes"] = line.size_bytes
        if line.price_micro:
            row["price_micro"] = line.price_micro
        if line.took_ns:
            row["took_ms"] = round(line.took_ns / 1e6)
        if line.proof:
            row["proof"] = line.proof.hex()
        return row

    def _weigh(self) -> None:
        """A member does not get a new share with each restart."""
        try:
            lines = lines_of(self._folder / FILE_NAME)
        except OSError:
            return
        for line in lines:
            try:
                self._bytes[str(bytes.fromhex(json.loads(line)["member"]).hex())] += len(line.encode()) + 1
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def _append(self, rows: Sequence[dict[str, str | int | bool]]) -> None:
        try:
            if self._file is None:
                self._file = AuditLog(self._folder, FILE_BYTES)
            if self._file.add_all(rows):
                self._bytes.clear()
            for row in rows:
                if "member" in row:
                    self._bytes[str(row["member"])] += _AROUND_BYTES + sum(len(str(one)) for one in row.values())
        except (ReleaseError, OSError) as error:
            self._log.warning("lending_audit", error=str(error), lost_lines=len(rows))
