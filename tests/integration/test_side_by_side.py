"""Test suites beside each other on one machine: what each one claims is its own, and no DDS sample crosses over."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.exclusive import DOMAINS, Claim, own_domain, own_port
from tests.support.paths import ROOT

HOLDER = """
import sys
from tests.support.exclusive import own_domain, own_port
domains = [own_domain() for _ in range(5)]
print(*[one.__enter__() for one in domains], *[own_port() for _ in range(5)], flush=True)
sys.stdin.readline()
"""
HEARS = """
import os, sys, time
from tests.support.exclusive import own_domain
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import qos
os.environ["CYCLONEDDS_URI"] = loopback_xml("lo")
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
with own_domain() as own:
    participant = DomainParticipant(int(sys.argv[1]) or own)
    usual = qos(reliable=True, transient_local=True, depth=10)
    topic = Topic(participant, "rt/who", m.Header, qos=usual)
    reader, writer = DataReader(participant, topic, qos=usual), DataWriter(participant, topic, qos=usual)
    writer.write(m.Header(m.Time(0, 0), sys.argv[2]))
    print("said", flush=True)
    sys.stdin.readline()  # The other one has said it too.
    heard, since = set(), time.monotonic()
    while len(heard) < int(sys.argv[3]) or time.monotonic() < since + 1.0:  # The pytest timeout ends a vain wait.
        heard |= {one.frame_id for one in reader.take(10)}
        time.sleep(0.02)
    print(*sorted(heard), flush=True)
    sys.stdin.readline()
"""


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_no_two_processes_hold_the_same_number() -> None:
    holders = [start(HOLDER) for _ in range(4)]
    try:
        held = [number for holder in holders for number in line(holder)]
        assert len(held) == len(set(held)) == 40
    finally:
        for holder in holders:
            end(holder)


def test_what_a_killed_process_held_is_free_again() -> None:
    kind = f"test-{os.getpid()}"
    program = (
        "import signal\nfrom tests.support.exclusive import Claim\n"
        f"claim = Claim('{kind}', [7])\nprint(claim.number, flush=True)\nsignal.pause()\n"
    )
    holder = start(program)
    try:
        assert line(holder) == ["7"]
        with pytest.raises(RuntimeError, match=f"all 1 numbers for a {kind} are in use"):
            Claim(kind, [7])
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        Claim(kind, [7]).close()
    finally:
        end(holder)


def test_a_domain_is_given_back_and_ports_are_free_in_pairs() -> None:
    with own_domain() as number:
        assert number in DOMAINS
        with pytest.raises(RuntimeError):
            Claim("dds-domain", [number])
    Claim("dds-domain", [number]).close()
    ports = [own_port() for _ in range(20)]
    assert len({port + more for port in ports for more in (0, 1)}) == 40


@pytest.mark.parametrize("domain", [None, "fixed"], ids=["own", "fixed"])
def test_only_on_one_fixed_domain_do_two_suites_hear_each_other(domain: str | None) -> None:
    """The fixed domain is the fault that the claims keep away: this test can fail."""
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    with own_domain() as number:
        chosen = "0" if domain is None else str(number)
        suites = [start(HEARS, chosen, name, "1" if domain is None else "2") for name in ("alice", "bob")]
        try:
            for suite in suites:
                assert line(suite) == ["said"]
            for suite in suites:
                go_on(suite)
            heard = [line(suite) for suite in suites]
        finally:
            for suite in suites:
                end(suite)
    assert heard == ([["alice"], ["bob"]] if domain is None else [["alice", "bob"]] * 2)


def test_the_same_dds_test_runs_twice_at_once() -> None:
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    test = "tests/integration/test_ros2_bridge.py::test_detections_objects_and_late_joiners"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    own = {name: value for name, value in os.environ.items() if name != "SWARMD_SKIPS"}  # They are no part of this run.
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=own) for _ in range(2)]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "\n".join(said)
