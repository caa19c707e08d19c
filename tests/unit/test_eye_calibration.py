"""Calibrations as others write them, and what a lens does to places; OpenCV is the judge."""

import math
import random
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd_models.errors import SourceError
from swarmd_models.geo.calibration import MAX_FILE_BYTES, misfit, parse_calibration, read_calibration
from swarmd_models.geo.geolocate import Intrinsics, enu_to_pixel, extent_on_ground, ray_to_ground
from swarmd_models.geo.lens import Distortion
from swarmd_models.geo.poses import make_pose

ROS = """image_width: 640
image_height: 480
camera_name: narrow_stereo
camera_matrix:
  rows: 3
  cols: 3
  data: [ 430.15, 0.0, 306.69,
          0.0, 430.53, 227.22,
          0.0, 0.0, 1.0]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [-0.337586, 0.111612, -0.000218, -0.000030, 0.0]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
projection_matrix:
  rows: 3
  cols: 4
  data: [430.15, 0.0, 306.69, 0.0, 0.0, 430.53, 227.22, 0.0, 0.0, 0.0, 1.0, 0.0]
"""
LENSES = [
    ((-0.36, 0.11, -0.0012, 0.0005, 0.02), False),
    ((-0.28, 0.07, 0.001, -0.002), False),
    ((0.1, -0.2, 0.001, 0.001, 0.05, 0.02, 0.01, 0.003), False),
    ((-0.02, 0.003, -0.001, 0.0002), True),
]


def test_a_file_of_rosses_calibrator() -> None:
    camera = parse_calibration(ROS)
    assert (camera.width, camera.height) == (640, 480)
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (430.15, 430.53, 306.69, 227.22)
    assert camera.distortion is not None
    assert camera.distortion.coefficients == (-0.337586, 0.111612, -0.000218, -0.00003, 0.0)


def test_a_file_that_opencv_writes(tmp_path: Path) -> None:
    path = tmp_path / "camera.yaml"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("image_width", 1280)
    storage.write("image_height", 720)
    storage.write("camera_matrix", np.array([[910.5, 0, 640.25], [0, 911.5, 355.0], [0, 0, 1]]))
    storage.write("distortion_coefficients", np.array([[-0.3, 0.1, 1e-3, -5e-4, 0.02]]))
    storage.write("extrinsic_parameters", np.zeros((3, 6)))
    storage.release()
    camera = read_calibration(path)
    assert (camera.fx, camera.cy, camera.width) == (910.5, 355.0, 1280)
    assert camera.distortion == Distortion.of((-0.3, 0.1, 1e-3, -5e-4, 0.02))


def test_dashes_names_in_other_cases_and_no_distortion_are_read_too() -> None:
    rows = "".join(f"- {number}\n" for number in (500, 0, 320, 0, 500, 256, 0, 0, 1))
    text = f"Image_Width: 640\nimage_height: 512\nK:\n{rows}D: [0, 0, 0, 0]\n"
    assert parse_calibration(text) == Intrinsics(500.0, 500.0, 320.0, 256.0, 640, 512)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("image_width: 640\n", "", "no image_width"),
        ("image_width: 640", "image_width: 640000", "image_width is"),
        ("image_width: 640", "image_width: 640\nimage_width: 320", "stands there twice"),
        ("430.15, 0.0, 306.69,\n", "430.15, 0.0,\n", "no camera_matrix of nine"),
        ("430.15, 0.0, 306.69,\n", "nan, 0.0, 306.69,\n", "no number"),
        ("430.15, 0.0, 306.69,\n", "1e999, 0.0, 306.69,\n", "without an end"),
        ("430.15, 0.0, 306.69,\n", "430.15, 9.0, 306.69,\n", "a skew of 9"),
        ("430.15, 0.0, 306.69,\n", "0.15, 0.0, 306.69,\n", "focal lengths"),
        ("430.15, 0.0, 306.69,\n", "430.15, 0.0, 3066.9,\n", "an axis at"),
        ("plumb_bob", "wavy", "distortion_model 'wavy'"),
        ("plumb_bob", "equidistant", "5 coefficients"),
        ("image_width: 640", "image_width: 640\nK: [1]", "which of them"),
    ],
)
def test_what_is_no_calibration_is_refused_by_name(old: str, new: str, sentence: str) -> None:
    assert old in ROS
    text = ROS.replace(old, new, 1)
    with pytest.raises(ValueError, match=sentence):
        parse_calibration(text)


