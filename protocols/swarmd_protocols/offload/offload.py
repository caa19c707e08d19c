"""The sub-protocol `offload`: a lender and a borrower on one device, behind one name.

It moves bytes and decides who thinks for whom; what the bytes mean is known to the driver, which runs models. See
`requests.py` for what the two tell each other and `messages.py` for what goes over the air.

- A lender tells every reachable peer what it offers, at most once in `period_ns`, later the more peers there are; who
  has nothing to lend says so once and is silent then.
- Nothing is journalled and nothing repaired: tickets and requests die with the process, and deadlines end the rest.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Rejected, SetTimer, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.dispatcher import DispatcherConfig
from swarmd_protocols.offload.ledger import Ledger
from swarmd_protocols.offload.lending import NAME, Lender, LendingConfig
from swarmd_protocols.offload.placement import Offer
from swarmd_protocols.offload.purse import FREE, CostRule
from swarmd_protocols.offload.turns import PRIORITIES
from swarmd_protocols.offload.under_way import NUMBER_MAX
from swarmd_protocols.offload.whom import EVERYBODY, Certified, Whom
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect

_SAY: TimerKey = (NAME, "say")
_GOOD_PERIODS = 3
"""An offer is good for so many periods: two that are lost in a row do not make a lender disappear."""
_MS = 1_000_000
COPIES_MAX = 2
"""Lenders that one request may have at work at once: one death is survived, the work doubles and no more."""
FAR_COST_MAX, FAR_MAX = 24, 10
"""Members out of this radio's reach that are lent to and borrowed from: whom a frame reaches in six transmissions
(quarters; five hops that lose one frame in ten), and so many, so that each is told of an offer in 10 s."""
_KEEPS_PLACE = 4
"""Quarters of a transmission that another must be nearer by to take a far one's place: ways change every 5 s."""
RECIPE_MAX_BYTES = 64
"""What else an answer depends on: a digest, and what names it."""


@dataclass(frozen=True, slots=True)
class OffloadConfig:
    """What this device does; it may differ between nodes."""

    lends: bool = False
    borrows: bool = False
    period_ns: int = 1_000_000_000
    """Least time between two offers of this node."""
    messages_per_s: int = 10
    """In a larger swarm the period grows, so that about so many offers a second leave this node; at most to
    `period_max_ns`."""
    period_max_ns: int = 10_000_000_000
    lend_to: Whom = EVERYBODY
    """Whom anything is done for."""
    borrow_from: Whom = EVERYBODY
    """Of whom anything is borrowed: only they see what leaves this device."""
    lending: LendingConfig = field(default_factory=LendingConfig)
    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    cost: CostRule = FREE
    """What borrowing may cost."""


