"""Each thing that a device remembers of releases over a restart is forgotten in turn, and the law of it fails."""

import pytest

from swarmd_protocols.effects import Persist
from swarmd_protocols.releases import floors, releases, roster, signed_time
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.unit import test_release_restarts as laws


def nobody_is_expected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster.Roster, "restore", lambda self, key, record, certified: None)


def no_place_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster.Roster, "heard", lambda self, node: [])


def who_fell_has_a_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster.Roster, "gone", lambda self, nodes: [])


def a_fallen_floor_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(floors.Floors, "fell", lambda self, view: [])


def a_fallen_floor_is_written_last(patch: pytest.MonkeyPatch) -> None:
    """The power may go between its leaving the journal and the note of it."""
    whole = releases.Releases._after

    def after(self: releases.Releases, now_ns: int) -> list[releases.SubEffect]:
        effects = whole(self, now_ns)
        late = [one for one in effects if isinstance(one, Persist) and one.key.startswith(floors.FELL) and one.value]
        return [*(one for one in effects if one not in late), *late]

    patch.setattr(releases.Releases, "_after", after)


def stolen_time_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signed_time.SignedTime, "judge", lambda self, epoch: None)


def a_life_begins_with_the_newest_epoch(patch: pytest.MonkeyPatch) -> None:
    """The journal does not say under which root the time was held."""
    whole = signed_time.SignedTime.__init__
    patch.setattr(signed_time.SignedTime, "__init__", lambda self, kept, stale_ns: whole(self, kept[:8], stale_ns))


def _in_one_life() -> None:
    laws.test_law_a_time_that_stolen_keys_said_ends_with_them(False)


def _over_a_restart() -> None:
    laws.test_law_a_time_that_stolen_keys_said_ends_with_them(True)


PAIRS: list[tuple[Law, Mutant]] = [
    (laws.test_law_who_restarts_tries_nothing_before_its_turn, nobody_is_expected),
    (laws.test_law_who_restarts_tries_nothing_before_its_turn, no_place_is_written),
    (laws.test_law_a_canary_that_restarts_does_not_take_its_own_pass_for_the_fleets, nobody_is_expected),
    (laws.test_places_are_kept_of_those_that_are_certified_until_nobody_speaks_of_them, who_fell_has_a_place),
    (laws.test_law_a_floor_of_stolen_keys_leaves_the_slots_wherever_the_power_is_cut, a_fallen_floor_is_forgotten),
    (laws.test_law_a_floor_of_stolen_keys_leaves_the_slots_wherever_the_power_is_cut, a_fallen_floor_is_written_last),
    (_in_one_life, stolen_time_stays),
    (_over_a_restart, a_life_begins_with_the_newest_epoch),
]


@each_law(PAIRS)
def test_without_a_mutant_it_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_each_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
