"""Laws of what goes straight to members that are in reach and not near: a radio that is heard need not hear.

What is sent reliably arrives all the same, by others within some seconds, and once; who asks for it costs no more.
"""

from random import Random

import pytest

from swarmd_protocols import sends
from swarmd_protocols.effects import Effect, SendStream, StreamReceived
from swarmd_protocols.sends import Sends
from tests.support.mesh_net import MeshNet, everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.relay_net import count_of, formed, heard, say
from tests.support.swim_net import MS, Host, S

HALL = 14
HIDDEN = {(a, b) for a in (0, 1, 2) for b in (HALL - 3, HALL - 2, HALL - 1)}


class TcpNet(MeshNet):
    """Streams are sent again until their deadline, and need both directions, as those of a kernel do."""

    def perform(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendStream):
                self.offer(host, effect, 200 * MS)
        super().perform(host, [effect for effect in effects if not isinstance(effect, SendStream)])

    def offer(self, host: Host, effect: SendStream, wait_ns: int) -> None:
        target = self.index(effect.destination)
        if self.now >= effect.deadline_ns:
            return
        cut = {(host.index, target), (target, host.index)} & self.blocked
        if cut or self.rng.random() < 1 - (1 - self.loss) ** 2:
            self.at(self.now + wait_ns, lambda: self.offer(host, effect, min(2 * wait_ns, 2 * S)))
        else:
            arrived = StreamReceived(self.address(host.index), effect.data)
            self.carry(host, effect.destination, arrived, 0.0)


def hall(first: int = 3) -> tuple[MeshNet, int, int]:
    """Nearly all hear all; two that hear each other and are not near, one of them not before this one."""
    net = formed(HALL, everybody(HALL) - HIDDEN)
    rows = [host.node._core.table.by_node for host in net.hosts]

    def is_far(one: int, other: int) -> bool:
        member = rows[one][net.hosts[other].node.node]
        return member.where < 0 and net.view(one).is_heard(member)

    pairs = [(one, other) for one in range(first, HALL) for other in range(3, HALL) if one != other]
    one, other = next((one, other) for one, other in pairs if is_far(one, other) and (first == 0 or is_far(other, one)))
    return net, one, other


def came(net: MeshNet, target: int, payloads: list[bytes]) -> bool:
    counts = heard(net, target)
    return all(counts[payload] for payload in payloads)


def who_is_heard_and_never_hears_is_told_all() -> None:
    """On a line, one end is heard at the other, and hears it not: with casts, and where far members are asked."""
    for casts in (True, False):
        net = MeshNet(3, line(3), 1, casts=casts, echo=True)
        assert net.run_until(net.formed, 20) is not None
        net.run(6)
        net.blocked.discard((2, 0))
        net.run(10)
        for number in range(60):
            say(net, 0, 2, b"%d" % number)
            say(net, 0, 2, b"best effort %d" % number, sure=False)
            net.run(0.5)
        net.run(4)
        counts = heard(net, 2)
        assert all(counts[b"%d" % number] == 1 for number in range(60)), casts
        assert sum(counts[b"best effort %d" % number] for number in range(60)) >= 54, casts


def a_wall_between_two_that_are_not_near_keeps_nothing_back() -> None:
    """It takes the way there, or the way back, or both: what is said before that is known arrives within four seconds,
    and once."""
    for there, back in ((True, False), (False, True), (True, True)):
        net, one, other = hall()
        net.blocked |= ({(one, other)} if there else set()) | ({(other, one)} if back else set())
        payloads = []
        for number in range(30):
            payloads.append(b"%d" % number)
            say(net, one, other, payloads[-1])
            net.run(0.2)
        net.run(4)
        assert all(heard(net, other)[payload] == 1 for payload in payloads), (there, back)


def what_is_larger_than_a_frame_arrives_too() -> None:
    net, one, other = hall()
    net.blocked.add((one, other))
    say(net, one, other, bytes(30_000))
    assert net.run_until(lambda: came(net, other, [bytes(30_000)]), 20) is not None


