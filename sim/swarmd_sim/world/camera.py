"""A simulated drone: where it flies, how its camera looks, and what it believes of both.

The drone flies straight legs at constant speed, heading north all the time (a multirotor can). It wobbles; its position
estimate has an error that wanders slowly, as RTK does, and its attitude estimate one that wanders fast. Frames are
rendered with the truth and carry the estimate, with the sigmas that the errors really have.
"""

import math
import random
from collections import deque
from dataclasses import dataclass

from swarmd_sim.world.farm import Cell, Farm

_POSITION_TAU_S = 8.0
_ATTITUDE_TAU_S = 0.5
_OVERFLY_M = 2.0
"""A cell is flown from this far before its end to this far behind, so that every module is seen in several frames."""
CAMERA_TILT_RAD = 0.06
"""The camera looks a little ahead of straight down."""


@dataclass(frozen=True, slots=True)
class DroneState:
    """What a drone knows of itself."""

    east_m: float
    north_m: float
    height_m: float
    battery_milli: int
    cell_id: str
    """The cell it works on, "" when none."""


@dataclass(frozen=True, slots=True)
class Attitude:
    """Of the camera, radians."""

    yaw: float
    pitch: float
    roll: float


class Wander:
    """A Gauss-Markov error: standard deviation `sigma`, forgotten over `tau_s`."""

    def __init__(self, sigma: float, tau_s: float, rng: random.Random) -> None:
        """Start somewhere in the stationary distribution."""
        self._sigma, self._tau_s, self._rng = sigma, tau_s, rng
        self.value = rng.gauss(0.0, sigma) if sigma > 0 else 0.0

    def step(self, dt_s: float) -> float:
        """The error `dt_s` later."""
        keep = math.exp(-dt_s / self._tau_s)
        self.value = keep * self.value + self._sigma * math.sqrt(1 - keep * keep) * self._rng.gauss(0.0, 1.0)
        return self.value


@dataclass(slots=True)
class _Leg:
    cell: Cell
    waypoints: list[tuple[float, float]]
    """The nearer end first, then the farther; those reached are removed."""
    reached: bool = False
    frames: int = 0
    length_m: float = 0.0


class Drone:
    """Moves through time. Not thread-safe."""

    def __init__(
        self,
        farm: Farm,
        start: tuple[float, float],
        speed_m_s: float,
        height_m: float,
        position_sigma_m: float,
        attitude_sigma_rad: float,
        rng: random.Random,
    ) -> None:
        """Hover at `start`."""
        self._farm = farm
        self.east_m, self.north_m = start
        self._speed, self.height_m = speed_m_s, height_m
        self._queue: deque[_Leg] = deque()
        self._phase = [rng.uniform(0, 2 * math.pi) for _ in range(6)]
        self._time_s = 0.0
        self.position_sigma_m, self.attitude_sigma_rad = position_sigma_m, attitude_sigma_rad
        self._drift = [Wander(position_sigma_m, _POSITION_TAU_S, rng) for _ in range(2)]
        self.height_sigma_m = 2.0 * position_sigma_m
        self._height_drift = Wander(self.height_sigma_m, _POSITION_TAU_S, rng)
        self._tilt = [Wander(attitude_sigma_rad, _ATTITUDE_TAU_S, rng) for _ in range(3)]
        self._events: list[tuple[str, str] | tuple[str, str, int]] = []

    # --- Work -------------------------------------------------------------------------------------------------------

    def assign(self, cell: Cell) -> None:
        """Fly this cell after those already assigned; one that is queued already stays where it is."""
        if all(leg.cell.cell_id != cell.cell_id for leg in self._queue):
            self._queue.append(_Leg(cell, []))

    def drop(self, cell_id: str) -> None:
        """Forget a cell, also in the middle of it."""
        self._queue = deque(leg for leg in self._queue if leg.cell.cell_id != cell_id)

    @property
    def cell_id(self) -> str:
        """The cell in work, "" when the drone hovers."""
        return self._queue[0].cell.cell_id if self._queue else ""

    @property
    def idle(self) -> bool:
        """Nothing to fly."""
        return not self._queue

    def take_events(self) -> list[tuple[str, str] | tuple[str, str, int]]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    # --- Motion -----------------------------------------------------------------------------------------------------

    def advance(self, dt_s: float) -> None:
        """Fly on for `dt_s` and take note of cells reached and done."""
        self._time_s += dt_s
        for wander in (*self._drift, self._height_drift, *self._tilt):
            wander.step(dt_s)
        reach_m = self._speed * dt_s
        while self._queue and reach_m > 0.0:
            leg = self._queue[0]
            if not leg.waypoints and not leg.reached:
                self._plan(leg)
            reach_m = self._move(leg.waypoints[0], reach_m)
            if reach_m >= 0.0 and (self.east_m, self.north_m) == leg.waypoints[0]:
                self._arrive(leg)

    def count_frame(self) -> None:
        """A frame was taken; the cell in work counts it."""
        if self._queue and self._queue[0].reached:
            self._queue[0].frames += 1

    def _plan(self, leg: _Leg) -> None:
        south = (leg.cell.start[0], leg.cell.start[1] - _OVERFLY_M)
        north = (leg.cell.end[0], leg.cell.end[1] + _OVERFLY_M)
        near_north = math.dist((self.east_m, self.north_m), north) < math.dist((self.east_m, self.north_m), south)
        leg.waypoints = [north, south] if near_north else [south, north]
        leg.length_m = math.dist(north, south)

    def _move(self, target: tuple[float, float], reach_m: float) -> float:
        """Go towards a point; returns the metres left over once it is reached, or 0."""
        distance = math.dist((self.east_m, self.north_m), target)
        if distance <= reach_m:
            self.east_m, self.north_m = target
            return reach_m - distance
        self.east_m += (target[0] - self.east_m) * reach_m / distance
        self.north_m += (target[1] - self.north_m) * reach_m / distance
        return 0.0

    def _arrive(self, leg: _Leg) -> None:
        leg.waypoints.pop(0)
        if not leg.reached:
            leg.reached = True
            self._events.append(("cell_reached", leg.cell.cell_id))
        elif not leg.waypoints:
            # Quality: frames taken against one every two metres, enough for five views of every module.
            quality = min(1000, round(1000 * leg.frames / max(leg.length_m / 2.0, 1.0)))
            self._events.append(("cell_done", leg.cell.cell_id, quality))
            self._queue.popleft()

    # --- Camera -----------------------------------------------------------------------------------------------------

    def attitude(self) -> Attitude:
        """How the camera truly looks now: nearly straight down, wobbling by about a degree."""
        t, p = self._time_s, self._phase
        yaw = 0.018 * math.sin(1.1 * t + p[0]) + 0.008 * math.sin(4.7 * t + p[1])
        pitch = 0.014 * math.sin(1.7 * t + p[2]) + 0.006 * math.sin(6.1 * t + p[3])
        roll = 0.014 * math.sin(1.4 * t + p[4]) + 0.006 * math.sin(5.3 * t + p[5])
        return Attitude(yaw, -math.pi / 2 + CAMERA_TILT_RAD + pitch, roll)

    def believed_attitude(self) -> Attitude:
        """How the drone thinks that it looks."""
        true = self.attitude()
        yaw, pitch, roll = (wander.value for wander in self._tilt)
        return Attitude(true.yaw + yaw, true.pitch + pitch, true.roll + roll)

    def believed_position(self) -> tuple[float, float, float]:
        """East, north and height as the drone knows them."""
        east, north = (wander.value for wander in self._drift)
        return self.east_m + east, self.north_m + north, self.height_m + self._height_drift.value
