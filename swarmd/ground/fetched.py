"""What others wrote down of their own past, as rows: members, places and events of times at which nobody looked here;
objects and reviews as far as what this node knows now says when they came (`grown.py`).

Rules this file keeps: every row comes out of a page that its author signed; of a time of which a node's page is not
here its state is `unknown`, or what another one saw become of it, never `alive`; reading is bounded by `WINDOW_S` of
pages at a time.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from swarmd.api.daemon import PeerPast
from swarmd.events.pages import READ_PAGES, Fetched
from swarmd.events.record import EventRecord
from swarmd.events.store import Query
from swarmd.ground.facts import Names, said
from swarmd.ground.grown import Grown
from swarmd.ground.peer_rows import PeerStretch
from swarmd.ground.picture import EVENTS_KEPT, PIECE_ROWS
from swarmd.ground.rows import Change, Event, Mark, Member, Position, Row
from swarmd_models.geo.positions import Plane
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past.fetching import EXPIRED, LIED, REFUSED, SILENT, UNREACHABLE, WAITING, WHOLE
from swarmd_protocols.past.pages import Page, PastPlace
from swarmd_protocols.past.spans import JOIN_MS, joined
from swarmd_protocols.state.clock import EPOCH_2020_NS

WINDOW_S = 120.0
"""Seconds of pages that are read at once: 600 pages of 200 drones, some 60 ms of the file's thread."""
WINDOWS_MAX = 30
"""Windows that one answer looks through, an hour: where little happened whoever asks gets a cursor."""
STRETCHES_MAX = 1_000
"""Stretches of one answer; the newest."""
STATES_S = 86_400.0
"""Seconds for which what others saw become of a member is taken for its state."""
_EPOCH_MS = EPOCH_2020_NS // 1_000_000
_STATES = {"failed": "failed", "left": "left", "away": "away", "unreachable": "unreachable", "stopped": "left"}
"""What kinds of events say of the state of their subject; `stopped` is a node's own word."""
_PAGELESS = (WAITING, EXPIRED, REFUSED, UNREACHABLE, SILENT, LIED)
"""Why a member that may have been there has no page here; one that says that it wrote nothing then was not."""
_encode = msgspec.json.encode
Rows = dict[str, dict[str, bytes]]


