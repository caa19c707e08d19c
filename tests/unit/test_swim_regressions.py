"""Faults that random search found in whole swarms, each as the shortest story that shows it."""

import pytest

from swarmd_protocols.channel.channel import GROUP
from swarmd_protocols.effects import HostAnswer, HostProbed, MemberState, SetMeta, UserEvent
from swarmd_protocols.swim.swim import Swim
from tests.support.swim_net import Net


def formed(count=4):
    net = Net(count)
    assert net.run_until(net.formed, 3) is not None
    net.run(1)
    return net


def meta_of(net, subject, at):
    return next(row.meta for row in net.hosts[at].node.members() if row.name == f"n{subject:03d}")


def test_the_swarm_returns_metadata_whose_journal_was_lost():
    net = formed()
    net.feed(0, SetMeta("key", b"x"))
    net.run(1)
    net.kill(0)
    net.restart(0, keep_journal=False)
    assert net.run_until(lambda: net.formed() and net.agreed(), 5) is not None
    assert all(meta_of(net, 0, at) == {"key": b"x"} for at in range(4))
    assert b"swim/meta/key" in net.hosts[0].journal


@pytest.mark.parametrize("before", [[b"1"], [b"1", b"2", b"3"]])
def test_metadata_set_in_this_life_goes_above_what_the_swarm_remembers(before):
    net = formed()
    for value in before:
        net.feed(0, SetMeta("key", value))
    net.run(1)
    net.kill(0)
    net.restart(0, keep_journal=False)
    net.feed(0, SetMeta("key", b"new"))
    assert net.run_until(lambda: net.formed() and net.agreed(), 5) is not None
    assert all(meta_of(net, 0, at) == {"key": b"new"} for at in range(4))


@pytest.mark.parametrize("size", [20_000, 60_000])
def test_remembered_metadata_that_no_longer_fits_is_deleted_everywhere(size):
    net = formed()
    net.feed(0, SetMeta("old", bytes(size)))
    net.run(1)
    net.kill(0)
    net.restart(0, keep_journal=False)
    net.feed(0, SetMeta("new", bytes(30_000)))
    assert net.run_until(lambda: net.formed() and net.agreed(), 30) is not None
    expected = {"new", "old"} if size == 20_000 else {"new"}
    assert all(set(meta_of(net, 0, at)) == expected for at in range(4))


def test_a_link_report_about_an_earlier_life_is_taken_back():
    net = Net(4)
    net.blocked |= {(0, 2), (1, 2)}
    degraded = MemberState.DEGRADED
    assert net.run_until(lambda: net.all_see(degraded, 2, [0, 1, 3]), 5) is not None
    net.blocked.clear()
    net.kill(2)
    net.restart(2)
    net.run(2)
    assert all(not row.links for host in net.hosts for row in host.node.members())
    assert net.run_until(lambda: net.formed() and net.agreed(), 5) is not None


def test_records_that_are_known_cost_neither_an_answer_nor_a_ride():
    """While a swarm forms, five of six records are known; afterwards nothing of them is left to be sent."""
    net = Net(24)
    assert net.run_until(net.formed, 1) is not None
    net.run(1.5)
    assert net.agreed()
    assert all(len(host.node._core.queue) == 0 for host in net.hosts)
    assert sum(host.packets_out for host in net.hosts) < 24 * 60


@pytest.mark.parametrize("lost", [1, 2])
def test_the_first_lost_answers_of_a_host_are_no_proof_of_its_death(lost):
    """Fuzz seeds 403 and 731904447: the first answers of a frozen node's host were lost while hardly any pings were."""
    net = Net(7)
    assert net.run_until(net.formed, 10) is not None
    net.run(3)
    begin, asked = net.now, dict.fromkeys(range(7), 0)
    answer = net.probe_host

    def first_are_lost(host, effect):
        asked[host.index] += 1
        if asked[host.index] > lost:
            answer(host, effect)
        else:
            silent = HostProbed(effect.destination, HostAnswer.SILENT)
            net.at(net.now + effect.timeout_ns, lambda: net.feed(host.index, silent))

    net.probe_host = first_are_lost
    net.freeze(5)
    net.run(9)
    assert max(asked.values()) > lost
    assert net.changes(MemberState.FAILED, begin) == []


