"""Laws of a model in parts: the quickest way by measure, in time where thinking alone is, from what is held, at an end.

Each has a mutant that it finds.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.offload import shards
from swarmd_protocols.offload.shards import CHAIN_MAX, TRIES_MAX, Line, Part, Parts, Shards, Step, Walk
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

MS = 1_000_000
S = 1_000 * MS


def chain(sizes: tuple[int, ...], missing: frozenset[tuple[int, int]] = frozenset()) -> Parts:
    """Every range of a chain, but some."""
    last = len(sizes) - 1
    ends = [(a, b) for a in range(last) for b in range(a + 1, last + 1) if (a, b) not in missing]
    return Parts(sizes, tuple(Part(bytes([a, b] * 16), a, b) for a, b in ends))


@dataclass
class Truth:
    """What is so: a processor here, one elsewhere, a way between them."""

    parts: Parts
    own_stage_ns: list[int]
    lent_stage_ns: list[int]
    base_ns: int
    byte_ns: float
    here: frozenset[tuple[int, int]]
    noise: random.Random = field(default_factory=lambda: random.Random(1))

    def own(self) -> Mapping[bytes, int]:
        return {
            part.digest: sum(self.own_stage_ns[part.begin : part.end])
            for part in self.parts.parts if (part.begin, part.end) in self.here
        }  # fmt: skip

    def ran_ns(self, part: Part) -> int:
        return sum(self.lent_stage_ns[part.begin : part.end])

    def lent_ns(self, part: Part) -> int:
        size = self.parts.sizes[part.begin] + self.parts.sizes[part.end]
        return round(self.ran_ns(part) + self.base_ns + self.byte_ns * size)

    def best_ns(self, position: int = 0) -> int:
        """The quickest way, found from behind: not as the code finds it."""
        quickest = {self.parts.end: 0}
        own = self.own()
        for begin in range(self.parts.end - 1, position - 1, -1):
            times = [
                min(self.lent_ns(part), own.get(part.digest, 1 << 60)) + quickest[part.end]
                for part in self.parts.parts if part.begin == begin and part.end in quickest
            ]  # fmt: skip
            if times:
                quickest[begin] = min(times)
        return quickest[position]

    def take(self, knows: Shards, step: Step, now_ns: int) -> int:
        """Run a step; what it took."""
        share = 1.0 + self.noise.uniform(-0.05, 0.05)
        if step.is_own:
            return round(self.own()[step.part.digest] * share)
        took_ns = round(self.lent_ns(step.part) * share)
        size = self.parts.sizes[step.part.begin] + self.parts.sizes[step.part.end]
        knows.note_lent(step.part, size, took_ns, self.ran_ns(step.part), now_ns + took_ns)
        return took_ns


def request(truth: Truth, knows: Shards, now_ns: int) -> int:
    """One walk in which nothing fails; what it took."""
    began_ns, walk = now_ns, Walk(knows, now_ns + 100 * S)
    while (step := walk.next_step(truth.own(), now_ns)) is not None:
        now_ns += truth.take(knows, step, now_ns)
        walk.on_done(step)
    assert walk.is_through
    return now_ns - began_ns


def truth_of(seed: int) -> Truth:
    rng = random.Random(seed)
    stages = rng.randint(2, CHAIN_MAX)
    sizes = tuple(rng.choice((400, 2_000, 8_000, 30_000, 60_000, 150_000)) for _ in range(stages + 1))
    parts = chain(sizes)
    every = [(part.begin, part.end) for part in parts.parts]
    here = frozenset(every) if rng.random() < 0.7 else frozenset(one for one in every if rng.random() < 0.5)
    slower = rng.choice((2, 8, 20))
    lent = [rng.randint(1, 30) * MS for _ in range(stages)]
    return Truth(
        parts, [slower * one for one in lent], lent, rng.choice((1, 5, 20)) * MS, rng.choice((80.0, 800.0, 8_000.0)),
        here, random.Random(seed + 1),
    )  # fmt: skip


def law_ways_are_as_quick_as_the_best_of_an_exhaustive_search() -> None:
    """Goal: at most 1.10 times the best, in each of thirty worlds, and again some 300 walks after a change."""
    for seed in range(30):
        truth = truth_of(seed)
        knows = Shards(truth.parts)
        now_ns = 0
        for turn, speed in enumerate((1.0, 0.1, 10.0)):
            truth.byte_ns *= speed
            truth.base_ns = round(truth.base_ns * speed)
            took = []
            for _ in range(400):
                took.append(request(truth, knows, now_ns))
                now_ns += took[-1] + S // 2
            ratio = sum(took[-100:]) / 100 / truth.best_ns()
            assert ratio <= 1.10, f"world {seed}, turn {turn}: {ratio:.3f} of the best"


@given(st.integers(0, 10_000))
@settings(max_examples=150, deadline=None, report_multiple_bugs=False)
def law_the_quickest_measured_way_is_gone(seed: int) -> None:
    """Where every lent part has been measured, and nothing is old or barred, the first step begins a quickest way."""
    truth = truth_of(seed)
    knows = Shards(truth.parts)
    now_ns = 0
    for _ in range(40):
        for part in truth.parts.parts:
            size = truth.parts.sizes[part.begin] + truth.parts.sizes[part.end]
            knows.note_lent(part, size, truth.lent_ns(part), truth.ran_ns(part), now_ns)
    walk = Walk(knows, now_ns + 1_000 * S)
    took_ns = 0
    while (step := walk.next_step(truth.own(), now_ns)) is not None:
        took_ns += truth.own()[step.part.digest] if step.is_own else truth.lent_ns(step.part)
        walk.on_done(step)
    assert took_ns <= truth.best_ns() * 1.02


def _fate(walk: Walk, step: Step, own: Mapping[bytes, int], rng: random.Random, now_ns: int) -> int:
    """One step comes to something, by chance: done, refused, or a stall until its last moment; the time then."""
    if step.is_own:
        now_ns += own[step.part.digest]
        walk.on_done(step)
        return now_ns
    what = rng.random()
    if what < 0.3:
        now_ns = min(step.until_ns, now_ns + rng.randint(1, 200) * MS)
        walk.on_done(step)
    elif what < 0.6:
        now_ns = min(step.until_ns, now_ns + rng.randint(0, 5) * MS)
        walk.on_failed(step, now_ns)
    else:
        now_ns = max(now_ns, step.until_ns)
        walk.on_failed(step, now_ns)
    return now_ns


@given(st.integers(0, 1_000_000))
@settings(max_examples=300, deadline=None, report_multiple_bugs=False)
def law_borrowing_is_not_worse_than_thinking_alone(seed: int) -> None:
    """Whatever lent parts do, a device whose own parts could answer in time does; and every walk comes to an end."""
    rng = random.Random(seed)
    truth = truth_of(seed)
    truth.here = frozenset((part.begin, part.end) for part in truth.parts.parts)
    knows = Shards(truth.parts)
    alone_ns = sum(truth.own_stage_ns)
    now_ns = 0
    for _ in range(5):
        deadline_ns = now_ns + round(alone_ns * rng.uniform(1.6, 4.0))
        walk = Walk(knows, deadline_ns)
        steps = 0
        while (step := walk.next_step(truth.own(), now_ns)) is not None:
            assert step.is_own or step.until_ns <= deadline_ns
            now_ns = _fate(walk, step, truth.own(), rng, now_ns)
            steps += 1
            assert steps <= TRIES_MAX + CHAIN_MAX
        assert walk.is_through
        assert now_ns <= deadline_ns, f"{(now_ns - deadline_ns) / MS:.1f} ms late"
        now_ns += rng.randint(0, 20) * S


@given(st.integers(0, 1_000_000))
@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
def law_a_failed_part_is_left_and_nothing_is_computed_twice(seed: int) -> None:
    """The step after a failure is from the same position, and not the same lent part where there is another way."""
    rng = random.Random(seed)
    truth = truth_of(seed)
    knows = Shards(truth.parts)
    now_ns = 0
    walk = Walk(knows, 1_000 * S)
    own = truth.own()
    for _ in range(TRIES_MAX + CHAIN_MAX + 8):
        step = walk.next_step(own, now_ns)
        if step is None:
            break
        assert step.part.begin == walk.position
        if step.is_own or rng.random() < 0.5:
            walk.on_done(step)
            continue
        walk.on_failed(step, now_ns)
        again = walk.next_step(own, now_ns)
        others = [part for part in truth.parts.parts if part.begin == walk.position and part != step.part]
        has_other = any(not knows.is_barred(part, now_ns) for part in others) or step.part.digest in own
        if again is not None and has_other and walk.failures < TRIES_MAX:
            assert again.part.begin == walk.position
            assert again.is_own or again.part != step.part
    assert [one.part.begin for one in walk.done] == [0, *(one.part.end for one in walk.done)][:-1]


def test_an_own_part_that_fails_is_not_tried_again_in_the_same_walk() -> None:
    parts = chain((10, 10))
    walk = Walk(Shards(parts), S)
    own = {parts.parts[0].digest: 0}
    first = walk.next_step(own, 0)
    assert first is not None
    assert first.is_own
    walk.on_failed(first, 0)
    second = walk.next_step(own, 0)
    assert second is not None
    assert not second.is_own
    assert not second.has_own_rest


def test_a_device_without_a_part_has_no_answer_when_all_have_failed() -> None:
    walk = Walk(Shards(chain((10, 10, 10))), S)
    for _ in range(TRIES_MAX):
        step = walk.next_step({}, 0)
        assert step is not None
        assert not step.is_own
        walk.on_failed(step, 0)
    assert walk.next_step({}, 0) is None
    assert not walk.is_through


def test_what_failed_is_tried_again_after_a_second_and_then_after_two() -> None:
    knows = Shards(chain((10, 10)))
    (part,) = knows.parts.parts
    for until_s in (1, 2, 4, 8, 16, 30, 30):
        knows.note_failed(part, 0)
        assert knows.is_barred(part, until_s * S - 1)
        assert not knows.is_barred(part, until_s * S)
    knows.note_lent(part, 20, 5 * MS, 7 * MS, 0)
    assert not knows.is_barred(part, 0)
    assert knows.cost_ns(part, None) == 5 * MS, "a lender cannot have run for longer than it took"


def test_parts_that_lead_nowhere_are_refused() -> None:
    part = Part(bytes(32), 0, 1)
    for sizes, parts in (
        ((1, 1, 1), (part,)),
        ((1,), (part,)),
        ((1, 1), ()),
        ((1, 1), (part, part)),
        ((1, -1), (part,)),
        ((1, 1), (Part(bytes(32), 1, 0),)),
        ((1, 1), (Part(bytes(32), 0, 2),)),
        ((1,) * 5, tuple(Part(bytes([n] * 32), n, n + 1) for n in range(4))),
        ((1, 1, 1, 1), tuple(Part(bytes([n] * 32), 0, 3) for n in range(9))),
    ):
        with pytest.raises(ValueError, match=r"part|way"):
            Parts(sizes, parts)


def test_a_line_tells_base_from_bytes() -> None:
    line = Line()
    for size in (1_000, 50_000, 1_000, 50_000):
        line.note(size, 4 * MS + 800 * size)
    assert line.ns(20_000) == pytest.approx(4 * MS + 800 * 20_000, rel=0.1)
    one = Line()
    one.note(10_000, 9 * MS)
    assert one.ns(10_000) == 9 * MS
    assert (one.ns(5_000), one.ns(20_000)) == (4.5 * MS, 9.08 * MS), "of one size: what looks quicker is tried"


def does_not_learn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shards, "note_lent", lambda *arguments: None)


def never_tries_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shards, "_PROBE_SHARE", 0.0)


def forgets_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "ns", lambda self, size_bytes: 10.0 * MS)


def lets_lenders_have_all_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shards, "_MARGIN", 0.5)


def bars_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shards, "is_barred", lambda self, part, now_ns: False)


PAIRS: list[tuple[Law, Mutant]] = [
    (law_ways_are_as_quick_as_the_best_of_an_exhaustive_search, does_not_learn),
    (law_ways_are_as_quick_as_the_best_of_an_exhaustive_search, never_tries_again),
    (law_ways_are_as_quick_as_the_best_of_an_exhaustive_search, forgets_bytes),
    (law_the_quickest_measured_way_is_gone, forgets_bytes),
    (law_borrowing_is_not_worse_than_thinking_alone, lets_lenders_have_all_the_time),
    (law_a_failed_part_is_left_and_nothing_is_computed_twice, bars_nobody),
]


@each_law(PAIRS)
def test_law(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_each_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
