"""A device's side of releases, without I/O: slots, trial, swap, and the way back. Daemon and simulator drive this.

The protocol orders (`Prepare`, `StartTrial`, `GoBack`, `RaiseFloor`); the agent asks its driver for one thing at a time
and goes on with the answer. `TRANSITIONS` is the state diagram: what is not in it is a bug, and `_go` says so.

    IDLE ─Prepare─▶ CHECKING ─▶ IDLE
    IDLE ─StartTrial─▶ VERIFYING ─▶ RECORDING ─▶ WAITING ─▶ SPENDING ─▶ SWAPPING ─▶ SOAKING
    SOAKING ─gates hold─▶ PROMOTING ─▶ IDLE             SOAKING ─a gate fails─▶ REJECTING ─▶ RETURNING ─▶ IDLE
    any step of a trial ─GoBack─▶ LEAVING ─▶ UNDOING ─▶ IDLE

What is durable comes first: a try is spent before the trial loads, the record says active before peers are told PASS.
Files that a disk has lost are no verdict on a release: they are fetched again. Nor is a device that has no room to load
them. A way back ends any trial.
"""

# Longer: the diagram, what is asked and answered, and the steps between are read together.

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec

from swarmd_protocols.releases import slots
from swarmd_protocols.releases.health import Trial, judge
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.requests import (
    BlobsLost,
    GoBack,
    Prepare,
    RaiseFloor,
    Running,
    StartTrial,
    TrialBegan,
    TrialEnded,
)
from swarmd_protocols.releases.slots import Record, Slot
from swarmd_protocols.releases.statements import Release

SAMPLE_NS = 500_000_000
"""Between two looks at a trial, or at whether the moment is safe: frames come at 1 to 30 a second."""
SWAP_TIMEOUT_NS = 60_000_000_000
"""An eye that has not swapped by then never will: the largest models load in 20 s on a Raspberry Pi 4."""
MAX_ORDERS = 64
"""Orders that wait for the one under way; the protocol gives a handful for each release."""


class State(StrEnum):
    """What the agent waits for."""

    IDLE = "idle"
    CHECKING = "checking"
    """Files of a release that may be tried later are hashed and looked into."""
    VERIFYING = "verifying"
    """Files of a release that is to be tried now are hashed."""
    RECORDING = "recording"
    """The record names the trial."""
    WAITING = "waiting"
    """For a safe moment."""
    SPENDING = "spending"
    """A try is taken off the record."""
    SWAPPING = "swapping"
    """The eye loads the trial."""
    SOAKING = "soaking"
    """The trial runs and is measured."""
    PROMOTING = "promoting"
    """The record says that the trial is the active release."""
    REJECTING = "rejecting"
    """The record says that the release failed here."""
    RETURNING = "returning"
    """The eye loads what ran before the trial."""
    LEAVING = "leaving"
    """The record says what to go back to."""
    UNDOING = "undoing"
    """The eye loads that."""
    FLOORING = "flooring"
    """The record takes the floor."""


_S = State
_ENDS = frozenset({_S.IDLE, _S.LEAVING})
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.IDLE: frozenset({_S.CHECKING, _S.VERIFYING, _S.LEAVING, _S.UNDOING, _S.FLOORING}),
    _S.CHECKING: frozenset({_S.IDLE}),
    _S.VERIFYING: frozenset({_S.RECORDING, _S.WAITING, *_ENDS}),
    _S.RECORDING: frozenset({_S.WAITING, *_ENDS}),
    _S.WAITING: frozenset({_S.SPENDING, *_ENDS}),
    _S.SPENDING: frozenset({_S.SWAPPING, *_ENDS}),
    _S.SWAPPING: frozenset({_S.SOAKING, _S.REJECTING, *_ENDS}),
    _S.SOAKING: frozenset({_S.PROMOTING, _S.REJECTING, *_ENDS}),
    _S.PROMOTING: frozenset({_S.IDLE, _S.RETURNING}),
    _S.REJECTING: frozenset({_S.IDLE, _S.RETURNING}),
    _S.RETURNING: frozenset({_S.IDLE}),
    _S.LEAVING: frozenset({_S.UNDOING}),
    _S.UNDOING: frozenset({_S.IDLE}),
    _S.FLOORING: frozenset({_S.IDLE}),
}
"""State -> the states that may follow it."""

