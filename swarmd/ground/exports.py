"""What the ground view holds, as GeoJSON, KML and CSV, in pieces between which a loop turns.

Rules this file keeps: what other nodes say is data in every form, never a formula, an element or an entity.
"""

import csv
import io
import re
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from typing import Any, TypeAlias
from xml.sax.saxutils import escape

import msgspec

from swarmd.ground.findings import Finding, findings
from swarmd.ground.rows import Member, Object, Site
from swarmd.ground.thumbs import place_in_kmz
from swarmd_models.geo.positions import Plane

Held: TypeAlias = Mapping[str, Mapping[str, bytes]]
"""Rows by kind and id, as `Picture.frozen` gives them."""
ROW_MAX = 32
"""Links that a member's own row names at most; of a full row nobody knows what was left out."""
HEARD = ("alive", "degraded")
"""States of a member whose row is its present word."""
UNKNOWN = "unknown"
_ROWS = 100
"""Rows of a piece of an export: half a millisecond."""
_NO_XML = re.compile("[^\\t\\n\\r\\x20-\\uD7FF\\uE000-\\uFFFD\\U00010000-\\U0010FFFF]")
"""What XML 1.0 has no character for. Source: W3C XML 1.0, production 2."""
_encode = msgspec.json.encode


class Link(msgspec.Struct, frozen=True, gc=False):
    """One direction of a link that is not good."""

    reporter: str
    other: str
    quality: str
    """By the reporter's own word."""
    other_way: str
    """By the other's own word; `unknown` where it is not heard, or its row is full."""
    reporter_state: str
    """Whether that is its present word: of a member that is not heard it is the last one."""


def objects_of(held: Held) -> Generator[Object, None, None]:
    """The objects, one by one."""
    return (msgspec.json.decode(row, type=Object) for row in held["object"].values())


# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_of(kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> Iterable[bytes]:
    """Rows of one struct, its fields as columns."""
    names = kind.__struct_fields__
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    for number, row in enumerate(rows, 1):
        writer.writerow([cell(getattr(row, name)) for name in names])
        if number % _ROWS == 0:
            yield out.getvalue().encode()
            out.seek(0)
            out.truncate()
    yield out.getvalue().encode()


