"""How the brain's parts are made from the configuration; what order they are made in is `brain.py`'s."""

import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec.structs import replace

from swarmd import __version__
from swarmd.api.daemon import NodeInfo
from swarmd.api.metrics import Metrics
from swarmd.brain.journal import Journal
from swarmd.config.sections import Config, EyeSection, TransportSection
from swarmd.errors import ConfigError, TransportError
from swarmd.identity.files import dev_fleet_warning, load_credentials, load_identity, open_dev_fleet
from swarmd.logs import Logger
from swarmd.release.service import ReleaseService, ServiceConfig
from swarmd.transports.base import Transport
from swarmd.transports.casting import CastOptions
from swarmd.transports.factory import resolve
from swarmd_models.device import temperature_c
from swarmd_models.geo.positions import Plane
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.neighbours.neighbours import JOURNAL as NEIGHBOURS_JOURNAL
from swarmd_protocols.neighbours.neighbours import Neighbours
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.past.giving import GivingConfig
from swarmd_protocols.past.past import PastConfig, PastProtocol
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.lives import life_number
from swarmd_protocols.state.positions import Positions, PositionsConfig
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.subprotocol import SubProtocol
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.thumbs.requests import JOURNAL as THUMBS_JOURNAL
from swarmd_protocols.trust.identity import Identity
from swarmd_protocols.trust.trust import Trust

if TYPE_CHECKING:
    from swarmd.brain.driver import Driver
    from swarmd.brain.lending import LendingLink
    from swarmd.brain.past_link import PastLink
    from swarmd.bridges.base import Bridge
    from swarmd_models.geo.sitemap import SiteMap
    from swarmd_models.geo.survey import Cells
    from swarmd_protocols.learning.learning import Learning
    from swarmd_protocols.offload.offload import Offload
    from swarmd_protocols.summary import MemberView
    from swarmd_protocols.thumbs.thumbs import Thumbs

BOOT_KEY = b"daemon/boot"
POSITIONS_PER_S = 4
"""Messages about positions that a node passes on in a second; a quarter of it under the lean profile."""


def open_identity(config: Config, crypto: Crypto, log: Logger) -> Identity:
    """This node's identity, from where the configuration says.

    Raises:
        ConfigError: There is none, or it does not hold.
    """
    node, swarm = config.node, config.swarm
    try:
        if swarm.dev_fleet:
            log.warning("dev_fleet", text=dev_fleet_warning(Path(swarm.dev_fleet)))
            roles = (ROLE,) if config.federation.paths or config.federation.neighbours else ()
            return open_dev_fleet(Path(swarm.dev_fleet), node.name or socket.gethostname(), roles=roles)
        identity = load_identity(Path(swarm.identity)) if swarm.identity else load_credentials()
        if identity is None:
            raise ConfigError(
                "this node has no identity: give --identity DIR (from `swarmd enrol`), or --dev-fleet DIR "
                "to try things out"
            )
        identity.trust(crypto)
    except IdentityError as error:
        raise ConfigError(f"the identity does not hold: {error}; enrol this node again") from error
    if node.name and node.name != identity.name:
        raise ConfigError(f"node.name is {node.name!r}, but the identity is enrolled as {identity.name!r}; drop one")
    return identity


def read_site(config: Config, plane: Plane | None) -> "tuple[SiteMap | None, Cells]":
    """The site map and the survey area, where there are any; their readers are imported only then.

    Raises:
        ConfigError: They do not fit together, or cannot be read.
    """
    site_map: SiteMap | None = None
    cells: Cells = ()
    if config.dedup.site_map:
        from swarmd_models.geo.sitemap import load_site_map

        site_map = load_site_map(Path(config.dedup.site_map), plane)
    if config.claims.cells == "site-map":
        from swarmd_models.geo.survey import cells_of_assets

        if site_map is None:
            raise ConfigError("claims.cells is `site-map`, but dedup.site_map names none")
        places = [(asset.east_m, asset.north_m) for asset in site_map.assets]
        cells = cells_of_assets(places, config.claims.cell_m)
    elif config.claims.cells:
        from swarmd_models.geo.survey import load_survey

        cells = load_survey(Path(config.claims.cells), plane, config.claims.cell_m)
    return site_map, cells


def bridges_of(config: Config) -> "list[Bridge]":
    """The bridges that are switched on, none begun.

    Raises:
        DaemonError: What one of them needs is not installed.
    """
    from swarmd.bridges import make_bridges
    from swarmd.config.bridges import mavlink_for

    mavlink = mavlink_for(config.pose.source, config.mavlink)
    return make_bridges(config.mqtt, config.dds, mavlink, config.record, config.otel, config.plugins)


