"""Laws of a mesh whose air is full: what waits in queues is not sent again, and who is in reach needs nobody.

A hall of robots that hear each other fills its air while it forms. Whatever is asked again, compared or passed on
because nothing has come yet keeps it full then, for good.
"""

from itertools import pairwise
from random import Random

import pytest

from swarmd_protocols.subprotocol import Send
from swarmd_protocols.swim.mesh import near as near_module
from swarmd_protocols.swim.mesh import relay, reports, turns
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.near import NEAR_MAX, Near
from swarmd_protocols.swim.mesh.relay_words import Onward, decode_message
from swarmd_protocols.swim.mesh.reports import NearReports
from tests.support.mesh_net import everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.relay_net import count_of, formed, heard, relay_of, say
from tests.support.swim_net import S

MS = 1_000_000
HALL = 14


def who_answers_slowly_is_asked_again_later() -> None:
    """A hop whose probes take 300 ms has not lost what it has not said within 100 ms that it took.

    Nor has one that has not been probed yet, where all others take as long.
    """
    for own_ns, all_ns in ((300 * MS, 8 * MS), (0, 300 * MS)):
        _is_asked_again_later(own_ns, all_ns)


def _is_asked_again_later(own_ns: int, all_ns: int) -> None:
    net = formed(4)
    one, target = relay_of(net, 1), net.hosts[3].node.node
    core = net.hosts[1].node._core
    core.now_ns = net.now
    core.table.by_node[net.hosts[2].node.node].link.rtt_ns, core.rtt_ns = own_ns, all_ns
    onward = Onward(target, 9, 60_000, True, bytes(8), 0, 1, bytes(100))
    assert one._take(net.hosts[0].node.node, onward, net.now)
    asked = []
    for step in range(30):
        core.now_ns = net.now + step * 50 * MS
        sent = (decode_message(effect.payload) for effect in one._turn(core.now_ns) if isinstance(effect, Send))
        asked += [core.now_ns for part in sent if isinstance(part, Onward)]
    assert len(asked) >= 2, "it is asked again"
    assert min(later - earlier for earlier, later in pairwise(asked)) >= 600 * MS


def who_is_in_reach_needs_nobody() -> None:
    """Nearly all hear all, and eight are near: what is for another goes to it, and is no burden to two."""
    hidden = {(a, b) for a in (0, 1, 2) for b in (HALL - 3, HALL - 2, HALL - 1)}
    net = formed(HALL, everybody(HALL) - hidden)
    rng, told, unproven = Random(4), 0, set()
    for number in range(40):
        source, target = rng.sample(range(3, HALL), 2)
        subject = net.hosts[source].node._core.table.by_node[net.hosts[target].node.node]
        told += subject.where < 0
        if subject.where < 0 and subject.link.replied_ns < 0 and not net.view(source).is_heard(subject):
            unproven.add((source, target))  # It has never been asked whether it hears.
        say(net, source, target, number.to_bytes(2, "big"), sure=bool(number % 2))
        net.run(0.2)
    assert told >= 10, "many are not near"
    assert sum(sum(heard(net, index).values()) for index in range(HALL)) == 40
    assert len(unproven) <= told // 4
    assert count_of(net, "relay_sent") == len(unproven), "and by others once to each of these"


def who_has_just_asked_is_answered_itself() -> None:
    """A frame came from a member that has never been asked anything: the answer takes the same way back."""
    net = formed(5, line(4) | {(3, 4), (0, 4)})
    far = net.hosts[2].node
    net.relink(line(4) | {(3, 4), (0, 4), (0, 2)})
    before = count_of(net, "relay_sent")
    subject = net.hosts[0].node._core.table.by_node[far.node]
    assert subject.where < 0
    subject.link.heard_ns = net.now  # It has asked, and was heard.
    say(net, 0, 2, b"answer", sure=False)
    net.run(0.1)
    assert heard(net, 2)[b"answer"] == 1
    assert count_of(net, "relay_sent") == before


def who_has_fallen_silent_is_reached_through_others() -> None:
    """Its frames come, and its answers do not: what is for it goes by those who reach it."""
    net = formed(5, line(4) | {(3, 4), (0, 4)})
    core = net.hosts[0].node._core
    subject = core.table.by_node[net.hosts[2].node.node]
    core.now_ns = net.now
    net.view(0).near.fell_silent(subject)
    subject.link.heard_ns = net.now
    say(net, 0, 2, b"around", sure=True)
    net.run(0.3)
    assert heard(net, 2)[b"around"] == 1


def no_more_rides_than_a_comparison_brings() -> None:
    """Where no echo comes, for all of them wait in queues, reports of fifty do not all ride in fifty's probes."""
    net = formed(4)
    core = net.hosts[1].node._core
    told: NearReports = net.view(1).reports
    core.now_ns = net.now
    subject = core.table.by_node[net.hosts[2].node.node]
    before = core.counters["near_rides"]
    for _ in range(200):
        core.now_ns += 20 * MS
        told._echoes[subject.node] = 0
        told._ride((subject, subject.report.links_encoded))
    rode = core.counters["near_rides"] - before
    assert 4 <= rode <= 4 * reports._RIDES_PER_S + reports._RIDES_BURST


