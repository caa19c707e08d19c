"""What an eye reports by mistake is an object, and no invention of the swarm's."""

from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Simulation


def test_false_alarms_of_an_eye_are_told_from_inventions() -> None:
    table = {
        "title": "Eyes that see ghosts",
        "swarm": {"nodes": 6, "seconds": 60},
        "site": {"kind": "farm", "tables": 12, "modules": 20, "faults": 0.05, "cell_m": 20.0, "site_map": True},
        "drones": {"work": "claims", "speed_m_s": 8.0},
        "detector": {"false_alarms_per_look": 0.2},
        "checks": {"settle_s": 10.0},
    }
    run = Simulation(scenario_from_table(table, name="ghosts"), 5)
    truth = run.run().figures["truth"]
    assert isinstance(truth, dict)
    assert truth["false"] > 3
    assert truth["false"] == truth["false_alarms"], "the rest the swarm has invented"
    assert truth["distinct_lost"] == 0
    assert run.watch.fleet is not None
    for eye in run.watch.fleet.eyes():
        eye.alarms.clear()
    again = run.truth.measure()
    assert again.false == truth["false"]
    assert again.false_alarms == 0, "without an eye's word all of them are inventions"
