"""The daemon's small parts: histogram, positions, site map, logs, notify, events, bus, survey."""

import asyncio
import contextlib
import io
import json
import math
import os
import random
import socket
from pathlib import Path

import pytest

from swarmd.api.bus import Bus, Feed
from swarmd.api.events import EventLines, event_of
from swarmd.api.histogram import Histogram
from swarmd.api.metrics import Metrics
from swarmd.brain.notify import Notifier
from swarmd.logs import BURST, Logger
from swarmd_models.errors import SiteError
from swarmd_models.geo.positions import Plane, enu_cm_to_wgs84, wgs84_to_enu_cm
from swarmd_models.geo.sitemap import Asset, SiteMap, load_site_map
from swarmd_models.geo.survey import load_cells
from swarmd_protocols.effects import Alarm, MemberChanged, MemberState, UserEventDelivered
from swarmd_protocols.ids import NodeId

NODE = NodeId(bytes(16))


def quiet() -> Logger:
    return Logger("n", stream=io.StringIO())


# --- Histogram ------------------------------------------------------------------------------------------------------


def test_quantiles_are_right_to_within_a_bucket() -> None:
    rng = random.Random(1)
    values = [int(10 ** rng.uniform(4, 10)) for _ in range(5000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    values.sort()
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        true = values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
        got = histogram.quantile_ns(share)
        assert got is not None
        assert true <= got * 1.0001
        assert got <= true * 1.13
    assert histogram.cumulative()[-1][1] == 5000


def test_histograms_add_up_and_take_any_number() -> None:
    one, two = Histogram(), Histogram()
    for value in (-5, 0, 1, 1023, 1024, 10**15):
        one.add(value)
    two.merge(one.sparse(), one.sum_ns, one.max_ns)
    assert two.counts == one.counts
    assert two.quantile_ns(1.0) == 10**15
    assert Histogram().summary_ms() == {"p50": None, "p99": None}


# --- Positions and site map -----------------------------------------------------------------------------------------


def test_the_plane_and_back_to_a_millimetre() -> None:
    plane = Plane(-18.8856864, -70.1124341)
    for east, north in ((0, 0), (123.45, -67.8), (5000, 5000), (-20000, 10000)):
        back = plane.to_m(*plane.to_wgs84(east, north))
        assert back == pytest.approx((east, north), abs=1e-3)
    assert wgs84_to_enu_cm(*enu_cm_to_wgs84(1234, -5678, 47.0, 8.0), 47.0, 8.0) == (1234, -5678)


def row_of_panels() -> SiteMap:
    return SiteMap([Asset(f"p{i}", 0.0, float(i), 2.2, 0.99) for i in range(40)])


def test_an_asset_is_named_only_when_it_is_sure_enough() -> None:
    panels = row_of_panels()
    sharp, blunt = (0.04, 0.0, 0.04), (2.25, 0.0, 2.25)
    assert panels.asset_of(0.3, 7.1, sharp, 0.6) == "p7"
    assert panels.asset_of(0.3, 7.5, sharp, 0.6) == ""  # On the edge between two.
    assert panels.asset_of(0.3, 7.1, blunt, 0.6) == ""  # Any of five.
    assert panels.asset_of(30.0, 7.1, sharp, 0.6) == ""
    assert panels.is_near(0.3, 7.5, sharp)
    assert not panels.is_near(30.0, 7.1, sharp)


def test_a_named_asset_is_the_true_one_as_often_as_promised() -> None:
    rng, panels, wrong, named = random.Random(3), row_of_panels(), 0, 0
    for _ in range(2000):
        true = rng.randrange(5, 35)
        name = panels.asset_of(rng.gauss(0, 0.3), true + rng.gauss(0, 0.3), (0.09, 0.0, 0.09), 0.9)
        named += bool(name)
        wrong += bool(name) and name != f"p{true}"
    assert named > 300
    assert wrong / named < 0.1


def test_maps_load_from_csv_and_geojson_alike(tmp_path: Path) -> None:
    plane = Plane(-18.8856864, -70.1124341)
    lat, lon = plane.to_wgs84(10.0, 20.0)
    table = tmp_path / "a.csv"
    table.write_text(f"asset,latitude_deg,longitude_deg,width_m,depth_m\nx,{lat:.10f},{lon:.10f},2,1\n")
    corners = [plane.to_wgs84(e, n)[::-1] for e, n in ((9, 19.5), (11, 19.5), (11, 20.5), (9, 20.5), (9, 19.5))]
    feature = {
        "type": "Feature",
        "properties": {"asset": "x"},
        "geometry": {"type": "Polygon", "coordinates": [corners]},
    }
    shape = tmp_path / "a.geojson"
    shape.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    for path in (table, shape):
        (asset,) = load_site_map(path, plane).assets
        assert (asset.asset, round(asset.east_m, 3), round(asset.north_m, 3)) == ("x", 10.0, 20.0)
        assert (asset.width_m, asset.depth_m) == pytest.approx((2, 1), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.csv", b"a,b\n1,2\n", "needs the columns"),
        ("m.csv", b"asset,east_m,north_m\nx,1,\n", ":2: "),
        ("m.csv", b"asset,east_m,north_m\nx,1,nan\n", "finite"),
        ("m.csv", b"asset,east_m,north_m\nx,1,1\nx,2,2\n", "share an id"),
        ("m.csv", b"asset,east_m,north_m\n", "holds no asset"),
        ("m.csv", b"\xff", "neither UTF-8"),
        ("m.csv.gz", b"\x1f\x8b\x08\x00broken", "neither UTF-8"),
        ("m.geojson", b"{}", "no GeoJSON"),
        ("m.geojson", b"[" * 100_000, "no GeoJSON"),
        (
            "m.geojson",
            b'{"features": [{"properties": {"asset": "x"}, "geometry": {"type": "LineString"}}]}',
            "feature 0",
        ),
        ("m.geojson", b'{"features": [7]}', "feature 0"),
    ],
)
def test_a_bad_map_names_file_and_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SiteError, match=message):
        load_site_map(path, Plane(0.0, 0.0))


