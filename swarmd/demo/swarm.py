"""`swarmd demo`: real daemons as processes on loopback survey one rendered solar farm together.

Each drone is an ordinary `swarmd run --dev-fleet` with a `sim://farm` source and the zoo's model. They find each
other, share the work by claims, infer on rendered thermal frames, share what they see, and agree. This file only
starts and watches them: everything it reports it reads through the control socket and the event lines that any other
program could read.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.api.histogram import Histogram
from swarmd.demo.listeners import DdsListener, MqttListener
from swarmd.demo.process import DaemonProcess, stop_all
from swarmd.errors import DaemonError

START_S = 60.0
"""Seconds until every daemon must serve."""
SETTLE_S = 20.0
"""Seconds after the flight until all must know the same."""
STABLE_S = 1.0
"""Seconds for which digests must stay equal."""
POLL_S = 0.5
"""Seconds between two looks at the daemons."""
OVERTIME = 2.0
"""On a busy machine an unfinished survey may take this many times the seconds asked for."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `swarmd demo` was asked for."""

    nodes: int = 4
    seconds: float = 30.0
    seed: int = 7
    faults: float = 0.025
    model: str = "zoo:small-320"
    out: Path = Path("out")
    extra: str = ""
    """More keys for the `sim://farm` address."""
    mqtt: bool = False
    dds: bool = False
    settings: tuple[str, ...] = ()
    """More `--set SECTION.KEY=VALUE` for every daemon."""
    page: str = ""
    """Where the ground view is served while they fly; "": nowhere."""


@dataclass(slots=True)
class Drone(DaemonProcess):
    """One daemon process and what it said."""

    status: dict[str, Any] = field(default_factory=dict)
    first_seen_ns: dict[str, int] = field(default_factory=dict)
    """Object id to the time its first event line said it."""
    rss_mb: dict[str, float] = field(default_factory=lambda: {"brain": 0.0, "eye": 0.0})
    path: list[tuple[float, float]] = field(default_factory=list)


