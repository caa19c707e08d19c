"""What the server shows: one picture, its past, and who knows more."""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.ground.operators import Desk
from swarmd.ground.past import Past
from swarmd.ground.picture import Picture
from swarmd.ground.rows import Change, Evidence, Mark, Prepared, Site
from swarmd.ground.story import Story
from swarmd.ground.thumbs import FindThumb, no_thumbs

FindEvidence = Callable[[str], Awaitable[list[Evidence]]]
Prepare = Callable[[Mapping[str, object]], Awaitable[Prepared]]


async def no_evidence(object_id: str) -> list[Evidence]:
    """Where sightings are not part of what is shown."""
    return []


async def prepares_nothing(arguments: Mapping[str, object]) -> Prepared:
    """Where no swarm runs that could be told."""
    raise DaemonError("a recording has no swarm to tell; an order is prepared where `swarmd ground` has joined one")


class Ground:
    """One picture and what became of it.

    Args:
        site: Who looks, at what.
        history: The file of its past.
        max_bytes: Of that file, about.
    """

    def __init__(self, site: Site, history: Path, max_bytes: int = 1 << 30) -> None:
        self.site = site
        self.evidence: FindEvidence = no_evidence
        self.prepare: Prepare = prepares_nothing
        self.thumb: FindThumb = no_thumbs
        self.desk: Desk | None = None
        """What operators do; None where there is no swarm to act on."""
        self.picture = Picture(self._on_change)
        self.past = Past(history, self.picture.frozen, max_bytes)
        self.story = Story(self.past)
        """The same, with what others wrote down where there is a swarm that can be asked."""
        self.ended_s: float | None = None
        """The last moment of a recording; None: it goes on."""

    @property
    def now_s(self) -> float:
        """The newest moment that there is: the present, or a recording's end."""
        return time.time() if self.ended_s is None else self.ended_s

    def mark(self, mark: Mark) -> None:
        """A point of the timeline."""
        self.past.mark(mark)

    def _on_change(self, change: Change) -> None:
        self.past.take(change)
