"""What the parts of membership share: configuration, table, queue, clock, timers, own record, health, way out."""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable
from random import Random
from typing import Any, Protocol

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.channel.dissemination import GossipQueue
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import Effect, Rejected
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.echoes import Echoes
from swarmd_protocols.swim.members import MEMBERS, Member, MemberTable
from swarmd_protocols.swim.messages import STATUS_ALIVE, Alive, AliveBody, Record, Sections
from swarmd_protocols.swim.relays import Relays
from swarmd_protocols.swim.rules import BOOT_SHIFT, fingerprint, transmit_limit
from swarmd_protocols.swim.view import View
from swarmd_protocols.trust.envelopes import signed_bytes
from swarmd_protocols.trust.trust import Trust

_UPDATES_MAX = 4_096
"""Updates on their way at once; the oldest of the least urgent kind is dropped first. One for each member held."""
VERDICT, EVENT, RECORD, DETAIL = range(4)
"""Gossip priorities: who lives and who does not; user events; new members; metadata and link reports."""


class Port(Protocol):
    """What membership asks of the node that holds it: sealing, addressing, effects."""

    def datagram(self, member: Member, parts: list[bytes], source: Address | None = None) -> None:
        """Send messages in one sealed datagram, with whatever rides along; to `source` where it is given."""
        ...

    def push(self, member: Member, parts: list[bytes], source: Address | None = None) -> None:
        """Send news or repairs in one sealed datagram, nothing rides along; to `source` where it is given."""
        ...

    def datagram_or_stream(self, member: Member, parts: list[bytes]) -> None:
        """Send messages in one datagram where they fit, otherwise reliably."""
        ...

    def stream(self, member: Member, parts: list[bytes]) -> None:
        """Send messages in one sealed reliable frame."""
        ...

    def pressure(self) -> float:
        """What probes and their answers cost lately, as a share of the byte budget."""
        ...

    def sections(self, view: bool, summaries: bool, member: Member) -> Sections | None:
        """What an ack carries beside its digest; None for nothing."""
        ...

    def trust_changed(self, kind: str, statement: bytes) -> None:
        """A fleet statement was taken."""
        ...

    def digest(self) -> bytes:
        """8 bytes for pings: 4 of the view, 4 of what the sub-protocols would compare now."""
        ...

    def differ(self, digest: bytes) -> tuple[bool, bool]:
        """Whether a peer's ping says something else of the view, and of the sub-protocols, than this node knows."""
        ...

    def cast(self, message: bytes) -> None:
        """One encoded message to whoever listens on the shared channel."""
        ...

    def hello(self, address: Address, answer: bool, group: int | None = None, extra: bytes = b"") -> None:
        """Show this node's record to whoever is at the address, and ask for theirs where `answer`.

        `group` is the counter of the group key that the other side is known to hold; the newest where absent. `extra`
        is one more message, such as the record that the other side had in a later life.
        """
        ...

    def answer_hello(self, address: Address, group: int, extra: bytes) -> None:
        """Show this node's record to who showed its own; see `hello`."""
        ...

    def show(self, address: Address, group: int, statement: bytes) -> None:
        """Show an encoded statement of trust to a stranger that holds this group key."""
        ...

    def emit(self, effect: Effect) -> None:
        """Give an effect to the driver."""
        ...

    def session_begins(self, member: Member) -> None:
        """Frames of the member's (new) boot are let in."""
        ...

    def session_over(self, member: Member) -> None:
        """The member began a new boot or is forgotten: frames of the old session are let in no more."""
        ...

    def peers_changed(self) -> None:
        """Sub-protocols see the members anew at the end of this event."""
        ...


class Author(Protocol):
    """Who signs words about itself."""

    @property
    def node(self) -> NodeId:
        """Its id."""
        ...

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def public_key(self) -> bytes:
        """Its Ed25519 key."""
        ...


class SignedWord(Protocol):
    """A message that its author signed."""

    @property
    def body(self) -> bytes:
        """What is signed."""
        ...

    @property
    def signature(self) -> bytes:
        """By the author."""
        ...


