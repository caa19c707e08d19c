"""Records what the daemon knows while it runs: detections, objects, members, positions, cells; pictures when asked."""

import asyncio
import base64
import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swarmd.api import geojson
from swarmd.api.daemon import BusEvent, DaemonView, NodePosition, PictureSeen, PoseSeen, PositionSeen
from swarmd.bridges.record.recorder import Recorder
from swarmd.bridges.record.thumbs import ThumbTaker
from swarmd.bridges.ros2.mapping import (
    CELL_STATES,
    DIAGNOSTIC_LEVELS,
    EVENT_LEVELS,
    FRAME,
    covariance36,
    review_statuses,
)
from swarmd.bridges.ros2.names import token
from swarmd.config.bridges import RecordConfig
from swarmd.errors import DaemonError
from swarmd.events.record import EventRecord, Happened
from swarmd_models.geo.positions import wgs84_to_enu_cm
from swarmd_protocols.effects import MemberChanged, StateChanged
from swarmd_protocols.state.observations import CellView, DetectionLearned
from swarmd_protocols.summary import MemberView
from swarmd_protocols.thumbs.requests import ThumbLearned

THUMBS = "/swarm/thumbs"
"""Topic of thumbnails; `frame_id` says of which object: `object/ID`."""
PICTURE_S = 1.0
"""Objects, members and cells are written at most this often, and only when something changed."""


