"""The node: hears the swarm's picture on `/swarm/objects`, says a pose on `goal_pose` for each new object of a kind.

    ros2 run swarm_goal swarm_goal --ros-args -p label:=person -p min_score:=0.6

`goal_pose` is where Nav2 listens, which needs the transform from `map` to the robot's own frames. It sends the robot to
what was found; whether that is safe is yours to say.
"""

import rclpy
from geometry_msgs.msg import PoseStamped
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from vision_msgs.msg import Detection3DArray

from swarm_goal.goals import Goals

PICTURE_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""As swarmd writes `/swarm/objects`: who comes late gets the picture as it is."""


class SwarmGoal(Node):
    """Parameters may be set while it runs: `ros2 param set /swarm_goal label dog`."""

    def __init__(self) -> None:
        super().__init__("swarm_goal")
        self.declare_parameter("label", "person", ParameterDescriptor(description="objects that are goals"))
        self.declare_parameter("min_score", 0.5, ParameterDescriptor(description="least score, 0 to 1"))
        self.declare_parameter("objects_topic", "/swarm/objects", ParameterDescriptor(read_only=True))
        self._goals = Goals()
        self._out = self.create_publisher(PoseStamped, "goal_pose", 10)
        topic = self.get_parameter("objects_topic").value
        self.create_subscription(Detection3DArray, topic, self._on_picture, PICTURE_QOS)

    def _on_picture(self, picture: Detection3DArray) -> None:
        label, min_score = (self.get_parameter(name).value for name in ("label", "min_score"))
        for goal in self._goals.new(picture, label, min_score):
            pose = PoseStamped()
            pose.header.stamp = self.get_clock().now().to_msg()
            pose.header.frame_id = goal.frame
            pose.pose.position.x, pose.pose.position.y = goal.east_m, goal.north_m
            pose.pose.orientation.w = 1.0
            self._out.publish(pose)
            self.get_logger().info(f"{label} {goal.object_id} at {goal.east_m:.1f} m east, {goal.north_m:.1f} m north")


def main() -> None:
    """Run until Ctrl-C."""
    rclpy.init()
    node = SwarmGoal()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
