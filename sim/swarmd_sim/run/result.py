"""What came of a run: the figures of `swarmd sim run --json`, and what the report draws."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmd_sim.checkers.base import RunContext
from swarmd_sim.checkers.truth import Truth, TruthChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.coverage import Coverage
from swarmd_sim.run.milestones import Milestones, Sample
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.watch import Violation


@dataclass(frozen=True, slots=True)
class Times:
    """What a run has cost.

    Attributes:
        setup_s: Wall-clock seconds before it began.
        wall_s: Wall-clock seconds, set-up included.
        cpu_s: CPU seconds of this process.
    """

    setup_s: float
    wall_s: float
    cpu_s: float


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
    def of(run: RunContext, milestones: Milestones, truth: TruthChecker, times: Times) -> "Result":
        """Gather the figures of a finished run.

        Args:
            run: The run.
            milestones: What it has reached.
            truth: What was found of what there is.
            times: What it has cost.

        Returns:
            The result.
        """
        watch, script = run.watch, run.injector.script
        figures = {
            **_head(run, milestones, times),
            **_traffic(run),
            **_work(run, truth.measure()),
            **({"thumbs": dict(sorted(run.thumbs.counts.items()))} if run.thumbs is not None else {}),
            **({"offload": watch.offload.figures()} if watch.offload is not None else {}),
            "transitions": dict(sorted(watch.transitions.items())),
            "rejected": dict(sorted(watch.rejected.items())[:50]),
            "alarms": dict(sorted(watch.alarms.items())),
            "refused_requests": dict(sorted(run.ledger.refusals.items())[:20]),
            "faults": [fault.to_row() for fault in script],
        }
        return Result(
            figures,
            list(watch.violations),
            run.injector.coverage,
            list(script),
            list(watch.timeline),
            milestones.samples,
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


def _head(run: RunContext, milestones: Milestones, times: Times) -> dict[str, object]:
    engine, watch = run.engine, run.watch
    virtual_s = engine.now_ns / NS_PER_S
    converged = milestones.converged_ns
    quiet_ns = max(run.injector.last_end_ns, milestones.quiet_ns)
    return {
        "scenario": run.scenario.name,
        "seed": run.seed,
        "nodes": len(run.hosts),
        "virtual_s": round(virtual_s, 3),
        "wall_s": round(times.wall_s, 3),
        "cpu_s": round(times.cpu_s, 3),
        "setup_s": round(times.setup_s, 3),
        "speed": round(virtual_s / times.cpu_s, 2) if times.cpu_s else None,
        "events": engine.events,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "trace_digest": engine.digest(),
        "violations": [violation.to_row() for violation in watch.violations],
        "convergence_s": round(max(0, converged - quiet_ns) / NS_PER_S, 3) if converged >= 0 else None,
        "formation_s": percentile([milestones.formed_ns], 50) if milestones.formed_ns >= 0 else None,
        "detection_s": {"p50": percentile(watch.detection_ns, 50), "p99": percentile(watch.detection_ns, 99)},
        "false_positives": watch.false_positives,
        "failed_total": sum(count for key, count in watch.transitions.items() if key.endswith("->failed")),
    }


def _traffic(run: RunContext) -> dict[str, object]:
    counters = run.network.counters
    seconds = max(1e-9, run.engine.now_ns / NS_PER_S)
    nodes = len(run.hosts)
    return {
        "bytes_per_node_s": round(sum(run.network.sent_bytes) / seconds / nodes, 1),
        "bytes_per_node_s_max": round(max(run.network.sent_bytes) / seconds, 1),
        "packets_per_node_s": round(sum(run.network.sent_packets) / seconds / nodes, 2),
        "air_time": round(run.radio.airtime_ns / run.engine.now_ns, 4) if run.engine.now_ns else 0,
        "datagrams": counters.datagrams,
        "streams": counters.streams,
        "stream_bytes": counters.stream_bytes,
        "lost": counters.lost,
        "lost_by_reason": dict(sorted(counters.lost_by_reason.items())),
        "oversized": counters.oversized,
        "by_kind": _by_kind(run, seconds),
    }


def _by_kind(run: RunContext, seconds: float) -> dict[str, dict[str, float]]:
    """Bytes and messages a node and second: the state's payloads by kind, and everything else in one."""
    totals = dict(run.sent_before)
    for replica in run.replicas.values():
        for name, count in replica.views.sent().items():
            totals[name] = totals.get(name, 0) + count
    nodes = len(run.hosts)
    kinds = sorted({name.rpartition("_")[0] for name in totals})
    found = {
        kind: {
            "bytes": totals[f"{kind}_bytes"] / seconds / nodes,
            "messages": totals[f"{kind}_messages"] / seconds / nodes,
        }
        for kind in kinds
    }
    sent, packets = sum(run.network.sent_bytes) / seconds / nodes, sum(run.network.sent_packets) / seconds / nodes
    found["other"] = {
        # Membership, models, positions, and what sealing adds to each message.
        "bytes": sent - sum(one["bytes"] for one in found.values()),
        "messages": packets - sum(one["messages"] for one in found.values()),
    }
    return {kind: {what: round(value, 2) for what, value in one.items()} for kind, one in found.items()}


def _work(run: RunContext, truth: Truth) -> dict[str, object]:
    flown: dict[str, int] = {}
    for _at_ns, _host, cell in run.ledger.cells_flown:
        flown[cell] = flown.get(cell, 0) + 1
    event_ns = run.ledger.event_delays_ns()
    return {
        "truth": {
            "faults": truth.faults,
            "seen": truth.seen,
            "found": truth.found,
            "missed": truth.missed,
            "false": truth.false,
            "false_alarms": truth.false_alarms,
            "duplicates": truth.duplicates,
            "distinct_lost": truth.distinct_lost,
            "recall": round(truth.recall, 4),
        },
        "claims": {
            "cells": len(run.site.cells),
            "done": len(flown),
            "duplicate_work": sum(count - 1 for count in flown.values()),
            "makespan_s": round(max((at for at, _h, _c in run.ledger.cells_flown), default=0) / NS_PER_S, 1),
        },
        "user_event_s": {"p50": percentile(event_ns, 50), "p99": percentile(event_ns, 99)},
        "clock_spread_s": _clock_spread_s(run),
        "detections": len(run.ledger.detections),
        "restarts": sum(max(0, host.boots - 1) for host in run.hosts),
    }


def _clock_spread_s(run: RunContext) -> float | None:
    """Between the first and the last of the clocks of who runs at the end; None where nobody has one."""
    now_ns = run.engine.now_ns
    clocks = [
        replica.clock.physical_ns(host.clock.local_ns(now_ns))
        for host in run.hosts
        if host.process_up and (replica := run.replica(host)) is not None
    ]
    return round((max(clocks) - min(clocks)) / NS_PER_S, 3) if clocks else None
