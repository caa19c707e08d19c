"""Which of the swarm's objects become goals. Knows nothing of ROS: any message with these fields will do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """Where to go, metres in the frame of the picture that it was found in."""

    object_id: str
    frame: str
    east_m: float
    north_m: float


class Goals:
    """Each object of a kind is a goal once, when it is first seen with that score, or again.

    What is remembered is what the newest picture holds, so it stays as small as that: an object that the swarm has
    forgotten, and that comes back, is a goal again.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def new(self, picture: Any, label: str, min_score: float) -> Sequence[Goal]:
        """What to go to now.

        Args:
            picture: A `vision_msgs/Detection3DArray` with all that the swarm knows, as `/swarm/objects` has it.
            label: Of the objects that are wanted.
            min_score: The least score, 0 to 1.

        Returns:
            New goals, in the order of the picture.
        """
        here = {found.id for found in picture.detections}
        self._told &= here
        goals = []
        for found in picture.detections:
            best = found.results[0].hypothesis if found.results else None
            if found.id in self._told or best is None or best.class_id != label or best.score < min_score:
                continue
            at = found.bbox.center.position
            self._told.add(found.id)
            goals.append(Goal(found.id, picture.header.frame_id, at.x, at.y))
        return goals
