"""Who thinks how fast in a simulated fleet: kinds of devices, their models, what they lend.

`drones`: the first hosts are strong (a fast model and little of their own to do), the next busy (a middling one and an
eye that takes most of it), the rest weak: a slow model, and every third of them none.

`traffic`: gateways first, then clouds, then poles (cameras with a better processor), the rest plain cameras. Cameras
run the small model on every frame; poles and gateways lend the larger one, gateways and clouds the largest.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.offload.dispatcher import DispatcherConfig
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.messages import PAYLOAD_MAX_BYTES
from swarmd_protocols.offload.offload import OffloadConfig
from swarmd_protocols.offload.tickets import GrantsConfig
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
    if index < section.strong:
        return "strong"
    if index < section.strong + section.busy:
        return "busy"
    return "none" if index % 3 == 0 else "weak"


def judge_of(digest: bytes) -> int:
    """Which judge of `judges.py` a traffic bundle is."""
    return _JUDGES[digest]


def version_of(digest: bytes) -> int:
    """Of which release a traffic bundle is."""
    return _VERSION_OF[digest]


def config_of(section: OffloadSection, kind: str) -> OffloadConfig:
    """What the protocol is told on a device of this kind."""
    about = KINDS[kind]
    lends = section.lending and about.lends and section.rule != "local"
    if section.fleet != "traffic":
        return OffloadConfig(lends=lends, borrows=about.asks)
    return OffloadConfig(
        lends=lends,
        borrows=about.asks,
        messages_per_s=section.offers_per_s,
        lending=about.lending,
        dispatcher=DispatcherConfig(lenders_max=128),
    )
