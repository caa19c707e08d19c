"""Configuration of the bridges: one dataclass a section; nothing here imports a heavy library."""

import re
from dataclasses import dataclass, replace

from swarmd.config.option import option


@dataclass(frozen=True, slots=True)
class MqttConfig:
    """Section `[mqtt]`: an MQTT 5 broker to tell, never one to depend on."""

    enabled: bool = option(False, "Connect to the broker.")
    host: str = option("127.0.0.1", "Broker's host name or address.")
    port: int = option(1883, "Broker's TCP port; 8883 is usual with TLS.", low=1, high=65535)
    base: str = option("swarm/v1", "First topic levels; the swarm's name follows.")
    tls: bool = option(False, "TLS 1.3 (or 1.2 where the broker has no more).")
    ca_file: str = option("", "PEM file of the broker's authority; empty: the system's.")
    cert_file: str = option("", "Client certificate, PEM.")
    key_file: str = option("", "Client key, PEM, mode 0600 or a systemd credential.")
    username: str = option("", "User name; the password comes from `password_file` only.")
    password_file: str = option("", "File (0600 or a credential) whose first line is the password.")
    keepalive_s: int = option(15, "Keep-alive interval, seconds.", low=2, high=3600)
    will_delay_s: int = option(5, "Seconds after a lost connection until the broker says offline.", low=0, high=3600)
    buffer_messages: int = option(
        2000, "Offline buffer, messages; the oldest go first when it is full.", low=1, high=1_000_000
    )
    inflight_messages: int = option(20, "Unacknowledged messages at once, at most.", low=1, high=1000)
    reconnect_max_s: float = option(30.0, "Longest pause between connection attempts, seconds.", low=1, high=3600)
    reply_prefix: str = option(
        "",
        "Replies to commands go below `REPLY_PREFIX/CLIENT` and nowhere else; empty: `BASE/SWARM/reply`. No other "
        "topic of swarmd may lie there.",
    )
    homeassistant: bool = option(False, "Publish Home Assistant discovery.")
    homeassistant_prefix: str = option("homeassistant", "Home Assistant's discovery prefix.")
    homie: bool = option(False, "Publish Homie 5 state and properties.")
    pictures: bool = option(
        False, "Show one small picture when asked (`cmd/NODE/picture`); people, faces and plates are made unreadable."
    )
    telemetry_hz: float = option(1.0, "Telemetry messages a second, at most.", low=0.01, high=100)
    aggregate_epsilon: float = option(
        0.0, "Differential privacy of hourly counts: epsilon for each object; 0 publishes none.", low=0, high=100
    )
    aggregate_epsilon_day: float = option(
        0.0, "Sum of epsilon over the hours of a day, at most: fewer hours are told; 0: all 24.", low=0, high=2400
    )
    aggregate_scope: str = option(
        "own",
        "`own`: each device counts what it owns; `swarm`: this one device counts for all.",
        choices=("own", "swarm"),
    )
    aggregate_labels: tuple[str, ...] = option((), "Labels to count; empty: those of this device's model.")
    object_expiry_s: int = option(3600, "Retained objects vanish from the broker after this.", low=10, high=31_536_000)


@dataclass(frozen=True, slots=True)
class DdsConfig:
    """Section `[dds]`: topics that ROS 2 reads as they are."""

    enabled: bool = option(False, "Publish DDS topics.")
    domain: int = option(-1, "DDS domain; -1: ROS_DOMAIN_ID, else 0.", low=-1, high=232)
    interface: str = option(
        "auto",
        "Network interface when CYCLONEDDS_URI is not set; `auto`: the one that ROS 2 on this device takes, and "
        "loopback; `lo`: loopback alone. Nothing leaves the device by it.",
    )
    detections_in: bool = option(
        True, "Read detections (Detection3DArray or Detection2DArray) of a ROS 2 detector on /{node}/detections_in."
    )
    camera_info: str = option(
        "", "ROS 2 topic of the CameraInfo that places 2D detections; empty: /{node}/camera_info."
    )
    box_ground: str = option("center", "Which point of a 2D box stands on the ground.", choices=("center", "bottom"))
    batch_ms: int = option(
        20,
        "Arrays of detections are at least so far apart, milliseconds; the first after a pause goes at once.",
        low=0,
        high=1000,
    )
    peers: bool = option(True, "Publish peers' positions again as /{peer}/fix, /{peer}/pose and /{peer}/battery.")
    tf: bool = option(
        True, "Publish where each member is on /tf, as map -> swarm/{name}, and earth -> map on /tf_static."
    )
    peers_max_hz: float = option(10.0, "Rate of each re-published topic, messages a second.", low=0.1, high=1000)
    topic_max_hz: tuple[str, ...] = option(
        (), "Other rates for single topics, as `TOPIC=HZ`; `*` and `?` match, the first match counts: `/*/fix=1`."
    )
    objects_max_hz: float = option(1.0, "Rate of the object and marker topics, messages a second.", low=0.1, high=100)


