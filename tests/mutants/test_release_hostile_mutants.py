"""Each bound on what one member may cost or decide is removed in turn, and the attack it is there for then succeeds."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from swarmd_protocols.releases import allowance, peer_limits, policy, releases, reports, rollout, swarming
from tests.unit.test_release_hostile import ATTACKS

Patch = Callable[[pytest.MonkeyPatch], None]


def _set(where: object, name: str, value: object) -> Patch:
    return lambda patch: patch.setattr(where, name, value)


def _no_allowance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(allowance.Allowance, "take", lambda self, peer, cost, now_ns: True)


def _every_release_is_known(patch: pytest.MonkeyPatch) -> None:
    class Everything(frozenset[bytes]):
        def __contains__(self, one: object) -> bool:
            return True

    patch.setattr(policy.RolloutPolicy, "known", lambda self: Everything())


def _nothing_halts(patch: pytest.MonkeyPatch) -> None:
    whole = rollout.standing
    patch.setattr(rollout, "standing", lambda *args, **named: replace(whole(*args, **named), halted=False))


def _seeds_for_ever(patch: pytest.MonkeyPatch) -> None:
    whole = swarming.BlobSwarm.on_tick

    def on_tick(self: swarming.BlobSwarm, now_ns: int) -> list[swarming.SwarmAction]:
        self._grown_ns = 0
        return whole(self, now_ns)

    patch.setattr(swarming.BlobSwarm, "on_tick", on_tick)


MUTANTS: dict[str, tuple[str, Patch]] = {
    "one FAIL halts": ("one_fail_vote", _set(rollout, "LEAST_TO_HALT", 1)),
    "a promotion is not remembered": (
        "fails_after_promotion",
        _set(policy.RolloutPolicy, "_settle", lambda self, model, digest: []),
    ),
    "the floor settles nothing": (
        "fails_at_the_floor",
        _set(policy, "at_or_below_floor", lambda release, model: False),
    ),
    "everybody is due": ("fails_of_those_not_due", _set(rollout, "due_count", lambda cohort, nodes: nodes)),
    "nothing halts": ("a_bad_release_is_halted", _nothing_halts),
    "verdicts on anything are kept": ("vote_table_full", _every_release_is_known),
    "an author's models are not counted": ("models_nobody_has", _set(reports, "MAX_STATUSES_PER_NODE", 1 << 30)),
    "an author's verdicts are not counted": ("verdicts_without_end", _set(reports, "MAX_VOTES_PER_NODE", 1 << 30)),
    "a push is checked whole": ("report_flood", _set(releases, "MAX_PUSH_COST", 1 << 30)),
    "checking costs nothing": ("report_flood", _no_allowance),
    "answers cost nothing": ("question_flood", _no_allowance),
    "chunks without receipts": (
        "chunk_asked_again_and_again",
        _set(swarming.BlobSwarm, "_is_on_its_way", lambda self, node: False),
    ),
    "a seeder waits for ever for its takers": (
        "takers_that_give_nothing",
        _seeds_for_ever,
    ),
    "losses are believed at once": (
        "chunks_told_and_taken_back",
        _set(swarming.BlobSwarm, "_may_reset", lambda self, node, neighbour, now_ns: True),
    ),
    "lists as often as asked": ("list_flood", _set(peer_limits.FileLimits, "may_have_list", lambda *_: True)),
    "floods are heard": ("words_about_unknown_files", _no_allowance),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attack, patch = MUTANTS[mutant]
    patch(monkeypatch)
    assert not ATTACKS[attack](), f"{attack} is beaten off even when {mutant}"


def test_every_attack_has_a_mutant() -> None:
    assert {attack for attack, _ in MUTANTS.values()} == set(ATTACKS)
