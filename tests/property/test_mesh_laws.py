"""Laws of membership over hops: who is reached lives, who is cut off is not called failed, and no word makes it so.

Each law has a mutant that breaks it (`tests/mutants/test_mesh_mutants.py`).
"""

from collections import Counter
from random import Random

import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import MemberState, SendCast, UserEvent
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.mesh import near
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Key, life_key
from swarmd_protocols.swim.mesh.near import NEAR_MOST
from swarmd_protocols.swim.messages import Beacon, NearBody
from swarmd_protocols.swim.messages import Near as NearMessage
from tests.support.mesh_net import MeshNet, everybody, line
from tests.support.mutants import Law

ALIVE, FAILED, UNREACHABLE = MemberState.ALIVE, MemberState.FAILED, MemberState.UNREACHABLE


def formed(count: int, seed: int = 1, *, casts: bool = True) -> MeshNet:
    net = MeshNet(count, line(count), seed, casts=casts)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    assert net.formed()
    return net


# --- on a network --------------------------------------------------------------------------------------------------


def everybody_on_a_line_lives() -> None:
    for count, casts in ((4, True), (6, True), (9, True), (6, False)):
        net = formed(count, casts=casts)
        assert all(net.is_mesh(index) for index in range(count))
        since_ns = net.now
        net.run(20)
        assert net.formed()
        assert net.failures(since_ns) == []


def small_swarms_are_a_mesh_too() -> None:
    """Where a member is hidden from another and one or two could speak for it, losses of both paths are frequent."""
    shapes = (3, line(3)), (4, line(4) | {(0, 3)}), (5, line(5) | {(0, 4)}), (5, {(0, other) for other in range(1, 5)})
    for count, links in shapes:
        net = MeshNet(count, links, loss=0.1)
        assert net.run_until(lambda net=net, count=count: all(map(net.is_mesh, range(count))), 30) is not None
        net.run(8)
        since_ns, counters = net.now, [host.node._core.counters for host in net.hosts]
        ended = [counts["views_unmeshed"] for counts in counters]
        net.run(40)
        assert [counts["views_unmeshed"] for counts in counters] == ended
        assert all(map(net.is_mesh, range(count)))
        assert net.formed()
        assert net.failures(since_ns) == []


def losses_cut_nobody_off() -> None:
    """At 30 % loss half the round trips fail, and on a line each link is the only one."""
    for seed in (1, 27, 80, 116):
        net = MeshNet(8, line(8), seed, loss=0.3)
        assert net.run_until(net.formed, 60) is not None
        net.run(20)
        since_ns = net.now
        net.run(60)
        assert net.failures(since_ns) == [] == net.changes(UNREACHABLE, since_ns)


def a_cut_part_is_unreachable_and_comes_back() -> None:
    net = formed(6)
    since_ns = net.now
    net.relink(line(6) - {(2, 3)})
    assert net.run_until(lambda: net.sees(0, 5) is UNREACHABLE and net.sees(5, 0) is UNREACHABLE, 6) is not None
    net.run(5)
    assert {name for _, name in net.failures(since_ns)} <= {"n002", "n003"}
    assert all(net.sees(a, b) is UNREACHABLE for a in (0, 1) for b in (4, 5))
    net.relink(line(6))
    assert net.run_until(net.formed, 5) is not None


def a_death_is_told_from_a_cut() -> None:
    """In a ring nobody is cut off by one death: who could hear the dead one says so. At the end of a line likewise."""
    for links, subject in ((line(6) | {(0, 5)}, 3), (line(6), 5)):
        a_dark_one_is_failed(MeshNet(6, links), subject)


def a_dark_one_is_failed(net: MeshNet, subject: int) -> None:
    assert net.run_until(net.formed, 20) is not None
    net.run(8)
    since_ns = net.now
    net.hosts[subject].dark = True
    others = [index for index in range(6) if index != subject]
    assert net.run_until(lambda: net.all_see(FAILED, subject, others), 5) is not None
    assert {name for index, name in net.failures(since_ns) if index != subject} <= {f"n{subject:03d}"}


