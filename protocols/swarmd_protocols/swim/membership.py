"""What is believed of whom: signed records, signed accusations, refutation, verdicts. The heart of SWIM, signed.

A member's state is a pure view of facts held about it, in this order:

    it said so itself      LEFT; AWAY until the announced time
    evidence               FAILED: own, or the word of K distinct signers about its current incarnation
    reports in a mesh      UNREACHABLE (`mesh/mesh_view.py`)
    accusations, probes    SUSPECT
    links                  DEGRADED: unresponsive process, late, one way only, or only through others
    otherwise              ALIVE

Only the subject raises its incarnation, with its signature: that is the refutation, and it wins over every accusation
of lower incarnations. Whoever is heard directly is never declared failed on others' word.
"""

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.effects import MemberChanged, MemberState, Persist
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import DETAIL, RECORD, VERDICT, Core
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.members import GONE, REACHABLE, Member
from swarmd_protocols.swim.messages import (
    LEVEL_FAILED,
    LINK_LATE,
    STATUS_AWAY,
    STATUS_LEFT,
    Alive,
    AliveBody,
    Record,
)
from swarmd_protocols.swim.metadata import Metadata
from swarmd_protocols.swim.overlay import Overlay
from swarmd_protocols.swim.own_record import OwnRecord
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.rules import BOOT_SHIFT, WITNESSES_WANTED, fingerprint
from swarmd_protocols.swim.seams import HearsView
from swarmd_protocols.swim.standing import Standing
from swarmd_protocols.swim.waits import Waits

_S = 1_000_000_000
_ALIVE_BODY = msgspec.msgpack.Decoder(AliveBody)
_BODY_NODE_AT, _BODY_NODE_END = 3, 19
"""Where an encoded `AliveBody` holds its node: after the heads of the array and of 16 bytes."""
_AWAY_GRACE_NS = 2 * _S
"""An announced absence may end so much later, nanoseconds: it starts when the news is heard, and a boot takes time."""
_ABSENCE_LOOK_NS = 60 * _S
"""A longer absence is looked at so often, nanoseconds, so that a shorter one announced later needs few timers."""
_SNAPSHOT_DELAY_NS = 2 * _S
"""Changes of the members are gathered for so long before they are journalled, nanoseconds."""
_SNAPSHOT_MEMBERS = 256
"""Records journalled at most: as many as a full view holds; any few of them lead back to the swarm."""


def record_node(record: Record) -> NodeId:
    """The id that a record speaks of, unverified; whatever stands there where it is malformed."""
    return NodeId(record.body[_BODY_NODE_AT:_BODY_NODE_END])


def boot_of(core: Core, shown: Record) -> int:
    """The newest boot that is known of the node that shows a record; -1 where it is unknown."""
    known = core.table.by_node.get(record_node(shown))
    return -1 if known is None else known.incarnation >> BOOT_SHIFT


