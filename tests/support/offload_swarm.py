"""A few `Offload` objects that reach each other at once, and the golden bytes of everything that they say."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Order, Rejected, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.dispatcher import DispatcherConfig
from swarmd_protocols.offload.lending import NAME, LendingConfig
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.offload.placement import ability_number
from swarmd_protocols.offload.purse import FREE, CostRule
from swarmd_protocols.offload.tickets import Ticket, seal_ticket
from swarmd_protocols.offload.whom import EVERYBODY, Whom
from swarmd_protocols.subprotocol import Peer, Send, SubEffect

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "offload.json"
CRYPTO = NaClCrypto()
SEEDS = [bytes(range(index, 32 + index)) for index in range(6)]
NODES = [node_id_of(CRYPTO.public_key(seed)) for seed in SEEDS]
DIGEST, OTHER = bytes(range(32)), bytes(range(32, 64))
MS = 1_000_000
S = 1_000 * MS
START_NS = 1_000 * S


def is_well_formed(digest: bytes, data: bytes) -> bool:
    return data.startswith(b"answer")


@dataclass(frozen=True)
class Signed:
    """What a certificate says, as far as rules go."""

    name: str
    roles: tuple[str, ...] = ()


class Swarm:
    """Node 0 borrows, all others lend and borrow; nothing is lost unless a test takes it out of `wire`."""

    def __init__(
        self,
        count: int = 2,
        config: DispatcherConfig | None = None,
        judge: Callable[[bytes, bytes], bool] = is_well_formed,
        lending: LendingConfig | None = None,
        lend_to: Whom = EVERYBODY,
        borrow_from: Whom = EVERYBODY,
        is_worthless: Callable[[bytes], bool] = lambda data: False,
        cost: CostRule = FREE,
    ) -> None:
        self.signed = {node: Signed(node.hex()) for node in NODES[:count]}
        """What the fleet says of each; `on_trust` of a node has it look again."""
        self.now_ns = START_NS
        self.wire: deque[tuple[NodeId, NodeId, bytes]] = deque()
        self.said: list[tuple[NodeId, NodeId, messages.Message]] = []
        self.orders: dict[NodeId, list[object]] = {node: [] for node in NODES[:count]}
        self.timers: dict[tuple[NodeId, TimerKey], int] = {}
        self.rejected: list[str] = []
        self.keeps: set[NodeId] = set()
        """Who does not run what it is told to."""
        self.nodes = {
            node: Offload(
                node,
                SEEDS[index],
                CRYPTO,
                OffloadConfig(
                    lends=index > 0,
                    borrows=True,
                    dispatcher=config or DispatcherConfig(),
                    lending=lending or LendingConfig(),
                    lend_to=lend_to,
                    borrow_from=borrow_from,
                    cost=cost,
                ),
                5,
                random.Random(index),
                lambda now_ns: now_ns // MS,
                judge,
                self.signed.get,
                is_worthless,
            )
            for index, node in enumerate(NODES[:count])
        }
        for index, node in enumerate(NODES[:count]):
            self.meet(node)
            if index:
                self.stock(node)

    def meet(self, node: NodeId, without: tuple[NodeId, ...] = ()) -> None:
        peers = [
            Peer(one, one.hex(), CRYPTO.public_key(SEEDS[NODES.index(one)]), True)
            for one in sorted(self.nodes)
            if one != node and one not in without
        ]
        self.perform(node, self.nodes[node].on_peers(peers, self.now_ns))

    def stock(self, node: NodeId, digest: bytes = DIGEST, battery: int | None = None, queue_ns: int = 0) -> None:
        self.command(node, requests.Stock((requests.Held(digest, 10 * MS),), queue_ns, battery))

    def command(self, node: NodeId, request: object) -> None:
        self.perform(node, self.nodes[node].on_command(request, self.now_ns))

    def borrow(self, number: int = 1, data: bytes = b"input", left_ms: int = 500, local_ns: int = 0) -> None:
        self.command(
            NODES[0], requests.Borrow(number, DIGEST, data, 1, self.now_ns + left_ms * MS, local_ns)
        )  # fmt: skip

    def perform(self, node: NodeId, effects: list[SubEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload):
                    self.wire.append((node, to, payload))
                    self.said.append((node, to, messages.decode_message(payload)))
                case Order(name, request):
                    assert name == NAME
                    self.orders[node].append(request)
                case SetTimer(key, at_ns):
                    self.timers[node, key] = at_ns
                case Rejected(_, reason):
                    self.rejected.append(reason)
                case _:
                    pass

    def hear(self, to: NodeId, sender: NodeId, message: messages.Message) -> None:
        payload = messages.encode_message(message)
        self.perform(to, self.nodes[to].on_message(sender, payload, self.now_ns))

    def turn(self) -> None:
        """Everything arrives, and everybody but `keeps` runs what it is told to."""
        while self.wire or any(self._runnable(node) for node in self.nodes):
            while self.wire:
                sender, to, payload = self.wire.popleft()
                self.perform(to, self.nodes[to].on_message(sender, payload, self.now_ns))
            for node in self.nodes:
                for order in self._runnable(node):
                    self.orders[node].remove(order)
                    data = b"answer to " + order.data
                    self.command(node, requests.Ran(order.job, data))

    def _runnable(self, node: NodeId) -> list[requests.Infer]:
        if node in self.keeps:
            return []
        return [order for order in self.orders[node] if isinstance(order, requests.Infer)]

    def later(self, ms: int) -> None:
        """Time passes; timers fire in their order."""
        until_ns = self.now_ns + ms * MS
        while due := sorted((at_ns, node, key) for (node, key), at_ns in self.timers.items() if at_ns <= until_ns):
            at_ns, node, key = due[0]
            del self.timers[node, key]
            self.now_ns = max(self.now_ns, at_ns)
            self.perform(node, self.nodes[node].on_timer(key, self.now_ns))
            self.turn()
        self.now_ns = until_ns

    def settles(self, node: NodeId = NODES[0]) -> list[requests.Settle]:
        return [order for order in self.orders[node] if isinstance(order, requests.Settle)]


def vectors() -> dict[str, messages.Message]:
    """One of each message, with real signatures."""
    rows = (messages.Row(DIGEST, 12_000, 3_000, ability_number("classify/pv-module"), 970), messages.Row(OTHER, 0, 0))
    body = messages.encode_descriptor(messages.Descriptor(NODES[1], 5 << 28 | 1, 3_000, 710, 256 << 10, rows))
    none = messages.encode_descriptor(messages.Descriptor(NODES[1], 7, 0, messages.UNKNOWN_BATTERY, 0, ()))
    ticket = Ticket(NODES[1], NODES[0], DIGEST, 5 << 28 | 1, 64 << 20, 256, 256 << 10, 1_030_000)
    bound = messages.Bound(NODES[0], NODES[1], 9, DIGEST, bytes(32))
    seed = SEEDS[1]
    return {
        "an offer": messages.Offered(body, CRYPTO.sign(seed, messages.offer_bytes(body))),
        "nothing to lend": messages.Offered(none, CRYPTO.sign(seed, messages.offer_bytes(none))),
        "ask": messages.Ask(DIGEST),
        "grant": messages.Grant(seal_ticket(ticket, seed, CRYPTO)),
        "deny": messages.Deny(DIGEST, messages.REASONS.index("spent")),
        "request": messages.Request(9, 5 << 28 | 1, DIGEST, 1, 480, b"input"),
        "an urgent request": messages.Request(9, 5 << 28 | 1, DIGEST, 1, 480, b"input", 0, 1),
        "a request that is held": messages.Request(9, 5 << 28 | 1, DIGEST, 1, 480, b"input", held_ms=40),
        "answer": messages.Answer(9, b"answer", CRYPTO.sign(seed, messages.answer_bytes(bound, b"answer"))),
        "refusal": messages.Refusal(9, messages.REASONS.index("late")),
        "cancel": messages.Cancel(9),
    }


def document() -> dict[str, object]:
    """What the golden file holds."""
    return {
        "wire_version": 1,
        "vectors": [
            {"name": name, "message": repr(message), "hex": messages.encode_message(message).hex()}
            for name, message in vectors().items()
        ],
    }
