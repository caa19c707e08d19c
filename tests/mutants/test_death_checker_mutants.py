"""A mutant for each rule by which the checker of deaths judges: break the rule, and the law for it must fail."""

from collections.abc import Mapping

import pytest

from swarmd_sim.checkers import deaths
from swarmd_sim.checkers.deaths import Deaths
from swarmd_sim.checkers.paths import Paths
from swarmd_sim.run.host import Host
from tests.support import death_laws as laws
from tests.support.mutants import Law, Mutant, assert_found, each_mutant

Asked = Mapping[int, int]
ON_STEP = Deaths.on_step
COULD_KNOW = Deaths.could_know
CAN_HEAR = Deaths._can_hear


def asks_only_who_heard_it(patch: pytest.MonkeyPatch) -> None:
    """By direct hearing: whoever heard the dead one, and nobody behind."""

    def could_know(self: Deaths, victim: int, crashed_ns: int, asked_ns: Asked, span: tuple[int, int]) -> list[int]:
        known = COULD_KNOW(self, victim, crashed_ns, asked_ns, span)
        return [host for host in known if host in self._witnesses[victim, crashed_ns]]

    patch.setattr(Deaths, "could_know", could_know)


def asks_the_largest_part(patch: pytest.MonkeyPatch) -> None:
    def could_know(self: Deaths, victim: int, crashed_ns: int, asked_ns: Asked, span: tuple[int, int]) -> list[int]:
        return [host.index for host in self._run.component() if span[0] < asked_ns[host.index] < span[1]]

    patch.setattr(Deaths, "could_know", could_know)


def counts_from_the_death(patch: pytest.MonkeyPatch) -> None:
    def on_step(self: Deaths) -> None:
        ON_STEP(self)
        for (_, crashed_ns), since in self._since_ns.items():
            since.update(dict.fromkeys(since, crashed_ns))

    patch.setattr(Deaths, "on_step", on_step)


def forgets_that_a_path_broke(patch: pytest.MonkeyPatch) -> None:
    def on_step(self: Deaths) -> None:
        before = {death: dict(since) for death, since in self._since_ns.items()}
        ON_STEP(self)
        for death, since in before.items():
            self._since_ns[death] = {**self._since_ns[death], **since}

    patch.setattr(Deaths, "on_step", on_step)


def asks_who_is_alone(patch: pytest.MonkeyPatch) -> None:
    joined_with = Paths.joined_with
    patch.setattr(Paths, "joined_with", lambda self, hosts: [*joined_with(self, hosts), *hosts])


def asks_who_hears_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deaths, "_note_alone", lambda self: None)


def takes_the_frozen_for_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deaths, "SILENT_NS", 2**62)


def excuses_who_misses_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deaths, "MISSED_MIN", 1)


def counts_itself_among_the_missed(patch: pytest.MonkeyPatch) -> None:
    missed = Deaths._missed
    patch.setattr(Deaths, "_missed", lambda self, host: missed(self, host) + 1)


def sees_nobody_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deaths, "_missed", lambda self, host: 0)


def excuses_for_ever_who_heard_nobody(patch: pytest.MonkeyPatch) -> None:
    def could_know(self: Deaths, victim: int, crashed_ns: int, asked_ns: Asked, span: tuple[int, int]) -> list[int]:
        known = COULD_KNOW(self, victim, crashed_ns, asked_ns, span)
        return [host for host in known if self._alone_ns.get(host, 0) < crashed_ns]

    patch.setattr(Deaths, "could_know", could_know)


def calls_alone_whom_nobody_hears(patch: pytest.MonkeyPatch) -> None:
    def can_hear(self: Deaths, host: Host, other: Host) -> bool:
        return CAN_HEAR(self, host, other) and self._run.linked(host.index, other.index)

    patch.setattr(Deaths, "_can_hear", can_hear)


def forgets_who_was_told_cut_off(patch: pytest.MonkeyPatch) -> None:
    def could_know(self: Deaths, victim: int, crashed_ns: int, asked_ns: Asked, span: tuple[int, int]) -> list[int]:
        return COULD_KNOW(self, victim, crashed_ns, dict.fromkeys(asked_ns, crashed_ns), span)

    patch.setattr(Deaths, "could_know", could_know)


def excuses_for_ever_who_was_told_cut_off(patch: pytest.MonkeyPatch) -> None:
    def could_know(self: Deaths, victim: int, crashed_ns: int, asked_ns: Asked, span: tuple[int, int]) -> list[int]:
        known = COULD_KNOW(self, victim, crashed_ns, asked_ns, span)
        return [host for host in known if asked_ns[host] <= crashed_ns]

    patch.setattr(Deaths, "could_know", could_know)


def asks_nobody_in_a_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deaths, "_can_hear", lambda self, host, other: False)


PAIRS: list[tuple[Law, Mutant]] = [
    (laws.a_death_is_owed_by_path, asks_only_who_heard_it),
    (laws.neighbours_that_know_excuse_nobody_else, asks_only_who_heard_it),
    (laws.nobody_owes_what_no_path_leads_to, asks_the_largest_part),
    (laws.a_path_counts_from_its_start, counts_from_the_death),
    (laws.a_path_that_breaks_counts_anew, forgets_that_a_path_broke),
    (laws.who_could_hear_it_and_is_alone_owes_nothing, asks_who_is_alone),
    (laws.who_takes_back_that_it_is_cut_off_owes_it_from_then, forgets_who_was_told_cut_off),
    (laws.who_takes_back_that_it_is_cut_off_owes_it_from_then, excuses_for_ever_who_was_told_cut_off),
    (laws.in_one_room_all_owe_a_death, asks_nobody_in_a_room),
    (laws.who_hears_nobody_owes_nothing, asks_who_hears_nobody),
    (laws.who_hears_nobody_owes_nothing, takes_the_frozen_for_heard),
    (laws.who_hears_nobody_owes_nothing, sees_nobody_missed),
    (laws.who_misses_one_owes_its_death, counts_itself_among_the_missed),
    (laws.who_misses_one_owes_its_death, excuses_who_misses_one),
    (laws.who_hears_somebody_again_owes_from_then, asks_who_hears_nobody),
    (laws.who_hears_somebody_again_owes_from_then, excuses_for_ever_who_heard_nobody),
    (laws.who_hears_one_that_hears_nobody_owes_a_death, calls_alone_whom_nobody_hears),
]


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
