"""The control verbs, over a narrow view of the daemon."""

import time
from collections.abc import Mapping
from typing import Any

from swarmd.api import geojson, views
from swarmd.api.daemon import EyeControl, Operations, PoseSeen
from swarmd.api.neighbours import register_neighbours
from swarmd.api.parts import Parts
from swarmd.api.review_verbs import register_reviews
from swarmd.api.verbs import Verbs, number_argument, text_argument
from swarmd.api.views import position_row
from swarmd.errors import DaemonError
from swarmd.events.alerts import NOTE_MAX_CHARS
from swarmd_models.types import GroundPosition
from swarmd_protocols.effects import GoAway, Join, UserEvent
from swarmd_protocols.state.observations import CellDone, Judged, LocalDetection, Observed, SetNote, WantCell
from swarmd_protocols.trust.envelopes import STATEMENT_MAX_BYTES

Arguments = Mapping[str, Any]
OUTSIDE_TRACKS = 1 << 40
"""Track ids of outside detectors start here, so that they never meet the eye's."""
OUTSIDE_MAX = 1000
"""Detections in one request: more than any frame holds; they are taken in one turn of the loop."""
OUTSIDE_NAMES_MAX = 4096
"""Names of outside tracks that are remembered, as many as the sighting filter remembers tracks."""

_VERBS = (
    "acknowledge",
    "status",
    "members",
    "detections",
    "objects",
    "cells",
    "cell_next",
    "cell_done",
    "counters",
    "topics",
    "event",
    "away",
    "join",
    "leave",
    "note",
    "observe",
    "eye_start",
    "eye_stop",
    "latency",
    "trust",
    "trust_status",
    "forget",
)
_CHANGING = frozenset(
    {"acknowledge", "event", "away", "join", "leave", "note", "eye_start", "eye_stop", "trust", "forget"}
)


def register_verbs(daemon: Operations, verbs: Verbs) -> None:
    """Fill the registry."""
    answers = _Answers(daemon)
    for verb in _VERBS:
        verbs.add(verb, getattr(answers, verb), changes=verb in _CHANGING)
    register_reviews(daemon, verbs)
    register_neighbours(daemon, verbs)
    for verb in ("pose", "note_problem", "alert"):
        verbs.add(verb, getattr(answers, verb), internal=True)
    verbs.add("judge", lambda arguments: _judge(daemon, arguments), changes=True)
    verbs.add("happened", lambda arguments: _happened(daemon, arguments), internal=True)


def _judge(daemon: Operations, arguments: Arguments) -> Mapping[str, Any]:
    """What another judge says of an object; what it says next replaces this, a score of 0 withdraws it."""
    name = text_argument(arguments, "object", most=64)
    score, need = number_argument(arguments, "score"), number_argument(arguments, "need")
    try:
        digest = bytes.fromhex(text_argument(arguments, "model_digest", most=64))[:8]
    except ValueError as error:
        raise DaemonError("argument 'model_digest' must be hexadecimal digits, at least 16") from error
    daemon.ask("state", Judged(name, round(score * 1000), round(need * 1000), digest))
    return {"object": name}


def _happened(daemon: Operations, arguments: Arguments) -> Mapping[str, Any]:
    """What a bridge saw happen."""
    kind, subject, reason = (str(arguments[name]) for name in ("kind", "subject", "reason"))
    daemon.past.note(kind, subject, reason)
    return {}


def _collection(features: Parts) -> Mapping[str, Any]:
    return {**geojson.collection(()), "features": features}