def a_small_part_of_a_large_swarm_stays_a_mesh() -> None:
    """Three on a line, all others cut off: who is out of reach is one of two that live, not one of eleven."""
    for seed in (1, 2):
        net = MeshNet(12, line(12), seed, loss=0.2)
        assert net.run_until(net.formed, 60) is not None
        net.run(6)
        net.relink(line(12) - {(2, 3)})
        net.run(5)
        since_ns = net.now
        net.run(90)
        assert all(map(net.is_mesh, range(12)))
        assert [name for index, name in net.failures(since_ns) if index < 3 and name < "n003"] == []


def a_killed_process_between_two_parts_is_failed_for_both() -> None:
    net = formed(5)
    net.kill(2)
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1, 3, 4]), 4) is not None
    net.run(3)
    assert all(net.sees(a, b) is UNREACHABLE for a in (0, 1) for b in (3, 4))
    net.restart(2)
    assert net.run_until(net.formed, 6) is not None


def who_missed_a_death_is_told_later(away_s: float, *, casts: bool, seed: int) -> None:
    """The end of a line is out of reach while one two hops away is killed, and comes back."""
    net = formed(4, seed, casts=casts)
    net.relink(line(4) - {(0, 1)})
    net.run(3.3)
    net.kill(2)
    net.run(away_s)
    net.relink(line(4))
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1]), 5) is not None
    assert (net.sees(0, 1), net.sees(0, 3)) == (ALIVE, UNREACHABLE)
    net.restart(2)
    assert net.run_until(net.formed, 8) is not None


def who_missed_a_death_in_a_short_cut_is_told() -> None:
    for casts in (True, False):
        who_missed_a_death_is_told_later(0.5, casts=casts, seed=1)


def who_missed_a_death_in_a_long_cut_is_told() -> None:
    for casts in (True, False):
        for seed, away_s in ((1, 3), (2, 12)):
            who_missed_a_death_is_told_later(away_s, casts=casts, seed=seed)


def a_death_is_told_behind_a_witness_that_reports_on() -> None:
    """Its neighbour's later reports, about others, take the place of the first before that has come through."""
    net = MeshNet(6, line(5) | {(1, 5)})
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    net.relink(line(5) - {(0, 1)} | {(1, 5)})
    net.run(3.3)
    net.kill(2)
    net.run(2)
    net.kill(5)
    net.run(2)
    net.relink(line(5))
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1]) and net.all_see(FAILED, 5, [0, 1]), 5) is not None


def a_dark_one_whose_parts_meet_again_has_failed() -> None:
    """Cut off by it, both parts call it unreachable; a link around it shows that nobody hears it."""
    for casts in (True, False):
        net = formed(5, casts=casts)
        net.hosts[2].dark = True
        net.run(6)
        assert [net.sees(0, other) for other in (2, 3, 4)] == [UNREACHABLE] * 3
        since_ns = net.now
        net.relink(line(5) | {(1, 3)})
        assert net.run_until(lambda net=net: net.all_see(FAILED, 2, [0, 1, 3, 4]), 12) is not None
        assert {name for _, name in net.failures(since_ns)} == {"n002"}
        net.hosts[2].dark = False
        assert net.run_until(net.formed, 12) is not None


def a_death_is_told_at_thirty_percent_loss() -> None:
    for casts in (True, False):
        for seed in range(8):
            net = formed(4, seed, casts=casts)
            net.loss = 0.3
            net.run(1 + seed * 0.13)
            net.kill(2)
            assert net.run_until(lambda net=net: net.all_see(FAILED, 2, [0, 1]), 10) is not None, (casts, seed)


