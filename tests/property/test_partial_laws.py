"""A Hypothesis state machine over partial views: crashes, cuts, loss, restarts; the bounds hold at every step.

After the last one the network is healed, and the overlay must become mutual, whole and free of the dead.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from swarmd_protocols.effects import Leave, MemberState, UserEvent, UserEventDelivered
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.members import EVENTS
from tests.support.partial_net import bounded, components, dead_neighbours, neighbours, one_sided
from tests.support.swim_net import Net, S

NODES = 14
indexes = st.integers(0, NODES - 1)
CONFIG = replace(SwimConfig(), full_view_max=5, active_view=3, passive_view=6)
_RESURRECT_NS = 20 * S


class Overlay(RuleBasedStateMachine):
    """Hypothesis breaks the network."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed):
        self.net = Net(NODES, seed, swim=CONFIG)
        self.net.run(12)
        self.said = 0
        self.left: set[int] = set()
        self.died: dict[int, int] = {}

    @rule(seconds=st.floats(0.1, 6.0))
    def time_passes(self, seconds):
        self.net.run(seconds)

    @rule(index=indexes)
    def crash(self, index):
        if self.net.hosts[index].up:
            self.net.kill(index)
            self.died[index] = self.net.now

    @rule(index=indexes, keep=st.booleans())
    def restart(self, index, keep):
        self.net.kill(index)
        self.net.restart(index, keep_journal=keep)
        self.died.pop(index, None)
        self.left.discard(index)

    @rule(index=indexes, dark=st.booleans())
    def darkness(self, index, dark):
        self.net.hosts[index].dark = dark

    @rule(at=st.integers(1, NODES - 1))
    def cut(self, at):
        self.net.cut(list(range(at)), list(range(at, NODES)))

    @rule()
    def join(self):
        self.net.blocked.clear()

    @rule(loss=st.sampled_from([0.0, 0.1, 0.3]))
    def lose(self, loss):
        self.net.loss = loss

    @rule(index=indexes)
    def leave(self, index):
        if self.net.hosts[index].up:
            self.net.feed(index, Leave())
            self.left.add(index)

    @rule(index=indexes)
    def say(self, index):
        self.said += 1
        self.net.feed(index, UserEvent(f"e{self.said}", b""))

    # --- what must hold --------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def nothing_exceeds_its_bound(self):
        for host in self.net.hosts:
            if host.up and host.node.summary().partial:
                table, view = host.node._core.table, host.node._swim.membership.overlay
                assert len(view.shelf.passive) <= CONFIG.passive_view
                assert len(table.transients) <= 72
                assert len(table.by_node) <= 2 * CONFIG.active_view + 2 + 32 + 72
                held = {member.node for member in table.by_node.values() if member.overlay.active}
                assert held == {member.node for member in table.reachable} | set(table.lost)
                assert set(table.transients) == set(table.by_node) - held
                assert all(table.by_node[member.node] is member for member in table.reachable)
                logs = host.node._swim.events.logs.values()
                assert table.sections[EVENTS] == sum(log.fp for log in logs) % 2**64

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def the_dead_are_not_taken_for_neighbours_anew(self):
        for at, who, change in self.net.changes(MemberState.ALIVE):
            died = self.died.get(int(change.name[1:]))
            assert died is None or at < died + _RESURRECT_NS, (who, change)

    @precondition(lambda self: hasattr(self, "net"))
    @invariant()
    def an_event_comes_once_in_a_life(self):
        seen: set[tuple[int, str]] = set()
        for _, who, effect in self.net.log:
            if isinstance(effect, UserEventDelivered) and self.net.hosts[who].life == 0:
                assert (who, effect.name) not in seen
                seen.add((who, effect.name))

    def teardown(self):
        """Heal everything: one overlay, mutual, of all that live."""
        if not hasattr(self, "net"):
            return
        net = self.net
        net.blocked.clear()
        net.loss = 0.0
        for index, host in enumerate(net.hosts):
            host.dark = False
            if not host.up or index in self.left:
                net.kill(index)
                net.restart(index)
        self.died.clear()

        def whole():
            return (
                components(net) == [NODES]
                and not one_sided(net)
                and not dead_neighbours(net)
                and min(map(len, neighbours(net).values())) >= 2
            )

        assert net.run_until(whole, 150, 0.5) is not None, (components(net), one_sided(net), neighbours(net))
        bounded_net = [host for host in net.hosts if host.node.summary().partial]
        if len(bounded_net) == NODES:
            bounded(net)
        net.feed(0, UserEvent("at last", b""))
        assert net.run_until(lambda: sum(e.name == "at last" for _, _, e in net.delivered()) == NODES, 20, 0.5)


_RUNS = os.environ.get("SWARMD_PROPERTY_RUNS")
TestOverlay = Overlay.TestCase
TestOverlay.settings = settings(
    # The default run is the same every time; the search at random belongs to `make test-long`, which sets the variable.
    max_examples=int(_RUNS or "6"),
    derandomize=_RUNS is None,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
