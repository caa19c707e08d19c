"""The member table: who is known, who counts towards the digest, who can be picked, whose ring successor is who.

The digest is a sum of fingerprints kept up to date by addition and subtraction, so that it costs nothing to read.
Members that are failed or left do not count towards it: two nodes that forgot them at different times still agree.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.effects import HostAnswer, MemberState
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import WAYS, Address, NodeId, without_zone
from swarmd_protocols.swim.messages import LEVEL_FAILED, STATUS_ALIVE, AliveBody

if TYPE_CHECKING:
    from swarmd_protocols.channel.channel import Session

MEMBERS, EVENTS, TRUST, META, LINKS = range(5)
SECTIONS = 5
"""Parts of the digest."""
SHARED_SECTIONS = (EVENTS, TRUST)
"""What all nodes hold alike when none of them knows all members."""
_MASK = 2**64 - 1

REACHABLE = (MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEGRADED)
GONE = (MemberState.FAILED, MemberState.LEFT)


class HeldAccusation:
    """What somebody says about a member's current incarnation."""

    __slots__ = ("encoded", "level", "taken_ns")

    def __init__(self, level: int, encoded: bytes, taken_ns: int) -> None:
        self.level = level
        self.encoded = encoded
        self.taken_ns = taken_ns
        """When it was taken; long ago once it has been refuted."""


_SHOWN_PER_S, _SHOWN_BURST = 1 / 60, 16
"""How often a member's record is shown to those that tell an older one, per second, and at once: for three seconds and
more, longer than a new record takes to be everywhere."""


class LinkState:
    """What this node's own questions found out about its link to a member."""

    __slots__ = (
        "asked",
        "blocked_ns",
        "heard_ns",
        "loss",
        "probe",
        "quality",
        "replied_ns",
        "rtt_ns",
        "shown",
        "source",
        "way",
    )

    def __init__(self) -> None:
        self.probe: Probe | None = None
        self.heard_ns = -1
        """When a fresh sealed frame last came from it."""
        self.source: Address = ""
        """Where that frame came from."""
        self.replied_ns = -1
        """When it last answered an own ping directly."""
        self.rtt_ns = 0
        self.loss = 0.0
        self.quality = 0
        """0 good, or a LINK_ constant: this node's own verdict about its link to the member."""
        self.blocked_ns = -(2**62)
        """When something was last said to it that is said at a bounded rate."""
        self.shown: TokenBucket | None = None
        """How often its record may still be shown to who tells an older one."""
        self.way: Address = ""
        """Which of the ways of its address answered last; "" while none has, or that one stays silent."""
        self.asked: tuple[TokenBucket, TokenBucket] | None = None
        """What its pings may still cost here: of the budget of probes, and at all."""

    def may_show(self, now_ns: int) -> bool:
        """Whether its record is shown once more to who tells an older one."""
        if self.shown is None:
            self.shown = TokenBucket(_SHOWN_PER_S, _SHOWN_BURST)
        return self.shown.take(now_ns)


class ReportedLinks:
    """What a member reports about its links, and others about theirs to it."""

    __slots__ = ("links", "links_encoded", "links_sequence", "near", "reporters", "weighed", "witnesses")

    def __init__(self) -> None:
        self.links: tuple[tuple[bytes, int], ...] = ()
        """What it reports about its own links."""
        self.weighed: tuple[tuple[bytes, int], ...] = ()
        """What of that counts in `witnesses` and `reporters` of others: nothing while it is not here."""
        self.links_encoded = b""
        self.links_sequence = 0
        self.near = 0
        """How many it hears, as it reports in a mesh; 0 before."""
        self.witnesses = 0
        """How many members report that they hear it, though it does not hear them."""
        self.reporters = 0
        """How many members report their link to it as broken."""