# --- What the driver is asked, and what it answers ---


class CheckFiles(msgspec.Struct, frozen=True, gc=False):
    """Hash these files; with `release`, see also whether it fits this device. Answered by `Checked`."""

    digests: tuple[bytes, ...]
    release: Release | None


class Checked(msgspec.Struct, frozen=True, gc=False):
    """Files that have gone or do not hash, and what speaks against the release, if anything does."""

    lost: tuple[bytes, ...]
    unfit: str | None = None


class SaveRecord(msgspec.Struct, frozen=True, gc=False):
    """Make the record durable; answered by `Saved`."""

    record: Record


class Saved(msgspec.Struct, frozen=True, gc=False):
    """The record is durable; or why it is not."""

    problem: str = ""


class AskMoment(msgspec.Struct, frozen=True, gc=False):
    """Is this a moment to swap: "any", "idle" or "disarmed"? Answered by `Moment`."""

    when: str


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Whether it is; None when there is no eye."""

    is_safe: bool | None


class Swap(msgspec.Struct, frozen=True, gc=False):
    """Have the eye load this slot's model, or the image's; answered by `Swapped` with the same number."""

    number: int
    slot: Slot | None
    is_trial: bool


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """How it went."""

    number: int
    ok: bool
    text: str = ""
    lost: tuple[bytes, ...] = ()
    """Files that could not be loaded because they have gone or do not hash."""
    is_here: bool = False
    """This device could not hand the model to an eye, for want of room or of one: that says nothing of the release."""


class BeginMeter(msgspec.Struct, frozen=True, gc=False):
    """Measure the running model from here on."""


class Measure(msgspec.Struct, frozen=True, gc=False):
    """Say what was measured so far; answered by `Measured`."""


class Measured(msgspec.Struct, frozen=True, gc=False):
    """The numbers."""

    trial: Trial


class EndMeter(msgspec.Struct, frozen=True, gc=False):
    """Measure no more."""


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Answer `Woke` with this number at that time."""

    at_ns: int
    number: int


