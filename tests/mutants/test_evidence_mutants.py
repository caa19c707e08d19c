"""Mutants of evidence: each counts what is one witness as more, loses one, or says it otherwise from node to node."""

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import Sighting
from swarmd_protocols.state.dedup import own, tiers
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.dedup.tiers import Said, Witness
from swarmd_protocols.state.observations import LocalDetection
from tests.property import test_evidence_laws as laws
from tests.property import test_tier_laws as tier_laws
from tests.support.mutants import assert_found, each_mutant


def looks_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_worth", lambda total, count, correlation: total)


def every_word_of_an_author_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = tiers._looks
    monkeypatch.setattr(
        tiers,
        "_looks",
        lambda words, config: looks(
            [one._replace(origin=NodeId(bytes([at]) * 16)) for at, one in enumerate(words)], config
        ),
    )


def each_runtime_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the digest named what computed the answer."""
    models = tiers._models
    monkeypatch.setattr(
        tiers,
        "_models",
        lambda words, config: models([one._replace(model=one.model + one.origin) for one in words], config),
    )


def all_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of all words, so that one author's doubt takes away from the others'."""

    def mutated(words: list[Witness], config: DedupConfig) -> int:
        total = sum(one.certainty_milli for one in words)
        return tiers._worth(total, max(len(words), 1), config.look_correlation_milli)

    monkeypatch.setattr(tiers, "evidence_milli", mutated)
    monkeypatch.setattr(laws, "evidence_milli", mutated)


def an_author_has_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: its surest word alone counts, and with that word's model it may count for less than before."""
    models = tiers._models

    def mutated(words: list[Witness], config: DedupConfig) -> int:
        best: dict[NodeId, Witness] = {}
        for word in words:
            if word.origin not in best or word[1:] > best[word.origin][1:]:
                best[word.origin] = word
        return models(list(best.values()), config)

    monkeypatch.setattr(tiers, "_models", mutated)


def the_lowest_correlation_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what witnesses say: a liar then makes others' looks unlike each other."""

    def mutated(words: list[Witness], which: int, config: DedupConfig) -> list[tuple[int, list[Witness]]]:
        return [(min((tiers._known(word.alike, config)[which] for word in words), default=1000), list(words))]

    monkeypatch.setattr(tiers, "_up_to", mutated)


def an_hour_is_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    days = tiers._days
    hour = DedupConfig(other_day_ms=3_600_000)
    monkeypatch.setattr(tiers, "_days", lambda words, config: days(words, hour))


def no_day_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_days", lambda words, config: 0)


def an_author_is_two_on_two_days(monkeypatch: pytest.MonkeyPatch) -> None:
    days = tiers._days

    def mutated(words: list[Witness], config: DedupConfig) -> int:
        return days([one._replace(origin=NodeId(bytes([at]) * 16)) for at, one in enumerate(words)], config)

    monkeypatch.setattr(tiers, "_days", mutated)


def the_first_models_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few words are tried: the second of a model is left out though its author is free."""
    monkeypatch.setattr(tiers, "_CHOICES_MAX", 2)


def what_a_bundle_says_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "alike", property(lambda self: (0, 0)))


def a_later_look_makes_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    after = own.said_after

    def mutated(row: Sighting, look: LocalDetection, config: DedupConfig) -> Said:
        need = look.need_milli if look.score_milli < look.need_milli else 0
        return after(row, look, config)._replace(need_milli=need)

    monkeypatch.setattr(own, "said_after", mutated)


def the_highest_score_is_the_surest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: whatever it needs, and by whatever model."""

    def mutated(row: Sighting, look: LocalDetection, config: DedupConfig) -> Said:
        if not row.need_milli or look.score_milli >= look.need_milli:
            return Said(max(row.score_milli, look.score_milli), 0, (0, 0), True)
        if look.score_milli < row.score_milli:
            return Said(row.score_milli, row.need_milli, row.alike, False)
        return Said(look.score_milli, look.need_milli, look.alike_milli, True)

    monkeypatch.setattr(laws, "said_after", mutated)


def another_models_look_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_OTHER_MODEL_MILLI", 0)


def the_better_place_says_who_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was, when two lives of a register meet."""
    merged = tiers.merged

    def mutated(a: Sighting, b: Sighting, config: DedupConfig) -> Sighting:
        better = a if a.covariance_cm2 <= b.covariance_cm2 else b
        return merged(a, b, config)._replace(need_milli=better.need_milli)

    monkeypatch.setattr(laws, "merged", mutated)


LAWS = (
    (laws.test_ten_looks_are_worth_the_measured_one, looks_are_independent),
    (laws.test_law_one_author_confirms_nothing, every_word_of_an_author_counts),
    (laws.test_law_a_model_in_several_runtimes_is_one_model, each_runtime_is_a_model),
    (laws.test_law_no_order_shows_and_no_word_takes_away, all_must_agree),
    (laws.test_an_authors_second_word_by_anothers_model_takes_nothing_from_its_first, an_author_has_one_model),
    (laws.test_law_who_says_that_its_looks_are_unlike_others_makes_no_others_so, the_lowest_correlation_counts),
    (laws.test_a_look_on_another_day_counts_by_its_own_correlation, an_hour_is_a_day),
    (laws.test_a_look_on_another_day_counts_by_its_own_correlation, no_day_is_another),
    (laws.test_law_one_author_confirms_nothing, an_author_is_two_on_two_days),
    (laws.test_law_the_choice_of_witnesses_is_the_best, the_first_models_count),
    (laws.test_what_a_bundle_says_of_looks_reaches_everybody, what_a_bundle_says_stays_at_home),
    (tier_laws.test_a_sure_thing_stays_sure, a_later_look_makes_unsure),
    (laws.test_law_an_authors_further_look_never_lowers_the_evidence, the_highest_score_is_the_surest),
    (laws.test_a_look_by_anothers_model_must_be_surer_by_more_than_it_loses, another_models_look_counts_at_once),
    (laws.test_a_register_that_was_sure_is_sure_when_two_lives_of_it_meet, the_better_place_says_who_is_sure),
)


@each_mutant(LAWS)
def test_a_mutant_is_found(law, mutant, monkeypatch):
    assert_found(mutant, law, monkeypatch)
