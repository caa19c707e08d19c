"""Law: no one member makes a node that starts deliver what was said before it came.

Only who was asked answers, once; a node begins where the higher of two answers says, so that a member that tells it of
nothing, unasked or asked, and then brings what was said long ago, has none of it delivered, nor holds up what is new.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Started
from swarmd_protocols.swim import repair
from swarmd_protocols.swim.event_baseline import Answers, Baseline, Denial
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import VECTOR_ANSWER, VECTOR_BASELINE, VECTOR_REPAIR, EventVector
from tests.support.mutants import Mutant, assert_found
from tests.support.swim_net import MS, Host, Net

LIAR, SPEAKS, STARTS = 0, 1, 2
BEGUN_S = 3
"""What is said later than this after a node was let in is its to deliver."""
LATER_S = 8
"""Longer than the patience for what is missing."""


def lying(net: Net, kept: int, *, unasked: bool, brings: bool) -> None:
    """The first host says that next to nothing was said, is heard before all others, and brings what was."""
    swim = net.hosts[LIAR].node._swim
    real_vector, real_hello, speaker = swim.events.vector, swim.on_hello, net.hosts[SPEAKS].node.node

    def vector() -> tuple[tuple[bytes, int], ...]:
        first = net.hosts[SPEAKS].node._core.own.boot << 20
        return tuple((node, first + kept if node == speaker else 0) for node, _ in real_vector() if kept >= 0)

    def say(times: int) -> None:
        starts = swim.core.table.by_node.get(net.hosts[STARTS].node.node)
        if times:
            swim.core.scheduler.at(swim.core.now_ns + 5 * MS, say, times - 1)
        if starts is None:
            return
        if unasked:
            swim.core.port.datagram(starts, [encode(EventVector(vector(), VECTOR_ANSWER))])
        if brings:
            record = net.hosts[SPEAKS].node._core.own.encoded_record
            for _, encoded in swim.events.logs[speaker].kept:
                swim.core.port.datagram(starts, [record, encoded])

    def on_hello(*arguments: Any) -> None:
        real_hello(*arguments)
        say(30)

    swim.events.vector = vector  # type: ignore[method-assign]
    swim.on_hello = on_hello  # type: ignore[method-assign]
    real, delay_ns = net.carry, net.delay_ns

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        net.delay_ns = delay_ns // 10 if LIAR in (host.index, net.index(destination)) else 5 * delay_ns
        real(host, destination, event, loss)

    net.carry = carry  # type: ignore[method-assign]


def nothing_old_is_new(count: int, seed: int, said: int, kept: int, *, unasked: bool, brings: bool) -> None:
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index != STARTS:
            net.feed(index, Started())
    net.run(10)
    for number in range(said):
        net.hosts[SPEAKS].node._swim.events.say(f"old-{number}", b"")
        net.run(0.5)
    net.run(5)
    lying(net, kept, unasked=unasked, brings=brings)
    net.feed(STARTS, Started())
    net.run(BEGUN_S)
    sayers = [index for index in range(count) if index not in (LIAR, STARTS)]
    for index in sayers:
        net.hosts[index].node._swim.events.say(f"new-{index}", b"")
    net.run(LATER_S)
    told = sorted(event.name for _, index, event in net.delivered() if index == STARTS)
    assert told == sorted(f"new-{index}" for index in sayers), told


@settings(deadline=None, max_examples=12)
@given(st.integers(4, 7), st.integers(0, 99), st.integers(1, 6), st.integers(-1, 2), st.booleans(), st.booleans())
@example(5, 1, 4, -1, True, True)
@example(5, 1, 4, 1, False, False)
def test_who_tells_a_newcomer_too_little_brings_it_nothing_old(
    count: int, seed: int, said: int, kept: int, unasked: bool, brings: bool
) -> None:
    nothing_old_is_new(count, seed, said, kept, unasked=unasked, brings=brings)


def two_that_start_make_no_news(count: int, seed: int, gap_ms: int) -> None:
    """One member brings two that start together what was said long ago: each would be the other's second witness."""
    starts = (STARTS, STARTS + 1)
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index not in starts:
            net.feed(index, Started())
    net.run(10)
    for number in range(4):
        net.hosts[SPEAKS].node._swim.events.say(f"old-{number}", b"")
        net.run(0.5)
    net.run(5)
    swim, speaker = net.hosts[LIAR].node._swim, net.hosts[SPEAKS].node
    real_hello = swim.on_hello

    def say(times: int) -> None:
        if times:
            swim.core.scheduler.at(swim.core.now_ns + 5 * MS, say, times - 1)
        met = [swim.core.table.by_node.get(net.hosts[index].node.node) for index in starts]
        for member in [one for one in met if one is not None]:
            for _, encoded in swim.events.logs[speaker.node].kept:
                swim.core.port.datagram(member, [speaker._core.own.encoded_record, encoded])

    def on_hello(*arguments: Any) -> None:
        real_hello(*arguments)
        say(60)

    swim.on_hello = on_hello  # type: ignore[method-assign]
    net.feed(starts[0], Started())
    net.run(gap_ms / 1000)
    net.feed(starts[1], Started())
    net.run(BEGUN_S)
    net.hosts[SPEAKS].node._swim.events.say("new", b"")
    net.run(LATER_S)
    told = sorted((index, event.name) for _, index, event in net.delivered() if index in starts)
    assert told == [(index, "new") for index in starts], told


