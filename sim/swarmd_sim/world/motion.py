"""How a drone moves: lanes over cells, speed, battery, return to home, or a replayed flight log. Centimetres and ns."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import isqrt

from swarmd_sim.run.choices import MILLION
from swarmd_sim.world.site import SiteCell

_NS_PER_S = 1_000_000_000


class DroneMode(Enum):
    """What a drone is doing."""

    WAITING = "waiting"
    TRANSIT = "transit"
    SCANNING = "scanning"
    RETURNING = "returning"
    CHARGING = "charging"


@dataclass(frozen=True, slots=True)
class DroneConfig:
    """What a drone can do."""

    speed_cm_s: int = 1_000
    drain_ppm_s: int = 500
    """Battery used in a second of flight, parts per million."""
    reserve_ppm: int = 200_000
    """The drone flies home when the battery falls below."""
    charge_ns: int = 60 * _NS_PER_S


@dataclass(frozen=True, slots=True)
class LogPoint:
    """One position of a flight log."""

    at_ns: int
    east_cm: int
    north_cm: int


class Drone:
    """One aircraft.

    Args:
        config: What it can do.
        home_cm: Where it starts and charges.
        flight_log: Replaces the lanes; positions between points are interpolated.
    """

    __slots__ = (
        "_charged_ns",
        "_config",
        "_flight_log",
        "_leg",
        "_moved_ns",
        "battery_ppm",
        "distance_cm",
        "home_cm",
        "mode",
        "position_cm",
        "queue",
    )

    def __init__(self, config: DroneConfig, home_cm: tuple[int, int], flight_log: Sequence[LogPoint] = ()) -> None:
        self._config = config
        self.home_cm = home_cm
        self.position_cm = home_cm
        self.battery_ppm = MILLION
        self.mode = DroneMode.WAITING
        self.queue: deque[SiteCell] = deque()
        self.distance_cm = 0
        self._moved_ns = 0
        self._charged_ns = 0
        self._flight_log = tuple(flight_log)
        self._leg = 0

    @property
    def scanning(self) -> SiteCell | None:
        """The cell under survey."""
        return self.queue[0] if self.mode is DroneMode.SCANNING and self.queue else None

    def assign(self, cell: SiteCell) -> None:
        """Add a cell to fly."""
        if cell not in self.queue:
            self.queue.append(cell)

    def drop(self, cell_id: str) -> None:
        """Forget a cell; one that is being flown is left at once."""
        if self.queue and self.queue[0].cell_id == cell_id and self.mode in (DroneMode.SCANNING, DroneMode.TRANSIT):
            self.mode = DroneMode.WAITING
        self.queue = deque(cell for cell in self.queue if cell.cell_id != cell_id)

    def advance(self, now_ns: int) -> SiteCell | None:
        """Move until now.

        Args:
            now_ns: Virtual time.

        Returns:
            The cell whose lane was finished on the way, if any.
        """
        elapsed_ns, self._moved_ns = now_ns - self._moved_ns, now_ns
        if self._flight_log:
            self._follow_log(now_ns)
            return None
        if self.mode is DroneMode.CHARGING:
            if now_ns < self._charged_ns:
                return None
            self.battery_ppm = MILLION
            self.mode = DroneMode.WAITING
        self._plan()
        if self.mode is DroneMode.WAITING:
            return None
        used = self._config.drain_ppm_s * elapsed_ns // _NS_PER_S
        self.battery_ppm = max(0, self.battery_ppm - used)
        return self._fly(self._config.speed_cm_s * elapsed_ns // _NS_PER_S, now_ns)

    def _plan(self) -> None:
        """Decide what to do next when nothing is under way; low battery overrides all."""
        if self.battery_ppm < self._config.reserve_ppm and self.mode is not DroneMode.RETURNING:
            self.mode = DroneMode.RETURNING
        elif self.mode is DroneMode.WAITING and self.queue:
            self.mode = DroneMode.TRANSIT

    def _fly(self, reach_cm: int, now_ns: int) -> SiteCell | None:
        finished: SiteCell | None = None
        while reach_cm > 0 and self.mode not in (DroneMode.WAITING, DroneMode.CHARGING):
            reach_cm = self._towards(self._target(), reach_cm)
            if self.position_cm != self._target():
                break
            finished = self._arrived(now_ns) or finished
        return finished

    def _target(self) -> tuple[int, int]:
        if self.mode is DroneMode.RETURNING or not self.queue:
            return self.home_cm
        return self.queue[0].start_cm if self.mode is DroneMode.TRANSIT else self.queue[0].end_cm

    def _towards(self, target: tuple[int, int], reach_cm: int) -> int:
        dx, dy = target[0] - self.position_cm[0], target[1] - self.position_cm[1]
        distance = isqrt(dx * dx + dy * dy)
        if distance <= reach_cm:
            self.position_cm = target
            self.distance_cm += distance
            return reach_cm - distance
        self.position_cm = (
            self.position_cm[0] + dx * reach_cm // distance,
            self.position_cm[1] + dy * reach_cm // distance,
        )
        self.distance_cm += reach_cm
        return 0

    def _arrived(self, now_ns: int) -> SiteCell | None:
        if self.mode is DroneMode.TRANSIT:
            self.mode = DroneMode.SCANNING
            return None
        if self.mode is DroneMode.SCANNING:
            self.mode = DroneMode.WAITING
            finished = self.queue.popleft()
            self._plan()
            return finished
        self.mode = DroneMode.CHARGING
        self._charged_ns = now_ns + self._config.charge_ns
        return None

    def _follow_log(self, now_ns: int) -> None:
        log = self._flight_log
        span = log[-1].at_ns - log[0].at_ns
        at_ns = log[0].at_ns + now_ns % max(1, span)
        if log[self._leg].at_ns > at_ns:
            self._leg = 0
        while self._leg + 2 < len(log) and log[self._leg + 1].at_ns <= at_ns:
            self._leg += 1
        a, b = log[self._leg], log[min(self._leg + 1, len(log) - 1)]
        leg_ns, done_ns = max(1, b.at_ns - a.at_ns), at_ns - a.at_ns
        self.position_cm = (
            a.east_cm + (b.east_cm - a.east_cm) * done_ns // leg_ns,
            a.north_cm + (b.north_cm - a.north_cm) * done_ns // leg_ns,
        )
        self.mode = DroneMode.SCANNING
