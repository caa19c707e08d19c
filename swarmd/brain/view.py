"""What verbs, pages and bridges see of the brain (`swarmd.api.daemon.Operations`), read from its parts at once."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from swarmd import __version__
from swarmd.api.bus import Notice
from swarmd.api.daemon import BusEvent, EyeControl, Look, NodeInfo, NodePosition, PictureSeen, PoseSeen
from swarmd.api.histogram import Histogram
from swarmd.api.neighbours import brief_row
from swarmd.brain.above import Above
from swarmd.brain.history import History
from swarmd.brain.in_parts import PartsOfViews
from swarmd.brain.journal import summary as journal_summary
from swarmd.brain.missions import fact_rows
from swarmd.brain.node_metrics import all_counters
from swarmd.brain.parts import Parts
from swarmd.brain.positions import position_of
from swarmd.bridges.base import Linked, Rowed
from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.effects import Event, MemberChanged, MemberState
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellView, LocalDetection, ObjectView
from swarmd_protocols.summary import MemberView, NodeSummary, TrustSummary
from swarmd_protocols.thumbs.requests import Fetch
from swarmd_protocols.trust.requests import AddStatement


class View:
    """One brain, seen from outside."""

    def __init__(self, parts: Parts, history: History, stop: Callable[[], None]) -> None:
        """Look at these parts.

        Args:
            parts: The brain's.
            history: What happened here.
            stop: Begins to leave.
        """
        self._parts = parts
        self._history = history
        self._stop = stop
        self._names: dict[NodeId, str] = {}
        self.above = Above(parts)
        """What a gateway reads and says."""
        parts.bus.subscribe(self._on_notice)

    def _on_notice(self, notice: Notice) -> None:
        if isinstance(notice, MemberChanged):
            self._names = {}

    # --- DaemonView -----------------------------------------------------------------------------------------------

    def info(self) -> NodeInfo:
        """Who we are."""
        parts = self._parts
        latitude, longitude = parts.config.node.origin or (0.0, 0.0)
        eye = parts.eye
        return NodeInfo(
            node=parts.identity.node,
            name=parts.identity.name,
            swarm=parts.identity.swarm,
            version=__version__,
            origin_latitude_deg=latitude,
            origin_longitude_deg=longitude,
            model=eye.model if eye is not None else "",
            model_digest=eye.model_digest if eye is not None else "",
            labels=eye.labels if eye is not None else (),
            has_origin=parts.sightings.plane is not None,
        )

    def members(self) -> Sequence[MemberView]:
        """All members, this node included; failed ones that an operator dismissed apart."""
        members = self._parts.node.members()
        if not any(member.state is MemberState.FAILED for member in members):
            return members
        gone = self._history.dismissed()
        return [member for member in members if member.node not in gone]

    def name_of(self, node: NodeId) -> str:
        """A member's name; its id in hexadecimal digits where it is not known."""
        if not self._names:
            self._names = self._parts.node.names()
        return self._names.get(node, node.hex())

    def objects(self) -> Sequence[ObjectView]:
        """The deduplicated view."""
        return self._parts.replica.views.objects()

    def positions(self) -> Mapping[NodeId, NodePosition]:
        """The last known position of each member that has said one, this node included."""
        located, grounds = self._parts.positions.located(), self._parts.grounds
        return {node: position_of(place, grounds.of(node)) for node, place in located.items()}

    def watch_pictures(
        self, callback: Callable[[PictureSeen], None], interval_ms: int, width: int, quality: int
    ) -> Callable[[], None]:
        """Have the eye show small pictures; without an eye there are none."""
        if self._parts.eye is None:
            return lambda: None
        from swarmd.eye.ipc import ShowFrames

        return self._parts.eye.pictures.watch(ShowFrames(interval_ms, width, quality), callback)

    def fetch_thumb(self, name: bytes) -> bool:
        """Ask for a thumbnail; False where this node keeps none of its own and looks at none of others'."""
        try:
            self.ask("thumbs", Fetch(name))
        except StateError:
            return False
        return True

    def look(self, track_id: int) -> Look | None:
        """How the own eye saw a living track last."""
        return None if self._parts.eye is None else self._parts.eye.look(track_id)

    def cells(self) -> Sequence[CellView]:
        """The survey area."""
        return self._parts.replica.views.cells()

    def counters(self) -> Mapping[str, int]:
        """This daemon's monotonic counters, by metric name."""
        return all_counters(self._parts)

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """Call back on the loop for each event from now on."""
        return self._parts.bus.subscribe(lambda notice: callback(notice) if isinstance(notice, BusEvent) else None)

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "a bridge") -> Mapping[str, object]:
        """Run a control verb as the CLI would, or one that only bridges have."""
        answer = self._parts.verbs.answer_inside(verb, arguments)
        if verb in self._parts.verbs.changing:
            self._history.on_command(verb, arguments, by, "", is_outside=True)
        return answer

    # --- Operations -----------------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Everything at a glance."""
        parts, node, eye = self._parts, self.summary(), self._parts.eye
        lending = None if parts.worker is None else parts.worker.lending
        return {
            "node": parts.identity.name,
            "node_id": parts.identity.node.hex(),
            "swarm": parts.identity.swarm,
            "problems": self._history.problems(),
            "members": {name: state.value for name, state in node.members.items()},
            "digest": parts.replica.views.digest().hex(),
            "members_digest": node.digest.hex(),
            "partial": node.partial,
            "estimated_members": node.estimated,
            "mesh": node.mesh,
            "objects": parts.replica.views.object_count(),
            "detections": parts.replica.views.health()["sightings"],
            "fps": eye.telemetry.fps if eye is not None else 0.0,
            "model": eye.model if eye is not None else "",
            "uptime_s": round((time.monotonic_ns() - parts.started_ns) / 1e9, 3),
            "version": __version__,
            "address": parts.transport.local_address,
            "control": str(parts.control_path),
            "http": parts.http_address,
            "operators": "" if parts.door is None else parts.door.address,
            "local_health": node.local_health,
            "eye": eye.status() if eye is not None else None,
            "inference": None if parts.worker is None else parts.worker.status(),
            **({"lending": lending.status()} if lending is not None else {}),
            "journal": journal_summary(parts.journal),
            "facts": fact_rows(parts),
            "neighbours": [brief_row(one) for one in self.in_parts.neighbours()],
            **({"gateway": self.above.shown()} if self.above.shown is not None else {}),
            "alerts": [alert.row() for alert in self._history.standing()],
            "events": dict(self._history.store.counts | self._history.recorder.counts),
            "state": dict(parts.replica.views.health()),
            "let_go": {self.name_of(node): count for node, count in parts.replica.views.let_go_of().items()},
            "transport": parts.transport.counters(),
            "autopilot": next((bridge.status() for bridge in parts.bridges if isinstance(bridge, Linked)), None),
            "plugins": [bridge.row() for bridge in parts.bridges if isinstance(bridge, Rowed)],
        }

    @property
    def past(self) -> History:
        """What happened, and what stands unsolved."""
        return self._history

    def waits_for(self) -> str:
        """What is missing until this daemon is ready."""
        eye = self._parts.eye
        return "the first frame" if eye is not None and eye.telemetry.frames == 0 else ""

    def summary(self) -> NodeSummary:
        """The membership at a glance; failed members that an operator dismissed apart."""
        summary = self._parts.node.summary()
        if MemberState.FAILED not in summary.members.values():
            return summary
        shown = {member.name for member in self.members() if member.state is MemberState.FAILED}
        members = {
            name: state
            for name, state in summary.members.items()
            if state is not MemberState.FAILED or name in shown or "~" in name
        }
        return replace(summary, members=members)

    def trust(self) -> TrustSummary:
        """What this node holds of the fleet's trust."""
        return self._parts.node.trust()

    @property
    def in_parts(self) -> PartsOfViews:
        """What may be long, a few at a time."""
        return PartsOfViews(self._parts.node, self._parts.replica.views, self._parts.neighbours)

    def stages(self) -> Mapping[str, Histogram]:
        """Latency by stage."""
        return self._parts.metrics.stages

    def served(self) -> Sequence[tuple[str, str, str]]:
        """(topic, kind, what) of all that this daemon offers to others."""
        parts = self._parts
        rows = [
            (str(parts.control_path), "control socket", "every verb of `swarmd`"),
            (parts.transport.local_address, parts.config.transport.gossip, "the swarm"),
        ]
        pages = (("/", "live page"), ("/metrics", "Prometheus"), ("/healthz", "health"), ("/readyz", "readiness"))
        if parts.http_address:
            rows += [(f"http://{parts.http_address}{path}", "HTTP", what) for path, what in pages]
        for bridge in parts.bridges:
            told: list[tuple[str, str]] = getattr(bridge, "topics", list)()
            rows += [(str(topic), bridge.name, str(what)) for topic, what in told]
        return rows

    def request(self, event: Event) -> None:
        """Give the node a local request."""
        self._parts.driver.request(event)

    def ask(self, subprotocol: str, request: object) -> None:
        """Give a sub-protocol a request."""
        self._parts.driver.command(subprotocol, request)

    def add_statement(self, kind: str, statement: bytes) -> bool:
        """Take a statement about trust; whether it was new."""
        before = self._parts.node.view_digest()
        self._parts.driver.command("node", AddStatement(kind, statement))
        return self._parts.node.view_digest() != before

    @property
    def sightings(self) -> SightingFilter[LocalDetection]:
        """Places and filters what outside detectors say."""
        return self._parts.sightings

    @property
    def eye_control(self) -> EyeControl | None:
        """The eye; None on a node without one."""
        return self._parts.eye

    def on_pose(self, pose: PoseSeen, is_armed: bool | None) -> None:
        """The autopilot's newest pose: to the eye, to peers and to whoever listens."""
        parts = self._parts
        parts.is_armed.say(is_armed)
        if parts.eye is not None:
            parts.eye.update_pose(pose)
        parts.bus.publish(pose)

    def note_problem(self, where: str, text: str) -> None:
        """Say a bridge's trouble in the log."""
        self._parts.log.warning("bridge_problem", where=where, text=text)

    def stop(self) -> None:
        """Begin to leave."""
        self._stop()
