"""The judge we did not write: rosbags' type store with vision_msgs and our own messages added."""

from pathlib import Path
from typing import Any

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

VISION = {
    "ObjectHypothesis": "string class_id\nfloat64 score\n",
    "ObjectHypothesisWithPose": "ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n",
    "BoundingBox3D": "geometry_msgs/Pose center\ngeometry_msgs/Vector3 size\n",
    "Detection3D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox3D bbox\nstring id\n",
    "Point2D": "float64 x\nfloat64 y\n",
    "Pose2D": "vision_msgs/Point2D position\nfloat64 theta\n",
    "BoundingBox2D": "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n",
    "Detection2D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nstring id\n",
    "Detection2DArray": "std_msgs/Header header\nDetection2D[] detections\n",
    "Detection3DArray": "std_msgs/Header header\nDetection3D[] detections\n",
}
OWN = Path(__file__).parents[2] / "swarmd" / "bridges" / "ros2" / "msg"


def store(which: Stores = Stores.ROS2_JAZZY) -> Any:
    types = get_typestore(which)
    extra: dict[str, Any] = {}
    for name, text in VISION.items():
        extra.update(get_types_from_msg(text, f"vision_msgs/msg/{name}"))
    point = "float64 latitude\nfloat64 longitude\nfloat64 altitude\n"
    extra.update(get_types_from_msg(point, "geographic_msgs/msg/GeoPoint"))
    for file in sorted(OWN.glob("*.msg")):
        extra.update(get_types_from_msg(file.read_text(), f"swarmd_msgs/msg/{file.stem}"))
    types.register(extra)
    return types
