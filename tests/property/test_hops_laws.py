"""What a swarm must hear is not delayed or dropped behind what its members hand on, however much of that there is.

The law, for any sparse topology, a member that hands its neighbours all it can, an honest stream across, and radios
that send one frame after the other:

- a user event comes to every member within `EVENT_S`, and once;
- a death is believed by all who could know within `DEATH_S`; nobody who lives is ever called failed;
- no node spends more on others' parts than the budget of a hop, so no way is charged for more than its slowest hop.
"""

from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import (
    Command,
    DatagramReceived,
    Effect,
    Event,
    MemberState,
    SendCast,
    StreamReceived,
    UserEvent,
    UserEventDelivered,
)
from swarmd_protocols.subprotocol import Priority, Send
from swarmd_protocols.swim.mesh import relay
from swarmd_protocols.swim.mesh.relay_words import Onward
from swarmd_protocols.swim.messages import Sub
from tests.support.mesh_net import MeshNet, Pairs
from tests.support.mutants import Mutant, assert_found
from tests.support.swim_net import Host, S

RATE_BYTES_S = 40_000
"""Of each radio: 320 kbit/s, a poor link; the relay's budget is a tenth of it."""
HEAD_BYTES = 48
"""Ethernet, IP and UDP."""
EVENT_S, DEATH_S = 1.0, 5.0
FLOOD_S = 14.0
BUDGET_BYTES_S, BURST_BYTES = 4_000, 26_000
"""What a node hands on for others, and what it may at once, with what was begun within it."""
PART_B, PARTS, STEP_S = 1_000, 12, 0.1
"""What the thief hands each neighbour: so many parts of so many bytes in each step, 120 kB/s."""


