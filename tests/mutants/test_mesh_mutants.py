"""A mutant for each law of membership over hops: break the rule, and the law that stands for it must fail."""

import pytest

from swarmd_protocols.swim import overlay, repair
from swarmd_protocols.swim.event_baseline import Baseline
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.hosts import HostEvidence
from swarmd_protocols.swim.mesh import fates, mesh_view, near, onset, turns
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Fate, life_key
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.turns import Turns
from swarmd_protocols.swim.overlay import Overlay
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.rules import BOOT_SHIFT
from tests.property import test_mesh_laws as laws
from tests.property import test_mesh_onset as onset_laws
from tests.support.mutants import Law, Mutant, assert_found, each_mutant
from tests.support.swim_net import S


def _reports_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NearReports, "on_near", lambda self, message, via, nonce: None)


def _whoever_is_not_reached_has_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fates, "fate", lambda key, reach, hearers, gone: Fate.FAILED)


def _whoever_is_not_reached_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fates, "fate", lambda key, reach, hearers, gone: Fate.UNREACHABLE)


def _refusals_are_not_told(patch: pytest.MonkeyPatch) -> None:
    original = Near.lose
    patch.setattr(Near, "lose", lambda self, member, gone: original(self, member, gone=False))


def _a_fate_is_told_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "_weigh_again", lambda self, member: None)


def _an_end_is_reported_once(patch: pytest.MonkeyPatch) -> None:
    original = Near.gone

    def gone(self):
        ended = original(self)
        self._saw_gone.clear()
        return ended

    patch.setattr(Near, "gone", gone)


def _who_was_heard_in_a_probe_is_not_refused_in_it(patch: pytest.MonkeyPatch) -> None:
    original = HostEvidence._weigh_refusals

    def weigh(self, probe):
        if probe.member.link.heard_ns < probe.started_ns:
            original(self, probe)

    patch.setattr(HostEvidence, "_weigh_refusals", weigh)


def _a_refusal_counts_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "is_reached", lambda self, member: None)


def _an_end_is_of_every_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "saw_gone", lambda self, member: member.node in self._saw_gone)
    patch.setattr(Near, "answered", lambda self, member: 0)
    for module in (near, fates):
        patch.setattr(module, "life_key", lambda node, boot: node[:KEY_BYTES])


def _a_frozen_process_is_a_lost_link(patch: pytest.MonkeyPatch) -> None:
    original = Prober._step_link

    def step(self, probe):
        probe.host = None
        probe.silences = 1
        original(self, probe)

    patch.setattr(Prober, "_step_link", step)


def _hidden_ones_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "is_hidden", lambda self, member, helped: None)


def _the_first_hidden_one_makes_a_mesh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "is_hidden", lambda self, member, helped: self._enmesh())


def _three_have_to_be_hidden_in_any_swarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(onset, "hidden_wanted", lambda others: 3)


def _one_out_of_reach_is_few_in_any_swarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "hidden_wanted", lambda others: onset.hidden_wanted(11))


def _who_is_cut_off_counts(patch: pytest.MonkeyPatch) -> None:
    _one_out_of_reach_is_few_in_any_swarm(patch)
    onset_laws.who_is_waited_for_is_nobody(patch)


def _every_link_is_given_up_as_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "hangs_on", lambda self, member: False)


def _a_mesh_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mesh_view, "_ALL_HEARD_NS", 10_000 * S)


def _everybody_is_near(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "is_wanted", lambda self, member: True)
    patch.setattr(mesh_view, "NEAR_MAX", 10_000)
    patch.setattr(turns, "NEAR_MAX", 10_000)


def _who_is_said_to_be_gone_has_failed(patch: pytest.MonkeyPatch) -> None:
    original = MeshView._is_reached

    def is_reached(self, member):
        life = life_key(member.node, member.incarnation >> BOOT_SHIFT)
        if any(life in ended for ended in self.reports.gone.values()) and member.where < 0:
            member.failed = True
            self._judge.evaluate(member, "somebody says so")
            return
        original(self, member)

    patch.setattr(MeshView, "_is_reached", is_reached)


