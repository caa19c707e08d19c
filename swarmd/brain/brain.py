"""The composition root of the brain: identity, journal, state, node, transport, eye, interfaces; then the life of the
daemon.

Order of start: identity → journal (restored records) → transport bound → replica and node → control socket and HTTP →
READY → eye and bridges. Order of stop (SIGTERM, SIGINT): STOPPING → eye stops → the node leaves, so that peers see
LEFT and raise no suspicion → bridges → sockets → journal.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd import __version__
from swarmd.api.control import ControlServer, default_path
from swarmd.api.events import EventLines, event_of, read_commands
from swarmd.api.metrics import Metrics
from swarmd.api.verbs import Verbs
from swarmd.brain.bus import Bus, Feed, Notice
from swarmd.brain.discovery import discover, wants_mdns
from swarmd.brain.driver import Driver
from swarmd.brain.group_keys import follow_group_keys
from swarmd.brain.journal import Journal
from swarmd.brain.notify import Notifier
from swarmd.brain.positions import Throttle, position_of
from swarmd.brain.supervise import Supervisor
from swarmd.bridges.base import Bridge, BusEvent, NodeInfo, NodePosition, PictureSeen, PoseSeen, PositionSeen, seen_of
from swarmd.config.loading import Loaded, changed_keys
from swarmd.config.sections import Config
from swarmd.errors import ConfigError, DaemonError, EyeError, TransportError
from swarmd.eye.ipc import ShowFrames
from swarmd.identity.files import curve_keys, dev_fleet_warning, load_credentials, load_identity, open_dev_fleet
from swarmd.logs import Logger
from swarmd.release.service import ReleaseService, ServiceConfig
from swarmd.transports.base import Transport
from swarmd.transports.factory import make_transport, resolve
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.crypto import Crypto, NaClCrypto
from swarmd_protocols.effects import Alarm, Command, Join, Leave, Started, StateChanged, UserEvent
from swarmd_protocols.errors import IdentityError, ProtocolError
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.node import MemberView, Node, NodeConfig
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.observations import (
    CellView,
    DefineCells,
    DetectionLearned,
    DetectionView,
    LocalDetection,
    ObjectView,
)
from swarmd_protocols.state.positions import NAME as WHERE
from swarmd_protocols.state.positions import PlaceLearned, Positions, PositionsConfig
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.trust import Trust

if TYPE_CHECKING:
    from swarmd.brain.eyelink import EyeLink
    from swarmd_models.geo.sitemap import SiteMap
    from swarmd_models.geo.survey import Cells

BOOT_KEY = b"daemon/boot"
LEAVE_S = 1.0
TICK_S = 1.0
SYNCED_PREFIXES = (b"daemon/", b"node/", b"swim/")
"""Records of identity and incarnation: they keep a node from contradicting what it signed in an earlier life."""


class Brain:
    """One daemon. Implements `bridges.base.DaemonView`."""

    def __init__(self, loaded: Loaded, log: Logger, reload: Callable[[], Loaded] | None = None) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            loaded: The configuration.
            log: Where the daemon speaks.
            reload: Reads the configuration anew for SIGHUP.
        """
        self.config: Config = loaded.config
        self.log = log
        self._reload = reload
        self.metrics = Metrics()
        self.bus = Bus(log)
        self.verbs = Verbs()
        self.supervisor = Supervisor(log)
        self.notifier = Notifier()
        self.started_ns = time.monotonic_ns()
        self.stopping = asyncio.Event()
        self.bridges: list[Bridge] = []
        self.eye: EyeLink | None = None
        self.http_address = ""
        self.armed: bool | None = None
        """What the autopilot last said; a model that asks for "disarmed" waits for False."""
        self._crypto: Crypto = NaClCrypto()
        self._lines: EventLines | None = None
        self._fatal: EyeError | None = None
        self._stack = contextlib.AsyncExitStack()

    # --- life -----------------------------------------------------------------------------------------------------

    async def run(self, events: bool = False) -> int:
        """Live until told to stop.

        Args:
            events: Print event lines on standard output and read commands on standard input.

        Returns:
            The exit status.

        Raises:
            DaemonError: The daemon cannot start, or its eye can never work as configured; nothing is left behind.
        """
        async with self._stack:
            await self._start(events)
            await self.stopping.wait()
            await self._stop()
        if self._fatal is not None:
            raise self._fatal
        return 0

    async def _start(self, events: bool) -> None:
        config = self.config
        self.identity = self._open_identity()
        self.name = self.identity.name
        self.log.bind(self.name)
        self.plane = Plane(*config.node.origin) if config.node.origin else None
        cells = self._read_site()
        self.journal = Journal(self._state_dir(), config.state.durability, SYNCED_PREFIXES)
        self._stack.callback(self.journal.close)
        self.driver = Driver(self.journal, self.bus, self.log, self.metrics)
        self._stack.callback(self.driver.close)
        self.transport = await self._open_transport()
        self.node, self.replica = await self._compose()
        control = ControlServer(self._control_path(), self.verbs.answer, self._watch, self.log)
        self._register()
        await self._open_http()
        # From here to `Started` nothing is awaited, so that the first question finds what the journal held.
        await control.start()
        self._stack.push_async_callback(control.close)
        self.control_path = control.path
        if events:
            self._lines = EventLines(self.bus, self.log, 1)
            read_commands(self._on_stdin_event, self.log)
        self._signals()
        self._stack.push_async_callback(self.supervisor.close)
        self.bus.subscribe(self._on_notice)
        self.driver.attach(self.node, self.transport)
        self.driver.request(Started())
        if cells:
            self.driver.command("state", DefineCells(cells))
        self._say_up()
        self.supervisor.keep("tick", self._tick)
        self.supervisor.keep("releases", self.releases.run)
        self._keep_joining()
        self._start_eye()
        self._start_bridges()

    async def _stop(self) -> None:
        self.notifier.stopping()
        self.log.info("stopping")
        if self.eye is not None:
            await self.eye.close()
        self.driver.post(Leave())
        # The good-bye travels as datagrams; a moment later there is nobody left to repeat it.
        await asyncio.sleep(LEAVE_S / 4)

    def stop(self) -> None:
        """Begin to leave."""
        self.stopping.set()

    # --- parts ----------------------------------------------------------------------------------------------------

    def _open_identity(self) -> Identity:
        node, swarm = self.config.node, self.config.swarm
        try:
            if swarm.dev_fleet:
                self.log.warning("dev_fleet", text=dev_fleet_warning(Path(swarm.dev_fleet)))
                return open_dev_fleet(Path(swarm.dev_fleet), node.name or socket.gethostname())
            identity = load_identity(Path(swarm.identity)) if swarm.identity else load_credentials()
            if identity is None:
                raise ConfigError(
                    "this node has no identity: give --identity DIR (from `swarmd keys enrol`), or --dev-fleet DIR "
                    "to try things out"
                )
            identity.trust(self._crypto)
        except IdentityError as error:
            raise ConfigError(f"the identity does not hold: {error}; enrol this node again") from error
        if node.name and node.name != identity.name:
            raise ConfigError(
                f"node.name is {node.name!r}, but the identity is enrolled as {identity.name!r}; drop one"
            )
        return identity

    def _read_site(self) -> "Cells":
        """The site map and the survey area, where there are any; their readers are imported only then."""
        config = self.config
        site_map: SiteMap | None = None
        cells: Cells = ()
        if config.dedup.site_map:
            from swarmd_models.geo.sitemap import load_site_map

            site_map = load_site_map(Path(config.dedup.site_map), self.plane)
        if config.claims.cells == "site-map":
            from swarmd_models.geo.survey import cells_of_assets

            if site_map is None:
                raise ConfigError("claims.cells is `site-map`, but dedup.site_map names none")
            places = [(asset.east_m, asset.north_m) for asset in site_map.assets]
            cells = cells_of_assets(places, config.claims.cell_m)
        elif config.claims.cells:
            from swarmd_models.geo.survey import load_survey

            cells = load_survey(Path(config.claims.cells), self.plane, config.claims.cell_m)
        self.sightings = SightingFilter(LocalDetection, self.plane, site_map, config.dedup.asset_probability)
        return cells

    def _state_dir(self) -> Path:
        if self.config.state.dir:
            return Path(self.config.state.dir)
        systemd = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
        return Path(systemd) if systemd else Path("swarmd-state") / self.name.replace("/", "_")

    def _control_path(self) -> Path:
        return Path(self.config.node.control) if self.config.node.control else default_path(self.name)

    async def _open_transport(self) -> Transport:
        settings = self.config.transport
        transport = make_transport(
            settings.gossip, settings.listen, curve_keys(self.identity), advertise=settings.advertise
        )
        await transport.start(self.driver.handlers())
        self._stack.push_async_callback(transport.close)
        return transport

    async def _compose(self) -> tuple[Node, Replica]:
        records, self.journal.records = self.journal.records, {}
        boot = self._next_boot(records.get(BOOT_KEY, b""))
        trust = open_trust(self.identity, records, self._crypto)
        replica = Replica(
            node=self.identity.node,
            signer=NodeSigner(self._crypto, self.identity.seed),
            trust=trust,
            config=ReplicaConfig(dedup=self._dedup()),
            rng=random.Random(random.SystemRandom().getrandbits(64)),
            restored={key: value for key, value in records.items() if key.startswith(b"state/")},
            boot_incarnation=boot,
            wall_offset_ns=time.time_ns() - time.monotonic_ns(),
        )
        self.whereabouts = self._open_whereabouts(replica, boot)
        self.releases = self._open_releases(records, trust)
        node = Node(
            self.identity,
            NodeConfig(
                seeds=tuple(await self._seeds()),
                version=__version__,
                capability="eye" if self._wants_eye() else "observer",
                swim=replace(
                    SwimConfig.lean() if self.config.gossip.profile == "lean" else SwimConfig(),
                    full_view_max=self.config.gossip.full_view_max,
                ),
            ),
            self._crypto,
            random.Random(random.SystemRandom().getrandbits(64)),
            restored=records,
            subprotocols=[replica, self.releases.protocol, self.whereabouts],
            advertise=self.transport.local_address,
            trust=trust,
        )
        return node, replica

    def _open_whereabouts(self, replica: Replica, boot: int) -> Positions:
        share_s = self.config.pose.share_s
        self._told = Throttle(share_s)
        config = PositionsConfig(
            period_ns=round(share_s * 1e9), messages_per_s=1 if self.config.gossip.profile == "lean" else 4
        )
        signer = NodeSigner(self._crypto, self.identity.seed)
        return Positions(self.identity.node, signer, config, boot, replica.clock.physical_ms)

    def _open_releases(self, records: Mapping[bytes, bytes], trust: Trust) -> ReleaseService:
        settings = self.config.models
        config = ServiceConfig(
            model=settings.model if self._wants_eye() else "",
            factory=self.config.eye.model,
            quota_bytes=settings.quota_mib << 20,
            encrypt=settings.encrypt,
            cache=settings.model if settings.cache else "",
            turn_s=settings.turn_s,
            cast_bytes_s=settings.cast_kib_s << 10 if self.transport.casts else 0,
        )
        service = ReleaseService.open(self._state_dir(), config, self.identity, trust, self._crypto, records, self.log)
        self._stack.callback(service.close)
        service.attach(self.bus, self.driver.command)
        self.driver.on_order("releases", service.carry_out)
        return service

    def _next_boot(self, stored: bytes) -> int:
        """A number higher than in any earlier life, even when the journal is lost: then the wall clock is the floor."""
        last = int.from_bytes(stored[:8], "big")
        boot = max(last + 1, int(time.time()))
        self.journal.commit([(BOOT_KEY, boot.to_bytes(8, "big"))])
        return boot

    def _dedup(self) -> DedupConfig:
        settings = self.config.dedup
        groups = dict(entry.partition("=")[::2] for entry in settings.groups)
        return DedupConfig(
            radius_cm=round(settings.radius_m * 100), confirm_observers=settings.confirm_observers, groups=groups
        )

    async def _seeds(self) -> list[str]:
        seeds = []
        for text in self.config.swarm.join:
            try:
                seeds.append(await resolve(text))
            except TransportError as error:
                self.log.warning("seed_unknown", seed=text, error=str(error))
        return seeds

    async def _open_http(self) -> None:
        listen = self.config.http.listen
        if listen == "off":
            return
        from swarmd.api.http import HttpServer
        from swarmd.api.pages import pages

        server = HttpServer(listen, pages(self), self.log)
        await server.start()
        self._stack.push_async_callback(server.close)
        self.http_address = server.address

    def _register(self) -> None:
        from swarmd.api.node_metrics import register_metrics
        from swarmd.api.node_verbs import register_verbs
        from swarmd.release.verbs import ModelVerbs

        register_verbs(self)
        ModelVerbs(self.releases, self._member_names).register(self.verbs)
        register_metrics(self)

    def _signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _wants_eye(self) -> bool:
        return self.config.eye.enabled and bool(self.config.eye.source)

    def _start_eye(self) -> None:
        if not self._wants_eye():
            return
        from swarmd.brain.eyelink import EyeLink
        from swarmd.release.trial import EyeRunner

        self.eye = EyeLink(
            self.config,
            self.driver,
            self.bus,
            self.sightings,
            self.metrics,
            self.log,
            self.identity.node,
            self.name,
        )
        self.eye.model_path = self.releases.start_model()
        self.releases.use_runner(EyeRunner(self.eye, self._is_armed))
        self.releases.announce()
        self.supervisor.keep("eye", self._run_eye)

    async def _run_eye(self) -> None:
        assert self.eye is not None
        try:
            await self.eye.run()
        except EyeError as error:
            self._fatal = error
            self.stop()

    def _is_armed(self) -> bool | None:
        """Whether the vehicle is armed, None while nobody says so."""
        return self.armed

    def _member_names(self) -> dict[NodeId, str]:
        return {member.node: member.name for member in self.node.members()}

    def _keep_joining(self) -> None:
        node, transport = self.node, self.transport
        self.supervisor.keep(
            "group-keys", lambda: follow_group_keys(self.identity, node.group_keys, transport, self.log)
        )
        address = transport.local_address
        if wants_mdns(self.config, address):
            found = self._on_address_found
            self.supervisor.keep("mdns", lambda: discover(self.identity, address, found))

    def _on_address_found(self, address: Address) -> None:
        self.log.info("found_by_mdns", address=address)
        self.driver.post(Join((address,)))

    def _start_bridges(self) -> None:
        from swarmd.api.node_metrics import register_bridge
        from swarmd.bridges import make_bridges
        from swarmd.config.bridges import mavlink_for

        config = self.config
        mavlink = mavlink_for(config.pose.source, config.mavlink)
        self.bridges = make_bridges(config.mqtt, config.dds, mavlink, config.record, config.otel)
        for bridge in self.bridges:
            register_bridge(self.metrics, bridge)
            self.supervisor.keep(f"bridge-{bridge.name}", _runner(bridge.run, self))

    def _say_up(self) -> None:
        self.log.info(
            "up",
            node=self.identity.node.hex(),
            swarm=self.identity.swarm,
            address=self.transport.local_address,
            control=str(self.control_path),
            http=self.http_address,
            version=__version__,
        )
        if self._lines is not None:
            self._lines.say("up", self.name, node=self.identity.node.hex(), address=self.transport.local_address)
        self.notifier.ready(self.status_line())

    # --- while it runs --------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Once a second: watchdog, status line, journal care, counters."""
        loop = asyncio.get_running_loop()
        interval = min(TICK_S, self.notifier.watchdog_interval_s or TICK_S)
        line = ""
        while True:
            self.notifier.watchdog()
            if self.notifier.is_heard and (fresh := self.status_line()) != line:
                line = fresh
                self.notifier.status(line)
            self.journal.retry(time.monotonic_ns())
            self._journal_alarms()
            if self.eye is not None:
                self.eye.tick()
            if self.journal.wal_bytes() > 1 << 20:
                await loop.run_in_executor(None, self.journal.checkpoint)
            await asyncio.sleep(interval)

    def _journal_alarms(self) -> None:
        for code, text in self.journal.take_alarms():
            self.log.error("alarm", code=code, text=text)
            self.bus.publish(Alarm(code, text))

    def status_line(self) -> str:
        """What `systemctl status` shows."""
        states: dict[str, int] = {}
        for state in self.node.summary().members.values():
            states[state.value] = states.get(state.value, 0) + 1
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def _on_notice(self, notice: Notice) -> None:
        """Peers' sightings and positions are news for bridges, like own ones; the own position is news for peers."""
        match notice:
            case StateChanged(detail=DetectionLearned(view)):
                self.bus.publish(seen_of(view, self._member_names().get(view.origin, view.origin.hex())))
            case StateChanged(detail=PlaceLearned(node, located)):
                name = self._member_names().get(node, node.hex())
                self.bus.publish(PositionSeen(node, name, None if located is None else position_of(located)))
            case PoseSeen():
                request = self._told.take(notice)
                if request is not None:
                    self.driver.command(WHERE, request)
            case _:
                pass

    def _on_stdin_event(self, name: str) -> None:
        try:
            self.driver.request(UserEvent(name, b""))
        except ProtocolError as error:
            self.log.warning("user_event_refused", name=name, error=str(error))

    def _on_reload(self) -> None:
        if self._reload is None:
            return
        self.notifier.reloading()
        try:
            fresh = self._reload().config
        except DaemonError as error:
            self.log.error("reload_refused", error=str(error), text="the running configuration stays")
        else:
            now, later = changed_keys(self.config, fresh)
            self.log.configure(fresh.log.level, fresh.log.format)
            self.log.info("reloaded", applied=now, needs_restart=later)
        self.notifier.ready(self.status_line())

    async def _watch(self) -> AsyncIterator[Mapping[str, Any]]:
        feed = Feed(self.bus)
        try:
            while True:
                line = event_of(await feed.next())
                if line is not None:
                    yield {**line, "t_ns": time.monotonic_ns()}
        finally:
            feed.close()

    # --- DaemonView -----------------------------------------------------------------------------------------------

    def info(self) -> NodeInfo:
        """Who we are."""
        latitude, longitude = self.config.node.origin or (0.0, 0.0)
        eye = self.eye
        return NodeInfo(
            node=self.identity.node,
            name=self.name,
            swarm=self.identity.swarm,
            version=__version__,
            origin_latitude_deg=latitude,
            origin_longitude_deg=longitude,
            model=eye.model if eye is not None else "",
            model_digest=eye.model_digest if eye is not None else "",
            labels=eye.labels if eye is not None else (),
            has_origin=self.plane is not None,
        )

    def members(self) -> Sequence[MemberView]:
        """All members, this node included."""
        return self.node.members()

    def objects(self) -> Sequence[ObjectView]:
        """The deduplicated view."""
        return self.replica.views.objects()

    def positions(self) -> Mapping[NodeId, NodePosition]:
        """The last known position of each member that has said one, this node included."""
        return {node: position_of(located) for node, located in self.whereabouts.located().items()}

    def watch_pictures(
        self, callback: Callable[[PictureSeen], None], interval_ms: int, width: int, quality: int
    ) -> Callable[[], None]:
        """Have the eye show small pictures; without an eye there are none."""
        if self.eye is None:
            return lambda: None
        return self.eye.pictures.watch(ShowFrames(interval_ms, width, quality), callback)

    def own_sighting(self, track_id: int) -> DetectionView | None:
        """What a living track of this node became in the shared state."""
        return self.replica.views.own_sighting(track_id)

    def cells(self) -> Sequence[CellView]:
        """The survey area."""
        return self.replica.views.cells()

    def counters(self) -> Mapping[str, int]:
        """This daemon's monotonic counters, by metric name."""
        from swarmd.api.node_metrics import all_counters

        return all_counters(self)

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """Call back on the loop for each event from now on."""
        return self.bus.subscribe(lambda notice: callback(notice) if isinstance(notice, BusEvent) else None)

    def command(self, verb: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Run a control verb as the CLI would, or one that only bridges have."""
        return self.verbs.answer_inside(verb, arguments)

    def join(self, addresses: tuple[str, ...]) -> None:
        """Look for a swarm there."""
        self.driver.request(Join(addresses))


def _runner(run: Callable[[Any], Any], brain: Brain) -> Callable[[], Any]:
    return lambda: run(brain)


__all__ = ["Brain", "Command"]
