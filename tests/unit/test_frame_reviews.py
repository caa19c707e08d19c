"""Reviews become labels: kept frames and the swarm's objects are joined by the place on the ground."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from swarmd.api.daemon import NodeInfo
from swarmd.api.geojson import collection, object_feature
from swarmd.cli.main import main
from swarmd_models.errors import SourceError
from swarmd_models.frame_ring import FrameRing
from swarmd_models.geo.positions import enu_cm_to_wgs84
from swarmd_models.reviewed import GATE, Reviewed, ReviewIndex, _distance, review_of, reviewed_of
from swarmd_models.types import Frame, GroundPosition, TrackEvent
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import ObjectView, ReviewView
from tests.support.bundles import seen

ORIGIN = (48.0, 11.0)
INFO = NodeInfo(NodeId(bytes(16)), "drone-1", "farm", "0", *ORIGIN, "m", "", ())


def thing(name: str, east_cm: int, verdict: str, label: str = "class0", detected: str = "") -> ObjectView:
    said = {"relabelled": "relabel", "confirmed": "confirm", "rejected": "reject", "disputed": "reject"}.get(verdict)
    reviews = (ReviewView("alice", "1f2e3d4c", said, label, detected or label, 1, 1, bytes(16), b""),) if said else ()
    return ObjectView(
        name, label, 900, east_cm, 0, (100, 0, 100), "", (NodeId(bytes(16)),), 0, 0, True, 1, verdict, detected, reviews
    )


def objects(folder: Path, *things: ObjectView) -> Path:
    path = folder / "objects.geojson"
    path.write_text(json.dumps(collection([object_feature(one, INFO, {}) for one in things])))
    return path


def at(east_cm: int) -> GroundPosition:
    return GroundPosition(*enu_cm_to_wgs84(east_cm, 0, *ORIGIN), (0.01, 0.0, 0.01))


def keep(folder: Path, *places: int) -> None:
    """One frame with a detection at each of these places, centimetres east; the last has none."""
    detections = [seen(20 + 60 * number, 40, score=0.45) for number in range(len(places) + 1)]
    events = [
        TrackEvent("new", number, 0, one.label, one.score, one.box, 1, 3, at(east_cm))
        for number, (one, east_cm) in enumerate(zip(detections[:-1], places, strict=True))
    ]
    image = np.zeros((80, 400), np.uint8)
    ring = FrameRing(folder, 1 << 20)
    assert ring.consider(Frame(1, 1, image), detections, lambda _: 0.4, 0.0, "m", events)


def exported(folder: Path, *arguments: str) -> list[tuple[str, tuple[str, ...]]]:
    out = folder / "coco"
    assert main(["frames", "export", "--folder", str(folder / "kept"), "--out", str(out), *arguments]) == 0
    document = json.loads((out / "annotations.json").read_text())
    names = {one["id"]: one["name"] for one in document["categories"]}
    return [(names[one["category_id"]], tuple(one.get("reviewed_by", ()))) for one in document["annotations"]]


def test_operators_labels_take_the_place_of_guesses_and_what_is_nothing_goes(tmp_path: Path) -> None:
    keep(tmp_path / "kept", 0, 1_000, 2_000, 3_000, 4_000)
    reviews = objects(
        tmp_path,
        thing("a", 5, "relabelled", "crack", "class0"),
        thing("b", 1_000, "rejected"),
        thing("c", 2_000, "confirmed"),
        thing("d", 3_000, "disputed"),
        thing("e", 4_000, "", "class0"),
    )
    guess: tuple[str, tuple[str, ...]] = ("class0", ())
    assert exported(tmp_path) == [guess] * 6
    told = exported(tmp_path, "--reviews", str(reviews))
    assert told == [("crack", ("alice",)), ("class0", ("alice",)), guess, guess, guess]


@pytest.mark.parametrize(("east_cm", "label"), [(100, "class0"), (600, "class0"), (0, "other")])
def test_another_thing_is_not_taken_for_it(east_cm: int, label: str) -> None:
    """A metre off at ten centimetres of error, beyond the radius, or detected as something else."""
    told = object_feature(thing("a", 0, "confirmed"), INFO, {})
    where = at(east_cm)
    found = {
        "label": label,
        "latitude_deg": where.latitude_deg,
        "longitude_deg": where.longitude_deg,
        "covariance_m2": list(where.covariance_m2),
    }
    reviewed = reviewed_of(collection([told]))
    assert len(reviewed) == 1
    assert review_of(found, ReviewIndex(reviewed)) is None
    assert (
        review_of({**found, "label": "class0", "longitude_deg": at(2).longitude_deg}, ReviewIndex(reviewed))
        is reviewed[0]
    )


@pytest.mark.parametrize(
    "document", [None, [], {}, {"features": 7}, {"features": [{}]}, {"features": [{"geometry": 1}]}]
)
def test_what_is_no_document_of_objects_is_refused(document: object) -> None:
    with pytest.raises(SourceError, match="no GeoJSON of objects"):
        reviewed_of(document)


def test_a_sidecar_without_a_right_place_is_passed_over(tmp_path: Path) -> None:
    keep(tmp_path / "kept", 0)
    [path] = (tmp_path / "kept").glob("*.json")
    told = json.loads(path.read_text())
    told["detections"][0]["covariance_m2"] = [1, "x"]
    path.write_text(json.dumps(told))
    command = ["frames", "export", "--folder", str(tmp_path / "kept"), "--out", str(tmp_path / "coco")]
    assert main(command) == 1


@pytest.mark.parametrize("origin", [(48.0, 11.0), (0.0, 0.0), (-67.3, -179.999), (78.2, 15.6)])
def test_the_index_finds_what_looking_at_all_would(origin: tuple[float, float]) -> None:
    """Places a few metres apart, across squares, the equator and the meridian."""
    rng, covariance = random.Random(1), (9.0, 0.0, 9.0)
    things = []
    for number in range(400):
        where = enu_cm_to_wgs84(rng.randrange(-3000, 3000), rng.randrange(-3000, 3000), *origin)
        things.append(Reviewed(str(number), "a", rng.choice("ab"), False, (), *where, covariance))
    index, matched = ReviewIndex(things), 0
    for _ in range(400):
        latitude, longitude = enu_cm_to_wgs84(rng.randrange(-3000, 3000), rng.randrange(-3000, 3000), *origin)
        found = {"label": "a", "latitude_deg": latitude, "longitude_deg": longitude, "covariance_m2": covariance}
        all_of = [(_distance(found, one), one.id, one) for one in things if one.detected == "a"]
        wanted = min((one for one in all_of if one[0] <= GATE), key=lambda one: one[:2], default=(0.0, "", None))
        assert review_of(found, index) is wanted[2]
        matched += wanted[2] is not None
    assert 20 < matched < 400
