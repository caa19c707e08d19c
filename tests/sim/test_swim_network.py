"""Membership on a simulated network: the bars of detection, loss, freezes, partitions, storms, events.

The papers' promises and the project's own bars; figures beside real processes stand in docs/performance.md.
"""

from functools import partial
from random import Random
from statistics import median

import pytest

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import GoAway, Leave, MemberChanged, MemberState, SetMeta, Started, UserEvent
from swarmd_protocols.swim.config import SwimConfig
from tests.support.swim_net import MS, Net, S

ALIVE, FAILED, DEGRADED, SUSPECT = MemberState.ALIVE, MemberState.FAILED, MemberState.DEGRADED, MemberState.SUSPECT


def formed_net(count, seed=1, settle=3.0, **options):
    net = Net(count, seed, **options)
    assert net.run_until(net.formed, 10) is not None
    net.run(settle)
    return net


def number(effect):
    return int(effect.name[1:])


@pytest.mark.parametrize(("count", "bar_s"), [(2, 0.1), (8, 0.2), (32, 1.0), (64, 1.0)])
def test_formation(count, bar_s):
    net = Net(count)
    took = net.run_until(net.formed, 10)
    assert took is not None
    assert took <= bar_s
    assert net.run_until(net.agreed, 2) is not None


def test_formation_with_real_cryptography_and_no_straggler_at_loss():
    for seed in range(4):
        net = Net(8, seed, crypto=NaClCrypto(), loss=0.2)
        assert net.run_until(lambda net=net: net.formed() and net.agreed(), 8) is not None


def _detections(count, seeds, how, trials=3):
    """Seconds from the fault until every survivor knows; and healthy members declared failed on the way."""
    took, false = [], 0
    for seed in range(seeds):
        net = formed_net(count, seed)
        for _ in range(trials):
            victim, begin = net.rng.randrange(count), net.now
            how(net, victim, True)
            others = [index for index in range(count) if index != victim]
            took.append(net.run_until(partial(net.all_see, FAILED, victim, others), 20, 0.005) or 20.0)
            false += sum(number(e) != victim and who != victim for _, who, e in net.changes(FAILED, begin))
            how(net, victim, False)
            assert net.run_until(net.formed, 10) is not None
            net.run(1.5)
    return sorted(took), false


def _crash(net, victim, on):
    net.kill(victim) if on else net.restart(victim)


def _darken(net, victim, on):
    net.hosts[victim].dark = on


@pytest.mark.parametrize("count", [8, 32])
def test_crash_is_known_everywhere(count):
    """SIGKILL, kernel alive: p50 <= 0.8 s, p99 <= 1.5 s."""
    took, false = _detections(count, 4, _crash)
    assert median(took) <= 0.8
    assert took[-1] <= 1.5
    assert false == 0


@pytest.mark.parametrize("count", [8, 32])
def test_blackout_is_known_everywhere(count):
    """Silence without any refusal: p50 <= 2 s, p99 <= 4 s."""
    took, false = _detections(count, 3, _darken)
    assert median(took) <= 2.0
    assert took[-1] <= 4.0
    assert false == 0


def test_crash_without_refusals_still_ends_in_failed():
    net = formed_net(6, icmp=False)
    net.kill(3)
    assert net.run_until(lambda: net.all_see(FAILED, 3), 5) is not None


def test_lean_profile_detects_within_three_seconds_on_300_bytes():
    net = formed_net(8, swim=SwimConfig.lean(), settle=5)
    for host in net.hosts:
        host.bytes_out = 0
    net.run(30)
    assert sum(host.bytes_out for host in net.hosts) / 8 / 30 <= 300
    net.kill(5)
    assert net.run_until(lambda: net.all_see(FAILED, 5), 10) <= 3.0


@pytest.mark.parametrize("count", [8, 64])
def test_steady_state_keeps_the_budget(count):
    """At most 1,000 B/s and 12 packets/s a node, headers included."""
    net = formed_net(count)
    for host in net.hosts:
        host.bytes_out = host.packets_out = 0
    net.run(10)
    assert sum(host.bytes_out for host in net.hosts) / count / 10 <= 1_000
    assert sum(host.packets_out for host in net.hosts) / count / 10 <= 12


@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_loss_makes_no_healthy_member_fail(loss):
    net = formed_net(16)
    quiet = _bytes_per_s(net, 10)
    net.loss = loss
    net.run(5)
    begin = net.now
    lossy = _bytes_per_s(net, 60)
    assert net.changes(FAILED, begin) == []
    assert lossy <= 2 * quiet
    net.kill(7)
    assert net.run_until(lambda: net.all_see(FAILED, 7), 10) <= 3.0


