"""The brain's side of the eye: its supervision, what it sees, which cells its source surveys.

Frames live and die in the eye; what arrives here are track events, counters and cell reports. When the eye dies its
tracks end, its cells are assigned again to the next one, and the swarm is told nothing but fewer frames.
"""

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from swarmd.api.metrics import Metrics
from swarmd.brain.bus import Bus, Notice
from swarmd.brain.driver import Driver
from swarmd.brain.pictures import Pictures
from swarmd.bridges.base import DetectionSeen, PoseSeen
from swarmd.config.bridges import eye_pose_for
from swarmd.config.sections import Config
from swarmd.errors import EyeError
from swarmd.eye import ipc
from swarmd.eye.supervisor import EyeSupervisor
from swarmd.logs import Logger
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.types import Pose, TrackEvent
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import (
    CellAssigned,
    CellDone,
    CellLost,
    CellProgress,
    Count,
    LocalDetection,
    Observed,
    StatusReport,
    WantCell,
)

FPS_WINDOW_NS = 5_000_000_000
STATUS_NS = 10_000_000_000
TRACK_GAP = 1000
"""Track ids that an ended eye may have given without our having read them."""
RETRY_QUALITY_MILLI = 500
"""A cell surveyed worse than this, because frames were missed, is flown once more before it is called done."""


Box = tuple[float, float, float, float]


