"""Indirect probes: members are asked to ping somebody who does not answer, and this node pings for others.

ping_req ─▶ ping ─▶ ack ─▶ indirect(heard)       and indirect(not heard), Lifeguard's nack, when it stays silent
"""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member, Probe, Relay
from swarmd_protocols.swim.messages import Indirect, PingReq
from swarmd_protocols.swim.seams import Asker, Judge

_RELAYS_KEPT = 256
"""Members whose last helper is remembered: who is reached only through others is one of few."""


class Helpers:
    """Asks helpers, and is one."""

    def __init__(self, core: Core, asker: Asker, judge: Judge) -> None:
        self.core = core
        self._asker = asker
        self._judge = judge
        self.relays: dict[bytes, Member] = {}
        """Who reached a member last that this node does not reach itself."""

    def on_ping_req(self, requester: Member, sequence: int, target: bytes) -> None:
        """Ping the target for another member; nack when it stays silent, so that our own health is known."""
        core = self.core
        member = core.table.by_node.get(target)
        if member is None or member is requester:
            return
        relay = Relay(requester, sequence, member)
        if not member.overlay.active:
            core.port.hello(member.address, False)  # It may not know this node, and could not read the ping.
        self._asker.send_ping(member, relay)
        core.scheduler.at(core.now_ns + core.config.resend_ns[0] // 2, self._relay_again, relay)
        # In time for the requester's own window; the answer itself may still come later.
        patience_ns = (core.config.probe_window_ns - core.config.indirect_after_ns) * 4 // 5
        core.scheduler.at(core.now_ns + patience_ns, self._relay_nack, relay)

    def _relay_again(self, relay: Relay) -> None:
        if not relay.over:
            self._asker.send_ping(relay.target, relay)

    def _relay_nack(self, relay: Relay) -> None:
        if not relay.over:
            self.core.port.datagram(relay.requester, [encode(Indirect(relay.sequence, False))])

    def on_indirect(self, helper: Member, sequence: int, heard: bool) -> None:
        """A helper reports: it heard the target, or (nack) it did not but is itself well."""
        entry = self._asker.open.get(sequence)
        if entry is None or not isinstance(entry[0], Probe) or helper is entry[0].member:
            return
        probe = entry[0]
        if probe.over:
            return
        if not heard:
            probe.helpers = [other for other in probe.helpers if other is not helper]
            return
        probe.indirect_heard = True
        self.relays.pop(probe.member.node, None)
        self.relays[probe.member.node] = helper
        if len(self.relays) > _RELAYS_KEPT:
            del self.relays[next(iter(self.relays))]
        if probe.suspect_ns >= 0:
            probe.suspect_ns = -1
        probe.member.suspected = False
        self._judge.evaluate(probe.member, f"heard through {helper.name}")

    def ask_helpers(self, probe: Probe) -> None:
        """Ask some members to ping whom this node does not hear."""
        core = self.core
        helpers = core.table.sample(core.rng, core.config.ping_req_fanout, without=probe.member)
        relay = self.relays.get(probe.member.node)
        if relay is not None and relay.where >= 0 and relay not in helpers:
            # Where some never hear each other, whoever carried the question last is the best to ask.
            helpers = [relay, *helpers[:-1]]
        sequence = core.next_sequence()
        self._asker.open[sequence] = (probe, core.now_ns)
        question = [*core.view.introduction(probe.member), encode(PingReq(sequence, probe.member.node))]
        probe.helpers = helpers
        for helper in helpers:
            core.port.datagram(helper, question)
