"""Laws of borrowing: one answer a request and in time, nobody asked who cannot, liars ejected, tickets kept to."""

import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.offload import placement
from swarmd_protocols.offload.decisions import (
    Answered,
    Asked,
    Attempt,
    Cancel,
    Check,
    Checked,
    Deliver,
    Doubted,
    Effect,
    Failed,
    OfferHeard,
    SetTimer,
    TimerFired,
)
from swarmd_protocols.offload.dispatcher import Dispatcher, DispatcherConfig
from swarmd_protocols.offload.placement import FRESH_NS, Need, Offer, Offered
from swarmd_protocols.offload.reputation import Reputation, ReputationConfig
from swarmd_protocols.offload.tickets import (
    TICKET_BYTES,
    Grants,
    GrantsConfig,
    HeldTicket,
    Ticket,
    open_ticket,
    seal_ticket,
)

MS = 1_000_000
LENDERS = [NodeId(bytes([index]) * 16) for index in range(1, 6)]
DIGESTS = [bytes([index]) * 32 for index in (7, 8)]
ABILITIES = [placement.ability_number(name) for name in ("classify/pv-module", "detect/traffic")]
CONFIG = DispatcherConfig(requests_max=12, lenders_max=4, check_share=0.5)


class Borrower(RuleBasedStateMachine):
    """A dispatcher whose world answers, fails, falls silent and lies about nothing but time."""

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher(CONFIG, random.Random(1))
        self.now_ns = 1_000 * MS
        self.numbers = 0
        self.needs: dict[int, Need] = {}
        self.delivered: dict[int, int | None] = {}
        self.live: dict[tuple[int, int], Attempt] = {}
        self.all: dict[tuple[int, int], Attempt] = {}
        self.timers: dict[tuple[int, str], int] = {}
        self.offers: dict[NodeId, Offer] = {}
        self.owed: set[tuple[int, NodeId]] = set()
        """Requests that may be asked once more of a lender, when it is heard: its connection broke while it was not."""

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Attempt(number, attempt, lender, digest, until_ns):
                    need = self.needs[number]
                    assert number not in self.delivered, "an answered request was asked about again"
                    assert (number, attempt) not in self.all, "an attempt's number was used twice"
                    assert until_ns == need.deadline_ns
                    if lender is None or not need.ability:
                        assert digest == need.digest
                    if lender is None:
                        assert need.local_ns, "a device without a model was asked to think"
                    else:
                        offer = self.offers.get(lender)
                        assert need.may_leave, "what may not leave was sent away"
                        assert offer is not None, "a lender was asked that offers nothing"
                        asked = [one for one in offer.bundles if one.digest == digest]
                        assert asked, "a lender was asked for a bundle that it has not"
                        if need.ability:
                            assert asked[0].ability == need.ability, "a lender was asked for what its bundle cannot do"
                            assert asked[0].grade_milli >= need.grade_min_milli, "a bundle of too low a grade was asked"
                        assert need.size_bytes <= offer.request_bytes_max, "a lender was sent more than it takes"
                        assert self.now_ns - offer.heard_ns <= FRESH_NS, "a lender was asked by an old offer"
                        earlier = [one.lender for key, one in self.all.items() if key[0] == number]
                        is_owed = (number, lender) in self.owed
                        assert lender not in earlier or lender == self.breaking or is_owed, "a lender was asked twice"
                        self.owed.discard((number, lender))
                        assert len([one for one in earlier if one is not None]) < CONFIG.attempts_max
                    self.live[number, attempt] = self.all[number, attempt] = effect
                case Cancel(number, attempt):
                    assert (number, attempt) in self.live, "what has ended was cancelled"
                    del self.live[number, attempt]
                case Deliver(number, attempt):
                    assert number not in self.delivered, "a request was answered twice"
                    assert self.now_ns <= max(self.needs[number].deadline_ns, self.asked_ns), "an answer came late"
                    if attempt is not None:
                        assert self.live.pop((number, attempt), None), "an attempt answered that nobody waits for"
                    self.delivered[number] = attempt
                case SetTimer(number, what, due_ns):
                    self.timers[number, what] = due_ns
                case Check(number, attempt, lender):
                    assert self.all[number, attempt].lender == lender

    asked_ns = 0
    breaking: NodeId | None = None
    """Whose connection has just broken: what was lost with it may be asked of it once more."""

    @rule(
        digest=st.sampled_from(DIGESTS),
        allowed_ms=st.integers(0, 300) | st.just(30_000),
        local_ms=st.sampled_from([0, 5, 50, 400]),
        size=st.integers(0, 3_000),
        may_leave=st.booleans(),
        ability=st.sampled_from([0, *ABILITIES]),
        grade=st.sampled_from([0, 500]),
        copies=st.integers(1, 2),
    )
    def ask(
        self,
        digest: bytes,
        allowed_ms: int,
        local_ms: int,
        size: int,
        may_leave: bool,
        ability: int,
        grade: int,
        copies: int,
    ) -> None:
        self.numbers += 1
        deadline_ns = self.now_ns + allowed_ms * MS
        need = Need(
            self.numbers, digest, 1, size, deadline_ns, may_leave, local_ms * MS, 0, ability, grade, copies
        )  # fmt: skip
        self.needs[need.number], self.asked_ns = need, self.now_ns
        self.perform(self.dispatcher.handle(Asked(need), self.now_ns))

    @rule(
        node=st.sampled_from(LENDERS),
        digests=st.sets(st.sampled_from(DIGESTS)),
        unit_ms=st.integers(1, 100),
        room=st.sampled_from([1_000, 10_000]),
        reachable=st.integers(0, 4),
        ability=st.sampled_from([0, *ABILITIES]),
        grade=st.integers(0, 1_000),
    )
    def offer(
        self, node: NodeId, digests: set[bytes], unit_ms: int, room: int, reachable: int, ability: int, grade: int
    ) -> None:
        bundles = tuple(Offered(digest, unit_ms * MS, 0, ability, grade) for digest in sorted(digests))
        offer = Offer(node, bundles, room, self.now_ns, reachable > 0)
        self.offers.pop(node, None)
        if reachable:
            self.offers[node] = offer
            self.offers = dict(list(self.offers.items())[-CONFIG.lenders_max :])
        else:
            for key in [key for key, one in self.live.items() if one.lender == node]:
                del self.live[key]
        self.perform(self.dispatcher.handle(OfferHeard(offer), self.now_ns))

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 100), answers=st.booleans())
    def end(self, at: int, answers: bool) -> None:
        number, attempt = sorted(self.live)[at % len(self.live)]
        if answers:
            self.perform(self.dispatcher.handle(Answered(number, attempt), self.now_ns))
            assert self.delivered[number] == attempt, "the first answer did not count"
        else:
            del self.live[number, attempt]
            self.perform(self.dispatcher.handle(Failed(number, attempt), self.now_ns))

    @precondition(lambda self: self.all)
    @rule(at=st.integers(0, 100), answers=st.booleans())
    def a_word_too_late(self, at: int, answers: bool) -> None:
        number, attempt = sorted(self.all)[at % len(self.all)]
        if (number, attempt) not in self.live:
            event = Answered(number, attempt) if answers else Failed(number, attempt)
            assert self.dispatcher.handle(event, self.now_ns) == []

    @rule(node=st.sampled_from(LENDERS))
    def break_a_connection(self, node: NodeId) -> None:
        self.breaking = node
        self.owed |= {(key[0], node) for key, one in self.live.items() if one.lender == node and self.is_silent(node)}
        self.perform(self.dispatcher.handle(Doubted(node), self.now_ns))
        self.breaking = None

    def is_silent(self, node: NodeId) -> bool:
        """Whether its offer has lapsed."""
        return node in self.offers and self.now_ns - self.offers[node].heard_ns > FRESH_NS

    def may_come(self, need: Need) -> bool:
        """Whether a lender that has fallen silent could do it, when it is heard again."""
        asked = [one.lender for key, one in self.all.items() if key[0] == need.number and one.lender is not None]
        return any(
            need.may_leave
            and len(asked) < CONFIG.attempts_max
            and node not in asked
            and self.is_silent(node)
            and self.now_ns - offer.heard_ns <= FRESH_NS + placement.AWAITED_NS
            and offer.of(need) is not None
            and need.size_bytes <= offer.request_bytes_max
            for node, offer in self.offers.items()
        )

    @rule(passed_ms=st.integers(1, 400) | st.sampled_from([2_100, 12_000]))
    def wait(self, passed_ms: int) -> None:
        end_ns = self.now_ns + passed_ms * MS
        while due := sorted((due_ns, *key) for key, due_ns in self.timers.items() if due_ns <= end_ns):
            due_ns, number, what = due[0]
            del self.timers[number, what]
            self.now_ns = max(self.now_ns, due_ns)
            self.perform(self.dispatcher.handle(TimerFired(number, what), self.now_ns))
        self.now_ns = end_ns

    @precondition(lambda self: self.timers)
    @rule(at=st.integers(0, 100))
    def a_stale_timer(self, at: int) -> None:
        number, what = sorted(self.timers)[at % len(self.timers)]
        if what != "hedge" and self.timers[number, what] > self.now_ns:
            assert self.dispatcher.handle(TimerFired(number, what), self.now_ns) == []

    @invariant()
    def every_request_has_one_answer_by_its_deadline(self) -> None:
        late = [n for n, need in self.needs.items() if need.deadline_ns < self.now_ns and n not in self.delivered]
        assert not late, "a request has no answer at its deadline"
        assert self.dispatcher.open_requests == len(self.needs) - len(self.delivered) <= CONFIG.requests_max

    @invariant()
    def what_can_be_thought_alone_is(self) -> None:
        """While a request waits, somebody works for it, or one could who is only silent."""
        for number in self.needs.keys() - self.delivered.keys():
            is_at_work = any(key[0] == number for key in self.live)
            assert is_at_work or self.may_come(self.needs[number]), "a request waits for nobody"

    @invariant()
    def hedges_are_few(self) -> None:
        counts = self.dispatcher.counts
        assert counts["hedged"] <= CONFIG.hedge_burst + CONFIG.hedge_share * counts["asked"] + 1e-6


