"""One way out for detections: whoever saw a thing, and wherever it comes out, it has one id.

Real replicas hear of each other's sightings; what each of them tells its subscribers is put through every outlet: the
MQTT feature, the GeoJSON of `swarmd detections` and the page, the recording in both profiles, the ROS 2 message.
"""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.api import geojson
from swarmd.bridges.record.bridge import RecordBridge
from swarmd.bridges.trace import trace_of_view
from swarmd.config.bridges import RecordConfig
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellAssigned, CellLost, DetectionLearned, DetectionView, LocalDetection
from tests.support.bridge_world import World
from tests.support.state_mesh import Mesh, detection

INFO = World().info()


def recorded(profile: str, learned: DetectionLearned) -> set[str]:
    """The ids that a recording holds of one notification."""
    written: list[Any] = []
    bridge = RecordBridge(RecordConfig(profile=profile))
    bridge._daemon = World()
    bridge._recorder = SimpleNamespace(  # type: ignore[assignment]
        write=lambda topic, kind, message, at: written.append(message), problem="", counts={}
    )
    bridge._on_detection(learned)
    if profile == "ros2":
        return {one["id"] for message in written for one in message["detections"]}
    import json

    return {one["id"] for message in written for one in json.loads(message["geojson"])["features"]}


def outlets(learned: DetectionLearned) -> dict[str, set[str]]:
    """The id of one notification, by outlet; a form without a place for things without a position is left out."""
    view = learned.view
    found = {
        "mqtt": {str(geojson.detection_feature(learned, INFO, "n")["id"])},
        "geojson": {str(geojson.sighting_feature(view, INFO, {})["id"])},
        "mcap foxglove": recorded("foxglove", learned),
    }
    if view.east_cm is not None:
        found["mcap ros2"] = recorded("ros2", learned)
        try:
            from swarmd.bridges.ros2 import messages as m
            from swarmd.bridges.ros2.convert import detection_of
        except Exception:  # cyclonedds without its C library raises one of its own
            return found
        one = detection_of(view, m.Header(m.Time(0, 0), "map"))
        assert one is not None
        found["dds"] = {one.id}
    return found


def check_one_id(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3, seed=seed)
    mesh.run(1)
    told: dict[int, list[DetectionLearned]] = {}
    for step in range(30):
        index = rng.randrange(3)
        member = mesh.members[index]
        before = len(member.details)
        track, east = rng.randrange(6), rng.randrange(40) * 100
        look: LocalDetection = detection(
            member.local_ns(mesh.now_ns), 100 * index + track, east, rng.choice((0, 3000)),
            kind="new" if step < 6 else rng.choice(("update", "end")),
        )  # fmt: skip
        known = look.kind != "end" or any(
            isinstance(one, DetectionLearned) and one.track_id == look.track_id and one.kind != "end"
            for one in member.details
        )
        mesh.see(index, look)
        now = [one for one in member.details[before:] if isinstance(one, DetectionLearned)]
        if known and look.kind != "end":
            assert [one.track_id for one in now] == [look.track_id], "an own detection is told in the same turn"
            assert now[0].captured_ns == look.captured_ns
        mesh.run(rng.choice((0.05, 0.5)))
    mesh.run(8)
    ids: dict[tuple[NodeId, str], set[str]] = {}
    traces: dict[tuple[NodeId, str], set[int]] = {}
    heard: dict[NodeId, set[int]] = {}
    for index, member in enumerate(mesh.members):
        told[index] = [one for one in member.details if isinstance(one, DetectionLearned)]
        assert not any(isinstance(one, CellAssigned | CellLost) for one in told[index])
        for learned in told[index]:
            view: DetectionView = learned.view
            heard.setdefault(view.origin, set()).add(index)
            assert (learned.track_id is None) is (view.origin != member.node)
            for found in outlets(learned).values():
                ids.setdefault((view.origin, view.sighting), set()).update(found)
            traces.setdefault((view.origin, view.sighting), set()).add(trace_of_view(view).trace_id)
        assert member.replica is not None
        for view in member.replica.views.detections():
            ids.setdefault((view.origin, view.sighting), set()).add(view.detection_id)
    assert all(len(found) == 1 for found in ids.values()), ids
    assert len({next(iter(found)) for found in ids.values()}) == len(ids), "different sightings, different ids"
    assert all(len(indices) == 3 for indices in heard.values() if len(heard) == 3) or not heard


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_origin_and_every_outlet_names_a_sighting_alike(seed: int) -> None:
    check_one_id(seed)


@pytest.mark.parametrize("fault", ["id of time", "own way around the state", "track in the id"])
def test_the_law_finds_the_fault(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "id of time":
        by_time = property(lambda self: f"{self.origin.hex()[:16]}-{self.last_hlc}")
        monkeypatch.setattr(DetectionView, "detection_id", by_time)
    elif fault == "own way around the state":
        from swarmd_protocols.state.projection import Projection

        monkeypatch.setattr(Projection, "_own_learned", lambda self: [])
    else:
        real = geojson.detection_feature
        monkeypatch.setattr(
            geojson,
            "detection_feature",
            lambda learned, info, name: (
                real(learned, info, name) | {"id": f"{learned.view.origin.hex()[:16]}-{learned.track_id}"}
            ),
        )
    with pytest.raises(AssertionError):
        check_one_id(7)
