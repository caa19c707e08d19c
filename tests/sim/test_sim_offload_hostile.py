"""Hostile lenders and borrowers among nine devices: no rule is broken, honest ones are served; each checker's bug."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.lending import Lender
from swarmd_protocols.offload.placement import Times
from swarmd_protocols.offload.whom import Whom
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

THIEF, BORROWER = 1, 6


def run(kind: str, node: int = THIEF, **overrides: Any) -> Result:
    fault = {"kind": kind, "at_s": 17.0, "duration_s": 18.0, "nodes": [node], "amount": 5}
    short = {
        "swarm.seconds": 46,
        "checks.settle_s": 10.0,
        "faults.kinds": [],
        "faults.attacks": [],
        "fault": [fault],
    }
    return Simulation(load_scenario("offload-fuzz", {**short, **overrides}), 2).run()


@pytest.mark.parametrize("kind", ["lend_lies", "lend_garbage", "lend_nothing", "forge_offers", "borrow_flood"])
def test_a_hostile_member_costs_honest_ones_little(kind: str) -> None:
    result = run(kind, BORROWER if kind == "borrow_flood" else THIEF)
    assert result.violations == []
    figures: Any = result.figures["offload"]
    counts = figures["counts"]
    assert figures["answered_share"] > 0.9
    # How it ends: lies are found by those with a model, garbage at once, silence by its time; forged offers are named.
    if kind == "lend_lies":
        assert counts["borrow_checked_wrong"] > 0
    if kind == "lend_garbage":
        assert counts["borrow_garbage"] > 0
    if kind in ("lend_garbage", "forge_offers"):
        assert counts["borrow_refused"] > 0
        assert result.figures["rejected"]
    if kind == "borrow_flood":
        assert counts["lent_refused_unknown"] + counts.get("lent_denied", 0) > 100


def test_another_owners_device_gets_nothing_however_it_begs() -> None:
    result = run("borrow_flood", BORROWER, **{"offload.owners": 3})
    assert result.violations == []
    figures: Any = result.figures["offload"]
    assert figures["counts"]["lent_refused_outside-same-owner"] > 100
    assert figures["counts"]["lent_answered"] > 100, "each owner's own are served"


def test_what_is_done_for_another_owner_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Whom, "broken_by", lambda self, member, own: "")
    result = run("borrow_flood", BORROWER, **{"offload.owners": 3})
    assert {violation.rule for violation in result.violations} == {"offload.outside"}


def _anything_has_a_form(patch: pytest.MonkeyPatch) -> None:
    whole = Borrower.__init__

    def init(self: Borrower, *rest: Any) -> None:
        whole(self, *rest[:7], lambda digest, data: True, *rest[8:])

    patch.setattr(Borrower, "__init__", init)


def _time_teaches_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Times, "note", lambda self, took_ns, now_ns, **_: None)


def _everything_is_taken(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.__init__

    def init(self: Lender, node: Any, seed: Any, crypto: Any, config: Any, *rest: Any) -> None:
        whole(self, node, seed, crypto, replace(config, jobs_max=999, jobs_each=999, turn_ns=1 << 60), *rest)

    patch.setattr(Lender, "__init__", init)


@pytest.mark.parametrize(
    ("mutant", "rule", "kind"),
    [
        (_anything_has_a_form, "offload.garbage", "lend_garbage"),
        (_time_teaches_nothing, "offload.silent_kept", "lend_nothing"),
        (_everything_is_taken, "offload.jobs", "borrow_flood"),
    ],
)
def test_a_checker_sees_its_bug(
    mutant: Callable[[pytest.MonkeyPatch], None], rule: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    result = run(kind, BORROWER if kind == "borrow_flood" else THIEF, **{"offload.requests_per_s": 12.0})
    assert rule in {violation.rule for violation in result.violations}
