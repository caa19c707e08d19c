"""SWIM as one object: takes messages, timers and requests, and hands them to the part that knows."""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm, HostAnswer, Rejected
from swarmd_protocols.errors import IdentityError, StateError
from swarmd_protocols.ids import Address, is_way
from swarmd_protocols.swim.core import RECORD, Core
from swarmd_protocols.swim.lessons import Lessons
from swarmd_protocols.swim.members import TRUST, Member
from swarmd_protocols.swim.membership import Membership, boot_of, record_node
from swarmd_protocols.swim.messages import (
    STATUS_ALIVE,
    STATUS_AWAY,
    STATUS_LEFT,
    Accusation,
    Ack,
    Alive,
    Beacon,
    Buckets,
    CertifiedEvent,
    EventVector,
    Fingerprints,
    ForwardJoin,
    Hello,
    Indirect,
    Links,
    Message,
    MetaEntry,
    Near,
    Neighbor,
    NeighborAddresses,
    Ping,
    PingReq,
    Record,
    Sections,
    Shuffle,
    SignedEvent,
    SizeEstimate,
    Statement,
    Sub,
    Want,
)
from swarmd_protocols.swim.metadata import Metadata
from swarmd_protocols.swim.repair import Repair
from swarmd_protocols.swim.rules import trust_mark
from swarmd_protocols.swim.seeds import greet, strange
from swarmd_protocols.swim.user_events import UserEvents
from swarmd_protocols.trust.roots import RivalRootError

_MS = 1_000_000
_S = 1_000_000_000
_SEEDS_MAX = 64
"""Seed addresses held."""
_HELLOS_AT_ONCE, _SEEDS_AT_ONCE = 8, 2
"""Hellos and among them seeds in one round of looking for the swarm."""
_SEEK_GAP_NS = 300 * _MS
"""Between two rounds of looking for the swarm, nanoseconds: longer than the gap between two hellos to one address."""
_SEEKS_WIDE, _HELLOS_LATER, _SEEKS_OFTEN = 3, 3, 10
"""After so many rounds fewer are asked, this many; after the last number of rounds a quarter as often."""
_LONG_LOST_NS = 600 * _S
"""Who is lost for longer, nanoseconds, is tried a tenth as often."""
_ALONE_NS = 30 * _S
"""Who has heard nobody for so long, nanoseconds, may have been forgotten by all of them, and may lack the group key by
which they would say so: it shows its record instead of a ping. Three times the longest suspicion timeout."""
_PINGS_PER_S, _PINGS_BURST = 4, 16
"""Pings of one member whose answers spend the budget of probes: one a protocol period, all in a swarm of two."""
_ANSWERS_PER_S, _ANSWERS_BURST = 10, 100
"""Further pings that get an ack and nothing else, beside that budget: who suspects asks nine times a second, helpers
ask for others in bursts. 10 acks of 100 bytes a second are as much again as the budget."""
_QUIET_NS = 500 * _MS
"""Views that were equal for so long need no riding records any more, nanoseconds."""


