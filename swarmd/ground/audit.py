"""Who did what on which revision: a hash chain on the ground station, which anybody can check (`swarmd audit verify`).

Rules this file keeps:

- What an operator does here is on disk before it is answered, and what was refused is too.
- Every review that this node comes to know of is written down once, whoever made it and wherever, as it was signed: so
  the chains of two laptops hold what either operator did, as soon as the swarm has told them.
- Times are this machine's; what proves who did it is the signature in the line.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.release.audit import AuditLog, FolderCheck, newest_lines, opened
from swarmd.release.errors import ReleaseError
from swarmd_protocols.state.crdt.reviews import STATEMENT_MAX_BYTES, open_review
from swarmd_protocols.state.observations import ReviewView
from swarmd_protocols.trust.envelopes import key_id

FOLDER = "operators"
"""In the state directory."""
KNOWN_MAX = 65_536
"""Reviews whose names are remembered, so that each is written once: all that sixteen operators may say."""
WRITE_S = 0.5
"""Seconds in which what is heard gathers before it is written."""
HEARD_MAX = 4_096
"""Reviews that wait to be written. What does not fit while the disk takes nothing is looked for again once it does."""

Entry = Mapping[str, str | int | bool]


class Audit:
    """The chain of one ground station; one writer.

    Args:
        folder: Where it lies, such as the state directory's `FOLDER`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = AuditLog(folder, max_field=2 * STATEMENT_MAX_BYTES)
        self._known: dict[str, None] = {}
        for entry in self._read():
            if not str(entry.get("outcome", "")).startswith("refused"):
                self._know(str(entry.get("digest", "")))
        self._heard: list[Entry] = []
        self._has_missed = True
        """Whether something was said that is neither written nor waits for it."""
        self._checking = asyncio.Lock()
        self._check = FolderCheck(folder)
        self._writing = asyncio.Lock()
        self.problem = ""
        """Why what is heard cannot be written; "" while it can."""

    async def did(self, what: str, by: str, key: str, **fields: str | int | bool) -> None:
        """Write down what an operator did here; durable when this returns.

        Raises:
            DaemonError: The disk does not take it.
        """
        await self._write([{"t_s": int(time.time()), "what": what, "by": by, "key": key, **fields}])

    async def reviewed(self, statement: bytes, object_id: str, outcome: str) -> None:
        """Write down a review that was handed over here, whatever became of it."""
        await self._write([{**_review_entry(statement, object_id), "what": "review", "outcome": outcome}])

    def expect(self, digest: bytes) -> bool:
        """This review is written down by `reviewed`, and not as heard; returns whether it is new here."""
        is_new = digest.hex() not in self._known
        self._know(digest.hex())
        return is_new

    def expect_no_more(self, digest: bytes) -> None:
        """It was refused: should it be heard all the same, it is written down."""
        self._known.pop(digest.hex(), None)

    def heard(self, object_id: str, reviews: Iterable[ReviewView]) -> None:
        """Operators have said this of an object, here or elsewhere; what is new of it is written soon."""
        for said in reviews:
            if said.digest.hex() in self._known:
                continue
            if len(self._heard) >= HEARD_MAX:
                self._has_missed = True
                return
            self._know(said.digest.hex())
            self._heard.append({**_review_entry(said.statement, object_id), "what": "heard"})

    async def run(self, hear_all: Callable[[], Awaitable[None]]) -> None:
        """Write what is heard, until cancelled.

        Args:
            hear_all: Tells `heard` whatever operators have said of all there is; called at the start, and again where
                something was missed that the disk would take.
        """
        try:
            while True:
                await self.catch_up(hear_all)
                await asyncio.sleep(WRITE_S)
        finally:
            if self._heard:
                self._log.add_all(self._heard)

    async def catch_up(self, hear_all: Callable[[], Awaitable[None]]) -> None:
        """Write what waits; look for what was missed once nothing does. See `run`."""
        await self._write_heard()
        if self._has_missed and not self._heard:
            self._has_missed = False
            await hear_all()

    async def lines(self, limit: int) -> Sequence[Mapping[str, object]]:
        """The newest lines, the newest first."""
        await self._write_heard()
        return await asyncio.to_thread(self._newest, limit)

    async def verify(self) -> tuple[int, str, str | None]:
        """How many lines are sound, the newest hash, and what is wrong, if anything."""
        async with self._checking:  # Who asks meanwhile waits for it, and reads nothing again.
            return await asyncio.to_thread(self._check.verify)

    def _know(self, digest: str) -> None:
        self._known[digest] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    async def _write_heard(self) -> None:
        entries, self._heard = self._heard, []
        if not entries:
            return
        try:
            await self._write(entries)
            self.problem = ""
        except DaemonError as error:
            self.problem = str(error)
            self._heard = [*entries, *self._heard]
            for entry in self._heard[HEARD_MAX:]:
                self._has_missed = True
                self._known.pop(str(entry["digest"]), None)
            del self._heard[HEARD_MAX:]

    async def _write(self, entries: Sequence[Entry]) -> None:
        async with self._writing:
            # To its end also where whoever waits for it has gone: a line that is half written would break the chain.
            writing = asyncio.get_running_loop().run_in_executor(None, self._log.add_all, entries)
            try:
                await asyncio.shield(writing)
            except ReleaseError as error:
                raise DaemonError(str(error)) from error
            except asyncio.CancelledError:
                await asyncio.wait([writing])
                raise

    def _read(self) -> Iterator[Mapping[str, object]]:
        """Every line there is, oldest first; what cannot be read is left to `verify`."""
        with opened(self.folder) as files:
            for _, file in files:
                yield from _entries(file.read().decode("utf-8", "replace").split("\n"))

    def _newest(self, limit: int) -> list[Mapping[str, object]]:
        found: list[Mapping[str, object]] = []
        with opened(self.folder) as files:
            for _, file in reversed(files):
                if len(found) < limit:
                    found += _entries(newest_lines(file, limit - len(found)))
        return found


def _entries(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def _review_entry(statement: bytes, object_id: str) -> dict[str, str | int | bool]:
    said = open_review(statement)
    review = said.review
    return {
        "t_s": int(time.time()),
        "by": review.by,
        "key": key_id(said.public).hex()[:8],
        "object": object_id,
        "verdict": review.verdict,
        "text": review.text,
        "seen": review.seen,
        "basis": review.basis.hex(),
        "revision": review.revision,
        "made_ms": review.made_ms,
        "digest": said.digest.hex(),
        "statement": statement.hex(),
    }
