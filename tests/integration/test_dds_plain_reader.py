"""ROS 2 as it is found on a robot: readers without any configuration see all topics, and the radio hears nothing.

The robot is a network namespace with a radio; another device on the same network listens.
"""

import ctypes
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from swarmd.identity.files import dev_fleet_secret
from swarmd.transports.casting import CAST_PORT
from tests.support import fastdds, namespaces
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.namespaces import Networks
from tests.support.paths import ROOT

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from swarmd.bridges.ros2 import messages as m

pytestmark = namespaces.marks(150)

ROBOT, OTHER = 1, 2
PLAIN = [sys.executable, "-m", "tests.support.plain_reader"]
LOCALHOST_ONLY = (
    '<CycloneDDS><Domain id="any"><General><Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces>'
    "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    '<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address="localhost"/></Peers></Discovery>'
    "</Domain></CycloneDDS>"
)
"""What rmw_cyclonedds sets for ROS_LOCALHOST_ONLY=1. Source: its rmw_node.cpp."""


class Robot:
    """A device with a radio and one daemon that speaks DDS."""

    def __init__(self, folder: Path, networks: Networks, *settings: str) -> None:
        self.networks = networks
        dev_fleet_secret(folder / "fleet")
        arguments = ["--dev-fleet", str(folder / "fleet"), "--name", "n1", "--set", "dds.enabled=true"]
        for setting in settings:
            arguments += ["--set", setting]
        self.daemon = PlainDaemon("n1", folder / "n1", arguments, networks.prefix(ROBOT))

    def read(self, device: int, *arguments: str, uri: str = "") -> subprocess.Popen[str]:
        """A reader on a device, without any setting of DDS but a `uri`."""
        environment = {name: value for name, value in os.environ.items() if name != "CYCLONEDDS_URI"}
        if uri:
            environment["CYCLONEDDS_URI"] = uri
        command = [*self.networks.prefix(device), *PLAIN, *arguments]
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def written(self) -> set[str]:
        """The DDS names of the topics that the daemon says it writes."""
        rows = self.daemon.ask("topics")["topics"]
        return {"rt" + row["topic"] for row in rows if row["kind"] == "dds" and "(read)" not in row["what"]}


@pytest.fixture
def air() -> Iterator[Networks]:
    """A robot and another device on one radio network, without a default route."""
    with Networks() as networks:
        networks.network("air")
        networks.plug(ROBOT, "air", "wlan0", "10.7.0.1/24")
        networks.plug(OTHER, "air", "wlan0", "10.7.0.2/24")
        yield networks


def topics_in(lines: Sequence[str]) -> set[str]:
    return {line.split()[1] for line in lines if line.startswith("topic ")}


class Sniffer:
    """Every IPv4 frame that one source puts on the network, as (destination, protocol, destination port)."""

    def __init__(self, networks: Networks, source: str) -> None:
        self.heard: list[tuple[str, int, int]] = []
        self._source = socket.inet_aton(source)
        self._stop = threading.Event()
        self._socket = self._open(networks.hub)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @staticmethod
    def _open(namespace: str) -> socket.socket:
        made: list[socket.socket] = []

        def enter() -> None:
            with open(f"/run/netns/{namespace}") as handle:  # Of this thread alone, which then ends.
                _setns(handle.fileno())
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            sock.bind((f"air{ROBOT}", 0))
            sock.settimeout(0.2)
            made.append(sock)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                frame, where = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            if where[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[26:30] != self._source:
                continue
            ports_at = 14 + (frame[14] & 15) * 4
            port = struct.unpack_from("!H", frame, ports_at + 2)[0] if frame[23] in (6, 17) else 0
            self.heard.append((socket.inet_ntoa(frame[30:34]), frame[23], port))

    def close(self) -> list[tuple[str, int, int]]:
        """Stop; what was heard."""
        self._stop.set()
        self._thread.join()
        self._socket.close()
        return self.heard


def _setns(descriptor: int) -> None:
    clone_newnet = 0x4000_0000  # linux/sched.h
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@pytest.mark.parametrize(
    ("setting", "uri"),
    [("", ""), ("dds.interface=wlan0", ""), ("", LOCALHOST_ONLY), ("dds.interface=lo", LOCALHOST_ONLY)],
    ids=["stock", "stock, interface named", "localhost only", "lo, localhost only"],
)
def test_cyclonedds_on_the_robot_finds_every_topic(air: Networks, tmp_path: Path, setting: str, uri: str) -> None:
    robot = Robot(tmp_path, air, *([setting] if setting else []))
    try:
        robot.daemon.start()
        wait_for(robot.written, "the daemon's topics")
        for _ in range(4):  # Twelve seconds are enough for a machine that has the time.
            lines, _ = robot.read(ROBOT, "0", "12", "rt/swarm/peers", uri=uri).communicate(timeout=60)
            missing = robot.written() - topics_in(lines.splitlines())
            if not missing and "\nsample " in f"\n{lines}":
                break
        assert not missing
        assert len(robot.written()) >= 8
        samples = [line for line in lines.splitlines() if line.startswith("sample ")]
        assert any("n1" in line for line in samples), lines
    finally:
        robot.daemon.stop()


def test_fast_dds_on_the_robot_reads_a_topic(air: Networks, tmp_path: Path) -> None:
    program, environment = fastdds.build(tmp_path)
    robot = Robot(tmp_path, air)
    try:
        robot.daemon.start()
        command = [*air.prefix(ROBOT), program, "0", "rt/swarm/peers", m.DiagnosticArray.__idl_typename__, "1"]
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout, done.stderr
    finally:
        robot.daemon.stop()


def test_nothing_of_dds_leaves_the_robot(air: Networks, tmp_path: Path) -> None:
    """Not even where another robot's ROS 2 announces itself in the same domain, before, meanwhile and after."""
    robot = Robot(tmp_path, air)
    sniffer = Sniffer(air, "10.7.0.1")
    early = robot.read(OTHER, "0", "20")
    try:
        robot.daemon.start()
        late = robot.read(OTHER, "0", "10")
        late_lines, _ = late.communicate(timeout=60)
        early_lines, _ = early.communicate(timeout=60)
        assert topics_in(late_lines.splitlines()) == topics_in(early_lines.splitlines()) == set()
    finally:
        robot.daemon.stop()
        early.kill()
        heard = sniffer.close()
    # The daemon's own sealed casts over UDP are no DDS.
    igmp, casts = 2, (17, CAST_PORT)
    assert not {row for row in heard if row[1] != igmp and row[1:] != casts}
