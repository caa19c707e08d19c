"""The borrower's side: offers heard, tickets held, requests on their way, answers judged.

`dispatcher.py` decides whom each request goes to; this file turns that into messages and back.

- An offer counts only from the member that signed it, and a newer one replaces an older one.
- A request goes out under a ticket; where there is none it waits for one, no longer than its own deadline.
- An answer counts only for an attempt that waits for it, from the lender that was asked, with that lender's signature
  over this borrower, this request, the bundle that was asked for and the very input; anything else is garbage and is
  held against who sent it. What it says inside is judged by `is_well_formed`.
- What a request carries is kept until it is through. Answers are kept where a program says for how long (`cache.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import CancelTimer, Order, Rejected, SetTimer, TimerKey
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import decisions, messages, requests
from swarmd_protocols.offload.ahead import LEFT_NS, Ahead
from swarmd_protocols.offload.cache import AnswerCache, CacheConfig, Kept
from swarmd_protocols.offload.decisions import (
    Answered,
    Asked,
    Attempt,
    Cancel,
    Check,
    Checked,
    Deliver,
    Failed,
    Moved,
    OfferHeard,
)
from swarmd_protocols.offload.dispatcher import TIMERS, Dispatcher, DispatcherConfig
from swarmd_protocols.offload.ledger import Ledger
from swarmd_protocols.offload.lending import NAME
from swarmd_protocols.offload.messages import Answer, Bound, Deny, Grant, Offered, Refusal
from swarmd_protocols.offload.placement import Need, Offer, ability_number, come_by_ns
from swarmd_protocols.offload.placement import Offered as OfferedBundle
from swarmd_protocols.offload.purse import FREE, CostRule, Purse
from swarmd_protocols.offload.tickets import HeldTicket, open_ticket
from swarmd_protocols.offload.under_way import (
    TICKETS_MAX,
    Asking,
    Open,
    ask_ticket,
    begin_now,
    input_sha256_for,
    is_paid,
    kept_for,
    key_of,
    let_go,
    may_be_kept,
    own_run,
    request_of,
    size_of,
    split_number,
    still_waiting,
    wire_number,
)
from swarmd_protocols.subprotocol import Priority, Send, SubEffect

_MS = 1_000_000
_RENEW_MS = 6_000
"""With less left than this a ticket that is used is asked for anew: a fifth of the longest life."""
_LOW = 8
"""Likewise when less than an eighth of its requests or bytes is left."""
_AGAIN_NS = 1_000_000_000
"""A lender that gave no ticket, or has not answered, is asked again after a second."""
_GAP_NS = 100_000_000
"""Offers of one lender are read ten times a second at most: a flood costs no signature checks."""


class Borrower:
    """What one device has others do."""

    def __init__(
        self,
        node: NodeId,
        crypto: Crypto,
        config: DispatcherConfig,
        rng: Random,
        numbers: Iterator[int],
        physical_ms: Callable[[int], int],
        ledger: Ledger,
        is_well_formed: Callable[[bytes, bytes], bool],
        rule: CostRule = FREE,
        is_worthless: Callable[[bytes], bool] = lambda data: False,
        is_let_in: Callable[[NodeId], bool] = lambda lender: True,
    ) -> None:
        """Know no lender; the arguments are those of `Offload`, `rule` says what may be spent and `is_let_in` whether
        a lender that has answered is a member still, and one that may be asked.
        """
        self._is_let_in = is_let_in
        self._is_worthless = is_worthless
        self._purse = Purse(rule)
        self._ledger = ledger
        self._node = node
        self._crypto = crypto
        self._config = config
        self._numbers = numbers
        self._physical_ms = physical_ms
        self._is_well_formed = is_well_formed
        self._dispatcher = Dispatcher(config, rng, self._has_ticket)
        self._keys: dict[NodeId, bytes] = {}
        self._far = frozenset[NodeId]()
        self._heard: dict[NodeId, tuple[int, int]] = {}
        """Number of a lender's last offer, and when it came."""
        self._offers: dict[NodeId, Offer] = {}
        self._tickets: dict[tuple[NodeId, bytes], HeldTicket] = {}
        self._asking: dict[tuple[NodeId, bytes], Asking] = {}
        self._ahead = Ahead(rng, rule)
        self._open: dict[int, Open] = {}
        self._jobs: dict[int, tuple[int, int]] = {}
        """Jobs of this device: request and attempt."""
        self._kept = AnswerCache(CacheConfig())
        self.counts: Counter[str] = Counter()

    @property
    def open_requests(self) -> int:
        """Requests without an answer so far."""
        return len(self._open)

    def lenders(self) -> dict[NodeId, tuple[str, ...]]:
        """Who offers something, and the digests of what."""
        return {node: tuple(one.digest.hex() for one in offer.bundles) for node, offer in self._offers.items()}

    def offers(self, now_ns: int) -> list[Offer]:
        """What lenders that are believed have said last."""
        return self._dispatcher.offers(now_ns)

    def is_ejected(self, lender: NodeId, now_ns: int) -> bool:
        """Whether its answers were wrong so often that it is asked no more, for now."""
        return self._dispatcher.reputation.is_ejected(lender, now_ns)

    def totals(self) -> Counter[str]:
        """Counts of this file, of the dispatcher and of the answers kept."""
        kept = Counter({f"kept_{name}": value for name, value in self._kept.counts.items()})
        return self.counts + self._dispatcher.counts + self._purse.counts + kept

    # --- From the driver ----------------------------------------------------------------------------------------

    def on_borrow(self, ask: requests.Borrow, now_ns: int) -> list[SubEffect]:
        """A program wants an answer."""
        one = Open(ask, sha256(ask.data).digest())
        kept = kept_for(one, self._kept, self._is_let_in, now_ns)
        if kept is not None:
            settle = requests.Settle(ask.number, kept.data, kept.lender, ask.digest, False, is_kept=True)
            return [Order(NAME, settle)]
        self._open[ask.number] = one
        if ask.may_leave and not ask.ability:
            self._ahead.want(ask.digest, now_ns)
        rule, left = self._purse.rule, self._purse.allowed(size_of(ask), now_ns)
        need = Need(
            ask.number, ask.digest, ask.units, size_of(ask), ask.deadline_ns, ask.may_leave, ask.local_ns,
            ask.local_wait_ns, ability_number(ask.ability), ask.grade_min_milli, ask.copies, ask.only, ask.may_check,
            ask.not_asked(self._far), rule,
        )  # fmt: skip
        if left is not rule:
            is_short = any(one.is_out_of_reach(need, left) for one in self._offers.values())
            self.counts["over_budget"] += is_short
            need = replace(need, may_leave=False) if left is None else replace(need, rule=left)
        return self._decide(Asked(need), now_ns)

    def on_pulse(self, asks: Sequence[bytes], now_ns: int) -> list[SubEffect]:
        """Once a second: tickets that are waited for, and of what programs will ask for (`asks`) or have asked for."""
        for digest in asks:
            self._ahead.want(digest, now_ns)
        effects: list[SubEffect] = []
        waited = [where for where, asking in self._asking.items() if still_waiting(asking, self._open)]
        wanted = self._ahead.lenders(self.offers(now_ns), self._dispatcher.times, self._has_ticket, now_ns)
        for where in dict.fromkeys([*wanted, *waited]):
            held, asking = self._tickets.get(where), self._asking.get(where)
            if held is not None and where not in waited and self._has_ticket(*where, now_ns):
                effects += self._renew(held, where, now_ns)
            elif asking is None or now_ns - asking.at_ns >= (LEFT_NS if asking.is_denied else _AGAIN_NS):
                effects += ask_ticket(self._asking, where, still_waiting(asking, self._open), now_ns)
        return effects

    def on_ran(self, job: int, data: bytes | None, now_ns: int) -> list[SubEffect]:
        """The own model has run."""
        found = self._jobs.pop(job, None)
        if found is None:
            return []
        number, attempt = found
        one = self._open[number]
        one.job = 0
        if data is None:
            return self._decide(Failed(number, attempt), now_ns)
        one.answers[attempt] = data
        return self._decide(Answered(number, attempt), now_ns)

    def on_judged(self, judged: requests.Judged, now_ns: int) -> list[SubEffect]:
        """An answer was held against the own model."""
        if not judged.is_right:
            self._kept.forget(judged.lender)
        return self._note_check(judged.lender, judged.is_right, now_ns)

    def on_doubt(self, lender: NodeId, now_ns: int) -> list[SubEffect]:
        """The connection to it has broken."""
        return self._decide(decisions.Doubted(lender), now_ns)

    def on_abandon(self, number: int, now_ns: int) -> list[SubEffect]:
        """The program that asked has gone; nothing where the request is through."""
        return self._decide(decisions.Abandoned(number), now_ns)

    def on_timer(self, number: int, what: str, now_ns: int) -> list[SubEffect]:
        """A timer of a request."""
        return self._decide(decisions.TimerFired(number, what), now_ns)

    # --- From lenders -------------------------------------------------------------------------------------------

    def on_keys(self, keys: dict[NodeId, bytes], far: frozenset[NodeId], now_ns: int) -> list[SubEffect]:
        """Who can be reached, their keys, and which of them over others; whoever is missing lends nothing more."""
        self._far = far
        gone = [node for node in self._keys if node not in keys]
        self._keys = keys
        effects: list[SubEffect] = []
        for node in gone:
            self._heard.pop(node, None)
            effects += self._withdraw(node, now_ns)
        for offer in [offer for offer in self._offers.values() if offer.is_far != (offer.node in far)]:
            self._offers[offer.node] = replace(offer, is_far=not offer.is_far)
            effects += self._decide(Moved(offer.node, not offer.is_far), now_ns)
        return effects

    def on_offer(self, sender: NodeId, message: Offered, now_ns: int) -> list[SubEffect]:
        """A lender says what it would do."""
        key = self._keys.get(sender)
        if key is None:
            return []
        number, at_ns = self._heard.get(sender, (-1, -(1 << 62)))
        if now_ns - at_ns < _GAP_NS:
            self.counts["too_soon"] += 1
            return []
        self._heard[sender] = number, now_ns  # One that does not hold, or an old one, costs a check too.
        try:
            said = messages.decode_descriptor(message.body)
        except WireError as error:
            return self._refuse(sender, str(error))
        if said.node != sender or not self._crypto.verify(key, messages.offer_bytes(message.body), message.signature):
            return self._refuse(sender, "an offer that its sender has not signed")
        if said.number <= number:
            return []
        self._heard[sender] = (said.number, now_ns)
        if not said.rows:
            return self._withdraw(sender, now_ns)
        rows = tuple(
            OfferedBundle(row.digest, row.unit_us * 1000, row.queue_us * 1000, row.ability, row.grade_milli)
            for row in said.rows
        )
        asks = said.price_micro_s, said.charge_ppb_s
        offer = Offer(sender, rows, said.input_bytes_max, now_ns, True, said.good_ms * _MS, *asks, sender in self._far)
        self._offers.pop(sender, None)
        self._offers[sender] = offer
        while len(self._offers) > self._config.lenders_max:
            del self._offers[next(iter(self._offers))]
        return self._decide(OfferHeard(offer), now_ns)

    def on_grant(self, sender: NodeId, message: Grant, now_ns: int) -> list[SubEffect]:
        """A ticket has come; one that was not asked for is not read."""
        digests = [digest for lender, digest in self._asking if lender == sender]
        key = self._keys.get(sender)
        if not digests or key is None:
            return []
        try:
            ticket = open_ticket(message.ticket, key, self._crypto)
        except WireError as error:
            return self._refuse(sender, str(error))
        if ticket.lender != sender or ticket.borrower != self._node or ticket.digest not in digests:
            return self._refuse(sender, "a ticket for another borrower or bundle")
        rest, now_ms = HeldTicket.new(ticket, self._tickets.get((sender, ticket.digest))), self._physical_ms(now_ns)
        if not rest.is_good(1, now_ms):
            # Empty or over before it is used, or used up: asked for anew at once, the next one would be no better.
            return self.on_deny(sender, Deny(ticket.digest, messages.REASONS.index("expired")), now_ns)
        asking = self._asking.pop((sender, ticket.digest))
        self._dispatcher.times_of(sender).met(now_ns - asking.at_ns)
        self._tickets.pop((sender, ticket.digest), None)
        self._tickets[sender, ticket.digest] = replace(rest)
        while len(self._tickets) > TICKETS_MAX:
            del self._tickets[next(iter(self._tickets))]
        effects: list[SubEffect] = []
        for number, attempt in asking.waiting:
            one = self._open.get(number)
            if one is not None and one.lenders.get(attempt) == sender and rest.is_good(size_of(one.ask), now_ms):
                effects += self._request(one, attempt, sender, now_ns, is_new=True)
                effects += self._decide(decisions.Left(number, attempt), now_ns) if attempt in one.sent_ns else []
            else:
                effects += self._fail(number, attempt, sender, now_ns)
        return effects

    def on_deny(self, sender: NodeId, message: Deny, now_ns: int) -> list[SubEffect]:
        """There is no ticket: who waited for one goes elsewhere, and nobody asks again for a second."""
        asking = self._asking.get((sender, message.digest))
        if asking is None:
            return []
        self.counts["denied"] += 1
        reason = messages.REASONS[message.reason]
        if reason.startswith("outside-"):
            self.counts[f"denied_{reason}"] += 1
        waiting, asking.waiting, asking.at_ns, asking.is_denied = asking.waiting, [], now_ns, True
        return [effect for number, attempt in waiting for effect in self._fail(number, attempt, sender, now_ns)]

    def on_answer(self, sender: NodeId, message: Answer, now_ns: int) -> list[SubEffect]:
        """An answer, judged before it counts."""
        number, attempt = split_number(message.id)
        one, key = self._open.get(number), self._keys.get(sender)
        if one is None or key is None or one.lenders.get(attempt) != sender:
            self.counts["unasked"] += 1
            return []
        digest = one.digests[attempt]
        bound = Bound(self._node, sender, message.id, digest, input_sha256_for(one, sender))
        is_signed = self._crypto.verify(key, messages.answer_bytes(bound, message.data), message.signature)
        if not is_signed or not self._is_well_formed(digest, message.data):
            self.counts["garbage"] += 1
            self._kept.forget(sender)
            effects = self._refuse(sender, "an answer that is not signed for this request, or has no proper form")
            effects += self._note_check(sender, False, now_ns)
            return effects + self._fail(number, attempt, sender, now_ns)
        one.answers[attempt] = message.data
        one.proofs[attempt] = messages.proof_of(message.id, bound.input_sha256, message.signature)
        return self._decide(Answered(number, attempt), now_ns)

    def on_refusal(self, sender: NodeId, message: Refusal, now_ns: int) -> list[SubEffect]:
        """A lender will not answer; a ticket that it does not know is good for nothing."""
        number, attempt = split_number(message.id)
        one = self._open.get(number)
        if one is None or one.lenders.get(attempt) != sender:
            return []
        if messages.REASONS[message.reason] in ("unknown", "expired", "spent", "not-lending"):
            self._tickets.pop((sender, one.digests[attempt]), None)
        self.counts[f"refused_{messages.REASONS[message.reason]}"] += 1
        return self._fail(number, attempt, sender, now_ns)

    # --- inside -------------------------------------------------------------------------------------------------

    def _decide(self, event: decisions.Event, now_ns: int) -> list[SubEffect]:
        decisions = self._dispatcher.handle(event, now_ns)
        checked = {decision.number for decision in decisions if isinstance(decision, Check)}
        effects: list[SubEffect] = []
        # What a request has under way is ended before the request is forgotten.
        for decision in sorted(decisions, key=lambda one: isinstance(one, Deliver)):
            effects += self._perform(decision, checked, now_ns)
        return effects

    def _perform(self, decision: decisions.Effect, checked: set[int], now_ns: int) -> list[SubEffect]:
        match decision:
            case Attempt(number, attempt, None, digest, until_ns):
                one = self._open[number]
                one.job = next(self._numbers)
                one.digests[attempt] = digest
                self._jobs[one.job] = number, attempt
                return [Order(NAME, own_run(one, digest, until_ns))]
            case Attempt(number, attempt, lender, digest, _, held_until_ns):
                assert lender is not None
                one = self._open[number]
                one.asks(attempt, lender, digest, held_until_ns)
                return self._request(one, attempt, lender, now_ns)
            case decisions.Begin(number, attempt):
                return begin_now(self._open[number], attempt, self._tickets, self._keys, now_ns)
            case Cancel(number, attempt):
                return self._cancel(number, attempt)
            case Deliver(number, attempt):
                return self._deliver(number, attempt, now_ns, is_check_wanted=number in checked)
            case Check():
                return []  # `Settle` says so.
            case decisions.SetTimer(number, what, due_ns):
                return [SetTimer(_timer(number, what), due_ns)] if number in self._open else []

    def _request(
        self, one: Open, attempt: int, lender: NodeId, now_ns: int, *, is_new: bool = False
    ) -> list[SubEffect]:
        """Send a request where there is a ticket that is good until it comes, or `is_new`; else ask for one, at most
        once a second.
        """
        ask, digest = one.ask, one.digests[attempt]
        if lender not in self._keys:
            return self._fail(ask.number, attempt, lender, now_ns)  # Several go at once, and it is not its turn yet.
        where = lender, digest
        held, offer = self._tickets.get(where), self._offers.get(lender)
        by_ns = now_ns if is_new else min(ask.deadline_ns, come_by_ns(offer, size_of(ask), now_ns))
        if held is not None and held.is_good(size_of(ask), self._physical_ms(by_ns)):
            request = request_of(one, attempt, lender, held.ticket.number, now_ns)
            if not request.left_ms:
                return []  # Its deadline is about to end it.
            if not is_paid(one, attempt, offer, self._purse, now_ns):
                return self._fail(ask.number, attempt, lender, now_ns, is_its_fault=False)
            held.count -= 1
            held.size_bytes -= size_of(ask)
            self.counts["requests"] += 1
            self.counts["request_bytes"] += size_of(ask)
            send = Send(lender, messages.encode_message(request), True, Priority.BULK)
            return [*self._renew(held, where, now_ns), send]  # What stands behind no input measures the way.
        asking = self._asking.get(where)
        if asking is not None and now_ns - asking.at_ns < _AGAIN_NS:
            if asking.is_denied:
                return self._fail(ask.number, attempt, lender, now_ns)
            asking.waiting.append((ask.number, attempt))
            return []
        return ask_ticket(self._asking, where, [*still_waiting(asking, self._open), (ask.number, attempt)], now_ns)

    def _note_check(self, lender: NodeId, is_right: bool, now_ns: int) -> list[SubEffect]:
        was_ejected = self.is_ejected(lender, now_ns)
        effects = self._decide(Checked(lender, is_right), now_ns)
        if not is_right:
            self._ledger.note("found_wrong", lender)
        if self.is_ejected(lender, now_ns) and not was_ejected:
            self.counts["ejected"] += 1
            self._ledger.note("ejected", lender)
        return effects

    def _has_ticket(self, lender: NodeId, digest: bytes, now_ns: int) -> bool:
        held = self._tickets.get((lender, digest))
        return held is not None and held.is_good(0, self._physical_ms(now_ns))

    def _renew(self, held: HeldTicket, where: tuple[NodeId, bytes], now_ns: int) -> list[SubEffect]:
        """A ticket that is almost used up is asked for anew."""
        ticket = held.ticket
        is_low = held.count * _LOW < ticket.count_max or held.size_bytes * _LOW < ticket.bytes_max
        is_old = self._physical_ms(now_ns) + _RENEW_MS > ticket.until_ms
        asking = self._asking.get(where)
        times = self._dispatcher.times_of(where[0])
        is_due = is_low or is_old or times.wants_way
        if not is_due or (asking is not None and now_ns - asking.at_ns < _AGAIN_NS):
            return []
        times.wants_way = False
        return ask_ticket(self._asking, where, [], now_ns)

    def _fail(
        self, number: int, attempt: int, lender: NodeId, now_ns: int, *, is_its_fault: bool = True
    ) -> list[SubEffect]:
        one = self._open.get(number)
        if one is None or one.lenders.get(attempt) != lender:
            return []
        del one.lenders[attempt]
        self._purse.give_back(one.prices.pop(attempt, 0))
        return self._decide(Failed(number, attempt, is_its_fault), now_ns)

    def _cancel(self, number: int, attempt: int) -> list[SubEffect]:
        """Nobody waits for an attempt: whoever works on it is told."""
        one = self._open[number]
        lender = one.lenders.pop(attempt, None)
        if lender is not None:
            cancel = messages.Cancel(wire_number(number, attempt))
            return [Send(lender, messages.encode_message(cancel), True, Priority.SYNC)]
        if self._jobs.get(one.job) == (number, attempt):
            del self._jobs[one.job]
            return [Order(NAME, requests.Drop(one.job))]
        return []

    def _deliver(self, number: int, attempt: int | None, now_ns: int, *, is_check_wanted: bool) -> list[SubEffect]:
        one = self._open.pop(number)
        for asking in self._asking.values():
            asking.waiting = [pair for pair in asking.waiting if pair[0] != number]
        data = None if attempt is None else one.answers[attempt]
        lender = None if attempt is None else one.lenders.get(attempt)
        digest = one.ask.digest if attempt is None else one.digests[attempt]
        is_worthless = data is not None and lender is not None and self._is_worthless(data)
        if data is not None and lender is not None:
            price = 0 if is_worthless else one.prices.pop(attempt or 0, 0)
            self._purse.spend(price)
            took_ns = now_ns - one.begun_ns(attempt or 0, now_ns)
            self._ledger.note("borrowed", lender, digest, size_of(one.ask), data, price, took_ns)
        self._purse.give_back(sum(one.prices.values()))  # Of who said nothing, or came second.
        if data is not None and may_be_kept(one.ask) and not is_worthless:
            self._kept.put(key_of(one), Kept(data, lender, now_ns + one.ask.keep_ns), now_ns)
        proof = b"" if attempt is None else one.proofs.get(attempt, b"")
        wire = 0 if attempt is None or lender is None else wire_number(number, attempt)
        way_ns = 0 if lender is None else self._dispatcher.times_of(lender).way_ns
        settle = requests.Settle(
            number, data, lender, digest, is_check_wanted, proof=proof, request=wire, way_ns=way_ns
        )
        return [*(CancelTimer(_timer(number, what)) for what in TIMERS), Order(NAME, settle)]

    def _withdraw(self, node: NodeId, now_ns: int) -> list[SubEffect]:
        """A lender lends no more."""
        self._offers.pop(node, None)
        for table in (self._tickets, self._asking):
            for where in [where for where in table if where[0] == node]:
                del table[where]
        told = [effect for one in self._open.values() for effect in let_go(one, node, self._purse)]
        told = told if node in self._keys else []
        return told + self._decide(OfferHeard(Offer(node, (), 0, now_ns, is_reachable=False)), now_ns)

    def _refuse(self, sender: NodeId, reason: str) -> list[SubEffect]:
        self.counts["refused"] += 1
        return [Rejected(sender.hex(), reason)]


def _timer(number: int, what: str) -> TimerKey:
    return (NAME, "ask", number, what)
