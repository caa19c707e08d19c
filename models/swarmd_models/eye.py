"""The eye without I/O: frame, pose and time in, detections and track events out.

The daemon's child process and the simulator drive this same object.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from swarmd_models.backends.base import Announce
from swarmd_models.bundle import Bundle
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.geo.geolocate import (
    LEVEL,
    GroundFix,
    Intrinsics,
    Quaternion,
    extent_on_ground,
    is_usable,
    multiply,
    quaternion_from_euler,
    ray_to_ground,
)
from swarmd_models.geo.terrain import Terrain
from swarmd_models.looks import Looks
from swarmd_models.strange import StrangeJudge
from swarmd_models.tracker import Tracker
from swarmd_models.types import Detection, EyeResult, Frame, Image, Pose, TrackEvent

_PIXEL_SHARE = 0.1
"""A box's centre is known to about a tenth of its size."""


def _say_nothing(text: str) -> None:
    """The default for callers who do not care."""


@dataclass(frozen=True, slots=True)
class EyeOptions:
    """How to run the eye."""

    detector: DetectorOptions = field(default_factory=DetectorOptions)
    update_interval_ms: int = 0
    """At most one `update` of a track in this time."""
    min_hits: int = 0
    """Overrides the bundle's when greater than zero."""
    first_track_id: int = 1
    looks: bool = False
    """Whether events say how their things look (`looks.py`)."""
    reject: bool = False
    """Whether frames and detections of another world count for nothing (`strange.py`)."""
    looks_never: tuple[str, ...] = ()
    """Words in a label of which none does, beside those that are always private."""


