"""What a trial measures of the eye: frames, latency, memory, deaths, bad outputs, how far the detections moved."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from swarmd.eye import ipc
from swarmd_protocols.releases.health import Trial, distribution_distance_milli

_LATENCIES = 2_000
_BINS = 10


class Eye(Protocol):
    """The eye, as a trial sees it."""

    model: str
    """What runs; "" before the first word of it."""

    @property
    def state(self) -> str:
        """`running` and `degraded` mean that it sees."""
        ...

    @property
    def pid(self) -> int | None:
        """Of the eye's process, while there is one."""
        ...

    def counters(self) -> dict[str, int]:
        """Monotonic counts."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Its cells, among others."""
        ...

    def listen(self, callback: Callable[[ipc.FromEye], None]) -> Callable[[], None]:
        """Call back for each message of the eye from now on; the returned function ends it."""
        ...

    def swap_model(self, model: str) -> None:
        """Have it change to this bundle between two frames; it answers with `SwapDone`."""
        ...


@dataclass(frozen=True, slots=True)
class SwapAnswer:
    """How a swap went."""

    ok: bool
    text: str


class ScoreHistogram:
    """Best scores of frames in ten equal bins, and how many frames had none."""

    def __init__(self) -> None:
        self.counts = [0] * (_BINS + 1)

    def add(self, detections: int, best_score: float) -> None:
        """Count one frame."""
        bin_index = _BINS if not detections else min(_BINS - 1, max(0, int(best_score * _BINS)))
        self.counts[bin_index] += 1

    @property
    def total(self) -> int:
        """Frames counted."""
        return sum(self.counts)


class TrialMeter:
    """Measures from its making to its `close`.

    Args:
        eye: The eye that runs the trial.
        incumbent: How the model before it scored, for the shadow gate.
    """

    def __init__(self, eye: Eye, incumbent: ScoreHistogram) -> None:
        self._eye = eye
        self._incumbent = incumbent
        self._began_ns = time.monotonic_ns()
        self._frames = 0
        self._infer_us: deque[int] = deque(maxlen=_LATENCIES)
        self._scores = ScoreHistogram()
        self._restarts = eye.counters().get("restarts", 0)
        self._bad = eye.counters().get("bad_outputs", 0)
        self._end = eye.listen(self._on_message)

    def _on_message(self, message: ipc.FromEye) -> None:
        if isinstance(message, ipc.FrameDone) and message.frame_index >= 0:
            self._frames += 1
            self._infer_us.append(message.stage_ns.get("infer", 0) // 1_000)
            self._scores.add(message.detections, message.best_score)

    def measure(self, soak_scale: float) -> Trial:
        """The numbers so far; `soak_scale` below 1 makes demonstrations short."""
        elapsed_s = (time.monotonic_ns() - self._began_ns) / 1e9
        counters = self._eye.counters()
        latencies = sorted(self._infer_us)
        p95 = latencies[int(len(latencies) * 0.95)] if latencies else None
        shadow = None
        if min(self._incumbent.total, self._scores.total) >= 20:
            shadow = distribution_distance_milli(self._incumbent.counts, self._scores.counts)
        return Trial(
            soak_s=int(elapsed_s / soak_scale),
            samples=self._frames,
            golden_ok=True,  # The eye swapped only after its golden vectors held on this device.
            latency_p95_us=p95,
            memory_kib=resident_kib(self._eye.pid),
            bad_frames=max(0, counters.get("bad_outputs", 0) - self._bad),
            shadow_milli=shadow,
            crashes=max(0, counters.get("restarts", 0) - self._restarts),
        )

    def close(self) -> None:
        """Stop measuring."""
        self._end()


def resident_kib(pid: int | None) -> int | None:
    """Resident memory of a process, KiB; None when it has gone."""
    if pid is None:
        return None
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        return None
    return None


class EyeRunner:
    """The eye as `agent_driver.ModelRunner`.

    Args:
        eye: The daemon's eye.
        is_armed: Whether the vehicle is armed, None when nobody says so.
    """

    def __init__(self, eye: Eye, is_armed: Callable[[], bool | None]) -> None:
        self._eye = eye
        self._is_armed = is_armed
        self._scores = ScoreHistogram()
        self._answer: Callable[[SwapAnswer], None] | None = None
        self._asked = ""
        """The bundle that was ordered last."""
        eye.listen(self._on_message)

    def _on_message(self, message: ipc.FromEye) -> None:
        match message:
            case ipc.FrameDone(frame_index=index) if index >= 0:
                self._scores.add(message.detections, message.best_score)
            # Of an order that was given up before, nobody asks any more.
            case ipc.SwapDone(ok=ok, text=text, path=path, chosen=False) if (
                self._answer is not None and path == self._asked
            ):
                answer, self._answer = self._answer, None
                answer(SwapAnswer(ok, text))
            case _:
                pass

    def swap(self, model: str, answer: Callable[[SwapAnswer], None]) -> None:
        """See `ModelRunner.swap`."""
        self._answer, self._asked = answer, model
        self._eye.swap_model(model)

    def meter(self) -> TrialMeter:
        """See `ModelRunner.meter`."""
        incumbent, self._scores = self._scores, ScoreHistogram()
        return TrialMeter(self._eye, incumbent)

    def is_safe(self, moment: str) -> bool:
        """See `ModelRunner.is_safe`: a swap needs an eye that runs; "disarmed" wants to be told so, silence is no."""
        if self._eye.state not in ("running", "degraded") or not self._eye.model:
            return False
        if moment == "disarmed":
            return self._is_armed() is False
        return moment == "any" or not self._eye.status()["cells"]
