"""A farm of real crops, and what four drones find of it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import lenient
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, draw_module
from swarmd_sim.world.address import FarmUrl
from swarmd_sim.world.crop_farm import plant
from swarmd_sim.world.farm import Farm
from swarmd_sim.world.source import FarmSource
from tests.bench import bench_flight


def _crops(count: int = 400) -> Crops:
    """Drawn modules in the form of real crops: portrait, half of them healthy, every other of split 1."""
    rng = np.random.default_rng(5)
    labels = (*FAULT_LABELS, NORMAL_LABEL)
    index = np.array([len(FAULT_LABELS) if i % 2 else (i // 2) % len(FAULT_LABELS) for i in range(count)], np.int64)
    images = [
        np.clip(np.rot90(draw_module("" if i % 2 else labels[index[i]], 24, 40, rng), -1) + 100 + i % 90, 0, 255)
        for i in range(count)
    ]
    split = (np.arange(count) // 2 % 2).astype(np.uint8)
    return Crops(np.array(images).astype(np.uint8), labels, index, split)


def test_a_plant_keeps_its_faults_places_and_shows_crops_of_one_split_and_level() -> None:
    crops, bare = _crops(), Farm.build(seed=3, tables=6, modules=20, faults=0.2)
    farm, scenery = plant(bare, crops, 1)
    assert [bool(m.label) for m in farm.modules] == [bool(m.label) for m in bare.modules]
    assert [(m.asset, m.east_m, m.north_m) for m in farm.modules] == [
        (m.asset, m.east_m, m.north_m) for m in bare.modules
    ]
    for module in farm.modules:
        crop = scenery.crops[module.asset]
        assert crops.split[crop] == 1
        assert crops.labels[crops.label_index[crop]] == (module.label or NORMAL_LABEL)
    assert len({module.label for module in farm.modules}) > 5
    again, other = plant(bare, crops, 1)[1], plant(dataclasses.replace(bare, seed=4), crops, 1)[1]
    assert again.crops == scenery.crops != other.crops
    assert all(np.array_equal(again.patches[asset], patch) for asset, patch in scenery.patches.items())


def test_a_drone_sees_the_crops_where_the_modules_stand() -> None:
    """The frame over a module is brighter by what its patch is brighter: the crop is what is rendered."""
    address = FarmUrl(seed=2, tables=2, modules=20, fly="lanes", pace="max", noise=0.0, frames=1)
    farm, scenery = plant(address.farm(), _crops(), 1)
    frames = []
    for lift in (0.0, 40.0):
        lifted = {asset: np.full_like(patch, lift) for asset, patch in scenery.patches.items()}
        frame = FarmSource(address, (farm, dataclasses.replace(scenery, level=100.0, patches=lifted))).read()
        assert frame is not None
        frames.append(frame.image.astype(int))
    difference = frames[1] - frames[0]
    assert difference.max() == pytest.approx(40, abs=3)
    assert np.quantile(difference, 0.05) <= 1, "soil and shadow stay"


def test_one_thing_counts_once_however_many_drones_saw_it() -> None:
    farm = dataclasses.replace(Farm.build(seed=1, tables=2, modules=10, faults=0.1))
    truth = [module for module in farm.modules if module.label]
    healthy = [module.asset for module in farm.modules if not module.label]
    flight = bench_flight.Flight(farm, {healthy[0]: 7, healthy[1]: 7}, [], None, (256, 320))
    figures = bench_flight.judge([flight], [{truth[0].asset, healthy[0], healthy[1], "ground 3 4"}])
    assert figures.recall == 0.5
    assert figures.false_per_1000 == pytest.approx(1000 * 3 / 18)
    assert figures.false_crops == 2


@pytest.mark.slow
@pytest.mark.shared
def test_four_drones_find_more_of_real_faults_at_a_looser_point(shared: Path) -> None:
    """Figures of many flights are in docs/performance/models.md; this one shows that they are of what flies."""
    bundle = load_bundle("zoo:small-320")
    crops = Crops.load(shared / "data/modules_ir/modules_ir_visible.npz")
    detector = Detector.open(lenient(bundle), DetectorOptions())
    flight = bench_flight.fly(detector, crops, bench_flight.VALIDATION, 0.15, seed=6, tables=8, modules=20)

    def eye() -> Eye:
        return Eye(detector, EyeOptions(), flight.intrinsics)

    found = {
        name: bench_flight.objects(flight, eye, bench_flight.at_thresholds(thresholds))
        for name, thresholds in bench_flight.points_of(bundle).items()
    }
    figures = {name: bench_flight.judge([flight], [things]) for name, things in found.items()}
    assert figures["0.1"].recall < figures["1"].recall <= figures["3"].recall <= figures["30"].recall
    assert figures["30"].recall >= 0.6
    assert figures["1"].false_per_1000 <= 10.0
    assert 0.5 < bench_flight.agreement([flight], eye) <= 1.0
    detector.close()
