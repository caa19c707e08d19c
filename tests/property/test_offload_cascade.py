"""Laws of a plan's walk: one release's answers alone, each once; no answer takes nothing away; sure ones ask nobody."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.offload import cascade
from swarmd_protocols.offload.cascade import Plan, Step, Walk, confidence, logit
from tests.support.mutants import assert_found

DIGESTS = [bytes([index]) * 32 for index in range(6)]
OLD = Plan(
    Step(DIGESTS[0], weight=0.6),
    (Step(DIGESTS[1], 0.1, 0.9, keep=0.5, weight=0.7), Step(DIGESTS[2], 0.2, 0.8, keep=0.4, weight=0.6, least_ns=20)),
    prior=0.3,
)
"""Of one release; the other digests are the next one's."""
SCORE = st.floats(0, 1) | st.sampled_from([float("nan"), float("inf"), -0.1, 1.1])


@given(st.lists(st.tuples(st.sampled_from(DIGESTS), SCORE) | st.integers(0, 100), max_size=12))
@settings(max_examples=300, deadline=None)
def test_only_what_the_plan_has_asked_counts_and_once(events: list[Any]) -> None:
    walk, asked = Walk(OLD), [DIGESTS[0]]
    for event in events:
        before, parts = walk.confidence, list(walk.parts)
        if isinstance(event, int):
            step = walk.next_step(event)
            if step is not None:
                assert step.digest not in asked, "a step was given twice"
                assert not parts or step.low <= before <= step.high, "who is sure has asked"
                assert event > step.least_ns, "a step was given without time for it"
                asked.append(step.digest)
            assert walk.confidence == before, "asking alone has changed what is known"
        else:
            digest, score = event
            counts = walk.add(digest, score)
            is_sound = digest in asked and digest not in parts and 0.0 <= score <= 1.0
            assert counts == is_sound, "an answer counts that must not, or does not that must"
            assert walk.parts == [*parts, digest][: len(parts) + counts]
            assert counts or walk.confidence == before, "an answer that does not count has changed what is known"
        assert 0.0 < walk.confidence < 1.0


def test_a_walk_through_all_steps() -> None:
    walk = Walk(OLD)
    assert round(walk.confidence, 9) == 0.3
    assert walk.add(DIGESTS[0], 0.5)
    first = walk.next_step(100)
    assert first is not None
    assert first.digest == DIGESTS[1]
    assert not walk.add(DIGESTS[4], 0.9), "the next release's answer was taken for this one's"
    assert walk.confidence == 0.5
    second = walk.next_step(100)  # The first has not answered: what was known stands, and the next is asked.
    assert second is not None
    assert second.digest == DIGESTS[2]
    assert walk.add(DIGESTS[2], 0.9)
    assert walk.confidence == confidence(0.4 * 0.0 + 0.6 * logit(0.9))
    assert walk.add(DIGESTS[1], 0.9), "a late answer of a step of this plan counts"
    assert not walk.add(DIGESTS[1], 0.9), "one answer counted twice"
    assert walk.next_step(100) is None


def test_who_is_sure_asks_nobody_and_who_has_no_model_asks_at_once() -> None:
    sure = Walk(OLD)
    sure.add(DIGESTS[0], 0.9999)
    assert sure.next_step(100) is None
    bare = Walk(replace(OLD, own=None))
    step = bare.next_step(100)
    assert step is not None
    assert bare.add(step.digest, 0.8)
    assert round(bare.confidence, 9) == 0.8, "the first word is taken as it is"


def test_a_step_without_time_is_left_out_and_counted() -> None:
    walk = Walk(OLD)
    walk.add(DIGESTS[0], 0.5)
    assert walk.next_step(10) is not None
    assert walk.next_step(10) is None
    assert walk.counts == {"no_time": 1}


@pytest.mark.parametrize("steps", [(Step(DIGESTS[1]), Step(DIGESTS[1])), tuple(Step(bytes([i])) for i in range(5))])
def test_a_plan_that_cannot_be_walked_is_refused(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ValueError, match="steps; a plan has at most 4"):
        Plan(None, steps)


def _any_release_counts(patch: pytest.MonkeyPatch) -> None:
    def add(self: Walk, digest: bytes, score: float) -> bool:
        self._known = logit(score)
        self.parts.append(digest)
        return True

    patch.setattr(Walk, "add", add)


def _an_answer_counts_twice(patch: pytest.MonkeyPatch) -> None:
    whole = Walk.add

    def add(self: Walk, digest: bytes, score: float) -> bool:
        self.parts = [part for part in self.parts if part != digest]
        return whole(self, digest, score)

    patch.setattr(Walk, "add", add)


def _steps_come_again(patch: pytest.MonkeyPatch) -> None:
    whole = Walk.next_step

    def next_step(self: Walk, left_ns: int) -> Step | None:
        self._at = 0
        return whole(self, left_ns)

    patch.setattr(Walk, "next_step", next_step)


def _nobody_is_ever_sure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cascade.Walk, "confidence", property(lambda self: 0.5))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_any_release_counts, test_a_walk_through_all_steps),
        (_an_answer_counts_twice, test_a_walk_through_all_steps),
        (_steps_come_again, test_a_walk_through_all_steps),
        (_nobody_is_ever_sure, test_who_is_sure_asks_nobody_and_who_has_no_model_asks_at_once),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)
