"""Repair of the view: a difference that a probe's digest shows is found and closed within a period.

The view is five sets of signed items: member records, user events, fleet statements, metadata, link reports. Two nodes
compare sums by section, then fingerprints (8 bytes an item; by 256 buckets where a section is large), then send each
other exactly the items that are missing. Events go by how far each origin was delivered, since their order matters.
"""

from collections.abc import Iterable

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_baseline import ANSWERS, SECOND_NS
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import EVENTS, GONE, LINKS, MEMBERS, META, SECTIONS, TRUST, Member
from swarmd_protocols.swim.messages import (
    VECTOR_ANSWER,
    VECTOR_BASELINE,
    VECTOR_REPAIR,
    Buckets,
    EventVector,
    Fingerprints,
    Record,
    Sections,
    Statement,
    Want,
)
from swarmd_protocols.swim.metadata import Metadata
from swarmd_protocols.swim.rules import pack_fingerprints, trust_mark, unpack_fingerprints
from swarmd_protocols.swim.user_events import UserEvents

_WHOLE_SECTION_ITEMS = 120
"""Fingerprints that fit into one datagram (8 bytes each); larger sections are compared by buckets first."""
_DATAGRAM_ROOM = 1_100
"""Bytes of items in one datagram of an answer."""
_DATAGRAMS_MAX = 24
"""Answers larger than this many datagrams go over the reliable path."""
_REPLACED = 4
"""A link report counts so many times among the answers with what its author said: a member has one, and where it says
ever new ones each answer is out of date, so that both ends send theirs again in the next comparison."""
_TOLD_GAPS_NS = (200_000_000, 800_000_000, 9_000_000_000)
"""After the first and the second of these gaps, nanoseconds, who has begun a life and was not heard since is told where
it begins: twice, since a datagram may be lost (who is heard asks for itself, every 300 ms). Until the last is over no
other life of it counts: whoever begins lives without end is told twice in ten seconds."""
_ASK_MORE_NS = 50_000_000
"""So long after a first answer a second is asked for, nanoseconds: the records of other members are here by then."""
_MET_NS = 2_000_000_000
"""Whoever was out of reach and is heard again is shown so long after that, nanoseconds, how far gone ones were heard:
after a cut all others are back by then, and count."""
_SETTLE_NS = 60_000_000
"""A view that changed so shortly ago is not compared, nanoseconds: the news may be on its way to the peer too."""
_RESTLESS_NS = 250_000_000
"""In a mesh it is compared with a peer all the same so long after the last time, nanoseconds: while a large one forms
no view is ever settled, and what one hop lacks all behind it lack (100 on a line form in 8.3 s, else in 10.6)."""
_TRIPS = 8
"""Nor is it before so many round trips to the peer are over: as long as those of its probes take, and in a dense mesh
that forms they wait in queues, so long is news on its way that would be sent again."""
_GAP_MAX_NS = 10_000_000_000
"""A difference that repair does not close is asked about at least this often, nanoseconds."""
_LOSSY_GAP_MAX_NS = 1_000_000_000
"""The same over a link of a mesh where most is lost: the five frames of a comparison come through once in six times at
30 % loss, and whoever is behind that link waits for it."""


