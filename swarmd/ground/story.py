"""The past as the page reads it: what this server saw itself, and of times at which it was not there what others wrote
down and this node has fetched (`fetched.py`). Where neither is, there is a gap.
"""

from collections.abc import Sequence

from swarmd.errors import DaemonError
from swarmd.ground.fetched import FetchedPast
from swarmd.ground.past import GAP_S, MARKS_MAX, PAGE_MAX, Past
from swarmd.ground.picture import snapshot
from swarmd.ground.rows import Change, History, Timeline

SEAM_S = 1.0
"""Seconds about a seam between the two, told as a gap: a page that replays over it takes a snapshot."""
_Span = tuple[float, float]


class Story:
    """See the module.

    Args:
        past: What this server saw.
        fetched: What others saw; None where there is no swarm to ask.
    """

    def __init__(self, past: Past, fetched: FetchedPast | None = None) -> None:
        self._past = past
        self._fetched = fetched

    async def at(self, at_s: float) -> Sequence[bytes]:
        """The `rows.Snapshot` of a moment, in pieces; of a gap, what was known at its beginning."""
        if self._fetched is not None and not (await self._past.timeline(at_s, at_s)).covered:
            rows = await self._fetched.at(at_s)
            if rows is not None:
                return list(snapshot("", 0, at_s, rows))
        return await self._past.at(at_s)

    async def history(self, from_s: float, to_s: float, kinds: Sequence[str], cursor: str, limit: int) -> History:
        """A page of changes, as `Past.history` has it; the past of others in between.

        Raises:
            DaemonError: The cursor is none.
        """
        if self._fetched is None:
            return await self._past.history(from_s, to_s, kinds, cursor, limit)
        parts = await self._parts(from_s, to_s)
        at_ms, inner = _cursor(cursor)
        parts = [part for part in parts if at_ms is None or _ms(part[0]) >= at_ms]
        limit = max(1, min(limit, PAGE_MAX))
        found: list[Change] = []
        gaps: list[_Span] = []
        peers = self._fetched.stretches(from_s, to_s)
        for number, (begin_s, end_s, is_own) in enumerate(parts):
            inner = inner if number == 0 else ""
            room = limit - len(found)
            if is_own:
                page = await self._past.history(begin_s, end_s, kinds, inner, room)
                changes, following, more = page.changes, page.next, page.gaps
            else:
                changes, following, more = await self._of_others(begin_s, end_s, kinds, inner, room)
            found += changes
            gaps += more
            if following is not None:
                return History(found, gaps, f"{_ms(begin_s)}:{following}", peers)
            if number + 1 < len(parts):
                gaps.append((end_s - SEAM_S, end_s) if parts[number + 1][2] else (end_s, end_s + SEAM_S))
                if len(found) >= limit:
                    return History(found, gaps, f"{_ms(parts[number + 1][0])}:", peers)
        return History(found, gaps, None, peers)

    async def timeline(self, from_s: float, to_s: float) -> Timeline:
        """What there is between two moments."""
        line = await self._past.timeline(from_s, to_s)
        if self._fetched is None:
            return line
        spans = self._fetched.spans(from_s, to_s)
        if not spans:
            return line
        first_s = max(from_s, spans[0][0])
        line.from_s = min(line.from_s, first_s) if line.covered else first_s
        line.to_s = max(line.to_s, min(to_s, spans[-1][1])) if line.covered else min(to_s, spans[-1][1])
        for begin_s, end_s in _between(line.covered, line.from_s, line.to_s):
            inside = [(max(begin_s, one), min(end_s, other)) for one, other in spans if one < end_s and other > begin_s]
            line.fetched += inside
            line.peers += self._fetched.stretches(begin_s, end_s)
            if inside and len(line.marks) < MARKS_MAX:
                line.marks += await self._fetched.marks(begin_s, end_s, MARKS_MAX - len(line.marks))
        line.marks.sort(key=lambda mark: mark.at_s)
        return line

    async def _parts(self, from_s: float, to_s: float) -> list[tuple[float, float, bool]]:
        """(from, to, whether this server saw it) one after the other."""
        covered = (await self._past.timeline(from_s, to_s)).covered
        own = [(begin_s, end_s, True) for begin_s, end_s in covered]
        others = [(begin_s, end_s, False) for begin_s, end_s in _between(covered, from_s, to_s)]
        return sorted([(max(begin_s, from_s), min(end_s, to_s), is_own) for begin_s, end_s, is_own in own] + others)

    async def _of_others(
        self, begin_s: float, end_s: float, kinds: Sequence[str], inner: str, room: int
    ) -> tuple[list[Change], str | None, list[_Span]]:
        assert self._fetched is not None
        window_ms, skip = _pair(inner)
        start = (begin_s, 0) if window_ms is None else (window_ms / 1000, skip)
        changes, following = await self._fetched.changes(begin_s, end_s, frozenset(kinds), start, room)
        spans = self._fetched.spans(begin_s, end_s)
        read_s = end_s if following is None else following[0]
        gaps = [
            (max(one, start[0]), min(other, read_s))
            for one, other in _between(spans, begin_s, end_s)
            if one < read_s and other > start[0] and other - one > GAP_S
        ]
        return changes, None if following is None else f"{_ms(following[0])}.{following[1]}", gaps


def _between(spans: Sequence[_Span], from_s: float, to_s: float) -> list[_Span]:
    """What lies in none of the spans, which are sorted and apart.

    >>> _between([(10.0, 20.0)], 0.0, 100.0)
    [(0.0, 10.0), (20.0, 100.0)]
    """
    found: list[_Span] = []
    for begin_s, end_s in spans:
        if begin_s > from_s:
            found.append((from_s, min(begin_s, to_s)))
        from_s = max(from_s, end_s)
    if to_s > from_s:
        found.append((from_s, to_s))
    return found


def _cursor(text: str) -> tuple[int | None, str]:
    """(beginning of a part in milliseconds, the rest) of a cursor.

    >>> _cursor("1500:12.7"), _cursor("")
    ((1500, '12.7'), (None, ''))
    """
    if not text:
        return None, ""
    part, colon, rest = text.partition(":")
    if not colon or not (part.isascii() and part.isdecimal() and len(part) <= 18):
        raise DaemonError("cursor is none that an answer gave")
    return int(part), rest


def _pair(text: str) -> tuple[int | None, int]:
    """(beginning of a window in milliseconds, how many of its changes were told).

    >>> _pair("1500.7"), _pair("")
    ((1500, 7), (None, 0))
    """
    if not text:
        return None, 0
    window, _, skip = text.partition(".")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in (window, skip)):
        raise DaemonError("cursor is none that an answer gave")
    return int(window), int(skip)


def _ms(at_s: float) -> int:
    """Downwards, and never below zero."""
    return max(0, int(at_s * 1000))
