"""What a node would report beyond what it may: counted, and named once.

A node reports at most `dedup.sightings_max` things. What is new beyond them is left out, each by itself: what is known
already goes on being improved, and what else the same frame shows is taken in.
"""

from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.observations import LocalDetection

NAMED_MAX = 3
"""Things that one alarm names; the rest are counted."""


class LeftOut:
    """The things of this node for which there was no room."""

    def __init__(self, config: DedupConfig) -> None:
        """None yet."""
        self._most = config.sightings_max
        self._since: list[LocalDetection] = []
        """Of this event, until somebody asks."""
        self._is_told = False
        self.count = 0
        """New things left out, once for each frame that showed them."""

    def fits(self, detection: LocalDetection, held: int) -> bool:
        """Whether there is room for a new thing beside so many; counts it where there is none."""
        if held < self._most:
            # Things have gone since: the next that finds no room is news.
            self._is_told = False
            return True
        self.count += 1
        self._since.append(detection)
        return False

    def news(self) -> str:
        """What to tell of those left out since the last time; "" where it has been told that there is no room."""
        since, self._since = self._since, []
        if not since or self._is_told:
            return ""
        self._is_told = True
        named = ", ".join(_named(detection) for detection in since[:NAMED_MAX])
        more = f" and {len(since) - NAMED_MAX} more" if len(since) > NAMED_MAX else ""
        return f"this node reports {self._most} things, as many as dedup.sightings_max lets it; left out: {named}{more}"


def _named(detection: LocalDetection) -> str:
    if detection.asset:
        return f"{detection.label} at {detection.asset}"
    if detection.east_cm is None or detection.north_cm is None:
        return f"{detection.label} of track {detection.track_id}"
    return f"{detection.label} at {detection.east_cm / 100:.1f} m east, {detection.north_cm / 100:.1f} m north"
