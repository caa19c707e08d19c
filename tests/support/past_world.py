"""Nodes with a past and nothing else: real `PastProtocol`s on a network that loses, doubles and reorders."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from random import Random

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Alarm, CancelTimer, Order, Rejected, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.pages import PastEvent, PastPlace, digest_of, new_page, read_page, sign_page
from swarmd_protocols.past.past import PastConfig, PastProtocol
from swarmd_protocols.past.spans import Span, joined
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.subprotocol import Peer, Send, SubEffect
from swarmd_protocols.trust.identity import Identity, make_dev_identity, read_certificate

MS = 1_000_000
S = 1_000_000_000
CRYPTO = ModelCrypto()
SECRET = b"a fleet for tests only"
BEGIN_MS = 200_000_000_000
"""Swarm time of the world's first moment."""


def identity(name: str, roles: Sequence[str] = ()) -> Identity:
    one = make_dev_identity(SECRET, "test", name, CRYPTO)
    if not roles:
        return one
    from swarmd_protocols.trust.identity import dev_role_seeds, enrol

    seeds = dev_role_seeds(SECRET, "enrol")
    return enrol(one.seed, name, "test", one.roots, one.group_keys, seeds, CRYPTO, roles=tuple(roles))


def event(at: int, number: int, subject: str = "", kind: str = "started") -> PastEvent:
    return PastEvent(at, 7, number, kind, subject, "", "")