def parts_that_changed_apart_fail_nobody_when_they_meet() -> None:
    """What a part reported before the cut is stale in the other: its nodes hear others by now."""
    for seed in (1, 2, 3):
        net = MeshNet(10, line(10), seed, loss=0.1)
        assert net.run_until(net.formed, 30) is not None
        net.run(6)
        since_ns = net.now
        here, there = line(4), line(10) - line(5)
        net.relink(here | there)
        net.run(4)
        ring = {(4, 7), (7, 9), (9, 5), (5, 8), (8, 6), (6, 4)}
        net.relink(here | there | ring)
        net.run(6)
        net.relink(here | ring)
        net.run(6)
        net.relink(here | ring | {(0, 9)})
        assert net.run_until(net.formed, 12) is not None
        net.run(5)
        assert net.failures(since_ns) == []


def a_refusal_that_others_belie_fails_nobody() -> None:
    """A host refused its neighbour for a moment, and others hear the process on; later a cut takes all of that part."""
    ring = line(6) | {(0, 5)}
    net = MeshNet(6, ring)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    core = net.hosts[2].node._core
    core.now_ns = net.now
    core.view.loses_link(next(member for member in core.table.reachable if member.name == "n003"), gone=True)
    net.relink(ring - {(2, 3)})
    net.run(20)
    since_ns = net.now
    net.relink(ring - {(2, 3), (0, 5)})
    assert net.run_until(lambda: net.all_see(UNREACHABLE, 3, [0, 1, 2]), 6) is not None
    net.run(8)
    assert net.failures(since_ns) == []


def who_ended_and_lives_again_beyond_a_cut_has_not_failed() -> None:
    """A witness knows of one life only: the next one is cut off, whatever it says."""
    net = formed(5)
    net.kill(2)
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1, 3, 4]), 4) is not None
    net.restart(2)
    assert net.run_until(net.formed, 8) is not None
    net.run(2)
    since_ns = net.now
    net.relink(line(5) - {(1, 2)})
    assert net.run_until(lambda: net.sees(0, 2) is UNREACHABLE and net.sees(1, 3) is UNREACHABLE, 6) is not None
    net.run(8)
    assert (0, "n002") not in net.failures(since_ns)


def a_frozen_process_fails_nobody() -> None:
    net = MeshNet(6, line(6) | {(0, 5)})
    assert net.run_until(net.formed, 20) is not None
    net.run(8)
    since_ns = net.now
    net.freeze(2)
    net.run(5)
    net.thaw(2)
    net.run(3)
    assert net.formed()
    assert net.failures(since_ns) == []


def news_reaches_the_far_end_once() -> None:
    net = formed(9)
    for number in range(5):
        net.feed(number, UserEvent(f"e{number}", b""))
    assert net.run_until(lambda: len(net.delivered()) == 45, 1) is not None
    net.run(3)
    told = Counter((index, effect.name) for _, index, effect in net.delivered())
    assert len(told) == 45
    assert set(told.values()) == {1}


def news_crosses_a_node_that_begins_between_two_sides() -> None:
    """It was said on one side while the node was away: its first answer is of that side, or of the other."""
    for seed in range(1, 7):
        net = formed(5, seed)
        net.kill(2)
        net.run(5)
        net.feed(0, UserEvent("said", b""))
        net.run(3)
        net.restart(2)
        assert net.run_until(net.formed, 8) is not None
        assert net.run_until(lambda net=net: {index for _, index, _ in net.delivered()} >= {0, 1, 3, 4}, 8) is not None


def one_hop_is_no_mesh() -> None:
    """Not for losses, nor for a pair or two that do not hear each other, nor for deaths."""
    for loss in (0.0, 0.3):
        net = MeshNet(8, everybody(8) - {(0, 1)}, loss=loss)
        net.run(10)
        net.kill(5)
        net.kill(6)
        net.hosts[7].dark = True
        net.run(15)
        assert not any(net.is_mesh(index) for index in range(8))


def a_swarm_that_gathers_is_a_mesh_no_more() -> None:
    net = formed(6)
    net.relink(everybody(6))
    assert net.run_until(lambda: not any(net.is_mesh(index) for index in range(6)), 60) is not None
    since_ns = net.now
    net.run(10)
    assert net.formed()
    assert not any(net.is_mesh(index) for index in range(6))
    assert net.failures(since_ns) == []


