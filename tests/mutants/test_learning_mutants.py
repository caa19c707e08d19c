"""A mutant for each rule of learning in the swarm: break the rule, and a law that stands for it must fail."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from swarmd_protocols.learning import learning, merging
from swarmd_protocols.learning.book import Book
from swarmd_protocols.learning.learning import Learning
from swarmd_protocols.releases.upload_budget import UploadBudget
from tests.property import test_learning_laws as laws
from tests.property import test_merge_bounds as bounds
from tests.property import test_merge_draws as draws
from tests.property import test_merge_steps as steps
from tests.sim import test_sim_learning as sim_laws
from tests.support.mutants import Law, Mutant, assert_found, each_mutant


def everybody_counts_alike(patch: pytest.MonkeyPatch) -> None:
    """The plain mean in place of the robust one."""

    def mean(rows: Sequence[Sequence[int]], bad: int) -> Generator[None, None, Sequence[int]]:
        yield None
        return [sum(values) // len(values) for values in zip(*rows, strict=True)]

    patch.setattr(merging, "robust_mean", mean)


def what_was_left_out_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """No error feedback: a round tells the largest of what labels mean now, as if nothing had been told."""
    patch.setattr(Learning, "_told", lambda self, book, until: [0] * book.session.dim)


def anybody_signs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learning, "verify_delta", lambda delta, key, signer: True)


def everything_fits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learning, "fits", lambda delta, session: "")


def the_first_word_counts(patch: pytest.MonkeyPatch) -> None:
    """Who says two things is believed the first that was heard."""
    add = Book.add
    patch.setattr(Book, "add", lambda self, delta: delta.round not in self.of(delta.author) and add(self, delta))


def contradictions_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    from swarmd_protocols.learning import book

    rounds_of = book._rounds_of
    patch.setattr(book, "_rounds_of", lambda deltas: (rounds_of(deltas)[0], 0))


def who_is_shut_out_goes_on_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Book, "on_trust", lambda self: None)


def a_merge_is_one_slice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging._Work, "add", lambda self, units: iter(()))


def everybody_is_merged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging, "drawn", lambda authors, session, number: sorted(authors))


def sums_of_an_earlier_round_go_on(patch: pytest.MonkeyPatch) -> None:
    """Where too few spoke the sums are passed on, though what was said then is not in them."""
    following = merging._next

    def mutated(session: Any, before: Any, number: int, *rest: Any) -> Generator[None, None, Any]:
        found = yield from following(session, before, number, *rest)
        if not found.sums:
            found.sums = before.sums
        return found

    patch.setattr(merging, "_next", mutated)


def a_step_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    """The rule as it was: late words are followed as far as they ask, again and again."""

    def unbounded(before: Sequence[int], mean: Sequence[int], reach: int, largest: int) -> Any:
        step = [one // 2 + other for one, other in zip(before, mean, strict=True)]
        return step, [3 * one // 2 for one in step], reach

    patch.setattr(merging, "bounded", unbounded)


def nobody_moves(patch: pytest.MonkeyPatch) -> None:
    """A bound so near that nothing is learned."""
    patch.setattr(merging, "largest_honest", lambda lengths, bad: 0)


def a_draw_is_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    """The rule as it was: a fifth of those who are drawn is cut off, whatever the draw holds."""
    patch.setattr(merging, "bad_among", lambda authors: min(authors, merging.AUTHORS_MERGED) // merging.BAD_SHARE)


def a_turn_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    """Steps are as long as words, and a reach is never halved."""
    whole = merging.bounded

    def unhalved(before: Sequence[int], mean: Sequence[int], reach: int, largest: int) -> Any:
        step, way, _ = whole(before, mean, merging.REACH_MAX - 1, largest)
        return step, way, reach

    patch.setattr(merging, "bounded", unhalved)


def nothing_is_mended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learning, "on_summary", lambda self, sender, summary, now_ns: [])


def the_budget_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UploadBudget, "take", lambda self, size, now_ns, file=b"": True)


def askers_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learning, "HAVES_BURST", 1_000)


def the_furthest_round_is_joined(patch: pytest.MonkeyPatch) -> None:
    def joined(self: Learning, book: Any) -> int:
        return max((max(book.of(author)) for author in book.authors), default=0)

    patch.setattr(Learning, "_joined", joined)


def everybody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    begin = Learning.__init__

    def patient(self: Learning, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        self._config = learning.msgspec.structs.replace(self._config, patience=1_000)

    patch.setattr(Learning, "__init__", patient)


def nothing_is_written_down_or_waited_for(patch: pytest.MonkeyPatch) -> None:
    begin = Learning.__init__

    def hasty(self: Learning, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        self._config = learning.msgspec.structs.replace(self._config, settle_ns=0)

    patch.setattr(Learning, "__init__", hasty)
    patch.setattr(Learning, "_take_back", lambda self, key, raw: False)


def noise_is_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learning, "hidden", lambda change, privacy, rng: change)


def failed_trainings_are_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learning, "in_units", lambda change: [1] * len(change))


def in_a_simulated_swarm_a_liar_moves_little() -> None:
    sim_laws.a_liar_moves_little(sim_laws.run())


def a_fifth_that_says_all_alike() -> None:
    laws.test_a_fifth_of_the_members_does_not_move_the_head("all alike")


def a_forged_delta() -> None:
    laws.test_what_does_not_hold_is_refused_and_named("a signature of somebody else")


def too_many_entries() -> None:
    laws.test_what_does_not_hold_is_refused_and_named("more entries than a round has")


def a_restart() -> None:
    laws.test_a_restart_makes_nobody_a_liar(True)


def a_failed_training() -> None:
    laws.test_a_training_that_failed_is_not_told(float("nan"))


DRAWS = ((65, 13, 12), (100, 20, 12), (200, 40, 12), (100, 23, 12))
"""Authors, bad ones, sessions."""

PAIRS: list[tuple[Law, Mutant]] = [
    (a_fifth_that_says_all_alike, everybody_counts_alike),
    (in_a_simulated_swarm_a_liar_moves_little, everybody_counts_alike),
    (sim_laws.learns_like_one_place, nobody_moves),
    (laws.test_what_was_not_told_is_told_later, what_was_left_out_is_forgotten),
    (a_forged_delta, anybody_signs),
    (too_many_entries, everything_fits),
    (laws.test_who_says_two_things_counts_with_nothing_anywhere_and_is_named, the_first_word_counts),
    (laws.test_who_says_two_things_counts_with_nothing_anywhere_and_is_named, contradictions_are_not_compared),
    (laws.test_who_is_shut_out_has_said_nothing, who_is_shut_out_goes_on_counting),
    (laws.test_whoever_holds_the_same_deltas_has_the_same_head, nothing_is_mended),
    (laws.test_nobody_makes_a_node_give_more_than_its_budget, the_budget_has_no_end),
    (laws.test_who_asks_without_end_is_refused_and_named, askers_have_no_bound),
    (laws.test_a_quarter_pushes_nobody_on, the_furthest_round_is_joined),
    (laws.test_who_falls_silent_holds_the_others_up_for_a_while, everybody_is_waited_for),
    (a_restart, nothing_is_written_down_or_waited_for),
    (
        laws.test_with_noise_the_epsilon_is_said_and_what_is_told_is_not_what_was_trained,
        noise_is_left_out,
    ),
    (a_failed_training, failed_trainings_are_told),
    (bounds.test_a_slice_reads_a_few_deltas_and_no_more, a_merge_is_one_slice),
    (bounds.test_slices_are_of_one_size, a_merge_is_one_slice),
    (bounds.test_states_are_small, everybody_is_merged),
    *((lambda few=few: draws.nobody_is_moved(*few), a_draw_is_taken_for_all) for few in DRAWS),  # type: ignore[misc]
    (steps.test_no_step_is_longer_than_an_honest_word, a_step_has_no_bound),
    (steps.test_late_words_do_not_drive_the_head_away, a_step_has_no_bound),
    (steps.test_late_words_do_not_drive_the_head_away, a_turn_changes_nothing),
    (bounds.test_a_round_of_too_few_is_not_lost, sums_of_an_earlier_round_go_on),
]


@each_mutant(PAIRS)
def test_the_law_finds_it(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
