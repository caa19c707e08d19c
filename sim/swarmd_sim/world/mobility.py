"""How nodes move that fly no cells: to random places, in groups that part and meet, or to and fro between islands."""

from collections.abc import Callable
from math import hypot

from swarmd_sim.run.choices import Choices
from swarmd_sim.world.layout import Place, is_connected

TICK_NS = 500_000_000
"""How often nodes move."""


class Mobility:
    """Moves the nodes of a run.

    Args:
        kind: "waypoint" (each to one random place of the box after the other), "groups" (the northern parts of the
            swarm go north, each by one range more than the one before, and come back) or "mule" (the last node goes to
            and fro between the ends).
        places: Where they stand, by index; changed in place.
        range_cm: Of every radio.
        speed_cm_s: How fast they move.
        period_s: For "groups", how long between parting and meeting.
        groups: For "groups", how many.
        connected: Nobody takes a step that would cut the swarm in two.
        choices: All randomness.
        place: Told where a node is.
    """

    def __init__(
        self,
        kind: str,
        places: list[Place],
        range_cm: int,
        speed_cm_s: int,
        period_s: float,
        groups: int,
        connected: bool,
        choices: Choices,
        place: Callable[[int, Place], None],
    ) -> None:
        self._kind = kind
        self.places = places
        self._range_cm = range_cm
        self._step_cm = speed_cm_s * TICK_NS // 1_000_000_000
        self._period_ns = int(period_s * 1e9)
        self._connected = connected
        self._choices = choices
        self._place = place
        self._home = list(places)
        southern = sorted(range(len(places)), key=lambda index: (places[index][1], index))
        self._group = {index: rank * groups // len(places) for rank, index in enumerate(southern)}
        self._box = (max(east for east, _ in places) + 1, max(north for _, north in places) + 1)
        self._goals: dict[int, Place] = {}
        self._begun_ns = -1

    def tick(self, now_ns: int) -> None:
        """Everybody who moves takes one step.

        Args:
            now_ns: Virtual time.
        """
        if self._begun_ns < 0:
            self._begun_ns = now_ns
        for index in range(len(self.places)):
            goal = self._goal(index, now_ns)
            if goal is not None and goal != self.places[index]:
                self._move(index, goal)

    def _goal(self, index: int, now_ns: int) -> Place | None:
        if self._kind == "mule":
            return self._mule_goal() if index == len(self.places) - 1 else None
        if self._kind == "groups":
            apart = (now_ns - self._begun_ns) // self._period_ns % 2 == 0
            east, north = self._home[index]
            return east, north + (self._group[index] * self._range_cm if apart else 0)
        goal = self._goals.get(index)
        return self._next_waypoint(index) if goal is None or goal == self.places[index] else goal

    def _next_waypoint(self, index: int) -> Place:
        east, north = self._box
        goal = (self._choices.choose("mobility.east", east), self._choices.choose("mobility.north", north))
        self._goals[index] = goal
        return goal

    def _mule_goal(self) -> Place:
        """The end that it is not at: first the one where node 0 stands, then the other."""
        mule = len(self.places) - 1
        ends = (self.places[0], self.places[mule - 1])
        goal = self._goals.setdefault(mule, ends[0])
        if goal == self.places[mule]:
            goal = self._goals[mule] = ends[1] if goal == ends[0] else ends[0]
        return goal

    def _move(self, index: int, goal: Place) -> None:
        old = self.places[index]
        east, north = goal[0] - old[0], goal[1] - old[1]
        way_cm = hypot(east, north)
        new = goal
        if way_cm > self._step_cm:
            new = (old[0] + round(east * self._step_cm / way_cm), old[1] + round(north * self._step_cm / way_cm))
        self.places[index] = new
        if self._connected and not is_connected(self.places, self._range_cm):
            self.places[index] = old
            self._goals.pop(index, None)
            return
        self._place(index, new)
