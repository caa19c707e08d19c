"""The release agent: its diagram, what is durable before what, the way back from every state, files that a disk lost.

`RULES` are attacks on it by faults: each returns True when the rule holds, and its mutant in `MUTANTS` makes it False.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from swarmd_protocols.effects import Order
from swarmd_protocols.releases import agent as agents
from swarmd_protocols.releases import requests, slots
from swarmd_protocols.releases.agent import TRANSITIONS, AgentEffect, AgentEvent, ReleaseAgent, State
from swarmd_protocols.releases.health import Trial
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.slots import TRIES, Record, decode_record, encode_record
from swarmd_protocols.releases.statements import Floor
from tests.support.release_world import MODEL, World, make_release

V1, V2, V3 = (make_release(bytes([version]) * 9_000, version) for version in (1, 2, 3))
D1, D2, D3 = b"1" * 32, b"2" * 32, b"3" * 32
GOOD, BAD = Trial(soak_s=9, samples=99, golden_ok=True), Trial(soak_s=9, samples=99, golden_ok=True, bad_frames=1)


@dataclass
class Device:
    """A disk and an eye around an agent; answers when it is told to."""

    record: Record = field(default_factory=Record)
    """On the disk."""
    saving: Record = field(default_factory=Record)
    lost: set[bytes] = field(default_factory=set)
    full: bool = False
    is_safe: bool | None = True
    swaps: bool = True
    has_room: bool = True
    """For a model in memory."""
    trial: Trial = GOOD
    log: list[AgentEffect] = field(default_factory=list)
    waiting: deque[AgentEvent] = field(default_factory=deque)
    seen: set[tuple[State, State]] = field(default_factory=set)
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        """A life begins: what was under way is gone, the disk stays."""
        self.waiting.clear()
        record = decode_record(encode_record(self.record))
        assert record is not None
        self.agent = ReleaseAgent(MODEL, record, slots.pinned(record) - self.lost)
        self.running = self.agent.running

    def feed(self, event: AgentEvent) -> None:
        before = self.agent.state
        effects = self.agent.handle(event, self.now_ns)
        if self.agent.state is not before:
            self.seen.add((before, self.agent.state))
        for effect in effects:
            self.log.append(effect)
            self.perform(effect)

    def perform(self, effect: AgentEffect) -> None:
        match effect:
            case agents.CheckFiles(digests, _):
                self.waiting.append(agents.Checked(tuple(one for one in digests if one in self.lost)))
            case agents.SaveRecord(record):
                self.saving = record
                self.waiting.append(agents.Saved("the disk is full" if self.full else ""))
            case agents.AskMoment():
                self.waiting.append(agents.Moment(self.is_safe))
            case agents.Wake(_, number):
                self.waiting.append(agents.Woke(number))
            case agents.Swap(number, slot, is_trial):
                lost = tuple(one for _, one in slot.files if one in self.lost) if slot is not None else ()
                is_here = not self.has_room and is_trial
                ok = not lost and not is_here and (self.swaps or not is_trial)
                if ok:
                    self.running = slot
                self.waiting.appendleft(agents.Swapped(number, ok, "" if ok else "it does not load", lost, is_here))
            case agents.Measure():
                self.waiting.append(agents.Measured(self.trial))
            case _:
                pass

    def step(self) -> bool:
        """Give one answer; False when none is due."""
        if not self.waiting:
            return False
        answer = self.waiting.popleft()
        if isinstance(answer, agents.Saved) and not answer.problem:
            self.record = self.saving
        self.feed(answer)
        return True

    def settle(self) -> "Device":
        for _ in range(10_000):
            if not self.step():
                return self
        raise AssertionError("it never comes to rest")

    def until(self, state: State) -> "Device":
        while self.agent.state is not state:
            assert self.step(), f"never {state}"
        return self

    def try_out(self, digest: bytes = D1, release: requests.Release = V1) -> "Device":
        self.feed(requests.Prepare(digest, release))
        self.feed(requests.StartTrial(digest, release))
        return self

    def told(self, kind: type) -> list[object]:
        return [one.request for one in self.log if isinstance(one, agents.Tell) and isinstance(one.request, kind)]

    def verdicts(self) -> list[Verdict]:
        return [one.verdict for one in self.told(requests.TrialEnded)]  # type: ignore[attr-defined]

    def release_running(self) -> bytes:
        return self.running.release if self.running is not None else b""


def with_v1() -> Device:
    device = Device()
    device.try_out(D1, V1).settle()
    assert device.release_running() == D1
    device.log.clear()
    return device


def index_of(device: Device, matches: Callable[[AgentEffect], bool]) -> int:
    return next(at for at, effect in enumerate(device.log) if matches(effect))


def is_told(kind: type) -> Callable[[AgentEffect], bool]:
    return lambda effect: isinstance(effect, agents.Tell) and isinstance(effect.request, kind)


# --- Rules ------------------------------------------------------------------------------------------------------------


def durable_before_told() -> bool:
    """A record with the release active lies on the disk before anybody hears PASS."""
    device = Device()
    device.try_out()
    while not device.told(requests.TrialEnded):
        if not device.step():
            return False
    record = device.record.active
    return record is not None and record.release == D1 and device.verdicts() == [Verdict.PASS]


def a_try_is_spent_before_the_load() -> bool:
    """Whatever a trial does to the device when it loads, the next life knows that it was tried."""
    device = Device()
    device.try_out()
    device.until(State.SWAPPING)
    return device.record.tries == TRIES - 1 and device.record.loaded


def three_power_cuts_use_up_the_tries_and_no_more_is_loaded() -> bool:
    device = Device()
    for _ in range(TRIES):
        device.try_out()
        device.until(State.SOAKING)
        device.boot()
    device.log.clear()
    device.try_out().settle()
    loads = [one for one in device.log if isinstance(one, agents.Swap)]
    return not loads and device.verdicts() == [Verdict.FAIL] and device.release_running() == b""


def lost_files_are_no_verdict() -> bool:
    """At the check before, at the one of the trial, and when the eye loads them."""
    blob = V1.bundle[0].blob.sha256
    found = []
    for state in (None, State.VERIFYING, State.SWAPPING):
        device = Device(is_safe=True)
        if state is None:
            device.lost.add(blob)
        device.try_out()
        if state is State.VERIFYING:
            device.until(State.CHECKING).step()
            device.lost.add(blob)
            device.waiting.clear()
            device.waiting.append(agents.Checked((blob,)))
        elif state is State.SWAPPING:
            device.until(State.SPENDING)
            device.lost.add(blob)
        device.settle()
        lost = device.told(requests.BlobsLost)
        found.append(bool(lost) and device.verdicts() == [Verdict.NONE] and not device.record.rejected)
    return all(found)


def a_failed_gate_rejects_for_good() -> bool:
    device = with_v1()
    device.trial = BAD
    device.try_out(D2, V2).settle()
    device.boot()
    device.trial = GOOD
    device.try_out(D2, V2).settle()
    return device.release_running() == D1 and device.verdicts() == [Verdict.FAIL] * 2 and D2 in device.record.rejected


def the_way_back_from_every_state_of_a_trial() -> bool:
    """Whatever a trial is at, a way back ends it: the eye runs the release before, the record names no trial."""
    states = (
        State.CHECKING, State.VERIFYING, State.RECORDING, State.WAITING, State.SPENDING, State.SWAPPING,
        State.SOAKING, State.PROMOTING,
    )  # fmt: skip
    for state in states:
        device = with_v1()
        device.try_out(D2, V2).until(state)
        device.feed(requests.GoBack(MODEL, D2, D1, "is revoked"))
        device.settle()
        record = device.record
        back = device.release_running() == D1 and record.active is not None and record.active.release == D1
        if not back or record.trial is not None or device.agent.state is not State.IDLE:
            return False
        if device.told(requests.Running)[-1].release != D1:  # type: ignore[attr-defined]
            return False
    return True


def nothing_below_the_floor_starts() -> bool:
    """The journal is lost and the newer file damaged: the older release stays closed, as the floor keys said."""
    device = with_v1()
    device.try_out(D2, V2).settle()
    device.feed(requests.RaiseFloor(MODEL, 1, (1, 2)))
    device.settle()
    device.lost.add(V2.bundle[0].blob.sha256)
    device.boot()
    older = device.release_running()
    device.try_out(D1, V1).settle()
    return older == b"" and device.release_running() == b"" and device.verdicts()[-1] is Verdict.NONE


def the_way_back_does_not_lead_below_the_floor() -> bool:
    device = with_v1()
    device.try_out(D2, V2).settle()
    device.feed(requests.RaiseFloor(MODEL, 1, (1, 2)))
    device.settle()
    device.feed(requests.GoBack(MODEL, D2, D1, "is revoked"))
    device.settle()
    return device.release_running() == b""


def an_eye_that_hangs_is_given_up() -> bool:
    """No answer to a swap: after a time it counts as failed, and the eye is told to return."""
    device = with_v1()
    device.try_out(D2, V2)
    device.until(State.SPENDING)
    device.perform = lambda effect, sound=device.perform: (  # type: ignore[method-assign,misc]
        None if isinstance(effect, agents.Swap) and effect.is_trial else sound(effect)
    )
    device.settle()
    returns = [one for one in device.log if isinstance(one, agents.Swap) and not one.is_trial]
    return device.verdicts() == [Verdict.FAIL] and device.agent.state is State.IDLE and len(returns) == 1


def a_full_disk_promotes_nothing() -> bool:
    """What cannot be made durable is not told: the eye goes back, and the trial is made again later."""
    device = with_v1()
    device.try_out(D2, V2).until(State.SOAKING)
    device.full = True
    device.settle()
    return device.release_running() == D1 and device.verdicts() == [Verdict.NONE]


def a_device_without_room_is_no_verdict() -> bool:
    """However often it is tried there, and when there is room it runs."""
    device = with_v1()
    device.has_room = False
    for _ in range(2 * TRIES):
        device.try_out(D2, V2).settle()
        device.boot()
    said = set(device.verdicts())
    device.has_room = True
    device.try_out(D2, V2).settle()
    return said == {Verdict.NONE} and device.release_running() == D2


RULES: dict[str, Callable[[], bool]] = {
    rule.__name__: rule
    for rule in (
        durable_before_told,
        a_try_is_spent_before_the_load,
        three_power_cuts_use_up_the_tries_and_no_more_is_loaded,
        lost_files_are_no_verdict,
        a_failed_gate_rejects_for_good,
        the_way_back_from_every_state_of_a_trial,
        nothing_below_the_floor_starts,
        the_way_back_does_not_lead_below_the_floor,
        an_eye_that_hangs_is_given_up,
        a_full_disk_promotes_nothing,
        a_device_without_room_is_no_verdict,
    )
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    assert RULES[rule]()


# --- Mutants ----------------------------------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def _tell_first(patch: pytest.MonkeyPatch) -> None:
    whole = ReleaseAgent._on_measured

    def boastful(self: ReleaseAgent, trial: Trial) -> list[AgentEffect]:
        effects = whole(self, trial)
        done = self.state is State.PROMOTING
        return [*(self._verdict_told() if done else []), *effects]

    patch.setattr(ReleaseAgent, "_on_measured", boastful)


def _lost_fails(patch: pytest.MonkeyPatch) -> None:
    def harsh(self: ReleaseAgent, digest: bytes, lost: tuple[bytes, ...]) -> list[AgentEffect]:
        return [self._ended(digest, Verdict.FAIL, "a file does not hash any longer")] if lost else []

    patch.setattr(ReleaseAgent, "_lost", harsh)


def _never_saved(patch: pytest.MonkeyPatch) -> None:
    whole = ReleaseAgent._on_saved
    patch.setattr(ReleaseAgent, "_on_saved", lambda self, problem: whole(self, ""))


MUTANTS: dict[str, tuple[str, Patch]] = {
    "peers are told first": ("durable_before_told", _tell_first),
    "the try is not spent": (
        "a_try_is_spent_before_the_load",
        lambda patch: patch.setattr(slots, "try_spent", lambda record: replace_try(record)),
    ),
    "tries without end": (
        "three_power_cuts_use_up_the_tries_and_no_more_is_loaded",
        lambda patch: patch.setattr(slots, "try_spent", lambda record: replace_try(record)),
    ),
    "lost files are a verdict": ("lost_files_are_no_verdict", _lost_fails),
    "a failure is forgotten": (
        "a_failed_gate_rejects_for_good",
        lambda patch: patch.setattr(slots, "rejected", lambda record: slots._untried(record)),
    ),
    "a way back waits for the trial": (
        "the_way_back_from_every_state_of_a_trial",
        lambda patch: patch.setattr(slots, "gone_back", lambda record, release: record),
    ),
    "the floor is not kept": (
        "nothing_below_the_floor_starts",
        lambda patch: patch.setattr(slots, "floored", lambda record, root_epoch, floor: record),
    ),
    "the way back forgets the floor": (
        "the_way_back_does_not_lead_below_the_floor",
        lambda patch: patch.setattr(slots, "is_below_floor", lambda record, order: False),
    ),
    "an eye is waited for without end": (
        "an_eye_that_hangs_is_given_up",
        lambda patch: patch.setattr(ReleaseAgent, "_on_woke", lambda self, number: []),
    ),
    "a device without room is held against the release": (
        "a_device_without_room_is_no_verdict",
        lambda patch: patch.setattr(ReleaseAgent, "_set_aside", lambda self, reason: self._reject(0, 0, reason)),
    ),
    "a try without room counts": (
        "a_device_without_room_is_no_verdict",
        lambda patch: patch.setattr(slots, "unspent", lambda record: record),
    ),
    "a full disk is not noticed": ("a_full_disk_promotes_nothing", _never_saved),
}


def replace_try(record: Record) -> Record:
    return slots.installed(slots._untried(record), record.trial) if record.trial is not None else record


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, patch = MUTANTS[mutant]
    patch(monkeypatch)
    try:
        holds = RULES[rule]()
    except AssertionError:
        holds = False  # The device noticed by itself: it hangs, or leaves the diagram.
    assert not holds, f"{rule} holds even when {mutant}"


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS.values()} == set(RULES)


# --- The diagram ------------------------------------------------------------------------------------------------------


def random_walk(seed: int, steps: int = 400) -> Device:
    """Orders, answers, faults and power cuts in any order; the invariants after each."""
    rng, device = random.Random(seed), Device()
    orders = [
        lambda: requests.Prepare(D2, V2),
        lambda: requests.StartTrial(D1, V1),
        lambda: requests.StartTrial(D2, V2),
        lambda: requests.StartTrial(D3, V3),
        lambda: requests.GoBack(MODEL, D2, D1, "is revoked"),
        lambda: requests.GoBack(MODEL, D1, b"", "is revoked"),
        lambda: requests.RaiseFloor(MODEL, 1, (1, rng.randrange(1, 3))),
    ]
    for _ in range(steps):
        device.full, device.swaps = rng.random() < 0.05, rng.random() < 0.9
        device.is_safe = rng.choice((True, True, True, False, None))
        device.trial = rng.choice((GOOD, GOOD, BAD, Trial(golden_ok=True)))
        blobs = [one.bundle[0].blob.sha256 for one in (V1, V2, V3)]
        device.lost = {rng.choice(blobs)} if rng.random() < 0.08 else set()
        chance = rng.random()
        if chance < 0.03:
            device.boot()
        elif chance < 0.25:
            device.feed(rng.choice(orders)())
        elif chance < 0.3 and device.waiting:
            stale = [one for one in device.waiting if isinstance(one, agents.Woke | agents.Moment | agents.Measured)]
            for answer in stale:  # Twice, and out of its order.
                device.feed(answer)
        else:
            device.step()
        record = device.agent.record
        active = device.agent.running
        assert len(record.rejected) <= slots.MAX_REJECTED
        assert record.tries <= TRIES
        assert device.record.floor <= record.floor or device.full or device.agent.state is State.FLOORING
        assert active is None or active.release not in record.rejected or device.agent.state is State.RETURNING
    return device


@pytest.mark.parametrize("seed", range(30))
def test_no_order_of_events_leads_out_of_the_diagram(seed: int) -> None:
    device = random_walk(seed)
    device.full, device.lost, device.is_safe, device.trial = False, set(), True, GOOD
    device.settle()
    assert device.agent.state is State.IDLE


def test_every_edge_of_the_diagram_is_walked() -> None:
    seen: set[tuple[State, State]] = set()
    for seed in range(60):
        seen |= random_walk(seed).seen
    edges = {(state, following) for state, all_following in TRANSITIONS.items() for following in all_following}
    through = {(state, State.IDLE) for state in TRANSITIONS}  # The next order may begin in the same step.
    assert seen <= edges | {(state, other) for state, _ in through for other in TRANSITIONS[State.IDLE]} | edges
    missing = {
        (state, following)
        for state, following in edges
        if (state, following) not in seen and following is not State.IDLE
    }
    assert not missing


# --- Together with the protocol ---------------------------------------------------------------------------------------


def test_the_signed_floor_reaches_the_slots_and_a_newer_root_replaces_it() -> None:
    world = World(2)
    world.publish(0, [world.keys.sign("floor", Floor(MODEL, 1, 7).payload(), "floor")])
    world.run(5)
    raised = [(at, detail) for at, detail in world.details if isinstance(detail, requests.RaiseFloor)]
    assert {at for at, _ in raised} == {0, 1}
    assert {detail.floor for _, detail in raised} == {(1, 7)}
    poisoned = slots.floored(Record(), 1, (1, 1_000))
    assert slots.floored(poisoned, 1, (1, 7)) == poisoned, "under one root it only rises"
    assert slots.floored(poisoned, 2, (1, 7)).floor == (1, 7), "recovery from stolen floor keys"


def test_an_order_is_no_notification() -> None:
    order = Order("releases", requests.StartTrial(D1, V1))
    assert not hasattr(order, "detail")


def test_too_many_orders_are_dropped_by_name() -> None:
    device = with_v1()
    device.is_safe = False
    device.try_out(D2, V2).until(State.WAITING)
    for _ in range(2 * agents.MAX_ORDERS):
        device.feed(requests.RaiseFloor(MODEL, 1, (1, 1)))
    assert any(isinstance(one, agents.Note) and one.what == "order_dropped" for one in device.log)


def test_a_busy_agent_says_so() -> None:
    device = with_v1()
    device.try_out(D2, V2).until(State.SOAKING)
    device.feed(requests.StartTrial(D3, V3))
    assert device.told(requests.TrialEnded)[-1].reason == "no eye is free here"  # type: ignore[attr-defined]
