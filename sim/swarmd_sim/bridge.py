"""Bridge mode: the same story told by real daemons on loopback, and how far the simulator's medians are from theirs.

The story: N nodes start together and form one swarm, user events are broadcast one by one, and nodes are killed one by
one. Each number is a median over all (node, happening) pairs. Loopback stands in for the radio, so the predicted side
runs with a loopback's delay and no loss.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from swarmd_sim.errors import SimError
from swarmd_sim.faults import Fault
from swarmd_sim.scenario import NS_PER_S, Scenario, scenario_from_table
from swarmd_sim.simulation import Options, Simulation

LOOPBACK_MS = 0.8
"""From one node's decision to the event at its peer: two event loops and the kernel, on an idle machine."""
_START_TIMEOUT_S = 60.0
_EVENT_GAP_S = 0.5
_KILL_GAP_S = 4.0
_WAIT_S = 12.0


@dataclass(frozen=True, slots=True)
class Medians:
    """What both sides measure, seconds; None where nothing was seen."""

    formation_s: float | None
    event_s: float | None
    detection_s: float | None


@dataclass(frozen=True, slots=True)
class BridgeTable:
    """Predicted beside real."""

    nodes: int
    predicted: Medians
    real: Medians

    def rows(self) -> list[tuple[str, float | None, float | None, float | None]]:
        """(what, predicted, real, relative error)."""
        found = []
        for name in ("formation_s", "event_s", "detection_s"):
            ours, theirs = getattr(self.predicted, name), getattr(self.real, name)
            error = abs(ours - theirs) / theirs if ours is not None and theirs else None
            found.append((name, ours, theirs, error))
        return found

    def lines(self) -> list[str]:
        """The table as Markdown."""
        head = [f"{self.nodes} nodes", "| median | predicted s | real s | error |", "|---|---:|---:|---:|"]
        rows = []
        for name, ours, theirs, error in self.rows():
            off = "-" if error is None else f"{error:.0%}"
            rows.append(f"| {name.removesuffix('_s')} | {_text(ours)} | {_text(theirs)} | {off} |")
        return head + rows

    def to_json(self) -> dict[str, Any]:
        """The form in JSON."""
        rows = {name: {"predicted": ours, "real": theirs, "error": error} for name, ours, theirs, error in self.rows()}
        return {"nodes": self.nodes, **rows}


def compare(nodes: int, seconds: int, seed: int, rounds: int) -> BridgeTable:
    """Run the story on both sides.

    Args:
        nodes: How many daemons.
        seconds: Quiet running time before the first event.
        seed: Of the predicted side.
        rounds: Events, and kills.

    Returns:
        The table.

    Raises:
        SimError: A daemon does not start.
    """
    if rounds >= nodes:
        raise SimError(f"{rounds} kills need more than {nodes} nodes; lower --rounds or raise --nodes")
    return BridgeTable(nodes, predict(nodes, seconds, seed, rounds), measure(nodes, seconds, rounds))


# --- Predicted --------------------------------------------------------------------------------------------------------


def bridge_scenario(nodes: int, seconds: int, rounds: int) -> Scenario:
    """The story as a scenario: loopback delay, no drones, no chatter.

    Args:
        nodes: How many daemons.
        seconds: Quiet running time before the first event.
        rounds: Events, and kills.

    Returns:
        The scenario.
    """
    total = int(seconds + rounds * (_EVENT_GAP_S + _KILL_GAP_S) + _WAIT_S) + 2
    return scenario_from_table(
        {
            "swarm": {"nodes": nodes, "seconds": total, "start_within_s": 0.05, "seeds": 1},
            "site": {"kind": "none"},
            "drones": {"work": "none"},
            "radio": {"latency_ms": LOOPBACK_MS, "jitter_ms": LOOPBACK_MS, "rate_mbit_s": 1000.0, "loss": 0.0},
            "device": {"cpu_us_per_event": 150, "drift_ppm": 0, "wall_offset_s": 0.0},
            "workload": {
                "user_events_per_min": 0,
                "notes_per_min": 0,
                "detections_per_min": 0,
                "status_s": 10.0,
                "counters_s": 0,
            },
            "checks": {"settle_s": 1.0},
        },
        name="bridge",
    )


def predict(nodes: int, seconds: int, seed: int, rounds: int) -> Medians:
    """The simulator's side; arguments as in `compare`."""
    from swarmd_protocols.effects import UserEvent

    scenario = bridge_scenario(nodes, seconds, rounds)
    first_kill_ns = int((seconds + rounds * _EVENT_GAP_S + 1) * NS_PER_S)
    kills = [
        Fault(first_kill_ns + turn * int(_KILL_GAP_S * NS_PER_S), "kill", (nodes - 1 - turn,), 10**12, 0)
        for turn in range(rounds)
    ]
    run = Simulation(scenario, seed, Options(script=kills))
    for turn in range(rounds):
        host = run.hosts[turn % nodes]
        at_ns = int((seconds + turn * _EVENT_GAP_S) * NS_PER_S)

        def say(number: int, host: Any = host) -> None:
            host.handle(UserEvent(f"bridge{number}", b"x"))
            run.ledger.user_event(host, f"bridge{number}", "")

        run.engine.at(at_ns, say, turn)
    run.run()
    last_up_ns = max(run.first_boots_ns)
    return Medians(
        max(0, run.formed_ns - last_up_ns) / NS_PER_S if run.formed_ns >= 0 else None,
        _median(run.event_delays_ns()),
        _median(run.watch.detection_ns),
    )


