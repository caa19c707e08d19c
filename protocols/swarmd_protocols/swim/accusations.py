"""What members say of each other: signed accusations, taken, weighed and passed on; whose word counts, and how much.

- An accusation is bound to one incarnation of its subject, so that a refutation ends it.
- One member's word makes a suspect at most. FAILED takes own evidence, or the word of K distinct signers.
- Whoever was heard directly a moment ago is suspected on nobody's word.
- Whoever was often wrong is not believed, but looked into (`standing.py`).
"""

from collections.abc import Callable, Iterable

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import VERDICT, Core
from swarmd_protocols.swim.members import HeldAccusation, Member
from swarmd_protocols.swim.messages import (
    LEVEL_FAILED,
    LEVEL_SUSPECT,
    LEVEL_UNRESPONSIVE,
    STATUS_LEFT,
    Accusation,
    AccusationBody,
)
from swarmd_protocols.swim.rules import WITNESSES_WANTED, accusers_wanted
from swarmd_protocols.swim.seams import Judge, Refuter
from swarmd_protocols.swim.standing import SOON_NS, Standing

_S = 1_000_000_000
_ACCUSATION_BODY = msgspec.msgpack.Decoder(AccusationBody)
_ACCUSERS_KEPT = 16
"""Accusers remembered of one member: five times as many as convince, so that liars who come first leave room."""
_WITHDRAWN_NS = 5 * _S
"""A verdict that only this node holds ends when its subject answers so long after it, nanoseconds: a refutation takes
under a second also at 30 % loss, so this one will not come."""
_ASKS_PER_S, _ASKS_BURST = 4, 8
"""Pings of members that are in doubt on others' word: as many as probes of the default period, however many are lost at
once where hosts cannot be asked."""
_ASK_GAPS_MAX = 4
"""One of them is asked at least every so many of the longest suspicion timeouts: of a process that hangs for 12 s, each
member asks four times."""
_SPREAD_PER_LEVEL = {LEVEL_SUSPECT: 2, LEVEL_UNRESPONSIVE: 1, LEVEL_FAILED: 0}
"""How many accusations of a kind about one member are passed on; 0 stands for as many as convince, and one more."""