@settings(deadline=None, max_examples=12)
@given(st.integers(5, 8), st.integers(0, 99), st.integers(0, 200))
@example(5, 0, 0)
@example(6, 2, 20)
def test_two_that_start_together_make_no_news_of_what_one_member_brings(count: int, seed: int, gap_ms: int) -> None:
    two_that_start_make_no_news(count, seed, gap_ms)


def said_between_two_answers_is_heard(count: int, seed: int, at_ms: int) -> None:
    """Who says an event as another joins tells it that, though its way there is longer than that of an answer."""
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index != STARTS:
            net.feed(index, Started())
    net.run(6)
    net.hosts[SPEAKS].node._swim.events.say("old", b"")
    net.run(4)
    real, delay_ns = net.carry, net.delay_ns

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        net.delay_ns = 60 * MS if {host.index, net.index(destination)} == {SPEAKS, STARTS} else delay_ns
        real(host, destination, event, loss)

    net.carry = carry  # type: ignore[method-assign]
    net.feed(STARTS, Started())
    net.run(at_ms / 1000)
    starts = net.hosts[STARTS].node.node
    known = all(starts in host.node._swim.core.table.by_node for host in net.hosts if host.index != STARTS)
    net.hosts[SPEAKS].node._swim.events.say("now", b"")
    net.run(LATER_S)
    told = [event.name for _, index, event in net.delivered() if index == STARTS]
    assert told == ["now"] or not (known or told), told


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 6), st.integers(0, 99), st.integers(0, 400))
@example(3, 1, 120)
@example(3, 3, 96)
def test_what_is_said_between_two_answers_is_heard(count: int, seed: int, at_ms: int) -> None:
    said_between_two_answers_is_heard(count, seed, at_ms)


def what_is_new_is_heard_beside_what_is_old(count: int, seed: int, at_ms: int, said: int) -> None:
    """One member brings a node that starts all that an author said and much of its own, as that author says more."""
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index != STARTS:
            net.feed(index, Started())
    net.run(6)
    for index in (SPEAKS, LIAR):
        for number in range(70):
            net.hosts[index].node._swim.events.say(f"old-{number}", b"")
            net.run(0.05)
    net.run(5)
    lying(net, 2, unasked=False, brings=True)
    net.feed(STARTS, Started())
    net.run(at_ms / 1000)
    starts = net.hosts[STARTS].node.node
    known = all(starts in host.node._swim.core.table.by_node for host in net.hosts if host.index != STARTS)
    for number in range(said):
        net.hosts[SPEAKS].node._swim.events.say(f"new-{number}", b"")
    net.run(LATER_S)
    author = net.hosts[SPEAKS].node.node  # What the other says of itself, and when, is its own affair.
    told = [event.name for _, index, event in net.delivered() if index == STARTS and event.origin == author]
    new = [f"new-{number}" for number in range(said)]
    assert told == new or (not known and told == []), (known, told)


