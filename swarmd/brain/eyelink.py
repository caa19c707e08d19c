"""The brain's link to the eye's process: its supervision, its messages in and out.

Frames live and die in the eye; what arrives here are track events (`TrackFeed`), counters (`EyeTelemetry`) and cell
reports (`CellPilot`). When the eye dies its tracks end, its cells are assigned again to the next one, and the swarm is
told nothing but fewer frames.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from swarmd.api.bus import Bus
from swarmd.api.daemon import Look, PoseSeen
from swarmd.api.metrics import Metrics
from swarmd.brain.cell_pilot import CellPilot
from swarmd.brain.driver import Driver
from swarmd.brain.eye_telemetry import EyeTelemetry
from swarmd.brain.heap import give_back_heap
from swarmd.brain.pictures import Pictures
from swarmd.brain.track_feed import TrackFeed
from swarmd.config.bridges import eye_pose_for
from swarmd.config.sections import Config
from swarmd.errors import EyeError
from swarmd.eye import ipc
from swarmd.eye.ground import terrain_words
from swarmd.eye.supervisor import EyeSupervisor
from swarmd.logs import Logger
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.types import Pose
from swarmd_protocols.errors import StateError
from swarmd_protocols.state.observations import LocalDetection
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import Shelve

_SCALES_MAX = 1_024
"""Pictures whose scale is remembered: as many things as a judge is asked about."""


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
        gate_fd: int = -1,
    ) -> None:
        """Prepare; `run` starts the child process, which shows at `gate_fd` when it works."""
        self._gate_fd = gate_fd
        self._config = config
        self._driver = driver
        self._bus = bus
        self._plane = sightings.plane
        self._log = log
        self._supervisor: EyeSupervisor | None = None
        self._closed = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._listeners: list[Callable[[ipc.FromEye], None]] = []
        self._flying = config.eye.autostart
        self.model = ""
        self.model_digest = ""
        self.labels: tuple[str, ...] = ()
        self._alike_milli = (0, 0)
        self.model_path = config.eye.model
        """The bundle the eye is started with; releases put theirs here."""
        self.problem = ""
        self._said: tuple[str, str] | None = None
        """Model and state of the last line about the eye in the log."""
        self.on_event: Callable[[str, str], None] = lambda event, text: None
        """Told of starts, deaths, steps down and changes of the model, for the history."""
        self.pose: PoseSeen | None = None
        self.pictures = Pictures(self._send)
        self.telemetry = EyeTelemetry(metrics, self._command)
        self._tracks = TrackFeed(
            sightings, self._command, metrics.stage("capture_to_local"), config.eye.moving, self._shelve
        )
        self._scales: dict[bytes, tuple[float, tuple[float, float] | None]] = {}
        """By picture's name, the newest last."""
        self._pilot = CellPilot(self._command, self._send, self._where, log)
        bus.subscribe(self._tracks.on_notice)
        driver.on_order("state", self._pilot.on_order)

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
                if self.telemetry.frames == 0:
                    raise
                # It worked until now: the rest of the node goes on, and serves what the swarm knows.
            finally:
                self._wanted.clear()
                self._tracks.end_all()

    async def _one_run(self) -> None:
        eye, pose, privacy = self._config.eye, self._config.pose, self._config.privacy
        self._supervisor = EyeSupervisor(
            ipc.Configure(
                source=eye.source,
                model=self.model_path,
                labels=eye.labels,
                max_frames=eye.max_frames,
                pose=eye_pose_for(pose.source, self._config.mavlink),
                camera=ipc.CameraRule(
                    pose.hfov_deg, pose.calibration, pose.boresight_deg, terrain_words(pose), pose.attitude_sigma_deg
                ),
                backends=eye.backends,
                frame_interval_ms=eye.frame_interval_ms,
                keep_frames=eye.keep_frames,
                keep_frames_bytes=eye.keep_frames_mib << 20,
                first_track_id=self._tracks.first_track_id,
                point=ipc.OperatingPoint(eye.false_alarms_per_1000, eye.candidates_per_1000, eye.reject),
                thumbnails=eye.thumbnails,
                private=ipc.PrivateRule(
                    eye.thumbnails_never, privacy.detector, privacy.masks, privacy.show == "frames"
                ),
                looks=eye.looks and not eye.moving,
            ),
            on_message=self._on_message,
            fallback_models=eye.fallback_models,
            log=self._on_supervisor,
            gate_fd=self._gate_fd,
        )
        await self._supervisor.run()

    def _on_supervisor(self, event: str, text: str) -> None:
        is_ready = event == "eye_ready"
        say = self._log.info if is_ready else self._log.warning
        say(event, text=text)
        if is_ready:
            give_back_heap()  # The model was read and hashed, the eye's modules were loaded.
        self.on_event(event, text)

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
        self._fly()

    def stop(self) -> None:
        """End the eye's process; its tracks end and its cells are left to others, what was seen stays."""
        self._flying = False
        self._pilot.drop_all()
        if self._supervisor is not None:
            self._supervisor.stop()

    # --- what others read -----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`starting`, `running`, `source_lost`, `restarting`, `degraded`, `finished` or `failed`."""
        return self._supervisor.state if self._supervisor is not None else "starting"

    def counters(self) -> dict[str, int]:
        """Monotonic counts."""
        told = self.telemetry
        counts = {"frames": told.frames, "detections": told.detections, **told.stats}
        if self._supervisor is not None:
            counts |= {"restarts": self._supervisor.restarts, **self._supervisor.counters}
        return counts

    def look(self, track_id: int) -> Look | None:
        """How a living track was seen last."""
        return self._tracks.look(track_id)

    def status(self) -> Mapping[str, Any]:
        """What `swarmd status` shows."""
        pose = self.pose
        return {
            "state": self.state,
            "flying": self._flying,
            "pid": self._supervisor.pid if self._supervisor is not None else None,
            "frames": self.telemetry.frames,
            "problem": self.problem,
            "model_digest": self.model_digest,
            "device": dict(self.telemetry.device),
            "cells": list(self._pilot.cells),
            "counters": self.counters(),
            "gauges": dict(self.telemetry.gauges),
            "position": None if pose is None else [pose.latitude_deg, pose.longitude_deg],
        }

    def tick(self) -> None:
        """Once a second: shared counters, and now and then the node's status record."""
        self.telemetry.count()
        battery = self.pose.battery_milli if self.pose is not None else None
        said = self.telemetry.report(self.model, self.model_digest, self.state, battery)
        if said is not None:
            # Of what stays as it is, one line is enough; the numbers are in status and metrics.
            standing = (self.model_digest, self.state)
            say = self._log.debug if standing == self._said else self._log.info
            self._said = standing
            say("eye", state=self.state, **said)
        self._pilot.tick()

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

    def update_pose(self, seen: PoseSeen) -> None:
        """Pass on the autopilot's pose."""
        self.pose = seen
        if seen.battery_milli is not None:
            self._send(ipc.Power(seen.battery_milli))
        if seen.camera_to_ned is None:
            return
        pose = Pose(
            captured_ns=seen.captured_ns,
            latitude_deg=seen.latitude_deg,
            longitude_deg=seen.longitude_deg,
            height_agl_m=seen.height_agl_m,
            camera_to_ned=seen.camera_to_ned,
            position_sigma_m=seen.position_sigma_m,
            has_fix=seen.has_fix,
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
                self.telemetry.on_frame(message)
                self._tracks.take(message, self.model_digest, self._alike_milli)
            case ipc.Ready():
                self._on_ready(message)
            case ipc.Stats(counters, gauges):
                self.telemetry.stats, self.telemetry.gauges = counters, gauges
            case ipc.Problem(text, fatal):
                self.problem = text
                self._log.warning("eye_problem", text=text, fatal=fatal)
            case ipc.SourceState(problem, gives):
                self.problem = problem
                say = self._log.warning if problem else self._log.info
                say("eye_source", text=problem or gives or "frames come again")
            case ipc.Choice(text):
                self._log.info("eye_choice", text=text)
            case ipc.CellDone(cell, quality):
                self._pilot.on_done(cell, quality)
            case ipc.CellReached(cell):
                self._pilot.on_reached(cell)
            case ipc.Picture():
                self.pictures.take(message)
            case ipc.Crop():
                self._tracks.take_crop(message)
            case ipc.Here():
                self._on_here(message)
            case ipc.Finished(frames):
                self._log.info("eye_finished", frames=frames)
            case _:
                pass  # Heartbeats are the supervisor's; a refused swap is its asker's.

    def _on_ready(self, ready: ipc.Ready) -> None:
        self.model, self.model_digest, self.labels = f"{ready.model} {ready.version}", ready.digest, ready.labels
        self._alike_milli = ready.alike_milli
        self.problem = ""
        self.telemetry.device = ready.device
        self._log.info("eye_model", model=ready.model, model_digest=ready.digest, backend=ready.backend)
        self._tracks.end_all()
        if self.pictures.wanted:
            self.pictures.ask()
        self._fly()
        self._pilot.again()

    def _on_swapped(self, swap: ipc.SwapDone) -> None:
        self.model, self.model_digest, self.labels = f"{swap.model} {swap.version}", swap.digest, swap.labels
        self._alike_milli = swap.alike_milli
        if not swap.chosen:
            # What the eye chose for the heat of the moment is no model to start the next one with.
            self.model_path = swap.path
            if self._supervisor is not None:
                self._supervisor.use_model(self.model_path)
        self._log.info("eye_model", model=swap.model, model_digest=swap.digest, backend="swapped")
        self.on_event("eye_model", f"{swap.model} {swap.version}" + (", chosen by the eye" if swap.chosen else ""))

    def _on_here(self, here: ipc.Here) -> None:
        if here.pose is None:
            return
        is_first = self.pose is None
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
        if is_first:
            if self._plane is None:
                text = "node.origin is not set: detections are shared without a place; set it, the same on every node"
                self._log.warning("no_origin", text=text)
            self._pilot.want()

    # --- cells ----------------------------------------------------------------------------------------------------

    def _fly(self) -> None:
        """A source that flies by claims asks for cells once its model is known."""
        self._pilot.flying = bool(self._flying and self._config.claims.fly and self.model) and not self._closed
        self._pilot.want()

    def _where(self) -> tuple[int, int, int] | None:
        """(east cm, north cm, battery in thousandths), for claims; a full battery where unknown."""
        pose = self.pose
        if pose is None or self._plane is None:
            return None
        east_m, north_m = self._plane.to_m(pose.latitude_deg, pose.longitude_deg)
        return round(east_m * 100), round(north_m * 100), 1000 if pose.battery_milli is None else pose.battery_milli

    # --- inside ---------------------------------------------------------------------------------------------------

    def _send(self, message: ipc.ToEye) -> None:
        if self._supervisor is not None:
            self._supervisor.send(message)

    def _command(self, request: object) -> None:
        try:
            self._driver.command("state", request)
        except StateError as error:
            self._log.warning("state_refused", request=type(request).__name__, error=str(error))

    def pixel_m_of(self, picture: bytes) -> float:
        """Metres of ground that a pixel of one of this eye's pictures shows, by its name; 0.0: not known.

        Of pictures of an earlier life as of the newest one: by the same camera and model as a rule.
        """
        return self._scales.get(picture, next(reversed(self._scales.values()), (0.0, None)))[0]

    def place_in(self, picture: bytes) -> tuple[float, float] | None:
        """Where in it the middle of the thing lies, shares of its sides; None: not known, as of an earlier life."""
        return self._scales.get(picture, (0.0, None))[1]

    def _shelve(self, crop: ipc.Crop) -> bool:
        try:
            self._driver.command("thumbs", Shelve(crop.jpeg))
        except StateError as error:
            self._log.warning("thumbnail_refused", error=str(error))
            return False
        self._scales[name_of(crop.jpeg)] = crop.pixel_m, crop.place
        if len(self._scales) > _SCALES_MAX:
            del self._scales[next(iter(self._scales))]
        return True


def _heading_rad(camera_to_ned: tuple[float, float, float, float]) -> float:
    """Where the camera looks over the ground, also straight down: forward and image-up, added, never both vanish."""
    w, x, y, z = camera_to_ned
    forward = (1 - 2 * (y * y + z * z), 2 * (x * y + w * z))
    up = (-2 * (x * z + w * y), -2 * (y * z - w * x))
    return math.atan2(forward[1] + up[1], forward[0] + up[0])
