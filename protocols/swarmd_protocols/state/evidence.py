"""What stands behind each object: its sightings, who joined them, and the batches in which their authors signed it.

Only what is held now can be shown: an object of which a batch has just been replaced is left out until the views have
followed, which takes a turn or two of the loop.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Batch, Dot
from swarmd_protocols.state.crdt.facts import SightingKey
from swarmd_protocols.state.crdt.log import OriginLog
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.observations import ObjectView
from swarmd_protocols.state.shown import Shown

BATCHES_MAX = 64
"""Batches behind one object that are shown: it is confirmed thirty times over by then; the first sightings come
first."""


BYTES_MAX = 65_536
"""Of these batches: a proof that fits no frame (`federation/wire.py`) would wait for ever; 21 of the largest."""


class Evidence(NamedTuple):
    """One object and its proof."""

    view: ObjectView
    group: str
    """Class group of its labels."""
    members: tuple[tuple[int, SightingKey], ...]
    """(place in `batches`, key) of its sightings."""
    joins: tuple[tuple[int, int], ...]
    """(place in `batches`, place in `members`): the author of that batch saw that sighting too."""
    batches: tuple[Batch, ...]


def evidence(
    shown: Shown, logs: Mapping[NodeId, OriginLog], wanted: Collection[str] | None = None
) -> Iterator[list[Evidence]]:
    """Shown objects with their proof, a few at a time.

    Args:
        shown: The objects.
        logs: All batches held, by origin.
        wanted: Ids; None: all, by rank.
    """
    for part in shown.told(wanted):
        yield [one for leader, view in part if (one := _evidence(leader, view, shown, logs)) is not None]


def _evidence(leader: Entry, view: ObjectView, shown: Shown, logs: Mapping[NodeId, OriginLog]) -> Evidence | None:
    batches: dict[tuple[NodeId, Dot], Batch] = {}
    size, is_full = 0, False

    def place_of(origin: NodeId, dot: Dot) -> int | None:
        """Where a batch stands in the proof; None where it is not held, or the proof is full."""
        nonlocal size, is_full
        if (origin, dot) not in batches:
            log = logs.get(origin)
            held = None if log is None else log.facts.get(dot)
            if held is None:
                return None
            if len(batches) == BATCHES_MAX or size + len(held.raw) > BYTES_MAX:
                is_full = True
                return None
            batches[origin, dot] = held
            size += len(held.raw)
        return list(batches).index((origin, dot))

    entries = sorted(leader.members or [leader], key=lambda entry: entry.rank)[:BATCHES_MAX]
    members = []
    for entry in entries:
        place = place_of(entry.origin, entry.dot)
        if place is None:
            if not is_full:
                return None
            break
        members.append((place, entry.key))
    joins: list[tuple[int, int]] = []
    for at, entry in enumerate(entries[: len(members)]):
        for author, dot in sorted(shown.joined(entry)):
            joined = place_of(author, dot)
            if joined is not None and len(joins) < BATCHES_MAX:
                joins.append((joined, at))
    return Evidence(view, leader.group, tuple(members), tuple(joins), tuple(batches.values()))
