"""Probing: who is asked, how often, through whom, and when silence is believed.

    0 ms      ping                        150, 300 ms   again
    300 ms    ping_req to k helpers, and the host itself is asked (`ProbeHost`)
    500 ms    nobody heard it: SUSPECT, signed and told to all; pings go on
    then      FAILED when silence is believable (below), or ALIVE when it answers

Silence is believable when the host was found dark too, the suspicion timeout is over (shorter with independent
confirmations, Lifeguard), and so many pings went unanswered that losses alone explain it once in a million. A host
that says that no process listens there is believed the second time. An open host means an unresponsive process:
DEGRADED, and FAILED only after `unresponsive_failed_ns`. A node that was itself stopped, or hears nobody at all,
believes only what it heard.
"""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.helpers import Helpers
from swarmd_protocols.swim.hosts import HOST_ONLY, SILENCES_WANTED, HostEvidence
from swarmd_protocols.swim.lateness import LateLinks, is_late, smoothed
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.losses import missed
from swarmd_protocols.swim.members import Member, Probe, Relay
from swarmd_protocols.swim.messages import (
    LEVEL_SUSPECT,
    LEVEL_UNRESPONSIVE,
    LINK_INDIRECT,
    LINK_LATE,
    LINK_ONE_WAY,
    Indirect,
    Ping,
)
from swarmd_protocols.swim.rules import WITNESSES_WANTED, accusers_wanted, attempts_needed, suspicion_timeout_ns
from swarmd_protocols.swim.seams import Judge
from swarmd_protocols.swim.voice import Voice

_MS = 1_000_000
_S = 1_000_000_000
_OPEN_PINGS_MAX = 1_024
"""Pings whose answers are awaited; the oldest is forgotten first. A probe of every member of a full view has four."""
_AWAITED_NS = 60 * _S
"""A ping is awaited for so long, nanoseconds: longer than any verdict needs (`_ISOLATED_FAILED_NS` is the longest), so
that a process that was stopped may answer. The dead and the lost would fill the table otherwise, 0.6 kB a death."""
_ERROR_ASK, _ERROR_SUSPECT, _ERROR_LINK, _ERROR_FAILED = 2e-2, 2e-4, 1e-5, 1e-6
"""Accepted probabilities that losses alone explain the silence when helpers are asked, a member is suspected, a link is
called broken, a member is declared failed. A thousand nodes at four probes a second make 10^8 probes in seven hours."""
_LINK_LOSS_MIN = 0.25
"""A link is called broken as if at least this share of round trips were lost: new losses are not known yet."""
_ISOLATED_FAILED_NS = 60 * _S
"""A node that hears nobody believes in the others' deaths after so long, nanoseconds: its own radio is more likely."""
_LOOK_AGAIN_NS = 1 * _S
"""A link found broken is looked at again after this, nanoseconds: one that heals is known within some two seconds."""
_LOOK_AGAIN_PINGS = 3
"""So many unanswered pings say that a link known to be deaf is still so, without helpers: 170 bytes a second, where a
whole round of questions would take the byte budget from the other members."""
_BUDGET_SHARE = 0.85
"""Probing slows when it costs this share of the byte budget; the rest is for verdicts."""
_RING_STEPS = 8
"""Suspects that are passed over on the ring in one turn: a whole run of it may be lost at once."""
_WITNESSES = 4
"""A node that hears nobody pings so many ring successors: twice as many as have to hear it."""
_ASK_BEHIND_HELLO_NS, _ASK_BEHIND_GAP_NS = 10 * _MS, 200 * _MS
"""A member that greets gets this node's record, and so long after the question that it could not read, once more."""
_ONE_WAY_PATIENCE_NS = 5 * _S
"""A member known to be deaf is pinging few others: so long may pass between two frames from it."""


