"""Laws of when a swarm becomes a mesh by itself (`gossip.mesh = "auto"`), and of who cannot make it one."""

from collections.abc import Iterable
from itertools import product

import pytest

from swarmd_protocols.effects import Alarm, Effect, Leave, MemberState, SendCast, UserEvent
from swarmd_protocols.swim import overlay, repair
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.members import REACHABLE
from swarmd_protocols.swim.mesh import mesh_view, onset
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.near import IN_REACH_NS, Near
from swarmd_protocols.swim.mesh.onset import Onset
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.messages import Beacon
from swarmd_protocols.swim.overlay import Overlay
from tests.property.test_mesh_hostile import lie
from tests.support.mesh_net import MeshNet, Pairs, everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.swim_net import MS, Host, S

AUTO = SwimConfig(mesh="auto", casts=True)


class HearsAlarms(MeshNet):
    """A network that keeps the alarms of its nodes, and counts casts."""

    def __init__(self, count: int, links: Pairs, seed: int = 1, **options: object) -> None:
        self.alarms: list[tuple[int, str, str]] = []
        self.cast = 0
        super().__init__(count, links, seed, **{"swim": AUTO, **options})  # type: ignore[arg-type]

    def perform(self, host: Host, effects: list[Effect]) -> None:
        self.alarms += [(host.index, one.code, one.text) for one in effects if isinstance(one, Alarm)]
        self.cast += sum(1 for one in effects if isinstance(one, SendCast))
        super().perform(host, effects)

    def meshes(self) -> int:
        """How many views are a mesh."""
        return sum(1 for host in self.hosts if self.is_mesh(host.index))

    def said(self) -> list[int]:
        """Bytes that each node has sent."""
        return [host.node._core.counters["datagram_bytes_out"] for host in self.hosts]


def one_hop_says_hardly_a_word_of_it() -> None:
    """One beacon of all in ten seconds, and not a byte in a datagram, through losses, a death and a return."""
    said = []
    for mode in ("off", "auto"):
        net = HearsAlarms(8, everybody(8), loss=0.1, swim=SwimConfig(mesh=mode, casts=True))
        net.run(8)
        net.kill(5)
        net.run(8)
        net.restart(5)
        net.run(44)
        assert net.meshes() == 0
        assert net.cast <= (60 / 10 + 2 if mode == "auto" else 0)
        said.append(sum(net.said()))
    assert abs(said[1] / said[0] - 1) < 0.05


def strangers_in_reach_meet() -> None:
    """Two swarms of which nobody was told of the other: side by side, by one link at their edge, and one alone."""
    four, both = everybody(4), everybody(4) | {(a + 4, b + 4) for a, b in everybody(4)}
    for seed in (1, 2):
        for count, parts, within_s in ((8, both, 40), (5, four, 8)):
            for reach in (everybody(count), parts | {(3, 4)}):
                net = HearsAlarms(count, parts, seed)
                net.run(8)
                assert (net.sees(0, count - 1), net.meshes()) == (None, 0)
                net.relink(reach)
                # One link at the edge: of four it is the turn of the one there within its own two minutes.
                allowed_s = within_s if reach == everybody(count) else within_s + 130
                assert net.run_until(net.formed, allowed_s, 0.1) is not None, (seed, count)
                assert net.alarms == []
                assert net.failures() == []


def who_starts_out_of_reach_of_all_it_was_told_of_is_met_at_once() -> None:
    """Four that hear each other, and nobody that they were told of: they have met before their work begins."""
    for seed in (1, 2, 3):
        net = HearsAlarms(4, set(), seed)
        net.relink(everybody(4))
        assert net.run_until(net.formed, 2, 0.1) is not None, seed


def a_mule_makes_islands_that_never_hear_each_other_one() -> None:
    """It flies from one to the other, longer than a mesh takes to end: what was said there, it says here."""
    here, there, mule = line(3), {(3, 4), (4, 5)}, 6
    net = HearsAlarms(7, here | there)
    net.run(8)
    for number, ends in enumerate(((0, 1, 2), (3, 4, 5), (0, 1, 2), (3, 4, 5))):
        net.relink(here | there | {(mule, ends[0])})
        met = lambda net=net, ends=ends: net.all_see(MemberState.ALIVE, mule, list(ends))  # noqa: E731
        assert net.run_until(met, 20, 0.1) is not None, number
        net.run(6)
        net.relink(here | there)
        if number == 1:
            net.feed(0, UserEvent("found", b""))
        net.run(45)
        assert net.is_mesh(mule), "where it comes to next, its reports count at once"
    assert {index for _, index, _ in net.delivered()} == set(range(7))


