"""Law: what one member's storm costs the others is bounded beside whatever model they fetch meanwhile.

Counted are bytes of the busiest honest member over ten seconds, in the fuzzer's swarm, with the storm and without it.
"""

import pytest

from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.swim import relays
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.mutants import assert_found

S = 1_000_000_000
THIEF = 6
STORM_FROM_S, STORM_S, STORM_PER_S = 4, 20, 50
"""The model is published two seconds after the storm began."""
WINDOW_S, SECONDS = 10, 24
STORM_BYTES_S = 10_000
"""What a storm may add over ten seconds: 64 KiB passed on by each, 70 KB repaired, and twice the budget come to less,
since most of what is passed on is repaired or repaired by another."""
BOUND_BYTES_S = 40_000
"""`checks.attacked_bytes_s` of the fuzzer, beside a model of any size."""


def busiest_bytes_s(model_kb: int, *, storm: str) -> float:
    """Bytes a second of the busiest honest member, over the ten seconds in which it sent most."""
    settings = {
        "release.chance": 1.0,
        "release.model_sizes_kb": [model_kb],
        "release.bad_at_s": 0.0,
        "release.revoke_at_s": 0.0,
        "release.next_at_s": 0.0,
        "swarm.seconds": SECONDS,
        "checks.settle_s": 2,
        "faults.kinds": [],
        "faults.attacks": [],
    }
    script = [Fault(STORM_FROM_S * S, storm, (THIEF,), STORM_S * S, STORM_PER_S)] if storm else []
    simulation = Simulation(load_scenario("fuzz", settings), 1, Options(script=script))
    sent: list[list[int]] = []

    def look(_: object) -> None:
        sent.append(list(simulation.network.sent_bytes))
        simulation.engine.at(simulation.engine.now_ns + S, look, None)

    simulation.engine.at(S, look, None)
    simulation.run()
    return max(
        (last[index] - first[index]) / WINDOW_S
        for first, last in zip(sent, sent[WINDOW_S:], strict=False)
        for index in range(THIEF)
    )


@pytest.mark.parametrize("model_kb", [16, 256, pytest.param(1_000, marks=pytest.mark.slow)])
def test_law_a_storm_of_metadata_costs_as_much_beside_any_model(model_kb: int) -> None:
    calm, stormy = busiest_bytes_s(model_kb, storm=""), busiest_bytes_s(model_kb, storm="meta_storm")
    assert stormy - calm <= STORM_BYTES_S
    assert stormy <= BOUND_BYTES_S


def beside_a_small_model() -> None:
    test_law_a_storm_of_metadata_costs_as_much_beside_any_model(16)


def test_what_is_repaired_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of all repairs alone lets twice an author's metadata go out at once."""
    assert_found(lambda patch: patch.setattr(relays, "_SOON", 1 / 4), beside_a_small_model, monkeypatch)


def beside_a_large_model() -> None:
    assert busiest_bytes_s(1_000, storm="") <= BOUND_BYTES_S * 3 / 4


def test_law_a_large_model_leaves_room_for_a_storm() -> None:
    beside_a_large_model()


def test_a_model_that_is_given_as_fast_as_it_is_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(
        lambda patch: patch.setattr(UploadBudget, "is_spent", lambda *_: False), beside_a_large_model, monkeypatch
    )
