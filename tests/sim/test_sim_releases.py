"""Models in the simulator: the daemon's own release protocol on every node, a bad version, thieves and a poisoner."""

from typing import Any

import pytest

from swarmd_protocols.releases.reports import Verdict
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.mutants import mutated
from swarmd_sim.run.publisher import Flaw, apply_delta, flaw_of, make_delta, make_model
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

CALM: dict[str, Any] = {"faults.kinds": [], "faults.attacks": [], "release.chance": 1.0}
CALM |= {"drones.work": "none", "site.kind": "none"}
CALM |= {"swarm.seconds": 70, "checks.settle_s": 25.0, "workload.counters_s": 0.0, "workload.notes_per_min": 0.0}


NO_BAD_ONE: dict[str, Any] = {"release__bad_at_s": 0.0, "release__revoke_at_s": 0.0}


def simulated(seed: int, **overrides: Any) -> Simulation:
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    simulation = Simulation(load_scenario("fuzz", {**CALM, **keys}), seed, Options(timeline=True))
    simulation.run()
    return simulation


@pytest.fixture(scope="module")
def calm() -> Simulation:
    return simulated(4, release__revoke="bad")


def test_a_good_release_reaches_everybody_by_its_canaries(calm: Simulation) -> None:
    world = calm.releases
    assert world is not None
    assert calm.watch.violations == []
    second = next(one for one in world.publisher.signed.values() if one.version == 2)
    trials = [run for run in world.runs if run.release == second.digest and run.is_trial]
    passes = [judged for judged in world.verdicts if judged.release == second.digest]
    assert [judged.verdict for judged in passes] == [Verdict.PASS] * 7
    # Stage one is two nodes; nobody else begins before both have passed.
    assert {run.host for run in trials[:2]} == {judged.host for judged in passes[:2]}
    assert trials[2].at_ns >= passes[1].at_ns


def test_a_bad_release_stops_at_its_canaries_and_all_end_on_the_next(calm: Simulation) -> None:
    world = calm.releases
    assert world is not None
    bad = next(one for one in world.publisher.signed.values() if one.version == 3)
    assert bad.flaw is not Flaw.NONE
    assert len({run.host for run in world.runs if run.release == bad.digest}) <= 2
    assert {judged.verdict for judged in world.verdicts if judged.release == bad.digest} == {Verdict.FAIL}
    assert bad.digest in world.publisher.revoked_ns
    assert {world.version_of(world.running(host)) for host in calm.hosts} == {"v4"}
    assert "v3 is revoked" in "\n".join(text for _at, text in world.story)


def test_thieves_forge_and_poison_in_vain() -> None:
    kinds = ("poison_delta", "forge_release", "accuse")
    faults = [
        {"kind": kind, "at_s": 4.0, "duration_s": 38.0, "nodes": [node], "amount": 5} for node, kind in enumerate(kinds)
    ]
    simulation = simulated(2, fault=faults, release__revoke="bad")
    assert simulation.watch.violations == []
    refused = " ".join(simulation.watch.rejected)
    assert "does not hash to the list" in refused
    assert "release statement lacks 2 good signatures" in refused
    assert "delta statement lacks 2 good signatures" in refused
    assert "is not signed by its node" in refused
    assert simulation.releases is not None
    assert {simulation.releases.version_of(simulation.releases.running(host)) for host in simulation.hosts} == {"v4"}


@pytest.mark.parametrize(
    ("mutant", "rule", "overrides"),
    [
        ("release-silence-promotes", "releases.canary", {}),
        ("release-no-way-back", "releases.revoked", {"release__revoke": "running", "release__next_at_s": 0.0}),
        ("release-no-floor", "releases.below_floor", {**NO_BAD_ONE, "release__soak_s": 8}),
    ],
)
def test_the_checker_sees_a_broken_protocol(mutant: str, rule: str, overrides: dict[str, Any]) -> None:
    with mutated(mutant):
        broken = {violation.rule for violation in simulated(4, **overrides).watch.violations}
    assert rule in broken


def test_models_and_deltas_are_what_they_say() -> None:
    choices = Choices(1)
    base = make_model(choices, 1, Flaw.NONE, 20_000)
    target = make_model(choices, 2, Flaw.SLOW, 20_000, base)
    delta = make_delta(base, target)
    assert len(delta) < len(target) // 2
    assert apply_delta(base, delta, len(target)) == target
    assert flaw_of(target) is Flaw.SLOW
    assert apply_delta(base, b"junk", len(target)) is None
    for cut in range(0, len(delta), 97):
        assert apply_delta(base, delta[:cut], len(target)) != target


@pytest.mark.parametrize(
    ("kind", "mutant", "is_seen"),
    [
        ("borrow_address", "", False),
        ("meta_storm", "", False),
        ("meta_storm", "release-halt-ignored", True),
    ],
)
def test_a_liars_failure_halts_what_it_is_told_of(kind: str, mutant: str, is_seen: bool) -> None:
    """Of the two that fail the bad version one is a liar: one whose words go astray, and one whose words arrive."""
    script = [
        Fault(18_998_000_000, kind, (2,), 10_643_000_000, 5),
        Fault(21_282_000_000, "power_loss", (0, 4), 10_132_000_000, 0),
        Fault(26_187_000_000, "lie_health", (0,), 12_734_000_000, 0),
    ]
    later = {"release.turn_s": 25.0, "release.revoke_at_s": 0.0, "release.next_at_s": 0.0} if is_seen else {}
    scenario = load_scenario("fuzz", {"release.upload_bytes_s": 0, **later})
    with mutated(mutant):
        simulation = Simulation(scenario, 40_001_332, Options(script=script[: 1 if is_seen else 3]))
        rules = {violation.rule for violation in simulation.run().violations}
    assert simulation.releases is not None
    bad = next(one for one in simulation.releases.publisher.signed.values() if one.version == 3)
    said = [one for one in simulation.releases.verdicts if one.release == bad.digest]
    assert [one.host for one in said if one.hostile] == [2]
    assert ("releases.halt_ignored" in rules) == is_seen


def test_what_a_full_disk_refused_comes_within_seconds_once_there_is_room() -> None:
    """A device that has lost its disk, and whose new one is full for two seconds while it fetches."""
    second = 1_000_000_000
    script = [
        Fault(45_577 * second // 1_000, "lost_disk", (0,), second * 64 // 100, 0),
        Fault(46_340 * second // 1_000, "disk_full", (0,), 1_916 * second // 1_000, 0),
    ]
    simulation = Simulation(load_scenario("fuzz"), 151_000_435, Options(script=script))
    simulation.run()
    assert simulation.watch.violations == []
