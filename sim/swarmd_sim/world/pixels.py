"""Pixels in the loop: frames rendered from where a simulated drone is, through the real eye and its real model.

The eye, its tracker, the geolocation and the asset rules are the daemon's own objects. What stays modelled is how long
a look takes (`detector.latency_ms`), so that a run does not depend on how fast this machine is. The same seed gives the
same run wherever the model's arithmetic is the same; across CPUs a score may differ in its last bit.
"""

import math
import random
from dataclasses import dataclass, replace

from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ModelError
from swarmd_models.eye import Eye
from swarmd_models.geo.geolocate import Intrinsics, quaternion_from_euler
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.geo.sitemap import Asset, SiteMap
from swarmd_models.synthetic.compose import Sensor, pixel_to_ground, rotation_from_euler
from swarmd_models.types import Frame, Pose
from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.errors import ScenarioError
from swarmd_sim.run.choices import Choices
from swarmd_sim.world.camera import CAMERA_TILT_RAD
from swarmd_sim.world.farm import Farm
from swarmd_sim.world.render import FarmView
from swarmd_sim.world.site import Site

_SENSOR = Sensor(blur_px=0.5, noise_levels=1.8, gain=1.0, offset_levels=0.0, vignette_levels=3.0)


@dataclass(frozen=True, slots=True)
class CameraConfig:
    """The camera of every drone."""

    width: int = 320
    height: int = 256
    hfov_deg: float = 32.13
    height_m: float = 25.0
    """Above ground."""
    position_sigma_m: float = 0.1
    """Error of the position that a drone knows, per axis."""
    attitude_sigma_rad: float = 0.003
    asset_probability: float = 0.9
    """As the daemon's `dedup.asset_probability`."""


class PixelEye:
    """The real eye of one simulated drone.

    Args:
        model: Bundle, such as "zoo:small-320".
        farm: What is rendered.
        site: The same farm as the checkers know it.
        site_map: Whether reports name assets.
        drone: Its number, for noise of its own.
        choices: All randomness.
        latency_ms: Equally likely times from capture to report.
        camera: The camera.

    Raises:
        ScenarioError: The model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        farm: Farm,
        site: Site,
        site_map: bool,
        drone: int,
        choices: Choices,
        latency_ms: tuple[int, ...],
        camera: CameraConfig | None = None,
    ) -> None:
        self._camera = camera or CameraConfig()
        self._farm = farm
        self._site = site
        self._choices = choices
        self._latency_ms = latency_ms
        self._lens = Intrinsics.from_hfov(self._camera.hfov_deg, self._camera.width, self._camera.height)
        self._view = FarmView(farm, self._camera.width, self._camera.height, seed=drone)
        self._rng: random.Random = choices.rng("eye.pose")
        try:
            bundle = load_bundle(model)
            if bundle.second is not None:  # Its time limit is of the wall clock, which a run must not hear.
                bundle = replace(bundle, second=replace(bundle.second, budget_ms=0.0))
            self._eye = Eye.open(bundle, intrinsics=self._lens)
        except ModelError as error:
            raise ScenarioError(f"detector.model {model!r}: {error}") from error
        self._digest = bundle.digest
        self._sightings = SightingFilter(
            LocalDetection, Plane(*farm.origin), _assets(farm) if site_map else None, self._camera.asset_probability
        )
        self.frames = 0
        """Rendered so far."""
        self.alarms: list[tuple[int, int]] = []
        """Unknown here: what a rendered picture makes the model see is nobody's draw."""
        self.drift_cm = (0, 0)
        """Its places err as its camera does, and have nothing in common."""
        self.seen: set[str] = set()
        """Faulty assets that this eye has reported."""

    def look(self, east_cm: int, north_cm: int, captured_ns: int) -> list[LocalDetection]:
        """Render one frame and let the eye look at it.

        Args:
            east_cm: Below the camera.
            north_cm: Below the camera.
            captured_ns: The node's monotonic clock.

        Returns:
            What is to be shared of it.
        """
        result = self._eye.see(self._frame(east_cm / 100, north_cm / 100, captured_ns))
        found = self._sightings.take(
            [self._sightings.place(event, self._digest, moving=False) for event in result.events]
        )
        for detection in found:
            if detection.kind != "end" and detection.east_cm is not None and detection.north_cm is not None:
                asset = self._site.asset_at(detection.east_cm, detection.north_cm)
                self.seen |= {module.asset for module in self._site.faults if module.asset == asset}
        return found

    def look_away(self, captured_ns: int) -> list[LocalDetection]:
        """Nothing: the tracker ends what has left the picture at the next frame."""
        return []

    def forget(self) -> None:
        """What was held back is lost; the tracker itself goes on, as its numbers must not come twice."""
        self._sightings.forget_all(0)

    def latency_ns(self) -> int:
        """How late this report is."""
        return self._latency_ms[self._choices.choose("eye.latency", len(self._latency_ms))] * 1_000_000

    def _frame(self, east_m: float, north_m: float, captured_ns: int) -> Frame:
        camera, gauss = self._camera, self._rng.gauss
        pitch = -math.pi / 2 + CAMERA_TILT_RAD
        rotation = rotation_from_euler(0.0, pitch, 0.0)
        image = self._view.frame(pixel_to_ground(self._lens, rotation, east_m, north_m, camera.height_m), _SENSOR)
        sigma = camera.position_sigma_m
        latitude, longitude = self._farm.to_wgs84(east_m + gauss(0.0, sigma), north_m + gauss(0.0, sigma))
        wobble = camera.attitude_sigma_rad
        look = quaternion_from_euler(gauss(0.0, wobble), pitch + gauss(0.0, wobble), gauss(0.0, wobble))
        pose = Pose(
            captured_ns=captured_ns,
            latitude_deg=latitude,
            longitude_deg=longitude,
            height_agl_m=camera.height_m,
            camera_to_ned=look,
            position_sigma_m=sigma,
            height_sigma_m=sigma,
            attitude_sigma_rad=wobble,
        )
        self.frames += 1
        return Frame(self.frames, captured_ns, image, pose)


def _assets(farm: Farm) -> SiteMap:
    return SiteMap([Asset(m.asset, m.east_m, m.north_m, m.width_m, m.depth_m) for m in farm.modules])
