"""How boxes go on by themselves and with the camera, where no pose tells."""

import math
import random

import pytest

from swarmd_models.association import Box
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.motion import Motion, sway
from swarmd_models.tracker import Tracker
from swarmd_models.types import TrackEvent
from tests.support.bundles import seen

MS = 1_000_000
SIDE = 40.0


def _box(x: float, y: float) -> Box:
    return (x - SIDE / 2, y - SIDE / 2, x + SIDE / 2, y + SIDE / 2)


def _frame(tracker: Tracker, t_ms: int, places: list[tuple[float, float]]) -> list[TrackEvent]:
    found = [seen(x, y, size=SIDE) for x, y in places]
    return tracker.update(t_ms * MS, found, [None] * len(found), None, None)


def test_noise_does_not_become_a_velocity() -> None:
    """A velocity learned from the last two sights alone would be off by three sizes a second."""
    rng = random.Random(1)
    motion = Motion.begin(_box(0.0, 0.0), 0)
    for n in range(1, 26):
        motion.take(_box(n * 2.0 + rng.gauss(0, 3), rng.gauss(0, 3)), n * 40 * MS)
    x1, _, x2, _ = motion.box_at(26 * 40 * MS + 1000 * MS)
    # A second later, 25 frames of 2 pixels.
    assert (x1 + x2) / 2 == pytest.approx(102.0, abs=0.5 * SIDE)


def test_one_odd_sight_is_noise_and_two_are_a_turn() -> None:
    """Something hides half of a box for a frame; a thing that turns stays off its way."""
    speeds = []
    for turns in (1, 2):
        motion = Motion.begin(_box(0.0, 0.0), 0)
        for n in range(1, 20):
            motion.take(_box(n * 4.0, 0.0), n * 40 * MS)
        for n in range(turns):
            motion.take(_box(19 * 4.0, 20.0 * (n + 1)), (20 + n) * 40 * MS)
        speeds.append(motion.vy * 0.04)
    assert speeds[0] < 4.0
    assert speeds[1] > 12.0, "pixels a frame; the thing moves 20"


def test_a_sway_needs_witnesses_who_agree() -> None:
    assert sway([(10.0, 0.0, SIDE)] * 2) == (0.0, 0.0)
    assert sway([(1.0, 0.0, SIDE)] * 5) == (0.0, 0.0), "less than what detectors are off by"
    assert sway([(10.0, 0.0, SIDE), (-10.0, 0.0, SIDE), (0.0, 20.0, SIDE), (0.0, -20.0, SIDE)]) == (0.0, 0.0)
    assert sway([(10.0, 0.0, SIDE)] * 4 + [(-30.0, 5.0, SIDE)]) == (10.0, 0.0)


@pytest.mark.parametrize("fps", [8, 25])
def test_things_keep_their_ids_under_a_camera_that_sways(fps: int) -> None:
    """A gimbal without a pose: 1.2 sizes to either side, two and a half times in five seconds."""
    tracker = Tracker(TrackRule(min_hits=1))
    places = [(100.0, 100.0), (260.0, 140.0), (420.0, 90.0), (560.0, 200.0)]
    ids = set()
    for n in range(20 * fps):
        off = 1.2 * SIDE * math.sin(2 * math.pi * 0.4 * n / fps)
        ids |= {e.track_id for e in _frame(tracker, n * 1000 // fps, [(x + off, y) for x, y in places])}
    assert ids == {1, 2, 3, 4}


def test_what_is_hidden_goes_with_the_camera() -> None:
    """One of four is out of sight while the camera swings by two sizes and stays there: it is found where it is."""
    tracker = Tracker(TrackRule(min_hits=1))
    places = [(100.0, 100.0), (260.0, 140.0), (420.0, 90.0), (560.0, 200.0)]
    for n in range(10):
        _frame(tracker, n * 100, places)
    for n in range(5):
        off = min(n + 1, 4) * SIDE / 2
        _frame(tracker, 1000 + n * 100, [(x + off, y) for x, y in places[:3]])
    events = _frame(tracker, 1500, [(x + 2 * SIDE, y) for x, y in places])
    assert sorted(e.track_id for e in events) == [1, 2, 3, 4]
    assert len(tracker.finish()) == 4


def test_frames_of_one_moment_teach_no_velocity() -> None:
    tracker = Tracker(TrackRule(min_hits=1))
    places = [(100.0, 100.0), (260.0, 140.0), (420.0, 90.0)]
    for off in (0.0, 12.0, 24.0):
        found = [seen(x + off, y, size=SIDE) for x, y in places]
        tracker.update(round(off), found, [None] * 3, None, None)
    events = _frame(tracker, 40, [(x + 24.0, y) for x, y in places])
    assert {e.track_id for e in events} == {1, 2, 3}
