"""GeoJSON (RFC 7946) of detections, objects and members: the command line, MQTT, the live page and recordings share it.

A feature's properties say all that the tables say and the identifiers that machines need; a place is in degrees in the
geometry and in metres about the mission origin in the properties.
"""

import time
from collections.abc import Mapping, Sequence

from swarmd.api.views import unix_s
from swarmd.brain.positions import position_row
from swarmd.bridges.base import DetectionSeen, NodeInfo, NodePosition
from swarmd_models.geo.positions import enu_cm_to_wgs84
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionView, LocalDetection, ObjectView

Feature = dict[str, object]
Names = Mapping[bytes, str] | Mapping[NodeId, str]


def detection_feature(seen: DetectionSeen, info: NodeInfo) -> Feature:
    """One detection, as it becomes known.

    Args:
        seen: The detection and who made it.
        info: This daemon, for the mission origin.

    Returns:
        A JSON-ready mapping; `geometry` is null where the detection has no position.
    """
    one = seen.detection
    is_own = not seen.hlc
    # Of a peer's sighting the time of first sight stands where own ones have their track (`bridges.base.seen_of`).
    last_s = _wall_s(one.captured_ns) if is_own else unix_s(seen.hlc)
    first_s = (last_s if one.kind == "new" else None) if is_own else unix_s(one.track_id)
    return _feature(
        f"{seen.origin.hex()[:16]}-{one.track_id}",
        one,
        info,
        node=seen.origin_name,
        event=one.kind,
        track=one.track_id,
        model_digest=one.model_digest.hex(),
        first_seen_s=first_s,
        last_seen_s=last_s,
        hlc=seen.hlc,
    )


def sighting_feature(view: DetectionView, info: NodeInfo, names: Names) -> Feature:
    """One node's own sighting, before deduplication, as the shared state holds it."""
    return _feature(
        f"{view.origin.hex()[:16]}-{view.first_hlc}",
        view,
        info,
        node=names.get(view.origin, view.origin.hex()),
        object=view.object_id,
        model_digest=view.model_digest.hex(),
        reports=view.reports,
        first_seen_s=unix_s(view.first_hlc),
        last_seen_s=unix_s(view.last_hlc),
        hlc=view.last_hlc,
    )


def object_feature(view: ObjectView, info: NodeInfo, names: Names) -> Feature:
    """One object of the deduplicated view.

    Args:
        view: The object.
        info: This daemon, for the mission origin.
        names: Node names by node id; an unknown observer shows as its id.

    Returns:
        A JSON-ready mapping.
    """
    return _feature(
        view.object_id,
        view,
        info,
        observers=[names.get(node, node.hex()) for node in view.observers],
        confirmed=view.confirmed,
        reports=view.reports,
        first_seen_s=unix_s(view.first_hlc),
        last_seen_s=unix_s(view.last_hlc),
        first_seen_hlc=view.first_hlc,
        last_seen_hlc=view.last_hlc,
    )


def member_feature(position: NodePosition, name: str, now_ns: int) -> Feature:
    """Where a member said that it is.

    Args:
        position: What it said.
        name: Its name.
        now_ns: This node's monotonic clock, for the age.
    """
    row = dict(position_row(position, now_ns) or {})
    point = {"type": "Point", "coordinates": [row.pop("longitude_deg"), row.pop("latitude_deg")]}
    return {"type": "Feature", "id": position.node.hex(), "geometry": point, "properties": {"node": name, **row}}


def collection(features: Sequence[Feature]) -> Feature:
    """A feature collection that a GIS opens as one layer."""
    return {"type": "FeatureCollection", "features": list(features)}


def _feature(
    name: str, one: LocalDetection | DetectionView | ObjectView, info: NodeInfo, **properties: object
) -> Feature:
    """What everything that was seen has in common, and `properties`."""
    east_cm, north_cm, covariance_cm2 = one.east_cm, one.north_cm, one.covariance_cm2
    place = None
    if east_cm is not None and north_cm is not None:
        latitude, longitude = enu_cm_to_wgs84(east_cm, north_cm, info.origin_latitude_deg, info.origin_longitude_deg)
        place = {"type": "Point", "coordinates": [round(longitude, 8), round(latitude, 8)]}
    common: Feature = {
        "id": name,
        "label": one.label,
        "score": one.score_milli / 1000,
        "asset": one.asset or None,
        "east_m": None if east_cm is None else east_cm / 100,
        "north_m": None if north_cm is None else north_cm / 100,
        "covariance_m2": None if covariance_cm2 is None else [value / 10_000 for value in covariance_cm2],
    }
    # RFC 7946, 3.2: a feature without a place has the geometry null.
    return {"type": "Feature", "id": name, "geometry": place, "properties": {**common, **properties}}


def _wall_s(captured_ns: int) -> float:
    return round((time.time_ns() - (time.monotonic_ns() - captured_ns)) / 1e9, 3)