def a_recorded_beacon_keeps_no_strangers_apart(seconds: int = 140) -> None:
    """Somebody without a key plays a member's beacon to each island, each second: they show themselves all the same."""
    left, right = {(0, 1)}, {(2, 3)}
    net = HearsAlarms(4, left | right)
    net.run(8)
    net.relink(left | right | {(1, 2)})

    def jam() -> bool:
        for index in range(4):
            core = net.hosts[index].node._core
            core.now_ns, other = net.now, net.hosts[index ^ 1].node._core.own
            core.view.on_beacon(Beacon(other.node, other.incarnation), net.address(index ^ 1))
        return net.formed()

    assert net.run_until(jam, seconds, 1.0) is not None


def a_line_becomes_a_mesh() -> None:
    for seed in (1, 2):
        net = HearsAlarms(12, line(12), seed, loss=0.02)
        assert net.run_until(net.formed, 25) is not None
        net.run(8)
        assert net.meshes() == 12
        since_ns = net.now
        net.run(20)
        assert net.formed()
        assert net.failures(since_ns) == []
        assert net.alarms == []


def one_that_most_do_not_hear_makes_a_mesh() -> None:
    """Two hear it, the others do not: what it says of itself they find to be so, and the two follow them."""
    net = HearsAlarms(12, everybody(11) | {(0, 11), (1, 11)})
    assert net.run_until(lambda: net.meshes() == 12, 30) is not None
    net.run(8)
    since_ns = net.now
    net.run(20)
    assert net.formed()
    assert net.failures(since_ns) == []


def a_swarm_spreads_out_and_comes_together() -> None:
    for seed in (1, 2):
        net = HearsAlarms(7, everybody(7), seed)
        net.run(10)
        assert net.meshes() == 0
        net.relink(line(7))
        assert net.run_until(lambda net=net: net.meshes() == 7 and net.formed(), 30) is not None
        net.run(8)
        since_ns = net.now
        net.run(15)
        assert net.failures(since_ns) == []
        net.relink(everybody(7))
        assert net.run_until(lambda net=net: net.meshes() == 0, 60) is not None
        cast = net.cast
        net.run(40)
        assert net.meshes() == 0
        assert net.cast <= cast + 40 / 10 + 1
        assert net.formed()
        assert net.failures(since_ns) == []


def a_crowd_gathers_where_nothing_is_cast() -> None:
    """No beacon says who is in reach again: the far ones are asked, and a mesh of more than are near ends."""
    for count, loss in ((15, 0.05), (30, 0.0)):
        net = HearsAlarms(count, line(count), casts=False, loss=loss)
        assert net.run_until(lambda net=net, count=count: net.meshes() == count and net.formed(), 40) is not None
        net.relink(everybody(count))
        since_ns = net.now
        assert net.run_until(lambda net=net: net.meshes() == 0, 150, step=1.0) is not None
        net.run(30)
        assert net.meshes() == 0
        assert net.failures(since_ns) == []


def a_thief_alone_makes_no_mesh_and_is_named() -> None:
    """It signs for ever that it hears two only, while it answers everybody; others pay its account, and no more."""
    spent = []
    for per_s in (0, 1, 20):
        net = HearsAlarms(10, everybody(10))
        net.run(10)
        before = net.said()
        for _ in range(35 * max(per_s, 1)):
            if per_s:
                lie(net, 9, [0, 1], [])
            net.run(1 / max(per_s, 1))
            assert net.meshes() == 0
        assert net.failures() == []
        claims = [(index, text) for index, code, text in net.alarms if code == "mesh-claim"]
        named = [index for index, text in claims if "'n009'" in text]
        assert len(claims) == len(named) == len(set(named)) == (9 if per_s else 0)
        spent.append(max(after - at for after, at in zip(net.said()[:9], before[:9], strict=True)) / 35)
    assert spent[0] < spent[1] < 1_500
    assert spent[2] < 3_000  # 2.5 kB/s: its account, as for whatever else a member says to all.


