"""ROS 2 messages as CycloneDDS types, field by field in the order of their `.msg` files.

What makes them ROS 2 on the wire: the type name `<pkg>::msg::dds_::<Type>_`, the same field order, and final
extensibility, which gives XCDR1 little endian. Annotations here are read at run time by cyclonedds: this module must
not use `from __future__ import annotations`.

Source: common_interfaces and vision_msgs 4.1 (ROS 2 Jazzy) message definitions.
"""

from dataclasses import dataclass, field

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, bounded_str, float32, float64, int8, int32, sequence, uint8, uint16, uint32


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    """UNIX time."""

    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Duration(IdlStruct, typename="builtin_interfaces::msg::dds_::Duration_"):
    """A span of time; zero means for ever where it is a lifetime."""

    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    """Time and coordinate frame."""

    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
class String(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    """Text."""

    data: str = ""


@dataclass
class ColorRGBA(IdlStruct, typename="std_msgs::msg::dds_::ColorRGBA_"):
    """Colour, each 0..1."""

    r: float32 = 0.0
    g: float32 = 0.0
    b: float32 = 0.0
    a: float32 = 0.0


@dataclass
class Point(IdlStruct, typename="geometry_msgs::msg::dds_::Point_"):
    """Metres."""

    x: float64 = 0.0
    y: float64 = 0.0
    z: float64 = 0.0


@dataclass
class Vector3(IdlStruct, typename="geometry_msgs::msg::dds_::Vector3_"):
    """Metres, or metres a second."""

    x: float64 = 0.0
    y: float64 = 0.0
    z: float64 = 0.0


@dataclass
class Quaternion(IdlStruct, typename="geometry_msgs::msg::dds_::Quaternion_"):
    """Rotation."""

    x: float64 = 0.0
    y: float64 = 0.0
    z: float64 = 0.0
    w: float64 = 1.0


@dataclass
class Pose(IdlStruct, typename="geometry_msgs::msg::dds_::Pose_"):
    """Position and rotation."""

    position: Point = field(default_factory=Point)
    orientation: Quaternion = field(default_factory=Quaternion)


@dataclass
class PoseStamped(IdlStruct, typename="geometry_msgs::msg::dds_::PoseStamped_"):
    """Pose with time and frame."""

    header: Header = field(default_factory=Header)
    pose: Pose = field(default_factory=Pose)


@dataclass
class PoseWithCovariance(IdlStruct, typename="geometry_msgs::msg::dds_::PoseWithCovariance_"):
    """Pose with a 6 x 6 covariance, row by row."""

    pose: Pose = field(default_factory=Pose)
    covariance: array[float64, 36] = field(default_factory=lambda: [0.0] * 36)


@dataclass
class Twist(IdlStruct, typename="geometry_msgs::msg::dds_::Twist_"):
    """Velocity, metres and radians a second."""

    linear: Vector3 = field(default_factory=Vector3)
    angular: Vector3 = field(default_factory=Vector3)


@dataclass
class TwistWithCovariance(IdlStruct, typename="geometry_msgs::msg::dds_::TwistWithCovariance_"):
    """Velocity with a 6 x 6 covariance, row by row."""

    twist: Twist = field(default_factory=Twist)
    covariance: array[float64, 36] = field(default_factory=lambda: [0.0] * 36)


@dataclass
class Odometry(IdlStruct, typename="nav_msgs::msg::dds_::Odometry_"):
    """Pose in the frame of the header, velocity in the child frame."""

    header: Header = field(default_factory=Header)
    child_frame_id: str = ""
    pose: PoseWithCovariance = field(default_factory=PoseWithCovariance)
    twist: TwistWithCovariance = field(default_factory=TwistWithCovariance)


@dataclass
class ObjectHypothesis(IdlStruct, typename="vision_msgs::msg::dds_::ObjectHypothesis_"):
    """Class and score."""

    class_id: str = ""
    score: float64 = 0.0


@dataclass
class ObjectHypothesisWithPose(IdlStruct, typename="vision_msgs::msg::dds_::ObjectHypothesisWithPose_"):
    """Class, score and place."""

    hypothesis: ObjectHypothesis = field(default_factory=ObjectHypothesis)
    pose: PoseWithCovariance = field(default_factory=PoseWithCovariance)


@dataclass
class BoundingBox3D(IdlStruct, typename="vision_msgs::msg::dds_::BoundingBox3D_"):
    """A box in space."""

    center: Pose = field(default_factory=Pose)
    size: Vector3 = field(default_factory=Vector3)


@dataclass
class Detection3D(IdlStruct, typename="vision_msgs::msg::dds_::Detection3D_"):
    """One detected thing in space."""

    header: Header = field(default_factory=Header)
    results: sequence[ObjectHypothesisWithPose] = field(default_factory=list)
    bbox: BoundingBox3D = field(default_factory=BoundingBox3D)
    id: str = ""


@dataclass
class Detection3DArray(IdlStruct, typename="vision_msgs::msg::dds_::Detection3DArray_"):
    """Detected things."""

    header: Header = field(default_factory=Header)
    detections: sequence[Detection3D] = field(default_factory=list)


@dataclass
class Point2D(IdlStruct, typename="vision_msgs::msg::dds_::Point2D_"):
    """Pixels."""

    x: float64 = 0.0
    y: float64 = 0.0


@dataclass
class Pose2D(IdlStruct, typename="vision_msgs::msg::dds_::Pose2D_"):
    """Pixels and a rotation."""

    position: Point2D = field(default_factory=Point2D)
    theta: float64 = 0.0


@dataclass
class BoundingBox2D(IdlStruct, typename="vision_msgs::msg::dds_::BoundingBox2D_"):
    """A box by its centre and size, pixels."""

    center: Pose2D = field(default_factory=Pose2D)
    size_x: float64 = 0.0
    size_y: float64 = 0.0


@dataclass
class Detection2D(IdlStruct, typename="vision_msgs::msg::dds_::Detection2D_"):
    """One detected thing in a picture."""

    header: Header = field(default_factory=Header)
    results: sequence[ObjectHypothesisWithPose] = field(default_factory=list)
    bbox: BoundingBox2D = field(default_factory=BoundingBox2D)
    id: str = ""


@dataclass
class Detection2DArray(IdlStruct, typename="vision_msgs::msg::dds_::Detection2DArray_"):
    """Detected things of one picture."""

    header: Header = field(default_factory=Header)
    detections: sequence[Detection2D] = field(default_factory=list)


@dataclass
class RegionOfInterest(IdlStruct, typename="sensor_msgs::msg::dds_::RegionOfInterest_"):
    """Part of the sensor that is read out, unbinned pixels; all zero: the whole."""

    x_offset: uint32 = 0
    y_offset: uint32 = 0
    height: uint32 = 0
    width: uint32 = 0
    do_rectify: bool = False


@dataclass
class CameraInfo(IdlStruct, typename="sensor_msgs::msg::dds_::CameraInfo_"):
    """A camera's calibration."""

    header: Header = field(default_factory=Header)
    height: uint32 = 0
    width: uint32 = 0
    distortion_model: str = ""
    d: sequence[float64] = field(default_factory=list)
    k: array[float64, 9] = field(default_factory=lambda: [0.0] * 9)
    r: array[float64, 9] = field(default_factory=lambda: [0.0] * 9)
    p: array[float64, 12] = field(default_factory=lambda: [0.0] * 12)
    binning_x: uint32 = 0
    binning_y: uint32 = 0
    roi: RegionOfInterest = field(default_factory=RegionOfInterest)


@dataclass
class MeshFile(IdlStruct, typename="visualization_msgs::msg::dds_::MeshFile_"):
    """A mesh, unused here."""

    filename: str = ""
    data: sequence[uint8] = field(default_factory=list)


@dataclass
class UVCoordinate(IdlStruct, typename="visualization_msgs::msg::dds_::UVCoordinate_"):
    """A texture coordinate, unused here."""

    u: float32 = 0.0
    v: float32 = 0.0


@dataclass
class CompressedImage(IdlStruct, typename="sensor_msgs::msg::dds_::CompressedImage_"):
    """A JPEG or PNG."""

    header: Header = field(default_factory=Header)
    format: str = ""
    data: sequence[uint8] = field(default_factory=list)


@dataclass
class Marker(IdlStruct, typename="visualization_msgs::msg::dds_::Marker_"):
    """A shape for RViz."""

    header: Header = field(default_factory=Header)
    ns: str = ""
    id: int32 = 0
    type: int32 = 0
    action: int32 = 0
    pose: Pose = field(default_factory=Pose)
    scale: Vector3 = field(default_factory=Vector3)
    color: ColorRGBA = field(default_factory=ColorRGBA)
    lifetime: Duration = field(default_factory=Duration)
    frame_locked: bool = False
    points: sequence[Point] = field(default_factory=list)
    colors: sequence[ColorRGBA] = field(default_factory=list)
    texture_resource: str = ""
    texture: CompressedImage = field(default_factory=CompressedImage)
    uv_coordinates: sequence[UVCoordinate] = field(default_factory=list)
    text: str = ""
    mesh_resource: str = ""
    mesh_file: MeshFile = field(default_factory=MeshFile)
    mesh_use_embedded_materials: bool = False


@dataclass
class MarkerArray(IdlStruct, typename="visualization_msgs::msg::dds_::MarkerArray_"):
    """Shapes for RViz."""

    markers: sequence[Marker] = field(default_factory=list)


@dataclass
class KeyValue(IdlStruct, typename="diagnostic_msgs::msg::dds_::KeyValue_"):
    """One diagnostic value."""

    key: str = ""
    value: str = ""


@dataclass
class DiagnosticStatus(IdlStruct, typename="diagnostic_msgs::msg::dds_::DiagnosticStatus_"):
    """Health of one thing: level 0 ok, 1 warning, 2 error, 3 stale."""

    level: uint8 = 0
    name: str = ""
    message: str = ""
    hardware_id: str = ""
    values: sequence[KeyValue] = field(default_factory=list)


@dataclass
class DiagnosticArray(IdlStruct, typename="diagnostic_msgs::msg::dds_::DiagnosticArray_"):
    """Health of several things."""

    header: Header = field(default_factory=Header)
    status: sequence[DiagnosticStatus] = field(default_factory=list)


@dataclass
class NavSatStatus(IdlStruct, typename="sensor_msgs::msg::dds_::NavSatStatus_"):
    """-1 no fix, 0 fix; service 1 GPS."""

    status: int8 = -1
    service: uint16 = 0


@dataclass
class NavSatFix(IdlStruct, typename="sensor_msgs::msg::dds_::NavSatFix_"):
    """A GNSS position; altitude above the ellipsoid, NaN when unknown."""

    header: Header = field(default_factory=Header)
    status: NavSatStatus = field(default_factory=NavSatStatus)
    latitude: float64 = 0.0
    longitude: float64 = 0.0
    altitude: float64 = float("nan")
    position_covariance: array[float64, 9] = field(default_factory=lambda: [0.0] * 9)
    position_covariance_type: uint8 = 0


@dataclass
class BatteryState(IdlStruct, typename="sensor_msgs::msg::dds_::BatteryState_"):
    """Battery; NaN for what is not measured, percentage 0..1."""

    header: Header = field(default_factory=Header)
    voltage: float32 = float("nan")
    temperature: float32 = float("nan")
    current: float32 = float("nan")
    charge: float32 = float("nan")
    capacity: float32 = float("nan")
    design_capacity: float32 = float("nan")
    percentage: float32 = float("nan")
    power_supply_status: uint8 = 0
    power_supply_health: uint8 = 0
    power_supply_technology: uint8 = 0
    present: bool = True
    cell_voltage: sequence[float32] = field(default_factory=list)
    cell_temperature: sequence[float32] = field(default_factory=list)
    location: str = ""
    serial_number: str = ""


@dataclass
class Gid(IdlStruct, typename="rmw_dds_common::msg::dds_::Gid_"):
    """A DDS entity's identity (16 bytes since Iron)."""

    data: array[uint8, 16] = field(default_factory=lambda: [0] * 16)


@dataclass
class NodeEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::NodeEntitiesInfo_"):
    """The endpoints of one ROS 2 node."""

    node_namespace: bounded_str[256] = "/"
    node_name: bounded_str[256] = ""
    reader_gid_seq: sequence[Gid] = field(default_factory=list)
    writer_gid_seq: sequence[Gid] = field(default_factory=list)


@dataclass
class ParticipantEntitiesInfo(IdlStruct, typename="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"):
    """What `ros2 node list` reads."""

    gid: Gid = field(default_factory=Gid)
    node_entities_info_seq: sequence[NodeEntitiesInfo] = field(default_factory=list)


@dataclass
class Cell(IdlStruct, typename="swarmd_msgs::msg::dds_::Cell_"):
    """One piece of the survey area (our own message: msg/Cell.msg)."""

    cell_id: str = ""
    state: uint8 = 0
    center: Point = field(default_factory=Point)
    holder: str = ""
    done_by: sequence[str] = field(default_factory=list)


@dataclass
class CellArray(IdlStruct, typename="swarmd_msgs::msg::dds_::CellArray_"):
    """The survey area (our own message: msg/CellArray.msg)."""

    header: Header = field(default_factory=Header)
    cells: sequence[Cell] = field(default_factory=list)


@dataclass
class Event(IdlStruct, typename="swarmd_msgs::msg::dds_::Event_"):
    """One thing that happened (our own message: msg/Event.msg); the header's stamp says when."""

    header: Header = field(default_factory=Header)
    id: str = ""
    origin: str = ""
    kind: str = ""
    level: uint8 = 0
    subject: str = ""
    reason: str = ""
    evidence: str = ""


@dataclass
class GeoPoint(IdlStruct, typename="geographic_msgs::msg::dds_::GeoPoint_"):
    """A place on the WGS 84 ellipsoid; NaN for an altitude that is not known."""

    latitude: float64 = 0.0
    longitude: float64 = 0.0
    altitude: float64 = 0.0


@dataclass
class Transform(IdlStruct, typename="geometry_msgs::msg::dds_::Transform_"):
    """Where a frame lies in another."""

    translation: Vector3 = field(default_factory=Vector3)
    rotation: Quaternion = field(default_factory=Quaternion)


@dataclass
class TransformStamped(IdlStruct, typename="geometry_msgs::msg::dds_::TransformStamped_"):
    """A transform with its two frames."""

    header: Header = field(default_factory=Header)
    child_frame_id: str = ""
    transform: Transform = field(default_factory=Transform)


@dataclass
class TFMessage(IdlStruct, typename="tf2_msgs::msg::dds_::TFMessage_"):
    """What `/tf` and `/tf_static` carry."""

    transforms: sequence[TransformStamped] = field(default_factory=list)