def _far_ones_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "push_fanout", lambda self: 0)
    patch.setattr(MeshView, "carries", lambda self, about: False)


def _no_stranger_is_greeted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FullView, "on_beacon", lambda self, message, source: None)


def _nobody_shows_itself_but_in_a_mesh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "_show", lambda self, _: None)


def _all_show_themselves_all_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overlay, "_SHOWN_EVERY", 1)


def _losses_are_no_reason_to_ask_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "_LOSSY_GAP_MAX_NS", 10 * S)


def _two_have_to_deny_a_first_answer(patch: pytest.MonkeyPatch) -> None:
    original = Baseline.denied
    patch.setattr(
        Baseline,
        "denied",
        lambda self, peer, told, members, now_ns, **how: original(self, peer, told, 9, now_ns, **how),
    )


MUTANTS: list[tuple[Law, Mutant]] = [
    (laws.everybody_on_a_line_lives, _reports_are_not_heard),
    (laws.everybody_on_a_line_lives, _hidden_ones_are_not_noted),
    (laws.small_swarms_are_a_mesh_too, _one_out_of_reach_is_few_in_any_swarm),
    (laws.small_swarms_are_a_mesh_too, _three_have_to_be_hidden_in_any_swarm),
    (laws.losses_cut_nobody_off, _every_link_is_given_up_as_soon),
    (laws.parts_that_changed_apart_fail_nobody_when_they_meet, _whoever_is_not_reached_has_failed),
    (laws.a_small_part_of_a_large_swarm_stays_a_mesh, _who_is_cut_off_counts),
    (laws.a_cut_part_is_unreachable_and_comes_back, _whoever_is_not_reached_has_failed),
    (laws.a_death_is_told_from_a_cut, _whoever_is_not_reached_is_cut_off),
    (laws.a_killed_process_between_two_parts_is_failed_for_both, _refusals_are_not_told),
    (laws.who_missed_a_death_in_a_short_cut_is_told, _an_end_is_reported_once),
    (laws.who_missed_a_death_in_a_long_cut_is_told, _a_fate_is_told_once),
    (laws.a_death_is_told_behind_a_witness_that_reports_on, _an_end_is_reported_once),
    (laws.a_dark_one_whose_parts_meet_again_has_failed, _a_fate_is_told_once),
    (laws.a_death_is_told_at_thirty_percent_loss, _who_was_heard_in_a_probe_is_not_refused_in_it),
    (laws.a_refusal_that_others_belie_fails_nobody, _a_refusal_counts_for_ever),
    (laws.who_ended_and_lives_again_beyond_a_cut_has_not_failed, _an_end_is_of_every_life),
    (laws.a_frozen_process_fails_nobody, _a_frozen_process_is_a_lost_link),
    (laws.strangers_in_range_meet, _no_stranger_is_greeted),
    (laws.a_mule_makes_islands_that_never_hear_each_other_one, _nobody_shows_itself_but_in_a_mesh),
    (laws.beacons_cost_one_hop_swarms_little, _all_show_themselves_all_the_time),
    (laws.a_lossy_line_forms_soon, _losses_are_no_reason_to_ask_again),
    (laws.news_reaches_the_far_end_once, _far_ones_are_not_told),
    (laws.news_crosses_a_node_that_begins_between_two_sides, _two_have_to_deny_a_first_answer),
    (laws.one_hop_is_no_mesh, _the_first_hidden_one_makes_a_mesh),
    (laws.a_swarm_that_gathers_is_a_mesh_no_more, _a_mesh_never_ends),
    (laws.near_ones_are_few_where_all_hear_all, _everybody_is_near),
    (laws.a_liar_fails_nobody_that_others_hear, _who_is_said_to_be_gone_has_failed),
]


@each_mutant(MUTANTS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
