"""The drones over the site: they fly the cells the swarm assigns, look down, and report to their nodes."""

from functools import partial
from typing import Protocol

from swarmd_protocols.state.observations import (
    CellAssigned,
    CellDone,
    CellLost,
    DefineCells,
    LocalDetection,
    Observed,
    WantCell,
)
from swarmd_sim.faults.links import LinkFaults
from swarmd_sim.radio.radio import Radio
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.world.motion import Drone, DroneMode
from swarmd_sim.world.site import Site

_WANT_EVERY_NS = 2_000_000_000
_QUALITY_MILLI = 900


class Eye(Protocol):
    """What a drone sees with: `detector.DetectorModel`, or `pixels.PixelEye`."""

    seen: set[str]
    alarms: list[tuple[int, int]]
    drift_cm: tuple[int, int]

    def look(self, east_cm: int, north_cm: int, captured_ns: int) -> list[LocalDetection]:
        """One look at the ground."""
        ...

    def look_away(self, captured_ns: int) -> list[LocalDetection]:
        """The drone looks at the ground no longer; what is to be shared of what it had in view."""
        ...

    def forget(self) -> None:
        """The process ended; what it had not told is lost."""
        ...

    def latency_ns(self) -> int:
        """How late this report is."""
        ...


class Fleet:
    """All drones of a run.

    Args:
        engine: Virtual time.
        choices: All randomness.
        radio: Told where the drones are.
        faults: Link faults, for the ledger.
        site: The ground.
        ledger: Told what was acknowledged.
        work: "claims", "lanes", "log" or "none".
        tick_ns: How often drones move and look.
        passes: For "lanes": drones that fly each cell.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Choices,
        radio: Radio,
        faults: LinkFaults,
        site: Site,
        ledger: Ledger,
        work: str,
        tick_ns: int,
        passes: int = 1,
    ) -> None:
        self._engine = engine
        self._choices = choices
        self._radio = radio
        self._faults = faults
        self._site = site
        self._ledger = ledger
        self._work = work
        self._tick_ns = tick_ns
        self._passes = passes
        self._until_ns = 0
        self._wanted_ns: dict[int, int] = {}
        self.drones: dict[int, Drone] = {}
        self._eyes: dict[int, Eye] = {}
        self._hosts: dict[int, Host] = {}
        self.paths: dict[int, list[tuple[int, int, int]]] = {}
        """(time ns, east cm, north cm) by host, about one a second, for the report's map."""

    def add(self, host: Host, drone: Drone, eye: Eye) -> None:
        """Give a host a drone.

        Args:
            host: Whose node it is.
            drone: The aircraft.
            eye: What it sees with.
        """
        self._hosts[host.index] = host
        self.drones[host.index] = drone
        self._eyes[host.index] = eye
        self.paths[host.index] = []

    def start(self, until_ns: int) -> None:
        """Begin to fly; each drone ticks at its own phase.

        Args:
            until_ns: No new reports after this, so that the swarm comes to rest.
        """
        self._until_ns = until_ns
        for index in self.drones:
            self._engine.at(self._choices.choose("fleet.phase", self._tick_ns), self._tick, index)

    def boot(self, host: Host) -> None:
        """A host's process begins: it learns the survey area from its configuration."""
        if self._work == "claims" and self._site.cells:
            cells = tuple((cell.cell_id, cell.east_cm, cell.north_cm) for cell in self._site.cells)
            host.command("state", DefineCells(cells))
        if host.index in self.drones:
            self._eyes[host.index].forget()
            drone = self.drones[host.index]
            drone.queue.clear()
            if drone.mode in (DroneMode.SCANNING, DroneMode.TRANSIT):
                drone.mode = DroneMode.WAITING
            if self._work == "lanes":
                at, count = list(self.drones).index(host.index), len(self.drones)
                done = self._ledger.cells_done if self._passes == 1 else ()
                for turn in range(min(self._passes, count)):
                    for cell in self._site.cells[(at + turn) % count :: count]:
                        if cell.cell_id not in done:
                            drone.assign(cell)
            self._wanted_ns.pop(host.index, None)

    def on_detail(self, host: Host, detail: object) -> None:
        """The node told its drone something."""
        drone = self.drones.get(host.index)
        if drone is None:
            return
        if isinstance(detail, CellAssigned):
            cell = self._site.cell_by_id.get(detail.cell_id)
            if cell is not None:
                drone.assign(cell)
        elif isinstance(detail, CellLost):
            drone.drop(detail.cell_id)

    def eyes(self) -> list[Eye]:
        """What the drones see with, by host."""
        return list(self._eyes.values())

    def seen(self) -> set[str]:
        """Faulty assets that any eye has reported."""
        return set().union(*(eye.seen for eye in self._eyes.values())) if self._eyes else set()

    def drift_cm(self, host: Host) -> tuple[int, int]:
        """By how much the places of a host's eye are wrong, east and north; nought where it has none."""
        eye = self._eyes.get(host.index)
        return (0, 0) if eye is None else eye.drift_cm

    def alarms(self) -> list[tuple[int, int]]:
        """Where any eye has reported what is not there, centimetres."""
        return [place for eye in self._eyes.values() for place in eye.alarms]

    def _tick(self, index: int) -> None:
        now_ns = self._engine.now_ns
        host, drone = self._hosts[index], self.drones[index]
        self._engine.at(now_ns + self._tick_ns, self._tick, index)
        if not host.machine_up:
            return
        scanning = drone.scanning
        finished = drone.advance(now_ns)
        if drone.position_cm != self._radio.position_cm(index):
            self._radio.place(index, drone.position_cm)
        path = self.paths[index]
        if not path or now_ns - path[-1][0] >= 1_000_000_000:
            path.append((now_ns, *drone.position_cm))
        if now_ns >= self._until_ns or not host.process_up:
            return
        if drone.scanning is not None or scanning is not None or drone.mode is DroneMode.SCANNING:
            self._look(host, drone)
        else:
            self._tell(host, self._eyes[index].look_away(host.clock.local_ns(now_ns)))
        if finished is not None:
            self._done(host, finished.cell_id)
        if self._work == "claims" and len(drone.queue) < 2:
            self._want(host, drone)

    def _want(self, host: Host, drone: Drone) -> None:
        now_ns = self._engine.now_ns
        if now_ns - self._wanted_ns.get(host.index, -_WANT_EVERY_NS) >= _WANT_EVERY_NS:
            self._wanted_ns[host.index] = now_ns
            east, north = drone.position_cm
            host.command("state", WantCell(east, north, drone.battery_ppm // 1_000))

    def _look(self, host: Host, drone: Drone) -> None:
        found = self._eyes[host.index].look(*drone.position_cm, host.clock.local_ns(self._engine.now_ns))
        self._tell(host, found)

    def _tell(self, host: Host, found: list[LocalDetection]) -> None:
        if found:
            due_ns = self._engine.now_ns + self._eyes[host.index].latency_ns()
            self._engine.at(due_ns, self._report, (host, host.boots, tuple(found)))

    def _report(self, what: tuple[Host, int, tuple[LocalDetection, ...]]) -> None:
        host, boot, found = what
        if host.boots == boot and host.process_up:
            host.command("state", Observed(found), partial(self._ledger.observed, host, found))

    def _done(self, host: Host, cell_id: str) -> None:
        self._ledger.flown(host, cell_id)
        host.command("state", CellDone(cell_id, _QUALITY_MILLI), partial(self._ledger.cell_done, host, cell_id))
