"""What a borrower keeps of a request that is under way, and what follows from it alone.

Nothing here decides: `borrowing.py` does.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.cache import AnswerCache, Kept, Key
from swarmd_protocols.offload.placement import Offer
from swarmd_protocols.offload.purse import Cost, Purse
from swarmd_protocols.offload.tickets import HeldTicket
from swarmd_protocols.subprotocol import Priority, Send, SubEffect

TICKETS_MAX = 256
"""Held, and asked for; the oldest goes."""


@dataclass(slots=True)
class Asking:
    """A ticket that was asked for."""

    at_ns: int
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Requests and attempts."""
    is_denied: bool = False


def ask_ticket(
    table: dict[tuple[NodeId, bytes], Asking], where: tuple[NodeId, bytes], waiting: list[tuple[int, int]], now_ns: int
) -> list[SubEffect]:
    """Ask for a ticket, for so many requests."""
    table.pop(where, None)
    table[where] = Asking(now_ns, waiting)
    while len(table) > TICKETS_MAX:
        del table[next(iter(table))]
    lender, digest = where
    return [Send(lender, messages.encode_message(messages.Ask(digest)), True, Priority.SYNC)]


def still_waiting(asking: Asking | None, requests_open: Mapping[int, "Open"]) -> list[tuple[int, int]]:
    """Requests that a question still stands for."""
    return [] if asking is None else [pair for pair in asking.waiting if pair[0] in requests_open]


@dataclass(slots=True)
class Open:
    """A request without an answer so far."""

    ask: requests.Borrow
    input_sha256: bytes
    lenders: dict[int, NodeId] = field(default_factory=dict)
    """By attempt, while it is asked."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """Of the bundle that each attempt asks for."""
    prices: dict[int, int] = field(default_factory=dict)
    """What is set aside for each attempt that went out."""
    sent_ns: dict[int, int] = field(default_factory=dict)
    """When each of them did."""
    held_until_ns: dict[int, int] = field(default_factory=dict)
    """When each is begun."""
    job: int = 0
    """That runs on this device; 0: none."""
    answers: dict[int, bytes] = field(default_factory=dict)
    proofs: dict[int, bytes] = field(default_factory=dict)

    def asks(self, attempt: int, lender: NodeId, digest: bytes, begins_ns: int) -> None:
        """An attempt is made: at once, where it was told to begin before its turn to be sent came."""
        self.lenders[attempt], self.digests[attempt] = lender, digest
        self.held_until_ns.setdefault(attempt, begins_ns)

    def begun_ns(self, attempt: int, now_ns: int) -> int:
        """When an attempt that went out was begun; now where it did not."""
        return max(self.sent_ns.get(attempt, now_ns), min(now_ns, self.held_until_ns.get(attempt, 0)))


_MS = 1_000_000
_ATTEMPT_BITS = 3
"""Of a request's number on the wire: which attempt it is."""
NUMBER_MAX = (1 << 60) - 1
"""Of a request: with its attempt it still fits the wire's 63 bits."""


def wire_number(number: int, attempt: int) -> int:
    """What a lender knows an attempt of a request by."""
    return number << _ATTEMPT_BITS | attempt


def split_number(wire: int) -> tuple[int, int]:
    """Request and attempt.

    >>> split_number(wire_number(5, 2))
    (5, 2)
    """
    return wire >> _ATTEMPT_BITS, wire & (1 << _ATTEMPT_BITS) - 1


def is_paid(one: Open, attempt: int, offer: Offer | None, purse: Purse, now_ns: int) -> bool:
    """Set aside what an attempt costs, by its lender's newest offer; False where that may not be spent."""
    price = Cost() if offer is None else offer.cost(one.digests[attempt], one.ask.units)
    if not purse.set_aside(price, size_of(one.ask), now_ns):
        return False
    one.prices[attempt], one.sent_ns[attempt] = price.price_micro, now_ns
    return True


def may_be_kept(ask: requests.Borrow) -> bool:
    """Not what any able bundle may answer: after a release an old one's answer would stand for a new one's."""
    return ask.keep_ns > 0 and not ask.ability and not ask.lane_bytes


