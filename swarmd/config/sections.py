"""The configuration, section by section: every key with its type, default, bounds and one sentence for people.

Each section is a frozen dataclass whose fields are made with `option`. The loader (`config.py`), the reference page
(`config_reference.py`) and `check-config` all read these fields, so that they cannot drift apart. A new section is a
dataclass here and one line in `Config`.

Allowed field types: `bool`, `int`, `float`, `str`, `tuple[str, ...]` and `tuple[float, ...]`. An empty string or tuple
means "not set". Units end the name; seconds and metres here become integers of nanoseconds and centimetres on load.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from swarmd.config.bridges import (
    DdsConfig,
    FederationConfig,
    MavlinkConfig,
    MqttConfig,
    OtelConfig,
    PluginsConfig,
    RecordConfig,
)
from swarmd.config.learning import LearningSection
from swarmd.config.lending import LendingSection
from swarmd.config.option import option
from swarmd.config.privacy import PrivacySection


@dataclass(frozen=True, slots=True)
class NodeSection:
    """This device."""

    name: str = option("", "Name of this node, unique in the swarm; empty: the host name.", flag="--name")
    origin: tuple[float, ...] = option(
        (),
        "Mission origin `[latitude_deg, longitude_deg]`, the same on every node; "
        "without it detections carry no position.",
        length=2,
    )
    control: str = option("", "Path of the control socket; empty: see operations.md.", flag="--control")


@dataclass(frozen=True, slots=True)
class SwarmSection:
    """Who belongs together."""

    identity: str = option("", "Directory with this node's key and certificate (`swarmd enrol`).", flag="--identity")
    dev_fleet: str = option(
        "", "Directory of a throw-away development fleet that enrols this node by its name.", flag="--dev-fleet"
    )
    join: tuple[str, ...] = option((), "Addresses of some members, tried until one answers.", flag="--join")
    mdns: str = option(
        "auto",
        "Find members by mDNS: on, off, or auto (on unless on loopback, over DDS, or in a development fleet).",
        choices=("auto", "on", "off"),
    )


@dataclass(frozen=True, slots=True)
class TransportSection:
    """How frames travel."""

    gossip: str = option("udp", "Transport of probes and gossip.", choices=("udp", "zmq", "dds"), flag="--transport")
    listen: str = option(
        "[::]:7946", "Address and port to bind; `[::]` is IPv4 and IPv6, port 0 any free one.", flag="--listen"
    )
    advertise: str = option(
        "", "Address that peers should use, several ways joined by `+`; empty: what the interfaces have."
    )
    interfaces: tuple[str, ...] = option(
        (), "Interfaces whose addresses peers are told, such as `wlan*`; empty: all but those of containers."
    )
    casts: str = option(
        "auto",
        "What is for all in radio range goes out once, by UDP multicast (`udp`, `zmq`): `auto` on the interfaces whose "
        "addresses peers are told, `off`, or one interface, such as `wlan0`. Where nothing comes by it, each neighbour "
        "is sent its own.",
    )
    cast_port: int = option(17946, "UDP port of these casts, the same on all nodes.", low=1, high=65535)


@dataclass(frozen=True, slots=True)
class GossipSection:
    """SWIM membership."""

    profile: str = option(
        "lan", "Timing and byte budget: `lan` finds a dead node in under a second, `lean` sends a third of it.",
        choices=("lan", "lean"),
    )  # fmt: skip
    full_view_max: int = option(
        256, "Up to so many members everybody knows everybody; in a larger swarm each keeps a few neighbours.",
        low=2, high=4096,
    )  # fmt: skip
    mesh: str = option(
        "auto",
        "One swarm over several radio hops: auto (as soon as nodes find that they do not all hear each other), on (the "
        "same, one member's word is enough, and each casts its own beacons), or off; `off` on all nodes or on none.",
        choices=("auto", "on", "off"),
    )


@dataclass(frozen=True, slots=True)
class StateSection:
    """What survives a restart."""

    dir: str = option(
        "",
        "Directory of the journal; empty: `$STATE_DIRECTORY` or `./swarmd-state/NAME` (`NAME-ID` in a `dev_fleet`).",
        flag="--state",
    )
    durability: str = option(
        "process",
        "`process`: own facts survive any crash of the daemon, and a power cut may lose the last second of them; "
        "`power`: every fact is synced to the disk first, which costs one sync per frame with detections.",
        choices=("process", "power"),
    )


@dataclass(frozen=True, slots=True)
class EyeSection:
    """What the device sees with."""

    enabled: bool = option(True, "False: an observer or relay without a camera.", flag="--no-eye")
    source: str = option(
        "",
        "Camera index or device, RTSP or GStreamer string, video, image, folder or `sim://…`; empty: no eye.",
        flag="--source",
    )
    model: str = option(
        "zoo:auto", "Zoo name, bundle, or `.tflite` or `.onnx` file; `zoo:auto`: the best that fits.", flag="--model"
    )
    labels: str = option("", "Label file, one name a line, for a bare `.tflite` or `.onnx`.", flag="--labels")
    backends: tuple[str, ...] = option(
        ("litert",),
        "Runtimes, best first (`litert`, `onnx@cuda`, `openvino@auto`); after repeated deaths the next one is taken.",
        flag="--backend",
    )
    fallback_models: tuple[str, ...] = option((), "Bundles to step down to when no runtime works, the better first.")
    frame_interval_ms: float = option(100.0, "Time a frame may take: what `zoo:auto` picks a model for.", low=1.0)
    false_alarms_per_1000: float = option(
        0.0,
        "False alarms in 1,000 healthy things, by the model's curve; without one it is refused. 0: its own thresholds.",
        low=0.0,
        high=1000.0,
    )
    candidates_per_1000: float = option(
        0.0,
        "The same for candidates, which members gather evidence on and no bridge is told of. 0: none.",
        low=0.0,
        high=1000.0,
    )
    reject: bool = option(
        False,
        "Frames (a covered lens, another sensor) and things (patterns) that the model was not made for count not.",
    )
    keep_frames: str = option("", "Directory for frames the model was unsure of; empty keeps none, ever.")
    keep_frames_mib: int = option(
        256, "Most that the kept frames may take, MiB; the oldest go first.", low=1, high=65536
    )
    thumbnails: bool = option(
        False,
        "Whether a small picture of each sighting is kept and given to members who ask; never of people.",
    )
    thumbnails_never: tuple[str, ...] = option(
        ("people", "pedestrian", "human", "rider", "cyclist", "child", "swimmer", "head"),
        "Words in a label of which no picture is kept, nor of what is beside it; `person`, `face` and number plates "
        "always count.",
    )
    looks: bool = option(
        False,
        "Whether sightings say in 17 bytes how a thing looks, so that neighbours are told apart where places are poor; "
        "never of people, nor of what moves.",
    )
    max_frames: int = option(0, "Stop the eye after so many frames; 0: never.", low=0, flag="--max-frames")
    moving: bool = option(
        False, "What it sees moves by itself (people, cars): then a track, not a place, is the thing."
    )
    autostart: bool = option(True, "False: the eye warms up, and asks for no cell before `swarmd eye start`.")


@dataclass(frozen=True, slots=True)
class ModelsSection:
    """Releases: which model this node runs, and how updates may arrive."""

    model: str = option("eye", "Model id whose releases this node runs; `swarmd model publish` names the same.")
    quota_mib: int = option(256, "Blobs and half-fetched blobs take at most this on disk.", low=16, high=1 << 20)
    cache: bool = option(False, "Without an eye: keep the files of releases all the same, to give them to others.")
    encrypt: bool = option(False, "Keep models encrypted on disk, under the node's key.")
    upload_kib_s: int = option(
        16384,
        "What this node gives of files to its peers, KiB a second over any ten seconds; less where its other words "
        "need more; 0: as fast as the links carry. The default fills a link of 100 Mbit/s.",
        low=0,
        high=1 << 20,
    )
    cast_kib_s: int = option(
        1000,
        "Where the transport is dds with multicast, a channel that all share: how fast a blob is cast on it, once "
        "for everybody; 0: never, each peer is sent its own.",
        low=0,
        high=1 << 20,
    )
    turn_s: float = option(120.0, "How long a later canary waits for a silent one before it.", low=1.0, high=86400.0)


@dataclass(frozen=True, slots=True)
class PoseSection:
    """Where the camera is."""

    source: str = option(
        "",
        "`fixed:LAT,LON,HEIGHT_M[,YAW_DEG[,PITCH_DEG[,ROLL_DEG]]]`, `csv:FILE`, `dataflash:FILE`, `tlog:FILE`, `live`, "
        "or empty: the autopilot's where `[mavlink]` is on, else the source's own or none.",
        flag="--pose",
    )
    hfov_deg: float = option(
        0.0,
        "Horizontal field of view of the camera; 0: unknown, and nothing is placed unless the source knows its camera.",
        low=0.0,
        high=170.0,
    )
    calibration: str = option(
        "",
        "The camera's calibration, instead of `hfov_deg`: OpenCV's YAML or ROS's `camera_info` YAML, with distortion.",
        flag="--calibration",
    )
    boresight_deg: tuple[float, ...] = option(
        (),
        "How the camera is turned against what poses say of it: `[yaw, pitch, roll]` in degrees, about its own axes.",
        length=3,
    )
    attitude_sigma_deg: float = option(
        0.0,
        "How well it is known where the camera looks, its mount included, one standard deviation; 0: as poses say, "
        "and 1 where they say nothing. It does not average out.",
        low=0.0,
        high=45.0,
    )
    terrain: str = option(
        "",
        "A height model instead of level ground: an `.hgt` tile, a folder of them, or a GeoTIFF "
        "(`pip install 'swarmd[terrain]'`).",
        flag="--terrain",
    )
    terrain_sigma_m: float = option(
        4.0,
        "Standard deviation of the difference between two of its heights some hundred metres apart; SRTM's is about "
        "4 m, a survey's by laser a few decimetres.",
        low=0.0,
        high=1000.0,
    )
    terrain_home: str = option(
        "",
        "`LAT,LON`: the heights of poses count from the ground there, as an autopilot's do from where it took off; "
        "empty: from the ground below the camera.",
    )
    terrain_unknown: str = option(
        "none",
        "Where the height model says nothing (a void, beyond its edge): `none`, no place, or `level`, level ground's.",
        choices=("none", "level"),
    )
    share_s: float = option(
        1.0,
        "Tell the swarm where this node is at most once in so many seconds, more rarely in a large swarm; 0: never.",
        low=0.0,
        high=3600.0,
    )


@dataclass(frozen=True, slots=True)
class DedupSection:
    """When two detections are one object."""

    radius_m: float = option(5.0, "Outer limit between two positions of one object.", low=0.1, high=1000.0)
    groups: tuple[str, ...] = option(
        (),
        "Labels that name one kind of thing, as `label=group`: detections of one group at one place are one object. "
        "A label without a group is its own.",
    )
    confirm_observers: int = option(1, "Distinct nodes that must see an object to confirm it.", low=1, high=64)
    judge_confirms: bool = option(
        False,
        "The verdict of another judge that is sure (`node.judge`) confirms a candidate by itself, on every node alike; "
        "else it is one witness.",
    )
    site_map: str = option(
        "", "GeoJSON or CSV of assets (panels); an asset's id is then the identity.", flag="--site-map"
    )
    asset_probability: float = option(
        0.95, "How sure the nearest asset must be, given the position's covariance, to be named.", low=0.01, high=1.0
    )


@dataclass(frozen=True, slots=True)
class ClaimsSection:
    """The survey area and who works where."""

    cells: str = option(
        "",
        "The survey area, the same on every node: CSV of cells `cell_id,east_m,north_m`, GeoJSON with one polygon, "
        "or `site-map` for the assets of `dedup.site_map`.",
        flag="--cells",
    )
    cell_m: float = option(20.0, "Side of the squares that an area is cut into, metres.", low=1.0, high=10_000.0)
    fly: bool = option(False, "The eye's own source flies the cells (`sim://`); otherwise ask `swarmd cells next`.")


@dataclass(frozen=True, slots=True)
class HttpSection:
    """Health, metrics and the live page, on loopback."""

    listen: str = option(
        "auto", "`auto`: 127.0.0.1:7980, or any free port when that is taken; `off`; or a loopback address and port.",
        flag="--http",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class InferenceSection:
    """The inference API: other programs on this device ask its models, beside the eye."""

    listen: str = option(
        "", "Loopback address and port of the API, such as `127.0.0.1:7983`; empty: nothing is served.",
        flag="--inference",
    )  # fmt: skip
    grpc: str = option(
        "", "Loopback address and port such as `127.0.0.1:7985` for gRPC beside it (`swarmd[grpc]`); empty: none."
    )
    models: tuple[str, ...] = option(
        ("eye",), "What is served: bundles as `eye.model` names them, and `eye` for the one that the eye runs."
    )
    backends: tuple[str, ...] = option(("litert",), "Runtimes, best first.")
    threads: int = option(1, "Threads of one inference.", low=1, high=64)
    deadline_ms: int = option(1000, "Until when a request that names no time must be answered.", low=1, high=60_000)
    batch_ms: float = option(20.0, "How long a batch may hold the device.", low=0.1, high=10_000.0)
    max_requests: int = option(
        256, "Requests that wait at most; a more urgent one pushes out the last.", low=1, high=4096
    )
    max_request_mib: int = option(16, "Size of one request.", low=1, high=64)
    abilities: tuple[str, ...] = option(
        (),
        "What entries of `models` are able to, and how well: `MODEL ABILITY GRADE`, such as `zoo:small-320 "
        "detect/pv-fault 0.72`; programs ask for `able:ABILITY`.",
    )


@dataclass(frozen=True, slots=True)
class JudgeSection:
    """Another judge of this device's candidates, asked by the daemon itself."""

    model: str = option(
        "",
        "Which model looks again at the pictures of candidates: a name as served, `zoo:NAME`, a file, `able:ABILITY`; "
        "another than the eye's. Served here (`inference.models`) or, with `borrow`, by another member. Needs "
        "`eye.thumbnails`, `inference.listen`, and candidates (`eye.candidates_per_1000`). Empty: none is asked.",
    )
    need: float = option(0.9, "Score from which it is sure.", low=0.001, high=1.0)
    borrow: bool = option(
        False,
        "Another member may answer, and sees the picture; needs `lending.borrow`, holds to `lending.borrow_from`.",
    )
    per_minute: float = option(6.0, "So often it is asked at most.", low=0.01, high=600.0)
    deadline_s: float = option(20.0, "After so long nobody waits for its answer.", low=0.1, high=60.0)


