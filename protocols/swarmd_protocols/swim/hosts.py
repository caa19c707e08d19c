"""What the host of a silent member says: refused, open, or silent too.

A host that says that no process listens is believed the second time, 25 ms later. An open host means an unresponsive
process, and where the port is known to be another member's, as much as silence does. A host's silence may always be a
lost packet: it takes two, and a host that answered this node before is dark after six. A silent host is asked four
times in any case, since the verdict waits that long.
"""

from collections.abc import Sequence

from swarmd_protocols.effects import Alarm, HostAnswer, ProbeHost
from swarmd_protocols.ids import WAYS, Address, is_way
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import Member, Probe
from swarmd_protocols.swim.messages import LEVEL_UNRESPONSIVE
from swarmd_protocols.swim.seams import Asker, Judge

_MS = 1_000_000
_REFUSED_GAP_NS = 25 * _MS
"""Between two refusals that count, nanoseconds: one may be forged or stale, and a restart takes longer than this."""
HOST_ONLY = "its host answers, its process does not"
_TIMES_ASKED = 4
"""A silent host is asked so many times in a row: they pass before the shortest verdict, and one answer changes it."""
_TIMES_ASKED_OPEN = 6
"""A host that has answered is asked so many times: with 3 % of packets lost each way four questions come to nothing
once in 80,000 times, six once in 23 million (seed 736 of the fuzzer). A frozen device that then loses its power
is known 0.5 s later."""
_TWICE_HEARD_NS = 10_000 * _MS
"""Two members that were both heard from one address within so long, nanoseconds, have it at the same time: whoever
gives it to another is silent by then."""
_TWICE_TOLD_NS = 600_000 * _MS
"""That is told once in so long, nanoseconds."""
SILENCES_WANTED = 2
"""A host's silence may always be a lost packet: it takes two for a dark host, however few packets seem to be lost."""


class HostEvidence:
    """Asks hosts of silent members, and weighs what they say."""

    def __init__(self, core: Core, asker: Asker, judge: Judge, accusations: Accusations) -> None:
        self.core = core
        self._asker = asker
        self._judge = judge
        self._accusations = accusations
        self._twice_told_ns = -(2**62)

    def ask_host(self, probe: Probe) -> None:
        """Ask the member's kernel."""
        core = self.core
        probe.host_asked_ns = core.now_ns
        # Two short questions say more than a long one: a lost packet silences one of them.
        longest_ns, rtt_ns = core.config.host_timeout_ns, trip_ns(core, probe.member)
        timeout_ns = min(longest_ns, max(longest_ns // 2, 4 * rtt_ns)) if rtt_ns else longest_ns
        core.port.emit(ProbeHost(probe.member.route, timeout_ns))

    def on_refused(self, address: Address) -> None:
        """The host answered that no process listens there: see at once, twice."""
        for member in self.core.table.at(address):
            if member.link.way not in ("", address) and address != member.address:
                continue  # Another device may have that address on a network that leads nowhere else.
            if member.overlay.active and member.where >= 0:
                self._on_refused(member)

    def _on_refused(self, member: Member) -> None:
        if member.link.probe is None:
            self._asker.verify(member)
        probe = member.link.probe
        if probe is None:
            return
        probe.refusals += 1
        if probe.refusals == 1:
            probe.refused_ns = self.core.now_ns
            self.ask_host(probe)
            self.core.scheduler.at(self.core.now_ns + _REFUSED_GAP_NS, self._refused_again, probe)
        self._weigh_refusals(probe)

    def _refused_again(self, probe: Probe) -> None:
        if not probe.over:
            self._asker.ping(probe)
            self._weigh_refusals(probe)

    def _weigh_refusals(self, probe: Probe) -> None:
        core = self.core
        if probe.over or probe.refusals < 2 or core.now_ns - probe.refused_ns < _REFUSED_GAP_NS:
            return
        # Whoever can forge refusals on the path cannot keep the member from answering in the meantime.
        if probe.member.link.heard_ns >= probe.refused_ns:
            probe.refusals = 0  # It was there: should it end yet, the refusals that follow say so.
        else:
            self._judge.fail(probe.member, "its host says that no process listens there", gone=True)

    def on_host(self, address: Address, answer: HostAnswer) -> None:
        """The host of a silent member answered, or not."""
        members = self.core.table.at(address)
        self._tell_of_twins(members, address)
        for member in members:
            probe = member.link.probe
            if probe is not None and not probe.over:
                open_to_another = answer is HostAnswer.OPEN and self._is_anothers(member, address)
                self._on_answer(probe, HostAnswer.SILENT if open_to_another else answer)

    def _tell_of_twins(self, members: Sequence[Member], address: Address) -> None:
        """Two devices have one address: what is sent there comes to either, and the other is silent without a cause."""
        now_ns = self.core.now_ns
        if len(members) < 2 or now_ns - self._twice_told_ns < _TWICE_TOLD_NS:
            return
        heard = [one for one in members if now_ns - one.link.heard_ns < _TWICE_HEARD_NS]
        names = sorted(one.name for one in heard if is_way(one.link.source, one.address))
        if len(names) > 1:
            self._twice_told_ns = now_ns
            text = f"{' and '.join(names[:8])} have one address, {address}: give each its own; until then one is silent"
            self.core.port.emit(Alarm("address-twice", text))

    def _is_anothers(self, member: Member, address: Address) -> bool:
        """Whether the port at a member's address is another's: that one is heard from there, and it itself is not.

        Two processes cannot listen at one port. Of its owner an open host says as much whoever borrows its address.
        """
        if is_way(member.link.source, member.address):
            return False
        ways = address.split(WAYS)
        return any(is_way(way, self.core.own.address) for way in ways) or any(
            other.link.heard_ns > member.link.heard_ns and is_way(other.link.source, other.address)
            for way in ways
            for other in self.core.table.at(way)
            if other is not member
        )

    def _on_answer(self, probe: Probe, answer: HostAnswer) -> None:
        if answer is HostAnswer.SILENT:
            probe.silences += 1
            has_answered = probe.host is HostAnswer.OPEN
            if probe.silences < (_TIMES_ASKED_OPEN if has_answered else _TIMES_ASKED):
                self.ask_host(probe)
                if has_answered:
                    return
        else:
            probe.silences = 0
        probe.host = answer
        if answer is HostAnswer.SILENT:
            return
        if answer is HostAnswer.REFUSED:
            if probe.refusals == 0:
                probe.refused_ns = self.core.now_ns
            probe.refusals += 1
            self.core.scheduler.at(self.core.now_ns + _REFUSED_GAP_NS, self._refused_again, probe)
            if probe.refusals == 1:
                self.ask_host(probe)
        elif probe.suspect_ns >= 0 and not probe.member.unresponsive:
            self._accusations.accuse(probe.member, LEVEL_UNRESPONSIVE, HOST_ONLY)
