"""The eye with a camera that is mounted askew, and with frames that its calibration does not fit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from swarmd.cli.detect import _boresight
from swarmd.errors import EyeError
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.geo.geolocate import (
    Intrinsics,
    enu_m,
    enu_to_pixel,
    multiply,
    quaternion_from_euler,
)
from swarmd_models.geo.poses import make_pose
from swarmd_models.types import Detection, Frame

CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
POSE = make_pose(0, 47.0, 8.0, 30.0, 40.0, -90.0, 0.0)


def _eye() -> Eye:
    detector = SimpleNamespace(bundle=SimpleNamespace(track=TrackRule(min_hits=1, static=True)), stage_ns={})
    return Eye(detector, EyeOptions(), CAMERA)  # type: ignore[arg-type]


def _place(eye: Eye, size: tuple[int, int] = (512, 640)) -> tuple[float, float] | None:
    """Where it says a thing is that stands 6 m east and 4 m north, seen by a camera 2 and 3 degrees askew."""
    turned = quaternion_from_euler(*np.radians((0.0, 2.0, 3.0)))
    truly = replace(POSE, camera_to_ned=multiply(POSE.camera_to_ned, turned))
    pixel = enu_to_pixel(CAMERA, truly, 6.0, 4.0)
    assert pixel is not None
    u, v = pixel
    seen = Detection(0, "thing", 0.9, (u - 8, v - 8, u + 8, v + 8))
    events = eye.follow(Frame(0, 0, np.zeros(size, np.uint8), POSE), [seen]).events
    position = events[0].position
    return None if position is None else enu_m(position.latitude_deg, position.longitude_deg, (47.0, 8.0))


def test_a_boresight_takes_the_mounting_out() -> None:
    eye = _eye()
    askew = _place(eye)
    assert askew is not None
    assert abs(askew[0] - 6.0) + abs(askew[1] - 4.0) > 1.0
    eye = _eye()
    eye.set_boresight((0.0, 2.0, 3.0))
    assert _place(eye) == pytest.approx((6.0, 4.0), abs=0.01)


def test_how_well_the_mount_is_known_is_what_a_place_claims() -> None:
    claims = []
    for sigma_deg in (0.0, 0.1, 3.0):
        eye = _eye()
        eye.set_boresight((), sigma_deg)
        seen = Detection(0, "thing", 0.9, (312, 248, 328, 264))
        still = replace(POSE, position_sigma_m=0.01, height_sigma_m=0.01)
        position = eye.follow(Frame(0, 0, np.zeros((512, 640), np.uint8), still), [seen]).events[0].position
        assert position is not None
        claims.append(position.covariance_m2[0] ** 0.5)
    assert claims[0] == pytest.approx(30.0 * POSE.attitude_sigma_rad, rel=0.02), "as the pose says"
    assert claims[1] < claims[0] / 4, "the pixel is what is left"
    assert claims[2] == pytest.approx(30.0 * np.radians(3.0), rel=0.02)


def test_frames_of_another_shape_have_no_places() -> None:
    eye = _eye()
    assert _place(eye, (256, 320)) is not None, "the same picture, read out smaller"
    eye = _eye()
    assert _place(eye, (360, 640)) is None


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1,2,nan", "1,2,inf", "1,2,361"])
def test_a_boresight_that_is_none(text: str) -> None:
    with pytest.raises(EyeError, match="give yaw, pitch and roll"):
        _boresight(text)