@settings(deadline=None, max_examples=10)
@given(st.integers(4, 6), st.integers(0, 99), st.integers(0, 400), st.integers(1, 3))
@example(4, 1, 40, 3)
@example(4, 1, 100, 2)
@example(5, 49, 174, 1)
def test_what_is_new_is_heard_beside_what_is_old(count: int, seed: int, at_ms: int, said: int) -> None:
    what_is_new_is_heard_beside_what_is_old(count, seed, at_ms, said)


def a_share_for_each(origins: int, old: int, new: int) -> None:
    """Who brings much of many authors, and says much, takes no place from what another author says."""
    answers = Answers()
    for origin in range(origins):
        for sequence in range(1, old + 1):
            answers.came(b"origin-%d" % origin, sequence, b"thief")
    for sequence in range(1, old + 1):
        answers.came(b"thief", sequence, b"thief")
    for sequence in range(old + 1, old + new + 1):
        answers.came(b"origin-0", sequence, b"origin-0")
    assert all(answers.is_news(b"origin-0", sequence) for sequence in range(old + 1, old + new + 1))
    assert not any(answers.is_news(b"origin-0", sequence) for sequence in range(1, old + 1))


@given(st.integers(1, 40), st.integers(0, 300), st.integers(1, 64))
@example(1, 1_024, 1)
def test_nobody_takes_a_place_from_another_authors_news(origins: int, old: int, new: int) -> None:
    a_share_for_each(origins, old, new)


@given(st.lists(st.integers(1, 400), max_size=200))
def test_where_a_node_does_not_know_yet_where_it_begins_the_newest_wait(offers: list[int]) -> None:
    log = EventLog(0)
    for number in offers:
        log.offer(number, "x", b"", b"", newest=True)
    assert sorted(log.pending) == sorted(set(offers))[-64:]


def _nothing_is_unsure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Answers, "is_unsure", lambda self, origin, sequence, now_ns: False)


def _all_is_passed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Answers, "may_pass_on", lambda self, origin, sequence, *, has_begun: True)


def _together() -> None:
    two_that_start_make_no_news(5, 0, 0)


def _between() -> None:
    for at_ms in range(90, 130, 6):
        said_between_two_answers_is_heard(3, 3, at_ms)


def _bringing() -> None:
    nothing_old_is_new(5, 1, 4, -1, unasked=True, brings=True)


def _answering() -> None:
    nothing_old_is_new(5, 1, 4, 1, unasked=False, brings=False)


def _one_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "ANSWERS", 1)


def _the_lower_counts(patch: pytest.MonkeyPatch) -> None:
    original = Answers.close

    def close(self: Answers, now_ns: int) -> tuple[dict[bytes, int], dict[bytes, dict[bytes, int]]]:
        told = list(self._told.values())
        lowest = {node: min(one.get(node, 0) for one in told) for one in told for node in one}
        return lowest, original(self, now_ns)[1]

    patch.setattr(Answers, "close", close)


def _answers_twice(patch: pytest.MonkeyPatch) -> None:
    """Each word of a member is another answer."""

    def take(self: Answers, peer: bytes, told: dict[bytes, int]) -> bool:
        self._told[peer + bytes([len(self._told)])] = dict(told)
        return True

    patch.setattr(Answers, "take", take)


def _one_place_for_all(patch: pytest.MonkeyPatch) -> None:
    original = Answers.came

    def came(self: Answers, origin: bytes, sequence: int, via: bytes) -> None:
        if sum(map(len, self._brought.values())) < 1_024:
            original(self, origin, sequence, via)

    patch.setattr(Answers, "came", came)


