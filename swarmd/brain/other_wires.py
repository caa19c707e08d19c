"""Who beside this node speaks another version of the wire, judged by frames that nobody could open.

Anybody can send such frames. So one is no news: a source counts when it has sent several, all of one version, since
rubbish is of every version in turn; and whatever is said is a warning, never ill health.
"""

import re
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from swarmd_protocols.ids import WAYS
from swarmd_protocols.summary import MemberView

FRAMES_MIN = 3
"""Frames of one source until it is named: a member that looks for its swarm sends them every second or two."""
SILENT_S = 120.0
"""Seconds without such a frame after which a source is forgotten: two rounds of a member that looks for its swarm."""
SOURCES_MAX = 16
"""Sources that are remembered, those that were heard last; a flood of forged addresses can hide one, and no more."""
NAMED_MAX = 3
"""Sources that the alert names."""
NAMES_S = 10.0
"""Seconds for which the names of members are good; an address seldom changes hands."""
_REASON = re.compile(r"frame of wire version (\d+); this node speaks (\d+)")


class _Source(msgspec.Struct):
    versions: set[int] = msgspec.field(default_factory=set)
    frames: int = 0
    heard_s: float = 0.0


class OtherWires:
    """Remembers who was refused for the wire."""

    def __init__(self) -> None:
        """Nobody was."""
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._own = 0
        self._known: list[MemberView] = []
        self._asked_s = -NAMES_S

    def __len__(self) -> int:
        """Sources that are remembered."""
        return len(self._sources)

    def refused(self, source: str, reason: str, now_s: float) -> None:
        """A frame was refused, for whatever reason."""
        found = _REASON.match(reason)
        if found is None:
            return
        version, self._own = int(found[1]), int(found[2])
        held = self._sources.pop(source, None) or _Source()
        self._sources[source] = held
        if len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)
        held.versions.add(version)
        held.frames += 1
        held.heard_s = now_s

    def told(self, members: Callable[[], list[MemberView]], now_s: float) -> str:
        """What is to be said of them; "" where nobody speaks another wire.

        Args:
            members: Gives who is known, for names: a member that was upgraded keeps its address.
            now_s: Monotonic.
        """
        for source in [one for one, held in self._sources.items() if now_s - held.heard_s > SILENT_S]:
            del self._sources[source]
        sure = [
            (source, next(iter(held.versions)))
            for source, held in self._sources.items()
            if held.frames >= FRAMES_MIN and len(held.versions) == 1
        ]
        if not sure:
            return ""
        known = self._members_now(members, now_s)
        named = [f"{_name_of(source, known)} speaks wire version {version}" for source, version in sure[-NAMED_MAX:]]
        more = f" and {len(sure) - NAMED_MAX} more" if len(sure) > NAMED_MAX else ""
        return f"{', '.join(named)}{more}; this node speaks {self._own}"

    def _members_now(self, members: Callable[[], list[MemberView]], now_s: float) -> list[MemberView]:
        """Who is known, asked for seldom: a list of hundreds takes milliseconds."""
        if now_s - self._asked_s >= NAMES_S:
            self._asked_s, self._known = now_s, members()
        return self._known


def _name_of(source: str, members: list[MemberView]) -> str:
    """The member that has this address, or is alone on this host; else the address."""
    host = source.rpartition(":")[0]
    at_address = [one.name for one in members if source in one.address.split(WAYS)]
    on_host = [one.name for one in members if any(way.rpartition(":")[0] == host for way in one.address.split(WAYS))]
    for names in (at_address, on_host):
        if len(names) == 1:
            return f"{names[0]} ({source})"
    return source
