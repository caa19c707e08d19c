"""The eye process: captures, infers, tracks, tells the brain.

Threads: the main one infers; `capture` reads the source into the mailbox, and preprocesses what waits there; `control`
obeys the brain and ends the process when the brain's end of the socket closes; `pulse` sends heartbeats, counters and
what a moving source reports.
A hang in native code stops at most one of them, and the heartbeat says for how long.
"""

import dataclasses
import faulthandler
import itertools
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2

from swarmd.ends import run_and_end
from swarmd.eye.choice import ModelChoice
from swarmd.eye.gate import EyeGate
from swarmd.eye.ground import open_terrain
from swarmd.eye.ipc import (
    AssignCell,
    CellDone,
    CellReached,
    Choice,
    Configure,
    DropCell,
    Finished,
    FrameDone,
    Heartbeat,
    Here,
    PoseUpdate,
    Power,
    Problem,
    Ready,
    ShowFrames,
    SourceState,
    Stats,
    Stop,
    SwapBack,
    SwapDone,
    SwapModel,
    ToEye,
)
from swarmd.eye.link import Link, WorkClock, all_or_nothing, die_with_parent, every, leave
from swarmd.eye.mailbox import Mailbox
from swarmd.eye.pictures import pictures_of
from swarmd.eye.sources import MovingSource, open_eye_source, wants_every_frame, whereabouts
from swarmd.eye.swap import Swapper
from swarmd_models.bundle import load_bundle
from swarmd_models.bundle_rules import Reference
from swarmd_models.choose import Conditions
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.device import battery_milli, describe, temperature_c
from swarmd_models.errors import ArtefactError, BackendError, FrameError, ModelError, OutputError, SourceError
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.frame_ring import FrameRing
from swarmd_models.geo.calibration import misfit, read_calibration
from swarmd_models.geo.geolocate import Intrinsics
from swarmd_models.geo.poses import PoseProvider, PoseTrack, open_poses
from swarmd_models.geo.terrain import REASONS
from swarmd_models.operating_point import alike_milli
from swarmd_models.scale import frame_pixel_m
from swarmd_models.strange import REASONS as STRANGE_REASONS
from swarmd_models.types import EyeResult, Frame, FrameSource, Pose
from swarmd_models.watch import ModelWatch, features_of

CANNOT_WORK_STATUS = 3
"""Exit status when starting again would end the same way."""
BACKEND_FAILED_STATUS = 4
"""Exit status when the runtime failed: the supervisor starts again, then steps down."""
PULSE_S = 0.05
"""Seconds between two pulses of the eye's side thread."""
HEARTBEAT_EVERY = 5
"""Pulses between two heartbeats: four a second, a twelfth of the supervisor's patience."""
HERE_EVERY = 10
"""Pulses."""
MAX_FAILURES = 3
"""Frames in a row that the runtime may fail."""
_TAKE_S = 0.5
"""Seconds that the eye waits for a frame before it looks whether it shall stop."""
_TYPICAL_SHARE = 0.15
"""Weight of the newest frame in the typical time of a frame: the last dozen count."""
_MIN_HFOV_DEG = 1.0
"""Degrees; a narrower configured field of view means that none is configured."""