def _the_oldest_wait(patch: pytest.MonkeyPatch) -> None:
    original = EventLog.offer

    def offer(self: EventLog, *arguments: Any, newest: bool = False) -> bool:
        return original(self, *arguments)

    patch.setattr(EventLog, "offer", offer)


def _beside_old() -> None:
    for at_ms in range(0, 200, 20):
        what_is_new_is_heard_beside_what_is_old(4, 4, at_ms, 3)


def _shares() -> None:
    a_share_for_each(20, 64, 1)


def _all_that_came_is_news(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Answers, "is_news", lambda self, origin, sequence: True)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (_one_is_enough, _answering),
        (_the_lower_counts, _answering),
        (_answers_twice, _bringing),
        (_all_that_came_is_news, _bringing),
        (_nothing_is_unsure, _between),
        (_all_is_passed_on, _together),
        (_one_place_for_all, _shares),
        (_the_oldest_wait, _beside_old),
    ],
)
def test_mutants_are_found(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)


def test_only_who_was_asked_answers_and_once() -> None:
    answers = Answers()
    assert not answers.take(b"thief", {b"a": 0}), "unasked"
    answers.ask(b"honest", 0)
    assert answers.take(b"honest", {b"a": 5})
    assert not answers.take(b"honest", {b"a": 0}), "twice"
    assert answers.close(0) == ({b"a": 5}, {b"honest": {b"a": 5}})
    assert not answers.take(b"honest", {b"a": 0}), "it is over"


def test_what_was_told_unasked_counts_where_nobody_answers_and_there_alone() -> None:
    answers = Answers()
    assert not answers.take(b"one", {b"a": 3})
    assert not answers.take(b"one", {b"a": 9}), "its first word"
    assert not answers.take_unasked(10**12), "nobody was asked"
    answers.ask(b"two", 0)
    assert not answers.take_unasked(2 * 10**9)
    assert answers.take_unasked(3 * 10**9)
    assert answers.close(0) == ({b"a": 3}, {b"one": {b"a": 3}})
    heard = Answers()
    assert not heard.take(b"thief", {b"a": 0})
    heard.ask(b"two", 0)
    assert heard.take(b"two", {b"a": 5})
    assert not heard.take_unasked(10**12), "somebody hears it"


def test_what_two_told_stays_and_what_one_told_alone_may_be_denied() -> None:
    answers, first = Answers(), Baseline()
    for peer, told in ((b"one", {b"a": 5, b"b": 2}), (b"two", {b"a": 5, b"b": 9})):
        answers.ask(peer, 0)
        assert answers.take(peer, told)
    begins, tellers = answers.close(0)
    assert begins == {b"a": 5, b"b": 9}
    for peer, said in tellers.items():
        first.take(peer, said, 0)
    assert first.denied(b"two", {}, 6, 1) == [], "what it told itself; and one alone denies nothing"
    assert first.denied(b"one", {b"a": 5, b"b": 2}, 6, 2) == []
    assert first.denied(b"three", {b"a": 3, b"b": 1}, 6, 3) == [(b"b", 9, 2, ())]


def test_what_one_member_brings_is_no_news_unless_it_has_said_it() -> None:
    answers = Answers()
    answers.came(b"origin", 3, b"thief")
    answers.came_again(b"origin", 3, b"thief")
    assert not answers.is_news(b"origin", 3)
    answers.came_again(b"origin", 3, b"honest")
    answers.came(b"origin", 4, b"origin")
    answers.came_again(b"origin", 4, b"thief")
    answers.came_again(b"origin", 5, b"thief")
    assert [answers.is_news(b"origin", sequence) for sequence in (3, 4, 5)] == [True, True, False]


