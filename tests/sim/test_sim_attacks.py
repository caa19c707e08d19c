"""Attacks of the fuzzer: each really acts, none moves the other faults of a seed, and scenario files may name them."""

import pytest

from swarmd_sim.errors import ScenarioError
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.attacks import ATTACKS
from swarmd_sim.faults.faults import FAULTS, OFFICER_KINDS, Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

NS_PER_S = 1_000_000_000


def test_every_kind_has_a_stroke_and_is_a_fault():
    assert {*ATTACKS, *OFFICER_KINDS} == set(ATTACK_KINDS)
    assert set(ATTACK_KINDS) < set(FAULTS)
    assert all(about.beside in {"", *FAULTS} and 1 <= about.law <= 7 for about in ATTACK_KINDS.values())


def test_every_attack_leaves_the_hostile_host_and_ends_with_its_fault():
    scenario = load_scenario("fuzz", {"release.chance": 1.0, "swarm.seconds": 80, "checks.settle_s": 10})
    kinds = [kind for kind in ATTACKS if not ATTACK_KINDS[kind].needs_lending]
    script = [
        Fault((20 * NS_PER_S + index * NS_PER_S), kind, (6,), NS_PER_S, max(ATTACK_KINDS[kind].per_s))
        for index, kind in enumerate(kinds)
    ]
    script.append(Fault(15 * NS_PER_S, "replace_models", (0,), 2 * NS_PER_S, 1))  # what `replaced_keys` needs
    # A seed in which somebody greets at the right time: what nobody has sent cannot be sent again.
    simulation = Simulation(scenario, 8, Options(script=script))
    simulation.run()
    acted = simulation.injector.hostile.acted
    assert [kind for kind in kinds if not acted.get(kind)] == []
    assert simulation.hosts[6].hostile  # what stays in its log was never its node's word


def test_every_attack_on_lending_acts_where_somebody_lends_and_is_not_drawn_elsewhere():
    lending = [kind for kind in ATTACKS if ATTACK_KINDS[kind].needs_lending]
    script = [
        Fault((20 + 2 * index) * NS_PER_S, kind, (1,), NS_PER_S, max(ATTACK_KINDS[kind].per_s))
        for index, kind in enumerate(lending)
    ]
    short = {"swarm.seconds": 45, "checks.settle_s": 10}
    simulation = Simulation(load_scenario("offload-fuzz", short), 5, Options(script=script))
    assert simulation.run().violations == []
    assert [kind for kind in lending if not simulation.injector.hostile.acted.get(kind)] == []
    for seed in range(20):
        drawn = Simulation(load_scenario("fuzz", {"faults.attacks": ["all"]}), seed).script
        assert not [fault for fault in drawn if fault.kind in lending]


def test_attacks_have_streams_of_their_own():
    bare = Simulation(load_scenario("fuzz", {"faults.attacks": []}), 11)
    attacked = Simulation(load_scenario("fuzz", {"faults.attacks": ["all"], "faults.attacks_most": 4}), 11)
    others = [fault for fault in attacked.script if fault in bare.script]
    assert others == bare.script
    assert any(fault.kind in ATTACK_KINDS for fault in attacked.script)


def test_an_unknown_attack_gets_a_suggestion():
    with pytest.raises(ScenarioError, match="did you mean junk_flood"):
        load_scenario("fuzz", {"faults.attacks": ["junk_floods"]})


def test_who_hears_an_accuser_first_is_answered_soon() -> None:
    """The accused have refuted it before; those whom it tells now wait for each answer in doubt.

    `tests/property/test_accuser_laws.py` has the law, and who waits longer.
    """
    script = [
        Fault(3_474_000_000, "mute", (6,), 16_603_000_000, 0),
        Fault(4_446_000_000, "freeze", (5,), 9_581_000_000, 0),
        Fault(35_688_000_000, "accuse_mad", (2,), 12_126_000_000, 10),
        Fault(35_688_000_000, "lost_disk", (2,), 915_000_000, 0),
        Fault(36_603_000_000, "own_revocation", (2,), 9_574_000_000, 1),
        Fault(46_177_000_000, "two_faced_record", (0,), 3_413_000_000, 5),
    ]
    run = Simulation(load_scenario("fuzz", {}), 161000087, Options(script=script)).run()
    assert run.violations == []
