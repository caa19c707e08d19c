"""The inspection report as PDF, by fpdf2: what the swarm saw, in the fields of IEC TS 62446-3, with room for what a
person has to add.

Rules this file keeps: a report is made in a thread, one at a time, and has a bound; what other nodes say is drawn as
text of one line.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from swarmd.errors import DaemonError
from swarmd.ground.exports import Held, objects_of
from swarmd.ground.facts import said
from swarmd.ground.findings import Finding, findings
from swarmd.ground.rows import Site
from swarmd.ground.thumbs import FindThumb, gathered, no_thumbs

if TYPE_CHECKING:
    from fpdf import FPDF

FINDINGS_MAX = 1_000
"""Findings of one report, the gravest: some 170 pages and 3 s of a core. `findings.csv` has all."""
_TEXT_MAX = 60
"""Characters of a name or a text; a line takes some 90."""
_LINE_MM = 5.0
_BLOCK_MM = 44.0
"""Height of one finding: eight lines and a rule; six to a page."""
_PICTURE_MM = 25.0
"""Height of a picture with the space below it: 192 x 144 pixels at 150 to the inch."""
_PICTURE_X_MM = 72.0
"""Where the values begin: margin and names."""
_BY_HAND = "______________________"

_ADDED = (
    "Inspector, qualification",
    "Camera, lens, last calibration",
    "Irradiance in the plane, W/m2",
    "Air temperature, wind, cloud cover",
    "Emissivity, reflected temperature",
    "Load of the plant, %",
)
"""What the standard asks for and no drone of this swarm tells."""


class Reports:
    """Makes one report at a time: a second that is asked for meanwhile waits for its turn."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    async def pdf(self, site: Site, held: Held, now_s: float, find: FindThumb = no_thumbs) -> bytes:
        """The report of a picture, with the pictures of its findings that are to be had.

        Raises:
            DaemonError: fpdf2 is not installed.
        """
        async with self._turn:
            told = await asyncio.to_thread(lambda: findings(site, objects_of(held))[:FINDINGS_MAX])
            pictures = await gathered(find, [one.thumb for one in told])
            return await asyncio.to_thread(report, site, held, now_s, pictures)


def report(site: Site, held: Held, now_s: float, pictures: Mapping[str, bytes] | None = None) -> bytes:
    """The PDF's bytes; the same of the same picture.

    Args:
        site: Who looks, at what.
        held: The picture's rows.
        now_s: When it is made, UTC seconds since 1970.
        pictures: Name to a picture whose form was checked; of others the report says that they are not to be had.

    Raises:
        DaemonError: fpdf2 is not installed.
    """
    try:
        from datetime import UTC, datetime

        from fpdf import FPDF
    except ImportError as problem:
        raise DaemonError(f"reports as PDF need fpdf2 ({problem}); run: pip install 'swarmd[ground]'") from problem
    found = findings(site, objects_of(held))
    told = found[:FINDINGS_MAX]
    paper = FPDF(format="A4")
    paper.set_creation_date(datetime.fromtimestamp(now_s, UTC))
    paper.set_title(latin(f"Thermographic inspection: {site.title}"))
    paper.set_creator(f"swarmd {site.version}")
    paper.set_auto_page_break(auto=True, margin=15)
    paper.set_margins(18, 15)
    paper.add_page()
    _front(paper, site, found, len(told), now_s)
    for one in told:
        _block(paper, one, (pictures or {}).get(one.thumb, b""))
    return bytes(paper.output())


def latin(text: str, most: int = _TEXT_MAX) -> str:
    """One line of printable characters that the standard fonts have; another one is named by its number.

    >>> latin("Käfer Ж\\n")
    'Käfer U+0416?'
    """
    return "".join(c if c.isascii() or _has(c) else f"U+{ord(c):04X}" for c in said(text, most))


def _has(character: str) -> bool:
    try:
        character.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


