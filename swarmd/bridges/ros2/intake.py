"""Detections of any ROS 2 detector on their way into the swarm: in three dimensions, or boxes in a picture.

Boxes become places by the camera's `CameraInfo` and the pose that this node had when the picture was taken: without
either there is a detection without a place, never a guess. Whatever does not make sense is dropped and counted; a
stranger on this host can write here too.

Source:
    sensor_msgs/CameraInfo: K is for the whole, unbinned sensor; the picture may be a region of it, binned. Distortion
    `plumb_bob` is Brown-Conrady (k1, k2, t1, t2, k3), `rational_polynomial` adds k4..k6 below the line, `equidistant`
    is a fisheye (`swarmd_models/geo/lens.py`).
"""

import math
import time
from collections import Counter
from typing import Any

from swarmd.api.daemon import PoseSeen
from swarmd.bridges.ros2 import messages as m
from swarmd_models.geo.geolocate import Intrinsics, pixel_to_ground
from swarmd_models.geo.lens import Distortion
from swarmd_models.geo.poses import PoseTrack
from swarmd_models.types import GroundPosition, Pose

DETECTIONS_IN_MAX = 200
"""Detections of one incoming message that are taken; more is a fault or an attack."""
UNKNOWN_VARIANCE_M2 = 2.25
"""Of an incoming position without covariance, square metres: a plain GNSS receiver."""
CAMERAS_MAX = 8
"""Cameras remembered by frame id."""
STAMP_MAX_NS = 5_000_000_000
"""A message stamped farther from now than this is taken as of now (a zero stamp, a clock that is off)."""
PIXEL_SHARE = 0.02
"""How well the middle of a box is known, as a share of its size; at least a pixel."""
_FAR_M = 1e5
"""Metres from the origin beyond which a detection in `map` is taken for a mistake: the plane is good to 100 km."""
_PIXEL_MAX = 65_536
"""Pixels; wider or higher than any camera's picture."""
_DISTORTIONS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}
_POSES = 128
"""Poses kept to find that of a frame: six seconds at 20 a second."""

Row = dict[str, object]


class Camera:
    """A pinhole camera with its distortion, as a CameraInfo tells it."""

    def __init__(self, info: m.CameraInfo) -> None:
        """Check and keep; raises `ValueError` for a calibration that cannot be used."""
        fx, fy, cx, cy = info.k[0], info.k[4], info.k[2], info.k[5]
        numbers = (fx, fy, cx, cy, *info.d)
        if not all(math.isfinite(number) for number in numbers) or min(fx, fy) <= 1.0 or max(fx, fy) > _PIXEL_MAX:
            raise ValueError("no focal length")
        if not (0 < info.width <= _PIXEL_MAX and 0 < info.height <= _PIXEL_MAX):
            raise ValueError("no size")
        wanted = _DISTORTIONS.get(info.distortion_model, 0)
        if any(info.d) and len(info.d) != wanted:
            raise ValueError("a distortion model that is not known")
        is_fisheye = info.distortion_model == "equidistant"
        self._lens = Distortion.of(tuple(info.d), is_fisheye) if any(info.d) else None
        self.intrinsics = Intrinsics(fx, fy, cx, cy, info.width, info.height)
        self._bin = max(1, info.binning_x), max(1, info.binning_y)
        self._offset = info.roi.x_offset, info.roi.y_offset

    def undistorted(self, u: float, v: float) -> tuple[float, float] | None:
        """The pixel of an ideal camera; None where the distortion cannot be undone."""
        k = self.intrinsics
        x = (u * self._bin[0] + self._offset[0] - k.cx) / k.fx
        y = (v * self._bin[1] + self._offset[1] - k.cy) / k.fy
        ray = (x, y) if self._lens is None else self._lens.undo(x, y)
        return None if ray is None else (ray[0] * k.fx + k.cx, ray[1] * k.fy + k.cy)