def who_errs_alone_comes_back() -> None:
    """Nobody has followed within seconds: it has told no fate, and no other view has changed."""
    net = HearsAlarms(8, everybody(8))
    net.run(10)
    since_ns, host = net.now, net.hosts[3]
    host.node._core.now_ns = net.now
    host.node._swim.membership.overlay._enmesh()
    net.run(2)
    assert net.meshes() == 1
    net.run(4)
    assert net.meshes() == 0
    net.run(40)
    assert net.meshes() == 0
    assert [changed for state in MemberState for changed in net.changes(state, since_ns)] == []
    assert net.alarms == []


def a_pair_that_is_cut_off_stays_a_mesh() -> None:
    """Both of a pair hear each other, and so all that they reach; the others live, and they wait for them."""
    for seed in (1, 2):
        net = MeshNet(6, line(6), seed, swim=AUTO)
        assert net.run_until(net.formed, 30) is not None
        net.run(6)
        net.relink(line(6) - {(1, 2)})
        net.run(60)
        assert net.sees(0, 4) is MemberState.UNREACHABLE is net.sees(4, 0)
        assert all(map(net.is_mesh, range(6)))
        net.relink(line(6))
        assert net.run_until(net.formed, 5) is not None


def who_is_full_and_meets_a_mesh_turns_back() -> None:
    """A pair that has waited for the others in vain has a full view of two; when they are back it is part of a mesh."""
    for casts in (True, False):
        net = MeshNet(6, line(6), swim=SwimConfig(mesh="auto", casts=casts, forget_ns=60 * S))
        assert net.run_until(net.formed, 30) is not None
        net.run(6)
        net.relink(line(6) - {(1, 2)})
        net.run(180)
        assert [net.is_mesh(index) for index in range(6)] == [False] * 2 + [True] * 4
        net.relink(line(6))
        assert net.run_until(lambda net=net: net.formed() and all(map(net.is_mesh, range(6))), 10) is not None


def who_fell_silent_again_is_out_of_reach() -> None:
    """The ends of a line meet for a while, and part: that they answered each other before makes no full view."""
    for met_s in (5, 20, 28):
        net = MeshNet(3, line(3), swim=SwimConfig(mesh="auto", casts=False), casts=False)
        assert net.run_until(lambda net=net: net.formed() and all(map(net.is_mesh, range(3))), 30) is not None
        net.run(6)
        net.relink(everybody(3))
        assert net.run_until(lambda net=net: 2 in near_of(net, 0) and 0 in near_of(net, 2), 5) is not None
        net.run(met_s)
        net.relink(line(3))
        assert net.run_until(lambda net=net: any(not net.is_mesh(index) for index in range(3)), 60) is None
        assert net.formed()


def near_of(net: MeshNet, index: int) -> list[int]:
    """Who is near a node."""
    numbers = {host.node.node: host.index for host in net.hosts}
    return [numbers[member.node] for member in net.hosts[index].node._core.table.reachable]


def who_leaves_while_it_is_cut_off_is_not_waited_for() -> None:
    """The others come together in one hop: it would be waited for until it is forgotten."""
    for leaver in (4, 2):
        net = MeshNet(6, line(6), swim=AUTO)
        assert net.run_until(net.formed, 30) is not None
        net.run(6)
        net.relink(line(6) - {(1, 2)})
        net.run(60)
        assert net.sees(0, leaver) is MemberState.UNREACHABLE
        net.feed(leaver, Leave())
        net.run(3)
        net.kill(leaver)
        net.relink(everybody(6))
        live = [index for index in range(6) if index != leaver]
        ended = lambda net=net, live=live: not any(map(net.is_mesh, live))  # noqa: E731
        assert net.run_until(ended, 90, 1.0) is not None
        assert all(net.sees(index, leaver) is MemberState.LEFT for index in live)


