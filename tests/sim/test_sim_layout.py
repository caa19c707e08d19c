"""Layouts stand connected and sparse, moves keep their promises, and both repeat."""

from itertools import pairwise
from math import hypot

import pytest

from swarmd.cli.main import main
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.fuzz import FuzzPlan, run_seed
from swarmd_sim.run.scenario import load_scenario, scenario_from_table
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.setup import drawn, places, seeds_of
from swarmd_sim.run.simulation import Options, Simulation
from swarmd_sim.world.layout import Place, are_near, is_connected, reached
from swarmd_sim.world.mobility import TICK_NS, Mobility

RANGE_CM = 20_000
S = 1_000_000_000


def scenario(kind: str, nodes: int = 20, **layout: object) -> Scenario:
    return scenario_from_table(
        {
            "swarm": {"nodes": nodes},
            "site": {"kind": "none"},
            "layout": {"kind": kind, **layout},
            "mobility": {"kind": "mule" if kind == "islands" else "none"},
            "drones": {"work": "none"},
            "radio": {"range_m": 200.0},
        },
        name=kind,
    )


def degrees(stand: list[Place]) -> list[int]:
    return [sum(are_near(a, b, RANGE_CM) for b in stand) - 1 for a in stand]


@pytest.mark.parametrize("nodes", [3, 20, 50, 200])
@pytest.mark.parametrize(("kind", "most", "mean"), [("line", 2, 2.0), ("grid", 4, 4.0), ("random", 30, 9.0)])
def test_a_layout_is_connected_and_sparse(kind: str, most: int, mean: float, nodes: int) -> None:
    for seed in range(1, 6):
        stand = places(scenario(kind, nodes), seed)
        assert len(stand) == nodes
        assert is_connected(stand, RANGE_CM)
        assert max(degrees(stand)) <= most
        assert sum(degrees(stand)) <= mean * nodes


def test_a_layout_depends_on_its_seed_alone() -> None:
    drawn = [places(scenario("random"), seed) for seed in range(1, 9)]
    assert drawn == [places(scenario("random"), seed) for seed in range(1, 9)]
    assert len({tuple(stand) for stand in drawn}) == 8


def test_islands_never_hear_each_other() -> None:
    stand = places(scenario("islands", 11), 1)
    assert sorted(len(reached(stand, index, RANGE_CM)) for index in (0, 9, 10)) == [1, 5, 5]


def test_everybody_is_told_to_join_those_next_to_it() -> None:
    chosen = scenario("line", 5)
    addresses = [f"a{index}" for index in range(5)]
    assert seeds_of(chosen, 1, addresses)[0] == ["a1"]
    assert seeds_of(chosen, 1, addresses)[2] == ["a1", "a3"]


def moved(kind: str, stand: list[Place], ticks: int, *, connected: bool = False) -> list[list[Place]]:
    """Where everybody stands after each tick."""
    mobility = Mobility(kind, stand, RANGE_CM, 1_500, 20.0, 2, connected, Choices(5), lambda index, place: None)
    seen = [list(stand)]
    for tick in range(ticks):
        mobility.tick(tick * TICK_NS)
        seen.append(list(mobility.places))
    return seen


def test_nobody_cuts_the_swarm_in_two_nor_is_faster_than_it_may_be() -> None:
    seen = moved("waypoint", places(scenario("random"), 3), 400, connected=True)
    assert all(is_connected(stand, RANGE_CM) for stand in seen)
    ways = [hypot(b[0] - a[0], b[1] - a[1]) for one, next_ in pairwise(seen) for a, b in zip(one, next_, strict=True)]
    assert max(ways) <= 750 + 2
    assert sum(way > 0 for way in ways) > len(ways) // 2


def test_without_that_promise_some_do() -> None:
    seen = moved("waypoint", places(scenario("random"), 3), 400)
    assert not all(is_connected(stand, RANGE_CM) for stand in seen)


def test_groups_part_and_meet() -> None:
    stand = places(scenario("grid", 16), 1)
    seen = moved("groups", list(stand), 400)
    whole = [is_connected(at, RANGE_CM) for at in seen]
    assert sum(a != b for a, b in pairwise(whole)) >= 2
    assert all(at[:8] == stand[:8] for at in seen)  # The southern rows stay.


def test_a_mule_meets_both_islands_again_and_again() -> None:
    stand = places(scenario("islands", 7), 1)
    seen = moved("mule", list(stand), 1_500)
    met = [sorted(reached(at, 6, RANGE_CM) - {6}) for at in seen]
    sides = [side[0] for side in met if side]
    crossings = sum(a != b for a, b in pairwise(sides) if {a, b} == {0, 3})
    assert crossings >= 2
    assert all(at[:6] == stand[:6] for at in seen)


def test_the_radio_is_told_and_a_run_repeats() -> None:
    def run() -> tuple[str, list[Place]]:
        overrides = {"mobility.kind": "waypoint", "mobility.from_s": 2.0, "swarm.seconds": 12, "swarm.nodes": 6}
        chosen = load_scenario("mesh-random", {**overrides, "checks.settle_s": 4.0, "fault": []})
        simulation = Simulation(chosen, 2, Options(script=[]))
        start = [simulation.radio.position_cm(index) for index in range(6)]
        digest = str(simulation.run().figures["trace_digest"])
        end = [simulation.radio.position_cm(index) for index in range(6)]
        assert start != end == simulation.mobility.places
        return digest, end

    assert run() == run()


def test_clocks_of_a_line_that_begin_seconds_apart_agree() -> None:
    """Also those of its two ends, which no medians of neighbours bring together."""
    short = {"swarm.nodes": 12, "swarm.seconds": 50, "checks.settle_s": 10.0, "fault": []}
    figures = Simulation(load_scenario("mesh-line", short), 2).run().figures
    assert figures["clock_spread_s"] < 0.1


@pytest.mark.parametrize("seed", [7, 10])
def test_clocks_of_a_field_whose_parts_keep_times_of_their_own_agree(seed: int) -> None:
    assert Simulation(load_scenario("mesh-random", {}), seed).run().figures["clock_spread_s"] < 0.1


def test_a_sweep_takes_several_sizes(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--seconds", "3", "--set", "fault=[]", "--set", "checks.settle_s=1", "--seeds", "1", "--jobs", "1"]
    main(["sim", "sweep", "mesh-line", "--nodes", "3,4", *short, "--out", str(tmp_path)])
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[:3]] == ["swarm.nodes", "3", "4"]


def test_the_seed_draws_the_shape_and_nothing_else():
    scenario = load_scenario("mesh-fuzz", {})
    shapes = [drawn(scenario, seed) for seed in range(60)]
    assert {one.layout.kind for one in shapes} == {"line", "grid", "random"}
    assert {one.mobility.kind for one in shapes} == {"none", "waypoint"}
    assert all(2.0 <= one.mobility.speed_m_s <= 15.0 for one in shapes)
    assert shapes == [drawn(scenario, seed) for seed in range(60)]
    other = load_scenario("mesh-grid", {})
    assert all(drawn(other, seed) == other for seed in range(9))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_sparse_shapes_stand_what_they_have_to(seed):
    assert run_seed(FuzzPlan("mesh-fuzz", {}), seed).rules == ()