LOOK = "look"
"""The right of an operator who may ask and change nothing, as `operators.allow` says it."""


@dataclass(frozen=True, slots=True)
class OperatorsSection:
    """A door for operators: the control verbs over TLS, for who holds a certificate (`--control tls://HOST`)."""

    listen: str = option("", "Address and port such as `[::]:7981`; empty: nothing listens.", reload=True)
    ca_file: str = option("", "Certificates of the authority that certifies operators, PEM.", reload=True)
    cert_file: str = option("", "This device's own certificate, PEM; renewed ones are taken in place.", reload=True)
    key_file: str = option("", "Its private key, PEM, unsealed.", reload=True)
    allow: tuple[str, ...] = option(
        (),
        "Who may come in, by the common names of their certificates: `NAME` may do everything, `NAME:look` may ask and "
        "change nothing.",
        reload=True,
    )


@dataclass(frozen=True, slots=True)
class EventsSection:
    """What is kept of what happened (`swarmd events`)."""

    max_mib: int = option(16, "The file of events stays below so many MiB; the oldest rows go.", low=2, high=4096)
    max_age_days: int = option(
        90, "Rows older than this go, except the newest 1,000 whatever the clock says.", low=1, high=36_500
    )
    author_rows: int = option(
        256, "Rows kept of what one other node said or caused; more push out its own.", low=16, high=100_000
    )


