"""A whole scenario with partial views under the checkers: facts, events, claims, a cut, a power loss."""

from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Options, Simulation


def test_state_events_and_claims_hold_over_a_partial_overlay() -> None:
    table = {
        "title": "Twelve nodes that know a few each",
        "swarm": {"nodes": 12, "seconds": 45, "seeds": 2},
        "gossip": {"full_view_max": 6, "active_view": 4, "passive_view": 10},
        "workload": {"user_events_per_min": 20, "detections_per_min": 20, "notes_per_min": 5},
        "fault": [
            {"kind": "partition", "at_s": 12.0, "duration_s": 6.0, "nodes": list(range(6))},
            {"kind": "power_loss", "at_s": 14.0, "duration_s": 4.0, "nodes": [3, 10]},
        ],
        "checks": {"settle_s": 20.0},
    }
    run = Simulation(scenario_from_table(table, name="partial"), 5, Options())
    result = run.run()
    assert result.violations == []
    assert sum(host.node.summary().partial for host in run.hosts if host.process_up) == 12