def test_the_real_plants_map_loads(shared: Path) -> None:
    plane = Plane(-18.8856864, -70.1124341)
    site = load_site_map(shared / "data" / "site" / "pampa_panels.csv.gz", plane)
    assert len(site.assets) == 24257
    first = next(asset for asset in site.assets if asset.asset == "BP-A-1/Mesa_001/001_002")
    assert (first.east_m, first.north_m) == pytest.approx((-193.4, 214.04), abs=0.5)


def test_cells_load_and_bad_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("cell_id,east_m,north_m\nc0,1.5,-2\nc1,3,4\n")
    assert load_cells(path) == (("c0", 150, -200), ("c1", 300, 400))
    for text in (
        "a\n",
        "cell_id,east_m,north_m\nc,x,1\n",
        "cell_id,east_m,north_m\nc,1,1\nc,1,1\n",
        "cell_id,east_m,north_m\n",
    ):
        path.write_text(text)
        with pytest.raises(SiteError):
            load_cells(path)


# --- Logs, notify, events, bus -----------------------------------------------------------------------------------


def test_logs_are_json_lines_and_a_flood_is_held_back() -> None:
    out = io.StringIO()
    log = Logger("drone-1", "info", "json", out)
    log.debug("quiet")
    for _ in range(100):
        log.warning("flood", secret=b"\x01", error=ValueError("x" * 9000))
    log.info("other", n=1)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == BURST + 1
    assert lines[0]["device_id"] == "drone-1"
    assert lines[0]["level"] == "warning"
    assert len(lines[0]["error"]) < 2100
    assert lines[-1]["event"] == "other"
    assert log.lines["warning"] == 100