@dataclass(frozen=True, slots=True)
class MavlinkConfig:
    """Section `[mavlink]`: pose, battery and armed state from an autopilot (extra `mavlink`)."""

    enabled: bool = option(False, "Listen to an autopilot.")
    connection: str = option(
        "udpin:127.0.0.1:14540",
        "pymavlink connection string, /dev/ttyAMA0 with `baud`, or `tlog:FILE` to replay a log.",
    )
    baud: int = option(921600, "Serial speed, baud.")
    system_id: int = option(0, "Vehicle to follow; 0: the first that sends a heartbeat.")
    pose_hz: float = option(10.0, "Position and gimbal rate to ask for, messages a second.", low=0.1, high=100)
    attitude_hz: float = option(20.0, "Attitude rate to ask for, messages a second.", low=0.1, high=250)
    stale_ms: int = option(500, "A position older than this places nothing, milliseconds.")
    min_satellites: int = option(6, "Fewer satellites count as no fix.")
    named_values: bool = option(False, "Send counts as NAMED_VALUE_INT for ground stations.")
    camera_tracking: bool = option(
        False, "Send the surest own detection as CAMERA_TRACKING_IMAGE_STATUS and CAMERA_TRACKING_GEO_STATUS."
    )


@dataclass(frozen=True, slots=True)
class RecordConfig:
    """Section `[record]`: MCAP recording (extra `record`)."""

    enabled: bool = option(False, "Record from the start of the daemon.")
    directory: str = option("", "Where recordings go; empty: `record/` in the state directory.")
    profile: str = option("ros2", "`ros2` or `foxglove`.", choices=("ros2", "foxglove"))
    max_mib: int = option(1024, "Recording stops, and says so, at this size, MiB.")
    min_free_mib: int = option(256, "Recording stops when the disk has less left than this, MiB.")
    images_hz: float = option(
        0.0,
        "Pictures of the eye in the recording, a second at most, as `privacy.show` has them; 0: none.",
        low=0,
        high=10,
    )
    image_width: int = option(640, "Wider pictures are recorded smaller, pixels.", low=16, high=4096)
    image_quality: int = option(70, "JPEG quality of recorded pictures.", low=1, high=100)


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """Section `[otel]`: traces from capture to the neighbour's object, and events, as OTLP over HTTP (extra `otel`)."""

    enabled: bool = option(False, "Export traces and events.")
    endpoint: str = option("http://127.0.0.1:4318/v1/traces", "Traces address of the collector.")
    logs_endpoint: str = option(
        "", "Logs address of the collector, for events; by default `/v1/logs` where the traces go."
    )
    service_name: str = option("swarmd", "`service.name` of every span; the node is `service.instance.id`.")
    sample_ratio: float = option(
        1.0, "Part of the sightings that is traced; every node with the same ratio picks the same ones.", low=0, high=1
    )


@dataclass(frozen=True, slots=True)
class FederationConfig:
    """Section `[federation]`: the way to a region above many swarms, for `swarmd gateway` (docs/federation.md)."""

    paths: tuple[str, ...] = option(
        (),
        "MQTT 5 brokers, `mqtt://HOST:PORT` or `mqtts://USER@HOST:PORT`, or Zenoh routers, `zenoh://HOST:PORT`, "
        "`zenohs://HOST:PORT` or, for one in this process, `zenoh://?listen=HOST:PORT`; two, so that one may fail.",
    )
    region_key: str = option("", "The region's public key, 64 hexadecimal digits (`swarmd region show`).")
    prefix: str = option("swarm-fed/1", "First levels of all topics, the same at the region.")
    outbox_mib: int = option(256, "What waits for the region at most, MiB of disk.", low=1, high=65_536)
    retain_days: float = option(30.0, "Rows that wait for longer are dropped, days.", low=0.01, high=3650)
    refresh_s: float = option(
        10.0, "An object that only was seen again is said again at most so often, seconds.", low=0.1, high=86_400
    )
    health_s: float = option(60.0, "Status and counters are said so often, seconds.", low=1, high=86_400)
    bundles: tuple[str, ...] = option(
        (), "Addresses and folders from below which bundles that a region names may be fetched; empty: none."
    )
    neighbours: tuple[str, ...] = option(
        (),
        "The same kinds of paths, to gateways of neighbouring swarms: `zenoh://?listen=0.0.0.0:7448` on one side and "
        "`zenoh://HOST:7448` on the other; empty: this gateway speaks with none.",
    )
    ca_file: str = option("", "PEM file of the brokers' authority; empty: the system's.")
    cert_file: str = option("", "Client certificate, PEM.")
    key_file: str = option("", "Client key, PEM, mode 0600 or a systemd credential.")
    password_file: str = option("", "File (0600 or a credential) whose first line is the password.")


PLUGINS_MAX = 16
"""Plug-ins of a device, bridges and detectors together: each is a process of some 30 MB."""
_PLUGIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class PluginsConfig:
    """Section `[plugins]`: bridges and detectors of other packages, each in a process of its own (docs/plugins.md)."""

    bridges: tuple[str, ...] = option((), "Names of entry points in the group `swarmd.bridges` to run.")
    detectors: tuple[str, ...] = option((), "Names of entry points in the group `swarmd.detectors` to run.")
    options: tuple[str, ...] = option(
        (), "What plug-ins are told, as `NAME.KEY=VALUE`: `pager.url=http://127.0.0.1:8080`."
    )


