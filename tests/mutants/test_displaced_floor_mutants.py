"""Mutants of the checker that excuses a floor which a thief's one displaced: each excuses too much or too little.

What is excused is one thing: a node took, in this life, a floor that the publisher did not sign, and has now heard of
the root with which that floor fell. Nothing else that a node forgets is.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd_protocols.crypto import ModelCrypto
from swarmd_sim.checkers import decisions
from swarmd_sim.run.officers import Officers
from swarmd_sim.run.releases import ForeignWord
from tests.sim.test_sim_checkers import BAD, Fault, S, broken_rules
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

LIFE = (3, 1)
TABLE = [
    # (host, life, roots) with which a foreign floor was taken; roots that replaced floor keys; heard of; excused
    ((3, 1, 2), [3], (2, 3), True),
    ((3, 1, 1), [3], (1, 3), True),  # Two roots at once, the second of which replaced the keys.
    ((3, 1, 1), [3], (2, 3), True),  # The first of them was heard before, and changed nothing about floors.
    ((3, 1, 2), [3, 5], (2, 5), True),
    ((3, 1, 4), [3, 5], (4, 5), True),
    ((3, 1, 2), [3], (3, 3), False),  # No root was heard of.
    ((3, 1, 2), [], (2, 3), False),  # One was that replaced other keys.
    ((3, 1, 2), [4], (2, 3), False),  # The keys are replaced, and the node has yet to hear of it.
    ((3, 1, 2), [3, 5], (3, 5), False),  # The thief's floor fell with an earlier root; this one is of another theft.
    ((2, 1, 2), [3], (2, 3), False),  # Another node took it.
    ((3, 0, 2), [3], (2, 3), False),  # This one did, in another life.
]


def the_table_holds() -> None:
    for taken, replaced_at, (before, now), excused in TABLE:
        officers = Officers(ModelCrypto(), b"a secret of a run", "test", replaced_at={"floor": replaced_at})
        world: Any = SimpleNamespace(officers=officers, foreign_words={ForeignWord("floor", *taken)})
        found = decisions.is_displaced(world, LIFE, range(before + 1, now + 1))
        assert found is excused, (taken, replaced_at, before, now)
        world.foreign_words.clear()
        assert not decisions.is_displaced(world, LIFE, range(before + 1, now + 1))


def forgetting_is_seen_beside_thieves() -> None:
    script = [Fault(44 * S, "replace_models", (6,), 6 * S, 1), Fault(46 * S, "replaced_keys", (5,), 4 * S, 50)]
    assert "releases.forgotten" in broken_rules("law-nothing-is-kept", 1, script, BAD)


def whoever_may_be_fooled_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        decisions, "is_displaced", lambda world, life, heard: world.officers.is_fooled("floor", heard.start - 1)
    )


def any_life_s_floor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = decisions.is_displaced
    anybody = lambda world: SimpleNamespace(  # noqa: E731
        officers=world.officers, foreign_words={ForeignWord("floor", *LIFE, one.roots) for one in world.foreign_words}
    )
    monkeypatch.setattr(decisions, "is_displaced", lambda world, life, heard: sound(anybody(world), life, heard))


def what_fell_falls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Officers, "falls_at", lambda self, role, roots: max(self.replaced_at.get(role, ()), default=None)
    )


def nothing_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "is_displaced", lambda world, life, heard: False)


PAIRS: list[tuple[Callable[[], None], Mutant]] = [
    (the_table_holds, any_life_s_floor_counts),
    (the_table_holds, what_fell_falls_again),
    (the_table_holds, nothing_is_excused),
    (forgetting_is_seen_beside_thieves, whoever_may_be_fooled_is_excused),
]


@each_law(PAIRS)
def test_the_unbroken_checker_holds(law: Callable[[], None]) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
