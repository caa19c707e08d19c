"""A Hypothesis state machine over whole nodes: any order, loss, duplication, stale timers, crashes; then convergence.

Safety holds after every step; after the last one the network is healed and everybody must agree within a bound.
"""

import heapq
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarmd_protocols.effects import (
    DatagramReceived,
    GoAway,
    HostAnswer,
    HostProbed,
    MemberState,
    SendFailed,
    SetMeta,
    TimerFired,
    UserEvent,
    UserEventDelivered,
)
from swarmd_protocols.swim.members import EVENTS, LINKS, MEMBERS, META
from swarmd_protocols.swim.messages import LEVEL_FAILED
from swarmd_protocols.swim.rules import accusers_wanted
from tests.support.swim_net import MS, Net, S

NODES = 4
indexes = st.integers(0, NODES - 1)


class Swarm(RuleBasedStateMachine):
    """Hypothesis is the network."""

    @initialize(seed=st.integers(0, 2**16), formed=st.booleans())
    def begin(self, seed, formed):
        self.net = Net(NODES, seed)
        self.incarnations = [0] * NODES
        self.lives = [0] * NODES
        self.said = 0
        if formed:
            self.net.run(2)

    # --- what may happen -----------------------------------------------------------------------------------------

    @rule(steps=st.integers(1, 40))
    def deliver(self, steps):
        """Whatever is next in the heap: frames, timers, answers."""
        for _ in range(steps):
            if self.net.heap:
                self.net.now, _, call = heapq.heappop(self.net.heap)
                call()

    @rule(share=st.floats(0, 1))
    def drop(self, share):
        """Forget some of what is on its way (timers are lost too where a process would lose them: never)."""
        kept = []
        for entry in sorted(self.net.heap):
            lost = "carry" in entry[2].__qualname__ and self.net.rng.random() < share
            if not lost:
                kept.append(entry)
        self.net.heap = kept
        heapq.heapify(self.net.heap)

    @rule()
    def duplicate_and_reorder(self):
        """Everything on its way comes twice, the second time in another order."""
        flying = [entry for entry in sorted(self.net.heap) if "carry" in entry[2].__qualname__][:30]
        for _, _, call in flying:
            self.net.at(self.net.now + int(self.net.rng.random() * 300 * MS), call)

    @rule(seconds=st.floats(0.01, 3.0))
    def time_passes(self, seconds):
        self.net.run(seconds)

    @rule(index=indexes, keep=st.booleans())
    def restart(self, index, keep):
        self.net.kill(index)
        self.net.restart(index, keep_journal=keep)
        self.lives[index] += 1
        if not keep:
            self.incarnations[index] = 0

    @rule(index=indexes)
    def crash(self, index):
        self.net.kill(index)

    @rule(index=indexes, dark=st.booleans())
    def darkness(self, index, dark):
        self.net.hosts[index].dark = dark

    @rule(index=indexes)
    def freeze(self, index):
        self.net.freeze(index)

    @rule(index=indexes)
    def thaw(self, index):
        if self.net.hosts[index].up:
            self.net.thaw(index)

    @rule(a=indexes, b=indexes)
    def one_way(self, a, b):
        if a != b:
            self.net.blocked.add((a, b))

    @rule(index=indexes, other=indexes, answer=st.sampled_from(HostAnswer))
    def lying_host_probe(self, index, other, answer):
        if index != other:
            self.net.feed(index, HostProbed(self.net.address(other), answer))

    @rule(index=indexes, other=indexes, reason=st.sampled_from(["refused", "unreachable", "full"]))
    def send_fails(self, index, other, reason):
        if index != other:
            self.net.feed(index, SendFailed(self.net.address(other), reason))

    @rule(index=indexes)
    def stale_timer(self, index):
        self.net.feed(index, TimerFired(("swim", "tick")))

    @rule(index=indexes, data=st.binary(max_size=80))
    def noise(self, index, data):
        self.net.feed(index, DatagramReceived("6.6.6.6:6", data))

    @rule(index=indexes)
    def say(self, index):
        self.said += 1
        self.net.feed(index, UserEvent(f"e{self.said}", b""))

    @rule(index=indexes, value=st.binary(max_size=8))
    def set_meta(self, index, value):
        self.net.feed(index, SetMeta("key", value))

    @rule(index=indexes, seconds=st.integers(0, 5))
    def go_away(self, index, seconds):
        self.net.feed(index, GoAway(seconds * S))

    # --- what must hold --------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def own_incarnation_never_decreases(self):
        for index, host in enumerate(self.net.hosts):
            own = host.node._core.own
            assert own.incarnation >= self.incarnations[index]
            self.incarnations[index] = own.incarnation

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def failed_takes_evidence(self):
        for host in self.net.hosts:
            core = host.node._core
            for member in core.table.by_node.values():
                if member.failed and not member.unheard:
                    held = member.accusations or {}
                    signers = sum(1 for said in held.values() if said.level == LEVEL_FAILED)
                    own = core.own.node in held and held[core.own.node].level == LEVEL_FAILED
                    assert own or signers >= accusers_wanted(len(core.table), core.config.accusers_needed)

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def sums_and_lists_agree_with_the_table(self):
        for host in self.net.hosts:
            core = host.node._core
            shared, membership = host.node._swim.events, host.node._swim.membership
            members = core.table.by_node.values()
            counted = [member for member in members if member.repair.counted]
            expected = {
                MEMBERS: core.own.fp + sum(member.repair.fp_record for member in counted),
                EVENTS: shared.by_member.own_fp + sum(member.repair.fp_events for member in counted),
                META: host.node._swim.metadata.own_meta_fp + sum(member.repair.fp_meta for member in counted),
                LINKS: membership.links.own_fp + sum(member.repair.fp_links for member in counted),
            }
            for section, total in expected.items():
                assert core.table.sections[section] == total % 2**64
            reachable = {member.node for member in members if member.where >= 0}
            assert reachable == {member.node for member in core.table.reachable}
            assert set(core.table.lost) == {member.node for member in members} - reachable
            assert all(core.table.reachable[member.where] is member for member in core.table.reachable)

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def every_open_probe_has_a_deadline(self):
        for host in self.net.hosts:
            core = host.node._core
            waiting = {id(entry[3]) for entry in core.scheduler._heap}
            for member in core.table.by_node.values():
                if member.link.probe is not None and not member.link.probe.over:
                    assert id(member.link.probe) in waiting

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def an_event_comes_once(self):
        seen = set()
        for _, who, effect in self.net.log:
            if isinstance(effect, UserEventDelivered):
                key = (who, self.lives[who], effect.origin, effect.name)
                if self.lives[who] == 0:
                    assert key not in seen
                seen.add(key)

    def teardown(self):
        """Heal everything: all that live see each other alive and know the same."""
        if not hasattr(self, "net"):
            return
        net = self.net
        net.blocked.clear()
        for index, host in enumerate(net.hosts):
            host.dark = False
            if host.up and host.frozen:
                net.thaw(index)
            if not host.up:
                net.restart(index)
        for index in range(NODES):
            net.feed(index, GoAway(0))
        assert net.run_until(lambda: net.formed() and net.agreed(), 40, 0.25) is not None, [
            (index, {name: state.value for name, state in net.states(index).items() if state is not MemberState.ALIVE})
            for index in range(NODES)
        ]


_RUNS = os.environ.get("SWARMD_PROPERTY_RUNS")
TestSwarm = Swarm.TestCase
TestSwarm.settings = settings(
    # The default run is the same every time; the search at random belongs to `make test-long`, which sets the variable.
    max_examples=int(_RUNS or "12"),
    derandomize=_RUNS is None,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