class Prober:
    """Asks members in turn and weighs their silence."""

    def __init__(self, core: Core, judge: Judge, accusations: Accusations, links: LinkReports) -> None:
        self.core = core
        self._judge = judge
        self._accusations = accusations
        self._links = links
        self.open: dict[int, tuple[Probe | Relay | Member, int]] = {}
        self._round: list[Member] = []
        self.helpers = Helpers(core, self, judge)
        self._late = LateLinks(core)
        self.hosts = HostEvidence(core, self, judge, accusations)
        self._turn = 0
        self._due_ns = 0
        self._stretch = 1.0
        """How far the byte budget stretches the period."""
        self.voice = Voice(core)

    # --- whose turn it is --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the rounds at a random point of the period, so that nodes do not beat together."""
        core = self.core
        self._due_ns = core.now_ns + int(core.rng.random() * core.config.protocol_period_ns)
        core.scheduler.at(self._due_ns, self._period)

    def welcome(self, member: Member) -> None:
        """A new member gets a random place in the current round (SWIM section 4.3)."""
        self._round.insert(int(self.core.rng.random() * (len(self._round) + 1)), member)

    def _period(self, _: object) -> None:
        core = self.core
        if core.own.left:
            return
        isolated = core.isolated()
        # A hard budget, reached gracefully: losses make each probe dearer, so there are fewer.
        over = core.port.pressure() > _BUDGET_SHARE
        self._stretch = min(4.0, self._stretch * 1.05) if over else max(1.0, self._stretch * 0.95)
        # Whoever hears nobody goes on at full pace: that it is heard is what keeps it from being declared failed.
        multiplier = 1 if isolated else core.multiplier
        period_ns = int(core.config.protocol_period_ns * multiplier * self._stretch)
        # From the due time, not from now: the load of one period does not delay all later ones.
        self._due_ns = max(self._due_ns + period_ns, core.now_ns + period_ns // 2)
        core.scheduler.at(self._due_ns, self._period)
        self._turn += 1
        if isolated:
            self._show_life()
            return
        late = self._late.whose(self._turn)
        if late is not None:
            self.send_ping(late, late)
            return
        on_ring = self._turn & 1 and core.view.probes_ring
        member = self._next_on_ring() if on_ring else self._next_in_round()
        if member is not None and member.link.probe is None:
            self._begin(member, routine=True)

    def _next_on_ring(self) -> Member | None:
        """The ring successor; one under suspicion is seen to already, and the turn goes to who follows.

        When half the swarm is cut off, whole runs of the ring are lost at once: they are not waited for one by one.
        """
        member = self.core.table.successor(self.core.own.node)
        for _ in range(_RING_STEPS):
            if member is None or member.link.probe is None or member.link.probe.suspect_ns < 0:
                break
            member = self.core.table.successor(member.node)
        return member

    def _show_life(self) -> None:
        """Ping the few that follow on the ring, in turn: should they hear us, they can say so for all others."""
        core = self.core
        member = core.table.successor(core.own.node)
        for _ in range(self._turn % _WITNESSES):
            member = core.table.successor(member.node) if member is not None else None
        if member is None:
            return
        if member.link.probe is None:
            self._begin(member, routine=True)
        else:
            self.send_ping(member, member)

    def _next_in_round(self) -> Member | None:
        core = self.core
        while self._round:
            member = self._round.pop()
            if member.where >= 0 and (member.link.probe is None or member.link.probe.suspect_ns < 0):
                return member
        self._round = list(core.table.reachable)
        core.rng.shuffle(self._round)
        return self._round.pop() if self._round else None

    def _begin(self, member: Member, *, routine: bool) -> Probe:
        probe = Probe(member, self.core.now_ns, routine)
        member.link.probe = probe
        self.ping(probe)
        self.core.scheduler.at(self.core.now_ns + self.core.config.resend_ns[0], self._step, probe)
        return probe

    def verify(self, member: Member, *, hurried: bool = False) -> None:
        """See for ourselves, now; in a hurry also whether it is frozen, so that losses do not explain its silence."""
        if member.link.probe is None and member.where >= 0 and not self.core.own.left:
            self._begin(member, routine=False)
        if hurried and member.link.probe is not None:
            member.link.probe.hurried = True

    def ping_once(self, member: Member, *, bare: bool = False) -> None:
        """One ping to a member that is held for gone: should it live, it answers, is told, and refutes.

        Args:
            member: Who.
            bare: It carries no news: all that is wanted is an answer.
        """
        core = self.core
        if core.now_ns - member.link.blocked_ns > 300 * _MS:
            member.link.blocked_ns = core.now_ns
            self.send_ping(member, member, bare=bare)

    def on_hello_from(self, member: Member) -> None:
        """Somebody who is being asked greets: it did not know this node, and so could not read the question.

        Its process lives and holds this node for a stranger. The question comes again right behind the record, before
        a busy node has forgotten it, and tells nothing about losses.
        """
        probe, now_ns = member.link.probe, self.core.now_ns
        if probe is not None and now_ns - probe.hello_ns >= _ASK_BEHIND_GAP_NS:
            probe.hello_ns = now_ns
            self.core.scheduler.at(now_ns + _ASK_BEHIND_HELLO_NS, self._ask_anew, probe)

    def _ask_anew(self, probe: Probe) -> None:
        if not probe.over:
            self.send_ping(probe.member, probe)

    # --- pings and answers -------------------------------------------------------------------------------------------

    def ping(self, probe: Probe) -> None:
        """Ask once more."""
        probe.attempts += 1
        if probe.attempts > 1:
            probe.member.link.way = ""  # Whichever way answers is taken next.
        self.send_ping(probe.member, probe)

    def send_ping(self, member: Member, purpose: Probe | Relay | Member, *, bare: bool = False) -> None:
        """Ping a member, for a probe, for somebody else, or to see whether it lives; a bare one carries no news."""
        core = self.core
        sequence = core.next_sequence()
        self._forget_old()
        self.open[sequence] = (purpose, core.now_ns)
        # Riders before the ping, so that the ack can answer them.
        riders = [] if bare else core.view.riders(member)
        parts = [*riders, encode(Ping(sequence, core.port.digest()))]
        parts += member.newest_accusation()
        if bare or (member.link.probe is not None and member.link.probe.suspect_ns >= 0):
            # News is not entrusted to the silent; and half a swarm gone dark shall not slow the search for the others.
            core.port.push(member, parts)
        else:
            self.voice.asked(member)
            core.port.datagram(member, parts)

    def _forget_old(self) -> None:
        """Make room for one more: whoever has not answered for so long is dead, or the ping was lost."""
        awaited, old_ns = self.open, self.core.now_ns - _AWAITED_NS
        while awaited and (awaited[next(iter(awaited))][1] < old_ns or len(awaited) >= _OPEN_PINGS_MAX):
            del awaited[next(iter(awaited))]

    def on_ack(self, member: Member, sequence: int) -> None:
        """A ping of ours was answered."""
        entry = self.open.get(sequence)
        if entry is None:
            return
        purpose, sent_ns = entry
        asked = (
            purpose if isinstance(purpose, Member) else purpose.target if isinstance(purpose, Relay) else purpose.member
        )
        if asked is not member:
            return
        del self.open[sequence]
        core = self.core
        round_trip = core.now_ns - sent_ns
        # Answers to questions that are settled by now say nothing about the path: one of us was stopped.
        late = member.link.quality == LINK_LATE
        current = isinstance(purpose, Probe) and not purpose.over and purpose.suspect_ns < 0
        current = current or (late and purpose is member)
        if current:
            window_ns = core.config.probe_window_ns
            sample_ns = min(round_trip, 2 * window_ns)
            core.rtt_ns = (core.rtt_ns * 7 + sample_ns) // 8 if core.rtt_ns else sample_ns
            member.link.rtt_ns = smoothed(member.link.rtt_ns, round_trip, window_ns, late=late)
        member.link.replied_ns = core.now_ns
        self.voice.answered(sent_ns)
        if isinstance(purpose, Relay):
            if not purpose.over:
                purpose.over = True
                core.port.datagram(purpose.requester, [encode(Indirect(purpose.sequence, True))])
        elif isinstance(purpose, Probe):
            self._answered(purpose)
        self._judge.answered(member)
        if current:
            self._judge_lateness(member)

    def _answered(self, probe: Probe) -> None:
        if probe.over:
            return
        core = self.core
        probe.over = True
        probe.member.link.probe = None
        misses = probe.attempts - 1
        # One answer and the misses before it: an estimate that members who are gone cannot spoil.
        rate = missed(core, misses)
        core.round_trip_loss -= core.round_trip_loss * rate
        probe.member.link.loss += (misses / probe.attempts - probe.member.link.loss) * 0.2
        if probe.routine and core.health:
            core.adjust_health(-1)

    def _judge_lateness(self, member: Member) -> None:
        core, link = self.core, member.link
        late = is_late(link.rtt_ns, core.config.probe_window_ns, late=link.quality == LINK_LATE)
        if link.quality == 0 and late and core.health == 0:
            self._set_quality(member, LINK_LATE, "answers late")
        elif link.quality == LINK_LATE and not late:
            self._set_quality(member, 0, "answers in time again")

    def _set_quality(self, member: Member, quality: int, reason: str) -> None:
        if member.link.quality != quality:
            member.link.quality = quality
            self._links.changed()
            self._judge.evaluate(member, reason)
        if quality in (LINK_ONE_WAY, LINK_INDIRECT):
            self.core.scheduler.at(self.core.now_ns + _LOOK_AGAIN_NS, self._look_again, member)

    def _look_again(self, member: Member) -> None:
        if member.link.quality in (LINK_ONE_WAY, LINK_INDIRECT):
            self.verify(member)

    # --- helpers -----------------------------------------------------------------------------------------------------

    # --- weighing silence --------------------------------------------------------------------------------------------

    def _step(self, probe: Probe) -> None:
        if probe.over:
            return
        core = self.core
        member = probe.member
        if member.where < 0 or core.own.left:
            probe.over = True
            member.link.probe = None
            return
        if core.view.weighs_links:
            self._step_link(probe)
            return
        config = core.config
        elapsed_ns = core.now_ns - probe.started_ns
        self.voice.weigh(probe)
        loss = core.round_trip_loss
        patient = probe.attempts < attempts_needed(loss, _ERROR_ASK)
        heard = member.link.heard_ns >= probe.started_ns - (
            _ONE_WAY_PATIENCE_NS if member.link.quality == LINK_ONE_WAY else 0
        )
        known_deaf = heard and member.link.quality == LINK_ONE_WAY
        # Where pings get lost, a few more of them cost less than three helpers and say as much.
        if not probe.indirect_sent and elapsed_ns >= config.indirect_after_ns and not (patient or known_deaf):
            probe.indirect_sent = True
            self.hosts.ask_host(probe)
            if not member.unresponsive:
                # Of an unresponsive process the swarm knows already: that its host answers is what is asked again.
                self.helpers.ask_helpers(probe)
        if heard or probe.indirect_heard:
            # Whoever is heard is in no danger: patience enough for losses that begin right now costs nothing.
            wanted = _LOOK_AGAIN_PINGS if known_deaf else attempts_needed(max(loss, _LINK_LOSS_MIN), _ERROR_LINK)
            if probe.attempts >= wanted and elapsed_ns >= config.probe_window_ns:
                if self.voice.is_the_links(probe, max(loss, _LINK_LOSS_MIN)):
                    self._link_is_broken(probe, heard)
                    return
                if self.voice.is_unheard(probe):
                    probe.over = True
                    member.link.probe = None
                    core.adjust_health(1)
                    return
        elif probe.suspect_ns < 0:
            patient = elapsed_ns < config.probe_window_ns * core.multiplier
            if not patient and probe.attempts >= attempts_needed(loss, _ERROR_SUSPECT):
                self._suspect(probe)
        elif self._silence_is_believable(probe):
            return
        self.ping(probe)
        core.scheduler.at(core.now_ns + self._gap_ns(probe), self._step, probe)

    def _step_link(self, probe: Probe) -> None:
        """In a mesh no helper is asked and nobody is suspected: a link is lost once its silence is believable."""
        core, member, config = self.core, probe.member, self.core.config
        elapsed_ns = core.now_ns - probe.started_ns
        if not probe.indirect_sent and elapsed_ns >= config.indirect_after_ns:
            probe.indirect_sent = True
            self.hosts.ask_host(probe)
        heard = member.link.heard_ns >= max(probe.started_ns, core.now_ns - config.probe_window_ns)
        loss = max(core.round_trip_loss, member.link.loss)
        # Who is heard and does not answer hears too little to count; a frozen process keeps its links for a while.
        patience_ns = config.probe_window_ns * core.multiplier
        if not heard and probe.host is HostAnswer.OPEN:
            patience_ns = config.unresponsive_failed_ns
            if core.now_ns - probe.host_asked_ns >= _S:
                self.hosts.ask_host(probe)
        elif not heard and probe.silences < 1:
            patience_ns = config.suspicion_unasked_ns
        loss = max(loss, _LINK_LOSS_MIN) if heard else loss
        believable = probe.attempts >= attempts_needed(loss, _ERROR_SUSPECT)
        certain = probe.attempts >= attempts_needed(loss, _ERROR_FAILED)
        is_frozen = not heard and probe.host is HostAnswer.OPEN and not self._may_be_losses(probe)
        if is_frozen and elapsed_ns >= config.probe_window_ns * core.multiplier:
            core.view.freezes(member)
        if elapsed_ns >= patience_ns and believable and (certain or not core.view.hangs_on(member)):
            self._judge.fail(member, f"silent to {probe.attempts} pings")
            return
        self.ping(probe)
        core.scheduler.at(core.now_ns + self._gap_ns(probe), self._step, probe)

    def _gap_ns(self, probe: Probe) -> int:
        core = self.core
        resend_ns = core.config.resend_ns
        if probe.attempts <= len(resend_ns):
            return max(10 * _MS, probe.started_ns + resend_ns[probe.attempts - 1] - core.now_ns)
        if core.isolated():
            return max(_S, len(core.table.reachable) * core.config.protocol_period_ns)
        if probe.host is HostAnswer.OPEN and not (probe.hurried and self._may_be_losses(probe)):
            return _S
        return 110 * _MS

    def _may_be_losses(self, probe: Probe) -> bool:
        """Whether losses explain that nothing was answered, be they new: an open host shows that not all is lost."""
        loss = max(self.core.round_trip_loss, probe.member.link.loss, _LINK_LOSS_MIN)
        return probe.attempts < attempts_needed(loss, _ERROR_FAILED)

    def _link_is_broken(self, probe: Probe, heard: bool) -> None:
        probe.over = True
        probe.member.link.probe = None
        if heard:
            self._set_quality(probe.member, LINK_ONE_WAY, "is heard, but does not hear us")
        else:
            self._set_quality(probe.member, LINK_INDIRECT, "is reached only through others")
            self.core.view.is_hidden(probe.member, helped=True)

    def _suspect(self, probe: Probe) -> None:
        core = self.core
        probe.suspect_ns = core.now_ns
        if probe.member.link.quality in (LINK_ONE_WAY, LINK_INDIRECT):
            probe.member.link.quality = 0
            self._links.changed()
        if probe.routine:
            # Helpers that are lost themselves (a partition) say nothing about this node.
            recent_ns = core.now_ns - 4 * core.config.probe_window_ns
            missing = [helper for helper in probe.helpers if helper.link.heard_ns > recent_ns]
            core.adjust_health(
                len(missing)
                if probe.indirect_sent and not probe.member.unresponsive
                else 0
                if probe.member.unresponsive
                else 1
            )
        if core.isolated():
            self._judge.suspect_silently(probe.member, "no answer, but nobody else is heard either")
        elif probe.host is HostAnswer.OPEN:
            self._accusations.accuse(probe.member, LEVEL_UNRESPONSIVE, HOST_ONLY)
        else:
            self._accusations.accuse(probe.member, LEVEL_SUSPECT, f"no answer to {probe.attempts} pings on any path")
            if probe.indirect_sent:
                # Others this time, most likely: the first ones may be out of its reach themselves.
                self.helpers.ask_helpers(probe)

    def _silence_is_believable(self, probe: Probe) -> bool:
        core = self.core
        config = core.config
        since_ns = core.now_ns - probe.suspect_ns
        if probe.member.report.witnesses >= WITNESSES_WANTED:
            return False
        if core.isolated():
            if since_ns < _ISOLATED_FAILED_NS:
                return False
        elif probe.host is HostAnswer.OPEN:
            if core.now_ns - probe.started_ns < config.unresponsive_failed_ns:
                if core.now_ns - probe.host_asked_ns >= _S:
                    self.hosts.ask_host(probe)
                return False
        elif since_ns < self._timeout_ns(probe):
            doubted = probe.host is HostAnswer.SILENT and probe.silences < SILENCES_WANTED
            if doubted and core.now_ns - probe.host_asked_ns >= 2 * config.host_timeout_ns:
                self.hosts.ask_host(probe)
            return False
        if probe.attempts < attempts_needed(core.round_trip_loss, _ERROR_FAILED):
            return False
        self._judge.fail(probe.member, f"silent to {probe.attempts} pings on every path")
        return True

    def _timeout_ns(self, probe: Probe) -> int:
        core = self.core
        config = core.config
        dark = probe.silences >= SILENCES_WANTED
        longest_ns = config.suspicion_max_ns if dark else config.suspicion_unasked_ns
        shortest_ns = config.suspicion_min_ns if dark else config.suspicion_unasked_ns
        wanted = accusers_wanted(len(core.table), config.accusers_needed)
        confirmed = self._accusations.confirmations(probe.member)
        return suspicion_timeout_ns(min(confirmed, wanted), wanted, shortest_ns, longest_ns)

    # --- what the transport tells ------------------------------------------------------------------------------------

    def heard_again(self) -> None:
        """Somebody is heard after a long silence: ask everybody in doubt at once, instead of one by one."""
        for member in list(self.core.table.reachable):
            if member.link.probe is not None and member.link.probe.suspect_ns >= 0:
                self.ping(member.link.probe)

    def paused(self) -> None:
        """This process was stopped: what it did not hear in the meantime is nobody's fault."""
        core = self.core
        core.adjust_health(1)
        core.heard_ns = core.now_ns
        for purpose, _ in list(self.open.values()):
            if isinstance(purpose, Probe) and not purpose.over:
                purpose.started_ns = core.now_ns
                purpose.attempts = min(purpose.attempts, 1)
                purpose.silences = purpose.refusals = 0
                purpose.host = None
                if purpose.suspect_ns >= 0:
                    purpose.suspect_ns = core.now_ns
