"""`sim://farm?…` as a frame source: a drone that flies its share of lanes, or the cells that it is assigned."""

import random
import threading
import time

import numpy as np

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import Intrinsics, quaternion_from_euler
from swarmd_models.synthetic.compose import Sensor, pixel_to_ground, rotation_from_euler
from swarmd_models.types import Frame, Pose
from swarmd_sim.world.address import FarmUrl, parse_farm_url
from swarmd_sim.world.camera import Drone, DroneState
from swarmd_sim.world.crop_farm import Scenery
from swarmd_sim.world.farm import Cell, Farm
from swarmd_sim.world.render import FarmView

__all__ = ["FarmSource", "FarmUrl", "open_source", "parse_farm_url"]

_MAX_STEP_S = 0.5
_NS = 1_000_000_000


class FarmSource:
    """Frames of one simulated drone. `read` belongs to one thread; the other methods may be called from any."""

    def __init__(self, address: FarmUrl, planted: tuple[Farm, Scenery] | None = None) -> None:
        """Take off.

        Args:
            address: What to fly; see `FarmUrl`.
            planted: A farm of real crops (`crop_farm.plant`) in place of the address's own.

        Raises:
            SourceError: The farm cannot be laid out.
        """
        self.address = address
        try:
            self.farm: Farm = address.farm() if planted is None else planted[0]
        except ValueError as error:
            raise SourceError(f"sim://farm: {error}") from error
        width, height = address.frame_size
        self.intrinsics: Intrinsics | None = Intrinsics.from_hfov(address.hfov, width, height)
        self._lens = self.intrinsics
        self._view = FarmView(
            self.farm, width, height, seed=address.drone, scenery=None if planted is None else planted[1]
        )
        share = self._share()
        rng = random.Random(f"drone/{address.seed}/{address.drone}/{address.of}")
        start = share[0].start if share else (0.0, 0.0)
        self._drone = Drone(
            self.farm, start, address.speed, address.height, address.position_sigma, address.attitude_sigma, rng
        )
        self._sensor_phase = rng.uniform(0.0, 6.28)
        self._lock = threading.Lock()
        self._by_lanes = address.fly != "claims"
        self._laps_left = address.laps
        self._closed = threading.Event()
        self._index = 0
        self._started_ns = time.monotonic_ns()
        self._now_ns = self._started_ns
        if self._by_lanes:
            self._next_lap()

    # --- Frames -----------------------------------------------------------------------------------------------------

    def read(self) -> Frame | None:
        """The next frame; None when the share is flown, the frame limit is reached, or after `close`."""
        period_ns = int(_NS / self.address.fps)
        if self._closed.is_set() or (self.address.frames and self._index >= self.address.frames):
            return None
        due_ns = self._now_ns + period_ns if self._index else self._now_ns
        if self.address.pace == "real":
            wait_s = (due_ns - time.monotonic_ns()) / _NS
            if wait_s > 0 and self._closed.wait(wait_s):
                return None
            due_ns = max(due_ns, time.monotonic_ns())
        with self._lock:
            self._advance(due_ns)
            if self._by_lanes and self._drone.idle and not self._next_lap():
                return None
            frame = self._shoot()
            self._drone.count_frame()
        self._index += 1
        return frame

    def close(self) -> None:
        """End the source; a `read` that waits returns None."""
        self._closed.set()

    def _advance(self, due_ns: int) -> None:
        """Move on to a time, in steps short enough for the wandering errors."""
        left_s = (due_ns - self._now_ns) / _NS
        self._now_ns = due_ns
        while left_s > 0:
            step_s = min(left_s, _MAX_STEP_S)
            self._drone.advance(step_s)
            left_s -= step_s

    def _shoot(self) -> Frame:
        drone = self._drone
        true = drone.attitude()
        rotation = rotation_from_euler(true.yaw, true.pitch, true.roll)
        to_ground = pixel_to_ground(self._lens, rotation, drone.east_m, drone.north_m, drone.height_m)
        image = self._view.frame(to_ground, self._sensor())
        east, north, height = drone.believed_position()
        latitude, longitude = self.farm.to_wgs84(east, north)
        look = drone.believed_attitude()
        pose = Pose(
            captured_ns=self._now_ns,
            latitude_deg=latitude,
            longitude_deg=longitude,
            height_agl_m=height,
            camera_to_ned=quaternion_from_euler(look.yaw, look.pitch, look.roll),
            position_sigma_m=drone.position_sigma_m,
            height_sigma_m=drone.height_sigma_m,
            attitude_sigma_rad=drone.attitude_sigma_rad,
        )
        return Frame(self._index, self._now_ns, image, pose)

    def _sensor(self) -> Sensor:
        """Gain and offset breathe slowly, as automatic gain control does."""
        t = (self._now_ns - self._started_ns) / _NS
        noise = self.address.noise
        return Sensor(
            blur_px=0.5,
            noise_levels=1.8 * noise,
            gain=1.0 + 0.05 * noise * float(np.sin(0.5 * t + self._sensor_phase)),
            offset_levels=5.0 * noise * float(np.sin(0.31 * t + 2.0 * self._sensor_phase)),
            vignette_levels=3.0 * noise,
        )

    # --- Work -------------------------------------------------------------------------------------------------------

    def assign(self, cell_id: str) -> None:
        """Fly this cell after those already assigned.

        Raises:
            SourceError: The farm has no such cell.
        """
        cell = self.farm.cell(cell_id)
        if cell is None:
            last = self.farm.cells[-1].cell_id
            raise SourceError(f"cell {cell_id!r} is not of this farm; its cells are c00 to {last}")
        with self._lock:
            if self._by_lanes and self.address.fly == "auto":
                self._by_lanes = False
                for other in self.farm.cells:
                    self._drone.drop(other.cell_id)
            self._drone.assign(cell)

    def drop(self, cell_id: str) -> None:
        """Stop working on a cell, or never begin it."""
        with self._lock:
            self._drone.drop(cell_id)

    def poll_events(self) -> list[tuple[str, str] | tuple[str, str, int]]:
        """("cell_reached", cell id) and ("cell_done", cell id, quality in thousandths) since the last call."""
        with self._lock:
            return self._drone.take_events()

    def state(self) -> DroneState:
        """Where the drone believes to be, and its battery."""
        with self._lock:
            east, north, height = self._drone.believed_position()
            used = self.address.drain * (self._now_ns - self._started_ns) / _NS
            battery = round(1000 * max(0.0, self.address.battery - used))
            return DroneState(east, north, height, battery, self._drone.cell_id)

    def _share(self) -> list[Cell]:
        """This drone's cells: an equal run of them, lane by lane, each lane the other way round."""
        cells = list(self.farm.cells)
        first = (self.address.drone - 1) * len(cells) // self.address.of
        last = self.address.drone * len(cells) // self.address.of
        lanes: dict[float, list[Cell]] = {}
        for cell in cells[first:last]:
            lanes.setdefault(cell.east_m, []).append(cell)
        return [cell for i, lane in enumerate(lanes.values()) for cell in (lane if i % 2 == 0 else lane[::-1])]

    def _next_lap(self) -> bool:
        """Queue the own share once more; False when all laps are flown."""
        share = self._share()
        if not share or (self.address.laps and self._laps_left <= 0):
            return False
        self._laps_left -= 1
        for cell in share:
            self._drone.assign(cell)
        return True


def open_source(url: str) -> FarmSource:
    """Open `sim://farm?drone=1&of=4&seed=7&faults=0.02&…`.

    Raises:
        SourceError: The address is none of ours; the message says what would be.
    """
    return FarmSource(parse_farm_url(url))
