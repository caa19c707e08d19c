"""Rendered traffic: a frame depends on its crossing and numbers alone, and what is said of it is so."""

from collections.abc import Callable

import numpy as np
import pytest

from swarmd_models.synthetic.scenes import Scene
from swarmd_models.synthetic.targets import grid_of, targets_of
from swarmd_recipes import traffic_scenes
from swarmd_recipes.crossing import HEIGHT, WIDTH, crossing_of
from swarmd_recipes.drawing import labels_of, maker_of
from swarmd_recipes.traffic_scenes import CAR, LABELS, PEDESTRIAN, TrafficMaker, TrafficOptions

OPTIONS = TrafficOptions()


def seen(maker: TrafficMaker, count: int = 24) -> list[Scene]:
    """Busy frames of three crossings."""
    return [maker.seen(10 + index % 3, index, 4.0, 2.0) for index in range(count)]


SCENES = seen(TrafficMaker(OPTIONS, 5))


def test_a_frame_depends_on_seed_crossing_and_number_alone() -> None:
    one, two = TrafficMaker(OPTIONS, 5), TrafficMaker(OPTIONS, 5)
    first = one.seen(11, 7)
    two.seen(11, 3)
    again = two.seen(11, 7)
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.boxes, again.boxes)
    assert not np.array_equal(first.image, TrafficMaker(OPTIONS, 6).seen(11, 7).image)
    assert not np.array_equal(first.image, one.seen(12, 7).image)


def test_no_two_cameras_look_at_one_crossing() -> None:
    crossings = [crossing_of(number) for number in range(4)]
    assert len({one.mast.height_m for one in crossings}) == len(crossings)
    assert len({one.picture.tobytes() for one in crossings}) == len(crossings)


def laws(scenes: list[Scene]) -> None:
    """What must be so of all frames."""
    boxes = np.concatenate([one.boxes for one in scenes])
    labels = np.concatenate([one.label_index for one in scenes])
    assert len(boxes) > 60
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= WIDTH).all()
    assert (boxes[:, 3] <= HEIGHT).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert set(labels.tolist()) == {-1, *range(len(LABELS))}
    wide = boxes[:, 2] - boxes[:, 0]
    assert np.median(wide[labels == CAR]) > 2.5 * np.median(wide[labels == PEDESTRIAN])
    assert {(scene.image.dtype, scene.image.shape) for scene in scenes} == {(np.dtype(np.uint8), (HEIGHT, WIDTH))}


def test_boxes_lie_in_the_frame_and_all_classes_come() -> None:
    laws(SCENES)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_box_holds_what_was_drawn(seed: int) -> None:
    """The crossing with one thing and without: what differs lies in the box, beside its shadow."""
    maker = TrafficMaker(OPTIONS, seed)
    number = next(number for number in range(20, 60) if not crossing_of(number).sun[2] and not crossing_of(number).rain)
    for index in range(40):
        scene = maker.seen(number, index, 1.0, 0.0)
        if len(scene.boxes) == 1:
            x1, y1, x2, y2 = scene.boxes[0].astype(int).tolist()
            empty = np.median([maker.seen(number, 500 + at, 0.0, 0.0).image for at in range(9)], axis=0)
            change = np.abs(scene.image.astype(float) - empty)
            inside = change[y1 : y2 + 1, x1 : x2 + 1].mean()
            change[max(0, y1 - 1) : y2 + 2, max(0, x1 - 1) : x2 + 2] = 0.0
            assert inside > 2.0 * change.mean()
            return
    raise AssertionError("no frame with one road user")


def _boxes_lag(patch: pytest.MonkeyPatch) -> None:
    whole = traffic_scenes._truth

    def shifted(*args: object) -> Scene:
        scene: Scene = whole(*args)  # type: ignore[arg-type]
        return Scene(scene.image, scene.boxes + np.float32(WIDTH), scene.label_index, scene.crop_index)

    patch.setattr(traffic_scenes, "_truth", shifted)


def _everybody_is_a_pedestrian(patch: pytest.MonkeyPatch) -> None:
    solids = traffic_scenes._solids
    patch.setattr(traffic_scenes, "_solids", lambda label, rng: solids(PEDESTRIAN, rng))


@pytest.mark.parametrize("mutant", [_boxes_lag, _everybody_is_a_pedestrian])
def test_frames_that_are_wrong_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        laws(seen(TrafficMaker(OPTIONS, 5)))


def test_training_frames_are_the_cameras_made_smaller_and_teach_five_classes() -> None:
    options = TrafficOptions(width=192, height=128, crossings=4)
    maker = maker_of(options, 5, None)
    assert labels_of(options) == LABELS
    scene = maker.scene(3)
    assert scene.image.shape == (128, 192)
    whole = maker_of(TrafficOptions(crossings=4), 5, None).scene(3)
    assert np.allclose(scene.boxes * 2, whole.boxes)
    targets = targets_of(scene, classes=len(LABELS))
    assert targets.kind.shape == (len(grid_of(192, 128)), len(LABELS))
    for box, label in zip(scene.boxes, scene.label_index, strict=True):
        if label >= 0:
            assert (targets.kind[targets.fault > 0, label] == 1.0).any(), box
