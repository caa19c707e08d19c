"""Mutants of what is passed on for one author: each lets an author cost more than its budget, and a law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.swim.messages import MetaBody
from swarmd_protocols.swim.metadata import Metadata
from swarmd_protocols.swim.relays import Relays
from swarmd_protocols.swim.user_events import UserEvents
from tests.property import test_author_laws as laws
from tests.property import test_own_word_laws as own_words
from tests.support.mutants import Mutant, assert_found


def everything_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relays, "may_pass_on", lambda self, node, size, members, now_ns: True)


def pushes_have_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relays, "may_push", lambda self, node, size, members, now_ns: True)


def floods_of_metadata_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metadata, "answered", lambda self, entries, asker: entries)


def comparisons_have_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_repair(
        self: Relays, node: bytes, size: int, members: int, now_ns: int, asker: bytes = b"", *, at_once: bool = False
    ) -> bool:
        author = self._author(node, members, now_ns)
        if author.floods:
            author.left -= size
        return not author.floods or author.left + size > 0

    monkeypatch.setattr(Relays, "may_repair", may_repair)


def nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relays, "may_give_back", lambda self, node, size, members, now_ns: False)


def it_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.relays._SOON", 1)


def it_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = Relays.may_give_back

    def may_give_back(self: Relays, node: bytes, size: int, members: int, now_ns: int) -> bool:
        self._author(node, members, now_ns).given_back = 0.0
        return give_back(self, node, size, members, now_ns)

    monkeypatch.setattr(Relays, "may_give_back", may_give_back)


def replaced_values_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_give_back(self: Metadata, body: MetaBody, size: int) -> bool:
        return self.core.relays.may_give_back(body.node, size, len(self.core.table), self.core.now_ns)

    monkeypatch.setattr(Metadata, "_may_give_back", may_give_back)


def flooders_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relays, "name", lambda self, node, name, evidence, now_ns: None)


def everybody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.relays._REFUSED_MAX", -1)
    begin = Relays.__init__

    def poor(self: Relays, config: object) -> None:
        begin(self, config)  # type: ignore[arg-type]
        self._burst = 4_096.0

    monkeypatch.setattr(Relays, "__init__", poor)


def what_is_missing_is_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserEvents, "_skip_gaps", lambda self, awaited: None)
    monkeypatch.setattr(UserEvents, "_give_up", lambda self, node: None)


def accounts_are_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.relays._AUTHORS_MAX", 10**9)


def every_ping_is_answered_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.swim._PINGS_PER_S", 1e9)
    monkeypatch.setattr("swarmd_protocols.swim.swim._PINGS_BURST", 1e9)


def storm_of_pings() -> None:
    laws.test_who_pings_without_end_fills_no_budget(10)


def storm_of_events() -> None:
    laws.test_one_authors_storm_costs_the_others_a_bounded_rate("events", 50, 900)


def storm_of_metadata() -> None:
    laws.test_one_authors_storm_costs_the_others_a_bounded_rate("meta", 50, 600)


def one_is_told_of_ever_new_keys() -> None:
    own_words.check_soon("large keys", "one")


def one_is_told_of_event_after_event() -> None:
    own_words.test_whoever_goes_on_for_long_costs_the_others_a_bounded_rate("event", 80, "one")


def agreement() -> None:
    laws.test_after_a_storm_all_agree_again("events", 0.1)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (everything_is_passed_on, storm_of_events),
        (pushes_have_no_account, one_is_told_of_event_after_event),
        (floods_of_metadata_are_repaired, storm_of_metadata),
        (comparisons_have_no_account, one_is_told_of_ever_new_keys),
        (nothing_is_given_back, laws.test_an_author_that_lost_its_disk_is_given_back_what_its_storm_said),
        (it_is_given_back_at_once, laws.test_what_is_given_back_to_an_author_is_a_copy_and_then_half_a_budget),
        (it_is_given_back_again_and_again, laws.test_what_is_given_back_to_an_author_is_a_copy_and_then_half_a_budget),
        (replaced_values_are_given_back, laws.test_what_an_author_says_in_its_life_is_not_given_back_to_it),
        (flooders_have_no_name, storm_of_events),
        (everybody_is_named, laws.test_what_is_within_the_budget_is_everywhere_and_nobody_is_named),
        (what_is_missing_is_awaited_for_ever, agreement),
        (every_ping_is_answered_in_full, storm_of_pings),
        (accounts_are_never_dropped, laws.test_accounts_of_authors_are_bounded),
    ],
)
def test_the_law_finds_the_mutant(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
