"""Composed frames and the targets made of them."""

import numpy as np
import pytest

from swarmd_models.synthetic.compose import NoiseBank, Sensor, ground_texture, place_module
from swarmd_models.synthetic.pool import CropPool
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.staging import PER_FRAME, stage_crops
from swarmd_models.synthetic.targets import STRIDE, core_cells, grid_of, targets_of
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops

pytestmark = pytest.mark.slow

OPTIONS = SceneOptions()


def small_crops() -> Crops:
    """400 crops whose grey level tells which is which."""
    rng = np.random.default_rng(3)
    level = rng.integers(60, 200, 400)
    images = np.clip(level[:, None, None] + rng.normal(0, 2, (400, 40, 24)), 0, 255).astype(np.uint8)
    labels = (*FAULT_LABELS, NORMAL_LABEL)
    index = np.where(np.arange(400) % 2 == 0, 11, np.arange(400) % 11)
    return Crops(images, labels, index.astype(np.int64), (np.arange(400) % 5 == 4).astype(np.uint8))


@pytest.mark.parametrize("crops", [None, small_crops()])
def test_a_frame_depends_on_seed_and_number_alone(crops: Crops | None) -> None:
    one, two = SceneMaker(OPTIONS, 5, crops), SceneMaker(OPTIONS, 5, crops)
    first = one.scene(7)
    two.scene(3)
    again = two.scene(7)
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.boxes, again.boxes)
    assert not np.array_equal(first.image, SceneMaker(OPTIONS, 6, crops).scene(7).image)


def test_frames_hold_modules_of_the_nominal_size_and_about_the_asked_share() -> None:
    maker = SceneMaker(SceneOptions(fault_share=0.3, plain_share=0.0), 1)
    scenes = [maker.scene(index) for index in range(60)]
    labels = np.concatenate([s.label_index for s in scenes])
    boxes = np.concatenate([s.boxes for s in scenes])
    assert 0.25 < (labels >= 0).mean() < 0.35
    assert 40 < np.median(boxes[:, 2] - boxes[:, 0]) < 62
    assert 18 < np.median(boxes[:, 3] - boxes[:, 1]) < 30
    assert set(labels.tolist()) >= set(range(11))


def test_only_crops_of_the_asked_split_are_used() -> None:
    crops = small_crops()
    for split in (0, 1):
        maker = SceneMaker(SceneOptions(real_share=1.0), 2, crops, split=split)
        used = np.concatenate([maker.scene(i).crop_index for i in range(20)])
        assert set(crops.split[used].tolist()) == {split}


def test_the_truth_of_a_real_frame_is_its_crops_labels() -> None:
    crops = small_crops()
    maker = SceneMaker(SceneOptions(real_share=1.0), 4, crops)
    for index in range(10):
        scene = maker.scene(index)
        said = [FAULT_LABELS[i] if i >= 0 else NORMAL_LABEL for i in scene.label_index]
        assert said == [crops.labels[crops.label_index[c]] for c in scene.crop_index]


def test_a_pool_draws_near_the_level() -> None:
    crops = small_crops()
    pool, rng = CropPool(crops, 0, fault_share=0.4), np.random.default_rng(1)
    drawn = [pool.draw(120.0, rng) for _ in range(300)]
    medians = np.median(crops.images[drawn].reshape(300, -1), axis=1)
    assert np.abs(medians - 120).max() < 60
    healthy = [pool.draw(120.0, rng, healthy=True) for _ in range(100)]
    assert {crops.labels[crops.label_index[c]] for c in healthy} == {NORMAL_LABEL}


