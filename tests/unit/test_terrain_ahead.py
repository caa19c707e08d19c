"""Heights are read ahead: no frame waits for a file, and what has not been read is unknown ground."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.errors import SourceError
from swarmd_models.geo import ahead, apart
from swarmd_models.geo.ahead import AHEAD_M, RETRY_S, SLOW_S, ReadAhead
from swarmd_models.geo.apart import ReadApart
from swarmd_models.geo.geolocate import LEVEL, offset, ray_to_ground
from swarmd_models.geo.heights import Patch, open_heights
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.terrain import Terrain, TerrainRule
from swarmd_models.types import Pose
from tests.support.relief import write_hgt
from tests.unit.test_eye_terrain import AT, CAMERA, Drawn

PATIENCE_S = 60.0
"""Seconds after which a test gives a thread up: only one that is broken takes them."""


class Gated:
    """A reader that does not go on until the test says so; each patch has the place that was asked for as middle."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []
        self.gate, self.called = threading.Semaphore(0), threading.Semaphore(0)
        self.most = self.now = 0
        self.error: Exception | None = None

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        self.asked.append((latitude_deg, longitude_deg))
        self.now += 1
        self.most = max(self.most, self.now)
        self.called.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        self.now -= 1
        if self.error is not None:
            raise self.error
        drawn = Drawn(lambda east, north: 100.0).patch(*AT)
        south, west = latitude_deg - AT[0] + drawn.south_deg, longitude_deg - AT[1] + drawn.west_deg
        return Patch(south, west, drawn.step_deg, drawn.heights_m)


class Flight:
    """A camera over a model that is read ahead, with a clock of its own."""

    def __init__(self, level: bool = False) -> None:
        self.now_s = 0.0
        self.reader = Gated()
        self.ahead = ReadAhead(self.reader, lambda: self.now_s)
        self.terrain = Terrain(self.ahead, TerrainRule("drawn.tif", 0.0, level=level))
        self._begun: threading.Thread | None = None

    def at(self, north_m: float) -> Pose:
        """Once whoever was begun has called the reader."""
        pose = self.terrain.stand(make_pose(0, *offset(*AT, 0.0, north_m), 50.0, 0.0, -60.0, 0.0))
        if self.ahead._thread not in (None, self._begun):
            self._begun = self.ahead._thread
            assert self.reader.called.acquire(timeout=PATIENCE_S)
        return pose

    def read(self) -> None:
        """Let the patch that is wanted be read, and wait until it is."""
        thread = self.ahead._thread
        assert thread is not None, "nothing is being read"
        self.reader.gate.release()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_no_frame_waits_and_unread_ground_is_unknown() -> None:
    """The file gives nothing at all: frames go on, nothing is placed and each ray is counted."""
    flight = Flight()
    for _ in range(3):
        pose = flight.at(0.0)
        assert pose.ground_m is None
        assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, flight.terrain) is None
    assert dict(flight.terrain.counts) == {"unread": 3}
    assert flight.terrain.news() == "", "the first seconds are nobody's concern"
    flight.read()
    assert flight.at(0.0).ground_m == pytest.approx(100.0)
    assert len(flight.reader.asked) == 1


def test_who_wants_level_ground_has_it_meanwhile() -> None:
    flight = Flight(level=True)
    pose = flight.at(0.0)
    assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, flight.terrain) == ray_to_ground(
        CAMERA, pose, 320.0, 256.0, 1.0, LEVEL
    )
    flight.read()
    assert flight.at(0.0).ground_m == pytest.approx(100.0)


def test_the_next_patch_is_asked_for_before_the_last_ends() -> None:
    flight = Flight()
    flight.at(0.0)
    flight.read()
    assert flight.at(AHEAD_M - 10.0).ground_m is not None
    assert len(flight.reader.asked) == 1
    for north_m in (AHEAD_M + 10.0, AHEAD_M + 50.0, 600.0, 900.0):  # The last stays in use while the next is read.
        assert flight.at(north_m).ground_m == pytest.approx(100.0)
        assert len(flight.reader.asked) == 2
    flight.read()
    assert flight.at(900.0).ground_m == pytest.approx(100.0)
    assert flight.reader.most == 1


def test_rays_beyond_what_was_read_are_unread_and_not_outside() -> None:
    flight = Flight()
    flight.at(0.0)
    flight.read()
    pose = flight.terrain.stand(make_pose(0, *offset(*AT, 0.0, 1_480.0), 200.0, 0.0, -30.0, 0.0))
    assert pose.ground_m is not None
    assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, flight.terrain) is None
    assert flight.at(9_000.0).ground_m is None, "a jump"
    assert flight.terrain.problem == ""
    assert set(flight.terrain.counts) == {"unread"}


