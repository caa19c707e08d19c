"""This node's own record: refuting what is said of it, announcing absences, and noticing that its key is in use."""

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.effects import Alarm, Persist
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import STATUS_AWAY, STATUS_LEFT, AliveBody
from swarmd_protocols.swim.rules import BOOT_MAX, BOOT_SHIFT
from swarmd_protocols.swim.standing import Standing

_S = 1_000_000_000
_REFUTE_GAP_NS = 50_000_000
"""Incarnations rise at most so often, nanoseconds: one refutation answers all accusations on their way."""
_REFUTES_PER_S, _REFUTES_BURST = 5, 8
"""Refutations of one node, whoever accuses it: each is told to all. What is beyond waits 0.2 s at most, half of the
shortest suspicion timeout; an honest swarm at 30 % loss makes a node refute less than once a second."""
_TELLS_PER_S, _TELLS_BURST = 10, 128
"""Those who passed an accusation on are told of the newer record so often, all together: the burst is half of 256
members, where the other half went dark. Who is not told hears it as all do."""
_WAITING_MAX = 16
"""Members kept that are told once a refutation that waits is said."""


class OwnRecord:
    """Raises this node's incarnation where it must."""

    def __init__(self, core: Core, standing: Standing) -> None:
        self.core = core
        self._standing = standing
        self.refuted_ns = -(2**62)
        self.takeovers = 0
        self._refutes = TokenBucket(_REFUTES_PER_S, _REFUTES_BURST)
        self._tells = TokenBucket(_TELLS_PER_S, _TELLS_BURST)
        self._waiting: dict[NodeId, Member] = {}
        """Who passed on what is not refuted yet."""
        self._owed = -1
        """Incarnation at which this node is accused and has not refuted yet; -1: at none."""
        self._gap_ns = 0
        """How long after the last refutation that is said; of all who accuse it, the one that counts most decides."""

    def on_own_record(self, body: AliveBody, raw: bytes, signature: bytes) -> None:
        """Somebody knows a later life of this node than the node itself: the journal was lost, or the key is in use."""
        core = self.core
        own = core.own
        # Another session under this boot number or a later one; refutations in between do not matter.
        if own.left or body.session == own.session_public or body.incarnation >> BOOT_SHIFT < own.boot:
            return
        if not core.signed_by(core.crypto.public_key(own.seed), "alive", raw, signature):
            return
        if body.incarnation >> BOOT_SHIFT >= BOOT_MAX:
            core.port.emit(Alarm("identity-worn", f"somebody used up the incarnations of {own.name!r}: enrol it anew"))
            return
        self.takeovers += 1
        if self.takeovers > 3:
            core.port.emit(
                Alarm(
                    "identity-twice",
                    f"another process seems to run with the identity of {own.name!r}: stop one of them",
                )
            )
            if core.now_ns - self.refuted_ns < _S:
                return
        self.refuted_ns = core.now_ns
        own.incarnation = (
            own.boot + 1 if own.boot > body.incarnation >> BOOT_SHIFT else (body.incarnation >> BOOT_SHIFT) + 1
        ) << BOOT_SHIFT
        core.port.emit(Persist(b"node/boot", own.boot.to_bytes(8, "big")))
        core.announce()

    def refute(self, accuser: NodeId, via: Member | None) -> None:
        """Answer an accusation: a higher incarnation, told to the accuser's messenger and to the swarm.

        It is said at once, or soon after where this node has just refuted others.
        """
        core = self.core
        if core.own.left:
            return
        if via is not None and len(self._waiting) < _WAITING_MAX:
            self._waiting[via.node] = via
        gap_ns = self._standing.refuted_after_ns(accuser, _REFUTE_GAP_NS, core.now_ns)
        is_new = self._owed != core.own.incarnation
        if is_new:
            self._owed = core.own.incarnation
            if self._standing.counts_for_health(accuser, core.now_ns):
                core.adjust_health(1)
        if is_new or gap_ns < self._gap_ns:
            self._gap_ns = gap_ns
            self._refute_owed(self._owed)

    def _refute_owed(self, incarnation: int) -> None:
        core = self.core
        if incarnation != core.own.incarnation or core.own.left:
            return  # Whatever raised it since has refuted this too.
        due_ns = self.refuted_ns + self._gap_ns
        if core.now_ns < due_ns or not self._refutes.take(core.now_ns):
            due_ns = max(due_ns, core.now_ns + _REFUTE_GAP_NS)
            core.scheduler.at(due_ns, self._refute_owed, incarnation)
            return
        self.refuted_ns = core.now_ns
        core.own.incarnation += 1
        core.counters["refutations"] += 1
        core.announce()
        for via in self._waiting.values():
            self.tell(via)
        self._waiting.clear()

    def tell(self, via: Member) -> None:
        """Show the newer record to who passed on what it refutes, unless many were told a moment ago."""
        if self._tells.take(self.core.now_ns):
            self.core.port.datagram(via, [self.core.own.encoded_alive])

    def move(self, address: Address) -> None:
        """Say where this node is reached from here on; at once to some, since nobody else can ask it where it went."""
        core = self.core
        core.own.address = address
        core.own.incarnation += 1
        core.announce()
        for member in core.table.sample(core.rng, 2 * core.config.gossip_fanout):
            core.port.push(member, [core.own.encoded_alive])

    def set_status(self, status: int, away_ns: int = 0) -> None:
        """Say good-bye, announce an absence, or come back."""
        core = self.core
        own = core.own
        own.status = status
        own.left = status == STATUS_LEFT
        own.away_until_ns = core.now_ns + away_ns if status == STATUS_AWAY else 0
        own.incarnation += 1
        core.announce()
