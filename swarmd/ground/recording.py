"""Recordings of what a node saw: written as they happen, read whole, in MCAP.

    /ground/changes   JSON `rows.Change`, at the moment it became known
    /ground/marks     JSON `rows.Mark`
    metadata "swarmd-ground": {"site": JSON `rows.Site`}

A daemon's own recording (`swarmd record`, profile ros2) is read too, as far as it holds the same: members, positions,
objects with their reviews and pictures, cells and events.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from swarmd.errors import DaemonError, RecordError
from swarmd.events.record import TEXT_MAX_CHARS
from swarmd.ground.facts import REVIEWS_MAX, said
from swarmd.ground.rows import (
    Asset,
    Cell,
    Change,
    Event,
    Mark,
    Member,
    Object,
    Position,
    Release,
    Site,
    Vote,
)
from swarmd.ground.thumbs import HeldThumbs
from swarmd.ground.view import Ground
from swarmd.records import Review

try:
    from mcap.reader import SeekingReader
    from mcap.writer import CompressionType, Writer
except ImportError as problem:
    raise DaemonError(f"recordings need mcap ({problem}); run: pip install 'swarmd[record]'") from problem

CHANGES, MARKS, METADATA = "/ground/changes", "/ground/marks", "swarmd-ground"
_CELL_STATES = {0: "open", 1: "claimed", 2: "done"}
_encode = msgspec.json.encode


class RecordingFile:
    """A recording that is being written.

    Args:
        path: Must not exist.
        site: What is looked at.

    Raises:
        RecordError: The file cannot be made.
    """

    def __init__(self, path: Path, site: Site) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb")
        except OSError as error:
            raise RecordError(f"cannot record to {path}: {error.strerror}; choose another file or make room") from error
        self._writer = Writer(self._file, compression=CompressionType.ZSTD)
        self._writer.start(profile="", library="swarmd")
        self._writer.add_metadata(METADATA, {"site": _encode(site).decode()})
        self._channels = {topic: self._channel(topic, kind) for topic, kind in ((CHANGES, Change), (MARKS, Mark))}

    def change(self, change: Change) -> None:
        """Write one change."""
        self._write(CHANGES, change.at_s, _encode(change))

    def mark(self, mark: Mark) -> None:
        """Write one point of the timeline."""
        self._write(MARKS, mark.at_s, _encode(mark))

    def close(self) -> None:
        """Finish the file, so that readers find its index."""
        self._writer.finish()
        self._file.close()

    def _write(self, topic: str, at_s: float, data: bytes) -> None:
        at_ns = round(at_s * 1e9)
        self._writer.add_message(self._channels[topic], at_ns, data, at_ns)

    def _channel(self, topic: str, kind: type) -> int:
        schema = self._writer.register_schema(f"swarmd.ground.{kind.__name__}", "jsonschema", _encode(_schema(kind)))
        return int(self._writer.register_channel(topic, "json", schema))


def _schema(kind: type) -> dict[str, Any]:
    return {**msgspec.json.schema(kind), "type": "object"}


def open_recording(path: Path, history: Path) -> Ground:
    """A recording, ready to be served.

    Args:
        path: Which.
        history: A file for its history, which is made.

    Raises:
        DaemonError: It is missing, no MCAP, or holds nothing that could be shown.
    """
    from swarmd.bridges.record.reading import Recording

    recording = Recording(path)
    site = _site(path)
    ground = Ground(site, history, max_bytes=1 << 62)
    read = _Whole(ground).read if _is_whole(path) else _Daemons(ground).read
    last_s = 0.0
    for schema, channel, message in recording.messages():
        at_s = message.log_time / 1e9
        if not last_s:
            ground.past.begin(at_s)
        try:
            read(schema, channel, message.data, at_s)
        except Exception as error:  # Bytes of a recording that is not ours make decoders raise anything.
            ground.past.close()
            raise DaemonError(f"{path} holds {channel.topic[:80]!r} that cannot be read ({error})") from error
        last_s = max(last_s, at_s)
    if not ground.picture.seq:
        ground.past.close()
        raise DaemonError(f"{path} holds nothing that the ground view could show; record with profile ros2")
    ground.past.end(last_s)
    ground.ended_s = last_s
    return ground


class _Told(msgspec.Struct):
    """A `rows.Change` as it is read: msgspec takes no `Raw | None`."""

    kind: str
    id: str
    row: msgspec.Raw


class _Whole:
    """Reads what `RecordingFile` wrote."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._kinds: dict[str, Any] = {
            "member": Member, "position": Position, "object": Object, "cell": Cell, "event": Event,
            "release": Release, "vote": Vote,
        }  # fmt: skip

    def read(self, schema: Any, channel: Any, data: bytes, at_s: float) -> None:
        """One message."""
        if channel.topic == MARKS:
            self._ground.mark(msgspec.json.decode(data, type=Mark))
        elif channel.topic == CHANGES:
            change = msgspec.json.decode(data, type=_Told)
            kind = self._kinds.get(change.kind)
            if kind is None:
                return
            if bytes(change.row) == b"null":
                self._ground.picture.drop(change.kind, change.id, at_s)
            else:
                # Decoded and checked: what a stranger's file says reaches the page only in the shape of a row.
                self._ground.picture.put(change.kind, msgspec.json.decode(change.row, type=kind), at_s)