def who_hears_no_answer_begins(patch: pytest.MonkeyPatch) -> None:
    """Its own questions, or what is answered, are lost; whoever compares with it says how far it is all the same."""
    original = repair.Repair.on_event_vector

    def on_event_vector(self: repair.Repair, member: Member, message: EventVector) -> None:
        if message.asks != VECTOR_ANSWER:
            original(self, member, message)

    net = Net(4, 1)
    assert net.run_until(net.formed, 15) is not None
    net.hosts[SPEAKS].node._swim.events.say("one", b"")
    net.run(1)
    patch.setattr(repair.Repair, "on_event_vector", on_event_vector)
    net.restart(STARTS, keep_journal=False)
    net.run(6)
    events = net.hosts[STARTS].node._swim.events
    assert events.has_baseline
    assert events.logs[net.hosts[SPEAKS].node.node].delivered == net.hosts[SPEAKS].node._swim.events.own_event


def test_whoever_compares_with_a_node_that_starts_tells_it_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    who_hears_no_answer_begins(monkeypatch)


def test_where_only_answers_tell_it_the_law_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "take_question", lambda self, peer, told: None)
    with pytest.raises(AssertionError):
        who_hears_no_answer_begins(monkeypatch)


def who_doubts_is_no_answer(count: int, seed: int) -> None:
    """Another that has begun lately asks for the event before the one that a liar denies, which is less than it has."""
    doubts = 3
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index != STARTS:
            net.feed(index, Started())
    net.run(10)
    for number in range(3):
        net.hosts[SPEAKS].node._swim.events.say(f"old-{number}", b"")
        net.run(0.5)
    net.run(5)
    lying(net, -1, unasked=False, brings=False)
    swim, speaker = net.hosts[doubts].node._swim, net.hosts[SPEAKS].node.node
    real_hello, real_vector = swim.on_hello, swim.repair.on_event_vector

    def on_event_vector(member: Member, message: EventVector) -> None:
        if message.asks != VECTOR_BASELINE:  # That question is lost.
            real_vector(member, message)

    def doubt(times: int) -> None:
        delivered = swim.events.logs[speaker].delivered
        swim.events._doubts.take([Denial(speaker, delivered, 0, ((speaker, delivered),))])
        if times:
            swim.core.scheduler.at(swim.core.now_ns + 50 * MS, doubt, times - 1)

    def on_hello(*arguments: Any) -> None:
        real_hello(*arguments)
        doubt(20)

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        ends = {host.index, net.index(destination)}
        net.delay_ns = 60 * MS if STARTS in ends and not ends & {LIAR, doubts} else MS // 10
        Net.carry(net, host, destination, event, loss)  # type: ignore[arg-type]

    swim.repair.on_event_vector, swim.on_hello = on_event_vector, on_hello  # type: ignore[method-assign]
    net.carry = carry  # type: ignore[method-assign]
    net.feed(STARTS, Started())
    net.run(BEGUN_S + LATER_S)
    assert [event.name for _, index, event in net.delivered() if index == STARTS] == []


@pytest.mark.parametrize("seed", range(4))
def test_what_is_asked_in_doubt_is_no_answer(seed: int) -> None:
    who_doubts_is_no_answer(4, seed)


def test_where_questions_are_answers_the_law_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_event_vector(self: repair.Repair, member: Member, message: EventVector) -> None:
        if message.asks == VECTOR_REPAIR and not self._events.has_baseline:
            self._on_answer(member, message)
        original(self, member, message)

    original = repair.Repair.on_event_vector
    monkeypatch.setattr(repair.Repair, "on_event_vector", on_event_vector)
    with pytest.raises(AssertionError):
        who_doubts_is_no_answer(4, 0)


def test_where_one_answers_alone_whoever_was_asked_and_asks_counts() -> None:
    answers = Answers()
    for peer in (b"liar", b"asked"):
        answers.ask(peer, 0)
    assert answers.take(b"liar", {b"origin": 0})
    answers.take_question(b"asked", {b"origin": 7})
    answers.take_question(b"stranger", {b"origin": 9})
    begins, tellers = answers.close(0)
    assert begins == {b"origin": 7}
    assert tellers.keys() == {b"liar", b"asked"}
    assert answers.take(b"liar", {}) is False
