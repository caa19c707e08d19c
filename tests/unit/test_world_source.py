"""The simulated drone: it flies what it is told, shows what is there and believes what it says."""

import itertools
import math
import threading
import time

import numpy as np
import pytest

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import ground_to_pixel
from swarmd_models.types import Frame
from swarmd_sim.world.source import FarmSource, open_source

pytestmark = pytest.mark.slow


def read_all(source: FarmSource, limit: int = 5000) -> list[Frame]:
    frames = []
    while (frame := source.read()) is not None:
        frames.append(frame)
        assert len(frames) < limit
    return frames


def fly(source: FarmSource, frames: int) -> list[tuple[object, ...]]:
    events: list[tuple[object, ...]] = []
    for _ in range(frames):
        assert source.read() is not None
        events += source.poll_events()
    return events


def test_frames_are_grey_numbered_and_timed() -> None:
    frames = read_all(open_source("sim://farm?pace=max&frames=5&fps=20"))
    assert [f.index for f in frames] == [0, 1, 2, 3, 4]
    assert all(f.image.shape == (256, 320) and f.image.dtype == np.uint8 for f in frames)
    assert {b.captured_ns - a.captured_ns for a, b in itertools.pairwise(frames)} == {50_000_000}
    assert all(f.pose is not None and f.pose.captured_ns == f.captured_ns for f in frames)


def test_same_address_same_pixels() -> None:
    url = "sim://farm?pace=max&frames=6&seed=4&drone=2&of=3"
    one, two = read_all(open_source(url)), read_all(open_source(url))
    assert all(np.array_equal(a.image, b.image) for a, b in zip(one, two, strict=True))
    other = read_all(open_source(url.replace("drone=2", "drone=3")))
    assert not np.array_equal(one[0].image, other[0].image)


def test_drones_share_the_cells_without_gap_or_overlap() -> None:
    shares = []
    for drone in (1, 2, 3):
        source = open_source(f"sim://farm?pace=max&drone={drone}&of=3&tables=6&fps=4")
        read_all(source)
        shares += [e[1] for e in source.poll_events() if e[0] == "cell_done"]
    assert sorted(shares) == [cell.cell_id for cell in source.farm.cells]


def test_hovers_until_assigned_then_flies_in_order() -> None:
    source = open_source("sim://farm?pace=max&fly=claims&fps=10")
    before = source.state()
    assert fly(source, 5) == []
    assert math.dist((before.east_m, before.north_m), (source.state().east_m, source.state().north_m)) < 1.0
    source.assign("c02")
    source.assign("c03")
    source.assign("c03")
    events = fly(source, 90)
    assert [e[:2] for e in events] == [
        ("cell_reached", "c02"), ("cell_done", "c02"), ("cell_reached", "c03"), ("cell_done", "c03"),
    ]  # fmt: skip
    assert all(900 <= e[2] <= 1000 for e in events if e[0] == "cell_done")  # type: ignore[operator]
    assert source.state().cell_id == ""


def test_a_dropped_cell_is_not_done() -> None:
    source = open_source("sim://farm?pace=max&fly=claims")
    source.assign("c00")
    source.assign("c01")
    fly(source, 3)
    source.drop("c00")
    assert [e[1] for e in fly(source, 60) if e[0] == "cell_done"] == ["c01"]
    source.drop("c00")


def test_the_first_assignment_ends_the_own_round() -> None:
    source = open_source("sim://farm?pace=max&fly=auto")
    fly(source, 4)
    source.assign("c05")
    assert source.state().cell_id == "c05"


def test_quality_tells_of_missed_frames() -> None:
    source = open_source("sim://farm?pace=max&fly=claims&fps=1")
    source.assign("c00")
    done = [e for e in fly(source, 8) if e[0] == "cell_done"]
    assert done
    assert done[0][2] < 500  # type: ignore[operator]


def test_unknown_cell_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(SourceError, match="c00 to c23"):
        open_source("sim://farm").assign("c99")


def test_close_wakes_a_reader_and_may_be_repeated() -> None:
    source = open_source("sim://farm?fps=0.1")
    assert source.read() is not None
    answers: list[Frame | None] = []
    reader = threading.Thread(target=lambda: answers.append(source.read()))
    reader.start()
    source.close()
    source.close()
    reader.join(timeout=60)
    assert answers == [None]


def test_real_pace_never_runs_ahead_of_the_clock() -> None:
    source = open_source("sim://farm?fps=200")
    started = time.monotonic_ns()
    frames = [source.read() for _ in range(10)]
    assert time.monotonic_ns() - started >= 9 * 4_900_000
    assert all(f is not None and f.captured_ns <= time.monotonic_ns() for f in frames)


def test_battery_goes_down() -> None:
    source = open_source("sim://farm?pace=max&battery=0.5&drain=0.1")
    fly(source, 21)
    assert source.state().battery_milli == pytest.approx(300, abs=1)


def test_the_believed_pose_is_wrong_by_what_it_says() -> None:
    """Project every module by the believed pose and compare with where the true pose shows it, over many drones."""
    misses = []
    for seed in range(40):
        source = open_source(f"sim://farm?pace=max&frames=1&seed={seed}&fly=claims")
        frame = source.read()
        assert frame is not None
        assert frame.pose is not None
        assert source.intrinsics is not None
        drone = source._drone
        true = frame.pose.__class__(
            **{
                **{name: getattr(frame.pose, name) for name in frame.pose.__slots__},
                "latitude_deg": source.farm.to_wgs84(drone.east_m, drone.north_m)[0],
                "longitude_deg": source.farm.to_wgs84(drone.east_m, drone.north_m)[1],
            }
        )
        place = source.farm.to_wgs84(drone.east_m, drone.north_m + 2.0)
        a = ground_to_pixel(source.intrinsics, frame.pose, *place)
        b = ground_to_pixel(source.intrinsics, true, *place)
        assert a is not None
        assert b is not None
        misses.append((a[0] - b[0]) * 25.0 / source.intrinsics.fx / frame.pose.position_sigma_m)
    assert 0.6 < float(np.std(misses)) < 1.5


def test_wobble_stays_small_and_height_is_kept() -> None:
    frames = read_all(open_source("sim://farm?pace=max&frames=100"))
    assert all(f.pose is not None and abs(f.pose.height_agl_m - 25.0) < 2.0 for f in frames)
