"""Real daemons, told the story of the bridge: started, asked for events, killed, started again; everything is timed.

All times come from the daemons' own event lines (`run --events json`), whose clock is the machine's monotonic one.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from swarmd.demo.netns import Loopback, Namespaces
from swarmd_sim.errors import SimError
from swarmd_sim.run.scenario import NS_PER_S

Place = Namespaces | Loopback
_START_TIMEOUT_S = 240.0
_WAIT_S = 60.0
_EVENT_GAP_S = 0.4
_SETTLE_S = 1.0
_IDLE_S = 4.0
_FLOOD, _WARM_GAP_S, _COLD_GAP_S = 200, 0.003, 0.05
_BURSTS = 150
_BURST_GAP_S = 0.01


@dataclass(frozen=True, slots=True)
class HostFigures:
    """What this machine was measured to need; the predicted side's model of it.

    Attributes:
        hop_ns: From "say it" at one daemon to the event at the only other one, median.
        hop_spread_ns: Between the quartiles of that.
        cpu_ns: CPU time of a daemon for one event that it hears and passes on, among many.
        wake_ns: What it takes on top for one that comes alone: its caches are cold.
        teardown_ns: From SIGKILL until the process is gone and its ports refuse, median.
        cores: Processor cores of the machine that this program may use.
        contention: Wall-clock time for a second of CPU time, of a program that mostly sleeps and then works as long as
            a daemon does for one event.
    """

    hop_ns: int
    hop_spread_ns: int
    cpu_ns: int
    wake_ns: int
    teardown_ns: int
    cores: int
    contention: float


@dataclass(slots=True)
class Timings:
    """What the real swarm did, nanoseconds; one entry for each (node, happening) pair or formation."""

    formation_ns: list[int] = field(default_factory=list)
    event_ns: list[int] = field(default_factory=list)
    detection_ns: list[int] = field(default_factory=list)
    teardown_ns: list[int] = field(default_factory=list)
    starts_ns: list[tuple[int, ...]] = field(default_factory=list)
    """For each formation: when each node was up, from the first one on."""


@dataclass(slots=True)
class Daemon:
    """One process and what it said."""

    index: int
    name: str
    process: "subprocess.Popen[str]"
    events: list[tuple[int, str, str]] = field(default_factory=list)
    """(monotonic ns, event, subject)."""

    def read(self) -> None:
        """Collect its event lines until it ends."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                    self.events.append((int(row["t_ns"]), str(row["event"]), str(row["subject"])))
                except (ValueError, KeyError, TypeError):
                    continue

    def end(self) -> None:
        """Wait until the killed process is gone, and let go of its input; `read` lets go of its output."""
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def first(self, event: str, subject: str | None, after_ns: int = 0) -> int | None:
        """When it first said so after a time."""
        for at_ns, kind, who in list(self.events):
            if at_ns > after_ns and kind == event and (subject is None or who == subject):
                return at_ns
        return None

    def say(self, name: str) -> int:
        """Let it broadcast a user event; returns when it was asked."""
        assert self.process.stdin is not None
        asked_ns = time.monotonic_ns()
        self.process.stdin.write(json.dumps({"cmd": "event", "name": name}) + "\n")
        self.process.stdin.flush()
        return asked_ns

    def cpu_ns(self) -> int:
        """CPU time of the process so far."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads)


class RealSwarm:
    """N daemons at one place.

    Args:
        place: Namespaces, or loopback.
        nodes: How many.
        folder: Where fleet, states and logs go.
        label: A part of the folder's name for this swarm.
    """

    def __init__(self, place: Place, nodes: int, folder: Path, label: str) -> None:
        self._place = place
        self._folder = folder / label
        self._folder.mkdir()
        self._fleet = folder / "fleet"
        ports = [7946] * nodes if isinstance(place, Namespaces) else _free_ports(nodes)
        self._addresses = [f"{place.address(index)}:{port}" for index, port in enumerate(ports)]
        self.daemons = [self._start(index) for index in range(nodes)]

    def _start(self, index: int) -> Daemon:
        name = f"n{index}"
        command = [sys.executable, "-m", "swarmd", "run", "--no-eye", "--name", name, "--events", "json"]
        command += ["--listen", self._addresses[index], "--dev-fleet", str(self._fleet), "--http", "off"]
        command += ["--state", str(self._folder / name), "--control", str(self._folder / f"{name}.sock")]
        command += ["--join", self._addresses[0 if index else 1]]
        with (self._folder / f"{name}.log").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                self._place.command(index, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        daemon = Daemon(index, name, process)
        threading.Thread(target=daemon.read, daemon=True).start()
        return daemon

    def stop(self) -> None:
        """End every process."""
        for daemon in self.daemons:
            daemon.process.kill()
        for daemon in self.daemons:
            daemon.end()

    def await_formed(self) -> tuple[int, tuple[int, ...]]:
        """Wait until every node has told of every other one.

        Returns:
            Nanoseconds from the moment the last one was up, and when each was up from the first one on.

        Raises:
            SimError: It does not happen.
        """
        pairs = [(a, b.name) for a in self.daemons for b in self.daemons if a is not b]
        if not _until(lambda: all(a.first("join", name) is not None for a, name in pairs), _START_TIMEOUT_S):
            raise SimError(
                f"{len(self.daemons)} daemons did not form one swarm within {_START_TIMEOUT_S:g} s; run one by hand"
            )
        ups = [daemon.first("up", None) or 0 for daemon in self.daemons]
        joins = [daemon.first("join", name) or 0 for daemon, name in pairs]
        return max(0, max(joins) - max(ups)), tuple(at_ns - min(ups) for at_ns in ups)

    def tell(self, turn: int) -> list[int]:
        """One user event: nanoseconds until each other node delivered it."""
        source = self.daemons[turn % len(self.daemons)]
        others = [daemon for daemon in self.daemons if daemon is not source]
        name = f"bridge{turn}"
        asked_ns = source.say(name)
        _until(lambda: all(daemon.first("user", name, asked_ns) for daemon in others), _WAIT_S)
        time.sleep(_EVENT_GAP_S)
        return [at - asked_ns for daemon in others if (at := daemon.first("user", name, asked_ns)) is not None]

    def kill(self, index: int) -> tuple[list[int], int]:
        """Kill a node, and start it again once all know.

        Returns:
            Nanoseconds until each other node called it failed, and until the process was gone.
        """
        victim = self.daemons[index]
        others = [daemon for daemon in self.daemons if daemon is not victim]
        killed_ns = time.monotonic_ns()
        victim.process.kill()
        victim.process.wait()
        gone_ns = time.monotonic_ns()
        victim.end()
        _until(lambda: all(daemon.first("failed", victim.name, killed_ns) for daemon in others), _WAIT_S)
        took = [at - killed_ns for daemon in others if (at := daemon.first("failed", victim.name, killed_ns))]
        again_ns = time.monotonic_ns()
        self.daemons[index] = again = self._start(index)
        _until(
            lambda: all(
                daemon.first("join", victim.name, again_ns) and again.first("join", daemon.name) for daemon in others
            ),
            _START_TIMEOUT_S,
        )
        return took, gone_ns - killed_ns


def figures_of(place: Place, folder: Path, rounds: int = 12) -> HostFigures:
    """Measure this machine with two daemons: what the story of N is then predicted from.

    Args:
        place: Room for at least two daemons.
        folder: Where their files go.
        rounds: Events that are timed, and kills (a third as many).
    """
    swarm = RealSwarm(place, 2, folder, "calibration")
    try:
        swarm.await_formed()
        time.sleep(_SETTLE_S)
        hops = sorted(delay for turn in range(3 * rounds) for delay in swarm.tell(2 * turn))
        cpu_ns = _cpu_of_an_event(swarm, "warm", _WARM_GAP_S)
        wake_ns = max(0, _cpu_of_an_event(swarm, "cold", _COLD_GAP_S) - cpu_ns)
        gone = [swarm.kill(1)[1] for _ in range(max(3, rounds // 3))]
    finally:
        swarm.stop()
    cores = len(os.sched_getaffinity(0))
    quarter = len(hops) // 4
    spread_ns = hops[-1 - quarter] - hops[quarter]
    return HostFigures(int(median(hops)), spread_ns, cpu_ns, wake_ns, int(median(gone)), cores, _contention(cpu_ns))


def _cpu_of_an_event(swarm: RealSwarm, label: str, gap_s: float) -> int:
    """CPU time that the hearer of many events needs for each, without what it needs when nothing is said."""
    speaker, hearer = swarm.daemons
    idle_ns = -hearer.cpu_ns()
    time.sleep(_IDLE_S)
    before_ns = hearer.cpu_ns()
    idle_ns += before_ns
    since_ns = time.monotonic_ns()
    for number in range(_FLOOD):
        speaker.say(f"{label}{number}")
        time.sleep(gap_s)
    _until(lambda: sum(at > since_ns and kind == "user" for at, kind, _ in list(hearer.events)) >= _FLOOD, _WAIT_S)
    used_ns = hearer.cpu_ns() - before_ns
    took_s = (time.monotonic_ns() - since_ns) / NS_PER_S
    return max(0, used_ns - int(idle_ns * took_s / _IDLE_S)) // _FLOOD


def _contention(burst_ns: int) -> float:
    """How much longer than its CPU time a short burst of work takes now, because others want the cores too.

    A loop that never sleeps would say six times as much: the scheduler lets those first who have slept.
    """
    wall_ns = cpu_ns = 0
    for _ in range(_BURSTS):
        time.sleep(_BURST_GAP_S)
        wall_start_ns, cpu_start_ns = time.monotonic_ns(), time.thread_time_ns()
        while time.thread_time_ns() - cpu_start_ns < burst_ns:
            pass
        wall_ns += time.monotonic_ns() - wall_start_ns
        cpu_ns += time.thread_time_ns() - cpu_start_ns
    return max(1.0, wall_ns / max(1, cpu_ns))


def measure(place: Place, nodes: int, folder: Path, seconds: int, rounds: int, formations: int) -> Timings:
    """The real side of the story.

    Args:
        place: Room for all daemons.
        nodes: How many.
        folder: Where their files go.
        seconds: Quiet running time before the first event.
        rounds: Events, and kills.
        formations: How often the swarm is started from nothing.
    """
    found = Timings()
    pause = random.Random(nodes)
    for turn in range(formations):
        swarm = RealSwarm(place, nodes, folder, f"swarm{turn}")
        try:
            formation_ns, starts_ns = swarm.await_formed()
            found.formation_ns.append(formation_ns)
            found.starts_ns.append(starts_ns)
            if turn + 1 < formations:
                time.sleep(_SETTLE_S)
                continue
            time.sleep(seconds)
            for number in range(rounds):
                found.event_ns += swarm.tell(number)
            for number in range(rounds):
                # A random phase of everybody's period, since one kill's detection hangs on who asks first.
                time.sleep(_SETTLE_S + pause.random())
                took, gone_ns = swarm.kill(nodes - 1 - number % (nodes - 1))
                found.detection_ns += took
                found.teardown_ns.append(gone_ns)
        finally:
            swarm.stop()
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _until(done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def median_s(values: Sequence[int]) -> float | None:
    """The median of nanoseconds, in seconds; None of nothing."""
    return round(median(values) / NS_PER_S, 4) if values else None