class RepairState:
    """What of a member counts in the digest, and when its view was last compared with this node's."""

    __slots__ = (
        "counted",
        "fp_events",
        "fp_links",
        "fp_meta",
        "fp_record",
        "meta",
        "sync_gap_ns",
        "sync_ns",
    )

    def __init__(self) -> None:
        self.meta: dict[str, tuple[int, bytes, bytes]] | None = None
        """Key to (sequence, value, encoded message)."""
        self.counted = False
        self.fp_record = 0
        self.fp_events = 0
        self.fp_meta = 0
        self.fp_links = 0
        self.sync_ns = -(2**62)
        self.sync_gap_ns = 0


class OverlayState:
    """What a partial view, here or there, makes of a member."""

    __slots__ = (
        "active",
        "addresses_told_ns",
        "disconnected_ns",
        "estimate_told_ns",
        "holds_me",
        "met_ns",
        "neighbor_addresses",
    )

    def __init__(self) -> None:
        self.active = True
        """False for a transient peer: somebody met in a partial view who is no neighbour."""
        self.met_ns = -(2**62)
        """When it became a transient peer."""
        self.holds_me = False
        """It holds this node for a neighbour in its partial view."""
        self.disconnected_ns = -(2**62)
        """When it was last told that it is none."""
        self.neighbor_addresses: tuple[Address, ...] = ()
        """Where its neighbours are."""
        self.addresses_told_ns = -(2**62)
        """When it was last told where this node's neighbours are."""
        self.estimate_told_ns = -(2**62)
        """When it was last sent a `SizeEstimate`."""


class Member:
    """What this node knows of one other member; slots, since there may be thousands.

    The record and the verdict are its own; `link` is the prober's, `report` the link reports', `repair` the repair's
    and the sub-protocols' digest, `overlay` the partial view's.
    """

    __slots__ = (
        "accusations",
        "address",
        "away_until_ns",
        "capability",
        "certificate",
        "failed",
        "incarnation",
        "link",
        "name",
        "node",
        "overlay",
        "public_key",
        "record",
        "repair",
        "report",
        "session",
        "session_public",
        "since_ns",
        "state",
        "status",
        "suspected",
        "unheard",
        "unresponsive",
        "version",
        "where",
    )

    def __init__(self, node: NodeId, name: str, public_key: bytes, certificate: bytes) -> None:
        self.node = node
        self.name = name
        self.public_key = public_key
        self.certificate = certificate
        self.address: Address = ""
        self.incarnation = -1
        self.status = STATUS_ALIVE
        self.away_until_ns = 0
        self.session_public = b""
        self.session: Session | None = None
        self.version = ""
        self.capability = ""
        self.record: tuple[bytes, bytes] = (b"", b"")
        """Signed alive body and its signature."""
        self.state = MemberState.ALIVE
        self.since_ns = 0
        self.failed = False
        self.suspected = False
        self.unresponsive = False
        self.unheard = False
        """Known from the journal only: held for gone until it is heard, or a peer vouches for it."""
        self.accusations: dict[NodeId, HeldAccusation] | None = None
        """By accuser, all about the current incarnation; the newest last."""
        self.where = -1
        """Index in the list of reachable members; -1 outside."""
        self.link = LinkState()
        self.report = ReportedLinks()
        self.repair = RepairState()
        self.overlay = OverlayState()

    @property
    def route(self) -> Address:
        """Where frames for it go: the way that answered, or its address, which the transport tries in all its ways."""
        return self.link.way or self.address

    def newest_accusation(self) -> list[bytes]:
        """The newest of what is held against it, as a message to be sent; empty where there is none."""
        return [next(reversed(self.accusations.values())).encoded] if self.accusations else []

    def is_failed_by(self, accuser: bytes) -> bool:
        """Whether a member has declared it failed, at its current incarnation, and this node holds that verdict."""
        held = self.accusations.get(NodeId(accuser)) if self.accusations else None
        return held is not None and held.level == LEVEL_FAILED

    def take(self, body: AliveBody, raw: bytes, signature: bytes) -> None:
        """Adopt a newer signed body."""
        self.incarnation = body.incarnation
        self.status = body.status
        self.version = body.version
        self.capability = body.capability
        self.session_public = body.session
        self.record = (raw, signature)