class FetchedPast:
    """Others' pages as rows.

    Args:
        pages: Where they are.
        plane: The site's, where there is one.
        unheard: Names of members of which this node knows that they failed before it came, and no more.
        grown: Gives every object that there is now, since pages tell of none; None: there are none to show.
        names: Of members.
    """

    def __init__(
        self,
        pages: PeerPast,
        plane: Plane | None,
        unheard: Callable[[], Mapping[str, str]],
        grown: Callable[[], Awaitable[Sequence[Grown]]] | None = None,
        names: Callable[[], Names] = dict,
    ) -> None:
        self._pages = pages
        self._plane = plane
        self._unheard = unheard
        self._grown = grown
        self._names = names

    def stretches(self, from_s: float, to_s: float) -> list[PeerStretch]:
        """What is known of a stretch of time, by node."""
        found = [
            PeerStretch(
                one.author.hex(), said(self._pages.name_of(one.author)), _s(one.from_ms), _s(one.to_ms), one.what
            )
            for one in self._pages.stretches(from_s, to_s)
        ]
        names = {one.name for one in found}
        found += [
            PeerStretch(node, name, from_s, to_s, "unreachable")
            for node, name in self._unheard().items()
            if name not in names
        ]
        if len(found) > STRETCHES_MAX:
            found = sorted(found, key=lambda one: one.to_s)[-STRETCHES_MAX:]
        return sorted(found, key=lambda one: (one.name, one.from_s))

    def spans(self, from_s: float, to_s: float) -> list[tuple[float, float]]:
        """Times of which at least one node's past is here."""
        whole = (one for one in self._pages.stretches(from_s, to_s) if one.what == WHOLE)
        return [(_s(begin), _s(end)) for begin, end in joined((one.from_ms, one.to_ms) for one in whole)]

    async def marks(self, from_s: float, to_s: float, most: int) -> list[Mark]:
        """Points of the timeline, the newest where there are more."""
        query = Query(since_ms=round(from_s * 1000), until_ms=round(to_s * 1000), limit=most)
        return [Mark(one.at_ms / 1000, "events", one.level, _words(one)) for one in await self._pages.events(query)]

    async def at(self, at_s: float) -> Rows | None:
        """Rows of a moment; None where nothing of it is here."""
        newest = await self._pages.newest(at_s)
        if not any(_s(one.page.to_ms) >= at_s - JOIN_MS / 1000 for one in newest):
            return None
        events = await self._pages.events(
            Query(since_ms=round((at_s - STATES_S) * 1000), until_ms=round(at_s * 1000), limit=10_000)
        )
        states = _states(events)
        rows: Rows = {"member": {}, "position": {}, "event": {}, "object": {}}
        named = self._names()
        for number, thing in enumerate(await self._things(), 1):
            row = thing.at(at_s, named)
            if row is not None:
                rows["object"][row.id] = _encode(row)
            if number % PIECE_ROWS == 0:
                await asyncio.sleep(0)
        for one in newest:
            node, name = one.author.hex(), said(self._pages.name_of(one.author))
            ended_s = _s(one.page.to_ms)
            is_there = ended_s >= at_s - JOIN_MS / 1000
            state, since_s = ("alive", None) if is_there else states.get(name, ("unknown", ended_s))
            rows["member"][node] = _encode(_member(node, name, state, since_s))
            place, has_fix = _last_place(one.page, at_s)
            if place is not None:
                rows["position"][node] = _encode(self._position(node, name, one.page, place, has_fix=has_fix))
        names = {said(self._pages.name_of(one.author)) for one in newest}
        for node, name in self._pageless(at_s):
            if name not in names:
                rows["member"][node] = _encode(_member(node, name, *states.get(name, ("unknown", None))))
        for record in events[-EVENTS_KEPT:]:
            rows["event"][record.event_id] = _encode(_event(record))
        return rows

    async def changes(
        self, from_s: float, to_s: float, kinds: frozenset[str], start: tuple[float, int], limit: int
    ) -> tuple[list[Change], tuple[float, int] | None]:
        """A page of changes.

        Args:
            from_s: The first moment.
            to_s: The last.
            kinds: Which; none: all.
            start: Where the page before ended: (beginning of a window, how many of its changes were told).
            limit: Changes at most.

        Returns:
            The changes in the order of time, and where the next page begins; None after the last.
        """
        found: list[Change] = []
        spans = self.spans(from_s, to_s)
        begin_s, skip = start
        things = await self._things() if not kinds or "object" in kinds else ()
        for _ in range(WINDOWS_MAX):
            ahead = [span for span in spans if span[1] > begin_s]
            if begin_s >= to_s or not ahead:
                return found, None
            if ahead[0][0] > begin_s:
                begin_s, skip = ahead[0][0], 0
            window_s = WINDOW_S
            while True:
                end_s = min(begin_s + window_s, to_s)
                pages = await self._pages.between(begin_s, end_s)
                if len(pages) < READ_PAGES or window_s <= WINDOW_S / 8:
                    break
                window_s /= 2  # More than one answer holds.
            told = [one for one in self._changes_of(pages, things, begin_s, end_s) if not kinds or one.kind in kinds]
            room = limit - len(found)
            found += told[skip : skip + room]
            if len(told) - skip > room:
                return found, (begin_s, skip + room)
            begin_s, skip = end_s, 0
        return found, (begin_s, 0)

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def _things(self) -> Sequence[Grown]:
        return () if self._grown is None else await self._grown()

    def _pageless(self, at_s: float) -> list[tuple[str, str]]:
        """(id, name) of members that may have been there at a moment of which no page of theirs is here."""
        about_s = 2 * JOIN_MS / 1000  # What is shorter than a joint is no stretch.
        return [(one.node, one.name) for one in self.stretches(at_s - about_s, at_s + about_s) if one.what in _PAGELESS]

    def _changes_of(
        self, pages: Sequence[Fetched], things: Sequence[Grown], begin_s: float, end_s: float
    ) -> list[Change]:
        """All that pages tell of [begin_s, end_s), and what became of objects then."""
        found: list[tuple[float, str, Row]] = []
        names = self._names() if things else {}
        for thing in things:
            rows = [(at_s, thing.at(at_s, names)) for at_s in thing.moments if begin_s <= at_s < end_s]
            found += [(at_s, "object", row) for at_s, row in rows if row is not None]
        spans: dict[NodeId, list[tuple[int, int]]] = {}
        for one in pages:
            node, name, page = one.author.hex(), said(self._pages.name_of(one.author)), one.page
            spans.setdefault(one.author, []).append((page.from_ms, page.to_ms))
            last: PastPlace | None = None
            for place in page.places:
                has_place = place.place is not None
                shown = place if has_place else last
                last = shown
                if shown is not None:
                    at_s = _s(page.from_ms + place.at)
                    row = self._position(node, name, page, shown, has_fix=has_place)
                    found.append((at_s, "position", msgspec.structs.replace(row, at_s=at_s)))
            found += [(record.at_ms / 1000, "event", _event(record)) for record in self._pages.records(one)]
        for author, held in spans.items():
            node, name = author.hex(), said(self._pages.name_of(author))
            for began_ms, ended_ms in joined(held):
                found.append((max(begin_s, _s(began_ms)), "member", _member(node, name, "alive", None)))
                if _s(ended_ms) < end_s - JOIN_MS / 1000:
                    ended_s = _s(ended_ms)
                    found.append((ended_s, "member", _member(node, name, "unknown", ended_s)))
        inside = [one for one in found if begin_s <= one[0] < end_s]
        inside.sort(key=lambda one: (one[0], one[1], one[2].id))
        return [Change(0, at_s, kind, row.id, msgspec.Raw(_encode(row))) for at_s, kind, row in inside]

    def _position(self, node: str, name: str, page: Page, one: PastPlace, *, has_fix: bool) -> Position:
        place = one.place
        assert place is not None
        latitude_deg, longitude_deg = place.latitude_e7 / 1e7, place.longitude_e7 / 1e7
        east_m = north_m = None
        if self._plane is not None:
            east_m, north_m = (round(value, 2) for value in self._plane.to_m(latitude_deg, longitude_deg))
        return Position(
            id=node,
            name=name,
            has_fix=has_fix,
            east_m=east_m,
            north_m=north_m,
            latitude_deg=latitude_deg,
            longitude_deg=longitude_deg,
            height_agl_m=place.height_agl_cm / 100,
            yaw_deg=None if place.yaw_cdeg is None else place.yaw_cdeg / 100,
            sigma_m=place.sigma_cm / 100,
            battery=None if place.battery_milli is None else place.battery_milli / 1000,
            at_s=_s(page.from_ms + one.at),
        )