def _bytes_per_s(net, seconds):
    for host in net.hosts:
        host.bytes_out = 0
    net.run(seconds)
    return sum(host.bytes_out for host in net.hosts) / len(net.hosts) / seconds


@pytest.mark.parametrize(("seconds", "may_fail"), [(5, False), (16, True)])
def test_frozen_members_are_degraded_and_accuse_nobody(seconds, may_fail):
    """Lifeguard's case: a process that is stopped neither dies of it nor takes others along."""
    net = formed_net(10)
    frozen = [1, 2, 3, 4]
    begin = net.now
    for _ in range(2):
        for index in frozen:
            net.freeze(index)
        net.run(seconds)
        assert net.all_see(DEGRADED, 1, [0, 5, 9]) or may_fail
        for index in frozen:
            net.thaw(index)
        assert net.run_until(net.formed, 3) <= 1.0
        net.run(5)
    failed = net.changes(FAILED, begin)
    assert not [e for _, _, e in failed if number(e) not in frozen]
    assert may_fail or not failed


def test_without_host_answers_a_five_second_freeze_is_still_no_failure():
    net = formed_net(8, host_answers=False)
    begin = net.now
    net.freeze(2)
    net.run(5)
    net.thaw(2)
    assert net.run_until(net.formed, 3) is not None
    assert net.changes(FAILED, begin) == []
    net.hosts[2].dark = True
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1, 3, 4, 5, 6, 7]), 15) is not None


