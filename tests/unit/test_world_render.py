"""What the drone sees is what the farm has, where the farm has it."""

import numpy as np
import pytest

from swarmd_models.geo.geolocate import Intrinsics
from swarmd_models.synthetic.compose import Sensor, pixel_to_ground, project, rotation_from_euler
from swarmd_sim.world.farm import Farm
from swarmd_sim.world.render import FarmView

pytestmark = pytest.mark.slow

LENS = Intrinsics.from_hfov(32.13, 320, 256)
CLEAN = Sensor(blur_px=0.0, noise_levels=0.0, vignette_levels=0.0)


def seen(farm: Farm, east: float, north: float, **kwargs: float) -> np.ndarray:  # type: ignore[type-arg]
    rotation = rotation_from_euler(kwargs.get("yaw", 0.0), -np.pi / 2 + kwargs.get("tilt", 0.0), 0.0)
    return FarmView(farm, 320, 256).frame(pixel_to_ground(LENS, rotation, east, north, 25.0), CLEAN)


def test_modules_lie_where_the_map_says() -> None:
    """The darker module rectangle, within two pixels of its projection, for several tables."""
    farm = Farm.build(faults=0.0)
    for module in (farm.modules[20], farm.modules[5 * 40 + 20], farm.modules[23 * 40 + 20]):
        picture = seen(farm, module.east_m, module.north_m).astype(float)
        half = 1.1 / 25.0 * LENS.fx
        row = picture[128]
        left = int(np.argmin(np.diff(row[:160])[100:])) + 101  # From bright soil to the dark table.
        assert left == pytest.approx(160 - half, abs=2.0)


def test_a_hot_module_is_hot() -> None:
    farm = Farm.build(seed=1, faults=0.2)
    hot = next(m for m in farm.modules if m.label == "offline-module" and 5 < m.row < 35)
    picture = seen(farm, hot.east_m, hot.north_m).astype(float)
    assert picture[122:134, 145:175].mean() > picture[60:196, 145:175].mean() + 10


def test_yaw_turns_the_picture() -> None:
    farm = Farm.build(seed=2, faults=0.1)
    up, down = seen(farm, 60.0, 20.0), seen(farm, 60.0, 20.0, yaw=np.pi)
    assert np.abs(up.astype(int) - down[::-1, ::-1]).mean() < 3.0


@pytest.mark.parametrize(("east", "north"), [(-500.0, -500.0), (9000.0, 20.0), (60.0, 500.0)])
def test_beyond_the_farm_is_soil(east: float, north: float) -> None:
    picture = seen(Farm.build(), east, north)
    assert picture.shape == (256, 320)
    assert 120 < picture.mean() < 190


def test_a_camera_that_looks_far_ahead_costs_no_more_than_some_strips() -> None:
    assert seen(Farm.build(), 60.0, 20.0, tilt=1.2).shape == (256, 320)


def test_drawn_strips_are_bounded() -> None:
    farm = Farm.build(tables=600, modules=4)
    view = FarmView(farm, 64, 64)
    lens = Intrinsics.from_hfov(32.13, 64, 64)
    rotation = rotation_from_euler(0.0, -np.pi / 2, 0.0)
    for table in range(0, 600, 6):
        view.frame(pixel_to_ground(lens, rotation, table * 6.03, 5.0, 25.0), CLEAN)
    assert len(view._strips) <= 48


def test_homography_agrees_with_the_eyes_rays() -> None:
    from swarmd_models.geo.geolocate import quaternion_from_euler, ray_to_ground
    from swarmd_models.types import Pose

    yaw, pitch, roll = 0.3, -np.pi / 2 + 0.1, -0.05
    matrix = pixel_to_ground(LENS, rotation_from_euler(yaw, pitch, roll), 0.0, 0.0, 25.0)
    pose = Pose(0, 0.0, 0.0, 25.0, quaternion_from_euler(yaw, pitch, roll))
    for u, v in ((0.0, 0.0), (160.0, 128.0), (300.0, 20.0)):
        fix = ray_to_ground(LENS, pose, u, v)
        assert fix is not None
        assert project(matrix, np.array([[u, v]]))[0] == pytest.approx((fix.east_m, fix.north_m), abs=1e-6)