def _last_place(page: Page, at_s: float) -> tuple[PastPlace | None, bool]:
    """The last place that a page tells by a moment, and whether there was a fix then."""
    found: PastPlace | None = None
    has_fix = False
    for one in page.places:
        if _s(page.from_ms + one.at) > at_s:
            break
        has_fix = one.place is not None
        found = one if has_fix else found
    return found, has_fix


def _states(events: Sequence[EventRecord]) -> dict[str, tuple[str, float]]:
    """Name to what others saw become of it last, and when; of events oldest first."""
    found: dict[str, tuple[str, float]] = {}
    for one in events:
        if one.kind in ("returned", "joined", "started"):
            found.pop(one.subject, None)
        elif one.kind in _STATES:
            found[one.subject] = (_STATES[one.kind], one.at_ms / 1000)
    return found


def _member(node: str, name: str, state: str, since_s: float | None) -> Member:
    return Member(
        id=node, name=name, state=state, since_s=None if since_s is None else math.floor(since_s * 10) / 10,
        is_self=False, rtt_ms=None, loss=0.0, quality="none", broken=[], capability="", version="", address="",
        root=None, group_key=None, certificate=None,
    )  # fmt: skip


def _event(one: EventRecord) -> Event:
    return Event(one.event_id, one.at_ms / 1000, one.origin, one.kind, one.level, one.subject, one.reason, one.evidence)


def _words(one: EventRecord) -> str:
    return " ".join(part for part in (one.origin, one.kind, one.subject, one.reason) if part)


def _s(at_ms: int) -> float:
    """The protocol's milliseconds since 2020 as UTC seconds since 1970."""
    return (at_ms + _EPOCH_MS) / 1000
