"""Borrowing while everything happens at once: the laws of the whole sub-protocol, driven in odd orders.

Words are lost, doubled and read out of turn; timers fire late; members go, come, are far, are left out by a rule and
start anew; wall clocks jump; models fail; one lender lies, offers what it has not, and answers what it was not asked.
After each step one borrower's books are looked at, and what leaves it as it leaves.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import CancelTimer, Order, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.offload import borrowing, messages, placement, requests, under_way
from swarmd_protocols.offload.dispatcher import Dispatcher, DispatcherConfig
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.offload.purse import HOUR_NS, CostRule, Purse
from swarmd_protocols.offload.tickets import Ticket, seal_ticket
from swarmd_protocols.offload.under_way import split_number, wire_number
from swarmd_protocols.offload.whom import Whom
from swarmd_protocols.subprotocol import Peer, Send, SubEffect
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

MS, S = 1_000_000, 1_000_000_000
CRYPTO = ModelCrypto()
SEEDS = [bytes([index]) * 32 for index in range(1, 7)]
NODES = [node_id_of(CRYPTO.public_key(seed)) for seed in SEEDS]
ME, LENDERS, LIAR = NODES[0], NODES[1:], NODES[-1]
DIGESTS = [bytes([40 + index]) * 32 for index in range(3)]
ABLE = "detect/traffic"
RULE = Whom(roles=frozenset({"in"}))
CONFIG = DispatcherConfig(requests_max=8, lenders_max=4)
PAYS = CostRule(price_max_micro=10**6, hour_max_micro=10**7, bytes_hour_max=10**7)
NEAR, GONE = (True, False, 0), (False, False, 0)
WAYS = [NEAR, NEAR, GONE, (True, True, 8), (True, True, 0), (True, True, 99)]
"""Reachable, far, and what the way costs."""


def answer(digest: bytes, data: bytes) -> bytes:
    """What an honest device says."""
    return b"ok" + digest + sha256(data).digest()


@dataclass(frozen=True)
class Signed:
    """A certificate, as far as rules go."""

    name: str
    roles: tuple[str, ...] = ("in",)


@dataclass
class Chaos:
    """One borrower, four honest lenders and one that is not."""

    seed: int
    is_late: bool
    """Timers fire after what has come meanwhile is read, as where a process was frozen."""
    now_ns: int = 1_000 * S
    asked: dict[int, tuple[requests.Borrow, int]] = field(default_factory=dict)
    """With the moment."""
    settled: dict[int, requests.Settle | None] = field(default_factory=dict)
    """None: its process ended first."""
    wire: list[tuple[NodeId, NodeId, bytes]] = field(default_factory=list)
    timers: dict[tuple[NodeId, TimerKey], int] = field(default_factory=dict)
    nodes: dict[NodeId, Offload] = field(default_factory=dict)
    number: int = 0
    sees: bool = True
    """Whether the borrower has been told of all that has happened to its peers."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.has_rule = self.rng.random() < 0.5
        self.signed = {node: Signed(node.hex()) for node in NODES}
        self.ahead_ms, self.boots = dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)
        self.jobs: dict[NodeId, list[requests.Infer]] = {node: [] for node in NODES}
        self.ways = {node: {one: NEAR for one in NODES if one != node} for node in NODES}
        for node in NODES:
            self.begin(node)

    def begin(self, node: NodeId) -> None:
        """A process begins, with nothing of the one before."""
        self.boots[node] += 1
        self.jobs[node] = []
        self.timers = {key: at_ns for key, at_ns in self.timers.items() if key[0] != node}
        price = self.rng.choice([0, 1_000]) if self.seed % 2 else 0
        config = OffloadConfig(
            lends=node != ME, borrows=True, borrow_from=RULE if self.has_rule else Whom(), dispatcher=CONFIG,
            lending=LendingConfig(price_micro_s=price), cost=PAYS if self.seed % 2 else CostRule(),
        )  # fmt: skip
        self.nodes[node] = Offload(
            node, SEEDS[NODES.index(node)], CRYPTO, config, self.boots[node], random.Random(self.rng.random()),
            lambda now_ns: now_ns // MS + self.ahead_ms[node], lambda digest, data: data.startswith(b"ok" + digest),
            self.signed.get,
        )  # fmt: skip
        self.meet(node)
        if node != ME:
            self.stock(node)

    def meet(self, node: NodeId) -> None:
        peers = [
            Peer(one, "", CRYPTO.public_key(SEEDS[NODES.index(one)]), is_reached, far=is_far, cost=cost)
            for one, (is_reached, is_far, cost) in sorted(self.ways[node].items())
        ]
        self.perform(node, self.nodes[node].on_peers(peers, self.now_ns))

    def stock(self, node: NodeId) -> None:
        rng, has_some = self.rng, self.rng.random() < 0.9
        held = tuple(
            requests.Held(digest, rng.choice([0, 5, 20, 80]) * MS, rng.choice(["", ABLE]), rng.randrange(1_000))
            for digest in DIGESTS if has_some and rng.random() < 0.9
        )  # fmt: skip
        asks = tuple(DIGESTS[:2]) if rng.random() < 0.5 else ()
        battery = rng.choice([None, None, None, None, 900, 100])
        self.command(node, requests.Stock(held, rng.choice([0, 0, 0, 10, 300]) * MS, battery, asks=asks))

    # --- What goes in and comes out -----------------------------------------------------------------------------

    def command(self, node: NodeId, request: object) -> None:
        self.perform(node, self.nodes[node].on_command(request, self.now_ns))

    def hear(self, sender: NodeId, to: NodeId, payload: bytes) -> None:
        self.perform(to, self.nodes[to].on_message(sender, payload, self.now_ns))

    def perform(self, node: NodeId, effects: list[SubEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload):
                    self.wire.append((node, to, payload))
                    message = messages.decode_message(payload)
                    if node == ME and isinstance(message, messages.Request):
                        self.on_request(to, message)
                case Order(_, requests.Infer() as order):
                    assert order.borrower or self.asked[order.own][0].local_ns, "it has no model of its own"
                    self.jobs[node].append(order)
                case Order(_, requests.Drop(job)):
                    self.jobs[node] = [one for one in self.jobs[node] if one.job != job]
                case Order(_, requests.Settle() as settle):
                    self.on_settle(settle)
                case SetTimer(key, at_ns):
                    self.timers[node, key] = at_ns
                case CancelTimer(key):
                    self.timers.pop((node, key), None)
                case _:
                    pass

    def on_request(self, to: NodeId, request: messages.Request) -> None:
        number, _ = split_number(request.id)
        ask, _ = self.asked[number]
        assert number not in self.settled, "it left after its end"
        assert ask.may_leave, "what may not leave has left"
        assert to not in ask.but, "it went to whom it leaves out"
        assert ask.only in (None, to), "it went to another than it was placed at"
        assert ask.ability or request.digest == ask.digest, "another bundle was asked for"
        assert request.left_ms * MS <= ask.deadline_ns - self.now_ns, "its lender was given more time than there is"
        assert self.ways[ME].get(to, GONE)[0], "it was sent to who has gone"
        assert not (self.has_rule and self.sees) or self.signed[to].roles, "it was sent to whom a rule leaves out"

    def on_settle(self, settle: requests.Settle) -> None:
        assert settle.number not in self.settled, "a request was answered twice"
        self.settled[settle.number] = settle
        (ask, asked_ns), lender, data = self.asked[settle.number], settle.lender, settle.data
        if data is None:
            return
        assert self.now_ns <= max(ask.deadline_ns, asked_ns), "an answer came late"
        assert ask.ability or settle.digest == ask.digest, "another bundle has answered"
        assert data.startswith(b"ok" + settle.digest), "an answer has no form"
        assert lender == LIAR or data == answer(settle.digest, ask.data), "it is the answer to something else"
        assert lender is None or (lender not in ask.but and ask.only in (None, lender)), "whom it leaves out, answers"
        is_out = lender is not None and self.has_rule and not self.signed[lender].roles
        assert not (settle.is_kept and is_out), "an answer of who is out was kept"

    # --- What happens -------------------------------------------------------------------------------------------

    def borrow(self) -> None:
        rng = self.rng
        self.number += rng.choice([1, 1, 3])
        is_able, only = rng.random() < 0.2, rng.choice([*[None] * 20, *LENDERS])
        local_ns = 0 if only else rng.choice([0, 0, 0, 30, 100]) * MS
        left_ms = rng.choice([-50, 0, 1, 30, 200, 500, 1_000, 5_000, 90_000])
        ask = requests.Borrow(
            self.number, b"" if is_able and not local_ns else rng.choice(DIGESTS),
            rng.choice([b"a", b"a", rng.randbytes(9)]), rng.choice([1, 1, 3]),
            self.now_ns + left_ms * MS, local_ns, rng.random() < 0.85,
            ability=ABLE if is_able else "", grade_min_milli=rng.choice([0, 500]) if is_able else 0,
            copies=rng.choice([1, 1, 2]), keep_ns=rng.choice([0, S, 1_000 * S]), only=only,
            but=tuple(rng.sample(LENDERS, rng.choice([*[0] * 6, 1, 2]))), priority=rng.choice([1, 2, 3]),
            may_check=rng.random() < 0.3,
        )  # fmt: skip
        self.asked[ask.number] = ask, self.now_ns
        self.command(ME, ask)

    def deliver(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([1, 2, 5, 20])):
            if not self.wire:
                return
            at = 0 if rng.random() < 0.6 else rng.randrange(len(self.wire))
            word = self.wire[at] if rng.random() < 0.05 else self.wire.pop(at)
            if rng.random() > 0.05:
                self.hear(*word)

    def run(self) -> None:
        rng, node = self.rng, self.rng.choice(NODES)
        if not self.jobs[node]:
            self.command(node, requests.Ran(rng.randrange(50), rng.choice([None, b"x"])))
            return
        job = rng.choice(self.jobs[node])
        if rng.random() < 0.9:
            self.jobs[node].remove(job)
        data: bytes | None = answer(job.digest, job.data)
        if node == LIAR:
            data = rng.choice([b"", b"junk", b"ok" + job.digest + b"lie", bytes(300_000), data])
        self.command(node, requests.Ran(job.job, None if rng.random() < 0.1 else data))

    def later(self) -> None:
        until_ns = self.now_ns + self.rng.choice([0, 1, 5, 10, 20, 40, 100, 300, 1_100]) * MS
        if self.is_late and self.rng.random() < 0.5:
            self.now_ns = until_ns
            for _ in range(4):
                self.deliver()
                self.run()
        self.fire(until_ns)

    def fire(self, until_ns: int) -> None:
        while due := sorted((at_ns, repr(key), key) for key, at_ns in self.timers.items() if at_ns <= until_ns):
            at_ns, _, (node, key) = due[0]
            del self.timers[node, key]
            self.now_ns = max(self.now_ns, at_ns)
            self.perform(node, self.nodes[node].on_timer(key, self.now_ns))
        self.now_ns = until_ns

    def move(self) -> None:
        node = self.rng.choice(NODES)
        for one in self.ways[node]:
            if self.rng.random() < 0.25:
                self.ways[node][one] = self.rng.choice(WAYS)
        self.meet(node)

    def certify(self) -> None:
        """Whom a rule lets in is another: what one call had decided before the rule was looked at is not judged."""
        node = self.rng.choice(LENDERS)
        self.signed[node] = Signed(node.hex(), ("in",) if self.rng.random() < 0.6 else ())
        self.perform(ME, self.nodes[ME].on_trust(self.now_ns))

    def restart(self) -> None:
        node = self.rng.choice(NODES)
        if node == ME:
            self.settled = dict.fromkeys(self.asked) | self.settled
            self.number += 1_000
        self.begin(node)

    def jump(self) -> None:
        self.ahead_ms[self.rng.choice(NODES)] = self.rng.choice([0, 0, 0, 500, -500, 20_000, -20_000, 10**6, -(10**6)])

    def say(self) -> None:
        """The driver says something."""
        rng, node = self.rng, self.rng.choice(LENDERS)
        if rng.random() < 0.3:
            self.stock(rng.choice(NODES))
            return
        number = rng.randrange(max(0, self.number - 5), self.number + 2)
        self.command(
            ME, rng.choice([requests.Judged(node, rng.random() < 0.7), requests.Doubt(node), requests.Abandon(number)])
        )

    def lie(self) -> None:
        """The liar says what fits nothing."""
        rng, digest, to = self.rng, self.rng.choice(DIGESTS), self.rng.choice(NODES[:-1])
        number = max(0, self.number - rng.randrange(3))
        wire, most = wire_number(number, rng.randrange(8)), (1 << 64) - 1
        data = rng.choice([b"ok" + digest + b"lie", b"z", b""])
        seen = sha256(self.asked[number][0].data if number in self.asked else b"").digest()
        bound = messages.Bound(ME, LIAR, wire, digest, seen)
        ticket = Ticket(
            rng.choice([LIAR, LENDERS[0]]), ME, digest, rng.choice([0, 7, most]), rng.choice([0, 1, most]),
            rng.choice([0, 1, 1 << 31]), rng.choice([0, 1 << 31]), rng.choice([0, self.now_ns // MS + 5_000, most]),
        )  # fmt: skip
        rows = tuple(
            messages.Row(one, rng.choice([0, 1, 600_000_000]), rng.choice([0, 600_000_000]), 5, 1_000)
            for one in rng.sample(DIGESTS, rng.randrange(4))
        )  # fmt: skip
        counted = rng.choice([0, most, self.boots[LIAR] << 28 | rng.randrange(50)])
        body = messages.encode_descriptor(
            messages.Descriptor(LIAR, counted, rng.choice([0, 30_000]), 1_000, rng.choice([0, 64 << 20]), rows, 10**12)
        )
        shown = rng.choice([0, 5, 1 << 28 | 1])
        word: messages.Message = rng.choice([
            messages.Answer(wire, data, CRYPTO.sign(SEEDS[-1], messages.answer_bytes(bound, data))),
            messages.Grant(seal_ticket(ticket, SEEDS[-1], CRYPTO)),
            messages.Deny(digest, rng.randrange(len(messages.REASONS))),
            messages.Refusal(wire, rng.randrange(len(messages.REASONS))),
            messages.Offered(body, CRYPTO.sign(SEEDS[-1], messages.offer_bytes(body))),
            messages.Cancel(wire), messages.Ask(digest),
            messages.Request(wire, shown, digest, rng.choice([1, 64]), rng.choice([1, 60_000]), b"q"),
        ])  # fmt: skip
        self.hear(LIAR, to, messages.encode_message(word) if rng.random() < 0.9 else rng.randbytes(40))

    def step(self) -> None:
        deeds: list[tuple[Callable[[], None], float]] = [
            (self.borrow, 6), (self.deliver, 24), (self.run, 14), (self.later, 8), (self.move, 0.5),
            (self.certify, 0.5), (self.restart, 0.2), (self.jump, 0.2), (self.say, 2), (self.lie, 3),
        ]  # fmt: skip
        (deed,) = self.rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])
        self.sees = deed != self.certify
        deed()
        self.sees = True
        self.judge()

    def judge(self) -> None:
        """The borrower's books, and that nobody has more at a lender than it may."""
        borrower = self.nodes[ME]._borrower
        dispatcher, opened = borrower._dispatcher, borrower._open
        assert set(opened) == set(dispatcher._open) == self.asked.keys() - self.settled.keys()
        for job, (number, _) in borrower._jobs.items():
            assert opened[number].job == job, "it waits for a job that is nobody's"
        for number, one in opened.items():
            attempts = dispatcher._open[number]
            live = {attempt for attempt in attempts.live if attempts.tried[attempt] is not None}
            assert set(one.lenders) == live, "whoever is asked is not who is waited for"
            assert self.is_late or self.now_ns <= self.asked[number][0].deadline_ns, "it is open past its deadline"
        aside = sum(sum(one.prices.values()) for one in opened.values())
        assert borrower._purse._aside_ns == aside * HOUR_NS, "what is set aside is not what requests cost"
        assert all(pair[0] in opened for asking in borrower._asking.values() for pair in asking.waiting)
        assert max(len(dispatcher._offers), len(borrower._offers)) <= CONFIG.lenders_max
        for node in LENDERS:
            assert max(self.nodes[node].jobs_by_borrower().values(), default=0) <= 4

    def end(self) -> None:
        """Everything comes to rest."""
        for node in NODES:
            self.ways[node] = dict.fromkeys(self.ways[node], NEAR)
            self.meet(node)
        for _ in range(400):
            while self.wire:
                self.hear(*self.wire.pop(0))
            if not any(one.jobs or one.open_requests for one in self.nodes.values()):
                break
            self.fire(self.now_ns + 300 * MS)
        self.judge()
        assert self.asked.keys() == self.settled.keys(), "a request has no end"
        assert not any(one.jobs for one in self.nodes.values()), "a job has no end"


def _all(seeds: range, is_late: bool) -> int:
    """How many lenders' answers counted."""
    borrowed = 0
    for seed in seeds:
        chaos = Chaos(seed, is_late)
        for _ in range(400):
            chaos.step()
        chaos.end()
        borrowed += sum(one is not None and one.lender is not None for one in chaos.settled.values())
    return borrowed


def law_whatever_happens_each_request_ends_once_and_in_time_and_goes_where_it_may() -> None:
    assert _all(range(16), is_late=False) > 40


def law_it_does_where_timers_are_late_too() -> None:
    assert _all(range(100, 116), is_late=True) > 40


def late_answers_count(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._on_answer

    def on_answer(self: Dispatcher, number: int, attempt: int, now_ns: int) -> object:
        one = self._open.get(number)
        return whole(self, number, attempt, now_ns if one is None else min(now_ns, one.need.deadline_ns))

    patch.setattr(Dispatcher, "_on_answer", on_answer)


def everything_may_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement.Need, "may_leave", property(lambda self: True, lambda self, value: None))


def what_is_kept_serves_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        borrowing, "kept_for",
        lambda one, kept, _, now_ns: (
            kept.get(under_way.key_of(one), now_ns) if under_way.may_be_kept(one.ask) else None
        ),
    )  # fmt: skip


def money_stays_set_aside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "give_back", lambda self, price: None)


def who_withdraws_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(borrowing, "let_go", lambda one, lender, purse: [])


def deadlines_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_timer", lambda self, number, what, now_ns: [])


ON_TIME = law_whatever_happens_each_request_ends_once_and_in_time_and_goes_where_it_may
PAIRS: list[tuple[Law, Mutant]] = [
    (law_it_does_where_timers_are_late_too, late_answers_count),
    (ON_TIME, everything_may_leave),
    (ON_TIME, what_is_kept_serves_all),
    (ON_TIME, money_stays_set_aside),
    (ON_TIME, who_withdraws_is_waited_for),
    (ON_TIME, deadlines_pass),
]


@each_law(PAIRS)
def test_law(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_each_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