@pytest.mark.parametrize("count", [8, 24])
def test_partition_is_agreed_and_heals_within_three_seconds(count):
    net = formed_net(count)
    left, right = list(range(count // 2)), list(range(count // 2, count))
    net.cut(left, right)
    begin = net.now

    def agreed():
        return all(net.all_see(FAILED, b, left) for b in right) and all(net.all_see(FAILED, a, right) for a in left)

    assert net.run_until(agreed, 10, 0.05) is not None
    net.run(45)
    same_side = [e for _, who, e in net.changes(FAILED, begin) if (number(e) < count // 2) == (who < count // 2)]
    assert same_side == []
    net.blocked.clear()
    assert net.run_until(net.formed, 5) <= 3.0
    assert net.run_until(net.agreed, 3) is not None


def test_a_day_apart_heals_by_itself():
    net = formed_net(4, swim=SwimConfig(protocol_period_ns=2 * S))
    net.cut([0, 1], [2, 3])
    net.run(24 * 360)
    net.blocked.clear()
    assert net.run_until(net.formed, 60) is not None


def test_a_deaf_member_fails_nobody_and_is_named():
    """It sends but hears nothing: degraded, reported as such, and it declares nobody."""
    net = formed_net(8)
    begin = net.now
    net.cut([0, 1, 2, 3, 4, 5, 6], [7], one_way=True)
    net.run(20)
    assert [e for _, who, e in net.changes(FAILED, begin) if who == 7] == []
    assert [e for _, who, e in net.changes(FAILED, begin) if number(e) != 7] == []
    assert net.all_see(DEGRADED, 7)
    links = [line for row in net.hosts[0].node.members() for line in row.links]
    assert any("n007 does not hear" in line for line in links)
    net.blocked.clear()
    assert net.run_until(net.formed, 5) <= 2.0


def test_a_mute_member_is_known_as_failed_and_returns():
    net = formed_net(8)
    net.cut([7], [0, 1, 2, 3, 4, 5, 6], one_way=True)
    assert net.run_until(lambda: net.all_see(FAILED, 7, list(range(7))), 10) is not None
    net.blocked.clear()
    assert net.run_until(net.formed, 5) <= 3.0


def test_one_broken_pair_is_degraded_between_the_two_and_failed_nowhere():
    net = formed_net(6)
    begin = net.now
    net.cut([2], [4])
    net.run(15)
    assert net.changes(FAILED, begin) == []
    assert net.states(2)["n004"] is DEGRADED
    assert net.states(4)["n002"] is DEGRADED
    links = [line for row in net.hosts[0].node.members() for line in row.links]
    assert "n002 reaches n004 only through others" in links
    rows = {row.name: dict(row.row) for row in net.hosts[0].node.members()}
    ids = {row.name: row.node for row in net.hosts[0].node.members()}
    assert rows["n002"][ids["n004"]] == rows["n004"][ids["n002"]] == "indirect"
    assert not rows["n000"], "each member's row is its own word"
    net.blocked.clear()
    assert net.run_until(net.formed, 5) <= 2.5


def test_a_network_that_refuses_to_send_shows_no_perfect_swarm():
    """The trap of an old memberlist: EPERM on every send, and nobody was ever suspected."""
    net = formed_net(5)
    begin = net.now
    net.hosts[2].dark = True
    net.run(10)
    assert all(state is not ALIVE for name, state in net.states(2).items() if name != "n002")
    assert [e for _, who, e in net.changes(FAILED, begin) if who == 2] == [], "alone, it blames itself"


@pytest.mark.parametrize("keep", [True, False])
def test_everybody_restarts_within_a_second(keep):
    net = formed_net(24)
    order = Random(3)

    def again(index):
        net.kill(index)
        net.at(net.now + 50 * MS, lambda: net.restart(index, keep_journal=keep or index % 3 > 0))

    for index in range(24):
        net.at(net.now + int(order.random() * S), lambda index=index: again(index))
    net.run(1.1)
    assert net.run_until(lambda: net.formed() and net.agreed(), 5) <= 3.0


def test_a_member_that_lost_its_disk_comes_back_above_its_earlier_life():
    net = formed_net(5)
    for _ in range(3):
        before = net.hosts[3].node.members()[3].incarnation
        net.kill(3)
        net.run(3)
        net.restart(3, keep_journal=False)
        assert net.run_until(net.formed, 5) is not None
        assert net.hosts[3].node.members()[3].incarnation > before
        net.run(1)


@pytest.mark.parametrize(("loss", "bar_s"), [(0.0, 0.1), (0.1, 0.4), (0.3, 1.5)])
def test_user_events_reach_everybody_once_and_in_order(loss, bar_s):
    count, events = 32, 20
    net = formed_net(count, loss=0.0)
    net.loss = loss
    sent, took = [], []
    for index in range(events):
        origin, begin = net.rng.randrange(count), net.now
        net.feed(origin, UserEvent(f"e{index}", b"payload"))
        sent.append((origin, f"e{index}"))
        net.run(1.0)
        arrived = [at for at, _, e in net.delivered() if e.name == f"e{index}"]
        took.append((max(arrived) - begin) / S)
    net.run(10)
    for observer in range(count):
        got = [(e.origin_name, e.name) for _, who, e in net.delivered() if who == observer]
        assert len(got) == len(set(got)) == events
        for origin in range(count):
            expected = [name for who, name in sent if who == origin]
            assert [name for who, name in got if who == f"n{origin:03d}"] == expected
    assert median(took) <= bar_s


def test_events_cross_a_healed_partition():
    net = formed_net(6)
    net.cut([0, 1, 2], [3, 4, 5])
    net.run(8)
    for index in range(5):
        net.feed(1, UserEvent(f"left{index}", b""))
        net.feed(4, UserEvent(f"right{index}", b""))
    net.run(2)
    net.blocked.clear()
    net.run(6)
    for observer in range(6):
        assert len([1 for _, who, _ in net.delivered() if who == observer]) == 10


def test_a_newcomer_is_not_told_what_was_said_before():
    net = formed_net(3)
    net.feed(0, UserEvent("old", b""))
    net.run(1)
    net.kill(2)
    net.run(3)
    net.restart(2, keep_journal=False)
    net.run(3)
    net.feed(0, UserEvent("new", b""))
    net.run(2)
    assert [e.name for _, who, e in net.delivered() if who == 2] == ["old", "new"]


def test_leaving_is_no_failure():
    net = formed_net(6)
    begin = net.now
    net.feed(3, Leave())
    assert net.run_until(lambda: net.all_see(MemberState.LEFT, 3), 2) <= 0.5
    net.kill(3)
    net.run(5)
    assert net.changes(FAILED, begin) == []
    assert net.changes(SUSPECT, begin) == []
    net.restart(3)
    assert net.run_until(net.formed, 3) is not None


def test_an_announced_absence_is_no_failure_until_it_is_over():
    net = formed_net(6)
    begin = net.now
    net.feed(2, GoAway(10 * S))
    assert net.run_until(lambda: net.all_see(MemberState.AWAY, 2), 2) <= 0.5
    net.hosts[2].dark = True
    net.run(8)
    assert net.all_see(MemberState.AWAY, 2, [0, 1, 3, 4, 5])
    assert net.changes(FAILED, begin) == []
    net.run(12)
    assert net.all_see(FAILED, 2, [0, 1, 3, 4, 5]), "it stayed away longer than it said"
    net.hosts[2].dark = False
    assert net.run_until(net.formed, 6) is not None


def test_coming_back_early():
    net = formed_net(4)
    net.feed(2, GoAway(60 * S))
    net.run(2)
    net.feed(2, GoAway(0))
    assert net.run_until(net.formed, 2) <= 0.5


def test_metadata_is_everywhere_soon_and_small_changes_stay_small():
    net = formed_net(8)
    net.feed(3, SetMeta("map", b"m" * 60_000))
    net.feed(3, SetMeta("note", b"first"))

    def known(key, value):
        rows = [row for host in net.hosts for row in host.node.members() if row.name == "n003"]
        return len(rows) == 8 and all(row.meta.get(key) == value for row in rows)

    assert net.run_until(lambda: known("note", b"first"), 3) <= 0.5
    assert net.run_until(lambda: known("map", b"m" * 60_000), 5) is not None
    net.run(2)
    streams = net.kinds["streams"]
    net.feed(3, SetMeta("note", b"0123456789abcdef"))
    assert net.run_until(lambda: known("note", b"0123456789abcdef"), 3) <= 0.5
    net.run(2)
    assert net.kinds["streams"] == streams, "a small change does not send the large key again"
    net.kill(3)
    net.run(3)
    net.restart(3)
    assert net.run_until(lambda: known("note", b"0123456789abcdef"), 5) is not None
    net.feed(3, SetMeta("note", b""))
    assert net.run_until(lambda: known("note", None), 3) is not None


def _datagrams_of_a_start(says):
    """Datagrams of 24 nodes that start one by one, every 100 ms, until half a second after the last is known."""
    net = Net(24, 3, start=False)
    for index in range(24):
        net.feed(index, Started())
        if says:
            net.feed(index, SetMeta("trust", bytes(90)))
        net.run(0.1)
    net.run(0.5)
    assert net.formed()
    return sum(host.packets_out for host in net.hosts), net


def test_what_newcomers_say_first_rides_while_a_swarm_forms():
    quiet, _ = _datagrams_of_a_start(False)
    telling, net = _datagrams_of_a_start(True)
    assert telling <= 1.25 * quiet, "pushed by everybody who hears it, it would be one datagram in two"
    everybody = lambda: all(row.meta.get("trust") for host in net.hosts for row in host.node.members())  # noqa: E731
    assert net.run_until(everybody, 5) is not None


def test_metadata_set_to_what_it_is_says_nothing():
    net = formed_net(8)
    net.feed(3, SetMeta("trust", b"same"))
    net.run(5)
    records, sent = dict(net.hosts[3].journal), len(net.log)
    net.feed(3, SetMeta("trust", b"same"))
    assert net.hosts[3].journal == records
    net.kill(3)
    net.run(2)
    net.restart(3)
    net.feed(3, SetMeta("trust", b"same"))
    net.run(5)
    said = [
        effect for _, _, effect in net.log[sent:] if isinstance(effect, MemberChanged) and "metadata" in effect.reason
    ]
    assert said == []
    assert all(
        row.meta.get("trust") == b"same" for host in net.hosts for row in host.node.members() if row.name == "n003"
    )
    net.feed(3, SetMeta("trust", b"another"))
    known = lambda: all(  # noqa: E731
        row.meta.get("trust") == b"another" for host in net.hosts for row in host.node.members() if row.name == "n003"
    )
    assert net.run_until(known, 2) is not None


def test_same_seed_same_frames():
    def trace(seed):
        net = Net(6, seed)
        net.keep_frames = True
        net.run(3)
        net.kill(4)
        net.run(3)
        return net.frames

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_a_first_node_that_lost_its_disk_is_found_by_those_who_knew_it():
    """It has no seeds and no journal; the others come back from a crash and remember its earlier life."""
    net = formed_net(4)
    net.kill(0)
    net.restart(0, keep_journal=False)
    for index in (1, 2, 3):
        net.kill(index)
    net.feed(0, GoAway(0))
    for index in (1, 2, 3):
        net.restart(index)
    assert net.run_until(lambda: net.formed() and net.agreed(), 10) is not None


def test_events_of_an_earlier_life_do_not_keep_views_apart():
    net = formed_net(4)
    net.feed(0, UserEvent("before", b""))
    net.run(1)
    net.kill(0)
    net.restart(0)
    assert net.run_until(lambda: net.formed() and net.agreed(), 10) is not None
    net.feed(0, UserEvent("after", b""))
    net.run(2)
    assert [e.name for _, who, e in net.delivered() if who == 3] == ["before", "after"]
    assert net.agreed()