def plugin_options(plugins: PluginsConfig) -> dict[str, dict[str, str]]:
    """Options by plug-in, by key.

    >>> plugin_options(PluginsConfig(options=("radar.port=/dev/ttyUSB0", "radar.word=a=b")))
    {'radar': {'port': '/dev/ttyUSB0', 'word': 'a=b'}}
    """
    found: dict[str, dict[str, str]] = {}
    for text in plugins.options:
        place, _, value = text.partition("=")
        name, _, key = place.partition(".")
        found.setdefault(name, {})[key] = value
    return found


def plugins_problem(plugins: PluginsConfig) -> str:
    """What is wrong with `[plugins]`; "" where nothing is.

    >>> plugins_problem(PluginsConfig(bridges=("pager",), options=("pager.url=x",)))
    ''
    >>> plugins_problem(PluginsConfig(bridges=("pager",), options=("page.url=x",)))
    "plugins.options holds 'page.url=x'; write NAME.KEY=VALUE, NAME one of pager"
    """
    names = plugins.bridges + plugins.detectors
    for name in names:
        if not _PLUGIN_NAME.fullmatch(name):
            return f"plugins names {name!r}; the name of a plug-in is a-z, 0-9 and _, at most 32, a letter first"
        if names.count(name) > 1:
            return f"plugins names {name!r} more than once; one of them is enough"
    if len(names) > PLUGINS_MAX:
        return f"plugins names {len(names)} plug-ins; {PLUGINS_MAX} are the most"
    for text in plugins.options:
        place, equals, _ = text.partition("=")
        name, _, key = place.partition(".")
        if not equals or not key or name not in names:
            one_of = ", ".join(names) or "plugins.bridges or plugins.detectors, which are empty"
            return f"plugins.options holds {text!r}; write NAME.KEY=VALUE, NAME one of {one_of}"
    return ""


def mavlink_for(pose_source: str, mavlink: MavlinkConfig) -> MavlinkConfig:
    """The `[mavlink]` section with `--pose tlog:FILE` taken into account: the log stands in for an autopilot."""
    if not pose_source.startswith("tlog:"):
        return mavlink
    return replace(mavlink, enabled=True, connection=pose_source)


def eye_pose_for(pose_source: str, mavlink: MavlinkConfig) -> str:
    """What the eye is told of poses: "live" where the autopilot, or its log, gives them.

    >>> eye_pose_for("tlog:flight.tlog", MavlinkConfig()), eye_pose_for("csv:a.csv", MavlinkConfig(enabled=True))
    ('live', 'csv:a.csv')
    """
    is_told = pose_source.startswith("tlog:") or (not pose_source and mavlink.enabled)
    return "live" if is_told else pose_source


def fed_prefix_problem(prefix: str) -> str:
    """Why frames cannot go below a prefix, as an MQTT topic and as a Zenoh key alike; "" where they can.

    >>> fed_prefix_problem("swarm-fed/1"), fed_prefix_problem("/fed/")
    ('', '')
    >>> fed_prefix_problem("a/+/b")
    "is 'a/+/b'; write levels without wildcards, as in swarm-fed/1"
    """
    levels = prefix.strip("/").split("/")
    if all(levels) and prefix.isprintable() and not any(sign in prefix for sign in "+#*?$"):
        return ""
    return f"is {prefix!r}; write levels without wildcards, as in swarm-fed/1"


def reply_prefix_problem(mqtt: MqttConfig) -> str:
    """Why `mqtt.reply_prefix` cannot be used: no reply may ever land where something else lives; "" where it can.

    >>> reply_prefix_problem(MqttConfig(reply_prefix="desk/replies"))
    ''
    >>> reply_prefix_problem(MqttConfig(reply_prefix="swarm"))
    "mqtt.reply_prefix is 'swarm', above topics of swarmd (swarm/v1); name another, such as swarmd-replies"
    """
    prefix = mqtt.reply_prefix
    if not prefix:
        return ""
    levels = prefix.split("/")
    if not all(levels) or levels[0].startswith("$") or any(wild in prefix for wild in "+#"):
        return f"mqtt.reply_prefix is {prefix!r}; write topic levels without wildcards, as in swarmd-replies"
    for taken in (mqtt.base, mqtt.homeassistant_prefix, "homie"):
        theirs = taken.split("/")
        shared = min(len(levels), len(theirs))
        if levels[:shared] != theirs[:shared]:
            continue
        is_reply_room = taken == mqtt.base and levels[shared + 1 : shared + 2] == ["reply"]
        if not is_reply_room:
            where = "below" if len(levels) > len(theirs) else "above"
            return (
                f"mqtt.reply_prefix is {prefix!r}, {where} topics of swarmd ({taken}); name another, "
                "such as swarmd-replies"
            )
    return ""