def who_was_given_up_is_not_waited_for() -> None:
    """A pair has waited for the others as long as a member is waited for: it is full before it forgets them."""
    net = MeshNet(6, line(6), swim=SwimConfig(mesh="auto", casts=True, forget_ns=60 * S))
    assert net.run_until(net.formed, 30) is not None
    net.run(6)
    net.relink(line(6) - {(1, 2)})
    failed = lambda: all(net.sees(0, index) is MemberState.FAILED for index in range(2, 6))  # noqa: E731
    assert net.run_until(failed, 90) is not None
    assert net.is_mesh(0)
    assert net.run_until(lambda: not net.is_mesh(0) and not net.is_mesh(1), 45) is not None
    assert failed(), "not forgotten yet"


def a_mesh_that_meets_a_full_view_in_one_hop_ends() -> None:
    """Whose view is full says nothing of whom it hears, and need not: those of the mesh do not wait for its word."""
    for seed, casts in product((3, 6, 7), (True, False)):
        net = MeshNet(6, line(6), seed, swim=SwimConfig(mesh="auto", casts=casts, forget_ns=60 * S))
        assert net.run_until(net.formed, 30) is not None
        net.run(6)
        net.relink(line(6) - {(1, 2)})
        net.run(180)
        assert [net.is_mesh(index) for index in range(6)] == [False] * 2 + [True] * 4
        net.relink(everybody(6))
        assert net.run_until(net.formed, 10) is not None
        net.run(5)
        assert net.run_until(lambda net=net: not any(map(net.is_mesh, range(6))), 60, 1.0) is not None


def nobody_is_cut_off_while_a_mesh_forms() -> None:
    """Reports of a long line are on their way for many seconds: to whom no chain has led yet, one soon will."""
    net = MeshNet(32, line(32), 1, swim=SwimConfig(mesh="on"))
    net.delay_ns, has_formed = 250 * MS, False
    for _ in range(30):
        net.run(1)
        has_formed |= net.formed()
        assert not [
            name for at in range(32) for name, state in net.states(at).items() if state is MemberState.UNREACHABLE
        ]
    assert has_formed


def who_is_never_settled_compares_all_the_same() -> None:
    """While a large mesh forms a view changes all the time, and what one hop lacks all behind it lack."""
    net = MeshNet(4, line(4), 1, swim=SwimConfig(mesh="on"))
    assert net.run_until(lambda: net.is_mesh(1) and net.formed(), 30) is not None
    swim = net.hosts[1].node._swim
    swim.core.changed_ns = swim.core.now_ns
    member = swim.core.table.by_node[net.hosts[0].node.node]
    for since_ms, is_due in ((100, False), (300, True)):
        member.repair.sync_ns, member.repair.sync_gap_ns = swim.core.now_ns - since_ms * MS, 0
        assert swim.repair.sections_due(member, True) == is_due


def _who_was_never_reached_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "_GROWS_NS", 0)


def _only_what_is_settled_is_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "_RESTLESS_NS", 1 << 60)


def _the_word_of_one_makes_a_mesh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(onset, "TELLERS_OF_A_MESH", 1)


def _no_word_makes_a_mesh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Onset, "was_told", lambda self: False)


def _what_one_says_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Onset, "_is_hidden", lambda self, member: False)


def _nobody_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Onset, "_name", lambda self, _: None)


def _who_is_alone_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "_is_alone", lambda self, life: None)


def _nothing_is_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "is_hidden", lambda self, member, helped: None)


def _everybody_shows_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "_is_due", lambda self: self._seconds % overlay._SHOWN_EVERY == 0)


def _who_is_alone_waits_to_show_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overlay, "_FIRST_NS", overlay._ALONE_NS)


def _nobody_shows_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "_is_due", lambda self: False)


def _only_who_is_alone_shows_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overlay, "_SHOWN_EVERY", 10_000)


def _whoever_hears_others_never_does(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overlay, "_SHOWN_AGAIN_NS", 10_000 * S)


def _nobody_is_greeted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "on_beacon", lambda self, message, source: None)


def _a_mesh_of_one_ends(patch: pytest.MonkeyPatch) -> None:
    original = mesh_view.all_say_so

    def all_say_so(core: Core, reports: NearReports) -> bool:
        return original(core, reports) or not any(one.state in REACHABLE for one in core.table.by_node.values())

    patch.setattr(mesh_view, "all_say_so", all_say_so)
    who_is_waited_for_is_nobody(patch)


