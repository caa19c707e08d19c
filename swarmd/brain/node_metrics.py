"""Which numbers of the brain's parts Prometheus and `swarmd counters` see, under which names."""

import functools
import time
from collections.abc import Callable, Mapping

from swarmd import __version__
from swarmd.api.daemon import PoseSeen
from swarmd.api.metrics import Metrics
from swarmd.brain.history import History
from swarmd.brain.host_metrics import register_host
from swarmd.brain.parts import Parts
from swarmd.brain.process_metrics import register_process
from swarmd.bridges.base import Answered, Bridge, Measured
from swarmd.events.kinds import ALERTS
from swarmd_protocols.state.clock import EPOCH_2020_NS


def register_metrics(parts: Parts) -> None:
    """Tell the metrics where to read."""
    _register_counters(parts)
    _register_gauges(parts)
    metrics = parts.metrics
    register_process(metrics)
    register_host(metrics, parts.journal.directory)
    metrics.info("swarmd_build", "What runs.", lambda: {"version": __version__, "node": parts.identity.name})
    metrics.info(
        "swarmd_model_version",
        "The model that the eye runs.",
        lambda: _model(parts),
    )


def _register_counters(parts: Parts) -> None:
    metrics = parts.metrics
    for name, help_ in _TRANSPORT.items():
        metrics.counters(name, help_, "what", functools.partial(_transport, parts, name.rpartition("_")[2]))
    metrics.counters("swarmd_node", "What membership counted.", "what", lambda: parts.node.summary().counters)
    metrics.counters(
        "swarmd_state_sent", "Payload bytes and messages of the state, by kind.", "what", parts.replica.views.sent
    )
    metrics.counters("swarmd_driver", "Events, effects, refusals and alarms.", "what", lambda: parts.driver.counts)
    metrics.counters("swarmd_swarm", "Counters summed over the swarm.", "what", parts.replica.views.counter_sums)
    metrics.counters(
        "swarmd_detections", "Own detections by what became of them.", "what", lambda: parts.sightings.counts
    )
    metrics.counters(
        "swarmd_sightings_left_out", "Own new things beyond what a node may report, each frame that showed them.", "",
        parts.replica.views.left_out,
    )  # fmt: skip
    metrics.counters(
        "swarmd_state_let_go", "Batches of facts let go since their author's log was full here.", "",
        parts.replica.views.let_go,
    )  # fmt: skip
    metrics.counters(
        "swarmd_positions", "Positions of members, said and heard.", "what", lambda: parts.positions.counts
    )
    metrics.counters("swarmd_log_lines", "Log lines by level.", "level", lambda: parts.log.lines)
    metrics.counters("swarmd_task_restarts", "Restarts of supervised tasks.", "task", lambda: parts.supervisor.restarts)
    metrics.counters("swarmd_eye", "Frames, drops by reason, restarts.", "what", lambda: _eye(parts))
    metrics.counters(
        "swarmd_inference", "Requests of the inference API by outcome, and its work.", "what",
        lambda: {} if parts.worker is None else parts.worker.counters(),
    )  # fmt: skip
    metrics.counters(
        "swarmd_offload", "Requests lent and borrowed, by outcome.", "what",
        lambda: {} if parts.worker is None or parts.worker.lending is None else parts.worker.lending.counts(),
    )  # fmt: skip
    metrics.counters(
        "swarmd_operators",
        "What became of those who came to the operators' door.",
        "what",
        lambda: {} if parts.door is None else parts.door.counters(),
    )


def _register_gauges(parts: Parts) -> None:
    metrics = parts.metrics
    metrics.gauges(
        "swarmd_inference_measure", "What the inference API measures of itself.", "what",
        lambda: {} if parts.worker is None else parts.worker.gauges,
    )  # fmt: skip
    metrics.gauges(
        "swarmd_offload_inference_joules", "Energy of one inference, where the device can measure it.", "model",
        lambda: {} if parts.worker is None else parts.worker.joules(),
    )  # fmt: skip
    metrics.gauges(
        "swarmd_offload_price", "What lenders ask: the least and the most money for an hour of inference.", "what",
        lambda: {} if parts.worker is None or parts.worker.lending is None else parts.worker.lending.prices(),
    )  # fmt: skip
    metrics.gauges("swarmd_members", "Members by state, this node included.", "state", lambda: _members(parts))
    metrics.gauges(
        "swarmd_peer_rtt_seconds",
        f"Smoothed round trip; of up to {_PEERS_SHOWN} peers, in larger swarms of none.",
        "peer",
        lambda: _peers(_rtt(parts)),
    )
    metrics.gauges(
        "swarmd_peers_rtt_seconds",
        "Smoothed round trip that this share of all peers has at most.",
        "share",
        lambda: _quantiles(list(_rtt(parts).values())),
    )
    metrics.gauges(
        "swarmd_gossip_budget_used_ratio",
        "Share of the byte budget that probing uses.",
        "",
        lambda: {"": parts.node.budget_used()},
    )
    metrics.gauges(
        "swarmd_objects", "Objects of the deduplicated picture.", "", lambda: {"": parts.replica.views.object_count()}
    )
    metrics.gauges("swarmd_eye_measure", "What the eye measures of itself.", "what", lambda: _eye_gauges(parts))
    metrics.gauges("swarmd_journal_degraded", "1: facts wait in memory.", "", lambda: {"": int(parts.journal.degraded)})
    pose = _LastPose()
    parts.bus.subscribe(pose.on_notice)
    metrics.gauges("swarmd_fix", "1: the position is good enough to place things.", "", pose.fix)
    metrics.gauges("swarmd_battery_ratio", "Charge left, 0 to 1.", "", pose.battery)
    metrics.gauges(
        "swarmd_clock_offset_seconds",
        "This device's clock minus swarm time.",
        "",
        lambda: {"": _clock_offset_s(parts)} if parts.replica.clock.synced else {},
    )
    metrics.gauges(
        "swarmd_uptime_seconds",
        "Since the daemon began.",
        "",
        lambda: {"": (time.monotonic_ns() - parts.started_ns) / 1e9},
    )


