"""What a bridge costs by itself: CPU of a process that holds one bridge and a daemon's view, nothing else.

Twenty nodes tell ten detections a second each, evenly spread, and their positions once a second; objects change ten
times a second; a reader in another process takes everything. CPU is process time of all threads, without what the same
process takes with no bridge; RSS as the kernel says it.

    python -m tests.bench.bench_bridges [--seconds 20] [--only dds|mqtt]
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from swarmd.api.daemon import NodePosition, PositionSeen
from swarmd.bridges.base import Bridge
from swarmd.config.bridges import DdsConfig, MqttConfig
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionLearned, ObjectChanged
from tests.support.bridge_world import World, broker, object_view, sighting

DOMAIN = 81
NODES, HZ = 20, 10
OBJECTS = 100
READER = """
import sys, time
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import qos
participant = DomainParticipant(int(sys.argv[1]))
kept = []
for name, message, latched in (
    ("rt/swarm/detections", m.Detection3DArray, False),
    ("rt/swarm/objects", m.Detection3DArray, True),
    ("rt/swarm/objects/markers", m.MarkerArray, True),
    ("rt/swarm/peers", m.DiagnosticArray, True),
):
    usual = qos(reliable=True, transient_local=latched, depth=100)
    kept.append(DataReader(participant, Topic(participant, name, message, qos=usual), qos=usual))
print("ready", flush=True)
from cyclonedds._clayer import ddspy_take
from swarmd.bridges.ros2.participant import _ANY
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for reader in kept:
        ddspy_take(reader._ref, _ANY, 1000)
    time.sleep(0.02)
"""


def rss_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return round(int(text.split("VmRSS:")[1].split()[0]) / 1024, 1)


def node_of(number: int) -> NodeId:
    return NodeId(bytes([number]) * 16)


async def drive(world: World, seconds: float) -> int:
    """The load; how many detections were said."""
    began, said, next_object, next_peer = time.monotonic(), 0, 0, 0
    while (now := time.monotonic() - began) < seconds:
        while said < now * NODES * HZ:
            number = said % NODES
            name = f"hot-spot|1|({said % 400}, 0)"
            world.say(StateChanged("state", DetectionLearned(sighting(node_of(number), name=name))))
            if said % HZ == 0:
                number = next_peer % NODES
                where = NodePosition(node_of(number), -18.88, -70.11, 25.0, 0.5, 0.5, 800, time.monotonic_ns())
                world.say(PositionSeen(node_of(number), f"n{number}", where))
                next_peer += 1
            if said % NODES == 0:
                change = ObjectChanged("update", world.views[next_object % OBJECTS], "")
                world.say(StateChanged("state", change))
                next_object += 1
            said += 1
        await asyncio.sleep(0.005)
    return said


@contextlib.asynccontextmanager
async def running(bridge: Bridge | None, world: World) -> AsyncIterator[None]:
    task = None if bridge is None else asyncio.create_task(bridge.run(world))
    while task is not None and not world.callbacks:
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def measure(make: Callable[[], Bridge] | None, seconds: float) -> dict[str, Any]:
    world = World()
    world.views = [object_view(f"o{number}") for number in range(OBJECTS)]
    if make is None:
        world.callbacks.append(lambda event: None)
    bridge = None if make is None else make()
    async with running(bridge, world):
        # Writers of peers are made once; a flight is longer than that.
        await drive(world, min(5.0, seconds))
        before, began = time.process_time(), time.monotonic()
        said = await drive(world, seconds)
        spent = (time.process_time() - before) / (time.monotonic() - began) * 100
    counts = {} if bridge is None else bridge.counters()
    return {"cpu_percent": round(spent, 2), "detections_per_s": round(said / seconds), "rss_mb": rss_mb()} | {
        key: value for key, value in counts.items() if key.startswith(("published", "dropped"))
    }


def dds(seconds: float) -> dict[str, Any]:
    from swarmd.bridges.ros2.bridge import Ros2Bridge
    from swarmd.bridges.ros2.network import loopback_xml

    os.environ.setdefault("CYCLONEDDS_URI", loopback_xml("lo"))
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(DOMAIN), str(seconds + 12)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline().strip() == "ready"
        return asyncio.run(measure(lambda: Ros2Bridge(DdsConfig(enabled=True, domain=DOMAIN)), seconds))
    finally:
        reader.kill()
        reader.communicate(timeout=10)


def mqtt(seconds: float) -> dict[str, Any]:
    from swarmd.bridges.mqtt.bridge import MqttBridge

    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as server:
        subscriber = subprocess.Popen(
            ["mosquitto_sub", "-p", str(server.port), "-t", "swarm/#"], stdout=subprocess.DEVNULL
        )
        try:
            return asyncio.run(measure(lambda: MqttBridge(MqttConfig(enabled=True, port=server.port)), seconds))
        finally:
            subscriber.kill()
            subscriber.wait(timeout=10)


def nothing(seconds: float) -> dict[str, Any]:
    return asyncio.run(measure(None, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("dds", "mqtt", "none"))
    args = parser.parse_args()
    if args.only:
        kinds: dict[str, Callable[[float], dict[str, Any]]] = {"dds": dds, "mqtt": mqtt, "none": nothing}
        print(json.dumps(kinds[args.only](args.seconds)))
        return 0
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "nodes": NODES, "hz": HZ}
    for kind in ("none", "dds", "mqtt"):
        # Each in a process of its own, so that nobody pays for another's libraries.
        command = [sys.executable, "-m", "tests.bench.bench_bridges", "--only", kind, "--seconds", str(args.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=args.seconds + 120)
        result[kind] = json.loads(done.stdout)
    for kind in ("dds", "mqtt"):
        result[f"{kind}_bridge_cpu_percent"] = round(result[kind]["cpu_percent"] - result["none"]["cpu_percent"], 2)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
