"""Interfaces, measured between two real daemons on loopback: a detection enters one, a reader hangs on the other.

Prints one JSON object: latency to an MQTT subscriber and to a ROS 2 reader (p50, p99, milliseconds), DDS pass-through
of ready CDR (detections a second), CPU of the bridges at 20 nodes x 10 Hz, memory of a brain with both bridges, and
an outage of the broker.

    python -m tests.bench.bench_interfaces [--samples 300] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.bridges.ros2.network import loopback_xml
from tests.support.bridge_world import broker
from tests.support.exclusive import own_port

DOMAIN = 78
PAUSE_S = 0.12
"""Idle means that no two detections share a batch: the state joins what follows within 50 ms into one."""


def percentile(values: list[float], share: float) -> float:
    assert values, "nothing was received"
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return round(int(text.split("VmRSS:")[1].split()[0]) / 1024, 1)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Daemon:
    """One `swarmd run --no-eye`."""

    def __init__(self, folder: Path, name: str, port: int, join: int | None, mqtt: int | None, dds: bool) -> None:
        self.control = folder / f"{name}.sock"
        config = folder / f"{name}.toml"
        config.write_text(
            "[node]\norigin = [-18.88, -70.11]\n"
            + (f"[mqtt]\nenabled = true\nport = {mqtt}\n" if mqtt else "")
            + (f"[dds]\nenabled = true\ndomain = {DOMAIN}\n" if dds else "")
        )
        command = [sys.executable, "-m", "swarmd", "run", "-c", str(config), "--no-eye", "--name", name]
        command += ["--listen", f"127.0.0.1:{port}", "--dev-fleet", str(folder / "fleet"), "--http", "off"]
        command += ["--state", str(folder / name), "--control", str(self.control)]
        if join is not None:
            command += ["--join", f"127.0.0.1:{join}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(folder / f"{name}.log").open("w"))
        deadline = time.monotonic() + 20
        while not self.control.exists():
            assert time.monotonic() < deadline, (folder / f"{name}.log").read_text()
            time.sleep(0.05)
        self.client = ControlClient(self.control)

    def ask(self, verb: str) -> dict[str, Any]:
        """On a connection of its own: the daemon closes one that was silent for long."""
        with ControlClient(self.control) as client:
            return client.call(verb)

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=10)


def send(daemon: Daemon, number: int) -> None:
    """One detection whose label carries the time of its capture."""
    row = {
        "label": f"t{time.monotonic_ns()}",
        "score": 0.9,
        "east_m": number * 20.0,
        "north_m": 5.0,
        "covariance_m2": [0.04, 0.0, 0.04],
        "track": f"b{number}",
        "event": "new",
    }
    daemon.client.call("observe", detections=[row])


def age_ms(label: str) -> float:
    return (time.monotonic_ns() - int(label[1:])) / 1e6


def mqtt_latency(a: Daemon, port: int, samples: int) -> list[float]:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    ages: list[float] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)

    def on_message(_client: Any, _userdata: Any, message: Any) -> None:
        ages.append(age_ms(json.loads(message.payload)["properties"]["label"]))

    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.subscribe("swarm/v1/+/detections", qos=1)
    client.loop_start()
    time.sleep(0.5)
    for number in range(samples):
        send(a, number)
        time.sleep(PAUSE_S)
    time.sleep(1)
    client.disconnect()
    client.loop_stop()
    return ages


def dds_latency(a: Daemon, samples: int) -> list[float]:
    from cyclonedds.core import ReadCondition, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    from swarmd.bridges.ros2 import messages as m
    from swarmd.bridges.ros2.participant import _ANY, qos

    participant = DomainParticipant(DOMAIN)
    usual = qos(reliable=True, transient_local=False, depth=100)
    reader = DataReader(
        participant, Topic(participant, "rt/swarm/detections", m.Detection3DArray, qos=usual), qos=usual
    )
    waitset = WaitSet(participant)
    waitset.attach(ReadCondition(reader, _ANY))
    deadline = time.monotonic() + 10
    while reader.get_subscription_matched_status().current_count < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    ages: list[float] = []
    for number in range(samples):
        send(a, 10_000 + number)
        if waitset.wait(duration(milliseconds=200)):
            for sample in reader.take(100):
                if hasattr(sample, "detections"):
                    ages += [age_ms(one.results[0].hypothesis.class_id) for one in sample.detections]
        time.sleep(PAUSE_S)
    return ages


def pass_through(seconds: float) -> float:
    """Ready CDR of ten-detection arrays handed to a reliable writer with one matched reader: detections a second."""
    from cyclonedds._clayer import ddspy_take, ddspy_write
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic

    from swarmd.bridges.ros2 import messages as m
    from swarmd.bridges.ros2.participant import _ANY, qos

    participant = DomainParticipant(DOMAIN + 1)
    usual = qos(reliable=True, transient_local=False, depth=1000)
    topic = Topic(participant, "rt/bench", m.Detection3DArray, qos=usual)
    writer, reader = DataWriter(participant, topic, qos=usual), DataReader(participant, topic, qos=usual)
    one = m.Detection3D(results=[m.ObjectHypothesisWithPose(m.ObjectHypothesis("hot-spot", 0.9))], id="a/1")
    data = m.Detection3DArray(detections=[one] * 10).serialize()
    data = data.ljust((len(data) + 3) & ~3, b"\0")
    received, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            ddspy_write(writer._ref, data)
        taken = ddspy_take(reader._ref, _ANY, 1000)
        received += len(taken) if isinstance(taken, list) else 0
    return round(received * 10 / (time.perf_counter() - began))


def bridge_load(a: Daemon, b: Daemon, seconds: float) -> dict[str, float]:
    """CPU of the receiving daemon at 200 detections a second (20 nodes x 10 Hz), in percent of a core."""
    before, began = cpu_s(b.process.pid), time.monotonic()
    number = 20_000
    while time.monotonic() - began < seconds:
        rows = [
            {
                "label": "load",
                "score": 0.5,
                "east_m": (number + i) % 400 * 20.0,
                "north_m": 50.0,
                "covariance_m2": [0.04, 0.0, 0.04],
                "track": f"l{(number + i) % 400}",
            }
            for i in range(20)
        ]
        a.client.call("observe", detections=rows)
        number += 20
        time.sleep(max(0.0, began + (number - 20_000) / 200 - time.monotonic()))
    return {
        "receiver_cpu_percent": round((cpu_s(b.process.pid) - before) / (time.monotonic() - began) * 100, 2),
        "detections_per_s": round((number - 20_000) / (time.monotonic() - began)),
    }


def measure(samples: int, folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "samples": samples}
    with broker(folder) as server:
        port_a, port_b = own_port(), own_port()
        a = Daemon(folder, "a", port_a, None, None, False)
        b = Daemon(folder, "b", port_b, port_a, server.port, True)
        try:
            deadline = time.monotonic() + 20
            while len(a.ask("status")["members"]) < 2:
                assert time.monotonic() < deadline, "the two daemons did not find each other"
                time.sleep(0.1)
            for name, ages in (("mqtt", mqtt_latency(a, server.port, samples)), ("ros2", dds_latency(a, samples))):
                result[f"{name}_ms"] = {
                    "p50": percentile(ages, 0.5),
                    "p99": percentile(ages, 0.99),
                    "received": len(ages),
                }
            with_bridges = bridge_load(a, b, 10)
            result["load_with_bridges"] = with_bridges
            result["brain_rss_mb"] = rss_mb(b.process.pid)
            server.stop()
            slow: list[float] = []
            for number in range(100):
                began = time.perf_counter()
                send(a, 30_000 + number)
                slow.append((time.perf_counter() - began) * 1e3)
            counts = b.ask("counters")["own"]
            result["broker_down"] = {
                "observe_ms_p99": percentile(slow, 0.99),
                "buffered": counts.get("mqtt_buffered"),
            }
            server.start()
            deadline = time.monotonic() + 40
            while b.ask("counters")["own"].get("mqtt_buffered") and time.monotonic() < deadline:
                time.sleep(0.2)
            result["broker_down"]["buffered_after"] = b.ask("counters")["own"].get("mqtt_buffered")
        finally:
            b.close()
            a.close()
    result["dds_pass_through_per_s"] = pass_through(3)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="the only form there is")
    args = parser.parse_args()
    os.environ.setdefault("CYCLONEDDS_URI", loopback_xml("lo"))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(args.samples, Path(folder))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