# --- Real -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Daemon:
    name: str
    process: "subprocess.Popen[str]"
    events: list[tuple[int, str, str]] = field(default_factory=list)
    """(monotonic ns, event, subject)."""

    def read(self) -> None:
        """Collect its event lines until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                row = json.loads(line)
                self.events.append((int(row["t_ns"]), str(row["event"]), str(row["subject"])))
            except (ValueError, KeyError, TypeError):
                continue

    def first(self, event: str, subject: str, after_ns: int = 0) -> int | None:
        """When it first said so."""
        said = list(self.events)
        return next((at for at, kind, who in said if (kind, who) == (event, subject) and at > after_ns), None)


def measure(nodes: int, seconds: int, rounds: int) -> Medians:
    """The real side; arguments as in `compare`."""
    with tempfile.TemporaryDirectory(prefix="swarmd-bridge-") as folder:
        daemons = _start(nodes, Path(folder))
        try:
            return _story(daemons, seconds, rounds)
        finally:
            for daemon in daemons:
                daemon.process.kill()
            for daemon in daemons:
                daemon.process.wait()


def _start(nodes: int, folder: Path) -> list[_Daemon]:
    ports = _free_ports(nodes)
    daemons = []
    for index, port in enumerate(ports):
        name = f"n{index}"
        command = [sys.executable, "-m", "swarmd", "run", "--no-eye", "--name", name, "--events", "json"]
        command += ["--listen", f"127.0.0.1:{port}", "--dev-fleet", str(folder / "fleet"), "--http", "off"]
        command += ["--state", str(folder / name), "--control", str(folder / f"{name}.sock")]
        command += ["--join", f"127.0.0.1:{ports[0]}"] if index else []
        log = (folder / f"{name}.log").open("w", encoding="utf-8")
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )
        log.close()
        daemon = _Daemon(name, process)
        threading.Thread(target=daemon.read, daemon=True).start()
        daemons.append(daemon)
    return daemons


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


def _story(daemons: Sequence[_Daemon], seconds: int, rounds: int) -> Medians:
    def formed() -> bool:
        return all(a.first("join", b.name) is not None for a in daemons for b in daemons if a is not b)

    if not _until(formed, _START_TIMEOUT_S):
        raise SimError(f"{len(daemons)} daemons did not form one swarm within {_START_TIMEOUT_S:g} s; run one by hand")
    joins = [at for a in daemons for b in daemons if a is not b and (at := a.first("join", b.name)) is not None]
    # Processes take long to start on a busy machine; formation counts from the moment the last one is up.
    last_up = max(at for daemon in daemons for at, kind, _who in daemon.events if kind == "up")
    formation_s = max(0.0, (max(joins) - last_up) / NS_PER_S)
    time.sleep(seconds)
    delays = [delay for turn in range(rounds) for delay in _one_event(daemons, turn)]
    time.sleep(1.0)
    detections: list[int] = []
    alive = list(daemons)
    for _turn in range(rounds):
        detections += _one_kill(alive)
    return Medians(formation_s, _median(delays), _median(detections))


def _one_event(daemons: Sequence[_Daemon], turn: int) -> list[int]:
    source = daemons[turn % len(daemons)]
    name = f"bridge{turn}"
    assert source.process.stdin is not None
    sent_ns = time.monotonic_ns()
    source.process.stdin.write(json.dumps({"cmd": "event", "name": name}) + "\n")
    source.process.stdin.flush()
    others = [daemon for daemon in daemons if daemon is not source]
    _until(lambda: all(_heard(daemon, sent_ns) for daemon in others), _WAIT_S)
    time.sleep(_EVENT_GAP_S)
    return [at - sent_ns for daemon in others if (at := _heard(daemon, sent_ns)) is not None]


def _heard(daemon: _Daemon, after_ns: int) -> int | None:
    return next((at for at, kind, _who in list(daemon.events) if kind == "user" and at > after_ns), None)


def _one_kill(alive: list[_Daemon]) -> list[int]:
    victim = alive.pop()
    killed_ns = time.monotonic_ns()
    victim.process.kill()
    _until(lambda: all(daemon.first("failed", victim.name, killed_ns) for daemon in alive), _WAIT_S)
    time.sleep(1.0)
    return [at - killed_ns for daemon in alive if (at := daemon.first("failed", victim.name, killed_ns)) is not None]


def _median(values: Sequence[int]) -> float | None:
    return round(median(values) / NS_PER_S, 4) if values else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