def walls_that_come_and_go_keep_nothing_back() -> None:
    """Each twelve seconds some hear others no more, this way or that; those of a ring hear each other all the time.

    Streams are tried for ten.
    """
    count = 12
    ring = {(a, (a + step) % count) for a in range(count) for step in (1, 2)}
    ring |= {(b, a) for a, b in ring}
    hidden = {(a, b) for a in (0, 1) for b in (count // 2, count // 2 + 1)}
    for seed in (1, 2):
        rng = Random(seed)
        net = TcpNet(count, everybody(count) - hidden, seed, echo=True)
        assert net.run_until(net.formed, 20) is not None
        net.run(20)
        always, told = set(net.blocked), []
        for step in range(144):
            if step % 24 == 0:
                pairs = [(a, b) for a in range(count) for b in range(count) if a != b and (a, b) not in ring]
                net.blocked = always | {pair for pair in pairs if rng.random() < 0.3}
            one, other = rng.sample(range(count), 2)
            member = net.hosts[one].node._core.table.by_node[net.hosts[other].node.node]
            if member.where < 0:
                told.append((other, b"%d" % step))
                say(net, one, other, told[-1][1])
            net.run(0.5)
        net.run(10)
        assert len(told) >= 10
        assert all(heard(net, other)[payload] == 1 for other, payload in told), seed


def who_hears_again_is_sent_to_straight_again() -> None:
    net, one, other = hall(0)
    assert one < 3, "it does not hear all, so nobody is asked for proof that the mesh is one no more"
    net.blocked.add((one, other))
    for number in range(20):
        say(net, one, other, b"before %d" % number)
        net.run(0.5)
    assert count_of(net, "relay_sent") >= 10
    net.blocked.discard((one, other))
    for number in range(20):
        say(net, one, other, b"while it is found out %d" % number)
        net.run(0.5)
    sent = count_of(net, "relay_sent")
    for number in range(10):
        say(net, one, other, b"after %d" % number)
        net.run(0.5)
    assert count_of(net, "relay_sent") == sent


def who_answers_is_asked_little() -> None:
    """Whatever is said to it: three questions a second at most, and none of them goes by others."""
    net, one, other = hall()
    core = net.hosts[one].node._core
    subject = core.table.by_node[net.hosts[other].node.node]
    asked_ns = []
    for number in range(200):
        say(net, one, other, b"%d" % number, sure=bool(number % 2))
        if not asked_ns or subject.link.blocked_ns != asked_ns[-1]:
            asked_ns.append(subject.link.blocked_ns)
        net.run(0.05)
    assert 10 <= len(asked_ns) <= 31
    net.run(5)
    assert not net.hosts[one].node._sends._asked
    assert count_of(net, "sends_around") == 0


def who_never_answers_fills_no_more_than_its_share() -> None:
    """It asks for much, and takes it, and says nothing: another's word is kept, and handed on."""
    net, one, other = hall()
    own = net.hosts[one].node._sends
    third = next(index for index in range(3, HALL) if index not in (one, other))
    subject = net.hosts[one].node._core.table.by_node[net.hosts[third].node.node]
    net.blocked |= {(one, other), (one, third)}
    if subject.where >= 0:
        net.view(one).near.lose(subject, gone=False)
    subject.link.heard_ns = subject.link.replied_ns = net.now
    for _ in range(100):
        say(net, one, other, bytes(60_000))
        say(net, one, other, bytes(100))
        assert sum(asked.kept_bytes for asked in own._asked.values()) == own._kept_bytes <= sends._SHARE_BYTES
    say(net, one, third, b"word")
    assert len(own._asked) == 2
    assert net.run_until(lambda: came(net, third, [b"word"]), 5) is not None
    net.run(5)
    assert own._kept_bytes == 0


def _nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sends, "_ask", lambda self, member: None)


def _nothing_is_handed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sends, "_again", lambda self, member, kept: None)


def _large_ones_are_not(patch: pytest.MonkeyPatch) -> None:
    original = Sends._again
    patch.setattr(Sends, "_again", lambda self, member, kept: kept.frame and original(self, member, kept))


def _it_is_sealed_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Sends,
        "_again",
        lambda self, member, kept: self._perform(self._relay, self._relay.carry(member, kept.message, sure=True)),
    )


def _nobody_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sends, "IN_REACH_NS", -1)


def _all_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sends, "_GAP_NS", 1)
    patch.setattr("swarmd_protocols.swim.prober.Prober.ping_once", lambda self, member, bare=False: _ping(self, member))


def _ping(prober, member) -> None:  # type: ignore[no-untyped-def]
    member.link.blocked_ns = prober.core.now_ns
    prober.send_ping(member, member)


def _all_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sends, "_has_room", lambda self, asked, kept: True)


LAWS: list[tuple[Law, Mutant]] = [
    (who_is_heard_and_never_hears_is_told_all, _nobody_is_asked),
    (a_wall_between_two_that_are_not_near_keeps_nothing_back, _nothing_is_handed_on),
    (a_wall_between_two_that_are_not_near_keeps_nothing_back, _it_is_sealed_anew),
    (what_is_larger_than_a_frame_arrives_too, _large_ones_are_not),
    (walls_that_come_and_go_keep_nothing_back, _nobody_is_asked),
    (who_hears_again_is_sent_to_straight_again, _nobody_is_asked_again),
    (who_answers_is_asked_little, _all_the_time),
    (who_never_answers_fills_no_more_than_its_share, _all_is_kept),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
