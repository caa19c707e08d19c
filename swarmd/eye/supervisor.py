"""The brain's side of the eye: start it, watch it, kill what hangs, start it again, step down when that fails.

```
            Ready                    source ended
 starting ─────────▶ running ───────────────────────▶ finished
    ▲                  │ exit, crash, silence, stall
    │    back-off      ▼
    └───────────── restarting ──(fatal Problem)──▶ failed
                       │ 4 deaths in 60 s: next backend, then next model; a model that cannot be used: next model
                       ▼
                   degraded (runs, on less)
```

- Silence: no bytes for `SILENCE_S` (SIGSTOP, a hang that holds the GIL); longer where the machine is so loaded that
  gaps of seconds are usual. Stall: one frame takes longer than `STALL_FACTOR` times the 99th percentile of the frames
  before it, and at least `STALL_MIN_S`. Before it is ready it may live for `STEP_LIMIT_S` without getting anywhere.
- Tracks that died with an eye are ended by the supervisor, so nobody waits for them; ids go on counting.
- `send` never blocks the loop: what the eye does not take is dropped and counted.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from swarmd.errors import EyeError
from swarmd.eye.ipc import (
    Configure,
    Finished,
    FrameDone,
    FromEye,
    Heartbeat,
    Problem,
    Ready,
    SourceState,
    Splitter,
    Stop,
    SwapDone,
    ToEye,
    decode_from_eye,
    encode,
)
from swarmd_models.types import TrackEvent

SILENCE_S = 3.0
"""Seconds without a word after which an eye is stuck: twelve heartbeats."""
SILENCE_FACTOR = 8.0
"""Times the longest gap between words that this life has had lately."""
MAX_SILENCE_S = 30.0
"""Seconds; longer silence is never excused, however long the gaps were."""
STALL_FACTOR = 20.0
"""Times the 99th percentile of its own frame time that one frame may take."""
STALL_MIN_S = 2.0
"""Seconds that a frame may always take: a device that swaps or throttles is slow for so long."""
LOAD_LIMIT_S = 120.0
"""Seconds without a word, before it is ready."""
STEP_LIMIT_S = 1_800.0
"""Seconds without getting anywhere before it is ready, its pulse aside: an old Arm core tries all models in less, and a
runtime builds an engine, of which some say nothing meanwhile."""
STOP_GRACE_S = 2.0
"""Seconds between asking an eye to end and killing it."""
FIRST_WAIT_S = 0.2
"""Seconds until a dead eye is started again; doubles with each death."""
MAX_WAIT_S = 15.0
"""Seconds between two starts, at most."""
DEGRADE_DEATHS = 4
"""Deaths within `DEGRADE_WINDOW_S` after which the next runtime or model is taken."""
DEGRADE_WINDOW_S = 60.0
"""Seconds in which deaths count together."""
_WATCH_S = 0.25
"""Seconds between two looks at the eye's silence: a twelfth of what it is killed for."""
_SAMPLES = 500
"""Frame times kept for the percentile: a minute at eight frames a second."""
_MIN_SAMPLES = 20
"""Frame times below which no percentile is trusted; a frame may then take a quarter of `LOAD_LIMIT_S`."""
_MAX_OUTBOX_BYTES = 1 << 20
"""Bytes that wait for an eye that does not read; more, and it is stuck."""
_CHUNK_BYTES = 65_536
"""Bytes read at a time: a pipe's own buffer on Linux. Source: pipe(7)."""
_STDERR_LINES = 20
"""Last lines of the eye's standard error that are told when it dies."""
BUILDING = "building_engine"
LOST = "source_lost"
"""How the eye's words about a runtime's preparation begin."""
_BACKEND_FAILED = "exit: status 4"
"""How an eye ends whose runtime failed several frames in a row (`process.BACKEND_FAILED_STATUS`)."""
_ID_GAP = 1000
"""Ids that a dying eye may have given without our having read them."""