class Intake:
    """Turns messages into rows for the control verb `observe`; no I/O."""

    def __init__(self, ground_point: str) -> None:
        """Know no camera and no pose.

        Args:
            ground_point: "center" or "bottom": the point of a box that stands on the ground.
        """
        self._at_bottom = ground_point == "bottom"
        self._cameras: dict[str, Camera] = {}
        self._poses = PoseTrack(keep=_POSES)
        self.counts: Counter[str] = Counter()

    def on_pose(self, pose: PoseSeen) -> None:
        """Remember where the camera was."""
        if pose.camera_to_ned is None:
            return
        self._poses.push(
            Pose(
                captured_ns=pose.captured_ns,
                latitude_deg=pose.latitude_deg,
                longitude_deg=pose.longitude_deg,
                height_agl_m=pose.height_agl_m,
                camera_to_ned=pose.camera_to_ned,
                position_sigma_m=pose.position_sigma_m,
                has_fix=pose.has_fix,
            )
        )

    def on_camera(self, info: m.CameraInfo) -> None:
        """Remember a calibration, by its frame id."""
        try:
            camera = Camera(info)
        except ValueError:
            self.counts["dropped_camera"] += 1
            return
        name = info.header.frame_id
        if name not in self._cameras and len(self._cameras) >= CAMERAS_MAX:
            del self._cameras[next(iter(self._cameras))]
        self._cameras[name] = camera
        self.counts["cameras"] = len(self._cameras)

    def rows3(self, message: m.Detection3DArray) -> list[Row]:
        """Detections that come with their place."""
        return self._rows(message.detections, _row3)

    def rows2(self, message: m.Detection2DArray) -> list[Row]:
        """Boxes: placed where camera and pose are known."""
        pose = self._poses.at(captured_ns(message.header.stamp))
        camera = self._camera(message.header.frame_id)

        def row(one: m.Detection2D) -> Row | None:
            return self._row2(one, camera, pose)

        return self._rows(message.detections, row)

    def _rows(self, detections: list[Any], row: Any) -> list[Row]:
        self.counts["received"] += 1
        if len(detections) > DETECTIONS_IN_MAX:
            self.counts["dropped_oversized"] += 1
            return []
        found = [entry for one in detections if (entry := row(one)) is not None]
        self.counts["dropped_malformed"] += len(detections) - len(found)
        return found

    def _camera(self, frame_id: str) -> Camera | None:
        """By name; a detector that renames frames may still mean the only camera there is."""
        if frame_id in self._cameras:
            return self._cameras[frame_id]
        return next(iter(self._cameras.values())) if len(self._cameras) == 1 else None

    def _row2(self, one: m.Detection2D, camera: Camera | None, pose: Pose | None) -> Row | None:
        found = _best(one.results)
        centre, sizes = one.bbox.center.position, (one.bbox.size_x, one.bbox.size_y)
        numbers = (centre.x, centre.y, *sizes)
        if found is None or not all(math.isfinite(number) and abs(number) <= _PIXEL_MAX for number in numbers):
            return None
        if min(sizes) < 0:
            return None
        row: Row = {"label": found[0], "score": found[1], "track": one.id[:64]}
        v = centre.y + sizes[1] / 2 if self._at_bottom else centre.y
        sigma = max(1.0, PIXEL_SHARE * max(sizes))
        place = None if camera is None else _place(camera, pose, centre.x, v, sigma)
        self.counts["placed" if place is not None else "without_place"] += 1
        if place is not None:
            row |= {"latitude_deg": place.latitude_deg, "longitude_deg": place.longitude_deg}
            row["covariance_m2"] = list(place.covariance_m2)
        return row


def captured_ns(stamp: m.Time) -> int:
    """A ROS stamp on the monotonic clock; now where it lies farther off than any picture is late."""
    age_ns = time.time_ns() - (stamp.sec * 1_000_000_000 + stamp.nanosec)
    return time.monotonic_ns() - (age_ns if abs(age_ns) <= STAMP_MAX_NS else 0)


def _place(camera: Camera, pose: Pose | None, u: float, v: float, sigma: float) -> GroundPosition | None:
    pixel = camera.undistorted(u, v)
    return None if pixel is None else pixel_to_ground(camera.intrinsics, pose, *pixel, sigma)


def _best(results: list[Any]) -> tuple[str, float, Any] | None:
    """(label, score, hypothesis) of the most likely class; None when there is none that makes sense."""
    if not results or len(results) > DETECTIONS_IN_MAX:
        return None
    best = max(results, key=lambda result: result.hypothesis.score)
    label, score = best.hypothesis.class_id, best.hypothesis.score
    if not (math.isfinite(score) and 0 <= score <= 1) or not 0 < len(label) <= 64:
        return None
    return label, score, best


def _row3(one: m.Detection3D) -> Row | None:
    """One incoming detection as the control verb `observe` takes it; None when it makes no sense."""
    found = _best(one.results)
    place = one.bbox.center.position
    if found is None or not (math.isfinite(place.x) and math.isfinite(place.y)):
        return None
    if max(abs(place.x), abs(place.y)) > _FAR_M:
        return None
    covariance = _covariance(found[2].pose.covariance)
    if covariance is None:
        return None
    return {
        "label": found[0],
        "score": found[1],
        "east_m": place.x,
        "north_m": place.y,
        "covariance_m2": covariance,
        "track": one.id[:64],
    }


def _covariance(matrix: Any) -> list[float] | None:
    """The east-north part of a 6 x 6; all zero is how ROS says "unknown"; None when it is no covariance."""
    ee, en, nn = matrix[0], matrix[1], matrix[7]
    if not (ee or en or nn):
        return [UNKNOWN_VARIANCE_M2, 0.0, UNKNOWN_VARIANCE_M2]
    good = all(math.isfinite(number) for number in (ee, en, nn)) and min(ee, nn) > 0 and en * en < ee * nn
    return [ee, en, nn] if good and max(ee, nn) <= 1e8 else None