def laws(phases: tuple[Phase, ...] = tuple(Phase), examples: int = 60) -> None:
    run_state_machine_as_test(
        Borrower,
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, report_multiple_bugs=False, phases=phases
        ),
    )


def test_laws_of_a_borrower() -> None:
    laws()


def found_at_all() -> None:
    """The laws for a mutant: many examples, since it ends with the first that fails, which is not made small."""
    laws((Phase.generate,), 1_000)


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_a_silent_swarm_is_never_worse_than_thinking_alone(allowed_ms: int, local_ms: int, lenders: int) -> None:
    """Every lender takes requests and says nothing more: whoever could think alone in time has its answer in time."""
    one = Dispatcher(DispatcherConfig(), random.Random(2))
    for index in range(lenders):
        offer = Offer(NodeId(bytes([index]) * 16), (Offered(DIGESTS[0], 1, 0),), 1_000, 0)
        assert one.handle(OfferHeard(offer), 0) == []
    need = Need(1, DIGESTS[0], 1, 10, allowed_ms * MS, True, local_ms * MS)
    effects, timers, local_at_ns = one.handle(Asked(need), 0), {}, None
    now_ns = 0
    while True:
        for effect in effects:
            if isinstance(effect, SetTimer):
                timers[effect.what] = effect.due_ns
            if isinstance(effect, Attempt) and effect.lender is None:
                local_at_ns = now_ns
        if local_at_ns is not None or not timers:
            break
        what = min(timers, key=lambda name: (timers[name], name))
        now_ns = timers.pop(what)
        effects = one.handle(TimerFired(1, what), now_ns)
    if local_ms < allowed_ms:
        assert local_at_ns is not None, "the own model was never asked"
        assert local_at_ns + local_ms * MS <= need.deadline_ns, "the own model was asked too late"


