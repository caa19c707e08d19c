"""What came of a run: the figures of `swarmd sim run --json`, and what the report draws."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.coverage import Coverage
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.watch import Violation

if TYPE_CHECKING:
    from swarmd_sim.run.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the plots."""

    at_ns: int
    live: int
    digests: int
    sent_bytes: int
    sent_packets: int


@dataclass(slots=True)
class Result:
    """One run's outcome.

    Attributes:
        figures: The keys of `swarmd sim run --json`.
        violations: Broken rules.
        coverage: Which fault met which protocol state.
        script: The faults that were carried out.
        timeline: Readable lines, when they were kept.
        samples: Rows of the plots.
    """

    figures: dict[str, object]
    violations: list[Violation]
    coverage: Coverage
    script: list[Fault]
    timeline: list[tuple[int, int, str]]
    samples: list[Sample] = field(default_factory=list)

    @staticmethod
    def of(simulation: "Simulation", wall_s: float, cpu_s: float) -> "Result":
        """Gather the figures of a finished run.

        Args:
            simulation: The run.
            wall_s: Wall-clock seconds it took, set-up included.
            cpu_s: CPU seconds of this process.

        Returns:
            The result.
        """
        watch = simulation.watch
        figures = {
            **_head(simulation, wall_s, cpu_s),
            **_traffic(simulation),
            **_work(simulation),
            "transitions": dict(sorted(watch.transitions.items())),
            "rejected": dict(sorted(watch.rejected.items())[:50]),
            "alarms": dict(sorted(watch.alarms.items())),
            "refused_requests": dict(sorted(simulation.ledger.refusals.items())[:20]),
            "faults": [fault.to_row() for fault in simulation.script],
        }
        return Result(
            figures,
            list(watch.violations),
            simulation.coverage,
            list(simulation.script),
            list(watch.timeline),
            simulation.samples,
        )


def percentile(values: Sequence[int], percent: int) -> float | None:
    """The nearest-rank percentile in seconds; None when there are no values.

    Args:
        values: Nanoseconds.
        percent: 1 to 100.

    Returns:
        Seconds.
    """
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)] / NS_PER_S, 4)


def _head(simulation: "Simulation", wall_s: float, cpu_s: float) -> dict[str, object]:
    engine, watch = simulation.engine, simulation.watch
    virtual_s = engine.now_ns / NS_PER_S
    converged = simulation.converged_ns
    quiet_ns = max(simulation.injector.last_end_ns, simulation.quiet_ns)
    return {
        "scenario": simulation.scenario.name,
        "seed": simulation.seed,
        "nodes": len(simulation.hosts),
        "virtual_s": round(virtual_s, 3),
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu_s, 3),
        "setup_s": round(simulation.setup_s, 3),
        "speed": round(virtual_s / cpu_s, 2) if cpu_s else None,
        "events": engine.events,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "trace_digest": engine.digest(),
        "violations": [violation.to_row() for violation in watch.violations],
        "convergence_s": round(max(0, converged - quiet_ns) / NS_PER_S, 3) if converged >= 0 else None,
        "formation_s": percentile([simulation.formed_ns], 50) if simulation.formed_ns >= 0 else None,
        "detection_s": {"p50": percentile(watch.detection_ns, 50), "p99": percentile(watch.detection_ns, 99)},
        "false_positives": watch.false_positives,
        "failed_total": sum(count for key, count in watch.transitions.items() if key.endswith("->failed")),
    }


def _traffic(simulation: "Simulation") -> dict[str, object]:
    counters = simulation.network.counters
    seconds = max(1e-9, simulation.engine.now_ns / NS_PER_S)
    nodes = len(simulation.hosts)
    return {
        "bytes_per_node_s": round(sum(simulation.network.sent_bytes) / seconds / nodes, 1),
        "bytes_per_node_s_max": round(max(simulation.network.sent_bytes) / seconds, 1),
        "packets_per_node_s": round(sum(simulation.network.sent_packets) / seconds / nodes, 2),
        "air_time": round(simulation.radio.airtime_ns / simulation.engine.now_ns, 4) if simulation.engine.now_ns else 0,
        "datagrams": counters.datagrams,
        "streams": counters.streams,
        "stream_bytes": counters.stream_bytes,
        "lost": counters.lost,
        "lost_by_reason": dict(sorted(simulation.radio.lost_by_reason.items())),
        "oversized": counters.oversized,
    }


def _work(simulation: "Simulation") -> dict[str, object]:
    truth = simulation.truth.measure()
    flown: dict[str, int] = {}
    for _at_ns, _host, cell in simulation.ledger.cells_flown:
        flown[cell] = flown.get(cell, 0) + 1
    event_ns = simulation.event_delays_ns()
    return {
        "truth": {
            "faults": truth.faults,
            "seen": truth.seen,
            "found": truth.found,
            "missed": truth.missed,
            "false": truth.false,
            "duplicates": truth.duplicates,
            "distinct_lost": truth.distinct_lost,
            "recall": round(truth.recall, 4),
        },
        "claims": {
            "cells": len(simulation.site.cells),
            "done": len(flown),
            "duplicate_work": sum(count - 1 for count in flown.values()),
            "makespan_s": round(max((at for at, _h, _c in simulation.ledger.cells_flown), default=0) / NS_PER_S, 1),
        },
        "user_event_s": {"p50": percentile(event_ns, 50), "p99": percentile(event_ns, 99)},
        "detections": len(simulation.ledger.detections),
        "restarts": sum(max(0, host.boots - 1) for host in simulation.hosts),
    }
