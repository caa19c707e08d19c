"""The composition root of the brain: identity, journal, state, node, transport, eye, interfaces; then the life of the
daemon.

Order of start: identity → journal (restored records) → transport bound → replica and node → control socket and HTTP →
READY → eye and bridges. Order of stop (SIGTERM, SIGINT): STOPPING → eye stops → the node leaves, so that peers see
LEFT and raise no suspicion → bridges → sockets → journal.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd import __version__
from swarmd.api.bus import Bus, Feed, Notice
from swarmd.api.control import ControlServer, default_path
from swarmd.api.daemon import DaemonView, PoseSeen, PositionSeen
from swarmd.api.event_verbs import find_events
from swarmd.api.events import EventLines, event_of, follow_events, read_commands
from swarmd.api.faults import FaultsOnly
from swarmd.api.learning import register_learning
from swarmd.api.metrics import Metrics
from swarmd.api.node_verbs import register_verbs
from swarmd.api.operators import OperatorDoor
from swarmd.api.verbs import Verbs
from swarmd.brain import compose, garbage
from swarmd.brain.discovery import discover
from swarmd.brain.driver import Driver
from swarmd.brain.ground import Grounds
from swarmd.brain.group_keys import follow_group_keys
from swarmd.brain.heap import give_back_heap, keep_heap_small
from swarmd.brain.history import History
from swarmd.brain.journal import Journal
from swarmd.brain.missions import Missions
from swarmd.brain.node_metrics import register_bridge, register_history, register_metrics
from swarmd.brain.notify import Notifier
from swarmd.brain.parts import Parts
from swarmd.brain.positions import Throttle, position_of
from swarmd.brain.supervise import Supervisor, next_look
from swarmd.brain.trust_told import tell_trust
from swarmd.brain.view import View
from swarmd.brain.whereabouts import follow_addresses
from swarmd.bridges.record.verbs import RecordVerbs
from swarmd.config.loading import Loaded, changed_keys
from swarmd.config.sections import Config
from swarmd.errors import DaemonError, EyeError
from swarmd.identity.files import curve_keys
from swarmd.logs import Logger
from swarmd.transports.base import Transport
from swarmd.transports.factory import make_transport
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.crypto import Crypto, NaClCrypto
from swarmd_protocols.effects import Alarm, Join, Leave, Started, StateChanged, UserEvent
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.state.observations import LocalDetection
from swarmd_protocols.state.positions import PlaceLearned
from swarmd_protocols.subprotocol import SubProtocol
from swarmd_protocols.trust.identity import Identity, open_trust

if TYPE_CHECKING:
    from swarmd.brain.learning_link import LearningLink
    from swarmd.brain.lending import LendingLink

LEAVE_S = 0.25
"""Seconds that a good-bye is given: datagrams that are on their way need no more."""
TICK_S = 1.0
"""Seconds between two looks at journal, eye and watchdog."""
WAL_BYTES = 1 << 20
"""Bytes of the write-ahead log above which it is folded into the journal: a few seconds of a busy swarm."""
SYNCED_PREFIXES = (b"daemon/", b"node/", b"swim/")
"""Records of identity and incarnation: they keep a node from contradicting what it signed in an earlier life."""


class Brain:
    """One daemon; what others see of it is `view.View`."""

    def __init__(
        self,
        loaded: Loaded,
        log: Logger,
        reload: Callable[[], Loaded] | None = None,
        beside: Mapping[str, Callable[[View], Awaitable[None]]] | None = None,
    ) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            loaded: The configuration.
            log: Where the daemon speaks.
            reload: Reads the configuration anew for SIGHUP.
            beside: What else runs as long as this daemon and looks at it, by name.
        """
        self.config: Config = loaded.config
        self.log = log
        self._reload = reload
        self._beside = beside or {}
        self._metrics = Metrics()
        self._bus = Bus(log)
        self._verbs = Verbs()
        self._supervisor = Supervisor(log)
        self._notifier = Notifier()
        self._started_ns = time.monotonic_ns()
        self._stopping = asyncio.Event()
        self._crypto: Crypto = NaClCrypto()
        self._told = Throttle(self.config.pose.share_s)
        self._lines: EventLines | None = None
        self._fatal: EyeError | None = None
        self._lending: LendingLink | None = None
        self._learning: LearningLink | None = None
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
            await self._stopping.wait()
            await self._stop()
        if self._fatal is not None:
            raise self._fatal
        return 0

    async def _start(self, events: bool) -> None:
        config = self.config
        compose.check_eye(config, self.log)
        bridges = compose.bridges_of(config)  # First: what one misses is said before anything is begun.
        identity = compose.open_identity(config, self._crypto, self.log)
        self.log.bind(identity.name)
        plane = Plane(*config.node.origin) if config.node.origin else None
        site_map, cells = compose.read_site(config, plane)
        sightings = SightingFilter(LocalDetection, plane, site_map, config.dedup.asset_probability)
        parts = self.parts = await self._compose(identity, sightings)
        history = self._history
        self.view = View(parts, history, self.stop)
        control_path = Path(config.node.control) if config.node.control else default_path(identity.name)
        control = ControlServer(
            control_path,
            self._verbs.begin,
            self._watch,
            self.log,
            on_command=lambda verb, arguments, by, problem: (
                history.on_command(verb, arguments, by, problem) if verb in self._verbs.changing else None
            ),
            slow={"events": lambda arguments: find_events(self.view, arguments)},
            streams={"follow_events": lambda: follow_events(self._bus)},
        )
        self._register()
        await self._open_http()
        # From here to `Started` nothing is awaited, so that the first question finds what the journal held.
        await control.start()
        self._stack.push_async_callback(control.close)
        parts.control_path = control.path
        parts.door = OperatorDoor(config.operators, control, self.log, partial(history.set_alert, "operators-shut-out"))
        if events:
            self._lines = EventLines(self._bus, self.log, 1)
            read_commands(self._on_stdin_event, self.log)
        self._signals()
        self._stack.push_async_callback(self._supervisor.close)
        self._bus.subscribe(self._on_notice)
        parts.node.on_cast_opened = parts.transport.cast_opened
        parts.driver.attach(parts.node, parts.transport)
        parts.driver.request(Started())
        history.begin()
        parts.grounds.begin()
        Missions(parts, cells).begin()
        self._say_up()
        self._supervisor.keep("tick", self._tick)
        self._supervisor.keep("heap", keep_heap_small)
        self._supervisor.keep("releases", parts.releases.run)
        self._supervisor.keep("operators", parts.door.run)
        self._keep_joining()
        self._start_worker()
        self._start_eye()
        if self._learning is not None:
            self._supervisor.keep("learning", self._learning.run)
        parts.bridges = bridges
        self._start_bridges()

    async def _stop(self) -> None:
        self._notifier.stopping()
        self.log.info("stopping")
        self._history.end()
        if self.parts.eye is not None:
            await self.parts.eye.close()
        self.parts.driver.post(Leave())
        # The good-bye travels as datagrams; a moment later there is nobody left to repeat it.
        await asyncio.sleep(LEAVE_S)

    def stop(self) -> None:
        """Begin to leave."""
        self._stopping.set()

    # --- parts ----------------------------------------------------------------------------------------------------

    async def _compose(self, identity: Identity, sightings: SightingFilter[LocalDetection]) -> Parts:
        config, crypto, stack = self.config, self._crypto, self._stack
        journal = Journal(compose.state_dir(config, identity), config.state.durability, SYNCED_PREFIXES)
        stack.callback(journal.close)
        driver = Driver(journal, self._bus, self.log, self._metrics)
        stack.callback(driver.close)
        transport = await self._open_transport(identity, driver)
        records, journal.records = journal.records, {}
        boot = compose.next_boot(journal, records.get(compose.BOOT_KEY, b""))
        trust = open_trust(identity, records, crypto)
        replica = compose.make_replica(config, identity, trust, crypto, records, boot)
        positions = compose.make_positions(config, identity, crypto, replica, boot)
        releases = compose.open_releases(config, identity, trust, crypto, records, transport, self.log)
        stack.callback(releases.close)
        releases.attach(self._bus, driver.command)
        driver.on_order("releases", releases.carry_out)
        seeds = await compose.find_seeds(config, self.log)
        past = compose.make_past(
            config, identity, trust, crypto, replica, boot, journal, driver, lambda: self.view.counters(), self.log
        )
        neighbours = compose.make_neighbours(identity, trust, crypto, replica, sightings.plane, records)
        subprotocols: list[SubProtocol] = [replica, releases.protocol, positions, past.protocol, neighbours]
        offload = compose.make_offload(config, identity, trust, crypto, replica, boot)
        thumbs = compose.make_thumbs(config, identity, replica, records, journal, self._metrics, bool(self._beside))
        learning = compose.make_learning(config, identity, trust, crypto, records)
        subprotocols += [one for one in (offload, thumbs, learning) if one is not None]
        address = transport.local_address
        node = compose.make_node(
            config, identity, trust, crypto, seeds, records, subprotocols, address, casts=transport.casts
        )
        # A node without an eye flies no cells: whoever asks for one at the control socket reads the answer there.
        driver.on_order("state", lambda request: None)
        parts = Parts(
            config=config,
            log=self.log,
            metrics=self._metrics,
            bus=self._bus,
            verbs=self._verbs,
            supervisor=self._supervisor,
            started_ns=self._started_ns,
            identity=identity,
            journal=journal,
            driver=driver,
            transport=transport,
            sightings=sightings,
            node=node,
            replica=replica,
            positions=positions,
            releases=releases,
            grounds=Grounds(self._bus, identity.node, node.members, driver.request),
            seeds=seeds,
        )
        if offload is not None:
            self._lending = compose.join_offload(
                config, offload, driver, journal.directory, parts.battery_milli, self._name_of, node.members, self.log
            )
            self._lending.tell = self._bus.publish if config.otel.enabled else None
            stack.callback(self._lending.close)
        if learning is not None:
            from swarmd.brain.learning_parts import join_learning

            self._learning = join_learning(parts, learning, lambda: self.view, stack)
        history = self._history = History(parts, trust, journal, past)
        stack.callback(history.close)
        await history.open()
        releases.on_note = history.watch.on_release_note
        return parts

    async def _open_transport(self, identity: Identity, driver: Driver) -> Transport:
        settings = self.config.transport
        transport = make_transport(
            settings.gossip,
            settings.listen,
            curve_keys(identity),
            advertise=settings.advertise,
            interfaces=settings.interfaces,
            casts=compose.cast_options(settings, identity),
        )
        await transport.start(driver.handlers())
        self._stack.push_async_callback(transport.close)
        return transport

    async def _open_http(self) -> None:
        listen = self.config.http.listen
        if listen == "off":
            return
        from swarmd.api.http import HttpServer
        from swarmd.api.pages import pages

        server = HttpServer(listen, pages(self.view, self._verbs, self._metrics), self.log)
        await server.start()
        self._stack.push_async_callback(server.close)
        self.parts.http_address = server.address

    def _register(self) -> None:
        from swarmd.release.verbs import ModelVerbs

        register_verbs(self.view, self._verbs)
        RecordVerbs(FaultsOnly(self.view), self.config.record, self._supervisor.keep).register(self._verbs)
        ModelVerbs(self.parts.releases, self._member_names).register(self._verbs)
        register_learning(self._verbs, lambda: self._learning)
        self._verbs.add("reload", self._read_again, changes=True)
        self._verbs.add("settings", lambda _: compose.settings(self.config, self.parts.journal))
        register_metrics(self.parts)
        register_history(self._metrics, self._history)

    def _signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _start_eye(self) -> None:
        if not compose.wants_eye(self.config):
            return
        from swarmd.brain.eyelink import EyeLink
        from swarmd.release.trial import EyeRunner

        parts = self.parts
        shows_to = parts.worker or self._learning
        gate_fd = -1 if shows_to is None else shows_to.gate_fd
        eye = parts.eye = EyeLink(
            self.config, parts.driver, self._bus, parts.sightings, self._metrics, self.log, gate_fd
        )
        eye.model_path = parts.releases.start_model()
        eye.on_event = self._history.watch.on_eye
        parts.releases.use_runner(EyeRunner(eye, parts.is_armed))
        parts.releases.announce()
        self._supervisor.keep("eye", self._run_eye)

    def _start_worker(self) -> None:
        if not self.config.inference.listen:
            return
        from swarmd.brain.judgelink import keep_worker

        self._stack.callback(keep_worker(self.parts, self._lending).close)

    async def _run_eye(self) -> None:
        assert self.parts.eye is not None
        try:
            await self.parts.eye.run()
        except EyeError as error:
            self._fatal = error
            self.stop()

    def _name_of(self, node: NodeId) -> str:
        return self.parts.node.names().get(node, node.hex()[:8])

    def _member_names(self) -> dict[NodeId, str]:
        return {member.node: member.name for member in self.parts.node.members()}

    def _keep_joining(self) -> None:
        identity, node, transport = self.parts.identity, self.parts.node, self.parts.transport
        self._supervisor.keep("group-keys", lambda: follow_group_keys(identity, node.group_keys, transport, self.log))
        request = self.parts.driver.request
        self._supervisor.keep("trust-told", lambda: tell_trust(self._bus, node.trust, request))
        self._supervisor.keep(
            "addresses", lambda: follow_addresses(transport, self.parts.driver.post, self._on_alarm, self.log)
        )
        if self.config.swarm.mdns != "off":
            found = self._on_address_found
            self._supervisor.keep("mdns", lambda: discover(self.config, identity, transport, found))

    def _on_address_found(self, address: Address) -> None:
        self.log.info("found_by_mdns", address=address)
        self.parts.driver.post(Join((address,)))

    def _start_bridges(self) -> None:
        for bridge in self.parts.bridges:
            register_bridge(self._metrics, bridge)
            self._supervisor.keep(f"bridge-{bridge.name}", _runner(bridge.run, FaultsOnly(self.view)))
        for name, run in self._beside.items():
            self._supervisor.keep(name, _runner(run, self.view))

    def _say_up(self) -> None:
        parts = self.parts
        node, address = parts.identity.node.hex(), parts.transport.local_address
        self.log.info(
            "up",
            node=node,
            swarm=parts.identity.swarm,
            address=address,
            control=str(parts.control_path),
            http=parts.http_address,
            version=__version__,
        )
        if self._lines is not None:
            self._lines.say("up", parts.identity.name, node=node, address=address)
        self._notifier.ready(self._status_line())
        # What the journal held is no part of a slice.
        garbage.look_at_all(lambda: parts.replica.views.health()["sightings"])
        give_back_heap()

    # --- while it runs --------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Once a second: watchdog, status line, journal care, counters."""
        loop = asyncio.get_running_loop()
        interval = min(TICK_S, self._notifier.watchdog_interval_s or TICK_S)
        line = ""
        parts = self.parts
        journal = parts.journal
        while True:
            self._notifier.watchdog()
            if self._notifier.is_heard and (fresh := self._status_line()) != line:
                line = fresh
                self._notifier.status(line)
            journal.retry(time.monotonic_ns())
            self._journal_alarms()
            self._history.tick()
            if parts.eye is not None:
                parts.eye.tick()
            if journal.wal_bytes() > WAL_BYTES:
                await loop.run_in_executor(None, journal.checkpoint)
            await next_look(interval)

    def _journal_alarms(self) -> None:
        for code, text in self.parts.journal.take_alarms():
            self._on_alarm(Alarm(code, text))

    def _on_alarm(self, alarm: Alarm) -> None:
        self.log.error("alarm", code=alarm.code, text=alarm.text)
        self._bus.publish(alarm)

    def _status_line(self) -> str:
        """What `systemctl status` shows."""
        states: dict[str, int] = {}
        for state in self.parts.node.summary().members.values():
            states[state.value] = states.get(state.value, 0) + 1
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def _on_notice(self, notice: Notice) -> None:
        """Peers' positions are news for bridges, like the own one; the own position is news for peers."""
        match notice:
            case StateChanged(detail=PlaceLearned(node, located)):
                position = None if located is None else position_of(located, self.parts.grounds.of(node))
                self._bus.publish(PositionSeen(node, self.view.name_of(node), position))
            case PoseSeen():
                request = self._told.take(notice)
                if request is not None:
                    self._history.say_place(request)
            case _:
                pass

    def _on_stdin_event(self, name: str) -> None:
        try:
            self.parts.driver.request(UserEvent(name, b""))
        except ProtocolError as error:
            self.log.warning("user_event_refused", name=name, error=str(error))

    def _on_reload(self) -> None:
        # SIGHUP has nobody to answer: what was refused is in the log.
        with contextlib.suppress(DaemonError):
            self._read_again({})

    def _read_again(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the configuration again and apply what can be; raises `DaemonError`, and the running one stays."""
        if self._reload is None:
            raise DaemonError("this daemon has no configuration to read again")
        self._notifier.reloading()
        try:
            fresh = self._reload().config
        except DaemonError as error:
            self.log.error("reload_refused", error=str(error), text="the running configuration stays")
            raise
        else:
            now, later = changed_keys(self.config, fresh)
            self.log.configure(fresh.log.level, fresh.log.format)
            if self.parts.door is not None:
                self.parts.door.configure(fresh.operators)
            self.log.info("reloaded", applied=now, needs_restart=later)
            what = f"applied: {', '.join(now) or 'nothing'}; needs a restart: {', '.join(later) or 'nothing'}"
            self._history.recorder.record("reloaded", "configuration", what)
            return {"applied": now, "needs_restart": later}
        finally:
            self._notifier.ready(self._status_line())

    async def _watch(self) -> AsyncIterator[Mapping[str, Any]]:
        feed = Feed(self._bus)
        try:
            while True:
                line = event_of(await feed.next())
                if line is not None:
                    yield {**line, "t_ns": time.monotonic_ns()}
        finally:
            feed.close()


def _runner(run: Callable[[Any], Any], view: DaemonView) -> Callable[[], Any]:
    return lambda: run(view)
