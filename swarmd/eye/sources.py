"""Which source a description means in the eye process: everything `swarmd_models` reads, and `sim://`.

The simulated world is imported only when a `sim://` source is asked for.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from swarmd.eye.ipc import Configure
from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import quaternion_from_euler
from swarmd_models.sources import IMAGE_SUFFIXES, ReconnectingSource, SourceOptions, is_live, open_source
from swarmd_models.types import FrameSource, Pose

_NADIR = quaternion_from_euler(0.0, -math.pi / 2, 0.0)


@runtime_checkable
class MovingSource(Protocol):
    """A source that can be sent somewhere: a simulated drone."""

    def assign(self, cell_id: str) -> None:
        """Survey this cell after those assigned before."""
        ...

    def drop(self, cell_id: str) -> None:
        """Do not survey this cell any more."""
        ...

    def poll_events(self) -> list[tuple[Any, ...]]:
        """("cell_reached", id) and ("cell_done", id, quality in thousandths) since the last call."""
        ...


def open_eye_source(config: Configure, report: Callable[[str], None], is_patient: bool = True) -> FrameSource:
    """Open the source; a live one is opened again whenever it goes.

    Args:
        config: Names the source.
        report: Told each time a live source has gone, and "" when its frames come again.
        is_patient: Whether a live source is waited for before its first frame.

    Raises:
        SourceError: It cannot be opened and will not come back by itself.
    """
    if config.source.startswith("sim:"):
        return _open_simulated(config.source)
    options = SourceOptions(paced=config.paced, loop=config.loop)
    if is_live(config.source):
        return ReconnectingSource(lambda: open_source(config.source, options), report, is_patient=is_patient)
    return open_source(config.source, options)


def whereabouts(source: FrameSource | None, last: Pose | None) -> tuple[Pose | None, int, str]:
    """(pose, battery in thousandths or -1, cell): of a moving source by its own word, else by its newest frame."""
    state = getattr(source, "state", None)
    farm = getattr(source, "farm", None)
    if state is None or farm is None:
        return last, -1, ""
    drone = state()
    latitude, longitude = farm.to_wgs84(drone.east_m, drone.north_m)
    attitude = last.camera_to_ned if last is not None else _NADIR
    now_ns = time.monotonic_ns()
    pose = Pose(now_ns, latitude, longitude, max(float(drone.height_m), 0.1), attitude)
    return pose, int(drone.battery_milli), str(drone.cell_id)


def wants_every_frame(config: Configure) -> bool:
    """Whether frames wait for the model (pictures, files read as fast as possible) or are replaced by newer ones."""
    if config.source.startswith("sim:"):
        return "pace=max" in config.source
    path = Path(config.source)
    if path.suffix.lower() in IMAGE_SUFFIXES or path.is_dir():
        return True  # Pictures have no pace of their own.
    return not config.paced and not is_live(config.source)


def _open_simulated(url: str) -> FrameSource:
    from swarmd_sim.world import source as world

    try:
        opened: FrameSource = world.open_source(url)
    except (ValueError, KeyError) as error:
        raise SourceError(f"{url} cannot be opened: {error}") from error
    return opened
