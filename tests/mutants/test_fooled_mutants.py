"""Mutants of the checker that excuses who left a release on a thief's word: each excuses too much or too little.

Excused is a node that took, before it heard of the root which replaced the keys, a floor or a revocation that the
publisher did not sign; until it has known of that root for as long as it takes to go back, and never again.
"""

from collections.abc import Callable, Sequence

import pytest

from swarmd_protocols.crypto import ModelCrypto
from swarmd_sim.checkers import fooled
from swarmd_sim.checkers.fooled import BACK_NS, Fooled
from swarmd_sim.run import releases
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ForeignWord
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.sim.test_sim_checkers import BARE, GOOD, Fault, S
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

HOST = 3
FLOOR = ForeignWord("floor", HOST, 1, 2)
REVOKE = ForeignWord("revoke", HOST, 1, 2)
REPLACED = {"floor": [3], "revoke": [4]}
LAST_S = BACK_NS // S
TABLE: list[tuple[set[ForeignWord], Sequence[int], set[int]]] = [
    # What nodes took; roots that the host has heard of at each second; the seconds at which it is excused.
    (set(), [2, 3, 3], set()),
    ({FLOOR}, [2, 2, 2, 2, 2, 2, 2, 2, 2], set(range(9))),
    ({FLOOR}, [2, 2, *[3] * 9], set(range(2 + LAST_S + 1))),
    ({FLOOR}, [*[3] * 8, *[4] * 8], set(range(LAST_S + 1))),  # Another root that comes later excuses nothing.
    ({REVOKE}, [*[3] * 8, *[4] * 8], set(range(8 + LAST_S + 1))),  # The first root replaced other keys.
    ({FLOOR, REVOKE}, [*[3] * 8, *[4] * 8], set(range(8 + LAST_S + 1))),
    ({ForeignWord("floor", 2, 1, 2)}, [2, 2, 3, 3], set()),  # Another node took it.
    ({ForeignWord("floor", HOST, 1, 3)}, [3, 3, 3], set()),  # No root has replaced the keys since: nobody's excuse.
]


def the_table_holds() -> None:
    officers = Officers(ModelCrypto(), b"a secret of a run", "test", replaced_at=REPLACED)
    for words, heard, excused in TABLE:
        checker = Fooled(officers, words)
        found = set()
        for second, roots in enumerate(heard):
            checker.on_step(HOST, roots, second * S)
            checker.on_step(HOST - 1, 2, second * S)
            if checker.is_excused(HOST, second * S):
                found.add(second)
        assert found == excused, (words, heard)


THIEVES = [
    Fault(41 * S + S // 2, "replace_revoke", (5,), 12 * S, 1),
    Fault(45 * S, "replaced_keys", (6,), 5 * S, 200),
]
"""In one run of four the thief of the revoke keys is heard before the root that replaced them."""


def a_stolen_revocation_is_noted() -> None:
    def takers(seed: int) -> set[str]:
        simulation = Simulation(load_scenario("fuzz", {**BARE, **GOOD}), seed, Options(script=THIEVES))
        result = simulation.run()
        assert not result.violations, seed
        assert simulation.releases is not None
        return {word.role for word in simulation.releases.foreign_words}

    assert any("revoke" in takers(seed) for seed in range(1, 25))


def nobody_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fooled, "is_excused", lambda self, host, now_ns: False)


def once_fooled_is_excused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fooled, "BACK_NS", 1 << 62)


def everybody_is_excused_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fooled, "is_excused", lambda self, host, now_ns: bool(self._words))


def only_who_has_heard_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Fooled.is_excused
    monkeypatch.setattr(
        Fooled, "is_excused", lambda self, host, now_ns: bool(self._fell_ns) and sound(self, host, now_ns)
    )


def only_floors_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_REMOVERS", {"floor": "floor"})


def any_root_makes_it_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Officers, "falls_at", lambda self, role, roots: roots + 1)


PAIRS: list[tuple[Callable[[], None], Mutant]] = [
    (the_table_holds, nobody_is_excused),
    (the_table_holds, once_fooled_is_excused_for_good),
    (the_table_holds, everybody_is_excused_with_one),
    (the_table_holds, only_who_has_heard_is_excused),
    (the_table_holds, any_root_makes_it_fall),
    (a_stolen_revocation_is_noted, only_floors_are_words),
]


@each_law(PAIRS)
def test_the_unbroken_checker_holds(law: Callable[[], None]) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
