"""GeoJSON (RFC 7946) of detections, objects and members: the command line, MQTT, the live page and recordings share it.

A feature's properties say all that the tables say and the identifiers that machines need; a place is in degrees in the
geometry (null where the daemon has no mission origin) and in metres about the mission origin in the properties.
"""

from collections.abc import Mapping, Sequence

from swarmd.api.daemon import NodeInfo, NodePosition
from swarmd.api.views import position_row, review_row, unix_s
from swarmd_models.geo.positions import enu_cm_to_wgs84
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, ObjectView

Feature = dict[str, object]
Names = Mapping[bytes, str] | Mapping[NodeId, str]


def detection_feature(learned: DetectionLearned, info: NodeInfo, name: str) -> Feature:
    """One sighting, as it becomes known or changes.

    Args:
        learned: The sighting and what has happened to it.
        info: This daemon, for the mission origin.
        name: Of the node that made it.

    Returns:
        A JSON-ready mapping; `geometry` is null where the sighting has no position.
    """
    return _sighting(learned.view, info, name, event=learned.kind, track=learned.track_id)


def sighting_feature(view: DetectionView, info: NodeInfo, names: Names) -> Feature:
    """One node's own sighting, before deduplication, as the shared state holds it."""
    return _sighting(view, info, names.get(view.origin, view.origin.hex()))


def _sighting(view: DetectionView, info: NodeInfo, name: str, **properties: object) -> Feature:
    return _feature(
        view.detection_id,
        view,
        info,
        node=name,
        object=view.object_id,
        model_digest=view.model_digest.hex(),
        reports=view.reports,
        first_seen_s=unix_s(view.first_hlc),
        last_seen_s=unix_s(view.last_hlc),
        hlc=view.last_hlc,
        **properties,
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
        tier=view.tier,
        review=view.review or None,
        detected=view.detected or None,
        reviews=[review_row(said) for said in view.reviews],
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


def _feature(name: str, one: DetectionView | ObjectView, info: NodeInfo, **properties: object) -> Feature:
    """What everything that was seen has in common, and `properties`."""
    east_cm, north_cm, covariance_cm2 = one.east_cm, one.north_cm, one.covariance_cm2
    place = None
    if info.has_origin and east_cm is not None and north_cm is not None:
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
