"""Keeps a picture of what a running daemon knows: by its bus at once, and by looking, for what the bus does not tell.

Rules this file keeps: nothing here takes the loop for long, since lists are read in parts; what the bus told is written
by the next look, however often it was told; what was missed is found by the sweep.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from swarmd.api.daemon import BusEvent, NodePosition, Operations, PoseSeen, PositionSeen
from swarmd.api.views import unix_s
from swarmd.events.alerts import Acknowledged
from swarmd.events.record import TEXT_MAX_CHARS, EventRecord, Happened
from swarmd.events.store import Query
from swarmd.ground.beside import beside_rows, is_beside
from swarmd.ground.facts import NEVER_MET, cell_of, member_of, never_met, object_of, said
from swarmd.ground.grown import Grown
from swarmd.ground.picture import Picture
from swarmd.ground.rows import Alert, Event, Evidence, Mark, Member, Position
from swarmd_models.geo.positions import Plane
from swarmd_protocols.effects import MemberChanged, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellChanged, CellView, DetectionView, ObjectChanged, ObjectView
from swarmd_protocols.summary import MemberView

OnMark: TypeAlias = Callable[[Mark], None]
LOOK_S = 0.25
"""Seconds between two looks at what the bus told: what a page shows is at most so old."""
MEMBERS_S = 1.0
"""Seconds between two readings of the members, whose round trips and losses no notice tells."""
SWEEP_S = 60.0
"""Seconds between two readings of everything, in case a notice did not come."""
BATCH = 128
"""Rows made before the loop turns: about a millisecond."""
POSE_S = 0.2
"""Seconds between two of this node's own poses."""
TOLD_S = 86_400.0
"""Seconds for which a member that this node never met is shown as failed: as long as who met it lists it
(`SwimConfig.forget_ns`)."""
TOLD_MAX = 1_024
"""Members of whose failures and returns the last word is kept."""
_TOLD_KINDS = ("failed", "returned", "dismissed")
EVIDENCE_MAX = 500
"""Sightings of one object that are told: more nodes than that see nothing at once."""