class Offload:
    """See the module."""

    def __init__(
        self,
        node: NodeId,
        seed: bytes,
        crypto: Crypto,
        config: OffloadConfig,
        boot: int,
        rng: Random,
        physical_ms: Callable[[int], int],
        is_well_formed: Callable[[bytes, bytes], bool],
        certified: Callable[[NodeId], Certified | None] = lambda node: None,
        is_worthless: Callable[[bytes], bool] = lambda data: False,
    ) -> None:
        """Know nobody yet.

        Args:
            node: This node.
            seed: Its key.
            crypto: Signs and verifies.
            config: See `OffloadConfig`.
            boot: A number that grows with every boot, below 2^36.
            rng: For choices between lenders.
            physical_ms: Swarm time in milliseconds at a moment of the monotonic clock.
            is_well_formed: Whether bytes are an answer of the bundle with this digest, at least by their form; cheap,
                and it never raises.
            certified: What the fleet has signed of a member, this one included, as it holds now; None: nothing, and
                no rule lets such a one in.
            is_worthless: Whether a well-formed answer only says what is wrong with its request, for which nothing ran:
                it costs nothing, and is not kept.
        """
        numbers = count(1)
        self.node = node
        """This node."""
        self._config = config
        self._crypto = crypto
        self.ledger = Ledger()
        """Of both sides; the driver takes its lines."""
        self._lender = Lender(node, seed, crypto, config.lending, boot, numbers, physical_ms, self.ledger, is_worthless)
        self._borrower = Borrower(
            node,
            crypto,
            config.dispatcher,
            rng,
            numbers,
            physical_ms,
            self.ledger,
            is_well_formed,
            config.cost,
            is_worthless,
            lambda lender: _is_let_in(self._config.borrow_from, certified(lender), certified(node)),
        )
        self._borrowers: dict[NodeId, bytes] = {}
        """Who can be reached and may borrow, with their keys."""
        self._lenders: dict[NodeId, bytes] = {}
        """The same of who may lend."""
        self._near: dict[NodeId, bytes] = {}
        """The same of all who can be reached."""
        self._certified = certified
        self._refused: dict[NodeId, str] = {}
        """Who can be reached and may not borrow, with the rule that says so."""
        self._unasked: dict[NodeId, str] = {}
        """The same of who is not to be asked."""
        self._left_out: dict[NodeId, int] = {}
        """Who of these has offered something, and when it last did."""
        self._reached: list[Peer] = []
        """Who can be reached, and is near or a few hops away."""
        self._far: list[NodeId] = []
        """Of them, who is out of this radio's reach; the cheapest to reach first."""
        self._adrift: frozenset[NodeId] = frozenset()
        """Of these, to whom no way is known yet: nothing is handed on."""
        self._far_turn = 0
        self._said_ns = -(1 << 62)
        self._is_armed = False
        self._is_offering = False
        """Whether peers were told of something to lend."""
        self._last_number = 0

    # --- what can be read -------------------------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        """Of both sides."""
        lent = Counter({f"lent_{name}": value for name, value in self._lender.counts.items()})
        return lent + Counter({f"borrow_{name}": value for name, value in self._borrower.totals().items()})

    def lenders(self) -> dict[NodeId, tuple[str, ...]]:
        """Who offers something, and the digests of what."""
        return self._borrower.lenders()

    def offers(self, now_ns: int) -> list[Offer]:
        """What lenders that are believed have said last."""
        return self._borrower.offers(now_ns)

    def is_ejected(self, lender: NodeId, now_ns: int) -> bool:
        """Whether this node asks it no more, for now."""
        return self._borrower.is_ejected(lender, now_ns)

    def left_out(self, now_ns: int) -> dict[NodeId, str]:
        """Who offers something and is not asked for it, with the rule (`whom.RULES`) that says so."""
        good_ns = _GOOD_PERIODS * self._config.period_max_ns
        return {node: self._unasked[node] for node, at_ns in self._left_out.items() if now_ns - at_ns <= good_ns}

    def has_said(self, bound: messages.Bound, data: bytes, signature: bytes) -> bool:
        """Whether a member that can be reached has given this answer, to another borrower too; it never raises."""
        key = self._near.get(bound.lender)
        return key is not None and self._crypto.verify(key, messages.answer_bytes(bound, data), signature)

    @property
    def open_requests(self) -> int:
        """Of this device, without an answer."""
        return self._borrower.open_requests

    @property
    def jobs(self) -> int:
        """Of others, without an answer."""
        return self._lender.jobs

    def jobs_by_borrower(self) -> dict[NodeId, int]:
        """The same, by who asked."""
        return self._lender.jobs_by_borrower()

    def held_for(self, borrower: NodeId) -> list[int]:
        """Numbers of a borrower's requests, as they were on the wire, that another lender works on."""
        return self._lender.held_for(borrower)

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """Nothing is offered before the driver says what there is."""
        return []

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Whom to tell, whom to believe, and who is out."""
        self._reached = [
            peer for peer in peers
            if peer.reachable and peer.public_key and (_is_in_reach(peer) or self._is_adrift(peer))
        ]  # fmt: skip
        return self.on_trust(now_ns)

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """Who is signed to be what: whom a rule now leaves out is served, asked and believed no more."""
        config = self._config
        # Among the far ones first whom a rule lets in: those it leaves out take no place of theirs.
        # Who has a place keeps it until another is a whole transmission nearer: who loses it loses its jobs.
        held = dict.fromkeys(self._far, _KEEPS_PLACE)
        reached = [(_cost(peer) - held.get(peer.node, 0), peer.node) for peer in self._reached if peer.far]
        far = sorted((self._is_useless(node), cost, node) for cost, node in reached)
        self._far = [node for _, _, node in far][:FAR_MAX]
        self._adrift = frozenset(peer.node for peer in self._reached if peer.far and not peer.cost)
        near = {peer.node: peer.public_key for peer in self._reached if not peer.far or peer.node in self._far}
        self._near = near
        self._refused, self._unasked = self._outside(config.lend_to), self._outside(config.borrow_from)
        self._left_out = {node: at_ns for node, at_ns in self._left_out.items() if node in self._unasked}
        keys = {node: key for node, key in near.items() if node not in self._refused}
        is_news = any(node not in self._borrowers for node in keys)
        self._borrowers = keys
        self._lenders = {node: key for node, key in near.items() if node not in self._unasked}
        effects = self._borrower.on_keys(self._lenders, frozenset(self._far), now_ns) if config.borrows else []
        for borrower in self._lender.borrowers():
            if borrower not in keys:
                effects += self._lender.on_gone(borrower)
        return effects + (self._say_when_due(now_ns) if is_news else [])

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """One of `requests.Command`; raises `StateError` for anything else."""
        match request:
            case requests.Stock():
                self._lender.on_stock(request)
                ahead = self._borrower.on_pulse(request.asks, now_ns) if self._config.borrows else []
                return ahead + self._say_when_due(now_ns)
            case requests.Borrow():
                return self._on_borrow(request, now_ns)
            case requests.Ran(job, data):
                return self._borrower.on_ran(job, data, now_ns) or self._lender.on_ran(job, data, now_ns)
            case requests.Judged():
                return self._borrower.on_judged(request, now_ns)
            case requests.Withheld(lender):
                self.ledger.note("withheld", lender)
                return []
            case requests.Malformed(borrower):
                self.ledger.note("malformed", borrower)
                return []
            case requests.Doubt(lender):
                return self._borrower.on_doubt(lender, now_ns)
            case requests.Abandon(number):
                return self._borrower.on_abandon(number, now_ns)
            case _:
                raise StateError(f"`offload` knows no request {type(request).__name__}")

    def on_unsent(self, to: NodeId, now_ns: int) -> list[SubEffect]:
        """See `HearsUnsent`: what this lender alone works on goes to another; whoever waits for an answer asks anew."""
        return self._borrower.on_doubt(to, now_ns) if self._config.borrows else []

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """A request's, a job's, or the next offer's."""
        match key:
            case (_, "say"):
                self._is_armed = False
                return self._say_when_due(now_ns)
            case (_, "ask", int(number), str(what)):
                return self._borrower.on_timer(number, what, now_ns)
            case (_, "job", int(job)):
                return self._lender.on_due(job)
            case (_, "held", int(job)):
                return self._lender.on_held(job, now_ns)
            case _:
                return []

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A word of a lender's or a borrower's; what this device does not do is not answered."""
        if sender not in self._near:
            return []
        try:
            message = messages.decode_message(payload)
        except WireError as error:
            return [Rejected(sender.hex(), str(error))]
        match message:
            case messages.Ask() | messages.Request() | messages.Cancel():
                return self._on_lender(sender, message, now_ns) if self._config.lends else []
            case _:
                return self._on_borrower(sender, message, now_ns) if self._config.borrows else []

    def summary(self) -> bytes:
        """Nothing here is compared."""
        return b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Nothing here is compared."""
        return []

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Nothing here rides along."""
        return []

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_borrow(self, ask: requests.Borrow, now_ns: int) -> list[SubEffect]:
        if not self._config.borrows:
            raise StateError("this device does not borrow; set lending.borrow")
        if not self._last_number < ask.number <= NUMBER_MAX:
            raise StateError(f"request {ask.number} does not come after {self._last_number}")
        if len(ask.data) > messages.PAYLOAD_MAX_BYTES:
            raise StateError(f"an input of {len(ask.data)} bytes; at most {messages.PAYLOAD_MAX_BYTES} can be lent out")
        if not 0 <= ask.lane_bytes <= messages.LANE_MAX_BYTES:
            raise StateError(f"an input of {ask.lane_bytes} bytes; at most {messages.LANE_MAX_BYTES} can be fetched")
        has_no_own = bool(ask.ability) and not ask.digest and not ask.local_ns
        if not (len(ask.digest) == messages.DIGEST_BYTES or has_no_own) or not 1 <= ask.units <= messages.UNITS_MAX:
            raise StateError(f"a digest of {len(ask.digest)} bytes, or {ask.units} items")
        if not 1 <= ask.copies <= COPIES_MAX or len(ask.recipe) > RECIPE_MAX_BYTES:
            raise StateError(f"{ask.copies} copies (1 or {COPIES_MAX}), or a recipe of {len(ask.recipe)} bytes")
        if ask.priority not in PRIORITIES:
            raise StateError(f"a priority of {ask.priority}; 1 is high, 2 normal, 3 low")
        self._last_number = ask.number
        return self._borrower.on_borrow(ask, now_ns)

    def _on_lender(
        self, sender: NodeId, message: messages.Ask | messages.Request | messages.Cancel, now_ns: int
    ) -> list[SubEffect]:
        rule = self._refused.get(sender)
        if rule is not None:
            return (
                [] if isinstance(message, messages.Cancel) else self._lender.on_outside(sender, message, rule, now_ns)
            )
        match message:
            case messages.Ask(digest):
                return self._lender.on_ask(sender, digest, now_ns, is_far=sender in self._far)
            case messages.Request():
                return self._lender.on_request(sender, message, now_ns)
            case messages.Cancel(number):
                return self._lender.on_cancel(sender, number)

    def _on_borrower(
        self,
        sender: NodeId,
        message: messages.Offered | messages.Grant | messages.Deny | messages.Answer | messages.Refusal,
        now_ns: int,
    ) -> list[SubEffect]:
        if sender in self._unasked:
            if isinstance(message, messages.Offered):
                self._left_out[sender] = now_ns
            return []
        borrower = self._borrower
        match message:
            case messages.Offered():
                return borrower.on_offer(sender, message, now_ns)
            case messages.Grant():
                return borrower.on_grant(sender, message, now_ns)
            case messages.Deny():
                return borrower.on_deny(sender, message, now_ns)
            case messages.Answer():
                return borrower.on_answer(sender, message, now_ns)
            case messages.Refusal():
                return borrower.on_refusal(sender, message, now_ns)

    def _is_adrift(self, peer: Peer) -> bool:
        """Whether it was in reach, and is near no more: the way to it over others is known within seconds."""
        return peer.far and not peer.cost and peer.node in self._near

    def _is_useless(self, node: NodeId) -> bool:
        """Whether rules leave a member out of all that this device does."""
        config, own = self._config, self._certified(self.node)
        sides = ((config.lends, config.lend_to), (config.borrows, config.borrow_from))
        return not any(does and not _broken(rule, self._certified(node), own) for does, rule in sides)

    def _outside(self, rule: Whom) -> dict[NodeId, str]:
        """Whom of those that can be reached a rule leaves out, and by which of `RULES`."""
        own = self._certified(self.node)
        found = {node: _broken(rule, self._certified(node), own) for node in self._near}
        return {node: name for node, name in found.items() if name}

    def _say_when_due(self, now_ns: int) -> list[SubEffect]:
        config = self._config
        far = [node for node in self._far if node in self._borrowers and node not in self._adrift]
        near = [node for node in self._borrowers if node not in self._far]
        if not config.lends or not (self._lender.is_willing or self._is_offering) or not (near or far):
            return []
        period_ns = max(config.period_ns, len(near) * 1_000_000_000 // config.messages_per_s)
        period_ns = min(period_ns, config.period_max_ns)
        due_ns = self._said_ns + period_ns
        if now_ns < due_ns:
            return self._arm(due_ns)
        self._said_ns = now_ns
        self._is_offering = self._lender.is_willing
        payload = messages.encode_message(self._lender.offer(_GOOD_PERIODS * period_ns // _MS))
        effects: list[SubEffect] = [Send(peer, payload, False, Priority.SYNC) for peer in near]
        if far:
            # One at a time, so that those who hand it on have one offer of this node a second.
            self._far_turn = (self._far_turn + 1) % len(far)
            good_ms = min(messages.GOOD_MAX_MS, _GOOD_PERIODS * period_ns * len(far) // _MS)
            payload = messages.encode_message(self._lender.offer(good_ms))
            effects.append(Send(far[self._far_turn], payload, True, Priority.SYNC))
        return effects + (self._arm(now_ns + period_ns) if self._is_offering else [])

    def _arm(self, due_ns: int) -> list[SubEffect]:
        if self._is_armed:
            return []
        self._is_armed = True
        return [SetTimer(_SAY, due_ns)]


def _broken(rule: Whom, member: Certified | None, own: Certified | None) -> str:
    """By which of `RULES` a member is left out; no rule asks for a certificate either."""
    return "" if rule == EVERYBODY else rule.broken_by(member, own)


def _is_let_in(rule: Whom, lender: Certified | None, own: Certified | None) -> bool:
    """Whether a lender's word counts: where the fleet signs who its members are, only theirs, and by the rule."""
    return (own is None or lender is not None) and not _broken(rule, lender, own)


def _is_in_reach(peer: Peer) -> bool:
    """Whether it is near, or a few hops away."""
    return not peer.far or 0 < peer.cost <= FAR_COST_MAX


def _cost(peer: Peer) -> int:
    """What the way to a far one costs; what is not known takes nobody's place."""
    return peer.cost or FAR_COST_MAX