class Probe:
    """One question about one member, from the first ping to the verdict."""

    __slots__ = (
        "attempts",
        "hello_ns",
        "helpers",
        "host",
        "host_asked_ns",
        "hurried",
        "indirect_heard",
        "indirect_sent",
        "member",
        "over",
        "refusals",
        "refused_ns",
        "routine",
        "silences",
        "started_ns",
        "suspect_ns",
        "unproven",
    )

    def __init__(self, member: Member, started_ns: int, routine: bool) -> None:
        self.member = member
        self.started_ns = started_ns
        self.routine = routine
        self.over = False
        self.attempts = 0
        self.hello_ns = -(2**62)
        self.hurried = False
        """Where its host is open it is asked on without a pause until losses do not explain its silence."""
        self.indirect_sent = False
        self.indirect_heard = False
        self.helpers: list[Member] = []
        """Asked, and not yet answered with a nack."""
        self.host: HostAnswer | None = None
        self.host_asked_ns = -1
        self.silences = 0
        self.refusals = 0
        self.refused_ns = 0
        self.suspect_ns = -1
        self.unproven = -1
        """Attempts made when somebody else was found to hear this node; -1 while nobody is."""

    def is_unheard(self) -> bool:
        """Whether the member was asked three times, and not heard since the first."""
        return self.attempts >= 3 and self.member.link.heard_ns < self.started_ns


class Relay:
    """A ping on behalf of another member."""

    __slots__ = ("over", "requester", "sequence", "target")

    def __init__(self, requester: Member, sequence: int, target: Member) -> None:
        self.requester = requester
        self.sequence = sequence
        self.target = target
        self.over = False