class SlowAir(MeshNet):
    """Each node's radio sends one frame after the other; the thief's own is as fast as it likes."""

    def __init__(self, count: int, links: Pairs, seed: int) -> None:
        self.thief = -1
        self._free_ns: dict[int, int] = {}
        self._slot_ns: int | None = None
        super().__init__(count, links, seed, echo=True)

    def perform(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            # A cast is one frame, whoever hears it.
            self._slot_ns = self._sent(host, len(effect.data)) if isinstance(effect, SendCast) else None
            super().perform(host, [effect])
        self._slot_ns = None

    def carry(self, host: Host, destination: str, event: Event, loss: float) -> None:
        assert isinstance(event, DatagramReceived | StreamReceived)
        wait_ns = self._sent(host, len(event.data)) if self._slot_ns is None else self._slot_ns
        delay_ns, self.delay_ns = self.delay_ns, self.delay_ns + wait_ns
        try:
            super().carry(host, destination, event, loss)
        finally:
            self.delay_ns = delay_ns

    def _sent(self, host: Host, size_bytes: int) -> int:
        """How long a frame of now takes until it is out, those before it included."""
        if host.index == self.thief:
            return 0
        begin = max(self.now, self._free_ns.get(host.index, 0))
        self._free_ns[host.index] = begin + (size_bytes + HEAD_BYTES) * S // RATE_BYTES_S
        return self._free_ns[host.index] - self.now

    def flood(self, rng: Random) -> None:
        """The thief hands each neighbour parts for anybody far."""
        thief = self.hosts[self.thief].node
        core, wire = thief._core, thief._wire
        far = [host.node.node for host in self.hosts if host.up and not self._beside(host.index)]
        near = [host for host in self.hosts if host.up and self._beside(host.index) and host.index != self.thief]
        for host in near if far else []:
            member = core.table.by_node[host.node.node]
            if member.where < 0:
                continue
            for _ in range(PARTS):
                onward = Onward(rng.choice(far), 9, 60_000, True, rng.randbytes(8), 0, 1, rng.randbytes(PART_B))
                core.now_ns, wire.effects = self.now, []
                wire.push(member, [encode(Sub("relay", msgspec.msgpack.encode(onward)))])
                self.perform(self.hosts[self.thief], wire.effects)

    def _beside(self, index: int) -> bool:
        return index == self.thief or (index, self.thief) not in self.blocked


def topology(rng: Random, count: int) -> Pairs:
    """A line with some shortcuts: every two have a way, few hear each other."""
    links = {(index, index + 1) for index in range(count - 1)}
    for _ in range(rng.randrange(3)):
        a, b = sorted(rng.sample(range(count), 2))
        links.add((a, b))
    return links


def keeps_a_hop(links: Pairs, gone: int, count: int) -> bool:
    """Whether those who are left have a way to each other without it."""
    rest = set(range(count)) - {gone}
    reached = {min(rest)}
    while more := {b for link in links for a, b in (link, link[::-1]) if a in reached and b in rest} - reached:
        reached |= more
    return reached == rest


def check_hops(seed: int, count: int) -> None:
    """One draw of topology, thief, talker and death; see the module."""
    rng = Random(seed)
    links = topology(rng, count)
    net = SlowAir(count, links, seed)
    assert net.run_until(net.formed, 30) is not None, "never formed"
    net.run(6)
    net.thief = rng.randrange(count)
    honest = [index for index in range(count) if index != net.thief]
    talker = rng.choice(honest)
    dying = next((index for index in rng.sample(honest, len(honest)) if keeps_a_hop(links, index, count)), None)
    begun = net.now
    spent = {index: net.hosts[index].node._core.counters["relay_bytes"] for index in honest}
    net.feed(honest[0], Command("echo", Send(net.hosts[honest[-1]].node.node, bytes(60_000), True, Priority.SYNC)))
    told_ns = died_ns = 0
    while net.now < begun + int(FLOOD_S * S):
        net.flood(rng)
        net.run(STEP_S)
        if not told_ns and net.now >= begun + 4 * S:
            told_ns = net.now
            net.feed(talker, UserEvent("fire", b""))
        if dying is not None and not died_ns and net.now >= begun + 7 * S:
            died_ns = net.now
            net.kill(dying)
    heard = [
        (at, index) for at, index, effect in net.log if isinstance(effect, UserEventDelivered) and effect.name == "fire"
    ]
    missing = set(range(count)) - {index for _, index in heard}
    assert not missing, f"an event has not come to {sorted(missing)} in {(net.now - told_ns) / S:.0f} s"
    assert len({index for _, index in heard}) == len(heard), "an event came twice"
    late = max(at for at, _ in heard) - told_ns
    assert late <= EVENT_S * S, f"an event took {late / S:.2f} s behind what is handed on"
    if dying is not None:
        name = f"n{dying:03d}"
        told = {index: at for at, index, change in net.changes(MemberState.FAILED, died_ns) if change.name == name}
        slow = [index for index in honest if index != dying and told.get(index, net.now) > died_ns + int(DEATH_S * S)]
        assert not slow, f"{slow} did not hear of a death in time"
    wrong = [(index, name) for index, name in net.failures(begun) if dying is None or name != f"n{dying:03d}"]
    assert not wrong, f"healthy members were called failed: {wrong}"
    most = BUDGET_BYTES_S * FLOOD_S + BURST_BYTES
    paid = {index: net.hosts[index].node._core.counters["relay_bytes"] - spent[index] for index in honest}
    assert max(paid.values()) <= most, f"a hop pays {max(paid.values())} B for others, at most {most:.0f}"
    if any(not net._beside(index) for index in honest):  # Nobody is far from one that all hear.
        assert max(paid.values()) >= most / 2, "there was no flood to speak of"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(4, 7))
@example(1, 6)
def test_alarms_and_verdicts_do_not_wait_behind_what_is_handed_on(seed: int, count: int) -> None:
    check_hops(seed, count)


def _handing_on_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "RELAY_BYTES_S", 1_000_000)


def _the_burst_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "_RELAY_BURST_BYTES", 1 << 40)


@pytest.mark.parametrize("mutant", [_handing_on_is_free, _the_burst_has_no_end])
def test_the_law_finds_a_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, lambda: check_hops(1, 6), monkeypatch)