def cell(value: object) -> object:
    """A value that no spreadsheet takes for a formula.

    >>> cell("=1+1"), cell(["a", "b"]), cell(-1.5)
    ("'=1+1", 'a b', -1.5)
    """
    if isinstance(value, list):
        value = " ".join(str(one) for one in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def _objects_csv(site: Site, held: Held) -> Iterable[bytes]:
    return csv_of(Object, objects_of(held))


def _members_csv(site: Site, held: Held) -> Iterable[bytes]:
    return csv_of(Member, (msgspec.json.decode(row, type=Member) for row in held["member"].values()))


def _links_csv(site: Site, held: Held) -> Iterable[bytes]:
    members = {name: msgspec.json.decode(row, type=Member) for name, row in held["member"].items()}
    return csv_of(Link, links(members))


def links(members: Mapping[str, Member]) -> Generator[Link, None, None]:
    """Every link that a member says is not good, with what the other end says of it."""
    said = {one.id: dict(one.row) for one in members.values()}
    for one in members.values():
        for other, quality in one.row:
            there = members.get(other)
            word = UNKNOWN
            if there is not None and there.state in HEARD and len(there.row) < ROW_MAX:
                word = said[other].get(one.id, "good")
            elif there is not None:
                word = said[other].get(one.id, UNKNOWN)
            yield Link(one.name, other[:8] if there is None else there.name, quality, word, one.state)


def _findings_csv(site: Site, held: Held) -> Iterable[bytes]:
    return csv_of(Finding, findings(site, objects_of(held)))


# --- GeoJSON ----------------------------------------------------------------------------------------------------------


def _geojson(site: Site, held: Held) -> Iterable[bytes]:
    plane = None
    if site.latitude_deg is not None and site.longitude_deg is not None:
        plane = Plane(site.latitude_deg, site.longitude_deg)
    yield b'{"type":"FeatureCollection","features":['
    comma = b""
    waiting: list[bytes] = []
    for one in objects_of(held):
        waiting.append(_encode(_feature(one, plane)))
        if len(waiting) == _ROWS:
            yield comma + b",".join(waiting)
            comma, waiting = b",", []
    yield (comma if waiting else b"") + b",".join(waiting) + b"]}\n"


def _feature(one: Object, plane: Plane | None) -> Mapping[str, Any]:
    geometry = None
    if plane is not None and one.east_m is not None and one.north_m is not None:
        latitude, longitude = plane.to_wgs84(one.east_m, one.north_m)
        geometry = {"type": "Point", "coordinates": [round(longitude, 8), round(latitude, 8)]}
    return {"type": "Feature", "id": one.id, "geometry": geometry, "properties": one}


# --- KML --------------------------------------------------------------------------------------------------------------


def kml(site: Site, held: Held, pictures: Container[str] = ()) -> Iterable[bytes]:
    """OGC KML 2.3: a placemark for each finding, its fields as data, and its picture if a file beside it holds one."""
    yield (
        '<?xml version="1.0" encoding="UTF-8"?>\n<kml xmlns="http://www.opengis.net/kml/2.2"><Document>'
        f"<name>{inert(site.title)}</name>"
        '<Style id="confirmed"><IconStyle><color>ff1e26b3</color></IconStyle></Style>'
        '<Style id="candidate"><IconStyle><color>ff006ab3</color></IconStyle></Style>\n'
    ).encode()
    waiting: list[str] = []
    for number, one in enumerate(findings(site, objects_of(held)), 1):
        waiting.append(_placemark(one, one.thumb in pictures))
        if number % _ROWS == 0:
            yield "".join(waiting).encode()
            waiting = []
    yield "".join([*waiting, "</Document></kml>\n"]).encode()


def _placemark(one: Finding, is_pictured: bool) -> str:
    data = "".join(
        f'<Data name="{name}"><value>{inert(value)}</value></Data>'
        for name in Finding.__struct_fields__
        if (value := getattr(one, name)) not in ("", None)
    )
    point = ""
    if one.latitude_deg is not None:
        point = f"<Point><coordinates>{one.longitude_deg:.8f},{one.latitude_deg:.8f}</coordinates></Point>"
    picture = ""
    if is_pictured:
        shown = escape(f'<img src="{place_in_kmz(one.thumb)}"/>')
        picture = f"<description>{shown}</description>"
    style = "confirmed" if one.tier != "candidate" else "candidate"
    return (
        f'<Placemark id="f{one.number}"><name>{inert(f"{one.label} {one.asset}".rstrip())}</name>'
        f"{picture}<styleUrl>#{style}</styleUrl><ExtendedData>{data}</ExtendedData>{point}</Placemark>\n"
    )


def inert(value: object) -> str:
    """A value as character data of XML that no viewer takes for HTML or for a field: some render both in balloons.

    >>> inert("<b>$[x]"), inert(["a", "b"]), inert("R&D")
    ('‹b›$ [x]', 'a b', 'R&amp;D')
    """
    text = " ".join(str(one) for one in value) if isinstance(value, list) else str(value)
    text = text.replace("<", "‹").replace(">", "›").replace("$[", "$ [")
    return escape(_NO_XML.sub("?", text))


EXPORTS: Mapping[str, tuple[str, Callable[[Site, Held], Iterable[bytes]]]] = {
    "objects.geojson": ("application/geo+json", _geojson),
    "objects.csv": ("text/csv", _objects_csv),
    "members.csv": ("text/csv", _members_csv),
    "links.csv": ("text/csv", _links_csv),
    "findings.csv": ("text/csv", _findings_csv),
    "findings.kml": ("application/vnd.google-earth.kml+xml", kml),
}
"""File to its media type and what makes it; of findings the first piece sorts all of them, which is for a thread."""