def test_a_silent_lender_that_a_hedge_makes_good_is_left() -> None:
    """It says that it is the quickest, and answers nothing; each time another does. It is asked a few times in 9 s."""
    one = Dispatcher(DispatcherConfig(hedge_share=1.0), random.Random(5))
    asked = 0
    for number in range(1, 37):
        now_ns = number * 250 * MS
        for lender, unit_ns in ((LENDERS[0], 1), (LENDERS[1], 30 * MS), (LENDERS[2], 30 * MS)):
            one.handle(OfferHeard(Offer(lender, (Offered(DIGESTS[0], unit_ns, 0),), 1_000, now_ns)), now_ns)
        effects = one.handle(Asked(Need(number, DIGESTS[0], 1, 10, now_ns + 400 * MS)), now_ns)
        first = next(effect for effect in effects if isinstance(effect, Attempt))
        begun_ns = now_ns
        if first.lender == LENDERS[0]:
            asked, begun_ns = asked + 1, now_ns + 25 * MS
            effects = one.handle(TimerFired(number, "hedge"), begun_ns)
            first = next(effect for effect in effects if isinstance(effect, Attempt))
        one.handle(Answered(number, first.attempt), begun_ns + 32 * MS)
    assert one.counts["borrowed"] == 36
    assert 1 <= asked <= 4, "who never answers looks as quick as it says"


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_two_copies_outlive_any_single_lender(data: st.DataObject) -> None:
    """Whoever dies, and whether or not it is noticed: another lender is at work for the request already."""
    one = Dispatcher(DispatcherConfig(), random.Random(data.draw(st.integers(0, 99), label="seed")))
    lenders = LENDERS[: data.draw(st.integers(2, 5), label="lenders")]
    for node in lenders:
        offered = Offered(DIGESTS[0], data.draw(st.integers(1, 40), label="unit ms") * MS, 0)
        one.handle(OfferHeard(Offer(node, (offered,), 1_000, 0)), 0)
    local_ns = data.draw(st.sampled_from([0, 300]), label="own model") * MS
    effects = one.handle(Asked(Need(1, DIGESTS[0], 1, 10, 1_000 * MS, True, local_ns, copies=2)), 0)
    working = {effect.attempt: effect.lender for effect in effects if isinstance(effect, Attempt)}
    assert len(set(working.values())) == 2, "one lender alone works for a request that wants two"
    dead = data.draw(st.sampled_from(lenders), label="dead")
    if data.draw(st.booleans(), label="noticed"):
        effects = one.handle(OfferHeard(Offer(dead, (), 0, MS, is_reachable=False)), MS)
        working |= {effect.attempt: effect.lender for effect in effects if isinstance(effect, Attempt)}
        at_work = len({lender for lender in working.values() if lender != dead})
        assert at_work == min(2, len(lenders) - 1), "a lender that has failed is not replaced"
    left = [attempt for attempt, lender in working.items() if lender != dead]
    assert left, "the death of one lender leaves nobody at work"
    assert Deliver(1, left[-1]) in one.handle(Answered(1, left[-1]), 2 * MS)


