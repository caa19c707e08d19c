"""Our own CDR of the large messages against the library's codec and rosbags', byte for byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.cdr import encode_detections, encode_markers
from tests.support import ros2_store

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=9)
NUMBER = st.floats(allow_nan=False)
HEADER = st.builds(m.Header, st.builds(m.Time, st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)), TEXT)
VECTOR = st.builds(m.Vector3, NUMBER, NUMBER, NUMBER)
POSE = st.builds(
    m.Pose, st.builds(m.Point, NUMBER, NUMBER, NUMBER), st.builds(m.Quaternion, NUMBER, NUMBER, NUMBER, NUMBER)
)
RESULT = st.builds(
    m.ObjectHypothesisWithPose,
    st.builds(m.ObjectHypothesis, TEXT, NUMBER),
    st.builds(m.PoseWithCovariance, POSE, st.lists(NUMBER, min_size=36, max_size=36)),
)
DETECTION = st.builds(
    m.Detection3D, HEADER, st.lists(RESULT, max_size=2), st.builds(m.BoundingBox3D, POSE, VECTOR), TEXT
)
COLOUR = st.builds(m.ColorRGBA, *[st.sampled_from([0.0, 0.5, 1.0])] * 4)
MARKER = st.builds(
    m.Marker,
    header=HEADER,
    ns=TEXT,
    id=st.integers(-5, 5),
    type=st.integers(0, 11),
    action=st.integers(0, 3),
    pose=POSE,
    scale=VECTOR,
    color=COLOUR,
    frame_locked=st.booleans(),
    text=TEXT,
    mesh_use_embedded_materials=st.booleans(),
)


def padded(data: bytes) -> bytes:
    return data.ljust((len(data) + 3) & ~3, b"\0")


@settings(max_examples=60, deadline=None)
@given(st.builds(m.Detection3DArray, HEADER, st.lists(DETECTION, max_size=3)))
def test_detections_are_the_librarys_bytes(array: m.Detection3DArray) -> None:
    assert encode_detections(array) == padded(array.serialize())


@settings(max_examples=60, deadline=None)
@given(st.builds(m.MarkerArray, st.lists(MARKER, max_size=3)))
def test_markers_are_the_librarys_bytes(array: m.MarkerArray) -> None:
    assert encode_markers(array) == padded(array.serialize())


def test_rosbags_reads_them() -> None:
    types = ros2_store.store()
    one = m.Detection3D(results=[m.ObjectHypothesisWithPose(m.ObjectHypothesis("hot-spot", 0.9))], id="a/1")
    read = types.deserialize_cdr(
        encode_detections(m.Detection3DArray(m.Header(), [one])), "vision_msgs/msg/Detection3DArray"
    )
    assert (read.detections[0].id, read.detections[0].results[0].hypothesis.score) == ("a/1", 0.9)
    read = types.deserialize_cdr(
        encode_markers(m.MarkerArray([m.Marker(text="x")])), "visualization_msgs/msg/MarkerArray"
    )
    assert read.markers[0].text == "x"