def test_targets_name_the_fault_at_its_centre_and_leave_its_rim_open() -> None:
    image = np.zeros((256, 320), np.uint8)
    boxes = np.array([[80, 60, 130, 82], [80, 83, 130, 105]], np.float32)
    targets = targets_of(Scene(image, boxes, np.array([3, -1]), np.array([-1, -1])))
    grid = grid_of(320, 256)
    centre = np.abs(grid - [105, 71]).max(axis=1) < 4
    assert targets.fault[centre].tolist() == [1.0] * int(centre.sum())
    assert targets.kind[centre].argmax(axis=1).tolist() == [3] * int(centre.sum())
    inside = (grid[:, 0] > 80) & (grid[:, 0] < 130) & (grid[:, 1] > 60) & (grid[:, 1] < 82)
    assert set(targets.weight[inside].tolist()) == {0.0, 1.0}
    below = core_cells(boxes[1], 40, 32)
    assert targets.weight[below].all()
    assert not targets.fault[below].any()
    assert (targets.distance[below] >= 0).all()
    left = targets.distance[below][:, 0] * STRIDE
    assert left.tolist() == pytest.approx((grid[below][:, 0] - 80).tolist())
    assert (targets.distance[~inside & (grid[:, 1] < 60)] == -1).all()


def test_a_teacher_softens_labels_but_is_silent_where_it_has_no_opinion() -> None:
    image, box = np.zeros((256, 320), np.uint8), np.array([[80, 60, 130, 82]], np.float32)
    soft = np.zeros((2, 12), np.float32)
    soft[0, 4], soft[0, 11] = 0.6, 0.4
    cells = core_cells(box[0], 40, 32)
    scene = Scene(image, box, np.array([3]), np.array([0]))
    targets = targets_of(scene, soft, trust=0.5)
    assert targets.fault[cells].tolist() == pytest.approx([0.8] * len(cells))
    assert targets.kind[cells[0], [3, 4]].tolist() == pytest.approx([0.5, 0.5])
    silent = targets_of(Scene(image, box, np.array([3]), np.array([1])), soft, trust=0.5)
    assert silent.fault[cells].tolist() == [1.0] * len(cells)


def test_every_judged_crop_is_staged_once_and_where_the_box_says() -> None:
    crops = small_crops()
    judged = np.flatnonzero(crops.split == 1)
    frames = list(stage_crops(crops, judged, OPTIONS))
    assert sorted(c for f in frames for c in f.crops) == sorted(judged.tolist())
    assert max(len(f.crops) for f in frames) == PER_FRAME
    for frame in frames[:5]:
        for crop, box in zip(frame.crops, frame.boxes, strict=True):
            x1, y1, x2, y2 = (round(float(v)) for v in box)
            assert 0 <= x1 < x2 <= 320
            assert 0 <= y1 < y2 <= 256
            inner = frame.image[y1 + 5 : y2 - 5, x1 + 8 : x2 - 8]
            assert abs(float(np.median(inner)) - float(np.median(crops.images[crop]))) < 6


def test_sensor_effects_are_as_strong_as_told() -> None:
    bank = NoiseBank(320, 256, np.random.default_rng(1))
    grey = np.full((256, 320), 100, np.uint8)
    rng = np.random.default_rng(2)
    clean = bank.apply(grey, Sensor(0.0, 0.0, vignette_levels=0.0), rng)
    assert (clean == 100).all()
    assert 1.8 < bank.apply(grey, Sensor(0.0, 2.0, vignette_levels=0.0), rng).std() < 2.4
    assert bank.apply(grey, Sensor(0.0, 0.0, gain=0.5, vignette_levels=0.0), rng)[0, 0] == 114
    assert bank.apply(np.full((256, 320), 250, np.uint8), Sensor(offset_levels=50.0), rng).max() == 255


def test_a_module_over_the_edge_is_cut() -> None:
    plan = ground_texture(60, 60, 100.0, np.random.default_rng(1))
    before = plan.copy()
    patch = np.full((22, 49), 5.0, np.float32)
    for row, column in ((-10, -20), (50, 40), (200, 0), (-100, -100)):
        place_module(plan, patch, 200.0, row, column)
    assert (plan[:12, :29] == 205.0).all()
    assert (plan[50:, 40:] == 205.0).all()
    assert np.array_equal(plan[12:50, 29:40], before[12:50, 29:40])
