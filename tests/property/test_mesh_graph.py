"""What a graph of who hears whom says: the cheapest chain, and that silence alone ends nobody."""

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Fate, awake, fate, reached, without

KEYS = [bytes((index,)) * KEY_BYTES for index in range(8)]
graphs = st.dictionaries(st.sampled_from(KEYS), st.dictionaries(st.sampled_from(KEYS), st.integers(1, 15)))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 15)), graphs)
def test_costs_are_those_of_the_cheapest_chain(own: dict[bytes, int], graph: dict[bytes, dict[bytes, int]]) -> None:
    """Against relaxing every link until nothing changes."""
    me = KEYS[0]
    links = {**graph, me: own}
    cheapest = {me: 0}
    for _ in KEYS:
        for key, heard in links.items():
            for other, cost in heard.items():
                if key in cheapest and cheapest[key] + cost < cheapest.get(other, 1_000):
                    cheapest[other] = cheapest[key] + cost
    assert reached(me, own, graph) == cheapest


@given(st.sets(st.sampled_from(KEYS)), st.lists(st.sampled_from(KEYS)), st.booleans())
def test_nobody_whose_hearers_are_cut_off_or_who_has_none_has_failed_but_by_a_kernels_word(
    reach: set[bytes], hearers: list[bytes], gone: bool
) -> None:
    told = fate(KEYS[0], dict.fromkeys(reach, 4), hearers, gone)
    others = set(hearers) - {KEYS[0]}
    assert (told is Fate.FAILED) == (gone or (bool(others) and others <= reach))


@settings(max_examples=200, deadline=None)
@given(graphs, st.dictionaries(st.sampled_from(KEYS[1:]), st.integers(1, 15)), st.sets(st.sampled_from(KEYS)))
def test_one_that_says_who_is_frozen_and_who_has_ended_takes_nobody_from_others(
    graph: dict[bytes, dict[bytes, int]], near: dict[bytes, int], ended: set[bytes]
) -> None:
    """Whoever is reached without its links is reached still."""
    me, thief = KEYS[0], KEYS[7]
    sure = awake(me, near, graph, {thief: KEYS})
    around = {author: heard for author, heard in graph.items() if author != thief}
    assert reached(me, near, around).keys() <= reached(me, near, without(ended, graph, sure)).keys()
