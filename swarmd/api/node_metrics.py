"""Which numbers of a brain Prometheus and `swarmd counters` see, under which names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from swarmd.api.metrics import Metrics
from swarmd.bridges.base import Bridge, Measured

if TYPE_CHECKING:
    from swarmd.brain.brain import Brain


def register_metrics(brain: "Brain") -> None:
    """Tell the metrics where to read."""
    metrics = brain.metrics
    metrics.counters("swarmd_transport", "Frames, bytes and drops of the transport.", "what", brain.transport.counters)
    metrics.counters("swarmd_node", "What membership counted.", "what", lambda: brain.node.summary().counters)
    metrics.counters("swarmd_driver", "Events, effects, refusals and alarms.", "what", lambda: brain.driver.counts)
    metrics.counters("swarmd_swarm", "Counters summed over the swarm.", "what", brain.replica.views.counter_sums)
    metrics.counters(
        "swarmd_detections", "Own detections by what became of them.", "what", lambda: brain.sightings.counts
    )
    metrics.counters(
        "swarmd_positions", "Positions of members, said and heard.", "what", lambda: brain.whereabouts.counts
    )
    metrics.counters("swarmd_log_lines", "Log lines by level.", "level", lambda: brain.log.lines)
    metrics.counters("swarmd_task_restarts", "Restarts of supervised tasks.", "task", lambda: brain.supervisor.restarts)
    metrics.counters("swarmd_eye", "Frames, drops by reason, restarts.", "what", lambda: _eye(brain))
    metrics.gauges("swarmd_members", "Members by state, this node included.", "state", lambda: _members(brain))
    metrics.gauges("swarmd_peer_rtt_seconds", "Smoothed round trip.", "peer", lambda: _rtt(brain))
    metrics.gauges(
        "swarmd_gossip_budget_used_ratio",
        "Share of the byte budget that probing uses.",
        "",
        lambda: {"": brain.node.budget_used()},
    )
    metrics.gauges("swarmd_objects", "Objects of the deduplicated picture.", "", lambda: {"": len(brain.objects())})
    metrics.gauges("swarmd_eye_measure", "What the eye measures of itself.", "what", lambda: _eye_gauges(brain))
    metrics.gauges("swarmd_journal_degraded", "1: facts wait in memory.", "", lambda: {"": int(brain.journal.degraded)})
    metrics.info("swarmd_build", "What runs.", lambda: {"version": brain.info().version, "node": brain.name})
    metrics.info(
        "swarmd_model_version",
        "The model that the eye runs.",
        lambda: {"model": brain.info().model, "digest": brain.info().model_digest},
    )


def register_bridge(metrics: Metrics, bridge: Bridge) -> None:
    """Show the counters of a bridge as a family of its own, and of its queues, if it has any."""
    metrics.counters(f"swarmd_{bridge.name}", f"What the {bridge.name} bridge did.", "what", bridge.counters)
    if isinstance(bridge, Measured):
        metrics.gauges(
            f"swarmd_{bridge.name}_queue_messages", "Messages that wait in the bridge.", "queue", bridge.gauges
        )


def all_counters(brain: "Brain") -> Mapping[str, int]:
    """Every counter of this daemon by a flat name."""
    found: dict[str, int] = {}
    groups: dict[str, Mapping[str, int]] = {
        "transport": brain.transport.counters(),
        "node": brain.node.summary().counters,
        "driver": brain.driver.counts,
        "detections": brain.sightings.counts,
        "positions": brain.whereabouts.counts,
        "eye": _eye(brain),
        **{bridge.name: _with_gauges(bridge) for bridge in brain.bridges},
    }
    for group, counts in groups.items():
        found.update({f"{group}_{name}": value for name, value in counts.items()})
    return found


def _with_gauges(bridge: Bridge) -> Mapping[str, int]:
    return {**bridge.counters(), **(bridge.gauges() if isinstance(bridge, Measured) else {})}


def _eye(brain: "Brain") -> Mapping[str, int]:
    return brain.eye.counters() if brain.eye is not None else {}


def _eye_gauges(brain: "Brain") -> Mapping[str, float]:
    return brain.eye.gauges() if brain.eye is not None else {}


def _members(brain: "Brain") -> Mapping[str, int]:
    states: dict[str, int] = {}
    for state in brain.node.summary().members.values():
        states[state.value] = states.get(state.value, 0) + 1
    return states


def _rtt(brain: "Brain") -> Mapping[str, float]:
    return {member.name: member.rtt_ns / 1e9 for member in brain.members() if member.rtt_ns is not None}
