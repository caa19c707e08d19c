"""Mutants of verdicts: each has a judge decide alone, hold to its word, or be counted as who has seen the thing."""

import msgspec
import pytest

from swarmd_protocols.state.crdt.facts import Sighting
from swarmd_protocols.state.dedup import judged, tiers
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.observations import Judged
from tests.property import test_judge_laws as laws
from tests.support.mutants import assert_found, each_mutant


def a_judge_that_is_sure_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_UNSURE_MAX_MILLI", 1000)


def a_judge_holds_to_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict_on = judged.verdict_on

    def mutated(members: list[Entry], node: object, said: Judged, config: DedupConfig) -> Sighting:
        row = verdict_on(members, node, said, config)  # type: ignore[arg-type]
        own = [member.row for member in members if member.origin == node]
        return max([row, *own], key=lambda one: one.score_milli)

    monkeypatch.setattr(judged, "verdict_on", mutated)


def a_verdict_is_a_sighting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "is_verdict", property(lambda self: False))


def the_eyes_own_model_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever model it is, its word counts as another's."""
    verdict_on = judged.verdict_on

    def mutated(members: list[Entry], node: object, said: Judged, config: DedupConfig) -> Sighting:
        other = msgspec.structs.replace(said, model_digest=b"another!")
        return verdict_on(members, node, other, config)  # type: ignore[arg-type]

    monkeypatch.setattr(judged, "verdict_on", mutated)


def twice_judged_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "withdrawn", lambda members, node, row: [])


LAWS = (
    (laws.test_the_model_that_has_seen_it_is_no_other_judge_and_nothing_else_can_be_judged, the_eyes_own_model_judges),
    (laws.test_two_verdicts_that_turn_out_to_be_of_one_thing_become_one, twice_judged_counts_twice),
    (laws.test_law_verdicts_of_one_judge_confirm_no_doubtful_thing, a_judge_that_is_sure_decides),
    (laws.test_a_judge_confirms_with_the_author_changes_its_mind_and_withdraws, a_judge_holds_to_its_word),
    (laws.test_law_a_verdict_takes_nothing_away, a_verdict_is_a_sighting),
)


@each_mutant(LAWS)
def test_a_mutant_is_found(law, mutant, monkeypatch):
    assert_found(mutant, law, monkeypatch)
