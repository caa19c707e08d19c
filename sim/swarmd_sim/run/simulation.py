"""One run: a scenario and a seed in, a result out. Everything is wired together here and nowhere else."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from swarmd_protocols.state.replica import ReplicaConfig
from swarmd_sim.checkers.base import CheckerBase, RunContext
from swarmd_sim.checkers.begins import BeginsChecker
from swarmd_sim.checkers.bounds import BoundsChecker
from swarmd_sim.checkers.claims import ClaimsChecker
from swarmd_sim.checkers.decisions import DecisionsChecker
from swarmd_sim.checkers.holding import HoldingChecker
from swarmd_sim.checkers.membership import MembershipChecker
from swarmd_sim.checkers.offload import OffloadChecker
from swarmd_sim.checkers.releases import ReleasesChecker
from swarmd_sim.checkers.state import StateChecker
from swarmd_sim.checkers.thumbs import ThumbsChecker
from swarmd_sim.checkers.traffic import TrafficChecker
from swarmd_sim.checkers.truth import TruthChecker
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.attack_script import draw_attacks
from swarmd_sim.faults.clocks import NodeClock
from swarmd_sim.faults.faults import FAULT_KINDS, RELEASE_KINDS, Fault, draw_script
from swarmd_sim.faults.injector import Injector
from swarmd_sim.faults.links import LinkFaults
from swarmd_sim.faults.rotations import Rotations
from swarmd_sim.radio.network import Network
from swarmd_sim.radio.radio import Radio
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.run.coverage import Coverage
from swarmd_sim.run.cpu import Cores
from swarmd_sim.run.engine import Engine, StopRun, Storm
from swarmd_sim.run.fleet import Eye, Fleet
from swarmd_sim.run.host import Host, NodeLike
from swarmd_sim.run.ledger import Ledger
from swarmd_sim.run.milestones import STEP_NS, Milestones
from swarmd_sim.run.node_factory import overridden
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ReleaseWorld
from swarmd_sim.run.result import Result, Times
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.setup import (
    busy_ns,
    detector_config,
    drawn,
    drone_config,
    full_view_max,
    link_trace,
    make_site,
    mobility,
    places,
    radio_config,
    refuse_too_large,
)
from swarmd_sim.run.thumbs import ThumbsWorld
from swarmd_sim.run.timers import is_dead_timer
from swarmd_sim.run.traces import read_flight_log
from swarmd_sim.run.watch import Watch
from swarmd_sim.run.workload import Workload
from swarmd_sim.world.detector import DetectorModel
from swarmd_sim.world.farm import Farm
from swarmd_sim.world.mobility import TICK_NS
from swarmd_sim.world.motion import Drone

_STORM_CALLS = 1_500
"""Calls a node-second, on average over the run, that only a livelock makes."""
_EPOCH_S = 1_800_000_000
"""What wall clocks say when a run begins, give or take."""
_SWEEP_ABOVE = 200_000


class Maker(Protocol):
    """Builds nodes for hosts."""

    replicas: dict[int, Any]

    def become_rogue(self, host: Host) -> None:
        """The host's next life is another node's, enrolled by a thief."""

    def make(self, host: Host) -> NodeLike:
        """Build the node for the life that begins."""
        ...


@dataclass(slots=True)
class Options:
    """How a run is driven, beside its scenario and seed.

    Attributes:
        script: Replaces the drawn fault script.
        zeroed: Choice streams that always answer 0.
        given: Choice streams replayed from lists.
        record: Keep every draw.
        timeline: Keep readable lines.
        watch_events: Hosts whose every event goes into the timeline.
        stop_at_event: End the run at this event.
        maker: Builds the nodes; the daemon's own by default.
        progress: Told the virtual seconds done.
        stop_on_violation: End the run at the first broken rule.
        starts_ns: When each host boots, instead of what the scenario says.
        look: Given the run before it begins; what it returns is called about once a virtual second with the time. It
            may look at everything and change nothing.
    """

    script: Sequence[Fault] | None = None
    zeroed: Sequence[str] = ()
    given: Mapping[str, Sequence[int]] = field(default_factory=dict)
    record: bool = False
    timeline: bool = False
    watch_events: Sequence[int] = ()
    stop_at_event: int = 0
    maker: Callable[[Scenario, Choices, list[str]], Maker] | None = None
    progress: Callable[[int], None] | None = None
    stop_on_violation: bool = False
    starts_ns: Sequence[int] = ()
    look: "Callable[[Simulation], Callable[[int], None]] | None" = None


class Simulation:
    """One run.

    Args:
        scenario: What to simulate.
        seed: Decides everything.
        options: How to drive it.

    Raises:
        ScenarioError: The scenario cannot be set up.
        TraceError: A link trace or flight log is damaged.
    """

    def __init__(self, scenario: Scenario, seed: int, options: Options | None = None) -> None:
        started = time.perf_counter()
        refuse_too_large(scenario)
        scenario = drawn(scenario, seed)
        self.scenario = scenario
        self.seed = seed
        self.options = options or Options()
        self.choices = Choices(seed, record=self.options.record, given=self.options.given, zeroed=self.options.zeroed)
        self.engine = Engine(_STORM_CALLS * scenario.swarm.nodes * scenario.swarm.seconds)
        self.ledger = Ledger()
        self.watch = Watch(self.engine, self.ledger, self.options.timeline)
        self.radio = Radio(radio_config(scenario), self.choices, link_trace(scenario))
        self.network = Network(self.engine, self.radio, LinkFaults(self.choices), self.choices)
        self.site = make_site(scenario, self.choices)
        self.quiet_ns = scenario.swarm.seconds * NS_PER_S - int(scenario.checks.settle_s * NS_PER_S)
        self._build_hosts()
        self._build_rest()
        self._look = self.options.look(self) if self.options.look is not None else None
        self.setup_s = time.perf_counter() - started

    # --- Wiring -----------------------------------------------------------------------------------------------------

    def _build_hosts(self) -> None:
        scenario = self.scenario
        device = scenario.device
        count = scenario.swarm.nodes
        addresses = [f"10.{i >> 16}.{(i >> 8) & 255}.{i & 255}:7946" for i in range(count)]
        make = self.options.maker or _daemon_maker()
        self.maker: Maker = make(scenario, self.choices, addresses)
        self.releases: ReleaseWorld | None = getattr(self.maker, "releases", None)
        self.watch.releases = self.releases
        self.watch.offload = getattr(self.maker, "offload", None)
        self.hosts: list[Host] = []
        cores = Cores(device.shared_cores) if device.shared_cores else None
        for index, address in enumerate(addresses):
            host = Host(
                index,
                f"n{index}",
                address,
                self.engine,
                self.network,
                self.watch,
                int(device.fsync_ms * 1e6),
                int(device.cpu_us_per_event * 1e3),
                int(device.wake_us * 1e3),
                int(device.teardown_ms * 1e6),
                cores,
            )
            host.watched = index in self.options.watch_events
            host.oscillator.drift_ppb = self._spread("clock.drift", device.drift_ppm * 1_000)
            wrong_ns = self._spread("clock.wall", int(device.wall_offset_s * 1_000)) * MILLION
            host.oscillator.wall_step_ns = _EPOCH_S * NS_PER_S + wrong_ns
            self.network.attach(host)
            self.hosts.append(host)
        self.watch.hosts = self.hosts

    def _spread(self, kind: str, most: int) -> int:
        return self.choices.choose(kind, 2 * most + 1) - most if most else 0

    def _build_rest(self) -> None:
        scenario = self.scenario
        self.fleet = Fleet(
            self.engine,
            self.choices,
            self.radio,
            self.network.faults,
            self.site,
            self.ledger,
            scenario.drones.work,
            scenario.drones.tick_ms * MILLION,
            scenario.drones.passes,
        )
        self.watch.fleet = self.fleet
        self._place_hosts()
        thumbs: ThumbsWorld | None = getattr(self.maker, "thumbs", None)
        self.workload = Workload(
            self.engine,
            self.choices,
            self.hosts,
            self.ledger,
            scenario.workload,
            self.site.extent_cm,
            thumbs,
        )
        officers: Officers | None = getattr(self.maker, "officers", None)
        self.injector = Injector(
            self.engine,
            self.choices,
            self.hosts,
            self.network,
            self.radio,
            self.watch,
            self.ledger,
            self.boot,
            Coverage(),
            self.releases,
            self._rotations(officers),
        )
        self.watch.untouched_since = self.injector.untouched_since
        if self.watch.offload is not None:
            self.watch.offload.manner_of = self.injector.hostile.manner
        self.context = RunContext(
            scenario,
            self.seed,
            self.engine,
            self.hosts,
            self.network,
            self.radio,
            self.injector,
            self.ledger,
            self.watch,
            self.site,
            self.maker.replicas,
            overridden(ReplicaConfig(), scenario.state, "state"),
            self.releases,
            getattr(self.maker, "sent_before", {}),
            thumbs,
        )
        is_partial = scenario.swarm.nodes > full_view_max(scenario)
        self.milestones = Milestones(self.context, self.quiet_ns, is_partial=is_partial)
        self.truth = TruthChecker(self.context)
        run = self.context
        self.checkers = [MembershipChecker(run), StateChecker(run), ClaimsChecker(run), TrafficChecker(run), self.truth]
        self.checkers += [ReleasesChecker(run, officers), DecisionsChecker(run, officers), BoundsChecker(run)]
        self.checkers.append(BeginsChecker(run))
        if self.watch.offload is not None:
            self.checkers += [OffloadChecker(run, self.watch.offload), HoldingChecker(run, self.watch.offload)]
        if thumbs is not None:
            self.checkers.append(ThumbsChecker(run, thumbs))
        self.watch.checkers = list(self.checkers)
        self.watch.hearers = [one for one in self.checkers if type(one).on_detail is not CheckerBase.on_detail]
        self.script = list(self.options.script) if self.options.script is not None else self._draw_script()

    def _rotations(self, officers: Officers | None) -> Rotations | None:
        if officers is None:
            return None
        become = self.maker.become_rogue
        return Rotations(self.engine, self.choices, self.hosts, self.ledger, self.boot, officers, become)

    def _place_hosts(self) -> None:
        """Homes stand in a grid over the ground, or as the layout says; every host that is no observer has a drone."""
        scenario = self.scenario
        stand = places(scenario, self.seed)
        east, north = self.site.extent_cm
        columns = max(1, int(len(self.hosts) ** 0.5))
        rows = -(-len(self.hosts) // columns)
        log = read_flight_log(Path(scenario.folder) / scenario.drones.flight_log) if scenario.drones.flight_log else []
        config = drone_config(scenario)
        detector = detector_config(scenario)
        drones = len(self.hosts) - scenario.swarm.observers if scenario.drones.work != "none" else 0
        for host in self.hosts:
            column, row = host.index % columns, host.index // columns
            home = ((2 * column + 1) * east // (2 * columns), (2 * row + 1) * north // (2 * rows))
            self.radio.place(host.index, stand[host.index] if stand else home)
            if host.index < drones:
                eye = (
                    self._pixel_eye(host.index)
                    if scenario.detector.pixels
                    else DetectorModel(detector, self.site, scenario.site.site_map, self.choices)
                )
                self.fleet.add(host, Drone(config, home, log), eye)
        if scenario.mobility.kind != "none":
            stand = stand or [self.radio.position_cm(host.index) for host in self.hosts]
            self.mobility = mobility(scenario, stand, self.choices, self.radio.place)
            self.engine.at(int(scenario.mobility.from_s * NS_PER_S), self._move, None)

    def _move(self, _argument: object) -> None:
        now_ns, until_s = self.engine.now_ns, self.scenario.mobility.until_s or self.scenario.swarm.seconds
        self.mobility.tick(now_ns)
        if now_ns < until_s * NS_PER_S:
            self.engine.at(now_ns + TICK_NS, self._move, None)

    def _pixel_eye(self, index: int) -> Eye:
        # Rendering and inference are heavy imports that only such runs pay for.
        from swarmd_sim.world.pixels import PixelEye

        site, detector = self.scenario.site, self.scenario.detector
        farm = Farm.build(site.seed, site.tables, site.modules, site.faults, site.cell_m)
        return PixelEye(detector.model, farm, self.site, site.site_map, index + 1, self.choices, detector.latency_ms)

    def _draw_script(self) -> list[Fault]:
        scenario, random_faults = self.scenario, self.scenario.faults
        scripted = [
            Fault(int(f.at_s * NS_PER_S), f.kind, f.nodes, int(f.duration_s * NS_PER_S), f.amount)
            for f in scenario.fault
        ]
        until_ns = int(random_faults.until_s * NS_PER_S) or self.quiet_ns
        from_ns = int(random_faults.from_s * NS_PER_S)
        kinds = [k for k in FAULT_KINDS if k in random_faults.kinds or "all" in random_faults.kinds]
        if self.releases is None:
            kinds = [kind for kind in kinds if kind not in RELEASE_KINDS]
        count = int(random_faults.per_minute * (until_ns - from_ns) / (60 * NS_PER_S)) if random_faults.kinds else 0
        drawn = draw_script(
            self.choices,
            kinds,
            scenario.swarm.nodes,
            max(0, count),
            from_ns,
            min(until_ns, self.quiet_ns),
            int(random_faults.longest_s * NS_PER_S),
            busy_ns(scenario),
        )
        named = random_faults.attacks
        attacks = [k for k in ATTACK_KINDS if (k in named or "all" in named) and k not in random_faults.attacks_off]
        if self.releases is None:
            attacks = [kind for kind in attacks if not ATTACK_KINDS[kind].needs_releases]
        if not scenario.offload.requests_per_s:
            attacks = [kind for kind in attacks if not ATTACK_KINDS[kind].needs_lending]
        drawn += draw_attacks(
            self.choices,
            attacks,
            random_faults.attacks_most,
            scenario.swarm.nodes,
            from_ns,
            min(until_ns, self.quiet_ns),
            scripted + drawn,
        )
        return sorted(scripted + drawn, key=lambda fault: (fault.at_ns, fault.kind, fault.nodes))

    # --- Running ----------------------------------------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """Begin a life of a host: new clock, new node on its disk."""
        if host.process_up:
            return
        now_ns = self.engine.now_ns
        base_ns = self.choices.choose("clock.base", 1 << 50)
        host.boot(self.maker.make, NodeClock(now_ns, base_ns, host.oscillator.drift_ppb, host.oscillator.wall_step_ns))
        if self.releases is not None:
            self.releases.boot(host)
        if self.watch.offload is not None:
            self.watch.offload.boot(host)
        self.fleet.boot(host)

    def _boot_first(self, host: Host) -> None:
        self.boot(host)
        self.milestones.booted += 1

    def schedule(self) -> None:
        """Everything that will begin by itself; once, before time passes."""
        swarm = self.scenario.swarm
        within_ns = int(swarm.start_within_s * NS_PER_S)
        for host in self.hosts:
            if self.options.starts_ns:
                at_ns = self.options.starts_ns[host.index]
            elif swarm.formation == "staggered":
                at_ns = within_ns * host.index // len(self.hosts)
            else:
                at_ns = self.choices.choose("start.at", within_ns + 1)
            self.engine.at(at_ns, self._boot_first, host)
        until_ns = int(self.scenario.workload.until_s * NS_PER_S) or self.quiet_ns
        self.workload.start(until_ns)
        if self.releases is not None:
            self.releases.bind(self.engine, self.hosts, self.watch.say)
        if self.watch.offload is not None:
            self.watch.offload.bind(self.engine, self.hosts, self.network, until_ns)
        self.fleet.start(until_ns)
        self.injector.schedule(self.script)
        self.engine.at(STEP_NS, self._step)

    def _step(self, _argument: object) -> None:
        now_ns = self.engine.now_ns
        for checker in self.checkers:
            checker.on_step(now_ns)
        self.milestones.on_step(now_ns)
        if self.engine.scheduled > _SWEEP_ABOVE:
            self.engine.sweep(is_dead_timer)
        if self.options.progress is not None:
            self.options.progress(now_ns // NS_PER_S)
        if self._look is not None:
            self._look(now_ns)
        if self.options.stop_on_violation and self.watch.violations:
            raise StopRun
        self.engine.at(now_ns + STEP_NS, self._step)

    def run(self) -> Result:
        """Run to the end and judge."""
        started, cpu_started = time.perf_counter(), time.process_time()
        end_ns = self.scenario.swarm.seconds * NS_PER_S
        self.schedule()
        gc_was_on = gc.isenabled()
        # Millions of small tuples live in the heap; the cycle collector would walk them again and again.
        gc.disable()
        try:
            if self.options.stop_at_event:
                self.engine.run_until_event(end_ns, self.options.stop_at_event)
            else:
                self.engine.run_until(end_ns)
                self.judge()
        except StopRun:
            pass
        except Storm:
            self.watch.violate("engine.storm", f"more than {_STORM_CALLS} events a node-second on average")
        finally:
            if gc_was_on:
                gc.enable()
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
        return self.result(Times(self.setup_s, wall_s + self.setup_s, cpu_s))

    def judge(self) -> None:
        """What checkers say in the end."""
        for checker in self.checkers:
            checker.on_end(self.engine.now_ns)

    def result(self, times: Times) -> Result:
        """What came of the run so far.

        Args:
            times: What it has cost.

        Returns:
            The result.
        """
        return Result.of(self.context, self.milestones, self.truth, times)


def _daemon_maker() -> Callable[[Scenario, Choices, list[str]], Maker]:
    from swarmd_sim.run.node_factory import NodeFactory

    return NodeFactory