def test_five_lost_answers_of_a_host_that_has_answered_are_no_proof_of_its_death():
    """Fuzz seed 736: of a frozen node's host, which had answered it, one node lost four answers in a row."""
    net = Net(7)
    assert net.run_until(net.formed, 10) is not None
    net.run(3)
    begin, asked = net.now, dict.fromkeys(range(7), 0)
    answer = net.probe_host

    def all_but_each_sixth_are_lost(host, effect):
        asked[host.index] += 1
        if asked[host.index] % 6 == 1:
            answer(host, effect)
        else:
            silent = HostProbed(effect.destination, HostAnswer.SILENT)
            net.at(net.now + effect.timeout_ns, lambda: net.feed(host.index, silent))

    net.probe_host = all_but_each_sixth_are_lost
    net.freeze(5)
    net.run(9)
    assert max(asked.values()) > 6
    assert net.changes(MemberState.FAILED, begin) == []


def test_two_lost_answers_of_a_host_are_no_proof_where_others_are_answered():
    """Fuzz seed 144: one node lost two answers of a frozen node's host that another had already heard answer."""
    net = Net(7)
    assert net.run_until(net.formed, 10) is not None
    net.run(3)
    begin, asked = net.now, dict.fromkeys(range(7), 0)
    answer = net.probe_host

    def two_are_lost_later(host, effect):
        asked[host.index] += 1
        if host.index < 2 or asked[host.index] > 2:
            answer(host, effect)
        else:
            silent = HostProbed(effect.destination, HostAnswer.SILENT)
            net.at(net.now + effect.timeout_ns, lambda: net.feed(host.index, silent))

    net.probe_host = two_are_lost_later
    net.freeze(5)
    net.run(9)
    assert net.changes(MemberState.FAILED, begin) == []
    assert max(asked[index] for index in range(2, 7)) > 2


def test_who_is_not_heard_waits_with_a_gap_until_it_can_ask():
    net = formed(5)
    mute = {(4, other) for other in range(4)}
    net.blocked |= mute | {(other, 4) for other in range(4)}
    net.feed(0, UserEvent("first", b""))
    net.run(0.5)
    net.blocked = set(mute)
    net.run(1)
    net.feed(0, UserEvent("second", b""))
    net.run(9)
    net.blocked = set()
    net.run(10)
    heard = [event.name for _, index, event in net.delivered() if index == 4]
    assert heard == ["first", "second"]


def test_seeds_where_nobody_is_keep_no_lost_member_waiting(monkeypatch):
    """There is one try a second, and three such seeds took all of them."""
    monkeypatch.setattr(Swim, "_tries_a_seed", lambda _: True)
    net = formed(2)
    net.kill(0)
    net.run(12)
    assert [member.name for member in net.hosts[1].node._core.table.lost.values()] == ["n000"]
    net.keep_frames = True
    net.run(20)
    assert sum(target == 0 for _, target, _ in net.frames) >= 3


def test_who_is_alone_greets_those_whom_it_does_not_call_failed():
    """What it could be told by them may be under a group key that it does not hold."""
    net = formed(3)
    node = net.hosts[0].node
    net.cut([0], [1, 2])
    net.run(8)
    assert not node._core.table.lost, "nobody else says that they are silent"
    net.keep_frames = True
    net.run(35)
    hellos = {target for _, target, data in net.frames if target in (1, 2) and data[0] & 15 == GROUP}
    assert hellos == {1, 2}


def test_metadata_that_a_flipped_bit_has_made_is_left_out():
    """It reads as a value of another key, which the node showed and nobody else took."""
    net = formed(3)
    net.feed(0, SetMeta("key", b"x"))
    net.run(1)
    net.kill(0)
    journal = net.hosts[0].journal
    journal[b"swim/meta/key"] = journal[b"swim/meta/key"].replace(b"key", b"kez")
    net.restart(0)
    assert net.run_until(lambda: net.formed() and net.agreed(), 5) is not None
    assert all(meta_of(net, 0, at) == {"key": b"x"} for at in range(3))
