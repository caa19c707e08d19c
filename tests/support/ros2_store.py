"""The judge we did not write: rosbags' type store with vision_msgs and our own messages added.

`python -m tests.support.ros2_store FOLDER` writes vision_msgs as a package that ROS 2's own generators build.
"""

import sys
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
PACKAGE = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.20)
project(vision_msgs)
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
find_package(std_msgs REQUIRED)
find_package(geometry_msgs REQUIRED)
file(GLOB MESSAGES RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} msg/*.msg)
rosidl_generate_interfaces(${PROJECT_NAME} ${MESSAGES} DEPENDENCIES std_msgs geometry_msgs)
ament_package()
""",
    "package.xml": """<package format="3">
  <name>vision_msgs</name><version>4.1.1</version><description>For a test.</description>
  <maintainer email="nobody@example.com">nobody</maintainer><license>Apache-2.0</license>
  <buildtool_depend>ament_cmake</buildtool_depend><buildtool_depend>rosidl_default_generators</buildtool_depend>
  <depend>std_msgs</depend><depend>geometry_msgs</depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export><build_type>ament_cmake</build_type></export>
</package>
""",
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


def write_package(folder: Path) -> None:
    """vision_msgs, as colcon and CMake take it."""
    (folder / "msg").mkdir(parents=True, exist_ok=True)
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    for name, text in VISION.items():
        (folder / "msg" / f"{name}.msg").write_text(text)


if __name__ == "__main__":
    write_package(Path(sys.argv[1]))