@dataclass(frozen=True, slots=True)
class HistorySection:
    """This node's own past in pages, for who comes late; and others' past, where it is fetched (`swarmd ground`)."""

    keep_h: int = option(
        24, "Pages older than this go, except the newest 60 of a node whatever the clock says; `swarmd ground` keeps "
        "720.",
        low=1, high=87_600,
    )  # fmt: skip
    max_mib: int = option(
        256, "All pages together stay below so many MiB; the oldest of whoever has the most go first; `swarmd ground` "
        "keeps 1024.",
        low=1, high=65_536,
    )  # fmt: skip
    author_mib: int = option(64, "Likewise the pages of one other node.", low=1, high=65_536)
    fetch_h: int = option(
        0, "So much of others' past is fetched from before this node began; `swarmd ground` fetches all that it would "
        "keep. 0: none.",
        low=0, high=87_600,
    )  # fmt: skip
    give_kib_s: int = option(
        16, "Pages that are given to others, KiB a second over any ten seconds, half of it to one asker, a quarter "
        "under `gossip.profile` `lean`; everything else that this node sends goes first. 0: none.",
        low=0, high=100_000,
    )  # fmt: skip
    give_to: tuple[str, ...] = option(
        (), "Roles of certificates (`swarmd keys enrol --role`) of which an asker must have one; empty: every member."
    )


