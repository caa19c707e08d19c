"""The past from peers: whatever order, subset or repetition, the same past; nothing unsigned; gaps said as gaps."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.past.pages import digest_of, read_page
from swarmd_protocols.past.spans import JOIN_MS, common, joined, without
from tests.support import past_laws
from tests.support.past_world import BEGIN_MS, Shelf, event, identity, minutes, page

SIMPLE = (
    past_laws.what_happened_before_is_known_after,
    past_laws.a_gap_is_a_gap,
    past_laws.who_is_back_is_asked,
    past_laws.another_observer_keeps_it,
    past_laws.a_stranger_to_the_author_reads_its_certificate,
    past_laws.who_is_shut_out_has_no_past,
    past_laws.only_roles_that_may_are_given_to,
    past_laws.an_older_member_is_no_liar,
    past_laws.what_is_given_is_bounded,
    past_laws.who_asks_without_end_is_not_heard,
    past_laws.a_disk_that_does_not_answer_is_no_end,
    past_laws.what_there_is_is_told_out_of_the_budget,
    past_laws.askers_that_agree_leave_another_its_turn,
    past_laws.a_liar_that_goes_and_comes_back_is_left,
    past_laws.names_that_are_made_up_leave_room_for_members,
)


@pytest.mark.parametrize("law", SIMPLE, ids=lambda law: law.__name__)
def test_law(law: object) -> None:
    law()  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(1, 6))
def test_loss_takes_nothing(seed: int) -> None:
    past_laws.loss_takes_nothing(seed)


@pytest.mark.parametrize(("answer_s", "colluders"), [(None, 12), (58, 12), (30, 8), (9, 8)])
def test_givers_that_agree_hold_up_nobody(answer_s: int | None, colluders: int) -> None:
    past_laws.givers_that_agree_hold_up_nobody(answer_s, colluders, seed=2)


@pytest.mark.parametrize("lie", past_laws.LIES)
def test_a_liar_is_named_and_left(lie: str) -> None:
    past_laws.a_liar_is_named_and_left(lie)


SPANS = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 20_000)).map(lambda one: (one[0], one[0] + one[1])))


@settings(max_examples=200, deadline=None)
@given(SPANS, st.integers(0, 60_000), st.integers(0, 30_000))
def test_what_is_there_and_what_is_missing_are_all(spans: list[tuple[int, int]], begin: int, length: int) -> None:
    held, span = joined(spans), (begin, begin + length)
    there, missing = common(span, held), without(span, held)
    assert held == joined(reversed(held))
    assert all(one[1] < other[0] for one, other in itertools.pairwise(held))
    pieces = sorted([*there, *missing])
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(pieces))
    assert length - sum(end - start for start, end in pieces) <= JOIN_MS * (len(held) + 1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_order_any_subset_any_repetition_is_the_same_past(seed: int) -> None:
    """Also of an author that signs two pages under one number: everybody keeps the same one."""
    rng = random.Random(seed)
    pages = [
        *minutes(identity("a"), 6),
        *minutes(identity("b"), 4, BEGIN_MS + 30_000),
        page(identity("a"), 3, (BEGIN_MS, BEGIN_MS + 9), [event(1, 3, "another word")]),
    ]
    some = rng.sample(pages, rng.randrange(1, len(pages) + 1))
    one, other = Shelf(), Shelf()
    one.keep(some)
    again = some + rng.choices(some, k=rng.randrange(5))
    rng.shuffle(again)
    for data in again:
        other.keep([data])
    assert one.pages == other.pages
    for (author, number), data in one.pages.items():
        same = [digest_of(p) for p in some if (read_page(p).author, read_page(p).number) == (author, number)]
        assert digest_of(data) == min(same)