def test_one_patch_is_read_at_a_time_wherever_poses_jump() -> None:
    flight = Flight()
    for at in range(50):
        flight.at(5_000.0 * (at % 7))
    assert len(flight.reader.asked) == 1
    flight.read()
    flight.at(20_000.0)
    flight.read()
    assert flight.at(20_000.0).ground_m == pytest.approx(100.0)
    assert (len(flight.reader.asked), flight.reader.most) == (2, 1)


@pytest.mark.parametrize("error", [SourceError("it was pulled out"), MemoryError("no room"), ZeroDivisionError()])
def test_what_cannot_be_read_is_told_and_tried_again_later(error: Exception) -> None:
    flight = Flight()
    flight.reader.error = error
    flight.at(0.0)
    flight.read()
    for _ in range(20):
        assert flight.at(0.0).ground_m is None
    assert (str(error) or "ZeroDivisionError") in flight.terrain.news()
    assert len(flight.reader.asked) == 1, "a broken file is not read with every frame"
    flight.reader.error, flight.now_s = None, RETRY_S
    with_old_word = flight.at(0.0)
    assert with_old_word.ground_m is None
    flight.read()
    assert flight.at(0.0).ground_m == pytest.approx(100.0)
    assert flight.terrain.problem == ""


def test_the_last_patch_serves_while_the_next_cannot_be_read() -> None:
    flight = Flight()
    flight.at(0.0)
    flight.read()
    flight.reader.error = SourceError("it was pulled out")
    flight.at(AHEAD_M + 20.0)
    flight.read()
    assert flight.at(AHEAD_M + 20.0).ground_m == pytest.approx(100.0)
    assert flight.at(700.0).ground_m is None
    assert "pulled out" in flight.terrain.problem


def test_a_file_that_hangs_is_told() -> None:
    flight = Flight()
    flight.at(0.0)
    flight.now_s = SLOW_S + 1.0
    flight.at(0.0)
    assert "still being read after 10 s" in flight.terrain.news()
    flight.read()
    flight.at(0.0)
    assert flight.terrain.problem == ""


def test_no_room_for_a_thread_is_a_reason_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    flight = Flight()
    with monkeypatch.context() as patch:
        patch.setattr(ahead.threading.Thread, "start", start)
        assert flight.at(0.0).ground_m is None
        assert "can't start new thread" in flight.terrain.problem
    flight.now_s = RETRY_S
    flight.at(0.0)
    flight.read()
    assert flight.at(0.0).ground_m == pytest.approx(100.0)


def test_a_child_reads_what_one_would_read_oneself(tmp_path: Path) -> None:
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400.0 + 900.0 * (latitude - 47.0))
    mine, its = open_heights(path).patch(47.2, 8.2), ReadApart(path).patch(47.2, 8.2)
    assert (mine.south_deg, mine.west_deg, mine.step_deg) == (its.south_deg, its.west_deg, its.step_deg)
    assert np.array_equal(mine.heights_m, its.heights_m, equal_nan=True)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="has 0 bytes"):
        ReadApart(path).patch(47.2, 8.2)


def test_a_child_takes_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400.0)
    for name in ("numpy", "json", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    assert ReadApart(path).patch(47.2, 8.2).heights_m.max() == pytest.approx(400.0)


def test_a_child_that_dies_or_hangs_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script, limit_s, why in (("exit 3", 60.0, "ended with 3"), ("sleep 600", 0.1, "was not read within")):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\nexec {script}\n" if "sleep" in script else f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(apart.sys, "executable", str(program))
        monkeypatch.setattr(apart, "LIMIT_S", limit_s)
        with pytest.raises(SourceError, match=why):
            ReadApart(tmp_path / "any.tif").patch(47.2, 8.2)


LAWS: dict[str, Callable[[], None]] = {
    "waits": test_no_frame_waits_and_unread_ground_is_unknown,
    "ahead": test_the_next_patch_is_asked_for_before_the_last_ends,
    "unread": test_rays_beyond_what_was_read_are_unread_and_not_outside,
    "one": test_one_patch_is_read_at_a_time_wherever_poses_jump,
    "again": lambda: test_what_cannot_be_read_is_told_and_tried_again_later(SourceError("it was pulled out")),
}
"""For mutants."""


def test_a_pipe_in_the_place_of_a_tile_is_a_reason_and_holds_nobody(tmp_path: Path) -> None:
    reader = open_heights(write_hgt(tmp_path, 47, 8, lambda rows, columns: rows * 0.0))
    (tmp_path / "N47E008.hgt").unlink()
    os.mkfifo(tmp_path / "N47E008.hgt")
    with pytest.raises(SourceError, match="it is no regular file"):
        reader.patch(47.5, 8.5)
