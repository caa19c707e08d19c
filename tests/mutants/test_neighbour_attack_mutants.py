"""What keeps attacks between neighbouring swarms from working, taken out once each: a test must see it."""

from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.neighbours import border, hearing, neighbours, news, space
from swarmd_protocols.neighbours.border import Border
from swarmd_protocols.neighbours.hearing import Hearing
from tests.unit import test_neighbour_attacks as attacks
from tests.unit import test_neighbour_bounds as bounds

Patch = pytest.MonkeyPatch


def anybodys_numbers(patch: Patch) -> None:
    """An introduction that opens uses up the number of the key in its head."""
    patch.setattr(Border, "_has_signed", lambda self, public, statement: True)


def a_trickle(patch: Patch) -> None:
    """What opens under nothing shares a bucket as small as that of introductions."""
    patch.setattr(border, "STRANGERS_BYTES_S", border.INTRODUCED_BYTES_S)
    patch.setattr(border, "STRANGERS_BURST_BYTES", border.INTRODUCED_BURST_BYTES)


def room_for_all(patch: Patch) -> None:
    """Whoever is put out at once is passed on as news."""
    patch.setattr(Hearing, "_has_room", lambda self, said_ms, node: True)


def given_as_often_as_asked(patch: Patch) -> None:
    """A few bytes draw all that is known, each time."""
    patch.setattr(neighbours, "ASK_NS", 0)


def pulses(patch: Patch) -> None:
    """A place that is free for a moment is free."""
    patch.setattr(space, "FREE_MS", 0)


def untold(patch: Patch) -> None:
    """A neighbour is not told who was shut out."""
    patch.setattr(border, "REVOCATIONS_MAX", 0)


def no_bound(patch: Patch) -> None:
    """Revocations of a neighbour are kept for ever."""
    patch.setattr(hearing, "REVOKED_MAX_BYTES", 1 << 40)


def the_public_secret(patch: Patch) -> None:
    """Aliases are made with what everybody knows."""
    patch.setattr(Border, "_secret", lambda self: self._neighbours.key)


def the_first_again(patch: Patch) -> None:
    """Each word begins with the member of the lowest id."""
    real = Border._places

    def places(self: Border, key: bytes, talk: Any, now_ns: int) -> Any:
        talk.placed = None
        return real(self, key, talk, now_ns)

    patch.setattr(Border, "_places", places)


def without_end(patch: Patch) -> None:
    """Every member that was ever told of is kept."""
    patch.setattr(hearing, "PLACES_KEPT", 1 << 20)


def words_for_nothing(patch: Patch) -> None:
    """Words cost their sender nothing."""
    patch.setattr(hearing, "WORD_BYTES_S", 1 << 30)


def introductions_for_nothing(patch: Patch) -> None:
    """Introductions cost their sender no more than at the gateway."""
    patch.setattr(news, "NEWS_BYTES_S", 1 << 30)


def one_for_all(patch: Patch) -> None:
    """All gateways of a neighbour share what is passed on of them."""
    spend, pause_ms = news.News.spend, news.News.pause_ms
    patch.setattr(news.News, "spend", lambda self, public, count, now_ns: spend(self, b"", count, now_ns))
    patch.setattr(news.News, "pause_ms", lambda self, public, now_ns: pause_ms(self, b"", now_ns))


def a_reserve_each(patch: Patch) -> None:
    """As many keys as there are have a part each."""
    patch.setattr(news, "KEYS_MAX", 1 << 20)


def by_its_own_date(patch: Patch) -> None:
    """A word counts as of the date that it bears."""
    patch.setattr(hearing, "stamp_of", lambda at_ms, now_ms: at_ms)


def the_oldest_goes(patch: Patch) -> None:
    """An agreement too many puts out another."""
    patch.setattr(neighbours, "in_the_way", lambda kept, now_ms: [])


def come_and_go() -> None:
    attacks.test_a_neighbour_that_comes_and_goes_keeps_no_place_for_longer((5, 5))


@pytest.mark.parametrize(
    ("mutant", "attack"),
    [
        (anybodys_numbers, attacks.test_who_knows_both_roots_silences_nobody),
        (a_trickle, attacks.test_what_nobody_can_open_keeps_no_introduction_away),
        (room_for_all, attacks.test_peers_pass_on_in_a_crowd_what_is_news_once),
        (given_as_often_as_asked, attacks.test_a_member_that_asks_all_the_time_is_given_once_a_second),
        (pulses, come_and_go),
        (untold, attacks.test_a_gateway_that_was_replaced_is_told_by_who_never_knew_it),
        (no_bound, attacks.test_a_neighbour_that_revokes_without_end_fills_nothing),
        (the_first_again, bounds.test_all_members_of_a_large_swarm_are_told_in_turn),
        (without_end, bounds.test_a_neighbour_that_says_all_it_can_costs_each_member_little),
        (words_for_nothing, bounds.test_a_neighbour_that_says_all_it_can_costs_each_member_little),
        (
            introductions_for_nothing,
            bounds.test_a_neighbour_that_introduces_itself_anew_all_the_time_costs_each_member_little,
        ),
        (one_for_all, bounds.test_a_stolen_gateway_that_varies_its_introduction_keeps_its_revocation_from_nobody),
        (a_reserve_each, bounds.test_keys_that_come_and_go_have_no_reserve_anew),
        (by_its_own_date, bounds.test_a_gateway_that_dates_its_words_ahead_keeps_no_others_away),
        (the_public_secret, attacks.test_an_alias_cannot_be_made_by_who_knows_the_node),
    ],
    ids=lambda one: one.__name__,
)
def test_an_attack_works(mutant: Callable[[Patch], None], attack: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            attack()


def test_an_agreement_too_many_puts_out_another(monkeypatch: Patch) -> None:
    the_oldest_goes(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        bounds.test_one_agreement_too_many_is_refused()