def test_a_lens_that_folds_early_shows_nothing_beyond() -> None:
    camera = parse_calibration(ROS.replace("-0.337586", "-9.0"))
    assert camera.distortion is not None
    assert camera.distortion.reach < 0.3
    assert camera.pixel(0.5, 0.5) is None
    assert camera.ray(camera.cx + 0.6 * camera.fx, camera.cy) is None
    with pytest.raises(ValueError, match="leaves no picture"):
        parse_calibration(ROS.replace("-0.337586", "-900.0"))


def test_a_file_of_blanks_is_read_once() -> None:
    """Each of its lines is looked at once: a pattern that looked past them took minutes for these 250 kB."""
    blanks = " \n" * 60_000 + " " * 120_000
    with pytest.raises(ValueError, match="no camera_matrix of nine"):
        parse_calibration(f"image_width: 640\nimage_height: 480\nK:\n{blanks}\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "camera.yaml"
    with pytest.raises(SourceError, match="cannot read calibration"):
        read_calibration(path)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(SourceError, match="larger than"):
        read_calibration(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match="no text"):
        read_calibration(path)
    path.write_text("<opencv_storage/>")
    with pytest.raises(SourceError, match="XML"):
        read_calibration(path)


@pytest.mark.parametrize(("coefficients", "is_fisheye"), LENSES)
def test_a_lens_bends_as_opencv_says_and_back(coefficients: tuple[float, ...], is_fisheye: bool) -> None:
    rng, lens = random.Random(1), Distortion.of(coefficients, is_fisheye)
    project = cv2.fisheye.projectPoints if is_fisheye else cv2.projectPoints
    wide = 2.5 if is_fisheye else 0.7
    for _ in range(300):
        x, y = rng.uniform(-wide, wide), rng.uniform(-wide, wide)
        bent = lens.bend(x, y)
        assert bent is not None
        there, _ = project(np.array([[[x, y, 1.0]]]), np.zeros(3), np.zeros(3), np.eye(3), np.array(coefficients))
        assert bent == pytest.approx(tuple(there.ravel()), abs=1e-7)
        back = lens.undo(*bent)
        assert back is not None
        assert math.dist(back, (x, y)) < 1e-3 * (1 + x * x + y * y)


@pytest.mark.parametrize(("coefficients", "is_fisheye"), LENSES)
def test_a_place_seen_through_a_lens_is_the_place(coefficients: tuple[float, ...], is_fisheye: bool) -> None:
    plain = Intrinsics.from_hfov(60.0, 640, 512)
    camera = replace(plain, distortion=Distortion.of(coefficients, is_fisheye))
    pose = make_pose(0, 47.0, 8.0, 30.0, 30.0, -80.0, 2.0)
    for east, north in ((0.0, 5.0), (9.0, 12.0), (-8.0, -6.0)):
        pixel = enu_to_pixel(camera, pose, east, north)
        assert pixel is not None
        fix = ray_to_ground(camera, pose, *pixel)
        assert fix is not None
        assert (fix.east_m, fix.north_m) == pytest.approx((east, north), abs=0.01)
        without = ray_to_ground(plain, pose, *pixel)
        assert without is not None
        box = (pixel[0] - 5, pixel[1] - 5, pixel[0] + 5, pixel[1] + 5)
        assert extent_on_ground(camera, pose, box) is not None
    # What is not undone is off by metres in the corner of the last.
    assert math.dist((without.east_m, without.north_m), (east, north)) > 0.05


def test_a_pixel_counts_for_more_ground_where_a_lens_presses_the_picture_together() -> None:
    plain = Intrinsics.from_hfov(90.0, 640, 512)
    camera = replace(plain, distortion=Distortion.of((-0.2, 0.02, 0.0, 0.0)))
    pose = make_pose(0, 47.0, 8.0, 30.0, 0.0, -90.0, 0.0)
    still = replace(pose, attitude_sigma_rad=0.0)
    edge = enu_to_pixel(camera, still, 28.0, 0.0)
    assert edge is not None
    pressed = ray_to_ground(camera, still, *edge)
    free = ray_to_ground(plain, still, plain.cx + 28 / 30 * plain.fx, plain.cy)
    assert pressed is not None
    assert free is not None
    assert pressed.pixel_m2[0] > 1.5 * free.pixel_m2[0]


def test_frames_of_another_shape_are_not_placed() -> None:
    camera = parse_calibration(ROS)
    assert misfit(camera, 320, 240) == ""
    assert "640 x 480" in misfit(camera, 640, 360)


def test_a_number_without_an_end_costs_no_more_than_its_length() -> None:
    """With two ways to read each digit this took as good as forever, and the eye with it."""
    endless = "1" * (MAX_FILE_BYTES // 2)
    with pytest.raises(ValueError, match="no number"):
        parse_calibration(f"image_width: 640\nimage_height: 480\ncamera_matrix: [{endless}x]\n")