class LiveFeed:
    """One daemon's knowledge, into a picture.

    Args:
        daemon: Which.
        picture: What it is written into.
        on_mark: Told of points for the timeline.
    """

    def __init__(self, daemon: Operations, picture: Picture, on_mark: OnMark) -> None:
        self._daemon = daemon
        self._picture = picture
        self._mark = on_mark
        info = daemon.info()
        self._node = info.node
        self._plane = Plane(info.origin_latitude_deg, info.origin_longitude_deg) if info.has_origin else None
        self._since: dict[NodeId, tuple[str, float]] = {}
        """Member to its state and when it came to be."""
        self._objects: dict[str, ObjectView | None] = {}
        """What the bus told and no look has written; None: gone."""
        self._told: dict[str, tuple[str, float]] = {}
        """Name to the last word of its failure or return, and when; of members that this node may never meet."""
        self._has_read = False
        """Whether the members were read once."""
        self._members_s = self._swept_s = self._posed_s = float("-inf")

    async def run(self) -> None:
        """Until cancelled."""
        end = self._daemon.subscribe(self._on_event)
        try:
            now_ns = time.monotonic_ns()
            for node, position in self._daemon.positions().items():
                self._on_position(node, self._daemon.name_of(node), position, now_ns)
            since_ms = int((time.time() - TOLD_S) * 1000)
            for record in await self._daemon.past.find(Query(since_ms=since_ms, kinds=_TOLD_KINDS)):
                self._hear_of(record)
            while True:
                await self._look(time.monotonic())
                await asyncio.sleep(LOOK_S)
        finally:
            end()

    async def evidence(self, object_id: str) -> list[Evidence]:
        """The sightings that an object is made of."""
        found: list[Evidence] = []
        for part in self._daemon.in_parts.detections():
            found += [self._evidence(view) for view in part if view.object_id == object_id]
            await asyncio.sleep(0)
        return sorted(found[:EVIDENCE_MAX], key=lambda one: (one.first_seen_s, one.id))

    async def grown(self) -> list[Grown]:
        """Every object that there is now, and when it came to be so; read in parts."""
        sightings: dict[str, list[DetectionView]] = {}
        for part in self._daemon.in_parts.detections():
            for view in part:
                sightings.setdefault(view.object_id, []).append(view)
            await asyncio.sleep(0)
        found: list[Grown] = []
        for objects in self._daemon.in_parts.objects():
            found += [Grown(view, sightings.get(view.object_id, ())) for view in objects]
            await asyncio.sleep(0)
        return found

    # --- what the bus tells -----------------------------------------------------------------------------------------

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=ObjectChanged(kind, view, _)):
                is_gone = kind in ("superseded", "expired")
                self._objects[view.object_id] = None if is_gone else view
                if kind == "new":
                    text = said(f"{view.label} {view.asset}".rstrip(), TEXT_MAX_CHARS)
                    self._mark(Mark(time.time(), "objects", "info", text))
            case StateChanged(detail=CellChanged(view)):
                self._put_cells([view])
            case PositionSeen(node, name, position):
                self._on_position(node, name, position, time.monotonic_ns())
            case PoseSeen():
                self._on_pose(event)
            case MemberChanged(node, name, old, new, reason):
                self._members_s = float("-inf")
                if old is not None and new is not old:
                    level = "warning" if new.value in ("failed", "suspect") else "info"
                    text = f"{name} {old.value} → {new.value}" + (f" ({reason})" if reason else "")
                    self._mark(Mark(time.time(), "members", level, text))
            case Happened(record):
                self._hear_of(record)
                now_s = time.time()
                row = Event(
                    record.event_id, record.at_ms / 1000, record.origin, record.kind, record.level, record.subject,
                    record.reason, record.evidence,
                )  # fmt: skip
                if self._picture.put("event", row, now_s):
                    text = " ".join(
                        part for part in (record.origin, record.kind, record.subject, record.reason) if part
                    )
                    self._mark(Mark(now_s, "events", record.level, text))

    def _hear_of(self, record: EventRecord) -> None:
        """Others say that a member failed or is back: who came after that never met it."""
        at_s = record.at_ms / 1000
        if record.kind in _TOLD_KINDS and self._told.get(record.subject, ("", 0.0))[1] <= at_s:
            self._told.pop(record.subject, None)
            self._told[record.subject] = (record.kind, at_s)
            if len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]

    def _on_position(self, node: NodeId, name: str, position: NodePosition | None, now_ns: int) -> None:
        now_s = time.time()
        if position is None:
            self._picture.lose_fix(node.hex(), now_s)
            return
        east_m = north_m = None
        if self._plane is not None:
            east_m, north_m = self._plane.to_m(position.latitude_deg, position.longitude_deg)
        row = Position(
            id=node.hex(),
            name=name,
            has_fix=True,
            east_m=_rounded(east_m),
            north_m=_rounded(north_m),
            latitude_deg=round(position.latitude_deg, 8),
            longitude_deg=round(position.longitude_deg, 8),
            height_agl_m=round(position.height_agl_m, 2),
            yaw_deg=None if position.yaw_rad is None else round(math.degrees(position.yaw_rad), 1),
            sigma_m=round(position.position_sigma_m, 2),
            battery=None if position.battery_milli is None else position.battery_milli / 1000,
            at_s=round(now_s - max(0, now_ns - position.captured_ns) / 1e9, 2),
        )
        self._picture.put("position", row, now_s)

    def _on_pose(self, pose: PoseSeen) -> None:
        now_s = time.monotonic()
        if pose.has_fix and now_s - self._posed_s >= POSE_S:
            self._posed_s = now_s
            position = NodePosition(
                self._node, pose.latitude_deg, pose.longitude_deg, pose.height_agl_m, pose.yaw_rad,
                pose.position_sigma_m, pose.battery_milli, pose.captured_ns, pose.altitude_m,
            )  # fmt: skip
            self._on_position(self._node, self._daemon.name_of(self._node), position, time.monotonic_ns())

    # --- looks ------------------------------------------------------------------------------------------------------

    async def _look(self, now_s: float) -> None:
        if now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            await self._sweep()
        if now_s - self._members_s >= MEMBERS_S:
            self._members_s = now_s
            await self._read_members()
            self._read_alerts()
            self._read_neighbours()
        told, self._objects = self._objects, {}
        names = self._daemon.in_parts.names() if told else {}
        for number, (object_id, view) in enumerate(told.items(), 1):
            if view is None:
                self._picture.drop("object", object_id, time.time())
            else:
                self._picture.put("object", object_of(view, names), time.time())
            if number % BATCH == 0:
                await asyncio.sleep(0)

    async def _sweep(self) -> None:
        """Read everything; what is not there any more goes, except where the bus said otherwise meanwhile."""
        names = self._daemon.in_parts.names()
        held = dict.fromkeys(self._picture.names("object"))
        for objects in self._daemon.in_parts.objects():
            for view in objects:
                held.pop(view.object_id, None)
                self._picture.put("object", object_of(view, names), time.time())
            await asyncio.sleep(0)
        for object_id in held:
            if self._objects.get(object_id) is None:
                self._picture.drop("object", object_id, time.time())
        for cells in self._daemon.in_parts.cells():
            self._put_cells(cells)
            await asyncio.sleep(0)
        # A member's last place stays as long as it is a member: those of all that ever were have no bound.
        known = {node.hex() for node in self._daemon.positions()} | set(self._picture.names("member"))
        for name in self._picture.names("position"):
            if name not in known and not is_beside(name):
                self._picture.drop("position", name, time.time())

    async def _read_members(self) -> None:
        gone = dict.fromkeys(self._picture.names("member"))
        is_mesh = self._daemon.summary().mesh
        for part in self._daemon.in_parts.members():
            for member in part:
                gone.pop(member.node.hex(), None)
                self._picture.put("member", self._member(member, is_mesh), time.time())
            await asyncio.sleep(0)
        for row in self._never_met():
            gone.pop(row.id, None)
            self._picture.put("member", row, time.time())
        for name in gone:
            self._picture.drop("member", name, time.time())
            if not name.startswith(NEVER_MET):
                self._since.pop(NodeId(bytes.fromhex(name)), None)
        self._has_read = True

    def unheard(self) -> dict[str, str]:
        """Members of which this node knows by others' word alone, that they failed: id of the row to name."""
        return {row.id: row.name for row in self._never_met()}

    @property
    def plane(self) -> Plane | None:
        """The site's; None without an origin."""
        return self._plane

    def _never_met(self) -> list[Member]:
        """Members that failed before this node came, by the word of who saw it."""
        known = set(self._daemon.in_parts.names().values())
        oldest_s = time.time() - TOLD_S
        return [
            never_met(name, at_s)
            for name, (kind, at_s) in self._told.items()
            if kind == "failed" and at_s >= oldest_s and name not in known
        ]

    def _read_alerts(self) -> None:
        now_s = time.time()
        gone = dict.fromkeys(self._picture.names("alert"))
        for alert in self._daemon.past.standing():
            name = f"{alert.code} {alert.subject}".rstrip()
            gone.pop(name, None)
            row = Alert(
                name, alert.code, alert.subject, alert.level.value, alert.text, str(alert.row()["means"]), alert.remedy,
                alert.since_ms / 1000, *_seen(alert.acknowledged),
            )  # fmt: skip
            self._picture.put("alert", row, now_s)
        for name in gone:
            self._picture.drop("alert", name, now_s)

    def _read_neighbours(self) -> None:
        """What neighbouring swarms share; what has ended goes."""
        now_s = time.time()
        gone = {name for name in self._picture.names("position") if is_beside(name)}
        for row in beside_rows(self._daemon.in_parts.neighbours(), self._plane, now_s):
            gone.discard(row.id)
            self._picture.put("position", row, now_s)
        for name in sorted(gone):
            self._picture.drop("position", name, now_s)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _member(self, view: MemberView, is_mesh: bool) -> Member:
        state = view.state.value
        was = self._since.get(view.node)
        if was is None or was[0] != state:
            # Of a state that a member had at the first look nobody here knows the beginning.
            self._since[view.node] = (state, time.time() if self._has_read else 0.0)
        since_s = self._since[view.node][1]
        return member_of(view, since_s or None, is_self=view.node == self._node, is_mesh=is_mesh)

    def _put_cells(self, views: Sequence[CellView]) -> None:
        now_s, names = time.time(), self._daemon.in_parts.names()
        for view in views:
            self._picture.put("cell", cell_of(view, names), now_s)

    def _evidence(self, view: DetectionView) -> Evidence:
        return Evidence(
            id=view.detection_id,
            node=self._daemon.name_of(view.origin),
            label=said(view.label),
            score=view.score_milli / 1000,
            east_m=None if view.east_cm is None else view.east_cm / 100,
            north_m=None if view.north_cm is None else view.north_cm / 100,
            covariance_m2=None if view.covariance_cm2 is None else [value / 10_000 for value in view.covariance_cm2],
            model_digest=view.model_digest.hex(),
            reports=view.reports,
            first_seen_s=unix_s(view.first_hlc),
            last_seen_s=unix_s(view.last_hlc),
            thumb=view.thumb.hex(),
        )


def _seen(seen: Acknowledged | None) -> tuple[str, float | None, str]:
    return ("", None, "") if seen is None else (seen.by, seen.at_ms / 1000, seen.note)


def _rounded(value_m: float | None) -> float | None:
    return None if value_m is None else round(value_m, 2)
