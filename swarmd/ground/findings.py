"""What a report says of each object, in the fields of IEC TS 62446-3: what was seen apart from what it means.

Rules this file keeps: nothing is filled in that nobody measured. A drone of this swarm tells labels, places and times;
temperatures, irradiance and the class that a thermographer gives are left to be written by hand.
"""

from collections.abc import Iterable

import msgspec

from swarmd.ground.rows import Object, Site
from swarmd_models.geo.positions import Plane

EXTENTS = {
    "offline-module": "whole module",
    "diode-multi": "several thirds of a module",
    "diode": "third of a module",
    "hot-spot-multi": "several places of a module",
    "cell-multi": "several cells",
    "hot-spot": "one place of a module",
    "cell": "one cell",
    "cracking": "surface",
    "shadowing": "surface, from outside",
    "soiling": "surface, from outside",
    "vegetation": "surface, from outside",
}
"""Label to how much of a module it is about, the most first. Source: the classes of the Infrared Solar Modules data set
(Millendorf, Obropta, Vadhavkar, 2020)."""
ABNORMAL = "2 (thermal abnormality)"
"""Class of abnormality that a label proposes. Source: IEC TS 62446-3:2017, whose class 1 is no abnormality and whose
class 3, urgent, takes temperatures: nobody here measures them, so no label proposes it."""


REMARKS_MAX_CHARS = 300
"""Characters of what operators said: a cell of a report."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One object, as a report tells it."""

    number: int
    """In this report, from 1."""
    id: str
    asset: str
    latitude_deg: float | None
    longitude_deg: float | None
    east_m: float | None
    north_m: float | None
    sigma_m: float | None
    """Of the place, along the worse axis."""
    label: str
    """What operators agree to call it, else what the detector does."""
    score: float
    tier: str
    observers: list[str]
    reports: int
    first_seen_s: float
    last_seen_s: float
    extent: str
    """How much of a module the label is about; "" where the label is not one of the zoo's."""
    class_proposed: str
    """Class of abnormality that the label alone proposes; "" where it proposes none, or operators say it is nothing."""
    class_given: str = ""
    """By a thermographer, by hand."""
    delta_t_k: str = ""
    """Against an undisturbed module, by hand."""
    irradiance_w_m2: str = ""
    """In the module's plane, by hand."""
    remarks: str = ""
    """What operators have said of it; else by hand."""
    thumb: str = ""
    """Name of a picture of it; "" where nobody keeps one."""


def findings(site: Site, objects: Iterable[Object]) -> list[Finding]:
    """All of them, the gravest first: confirmed before candidates, larger extents before smaller, better scores; what
    operators rejected comes last."""
    plane = None
    if site.latitude_deg is not None and site.longitude_deg is not None:
        plane = Plane(site.latitude_deg, site.longitude_deg)
    order = {label: place for place, label in enumerate(EXTENTS)}
    ranked = sorted(
        objects,
        key=lambda one: (
            one.review == "rejected",
            one.tier == "candidate",
            order.get(one.label, len(order)),
            -one.score,
            one.asset,
            one.id,
        ),
    )
    return [_finding(number, one, plane) for number, one in enumerate(ranked, 1)]


def _finding(number: int, one: Object, plane: Plane | None) -> Finding:
    latitude = longitude = None
    if plane is not None and one.east_m is not None and one.north_m is not None:
        latitude, longitude = (round(value, 8) for value in plane.to_wgs84(one.east_m, one.north_m))
    worse_m2 = max(one.covariance_m2[0], one.covariance_m2[2], 0.0) if one.covariance_m2 else None
    return Finding(
        number=number,
        id=one.id,
        asset=one.asset,
        latitude_deg=latitude,
        longitude_deg=longitude,
        east_m=one.east_m,
        north_m=one.north_m,
        sigma_m=None if worse_m2 is None else round(worse_m2**0.5, 2),
        label=one.label,
        score=one.score,
        tier=one.tier,
        observers=one.observers,
        reports=one.reports,
        first_seen_s=one.first_seen_s,
        last_seen_s=one.last_seen_s,
        extent=EXTENTS.get(one.label, ""),
        class_proposed=ABNORMAL if one.label in EXTENTS and one.review != "rejected" else "",
        remarks="; ".join(map(str, one.reviews))[:REMARKS_MAX_CHARS],
        thumb=one.thumb,
    )
