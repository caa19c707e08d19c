"""Scenario files: what ships loads, what is wrong is refused with every problem named."""

import pytest

from swarmd_sim.errors import ScenarioError, SimError, TraceError
from swarmd_sim.run.mutants import catalogue, mutated
from swarmd_sim.run.node_factory import overridden
from swarmd_sim.run.scenario import load_scenario, scenario_names
from swarmd_sim.run.simulation import Simulation
from swarmd_sim.run.traces import read_flight_log, read_link_trace


def test_every_shipped_scenario_holds() -> None:
    names = scenario_names()
    assert {"solar-farm-20", "warehouse-robots-50", "partition-heal", "jammer", "stolen-key", "city-5000"} <= set(names)
    assert "bad-release" in names
    for name in names:
        assert load_scenario(name).title


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"swarm.nodess": 3}, "unknown key swarm.nodess; did you mean swarm.nodes?"),
        ({"swarm.nodes": 0}, "swarm.nodes is 0; it must be within 1 and 20000"),
        ({"swarm.nodes": "many"}, "swarm.nodes is 'many'; it must be int"),
        ({"radio.loss": 2.0}, "radio.loss is 2.0"),
        ({"radio.loss": float("nan")}, "must be a finite number"),
        ({"radio.model": "magic"}, "it is one of disc, pathloss"),
        ({"checks.settle_s": 500.0}, "the run has only"),
        ({"faults.kinds": ["kil"]}, "did you mean kill?"),
        ({"fault": [{"kind": "kill", "at_s": 900.0}]}, "the run ends at"),
        ({"fault": [{"kind": "kill", "at_s": 1.0, "nodes": [99]}]}, "nodes [99] do not exist"),
        ({"fault": [{"kind": "kill"}]}, "at_s is missing"),
        ({"site.kind": "none"}, "there are no cells to fly"),
        ({"site.kind": "file"}, "site.file must name a CSV"),
        ({"detector.pixels": True}, "a frame every 200 ms"),
        ({"release.bad_at_s": 5.0}, "release.publish_at_s must come before it"),
        ({"release.publish_at_s": 9.0, "release.next_at_s": 5.0}, "it must come after the other versions"),
        ({"release.publish_at_s": 900.0}, "the quiet time at the end begins at"),
        ({"release.publish_at_s": 9.0, "release.rollout": [5, 50]}, "rising percentages that end with 100"),
        ({"release.publish_at_s": 9.0, "release.revoke": "al"}, "it is one of bad, running, either"),
        ({"faults.kinds": ["poison_delta"]}, "the fault poison_delta needs releases"),
        ({"layout.kind": "line"}, "it needs radio.model"),
        ({"layout.kind": "lime"}, "it is one of homes, line, grid, random, islands"),
        ({"mobility.kind": "waypoint", "radio.range_m": 99.0}, 'drones.work must be "none"'),
        ({"layout.kind": "grid", "radio.range_m": 99.0}, "layout.spacing_m is 150; radio.range_m is only 99"),
        ({"mobility.kind": "mule", "radio.range_m": 99.0}, "go together"),
    ],
)
def test_what_is_wrong_is_named(overrides: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match="scenario partition-heal") as caught:
        load_scenario("partition-heal", overrides)
    assert words in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario("jammer", {"swarm.nodes": -1, "radio.loss": 7, "sight.kind": "farm"})
    assert str(caught.value).count("\n") >= 3


def test_an_unknown_scenario_gets_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="did you mean solar-farm-20"):
        load_scenario("solar-farm-2")


def test_gossip_overrides_are_checked_and_take_units() -> None:
    from swarmd_protocols.swim.config import SwimConfig

    config = overridden(SwimConfig(), {"protocol_period_ms": 300, "ping_req_fanout": 2}, "gossip")
    assert (config.protocol_period_ns, config.ping_req_fanout) == (300_000_000, 2)
    with pytest.raises(ScenarioError, match="did you mean gossip"):
        overridden(SwimConfig(), {"ping_req_fanouts": 2}, "gossip")
    with pytest.raises(ScenarioError, match="cannot work"):
        overridden(SwimConfig(), {"protocol_period_ns": 0}, "gossip")


_HEAD = "t_ms,source,destination,loss,rate_kbit_s,delay_ms\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_HEAD, "has no rows"),
        ("t_ms,source\n1,2\n", "column destination is missing"),
        (_HEAD + "0,0,1,0.1,1000,5\n90000,0,1,0.1,1000,5\n", "says nothing for 90 s"),
        (_HEAD + "5,0,1,0.1,1000,5\n4,0,1,0.1,1000,5\n", "goes back in time"),
        (_HEAD + "0,0,9,0.1,1000,5\n", "hosts are 0 to 3"),
        (_HEAD + "0,0,1,1.5,1000,5\n", "loss is 0 to 1"),
        (_HEAD + "0,0,1,x,1000,5\n", "it must be a number"),
        (_HEAD + "0,0,1,nan,1000,5\n", "it must be a number"),
    ],
)
def test_damaged_link_traces_are_refused(tmp_path, text: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_link_trace(path, 4)


def test_a_link_trace_holds_each_value_and_repeats(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(_HEAD + "0,0,1,0.5,1000,5\n10000,0,1,1,2000,9\n")
    trace = read_link_trace(path, 2)
    assert trace.at(0, 1, 9_000_000_000).loss_ppm == 500_000
    assert trace.at(0, 1, 10_000_000_000).rate_bit_s == 2_000_000
    assert trace.at(0, 1, 10_500_000_000).loss_ppm == 500_000
    assert trace.at(1, 0, 0) is None


def test_flight_logs_need_two_points_without_gaps(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t_ms,east_m,north_m\n0,1,2\n1000,3,4\n")
    assert [(p.east_cm, p.north_cm) for p in read_flight_log(path)] == [(100, 200), (300, 400)]
    path.write_text("t_ms,east_m,north_m\n0,1,2\n")
    with pytest.raises(TraceError, match="at least two"):
        read_flight_log(path)
    with pytest.raises(TraceError, match="No such file"):
        read_flight_log(tmp_path / "none.csv")


def test_every_mutant_still_has_its_target_and_is_put_back() -> None:
    mutants = catalogue()
    assert len(mutants) >= 40
    for name in mutants:
        with mutated(name):
            pass
    with pytest.raises(SimError, match=r"did you mean swim-no-refute"), mutated("swim-no-refut"):
        pass


def test_a_swarm_whose_views_fit_nowhere_is_refused_at_once() -> None:
    scenario = load_scenario("city-5000", {"gossip.full_view_max": 5_000})
    with pytest.raises(ScenarioError, match=r"25,000,000 in all.*full_view_max.*at most 2015 nodes"):
        Simulation(scenario, 1)
    with pytest.raises(ScenarioError, match=r"full_view_max \(4000\) members until.*at most \d+ nodes"):
        Simulation(load_scenario("city-5000", {"gossip.full_view_max": 4_000}), 1)
