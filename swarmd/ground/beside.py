"""What neighbouring swarms share, as rows of the ground view: positions that bear the other swarm's name."""

from collections.abc import Iterator, Sequence

from swarmd.api.neighbours import claim_row, place_row
from swarmd.ground.rows import Position
from swarmd_models.geo.positions import Plane
from swarmd_protocols.neighbours.requests import NeighbourView


def is_beside(name: str) -> bool:
    """Whether a position's id is a neighbouring swarm's: a tilde is in no node's id.

    >>> is_beside("the-blue~3d25b24c"), is_beside("00ff")
    (True, False)
    """
    return "~" in name


def beside_rows(views: Sequence[NeighbourView], plane: Plane | None, now_s: float) -> Iterator[Position]:
    """Their members and their claims of space.

    Args:
        views: What each shares.
        plane: About the own mission's origin; None: rows have no place in metres.
        now_s: UTC seconds since 1970.
    """
    for view in views:
        for place, age_ms in view.places:
            row = place_row(view, place, age_ms)
            # Whole seconds: the age is told anew each second, and the row is to change when the place does.
            at_s = float(round(now_s - row["age_s"]))
            yield _row(view, row, plane, row["height_agl_m"], row["sigma_m"], at_s, None)
        for claim, left_ms in view.claims:
            row = claim_row(view, claim, left_ms)
            yield _row(view, row, plane, row["top_m"], 0.0, float(round(view.heard_ms / 1000)), row["radius_m"])


def _row(
    view: NeighbourView,
    row: dict[str, object],
    plane: Plane | None,
    height_m: float,
    sigma_m: float,
    at_s: float,
    claim_m: float | None,
) -> Position:
    latitude, longitude = float(str(row["latitude_deg"])), float(str(row["longitude_deg"]))
    east, north = (None, None) if plane is None else plane.to_m(latitude, longitude)
    return Position(
        id=str(row["id"]),
        name=str(row["id"]),
        has_fix=True,
        east_m=None if east is None else round(east, 2),
        north_m=None if north is None else round(north, 2),
        latitude_deg=latitude,
        longitude_deg=longitude,
        height_agl_m=height_m,
        yaw_deg=None,
        sigma_m=sigma_m,
        battery=None,
        at_s=at_s,
        swarm=view.name,
        claim_m=claim_m,
    )