def test_the_quickest_able_bundle_is_asked_for() -> None:
    one = Dispatcher(DispatcherConfig(), random.Random(3))
    detect, classify = ABILITIES[1], ABILITIES[0]
    rows = (
        Offered(bytes([1]) * 32, MS, 0, classify, 900),
        Offered(bytes([2]) * 32, 2 * MS, 0, detect, 400),
        Offered(bytes([3]) * 32, 9 * MS, 0, detect, 950),
        Offered(bytes([4]) * 32, 5 * MS, 0, detect, 700),
    )
    one.handle(OfferHeard(Offer(LENDERS[0], rows, 1_000, 0)), 0)
    for number, grade, digest in ((1, 0, 2), (2, 500, 4), (3, 900, 3)):
        need = Need(number, b"", 1, 10, 500 * MS, ability=detect, grade_min_milli=grade)
        asked = [effect for effect in one.handle(Asked(need), 0) if isinstance(effect, Attempt)]
        assert [attempt.digest for attempt in asked] == [bytes([digest]) * 32]
    need = Need(4, b"", 1, 10, 500 * MS, ability=detect, grade_min_milli=960)
    assert one.handle(Asked(need), 0)[-1] == Deliver(4, None), "no lender is good enough, and nobody is told"


def test_hedges_stay_within_their_budget_when_every_lender_is_slow() -> None:
    config = DispatcherConfig()
    one = Dispatcher(config, random.Random(2))
    for number in range(1, 401):
        now_ns = number * 1_000 * MS
        for lender in LENDERS:
            one.handle(OfferHeard(Offer(lender, (Offered(DIGESTS[0], MS, 0),), 1_000, now_ns)), now_ns)
        effects = one.handle(Asked(Need(number, DIGESTS[0], 1, 10, now_ns + 900 * MS)), now_ns)
        slower_ns = now_ns + 10 * MS + number * MS // 5
        for effect in effects:
            if isinstance(effect, SetTimer) and effect.what == "hedge" and effect.due_ns < slower_ns:
                one.handle(TimerFired(number, "hedge"), effect.due_ns)
        one.handle(Answered(number, 0), slower_ns)
    assert one.counts["borrowed"] == 400
    assert 0 < one.counts["hedged"] <= config.hedge_burst + config.hedge_share * 400, "hedges beyond their budget"