def near_ones_are_few_where_all_hear_all() -> None:
    net = MeshNet(16, everybody(16))
    assert net.run_until(net.formed, 20) is not None
    for host in net.hosts:
        host.node._core.now_ns = net.now
        host.node._swim.membership.overlay._enmesh()
    for _ in range(40):
        net.run(0.5)
        held = [len(host.node._core.table.reachable) for host in net.hosts if net.is_mesh(host.index)]
        assert all(count <= NEAR_MOST for count in held)
    assert net.formed()
    assert sum(held) <= (near.NEAR_MAX + 2) * len(held)


def life_of(net: MeshNet, index: int) -> Key:
    """How a report names the life that a node is in."""
    own = net.hosts[index].node._core.own
    return life_key(own.node, own.boot)


def own_report(net: MeshNet, index: int, entries: list[int], gone: list[int], sequence: int) -> bytes:
    """What a node's stolen key signs about whom it hears."""
    keys = {other: host.node._core.own.node[:KEY_BYTES] for other, host in enumerate(net.hosts)}
    core = net.hosts[index].node._core
    body = encode(
        NearBody(
            core.own.node,
            sequence,
            b"".join(keys[other] + b"\x04" for other in entries),
            b"".join(life_of(net, other) for other in gone),
            False,
        )
    )
    return encode(NearMessage(body, core.sign("near", body)))


def a_liar_fails_nobody_that_others_hear() -> None:
    """It says that it hears nobody, and that all are gone; its neighbours hear each other around it."""
    net = MeshNet(6, line(6) | {(0, 5)})
    assert net.run_until(net.formed, 20) is not None
    net.run(8)
    since_ns = net.now
    liar = net.hosts[2].node._core
    for number in range(20):
        lie = own_report(net, 2, [], [0, 1, 3, 4, 5], (liar.own.boot << 20) + 1_000 + number)
        liar.now_ns = net.now
        for member in list(liar.table.reachable):
            effects = net.hosts[2].node._wire
            effects.effects = []
            effects.push(member, [lie])
            net.perform(net.hosts[2], effects.effects)
        net.run(0.5)
    assert net.failures(since_ns) == []


def strangers_in_range_meet() -> None:
    """Two swarms of which nobody was told of the other: on a line, of one hop, and a node that is alone."""
    for seed in (1, 2, 3):
        for count, parts in ((6, line(3) | {(3, 4), (4, 5)}), (4, {(0, 1), (2, 3)}), (3, {(0, 1)})):
            net = MeshNet(count, parts, seed)
            net.run(12)
            assert net.sees(0, count - 1) is None
            net.relink(parts | line(count))
            assert net.run_until(net.formed, 25) is not None, (seed, count)


def a_mule_makes_islands_that_never_hear_each_other_one() -> None:
    """It flies from one to the other: what was said there, it says here."""
    here, there, mule = {(0, 1)}, {(2, 3)}, 4
    net = MeshNet(5, here | there)
    net.run(8)
    for number, ends in enumerate(((0, 1), (2, 3), (0, 1), (2, 3))):
        net.relink(here | there | {(mule, end) for end in ends})
        assert net.run_until(lambda net=net, ends=ends: net.all_see(ALIVE, mule, ends), 12) is not None
        net.run(6)
        net.relink(here | there)
        if number == 1:
            net.feed(0, UserEvent("found", b""))
        net.run(10)
    assert {index for _, index, _ in net.delivered()} == {0, 1, 2, 3, 4}


def beacons_cost_one_hop_swarms_little() -> None:
    """While nobody is out of reach: less than a fiftieth of what is said there anyway."""
    net = MeshNet(8, everybody(8))
    net.run(10)
    beacons = casts_of(net, 60)
    assert 0 < len(beacons) <= 8 * 7
    said = sum(host.node._core.counters["datagram_bytes_out"] for host in net.hosts)
    assert sum(map(len, beacons)) <= said / 25


