"""How alike looks are: estimated from pairs, of drawn days or of a fleet's reviews, and kept in a bundle's curve."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.api import geojson
from swarmd.api.daemon import NodeInfo
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import ModuleScorer
from swarmd_models.operating_point import Alike, alike_milli
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.staging import stage_crops
from swarmd_models.synthetic.thermal import Crops
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, ObjectView
from swarmd_recipes import alike
from swarmd_recipes.alike import Look


def looks(things: int, drones: float, day: float, seed: int = 3, contrast: float = 1.0) -> list[Look]:
    """Of so many things by two drones on two days, with these correlations; one day's light is poorer."""
    rng = np.random.default_rng(seed)
    found = []
    for thing in range(things):
        own = rng.normal() * np.sqrt(day)
        for at in range(2):
            light = rng.normal() * np.sqrt(drones - day)
            for drone in range(2):
                logit = own + light + rng.normal() * np.sqrt(1 - drones)
                found.append(Look(str(thing), f"drone {drone}", f"day {at}", 3 * at + logit * contrast**at))
    return found


@pytest.mark.parametrize(("drones", "day"), [(0.95, 0.8), (0.6, 0.3), (0.9, 0.9)])
def test_correlations_are_found_and_the_upper_end_is_kept(drones: float, day: float) -> None:
    """Whatever a day does to all things alike."""
    for contrast in (1.0, 0.5):
        found = alike.estimate(looks(800, drones, day, contrast=contrast))
        assert drones - 0.01 <= found.drones <= drones + 0.06
        assert day - 0.01 <= found.day <= day + 0.08
        assert found.day <= found.drones <= found.drone
        assert found.pairs == 800 * 6


def test_the_same_looks_give_the_same_figures_in_any_order() -> None:
    said = looks(60, 0.9, 0.7)
    assert alike.estimate(said[::-1]) == alike.estimate(said)


def test_few_pairs_make_no_look_unlike() -> None:
    """Days without pairs are as alike as drones, and without drones there is no figure."""
    said = looks(60, 0.9, 0.7)
    one_day = alike.estimate(look for look in said if look.day == "day 0")
    assert one_day.day == one_day.drones
    with pytest.raises(ArtefactError, match="pairs of looks by two drones"):
        alike.estimate(look for look in said if look.drone == "drone 0")


def test_a_fleets_reviews_raise_what_was_drawn_and_never_lower_it() -> None:
    drawn, told = Alike(0.97, 0.95, 0.8, 100, 1, "a"), Alike(0.9, 0.9, 0.85, 50, 1, "b")
    assert alike.higher(drawn, told) == alike.higher(drawn, told)
    found = alike.higher(drawn, told)
    assert (found.drone, found.drones, found.day, found.pairs) == (0.97, 0.95, 0.85, 150)


def test_looks_at_what_operators_have_rejected_come_from_what_the_commands_print() -> None:
    info = NodeInfo(NodeId(bytes(16)), "n", "s", "1", 52.0, 13.0, "", "", ())
    nodes = [NodeId(bytes([n]) * 16) for n in range(2)]
    seen = [
        DetectionView(node, name, "a", 700 + at, 0, 0, (1, 0, 1), "", False, 1, 2 + (day * 86_400_000 << 16), 1, b"")
        for name in ("bad", "good")
        for at, node in enumerate(nodes)
        for day in range(2)
    ]
    detections = [geojson.detection_feature(DetectionLearned(view), info, view.origin.hex()) for view in seen]
    objects = [
        geojson.object_feature(
            ObjectView(name, "a", 700, 0, 0, (1, 0, 1), "", tuple(nodes), 1, 2, True, 1, review), info, {}
        )
        for name, review in (("bad", "rejected"), ("good", "confirmed"))
    ]
    found = alike.looks_of_reviews(detections, objects)
    assert {look.thing for look in found} == {"bad"}
    assert (len(found), len({look.drone for look in found}), len({look.day for look in found})) == (4, 2, 2)
    with pytest.raises(ArtefactError, match="no features of"):
        alike.looks_of_reviews([{"properties": {"object": "bad"}}], objects)


def test_a_bundle_keeps_what_was_measured_and_its_sightings_say_it(tmp_path: Path) -> None:
    for file in [*ZOO.glob("tiny-224*"), *ZOO.glob("small-320.second*")]:
        shutil.copy(file, tmp_path)
    path = tmp_path / "tiny-224.toml"
    measured = Alike(0.98, 0.9612, 0.9, 100, 18, "ab" * 32)
    for _ in range(2):
        alike.write(path, measured)
        bundle = load_bundle(path)
        assert bundle.curve is not None
        assert bundle.curve.alike == measured
    assert alike_milli(bundle.curve) == (962, 900)
    assert bundle.curve.at(1.0) == load_bundle("zoo:tiny-224").curve.at(1.0)  # type: ignore[union-attr]
    text = path.read_text(encoding="utf-8")
    for wrong, says in (("day = 0.99", "day must not exceed"), ("", "needs day"), ("day = 1.5", "from 0 to 1")):
        path.write_text(text.replace("day = 0.9\n", wrong + "\n"), encoding="utf-8")
        with pytest.raises(ArtefactError, match=says):
            load_bundle(path)


def test_drones_see_the_same_neighbours_from_elsewhere() -> None:
    """Crops drawn at random, as drones see them on two days: where the judged ones are, and that pictures differ."""
    rng = np.random.default_rng(5)
    images = rng.integers(90, 130, (40, 40, 24), dtype=np.uint8)
    crops = Crops(images, ("no-anomaly",), np.zeros(40, np.int64), np.zeros(40, np.uint8))
    frames = [
        list(stage_crops(crops, np.arange(12), SceneOptions(), 1, staging)) for _, _, staging in alike.stagings(18)
    ]
    assert len(frames) == 16
    assert {frame.crops for said in frames for frame in said} == {frame.crops for frame in frames[0]}
    assert len({said[0].image.tobytes() for said in frames}) == 16
    for said in frames:
        for frame in said:
            assert (frame.boxes > 0).all()
            assert (frame.boxes[:, 2] < 320).all()
            assert (frame.boxes[:, 3] < 256).all()


def test_another_runtime_is_no_other_witness() -> None:
    """What two runtimes say of one look is more alike than two looks of one drone, and both name one bundle."""
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(6)
    smooth = cv2.GaussianBlur(rng.normal(0, 1, (60 * 40, 24)), (0, 0), 3.0).reshape(60, 40, 24)
    images = np.clip(115 + 60 * smooth, 0, 255).astype(np.uint8)
    crops = Crops(images, ("no-anomaly",), np.zeros(60, np.int64), np.zeros(60, np.uint8))
    bundle = load_bundle("zoo:tiny-224")
    assert bundle.curve is not None
    assert bundle.curve.alike is not None
    found = alike.of_runtimes(bundle, crops, np.arange(40), ("litert", "onnx"))
    assert found.keys() == {("litert", "onnx")}
    assert found["litert", "onnx"] >= bundle.curve.alike.drone
    digests = {ModuleScorer(bundle, (kind,)).bundle.digest for kind in ("litert", "onnx")}
    assert digests == {bundle.digest}