class EyeProcess:
    """Everything of one eye process."""

    def __init__(self, link: Link, config: Configure, gate: EyeGate | None = None) -> None:
        """Load nothing yet; `run` does. A `gate` is told when a frame is worked on."""
        self._gate = gate
        self._link = link
        self._config = config
        self._stop = threading.Event()
        self._counters: Counter[str] = Counter()
        self._mailbox = Mailbox(newest=not wants_every_frame(config))
        self._busy_since_ns = 0
        self._poses: PoseProvider | None = None
        self._source: FrameSource | None = None
        self._eye: Eye | None = None
        self._intrinsics: Intrinsics | None = None
        self._swapper: Swapper | None = None
        self._capture_error = ""
        self._stats_due = 0.0
        self._failures = 0
        self._is_rejecting = False
        self._last_pose: Pose | None = None
        self._beats = itertools.count()
        self._choice: ModelChoice | None = None
        self._battery_milli = -1
        self._started_ns = 0
        self._typical_ms: float | None = None
        self._watched: Detector | None = None
        self._watch = ModelWatch(Reference())
        self._pictures = pictures_of(config, self._announce)

    def run(self) -> int:
        """Work until the source ends or the brain says stop; the exit status."""
        self._start(self._link.listen, self._obey)
        self._start(every, PULSE_S, partial(self._pulse, WorkClock(round(PULSE_S * 1e9))), self._stop)
        try:
            self._open()
        except ModelError as error:
            return self._give_up(str(error), isinstance(error, ArtefactError | BackendError))
        self._start(self._capture)
        frames = self._infer_all()
        return self._end(frames)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=all_or_nothing, args=(self._stop.is_set, work, *args), daemon=True).start()

    # --- Opening -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        config = self._config
        started = time.perf_counter()
        device = describe()
        self._choice = ModelChoice(config, device, lambda text: self._link.send(Choice(text)), self._announce)
        self._poses = open_poses(config.pose)
        self._source = open_eye_source(config, lambda problem: self._link.send(SourceState(problem)))
        self._intrinsics = getattr(self._source, "intrinsics", None)
        chosen = self._choice.at_start(self._intrinsics.width if self._intrinsics is not None else 0)
        if config.camera.calibration:
            self._intrinsics = read_calibration(Path(config.camera.calibration))
        options = EyeOptions(
            DetectorOptions(
                config.backends,
                config.threads,
                config.score_threshold,
                config.point.false_per_1000,
                config.point.candidates_per_1000,
            ),
            config.update_interval_ms,
            config.min_hits,
            config.first_track_id,
            config.looks,
            config.point.reject,
            config.private.never,
        )
        eye = Eye.open(load_bundle(chosen, config.labels or None), options, self._intrinsics, self._announce)
        eye.set_boresight(config.camera.boresight_deg, config.camera.attitude_sigma_deg)
        eye.set_terrain(open_terrain(config.camera.terrain, is_ahead=True))
        load_ms = (time.perf_counter() - started) * 1e3
        if config.keep_frames:
            self._pictures.ring = FrameRing(Path(config.keep_frames), config.keep_frames_bytes)
        self._swapper = Swapper(
            eye, options, self._swapped, self._announce, chosen, frame_interval_ms=config.frame_interval_ms
        )
        self._choice.started(eye, self._swapper, chosen)
        self._eye = eye
        model, backend = eye.bundle, eye.detector.backend
        self._link.send(
            Ready(
                model.name,
                model.version,
                model.digest,
                model.labels,
                backend.kind,
                backend.runtime,
                load_ms,
                dataclasses.asdict(device),
                alike_milli(model.curve),
            )
        )

    def _swapped(self, done: SwapDone) -> None:
        if self._choice is not None:
            self._choice.swapped(done)
        if done.ok:
            self._typical_ms = None
        self._link.send(done)

    def _reconsider(self) -> None:
        """Another model, or none but the first stage, when heat, battery or load ask for it."""
        if self._choice is None:
            return
        system = Path(self._config.system)
        _, of_source, _ = whereabouts(self._source, self._last_pose)
        of_system = battery_milli(system / "class/power_supply")
        known = [milli for milli in (of_source, self._battery_milli, of_system) if milli is not None and milli >= 0]
        temperature = temperature_c(system / "class/thermal")
        self._choice.reconsider(Conditions(temperature, min(known, default=None), self._typical_ms))

    def _announce(self, text: str) -> None:
        self._link.send(Problem(text, fatal=False))

    def _give_up(self, text: str, of_model: bool = False) -> int:
        self._link.send(Problem(text, fatal=True, of_model=of_model))
        return CANNOT_WORK_STATUS

    # --- Capturing ---------------------------------------------------------------------------------------------

    def _capture(self) -> None:
        source = self._source
        assert source is not None
        while not self._stop.is_set():
            try:
                frame = source.read()
            except FrameError as error:
                self._spoiled(error)
                continue
            except SourceError as error:
                self._counters["source_errors"] += 1
                self._capture_error = str(error)
                break
            if frame is None:
                break
            self._counters["frames_captured"] += 1
            if not self._mailbox.put(frame):
                break
            if self._eye is not None and self._busy_since_ns and self._mailbox.holds(frame):
                self._eye.detector.fit_ahead(frame.image)
        self._mailbox.close()

    def _spoiled(self, error: FrameError) -> None:
        """One frame cannot be used; the first such is told, all are counted."""
        self._counters["frames_unusable"] += 1
        if self._counters["frames_unusable"] == 1:
            self._announce(str(error))

    # --- Inferring ---------------------------------------------------------------------------------------------

    def _infer_all(self) -> int:
        frames = 0
        limit = self._config.max_frames
        while not self._stop.is_set() and not (limit and frames >= limit):
            frame = self._mailbox.take(_TAKE_S)
            if frame is None:
                if self._mailbox.is_drained:
                    break
                continue
            self._started_ns = self._busy_since_ns = time.monotonic_ns()
            if self._gate is not None:
                self._gate.begin(self._started_ns)
            frames += self._see(frame)
            self._busy_since_ns = 0
            if self._gate is not None:
                self._gate.end()
        return frames

    def _see(self, frame: Frame) -> int:
        assert self._eye is not None
        assert self._swapper is not None
        if frame.pose is None and self._poses is not None:
            pose = self._poses.at(frame.captured_ns)
            frame = dataclasses.replace(frame, pose=pose)
        self._last_pose = frame.pose
        self._know_camera(frame)
        self._swapper.between_frames(frame)
        try:
            result = self._eye.see(frame)
        except FrameError as error:
            self._spoiled(error)
            return 0
        except BackendError as error:
            self._fail(error)
            return 0
        self._failures = 0
        self._rejected(result.rejected)
        if self._eye.terrain is not None and (news := self._eye.terrain.news()):
            self._announce(news)
        self._observe(frame, result)
        self._crop(frame, result)
        self._tell(frame, result)
        self._show(frame, result)
        return 1

    def _rejected(self, reason: str) -> None:
        """Frames of another world: the first of each row is told, all are counted."""
        if reason and not self._is_rejecting:
            self._announce(f"what the camera shows is rejected ({reason}): docs/eye.md, a judge that rejects")
        self._is_rejecting = bool(reason)

    def _observe(self, frame: Frame, result: EyeResult) -> None:
        """Drift, and frames worth labelling."""
        assert self._eye is not None
        detector = self._eye.detector
        if self._watched is not detector:
            self._watched, self._watch = detector, ModelWatch(detector.bundle.reference, self._watch.counters)
        features = features_of(frame.image, detector.pooled()) if self._watch.is_due else None
        self._watch.note(result.detections, features)
        pictures = self._pictures
        pictures.keep(frame, result, detector, self._watch.ood)
        if pictures.ring is not None:
            self._counters["frames_kept"] = pictures.ring.kept
            if pictures.ring.problem:
                self._announce(pictures.ring.problem)
                pictures.ring = None

    def _crop(self, frame: Frame, result: EyeResult) -> None:
        """Thumbnails of this frame's tracks, ahead of their events."""
        try:
            height, width = frame.image.shape[:2]
            scale = 0.0 if self._eye is None else frame_pixel_m(self._eye.detector.bundle, width, height)
            crops = self._pictures.crops(frame, result, scale)
        except cv2.error as error:
            self._announce(f"a thumbnail could not be made: {error}")
            return
        for crop in crops:
            self._link.send(crop)

    def _show(self, frame: Frame, result: EyeResult) -> None:
        """A small picture, where somebody asked for some."""
        self._pictures.show(frame, result.detections, self._link.send, self._announce)

    def _know_camera(self, frame: Frame) -> None:
        """The first frame has the size: the field of view becomes intrinsics, and the model may be too large."""
        if not self._counters["frames_inferred"] and self._choice is not None:
            self._choice.see_width(frame.image.shape[1])
        height, width = frame.image.shape[:2]
        gives = str(getattr(self._source, "gives", ""))
        if gives and not self._counters["frames_inferred"]:
            self._link.send(SourceState("", gives))
        if self._intrinsics is not None and not self._counters["frames_inferred"]:
            problem = misfit(self._intrinsics, width, height)
            if problem:
                self._announce(problem)
        elif self._intrinsics is None and self._config.camera.hfov_deg >= _MIN_HFOV_DEG:
            self._intrinsics = Intrinsics.from_hfov(self._config.camera.hfov_deg, width, height)
            assert self._eye is not None
            self._eye.set_intrinsics(self._intrinsics)

    def _fail(self, error: BackendError) -> None:
        """A runtime that fails again and again is left to the supervisor, which starts the eye on the next one."""
        self._counters["backend_failures"] += 1
        self._counters["bad_outputs"] += isinstance(error, OutputError)
        self._failures += 1
        self._announce(str(error))
        if self._failures >= MAX_FAILURES:
            leave(BACKEND_FAILED_STATUS)

    def _tell(self, frame: Frame, result: EyeResult) -> None:
        self._counters["frames_inferred"] += 1
        self._counters["detections"] += len(result.detections)
        best = max((d.score for d in result.detections), default=0.0)
        took_ms = sum(result.stage_ns.values()) / 1e6
        old_ms = took_ms if self._typical_ms is None else self._typical_ms
        self._typical_ms = old_ms + (took_ms - old_ms) * _TYPICAL_SHARE
        message = FrameDone(
            result.frame_index,
            result.captured_ns,
            time.monotonic_ns(),
            len(result.detections),
            best,
            tuple(result.events),
            result.stage_ns,
            self._started_ns,
            width=frame.image.shape[1],
            height=frame.image.shape[0],
        )
        self._link.send(message)

    def _end(self, frames: int) -> int:
        assert self._eye is not None
        self._pictures.finish()
        if self._pictures.ring is not None:
            self._counters["frames_kept"] = self._pictures.ring.kept
        events = tuple(self._eye.finish())
        now_ns = time.monotonic_ns()
        for crop in self._pictures.last_crops([event.track_id for event in events], now_ns):
            self._link.send(crop)
        if events:
            self._link.send(FrameDone(-1, now_ns, now_ns, 0, 0.0, events, {}))
        self._send_stats()
        if self._source is not None:
            self._source.close()
        if self._capture_error and not self._stop.is_set():
            return self._give_up(self._capture_error)
        self._link.send(Finished(frames))
        return 0

    # --- The other threads -------------------------------------------------------------------------------------

    def _obey(self, message: ToEye) -> None:
        source = self._source
        match message:
            case PoseUpdate(pose):
                if isinstance(self._poses, PoseTrack):
                    self._poses.push(pose)
            case Power(battery):
                self._battery_milli = battery
            case AssignCell(cell_id):
                self._direct(source, cell_id, assign=True)
            case DropCell(cell_id):
                self._direct(source, cell_id, assign=False)
            case SwapModel(model, labels):
                if self._swapper is not None:
                    self._swapper.begin(model, labels)
            case ShowFrames():
                self._pictures.want(message)
            case SwapBack():
                if self._swapper is not None:
                    self._swapper.go_back()
            case Stop():
                self._stop.set()
                self._mailbox.close()
                if source is not None:
                    source.close()
            case Configure():
                self._announce("the eye is configured once, at its start; the second configuration was ignored")

    def _direct(self, source: FrameSource | None, cell_id: str, assign: bool) -> None:
        if not isinstance(source, MovingSource):
            return
        try:
            (source.assign if assign else source.drop)(cell_id)
        except SourceError as error:
            self._announce(str(error))

    def _pulse(self, clock: WorkClock) -> None:
        source, number = self._source, next(self._beats)
        if isinstance(source, MovingSource):
            for event in source.poll_events():
                if event[0] == "cell_reached":
                    self._link.send(CellReached(str(event[1])))
                elif event[0] == "cell_done":
                    self._link.send(CellDone(str(event[1]), int(event[2])))
        busy_ns = clock.busy_ns(time.monotonic_ns(), self._busy_since_ns)
        if number % HEARTBEAT_EVERY == 0:
            self._link.send(Heartbeat(max(0, busy_ns)))
        if number % HERE_EVERY == 0 and self._eye is not None:
            self._link.send(Here(*whereabouts(source, self._last_pose)))
        if self._eye is not None and time.monotonic() >= self._stats_due:
            self._stats_due = time.monotonic() + self._config.stats_interval_s
            self._send_stats()
            self._reconsider()

    def _send_stats(self) -> None:
        assert self._eye is not None
        counters = dict(self._counters)
        counters["frames_dropped_newer"] = self._mailbox.dropped
        counters["source_reconnects"] = int(getattr(self._source, "reconnects", 0))
        counters |= self._watch.counters
        if self._eye.terrain is not None:
            counters |= {f"terrain_{reason}": self._eye.terrain.counts[reason] for reason in REASONS}
        if self._swapper is not None:
            counters |= self._swapper.counters
        if self._eye.strange is not None:
            counters |= {f"rejected_{reason}": self._eye.strange.counts[reason] for reason in STRANGE_REASONS}
        second = self._eye.detector.second
        if second is not None:
            counters |= {f"second_{what}": count for what, count in dataclasses.asdict(second.counts).items()}
        gauges = {"live_tracks": float(self._eye.live_tracks), **self._watch.gauges()}
        self._link.send(Stats(counters, gauges))


def main(argv: list[str]) -> int:
    """Run as the child of a brain: `python -m swarmd.eye --fd N [--gate M]`."""
    if argv[::2] not in (["--fd"], ["--fd", "--gate"]) or not all(word.isdigit() for word in argv[1::2]):
        sys.stderr.write("swarmd.eye is started by swarmd, not by hand; `swarmd detect` shows what an eye sees\n")
        return 2
    faulthandler.enable()
    die_with_parent()
    # Ctrl-C reaches the whole process group; the brain decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    try:
        link = Link(socket.socket(fileno=int(argv[1])))
    except OSError as error:
        sys.stderr.write(f"swarmd.eye: descriptor {argv[1]} is no socket: {error.strerror}\n")
        return 2
    config = link.receive()
    if not isinstance(config, Configure):
        return 2
    return run_and_end(lambda: EyeProcess(link, config, EyeGate(int(argv[3])) if len(argv) == 4 else None).run())