class EyeSupervisor:
    """Keeps one eye alive."""

    def __init__(
        self,
        config: Configure,
        on_message: Callable[[FromEye], None],
        fallback_models: Sequence[str] = (),
        log: Callable[[str, str], None] = lambda event, text: None,
        gate_fd: int = -1,
    ) -> None:
        """Start nothing yet; `run` does.

        Args:
            config: The eye as it is wanted.
            on_message: Called in the event loop with each message, in order.
            fallback_models: Bundles to step down to, the better first.
            log: Told (event name, text) of every start, death and step down.
            gate_fd: Where the eye shows that it works (`gate.py`); -1: nobody looks.
        """
        self._config = config
        self._gate_fds = (gate_fd,) if gate_fd >= 0 else ()
        self._on_message = on_message
        self._fallbacks = list(fallback_models)
        self._log = log
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._outbox = bytearray()
        self._last_word = 0.0
        self._last_step = 0.0
        """When it said something else than that it lives."""
        self._busy_s = 0.0
        self._frame_s: deque[float] = deque(maxlen=_SAMPLES)
        self._gaps_s: deque[float] = deque(maxlen=_SAMPLES // 2)
        self._is_ready = False
        self._is_finished = False
        self._fatal = ""
        self._is_models_fault = False
        self._live: dict[int, TrackEvent] = {}
        self._highest_id = config.first_track_id - 1
        self._deaths: deque[float] = deque(maxlen=DEGRADE_DEATHS)
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self.state = "starting"
        """starting, building_engine, running, source_lost, restarting, degraded, finished or failed."""
        self.restarts = 0
        self.counters: Counter[str] = Counter()
        """eye_deaths by reason, commands_dropped, degradations."""

    @property
    def pid(self) -> int | None:
        """Of the eye, while there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def config(self) -> Configure:
        """As the eye runs now, steps down included."""
        return self._config

    def use_model(self, model: str) -> None:
        """Start the next eye with this bundle: the one that a swap has made the running model."""
        self._config = msgspec.structs.replace(self._config, model=model)

    async def run(self) -> None:
        """Keep the eye alive until its source ends or `stop` is called.

        Raises:
            EyeError: It can never work as configured; the message is the eye's own.
        """
        wait_s = FIRST_WAIT_S
        while not self._stopping.is_set():
            reason = await self._one_life()
            self._end_live_tracks()
            if self._fatal and self._is_models_fault and self._fallbacks and not self._stopping.is_set():
                self._step_down_from(self._fatal)
                continue
            if self._fatal:
                self.state = "failed"
                raise EyeError(self._fatal)
            if self._is_finished or self._stopping.is_set():
                break
            self.counters[f"eye_deaths_{reason.split(':')[0].replace(' ', '_')}"] += 1
            self.restarts += 1
            now = asyncio.get_running_loop().time()
            wait_s = FIRST_WAIT_S if self._was_steady(now) else min(wait_s * 2, MAX_WAIT_S)
            self._deaths.append(now)
            self.state = "restarting"
            self._log("eye_died", f"{reason}; starting again in {wait_s:g} s" + self._last_stderr())
            self._maybe_degrade(now, at_once=reason == _BACKEND_FAILED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
        self.state = "finished"

    def send(self, message: ToEye) -> bool:
        """Pass a message to the eye; False when there is none or it does not read (dropped and counted)."""
        if self._socket is None or len(self._outbox) > _MAX_OUTBOX_BYTES:
            self.counters["commands_dropped"] += 1
            return False
        self._outbox += encode(message)
        self._flush()
        return True

    def stop(self) -> None:
        """Let the eye finish its frame and end; `run` then returns."""
        self.send(Stop())
        self._stopping.set()

    # --- One life ----------------------------------------------------------------------------------------------

    async def _one_life(self) -> str:
        """Start an eye and see it through to its end; why it ended."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "swarmd.eye", "--fd", str(theirs.fileno()),
                *(word for fd in self._gate_fds for word in ("--gate", str(fd))),
                pass_fds=(theirs.fileno(), *self._gate_fds), stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE, env=environment_of_eye(),
            )  # fmt: skip
        except OSError as error:
            ours.close()
            return f"start: {error.strerror}"
        finally:
            theirs.close()
        self._socket, self._outbox = ours, bytearray()
        self._is_ready, self._busy_s = False, 0.0
        self._last_word = self._last_step = loop.time()
        self._frame_s.clear()
        self._gaps_s.clear()
        config = msgspec.structs.replace(self._config, first_track_id=self._highest_id + 1)
        self.send(config)
        splitter = Splitter()
        reader = asyncio.ensure_future(self._read(ours, splitter))
        errors = asyncio.ensure_future(self._read_stderr(self._process))
        try:
            return await self._watch(self._process, reader)
        finally:
            await self._bury(self._process, reader, errors)

    async def _watch(self, process: asyncio.subprocess.Process, reader: "asyncio.Future[None]") -> str:
        loop = asyncio.get_running_loop()
        exited = asyncio.ensure_future(process.wait())
        either: set[asyncio.Future[Any]] = {exited, reader}
        stop_by: float | None = None
        while True:
            looked = loop.time()
            await asyncio.wait(either, timeout=_WATCH_S, return_when=asyncio.FIRST_COMPLETED)
            self._excuse(looked, loop.time())
            if exited.done():
                return _why(exited.result())
            self._flush()
            if reader.done():
                # The socket closed first: the exit status is a moment away.
                await asyncio.wait({exited}, timeout=STOP_GRACE_S)
                return _why(exited.result()) if exited.done() else self._kill(process, "broken socket")
            now = loop.time()
            if self._stopping.is_set():
                stop_by = stop_by or now + STOP_GRACE_S
                if now > stop_by:
                    return self._kill(process, "stop: it did not end by itself")
            verdict = self._verdict(now)
            if verdict:
                return self._kill(process, verdict)

    def _excuse(self, looked: float, now: float) -> None:
        """A look that comes late says that this process itself was stopped: so long nobody could be heard."""
        late_s = now - looked - _WATCH_S
        if late_s > _WATCH_S:
            self._last_word = min(now, self._last_word + late_s)
            self._last_step = min(now, self._last_step + late_s)

    def _verdict(self, now: float) -> str:
        """Why the eye must be killed, or ""."""
        silence_s = now - self._last_word
        if silence_s > (self.silence_limit_s() if self._is_ready else LOAD_LIMIT_S):
            return f"silence: no word for {silence_s:.1f} s"
        step_s = now - self._last_step
        if not self._is_ready and step_s > STEP_LIMIT_S:
            return f"load: it lives, and gets nowhere for {step_s:.1f} s"
        limit_s = self.stall_limit_s()
        if self._busy_s > limit_s:
            return f"stall: one frame takes {self._busy_s:.1f} s, {limit_s:.1f} s is the limit"
        return ""

    def silence_limit_s(self) -> float:
        """How long the eye may say nothing."""
        return min(max(SILENCE_S, SILENCE_FACTOR * max(self._gaps_s, default=0.0)), MAX_SILENCE_S)

    def stall_limit_s(self) -> float:
        """How long one frame may take: a multiple of the 99th percentile of the last ones."""
        if len(self._frame_s) < _MIN_SAMPLES:
            return LOAD_LIMIT_S / 4
        ordered = sorted(self._frame_s)
        return max(STALL_MIN_S, STALL_FACTOR * ordered[int(len(ordered) * 0.99)])

    def _kill(self, process: asyncio.subprocess.Process, reason: str) -> str:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        return reason

    async def _bury(
        self, process: asyncio.subprocess.Process, reader: "asyncio.Future[None]", errors: "asyncio.Future[None]"
    ) -> None:
        """Read what the dead eye still said, and free what it held; also when `run` is cancelled."""
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        for task in (reader, errors):
            with contextlib.suppress(TimeoutError, EyeError):
                async with asyncio.timeout(1.0):
                    await task
        await process.wait()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # --- Words -------------------------------------------------------------------------------------------------

    async def _read(self, connection: socket.socket, splitter: Splitter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.sock_recv(connection, _CHUNK_BYTES)
            except OSError:
                return
            if not data:
                return
            now = loop.time()
            if self._is_ready:
                self._gaps_s.append(now - self._last_word)
            self._last_word = now
            for body in splitter.feed(data):
                message = decode_from_eye(body)
                if not isinstance(message, Heartbeat):
                    self._last_step = now
                self._take(message)

    def _take(self, message: FromEye) -> None:
        match message:
            case Heartbeat(busy_ns):
                self._busy_s = busy_ns / 1e9
                return
            case FrameDone():
                self._busy_s = 0.0
                self._note_frame(message)
            case Ready():
                self._is_ready = True
                self.state = self._seeing()
                self._log("eye_ready", f"{message.model} on {message.runtime}")
            case Problem(text, fatal, of_model):
                if fatal:
                    self._fatal, self._is_models_fault = text, of_model
                elif text.startswith(BUILDING) and not self._is_ready:
                    self.state = "building_engine"
            case SourceState(problem):
                if self._is_ready:
                    self.state = LOST if problem else self._seeing()
            case Finished():
                self._is_finished = True
            case SwapDone(ok=True):
                self._frame_s.clear()
            case _:
                pass
        self._on_message(message)

    def _seeing(self) -> str:
        return "degraded" if self.counters["degradations"] else "running"

    def _note_frame(self, message: FrameDone) -> None:
        if message.stage_ns:
            self._frame_s.append(sum(message.stage_ns.values()) / 1e9)
        for event in message.events:
            self._highest_id = max(self._highest_id, event.track_id)
            if event.kind == "end":
                self._live.pop(event.track_id, None)
            else:
                self._live[event.track_id] = event

    def _end_live_tracks(self) -> None:
        events = tuple(replace(event, kind="end") for event in self._live.values())
        self._live.clear()
        if events:
            now_ns = max(event.captured_ns for event in events)
            self._on_message(FrameDone(-1, now_ns, now_ns, 0, 0.0, events, {}))
        self._highest_id += _ID_GAP

    def _flush(self) -> None:
        while self._outbox and self._socket is not None:
            try:
                sent = self._socket.send(self._outbox)
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()
                return
            del self._outbox[:sent]

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        self._stderr.clear()
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                continue  # A line longer than the reader's limit; what follows may be readable.
            if not line:
                return
            if len(self._stderr) == _STDERR_LINES:
                del self._stderr[1]  # The first line names a fault, the last ones an exception.
            self._stderr.append(line[:500].decode("utf-8", "replace").rstrip())

    def _last_stderr(self) -> str:
        """The first line (a fault's name) and the last two (an exception's end) of what it wrote."""
        lines = [line.strip() for line in self._stderr if line.strip(" ^~")]
        told = lines if len(lines) <= 3 else [lines[0], *lines[-2:]]
        return f" (it said: {' | '.join(told)})" if told else ""

    # --- Stepping down -----------------------------------------------------------------------------------------

    def _was_steady(self, now: float) -> bool:
        return not self._deaths or now - self._deaths[-1] > DEGRADE_WINDOW_S

    def _maybe_degrade(self, now: float, at_once: bool) -> None:
        """After too many deaths in a short time, or a runtime's failure: the next backend, then the next model."""
        is_often = len(self._deaths) == DEGRADE_DEATHS and now - self._deaths[0] <= DEGRADE_WINDOW_S
        if not is_often and not at_once:
            return
        config = self._config
        if len(config.backends) > 1:
            self._config = msgspec.structs.replace(config, backends=config.backends[1:])
            step = f"backend {config.backends[1]} instead of {config.backends[0]}"
        elif self._fallbacks:
            step = self._next_model()
        else:
            return
        self._deaths.clear()
        self._tell_step(
            step, "its runtime failed" if at_once else f"it died {DEGRADE_DEATHS} times within {DEGRADE_WINDOW_S:g} s"
        )

    def _step_down_from(self, reason: str) -> None:
        """The model cannot be used at all, and there is another one."""
        self._fatal, self._is_models_fault = "", False
        self._tell_step(self._next_model(), reason)

    def _next_model(self) -> str:
        old, model = self._config.model, self._fallbacks.pop(0)
        self._config = msgspec.structs.replace(self._config, model=model)
        return f"model {model} instead of {old}"

    def _tell_step(self, step: str, why: str) -> None:
        self.counters["degradations"] += 1
        text = f"the eye steps down to {step}: {why}"
        self._log("eye_degraded", text)
        self._on_message(Problem(text, fatal=False))


def _why(status: int) -> str:
    """The reason that an exit status gives."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"signal: {signal.Signals(-status).name}"
        return f"signal: {-status}"
    return f"exit: status {status}" if status else "exit: it ended"


def environment_of_eye() -> dict[str, str]:
    """The environment that an eye inherits.

    One thread for libraries that would take all cores, and one heap: with one for each thread, glibc keeps several
    megabytes more. What the user has set stands.
    """
    own = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return {**own, **os.environ}