def test_a_liar_is_ejected_within_twenty_checks_and_an_honest_lender_is_not() -> None:
    for wrong_share, most in ((1.0, 20), (0.5, 20)):
        rng, reputation = random.Random(4), Reputation(ReputationConfig())
        checks = 0
        while not reputation.is_ejected(LENDERS[0], checks * MS):
            reputation.note(LENDERS[0], rng.random() >= wrong_share, checks * MS)
            checks += 1
            assert checks <= most, "a liar is still asked"
    rng, reputation = random.Random(5), Reputation(ReputationConfig())
    for check in range(10_000):
        reputation.note(LENDERS[0], rng.random() >= 0.02, check * 1_000 * MS)
        assert not reputation.is_ejected(LENDERS[0], check * 1_000 * MS), "an honest lender was ejected"


def test_a_bad_name_fades_and_the_table_is_bounded() -> None:
    config = ReputationConfig(lenders_max=3)
    reputation = Reputation(config)
    for _ in range(50):
        reputation.note(LENDERS[0], False, 0)
    assert reputation.is_ejected(LENDERS[0], 0)
    assert not reputation.is_ejected(LENDERS[0], 10 * config.half_life_ns), "nobody may come back"
    for lender in LENDERS:
        reputation.note(lender, False, 0)
    assert len(reputation._records) == 3


def test_an_ejected_lender_is_not_asked() -> None:
    one = Dispatcher(DispatcherConfig(), random.Random(2))
    one.handle(OfferHeard(Offer(LENDERS[0], (Offered(DIGESTS[0], MS, 0),), 1_000, 0)), 0)
    for _ in range(20):
        one.handle(Checked(LENDERS[0], False), 0)
    effects = one.handle(Asked(Need(1, DIGESTS[0], 1, 10, 100 * MS, True, 50 * MS)), 0)
    assert [effect.lender for effect in effects if isinstance(effect, Attempt)] == [None], "a liar was asked"


# --- Tickets --------------------------------------------------------------------------------------------------------

CRYPTO = ModelCrypto()
SEED = bytes(range(32))
KEY = CRYPTO.public_key(SEED)
LENDER = node_id_of(KEY)


def grants(**config: int) -> Grants:
    return Grants(LENDER, SEED, CRYPTO, GrantsConfig(**config), 3)


def test_a_ticket_reads_back_and_every_flip_and_cut_is_refused() -> None:
    ticket = Ticket(LENDER, LENDERS[0], DIGESTS[0], 5, 1000, 10, 100, 77)
    sealed = seal_ticket(ticket, SEED, CRYPTO)
    assert len(sealed) == TICKET_BYTES
    assert open_ticket(sealed, KEY, CRYPTO) == ticket
    for at in range(TICKET_BYTES):
        for bit in range(8):
            bad = sealed[:at] + bytes([sealed[at] ^ 1 << bit]) + sealed[at + 1 :]
            with pytest.raises(WireError):
                open_ticket(bad, KEY, CRYPTO)
        with pytest.raises(WireError):
            open_ticket(sealed[:at], KEY, CRYPTO)


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 60)), max_size=60))
@settings(max_examples=60)
def test_no_ticket_is_overdrawn(uses: list[tuple[int, int]]) -> None:
    book = grants(count_max=10, bytes_max=500, request_bytes_max=100, life_ms=1_000)
    sealed = book.grant(LENDERS[0], DIGESTS[0], 0)
    assert sealed is not None
    ticket = open_ticket(sealed, KEY, CRYPTO)
    now_ms, count, size = 0, 0, 0
    for size_bytes, passed_ms in uses:
        now_ms += passed_ms
        if book.spend(ticket.number, LENDERS[0], DIGESTS[0], size_bytes, now_ms) == "":
            count, size = count + 1, size + size_bytes
            assert size_bytes <= ticket.request_bytes_max, "a request beyond the ticket's room was taken"
            assert now_ms < ticket.until_ms, "an expired ticket was taken"
        assert count <= ticket.count_max, "a ticket was used too often"
        assert size <= ticket.bytes_max, "a ticket carried too many bytes"


