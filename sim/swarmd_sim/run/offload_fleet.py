"""Who thinks how fast in a simulated fleet: kinds of devices, their models, what they lend.

`drones`: the first hosts are strong (a fast model and little of their own to do), the next busy (a middling one and an
eye that takes most of it), the rest weak: a slow model, and every third of them none.

`traffic`: gateways first, then clouds, then poles (cameras with a better processor), the rest plain cameras. Cameras
run the small model on every frame; poles and gateways lend the larger one, gateways and clouds the largest.

`parts`: a model in a chain of three. The first hosts are strong and have every part; the next are of two halves, of
which the even ones have the front of the model and the odd ones its back; the rest asks: weak ones with every part, and
every third a camera with none.

`batch`: the first hosts are strong, the next half as quick, the rest a quarter; the last one has frames for all.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.offload.dispatcher import DispatcherConfig
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.messages import PAYLOAD_MAX_BYTES
from swarmd_protocols.offload.offload import OffloadConfig
from swarmd_protocols.offload.shards import Part, Parts
from swarmd_protocols.offload.tickets import GrantsConfig
from swarmd_protocols.offload.whom import Whom
from swarmd_sim.run.choices import MILLION
from swarmd_sim.run.sections import OffloadSection
from swarmd_sim.world.judges import LARGER, LARGEST, SMALL

BUNDLE = sha256(b"the bundle that devices run").digest()
LARGER_BUNDLE = sha256(b"a larger one, which strong devices alone have").digest()
VERSIONS = 2
"""Of a traffic fleet's models: that which runs, and that which a release brings."""
TRAFFIC = tuple(
    tuple(sha256(f"traffic, {name}, version {version}".encode()).digest() for name in ("small", "larger", "largest"))
    for version in range(VERSIONS)
)
"""Digests by version and size."""
_JUDGES = {digest: judge for digests in TRAFFIC for judge, digest in enumerate(digests)}
_VERSION_OF = {digest: version for version, digests in enumerate(TRAFFIC) for digest in digests}
_STAGES_NS = (6 * MILLION, 12 * MILLION, 4 * MILLION)
"""What the stages of the model in parts take a strong device."""
SIZES = (60_000, 30_000, 6_000, 400)
"""At its positions: a frame, features that shrink as a learned bottleneck makes them, some detections."""
PARTS = Parts(
    SIZES,
    tuple(
        Part(sha256(f"stages {begin} to {end}".encode()).digest(), begin, end)
        for begin in range(3)
        for end in range(begin + 1, 4)
    ),
)
_PART_OF = {part.digest: part for part in PARTS.parts}
_GATEWAY_GRANTS = GrantsConfig(
    borrowers_max=512, tickets_max=8, bytes_max=16 << 20, request_bytes_max=PAYLOAD_MAX_BYTES
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of device.

    Attributes:
        units: One inference of each model, nanoseconds; a bundle's digest, or in traffic a model's size.
        frame_ns: Between two frames of the own eye; 0: it has none that runs here.
        lends, asks: What it does.
        away_ns: Its way to everybody else, there and back, beside the radio's: a cloud is far.
    """

    units: dict[bytes | int, int]
    frame_ns: int = 0
    lends: bool = False
    asks: bool = True
    away_ns: int = 0
    lending: LendingConfig = field(default_factory=LendingConfig)


def _bundles(unit_ms: int, *, has_larger: bool = False) -> dict[bytes | int, int]:
    units: dict[bytes | int, int] = {BUNDLE: unit_ms * MILLION}
    if has_larger:
        units[LARGER_BUNDLE] = 3 * unit_ms * MILLION
    return units


def _stages(slower: int, *ends: tuple[int, int]) -> dict[bytes | int, int]:
    """Parts that a device has, so many times slower than a strong one; all of them where no ends are given."""
    return {
        part.digest: slower * sum(_STAGES_NS[part.begin : part.end])
        for part in PARTS.parts
        if not ends or (part.begin, part.end) in ends
    }


_BIG = LendingConfig(jobs_max=64, jobs_each=8, grants=_GATEWAY_GRANTS)
KINDS: dict[str, Kind] = {
    # A Jetson, a Raspberry Pi 5 beside its eye, a Pi Zero; a device with no accelerator and no model.
    "strong": Kind(_bundles(4, has_larger=True), 200 * MILLION, lends=True, asks=False),
    "busy": Kind(_bundles(15), 20 * MILLION, lends=True),
    "weak": Kind(_bundles(90)),
    "none": Kind({}),
    # A cabinet at a crossing with a GPU, a server far away, cameras with a better and with a plain processor.
    "gateway": Kind({LARGER: 2 * MILLION, LARGEST: 5 * MILLION}, lends=True, asks=False, lending=_BIG),
    "cloud": Kind({LARGEST: 2 * MILLION}, lends=True, asks=False, away_ns=24 * MILLION, lending=_BIG),
    "pole": Kind({SMALL: 4 * MILLION, LARGER: 9 * MILLION}, 50 * MILLION, lends=True),
    "camera": Kind({SMALL: 4 * MILLION}, 50 * MILLION),
    # A model in parts: a Jetson, two that hold a half of it each, a Raspberry Pi, a camera.
    "all": Kind(_stages(1), lends=True, asks=False),
    "front": Kind(_stages(1, (0, 1), (1, 2), (0, 2)), lends=True, asks=False),
    "back": Kind(_stages(1, (2, 3)), lends=True, asks=False),
    "slow": Kind(_stages(8)),
    "blind": Kind({}),
    # After a flight: whoever is idle does what the last one has.
    "quick": Kind(_bundles(10), lends=True, asks=False),
    "half": Kind(_bundles(20), lends=True, asks=False),
    "quarter": Kind(_bundles(40), lends=True, asks=False),
    "home": Kind(_bundles(20)),
}


def kind_of(section: OffloadSection, index: int) -> str:
    """What the host with this index is."""
    if section.fleet == "traffic":
        bounds = (("gateway", section.strong), ("cloud", section.clouds), ("pole", section.busy))
        for name, count in bounds:
            if index < count:
                return name
            index -= count
        return "camera"
    if section.fleet == "batch":
        return "quick" if index < section.strong else "half" if index < section.strong + section.busy else "quarter"
    if section.fleet == "parts":
        if index < section.strong:
            return "all"
        if index < section.strong + section.busy:
            return "back" if index % 2 else "front"
        return "blind" if index % 3 == 0 else "slow"
    if index < section.strong:
        return "strong"
    if index < section.strong + section.busy:
        return "busy"
    return "none" if index % 3 == 0 else "weak"


def size_of(digest: bytes) -> int:
    """Bytes that a part gives; 0 for whole models, which give a word."""
    return SIZES[_PART_OF[digest].end] if digest in _PART_OF else 0


def judge_of(digest: bytes) -> int:
    """Which judge of `judges.py` a traffic bundle is."""
    return _JUDGES[digest]


def is_judge(digest: bytes) -> bool:
    """Whether it is a traffic bundle."""
    return digest in _JUDGES


def version_of(digest: bytes) -> int:
    """Of which release a traffic bundle is."""
    return _VERSION_OF[digest]


def config_of(section: OffloadSection, kind: str) -> OffloadConfig:
    """What the protocol is told on a device of this kind."""
    about = KINDS[kind]
    lends = section.lending and about.lends and section.rule != "local"
    whom = Whom(same_owner=section.owners > 0)
    if section.fleet != "traffic":
        return OffloadConfig(lends=lends, borrows=about.asks, lend_to=whom, borrow_from=whom)
    return OffloadConfig(
        lends=lends,
        borrows=about.asks,
        lend_to=whom,
        borrow_from=whom,
        messages_per_s=section.offers_per_s,
        lending=about.lending,
        dispatcher=DispatcherConfig(lenders_max=128),
    )
