"""Mistakes that attacks of a review need (`docs/protocols/trust-attacks.md`), those that no other file makes."""

from collections.abc import Callable

import pytest

from swarmd_protocols.state.crdt.batch import open_batch
from swarmd_protocols.state.crdt.messages import Proof
from swarmd_protocols.state.intake import Intake
from swarmd_protocols.trust import roots
from swarmd_protocols.trust.roots import RootChain
from tests.mutants.test_trust_mutants import _any_root, _not_anew
from tests.support.mutants import Mutant, assert_found
from tests.unit import test_state_attacks as state
from tests.unit import test_trust_attacks as trust


def _no_threshold(patch: pytest.MonkeyPatch) -> None:
    """A certificate that its own subject has signed holds."""
    patch.setattr(roots, "meets_threshold", lambda good, keys, need: True)
    patch.setattr(RootChain, "counts", lambda self, verified: True)
    patch.setattr(RootChain, "verified", lambda self, envelope: envelope)


def _proofs_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Two batches under one number convict, whoever is said to have written them."""

    def holds(self: Intake, proof: Proof) -> bool:
        first, second = open_batch(proof.first), open_batch(proof.second)
        return (first.origin, first.dot) == (second.origin, second.dot) and first.digest != second.digest

    patch.setattr(Intake, "holds", holds)


MUTANTS: dict[str, tuple[Mutant, Callable[[], None]]] = {
    "rogue_after_enrol_rotation": (_not_anew, trust.test_new_enrol_keys_shut_out_whom_the_stolen_ones_let_in),
    "prune_before_count, a floor": (_any_root, trust.test_replaced_floor_keys_erase_no_floor),
    "prune_before_count, models": (_any_root, trust.test_replaced_revoke_keys_push_no_model_out),
    "invented_origins": (_no_threshold, state.test_invented_origins_do_nothing),
    "quarantine_storm": (
        _proofs_are_believed,
        state.test_invented_culprits_are_proven_to_nobody_and_a_proven_one_settles,
    ),
}


@pytest.mark.parametrize("attack", MUTANTS)
def test_the_attack_succeeds_where_the_mistake_is_made(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, law = MUTANTS[attack]
    assert_found(mutant, law, monkeypatch)
