"""What a scrape holds: bounded in a swarm of a thousand, bytes apart from frames, and no number without its unit."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.api.bus import Bus
from swarmd.api.metrics import Metrics
from swarmd.brain.node_metrics import register_metrics
from swarmd.logs import Logger
from swarmd_protocols.effects import MemberState
from tests.support.bridge_world import pose

SERIES_MAX = 400


def parts_with(peers: int) -> Any:
    """As much of a brain as its metrics read."""
    members = [SimpleNamespace(name=f"n{i}", rtt_ns=1_000_000 * (i + 1)) for i in range(peers)]
    summary = SimpleNamespace(counters={"pings": 3}, members={m.name: MemberState.ALIVE for m in members})
    counts = {
        "datagrams_out": 5, "datagram_bytes_out": 700, "datagrams_dropped_busy": 1, "datagrams_refused": 2,
        "streams_in": 1, "stream_bytes_in": 90, "host_probes_out": 4,
    }  # fmt: skip
    return SimpleNamespace(
        metrics=Metrics(),
        bus=Bus(Logger("n0", "error", "json")),
        transport=SimpleNamespace(counters=lambda: counts),
        node=SimpleNamespace(summary=lambda: summary, members=lambda: members, budget_used=lambda: 0.5),
        driver=SimpleNamespace(counts={}),
        replica=SimpleNamespace(
            views=SimpleNamespace(
                counter_sums=dict, left_out=dict, let_go=dict, object_count=lambda: 0, objects=list, sent=dict
            ),
            clock=SimpleNamespace(synced=True, offset_ns=0),
        ),
        sightings=SimpleNamespace(counts={}),
        positions=SimpleNamespace(counts={}),
        log=SimpleNamespace(lines={}),
        supervisor=SimpleNamespace(restarts={}),
        eye=None,
        worker=None,
        journal=SimpleNamespace(degraded=False, directory=Path("/")),
        door=None,
        identity=SimpleNamespace(name="n0"),
        started_ns=0,
    )


def scrape(parts: Any) -> dict[str, float]:
    register_metrics(parts)
    rows = [line for line in parts.metrics.render().decode().splitlines() if not line.startswith("#")]
    return {row.rpartition(" ")[0]: float(row.rpartition(" ")[2]) for row in rows}


@pytest.mark.parametrize("peers", [0, 1, 64, 65, 1000])
def test_a_scrape_is_bounded_however_large_the_swarm(peers: int) -> None:
    found = scrape(parts_with(peers))
    assert len(found) <= SERIES_MAX
    assert sum("peer=" in name for name in found) == (peers if peers <= 64 else 0)
    if peers:
        assert found['swarmd_peers_rtt_seconds{share="1"}'] == pytest.approx(peers / 1000)


def test_bytes_frames_and_drops_are_families_of_their_own() -> None:
    found = scrape(parts_with(2))
    assert found['swarmd_transport_bytes_total{what="datagram_out"}'] == 700
    assert found['swarmd_transport_frames_total{what="datagrams_out"}'] == 5
    assert found['swarmd_transport_dropped_total{what="datagrams_dropped_busy"}'] == 1
    assert found['swarmd_transport_dropped_total{what="datagrams_refused"}'] == 2
    assert not [name for name in found if name.startswith("swarmd_transport_total")]


def test_what_a_device_says_of_itself() -> None:
    parts = parts_with(1)
    found = scrape(parts)
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_open_fds"] >= 3
    assert re.match(r"\d{10}", str(found["process_start_time_seconds"]))
    assert "swarmd_fix" not in found
    parts.bus.publish(pose(has_fix=False))
    text = parts.metrics.render().decode()
    assert "\nswarmd_fix 0\n" in text
    assert "\nswarmd_battery_ratio 0.8\n" in text