def _front(paper: "FPDF", site: Site, found: Sequence[Finding], told: int, now_s: float) -> None:
    _line(paper, "Thermographic inspection: findings", size=16, bold=True, height=9)
    _line(paper, "in the fields of IEC TS 62446-3; what the swarm saw, and room for what a person adds", dim=True)
    confirmed = sum(one.tier != "candidate" for one in found)
    first = min((one.first_seen_s for one in found), default=None)
    last = max((one.last_seen_s for one in found), default=None)
    place = "no mission origin"
    if site.latitude_deg is not None and site.longitude_deg is not None:
        place = f"{site.latitude_deg:.6f}, {site.longitude_deg:.6f} (WGS 84)"
    nobody = "nothing was seen"
    rows = [
        ("Plant", site.title),
        ("Origin of the plane", place),
        ("Modules of the site map", str(len(site.assets))),
        ("As seen by", f"{site.seen_by}, swarmd {site.version}"),
        ("Made", moment(now_s)),
        (
            "First, last sighting",
            f"{nobody if first is None else moment(first)}, {'' if last is None else moment(last)}",
        ),
        ("Findings", f"{len(found)}: {confirmed} confirmed, {len(found) - confirmed} candidates of fewer observers"),
    ]
    if told < len(found):
        rows.append(("In this report", f"the {told} gravest; findings.csv has all"))
    _line(paper, "", height=2)
    for name, value in rows:
        _pair(paper, name, latin(value, 90))
    _line(paper, "To be written by the thermographer (IEC TS 62446-3, clause on the report)", bold=True, height=8)
    for name in _ADDED:
        _pair(paper, name, _BY_HAND)
    _line(paper, "", height=3)


def _block(paper: "FPDF", one: Finding, picture: bytes) -> None:
    if paper.will_page_break(_BLOCK_MM + (_PICTURE_MM if picture else _LINE_MM if one.thumb else 0)):
        paper.add_page()
    _line(paper, latin(f"{one.number}. {one.label} {one.asset}".rstrip()), size=11, bold=True, height=6.5)
    place = "no place"
    if one.east_m is not None and one.north_m is not None:
        place = f"{one.east_m:.2f} m E, {one.north_m:.2f} m N"
        place += "" if one.sigma_m is None else f" ± {2 * one.sigma_m:.2f} m (two sigma)"
    if one.latitude_deg is not None and one.longitude_deg is not None:
        place += f"; {one.latitude_deg:.7f}, {one.longitude_deg:.7f}"
    _pair(paper, "Place", place)
    _pair(paper, "Observation", latin(f"{one.label}, score {one.score:.2f}, {one.tier}, {one.reports} reports", 90))
    _pair(paper, "Seen by", latin(", ".join(one.observers), 90))
    _pair(paper, "First, last seen", f"{moment(one.first_seen_s)}, {moment(one.last_seen_s)}")
    _pair(
        paper,
        "Interpretation",
        f"class by the label: {one.class_proposed or 'none'}; extent: {one.extent or 'unknown'}",
    )
    _pair(paper, "Class given; delta T, K", f"{_BY_HAND}   {_BY_HAND}")
    _pair(paper, "Measure", f"{_BY_HAND}{_BY_HAND}{_BY_HAND}")
    if one.thumb:
        _picture(paper, picture)
    _line(paper, "", height=2)


def _picture(paper: "FPDF", jpeg: bytes) -> None:
    """What an observer's camera saw, as its bytes are; else that it is not to be had."""
    _pair(paper, "Picture (by an observer)", "" if jpeg else "not to be had when the report was made")
    if jpeg:
        # Nothing decodes it here: a baseline JPEG goes into a PDF as it is.
        paper.image(BytesIO(jpeg), x=_PICTURE_X_MM, y=paper.get_y() - _LINE_MM, h=_PICTURE_MM - 1)
        paper.set_y(paper.get_y() - _LINE_MM + _PICTURE_MM)


def moment(at_s: float) -> str:
    """A date and time, UTC.

    >>> moment(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    if not 0 <= at_s < 253_402_300_800:  # The year 10000.
        return "no date"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))


def _pair(paper: "FPDF", name: str, value: str) -> None:
    paper.set_font("Helvetica", size=9)
    paper.set_text_color(76, 90, 104)
    paper.cell(54, _LINE_MM, name)
    paper.set_text_color(0, 0, 0)
    paper.cell(0, _LINE_MM, value, new_x="LMARGIN", new_y="NEXT")


def _line(
    paper: "FPDF", text: str, *, size: int = 9, bold: bool = False, dim: bool = False, height: float = _LINE_MM
) -> None:
    paper.set_font("Helvetica", style="B" if bold else "", size=size)
    paper.set_text_color(*((76, 90, 104) if dim else (0, 0, 0)))
    paper.cell(0, height, text, new_x="LMARGIN", new_y="NEXT")
