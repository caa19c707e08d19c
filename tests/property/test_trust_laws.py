"""Non-interference: what role-signed statements decide is the same, whatever people without the role say, and when."""

import contextlib
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.roots import mark
from swarmd_protocols.trust.trust import Trust
from tests.support.release_world import MODEL
from tests.support.trust_history import (
    AFTER,
    ALWAYS,
    CRYPTO,
    FIRST,
    HONEST,
    LATER,
    SWARM,
    Hearer,
    Item,
    certificate,
    node,
    say,
)

WHOLE = Hearer().settle().decides()
picks = st.lists(st.integers(0, len(ALWAYS) - 1), max_size=12)


def _mixed(honest: list[Item], attacks: list[Item], places: list[int]) -> list[Item]:
    mixed = list(honest)
    for attack, place in zip(attacks, places, strict=False):
        mixed.insert(place % (len(mixed) + 1), attack)
    return mixed


def test_the_history_decides_something() -> None:
    hearer = Hearer().settle()
    view = hearer.releases.view
    assert len(hearer.trust.revoked) == 2
    assert sorted(hearer.trust.group_keys) == [6, 9]
    assert view.heartbeat == (2, 4)
    model = view.models[MODEL]
    assert model.floor is not None
    assert (model.floor.version, len(model.revoked), len(model.halted), len(model.releases)) == (2, 1, 1, 2)


@settings(max_examples=150, deadline=None)
@given(picks, st.lists(st.integers(0, 10_000), max_size=12))
def test_who_never_held_the_role_changes_nothing(attacks: list[int], places: list[int]) -> None:
    mixed = _mixed(HONEST, [ALWAYS[at] for at in attacks], places)
    assert Hearer().hear(mixed).settle().decides() == WHOLE


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(AFTER) - 1), max_size=12), st.permutations(range(len(HONEST))))
def test_who_held_the_role_once_changes_nothing_any_more(attacks: list[int], order: list[int]) -> None:
    """Whenever they speak, early (while a node has not heard that they were replaced) or late, and in any order."""
    shuffled = [HONEST[at] for at in order]
    mixed = _mixed(shuffled, [AFTER[at] for at in attacks], [at * 7 for at in attacks])
    assert Hearer().hear(mixed).settle().decides() == WHOLE


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(len(HONEST))))
def test_order_changes_nothing(order: list[int]) -> None:
    assert Hearer().settle([HONEST[at] for at in order]).decides() == WHOLE


def test_all_attacks_at_once_change_nothing() -> None:
    assert Hearer().settle().hear(ALWAYS).hear(AFTER).settle().decides() == WHOLE
    assert Hearer().hear(ALWAYS).hear(AFTER).settle().decides() == WHOLE


def test_what_stands_needs_no_second_telling() -> None:
    """A node that has heard everything loses nothing to any attack, not even until somebody repairs it."""
    hearer = Hearer().settle()
    for attack in (*ALWAYS, *AFTER):
        hearer.hear([attack])
        assert hearer.decides() == WHOLE, attack


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_restart_judges_alike(rounds: int) -> None:
    """What a node journals gives the same decisions when it is read again under the newest root."""
    hearer = Hearer().settle()
    again = Hearer()
    for _ in range(rounds + 1):
        again.hear(hearer.trust.statements())
        again.hear(
            (entry.envelope.kind, entry.envelope.encode()) for entry in hearer.releases.statements.entries.values()
        )
    assert again.trust.revoked == hearer.trust.revoked
    assert again.releases.view.models == hearer.releases.view.models


KEYS, NAMES = ("k1", "k2", "k3"), ("a", "b")
CERTIFICATES = [
    say("node", certificate(name, node(key), counter), 0) for key in KEYS for name in NAMES for counter in (1, 2, 3)
]
some = st.lists(st.sampled_from(CERTIFICATES), max_size=8)


def _repair(nodes: list[Trust]) -> None:
    """Each hands each other what it spreads, until nobody learns anything."""
    for _ in range(12):
        learned = False
        for one in nodes:
            for other in nodes:
                for kind, statement in one.statements():
                    with contextlib.suppress(IdentityError):
                        learned |= other.add(kind, statement)
        if not learned:
            return
    raise AssertionError("repair does not come to an end")


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(some, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_a_replaced_certificate_holds_nowhere(heard: list[list[Item]], rng: random.Random) -> None:
    """Some met some certificates, one met all of them: after repair nobody holds one that was replaced."""
    everything = [item for items in heard for item in items]
    rng.shuffle(everything)
    nodes = [Trust(SWARM, [FIRST[1]], CRYPTO) for _ in range(len(heard) + 1)]
    for trust, items in zip(nodes, [*heard, everything], strict=True):
        for _, statement in items:
            with contextlib.suppress(IdentityError):
                trust.admit_certificate(statement)
    _repair(nodes)
    ids = [NodeId(node_id_of(CRYPTO.public_key(node(key)))) for key in KEYS]
    knows_all = nodes[-1]
    names = [holds.name for one in ids if (holds := knows_all.certified(one))]
    assert len(names) == len(set(names)), "one key a name"
    for trust in nodes:
        for one in ids:
            assert trust.certified(one) in (None, knows_all.certified(one))


def a_group_key_falls_with_what_it_names(order: list[int]) -> None:
    """A root that does not name a revocation lets it fall: whoever comes later can take no group key that names it."""
    false = say("revoke", Revocation(SWARM, 8, (b"y" * 16,), "by a key that was stolen"), 1, 2)
    fell = mark(decode_envelope(false[1]))
    items = [*HONEST, false, say("group", GroupKey(SWARM, 12, b"c" * 32, (fell,)), 2)]
    hearer = Hearer().hear([items[at] for at in order]).settle(items)
    assert hearer.decides() == Hearer().settle(items).decides() == WHOLE
    assert hearer.trust.group_keys.keys() == {6, 9}


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(len(HONEST) + 2)))
@example(
    [
        *range(len(HONEST) - len(LATER) - 1),
        len(HONEST),
        len(HONEST) + 1,
        *range(len(HONEST) - len(LATER) - 1, len(HONEST)),
    ]
)
def test_a_group_key_falls_with_a_revocation_that_it_names(order: list[int]) -> None:
    a_group_key_falls_with_what_it_names(order)
