"""GeoJSON (RFC 7946) of detections and objects for the bridges: MQTT messages and Foxglove recordings.

The CLI's `--geojson` carries the rows of its own tables as properties (`swarmd/brain_verbs.py`).
"""

from collections.abc import Sequence

from swarmd.bridges.base import DetectionSeen, NodeInfo
from swarmd.positions import enu_cm_to_wgs84
from swarmd_protocols.observations import ObjectView


def _point(east_cm: int | None, north_cm: int | None, info: NodeInfo) -> dict[str, object] | None:
    """A GeoJSON point, or None (RFC 7946, 3.2: an unlocated feature) where there is no position."""
    if east_cm is None or north_cm is None:
        return None
    latitude, longitude = enu_cm_to_wgs84(east_cm, north_cm, info.origin_latitude_deg, info.origin_longitude_deg)
    return {"type": "Point", "coordinates": [round(longitude, 8), round(latitude, 8)]}


def _covariance_m2(covariance_cm2: tuple[int, int, int] | None) -> list[float] | None:
    return None if covariance_cm2 is None else [value / 10_000 for value in covariance_cm2]


def detection_feature(seen: DetectionSeen, info: NodeInfo) -> dict[str, object]:
    """One detection as a GeoJSON feature.

    Args:
        seen: The detection and who made it.
        info: This daemon, for the mission origin.

    Returns:
        A JSON-ready mapping; `geometry` is null where the detection has no position.
    """
    one = seen.detection
    return {
        "type": "Feature",
        "id": f"{seen.origin.hex()[:16]}-{one.track_id}",
        "geometry": _point(one.east_cm, one.north_cm, info),
        "properties": {
            "node": seen.origin_name,
            "event": one.kind,
            "track": one.track_id,
            "label": one.label,
            "score": one.score_milli / 1000,
            "asset": one.asset or None,
            "covariance_m2": _covariance_m2(one.covariance_cm2),
            "model_digest": one.model_digest.hex(),
            "hlc": seen.hlc,
        },
    }


def object_feature(view: ObjectView, info: NodeInfo, names: dict[bytes, str]) -> dict[str, object]:
    """One object of the deduplicated view as a GeoJSON feature.

    Args:
        view: The object.
        info: This daemon, for the mission origin.
        names: Node names by node id; an unknown observer shows as its id.

    Returns:
        A JSON-ready mapping.
    """
    return {
        "type": "Feature",
        "id": view.object_id,
        "geometry": _point(view.east_cm, view.north_cm, info),
        "properties": {
            "label": view.label,
            "score": view.score_milli / 1000,
            "asset": view.asset or None,
            "covariance_m2": _covariance_m2(view.covariance_cm2),
            "observers": [names.get(node, node.hex()[:8]) for node in view.observers],
            "confirmed": view.confirmed,
            "reports": view.reports,
            "first_seen_hlc": view.first_hlc,
            "last_seen_hlc": view.last_hlc,
        },
    }


def collection(features: Sequence[dict[str, object]]) -> dict[str, object]:
    """A feature collection that a GIS opens as one layer."""
    return {"type": "FeatureCollection", "features": list(features)}
