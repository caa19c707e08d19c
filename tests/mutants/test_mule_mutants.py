"""A mutant for each law of a mule that has little room; the laws are in `tests/sim/test_sim_mule.py`."""

import pytest

from swarmd_protocols.state.crdt.cuts import Cuts
from swarmd_protocols.state.crdt.log import OriginLog, Verdict
from tests.mutants.test_state_mutants import refuse_when_full
from tests.sim import test_sim_mule as laws
from tests.support.mutants import Law, Mutant, assert_found, each_mutant


def _there_is_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginLog, "_cut", lambda self, cost_max: [])


def _what_comes_first_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginLog, "_cut", refuse_when_full)


def _nothing_is_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cuts, "note", lambda self, origin, batches: None)


def _nobody_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cuts, "news", lambda self, now_ns: "")


def _what_lies_below_is_taken_again(patch: pytest.MonkeyPatch) -> None:
    """The floor is forgotten, so what was let go comes back, and goes, at each comparison."""
    original = OriginLog.add

    def add(self, batch, cost_max):
        verdict, dropped = original(self, batch, cost_max)
        if verdict is not Verdict.KNOWN:
            self.base = self.said
        return verdict, dropped

    patch.setattr(OriginLog, "add", add)


MUTANTS: list[tuple[Law, Mutant]] = [
    (laws.a_full_mule_says_what_it_let_go, _there_is_no_bound),
    (laws.a_full_mule_says_what_it_let_go, _what_comes_first_stays),
    (laws.a_full_mule_says_what_it_let_go, _nothing_is_counted),
    (laws.a_full_mule_says_what_it_let_go, _nobody_is_told),
    (laws.a_full_mule_says_what_it_let_go, _what_lies_below_is_taken_again),
    (laws.where_all_have_little_room_all_end_with_one_digest, _what_comes_first_stays),
]


@each_mutant(MUTANTS)
def test_a_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