class _Answers:
    """One method a verb."""

    def __init__(self, daemon: Operations) -> None:
        self._daemon = daemon
        self._tracks: dict[str, int] = {}

    def status(self, _: Arguments) -> Mapping[str, Any]:
        return self._daemon.status()

    def members(self, arguments: Arguments) -> Mapping[str, Any]:
        positions, now_ns = self._daemon.positions(), time.monotonic_ns()
        if arguments.get("form") == "geojson":
            names = self._daemon.in_parts.names()
            found = [(names.get(node, node.hex()), position) for node, position in positions.items()]
            found.sort(key=lambda pair: (pair[0], pair[1].node))
            return geojson.collection([geojson.member_feature(where, name, now_ns) for name, where in found])
        rows = Parts.of(
            self._daemon.in_parts.members(),
            lambda member: {
                **views.member_row(member),
                "unheard_s": views.unheard_s(member, now_ns),
                "position": position_row(positions.get(member.node), now_ns),
            },
        )
        summary, name_of = self._daemon.summary(), self._daemon.name_of
        gone = self._daemon.past.dismissed().items()
        dismissed = [{"name": name_of(node), "by": name_of(by)} for node, by in gone]
        view = {"partial": summary.partial, "mesh": summary.mesh, "estimated": summary.estimated}
        return {"members": rows, "dismissed": dismissed, **view}

    def detections(self, arguments: Arguments) -> Mapping[str, Any]:
        names, found = self._daemon.in_parts.names(), self._daemon.in_parts.detections()
        if arguments.get("form") == "geojson":
            info = self._daemon.info()
            sure = ([view for view in part if not view.is_candidate] for part in found)
            return _collection(Parts.of(sure, lambda view: geojson.sighting_feature(view, info, names)))
        return {"detections": Parts.of(found, lambda view: views.detection_row(view, names))}

    def objects(self, arguments: Arguments) -> Mapping[str, Any]:
        names, found = self._daemon.in_parts.names(), self._daemon.in_parts.objects()
        if arguments.get("form") == "geojson":
            info = self._daemon.info()
            # A map shows what is one; what operators say, of candidates too, comes back from here as labels.
            told = ([view for view in part if view.is_fault or view.tier == "reviewed"] for part in found)
            return _collection(Parts.of(told, lambda view: geojson.object_feature(view, info, names)))
        return {"objects": Parts.of(found, lambda view: views.object_row(view, names))}

    def trust(self, arguments: Arguments) -> Mapping[str, Any]:
        """Take a root, revocation or group key that the operator signed; members pass it on by themselves."""
        kind = text_argument(arguments, "kind", most=16)
        try:
            statement = bytes.fromhex(text_argument(arguments, "statement", most=2 * STATEMENT_MAX_BYTES))
        except ValueError as error:
            raise DaemonError("statement: write it as hexadecimal digits") from error
        return {"new": self._daemon.add_statement(kind, statement)}

    def trust_status(self, _: Arguments) -> Mapping[str, Any]:
        """Who holds which root, group key and certificate, from what members tell; and who is out, with the reason."""
        daemon, trust = self._daemon, self._daemon.trust()
        info, summary = daemon.info(), daemon.summary()
        return {
            "node": info.name,
            "swarm": info.swarm,
            "root": trust.root,
            "epoch": trust.epoch,
            "group_key": trust.group_key,
            "certificate": trust.certificate,
            "why_out": trust.why_out,
            "forked": trust.forked,
            "revoked": [{"node": node.hex(), "reason": reason} for node, reason in trust.revoked.items()],
            "members": Parts.of(daemon.in_parts.members(), views.trust_row),
            "partial": summary.partial,
        }

    def cells(self, _: Arguments) -> Mapping[str, Any]:
        names = self._daemon.in_parts.names()
        return {"cells": Parts.of(self._daemon.in_parts.cells(), lambda view: views.cell_row(view, names))}

    def cell_next(self, arguments: Arguments) -> Mapping[str, Any]:
        """Ask for work; the answer comes as a notice `cell`, and `cells list` shows it."""
        daemon = self._daemon
        east = round(number_argument(arguments, "east_m", 0.0) * 100)
        north = round(number_argument(arguments, "north_m", 0.0) * 100)
        battery = round(number_argument(arguments, "battery", 1.0) * 1000)
        daemon.ask("state", WantCell(east, north, max(0, min(1000, battery))))
        names, own = daemon.in_parts.names(), daemon.info().node
        mine = Parts(
            [views.cell_row(view, names) for view in part if view.holder == own and view.state == "claimed"]
            for part in daemon.in_parts.cells()
        )
        return {"cells": mine}

    def cell_done(self, arguments: Arguments) -> Mapping[str, Any]:
        quality = round(number_argument(arguments, "quality", 1.0) * 1000)
        cell = text_argument(arguments, "cell", most=64)
        self._daemon.ask("state", CellDone(cell, max(0, min(1000, quality))))
        return {"cell": cell}

    def counters(self, _: Arguments) -> Mapping[str, Any]:
        return {**views.counters_answer(self._daemon.in_parts), "own": dict(self._daemon.counters())}

    def topics(self, _: Arguments) -> Mapping[str, Any]:
        return {"topics": [{"topic": topic, "kind": kind, "what": what} for topic, kind, what in self._daemon.served()]}

    def event(self, arguments: Arguments) -> Mapping[str, Any]:
        name = text_argument(arguments, "name", most=128)
        self._daemon.request(UserEvent(name, text_argument(arguments, "payload", "").encode()))
        return {"event": name}

    def away(self, arguments: Arguments) -> Mapping[str, Any]:
        seconds = number_argument(arguments, "seconds")
        if not 0 < seconds <= 30 * 86400:
            raise DaemonError("argument 'seconds' must lie between 0 and 30 days")
        self._daemon.request(GoAway(round(seconds * 1e9)))
        return {"seconds": seconds}

    def join(self, arguments: Arguments) -> Mapping[str, Any]:
        from swarmd.config.loading import is_host_port

        address = text_argument(arguments, "address", most=64)
        if not is_host_port(address):
            raise DaemonError(f"{address!r} is no IP:PORT")
        self._daemon.request(Join((address,)))
        return {"address": address}

    def leave(self, _: Arguments) -> Mapping[str, Any]:
        self._daemon.stop()
        return {"leaving": True}

    def note(self, arguments: Arguments) -> Mapping[str, Any]:
        key = text_argument(arguments, "key", most=128)
        self._daemon.ask("state", SetNote(key, text_argument(arguments, "value", "", most=4096).encode()))
        return {"key": key}

    def acknowledge(self, arguments: Arguments) -> Mapping[str, Any]:
        """Say that a person has seen an alert that stands; who, is told by whoever answers the request."""
        code, subject = text_argument(arguments, "code", most=64), text_argument(arguments, "subject", "", most=64)
        text_argument(arguments, "note", "", most=NOTE_MAX_CHARS)
        standing = self._daemon.past.standing()
        held = next((one for one in standing if (one.code, one.subject) == (code, subject)), None)
        if held is None:
            codes = ", ".join(f"{one.code} {one.subject}".rstrip() for one in standing) or "none"
            raise DaemonError(f"no alert {f'{code} {subject}'.rstrip()!r} stands here; there are: {codes}")
        seen = held.acknowledged
        return {"code": code, "subject": subject, "was_acknowledged_by": None if seen is None else seen.by}

    def forget(self, arguments: Arguments) -> Mapping[str, Any]:
        """Take a failed member off the lists, everywhere, until it returns."""
        name = text_argument(arguments, "name", most=64)
        return {"name": name, "node": self._daemon.past.dismiss(name).hex()}

    def observe(self, arguments: Arguments) -> Mapping[str, Any]:
        """Detections of an outside detector: metres about the mission origin, degrees, or without a place."""
        rows = arguments.get("detections")
        if not isinstance(rows, list) or len(rows) > OUTSIDE_MAX:
            raise DaemonError(f"argument 'detections' must be a list of at most {OUTSIDE_MAX}")
        now = time.monotonic_ns()
        found = []
        for index, row in enumerate(rows):
            try:
                found.append(self._outside(row, now))
            except DaemonError as error:
                raise DaemonError(f"detections[{index}]: {error}") from error
        passed = self._daemon.sightings.take(found)
        if passed:
            self._daemon.ask("state", Observed(tuple(passed)))
        return {"taken": len(passed)}

    def eye_start(self, _: Arguments) -> Mapping[str, Any]:
        self._eye().start()
        return {"eye": self._eye().state}

    def eye_stop(self, _: Arguments) -> Mapping[str, Any]:
        self._eye().stop()
        return {"eye": self._eye().state}

    def latency(self, _: Arguments) -> Mapping[str, Any]:
        """Histograms by stage, sparse, so that a harness can add several daemons up."""
        return {
            name: {"buckets": histogram.sparse(), "sum_ns": histogram.sum_ns, "max_ns": histogram.max_ns}
            for name, histogram in self._daemon.stages().items()
        }

    # --- for bridges ----------------------------------------------------------------------------------------------

    def pose(self, arguments: Arguments) -> Mapping[str, Any]:
        """The autopilot's newest pose: to the eye, and onto the bus."""
        w, x, y, z = (float(part) for part in arguments["camera_to_ned"])
        numbers = {
            name: number_argument(arguments, name)
            for name in ("latitude_deg", "longitude_deg", "height_agl_m", "position_sigma_m", "yaw_rad")
        }
        battery, armed = arguments.get("battery_milli"), arguments.get("armed")
        altitude = None if arguments.get("altitude_m") is None else number_argument(arguments, "altitude_m")
        self._daemon.on_pose(
            PoseSeen(
                has_fix=bool(arguments["has_fix"]),
                battery_milli=None if battery is None else int(battery),
                captured_ns=int(arguments["captured_ns"]),
                camera_to_ned=(w, x, y, z),
                altitude_m=altitude,
                **numbers,
            ),
            None if armed is None else bool(armed),
        )
        return {}

    def note_problem(self, arguments: Arguments) -> Mapping[str, Any]:
        """A bridge's trouble, said at a bounded rate."""
        self._daemon.note_problem(str(arguments.get("where", "")), str(arguments.get("text", "")))
        return {}

    def alert(self, arguments: Arguments) -> Mapping[str, Any]:
        """A bridge's standing alert: raised with a text, cleared with none."""
        text, subject = str(arguments.get("text", "")), str(arguments.get("subject", ""))
        self._daemon.past.set_alert(str(arguments["code"]), text, subject)
        return {}

    # --- inside ---------------------------------------------------------------------------------------------------

    def _eye(self) -> EyeControl:
        eye = self._daemon.eye_control
        if eye is None:
            raise DaemonError("this node runs no eye; give `swarmd run` a --source")
        return eye

    def _outside(self, row: object, now_ns: int) -> LocalDetection:
        if not isinstance(row, dict):
            raise DaemonError("a detection is an object with label, score, east_m, north_m, covariance_m2, track")
        east_cm, north_cm, covariance_cm2, asset = self._outside_place(row)
        score = number_argument(row, "score", 1.0)
        if not 0 <= score <= 1:
            raise DaemonError("score lies between 0 and 1")
        kind = text_argument(row, "event", "update", most=6)
        if kind not in ("new", "update", "end"):
            raise DaemonError("event is one of new, update, end")
        label = text_argument(row, "label", most=64)
        if not label:
            raise DaemonError("argument 'label' is empty; say what it is, in 1 to 64 bytes")
        track = str(row.get("track", ""))[:128]
        if not track:
            # A detector that does not track: what it sees of one kind in one square metre is one thing.
            square = "" if east_cm is None or north_cm is None else f"{east_cm // 100},{north_cm // 100}"
            track = f"\0{label}@{square}"
        return LocalDetection(
            kind=kind,
            track_id=self._track(track),
            label=label,
            score_milli=round(score * 1000),
            east_cm=east_cm,
            north_cm=north_cm,
            covariance_cm2=covariance_cm2,
            asset=asset,
            moving=bool(row.get("moving", False)),
            captured_ns=now_ns,
            model_digest=bytes(8),
        )

    def _outside_place(self, row: dict[str, Any]) -> tuple[int | None, int | None, tuple[int, int, int] | None, str]:
        """(east cm, north cm, covariance cm², asset) of a row, all empty where it has no position."""
        covariance = row.get("covariance_m2") or [1.0, 0.0, 1.0]
        if not isinstance(covariance, list) or len(covariance) != 3:
            raise DaemonError("covariance_m2 has three numbers: east-east, east-north, north-north")
        ee, en, nn = (number_argument({"covariance_m2": value}, "covariance_m2") for value in covariance)
        if min(ee, nn) <= 0 or en * en >= ee * nn or max(ee, nn) > 1e8:
            raise DaemonError("the position's covariance is no covariance")
        sightings = self._daemon.sightings
        if "latitude_deg" in row:
            latitude, longitude = number_argument(row, "latitude_deg"), number_argument(row, "longitude_deg")
            if abs(latitude) > 90 or abs(longitude) > 180:
                raise DaemonError(f"({latitude}, {longitude}) is no place on Earth")
            if sightings.plane is None:
                raise DaemonError(
                    "a place in degrees needs node.origin, which this node has not: set it, the same on every node, "
                    "or leave the place out"
                )
            return sightings.locate(GroundPosition(latitude, longitude, (ee, en, nn)))
        if "east_m" not in row and "north_m" not in row:
            return None, None, None, ""
        east_m, north_m = number_argument(row, "east_m"), number_argument(row, "north_m")
        if abs(east_m) + abs(north_m) > 1e6:
            raise DaemonError("the position is farther than 1,000 km away")
        rounded = (max(1, round(ee * 1e4)), round(en * 1e4), max(1, round(nn * 1e4)))
        return round(east_m * 100), round(north_m * 100), rounded, sightings.asset_at(east_m, north_m, (ee, en, nn))

    def _track(self, name: str) -> int:
        number = self._tracks.get(name)
        if number is None:
            if len(self._tracks) >= OUTSIDE_NAMES_MAX:
                self._tracks.pop(next(iter(self._tracks)))
            number = self._tracks[name] = OUTSIDE_TRACKS + time.monotonic_ns() % OUTSIDE_TRACKS
        return number
