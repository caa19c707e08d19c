"""How far a tracked box reaches on the ground: from the eye's frame to what the daemon answers about a track."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from swarmd.api.histogram import Histogram
from swarmd.brain.track_feed import TrackFeed
from swarmd.eye.ipc import FrameDone
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.geo.geolocate import Intrinsics
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.types import Detection, Frame, Pose
from swarmd_protocols.state.observations import LocalDetection

CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
HEIGHT_M = 30.0
METRE_PX = CAMERA.fx / HEIGHT_M
BOX = (300.0, 200.0, 300.0 + 2 * METRE_PX, 200.0 + METRE_PX)


def eye(intrinsics: Intrinsics | None) -> Eye:
    detector: Any = SimpleNamespace(bundle=SimpleNamespace(track=TrackRule(min_hits=1)), stage_ns={})
    return Eye(detector, EyeOptions(min_hits=1), intrinsics)


@pytest.mark.parametrize(
    ("intrinsics", "pose", "extent_m"),
    [
        (CAMERA, make_pose(0, -18.88, -70.11, HEIGHT_M, 0.0, -90.0, 0.0), (2.0, 1.0)),
        (CAMERA, make_pose(0, -18.88, -70.11, HEIGHT_M, 0.0, 10.0, 0.0), None),
        (CAMERA, None, None),
        (None, make_pose(0, -18.88, -70.11, HEIGHT_M, 0.0, -90.0, 0.0), None),
    ],
    ids=["looking down", "at the sky", "no pose", "no camera"],
)
def test_a_track_says_how_far_it_reaches(
    intrinsics: Intrinsics | None, pose: Pose | None, extent_m: tuple[float, float] | None
) -> None:
    frame = Frame(1, 1_000_000_000, np.zeros((512, 640, 3), np.uint8), pose)
    result = eye(intrinsics).follow(frame, [Detection(0, "hot-spot", 0.9, BOX)])
    (event,) = result.events
    assert event.extent_m == (None if extent_m is None else pytest.approx(extent_m, rel=1e-6))
    sightings = SightingFilter(LocalDetection, Plane(-18.88, -70.11), None, 0.95)
    feed = TrackFeed(sightings, lambda request: None, Histogram(), moving=False)
    events = tuple(result.events)
    feed.take(FrameDone(1, 1_000_000_000, 1_000_000_000, 1, 0.9, events, {}, width=640, height=512), "ab" * 32)
    look = feed.look(event.track_id)
    assert look is not None
    assert look.extent_m == event.extent_m
