"""Table and paper tests of membership's pure rules."""

from random import Random

import pytest

from swarmd_protocols.channel.dissemination import GossipQueue
from swarmd_protocols.errors import StateError
from swarmd_protocols.swim import rules
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.members import Member, MemberTable


@pytest.mark.parametrize(
    ("confirmed", "wanted", "expected"), [(0, 3, 10_000), (1, 3, 6_000), (3, 3, 2_000), (9, 3, 2_000)]
)
def test_lifeguard_suspicion_shrinks_with_the_logarithm_of_confirmations(confirmed, wanted, expected):
    """Lifeguard, LHA-Suspicion: max(Min, Max - (Max - Min) * log(C + 1) / log(K + 1))."""
    assert rules.suspicion_timeout_ns(confirmed, wanted, min_ns=2_000, max_ns=10_000) == expected


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 4), (0.03, 4), (0.19, 9), (0.51, 21), (0.99, 24)])
def test_silence_takes_more_pings_where_pings_get_lost(loss, expected):
    attempts = rules.attempts_needed(loss, 1e-6)
    assert attempts == expected
    assert attempts == 24 or max(0.03, loss) ** attempts <= 1e-6


def test_swim_piggyback_limit_is_lambda_log_n():
    """SWIM section 4.1: an update rides lambda log n times."""
    assert [rules.transmit_limit(n, 3) for n in (1, 3, 7, 63)] == [3, 6, 9, 18]


@pytest.mark.parametrize(("members", "expected"), [(1, 2), (2, 2), (3, 3), (64, 3)])
def test_one_signer_never_convinces(members, expected):
    assert rules.accusers_wanted(members, 3) == expected


def test_fingerprints_survive_packing():
    items = [0, 1, 2**64 - 1, 12345]
    assert rules.unpack_fingerprints(rules.pack_fingerprints(items)) == items
    assert rules.unpack_fingerprints(b"\1" * 11) == [0x0101010101010101]


def test_bad_configuration_names_every_problem():
    with pytest.raises(StateError) as caught:
        SwimConfig(protocol_period_ns=0, probe_window_ns=100, suspicion_max_ns=1)
    for word in ("protocol_period_ns is 0", "probe_window_ns is 100", "suspicion_max_ns 1"):
        assert word in str(caught.value)


# --- gossip queue ----------------------------------------------------------------------------------------------------


def test_a_newer_update_about_the_same_takes_the_place_of_the_older():
    queue = GossipQueue(8)
    queue.put("x", b"old-old-old-old-", 0, 3, urgent=True)
    queue.put("x", b"new-new-new-new-", 0, 1, urgent=True)
    assert queue.take(100, 9) == [b"new-new-new-new-"]
    assert queue.take(100, 9) == []


def test_the_queue_is_bounded_and_gives_up_the_least_urgent():
    queue = GossipQueue(3)
    for index, priority in enumerate((0, 3, 1, 0)):
        queue.put(index, bytes((index,)) * 20, priority, 5, urgent=False)
    assert len(queue) == 3
    assert queue.take(1000, 9) == [b"\0" * 20, b"\3" * 20, b"\2" * 20]


def test_over_budget_only_verdicts_ride():
    queue = GossipQueue(8)
    queue.put("verdict", b"v" * 20, 0, 5, urgent=True)
    queue.put("detail", b"d" * 20, 3, 5, urgent=True)
    assert queue.take(1000, 0) == [b"v" * 20]
    assert [update.encoded for update in queue.take_urgent(0)] == [b"v" * 20]


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_are_delivered_once_and_in_order_whatever_the_arrival():
    first = (1 << rules.BOOT_SHIFT) + 1
    order = [first + step for step in range(20)]
    for seed in range(20):
        log, seen = EventLog(0), []
        shuffled = order * 2
        Random(seed).shuffle(shuffled)
        for sequence in shuffled:
            log.offer(sequence, str(sequence), b"", b"")
            seen += [int(name) for name, _ in log.due()]
        assert seen == order


def test_a_new_boot_of_the_origin_starts_a_new_count():
    log = EventLog((1 << rules.BOOT_SHIFT) + 5)
    log.offer((2 << rules.BOOT_SHIFT) + 2, "b", b"", b"")
    assert list(log.due()) == []
    log.offer((2 << rules.BOOT_SHIFT) + 1, "a", b"", b"")
    assert [name for name, _ in log.due()] == ["a", "b"]


# --- member table ----------------------------------------------------------------------------------------------------


def _member(rng):
    member = Member(rng.randbytes(16), "m", b"", b"")
    member.repair.fp_record, member.repair.fp_meta = rng.getrandbits(64), rng.getrandbits(64)
    return member


def test_digest_ring_and_sample_agree_with_a_slow_reference():
    rng = Random(5)
    table, alive = MemberTable(1000), {}
    for _ in range(600):
        if rng.random() < 0.6 or not alive:
            member = _member(rng)
            table.add(member)
            table.set_reachable(member, True)
            table.count(member, True)
            alive[member.node] = member
        else:
            member = alive.pop(rng.choice(sorted(alive)))
            table.remove(member)
        nodes = sorted(alive)
        assert table.sections[0] == sum(item.repair.fp_record for item in alive.values()) % 2**64
        assert {item.node for item in table.reachable} == set(nodes)
        probe = rng.randbytes(16)
        if nodes:
            expected = next((node for node in nodes if node > probe), nodes[0])
            assert table.successor(probe).node == expected
    for count in (0, 1, 3, len(alive), len(alive) + 5):
        picked = table.sample(rng, count)
        assert len(picked) == len({item.node for item in picked}) == min(count, len(alive))
    without = table.reachable[0]
    assert without not in table.sample(rng, len(alive), without=without)


def test_the_table_refuses_more_than_its_limit():
    rng, table = Random(1), MemberTable(2)
    table.add(_member(rng))
    table.add(_member(rng))
    with pytest.raises(StateError, match="full at 2"):
        table.add(_member(rng))
