"""Twenty participants that join at once, in processes of their own, and a ROS 2 reader that comes late."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import qos
from tests.support.daemons import PATIENCE_S

PROCESSES, EACH = 4, 5
NODES = {f"swarmd_n{number}" for number in range(PROCESSES * EACH)}
JOINER = """
import sys
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.participant import Ros2Participant
first, each, domain = map(int, sys.argv[1:])
print("ready", flush=True)
sys.stdin.readline()
kept = []
for number in range(first, first + each):
    one = Ros2Participant(domain, f"swarmd_n{number}", "lo")
    writer = one.writer("rt/swarm/objects", m.Detection3DArray, reliable=True, transient_local=True, depth=1)
    one.announce()
    writer.write(m.Detection3DArray(m.Header(frame_id=f"swarmd_n{number}"), []))
    kept.append(one)
print("joined", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def joiners(monkeypatch: pytest.MonkeyPatch, dds_domain: int) -> Iterator[list["subprocess.Popen[str]"]]:
    monkeypatch.setenv("CYCLONEDDS_URI", loopback_xml("lo"))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", JOINER, str(first * EACH), str(EACH), str(dds_domain)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for first in range(PROCESSES)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=60)


def tell_all(processes: list["subprocess.Popen[str]"], answer: str) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == answer


def test_a_late_reader_sees_twenty_that_joined_at_once(joiners: list["subprocess.Popen[str]"], dds_domain: int) -> None:
    tell_all(joiners, "ready")
    for process in joiners:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    tell_all(joiners, "joined")
    began_s = time.monotonic()
    participant = DomainParticipant(dds_domain)
    graph, latched = (qos(reliable=True, transient_local=True, depth=depth) for depth in (100, 100))
    nodes = DataReader(
        participant, Topic(participant, "ros_discovery_info", m.ParticipantEntitiesInfo, qos=graph), qos=graph
    )
    objects = DataReader(
        participant, Topic(participant, "rt/swarm/objects", m.Detection3DArray, qos=latched), qos=latched
    )
    named: set[str] = set()
    shown: set[str] = set()
    while time.monotonic() < began_s + PATIENCE_S and not named == shown == NODES:
        named |= {
            node.node_name
            for info in nodes.take(50)
            if hasattr(info, "serialize")
            for node in info.node_entities_info_seq
        }
        shown |= {sample.header.frame_id for sample in objects.take(50) if hasattr(sample, "serialize")}
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    assert named == shown == NODES
    print(f"a late reader saw all {len(NODES)} after {took_s:.2f} s")