def page(one: Identity, number: int, span_ms: Span, events: Iterable[PastEvent] = (), places: int = 0) -> bytes:
    """A page of one node's past."""
    length = span_ms[1] - span_ms[0]
    ways = tuple(PastPlace(length * at // max(1, places), 481_000_000 + at, 115_000_000) for at in range(places))
    return sign_page(new_page(one.node, number, span_ms, tuple(events), ways, ()), NodeSigner(CRYPTO, one.seed))


def minutes(one: Identity, count: int, begin_ms: int = BEGIN_MS, first: int = 1, places: int = 0) -> list[bytes]:
    """As many minutes, one after the other, with an event in each."""
    return [
        page(one, first + at, (begin_ms + at * 60_000, begin_ms + (at + 1) * 60_000), [event(5, first + at)], places)
        for at in range(count)
    ]


class Shelf:
    """What a driver keeps: the reference that the daemon's file is held against."""

    def __init__(self) -> None:
        self.pages: dict[tuple[NodeId, int], bytes] = {}
        self.floors: dict[NodeId, int] = {}

    def keep(self, pages: Iterable[bytes]) -> None:
        for data in pages:
            one = read_page(data)
            key = (NodeId(one.author), one.number)
            held = self.pages.get(key)
            if held is None or digest_of(data) < digest_of(held):
                self.pages[key] = data

    def forget(self, author: NodeId) -> None:
        for key in [key for key in self.pages if key[0] == author]:
            del self.pages[key]

    def of(self, author: NodeId) -> list[tuple[tuple[int, int], int, bytes]]:
        """(end, number), beginning and bytes, the newest first."""
        found = [(read_page(data), data) for key, data in self.pages.items() if key[0] == author]
        return sorted((((one.to_ms, one.number), one.from_ms, data) for one, data in found), reverse=True)

    def spans(self, author: NodeId) -> list[Span]:
        return joined((begin, place[0]) for place, begin, _ in self.of(author))

    def authors(self) -> list[NodeId]:
        return sorted({key[0] for key in self.pages})

    def rows(self, own: NodeId) -> tuple[messages.Row, ...]:
        rows = []
        for author in self.authors():
            held = self.of(author)
            begin = min(one[1] for one in held)
            rows.append(messages.Row(author, self.floors.get(author, 0), begin, held[0][0][0]))
        rows.sort(key=lambda row: (row.author != own, -row.to_ms))
        return tuple(rows)

    def find(self, ask: requests.FindPages) -> requests.Pages:
        found: list[bytes] = []
        below, size = (ask.below_ms, ask.below_number), 0
        for place, begin, data in self.of(ask.author):
            if place >= below or begin > ask.to_ms or place[0] < ask.from_ms:
                continue
            if found and (size + len(data) > ask.bytes_max or len(found) >= messages.PAGES_MAX):
                return requests.Pages(ask.ticket, tuple(found), True, self.floors.get(ask.author, 0))
            found.append(data)
            size += len(data)
        return requests.Pages(ask.ticket, tuple(found), False, self.floors.get(ask.author, 0))


class Member:
    """One node: its protocol, and what its driver keeps."""

    def __init__(self, one: Identity, config: PastConfig, physical_ms: Callable[[int], int]) -> None:
        self.identity = one
        self.node = one.node
        self.trust = one.trust(CRYPTO)
        self.shelf = Shelf()
        self.past = PastProtocol(one.node, NodeSigner(CRYPTO, one.seed), self.trust, config, physical_ms)
        self.timers: dict[TimerKey, int] = {}
        self.alarms: list[Alarm] = []
        self.rejected: list[Rejected] = []
        self.given: list[tuple[int, int, NodeId]] = []
        """(when, bytes, to) of all that it sent."""
        self.knows_past = True
        """False: a member of an older version, which drops what it does not know."""
        self.is_stuck: Callable[[object], bool] = lambda request: False
        """Which orders its driver never answers."""
        self.lie: Callable[[messages.Message], messages.Message | None] = lambda message: message
        """What it says instead."""


class World:
    """Members, and what lies between them."""

    def __init__(
        self,
        count: int,
        seed: int = 1,
        *,
        loss: float = 0.0,
        doubles: float = 0.0,
        config: PastConfig | None = None,
        roles: Sequence[Sequence[str]] = (),
        start_ms: int = 3_600_000,
    ) -> None:
        self.rng = Random(seed)
        self.loss, self.doubles = loss, doubles
        self.now_ns = start_ms * MS
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.config = config or PastConfig()
        self.members = [
            Member(identity(f"n{at:03d}", roles[at] if at < len(roles) else ()), self.config, self.physical_ms)
            for at in range(count)
        ]
        self.index = {one.node: at for at, one in enumerate(self.members)}
        self.away: set[int] = set()
        for one in self.members:
            for other in self.members:
                one.trust.admit_certificate(other.identity.certificate)
        self.introduce()

    def physical_ms(self, now_ns: int) -> int:
        return BEGIN_MS + now_ns // MS

    @property
    def now_ms(self) -> int:
        return self.physical_ms(self.now_ns)

    def introduce(self) -> None:
        """Everybody hears who is there."""
        for at, one in enumerate(self.members):
            peers = [
                Peer(other.node, other.identity.name, read_certificate(other.identity.certificate).public_key,
                     to not in self.away and at not in self.away)
                for to, other in enumerate(self.members)
                if to != at and one.trust.certified(other.node) is not None
            ]  # fmt: skip
            self.perform(at, one.past.on_peers(sorted(peers, key=lambda peer: peer.node), self.now_ns))

    def keep(self, at: int, pages: Iterable[bytes]) -> None:
        """Put pages on a member's shelf, and tell its protocol."""
        one = self.members[at]
        one.shelf.keep(pages)
        for author in one.shelf.authors():
            self.command(at, requests.Held(author, tuple(one.shelf.spans(author)), one.shelf.floors.get(author, 0)))

    def want(self, at: int, from_ms: int, to_ms: int) -> None:
        self.command(at, requests.Want(from_ms, to_ms))

    def command(self, at: int, request: object) -> None:
        self.perform(at, self.members[at].past.on_command(request, self.now_ns))

    def perform(self, at: int, effects: Sequence[SubEffect]) -> None:
        one = self.members[at]
        for effect in effects:
            match effect:
                case Send(to, payload):
                    self._send(at, to, payload)
                case SetTimer(key, due_ns):
                    one.timers[key] = due_ns
                    self._at(due_ns, lambda key=key, due_ns=due_ns: self._fire(at, key, due_ns))  # type: ignore[misc]
                case CancelTimer(key):
                    one.timers.pop(key, None)
                case Order(_, request):
                    self._at(self.now_ns + MS, lambda request=request: self._carry_out(at, request))  # type: ignore[misc]
                case Alarm():
                    one.alarms.append(effect)
                case Rejected():
                    one.rejected.append(effect)
                case _:
                    raise AssertionError(effect)

    def run(self, seconds: float) -> None:
        end_ns = self.now_ns + round(seconds * S)
        while self.heap and self.heap[0][0] <= end_ns:
            self.now_ns, _, call = heapq.heappop(self.heap)
            call()
        self.now_ns = end_ns

    # --- inside -----------------------------------------------------------------------------------------------------

    def _at(self, due_ns: int, call: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.heap, (due_ns, self.order, call))

    def _fire(self, at: int, key: TimerKey, due_ns: int) -> None:
        one = self.members[at]
        if one.timers.get(key) == due_ns and at not in self.away:
            del one.timers[key]
            self.perform(at, one.past.on_timer(key, self.now_ns))

    def _send(self, at: int, to: NodeId, payload: bytes) -> None:
        one = self.members[at]
        said = one.lie(messages.decode_message(payload))
        if said is None:
            return
        payload = messages.encode_message(said)
        one.given.append((self.now_ns, len(payload), to))
        for _ in range(2 if self.rng.random() < self.doubles else 1):
            if self.rng.random() >= self.loss:
                due_ns = self.now_ns + self.rng.randrange(5, 200) * MS
                self._at(due_ns, lambda: self._arrive(at, to, payload))

    def _arrive(self, at: int, to: NodeId, payload: bytes) -> None:
        there = self.index[to]
        one = self.members[there]
        if there in self.away or at in self.away or not one.knows_past:
            return
        self.perform(there, one.past.on_message(self.members[at].node, payload, self.now_ns))

    def _carry_out(self, at: int, request: object) -> None:
        one = self.members[at]
        if one.is_stuck(request):
            return
        match request:
            case requests.FindRows(ticket):
                self.command(at, requests.Rows(ticket, one.shelf.rows(one.node)))
            case requests.FindPages():
                self.command(at, one.shelf.find(request))
            case requests.KeepPages(_, pages):
                one.shelf.keep(pages)
            case requests.Forget(author):
                one.shelf.forget(author)
            case _:
                raise AssertionError(request)
