"""Bridge mode: the same story told by real daemons in network namespaces, and how far the simulator's medians are off.

The story: N daemons are started one after the other and form one swarm, several times; user events are broadcast one by
one; nodes are killed one by one, each at a random phase of everybody's period, and started again. Each number is a
median over all (node, happening) pairs.

The predicted side is told the same: the same protocol configuration, the moments at which the real daemons were up, as
many happenings (times some, since virtual ones cost little), and a host model of figures that two daemons on the same
machine gave just before (`realswarm.figures_of`): one hop, CPU time an event, how long a killed process keeps its
ports, the cores that all daemons share.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swarmd.demo.netns import Loopback, Namespaces, unavailable
from swarmd.demo.realswarm import HostFigures, figures_of, measure, median_s
from swarmd_sim.errors import SimError
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.scenario import NS_PER_S, scenario_from_table
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options, Simulation

_EVENT_GAP_S = 0.5
_KILL_GAP_S = 6.0
_DOWN_S = 2.5
_END_S = 6
_VIRTUAL_TIMES = 4
"""So many times the happenings of the real side are simulated, for a steadier median."""
_NODES_MAX = 250


@dataclass(frozen=True, slots=True)
class Medians:
    """What both sides measure, seconds; None where nothing was seen."""

    formation_s: float | None
    event_s: float | None
    detection_s: float | None


@dataclass(frozen=True, slots=True)
class BridgeTable:
    """Predicted beside real."""

    nodes: int
    predicted: Medians
    real: Medians
    place: str
    host: HostFigures
    samples: tuple[int, int, int]
    """How many formations, event deliveries and detections the real medians are of."""

    def rows(self) -> list[tuple[str, float | None, float | None, float | None]]:
        """(what, predicted, real, relative error)."""
        found = []
        for name in ("formation_s", "event_s", "detection_s"):
            ours, theirs = getattr(self.predicted, name), getattr(self.real, name)
            error = abs(ours - theirs) / theirs if ours is not None and theirs else None
            found.append((name, ours, theirs, error))
        return found

    def lines(self) -> list[str]:
        """The table as Markdown, and what it was predicted from."""
        head = [f"{self.nodes} nodes, {self.place}", "| median | predicted s | real s | error | of |"]
        head += ["|---|---:|---:|---:|---:|"]
        rows = []
        for (name, ours, theirs, error), count in zip(self.rows(), self.samples, strict=True):
            off = "-" if error is None else f"{error:.0%}"
            rows.append(f"| {name.removesuffix('_s')} | {_text(ours)} | {_text(theirs)} | {off} | {count} |")
        host = self.host
        measured = (
            f"measured of this machine: one hop {host.hop_ns / 1e6:.2f} ms (quartiles {host.hop_spread_ns / 1e6:.2f} "
            f"ms apart), {host.cpu_ns / 1e3:.0f} us CPU an event and {host.wake_ns / 1e3:.0f} more after a sleep, "
            f"teardown {host.teardown_ns / 1e6:.0f} ms, "
            f"{host.cores} cores, a burst of work takes {host.contention:.2f} times its CPU time"
        )
        return head + rows + [measured]

    def to_json(self) -> dict[str, Any]:
        """The form in JSON."""
        rows = {name: {"predicted": ours, "real": theirs, "error": error} for name, ours, theirs, error in self.rows()}
        return {"nodes": self.nodes, "place": self.place, "host": asdict(self.host), "of": list(self.samples), **rows}


def compare(nodes: int, seconds: int, seed: int, rounds: int, formations: int = 3) -> BridgeTable:
    """Run both sides.

    Args:
        nodes: How many daemons.
        seconds: Quiet running time before the first event.
        seed: Of the predicted side.
        rounds: Events, and kills.
        formations: How often the swarm is started from nothing.

    Returns:
        The table.

    Raises:
        SimError: A daemon does not start.
    """
    if not 2 < nodes <= _NODES_MAX:
        raise SimError(f"--nodes is {nodes}; a story needs 3 to {_NODES_MAX} daemons")
    missing = unavailable()
    place: Namespaces | Loopback = Loopback() if missing else Namespaces(nodes)
    where = f"on loopback ({missing})" if missing else "in network namespaces"
    with tempfile.TemporaryDirectory(prefix="swarmd-bridge-") as name, place:
        folder = Path(name)
        host = figures_of(place, folder)
        real = measure(place, nodes, folder, seconds, rounds, formations)
    predicted = predict(real.starts_ns, host, seed, seconds, rounds)
    samples = (len(real.formation_ns), len(real.event_ns), len(real.detection_ns))
    medians = Medians(median_s(real.formation_ns), median_s(real.event_ns), median_s(real.detection_ns))
    return BridgeTable(nodes, predicted, medians, where, host, samples)


def bridge_scenario(nodes: int, seconds: int, host: HostFigures) -> Scenario:
    """The story as a scenario: this machine's figures, no drones, no chatter.

    Args:
        nodes: How many daemons.
        seconds: How long it runs, virtual.
        host: What was measured of the machine.

    Returns:
        The scenario.
    """
    spread_ms = host.hop_spread_ns / 1e6
    return scenario_from_table(
        {
            "swarm": {"nodes": nodes, "seconds": seconds, "seeds": 1},
            "site": {"kind": "none"},
            "drones": {"work": "none"},
            "radio": {
                # Half of the measured hops are within the quartiles: a uniform spread of twice their distance.
                "latency_ms": max(0.02, host.hop_ns / 1e6 - spread_ms),
                "jitter_ms": 2 * spread_ms,
                "rate_mbit_s": 10_000.0,
                "loss": 0.0,
            },
            "device": {
                "cpu_us_per_event": host.cpu_ns * host.contention / 1e3,
                "wake_us": host.wake_ns * host.contention / 1e3,
                "shared_cores": host.cores,
                "teardown_ms": host.teardown_ns / 1e6,
                "drift_ppm": 0,
                "wall_offset_s": 0.0,
            },
            "workload": {
                "user_events_per_min": 0,
                "notes_per_min": 0,
                "detections_per_min": 0,
                "status_s": 10.0,
                "counters_s": 0,
            },
            "checks": {"settle_s": 1.0},
        },
        name="bridge",
    )


def predict(starts_ns: Sequence[Sequence[int]], host: HostFigures, seed: int, seconds: int, rounds: int) -> Medians:
    """The simulator's side.

    Args:
        starts_ns: For each formation, when each node was up.
        host: What was measured of the machine.
        seed: Of the first run.
        seconds: Quiet running time before the first event.
        rounds: Events, and kills, of the real side.

    Returns:
        The medians.
    """
    formation_ns: list[int] = []
    event_ns: list[int] = []
    detection_ns: list[int] = []
    for turn in range(_VIRTUAL_TIMES * len(starts_ns)):
        starts = starts_ns[turn % len(starts_ns)]
        last = turn + 1 > (_VIRTUAL_TIMES - 1) * len(starts_ns)
        run = _tell(starts, host, seed + turn, seconds, -(-_VIRTUAL_TIMES * rounds // len(starts_ns)) if last else 0)
        if run.milestones.formed_ns >= 0:
            formation_ns.append(max(0, run.milestones.formed_ns - max(starts)))
        event_ns += run.ledger.event_delays_ns()
        detection_ns += run.watch.detection_ns
    return Medians(median_s(formation_ns), median_s(event_ns), median_s(detection_ns))


def _tell(starts_ns: Sequence[int], host: HostFigures, seed: int, seconds: int, rounds: int) -> Simulation:
    """One virtual swarm; with rounds it goes on to events and kills."""
    from swarmd_protocols.effects import UserEvent

    nodes = len(starts_ns)
    begin_s = max(starts_ns) / NS_PER_S + seconds
    kills_s = begin_s + rounds * _EVENT_GAP_S + 1
    end_s = kills_s + rounds * (_KILL_GAP_S + 1) + _END_S
    phase = Choices(seed).stream("bridge.phase")
    at_ns = int(kills_s * NS_PER_S)
    kills = []
    for turn in range(rounds):
        kills.append(Fault(at_ns, "kill", (nodes - 1 - turn % (nodes - 1),), int(_DOWN_S * NS_PER_S), 0))
        at_ns += int(_KILL_GAP_S * NS_PER_S) + phase(NS_PER_S)
    scenario = bridge_scenario(nodes, int(end_s) + 1, host)
    run = Simulation(scenario, seed, Options(script=kills, starts_ns=starts_ns))
    for turn in range(rounds):
        source = run.hosts[turn % nodes]

        def say(number: int, source: Any = source) -> None:
            source.handle(UserEvent(f"bridge{number}", b""))
            run.ledger.user_event(source, f"bridge{number}", "")

        run.engine.at(int((begin_s + turn * _EVENT_GAP_S) * NS_PER_S) + phase(NS_PER_S // 4), say, turn)
    run.run()
    return run


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