class Woke(msgspec.Struct, frozen=True, gc=False):
    """It is that time."""

    number: int


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Give the protocol this command."""

    request: BlobsLost | Running | TrialBegan | TrialEnded


class Note(msgspec.Struct, frozen=True, gc=False):
    """For the log and the audit."""

    what: str
    release: bytes
    text: str


ModelOrder: TypeAlias = Prepare | StartTrial | GoBack | RaiseFloor
AgentEvent: TypeAlias = ModelOrder | Checked | Saved | Moment | Swapped | Measured | Woke
AgentEffect: TypeAlias = (
    CheckFiles | SaveRecord | AskMoment | Swap | BeginMeter | Measure | EndMeter | Wake | Tell | Note
)


class ReleaseAgent:
    """One model on one device.

    Args:
        model: Its id.
        record: From disk; an empty one where none can be read.
        sound: Digests of its files that are here and hash.
    """

    def __init__(self, model: str, record: Record, sound: frozenset[bytes]) -> None:
        self.model = model
        self.state = State.IDLE
        self.running = slots.to_start(record, sound)
        """The slot that the eye runs; None for the model in the image."""
        self.record = self._next = slots.running_only(record, self.running)
        self.swaps = 0
        """`_next` is the record that is being made durable."""
        self._now_ns = 0
        self._checking: Prepare | None = None
        self._orders: deque[ModelOrder] = deque()
        self._trial: StartTrial | None = None
        self._back: GoBack | None = None
        self._verdict = (Verdict.NONE, 0, 0, "")
        """Verdict, soak seconds, samples and reason of the trial that ends."""
        self._refused = b""
        """The release that the last check spoke against."""
        self._number = 0

    def announce(self) -> Tell:
        """Say what runs here: at the start, and after every way back."""
        record = self.record
        kept = tuple(slot.release for slot in (record.active, record.fallback) if slot is not None)
        return Tell(Running(self.model, self.running.release if self.running else b"", kept, record.rejected))

    def handle(self, event: AgentEvent, now_ns: int) -> list[AgentEffect]:
        """Take an order or an answer; returns what the driver is to do, in this order."""
        self._now_ns = now_ns
        match event:
            case Prepare() | StartTrial() | GoBack() | RaiseFloor():
                return self._on_order(event)
            case Checked():
                return self._on_checked(event)
            case Saved(problem):
                return self._on_saved(problem)
            case Moment(is_safe):
                return self._on_moment(is_safe)
            case Swapped():
                return self._on_swapped(event)
            case Measured(trial):
                return self._on_measured(trial)
            case Woke(number):
                return self._on_woke(number)
            case _:
                assert_never(event)

    # --- Orders -------------------------------------------------------------------------------------------------------

    def _on_order(self, order: ModelOrder) -> list[AgentEffect]:
        if isinstance(order, StartTrial) and self._trial is not None:
            return [Tell(TrialEnded(self.model, order.digest, Verdict.NONE, 0, 0, "no eye is free here"))]
        if len(self._orders) >= MAX_ORDERS:
            return [Note("order_dropped", b"", f"{MAX_ORDERS} orders wait already")]
        self._orders.append(order)
        if self.state is State.IDLE:
            return self._next_order()
        if isinstance(order, GoBack) and self.state in (State.WAITING, State.SOAKING):
            return self._taken_back()
        return []

    def _next_order(self) -> list[AgentEffect]:
        """What was ordered meanwhile."""
        effects: list[AgentEffect] = []
        while self._orders and self.state is State.IDLE:
            match self._orders.popleft():
                case Prepare(release=release) as order:
                    self._checking = order
                    effects += self._go(State.CHECKING, CheckFiles(_digests(release), release))
                case StartTrial() as order:
                    effects += self._begin(order)
                case GoBack() as order:
                    effects += self._leave(order)
                case RaiseFloor(_, root_epoch, floor):
                    effects += self._save(State.FLOORING, slots.floored(self.record, root_epoch, floor))
        return effects

    def _begin(self, order: StartTrial) -> list[AgentEffect]:
        if order.digest == self._refused:
            return []  # The check has just answered for it.
        if self.running is not None and self.running.release == order.digest:
            return [self.announce()]  # It runs already.
        if order.digest in self.record.rejected:
            return [self._ended(order.digest, Verdict.FAIL, "was rejected on this node")]
        if slots.is_below_floor(self.record, order.release.order):
            return [self._ended(order.digest, Verdict.NONE, "is below the floor that was raised here")]
        self._trial = order
        return self._go(State.VERIFYING, CheckFiles(_digests(order.release), None))

    def _leave(self, order: GoBack) -> list[AgentEffect]:
        self._back = order
        record = slots.gone_back(self.record, order.to)
        if record == self.record:
            return self._undo()
        self._next = record
        return self._go(State.LEAVING, SaveRecord(slots.numbered(record, self.record)))

    def _undo(self) -> list[AgentEffect]:
        return self._swap(State.UNDOING, self.record.active)

    # --- Answers ------------------------------------------------------------------------------------------------------

    def _on_checked(self, checked: Checked) -> list[AgentEffect]:
        if self.state is State.CHECKING:
            assert self._checking is not None
            digest = self._checking.digest
            effects = self._lost(digest, checked.lost)
            if not checked.lost and checked.unfit is not None:
                effects = [Note("unfit", digest, checked.unfit), self._ended(digest, Verdict.FAIL, checked.unfit)]
            self._refused = digest if effects else b""
            return [*self._go(State.IDLE), *effects, *self._next_order()]
        if self.state is not State.VERIFYING or self._trial is None:
            return []
        if self._is_taken_back():
            return self._taken_back()
        if checked.lost:
            return self._give_up(self._lost(self._trial.digest, checked.lost))
        record = slots.installed(self.record, _slot(self._trial))
        if record == self.record:
            return self._wait()
        self._next = record
        return self._go(State.RECORDING, SaveRecord(slots.numbered(record, self.record)))

    def _wait(self) -> list[AgentEffect]:
        assert self._trial is not None
        return self._go(State.WAITING, AskMoment(self._trial.release.swap_when))

    def _on_moment(self, is_safe: bool | None) -> list[AgentEffect]:
        if self.state is not State.WAITING or self._trial is None:
            return []
        if is_safe is None:
            return self._give_up([self._ended(self._trial.digest, Verdict.NONE, "no eye is free here")])
        if not is_safe:
            return [self._wake(self._now_ns + SAMPLE_NS)]
        self._next = slots.try_spent(self.record)
        return self._go(State.SPENDING, SaveRecord(slots.numbered(self._next, self.record)))

    def _on_woke(self, number: int) -> list[AgentEffect]:
        if number != self._number:
            return []
        match self.state:
            case State.WAITING if self._trial is not None:
                return [AskMoment(self._trial.release.swap_when)]
            case State.SOAKING:
                return [Measure()]
            case State.SWAPPING | State.RETURNING | State.UNDOING:
                if self.state is State.SWAPPING:
                    self.running = self.record.trial  # It may still swap, so it is told to return.
                seconds = SWAP_TIMEOUT_NS // 1_000_000_000
                return self._on_swapped(Swapped(number, False, f"the eye did not swap within {seconds} s"))
            case _:
                return []

    def _on_saved(self, problem: str) -> list[AgentEffect]:
        """The record lies on the disk, or the disk refuses it."""
        if not problem or self.state is State.LEAVING:
            self.record = slots.numbered(
                self._next, self.record
            )  # What must not run is left even if no disk remembers it.
        match self.state:
            case State.FLOORING:
                return [*self._go(State.IDLE), *self._next_order()]
            case State.LEAVING:
                return self._undo()
            case State.RECORDING | State.SPENDING:
                return self._on_trial_saved(problem)
            case State.PROMOTING | State.REJECTING:
                return self._on_verdict_saved(problem)
            case _:
                return []

    def _on_trial_saved(self, problem: str) -> list[AgentEffect]:
        assert self._trial is not None
        if problem:
            return self._give_up([self._ended(self._trial.digest, Verdict.NONE, problem)])
        if self._is_taken_back():
            return self._taken_back()
        if self.state is State.RECORDING:
            return self._wait()
        if self.record.trial is None:
            return self._give_up([self._ended(self._trial.digest, Verdict.FAIL, "its tries are used up")])
        return self._swap(State.SWAPPING, self.record.trial)

    def _on_verdict_saved(self, problem: str) -> list[AgentEffect]:
        assert self._trial is not None
        if self.state is State.PROMOTING and not problem:
            self.running = self.record.active
            self.swaps += 1
            return self._give_up(self._verdict_told())
        if self.state is State.PROMOTING:
            self._verdict = (Verdict.NONE, 0, 0, problem)
        if self.running == self.record.active:
            return self._give_up(self._verdict_told())  # The eye never left it.
        return self._swap(State.RETURNING, self.record.active)

    def _on_swapped(self, swapped: Swapped) -> list[AgentEffect]:
        if swapped.number != self._number:
            return []  # Of an eye that took too long.
        if self.state is State.SWAPPING:
            return self._on_trial_loaded(swapped)
        if self.state not in (State.RETURNING, State.UNDOING):
            return []
        self.running = self.record.active
        effects: list[AgentEffect] = []
        if swapped.lost:
            effects.append(Tell(BlobsLost(swapped.lost)))
        if self.state is State.RETURNING:
            return self._give_up([*effects, *self._verdict_told()])
        self.swaps += swapped.ok
        assert self._back is not None
        text = self._back.reason + (f"; {swapped.text}" if swapped.text and not swapped.ok else "")
        effects += [Note("went_back", self._back.leave, text), self.announce()]
        return [*self._go(State.IDLE), *effects, *self._next_order()]

    def _on_trial_loaded(self, swapped: Swapped) -> list[AgentEffect]:
        assert self._trial is not None
        if swapped.ok:
            self.running = self.record.trial
        if self._is_taken_back():
            return self._taken_back()
        if swapped.lost:
            return self._give_up(self._lost(self._trial.digest, swapped.lost))
        if swapped.is_here:
            return self._set_aside(swapped.text)
        if not swapped.ok:
            return self._reject(0, 0, swapped.text)
        began = Tell(TrialBegan(self.model, self._trial.digest))
        return [*self._go(State.SOAKING, BeginMeter()), began, self._wake(self._now_ns + SAMPLE_NS)]

    def _on_measured(self, trial: Trial) -> list[AgentEffect]:
        if self.state is not State.SOAKING or self._trial is None:
            return []
        verdict, reason = judge(trial, self._trial.release.gates)
        if verdict is Verdict.NONE:
            return [self._wake(self._now_ns + SAMPLE_NS)]
        if verdict is Verdict.FAIL:
            return [EndMeter(), *self._reject(trial.soak_s, trial.samples, reason)]
        self._verdict = (verdict, trial.soak_s, trial.samples, reason)
        self._next = slots.promoted(self.record)
        return [EndMeter(), *self._go(State.PROMOTING, SaveRecord(slots.numbered(self._next, self.record)))]

    # --- Ends of a trial ----------------------------------------------------------------------------------------------

    def _reject(self, soak_s: int, samples: int, reason: str) -> list[AgentEffect]:
        self._verdict = (Verdict.FAIL, soak_s, samples, reason)
        self._next = slots.rejected(self.record)
        return self._go(State.REJECTING, SaveRecord(slots.numbered(self._next, self.record)))

    def _set_aside(self, reason: str) -> list[AgentEffect]:
        """Tried again later: the try that was spent on it is given back."""
        self._verdict = (Verdict.NONE, 0, 0, reason)
        self._next = slots.unspent(self.record)
        return self._go(State.REJECTING, SaveRecord(slots.numbered(self._next, self.record)))

    def _is_taken_back(self) -> bool:
        return any(isinstance(order, GoBack) for order in self._orders)

    def _taken_back(self) -> list[AgentEffect]:
        """A way back ends the trial, whichever release it leaves."""
        assert self._trial is not None
        order = next(one for one in self._orders if isinstance(one, GoBack))
        self._orders.remove(order)
        effects: list[AgentEffect] = [EndMeter()] if self.state is State.SOAKING else []
        if order.leave != self._trial.digest:
            effects.append(self._ended(self._trial.digest, Verdict.NONE, "a way back came first"))
        self._trial = None
        self._back = order
        self._next = slots.gone_back(self.record, order.to)
        return [*effects, *self._go(State.LEAVING, SaveRecord(slots.numbered(self._next, self.record)))]

    def _give_up(self, effects: Sequence[AgentEffect]) -> list[AgentEffect]:
        """The trial is over, one way or another."""
        self._trial = None
        return [*self._go(State.IDLE), *effects, *self._next_order()]

    def _verdict_told(self) -> list[AgentEffect]:
        assert self._trial is not None
        verdict, soak_s, samples, reason = self._verdict
        note = Note(f"verdict {verdict.name}", self._trial.digest, reason)
        return [note, Tell(TrialEnded(self.model, self._trial.digest, verdict, soak_s, samples, reason))]

    def _lost(self, digest: bytes, lost: tuple[bytes, ...]) -> list[AgentEffect]:
        """Files have gone or do not hash: this disk's fault, not the release's."""
        if not lost:
            return []
        ended = self._ended(digest, Verdict.NONE, "files are damaged here")
        return [Note("damaged", digest, f"{len(lost)} files"), Tell(BlobsLost(lost)), ended]

    def _ended(self, digest: bytes, verdict: Verdict, reason: str) -> Tell:
        return Tell(TrialEnded(self.model, digest, verdict, 0, 0, reason))

    # --- Small parts --------------------------------------------------------------------------------------------------

    def _go(self, state: State, *effects: AgentEffect) -> list[AgentEffect]:
        assert state in TRANSITIONS[self.state]
        self.state = state
        return list(effects)

    def _save(self, state: State, record: Record) -> list[AgentEffect]:
        if record == self.record:
            return []
        self._next = record
        return self._go(state, SaveRecord(slots.numbered(record, self.record)))

    def _swap(self, state: State, slot: Slot | None) -> list[AgentEffect]:
        wake = self._wake(self._now_ns + SWAP_TIMEOUT_NS)
        return self._go(state, Swap(wake.number, slot, state is State.SWAPPING), wake)

    def _wake(self, at_ns: int) -> Wake:
        self._number += 1
        return Wake(at_ns, self._number)


def _digests(release: Release) -> tuple[bytes, ...]:
    return tuple(one.blob.sha256 for one in release.bundle)


def _slot(order: StartTrial) -> Slot:
    release = order.release
    files = {one.path: one.blob.sha256 for one in release.bundle}
    return slots.fresh_slot(order.digest, files, model_file(release), release.encrypt, release.order)


def model_file(release: Release) -> str:
    """What the eye is given: the bundle's description where there is one, else the model itself."""
    for role in ("bundle", "model"):
        for one in release.bundle:
            if one.role == role:
                return one.path
    raise AssertionError("a release has a model")  # parse_release saw to it.