def _time(unix_ns: int) -> dict[str, int]:
    return {"sec": unix_ns // 1_000_000_000, "nanosec": unix_ns % 1_000_000_000}


def _stamp(unix_ns: int) -> dict[str, int]:
    """Foxglove's names for the same."""
    return {"sec": unix_ns // 1_000_000_000, "nsec": unix_ns % 1_000_000_000}


def _header(unix_ns: int) -> dict[str, Any]:
    return {"stamp": _time(unix_ns), "frame_id": FRAME}


def _pose(east_m: float, north_m: float, height_m: float = 0.0) -> dict[str, Any]:
    return {
        "position": {"x": east_m, "y": north_m, "z": height_m},
        "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
    }


def _detection3d(
    label: str,
    score_milli: int,
    place: tuple[int, int],
    covariance: tuple[int, int, int] | None,
    name: str,
    unix_ns: int,
) -> dict[str, Any]:
    pose = _pose(place[0] / 100, place[1] / 100)
    hypothesis = {"class_id": label, "score": score_milli / 1000}
    return {
        "header": _header(unix_ns),
        "results": [{"hypothesis": hypothesis, "pose": {"pose": pose, "covariance": covariance36(covariance)}}],
        "bbox": {"center": pose, "size": {"x": 0.0, "y": 0.0, "z": 0.0}},
        "id": name,
    }


class RecordBridge:
    """A recording that runs as long as the daemon, or as long as `swarmd record` asks."""

    name = "record"

    def __init__(self, config: RecordConfig, path: Path | None = None) -> None:
        """Prepare; the file is made in `run`.

        Args:
            config: The `[record]` section.
            path: The file; None: a name with the time in `record.directory`.
        """
        self._config = config
        self._path = path
        self._recorder: Recorder | None = None
        self._daemon: DaemonView | None = None
        self._changed = True
        self._said = False
        self._has_reviews = False
        self._thumbs = ThumbTaker(lambda name: self._daemon is not None and self._daemon.fetch_thumb(name))

    def counters(self) -> dict[str, int]:
        """Monotonic counts: messages, messages dropped because the recording is full."""
        return dict(self._recorder.counts) if self._recorder else {}

    @property
    def problem(self) -> str:
        """Why the recording ended early; "" while all is well."""
        return self._recorder.problem if self._recorder else ""

    def open(self, daemon: DaemonView) -> None:
        """Make the file now, so that whoever asked hears at once when that fails; `run` does it otherwise.

        Raises:
            RecordError: The file cannot be made.
        """
        self._daemon = daemon
        info = daemon.info()
        path = self._path
        if path is None:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            path = Path(self._config.directory or "record") / f"{token(info.name)}-{stamp}.mcap"
        metadata = {
            "node": info.name,
            "node_id": info.node.hex(),
            "swarm": info.swarm,
            "version": info.version,
            "origin": f"{info.origin_latitude_deg},{info.origin_longitude_deg}",
            "model_digest": info.model_digest,
        }
        mebibyte = 1 << 20
        self._recorder = Recorder(
            path,
            self._config.profile,
            metadata,
            self._config.max_mib * mebibyte,
            self._config.min_free_mib * mebibyte,
        )

    async def run(self, daemon: DaemonView) -> None:
        """Record until cancelled; the file is finished properly then, and what ended it otherwise is its `problem`."""
        if self._recorder is None or (self._recorder.full and self._path is None):
            self.open(daemon)
        elif self._recorder.full:
            return  # A file that was named is not begun twice.
        assert self._recorder is not None
        path = self._recorder.path
        unsubscribe = daemon.subscribe(self._on_event)
        settings = self._config
        end_pictures = (
            daemon.watch_pictures(
                self._on_picture, round(1000 / settings.images_hz), settings.image_width, settings.image_quality
            )
            if settings.images_hz > 0
            else lambda: None
        )
        try:
            while True:
                if self._changed:
                    self._changed = False
                    await self._write_picture()
                    self._thumbs.know(daemon.objects())
                self._thumbs.look()
                if self._recorder.problem and not self._said:
                    self._said = True
                    self._report(f"recording {path} ended: {self._recorder.problem}")
                await self._recorder.keep()
                await asyncio.sleep(PICTURE_S)
        except Exception as error:
            self._recorder.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            unsubscribe()
            end_pictures()
            try:
                await self._write_picture()
            finally:
                self._recorder.close()

    def _report(self, text: str) -> None:
        assert self._daemon is not None
        try:
            self._daemon.command("note_problem", {"where": self.name, "text": text})
        except DaemonError:
            self._said = True

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=DetectionLearned() as learned):
                self._on_detection(learned)
                self._changed = True
            case StateChanged(detail=ThumbLearned() as thumb):
                for object_id in self._thumbs.take(thumb):
                    now_ns = time.time_ns()
                    self._write_jpeg(THUMBS, f"object/{object_id}", thumb.jpeg, now_ns, now_ns)
            case PoseSeen():
                assert self._daemon is not None
                self._on_position(self._daemon.info().name, event if event.has_fix else None)
            case PositionSeen(_, name, position):
                self._on_position(name, position)
            case StateChanged() | MemberChanged():
                self._changed = True
            case Happened(record):
                self._on_happened(record)
            case _:
                pass

    def _write(self, topic: str, type_name: str, message: Mapping[str, Any], unix_ns: int) -> None:
        assert self._recorder is not None
        self._recorder.write(topic, type_name, message, unix_ns)

    def _on_detection(self, learned: DetectionLearned) -> None:
        now_ns = time.time_ns()
        view = learned.view
        if self._config.profile == "foxglove":
            assert self._daemon is not None
            feature = geojson.detection_feature(learned, self._daemon.info(), self._daemon.name_of(view.origin))
            self._write_geojson("/swarm/detections", [feature], now_ns)
        elif view.east_cm is not None and view.north_cm is not None and not view.is_candidate:
            place = (view.east_cm, view.north_cm)
            found = _detection3d(view.label, view.score_milli, place, view.covariance_cm2, view.detection_id, now_ns)
            message = {"header": _header(now_ns), "detections": [found]}
            self._write("/swarm/detections", "vision_msgs/msg/Detection3DArray", message, now_ns)

    def _on_happened(self, record: EventRecord) -> None:
        """What happened, at the moment it became known; the message says when it was."""
        at_ns = record.at_ms * 1_000_000
        if self._config.profile == "foxglove":
            levels = {"info": 2, "warning": 3, "error": 4}
            text = " ".join(part for part in (record.kind, record.subject, record.reason, record.evidence) if part)
            said = {"timestamp": _stamp(at_ns), "level": levels[record.level], "message": text, "name": record.origin}
            self._write("/swarm/events", "foxglove.Log", {**said, "file": "", "line": 0}, time.time_ns())
            return
        message = {
            "header": {"stamp": _time(at_ns), "frame_id": ""},
            "id": record.event_id,
            "origin": record.origin,
            "kind": record.kind,
            "level": EVENT_LEVELS[record.level],
            "subject": record.subject,
            "reason": record.reason,
            "evidence": record.evidence,
        }
        self._write("/swarm/events", "swarmd_msgs/msg/Event", message, time.time_ns())

    def _on_position(self, name: str, position: PoseSeen | NodePosition | None) -> None:
        """Where this node or a peer is; None: no fix, which has no place in either profile."""
        now_ns = time.time_ns()
        topic = f"/{token(name)}/fix"
        variance = 0.0 if position is None else position.position_sigma_m**2
        covariance = [variance, 0.0, 0.0, 0.0, variance, 0.0, 0.0, 0.0, 1e6]
        if self._config.profile == "foxglove":
            if position is not None:
                fix: dict[str, Any] = {
                    "timestamp": _stamp(now_ns),
                    "frame_id": token(name),
                    "latitude": position.latitude_deg,
                    "longitude": position.longitude_deg,
                    "altitude": position.height_agl_m,
                    "position_covariance": covariance,
                    "position_covariance_type": 2,
                }
                self._write(topic, "foxglove.LocationFix", fix, now_ns)
            return
        message = {
            "header": _header(now_ns),
            "status": {"status": -1 if position is None else 0, "service": 1},
            "latitude": math.nan if position is None else position.latitude_deg,
            "longitude": math.nan if position is None else position.longitude_deg,
            "altitude": math.nan,
            "position_covariance": covariance,
            "position_covariance_type": 0 if position is None else 2,
        }
        self._write(topic, "sensor_msgs/msg/NavSatFix", message, now_ns)
        assert self._daemon is not None
        info = self._daemon.info()
        if position is None or not info.has_origin:
            return
        origin = info.origin_latitude_deg, info.origin_longitude_deg
        east_cm, north_cm = wgs84_to_enu_cm(position.latitude_deg, position.longitude_deg, *origin)
        pose = _pose(east_cm / 100, north_cm / 100, position.height_agl_m)
        if position.yaw_rad is not None:
            # REP 103: yaw counter-clockwise from east; ours is clockwise from north.
            half = (math.pi / 2 - position.yaw_rad) / 2
            pose["orientation"] |= {"z": math.sin(half), "w": math.cos(half)}
        message = {"header": _header(now_ns), "pose": pose}
        self._write(f"/{token(name)}/pose", "geometry_msgs/msg/PoseStamped", message, now_ns)

    def _on_picture(self, picture: PictureSeen) -> None:
        assert self._daemon is not None
        node = token(self._daemon.info().name)
        now_ns = time.time_ns()
        taken_ns = now_ns - max(0, time.monotonic_ns() - picture.captured_ns)
        self._write_jpeg(f"/{node}/image/compressed", f"{node}_camera", picture.jpeg, taken_ns, now_ns)

    def _write_jpeg(self, topic: str, frame: str, jpeg: bytes, taken_ns: int, now_ns: int) -> None:
        if self._config.profile == "foxglove":
            data = base64.b64encode(jpeg).decode()
            said = {"timestamp": _stamp(taken_ns), "frame_id": frame, "format": "jpeg", "data": data}
            self._write(topic, "foxglove.CompressedImage", said, now_ns)
            return
        header = {"stamp": _time(taken_ns), "frame_id": frame}
        message: dict[str, Any] = {"header": header, "format": "jpeg", "data": jpeg}
        self._write(topic, "sensor_msgs/msg/CompressedImage", message, now_ns)

    def _write_geojson(self, topic: str, features: list[dict[str, object]], now_ns: int) -> None:
        self._write(topic, "foxglove.GeoJSON", {"geojson": json.dumps(geojson.collection(features))}, now_ns)

    async def _write_features(
        self, daemon: DaemonView, recorder: Recorder, names: Mapping[bytes, str], now_ns: int
    ) -> None:
        info = daemon.info()
        features: list[dict[str, object]] = []
        for part in daemon.in_parts.objects():
            features += [geojson.object_feature(view, info, names) for view in part]
            await asyncio.sleep(0)
        text = await asyncio.to_thread(json.dumps, geojson.collection(features))
        await recorder.write_long("/swarm/objects", "foxglove.GeoJSON", {"geojson": text}, now_ns)

    async def _write_picture(self) -> None:
        """All that is known, each kind as one message: made in parts and encoded aside, so that the loop turns."""
        daemon, recorder = self._daemon, self._recorder
        assert daemon is not None
        assert recorder is not None
        now_ns = time.time_ns()
        names = {bytes(member.node): member.name for member in daemon.members()}
        if self._config.profile == "foxglove":
            await self._write_features(daemon, recorder, names, now_ns)
            return
        objects: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []
        for part in daemon.in_parts.objects():
            objects += [
                _detection3d(v.label, v.score_milli, (v.east_cm, v.north_cm), v.covariance_cm2, v.object_id, now_ns)
                for v in part
                if v.east_cm is not None and v.north_cm is not None
            ]
            said += [_status(*one) for view in part for one in review_statuses(view)]
            await asyncio.sleep(0)
        header = _header(now_ns)
        message: dict[str, Any] = {"header": header, "detections": objects}
        await recorder.write_long("/swarm/objects", "vision_msgs/msg/Detection3DArray", message, now_ns)
        diagnostics = "diagnostic_msgs/msg/DiagnosticArray"
        if said or self._has_reviews:  # Empty once, where what was said is said no more.
            await recorder.write_long("/swarm/objects/reviews", diagnostics, {"header": header, "status": said}, now_ns)
        self._has_reviews = bool(said)
        peers = [_peer(member) for member in daemon.members()]
        await recorder.write_long("/swarm/peers", diagnostics, {"header": header, "status": peers}, now_ns)
        cells = [_cell(view, names) for view in daemon.cells()]
        if cells:
            message = {"header": header, "cells": cells}
            await recorder.write_long("/swarm/cells", "swarmd_msgs/msg/CellArray", message, now_ns)


def _status(level: int, name: str, text: str, key: str, values: Iterable[tuple[str, str]]) -> dict[str, Any]:
    pairs = [{"key": one, "value": value} for one, value in values]
    return {"level": level, "name": name, "message": text, "hardware_id": key, "values": pairs}


def _peer(member: MemberView) -> dict[str, Any]:
    level, name, state = DIAGNOSTIC_LEVELS[member.state], f"swarm/{member.name}", member.state.value
    return _status(level, name, state, member.node.hex()[:16], [("loss", f"{member.loss:.3f}")])


def _cell(view: CellView, names: Mapping[bytes, str]) -> dict[str, Any]:
    return {
        "cell_id": view.cell_id,
        "state": CELL_STATES.get(view.state, 0),
        "center": {"x": view.centre_east_cm / 100, "y": view.centre_north_cm / 100, "z": 0.0},
        "holder": "" if view.holder is None else names.get(view.holder, view.holder.hex()[:8]),
        "done_by": [names.get(node, node.hex()[:8]) for node in view.done_by],
    }
