"""Reports of findings: inert whatever others say, bounded, in the order of gravity, and nothing in them is made up."""

import csv
import io
import re
import zlib
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.ground import exports, reports
from swarmd.ground.exports import EXPORTS
from swarmd.ground.findings import ABNORMAL, EXTENTS, Finding, findings
from swarmd.ground.rows import Object, Site
from swarmd.records import Review
from swarmd_protocols.thumbs.form import name_of
from tests.support.ground import site, thing
from tests.support.thumb_pictures import jpeg

pytest.importorskip("fpdf", reason="no fpdf2 here (pip install 'swarmd[ground]')")
NOW_S = 1_790_000_000.0
KML = "{http://www.opengis.net/kml/2.2}"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "]]></value><Placemark>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "$[id] &xxe; <!ENTITY",
    '=HYPERLINK("http://evil.example")',
    ") Tj /OpenAction << /S /JavaScript /JS (app.alert(1)) >>",
    "\u202eenod\u202c\x00\x07\r\n",
    "Ж" * 400,
    "@SUM(A1)",
    "",
)


def held(*objects: Object) -> dict[str, dict[str, bytes]]:
    return {"object": {one.id: msgspec.json.encode(one) for one in objects}, "member": {}}


def made(name: str, *objects: Object, where: Site | None = None) -> bytes:
    return b"".join(EXPORTS[name][1](where or site(4), held(*objects)))


def values(placemark: ElementTree.Element) -> dict[str, str]:
    return {one.attrib["name"]: one[0].text or "" for one in placemark.iter(f"{KML}Data")}


