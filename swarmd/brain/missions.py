"""Missions and notes that operators signed for this swarm: what counts of them, and the cells that missions add.

A fact lies in the shared state as a note (`swarmd_protocols.federation.facts`), and any member can write notes; so each
node judges each by its own root, whenever it reads it. The cells of missions stand beside those of the configuration,
named after the mission: every node cuts the same area about the same origin, and names the same cells.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from swarmd.brain.parts import Parts
from swarmd_models.errors import SiteError
from swarmd_protocols.errors import StateError
from swarmd_protocols.federation.facts import MISSION, NOTE_PREFIX, SignedFact, in_force
from swarmd_protocols.state.observations import DefineCells
from swarmd_protocols.state.reviews import operators_of

if TYPE_CHECKING:
    from swarmd_models.geo.survey import Cells

LOOK_S = 1.0
"""Seconds between two looks at the facts: people plan missions in minutes."""
NAMES_MAX = 64
"""Facts that count; of more, the first by name: a cell is a row in every node's state."""


def facts(parts: Parts, known: Iterable[bytes] = ()) -> dict[str, SignedFact]:
    """What counts, by name.

    Args:
        parts: The brain's.
        known: Statements that were there before: a note that any member has overwritten withdraws none of them.
    """
    trust = parts.releases.protocol.trust
    notes = parts.replica.views.notes()
    said = [*(value for key, value in notes.items() if key.startswith(NOTE_PREFIX)), *known]
    if not said:
        return {}
    held = in_force(said, trust.swarm, operators_of(trust.chain), trust.chain.crypto.verify)
    return {name: held[name] for name in sorted(held)[:NAMES_MAX]}


def fact_rows(parts: Parts) -> list[dict[str, Any]]:
    """The same for people; what was withdrawn is left out."""
    return [
        {"name": name, "kind": said.fact.kind, "text": said.fact.text, "by": said.fact.by, "corners": len(corners)}
        for name, said in sorted(facts(parts).items())
        if (corners := said.fact.corners) or said.fact.text
    ]


class Missions:
    """Keeps the survey area what configuration and missions say.

    Args:
        parts: The brain's.
        cells: Those of the configuration.
    """

    def __init__(self, parts: Parts, cells: "Cells") -> None:
        self._parts = parts
        self._own = cells
        self._defined: Sequence[tuple[str, int, int]] = ()
        self._seen: dict[str, bytes] = {}

    def begin(self) -> None:
        """The configured cells at once; missions as they are learned, until the daemon ends."""
        self._define(self._own)
        self._parts.supervisor.keep("missions", self._follow)

    async def _follow(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Read the facts, and define the cells anew where they say something else."""
        known = facts(self._parts, self._seen.values())
        held = {name: said for name, said in known.items() if said.fact.kind == MISSION}
        seen = {name: said.statement for name, said in held.items()}
        if seen == self._seen:
            return
        self._seen = seen
        cells = list(self._own)
        for name, said in sorted(held.items()):
            cells += self._cells_of(name, said)
        self._define(cells)

    def _cells_of(self, name: str, said: SignedFact) -> list[tuple[str, int, int]]:
        from swarmd_models.geo.survey import cells_of_polygon

        plane, fact = self._parts.sightings.plane, said.fact
        if not fact.corners:
            return []
        if plane is None:
            self._parts.log.warning("mission", name=name, text="node.origin is not set: this node knows no places")
            return []
        outline = [plane.to_m(latitude / 1e7, longitude / 1e7) for latitude, longitude in fact.corners]
        try:
            found = cells_of_polygon(outline, fact.cell_cm / 100, f"the mission {name}")
        except SiteError as error:
            self._parts.log.warning("mission", name=name, text=str(error))
            return []
        self._parts.log.info("mission", name=name, cells=len(found), by=fact.by)
        return [(f"{name}:{cell}", east_cm, north_cm) for cell, east_cm, north_cm in found]

    def _define(self, cells: Sequence[tuple[str, int, int]]) -> None:
        if list(cells) == list(self._defined):
            return
        try:
            self._parts.driver.command("state", DefineCells(tuple(cells)))
        except StateError as error:
            self._parts.log.warning("mission", text=str(error))
            return
        self._defined = cells