class MemberTable:
    """All other members."""

    __slots__ = ("_ring", "_sharers", "by_address", "by_node", "limit", "lost", "reachable", "sections", "transients")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_node: dict[bytes, Member] = {}
        self.by_address: dict[Address, Member] = {}
        """Who said last that it is there."""
        self._sharers: dict[Address, list[Member]] = {}
        """Where several say that they are at one address: all of them, the latest at the end."""
        self.reachable: list[Member] = []
        """Who is probed and told news: everybody that is there, or the neighbours."""
        self._ring: list[bytes] = []
        self.lost: dict[bytes, Member] = {}
        """Members that are not reachable, by node."""
        self.transients: dict[bytes, Member] = {}
        """Met in a partial view and no neighbours, who was met last at the end: neither probed nor told news."""
        self.sections = [0] * SECTIONS

    def __len__(self) -> int:
        return len(self.by_node)

    def add(self, member: Member) -> None:
        """Hold a new member; raises `StateError` when the table is full."""
        if len(self.by_node) >= self.limit:
            raise StateError(f"member table is full at {self.limit}; raise gossip.members_max")
        self.by_node[member.node] = member
        self.lost[member.node] = member

    def remove(self, member: Member) -> None:
        """Forget a member."""
        self.count(member, False)
        self.set_reachable(member, False)
        self.by_node.pop(member.node, None)
        self.lost.pop(member.node, None)
        self.transients.pop(member.node, None)
        self._leave_address(member)

    def is_transient(self, member: Member) -> bool:
        """Whether this very entry is a transient peer."""
        return self.transients.get(member.node) is member

    def set_active(self, member: Member, active: bool) -> None:
        """Make a transient peer a member proper (lost until it is found reachable), or the other way round."""
        if member.overlay.active == active:
            return
        member.overlay.active = active
        if active:
            self.transients.pop(member.node, None)
            self.lost[member.node] = member
            return
        self.count(member, False)
        self.set_reachable(member, False)
        self.lost.pop(member.node, None)
        self.transients[member.node] = member

    def move(self, member: Member, address: Address) -> None:
        """Give a member its address; who said the same address before stays there too (`at`)."""
        self._leave_address(member)
        member.address = address
        member.link.way = ""
        for place in _places(address):
            former = self.by_address.get(place)
            if former is not None:
                self._sharers.setdefault(place, [former]).append(member)
            self.by_address[place] = member

    def at(self, address: Address) -> tuple[Member, ...]:
        """All members that say they are at an address.

        A record says its own address, and nobody can prove one: what is heard of an address is evidence about
        everybody there, so that whoever borrows an address takes nothing from its owner.
        """
        if "%" in address:
            address = without_zone(address)
        sharers = self._sharers.get(address)
        if sharers is not None:
            return tuple(sharers)
        holder = self.by_address.get(address)
        return () if holder is None else (holder,)

    def _leave_address(self, member: Member) -> None:
        for place in _places(member.address):
            sharers = self._sharers.get(place)
            if sharers is None:
                if self.by_address.get(place) is member:
                    del self.by_address[place]
            elif member in sharers:
                sharers.remove(member)
                self.by_address[place] = sharers[-1]
                if len(sharers) == 1:
                    del self._sharers[place]

    def count(self, member: Member, counted: bool) -> None:
        """Let a member's items count towards the digest, or not."""
        if member.repair.counted == counted:
            return
        sign = 1 if counted else -1
        member.repair.counted = counted
        sections = self.sections
        sections[MEMBERS] = (sections[MEMBERS] + sign * member.repair.fp_record) & _MASK
        sections[EVENTS] = (sections[EVENTS] + sign * member.repair.fp_events) & _MASK
        sections[META] = (sections[META] + sign * member.repair.fp_meta) & _MASK
        sections[LINKS] = (sections[LINKS] + sign * member.repair.fp_links) & _MASK

    def adjust(self, section: int, old: int, new: int) -> None:
        """Replace one fingerprint in a section's sum."""
        self.sections[section] = (self.sections[section] + new - old) & _MASK

    def set_reachable(self, member: Member, reachable: bool) -> None:
        """Put a member among those that are probed and told news, or take it away."""
        if (member.where >= 0) == reachable:
            return
        if reachable:
            self.lost.pop(member.node, None)
            member.where = len(self.reachable)
            self.reachable.append(member)
            insort(self._ring, member.node)
            return
        self.lost[member.node] = member
        last = self.reachable.pop()
        if last is not member:
            self.reachable[member.where] = last
            last.where = member.where
        member.where = -1
        del self._ring[bisect_right(self._ring, member.node) - 1]

    def successor(self, node: bytes) -> Member | None:
        """The reachable member that follows `node` on the ring of identities."""
        if not self._ring:
            return None
        return self.by_node[self._ring[bisect_right(self._ring, node) % len(self._ring)]]

    def sample(self, rng: Random, count: int, without: Member | None = None) -> list[Member]:
        """Up to `count` distinct reachable members, uniformly."""
        pool = self.reachable
        spare = 1 if without is not None and without.where >= 0 else 0
        if count >= len(pool) - spare:
            return [member for member in pool if member is not without]
        picked: dict[int, Member] = {}
        while len(picked) < count:
            index = int(rng.random() * len(pool))
            if pool[index] is not without:
                picked[index] = pool[index]
        return list(picked.values())

    def digest(self, covered: Sequence[int]) -> int:
        """32 bits over these sections."""
        total = 0
        for section in covered:
            total += self.sections[section] * (2 * section + 3)
        total &= _MASK
        return (total ^ total >> 32) & 0xFFFFFFFF


def _places(address: Address) -> tuple[Address, ...]:
    """An address, and each of its ways where it names several: what is heard of one is heard of who is there."""
    return (address, *dict.fromkeys(address.split(WAYS))) if WAYS in address else (address,)
