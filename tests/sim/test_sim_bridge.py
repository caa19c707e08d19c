"""Bridge mode: a host model that does what it says, a story that gives every median, namespaces that connect."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd.demo.netns import Namespaces, unavailable
from swarmd.demo.predictions import Medians, compare, predict
from swarmd.demo.realswarm import HostFigures
from swarmd_sim.errors import SimError
from swarmd_sim.run.cpu import Cores
from tests.support.daemons import wait_for

MS = 1_000_000


def host_figures(*, cpu_us: int = 100, wake_us: int = 0, teardown_ms: int = 0, cores: int = 2) -> HostFigures:
    return HostFigures(MS, MS // 10, cpu_us * 1_000, wake_us * 1_000, teardown_ms * MS, cores, 1.0)


def predicted(host: HostFigures, nodes: int = 5, seed: int = 1) -> Medians:
    starts = [tuple(index * 200 * MS for index in range(nodes))]
    return predict(starts, host, seed, seconds=2, rounds=1)


def test_cores_serve_first_come_first_served() -> None:
    cores = Cores(2)
    cores.take(10, 5)
    assert cores.free_ns() == 0
    cores.take(10, 9)
    assert cores.free_ns() == 15
    cores.take(15, 9)
    assert cores.free_ns() == 19


def test_the_story_has_every_median_and_repeats_for_a_seed() -> None:
    first = predicted(host_figures())
    assert first == predicted(host_figures())
    assert None not in (first.formation_s, first.event_s, first.detection_s)


def test_nodes_that_share_a_slow_core_hear_later() -> None:
    alone, crowded = predicted(host_figures(cores=64)), predicted(host_figures(cpu_us=5_000, cores=1))
    assert alone.event_s is not None
    assert crowded.event_s is not None
    assert crowded.event_s > alone.event_s + 0.004


def test_a_sleeper_pays_for_waking_once_and_not_for_each_event() -> None:
    quick, woken = predicted(host_figures(cores=1)), predicted(host_figures(wake_us=5_000, cores=1))
    slow = predicted(host_figures(cpu_us=5_100, cores=1))
    assert quick.event_s is not None
    assert woken.event_s is not None
    assert round(1e4 * (woken.event_s - quick.event_s)) >= 40, "4 ms; the figures have tenths of one"
    assert woken.formation_s is not None
    assert slow.formation_s is not None
    assert woken.formation_s < slow.formation_s


def test_nobody_is_told_that_a_process_is_gone_while_it_still_holds_its_ports() -> None:
    quick, slow = predicted(host_figures()), predicted(host_figures(teardown_ms=400))
    assert quick.detection_s is not None
    assert slow.detection_s is not None
    assert slow.detection_s >= 0.4
    assert quick.detection_s < slow.detection_s


def test_a_story_needs_somebody_to_tell() -> None:
    with pytest.raises(SimError, match="--nodes is 2"):
        compare(2, 1, 1, 1)


def test_namespaces_reach_each_other_and_are_gone_after() -> None:
    missing = unavailable()
    if missing:
        pytest.skip(f"no network namespaces here, the bridge falls back to loopback: {missing}")
    ask = "import socket, sys; socket.create_connection((sys.argv[1], 9), 5)"
    with Namespaces(2) as lab:
        name = lab.name(1)
        command = lab.command(0, [sys.executable, "-c", ask, lab.address(1)])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        # The other side's kernel answers: the path is there, and nobody listens.
        assert "ConnectionRefusedError" in done.stderr
        assert Path(f"/run/netns/{name}").exists()
    assert not Path(f"/run/netns/{name}").exists()


@pytest.mark.slow
def test_real_daemons_tell_the_same_story() -> None:
    table = compare(4, 2, 7, 3, 1)
    assert all(theirs is not None for _, _, theirs, _ in table.rows())
    assert table.samples == (1, 9, 9)
    assert table.to_json()["host"]["cpu_ns"] > 0
    assert table.rows()[2][2] is not None


def test_ended_by_sigterm_it_leaves_no_namespace() -> None:
    missing = unavailable()
    if missing:
        pytest.skip(missing)
    command = [sys.executable, "-m", "swarmd", "sim", "bridge", "--nodes", "3"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bridge:
        prefix = f"sw{bridge.pid % 100_000}-"

        def left() -> list[str]:
            return [path.name for path in Path("/run/netns").glob(f"{prefix}*")]

        wait_for(lambda: f"{prefix}2" in left(), "namespaces")
        bridge.send_signal(signal.SIGTERM)
        assert bridge.wait(60) == 128 + signal.SIGTERM
    assert not left()
