"""Two real daemons: one flies with an autopilot's log, the other knows where it is, and says so in ROS 2."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra mavlink)")
pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import qos
from tests.integration.test_mavlink_bridge import write_tlog
from tests.support.daemons import Daemon, wait_for

CONFIG = "[node]\norigin = [47.3977, 8.5456]\n[dds]\nenabled = true\ndomain = {domain}\n"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dds_domain: int) -> Iterator[tuple[Daemon, Daemon]]:
    if not os.environ.get("CYCLONEDDS_URI"):
        monkeypatch.setenv("CYCLONEDDS_URI", loopback_xml("lo"))
    config, log = tmp_path / "b.toml", tmp_path / "flight.tlog"
    config.write_text(CONFIG.format(domain=dds_domain))
    # Two seconds without a fix, then five minutes with one: longer than the test may take.
    write_tlog(log, 6_040, lambda row: 3 if row >= 40 else 1)
    b = Daemon(tmp_path, "b", "--no-eye", "--config", str(config)).up()
    a = Daemon(tmp_path, "a-1", "--no-eye", "--pose", f"tlog:{log}", join=b.status()["address"])
    try:
        yield a.up(), b
    finally:
        a.close()
        b.close()


def position(daemon: Daemon, name: str) -> Any:
    rows = daemon.ask("members")["members"]
    return next((row["position"] for row in rows if row["name"] == name), None)


def test_a_peer_knows_where_the_other_is(pair: tuple[Daemon, Daemon], dds_domain: int) -> None:
    a, b = pair
    where = wait_for(lambda: position(b, "a-1"), f"a's position at b\n{b.log()}\n{a.log()}")
    assert (where["latitude_deg"], where["longitude_deg"]) == pytest.approx((47.3977, 8.5456), abs=1e-3)
    assert (where["height_agl_m"], where["sigma_m"]) == (32.0, 1.2)
    assert position(b, "b") is None
    assert position(a, "a-1")["latitude_deg"] == pytest.approx(47.3977, abs=1e-3)
    features = b.ask("members", form="geojson")["features"]
    assert [feature["properties"]["node"] for feature in features] == ["a-1"]
    assert features[0]["geometry"]["coordinates"] == pytest.approx([8.5456, 47.3977], abs=1e-3)
    participant = DomainParticipant(dds_domain)
    sensor = qos(reliable=False, transient_local=False, depth=5)
    reader = DataReader(participant, Topic(participant, "rt/a_1/fix", m.NavSatFix, qos=sensor), qos=sensor)
    fix = wait_for(lambda: next((one for one in reader.take(5) if hasattr(one, "status")), None), "a fix of the peer")
    assert (fix.status.status, fix.latitude) == (0, pytest.approx(47.3977, abs=1e-3))
    assert abs(time.time() - fix.header.stamp.sec) < 60
    said = b.ask("counters")["own"]
    assert said["positions_learned"] > 0
    assert said["positions_refused"] == 0


def test_detections_without_a_place_or_a_track_are_shared_as_what_they_are(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[node]\norigin = [47.3977, 8.5456]\n")
    c = Daemon(tmp_path, "c", "--no-eye", "--config", str(config)).up()
    try:
        plain = {"label": "car", "score": 0.5}
        placed = {**plain, "latitude_deg": 47.3978, "longitude_deg": 8.5456}
        far = {**plain, "latitude_deg": 47.3978, "longitude_deg": 8.5466}
        for _ in range(3):
            c.ask("observe", detections=[plain, placed, far])
        rows = c.ask("detections")["detections"]
        assert len(rows) == 3
        assert sum(row["east_m"] is None for row in rows) == 1
        north = [row["north_m"] for row in rows if row["north_m"] is not None]
        assert north == pytest.approx([11.1, 11.1], abs=0.2)
    finally:
        c.close()