def test_logs_survive_a_closed_stream() -> None:
    out = io.StringIO()
    log = Logger("n", stream=out)
    out.close()
    log.error("nobody_reads")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_ready_status_and_watchdog(tmp_path: Path, abstract: bool) -> None:
    name = f"@swarmd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("\0" + name[1:] if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "10000000"})
        assert notifier.watchdog_interval_s == 5.0
        notifier.ready("1 alive")
        notifier.watchdog()
        notifier.reloading()
        notifier.stopping()
        heard = [server.recv(1000).decode() for _ in range(4)]
    assert heard[0] == "READY=1\nSTATUS=1 alive"
    assert heard[1] == "WATCHDOG=1"
    assert heard[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert heard[3] == "STOPPING=1"
    assert Notifier({}).watchdog_interval_s is None
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).status("x")


def test_events_use_the_words_of_the_contract() -> None:
    def changed(old: MemberState | None, new: MemberState) -> str | None:
        line = event_of(MemberChanged(NODE, "b", old, new, "why"))
        return None if line is None else line["event"]

    assert changed(None, MemberState.ALIVE) == "join"
    assert changed(MemberState.FAILED, MemberState.ALIVE) == "join"
    assert changed(MemberState.ALIVE, MemberState.ALIVE) is None
    assert [changed(MemberState.ALIVE, s) for s in (MemberState.SUSPECT, MemberState.DEGRADED, MemberState.FAILED)] == [
        "suspect",
        "degraded",
        "failed",
    ]
    assert changed(MemberState.ALIVE, MemberState.LEFT) == "leave"
    assert event_of(UserEventDelivered(NODE, "a", "deploy", b""))["subject"] == "deploy"  # type: ignore[index]


async def test_event_lines_never_block_on_a_reader_that_sleeps() -> None:
    reader, writer = os.pipe()
    lines = EventLines(Bus(quiet()), quiet(), writer)
    for i in range(90_000):
        lines.say("user", f"e{i}")
    assert lines.dropped > 0
    got = b""
    os.set_blocking(reader, False)
    while lines._backlog or got[-1:] != b"\n":
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            got += os.read(reader, 1 << 16)
    with contextlib.suppress(BlockingIOError):
        while part := os.read(reader, 1 << 16):
            got += part
    subjects = [json.loads(line)["subject"] for line in got.splitlines()]
    assert subjects == [f"e{i}" for i in range(len(subjects))]
    assert len(subjects) + lines.dropped == 90_000
    os.close(reader)
    os.close(writer)


async def test_the_bus_outlives_a_bad_callback_and_a_slow_feed() -> None:
    bus, heard = Bus(quiet()), []
    bus.subscribe(lambda notice: 1 / 0)
    end = bus.subscribe(heard.append)
    feed = Feed(bus, limit=3)
    for i in range(5):
        bus.publish(Alarm("x", str(i)))
    end()
    bus.publish(Alarm("x", "5"))
    assert [n.text for n in heard] == ["0", "1", "2", "3", "4"]
    assert feed.dropped == 3
    assert [(await feed.next()).text for _ in range(3)] == ["3", "4", "5"]  # type: ignore[union-attr]
    assert bus.failed_callbacks == 6


def test_metrics_render_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.stage("infer").add(2_000_000)
    metrics.counters("swarmd_x", "Help.", "what", lambda: {"a": 1})
    metrics.gauges("swarmd_y", "Help.", "", lambda: {"": 2})
    metrics.info("swarmd_model_version", "Help.", lambda: {"model": "m"})
    from prometheus_client.parser import text_string_to_metric_families

    metrics.counters("swarmd_odd", "Help.", "what", lambda: {'a"b\\c\nd': 3})
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }
    assert samples["swarmd_x_total", (("what", "a"),)] == 1.0
    assert samples["swarmd_odd_total", (("what", 'a"b\\c\nd'),)] == 3.0
    assert samples["swarmd_y", ()] == 2.0
    assert samples["swarmd_model_version_info", (("model", "m"),)] == 1.0
    assert samples["swarmd_infer_seconds_count", ()] == 1.0
    assert samples["swarmd_stage_seconds_bucket", (("le", "+Inf"), ("stage", "infer"))] == 1.0
    assert samples["swarmd_stage_seconds_sum", (("stage", "infer"),)] == pytest.approx(0.002)
