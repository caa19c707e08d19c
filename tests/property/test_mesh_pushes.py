"""News in a mesh: what was lost is said again at once, a crowd goes on hop by hop, first contacts are not late."""

import pytest

from swarmd_protocols.channel.contact import Contacts
from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim import pushes, swim
from swarmd_protocols.swim.echoes import Echoes
from swarmd_protocols.swim.mesh import near
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.pushes import Pushes
from tests.support.mesh_net import MeshNet, line
from tests.support.mutants import assert_found
from tests.support.swim_net import S

COUNT = 8


def formed(count: int, seed: int) -> MeshNet:
    net = MeshNet(count, line(count), seed)
    assert net.run_until(net.formed, 20) is not None
    net.run(10)
    return net


def holders(net: MeshNet, name: str) -> int:
    return sum(event.name == name for _, _, event in net.delivered())


def what_is_lost_on_a_hop_is_said_again_at_once() -> None:
    """Within 40 ms; a probe that carries it comes by within 250 ms."""
    net = formed(COUNT, 1)
    for number in range(12):
        hop = number % (COUNT - 1)
        net.feed(0, UserEvent(f"{number}", b""))
        net.run((hop + 0.5) / 1_000)
        net.relink(line(COUNT) - {(hop, hop + 1)})
        net.run(0.001)
        net.relink(line(COUNT))
        net.run(0.039)
        assert holders(net, f"{number}") == COUNT, f"hop {hop}"
        net.run(0.7)


def a_report_that_is_lost_on_a_hop_is_cast_again_at_once() -> None:
    """The last of a line is cut off: all others hear what its neighbour reports, though one hop loses the cast."""
    for hop in range(1, COUNT - 2):
        net = formed(COUNT, 1)
        author = net.hosts[COUNT - 2].node._core
        reports = author.counters["near_reports"]
        cut = line(COUNT) - {(COUNT - 2, COUNT - 1)}
        net.relink(cut)
        while author.counters["near_reports"] == reports:
            net.run(0.000_25)
        behind = COUNT - 2 - hop
        net.run((hop - 0.5) / 1_000)
        net.relink(cut - {(behind - 1, behind)})
        net.run(0.001)
        net.relink(cut)
        net.run(0.06)
        key = net.hosts[COUNT - 1].node.node[:KEY_BYTES]
        told = [net.view(index).reports.heard[author.own.node] for index in range(COUNT - 2)]
        assert all(key not in heard for heard in told), f"hop {hop}"


def nothing_is_cast_again_where_nothing_is_lost() -> None:
    """But by who is at the edge, whose neighbour may be told by others."""
    net = formed(COUNT, 1)
    cores = [host.node._core for host in net.hosts]
    before = sum(core.counters["near_casts_again"] for core in cores)
    for _ in range(6):
        net.relink(line(COUNT) - {(3, 4)})
        net.run(3)
        net.relink(line(COUNT))
        net.run(3)
    assert sum(core.counters["near_reports"] for core in cores) >= 20
    assert sum(core.counters["near_casts_again"] for core in cores) - before <= 2


def nothing_is_said_twice_where_nothing_is_lost() -> None:
    net = formed(COUNT, 1)
    cores = [host.node._core for host in net.hosts]
    before = sum(core.counters["pushes_again"] for core in cores)
    for number in range(20):
        net.feed(number % COUNT, UserEvent(f"{number}", b""))
        net.run(0.3)
    assert sum(core.counters["pushes_again"] for core in cores) == before


def who_never_echoes_takes_no_more_than_its_repeats() -> None:
    """Where one falls silent its neighbour says little to it twice, until the link is lost."""
    net = formed(3, 1)
    middle = net.hosts[1].node._core
    before, began_ns = middle.counters["pushes_again"], net.now
    net.hosts[2].dark = True
    for number in range(60):
        net.feed(0, UserEvent(f"{number}", b""))
        net.run(0.025)
    again = middle.counters["pushes_again"] - before
    assert 1 <= again <= pushes._REPEATS_BURST + pushes._REPEATS_PER_S * (net.now - began_ns) / S


def whoever_brought_it_is_told_last() -> None:
    net = formed(3, 1)
    for number in range(8):
        net.keep_frames, net.frames = True, []
        net.feed(0, UserEvent(f"{number}", b""))
        net.run(0.004)
        from_middle = [to for sender, to, _ in net.frames if sender == 1]
        assert from_middle[:1] == [2], f"event {number}"
        net.keep_frames = False
        net.run(0.6)


def a_crowd_goes_on_hop_by_hop() -> None:
    """Two halves of a line meet: ten at once are known nine hops on before a comparison could bring them."""
    count = 20
    net = MeshNet(count, line(count) - {(9, 10)}, 1)
    net.run(15)
    assert [len(net.states(index)) for index in (0, 9, 10, 19)] == [10, 10, 10, 10]
    net.relink(line(count))
    assert net.run_until(lambda: len(net.states(10)) == count, 10) is not None
    assert net.run_until(lambda: all(len(net.states(index)) == count for index in range(count)), 0.15) is not None


