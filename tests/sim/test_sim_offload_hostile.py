"""Hostile lenders and borrowers among nine devices: no rule is broken, honest ones are served; each checker's bug."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from swarmd_protocols.effects import SetTimer
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


@pytest.mark.parametrize(
    "kind", ["lend_lies", "lend_garbage", "lend_nothing", "forge_offers", "borrow_flood", "borrow_held"]
)
def test_a_hostile_member_costs_honest_ones_little(kind: str) -> None:
    result = run(kind, BORROWER if kind.startswith("borrow") else THIEF)
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
    if kind == "borrow_held":
        assert counts["lent_held"] > 100
        assert counts["lent_refused_busy"] > counts.get("borrow_refused_busy", 0), (
            "the thief is out of places, not the others"
        )
        assert result.figures["rejected"], "who wants more than may be held is named"


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


def _what_is_held_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """When its time comes, and without a word."""
    patch.setattr(Lender, "on_held", lambda self, job, now_ns: self._end([job] if job in self._jobs else []))


def _what_is_held_is_always_late(patch: pytest.MonkeyPatch) -> None:
    def on_held(self: Lender, job: int, now_ns: int) -> Any:
        one = self._jobs.get(job)
        return [] if one is None or one.held is None else [*self._end([job]), self._refuse_job(one, "late")]

    patch.setattr(Lender, "on_held", on_held)


def _what_is_held_makes_room_for_nobody(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_request

    def on_request(self: Lender, borrower: Any, request: Any, now_ns: int) -> Any:
        room = self._make_room(borrower, 0) if request.held_ms else []
        return [*room, *whole(self, borrower, request, now_ns)]

    patch.setattr(Lender, "on_request", on_request)


def _what_is_held_has_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "_make_room", lambda self, borrower, has: [])


def _what_is_held_is_held_longer(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_request

    def on_request(self: Lender, *arguments: Any) -> Any:
        found = whole(self, *arguments)
        return [
            SetTimer(one.key, one.at_ns + 5_000_000_000) if isinstance(one, SetTimer) and one.key[1] == "held" else one
            for one in found
        ]

    patch.setattr(Lender, "on_request", on_request)


def _who_says_so_twice_begins_twice(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_request

    def on_request(self: Lender, borrower: Any, request: Any, now_ns: int) -> Any:
        mine = [job for job, one in self._jobs.items() if (one.bound.borrower, one.bound.id) == (borrower, request.id)]
        if mine and not request.held_ms:
            return self._begin(mine[0], self._jobs[mine[0]], request, now_ns)
        return whole(self, borrower, request, now_ns)

    patch.setattr(Lender, "on_request", on_request)


@pytest.mark.parametrize(
    ("mutant", "rule", "kind"),
    [
        (_anything_has_a_form, "offload.garbage", "lend_garbage"),
        (_time_teaches_nothing, "offload.silent_kept", "lend_nothing"),
        (_everything_is_taken, "offload.jobs", "borrow_flood"),
        (_everything_is_taken, "offload.jobs", "borrow_held"),
        (_what_is_held_is_dropped, "offload.copy_dropped", "borrow_held"),
        (_what_is_held_is_always_late, "offload.copy_dropped", "borrow_held"),
        (_what_is_held_makes_room_for_nobody, "offload.copy_dropped", "borrow_held"),
        (_what_is_held_has_its_place, "offload.held", "borrow_held"),
        (_what_is_held_is_held_longer, "offload.held", "borrow_held"),
        (_who_says_so_twice_begins_twice, "offload.held", "borrow_held"),
    ],
)
def test_a_checker_sees_its_bug(
    mutant: Callable[[pytest.MonkeyPatch], None], rule: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    result = run(kind, BORROWER if kind.startswith("borrow") else THIEF, **{"offload.requests_per_s": 12.0})
    assert rule in {violation.rule for violation in result.violations}