class Repair:
    """Finds and closes differences between this node's view and a peer's."""

    def __init__(self, core: Core, links: LinkReports, events: UserEvents, metadata: Metadata) -> None:
        self.core = core
        self._links = links
        self._events = events
        self._metadata = metadata
        self._begun: dict[NodeId, int] = {}
        """Who has begun a life lately, and how many of the gaps since are over."""
        self._met: set[NodeId] = set()
        """Who was out of reach, or is new to a node that begins, and is to be shown how far gone ones were heard."""

    # --- finding -----------------------------------------------------------------------------------------------------

    def sections_due(self, member: Member, differs: bool) -> bool:
        """Whether an ack to this member should carry sections: its digest differs, and not only for a moment."""
        core = self.core
        if not differs:
            self._events.unheard.heard(0, self._events.own_event)
            member.repair.sync_gap_ns = 0
            return False
        is_restless = core.view.weighs_links and core.now_ns - member.repair.sync_ns >= _RESTLESS_NS
        if core.now_ns - core.changed_ns < _SETTLE_NS and not is_restless:
            return False
        return self._may(member)

    def _may(self, member: Member) -> bool:
        core = self.core
        least_ns = core.config.sync_interval_ns
        if core.view.weighs_links:
            least_ns = max(least_ns, _TRIPS * trip_ns(core, member))
        if core.now_ns - member.repair.sync_ns < max(least_ns, member.repair.sync_gap_ns):
            return False
        member.repair.sync_ns = core.now_ns
        # A difference that repair does not close (a verdict that others do not share) is asked about ever less often.
        longest_ns = _GAP_MAX_NS
        if core.view.weighs_links:
            loss = max(core.round_trip_loss, member.link.loss)  # It may be what kept the difference open.
            longest_ns = max(_LOSSY_GAP_MAX_NS, int(_GAP_MAX_NS * (1 - loss) ** 3))
        member.repair.sync_gap_ns = min(longest_ns, max(core.config.sync_interval_ns, member.repair.sync_gap_ns * 2))
        return True

    def sections(self) -> tuple[int, ...]:
        """The section sums, as they travel."""
        return tuple(self.core.table.sections)

    def on_sections(self, member: Member, message: Sections) -> None:
        """Compare, and open each section that differs."""
        mine = self.core.table.sections
        compared = self.core.view.compared(member)
        for section, theirs in enumerate(message.view[:SECTIONS]):
            if theirs != mine[section] and section in compared:
                self.core.counters["repairs"] += 1
                self.open(member, section)

    def open(self, member: Member, section: int) -> None:
        """Show a peer what this node holds of a section."""
        core = self.core
        if section == EVENTS:
            if self._events.has_baseline:
                core.port.datagram_or_stream(member, [encode(EventVector(self._events.vector(), VECTOR_REPAIR))])
            return
        held = self._held(section)
        if len(held) <= _WHOLE_SECTION_ITEMS:
            message = encode(Fingerprints(section, -1, pack_fingerprints(sorted(held))))
            core.port.datagram_or_stream(member, [message])
            return
        sums = [0] * 256
        for item in held:
            sums[item & 255] = (sums[item & 255] + item) & 0xFFFFFFFFFFFFFFFF
        core.port.datagram_or_stream(member, [encode(Buckets(section, pack_fingerprints(sums)))])

    # --- closing -----------------------------------------------------------------------------------------------------

    def on_buckets(self, member: Member, message: Buckets) -> None:
        """Answer with the fingerprints of the buckets that differ."""
        if message.section >= SECTIONS or message.section == EVENTS:
            return
        by_bucket: list[list[int]] = [[] for _ in range(256)]
        for item in self._held(message.section):
            by_bucket[item & 255].append(item)
        parts = []
        for bucket, theirs in enumerate(unpack_fingerprints(message.sums)):
            if sum(by_bucket[bucket]) & 0xFFFFFFFFFFFFFFFF != theirs:
                items = pack_fingerprints(sorted(by_bucket[bucket]))
                parts.append(encode(Fingerprints(message.section, bucket, items)))
        self._send(member, parts)

    def on_fingerprints(self, member: Member, message: Fingerprints) -> None:
        """Send what the peer lacks, and ask for what is missing here."""
        section = message.section
        if section >= SECTIONS or section == EVENTS:
            return
        view = self.core.view
        # In a partial view these are a neighbour's items of this node, or those of a newcomer: it compares what is own.
        held = self._own(section) if section in view.own_sections else self._held(section)
        if message.bucket >= 0:
            held = {item: source for item, source in held.items() if item & 255 == message.bucket}
        theirs = set(unpack_fingerprints(message.items))
        lacking = [] if section in view.unasked_sections else sorted(theirs - held.keys())
        parts = self._answered(member, section, [held[item] for item in sorted(held.keys() - theirs)])
        for at in range(0, len(lacking), 64):
            parts.append(encode(Want(section, pack_fingerprints(lacking[at : at + 64]))))
        self._send(member, parts)

    def on_want(self, member: Member, message: Want) -> None:
        """Send the items asked for."""
        if message.section >= SECTIONS or message.section == EVENTS:
            return
        held = self._held(message.section)
        wanted = [held[item] for item in unpack_fingerprints(message.items) if item in held]
        self._send(member, self._answered(member, message.section, wanted))

    def on_event_vector(self, member: Member, message: EventVector) -> None:
        """Send the events that the peer has not delivered, and our own state where it asks for it."""
        parts = [] if message.asks == VECTOR_BASELINE else self._events.beyond(member.node, message.vector)
        # Who does not know yet where it begins would be sent what was said before it came.
        if message.asks == VECTOR_BASELINE or (message.asks == VECTOR_REPAIR and self._events.has_baseline):
            named = dict(message.vector)
            vector = self._vector_with(node for node in self._gone() if node in named)
            parts.append(encode(EventVector(vector, VECTOR_ANSWER)))
            parts += self.core.view.answer_riders(member)
        if message.asks == VECTOR_ANSWER and not self._events.has_baseline:
            self._on_answer(member, message)
        elif message.asks == VECTOR_REPAIR and not self._events.has_baseline:
            self._events.answers.take_question(member.node, dict(message.vector))
        self._events.note_vector(member, message)
        self._send(member, parts)

    def ask_baseline(self, member: Member) -> None:
        """Ask what was said before this node came."""
        self._events.answers.ask(member.node, self.core.now_ns)
        self.core.port.datagram(member, [encode(EventVector((), VECTOR_BASELINE))])

    def _on_answer(self, member: Member, message: EventVector) -> None:
        """Two answers say what was said before this node came, or one and nobody else's for a while."""
        answers, core = self._events.answers, self.core
        if not answers.take(member.node, dict(message.vector)):
            return
        if len(answers) >= ANSWERS:
            self._events.adopt_baseline()
            return
        core.scheduler.at(core.now_ns + _ASK_MORE_NS, self.ask_more)
        core.scheduler.at(core.now_ns + SECOND_NS, self._events.adopt_baseline)

    def ask_more(self, _: object = None) -> None:
        """Ask it of a member that has not answered yet, until it is known."""
        if self._events.has_baseline or self.core.own.left:
            return
        if self._events.answers.take_unasked(self.core.now_ns):
            self._events.adopt_baseline()
            return
        for member in self.core.table.sample(self.core.rng, ANSWERS):
            if not self._events.answers.has_told(member.node):
                self.ask_baseline(member)
                return

    def begin_with(self, member: Member) -> None:
        """Ask it of the first that answer, and compare views with them."""
        self.on_met(member)
        self.ask_baseline(member)
        for section in () if self._events.answers.is_told else self.core.view.opening_sections:
            self.open(member, section)

    def on_met(self, member: Member) -> None:
        """Somebody is heard that was not: either may hold events of members that are gone at both.

        Those count in no digest, since not all know the same gone ones; so this is where they cross.
        """
        if member.node not in self._met and (self._holds_gone() or not self._events.has_baseline):
            self._met.add(member.node)
            self.core.scheduler.at(self.core.now_ns + _MET_NS, self._show_gone, member)

    def _show_gone(self, member: Member) -> None:
        core = self.core
        self._met.discard(member.node)
        if core.table.by_node.get(member.node) is not member or member.where < 0 or core.own.left:
            return
        if not self._events.has_baseline:
            self.on_met(member)
        elif self._holds_gone():
            core.counters["gone_shown"] += 1
            vector = self._vector_with(self._gone())
            core.port.datagram_or_stream(member, [encode(EventVector(vector, VECTOR_REPAIR))])

    def _gone(self) -> list[bytes]:
        """Origins of events that have failed or left."""
        held, logs = self.core.table.by_node, self._events.logs
        return [node for node, log in logs.items() if log.delivered and node in held and held[node].state in GONE]

    def _vector_with(self, gone: Iterable[bytes]) -> tuple[tuple[bytes, int], ...]:
        """How far each live origin was delivered, and these that are gone."""
        told = {node: self._events.logs[node].delivered for node in gone}
        return tuple(sorted((dict(self._events.vector()) | told).items())) if told else self._events.vector()

    def _holds_gone(self) -> bool:
        return any(self._events.logs[node].kept for node in self._gone())

    def tell_unheard(self, member: Member) -> None:
        """A node has just begun a life: should it not be heard, tell it unasked what was said before."""
        if member.node not in self._begun:
            self._begun[member.node] = 0
            self._tell_later(member)

    def _tell_later(self, member: Member) -> None:
        self.core.scheduler.at(self.core.now_ns + _TOLD_GAPS_NS[self._begun[member.node]], self._tell_baseline, member)

    def _tell_baseline(self, member: Member) -> None:
        core, told = self.core, self._begun[member.node]
        if told == len(_TOLD_GAPS_NS) - 1:
            del self._begun[member.node]
            return
        self._begun[member.node] += 1
        self._tell_later(member)
        waited_ns = sum(_TOLD_GAPS_NS[: told + 1])
        if core.table.by_node.get(member.node) is not member or member.link.heard_ns >= core.now_ns - waited_ns:
            return
        if self._events.has_baseline and not core.own.left:
            core.port.datagram_or_stream(member, [encode(EventVector(self._events.vector(), VECTOR_ANSWER))])

    def _send(self, member: Member, parts: list[bytes]) -> None:
        """Few small items as datagrams (what is lost is found by the next probe), many or large ones reliably."""
        batches: list[list[bytes]] = []
        room = 0
        for part in parts:
            if len(part) > _DATAGRAM_ROOM:
                self.core.port.stream(member, [part])
                continue
            if len(part) > room:
                batches.append([])
                room = _DATAGRAM_ROOM
            batches[-1].append(part)
            room -= len(part)
        if len(batches) > _DATAGRAMS_MAX:
            for at in range(0, len(batches), 256):
                self.core.port.stream(member, [part for batch in batches[at : at + 256] for part in batch])
            return
        for batch in batches:
            self.core.port.push(member, batch)

    # --- what is held ------------------------------------------------------------------------------------------------

    def _own(self, section: int) -> dict[int, Member | bytes]:
        """The same, of this node's own record or metadata alone."""
        return self._metadata.own_meta_items() if section == META else {self.core.own.fp: self.core.own.encoded_record}

    def _held(self, section: int) -> dict[int, Member | bytes]:
        """Fingerprint to the item or to where it is found."""
        core = self.core
        held: dict[int, Member | bytes] = {}
        if section == MEMBERS:
            held[core.own.fp] = core.own.encoded_record
            for member in core.table.by_node.values():
                if member.repair.counted:
                    held[member.repair.fp_record] = member
        elif section == LINKS:
            if self._links.own_fp:
                held[self._links.own_fp] = self._links.own_encoded
            for member in core.table.by_node.values():
                if member.repair.counted and member.repair.fp_links:
                    held[member.repair.fp_links] = member
        elif section == META:
            return self._metadata.meta_items()
        elif section == TRUST:
            for kind, statement in core.trust.statements():
                held[trust_mark(statement)] = encode(Statement(kind, statement))
        return held

    def _answered(self, asker: Member, section: int, sources: list[Member | bytes]) -> list[bytes]:
        """The items as they are sent; of what a member says anew as often as it likes, up to its account."""
        if section == META:
            return self._metadata.answered([source for source in sources if isinstance(source, bytes)], asker.node)
        if section == LINKS:
            sources = [
                source
                for source in sources
                if isinstance(source, bytes)
                or self.core.may_repair(source.node, _REPLACED * len(source.report.links_encoded), asker.node)
            ]
        return [self._encoded(section, source) for source in sources]

    def _encoded(self, section: int, source: Member | bytes) -> bytes:
        if isinstance(source, bytes):
            return source
        if section == LINKS:
            return source.report.links_encoded
        return encode(Record(source.certificate, *source.record))
