"""A broker that is gone for a while, between two real daemons: nothing slows, the buffer is bounded, drained in order.

The outage lasts SWARMD_MQTT_OUTAGE_S seconds (default 1; `make test-long` takes ten minutes) and its figures are
printed.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from swarmd.api.control import ControlClient
from swarmd.api.views import unix_s
from tests.support.bridge_world import Broker, Subscriber, mosquitto_binary
from tests.support.daemons import Daemon, alive_members, digests, wait_for

OUTAGE_S = float(os.environ.get("SWARMD_MQTT_OUTAGE_S", "1"))
RATE_HZ = 20
TRACKS = 400
BUFFER = 15 if OUTAGE_S < 60 else 2000

pytestmark = [
    pytest.mark.skipif(mosquitto_binary() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.timeout(OUTAGE_S + 300),
]


def rss_mb(daemon: Daemon) -> float:
    assert daemon.process is not None
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 2)


class Load:
    """Detections into `a`, which `b` learns and would publish; and how long both take to answer."""

    def __init__(self, a: Daemon, b: Daemon) -> None:
        self.a, self.b = a, b
        self.sent = 0
        self.filled = 0

    def run(self, seconds: float, least: int = 0) -> dict[str, float]:
        """Send at a steady rate, for this time and at least so many, and ask `b`; milliseconds."""
        observe_ms: list[float] = []
        status_ms: list[float] = []
        with ControlClient(self.a.control) as to_a, ControlClient(self.b.control) as to_b:
            began, first = time.monotonic(), self.sent
            while (passed_s := time.monotonic() - began) < seconds or self.sent - first < least:
                number = self.sent % TRACKS
                row: dict[str, Any] = {
                    "label": "hot-spot",
                    "score": 0.5 + self.sent // TRACKS % 50 / 100,
                    "east_m": number * 20.0,
                    "north_m": 5.0,
                }
                row |= {"covariance_m2": [0.04, 0, 0.04], "track": f"t{number}"}
                at = time.perf_counter()
                to_a.call("observe", detections=[row])
                observe_ms.append((time.perf_counter() - at) * 1e3)
                self.sent += 1
                at = time.perf_counter()
                own = to_b.call("counters")["own"]
                status_ms.append((time.perf_counter() - at) * 1e3)
                self.filled = max(self.filled, own.get("mqtt_buffered", 0))
                time.sleep(max(0.0, (self.sent - first) / RATE_HZ - passed_s))
        return {
            "observe_p50": percentile(observe_ms, 0.5),
            "observe_p99": percentile(observe_ms, 0.99),
            "ask_p50": percentile(status_ms, 0.5),
            "ask_p99": percentile(status_ms, 0.99),
        }

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.b.ask("counters")["own"]
        return found


def test_nothing_slows_while_the_broker_is_away(tmp_path: Path) -> None:
    server = Broker(tmp_path)
    server.start()
    config = tmp_path / "b.toml"
    config.write_text(
        "[node]\norigin = [-18.88, -70.11]\n"
        f"[mqtt]\nenabled = true\nport = {server.port}\nbuffer_messages = {BUFFER}\nreconnect_max_s = 2\n"
    )
    a = Daemon(tmp_path, "a").up()
    b = Daemon(tmp_path, "b", "--config", str(config), join=a.status()["address"]).up()
    subscriber: Subscriber | None = None
    assert b.process is not None
    try:
        wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
        load = Load(a, b)
        wait_for(lambda: load.counters().get("mqtt_connects") == 1, "the broker")
        before = load.run(max(0.5, OUTAGE_S / 10))
        wait_for(lambda: load.counters().get("mqtt_buffered") == 0, "all to be published")
        rss_before = rss_mb(b)
        server.stop()
        wait_for(lambda: load.counters().get("mqtt_reconnects", 0) >= 1, "the loss")
        load.filled = 0
        during = load.run(OUTAGE_S, BUFFER + 5)  # However few a busy machine sends in this time.
        # Whatever was seen meanwhile both know.
        wait_for(lambda: len(digests(a, b)) == 1, "the same picture")
        at_end = load.counters()
        rss_after = rss_mb(b)
        assert 0 < load.filled <= BUFFER
        assert at_end["mqtt_dropped_buffer_full"] > 0
        assert rss_after - rss_before < 32
        # The reader is there before the bridge can come back: nothing retains detections.
        b.process.send_signal(signal.SIGSTOP)
        server.start()
        marker = ["mosquitto_pub", "-p", str(server.port), "-r", "-t", "swarm/v1/dev/marker", "-m", "here"]
        subprocess.run(marker, check=True, timeout=60)
        subscriber = Subscriber(server.port, "swarm/v1/dev/marker", "swarm/v1/dev/detections")
        subscriber.wait_for(lambda topic, _r, _p: topic.endswith("marker"))
        b.process.send_signal(signal.SIGCONT)
        drained_at = time.monotonic()
        wait_for(lambda: load.counters().get("mqtt_connects") == 2, "the broker")
        wait_for(lambda: (one := load.counters())["mqtt_buffered"] + one["mqtt_inflight"] == 0, "the buffer")
        drained_s = time.monotonic() - drained_at
        newest_s = max(row["last_seen_s"] for row in b.ask("detections")["detections"])
        heard: list[int] = []

        def is_newest(_topic: str, _retained: bool, text: str) -> bool:
            heard.append(json.loads(text)["properties"]["hlc"])
            return bool(unix_s(heard[-1]) == newest_s)

        subscriber.wait_for(is_newest, 60)
        assert heard == sorted(heard)
        print(
            json.dumps(
                {
                    "outage_s": OUTAGE_S, "sent": load.sent, "before_ms": before, "during_ms": during,
                    "buffer_filled": load.filled, "buffer_cap": BUFFER, "rss_mb": [rss_before, rss_after],
                    "drained": len(heard), "drained_s": round(drained_s, 2),
                    "attempts": at_end.get("mqtt_reconnects"),
                    **{key: value for key, value in load.counters().items() if key.startswith("mqtt_dropped")},
                }
            )
        )  # fmt: skip
    finally:
        if subscriber is not None:
            subscriber.close()
        b.close()
        a.close()
        server.stop()
