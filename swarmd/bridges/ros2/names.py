"""Names that ROS 2 derives: DDS topic names, name tokens, type hashes (REP-2016) of the messages we speak.

The hashes are what `rosbags` and a ROS 2 Jazzy or Kilted installation compute; a test compares them.
"""

import re

TYPE_HASHES = {
    "std_msgs/msg/String": "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    "vision_msgs/msg/Detection3DArray": "RIHS01_793f5eab9595ac1c0da07873cc859db42eae51f0ee76056db8562515d830e018",
    "vision_msgs/msg/Detection2DArray": "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
    "visualization_msgs/msg/MarkerArray": "RIHS01_86cb8800b6fb05b5eff1abd7a56f62a5641d3ae9a1c29e78e67e704f1d067dcf",
    "diagnostic_msgs/msg/DiagnosticArray": "RIHS01_5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e",
    "sensor_msgs/msg/NavSatFix": "RIHS01_62223ab3fe210a15976021da7afddc9e200dc9ec75231c1b6a557fc598a65404",
    "sensor_msgs/msg/BatteryState": "RIHS01_4bee5dfce981c98faa6828b868307a0a73f992ed0789f374ee96c8f840e69741",
    "sensor_msgs/msg/CameraInfo": "RIHS01_b3dfd68ff46c9d56c80fd3bd4ed22c7a4ddce8c8348f2f59c299e73118e7e275",
    "geometry_msgs/msg/PoseStamped": "RIHS01_10f3786d7d40fd2b54367835614bff85d4ad3b5dab62bf8bca0cc232d73b4cd8",
    "nav_msgs/msg/Odometry": "RIHS01_3cc97dc7fb7502f8714462c526d369e35b603cfc34d946e3f2eda2766dfec6e0",
    "sensor_msgs/msg/CompressedImage": "RIHS01_15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
    "tf2_msgs/msg/TFMessage": "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087",
    "geographic_msgs/msg/GeoPoint": "RIHS01_602c647cf87bbe95a0231b459b5ac30051875d07c0c740b31ad7a8c4662b971e",
    "swarmd_msgs/msg/CellArray": "RIHS01_67e6e844d486599b33c824230d35666102f4c6bc5b276fa169cec00a1e57aac0",
    "swarmd_msgs/msg/Event": "RIHS01_6866bb61b7400f25131a25418a5657baebec8654a23d041cd0fb648250d50577",
    "rmw_dds_common/msg/ParticipantEntitiesInfo": (
        "RIHS01_e725f4a506958c79f95dd693b965722c57b19cd18e7eff984f49561b93dc985d"
    ),
}


def dds_topic(ros_topic: str) -> str:
    """The DDS name of a ROS 2 topic.

    >>> dds_topic("/swarm/detections")
    'rt/swarm/detections'
    """
    return "rt" + ros_topic


def token(name: str) -> str:
    """A device name as a ROS 2 name token: letters, digits, underscores, no leading digit.

    >>> token("drone-7"), token("7up")
    ('drone_7', '_7up')
    """
    text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return "_" + text if text[0].isdigit() else text


def ros_type(dds_typename: str) -> str:
    """The ROS 2 name of a DDS type name.

    >>> ros_type("std_msgs::msg::dds_::String_")
    'std_msgs/msg/String'
    """
    package, _, _, name = dds_typename.split("::")
    return f"{package}/msg/{name.rstrip('_')}"