class Eye:
    """A detector with a tracker behind it."""

    def __init__(self, detector: Detector, options: EyeOptions, intrinsics: Intrinsics | None = None) -> None:
        """Put the parts together; without `intrinsics` nothing is placed on the ground."""
        self._detector = detector
        self._options = options
        self._intrinsics = intrinsics
        self._boresight: Quaternion | None = None
        self._attitude_sigma_rad = 0.0
        self._terrain: Terrain | None = None
        interval_ns = options.update_interval_ms * 1_000_000
        self._tracker = Tracker(_rule(detector.bundle, options), interval_ns, options.first_track_id)
        self.strange: StrangeJudge | None = None
        """What has been rejected; None before the first frame, and where nothing is."""
        self._judged: Detector | None = None
        self._looks = Looks(options.looks_never) if options.looks else None

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        options: EyeOptions | None = None,
        intrinsics: Intrinsics | None = None,
        announce: Announce = _say_nothing,
    ) -> "Eye":
        """Load a bundle and be ready.

        Raises:
            ArtefactError: The model is of no kind that the eye can use.
            BackendError: No runtime could load it.
        """
        options = options or EyeOptions()
        return cls(Detector.open(bundle, options.detector, announce), options, intrinsics)

    def set_intrinsics(self, intrinsics: Intrinsics | None) -> None:
        """Tell which camera it is, once that is known."""
        self._intrinsics = intrinsics

    def set_boresight(self, boresight_deg: Sequence[float], sigma_deg: float = 0.0) -> None:
        """Tell how the camera is turned against what poses say of it.

        Args:
            boresight_deg: Yaw, pitch and roll in degrees, about the camera's own axes as its pose has them; or nothing.
            sigma_deg: How well it is known where the camera looks, its mount included; 0: as poses say.
        """
        self._attitude_sigma_rad = math.radians(sigma_deg)
        angles = [math.radians(angle) for angle in boresight_deg]
        self._boresight = quaternion_from_euler(*angles) if any(angles) else None

    @property
    def terrain(self) -> Terrain | None:
        """The height model in use."""
        return self._terrain

    def set_terrain(self, terrain: Terrain | None) -> None:
        """Tell what the ground is like; None: level."""
        self._terrain = terrain

    @property
    def detector(self) -> Detector:
        """The model in use."""
        return self._detector

    @property
    def bundle(self) -> Bundle:
        """What the model in use says of itself."""
        return self._detector.bundle

    @property
    def live_tracks(self) -> int:
        """Confirmed tracks."""
        return self._tracker.live_count

    def replace_detector(self, detector: Detector) -> Detector:
        """Swap the model between two frames; tracks live on.

        Returns:
            The old one, still loaded, for an instant return.
        """
        old, self._detector = self._detector, detector
        self._tracker.adopt(_rule(detector.bundle, self._options))
        return old

    def detect(self, image: Image) -> list[Detection]:
        """What the model sees in one picture, without tracking."""
        return self._detector.detect(image)

    def see(self, frame: Frame) -> EyeResult:
        """Take in one frame.

        Raises:
            FrameError: This frame cannot be used.
            BackendError: The runtime failed.
        """
        found = self._detector.detect(frame.image)
        if not self._options.reject:
            return self.follow(frame, found)
        started = time.perf_counter_ns()
        if self.strange is None or self._judged is not self._detector:
            before = self.strange.counts if self.strange is not None else None
            self._judged, self.strange = self._detector, StrangeJudge(self.bundle.reference, before)
        found, reason = self.strange.judge(frame.image, self._detector, found)
        judged_ns = time.perf_counter_ns() - started
        result = self.follow(frame, found)
        return replace(result, stage_ns={**result.stage_ns, "judge": judged_ns}, rejected=reason)

    def follow(self, frame: Frame, detections: list[Detection]) -> EyeResult:
        """Track what was detected in a frame; `see` without the model."""
        clock = time.perf_counter_ns
        started = clock()
        height, width = frame.image.shape[:2]
        camera = self._intrinsics
        intrinsics = camera.scaled_to(width, height) if camera is not None and camera.fits(width, height) else None
        pose = frame.pose
        if pose is not None and self._boresight is not None:
            pose = replace(pose, camera_to_ned=multiply(pose.camera_to_ned, self._boresight))
        if pose is not None and self._attitude_sigma_rad:
            pose = replace(pose, attitude_sigma_rad=self._attitude_sigma_rad)
        if pose is not None and self._terrain is not None:
            pose = self._terrain.stand(pose)
        fixes = self._locate(detections, pose, intrinsics)
        located = clock()
        events = self._tracker.update(frame.captured_ns, detections, fixes, pose, intrinsics)
        events = self._with_extents(events, pose, intrinsics)
        if self._looks is not None:
            events = self._looks.noted(frame.image, events)
        stages = dict(self._detector.stage_ns)
        stages["locate"], stages["track"] = located - started, clock() - located
        return EyeResult(frame.index, frame.captured_ns, detections, events, stages)

    def finish(self) -> list[TrackEvent]:
        """End every track: the source has ended."""
        return self._tracker.finish()

    def close(self) -> None:
        """Free the model."""
        self._detector.close()

    def _locate(
        self, detections: list[Detection], pose: Pose | None, intrinsics: Intrinsics | None
    ) -> list[GroundFix | None]:
        if pose is None or intrinsics is None or not is_usable(pose):
            return [None] * len(detections)
        at_bottom = self.bundle.track.ground_point == "bottom"
        fixes = []
        for detection in detections:
            x1, y1, x2, y2 = detection.whole_box or detection.box
            v = y2 if at_bottom else (y1 + y2) / 2
            sigma = max(1.0, _PIXEL_SHARE * max(x2 - x1, y2 - y1))
            fixes.append(ray_to_ground(intrinsics, pose, (x1 + x2) / 2, v, sigma, self._terrain or LEVEL))
        return fixes

    def _with_extents(
        self, events: list[TrackEvent], pose: Pose | None, intrinsics: Intrinsics | None
    ) -> list[TrackEvent]:
        """What is seen in this frame, with how far it reaches on the ground."""
        if pose is None or intrinsics is None or not is_usable(pose):
            return events
        ground = self._terrain or LEVEL
        return [
            event
            if event.kind == "end"
            else replace(event, extent_m=extent_on_ground(intrinsics, pose, event.box, ground))
            for event in events
        ]


def _rule(bundle: Bundle, options: EyeOptions) -> TrackRule:
    rule = bundle.track
    if options.min_hits <= 0:
        return rule
    return TrackRule(options.min_hits, rule.lost_ms, rule.static, rule.ground_point)