@pytest.mark.parametrize("period_s", [0.25, 4])
def test_who_probes_seldom_is_not_alone_between_two_probes(period_s: float) -> None:
    """One speaks for all around: not each of eight once a second, where some seconds pass between what each hears."""
    config = SwimConfig(mesh="auto", casts=True, protocol_period_ns=round(period_s * 1e9))
    net = MeshNet(8, everybody(8), swim=config)
    net.run(20)
    assert 0 < len(casts_of(net, 60)) <= 20


def casts_of(net: MeshNet, seconds: float) -> list[bytes]:
    """What is cast in the meantime."""
    said: list[bytes] = []
    original = net.perform

    def perform(host, effects):
        said.extend(effect.data for effect in effects if isinstance(effect, SendCast))
        original(host, effects)

    net.perform = perform  # type: ignore[method-assign]
    net.run(seconds)
    net.perform = original  # type: ignore[method-assign]
    return said


def a_lossy_line_forms_soon() -> None:
    """What is missing behind a link that loses most comparisons is asked for as soon as losses are known."""
    took = []
    for seed in (1, 2, 3, 4):
        net = MeshNet(16, line(16), seed, loss=0.3)
        took.append(net.run_until(net.formed, 60))
    assert all(seconds is not None for seconds in took), took
    assert sum(took) <= 4 * 25, took


def malformed_reports_change_nothing() -> None:
    """Torn entries, the author's own key, and keys of nobody."""
    net = formed(4)
    view, core = net.view(0), net.hosts[0].node._core
    via = core.table.reachable[0]
    author = net.hosts[1].node._core
    rng = Random(1)
    for number in range(300):
        body = encode(
            NearBody(
                author.own.node, (author.own.boot << 20) + 500 + number, rng.randbytes(rng.randrange(24)), b"", False
            )
        )
        core.now_ns = net.now
        view.on_near(NearMessage(body, rng.randbytes(64)), via)
    assert not any(author.own.node == node and len(heard) > 2 for node, heard in view.reports.heard.items())
    net.run(5)
    assert net.formed()


LAWS = (
    everybody_on_a_line_lives,
    small_swarms_are_a_mesh_too,
    losses_cut_nobody_off,
    a_cut_part_is_unreachable_and_comes_back,
    a_death_is_told_from_a_cut,
    a_small_part_of_a_large_swarm_stays_a_mesh,
    a_killed_process_between_two_parts_is_failed_for_both,
    who_missed_a_death_in_a_short_cut_is_told,
    who_missed_a_death_in_a_long_cut_is_told,
    a_death_is_told_behind_a_witness_that_reports_on,
    a_dark_one_whose_parts_meet_again_has_failed,
    a_death_is_told_at_thirty_percent_loss,
    parts_that_changed_apart_fail_nobody_when_they_meet,
    a_refusal_that_others_belie_fails_nobody,
    who_ended_and_lives_again_beyond_a_cut_has_not_failed,
    a_frozen_process_fails_nobody,
    news_reaches_the_far_end_once,
    news_crosses_a_node_that_begins_between_two_sides,
    one_hop_is_no_mesh,
    a_swarm_that_gathers_is_a_mesh_no_more,
    near_ones_are_few_where_all_hear_all,
    a_liar_fails_nobody_that_others_hear,
    strangers_in_range_meet,
    a_mule_makes_islands_that_never_hear_each_other_one,
    beacons_cost_one_hop_swarms_little,
    a_lossy_line_forms_soon,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Law) -> None:
    law()


def test_malformed_reports_change_nothing() -> None:
    malformed_reports_change_nothing()


def test_a_beacon_of_a_stranger_is_answered_with_a_greeting_and_nothing_else() -> None:
    net = formed(4)
    core = net.hosts[0].node._core
    core.now_ns = net.now
    before = dict(net.states(0))
    core.view.on_beacon(Beacon(b"x" * 16, 1 << 20), "10.9.9.9:7946")
    assert net.states(0) == before
