"""The brain's side of the worker that serves inference: one life of it; the supervisor of tasks starts the next.

A worker that says nothing for `SILENCE_S`, or whose runtime has not come back for `STUCK_S`, is killed. What the eye
runs is looked at with each pulse: a release reaches those who ask for the eye's model a second after it did the eye.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from swarmd.brain.compose import wants_eye
from swarmd.config.sections import Config
from swarmd.errors import WorkerError
from swarmd.eye.gate import EyeGate
from swarmd.eye.supervisor import environment_of_eye
from swarmd.logs import Logger
from swarmd.worker import words
from swarmd_models.bundle import DEFAULT_MODEL

if TYPE_CHECKING:
    from swarmd.brain.eyelink import EyeLink
    from swarmd.brain.lending import LendingLink

SILENCE_S = 15.0
"""Seconds without a word: fifteen pulses. A worker that runs only when the device idles may miss many."""
START_S = 60.0
"""Seconds until its first word: a small board reads its libraries from a card, beside an eye that does the same."""
STUCK_S = 10.0
"""Seconds that one inference may take."""
STOP_S = 2.0
"""Seconds between asking a worker to end and killing it."""
RETRY_S = 30.0
"""Seconds after which what could not be loaded is asked for again: its files may have been half written."""
UNREAD_MAX_BYTES = 4 << 20
"""Of what a worker was told and has not read: it may get no processor for seconds while others send it work."""
EYE = "eye"
"""In `inference.models`: what the eye runs."""


def able_of(config: Config, entry: str) -> tuple[str, int]:
    """Ability and grade, in thousandths, that the configuration gives an entry of `inference.models`."""
    for text in config.inference.abilities:
        model, ability, grade = text.rsplit(maxsplit=2)
        if model == entry:
            return ability, round(float(grade) * 1e3)
    return "", 0


@dataclass(frozen=True, slots=True)
class Energy:
    """What an inference takes, as far as the device can measure it."""

    meter: str = ""
    """What measures, or why nothing does; "": nobody has looked yet."""
    watts: float = 0.0
    """Added while an inference runs; 0: not known."""
    held: dict[str, int] = field(default_factory=dict)
    """Nanoseconds of one inference, by digest."""

    def joules(self, digest: str) -> float:
        """Of one inference of a bundle; 0: not known."""
        return self.watts * self.held.get(digest, 0) / 1e9


class WorkerLink:
    """One supervised worker."""

    def __init__(
        self,
        config: Config,
        eye: "Callable[[], EyeLink | None]",
        log: Logger,
        lending: "LendingLink | None" = None,
    ) -> None:
        """Start nothing; `run` does.

        Args:
            config: The whole configuration.
            eye: Gives the eye, whose model `eye` means; where there is none the configured one is meant.
            log: Where starts, models and problems are told.
            lending: Who lends the worker out, and borrows for its programs.
        """
        self._config = config
        self._eye = eye
        self.lending = lending
        self.judge_counts: Callable[[], dict[str, int]] = dict
        """What became of questions to another judge; empty where none is asked."""
        self.on_looked: Callable[[words.Looked], None] = lambda said: None
        """Told what came of each `Look`."""
        if lending is not None:
            lending.bind(self.say)
        self._session_key = os.urandom(32)
        """Of this life of the brain: a text goes on after its worker was replaced, and on no other device."""
        self.gate_fd = EyeGate.make() if wants_eye(config) else -1
        """Where the eye shows when it works; -1: there is none."""
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._asked: dict[str, str] = {}
        """Each entry of `inference.models`, and the bundle that was last asked for on its account."""
        self._problems: dict[str, str] = {}
        """By bundle that cannot be loaded, or "": of the worker itself."""
        self._retried_s = time.monotonic()
        self._earlier: Counter[str] = Counter()
        self._newest: dict[str, int] = {}
        self.gauges: dict[str, float] = {}
        """As the last pulse had them."""
        self.energy = Energy()
        """Of an inference, by the last pulse."""
        self.address = ""
        self.lane = ""
        """Where lenders fetch what is too large for the brains; "": nowhere."""
        self.grpc = ""
        self._names: dict[str, str] = {}
        """What is served of each bundle that was asked for."""
        self.models: dict[str, dict[str, str]] = {}
        """By name: version, digest and runtime of the newest."""

    @property
    def problem(self) -> str:
        """What is wrong, the newest of it; "": nothing."""
        return next(reversed(self._problems.values()), "")

    def digest_of(self, model: str) -> str:
        """Of what is served under a name or as an entry of `inference.models`, hexadecimal; "": it is not."""
        name = self._names.get(model, model)
        return self.models.get(name, {}).get("digest", "")

    def counters(self) -> dict[str, int]:
        """Sums over all lives of the worker."""
        return dict(self._earlier + Counter(self._newest))

    def status(self) -> dict[str, Any]:
        """For `swarmd status`, and for `swarmd infer`, which looks for the address."""
        return {
            "address": self.address,
            "grpc": self.grpc,
            "tensors": self.lane,
            "models": self.models,
            "pid": self._process.pid if self._process is not None else None,
            "problem": self.problem,
            "answered": self.counters().get("answered", 0),
            "judge": self.judge_counts(),
            "energy": {
                "meter": self.energy.meter,
                "watts": round(self.energy.watts, 3) or None,
                "joules": self.joules(),
            },
        }

    def joules(self) -> dict[str, float]:
        """Of one inference, by the newest bundle's name; empty where that is not measured, or not clear yet."""
        found = {name: self.energy.joules(one["digest"]) for name, one in self.models.items()}
        return {name: round(joules, 6) for name, joules in found.items() if joules}

    def close(self) -> None:
        """Let the gate go; after `run` has ended."""
        if self.gate_fd >= 0:
            os.close(self.gate_fd)
            self.gate_fd = -1

    async def run(self) -> None:
        """One life of a worker.

        Raises:
            WorkerError: It has ended, or was ended; the message says why.
        """
        settings = self._config.inference
        descriptors = (self.gate_fd,) if self.gate_fd >= 0 else ()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "swarmd.worker", pass_fds=descriptors, env=environment_of_eye(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=words.MAX_LINE_BYTES,
        )  # fmt: skip
        self._asked.clear()
        try:
            self._say(
                words.Serve(
                    settings.listen,
                    settings.backends,
                    settings.threads,
                    settings.max_requests,
                    settings.max_request_mib << 20,
                    settings.deadline_ms,
                    settings.batch_ms,
                    # Beside an eye it takes what the eye leaves.
                    is_idle=self.gate_fd >= 0,
                    gate_fd=self.gate_fd,
                    borrows=self.lending is not None and self._config.lending.borrow,
                    grpc=settings.grpc,
                    lends=self.lending is not None and self._config.lending.lend,
                    lane=self._config.lending.tensors if self.lending is not None else "",
                    plan=self._config.lending.plan if self._config.lending.borrow else "",
                    split=self._config.lending.split if self._config.lending.borrow else "",
                    leave=self._config.lending.leave,
                    jpeg_quality=self._config.lending.jpeg_quality,
                    session_key=self._session_key,
                )
            )
            self._ask_for_models()
            raise WorkerError(await self._listen(process))
        finally:
            self.address, self.lane, self.grpc, self.gauges, self.energy = "", "", "", {}, Energy()
            self.models.clear()
            self._names.clear()
            if self.lending is not None:
                self.lending.on_worker_gone()
            self._earlier += Counter(self._newest)
            self._newest = {}
            await self._bury(process)

    async def _listen(self, process: asyncio.subprocess.Process) -> str:
        """Take its words until it ends or must be ended; why."""
        assert process.stdout is not None
        patience_s = START_S
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    line = await process.stdout.readline()
            except TimeoutError:
                return f"the inference worker said nothing for {patience_s:g} s and was ended"
            except ValueError:
                return "the inference worker said a line without an end and was ended"
            if not line:
                status = await process.wait()
                said = self.problem if status == words.CANNOT_BIND_STATUS else ""
                return said or f"the inference worker ended with status {status}"
            patience_s = SILENCE_S
            try:
                word = words.decode_from_worker(line)
            except msgspec.DecodeError as error:
                return f"the inference worker said what nobody understands and was ended: {error}"
            self._take(word)
            if isinstance(word, words.Pulse) and word.busy_ms > STUCK_S * 1e3:
                return f"an inference has taken {word.busy_ms / 1e3:.0f} s; the inference worker was ended"

    def _take(self, word: words.FromWorker) -> None:
        match word:
            case words.Serving(address, lane, grpc):
                self.address, self.lane, self.grpc = address, lane, grpc
                self._problems.clear()
                self._log.info("inference_serving", address=address)
            case words.Loaded(model, name, version, digest, backend):
                self._problems.pop(model, None)
                self._names[model] = name
                self.models[name] = {"version": version, "digest": digest, "backend": backend}
                self._log.info("inference_model", model=name, version=version, digest=digest, backend=backend)
            case words.Problem(text, model):
                if self._problems.pop(model, "") != text:
                    self._log.warning("inference_problem", text=text, model=model)
                self._problems[model] = text
            case words.Pulse(_, counters, gauges):
                self._newest, self.gauges = counters, gauges
                self.energy = Energy(word.meter, word.watts, word.held)
                self._ask_for_models()
                if self.lending is not None:
                    self.lending.take(word)
            case words.Looked():
                self.on_looked(word)
            case words.Borrow() | words.Abandon() | words.Judged() | words.Malformed() | words.Ran():
                if self.lending is not None:
                    self.lending.take(word)

    def _ask_for_models(self) -> None:
        """Load what is configured, and what the eye has come to run; now and then again what could not be loaded."""
        if time.monotonic() - self._retried_s >= RETRY_S:
            self._retried_s = time.monotonic()
            self._asked = {entry: model for entry, model in self._asked.items() if model not in self._problems}
        for entry in self._config.inference.models:
            model, labels = entry, ""
            if entry == EYE:
                eye = self._eye()
                model = self._config.eye.model if eye is None else eye.model_path
                model = DEFAULT_MODEL if model == "zoo:auto" else model
                labels = self._config.eye.labels
            if self._asked.get(entry) != model:
                self._asked[entry] = model
                self._say(words.Load(model, labels, *able_of(self._config, entry)))

    def say(self, word: words.ToWorker) -> bool:
        """Tell the worker something; False where none runs, or one that has not read what it was told."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None or not self.address:
            return False
        if process.stdin.transport.get_write_buffer_size() > UNREAD_MAX_BYTES:
            return False
        self._say(word)
        return True

    def _say(self, word: words.ToWorker) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(words.encode(word))

    async def _bury(self, process: asyncio.subprocess.Process) -> None:
        """Let it end, or end it; also when `run` is cancelled."""
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError, ProcessLookupError):
            async with asyncio.timeout(STOP_S if process.returncode is None else 0.0):
                await process.wait()
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        await process.wait()
        self._process = None