def check_eye(config: Config, log: Logger) -> None:
    """Check the pose, and say what of the eye's settings has no effect; raises `ConfigError`."""
    check_pose(config)
    if not config.eye.source and config.eye.model != EyeSection().model:
        log.warning("no_eye", text=f"eye.model is {config.eye.model!r}, but eye.source is empty: this node has no eye")
    if config.pose.source and not config.node.origin:
        log.warning(
            "no_origin", text="pose.source tells degrees, but node.origin is not set: detections carry no position"
        )


def check_pose(config: Config) -> None:
    """Read a pose that is written into the configuration; one that nobody can read is no pose.

    Raises:
        ConfigError: It is none.
    """
    source = config.pose.source
    kind = source.partition(":")[0]
    if source and kind not in ("fixed", "csv", "dataflash", "tlog", "live"):
        raise ConfigError(
            f"pose.source is {source!r}; write fixed:LAT,LON,HEIGHT_M, csv:FILE, dataflash:FILE, tlog:FILE or live"
        )
    if kind == "fixed":
        from swarmd_models.errors import ModelError
        from swarmd_models.geo.poses import open_poses

        try:
            open_poses(source)
        except ModelError as error:
            raise ConfigError(f"pose.source: {error}") from error


def state_dir(config: Config, identity: Identity | NodeInfo) -> Path:
    """Where this node keeps what survives it; nodes of one name in several development fleets keep theirs apart."""
    if config.state.dir:
        return Path(config.state.dir)
    systemd = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if systemd:
        return Path(systemd)
    name = identity.name.replace("/", "_")
    return Path("swarmd-state") / (f"{name}-{identity.node.hex()[:8]}" if config.swarm.dev_fleet else name)


def settings(config: Config, journal: Journal) -> Mapping[str, Any]:
    """What a daemon was started with, JSON-ready, and the folders that its paths mean; `swarmd doctor` judges it."""
    return {
        "config": msgspec.to_builtins(config),
        "directory": str(Path.cwd()),
        "state": str(journal.directory.absolute()),
    }


def wants_eye(config: Config) -> bool:
    """Whether this node sees."""
    return config.eye.enabled and bool(config.eye.source)


def next_boot(journal: Journal, stored: bytes) -> int:
    """A number higher than in any earlier life, even when the journal is lost: then the wall clock is the floor."""
    last = int.from_bytes(stored[:8], "big")
    boot = max(last + 1, int(time.time()))
    journal.commit([(BOOT_KEY, boot.to_bytes(8, "big"))])
    return boot


async def find_seeds(config: Config, log: Logger) -> dict[str, Address]:
    """The addresses to join, as configured, and what each is resolved to; "" where it cannot be, which is said."""
    seeds = {}
    for text in config.swarm.join:
        seeds[text] = ""
        try:
            seeds[text] = await resolve(text)
        except TransportError as error:
            log.warning("seed_unknown", seed=text, error=str(error))
    return seeds


def make_replica(
    config: Config, identity: Identity, trust: Trust, crypto: Crypto, records: Mapping[bytes, bytes], boot: int
) -> Replica:
    """The replicated state, with what the journal held of it."""
    settings = config.dedup
    groups = dict(entry.partition("=")[::2] for entry in settings.groups)
    dedup = DedupConfig(
        radius_cm=round(settings.radius_m * 100),
        confirm_observers=settings.confirm_observers,
        groups=groups,
        judge_confirms=settings.judge_confirms,
    )
    return Replica(
        node=identity.node,
        signer=NodeSigner(crypto, identity.seed),
        trust=trust,
        config=ReplicaConfig(dedup=dedup),
        rng=random.Random(random.SystemRandom().getrandbits(64)),
        restored={key: value for key, value in records.items() if key.startswith(b"state/")},
        life=life_number(boot, random.SystemRandom()),
        wall_offset_ns=time.time_ns() - time.monotonic_ns(),
        public_key=crypto.public_key(identity.seed),
    )


def make_positions(config: Config, identity: Identity, crypto: Crypto, replica: Replica, boot: int) -> Positions:
    """The sub-protocol that tells where members are."""
    settings = PositionsConfig(
        period_ns=round(config.pose.share_s * 1e9),
        messages_per_s=POSITIONS_PER_S // 4 if config.gossip.profile == "lean" else POSITIONS_PER_S,
    )
    return Positions(identity.node, NodeSigner(crypto, identity.seed), settings, boot, replica.clock.physical_ms)