def an_answer_does_not_wait_for_the_greeting_before_it() -> None:
    """A node is greeted in vain just before it begins: it knows who is there with the first answer all the same."""
    for offset in range(12):
        net = MeshNet(2, line(2), 1)
        net.kill(1)
        net.run(0.5 + 0.03 * offset)
        net.restart(1)
        assert net.run_until(lambda net=net: net.sees(1, 0) is not None, 0.02, 0.001) is not None, offset


def a_seed_is_greeted_again_though_another_has_answered() -> None:
    """On a line each of the two leads to half of it. Who is there has others, and greets it each three seconds."""
    for seed in range(1, 5):
        net = MeshNet(4, line(4), seed, casts=False)
        net.kill(1)
        net.run(4)
        net.relink({(0, 1), (2, 3)})
        net.restart(1)
        net.run(0.05)
        assert net.sees(1, 0) is not None
        net.relink(line(4))
        assert net.run_until(lambda net=net: net.sees(1, 2) is not None, 0.7) is not None, f"seed {seed}"


def who_hears_nothing_new_casts_rarely() -> None:
    """Beacons of a minute in which the same are near, and of one after somebody was lost; reports are casts too."""
    net = formed(3, 1)
    net.run(60)
    counts = net.hosts[0].node._core.counters
    before = counts["casts_out"]
    net.run(60)
    calm = counts["casts_out"] - before
    net.kill(1)
    net.run(10)
    before = counts["casts_out"]
    net.run(40)
    assert 35 <= calm <= 46
    assert counts["casts_out"] - before >= 36


LAWS = [
    who_hears_nothing_new_casts_rarely,
    what_is_lost_on_a_hop_is_said_again_at_once,
    a_report_that_is_lost_on_a_hop_is_cast_again_at_once,
    nothing_is_cast_again_where_nothing_is_lost,
    nothing_is_said_twice_where_nothing_is_lost,
    who_never_echoes_takes_no_more_than_its_repeats,
    whoever_brought_it_is_told_last,
    a_crowd_goes_on_hop_by_hop,
    an_answer_does_not_wait_for_the_greeting_before_it,
    a_seed_is_greeted_again_though_another_has_answered,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_pushes_in_a_mesh(law) -> None:  # type: ignore[no-untyped-def]
    law()


def nothing_is_said_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pushes, "_push_again", lambda self, awaited: None)


def no_report_is_cast_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "_cast_again", lambda self, awaited: None)


def no_report_is_heard_again(patch: pytest.MonkeyPatch) -> None:
    original = NearReports._cast_again

    def again(self: NearReports, awaited: tuple[bytes, bytes]) -> None:
        self._awaited[awaited[0]] = awaited[1]
        original(self, awaited)

    patch.setattr(NearReports, "_cast_again", again)


def all_is_said_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pushes, "_may_repeat", lambda self, member: True)


def echoes_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Echoes, "heard", lambda self, about, holder: None)


def the_order_is_by_chance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Pushes, "_targets", lambda self: self._core.table.sample(self._core.rng, self._core.view.push_fanout())
    )


def a_crowd_waits(patch: pytest.MonkeyPatch) -> None:
    original = Pushes.flush

    def flush(self: Pushes) -> None:
        if sum(update.priority == pushes.RECORD for update in self._core.queue._urgent) > pushes._RECORDS_PUSHED:
            self._core.queue._urgent = [one for one in self._core.queue._urgent if one.priority != pushes.RECORD]
            self._core.queue.settle(pushes.RECORD)
        original(self)

    patch.setattr(Pushes, "flush", flush)


def an_answer_waits(patch: pytest.MonkeyPatch) -> None:
    original = Contacts.hello

    def hello(self, address, parts, group, now_ns, *, extra, paid):  # type: ignore[no-untyped-def]
        return original(self, address, parts, group, now_ns, extra=extra, paid=False)

    patch.setattr(Contacts, "hello", hello)


def one_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(swim, "strange", lambda core, addresses: [])


def it_casts_each_second(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(near, "_CALM_BEACON_NS", near.BEACON_NS)


def it_is_calm_whoever_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(near, "_CALM_NS", 0)


MUTANTS = [
    (it_casts_each_second, who_hears_nothing_new_casts_rarely),
    (it_is_calm_whoever_is_lost, who_hears_nothing_new_casts_rarely),
    (nothing_is_said_again, what_is_lost_on_a_hop_is_said_again_at_once),
    (no_report_is_cast_again, a_report_that_is_lost_on_a_hop_is_cast_again_at_once),
    (no_report_is_heard_again, nothing_is_cast_again_where_nothing_is_lost),
    (echoes_are_not_heard, nothing_is_said_twice_where_nothing_is_lost),
    (all_is_said_again, who_never_echoes_takes_no_more_than_its_repeats),
    (the_order_is_by_chance, whoever_brought_it_is_told_last),
    (a_crowd_waits, a_crowd_goes_on_hop_by_hop),
    (an_answer_waits, an_answer_does_not_wait_for_the_greeting_before_it),
    (one_answer_is_enough, a_seed_is_greeted_again_though_another_has_answered),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_the_mutant_is_caught(mutant, law, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    assert_found(mutant, law, monkeypatch)