class Accusations:
    """Takes and weighs accusations, and signs this node's own."""

    def __init__(self, core: Core, judge: Judge, refuter: Refuter, standing: Standing) -> None:
        self.core = core
        self._judge = judge
        self._refuter = refuter
        self.standing = standing
        self.looking: dict[bytes, tuple[NodeId, int]] = {}
        """Members that this node looks at because of an accuser whose word is doubted, and since when."""
        self.weigh_reports: Callable[[Iterable[NodeId]], None] = lambda _: None
        """Called with those whose verdict is held from here on; of the link reports, which are made after this."""
        self._hearsay: dict[NodeId, int] = {}
        """Members in doubt on others' word, and how long after the last look the next one comes, nanoseconds."""
        self._asks = TokenBucket(_ASKS_PER_S, _ASKS_BURST)

    def on_accusation(self, message: Accusation, via: Member | None) -> None:
        """Weigh one member's word about another."""
        core = self.core
        try:
            body = decode_body(_ACCUSATION_BODY, message.body)
        except WireError as error:
            core.reject(via, str(error))
            return
        accuser = core.table.by_node.get(body.accuser)
        if accuser is None or body.accuser == body.subject:
            core.counters["accusations_ignored"] += 1
            return
        if core.view.weighs_links and body.subject != core.own.node:
            return  # Whoever accuses has yet to learn that the swarm is a mesh: what it does not hear others do.
        if body.subject == core.own.node:
            self._on_own_accusation(accuser, message, body.incarnation, via)
            return
        member = core.table.by_node.get(body.subject)
        if member is None or body.incarnation != member.incarnation or member.status == STATUS_LEFT:
            core.counters["accusations_ignored"] += 1
            return
        known = member.accusations.get(accuser.node) if member.accusations else None
        if known is not None and known.level >= body.level and known.level != LEVEL_UNRESPONSIVE:
            return
        if known is not None and known.level == body.level:
            return
        if not self._may_speak(accuser) or not self._verified(accuser, message, via):
            return
        if self.standing.doubted(accuser.node, core.now_ns):
            self._look(member, accuser)
            return
        self._hold(member, accuser.node, body.level, encode(message))
        self._weigh(member, accuser.name, body.level)

    def _on_own_accusation(self, accuser: Member, message: Accusation, incarnation: int, via: Member | None) -> None:
        """This node is accused: it knows better, and says so."""
        core = self.core
        own = core.own
        # Who passes on another's word believes it, and has weighed it already; the accuser itself may know better.
        if (via is None or via is accuser) and not self._may_speak(accuser):
            return
        if incarnation == own.incarnation:
            if self._verified(accuser, message, via):
                doubted = via is accuser and self.standing.doubted(accuser.node, core.now_ns)
                self.standing.refuted(accuser.node, core.now_ns)
                if not doubted:
                    # Should others believe a doubted one, they pass its word on.
                    self._refuter.refute(accuser.node, via)
        elif incarnation < own.incarnation and via is not None and not own.left:
            self.standing.spend(accuser.node)
            if self.standing.may_tell(via.node, core.now_ns):
                self._refuter.tell(via)

    def _may_speak(self, accuser: Member) -> bool:
        core = self.core
        if self.standing.may_speak(accuser.node, len(core.table), core.now_ns):
            return True
        core.counters["accusations_over_rate"] += 1
        return False

    def _verified(self, accuser: Member, message: Accusation, via: Member | None) -> bool:
        core = self.core
        if via is not None and not self.standing.may_relay(via.node, core.now_ns):
            core.counters["accusations_over_rate"] += 1
            return False
        if core.signed_by(accuser.public_key, "accuse", message.body, message.signature):
            self.standing.spend(accuser.node)
            return True
        if via is not None:
            self.standing.spoiled(via.node, core.now_ns)
        core.reject(via, f"an accusation is not signed by {accuser.name!r}")
        return False

    def _look(self, member: Member, accuser: Member) -> None:
        """Somebody is accused by a member that was often wrong: its word counts for nothing, but this node looks."""
        core = self.core
        core.counters["accusations_doubted"] += 1
        if member.link.heard_ns >= 0 and core.now_ns - member.link.heard_ns < core.config.probe_window_ns:
            self.standing.refuted(accuser.node, core.now_ns)
        elif not member.failed:
            self.looking[member.node] = (accuser.node, core.now_ns)
            self._judge.verify(member)

    def refuted(self, member: Member) -> None:
        """Direct evidence speaks for a member: it counts against those that accused it a moment ago."""
        core = self.core
        soon_ns = core.now_ns - SOON_NS
        accuser, since_ns = self.looking.pop(member.node, (None, 0))
        if accuser is not None and since_ns >= soon_ns:
            self.standing.refuted(accuser, core.now_ns)
        for who, held in (member.accusations or {}).items():
            if held.taken_ns >= soon_ns and who != core.own.node:
                held.taken_ns = -(2**62)  # Once is enough.
                self.standing.refuted(who, core.now_ns)

    def _hold(self, member: Member, accuser: NodeId, level: int, encoded: bytes) -> None:
        if member.accusations is None:
            member.accusations = {}
        if accuser not in member.accusations and len(member.accusations) >= _ACCUSERS_KEPT:
            return
        member.accusations[accuser] = HeldAccusation(level, encoded, self.core.now_ns)
        if level == LEVEL_FAILED:
            self.weigh_reports((accuser,))
        told = sum(1 for held in member.accusations.values() if held.level == level)
        if told <= (_SPREAD_PER_LEVEL[level] or self.core.config.accusers_needed + 1):
            self.core.spread(("accuse", accuser, member.node), encoded, VERDICT)

    def _weigh(self, member: Member, accuser_name: str, level: int) -> None:
        core = self.core
        if member.failed:
            return
        if (level == LEVEL_FAILED and self._chosen(24)) or core.view.all_verify:
            self._judge.verify(member)  # In a partial view the few neighbours all see for themselves.
        if core.now_ns - member.link.replied_ns < core.config.probe_window_ns and member.link.replied_ns >= 0:
            # It answered us a moment ago. The accusation travels on, so that it can refute; we wait for more.
            core.scheduler.at(member.link.replied_ns + core.config.probe_window_ns, self._weigh_signers, member)
            return
        if level == LEVEL_UNRESPONSIVE:
            member.unresponsive = True
            self._doubt_hearsay(member)
            self._judge.evaluate(member, f"{accuser_name} finds its host up and its process silent")
            return
        if self._weigh_signers(member):
            return
        member.suspected = True
        self._doubt_hearsay(member)
        self._judge.evaluate(member, f"{accuser_name} says so")
        if level == LEVEL_SUSPECT:
            self.verify_sometimes(member)

    def _doubt_hearsay(self, member: Member) -> None:
        """A member is in doubt on others' word: look after that until it ends; one timer each."""
        if member.node not in self._hearsay:
            self._hearsay[member.node] = gap_ns = self.core.config.suspicion_max_ns
            self.core.scheduler.at(self.core.now_ns + gap_ns, self._ask_hearsay, member.node)

    def _ask_hearsay(self, node: NodeId) -> None:
        """A doubt on others' word that nothing has ended by now is asked about, ever more seldom.

        A death is a verdict by then, and what the subject heard of it has refuted. But where all others doubt the
        accuser, they neither believe its word nor pass it on: a ping of this node is all that tells the subject, and
        its ack is evidence. One ping, no round of questions: everybody may hold this doubt, and rightly.
        """
        core = self.core
        longest_ns = _ASK_GAPS_MAX * core.config.suspicion_max_ns
        gap_ns = min(2 * self._hearsay.pop(node), longest_ns)
        member = core.table.by_node.get(node)
        if member is None or core.own.left or member.where < 0 or not (member.suspected or member.unresponsive):
            return
        if member.link.probe is None and self._asks.take(core.now_ns):
            self._judge.verify(member, by_one_ping=True)
        self._hearsay[node] = gap_ns
        core.scheduler.at(core.now_ns + gap_ns, self._ask_hearsay, node)

    def verify_sometimes(self, member: Member) -> None:
        """See for ourselves, at about four members of the swarm."""
        if self._chosen(4):
            self._judge.verify(member)

    def _chosen(self, verifiers: int) -> bool:
        """True at about this many members of the swarm: enough see for themselves, not all at once."""
        return self.core.rng.random() * max(1, len(self.core.table.reachable)) < verifiers

    def weigh_again(self, member: Member) -> None:
        """What kept others' verdicts about a member from counting is gone: they count from here on.

        Not within the event that took it away: whose witness ends may itself be a witness that ends.
        """
        if member.accusations and not member.failed:
            self.core.scheduler.at(self.core.now_ns, self._weigh_signers, member)

    def _weigh_signers(self, member: Member) -> bool:
        """Declare a member failed when K distinct members did, and it was not heard here since."""
        core = self.core
        if member.failed or not member.accusations or member.report.witnesses >= WITNESSES_WANTED:
            return member.failed
        signers = sum(1 for held in member.accusations.values() if held.level == LEVEL_FAILED)
        if signers < accusers_wanted(len(core.table), core.config.accusers_needed):
            return False
        unheard_ns = core.now_ns - member.link.heard_ns
        if member.link.heard_ns >= 0 and unheard_ns < core.config.probe_window_ns:
            core.scheduler.at(member.link.heard_ns + core.config.probe_window_ns, self._weigh_signers, member)
            return False
        self._judge.fail(member, f"declared failed by {signers} members", accuse=False)
        return True

    def accuse(self, member: Member, level: int, reason: str) -> None:
        """Say of a member, signed, what own probes found."""
        core = self.core
        own = core.own
        held = member.accusations.get(own.node) if member.accusations else None
        if held is None or held.level != level:
            body = encode(AccusationBody(own.node, member.node, member.incarnation, level))
            accusation = encode(Accusation(body, core.sign("accuse", body)))
            self._hold(member, own.node, level, accusation)
            core.view.warn(member, accusation)
        if level == LEVEL_SUSPECT:
            member.suspected = True
            core.counters["suspicions"] += 1
        elif level == LEVEL_UNRESPONSIVE:
            member.unresponsive = True
            member.suspected = False
        self._judge.evaluate(member, reason)

    def withdraw(self, member: Member) -> bool:
        """Take a verdict back that is this node's alone, from a member that answers it and does not refute.

        A member refutes what it hears of; but it hears no accuser that was wrong too often, and this node's key may
        be in two hands.

        Returns:
            Whether the member counts as here again.
        """
        core = self.core
        accusations = member.accusations or {}
        own = accusations.get(core.own.node)
        if own is None or core.now_ns - own.taken_ns < _WITHDRAWN_NS:
            return False
        others = sum(1 for who, held in accusations.items() if held.level == LEVEL_FAILED and who != core.own.node)
        if others >= accusers_wanted(len(core.table), core.config.accusers_needed):
            return False
        del accusations[core.own.node]
        member.failed = False
        self._judge.evaluate(member, "answers again, and nobody else finds it gone")
        return True

    def give_way(self, member: Member) -> bool:
        """Take a verdict back, own or others', since members say that they hear who was declared failed.

        Had their word come first, there would have been no verdict: both orders end alike.

        Returns:
            Whether there was one.
        """
        accusations = member.accusations or {}
        if not member.failed or not any(held.level == LEVEL_FAILED for held in accusations.values()):
            return False
        accusations.pop(self.core.own.node, None)
        member.failed = False
        return True

    def confirmations(self, member: Member) -> int:
        """Distinct others that suspect it or worse, at its current incarnation."""
        if not member.accusations:
            return 0
        own = self.core.own.node
        return sum(1 for who, held in member.accusations.items() if held.level != LEVEL_UNRESPONSIVE and who != own)
