"""This node's own past, written down page by page, and what the sub-protocol `past` wants of the disk.

Rules this file keeps:

- A page is a minute of own events, of the places that the swarm was told, and of a few counters at its end. It is
  signed once, when it is over or full, or when somebody asks and it is `SEAL_NS` old; a quiet minute is a page too, so
  that silence is told from a gap. A crash loses the open page.
- Numbers rise over restarts: the boot comes first.
- Where the clock was set back or this machine slept, a page ends where it was and the next begins at the new time.
- Nothing here waits: the file's thread does, and what it found goes to the protocol as a command.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from swarmd.errors import DaemonError
from swarmd.events.kinds import KINDS
from swarmd.events.pages import Fetched, PageStore, record_of
from swarmd.events.record import EventRecord
from swarmd.events.store import Query
from swarmd.logs import Logger
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import requests
from swarmd_protocols.past.fetching import Stretch
from swarmd_protocols.past.giving import NAME
from swarmd_protocols.past.pages import COUNTERS_MAX, EVENTS_MAX, PLACES_MAX, PastEvent, PastPlace, new_page, sign_page
from swarmd_protocols.past.past import PastProtocol
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.state.positions import SayPlace

PAGE_NS = 60_000_000_000
"""Nanoseconds of a page: one signature (50 microseconds) and one write a minute."""
SEAL_NS = 5_000_000_000
"""An open page so old, nanoseconds, is closed for whoever asks: a late observer knows what happened until just now."""
PAUSE_MS = 5_000
"""A look later than this after the last, milliseconds, means that this machine slept or its clock was set."""
PAGE_BYTES = 24_000
"""Estimated bytes at which a page is full; the wire takes a third more."""
STILL_MS = 30_000
"""A node that has not moved writes its place down so rarely, milliseconds."""
_PLACE_BYTES = 30
_BOOT_SHIFT = 28
"""Pages of one boot: 2^28, five hundred years at one a minute."""
COUNTED = ("node_datagram_bytes_out", "node_stream_bytes_out", "detections_shared", "eye_frames", "driver_crashes")
"""Counters that a page holds, as far as this node has them: what it said, what it saw, whether it was well."""
_EPOCH_MS = EPOCH_2020_NS // 1_000_000


class OwnPast:
    """The open page.

    Args:
        node: This node.
        signer: Its key.
        boot: A number that grows with every boot, below 2^35.
        physical_ms: Swarm time in milliseconds since 2020 at a moment of the monotonic clock.
        counters: This node's counters by name; asked once a page.
    """

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        boot: int,
        physical_ms: Callable[[int], int],
        counters: Callable[[], Mapping[str, int]],
    ) -> None:
        self._node = node
        self._signer = signer
        self._number = boot << _BOOT_SHIFT
        self._physical_ms = physical_ms
        self._counters = counters
        self._begun_ns: int | None = None
        self._from_ms = self._last_ms = 0
        self._events: list[tuple[int, EventRecord]] = []
        self._places: list[tuple[int, SayPlace]] = []
        self._bytes = 0
        self._placed: tuple[int, SayPlace] | None = None
        self._ready: list[bytes] = []

    def note_event(self, record: EventRecord, now_ns: int) -> None:
        """Something happened here."""
        self._look(now_ns)
        self._events.append((self._last_ms, record))
        self._bytes += 40 + sum(len(text.encode()) for text in (record.subject, record.reason, record.evidence))
        self._seal_when_full(now_ns)

    def note_place(self, request: SayPlace, now_ns: int) -> None:
        """The swarm was told where this node is."""
        self._look(now_ns)
        if self._placed is not None:
            at_ms, last = self._placed
            if last.place == request.place and 0 <= self._last_ms - at_ms < STILL_MS:
                return
        self._placed = self._last_ms, request
        self._places.append((self._last_ms, request))
        self._bytes += _PLACE_BYTES
        self._seal_when_full(now_ns)

    def tick(self, now_ns: int) -> None:
        """Once a second."""
        self._look(now_ns)
        if self._begun_ns is not None and now_ns - self._begun_ns >= PAGE_NS:
            self._seal(now_ns)

    def seal_for_asker(self, now_ns: int) -> None:
        """Somebody asks: what is open counts as over, unless it has just begun."""
        self._look(now_ns)
        if self._begun_ns is not None and now_ns - self._begun_ns >= SEAL_NS:
            self._seal(now_ns)

    def end(self, now_ns: int) -> None:
        """The daemon leaves."""
        if self._begun_ns is not None:
            self._look(now_ns)
            self._seal(now_ns)
            self._begun_ns = None

    def take(self) -> list[bytes]:
        """Pages that are signed and not yet written."""
        ready, self._ready = self._ready, []
        return ready

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> None:
        """The next page."""
        self._begun_ns = now_ns
        self._from_ms = self._last_ms = self._physical_ms(now_ns)
        self._bytes = 0

    def _look(self, now_ns: int) -> None:
        """Time went by; where it did not go as it should, a page ends."""
        if self._begun_ns is None:
            self._begin(now_ns)
        now_ms = self._physical_ms(now_ns)
        if not -PAUSE_MS <= now_ms - self._last_ms <= PAUSE_MS:
            self._seal(now_ns)
        self._last_ms = max(now_ms, self._last_ms)

    def _seal_when_full(self, now_ns: int) -> None:
        if self._bytes >= PAGE_BYTES or len(self._events) >= EVENTS_MAX or len(self._places) >= PLACES_MAX:
            self._seal(now_ns)

    def _seal(self, now_ns: int) -> None:
        begin_ms = self._from_ms
        events = tuple(
            PastEvent(at - begin_ms, one.life, one.number, one.kind, one.subject, one.reason, one.evidence)
            for at, one in self._events
        )
        places = tuple(_row(at - begin_ms, request) for at, request in self._places)
        counted = self._counters()
        counters = tuple((name, counted[name]) for name in COUNTED if name in counted)[:COUNTERS_MAX]
        span = (begin_ms, self._last_ms)
        self._events, self._places = [], []
        self._number += 1
        self._begin(now_ns)
        self._ready.append(sign_page(new_page(self._node, self._number, span, events, places, counters), self._signer))


def _row(at: int, request: SayPlace) -> PastPlace:
    place = request.place
    if place is None:
        return PastPlace(at)
    return PastPlace(
        at, place.latitude_e7, place.longitude_e7, place.height_agl_cm, place.yaw_cdeg, place.sigma_cm,
        place.battery_milli,
    )  # fmt: skip


class PastLink:
    """Between the protocol, the own past and the file.

    Args:
        own: The own past.
        store: The file.
        protocol: Decides.
        command: Gives the protocol a request.
        physical_ms: Swarm time at a moment of the monotonic clock.
        clock_ns: That clock.
        log: Where a failing disk is told of.
    """

    def __init__(
        self,
        own: OwnPast,
        store: PageStore,
        protocol: PastProtocol,
        command: Callable[[str, object], None],
        physical_ms: Callable[[int], int],
        clock_ns: Callable[[], int],
        log: Logger,
    ) -> None:
        self._own = own
        self._store = store
        self.protocol = protocol
        self._command = command
        self._physical_ms = physical_ms
        self._clock_ns = clock_ns
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[requests.Held] = []
        self.name_of: Callable[[NodeId], str] = lambda node: node.hex()[:16]
        """A node's name; the history knows better."""
        self._told = ""
        self._is_closed = False

    async def open(self) -> None:
        """Open the file."""
        self._held = await self._store.run(lambda file: file.open())

    def begin(self) -> None:
        """The node has started: tell the protocol what the file holds."""
        held, self._held = self._held, []
        for one in held:
            self._give(one)

    def tick(self) -> None:
        """Once a second."""
        self._own.tick(self._clock_ns())
        self._write_own()
        if self._store.problem and self._store.problem != self._told:
            self._log.warning("past_not_written", text=f"{self._store.problem}; make room on that disk")
        self._told = self._store.problem

    def note_event(self, record: EventRecord) -> None:
        """An own event."""
        self._own.note_event(record, self._clock_ns())

    def note_place(self, request: SayPlace) -> None:
        """An own place."""
        self._own.note_place(request, self._clock_ns())

    def carry_out(self, order: object) -> None:
        """One of `requests`' orders."""
        match order:
            case requests.FindRows(ticket):
                self._own.seal_for_asker(self._clock_ns())
                self._write_own()
                self._run(self._find_rows(ticket))
            case requests.FindPages():
                self._own.seal_for_asker(self._clock_ns())
                self._write_own()
                self._run(self._find_pages(order))
            case requests.KeepPages(_, pages):
                self._run(self._keep(pages))
            case requests.Forget(author):
                self._run(self._store.run(lambda file: file.forget(author)))
            case _:
                raise DaemonError(f"no order of `past`: {type(order).__name__}")

    def close(self) -> None:
        """Write the open page and close the file."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        now_ns = self._clock_ns()
        self._own.end(now_ns)
        self._store.close(self._own.take(), self._physical_ms(now_ns))

    # --- what programs of this node read ------------------------------------------------------------------------------

    def want(self, from_s: float, to_s: float) -> None:
        """Fetch what others wrote down between two moments, UTC seconds since 1970."""
        self._give(requests.Want(_ms(from_s), _ms(to_s)))

    def stretches(self, from_s: float, to_s: float) -> list[Stretch]:
        """Of which times everybody's past is here, and why not of the others; times as the protocol has them."""
        return self.protocol.stretches(_ms(from_s), _ms(to_s))

    async def between(self, from_s: float, to_s: float) -> list[Fetched]:
        """Others' pages that touch a stretch of time, by their end, the oldest first, a bounded number."""
        return self._shown(await self._store.run(lambda file: file.between(_ms(from_s), _ms(to_s))))

    async def newest(self, at_s: float) -> list[Fetched]:
        """Of each other node the newest page that began by a moment."""
        return self._shown(await self._store.run(lambda file: file.newest(_ms(at_s))))

    def records(self, one: Fetched) -> list[EventRecord]:
        """The events of a page."""
        name = self.name_of(one.author)
        return [
            record_of(one.author, name, one.page.from_ms, event) for event in one.page.events if event.kind in KINDS
        ]

    async def events(self, query: Query) -> Sequence[EventRecord]:
        """What others' pages tell of a query, oldest first."""
        authors = await self._store.run(lambda file: file.authors())
        names = {author: self.name_of(author) for author in authors if self.protocol.counts_now(author)}
        return await self._store.run(lambda file: file.events(query, names))

    @property
    def counts(self) -> dict[str, int]:
        """Pages and bytes given, fetched and written."""
        return {**self.protocol.counts, **self._store.counts}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _shown(self, pages: Sequence[Fetched]) -> list[Fetched]:
        """Those of authors whose certificate holds now, whoever has lost it since the pages came."""
        return [one for one in pages if self.protocol.counts_now(one.author)]

    def _write_own(self) -> None:
        pages = self._own.take()
        if pages:
            self._run(self._keep(pages))

    async def _keep(self, pages: Sequence[bytes]) -> None:
        now_ms = self._physical_ms(self._clock_ns())
        for held in await self._store.run(lambda file: file.add(pages, now_ms)):
            self._give(held)

    async def _find_rows(self, ticket: int) -> None:
        self._give(requests.Rows(ticket, await self._store.run(lambda file: file.rows())))

    async def _find_pages(self, ask: requests.FindPages) -> None:
        found, lost = await self._store.run(lambda file: (file.find(ask), file.take_lost()))
        for held in lost:
            self._give(held)
        self._give(found)

    def _give(self, request: object) -> None:
        if not self._is_closed:
            try:
                self._command(NAME, request)
            except StateError as error:
                self._log.warning("past_refused", error=str(error))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the order of the file's one thread."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ms(at_s: float) -> int:
    """UTC seconds since 1970 as the protocol's milliseconds since 2020, never below."""
    return max(0, round(at_s * 1000) - _EPOCH_MS)