def make_neighbours(
    identity: Identity,
    trust: Trust,
    crypto: Crypto,
    replica: Replica,
    plane: Plane | None,
    records: Mapping[bytes, bytes],
) -> Neighbours:
    """The sub-protocol that knows the swarms of other owners in one place with this one."""
    kept = {key: record for key, record in records.items() if key.startswith(NEIGHBOURS_JOURNAL)}
    return Neighbours(trust, identity.roots[0], crypto, replica, plane, kept)


def make_past(
    config: Config,
    identity: Identity,
    trust: Trust,
    crypto: Crypto,
    replica: Replica,
    boot: int,
    journal: Journal,
    driver: "Driver",
    counters: Callable[[], Mapping[str, int]],
    log: Logger,
) -> "PastLink":
    """The sub-protocol that gives and fetches pages of the past, with the file that it works on.

    Args:
        config: How much is kept and given.
        identity: This node's.
        trust: Who counts.
        crypto: Signs and verifies.
        replica: Knows swarm time.
        boot: A number that grows with every boot.
        journal: Whose folder the file shares.
        driver: Performs.
        counters: This node's counters; asked once a minute, when it runs.
        log: Where a disk is told of that takes no pages.
    """
    from swarmd.brain.past_link import OwnPast, PastLink
    from swarmd.events.pages import PageBounds, PageStore

    settings, signer, now_ms = config.history, NodeSigner(crypto, identity.seed), replica.clock.physical_ms
    bounds = PageBounds(settings.max_mib << 20, settings.author_mib << 20, settings.keep_h * 3_600_000)
    give_bytes_s = (settings.give_kib_s << 10) // (4 if config.gossip.profile == "lean" else 1)
    giving = GivingConfig(give_bytes_s, frozenset(settings.give_to))
    protocol = PastProtocol(identity.node, signer, trust, PastConfig(giving), now_ms)
    own = OwnPast(identity.node, signer, boot, now_ms, counters)
    store = PageStore(journal.folder, identity.node, bounds)
    link = PastLink(own, store, protocol, driver.command, now_ms, time.monotonic_ns, log)
    driver.on_order(protocol.name, link.carry_out)
    return link


def make_offload(
    config: Config, identity: Identity, trust: Trust, crypto: Crypto, replica: Replica, boot: int
) -> "Offload | None":
    """The sub-protocol that lends and borrows inference; None where the configuration wants neither."""
    settings = config.lending
    if not (settings.lend or settings.borrow):
        return None
    from swarmd.brain.lending_rules import whom
    from swarmd.brain.spending import cost_rule, micro_s
    from swarmd.worker.lent import is_answer, is_worthless
    from swarmd_protocols.offload.lending import LendingConfig
    from swarmd_protocols.offload.offload import Offload, OffloadConfig
    from swarmd_protocols.offload.tickets import GrantsConfig

    largest_bytes = config.inference.max_request_mib << 20
    lending = LendingConfig(
        round(settings.battery_min * 1000),
        settings.max_jobs,
        settings.max_jobs_each,
        input_bytes_max=largest_bytes,
        price_micro_s=micro_s(settings.price_hour),
        grants=GrantsConfig(tickets_max=4, request_bytes_max=largest_bytes),
    )
    return Offload(
        identity.node,
        identity.seed,
        crypto,
        OffloadConfig(
            settings.lend,
            settings.borrow,
            lend_to=whom(settings, "lend_to"),
            borrow_from=whom(settings, "borrow_from"),
            lending=lending,
            cost=cost_rule(settings),
        ),
        boot,
        random.Random(random.SystemRandom().getrandbits(64)),
        replica.clock.physical_ms,
        is_answer,
        trust.certified,
        is_worthless,
    )


def make_thumbs(
    config: Config,
    identity: Identity,
    replica: Replica,
    records: Mapping[bytes, bytes],
    journal: Journal,
    metrics: Metrics,
    is_looked_at: bool,
) -> "Thumbs | None":
    """The sub-protocol that keeps and fetches thumbnails; None where nobody wants any, and then none is kept either.

    Args:
        config: Says whether this device keeps any.
        identity: This node's.
        replica: Knows which sightings name which.
        records: What the journal held.
        journal: Where those of an earlier life are taken out.
        metrics: Shows how many there are and what becomes of them.
        is_looked_at: Somebody looks at those of others here.
    """
    kept = {key: record for key, record in records.items() if key.startswith(THUMBS_JOURNAL)}
    if kept and not config.eye.thumbnails:
        journal.commit([(key, None) for key in kept])
        kept = {}
    if not (config.eye.thumbnails or is_looked_at):
        return None
    from swarmd_protocols.thumbs.thumbs import Thumbs, ThumbsConfig

    views = replica.views
    thumbs = Thumbs(identity.node, ThumbsConfig(), kept, views.pictures, views.authors_of_picture)
    metrics.counters("swarmd_thumbs", "Thumbnails by what became of them.", "what", thumbs.counts)
    metrics.gauges("swarmd_thumbs_held", "Thumbnails kept, own and others', and their bytes.", "what", thumbs.held)
    return thumbs