class EyeLink:
    """One supervised eye and what becomes of its messages."""

    def __init__(
        self,
        config: Config,
        driver: Driver,
        bus: Bus,
        sightings: SightingFilter[LocalDetection],
        metrics: Metrics,
        log: Logger,
        node: NodeId,
        name: str,
    ) -> None:
        """Prepare; `run` starts the child process."""
        self._config = config
        self._driver = driver
        self._bus = bus
        self._sightings = sightings
        self._log = log
        self._node = node
        self._name = name
        self._stages = metrics
        self._to_local = metrics.stage("capture_to_local")
        self._supervisor: EyeSupervisor | None = None
        self._flying = config.eye.autostart
        self._closed = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._highest_track = 0
        self.model = ""
        self.model_digest = ""
        self.labels: tuple[str, ...] = ()
        self.device: Mapping[str, Any] = {}
        """What the eye says this device is (`swarmd_models.device.Device`)."""
        self.problem = ""
        self.frames = 0
        self.detections = 0
        self.pose: PoseSeen | None = None
        self._stats: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._recent: deque[int] = deque(maxlen=1024)
        self._uncounted = {"frames_inferred": 0, "detections": 0}
        self._status_ns = 0
        self.model_path = config.eye.model
        """The bundle the eye is started with; releases put theirs here."""
        self._listeners: list[Callable[[ipc.FromEye], None]] = []
        self._cells: list[str] = []
        self._again: set[str] = set()
        self.pictures = Pictures(self._send)
        bus.subscribe(self._on_notice)

    # --- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the eye, again after each `start`, until `close`.

        Raises:
            EyeError: It is given up and never saw a frame: what was configured cannot work.
        """
        while not self._closed:
            await self._wanted.wait()
            try:
                await self._one_run()
            except EyeError as error:
                self.problem = str(error)
                self._log.error("eye_given_up", error=str(error))
                if self.frames == 0:
                    raise
                # It worked until now: the rest of the node goes on, and serves what the swarm knows.
            finally:
                self._wanted.clear()
                self._tracks_end()

    async def _one_run(self) -> None:
        eye, pose = self._config.eye, self._config.pose
        self._supervisor = EyeSupervisor(
            ipc.Configure(
                source=eye.source,
                model=self.model_path,
                labels=eye.labels,
                max_frames=eye.max_frames,
                pose=eye_pose_for(pose.source, self._config.mavlink),
                hfov_deg=pose.hfov_deg,
                backends=eye.backends,
                frame_interval_ms=eye.frame_interval_ms,
                keep_frames=eye.keep_frames,
                keep_frames_bytes=eye.keep_frames_mib << 20,
                first_track_id=self._highest_track + TRACK_GAP,
            ),
            on_message=self._on_message,
            fallback_models=eye.fallback_models,
            log=self._on_supervisor,
        )
        await self._supervisor.run()

    def _on_supervisor(self, event: str, text: str) -> None:
        say = self._log.info if event == "eye_ready" else self._log.warning
        say(event, text=text)

    async def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self.stop()
        self._wanted.set()
        self.tick()

    def start(self) -> None:
        """Let it see, and, where the source flies by claims, ask for cells."""
        self._flying = True
        self._wanted.set()
        self._want_cells()

    def stop(self) -> None:
        """End the eye's process; its tracks end and its cells are left to others, what was seen stays."""
        self._flying = False
        self._cells.clear()
        if self._supervisor is not None:
            self._supervisor.stop()

    # --- what others read -----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`starting`, `running`, `restarting`, `degraded`, `finished` or `failed`."""
        return self._supervisor.state if self._supervisor is not None else "starting"

    @property
    def fps(self) -> float:
        """Frames a second over the last five seconds."""
        now = time.monotonic_ns()
        recent = [at for at in self._recent if now - at <= FPS_WINDOW_NS]
        if len(recent) < 2:
            return 0.0
        # In its first seconds an eye is judged by the time since its first frame.
        window_ns = FPS_WINDOW_NS if len(recent) < len(self._recent) else max(now - recent[0], 1_000_000_000)
        return round(len(recent) / (window_ns / 1e9), 2)

    def counters(self) -> dict[str, int]:
        """Monotonic counts."""
        counts = {"frames": self.frames, "detections": self.detections, **self._stats}
        if self._supervisor is not None:
            counts |= {"restarts": self._supervisor.restarts, **self._supervisor.counters}
        return counts

    def gauges(self) -> Mapping[str, float]:
        """What the eye measures of itself: drift, uncertainty, rates."""
        return self._gauges

    def status(self) -> Mapping[str, Any]:
        """What `swarmd status` shows."""
        pose = self.pose
        return {
            "state": self.state,
            "flying": self._flying,
            "pid": self._supervisor.pid if self._supervisor is not None else None,
            "frames": self.frames,
            "problem": self.problem,
            "model_digest": self.model_digest,
            "device": dict(self.device),
            "cells": list(self._cells),
            "counters": self.counters(),
            "gauges": dict(self._gauges),
            "position": None if pose is None else [pose.latitude_deg, pose.longitude_deg],
        }

    def tick(self) -> None:
        """Once a second: shared counters, and now and then the node's status record."""
        increments = tuple((name, count) for name, count in self._uncounted.items() if count)
        if increments:
            self._command(Count(increments))
            self._uncounted = dict.fromkeys(self._uncounted, 0)
        now = time.monotonic_ns()
        if self.model and now - self._status_ns >= STATUS_NS:
            self._status_ns = now
            self._command(StatusReport(self._status_record()))
            self._log.info(
                "eye",
                model_digest=self.model_digest,
                fps=self.fps,
                infer_ms=self._stages.stage("infer").summary_ms()["p50"],
                frames=self.frames,
                detections=self.detections,
            )
        if self._cells and self._flying:
            self._command(CellProgress(self._cells[0]))
        self._want_cells()

    @property
    def pid(self) -> int | None:
        """Of the eye's process, while there is one."""
        return self._supervisor.pid if self._supervisor is not None else None

    def listen(self, callback: Callable[[ipc.FromEye], None]) -> Callable[[], None]:
        """Call back for each message of the eye from now on; the returned function ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def swap_model(self, model: str) -> None:
        """Have the eye change to this bundle between two frames; the eye answers with `SwapDone`."""
        self._send(ipc.SwapModel(model))

    def update_pose(
        self,
        camera_to_ned: tuple[float, float, float, float],
        latitude_deg: float,
        longitude_deg: float,
        height_agl_m: float,
        position_sigma_m: float,
        has_fix: bool,
        captured_ns: int,
    ) -> None:
        """Pass on the autopilot's pose."""
        pose = Pose(
            captured_ns=captured_ns,
            latitude_deg=latitude_deg,
            longitude_deg=longitude_deg,
            height_agl_m=height_agl_m,
            camera_to_ned=camera_to_ned,
            position_sigma_m=position_sigma_m,
            has_fix=has_fix,
        )
        self._send(ipc.PoseUpdate(pose))

    # --- from the eye ---------------------------------------------------------------------------------------------

    def _on_message(self, message: ipc.FromEye) -> None:
        for listener in list(self._listeners):
            listener(message)
        match message:
            case ipc.SwapDone(ok=True):
                self._on_swapped(message)
            case ipc.FrameDone():
                self._on_frame(message)
            case ipc.Ready():
                self._on_ready(message)
            case ipc.Stats(counters, gauges):
                self._stats, self._gauges = counters, gauges
            case ipc.Problem(text, fatal):
                self.problem = text
                self._log.warning("eye_problem", text=text, fatal=fatal)
            case ipc.CellDone(cell, quality):
                self._on_cell_done(cell, quality)
            case ipc.CellReached(cell) if cell in self._cells:
                self._command(CellProgress(cell))
            case ipc.Picture():
                self.pictures.take(message)
            case ipc.Here():
                self._on_here(message)
            case ipc.Finished(frames):
                self._log.info("eye_finished", frames=frames)
            case _:
                pass  # Heartbeats are the supervisor's; a refused swap is its asker's.

    def _on_ready(self, ready: ipc.Ready) -> None:
        self.model, self.model_digest, self.labels = f"{ready.model} {ready.version}", ready.digest, ready.labels
        self.problem = ""
        self.device = ready.device
        self._log.info("eye_model", model=ready.model, model_digest=ready.digest, backend=ready.backend)
        self._tracks_end()
        if self.pictures.wanted:
            self.pictures.ask()
        for cell in self._cells:
            self._send(ipc.AssignCell(cell))
        self._want_cells()

    def _on_swapped(self, swap: ipc.SwapDone) -> None:
        self.model, self.model_digest, self.labels = f"{swap.model} {swap.version}", swap.digest, swap.labels
        if not swap.chosen:
            # What the eye chose for the heat of the moment is no model to start the next one with.
            self.model_path = swap.path
            if self._supervisor is not None:
                self._supervisor.use_model(self.model_path)
        self._log.info("eye_model", model=swap.model, model_digest=swap.digest, backend="swapped")

    def _on_frame(self, frame: ipc.FrameDone) -> None:
        now = time.monotonic_ns()
        if frame.frame_index >= 0:
            self.frames += 1
            self._recent.append(now)
            self._uncounted["frames_inferred"] += 1
        self.detections += frame.detections
        self._uncounted["detections"] += frame.detections
        for stage, duration_ns in frame.stage_ns.items():
            self._stages.stage(stage).add(duration_ns)
        boxes = {event.track_id: shares_of(event.box, frame.width, frame.height) for event in frame.events}
        self._share([self._local(event) for event in frame.events], frame, boxes)

    def _share(
        self,
        found: list[LocalDetection],
        frame: ipc.FrameDone,
        boxes: Mapping[int, Box | None],
    ) -> None:
        passed = self._sightings.take(found)
        if not passed:
            return
        self._command(Observed(tuple(passed)))
        now = time.monotonic_ns()
        for detection in passed:
            if detection.kind == "new":
                # From the frame that settled it: a track may be held back until its asset is sure.
                self._to_local.add(now - frame.captured_ns)
            self._bus.publish(
                DetectionSeen(
                    self._node,
                    self._name,
                    detection,
                    0,
                    stage_ns=frame.stage_ns,
                    started_ns=frame.started_ns,
                    box=boxes.get(detection.track_id),
                )
            )

    def _local(self, event: TrackEvent) -> LocalDetection:
        self._highest_track = max(self._highest_track, event.track_id)
        return self._sightings.place(event, self.model_digest, self._config.eye.moving)

    def _on_here(self, here: ipc.Here) -> None:
        if here.pose is None:
            return
        self.pose = PoseSeen(
            latitude_deg=here.pose.latitude_deg,
            longitude_deg=here.pose.longitude_deg,
            height_agl_m=here.pose.height_agl_m,
            yaw_rad=_heading_rad(here.pose.camera_to_ned),
            position_sigma_m=here.pose.position_sigma_m,
            has_fix=here.pose.has_fix,
            battery_milli=here.battery_milli if here.battery_milli >= 0 else None,
            captured_ns=here.pose.captured_ns,
            camera_to_ned=here.pose.camera_to_ned,
        )
        self._bus.publish(self.pose)

    def _tracks_end(self) -> None:
        ends = self._sightings.forget_all(time.monotonic_ns())
        if ends:
            self._command(Observed(tuple(ends)))

    # --- cells ----------------------------------------------------------------------------------------------------

    def _want_cells(self) -> None:
        if not (self._flying and self._config.claims.fly and self.model) or self._closed or len(self._cells) >= 2:
            return
        east_m, north_m, battery = 0.0, 0.0, 1000
        if self.pose is not None and self._sightings.plane is not None:
            east_m, north_m = self._sightings.plane.to_m(self.pose.latitude_deg, self.pose.longitude_deg)
            battery = self.pose.battery_milli if self.pose.battery_milli is not None else 1000
        self._command(WantCell(round(east_m * 100), round(north_m * 100), battery))

    def _on_notice(self, notice: Notice) -> None:
        if isinstance(notice, PoseSeen) and notice is not self.pose and notice.battery_milli is not None:
            self._send(ipc.Power(notice.battery_milli))
        if not isinstance(notice, StateChanged):
            return
        match notice.detail:
            case CellAssigned(cell) if self._flying and self._config.claims.fly:
                if cell not in self._cells:
                    self._cells.append(cell)
                    self._send(ipc.AssignCell(cell))
                    self._want_cells()
            case CellLost(cell) if cell in self._cells:
                self._cells.remove(cell)
                self._send(ipc.DropCell(cell))
                self._want_cells()
            case _:
                pass

    def _on_cell_done(self, cell: str, quality_milli: int) -> None:
        if cell not in self._cells:
            return
        if quality_milli < RETRY_QUALITY_MILLI and cell not in self._again:
            self._again.add(cell)
            self._log.warning("cell_again", cell=cell, quality_milli=quality_milli)
            self._send(ipc.AssignCell(cell))
            return
        self._cells.remove(cell)
        self._again.discard(cell)
        self._command(CellDone(cell, quality_milli))
        self._want_cells()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _send(self, message: ipc.ToEye) -> None:
        if self._supervisor is not None:
            self._supervisor.send(message)

    def _command(self, request: object) -> None:
        try:
            self._driver.command("state", request)
        except StateError as error:
            self._log.warning("state_refused", request=type(request).__name__, error=str(error))

    def _status_record(self) -> bytes:
        import json

        record = {
            "model": self.model,
            "digest": self.model_digest[:16],
            "fps": self.fps,
            "eye": self.state,
            "device": {name: self.device[name] for name in ("machine", "cores", "memory_mb") if name in self.device},
            "battery_milli": self.pose.battery_milli if self.pose is not None else None,
            "load": round(os.getloadavg()[0], 2),
        }
        return json.dumps(record, separators=(",", ":")).encode()[:1024]


def shares_of(box: Box, width: int, height: int) -> Box | None:
    """A box in pixels as shares of the frame, cut at its border; None where the frame's size is not known.

    >>> shares_of((10.0, 20.0, 30.0, 500.0), 100, 200)
    (0.1, 0.1, 0.3, 1.0)
    """
    if width <= 0 or height <= 0:
        return None
    x1, y1, x2, y2 = (min(max(side / size, 0.0), 1.0) for side, size in zip(box, (width, height) * 2, strict=True))
    return x1, y1, x2, y2


def _heading_rad(camera_to_ned: tuple[float, float, float, float]) -> float:
    """Where the camera looks over the ground, also straight down: forward and image-up, added, never both vanish."""
    w, x, y, z = camera_to_ned
    forward = (1 - 2 * (y * y + z * z), 2 * (x * y + w * z))
    up = (-2 * (x * z + w * y), -2 * (y * z - w * x))
    return math.atan2(forward[1] + up[1], forward[0] + up[0])