def test_a_ticket_is_good_for_its_borrower_and_bundle_alone() -> None:
    book = grants()
    sealed = book.grant(LENDERS[0], DIGESTS[0], 0)
    assert sealed is not None
    number = open_ticket(sealed, KEY, CRYPTO).number
    assert book.spend(number, LENDERS[1], DIGESTS[0], 1, 0) == "unknown"
    assert book.spend(number, LENDERS[0], DIGESTS[1], 1, 0) == "other-bundle"
    assert book.spend(number, LENDERS[0], DIGESTS[0], 1, 0) == ""
    book.withdraw(LENDERS[0])
    assert book.spend(number, LENDERS[0], DIGESTS[0], 1, 0) == "unknown", "a withdrawn ticket was taken"


def used(book: Grants, digest: bytes, now_ms: int) -> Ticket | None:
    """A ticket of the first borrower's, of which one request was spent; None: it was given none."""
    sealed = book.grant(LENDERS[0], digest, now_ms)
    ticket = None if sealed is None else open_ticket(sealed, KEY, CRYPTO)
    if ticket is not None:
        assert book.spend(ticket.number, LENDERS[0], digest, 1, now_ms) == ""
    return ticket


def test_a_ticket_that_was_not_used_is_given_again_with_a_new_end() -> None:
    """It may have been lost on its way: however often, there is one more for who asks, and no more to spend."""
    book = grants(tickets_max=2, count_max=3, life_ms=1_000)
    assert used(book, DIGESTS[0], 0) is not None
    given = [book.grant(LENDERS[0], DIGESTS[0], now_ms, 1_500 * (now_ms == 1_000)) for now_ms in range(0, 2_500, 500)]
    tickets = [open_ticket(sealed, KEY, CRYPTO) for sealed in given if sealed is not None]
    assert len(tickets) == 5, "who has lost some is refused"
    assert len({ticket.number for ticket in tickets}) == 1, "there is more to spend"
    assert [ticket.until_ms for ticket in tickets] == [1_000, 1_500, 3_500, 3_500, 3_500]
    taken = [book.spend(tickets[0].number, LENDERS[0], DIGESTS[0], 1, 3_000) for _ in range(4)]
    assert taken == ["", "", "", "spent"], "each copy of it is good until its end, and all together once"


def test_what_is_left_of_a_ticket_that_is_given_again_is_what_was_left() -> None:
    ticket = Ticket(LENDER, LENDERS[0], DIGESTS[0], 5, 1000, 10, 100, 77)
    held = HeldTicket(ticket, 4, 300)
    again = HeldTicket.new(replace(ticket, until_ms=99), held)
    assert (again.ticket.until_ms, again.count, again.size_bytes) == (99, 4, 300)
    other = HeldTicket.new(replace(ticket, number=6), held)
    assert (other.count, other.size_bytes) == (10, 1000)


def test_grants_are_bounded() -> None:
    book = grants(borrowers_max=2, tickets_max=2, life_ms=1_000)
    assert [book.grant(LENDERS[0], DIGESTS[0], 0) is not None for _ in range(3)] == [True, True, False]
    assert [book.grant(lender, DIGESTS[0], 0) is not None for lender in LENDERS[1:3]] == [True, False]
    assert book.grant(LENDERS[2], DIGESTS[0], 1_000) is not None, "room comes back when tickets expire"
