"""One GeoJSON for the command line, MQTT and recordings: what is said about a thing is the same everywhere."""

import json
import time
from typing import Any

from msgspec.structs import replace

from swarmd.api import geojson
from swarmd.api.daemon import NodePosition
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_of
from swarmd_protocols.state.observations import DetectionLearned, DetectionView
from tests.support.bridge_world import ALICE, BOB, World, object_view, sighting

COMMON = {"id", "label", "score", "asset", "east_m", "north_m", "covariance_m2", "first_seen_s", "last_seen_s"}
VIEW = DetectionView(
    BOB, "o1", "hot-spot", 900, 1000, 2000, (400, 10, 400), "", False, stamp_of(1000), stamp_of(3000), 4, b"\1" * 8, "s"
)
INFO = World().info()
NAMES = {bytes(ALICE): "alice", bytes(BOB): "bob"}


def properties(feature: dict[str, object]) -> dict[str, Any]:
    found = json.loads(json.dumps(feature))
    assert found["type"] == "Feature"
    assert isinstance(found["properties"], dict)
    return found["properties"]


def test_what_is_said_of_a_thing_is_the_same_in_every_form() -> None:
    seen = geojson.detection_feature(DetectionLearned(VIEW), INFO, "bob")
    held = geojson.sighting_feature(VIEW, INFO, NAMES)
    thing = geojson.object_feature(object_view(), INFO, NAMES)
    assert all(properties(one).keys() >= COMMON for one in (seen, held, thing))
    assert seen["geometry"] == held["geometry"] == thing["geometry"]
    for key in COMMON | {"node", "model_digest", "hlc"}:
        assert properties(seen)[key] == properties(held)[key], key
    assert properties(held)["covariance_m2"] == [0.04, 0.001, 0.04]
    assert properties(held)["first_seen_s"] == EPOCH_2020_NS / 1e9 + 1
    assert properties(thing)["observers"] == ["alice", "bob"]
    assert (properties(thing)["confirmed"], properties(thing)["reports"]) == (True, 3)


def test_an_own_detection_says_its_track_and_the_same_id() -> None:
    own = geojson.detection_feature(DetectionLearned(VIEW, "update", 7, time.monotonic_ns()), INFO, "bob")
    peers = geojson.detection_feature(DetectionLearned(VIEW), INFO, "bob")
    assert (properties(own)["track"], properties(peers)["track"]) == (7, None)
    assert (properties(own)["event"], properties(peers)["event"]) == ("update", "new")
    assert own["id"] == peers["id"] == properties(own)["id"] == VIEW.detection_id


def test_without_a_place_the_geometry_is_null() -> None:
    feature = geojson.detection_feature(DetectionLearned(sighting(east_cm=None)), INFO, "bob")
    assert feature["geometry"] is None
    assert properties(feature)["east_m"] is None


def test_without_a_mission_origin_no_thing_lies_in_the_gulf_of_guinea() -> None:
    """Metres about an origin that nobody has set are no degrees."""
    feature = geojson.object_feature(object_view(), replace(INFO, has_origin=False), NAMES)
    assert feature["geometry"] is None
    assert properties(feature)["east_m"] is not None


def test_a_member_is_a_point_with_an_age() -> None:
    position = NodePosition(BOB, 47.5, 8.25, 30.0, None, 1.5, None, 0)
    feature = geojson.member_feature(position, "bob", 2_500_000_000)
    assert feature["geometry"] == {"type": "Point", "coordinates": [8.25, 47.5]}
    assert properties(feature) == {
        "node": "bob",
        "height_agl_m": 30.0,
        "yaw_deg": None,
        "sigma_m": 1.5,
        "battery": None,
        "age_s": 2.5,
    }
