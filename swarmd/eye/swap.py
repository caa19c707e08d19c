"""Changing the model of a running eye without losing a frame.

A thread loads the new model beside the running one, warms it up, holds it to its golden vectors on this device and lets
it see the newest live frames beside the old one. Only then is it handed over, between two frames; the old model stays
loaded, so that going back is instant.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from swarmd.eye.ipc import SwapDone
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector
from swarmd_models.errors import FrameError, ModelError
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.golden import check_golden
from swarmd_models.operating_point import alike_milli
from swarmd_models.types import Frame

SHADOW_FRAMES = 8
"""Frames that a new model must see beside the old one before it takes over."""
SHADOW_TIMEOUT_S = 10.0
"""Seconds in which those frames must have come; a source that is slower is not waited for."""
WARM_UP_RUNS = 3
"""Inferences before the first is timed: runtimes allocate and choose kernels in them."""
MAX_SLOWDOWN = 10.0
"""Times the old model's inference."""
_FAST_ENOUGH_NS = 5_000_000
"""Models faster than this are not compared."""
_OUTDATED = "another model was ordered since"


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be prepared."""

    model: str
    labels: str
    chosen: bool
    looks_twice: bool


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model in a runtime."""

    detector: Detector
    path: str
    chosen: bool = False


class Swapper:
    """Prepares models and hands them over."""

    def __init__(
        self,
        eye: Eye,
        options: EyeOptions,
        send: Callable[[SwapDone], None],
        announce: Callable[[str], None],
        path: str = "",
        frame_interval_ms: float = 0.0,
    ) -> None:
        """Change the model of `eye`.

        Args:
            eye: What sees.
            options: As `eye` was opened with.
            send: Takes results.
            announce: Told about runtimes that are passed over.
            path: Names the bundle that runs now.
            frame_interval_ms: What keeps up with this is never too slow.
        """
        self._eye = eye
        self._options = options
        self._send = send
        self._enough_ns = round(frame_interval_ms * 1e6)
        self._announce = announce
        self._lock = threading.Lock()
        self._pending: _Loaded | None = None
        self._running = _Loaded(eye.detector, path)
        self._old: _Loaded | None = None
        self._wants_back = False
        self._busy_with: _Work | None = None
        """From `begin` until its model is handed over or refused, however long its thread then takes to end."""
        self._next: _Work | None = None
        """The newest order that came while another model was prepared."""
        self._shadow: Frame | None = None
        self._shadow_wanted = threading.Event()
        self._shadow_given = threading.Event()
        self.counters = {"model_swaps": 0, "model_swaps_refused": 0, "model_returns": 0}

    @property
    def is_busy(self) -> bool:
        """Whether a model is being prepared or waits for the next frame."""
        return self._busy_with is not None

    def begin(self, model: str, labels: str, chosen: bool = False, looks_twice: bool = True) -> None:
        """Prepare a model in the background; one at a time.

        The newest order counts: one before it that has not been handed over never is, though no frame may come for it
        for minutes. It waits for the eye's own choice to be done, and that for nothing.

        Args:
            model: Its bundle.
            labels: Instead of its own; "": none.
            chosen: The eye's own choice, as its answer will say.
            looks_twice: Whether its second stage is asked, where it has one.
        """
        work, late, passed = _Work(model, labels, chosen, looks_twice), None, None
        with self._lock:
            busy_with = self._busy_with
            if busy_with is not None and not chosen:
                if self._pending is not None and not self._pending.chosen:
                    late, self._pending, busy_with = self._pending, None, None
                else:
                    passed, self._next = self._next, work
            self._busy_with = busy_with or work
        if late is not None:
            late.detector.close()
            self._refuse(_OUTDATED, late.path, False)
        if passed is not None:
            self._refuse(_OUTDATED, passed.model, False)
        if busy_with is None:
            self._start(work)
        elif chosen:
            self._refuse("another model is being prepared", model, chosen)

    def go_back(self) -> None:
        """Return to the model before the last swap, between two frames."""
        with self._lock:
            self._wants_back = self._old is not None
            is_wanted = self._wants_back
        if not is_wanted:
            self._refuse("there is no model to go back to", "", False)

    def between_frames(self, frame: Frame) -> None:
        """Called by the inferring thread before each frame: the only place where the model changes."""
        if self._shadow_wanted.is_set():
            self._shadow_wanted.clear()
            self._shadow = frame
            self._shadow_given.set()
        waited = None
        with self._lock:
            pending, self._pending = self._pending, None
            back = pending is None and self._wants_back
            if pending is not None:
                waited = self._take_next()
            elif back:
                pending, self._old, self._wants_back = self._old, None, False
            if pending is None:
                return
            self._eye.replace_detector(pending.detector)
            unused, self._old, self._running = self._old, self._running, pending
        if unused is not None:
            unused.detector.close()
        self.counters["model_returns" if back else "model_swaps"] += 1
        self._done(True, "", pending.path, pending.chosen and not back)
        self._start(waited)

    def _take_next(self) -> _Work | None:
        """The order that waited is what keeps this busy from here on; whoever calls holds the lock, and starts it."""
        self._busy_with, self._next = self._next, None
        return self._busy_with

    def _start(self, work: _Work | None) -> None:
        if work is not None:
            threading.Thread(target=self._prepare_or_refuse, args=(work,), daemon=True).start()

    def _prepare_or_refuse(self, work: _Work) -> None:
        try:
            problem = self._prepare(work)
        except Exception as error:
            # Out of memory, or a library's own kind: whoever asked for the swap must hear of it.
            problem = f"it cannot be prepared: {type(error).__name__}: {error}"
        if problem:
            with self._lock:
                waited = self._take_next()
            self._refuse(problem, work.model, work.chosen)
            self._start(waited)

    def _prepare(self, work: _Work) -> str:
        """Load and try a model, then leave it for the next frame; "" or what is wrong."""
        try:
            bundle = load_bundle(work.model, work.labels or None)
            detector = Detector.open(bundle, self._options.detector, self._announce)
        except ModelError as error:
            return str(error)
        try:
            problem = self._trial(detector)
        except ModelError as error:
            problem = f"it fails on live frames: {error}"
        if problem:
            detector.close()
            return problem
        detector.looks_twice = work.looks_twice
        with self._lock:
            if work.chosen or self._next is None:
                self._pending = _Loaded(detector, work.model, work.chosen)
                return ""
        detector.close()
        return _OUTDATED

    def _trial(self, detector: Detector) -> str:
        """Warm up, golden vectors, shadow run; "" or what is wrong."""
        problem = check_golden(detector)
        if problem:
            return problem
        deadline = time.monotonic() + SHADOW_TIMEOUT_S
        times: list[int] = []
        for number in range(SHADOW_FRAMES + WARM_UP_RUNS):
            self._shadow_given.clear()
            self._shadow_wanted.set()
            if not self._shadow_given.wait(max(0.0, deadline - time.monotonic())):
                return ""  # No live frames: the golden vectors have to do.
            frame = self._shadow
            if frame is None:
                continue
            try:
                detector.detect(frame.image)
            except FrameError as error:
                return f"it cannot use this camera's frames: {error}"
            if number >= WARM_UP_RUNS:
                times.append(detector.stage_ns["infer"])
        usual = max(self._eye.detector.stage_ns["infer"], _FAST_ENOUGH_NS)
        typical = sorted(times)[len(times) // 2] if times else 0
        if typical > max(MAX_SLOWDOWN * usual, self._enough_ns):
            return f"it takes {typical / 1e6:.0f} ms a frame, the running model {usual / 1e6:.1f} ms"
        return ""

    def _refuse(self, text: str, path: str, chosen: bool) -> None:
        self.counters["model_swaps_refused"] += 1
        self._done(False, text, path, chosen)

    def _done(self, ok: bool, text: str, path: str, chosen: bool) -> None:
        bundle = self._eye.bundle
        alike = alike_milli(bundle.curve)
        self._send(SwapDone(ok, bundle.name, bundle.version, bundle.digest, bundle.labels, text, path, chosen, alike))