def key_of(one: Open) -> Key:
    """Under which its answer is kept."""
    return Key(one.input_sha256, one.ask.recipe, one.ask.digest)


def kept_for(one: Open, kept: AnswerCache, is_let_in: Callable[[NodeId], bool], now_ns: int) -> Kept | None:
    """The answer that was kept for a request; of no lender that it may not be sent to, and of none that is out now."""
    found = kept.get(key_of(one), now_ns) if may_be_kept(one.ask) else None
    if found is None or found.lender is None:
        return found
    if not is_let_in(found.lender):
        kept.forget(found.lender)
        return None
    return found if found.lender not in one.ask.but and one.ask.only in (None, found.lender) else None


def let_go(one: Open, lender: NodeId, purse: Purse) -> list[SubEffect]:
    """A lender lends no more: nothing is set aside for it, and it need not go on with what it was sent."""
    effects: list[SubEffect] = []
    for attempt in [attempt for attempt, node in one.lenders.items() if node == lender]:
        del one.lenders[attempt]
        purse.give_back(one.prices.pop(attempt, 0))
        if attempt in one.sent_ns:
            cancel = messages.Cancel(wire_number(one.ask.number, attempt))
            effects.append(Send(lender, messages.encode_message(cancel), True, Priority.SYNC))
    return effects


def data_for(ask: requests.Borrow, lender: NodeId) -> bytes:
    """What travels to one lender."""
    if not ask.lane_key:
        return ask.data
    token, at = messages.lane_token(ask.lane_key, lender), ask.lane_at
    return ask.data[:at] + token + ask.data[at + len(token) :]


def input_sha256_for(one: Open, lender: NodeId) -> bytes:
    """Of the same, which the lender signs for."""
    return sha256(data_for(one.ask, lender)).digest() if one.ask.lane_key else one.input_sha256


def size_of(ask: requests.Borrow) -> int:
    """Bytes of its input, however they travel."""
    return len(ask.data) + ask.lane_bytes


def request_of(one: Open, attempt: int, lender: NodeId, ticket: int, now_ns: int) -> messages.Request:
    """What asks a lender now; `left_ms` 0: its deadline is about to end it."""
    ask = one.ask
    left_ms = max(0, min(messages.DEADLINE_MAX_MS, (ask.deadline_ns - now_ns) // _MS))
    held_ms = max(0, min(messages.HELD_MAX_MS, (one.held_until_ns.get(attempt, 0) - now_ns) // _MS, left_ms))
    wire, data = wire_number(ask.number, attempt), data_for(ask, lender)
    return messages.Request(
        wire, ticket, one.digests[attempt], ask.units, left_ms, data, ask.lane_bytes, ask.priority, held_ms
    )


def begin_now(
    one: Open,
    attempt: int,
    tickets: Mapping[tuple[NodeId, bytes], HeldTicket],
    reached: Container[NodeId],
    now_ns: int,
) -> list[SubEffect]:
    """Tell whoever holds a request to begin: the same request once more, to be begun at once.

    The whole of it: who has started anew since takes it for a new one, and must not sign for another input.
    """
    one.held_until_ns[attempt] = now_ns
    if attempt not in one.sent_ns:
        return []  # It waits for its ticket still; or the one before it failed as it was sent, and this is the next.
    lender = one.lenders[attempt]
    if lender not in reached:
        return []  # Both have gone at once, and its turn comes.
    held = tickets.get((lender, one.digests[attempt]))
    request = request_of(one, attempt, lender, 0 if held is None else held.ticket.number, now_ns)
    if not request.left_ms:
        return []
    return [Send(lender, messages.encode_message(request), True, Priority.BULK)]


def own_run(one: Open, digest: bytes, until_ns: int) -> requests.Infer:
    """The order to have the own model do it."""
    ask = one.ask
    return requests.Infer(one.job, digest, ask.data, ask.units, until_ns, None, ask.lane_bytes, own=ask.number)