@dataclass(frozen=True, slots=True)
class LogSection:
    """What the daemon says on standard error."""

    level: str = option(
        "info", "Least severe level that is written.", choices=("debug", "info", "warning", "error"), reload=True,
        flag="--log-level",
    )  # fmt: skip
    format: str = option("json", "One JSON object a line, or text for people.", choices=("json", "text"), reload=True)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, merged."""

    node: NodeSection = NodeSection()
    swarm: SwarmSection = SwarmSection()
    transport: TransportSection = TransportSection()
    gossip: GossipSection = GossipSection()
    state: StateSection = StateSection()
    eye: EyeSection = EyeSection()
    models: ModelsSection = ModelsSection()
    pose: PoseSection = PoseSection()
    dedup: DedupSection = DedupSection()
    claims: ClaimsSection = ClaimsSection()
    mqtt: MqttConfig = dataclasses.field(default_factory=MqttConfig)
    dds: DdsConfig = dataclasses.field(default_factory=DdsConfig)
    mavlink: MavlinkConfig = dataclasses.field(default_factory=MavlinkConfig)
    record: RecordConfig = dataclasses.field(default_factory=RecordConfig)
    otel: OtelConfig = dataclasses.field(default_factory=OtelConfig)
    plugins: PluginsConfig = dataclasses.field(default_factory=PluginsConfig)
    federation: FederationConfig = dataclasses.field(default_factory=FederationConfig)
    http: HttpSection = HttpSection()
    inference: InferenceSection = InferenceSection()
    lending: LendingSection = dataclasses.field(default_factory=LendingSection)
    learning: LearningSection = dataclasses.field(default_factory=LearningSection)
    judge: JudgeSection = JudgeSection()
    privacy: PrivacySection = dataclasses.field(default_factory=PrivacySection)
    operators: OperatorsSection = OperatorsSection()
    events: EventsSection = EventsSection()
    history: HistorySection = HistorySection()
    log: LogSection = LogSection()


def sections() -> Mapping[str, type[Any]]:
    """Section name to its dataclass, in the order of `Config`."""
    hints = get_type_hints(Config)
    return {item.name: hints[item.name] for item in dataclasses.fields(Config)}