def _who_fell_silent_has_answered_lately(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "fell_silent", lambda self, member: None)


def _a_mesh_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "_ALL_HEARD_NS", 10_000 * S)


def _who_was_not_heard_just_now_is_out_of_reach(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "_ANSWERED_NS", IN_REACH_NS)


def who_is_waited_for_is_nobody(patch: pytest.MonkeyPatch) -> None:
    """Who is cut off is not counted among those that are out of reach."""
    patch.setattr(mesh_view, "waits_for", lambda core, cut_off: False)


def _is_waited_for_as_well(patch: pytest.MonkeyPatch, state: MemberState) -> None:
    original = mesh_view.waits_for

    def waits_for(core: Core, cut_off: Iterable[bytes]) -> bool:
        held = core.table.by_node
        return original(core, cut_off) or any(held[node].state is state for node in cut_off if node in held)

    patch.setattr(mesh_view, "waits_for", waits_for)


def _who_has_left_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    _is_waited_for_as_well(patch, MemberState.LEFT)


def _who_has_failed_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    _is_waited_for_as_well(patch, MemberState.FAILED)


def _whose_view_is_full_has_to_say_so(patch: pytest.MonkeyPatch) -> None:
    def all_say_so(core: Core, reports: NearReports) -> bool:
        others = [member for member in core.table.by_node.values() if member.state in REACHABLE]
        return bool(others) and all(member.node in reports.hears_all for member in others)

    patch.setattr(mesh_view, "all_say_so", all_say_so)


def _a_mesh_that_has_ended_never_begins_again(patch: pytest.MonkeyPatch) -> None:
    original = Overlay._enmesh
    patch.setattr(Overlay, "_enmesh", lambda self: original(self) if self.full_view.ended_ns < 0 else None)


LAWS: list[tuple[Law, Mutant]] = [
    (one_hop_says_hardly_a_word_of_it, _everybody_shows_itself),
    (strangers_in_reach_meet, _nobody_shows_itself),
    (strangers_in_reach_meet, _only_who_is_alone_shows_itself),
    (strangers_in_reach_meet, _nobody_is_greeted),
    (who_starts_out_of_reach_of_all_it_was_told_of_is_met_at_once, _who_is_alone_waits_to_show_itself),
    (a_mule_makes_islands_that_never_hear_each_other_one, _a_mesh_of_one_ends),
    (a_recorded_beacon_keeps_no_strangers_apart, _whoever_hears_others_never_does),
    (a_line_becomes_a_mesh, _nothing_is_seen),
    (one_that_most_do_not_hear_makes_a_mesh, _no_word_makes_a_mesh),
    (one_that_most_do_not_hear_makes_a_mesh, _what_one_says_is_not_looked_at),
    (a_swarm_spreads_out_and_comes_together, _a_mesh_never_ends),
    (a_crowd_gathers_where_nothing_is_cast, _who_was_not_heard_just_now_is_out_of_reach),
    (a_thief_alone_makes_no_mesh_and_is_named, _the_word_of_one_makes_a_mesh),
    (a_thief_alone_makes_no_mesh_and_is_named, _nobody_is_named),
    (a_pair_that_is_cut_off_stays_a_mesh, who_is_waited_for_is_nobody),
    (who_fell_silent_again_is_out_of_reach, _who_fell_silent_has_answered_lately),
    (who_leaves_while_it_is_cut_off_is_not_waited_for, _who_has_left_is_waited_for),
    (who_was_given_up_is_not_waited_for, _who_has_failed_is_waited_for),
    (a_mesh_that_meets_a_full_view_in_one_hop_ends, _whose_view_is_full_has_to_say_so),
    (who_is_full_and_meets_a_mesh_turns_back, _a_mesh_that_has_ended_never_begins_again),
    (who_errs_alone_comes_back, _who_is_alone_stays),
    (nobody_is_cut_off_while_a_mesh_forms, _who_was_never_reached_is_cut_off),
    (who_is_never_settled_compares_all_the_same, _only_what_is_settled_is_compared),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
