"""Borrowing in the simulated swarm: faults, a liar, no broken rule; each checker sees the bug it is there for."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarmd_protocols.offload import requests
from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.reputation import Reputation
from swarmd_sim.run import offload as world
from swarmd_sim.run.offload import OffloadWorld
from swarmd_sim.run.offload_fleet import LARGER_BUNDLE
from swarmd_sim.run.processor import Processor
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

SHORT: dict[str, Any] = {
    "swarm.nodes": 12,
    "swarm.seconds": 60,
    "checks.settle_s": 10.0,
    "offload.strong": 3,
    "offload.busy": 3,
    "fault": [
        {"kind": "kill", "at_s": 25.0, "duration_s": 8.0, "nodes": [0]},
        {"kind": "freeze", "at_s": 40.0, "duration_s": 4.0, "nodes": [1]},
    ],
}


def run(seed: int = 1, **overrides: Any) -> Result:
    return Simulation(load_scenario("offload-swarm-20", {**SHORT, **overrides}), seed).run()


def test_requests_are_answered_and_the_liar_is_known() -> None:
    result = run()
    assert result.violations == []
    figures: Any = result.figures["offload"]
    alone: Any = run(**{"offload.lending": False}).figures["offload"]
    assert figures["settled"] == figures["asked"] > 800
    assert figures["answered_share"] > 0.95 > 0.7 > alone["answered_share"]
    assert figures["counts"]["borrow_checked_wrong"] > 0
    assert alone["borrowed"] == 0
    # The own eye's frames wait for at most the one inference that runs when they come.
    assert figures["frame_p99_ms"] <= 1.10 * alone["frame_p99_ms"]


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run(3, **{"swarm.seconds": 35, "fault": []}) for _ in range(2))
    assert first.figures["trace_digest"] == second.figures["trace_digest"]
    assert first.figures["offload"] == second.figures["offload"]


def test_without_the_section_nothing_is_there() -> None:
    without = {"offload.requests_per_s": 0.0, "fault": [], "swarm.seconds": 20}
    result = Simulation(load_scenario("offload-swarm-20", {**SHORT, **without}), 1).run()
    assert "offload" not in result.figures


def _first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    def next_task(self: Processor) -> Any:
        heads = [waiting for waiting in self._waiting if waiting]
        return min(heads, key=lambda waiting: waiting[0].at_ns).popleft() if heads else None

    patch.setattr(Processor, "next_task", next_task)


def _no_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_timer", lambda self, number, what, now_ns: [])


def _another_bundle_answers(patch: pytest.MonkeyPatch) -> None:
    honest = world.answer_to
    patch.setattr(world, "answer_to", lambda digest, data: honest(LARGER_BUNDLE, data))
    patch.setattr(world, "is_well_formed", lambda digest, data: True)


def _liars_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reputation, "is_ejected", lambda self, lender, now_ns: False)


def _settles_twice(patch: pytest.MonkeyPatch) -> None:
    whole = Borrower._deliver

    def deliver(self: Any, *arguments: Any, **named: Any) -> Any:
        effects = whole(self, *arguments, **named)
        return [*effects, effects[-1]]

    patch.setattr(Borrower, "_deliver", deliver)


def _settles_another(patch: pytest.MonkeyPatch) -> None:
    whole = OffloadWorld.on_order

    def on_order(self: Any, host: Any, order: object) -> None:
        if isinstance(order, requests.Settle):
            order = msgspec.structs.replace(order, digest=bytes(32))
        whole(self, host, order)

    patch.setattr(OffloadWorld, "on_order", on_order)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, dict[str, Any]]] = [
    (_first_come_first_served, "offload.own_first", {}),
    (_no_deadline, "offload.open", {}),
    (_another_bundle_answers, "offload.other_bundle", {}),
    (_settles_another, "offload.other_bundle", {}),
    (_liars_are_kept, "offload.liar_kept", {}),
    (_settles_twice, "offload.twice", {}),
]


@pytest.mark.parametrize(("mutant", "rule", "overrides"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_checker_sees_its_bug(
    mutant: Callable[[pytest.MonkeyPatch], None], rule: str, overrides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert rule in {violation.rule for violation in run(**overrides).violations}