def make_learning(
    config: Config, identity: Identity, trust: Trust, crypto: Crypto, records: Mapping[bytes, bytes]
) -> "Learning | None":
    """The sub-protocol that teaches heads; None where the configuration wants none.

    What this node said of it stays in the journal then: taking part again it must not contradict itself.
    """
    if not config.learning.enabled:
        return None
    from swarmd.brain.learning_link import make_learning

    return make_learning(config.learning, identity, trust, crypto, records)


def join_offload(
    config: Config,
    protocol: "Offload",
    driver: "Driver",
    state: Path,
    battery_milli: Callable[[], int | None],
    name_of: Callable[[NodeId], str],
    members: Callable[[], Iterable["MemberView"]],
    log: Logger,
) -> "LendingLink":
    """The link between worker and protocol, joined to the driver.

    Args:
        config: Says from which temperature on nothing is lent.
        protocol: Decides.
        driver: Performs.
        state: The daemon's folder.
        battery_milli: As `LendingLink` has it, and the rest.
        name_of: A member's name.
        members: All of them.
        log: Where a disk is told of that takes no lines.
    """
    from swarmd.brain.lending import LendingLink
    from swarmd.brain.lending_audit import LendingAudit
    from swarmd.worker.energy import battery_joules

    audit = LendingAudit(state / "lending", name_of, log)
    is_hot = lambda: (temperature_c() or -273.0) > config.lending.temperature_max_c  # noqa: E731
    full_j = config.lending.battery_wh * 3600.0 or battery_joules()
    link = LendingLink(
        protocol, driver.command, battery_milli, name_of, members, audit, is_hot, lambda: full_j
    )  # fmt: skip
    driver.on_order(protocol.name, link.carry_out)
    driver.on_lost = link.on_lost
    return link


def open_releases(
    config: Config,
    identity: Identity,
    trust: Trust,
    crypto: Crypto,
    records: Mapping[bytes, bytes],
    transport: Transport,
    log: Logger,
) -> ReleaseService:
    """The releases of this node."""
    settings = config.models
    service = ServiceConfig(
        model=settings.model if wants_eye(config) else "",
        factory=config.eye.model,
        quota_bytes=settings.quota_mib << 20,
        encrypt=settings.encrypt,
        cache=settings.model if settings.cache else "",
        turn_s=settings.turn_s,
        upload_bytes_s=settings.upload_kib_s << 10,
        cast_bytes_s=settings.cast_kib_s << 10 if config.transport.gossip == "dds" and transport.casts else 0,
    )
    return ReleaseService.open(state_dir(config, identity), service, identity, trust, crypto, records, log)


def cast_options(settings: TransportSection, identity: Identity) -> CastOptions | None:
    """How `udp` and `zmq` cast; None where that is off."""
    if settings.casts == "off":
        return None
    interface = "" if settings.casts == "auto" else settings.casts
    return CastOptions(identity.swarm, interface, settings.cast_port)


def make_node(
    config: Config,
    identity: Identity,
    trust: Trust,
    crypto: Crypto,
    seeds: Mapping[str, Address],
    records: Mapping[bytes, bytes],
    subprotocols: Sequence[SubProtocol],
    advertise: Address,
    *,
    casts: bool,
) -> Node:
    """The node with its sub-protocols; `casts` where the transport does."""
    return Node(
        identity,
        NodeConfig(
            seeds=tuple(seed for seed in seeds.values() if seed),
            version=__version__,
            capability="eye" if wants_eye(config) else "observer",
            swim=replace(
                SwimConfig.lean() if config.gossip.profile == "lean" else SwimConfig(),
                full_view_max=config.gossip.full_view_max,
                mesh=cast(Literal["off", "auto", "on"], config.gossip.mesh),
                casts=casts,
            ),
        ),
        crypto,
        random.Random(random.SystemRandom().getrandbits(64)),
        restored=records,
        subprotocols=subprotocols,
        advertise=advertise,
        trust=trust,
    )