def who_answers_slowly_is_compared_rarely() -> None:
    """News is on its way to it for as long as its answers are; in less nothing is found that has not been sent."""
    net = formed(4)
    core, repair = net.hosts[1].node._core, net.hosts[1].node._swim.repair
    subject = core.table.by_node[net.hosts[2].node.node]
    found = {}
    for rtt_ns, all_ns in ((8 * MS, 8 * MS), (300 * MS, 8 * MS), (0, 300 * MS)):
        subject.link.rtt_ns, core.rtt_ns, due = rtt_ns, all_ns, 0
        subject.repair.sync_ns = core.now_ns
        for _ in range(240):
            core.now_ns += 50 * MS
            core.changed_ns = core.now_ns  # It is never settled: links change all the time.
            subject.repair.sync_gap_ns = 0  # Each comparison closes what it found.
            due += repair.sections_due(subject, True)
        found[rtt_ns] = due
    assert found[8 * MS] >= 12 * 3, "as a swarm that forms is"
    assert 4 <= found[300 * MS] <= 12 * S // (8 * 300 * MS)
    assert 4 <= found[0] <= 12 * S // (8 * 300 * MS), "who has not been probed yet is as slow as all others"


def echoes_of_who_is_not_probed_yet_take_as_long_as_all() -> None:
    """Half of those that are near have just come near: their echoes wait in queues as all do."""
    net = formed(5, everybody(5) - {(0, 4)})
    core = net.hosts[1].node._core
    core.rtt_ns = 300 * MS
    for member in core.table.reachable:
        member.link.rtt_ns = 0
    near = len(core.table.reachable)
    told = net.view(1).reports
    assert told._window_ns() == 150 * MS * max(1, near - reports._ECHOES)
    net = formed(4)
    core, told = net.hosts[1].node._core, net.view(1).reports
    core.now_ns, core.rtt_ns = net.now, 300 * MS
    for member in core.table.reachable:
        member.link.rtt_ns = 0
    due: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(core.scheduler), "at", lambda self, at_ns, *_: due.append(at_ns - core.now_ns))
        told._await_echo(core.own.node, b"said")
    assert due == [450 * MS], "nor is a report cast again before one could have come"


def _at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relay, "ACK_MAX_NS", relay.ACK_NS)


def _nobody_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "is_heard", lambda self, member: False)


def _who_asks_is_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "has_spoken", lambda self, member, within_ns: False)


def _silence_is_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "is_heard", lambda self, member: self.core.now_ns - member.link.heard_ns < S)


def _all_ride(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports.TokenBucket, "take", lambda self, now_ns, amount=1: True)


def _all_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.swim.repair._TRIPS", 0)


def nobodys_life_hangs_on_one_link() -> None:
    """In a hall of twenty-four all choose eight to be near: three of them at least choose each in turn.

    A chain leads over links that both ends report. With one such link a node that all hear was failed when that one
    fell silent for a second.
    """
    count = 24
    hidden = {(a, b) for a in (0, 1, 2) for b in (count - 3, count - 2, count - 1)}
    net = formed(count, everybody(count) - hidden, 3)
    net.run(20)
    for index, host in enumerate(net.hosts):
        table, told = host.node._core.table, net.view(index).reports.heard
        both = [member for member in table.reachable if host.node.node[:KEY_BYTES] in told.get(member.node, {})]
        assert len(both) >= turns.BOTH_WANTED, index
        assert len(table.reachable) <= NEAR_MAX + turns.BOTH_WANTED


def what_a_lost_link_cost_is_learnt() -> None:
    """Who answers within two seconds of the loss of its link was there all the while; who comes later had moved."""
    for away_s, is_learnt in ((0.1, True), (4.0, False)):
        net = formed(4)
        core = net.hosts[1].node._core
        lost, before = core.counters["near_lost"], core.round_trip_loss
        net.relink(line(4) - {(1, 2)})
        assert net.run_until(lambda core=core, lost=lost: core.counters["near_lost"] > lost, 6, 0.01) is not None
        net.run(away_s)
        net.relink(line(4))
        gained = core.counters["near_gained"]
        regained = net.run_until(lambda core=core, gained=gained: core.counters["near_gained"] > gained, 9, 0.01)
        assert regained is not None
        assert (core.round_trip_loss > before + 0.1) is is_learnt, (away_s, before, core.round_trip_loss)


def _nobody_learns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "answered", lambda self, member: 0)


def _all_is_learnt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(near_module, "_MISSED_NS", 60 * S)


def _who_is_near_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "BOTH_WANTED", 0)


def _unknown_is_nothing(patch: pytest.MonkeyPatch) -> None:
    def window_ns(self: NearReports) -> int:
        trips = sorted(member.link.rtt_ns for member in self.core.table.reachable)
        return max(reports._RECAST_NS, trips[3 * len(trips) // 4] // 2) * max(1, len(trips) - reports._ECHOES)

    patch.setattr(NearReports, "_window_ns", window_ns)


LAWS: list[tuple[Law, Mutant]] = [
    (what_a_lost_link_cost_is_learnt, _nobody_learns),
    (what_a_lost_link_cost_is_learnt, _all_is_learnt),
    (nobodys_life_hangs_on_one_link, _who_is_near_is_enough),
    (echoes_of_who_is_not_probed_yet_take_as_long_as_all, _unknown_is_nothing),
    (who_answers_slowly_is_asked_again_later, _at_once),
    (who_is_in_reach_needs_nobody, _nobody_is),
    (who_has_just_asked_is_answered_itself, _who_asks_is_not),
    (who_has_fallen_silent_is_reached_through_others, _silence_is_nothing),
    (no_more_rides_than_a_comparison_brings, _all_ride),
    (who_answers_slowly_is_compared_rarely, _all_the_time),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
