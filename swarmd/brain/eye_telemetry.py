"""What the eye measures: frames, rates, stages, gauges; and the record of it that the swarm shares."""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from swarmd.api.metrics import Metrics, Ratios
from swarmd.eye import ipc
from swarmd_protocols.state.observations import Count, StatusReport

FPS_WINDOW_NS = 5_000_000_000
"""Nanoseconds over which frames a second are counted: long enough to be steady, short enough to see a stall."""
FRAMES_KEPT = 1024
"""Arrival times kept for the rate: 200 frames a second over the window."""
STATUS_NS = 10_000_000_000
"""Nanoseconds between two status records in the shared state, which every node keeps one of."""
STATUS_MAX_BYTES = 1024
"""Bytes of a status record; the state takes no more (`StatusReport`)."""


class EyeTelemetry:
    """Numbers of one eye, over all its lives."""

    def __init__(self, metrics: Metrics, command: Callable[[object], None]) -> None:
        """Nothing seen yet.

        Args:
            metrics: Where stages are timed.
            command: Gives the state a request.
        """
        self._metrics = metrics
        self._command = command
        self.frames = 0
        self.detections = 0
        self.device: Mapping[str, Any] = {}
        """What the eye says this device is (`swarmd_models.device.Device`)."""
        self.stats: Mapping[str, int] = {}
        self.gauges: Mapping[str, float] = {}
        self._scores = Ratios()
        metrics.ratios(
            "swarmd_detection_score", "How sure the eye is of what it tracks, when it says so.", self._scores
        )
        self._recent: deque[int] = deque(maxlen=FRAMES_KEPT)
        self._uncounted = {"frames_inferred": 0, "detections": 0}
        self._status_ns = 0

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

    def on_frame(self, frame: ipc.FrameDone) -> None:
        """Count one frame."""
        if frame.frame_index >= 0:
            self.frames += 1
            self._recent.append(time.monotonic_ns())
            self._uncounted["frames_inferred"] += 1
        for event in frame.events:
            if event.kind != "end":
                self._scores.add(event.score)
        self.detections += frame.detections
        self._uncounted["detections"] += frame.detections
        for stage, duration_ns in frame.stage_ns.items():
            self._metrics.stage(stage).add(duration_ns)

    def count(self) -> None:
        """Add what was not yet added to the shared counters."""
        increments = tuple((name, count) for name, count in self._uncounted.items() if count)
        if increments:
            self._command(Count(increments))
            self._uncounted = dict.fromkeys(self._uncounted, 0)

    def report(self, model: str, model_digest: str, state: str, battery_milli: int | None) -> Mapping[str, Any] | None:
        """Share a status record when it is time; returns what the log should say then."""
        now = time.monotonic_ns()
        if not model or now - self._status_ns < STATUS_NS:
            return None
        self._status_ns = now
        record = {
            "model": model,
            "digest": model_digest[:16],
            "fps": self.fps,
            "eye": state,
            "device": {name: self.device[name] for name in ("machine", "cores", "memory_mb") if name in self.device},
            "battery_milli": battery_milli,
            "load": round(os.getloadavg()[0], 2),
        }
        self._command(StatusReport(json.dumps(record, separators=(",", ":")).encode()[:STATUS_MAX_BYTES]))
        return {
            "model_digest": model_digest,
            "fps": self.fps,
            "infer_ms": self._metrics.stage("infer").summary_ms()["p50"],
            "frames": self.frames,
            "detections": self.detections,
        }
