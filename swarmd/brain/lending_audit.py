"""Who lent what to whom, in `STATE/lending/audit.jsonl`: a chain of hashes (`swarmd audit verify STATE/lending`).

What happened with one member and one bundle within a minute is one line. Only members can make it grow, and each only
by so many kinds of lines a minute; the files have 8 MiB together, the oldest goes.

    {"n": 7, "what": "lent", "member": "9f0c…", "name": "drone-4", "bundle": "eac4…", "count": 31, "bytes": 2539520,
     "proof": "…", "t_s": …, "prev": "…", "hash": "…"}

`what`: granted, denied_WHY, lent, refused_WHY and over_rate of a lender; borrowed, found_wrong and ejected of a
borrower; more: what was too much to tell apart. `proof` is equal at lender and borrower where both speak of the same
answers (`swarmd_protocols.offload.ledger`).
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from swarmd.logs import Logger
from swarmd.release.audit import KEPT_FILES, AuditLog
from swarmd.release.errors import ReleaseError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.ledger import NOBODY, Line

PERIOD_S = 60.0
"""Seconds between two writes: a sync a minute is what a memory card does not notice."""
FILE_BYTES = (8 << 20) // (1 + KEPT_FILES)
"""As many files as any audit has: by that `verify` knows whether the oldest had to go."""


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
        self._last: Future[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether lines may be written again."""
        is_free = self._last is None or self._last.done()
        return is_free and self._clock_s() - self._written_s >= PERIOD_S

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
        if line.proof:
            row["proof"] = line.proof.hex()
        return row

    def _append(self, rows: Sequence[dict[str, str | int | bool]]) -> None:
        try:
            if self._file is None:
                self._file = AuditLog(self._folder, FILE_BYTES)
            self._file.add_all(rows)
        except (ReleaseError, OSError) as error:
            self._log.warning("lending_audit", error=str(error), lost_lines=len(rows))