class _Daemons:
    """Reads what a daemon recorded in ROS 2 messages."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._put = ground.picture.put
        self._decoders: dict[int, Callable[[bytes], Any] | None] = {}
        self._states: dict[str, tuple[str, float]] = {}
        self._poses: dict[str, Any] = {}
        self._thumbs = HeldThumbs()
        ground.thumb = self._thumbs.get
        self._pictured: dict[str, str] = {}
        """Object to its picture; of those that are there."""
        self._reviews: dict[str, tuple[str, list[Review]]] = {}
        """Object to what operators agree on, and what each says."""

    def read(self, schema: Any, channel: Any, data: bytes, at_s: float) -> None:
        """One message."""
        message = self._decoded(schema, channel, data)
        topic = channel.topic
        if message is None:
            return
        if topic == "/swarm/peers":
            self._on_peers(message, at_s)
        elif topic == "/swarm/objects":
            self._on_objects(message, at_s)
        elif topic == "/swarm/objects/reviews":
            self._on_reviews(message, at_s)
        elif topic == "/swarm/thumbs":
            self._on_thumb(message, at_s)
        elif topic == "/swarm/cells":
            for one in message.cells:
                state = _CELL_STATES.get(one.state, "open")
                cell = Cell(said(one.cell_id), one.center.x, one.center.y, state, said(one.holder), list(one.done_by))
                self._put("cell", cell, at_s)
        elif topic == "/swarm/events":
            at = message.header.stamp
            level = ("info", "warning", "error")[min(2, max(0, int(message.level)))]
            texts = (message.origin, message.kind, message.subject, message.reason, message.evidence)
            origin, kind, subject, reason, evidence = (said(text, 240) for text in texts)
            happened_s = at.sec + at.nanosec / 1e9
            self._put(
                "event", Event(said(message.id), happened_s, origin, kind, level, subject, reason, evidence), at_s
            )
            self._ground.mark(Mark(at_s, "events", level, f"{origin} {kind} {subject}".rstrip()))
        elif topic.endswith("/pose"):
            self._poses[topic[1:-5]] = message.pose
        elif topic.endswith("/fix"):
            self._on_fix(topic[1:-4], message, at_s)

    def _decoded(self, schema: Any, channel: Any, data: bytes) -> Any:
        from mcap_ros2.decoder import DecoderFactory

        if channel.id not in self._decoders:
            self._decoders[channel.id] = DecoderFactory().decoder_for(channel.message_encoding, schema)
        decode = self._decoders[channel.id]
        return None if decode is None else decode(data)

    def _on_peers(self, message: Any, at_s: float) -> None:
        for one in message.status:
            name, state = said(one.name.removeprefix("swarm/")), said(one.message)
            was = self._states.get(name)
            if was is None or was[0] != state:
                self._states[name] = (state, at_s)
                if was is not None:
                    level = "warning" if state in ("failed", "suspect") else "info"
                    self._ground.mark(Mark(at_s, "members", level, f"{name} {was[0]} → {state}"))
            since_s = None if was is None else self._states[name][1]
            is_self = name == self._ground.site.seen_by
            quality = "self" if is_self else "good" if state == "alive" else "none"
            row = Member(name, name, state, since_s, is_self, None, 0.0, quality, [], "", "", "", None, None, None)
            self._put("member", row, at_s)

    def _on_objects(self, message: Any, at_s: float) -> None:
        gone = dict.fromkeys(self._ground.picture.names("object"))
        for one in message.detections:
            best = one.results[0]
            covariance = best.pose.covariance
            place = one.bbox.center.position
            name = said(one.id)
            if name not in gone:
                self._ground.mark(Mark(at_s, "objects", "info", said(best.hypothesis.class_id)))
            gone.pop(name, None)
            review, reviews = self._reviews.get(name, ("", []))
            row = Object(
                id=name,
                label=said(best.hypothesis.class_id),
                score=round(best.hypothesis.score, 3),
                tier="candidate" if review in ("", "disputed") else "reviewed",
                east_m=place.x,
                north_m=place.y,
                covariance_m2=[covariance[0], covariance[1], covariance[7]],
                asset="",
                observers=[],
                reports=0,
                first_seen_s=at_s,
                last_seen_s=at_s,
                review=review,
                reviews=reviews,
                thumb=self._pictured.get(name, ""),
            )
            self._ground.picture.put_dateless(row, at_s)
        for name in gone:
            self._pictured.pop(name, None)
            self._ground.picture.drop("object", name, at_s)

    def _on_reviews(self, message: Any, at_s: float) -> None:
        """What operators say, of all objects that anybody has reviewed: of the others nobody says anything any more."""
        before, self._reviews = self._reviews, {}
        for one in message.status:
            agreed = next((pair.value for pair in one.values if pair.key == "review"), "")
            name = said(one.name.removeprefix("object/"))
            _, reviews = self._reviews.setdefault(name, (said(agreed), []))
            if len(reviews) < REVIEWS_MAX:
                reviews.append(_review(one))
        for name in {**before, **self._reviews}:
            held = self._ground.picture.held("object", name, Object)
            if held is not None:
                review, reviews = self._reviews.get(name, ("", []))
                tier = "candidate" if review in ("", "disputed") else "reviewed"
                row = msgspec.structs.replace(held, review=review, reviews=reviews, tier=tier)
                self._ground.picture.put_dateless(row, at_s)

    def _on_thumb(self, message: Any, at_s: float) -> None:
        name = said(message.header.frame_id.removeprefix("object/"))
        thumb = self._thumbs.put(bytes(message.data))
        held = self._ground.picture.held("object", name, Object)
        if thumb and held is not None:
            self._pictured[name] = thumb
            self._ground.picture.put_dateless(msgspec.structs.replace(held, thumb=thumb), at_s)

    def _on_fix(self, name: str, message: Any, at_s: float) -> None:
        if message.status.status < 0:
            self._ground.picture.lose_fix(name, at_s)
            return
        pose = self._poses.get(name)
        yaw_deg = None
        if pose is not None:
            # REP 103: yaw counter-clockwise from east; ours is clockwise from north.
            turn = 2 * math.atan2(pose.orientation.z, pose.orientation.w)
            yaw_deg = round((90 - math.degrees(turn)) % 360, 1)
        row = Position(
            id=name,
            name=name,
            has_fix=True,
            east_m=None if pose is None else round(pose.position.x, 2),
            north_m=None if pose is None else round(pose.position.y, 2),
            latitude_deg=message.latitude,
            longitude_deg=message.longitude,
            height_agl_m=0.0 if pose is None else round(pose.position.z, 2),
            yaw_deg=yaw_deg,
            sigma_m=round(math.sqrt(max(0.0, message.position_covariance[0])), 2),
            battery=None,
            at_s=at_s,
        )
        self._put("position", row, at_s)


def _review(one: Any) -> Review:
    """What one operator says, out of a DiagnosticStatus of `ros2.mapping.review_statuses`."""
    values = {pair.key: pair.value for pair in one.values}
    made_s = float(values.get("made_s", "0"))
    return Review(
        operator=said(values.get("operator", "?")),
        key=said(one.hardware_id),
        verdict=said(values.get("verdict", "")),
        text=said(values.get("text", ""), TEXT_MAX_CHARS),
        seen=said(values.get("seen", "")),
        made_s=made_s if math.isfinite(made_s) else 0.0,
        revision=0,
        digest=said(values.get("digest", "")),
    )


def _metadata(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield from SeekingReader(file).iter_metadata()
    except Exception:  # A torn recording has no index, and so no metadata that could be found.
        return


def _is_whole(path: Path) -> bool:
    return any(one.name == METADATA for one in _metadata(path))


def _site(path: Path) -> Site:
    for one in _metadata(path):
        if one.name == METADATA:
            site = msgspec.json.decode(one.metadata["site"], type=Site)
            return msgspec.structs.replace(site, mode="recording")
    told = next((dict(one.metadata) for one in _metadata(path) if one.name == "swarmd"), {})
    assets: list[Asset] = []
    latitude_deg, longitude_deg = _origin(told.get("origin", ""))
    return Site("recording", path.name, said(told.get("node", "?")), said(told.get("version", "")), latitude_deg,
                longitude_deg, assets)  # fmt: skip


def _origin(text: str) -> tuple[float | None, float | None]:
    first, _, second = text.partition(",")
    try:
        return float(first), float(second)
    except ValueError:
        return None, None