class Membership:
    """Admits, judges and forgets members."""

    def __init__(self, core: Core, events: HearsView, metadata: Metadata) -> None:
        self.core = core
        standing = Standing(core.config)
        self.own = OwnRecord(core, standing)
        self.accusations = Accusations(core, self, self.own, standing)
        self.links = LinkReports(core, self, self.accusations)
        self.prober = Prober(core, self, self.accusations, self.links)
        self.overlay = Overlay(core, self, self, self.accusations, self.links, self.prober, metadata, events)
        self._waits = Waits(core, self, self.overlay.full_view.reports.is_lone)
        self._snapshot_due = False
        self._absences: dict[NodeId, int] = {}
        """Members whose announced absence is looked at again, and when: one timer each, however often they announce."""
        self._forgetting: set[NodeId] = set()
        """Members that are gone and will be forgotten: one timer each, however often they come and go."""

    # --- records: what members say of themselves ---------------------------------------------------------------------

    def on_record(self, message: Record, via: Member | None) -> Member | None:
        """Admit a member, or take its newer record; returns it where it is known afterwards."""
        core = self.core
        known = core.table.by_node.get(record_node(message))
        if known is not None and known.record[0] == message.body and not known.failed:
            core.queue.overheard(("alive", known.node))
            if via is not None:
                core.echoes.heard(("alive", known.node), via.node)
            return known  # Most records that come while a swarm forms.
        body = self._alive_body(message.body, via)
        if body is None:
            return None
        if body.node == core.own.node:
            self.own.on_own_record(body, message.body, message.signature)
            return None
        member = core.table.by_node.get(body.node)
        if member is not None:
            if body.incarnation > member.incarnation:
                self._merge(member, body, message.body, message.signature, via)
            elif body.incarnation == member.incarnation and member.unheard:
                self.found(member)
            elif body.incarnation == member.incarnation and member.failed:
                # Somebody still counts it among the living: say what we know, and see for ourselves.
                if via is not None and member.accusations and core.now_ns - member.link.blocked_ns > 300_000_000:
                    core.port.push(via, [held.encoded for held in list(member.accusations.values())[:6]])
                self.prober.ping_once(member)
            elif body.incarnation < member.incarnation and via is not None:
                self._correct(member, via)
            return member
        if via is not None and core.view.weighs_links:
            core.echoes.begin(("alive", body.node), via.node)
        return self._admit(message, body)

    def on_alive(self, message: Alive, via: Member | None) -> None:
        """A newer body of a known member; one of an unknown member is left to repair, which brings its certificate."""
        core = self.core
        body = self._alive_body(message.body, via)
        if body is None:
            return
        if body.node == core.own.node:
            self.own.on_own_record(body, message.body, message.signature)
            return
        member = core.table.by_node.get(body.node)
        if member is not None and body.incarnation > member.incarnation:
            self._merge(member, body, message.body, message.signature, via)

    def later_life(self, member: Member, shown: Record) -> bytes:
        """What to answer a node whose journal was lost: its own newer record, so that it starts above it.

        Returns:
            The encoded record, or b"" where the node showed the one that is known.
        """
        if shown.body == member.record[0] or not member.record[0]:
            return b""
        return encode(Record(member.certificate, *member.record))

    def restore(self, message: Record) -> None:
        """Take a record back from the journal: its holder counts as gone until it is heard or a peer vouches for it."""
        core = self.core
        body = self._alive_body(message.body, None)
        if body is None or body.node == core.own.node or body.node in core.table.by_node:
            return
        member = self._checked(message, body)
        if member is not None:
            self._adopt(member, body, message.body, message.signature)
            member.failed = member.unheard = True
            member.state = MemberState.FAILED
            member.since_ns = core.now_ns

    def found(self, member: Member) -> None:
        """A member known from the journal is there."""
        member.unheard = member.failed = False
        self.prober.welcome(member)
        self.evaluate(member, "joined", joined=True, fresh=True)

    def read_record(self, message: Record, via: bytes) -> AliveBody | None:
        """The body of a record that somebody passes on, not verified; None where it is malformed."""
        return self._alive_body(message.body, self.core.table.by_node.get(via))

    def _alive_body(self, raw: bytes, via: Member | None) -> AliveBody | None:
        try:
            return decode_body(_ALIVE_BODY, raw)
        except WireError as error:
            self.core.reject(via, str(error))
            return None

    def _checked(self, message: Record, body: AliveBody) -> Member | None:
        """A new entry of the table for a record whose certificate and signature hold."""
        core = self.core
        try:
            certificate = core.crypto.share(core.trust.admit_certificate(message.certificate))
            if certificate.node != body.node:
                raise IdentityError("a record's certificate is another node's")
            if not core.signed_by(certificate.public_key, "alive", message.body, message.signature):
                raise IdentityError(f"the record of {certificate.name!r} is not signed by it")
            shown = core.crypto.share(message.certificate)
            member = Member(NodeId(certificate.node), certificate.name, certificate.public_key, shown)
            if len(core.table) >= core.config.members_max:
                self._make_room()
            core.table.add(member)
        except (IdentityError, StateError) as error:
            core.reject(None, str(error))
            return None
        return member

    def _admit(self, message: Record, body: AliveBody) -> Member | None:
        core = self.core
        member = self._checked(message, body)
        if member is None:
            return None
        self._adopt(member, body, message.body, message.signature)
        if body.status == STATUS_LEFT:
            member.state = MemberState.LEFT
            member.since_ns = core.now_ns
        if not core.view.takes(member) or body.status == STATUS_LEFT:
            return member
        self.prober.welcome(member)
        core.spread(("alive", member.node), core.crypto.share(encode(message)), RECORD)
        self.evaluate(member, "joined", joined=True, fresh=True)
        self.links.meet(member)
        self._snapshot_soon()
        return member

    def _merge(self, member: Member, body: AliveBody, raw: bytes, signature: bytes, via: Member | None) -> None:
        core = self.core
        doubted = bool(member.accusations) or member.suspected or member.unresponsive or member.failed
        alive = Alive(raw, signature)
        if not core.holds_word(member, "alive", alive, via, "a record", owed=doubted):
            return
        same_boot = body.incarnation >> BOOT_SHIFT == member.incarnation >> BOOT_SHIFT
        if same_boot and body.session != member.session_public:
            core.reject(via, f"{member.name!r} shows two sessions for one boot")
            return
        reason = "refuted" if same_boot else "restarted"
        if body.address != member.address:
            reason = "moved"
        old_state, accusers = member.state, tuple(member.accusations or ())
        if same_boot:
            self.accusations.refuted(member)
        encoded = encode(alive)
        passed = core.heard(member.node, member.name, len(encoded), f"record, incarnation {body.incarnation}")
        self._adopt(member, body, raw, signature)
        if doubted:
            core.spread(("alive", member.node), encoded, VERDICT)
            probe = member.link.probe
            if same_boot and probe is not None and probe.is_unheard() and via is not member:
                core.view.is_hidden(member, helped=probe.indirect_heard)
        elif passed:
            # News that no doubt asks for is urgent while its author says little.
            urgent = core.may_push(member.node, len(encoded))
            core.spread(("alive", member.node), encoded, VERDICT if urgent else DETAIL, urgent=urgent)
        if not same_boot or reason == "moved":
            self._snapshot_soon()
        if member.link.probe is not None and not same_boot:
            member.link.probe.over = True
            member.link.probe = None
        if body.status == STATUS_LEFT:
            reason = "said good-bye"
        elif body.status == STATUS_AWAY:
            reason = f"away for {body.away_s} s"
        elif old_state in (MemberState.FAILED, MemberState.LEFT, MemberState.AWAY):
            reason = "returned"
        self.evaluate(member, reason, joined=reason in ("restarted", "moved"))
        self.links.weigh_of(accusers)

    def _adopt(self, member: Member, body: AliveBody, raw: bytes, signature: bytes) -> None:
        core = self.core
        begins = False
        if body.session != member.session_public:
            core.port.peers_changed()
            self._end_session(member)
            begins = True
        self.links.outlive(member, body.incarnation >> BOOT_SHIFT)
        counted = member.repair.counted
        core.table.count(member, False)
        share = core.crypto.share
        body = share(body)
        member.take(body, share(raw), share(signature))
        if begins:
            core.port.session_begins(member)
        member.repair.fp_record = fingerprint(raw)
        core.table.count(member, counted)
        if body.address != member.address:
            core.table.move(member, body.address)
        if member.accusations:
            for accuser in member.accusations:
                core.queue.drop(("accuse", accuser, member.node))
        member.accusations = None
        member.failed = member.suspected = member.unresponsive = member.unheard = False
        if body.status == STATUS_AWAY:
            member.away_until_ns = core.now_ns + body.away_s * _S + _AWAY_GRACE_NS
            self._await_return(member)
        core.changed_by(member.node)

    def _end_session(self, member: Member) -> None:
        if member.link.quality:
            member.link.quality = 0
            self.links.changed()
        self.core.port.session_over(member)

    def clear_doubts(self, member: Member) -> None:
        """What was held against a member no longer concerns this node: they are no neighbours any more."""
        accusers, member.accusations = tuple(member.accusations or ()), None
        member.suspected = member.unresponsive = False
        if member.link.quality:
            member.link.quality = 0
            self.links.changed()
        self.links.weigh_of(accusers)

    def _await_return(self, member: Member) -> None:
        due_ns = min(member.away_until_ns, self.core.now_ns + _ABSENCE_LOOK_NS)
        if due_ns < self._absences.get(member.node, due_ns + 1):
            self._absences[member.node] = due_ns
            self.core.scheduler.at(due_ns, self._absence_over, member.node)

    def _absence_over(self, node: NodeId) -> None:
        if self._absences.get(node, 0) <= self.core.now_ns:
            self._absences.pop(node, None)
        member = self.core.table.by_node.get(node)
        if member is None or member.status != STATUS_AWAY:
            return
        if self.core.now_ns >= member.away_until_ns:
            self.evaluate(member, "the announced absence is over")
        else:
            self._await_return(member)

    def _correct(self, member: Member, via: Member) -> None:
        """A peer showed an older record: show it the newer one, at a bounded rate.

        The member itself is not asked meanwhile, so that what is beyond that rate is left to comparisons: anybody may
        tell old records, signed or not, as often as it likes.
        """
        core = self.core
        if core.now_ns - member.link.blocked_ns < 200_000_000 or not member.link.may_show(core.now_ns):
            return
        member.link.blocked_ns = core.now_ns
        if member.record[0]:
            core.port.datagram(via, [encode(Alive(*member.record))])

    def _make_room(self) -> None:
        """A full table gives up the member that has been gone longest."""
        gone = list(self.core.table.lost.values())
        if gone:
            self.forget(min(gone, key=lambda member: (member.since_ns, member.node)))

    def forget(self, member: Member) -> None:
        """Drop everything about a member."""
        self._end_session(member)
        if member.link.probe is not None:
            member.link.probe.over = True
        self.links.forget(member)
        self.core.table.remove(member)
        self.core.view.forgotten(member)
        self.accusations.looking.pop(member.node, None)
        self.core.changed()
        self.core.port.peers_changed()

    # --- accusations: what members say of each other -----------------------------------------------------------------

    def suspect_silently(self, member: Member, reason: str) -> None:
        """Doubt a member without accusing it: this node hears nobody, so the fault may be its own."""
        member.suspected = True
        self.evaluate(member, reason)

    def fail(self, member: Member, reason: str, *, accuse: bool = True, gone: bool = False) -> None:
        """Declare a member failed; `gone` where its host says that no process listens there."""
        core = self.core
        if core.view.loses_link(member, gone=gone):
            return
        member.failed = True
        member.suspected = member.unresponsive = False
        if member.link.probe is not None:
            member.link.probe.over = True
            member.link.probe = None
        if member.link.quality:
            # Whoever holds it for gone no longer says that it hears it: that would speak for it at all others.
            member.link.quality = 0
            self.links.changed()
        if accuse:
            self.accusations.accuse(member, LEVEL_FAILED, reason)
        self.evaluate(member, reason)
        core.counters["failures"] += 1

    def answered(self, member: Member) -> None:
        """It answered an own ping directly: own evidence beats every doubt short of a verdict."""
        self.core.view.answered(member)
        if member.failed and not self.accusations.withdraw(member):
            self.remind(member)
            return
        if member.accusations or member.node in self.accusations.looking:
            self.accusations.refuted(member)
        late = member.link.quality == LINK_LATE
        if member.suspected or member.unresponsive or (member.link.quality and not late):
            member.suspected = member.unresponsive = False
            if not late and member.link.quality:
                member.link.quality = 0
                self.links.changed()
            self.evaluate(member, "answers again")

    def remind(self, member: Member) -> None:
        """Tell a member that is accused what is said about it, so that it can refute (Lifeguard's buddy system)."""
        core = self.core
        if member.accusations and core.now_ns - member.link.blocked_ns > 100_000_000:
            member.link.blocked_ns = core.now_ns
            core.port.datagram(member, member.newest_accusation())

    def verify(self, member: Member, *, by_one_ping: bool = False) -> None:
        """See for ourselves, now."""
        if by_one_ping:
            self.prober.ping_once(member)
        else:
            self.prober.verify(member)

    # --- verdict -----------------------------------------------------------------------------------------------------

    def verdict(self, member: Member) -> MemberState:
        """The state that the facts about a member add up to."""
        if member.status == STATUS_LEFT:
            return MemberState.LEFT
        if member.failed:
            return MemberState.FAILED
        if member.status == STATUS_AWAY and self.core.now_ns < member.away_until_ns:
            return MemberState.AWAY
        if self.core.view.is_cut_off(member):
            return MemberState.UNREACHABLE
        if member.suspected and member.report.witnesses < WITNESSES_WANTED:
            return MemberState.SUSPECT
        if member.unresponsive or member.link.quality or member.suspected or member.report.reporters >= 2:
            return MemberState.DEGRADED
        return MemberState.ALIVE

    def evaluate(self, member: Member, reason: str, *, joined: bool = False, fresh: bool = False) -> None:
        """Bring table, digest and notifications in line with the facts."""
        core = self.core
        if core.table.by_node.get(member.node) is not member:
            return  # Forgotten in the meantime; a timer still knew it.
        old, new = member.state, self.verdict(member)
        if not member.overlay.active:
            member.state = new  # A transient peer: nobody is told of it.
            self.links.weigh(member)
            return
        if old is new and not joined:
            return
        member.state = new
        member.since_ns = core.now_ns
        core.table.set_reachable(member, core.view.probes(member, new))
        core.table.count(member, new not in GONE)
        if new in GONE:
            if core.view.forgets_lost and member.node not in self._forgetting:
                self._forgetting.add(member.node)
                core.scheduler.at(core.now_ns + core.config.forget_ns, self._forget_if_gone, member.node)
        else:
            self.overlay.grown()
            if new is MemberState.UNREACHABLE:
                self._waits.begin(member)
        core.changed()
        if joined or (old in REACHABLE) != (new in REACHABLE):
            core.port.peers_changed()
        core.port.emit(MemberChanged(member.node, member.name, None if fresh else old, new, reason))
        self.links.weigh(member)

    def _forget_if_gone(self, node: NodeId) -> None:
        core = self.core
        self._forgetting.discard(node)
        member = core.table.by_node.get(node)
        if member is None or member.state not in GONE:
            return
        due_ns = member.since_ns + core.config.forget_ns
        if core.now_ns >= due_ns:
            self.forget(member)
        else:
            self._forgetting.add(member.node)
            core.scheduler.at(due_ns, self._forget_if_gone, member.node)

    def on_trust(self, news: list[bytes]) -> None:
        """Judge everybody anew: who is shut out is told why and forgotten; a newer certificate is shown from here on.

        They are told since what shuts them out may shut out others too, whom they can still see.
        """
        core = self.core
        core.view.on_trust()
        for member in [core.table.by_node[node] for node in sorted(core.table.by_node)]:
            statement = core.trust.certificate_statement(member.node)
            if statement is not None:
                member.certificate = core.crypto.share(statement)
                continue
            if news and member.where >= 0:
                core.port.stream(member, news)
            if member.state is not MemberState.FAILED:
                member.failed = True
                self.evaluate(member, core.trust.why_out(member.node))
            self.forget(member)

    # --- journal -----------------------------------------------------------------------------------------------------

    def _snapshot_soon(self) -> None:
        if not self._snapshot_due:
            self._snapshot_due = True
            self.core.scheduler.at(self.core.now_ns + _SNAPSHOT_DELAY_NS, self._snapshot)

    def _snapshot(self, _: object) -> None:
        self._snapshot_due = False
        table = self.core.table
        chosen: list[Member] = (
            table.reachable
            if len(table.reachable) <= _SNAPSHOT_MEMBERS
            else table.sample(self.core.rng, _SNAPSHOT_MEMBERS)
        )
        records = [Record(member.certificate, *member.record) for member in chosen if member.record[0]]
        records += self.core.view.shelved()
        self.core.port.emit(Persist(b"swim/members", encode(records)))
