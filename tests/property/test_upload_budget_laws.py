"""Laws of what a node gives of files: bounded over any ten seconds whoever asks, less beside a storm, never nothing."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.releases import upload_budget
from swarmd_protocols.releases.upload_budget import WINDOW_S, UploadBudget
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

S = 1_000_000_000
MS = 1_000_000
RATE = 16_000
ASKERS = 30
CHUNKS = st.sampled_from([500, 4_096, 16_384, 65_536])
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 50, 250, 4_000, 30_000]), CHUNKS, st.integers(0, 60_000)), max_size=30
)
"""(milliseconds until the next request, its bytes, what else the node sends meanwhile)."""


class Giver:
    """A node that is asked, and what it gave when."""

    def __init__(self) -> None:
        self.now_ns = 5 * S
        self.sent = 0
        self.given: list[tuple[int, int]] = []
        self.budget = UploadBudget(RATE, lambda: self.sent)

    def ask(self, size: int, file: bytes = b"") -> bool:
        is_given = self.budget.take(size, self.now_ns, file)
        if is_given:
            self.sent += size
            self.given.append((self.now_ns, size))
        return is_given

    def busiest(self) -> int:
        """Bytes given in the ten seconds in which it gave most."""
        return max(
            (
                sum(size for at_ns, size in self.given if from_ns <= at_ns < from_ns + WINDOW_S * S)
                for from_ns, _ in self.given
            ),
            default=0,
        )

    def in_storm(self, seconds: int, size: int, storm_bytes_s: int) -> None:
        """Asked without end while the node's other words take so much."""
        for _ in range(seconds * 10):
            self.now_ns += 100 * MS
            self.sent += storm_bytes_s // 10
            self.ask(size)


@given(STEPS)
def law_any_ten_seconds_hold_ten_seconds_worth(steps: Sequence[tuple[int, int, int]]) -> None:
    giver = Giver()
    for wait_ms, size, talk in steps:
        giver.now_ns += wait_ms * MS
        giver.sent += talk
        for _ in range(ASKERS):
            giver.ask(size)
    largest = max((size for _, size in giver.given), default=0)
    assert giver.busiest() <= WINDOW_S * RATE + largest


@given(st.sampled_from([4_096, 16_384, 65_536]), st.integers(0, 1_000_000))
def law_every_file_arrives(size: int, storm_bytes_s: int) -> None:
    giver = Giver()
    giver.in_storm(60, size, storm_bytes_s)
    assert sum(size for _, size in giver.given) >= 60 * RATE // 3 - size


@given(st.sampled_from([4_096, 16_384]))
def law_a_storm_leaves_half(size: int) -> None:
    giver = Giver()
    giver.in_storm(20, size, 3 * RATE)
    begun = len(giver.given)
    giver.in_storm(40, size, 3 * RATE)
    assert sum(size for _, size in giver.given[begun:]) <= 40 * RATE // 2 + size


@given(CHUNKS, st.integers(1, 1 << 30))
def law_without_a_bound_nothing_waits(size: int, talk: int) -> None:
    sent = [0]
    budget = UploadBudget(0, lambda: sent[0])
    for _ in range(100):
        sent[0] += talk
        assert budget.take(size, S)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([10, 50, 250]), min_size=2, max_size=5),
    st.sampled_from([4_096, 16_384]),
    st.sampled_from([0, 3 * RATE]),
)
@example([10, 250, 250], 4_096, 3 * RATE)
def law_files_take_turns(every_ms: Sequence[int], size: int, storm_bytes_s: int) -> None:
    """However often each is tried: who has few askers gets half as much at least as who has many, beyond a burst."""
    giver, given = Giver(), [0] * len(every_ms)
    seconds = 4 * len(every_ms) * size * 2 // RATE + 20
    for step in range(seconds * 100):
        giver.now_ns += 10 * MS
        giver.sent += storm_bytes_s // 100
        for file, gap_ms in enumerate(every_ms):
            if step * 10 % gap_ms == 0:
                given[file] += giver.ask(size, bytes([file]))
    at_once = 3 * RATE // size
    assert max(given) - at_once - 1 <= 2 * min(given), given


@given(st.sampled_from([4_096, 16_384]))
def law_a_file_that_gives_up_its_turn_holds_nobody_up(size: int) -> None:
    giver = Giver()
    giver.in_storm(20, size, 3 * RATE)

    def until_given() -> int:
        begun_ns = giver.now_ns
        while not giver.ask(size):
            giver.now_ns += 50 * MS
            giver.sent += 3 * RATE // 20
        return giver.now_ns - begun_ns

    until_given()
    assert not giver.ask(size, b"gone")
    assert until_given() <= max(S, size * 2 * S // RATE) + 100 * MS


def nothing_is_spent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UploadBudget, "take", lambda self, size, now_ns, file: not self.is_spent(size, now_ns))


def too_much_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upload_budget, "_BURST_S", 2 * WINDOW_S)


def a_storm_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upload_budget, "_ALL_PERCENT", 100_000)


def chunks_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upload_budget, "_LEAST_SHARE", 1_000)


def bounded_though_it_is_not(patch: pytest.MonkeyPatch) -> None:
    init = UploadBudget.__init__
    patch.setattr(UploadBudget, "__init__", lambda self, bytes_s, read: init(self, bytes_s or 1, read))


def whoever_comes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UploadBudget, "_is_turn_of", lambda self, file, now_ns: True)


def who_is_gone_keeps_its_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upload_budget, "_TURN_NS", 60 * S)


PAIRS = [
    (law_files_take_turns, whoever_comes_first),
    (law_a_file_that_gives_up_its_turn_holds_nobody_up, who_is_gone_keeps_its_turn),
    (law_any_ten_seconds_hold_ten_seconds_worth, nothing_is_spent),
    (law_any_ten_seconds_hold_ten_seconds_worth, too_much_at_once),
    (law_a_storm_leaves_half, a_storm_is_not_seen),
    (law_every_file_arrives, chunks_wait_for_ever),
    (law_without_a_bound_nothing_waits, bounded_though_it_is_not),
]


@each_law(PAIRS)
def test_law(law: object) -> None:
    assert callable(law)
    law()


@each_mutant(PAIRS)
def test_law_finds(law: object, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(law)
    assert_found(mutant, law, monkeypatch)
