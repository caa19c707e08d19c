"""What keeps attacks between neighbouring swarms from working, taken out once each: a test must see it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.neighbours import border, hearing, neighbours, space
from swarmd_protocols.neighbours.border import Border
from swarmd_protocols.neighbours.hearing import Hearing
from tests.unit import test_neighbour_attacks as attacks

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
        (the_public_secret, attacks.test_an_alias_cannot_be_made_by_who_knows_the_node),
    ],
    ids=lambda one: one.__name__,
)
def test_an_attack_works(mutant: Callable[[Patch], None], attack: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            attack()