class Swim:
    """Membership of one node."""

    def __init__(self, core: Core, seeds: tuple[Address, ...]) -> None:
        self.core = core
        self.events = UserEvents(core)
        self.metadata = Metadata(core)
        self.membership = Membership(core, self.events, self.metadata)
        self.repair = Repair(core, self.membership.links, self.events, self.metadata)
        self.lessons = Lessons(core)
        self.seeds: dict[Address, int] = dict.fromkeys(seeds[:_SEEDS_MAX], -(2**62))
        """Address to when it was last tried."""
        self._alarmed_ns = -(2**62)
        self._rival_ns = 0
        """When the next alarm about rival roots may come."""
        self.why_out = ""
        """Why this node's own certificate does not hold, for people; "" while it does."""
        self._seeks = 0
        self._seed_first = False
        """Whether the last look for lost ones began with the seeds."""
        self._seed_turn = -1

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self, restored: Mapping[bytes, bytes]) -> None:
        """Begin: own record, own metadata, members of the earlier life, first hellos."""
        core = self.core
        core.heard_ns = core.now_ns
        core.announce(spread=False)
        self.metadata.restore_meta(dict(restored))
        self.events.journal.restore(restored)
        self._restore_members(restored.get(b"swim/members", b""), restored.get(b"swim/partial"))
        self.membership.prober.start()
        self.membership.overlay.start()
        if not core.table.lost and not any(address != core.own.address for address in self.seeds):
            self.events.begin()
        self._seek(None)
        core.scheduler.at(core.now_ns + core.config.rejoin_ns, self._rejoin)

    def _restore_members(self, journal: bytes, partial: bytes | None) -> None:
        records: list[Record] = []
        try:
            if journal:
                records = msgspec.msgpack.decode(journal, type=list[Record])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.core.counters["journal_damaged"] += 1
        if partial is not None:
            self.membership.overlay.begin_partial(int.from_bytes(partial[:5], "big"), records)
            return
        for record in records:
            self.membership.restore(record)

    def join(self, addresses: tuple[Address, ...]) -> None:
        """Look for a swarm at these addresses, now and until one answers."""
        core = self.core
        for address in addresses:
            if len(address) > 64 or (address not in self.seeds and len(self.seeds) >= _SEEDS_MAX):
                raise StateError(f"cannot take {address!r} as a seed: at most {_SEEDS_MAX} of 64 characters each")
            self.seeds[address] = core.now_ns
            if address not in core.table.by_address and address != core.own.address:
                core.port.hello(address, True)

    def _seek(self, _: object) -> None:
        """Until a peer has answered: a few seeds and a few members of the earlier life, every 300 ms.

        After a second fewer of them, after three seconds less often: where thousands start at once, the seeds answer in
        turn, and who waits must not keep them busy. Where this swarm may be a mesh one answer is not enough: another
        seed may be all that leads to what is behind it, and first contacts get lost.
        """
        core = self.core
        has_met, wide = bool(core.table.reachable), self._seeks < _SEEKS_WIDE
        if core.own.left or (has_met and self.events.has_baseline and not (wide and core.config.mesh != "off")):
            return
        self._seeks += 1
        gap_ns = _SEEK_GAP_NS if self._seeks <= _SEEKS_OFTEN else 4 * _SEEK_GAP_NS
        core.scheduler.at(core.now_ns + gap_ns, self._seek)
        if has_met:
            self.repair.ask_more()
            if wide and core.config.mesh != "off":
                greet(core, self.seeds, strange(core, self.seeds)[:_SEEDS_AT_ONCE])
            return
        addresses = self._next_seeds(_SEEDS_AT_ONCE if wide else 1)
        former = [member.address for member in core.table.lost.values() if member.address not in self.seeds]
        at_once = (_HELLOS_AT_ONCE if wide else _HELLOS_LATER) - len(addresses)
        if len(former) > at_once:
            former = core.rng.sample(former, at_once)
        greet(core, self.seeds, [*addresses, *former])

    def _next_seeds(self, count: int) -> list[Address]:
        """Some seeds, in turn from a random one on: all newcomers share them, so nobody asks all of them at once."""
        core = self.core
        seeds = [address for address in self.seeds if address != core.own.address]
        if len(seeds) > count:
            if self._seed_turn < 0:
                self._seed_turn = int(core.rng.random() * len(seeds))
            seeds = [seeds[(self._seed_turn + at) % len(seeds)] for at in range(count)]
            self._seed_turn += count
        return seeds

    def _rejoin(self, _: object) -> None:
        """One lost member or unanswered seed, once a second: partitions heal by themselves, however long they last.

        Which of the two goes first changes each time, so that seeds where nobody is keep no lost member waiting.
        """
        core = self.core
        if core.own.left:
            return
        core.scheduler.at(core.now_ns + core.config.rejoin_ns, self._rejoin)
        self.events.forget_strangers()
        self._seed_first = not self._seed_first
        tries = (self._tries_a_seed, self._tries_a_member)
        any(attempt() for attempt in (tries if self._seed_first else tries[::-1]))

    def _tries_a_member(self) -> bool:
        """Greet or ask a lost member, where one is worth a try."""
        core = self.core
        is_alone = core.now_ns - core.heard_ns > _ALONE_NS
        held = core.table.lost.values()
        lost = [member for member in held if member.status == STATUS_ALIVE and self._worth_a_try(member)]
        if is_alone and not lost:
            # Whom nobody else calls silent is not called failed either.
            lost = [member for member in core.table.reachable if self._worth_a_try(member)]
        if not lost:
            return False
        member = min(lost, key=lambda candidate: (candidate.link.blocked_ns, candidate.node))
        if member.unheard or is_alone:
            member.link.blocked_ns = core.now_ns
            core.port.hello(member.address, True)
        else:
            self.membership.prober.ping_once(member)
        return True

    def _tries_a_seed(self) -> bool:
        """Greet a seed that is no member here, where it is time for one."""
        core = self.core
        due = [one for one in strange(core, self.seeds) if core.now_ns - self.seeds[one] >= core.config.rejoin_max_ns]
        address = core.view.choose_seed(due) if due else None
        if address is None:
            return False
        greet(core, self.seeds, [address])
        return True

    def _worth_a_try(self, member: Member) -> bool:
        core = self.core
        gap_ns = core.config.rejoin_max_ns * (10 if core.now_ns - member.since_ns > _LONG_LOST_NS else 1)
        return core.view.asks_lost() and core.now_ns - member.link.blocked_ns >= gap_ns

    def leave(self) -> None:
        """Say good-bye to the swarm; the node falls silent after."""
        core = self.core
        self.membership.own.set_status(STATUS_LEFT)
        for member in core.table.sample(core.rng, 2 * core.config.gossip_fanout):
            core.port.push(member, [core.own.encoded_alive])

    def go_away(self, duration_ns: int) -> None:
        """Announce an absence; 0 ends it early."""
        if duration_ns <= 0:
            self.membership.own.set_status(STATUS_ALIVE)
            return
        self.membership.own.set_status(STATUS_AWAY, duration_ns)
        self.core.scheduler.at(self.core.own.away_until_ns, self._back)

    def _back(self, _: object) -> None:
        own = self.core.own
        if own.status == STATUS_AWAY and self.core.now_ns >= own.away_until_ns:
            self.membership.own.set_status(STATUS_ALIVE)

    # --- messages ----------------------------------------------------------------------------------------------------

    def on_message(self, member: Member, message: Message, source: Address) -> None:
        """One message of a sealed frame from a member; the most frequent ones are matched first."""
        membership = self.membership
        match message:
            case Ping():
                self._on_ping(member, message, source)
            case Ack():
                if source != member.address and is_way(source, member.address):
                    member.link.way = source
                membership.prober.on_ack(member, message.sequence)
            case Accusation():
                membership.accusations.on_accusation(message, member)
            case Alive():
                membership.on_alive(message, member)
            case Record():
                self._on_record(member, message)
            case Links():
                membership.links.on_links(message, member)
            case PingReq():
                membership.prober.helpers.on_ping_req(member, message.sequence, message.target)
            case Indirect():
                membership.prober.helpers.on_indirect(member, message.sequence, message.heard)
            case Near():
                self.core.view.on_near(message, member)
            case SizeEstimate():
                self.core.view.on_size_estimate(member, message)
            case NeighborAddresses():
                membership.overlay.news.on_neighbor_addresses(member, message)
            case Neighbor():
                self.core.view.on_neighbor(member, message)
            case ForwardJoin():
                self.core.view.on_forward_join(member, message)
            case Shuffle():
                self.core.view.on_shuffle(member, message)
            case SignedEvent():
                self.events.on_event(message, member)
            case CertifiedEvent():
                self.events.on_certified_event(message, member)
            case MetaEntry():
                self.metadata.on_meta(message, member)
            case EventVector():
                self.repair.on_event_vector(member, message)
            case Sections():
                self.repair.on_sections(member, message)
            case Fingerprints():
                self.repair.on_fingerprints(member, message)
            case Buckets():
                self.repair.on_buckets(member, message)
            case Want():
                self.repair.on_want(member, message)
            case Statement():
                self._on_statement(member, message)
            case Hello() | Sub() | Beacon():
                # A hello stands in a group frame, a beacon in a cast; a sub-protocol's payload the node takes out.
                self.core.reject(member, f"{type(message).__name__} does not belong into a pair's frame")
            case _:
                assert_never(message)

    def move(self, address: Address) -> None:
        """This node is reached elsewhere from here on: said to all with a higher incarnation."""
        if address != self.core.own.address and not self.core.own.left:
            self.membership.own.move(address)

    def on_frame(self, member: Member, source: Address) -> None:
        """A fresh sealed frame came from a member: it lives, whatever it says."""
        core = self.core
        if source != member.address and not member.link.way and is_way(source, member.address):
            member.link.way = source
        member.link.source = source
        if core.isolated():
            core.heard_ns = core.now_ns
            self.membership.prober.heard_again()
        member.link.heard_ns = core.heard_ns = core.now_ns
        if member.where >= 0:
            return
        if member.failed:
            self.repair.on_met(member)
        if member.unheard:
            self.membership.found(member)
        elif member.failed and member.accusations:
            self.membership.remind(member)
        else:
            core.view.hears_far(member)

    def _on_ping(self, member: Member, message: Ping, source: Address) -> None:
        core = self.core
        if member.link.asked is None:
            member.link.asked = TokenBucket(_PINGS_PER_S, _PINGS_BURST), TokenBucket(_ANSWERS_PER_S, _ANSWERS_BURST)
        within_budget, answered = member.link.asked
        parts = [encode(Ack(message.sequence))]
        if not within_budget.take(core.now_ns):
            if answered.take(core.now_ns):
                core.port.push(member, parts, source)
            else:
                core.counters["pings_unanswered"] += 1
            return
        if member.overlay.active:
            view_differs, summaries_differ = core.port.differ(message.digest)
            sections = core.port.sections(self.repair.sections_due(member, view_differs), summaries_differ, member)
            if sections is not None:
                parts.append(encode(sections))
            if not view_differs and core.now_ns - core.changed_ns > _QUIET_NS:
                # The views have long been equal: what is in them need not ride any more.
                core.queue.settle(RECORD)
        parts += member.newest_accusation()
        parts += core.view.ack_riders(member)
        core.port.datagram(member, parts, source)

    def _on_record(self, via: Member, message: Record) -> None:
        member = self.membership.on_record(message, via)
        if member is not None:
            self.events.admitted(member)

    def on_hello(self, messages: list[Message], source: Address, group: int) -> None:
        """A first contact under the group key: the sender's record, and whether it asks for ours; or a lesson."""
        core = self.core
        if isinstance(messages[0], Statement):
            self._on_lesson(messages[0], source)
            return
        record, hello = messages[0], messages[1] if len(messages) > 1 else None
        if not isinstance(record, Record) or not isinstance(hello, Hello):
            core.counters["rejected"] += 1
            core.port.emit(Rejected(source, "a first contact without record"))
            return
        for message in messages[2:3]:
            if isinstance(message, Record):
                self.membership.on_record(message, None)
        boot = boot_of(core, record)
        member = self.membership.on_record(record, None)
        if hello.answer:
            self.lessons.on_greeting(source, group, record_node(record), accepted=member is not None)
        if member is None:
            if hello.answer and not core.table.reachable and not core.own.left:
                core.port.hello(source, True, group)  # Whoever is alone asks for a lesson: it may be what is behind.
            return
        self.events.admitted(member)
        for message in messages[2:3]:
            if isinstance(message, Accusation):
                self.membership.accusations.on_accusation(message, member)
        later_life = self.membership.later_life(member, record)
        if (hello.answer or later_life) and not core.own.left:
            core.port.answer_hello(source, group, later_life)
            if boot_of(core, record) != boot:
                self.repair.tell_unheard(member)
        if member.unheard:
            self.membership.prober.ping_once(member)
        elif member.failed:
            self.membership.remind(member)
        if hello.answer:
            self.membership.prober.on_hello_from(member)
            self.core.view.on_hello_from(member)
            core.view.greeted(member)
        if not self.events.has_baseline:
            self.repair.begin_with(member)

    def on_notice(self, member: Member) -> None:
        """A member could not read what was said to it: what it is being asked comes again behind the record."""
        self.membership.prober.on_hello_from(member)
        self.core.view.on_hello_from(member)

    def _on_lesson(self, message: Statement, source: Address) -> None:
        """A member that refused this node's record, or that this node cannot verify, shows what may be why."""
        core = self.core
        try:
            if message.kind == "group":
                raise IdentityError("a group key travels sealed for one pair")
            self.take_statement(message.kind, message.statement)
        except IdentityError as error:
            core.counters["rejected"] += 1
            core.port.emit(Rejected(source, str(error)))
            self._on_rival(error)

    def _on_statement(self, member: Member, message: Statement) -> None:
        try:
            self.take_statement(message.kind, message.statement)
        except IdentityError as error:
            self.core.reject(member, str(error))
            self._on_rival(error)

    def _on_rival(self, error: IdentityError) -> None:
        """Two roots of one number, each with root keys of its own: nobody but people can tell which is right."""
        core = self.core
        if isinstance(error, RivalRootError) and core.now_ns >= self._rival_ns:
            self._rival_ns = core.now_ns + 60 * _S
            text = f"{error}: one of the two is a thief's; ask at the desk which, and enrol anew the nodes that hold it"
            core.port.emit(Alarm("root-rival", text))

    def take_statement(self, kind: str, statement: bytes) -> bool:
        """A statement of trust, from a peer or the operator; raises `IdentityError`; False when known."""
        return self.core.trust.add(kind, statement)

    def count_trust(self) -> None:
        """Let the digest cover what the trust holds."""
        table = self.core.table
        marks = sum(trust_mark(statement) for _, statement in self.core.trust.statements())
        table.adjust(TRUST, table.sections[TRUST], marks)

    def on_trust(self, news: list[bytes]) -> None:
        """What counts has changed: whoever has no certificate that holds is shut out, at once and everywhere.

        Args:
            news: Encoded statements that changed it, group keys apart; who is shut out is told why.
        """
        core = self.core
        trust = core.trust
        self.count_trust()
        own = trust.certificate_statement(core.own.node)
        before, self.why_out = self.why_out, trust.why_out(core.own.node)
        if self.why_out and self.why_out != before:
            text = f"this node ({core.own.name!r}) is {self.why_out}; the swarm no longer hears it"
            core.port.emit(Alarm("revoked" if core.own.node in trust.revoked else "not-certified", text))
        if own is not None:
            core.show_certificate(own)
        self.membership.on_trust(news)
        self.events.on_trust()

    # --- the world ---------------------------------------------------------------------------------------------------

    def on_pause(self) -> None:
        """A timer came so late that this process was stopped: it blames nobody for that time."""
        self.core.counters["pauses"] += 1
        self.membership.prober.paused()

    def on_send_failed(self, destination: Address, reason: str) -> None:
        """The own network refuses to send: evidence about this node, not about the peer."""
        core = self.core
        core.counters["send_errors"] += 1
        ways = [member for member in core.table.at(destination) if member.address != destination]
        for member in ways:
            member.link.way = ""
        if ways or core.view.routes.lead_to(core.table.at(destination)):
            return  # One way of several: the others are tried, and silence tells the rest. Or others hand it on.
        core.adjust_health(1)
        if core.now_ns - self._alarmed_ns > 60 * _S:
            self._alarmed_ns = core.now_ns
            core.port.emit(Alarm("send-failed", f"the network refuses to send to {destination}: {reason}"))

    def on_refused(self, destination: Address) -> None:
        """No process listens at a member's address."""
        for member in self.core.table.at(destination):
            if not member.overlay.active:
                self.core.view.refused(member)
        self.membership.prober.hosts.on_refused(destination)

    def on_host(self, destination: Address, answer: HostAnswer) -> None:
        """The host at a member's address answered, or not."""
        self.membership.prober.hosts.on_host(destination, answer)
