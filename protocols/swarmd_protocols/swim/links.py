"""Which links are broken, published by the one who sees it: "a hears b, b does not hear a". Signed, newest wins."""

from collections.abc import Iterable, Mapping

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.effects import Alarm
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import DETAIL, Core
from swarmd_protocols.swim.members import LINKS, REACHABLE, Member
from swarmd_protocols.swim.messages import LINK_ONE_WAY, Links, LinksBody, Near
from swarmd_protocols.swim.rules import BOOT_MAX, BOOT_SHIFT, WITNESSES_WANTED, fingerprint
from swarmd_protocols.swim.seams import Judge

_DELAY_NS = 200_000_000
"""Changed links are gathered for so long before they are published, nanoseconds: several break at once."""
_ENTRIES_MAX = 32
"""Broken links in one report: more say no more, and the report fits into a datagram."""
_LINKS_BODY = msgspec.msgpack.Decoder(LinksBody)


class LinkReports:
    """Own report and those of others."""

    def __init__(self, core: Core, judge: Judge, accusations: Accusations) -> None:
        self.core = core
        self._judge = judge
        self._accusations = accusations
        accusations.weigh_reports = self.weigh_of
        self._sequence = 0
        self._due = False
        self._is_worn = False
        """Whether a report in its name has a number above all that it could have."""
        self.own: tuple[tuple[bytes, int], ...] = ()
        """(node, LINK_ constant) of this node's broken links, as last published."""
        self._overtaken: tuple[tuple[bytes, int], ...] | None = None
        """What was last said in this node's name by somebody else, until this node has said otherwise."""
        self.own_fp = 0
        self.own_encoded = b""

    def changed(self) -> None:
        """Publish own broken links, a few times a second at most."""
        if not self._due and not self.core.view.weighs_links:
            self._due = True
            self.core.scheduler.at(self.core.now_ns + _DELAY_NS, self._publish)

    def _publish(self, _: object) -> None:
        core = self.core
        self._due = False
        if core.view.weighs_links:
            return
        broken = sorted((member.node, member.link.quality) for member in core.table.reachable if member.link.quality)
        before, self.own = dict(self.own if self._overtaken is None else self._overtaken), tuple(broken[:_ENTRIES_MAX])
        self._overtaken = None
        body = encode(LinksBody(core.own.node, self.next_sequence(), self.own))
        self.publish(self.own, body, encode(Links(body, core.sign("links", body))))
        self._spread(core.own.node, self.own_encoded, before, self.own)

    def next_sequence(self) -> int:
        """The number of this node's next report, of whatever kind."""
        self._sequence = max(self._sequence + 1, self.core.own.boot << BOOT_SHIFT)
        return self._sequence

    def publish(self, own: tuple[tuple[bytes, int], ...], body: bytes, encoded: bytes) -> None:
        """This node's report is another from here on: what it says of broken links, what is signed, the message."""
        self.own, self.own_encoded = own, encoded
        old, self.own_fp = self.own_fp, fingerprint(body)
        self.core.table.adjust(LINKS, old, self.own_fp)
        self.core.changed()

    def _spread(
        self, reporter: bytes, encoded: bytes, before: Mapping[bytes, int], entries: tuple[tuple[bytes, int], ...]
    ) -> None:
        """Who is deaf, and who no longer, is urgent: it keeps a member from being called failed; the rest may ride."""
        deaf = {node for node, quality in entries if quality == LINK_ONE_WAY}
        urgent = deaf != {node for node, quality in before.items() if quality == LINK_ONE_WAY}
        urgent = urgent and self.core.may_push(reporter, len(encoded))
        self.core.spread(("links", reporter), encoded, DETAIL, urgent=urgent)

    def on_links(self, message: Links, via: Member | None) -> None:
        """A member reports which of its links are broken."""
        core = self.core
        try:
            body = decode_body(_LINKS_BODY, message.body)
        except WireError as error:
            core.reject(via, str(error))
            return
        if body.reporter == core.own.node:
            self._on_own_report(body, message, via)
            return
        reporter = core.table.by_node.get(body.reporter)
        if reporter is None or not self.is_newer(reporter, body.sequence, message):
            return
        if not core.holds_word(reporter, "links", message, via, "a link report"):
            return
        before = dict(reporter.report.links)
        self.adopt(reporter, body.sequence, message.body, encode(message), body.entries)
        self._speak_for(reporter)
        size = len(reporter.report.links_encoded)
        if core.heard(reporter.node, reporter.name, size, f"link report {body.sequence}"):
            self._spread(reporter.node, reporter.report.links_encoded, before, body.entries)
        core.changed_by(reporter.node)

    def _on_own_report(self, body: LinksBody, message: Links, via: Member | None) -> None:
        """A newer report in this node's name, which it never made, is replaced by what it finds itself.

        The key is in use elsewhere, or was: nothing else ends that word while this life lasts. Nothing is looked at
        while an own report is due, which bounds checks and answers: a comparison brings what that one leaves standing.
        """
        core = self.core
        own = core.own
        if self._due or not self.overtakes(body.sequence, message):
            return
        if not core.signed_by(core.crypto.public_key(own.seed), "links", message.body, message.signature):
            core.reject(via, "a link report in this node's name is not signed by it")
            return
        if not self.give_way_to(body.sequence):
            return
        self._overtaken = body.entries
        core.counters["link_reports_overtaken"] += 1
        self.changed()

    def overtakes(self, sequence: int, message: Links | Near) -> bool:
        """Whether a report in this node's name, which it never made, would count for more than its own at all others.

        Args:
            sequence: Its number.
            message: What came; its signature is not looked at.
        """
        own = self.core.own
        if own.left or self._is_worn or sequence >> BOOT_SHIFT < own.boot:
            return False
        return (sequence, encode(message)) > (self._sequence, self.own_encoded)

    def give_way_to(self, sequence: int) -> bool:
        """This node's next report has a higher number than this; False where none is left, which people are told."""
        if sequence >> BOOT_SHIFT >= BOOT_MAX:
            self._is_worn, name = True, self.core.own.name
            text = f"somebody used up the numbers of what {name!r} reports of its links: enrol it anew"
            self.core.port.emit(Alarm("identity-worn", text))
            return False
        self._sequence = max(self._sequence, sequence)
        return True

    def _speak_for(self, reporter: Member) -> None:
        """Whom this node holds for failed and enough others hear, by a word that came since, is failed no longer."""
        for node, quality in reporter.report.weighed:
            member = self.core.table.by_node[node]
            heard = quality == LINK_ONE_WAY and member.report.witnesses >= WITNESSES_WANTED
            if heard and self._accusations.give_way(member):
                self._judge.evaluate(member, f"{reporter.name} and others hear it")

    def is_newer(self, reporter: Member, sequence: int, message: Links | Near) -> bool:
        """Whether a report is newer than the one held of its author, and of its life."""
        if sequence < reporter.report.links_sequence:
            return False
        if sequence == reporter.report.links_sequence and encode(message) <= reporter.report.links_encoded:
            return False  # Of two reports under one number every node takes the same.
        # Said in an earlier life, the reporter itself no longer knows of it.
        return sequence >> BOOT_SHIFT >= reporter.incarnation >> BOOT_SHIFT

    def adopt(
        self, reporter: Member, sequence: int, body: bytes, encoded: bytes, entries: tuple[tuple[bytes, int], ...]
    ) -> None:
        """A report takes the place of the one held of its author."""
        counted = reporter.repair.counted
        self.core.table.count(reporter, False)
        reporter.report.links_sequence = sequence
        reporter.repair.fp_links = fingerprint(body)
        self.core.table.count(reporter, counted)
        self.count(reporter, entries)
        reporter.report.links_encoded = encoded

    def outlive(self, reporter: Member, boot: int) -> None:
        """The reporter is in this life, by its own record: what it said of its links in earlier ones is over.

        What came before the record and is of this life stays, so that all hold the same in whatever order both came.
        """
        if not reporter.repair.fp_links or reporter.report.links_sequence >> BOOT_SHIFT >= boot:
            return
        counted = reporter.repair.counted
        self.core.table.count(reporter, False)
        reporter.repair.fp_links = 0
        self.core.table.count(reporter, counted)
        self.count(reporter, ())

    def count(self, reporter: Member, entries: tuple[tuple[bytes, int], ...]) -> None:
        """Replace what a reporter says, and judge the members it speaks of anew."""
        reporter.report.links = entries
        self.weigh(reporter)

    def weigh(self, reporter: Member) -> None:
        """Let what a reporter says count while it is here, and of nobody whom it has declared failed.

        Who died, left or is away takes nothing back: its word that it hears a member would keep that one from being
        failed until the reporter returns. It counts again should the reporter return in the same life. And nobody
        speaks for a member and against it: who has signed that it failed is heard on that side alone, since the report
        that takes its other word back may be lost, until the member itself refutes.
        """
        report, known = reporter.report, self.core.table.by_node
        entries = report.links if reporter.state in REACHABLE else ()
        before, report.weighed = (
            report.weighed,
            tuple(entry for entry in entries if entry[0] in known and not known[entry[0]].is_failed_by(reporter.node)),
        )
        if before != report.weighed:
            self._replace(reporter, dict(before), dict(report.weighed))

    def forget(self, member: Member) -> None:
        """Nothing is known of a member any more: neither its word nor what others say of it."""
        self.count(member, ())
        for other in self.core.table.by_node.values():
            if other.report.weighed:
                other.report.weighed = tuple(entry for entry in other.report.weighed if entry[0] != member.node)

    def meet(self, member: Member) -> None:
        """A member is new here, or again: what others have reported of it counts from here on."""
        others = self.core.table.by_node.values()
        self.weigh_of([one.node for one in others if any(node == member.node for node, _ in one.report.links)])

    def weigh_of(self, reporters: Iterable[NodeId]) -> None:
        """Let what these report count anew: their verdicts of others are held from here on, or no longer."""
        for node in reporters:
            reporter = self.core.table.by_node.get(node)
            if reporter is not None:
                self.weigh(reporter)

    def _replace(self, reporter: Member, before: Mapping[bytes, int], after: Mapping[bytes, int]) -> None:
        reason = f"{reporter.name} reports its link to it"
        if reporter.state not in REACHABLE:
            reason = f"{reporter.name} reported its link to it, and is {reporter.state.value}"
        for node in sorted(before.keys() | after.keys()):
            member = self.core.table.by_node.get(node)
            if member is None:
                continue
            had = member.report.witnesses
            member.report.reporters += (node in after) - (node in before)
            member.report.witnesses += (after.get(node) == LINK_ONE_WAY) - (before.get(node) == LINK_ONE_WAY)
            signed = node not in after and member.is_failed_by(reporter.node)
            self._judge.evaluate(member, f"{reporter.name} finds it failed" if signed else reason)
            if member.report.witnesses < WITNESSES_WANTED <= had:
                self._accusations.weigh_again(member)
            if node in after and node not in before:
                self._accusations.verify_sometimes(member)