class Demo:
    """One demonstration, from start to summary."""

    def __init__(self, options: DemoOptions, show: Callable[["Demo"], None]) -> None:
        """Prepare; `show` is called after every look at the daemons."""
        from swarmd_sim.world.address import parse_farm_url

        self.options = options
        self._show = show
        self.address = f"sim://farm?of={options.nodes}&seed={options.seed}&faults={options.faults}&fly=claims"
        if options.extra:
            self.address += "&" + options.extra
        self.farm = parse_farm_url(self.address).farm()
        self.folder = Path(tempfile.mkdtemp(prefix="swarmd-demo-"))
        self.drones = [Drone(f"drone-{i + 1}", self.folder / f"d{i + 1}.sock") for i in range(options.nodes)]
        self.began_ns = 0
        self.flown_s = 0.0
        self.objects: list[dict[str, Any]] = []
        self.mqtt: MqttListener | None = None
        self.dds: DdsListener | None = None
        self.observer = Drone("ground", self.folder / "ground.sock") if options.page else None
        """Its status stays empty: whoever watches a swarm does not count among its drones."""
        self.members = options.nodes + (self.observer is not None)
        self.page = ""
        """Address of the ground view, once it is served."""

    async def run(self) -> dict[str, Any]:
        """Fly and return the summary.

        Raises:
            DaemonError: A daemon does not start; its last words are in the message.
        """
        task = asyncio.current_task()
        assert task is not None
        # A demo that is told to end takes its daemons with it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            self._write_files()
            self._start_listeners()
            await self._start_all()
            await self._fly()
            await self._settle()
            return await asyncio.to_thread(self._summarise)
        finally:
            await stop_all(self._all)
            for listener in (self.mqtt, self.dds):
                if listener is not None:
                    listener.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- start ----------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        (self.folder / "site.csv").write_text(self.farm.site_map_csv())
        rows = [f"{cell.cell_id},{cell.east_m:.3f},{cell.north_m:.3f}" for cell in self.farm.cells]
        (self.folder / "cells.csv").write_text("\n".join(["cell_id,east_m,north_m", *rows]) + "\n")
        latitude, longitude = self.farm.origin
        groups = json.dumps([f"{label}=fault" for label in sorted(self._labels())])
        (self.folder / "swarmd.toml").write_text(
            f"[node]\norigin = [{latitude!r}, {longitude!r}]\n"
            f'[dedup]\nsite_map = "{self.folder}/site.csv"\ngroups = {groups}\n'
            f'[claims]\ncells = "{self.folder}/cells.csv"\nfly = true\n'
            '[eye]\nautostart = false\n[log]\nlevel = "warning"\nformat = "text"\n'
            '[http]\nlisten = "off"\n'
        )

    def _labels(self) -> set[str]:
        from swarmd_models.bundle import load_bundle

        return set(load_bundle(self.options.model).labels)

    def _start_listeners(self) -> None:
        if self.options.mqtt:
            self.mqtt = MqttListener(self.folder)
        if self.options.dds:
            self.dds = DdsListener()
            self.dds.start()

    async def _start_all(self) -> None:
        await self._spawn(self.drones[0], 0, "")
        await self._wait_for(lambda: bool(self.drones[0].address), "the first daemon to come up")
        for i, drone in enumerate(self.drones[1:], 1):
            await self._spawn(drone, i, self.drones[0].address)
        if self.observer is not None:
            await self._spawn_observer(self.observer, self.drones[0].address)
        await self._wait_for(self._all_ready, "all members and eyes")

    async def _spawn(self, drone: Drone, index: int, join: str) -> None:
        command = [
            sys.executable, "-m", "swarmd", "run", "-c", str(self.folder / "swarmd.toml"),
            "--dev-fleet", str(self.folder / "fleet"), "--name", drone.name, "--listen", "127.0.0.1:0",
            "--state", str(self.folder / drone.name), "--control", str(drone.control), "--events", "json",
            "--source", f"{self.address}&drone={index + 1}", "--model", self.options.model,
        ]  # fmt: skip
        command += ["--join", join] if join else []
        listeners = [listener.settings for listener in (self.mqtt, self.dds) if listener is not None]
        for setting in (*self.options.settings, *(setting for settings in listeners for setting in settings)):
            command += ["--set", setting]
        await drone.begin(command, lambda: self._read_events(drone))

    async def _spawn_observer(self, observer: Drone, join: str) -> None:
        command = [
            sys.executable, "-m", "swarmd", "ground", "-c", str(self.folder / "swarmd.toml"), "--page",
            self.options.page, "--dev-fleet", str(self.folder / "fleet"), "--name", observer.name, "--listen",
            "127.0.0.1:0", "--state", str(self.folder / observer.name), "--control", str(observer.control),
            "--join", join,
        ]  # fmt: skip
        await observer.begin(command, lambda: self._read_page(observer))

    async def _read_page(self, observer: Drone) -> None:
        async for line in observer.lines():
            said, _, address = line.decode().strip().partition(": ")
            self.page = address if said == "swarmd ground" else self.page

    async def _read_events(self, drone: Drone) -> None:
        async for event in drone.events():
            if event["event"] == "object" and event["kind"] == "new":
                drone.first_seen_ns.setdefault(event["subject"], event["t_ns"])

    @property
    def _all(self) -> list[Drone]:
        return self.drones if self.observer is None else [*self.drones, self.observer]

    def _all_ready(self) -> bool:
        is_shown = self.observer is None or bool(self.page)
        return is_shown and all(_alive(one.status) == self.members and one.status["model"] for one in self.drones)

    async def _wait_for(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            for drone in self._all:
                if drone.process is not None and drone.ended:
                    words = "\n".join(drone.last_words) or "it said nothing"
                    raise DaemonError(f"{drone.name} ended with status {drone.process.returncode}:\n{words}")
            if time.monotonic() > deadline:
                words = "\n".join(line for drone in self.drones for line in drone.last_words[-5:])
                raise DaemonError(f"waited {START_S:.0f} s for {what}:\n{words}")
            await self._look()
            await asyncio.sleep(0.1)

    # --- fly ------------------------------------------------------------------------------------------------------

    async def _fly(self) -> None:
        for drone in self.drones:
            await drone.ask("eye_start")
        self.began_ns = time.monotonic_ns()
        seconds = self.options.seconds
        while True:
            await asyncio.sleep(POLL_S)
            await self._look()
            self.flown_s = (time.monotonic_ns() - self.began_ns) / 1e9
            done = await self._cells_done()
            if self.flown_s >= seconds * OVERTIME or (self.flown_s >= seconds and done):
                break
        for drone in self.drones:
            await drone.ask("eye_stop")

    async def _cells_done(self) -> bool:
        answer = await self.drones[0].ask("cells")
        return all(cell["state"] == "done" for cell in answer.get("cells", []))

    async def _settle(self) -> None:
        """Wait until all digests are equal and stay so for a moment, or say what they are after `SETTLE_S`."""
        deadline, since, last = time.monotonic() + SETTLE_S, time.monotonic(), ""
        while time.monotonic() < deadline:
            await self._look()
            digests = {drone.status.get("digest", "") for drone in self.drones}
            now = digests.pop() if len(digests) == 1 else ""
            if not now or now != last:
                since, last = time.monotonic(), now
            elif time.monotonic() - since >= STABLE_S:
                return
            await asyncio.sleep(0.1)

    # --- look -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        for drone in self.drones:
            status = await drone.ask("status")
            if not status:
                continue
            drone.status = status
            eye = status["eye"]
            _grow(drone.rss_mb, "brain", drone.process.pid if drone.process is not None else None)
            _grow(drone.rss_mb, "eye", eye["pid"] if eye is not None else None)
            if eye is not None and eye["position"] is not None:
                drone.path.append(self.farm.to_plane(*eye["position"]))
        self._show(self)

    # --- end ------------------------------------------------------------------------------------------------------

    def _summarise(self) -> dict[str, Any]:
        from swarmd.demo.truth import compare

        views = [self._call(drone, "objects")["objects"] for drone in self.drones]
        stages = self._stages()
        frames = sum(drone.status["eye"]["frames"] for drone in self.drones)
        self.objects = views[0]
        cells = self._call(self.drones[0], "cells")["cells"]
        return {
            "nodes": len(self.drones),
            "seconds": self.options.seconds,
            "members": {drone.name: _alive(drone.status) for drone in self.drones},
            "digests": {drone.name: drone.status["digest"] for drone in self.drones},
            "frames": frames,
            "fps": round(frames / len(self.drones) / max(self.flown_s, 0.001), 2),
            "infer_ms": stages.get("infer", Histogram()).summary_ms(),
            "capture_to_local_ms": stages.get("capture_to_local", Histogram()).summary_ms(),
            "local_to_peer_ms": self._local_to_peer().summary_ms(),
            "detections": max(drone.status["detections"] for drone in self.drones),
            "objects": len(self.objects),
            "truth": compare(self.farm, self.objects),
            "claims": {
                "cells": len(cells),
                "done": sum(cell["state"] == "done" for cell in cells),
                "duplicate_work": sum(max(0, len(cell["done_by"]) - 1) for cell in cells),
            },
            "rss_mb": {part: max(drone.rss_mb[part] for drone in self.drones) for part in ("brain", "eye")},
            **({"mqtt": {"messages": self.mqtt.messages}} if self.mqtt is not None else {}),
            **({"dds": {"samples": self.dds.messages}} if self.dds is not None else {}),
        }

    def _call(self, drone: Drone, verb: str) -> dict[str, Any]:
        with ControlClient(drone.control) as client:
            return client.call(verb)

    def _stages(self) -> dict[str, Histogram]:
        total: dict[str, Histogram] = {}
        for drone in self.drones:
            for name, one in self._call(drone, "latency").items():
                buckets = {int(index): count for index, count in one["buckets"].items()}
                total.setdefault(name, Histogram()).merge(buckets, one["sum_ns"], one["max_ns"])
        return total

    def _local_to_peer(self) -> Histogram:
        """From an object's first appearance anywhere to its appearance at each other node; one clock, one host."""
        spread = Histogram()
        for subject in {subject for drone in self.drones for subject in drone.first_seen_ns}:
            times = sorted(drone.first_seen_ns[subject] for drone in self.drones if subject in drone.first_seen_ns)
            # What a hovering drone saw before the others had joined says nothing about the way to a peer.
            for later in times[1:] if times[0] >= self.began_ns else ():
                spread.add(later - times[0])
        return spread


def _alive(status: Mapping[str, Any]) -> int:
    return sum(state == "alive" for state in status.get("members", {}).values())


def _grow(rss_mb: dict[str, float], part: str, pid: int | None) -> None:
    """Keep the largest resident size seen."""
    if pid is None:
        return
    with contextlib.suppress(OSError, IndexError, ValueError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        rss_mb[part] = max(rss_mb[part], round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1))
