"""Performs what the release agent asks (`releases/agent.py`): files in the storage's thread, swaps in the eye."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from swarmd.logs import Logger
from swarmd.release.chunks import FileChunks
from swarmd.release.errors import DeltaError, SlotError
from swarmd.release.slots import SlotFiles
from swarmd.release.storage import StorageThread
from swarmd_protocols.releases import agent as agents
from swarmd_protocols.releases.agent import AgentEffect, AgentEvent, ReleaseAgent
from swarmd_protocols.releases.health import Trial
from swarmd_protocols.releases.slots import Record, Slot
from swarmd_protocols.releases.statements import Release

if TYPE_CHECKING:  # A brain without an eye tries nothing: 0.4 MB less.
    from swarmd.release.trial import SwapAnswer, TrialMeter


class ModelRunner(Protocol):
    """What runs a model here: the eye, seen from the releases."""

    def swap(self, model: str, answer: "Callable[[SwapAnswer], None]") -> None:
        """Load a bundle (path) beside the running one, check it, and swap between two frames; then answer."""
        ...

    def meter(self) -> "TrialMeter":
        """Begin to measure the running model."""
        ...

    def is_safe(self, moment: str) -> bool:
        """Whether this is a moment to swap: "any", "idle" or "disarmed"."""
        ...


class AgentDriver:
    """Drives one agent on the loop.

    Args:
        agent: Decides.
        slots: Where its record lies.
        store: The files, used in the storage's thread only.
        storage: That thread.
        materialise: Makes a slot's files readable and returns the bundle's path; called in the storage's thread.
        tell: Gives the protocol a command.
        note: Takes what the log and the audit are to say.
        soak_scale: Below 1 only in demonstrations: the manifest's soak times this.
        log: Where failures are said.
    """

    def __init__(
        self,
        agent: ReleaseAgent,
        slots: SlotFiles,
        store: FileChunks,
        storage: StorageThread,
        materialise: Callable[[Slot | None], str],
        tell: Callable[[object], None],
        note: Callable[[agents.Note], None],
        soak_scale: float,
        log: Logger,
    ) -> None:
        self.agent = agent
        self.runner: ModelRunner | None = None
        self._slots = slots
        self._store = store
        self._storage = storage
        self._materialise = materialise
        self._tell = tell
        self._note = note
        self._soak_scale = soak_scale
        self._log = log
        self._meter: TrialMeter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def feed(self, event: AgentEvent) -> None:
        """Take an order or an answer; on the loop."""
        for effect in self.agent.handle(event, time.monotonic_ns()):
            self._perform(effect)

    def close(self) -> None:
        """Stop; what is under way is given up."""
        for task in self._tasks:
            task.cancel()
        self._end_meter()

    # --- Effects ----------------------------------------------------------------------------------------------------

    def _perform(self, effect: AgentEffect) -> None:
        loop = asyncio.get_running_loop()
        match effect:
            case agents.CheckFiles(digests, release):
                self._start(self._check(digests, release))
            case agents.SaveRecord(record):
                self._start(self._save(record))
            case agents.Swap(number, slot, _):
                self._start(self._swap(number, slot))
            case agents.AskMoment(when):
                is_safe = self.runner.is_safe(when) if self.runner is not None else None
                loop.call_soon(self.feed, agents.Moment(is_safe))
            case agents.Wake(at_ns, number):
                loop.call_later(max(0, at_ns - time.monotonic_ns()) / 1e9, self.feed, agents.Woke(number))
            case agents.BeginMeter():
                self._meter = self.runner.meter() if self.runner is not None else None
            case agents.Measure():
                trial = self._meter.measure(self._soak_scale) if self._meter is not None else Trial()
                loop.call_soon(self.feed, agents.Measured(trial))
            case agents.EndMeter():
                self._end_meter()
            case agents.Tell(request):
                self._tell(request)
            case agents.Note():
                self._note(effect)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("release_agent_failed", error=str(task.exception()))

    def _end_meter(self) -> None:
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    async def _check(self, digests: tuple[bytes, ...], release: Release | None) -> None:
        lost = await self._storage.run(lambda: self._store.recheck(digests))
        unfit = None
        if release is not None and not lost:
            unfit = await self._storage.run(lambda: self._unfit(release))
        self.feed(agents.Checked(tuple(lost), unfit))

    def _unfit(self, release: Release) -> str | None:
        """What speaks against a bundle before it is even tried."""
        for one in release.bundle:
            if one.role != "model" or not release.operators:
                continue
            data = self._store.get(one.blob.sha256)
            if data is None:
                return f"{one.path} does not hash any longer"
            try:
                from swarmd.release.delta.flatbuffer import operators

                extra = sorted(set(operators(data)) - set(release.operators))
            except DeltaError as error:
                return f"{one.path}: {error}"
            if extra:
                return f"{one.path} uses operators that are not signed for: {', '.join(extra)[:60]}"
        return None

    async def _save(self, record: Record) -> None:
        try:
            await self._storage.run(lambda: self._slots.save(record))
        except SlotError as error:
            self.feed(agents.Saved(str(error)))
        else:
            self.feed(agents.Saved())

    async def _swap(self, number: int, slot: Slot | None) -> None:
        try:
            bundle = await self._storage.run(lambda: self._materialise(slot))
        except (SlotError, MemoryError) as error:
            lost = await self._storage.run(lambda: self._store.recheck(one for _, one in slot.files)) if slot else []
            text = str(error) or "there is no memory for a model"
            self.feed(agents.Swapped(number, False, text, tuple(lost), is_here=True))
            return
        if self.runner is None:
            self.feed(agents.Swapped(number, False, "no eye runs here", is_here=True))
            return
        self.runner.swap(bundle, lambda answer: self.feed(agents.Swapped(number, answer.ok, answer.text)))