_TRANSPORT = {
    "swarmd_transport_bytes": "Bytes of frames, in and out by path.",
    "swarmd_transport_frames": "Frames in and out by path, and questions to hosts.",
    "swarmd_transport_dropped": "Frames that were dropped or refused, by reason.",
}
_PEERS_SHOWN = 64
"""Series of one scrape that speak of single peers: those of a thousand would be nine tenths of all."""


def _transport(parts: Parts, kind: str) -> Mapping[str, int]:
    """One kind of the transport's counters, each under the name of its path and direction."""
    found = {}
    for name, value in parts.transport.counters().items():
        its = "bytes" if "_bytes_" in name else "frames" if name.endswith(("_in", "_out")) else "dropped"
        if its == kind:
            found[name.replace("_bytes_", "_")] = value
    return found


def _peers(rtts: Mapping[str, float]) -> Mapping[str, float]:
    return rtts if len(rtts) <= _PEERS_SHOWN else {}


def _quantiles(values: list[float]) -> Mapping[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {text: ordered[round(share * (len(ordered) - 1))] for text, share in (("0.5", 0.5), ("0.9", 0.9), ("1", 1))}


def _clock_offset_s(parts: Parts) -> float:
    wall_ns = time.time_ns() - time.monotonic_ns() - EPOCH_2020_NS
    return (wall_ns - parts.replica.clock.offset_ns) / 1e9


class _LastPose:
    """What the pose source said last."""

    def __init__(self) -> None:
        self._pose: PoseSeen | None = None

    def on_notice(self, notice: object) -> None:
        if isinstance(notice, PoseSeen):
            self._pose = notice

    def fix(self) -> Mapping[str, int]:
        return {} if self._pose is None else {"": int(self._pose.has_fix)}

    def battery(self) -> Mapping[str, float]:
        milli = None if self._pose is None else self._pose.battery_milli
        return {} if milli is None or milli < 0 else {"": milli / 1000}


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
    metrics.counters(
        "swarmd_past",
        "Pages of the past that were written, given, fetched and refused.",
        "what",
        lambda: history.pages.counts,
    )


def register_bridge(metrics: Metrics, bridge: Bridge) -> None:
    """Show the counters of a bridge as a family of its own, and of its queues, if it has any."""
    metrics.counters(f"swarmd_{bridge.name}", f"What the {bridge.name} bridge did.", "what", bridge.counters)
    if isinstance(bridge, Measured):
        metrics.gauges(
            f"swarmd_{bridge.name}_queue_messages", "Messages that wait in the bridge.", "queue", bridge.gauges
        )
    if isinstance(bridge, Answered):
        metrics.stages[f"{bridge.name}_round_trip"] = bridge.round_trips


def register_gateway(metrics: Metrics, figures: Callable[[], Mapping[str, object]]) -> None:
    """Show what a gateway counts of its way to the region (docs/federation.md)."""

    def named(names: Mapping[str, str]) -> Mapping[str, int]:
        held = figures()
        return {shown: int(value) for name, shown in names.items() if isinstance(value := held.get(name), int)}

    def paths() -> Mapping[str, int]:
        held = figures().get("paths")
        return {str(path): int(not problem) for path, problem in held.items()} if isinstance(held, Mapping) else {}

    metrics.counters(
        "swarmd_gateway", "What the gateway sent to its region, and what became of it.", "what",
        lambda: named(_GATEWAY_COUNTED),
    )  # fmt: skip
    metrics.gauges(
        "swarmd_gateway_waiting_rows", "Rows that the region has not acknowledged.", "",
        lambda: named({"waiting": ""}),
    )  # fmt: skip
    metrics.gauges(
        "swarmd_gateway_waiting_bytes", "What they take of swarmd_gateway_outbox_bytes.", "",
        lambda: named({"waiting_bytes": ""}),
    )  # fmt: skip
    metrics.gauges(
        "swarmd_gateway_outbox_bytes", "What may wait for the region, by federation.outbox_mib.", "",
        lambda: named({"outbox_bytes": ""}),
    )  # fmt: skip
    metrics.gauges("swarmd_gateway_connected", "1: this path to the region is connected.", "path", paths)
    metrics.gauges("swarmd_gateway_works", "1: the region answers.", "", lambda: named({"works": ""}))
    metrics.gauges(
        "swarmd_gateway_shares", "Sixteenths of the swarm's objects that this gateway publishes.", "",
        lambda: named({"shares": ""}),
    )  # fmt: skip


_GATEWAY_COUNTED = {
    "frames": "sent",
    "bytes": "sent_bytes",
    "answers": "answered",
    "acknowledged": "acknowledged_rows",
    "refused": "refused_rows",
    "dropped": "dropped_rows",
    "unopened": "unopened",
    "switches": "path_switches",
    "bundles": "bundles",
    "questions": "questions",
    "unanswered": "questions_unanswered",
}
"""What a gateway's figures are called as counters."""


def all_counters(parts: Parts) -> Mapping[str, int]:
    """Every counter of this daemon by a flat name."""
    found: dict[str, int] = {}
    groups: dict[str, Mapping[str, int]] = {
        "transport": parts.transport.counters(),
        "node": parts.node.summary().counters,
        "state_sent": parts.replica.views.sent(),
        "driver": parts.driver.counts,
        "detections": parts.sightings.counts,
        "positions": parts.positions.counts,
        "operators": {} if parts.door is None else parts.door.counters(),
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
