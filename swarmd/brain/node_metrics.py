"""Which numbers of the brain's parts Prometheus and `swarmd counters` see, under which names."""

from collections.abc import Mapping

from swarmd import __version__
from swarmd.api.metrics import Metrics
from swarmd.brain.history import History
from swarmd.brain.parts import Parts
from swarmd.bridges.base import Bridge, Measured
from swarmd.events.kinds import ALERTS


def register_metrics(parts: Parts) -> None:
    """Tell the metrics where to read."""
    metrics = parts.metrics
    metrics.counters("swarmd_transport", "Frames, bytes and drops of the transport.", "what", parts.transport.counters)
    metrics.counters("swarmd_node", "What membership counted.", "what", lambda: parts.node.summary().counters)
    metrics.counters("swarmd_driver", "Events, effects, refusals and alarms.", "what", lambda: parts.driver.counts)
    metrics.counters("swarmd_swarm", "Counters summed over the swarm.", "what", parts.replica.views.counter_sums)
    metrics.counters(
        "swarmd_detections", "Own detections by what became of them.", "what", lambda: parts.sightings.counts
    )
    metrics.counters(
        "swarmd_positions", "Positions of members, said and heard.", "what", lambda: parts.positions.counts
    )
    metrics.counters("swarmd_log_lines", "Log lines by level.", "level", lambda: parts.log.lines)
    metrics.counters("swarmd_task_restarts", "Restarts of supervised tasks.", "task", lambda: parts.supervisor.restarts)
    metrics.counters("swarmd_eye", "Frames, drops by reason, restarts.", "what", lambda: _eye(parts))
    metrics.gauges("swarmd_members", "Members by state, this node included.", "state", lambda: _members(parts))
    metrics.gauges("swarmd_peer_rtt_seconds", "Smoothed round trip.", "peer", lambda: _rtt(parts))
    metrics.gauges(
        "swarmd_gossip_budget_used_ratio",
        "Share of the byte budget that probing uses.",
        "",
        lambda: {"": parts.node.budget_used()},
    )
    metrics.gauges(
        "swarmd_objects", "Objects of the deduplicated picture.", "", lambda: {"": len(parts.replica.views.objects())}
    )
    metrics.gauges("swarmd_eye_measure", "What the eye measures of itself.", "what", lambda: _eye_gauges(parts))
    metrics.gauges("swarmd_journal_degraded", "1: facts wait in memory.", "", lambda: {"": int(parts.journal.degraded)})
    metrics.info("swarmd_build", "What runs.", lambda: {"version": __version__, "node": parts.identity.name})
    metrics.info(
        "swarmd_model_version",
        "The model that the eye runs.",
        lambda: _model(parts),
    )


def register_history(metrics: Metrics, history: History) -> None:
    """Show which alerts stand, and what becomes of events."""

    def standing() -> Mapping[str, int]:
        held = {alert.code for alert in history.standing()}
        return {code: int(code in held) for code in ALERTS}

    metrics.gauges("swarmd_alert", "1: this alert stands.", "code", standing)
    metrics.counters(
        "swarmd_events",
        "Events written down, heard, said, limited.",
        "what",
        lambda: {**history.recorder.counts, **history.store.counts},
    )


def register_bridge(metrics: Metrics, bridge: Bridge) -> None:
    """Show the counters of a bridge as a family of its own, and of its queues, if it has any."""
    metrics.counters(f"swarmd_{bridge.name}", f"What the {bridge.name} bridge did.", "what", bridge.counters)
    if isinstance(bridge, Measured):
        metrics.gauges(
            f"swarmd_{bridge.name}_queue_messages", "Messages that wait in the bridge.", "queue", bridge.gauges
        )


def all_counters(parts: Parts) -> Mapping[str, int]:
    """Every counter of this daemon by a flat name."""
    found: dict[str, int] = {}
    groups: dict[str, Mapping[str, int]] = {
        "transport": parts.transport.counters(),
        "node": parts.node.summary().counters,
        "driver": parts.driver.counts,
        "detections": parts.sightings.counts,
        "positions": parts.positions.counts,
        "eye": _eye(parts),
        **{bridge.name: _with_gauges(bridge) for bridge in parts.bridges},
    }
    for group, counts in groups.items():
        found.update({f"{group}_{name}": value for name, value in counts.items()})
    return found


def _with_gauges(bridge: Bridge) -> Mapping[str, int]:
    return {**bridge.counters(), **(bridge.gauges() if isinstance(bridge, Measured) else {})}


def _eye(parts: Parts) -> Mapping[str, int]:
    return parts.eye.counters() if parts.eye is not None else {}


def _eye_gauges(parts: Parts) -> Mapping[str, float]:
    return parts.eye.telemetry.gauges if parts.eye is not None else {}


def _members(parts: Parts) -> Mapping[str, int]:
    states: dict[str, int] = {}
    for state in parts.node.summary().members.values():
        states[state.value] = states.get(state.value, 0) + 1
    return states


def _rtt(parts: Parts) -> Mapping[str, float]:
    return {member.name: member.rtt_ns / 1e9 for member in parts.node.members() if member.rtt_ns is not None}


def _model(parts: Parts) -> Mapping[str, str]:
    eye = parts.eye
    return {"model": "", "digest": ""} if eye is None else {"model": eye.model, "digest": eye.model_digest}