def drawings(pdf: bytes) -> list[bytes]:
    """The pages, as they are drawn; pictures are streams of another kind."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    return [zlib.decompress(one) for one in streams if not one.startswith(b"\xff\xd8")]


def words(pdf: bytes) -> str:
    """What is written on the pages."""
    drawn = re.findall(rb"\((.*?)(?<!\\)\) Tj", b"".join(drawings(pdf)), re.S)
    return re.sub(r"\\(.)", r"\1", "\n".join(one.decode("latin-1") for one in drawn))


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), max_size=4))
def test_any_name_makes_kml_that_says_it_as_text(names: list[tuple[str, str]]) -> None:
    things = [thing(n, 1.0, 2.0, NOW_S, label, asset) for n, (label, asset) in enumerate(names)]
    tree = ElementTree.fromstring(made("findings.kml", *things).decode())
    found = list(tree.iter(f"{KML}Placemark"))
    assert len(found) == len(things)
    assert {one.tag.removeprefix(KML) for one in tree.iter()} <= {
        "kml", "Document", "name", "Style", "IconStyle", "color", "Placemark", "styleUrl", "ExtendedData", "Data",
        "value", "Point", "coordinates",
    }  # fmt: skip
    for one in found:
        assert not any(character in text for text in values(one).values() for character in "<>")


def test_hostile_names_are_data_in_kml() -> None:
    things = [thing(n, 1.0, 2.0, NOW_S, name, name) for n, name in enumerate(HOSTILE)]
    tree = ElementTree.fromstring(made("findings.kml", *things).decode())
    assert len(list(tree.iter(f"{KML}Placemark"))) == len(HOSTILE)
    text = "".join(tree.itertext())
    assert "‹img src=x onerror=alert(1)›" in text
    assert "<" not in text
    assert "$[" not in text


def test_hostile_names_are_no_formula_in_the_table_of_findings() -> None:
    things = [thing(n, -1.0, 2.0, NOW_S, name, name) for n, name in enumerate(HOSTILE)]
    rows = list(csv.reader(io.StringIO(made("findings.csv", *things).decode(), newline="")))
    assert tuple(rows[0]) == Finding.__struct_fields__
    assert len(rows) == 1 + len(HOSTILE)
    number = re.compile(r"-?[\d.]+(e-?\d+)?")
    for row in rows[1:]:
        assert len(row) == len(rows[0])
        assert all(not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or number.fullmatch(cell) for cell in row)


def test_hostile_names_are_one_line_of_text_in_the_report() -> None:
    things = [thing(n, 1.0, 2.0, NOW_S, name, name) for n, name in enumerate(HOSTILE)]
    pdf = reports.report(site(4), held(*things), NOW_S)
    said = words(pdf)
    assert "<img src=x onerror=alert(1)>" in said
    assert "OpenAction << /S /JavaScript" in said, "it is drawn"
    assert "U+0416U+0416" in said, "what the font has not is named"
    outside = re.sub(rb"stream\r?\n.*?\r?\nendstream", b"", pdf, flags=re.S)
    for word in (b"/JavaScript", b"/JS", b"/Launch", b"/URI", b"/EmbeddedFile", b"/AA", b"/SubmitForm"):
        assert word not in outside
    assert all(len(line) < 130 for line in said.splitlines() if "U+" not in line)


@given(st.text(max_size=200))
def test_any_text_is_one_printable_line_of_the_standard_fonts(text: str) -> None:
    line = reports.latin(text)
    line.encode("latin-1")
    assert line.isprintable()
    assert len(line) <= 60 * len("U+10FFFF")


def test_the_gravest_come_first() -> None:
    labels = ["soiling", "diode", "unheard-of", "offline-module", "hot-spot"]
    # Numbers that are odd are confirmed ones.
    confirmed = [thing(2 * n + 1, 1.0, 2.0, NOW_S, label) for n, label in enumerate(labels)]
    candidates = [thing(2 * n, 1.0, 2.0, NOW_S, label) for n, label in enumerate(labels)]
    rows = list(csv.DictReader(io.StringIO(made("findings.csv", *candidates, *confirmed).decode())))
    order = ["offline-module", "diode", "hot-spot", "soiling", "unheard-of"]
    assert [row["label"] for row in rows] == order + order
    assert [row["tier"] for row in rows] == ["confirmed"] * 5 + ["candidate"] * 5
    assert [int(row["number"]) for row in rows] == list(range(1, 11))


def test_what_it_means_stands_apart_and_nobody_measures_what_no_drone_tells() -> None:
    (row,) = csv.DictReader(io.StringIO(made("findings.csv", thing(1, 1.0, 2.0, NOW_S, "diode", "t00-m01")).decode()))
    assert (row["label"], row["score"]) == ("diode", "0.9")
    assert (row["extent"], row["class_proposed"]) == (EXTENTS["diode"], ABNORMAL)
    assert [row[name] for name in ("class_given", "delta_t_k", "irradiance_w_m2", "remarks")] == [""] * 4
    (unknown,) = csv.DictReader(io.StringIO(made("findings.csv", thing(1, 1.0, 2.0, NOW_S, "ufo")).decode()))
    assert (unknown["extent"], unknown["class_proposed"]) == ("", "")


def test_a_place_is_where_geojson_says_that_it_is() -> None:
    one = thing(1, 30.0, -40.0, NOW_S)
    (longitude, latitude) = msgspec.json.decode(made("objects.geojson", one))["features"][0]["geometry"]["coordinates"]
    (row,) = csv.DictReader(io.StringIO(made("findings.csv", one).decode()))
    assert (float(row["longitude_deg"]), float(row["latitude_deg"])) == (longitude, latitude)
    tree = ElementTree.fromstring(made("findings.kml", one).decode())
    (point,) = tree.iter(f"{KML}coordinates")
    assert [float(part) for part in (point.text or "").split(",")] == [longitude, latitude]
    assert f"{latitude:.7f}, {longitude:.7f}" in words(reports.report(site(4), held(one), NOW_S))
    nowhere = msgspec.structs.replace(site(0), latitude_deg=None, longitude_deg=None)
    assert "<Point>" not in made("findings.kml", one, where=nowhere).decode()
    assert "no mission origin" in words(reports.report(nowhere, held(one), NOW_S))


def test_a_report_has_a_bound_and_says_what_it_leaves_out() -> None:
    things = [thing(n, 1.0, 2.0, NOW_S) for n in range(1_020)]
    said = words(reports.report(site(4), held(*things), NOW_S))
    assert said.count("Observation") == 1_000
    assert "the 1000 gravest; findings.csv has all" in said
    assert made("findings.csv", *things).count(b"\n") == 1_021


def test_an_empty_picture_makes_a_report_that_says_so() -> None:
    assert "nothing was seen" in words(reports.report(site(4), held(), NOW_S))


def test_the_same_picture_makes_the_same_bytes() -> None:
    one = held(*(thing(n, 1.0, 2.0, NOW_S) for n in range(20)))
    assert reports.report(site(4), one, NOW_S) == reports.report(site(4), one, NOW_S)


def test_a_long_export_comes_in_pieces() -> None:
    """A loop that writes them turns in between."""
    things = held(*(thing(n, 1.0, 2.0, NOW_S) for n in range(2_000)))
    for name in ("objects.csv", "objects.geojson", "findings.kml"):
        pieces = list(EXPORTS[name][1](site(4), things))
        assert len(pieces) >= 2_000 // exports._ROWS
        assert max(map(len, pieces)) < 300_000, name


def test_what_operators_say_is_in_the_remarks_and_what_they_reject_is_no_finding_of_a_class():
    said = [
        Review(
            operator="alice", key="1f2e3d4c", verdict="reject", text="", seen="hot-spot", made_s=1.0, revision=1,
            digest="00",
        )
    ]  # fmt: skip
    one = msgspec.structs.replace(thing(1, 0.0, 0.0, 1.0), review="rejected", tier="reviewed", reviews=said)
    other = thing(2, 1.0, 1.0, 1.0)
    first, last = findings(site(), [one, other])
    assert (first.id, first.remarks) == (other.id, "")
    assert (last.id, last.remarks, last.class_proposed) == (one.id, "alice (1f2e3d4c): reject", "")


def test_pictures_stand_on_their_page_beside_no_text_and_what_is_missing_is_said():
    """Each finding's picture is under its own lines: it covers no word of them, and none of the next finding's."""
    jpegs = [jpeg(number, 192, 144 - number) for number in range(9)]
    names = [name_of(one).hex() for one in jpegs]
    plain = [thing(number, 1.0, 2.0, 1.79e9, asset=f"t{number}") for number in range(9)]
    found = [msgspec.structs.replace(one, thumb=name) for one, name in zip(plain, names, strict=True)]
    told = dict(zip(names[1:], jpegs[1:], strict=True))  # The first is not to be had.
    paper = reports.report(site(), held(*found), 1_790_000_000.0, told)
    assert words(paper).count("not to be had when the report was made") == 1
    assert sum(one in paper for one in jpegs) == 8
    count = 0
    for page in drawings(paper):
        lines = [(float(x), float(y)) for x, y in re.findall(rb"BT ([\d.]+) ([\d.]+) Td", page)]
        assert lines
        for box in re.findall(rb"q ([\d.]+) 0 0 ([\d.]+) ([\d.]+) ([\d.]+) cm", page):
            wide, high, left, low = map(float, box)
            count += 1
            assert low > 30
            assert left + wide < 560
            assert not [at for at in lines if left <= at[0] <= left + wide and low < at[1] < low + high]
    assert count == 8
