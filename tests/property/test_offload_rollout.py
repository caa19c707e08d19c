"""Releases roll under load: no answer of two of them, no question another's answer, no second without service.

A million requests of the same fleet are `python -m tests.bench.rollout_million`.
"""

from typing import Any

import pytest

from swarmd_protocols.offload import requests
from swarmd_protocols.offload.cache import AnswerCache
from swarmd_protocols.offload.cascade import Walk
from tests.support import rollout
from tests.support.mutants import assert_found, each_mutant
from tests.support.rollout import Fleet, digests_of


def roll(seed: int = 1) -> dict[str, int]:
    """One release through a small fleet, of which one lender dies in it."""
    fleet = Fleet(seed, lenders=4, borrowers=6, rate=20.0)
    fleet.run(1)
    return fleet.figures()


def a_release_mixes_nothing() -> None:
    found = roll()
    assert (found["mixed"], found["wrong"]) == (0, 0)


def somebody_answers_all_the_time() -> None:
    assert roll()["seconds_without_service"] == 0


def test_a_release_rolls_through_a_fleet() -> None:
    found = roll(2)
    assert (found["mixed"], found["wrong"], found["seconds_without_service"]) == (0, 0, 0)
    assert found["changed"] == 6
    assert found["killed"] == 1
    assert found["requests"] == 2 * found["programs"] > 1_000
    assert found["whole"] > 0.95 * found["programs"]
    assert found["kept"] > 50


def _a_name_means_whatever_has_it_now(patch: pytest.MonkeyPatch) -> None:
    """A lender's worker runs what it loaded last, whichever digest the order names."""

    def infer(self: Fleet, device: Any, order: requests.Infer) -> None:
        newest = digests_of(max(device.held))[1]
        data, life = rollout.answer_of(newest, order.data), device.life
        self._at(self.now_ns + 1, lambda: self._ran(device, life, order.job, data))

    patch.setattr(Fleet, "_infer", infer)


def _answers_are_kept_by_question_alone(patch: pytest.MonkeyPatch) -> None:
    whole, put = AnswerCache.get, AnswerCache.put
    first: dict[Any, Any] = {}

    def same(self: AnswerCache, key: Any) -> Any:
        return first.setdefault((id(self), key.input_sha256), key)

    patch.setattr(AnswerCache, "get", lambda self, key, now_ns: whole(self, same(self, key), now_ns))
    patch.setattr(AnswerCache, "put", lambda self, key, kept, now_ns: put(self, same(self, key), kept, now_ns))


def _a_walk_takes_the_newest_plan(patch: pytest.MonkeyPatch) -> None:
    whole = Walk.next_step
    seen: list[Any] = []

    def next_step(self: Walk, left_ns: int) -> Any:
        if self.plan not in seen:
            seen.append(self.plan)
        self.plan = seen[-1]
        return whole(self, left_ns)

    patch.setattr(Walk, "next_step", next_step)


def _borrowers_do_not_look_who_offers(patch: pytest.MonkeyPatch) -> None:
    def change(self: Fleet, device: Any, version: int) -> None:
        device.version = version

    whole = Fleet._roll

    def at_once(self: Fleet, version: int, begin_ns: int) -> None:
        whole(self, version, begin_ns)
        for device in self.devices.values():
            if not device.is_lender:
                self._at(begin_ns - rollout.S, lambda device=device: change(self, device, version))  # type: ignore[misc]

    patch.setattr(Fleet, "_roll", at_once)


def _the_old_version_goes_at_once(patch: pytest.MonkeyPatch) -> None:
    whole = Fleet._hold
    patch.setattr(Fleet, "_hold", lambda self, device, versions: whole(self, device, versions[-1:]))
    patch.setattr(Fleet, "_change", lambda self, device, version: None)


PAIRS = [
    (a_release_mixes_nothing, _a_name_means_whatever_has_it_now),
    (a_release_mixes_nothing, _answers_are_kept_by_question_alone),
    (a_release_mixes_nothing, _a_walk_takes_the_newest_plan),
    (somebody_answers_all_the_time, _borrowers_do_not_look_who_offers),
    (somebody_answers_all_the_time, _the_old_version_goes_at_once),
]


@each_mutant(PAIRS)
def test_a_mutant_is_found(law: Any, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