class Scheduler:
    """Due times of many things behind one timer of the driver."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._order = 0

    def at(self, due_ns: int, call: Callable[[Any], object], argument: object = None) -> None:
        """Call once `due_ns` has come."""
        self._order += 1
        heapq.heappush(self._heap, (due_ns, self._order, call, argument))

    def next_due_ns(self) -> int | None:
        """When the next thing is due; what is over already (`argument.over`) is dropped on the way."""
        heap = self._heap
        while heap:
            if getattr(heap[0][3], "over", False):
                heapq.heappop(heap)
                continue
            return heap[0][0]
        return None

    def run(self, now_ns: int) -> None:
        """Call everything that is due, in order of due time."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            _, _, call, argument = heapq.heappop(heap)
            call(argument)


class Own:
    """This node's own signed record and the numbers behind it."""

    __slots__ = (
        "address",
        "away_until_ns",
        "body",
        "capability",
        "certificate",
        "encoded_alive",
        "encoded_record",
        "fp",
        "incarnation",
        "left",
        "name",
        "node",
        "seed",
        "session_public",
        "status",
        "version",
    )

    def __init__(
        self, node: NodeId, name: str, seed: bytes, certificate: bytes, address: Address, version: str, capability: str
    ) -> None:
        self.node = node
        self.name = name
        self.seed = seed
        self.certificate = certificate
        self.address = address
        self.version = version
        self.capability = capability
        self.session_public = b""
        self.incarnation = 0
        self.status = STATUS_ALIVE
        self.away_until_ns = 0
        self.left = False
        self.body = b""
        self.encoded_record = b""
        self.encoded_alive = b""
        self.fp = 0

    @property
    def boot(self) -> int:
        """The boot number within the incarnation."""
        return self.incarnation >> BOOT_SHIFT


class Core:
    """One per node; every part of membership holds it."""

    def __init__(self, config: SwimConfig, own: Own, trust: Trust, crypto: Crypto, rng: Random, port: Port) -> None:
        self.config = config
        self.own = own
        self.trust = trust
        self.crypto = crypto
        self.rng = rng
        self.port = port
        self.table = MemberTable(config.members_max)
        self.view: View
        """Set by the overlay, before the first event."""
        self.queue = GossipQueue(_UPDATES_MAX)
        self.echoes = Echoes()
        self.relays = Relays(config)
        """How much of what others say to all is passed on."""
        self.scheduler = Scheduler()
        self.counters: Counter[str] = Counter()
        self.now_ns = 0
        self.health = 0
        """Lifeguard's local health score: 0 is healthy."""
        self.round_trip_loss = 0.03
        """Smoothed share of own pings to answering members that stay unanswered."""
        self.rtt_ns = 0
        """Smoothed round trip of own pings to anybody; 0 before the first."""
        self.heard_ns = 0
        """When a fresh sealed frame last came from anybody."""
        self.changed_ns = 0
        """When the view last changed."""
        self.deaf_to: Member | None = None
        """Who has just said more in its own name than is looked at: the rest of its frame is not read."""
        self._sequence = 0

    # --- small services ----------------------------------------------------------------------------------------------

    @property
    def multiplier(self) -> int:
        """Lifeguard's local health multiplier."""
        return 1 + self.health

    def adjust_health(self, delta: int) -> None:
        """Move the local health score, within its bounds."""
        self.health = max(0, min(self.config.local_health_max, self.health + delta))

    def next_sequence(self) -> int:
        """A number for a ping."""
        self._sequence += 1
        return self._sequence

    def sign(self, kind: str, body: bytes) -> bytes:
        """Sign as this node."""
        return self.crypto.sign(self.own.seed, signed_bytes(kind, body))

    def signed_by(self, public_key: bytes, kind: str, body: bytes, signature: bytes) -> bool:
        """Whether a member signed these bytes under this type."""
        return self.crypto.verify(public_key, signed_bytes(kind, body), signature)

    def holds_word(
        self, author: Author, kind: str, message: SignedWord, via: Member | None, what: str, *, owed: bool = False
    ) -> bool:
        """Whether a newer word of a member about itself is taken: within its account, and signed by it.

        Args:
            author: Who is said to have said it.
            kind: The type under which it is signed.
            message: The word.
            via: Who brought it; None for a first contact, which anybody with the group key may send.
            what: What it is, for people.
            owed: It answers a doubt that is held here, so that it is never beyond the account: the doubts of others
                bound how often that is.
        """
        direct = via is not None and via.node == author.node
        if not owed and not self.relays.may_say(author.node, len(self.table), self.now_ns, direct=direct):
            self.counters["words_over_rate"] += 1
            if direct:
                self.deaf_to = via
            return False
        if not self.signed_by(author.public_key, kind, message.body, message.signature):
            self.reject(via, f"{what} is not signed by {author.name!r}")
            return False
        self.relays.said(author.node, len(self.table), self.now_ns, direct=direct)
        return True

    def reject(self, via: Member | None, reason: str) -> None:
        """Count and report something that a peer should not have sent."""
        self.counters["rejected"] += 1
        self.port.emit(Rejected(via.name if via else "unknown", reason))

    def spread(self, about: Hashable, encoded: bytes, priority: int, *, urgent: bool = True) -> None:
        """Tell the swarm, where the view carries such news."""
        if not self.view.carries(about):
            return
        rides = 2 if priority == RECORD else transmit_limit(len(self.table.reachable), self.config.gossip_lambda)
        self.queue.put(about, encoded, priority, rides, urgent=urgent)

    def travels(self, about: Hashable) -> bool:
        """Whether news in a partial view is for more than those it speaks of and their neighbours."""
        assert isinstance(about, tuple)
        return about[0] in ("event", "trust") or (about[0] != "accuse" and about[1] == self.own.node)

    def changed(self) -> None:
        """The view changed: repairs wait a moment, since the news may be on its way to the peer too."""
        self.changed_ns = self.now_ns

    def changed_by(self, author: bytes) -> None:
        """What a member says to all changed the view; news of who floods is not on its way."""
        if not self.relays.floods(author):
            self.changed()

    def heard(self, author: NodeId, name: str, size: int, evidence: str) -> bool:
        """So many bytes came that another member says to all: whether they are passed on.

        Args:
            author: Who signed them.
            name: Its name, for people.
            size: Bytes of the message.
            evidence: Which message it was, for the alarm about who floods.
        """
        if self.relays.may_pass_on(author, size, len(self.table), self.now_ns):
            return True
        self.counters["not_passed_on"] += 1
        alarm = self.relays.name(author, name, evidence, self.now_ns)
        if alarm is not None:
            self.port.emit(alarm)
        return False

    def may_push(self, author: bytes, size: int) -> bool:
        """Whether what an author said is pushed at once; what this node says itself always is."""
        return author == self.own.node or self.relays.may_push(author, size, len(self.table), self.now_ns)

    def may_repair(self, author: bytes, size: int, asker: bytes, *, at_once: bool = False) -> bool:
        """Whether a comparison is answered with what an author said; what this node says itself always is."""
        members, relays = len(self.table), self.relays
        return author == self.own.node or relays.may_repair(author, size, members, self.now_ns, asker, at_once=at_once)

    def isolated(self) -> bool:
        """Whether this node hears nobody at all although it should: then the fault is more likely its own."""
        silent_ns = self.now_ns - self.heard_ns
        if silent_ns <= 1_500_000_000 or len(self.table.reachable) < 2:
            return False
        return silent_ns > 3 * self.config.protocol_period_ns

    # --- own record --------------------------------------------------------------------------------------------------

    def announce(self, *, spread: bool = True) -> None:
        """Sign the own record anew (new incarnation, status or address) and tell the swarm."""
        own = self.own
        away_s = max(0, own.away_until_ns - self.now_ns + 999_999_999) // 1_000_000_000
        body = encode(
            AliveBody(
                own.node,
                own.incarnation,
                own.status,
                away_s,
                own.address,
                own.session_public,
                own.version,
                own.capability,
            )
        )
        signature = self.sign("alive", body)
        own.body = body
        own.encoded_alive = encode(Alive(body, signature))
        own.encoded_record = encode(Record(own.certificate, body, signature))
        new = fingerprint(body)
        self.table.adjust(MEMBERS, own.fp, new)
        own.fp = new
        self.changed()
        if spread:
            self.spread(("alive", own.node), own.encoded_alive, VERDICT)

    def show_certificate(self, certificate: bytes) -> None:
        """Show this certificate with the own record from here on."""
        own = self.own
        if certificate != own.certificate:
            own.certificate = self.crypto.share(certificate)
            own.encoded_record = encode(Record(certificate, own.body, self.sign("alive", own.body)))
