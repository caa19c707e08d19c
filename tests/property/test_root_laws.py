"""Rival roots: keys that were replaced move no chain, in whichever order what they signed comes."""

import contextlib
from hashlib import blake2b

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.roots import ROLES, RivalRootError, RootChain, make_root, root_digest

CRYPTO = ModelCrypto()
NEED = 2


def _seeds(generation):
    return [blake2b(f"root {generation} {at}".encode(), digest_size=32).digest() for at in range(3)]


def root(version, previous, generation, signers, word="", epoch=1):
    """A root whose root keys are of one generation, signed by these generations; the word tells rivals apart."""
    roles = {"root": (NEED, [CRYPTO.public_key(seed) for seed in _seeds(generation)])}
    roles |= {role: (1, [CRYPTO.public_key(blake2b(word.encode() + b"k", digest_size=32).digest())]) for role in ROLES}
    made = make_root("laws", roles, version=version, epoch=epoch, previous=previous and root_digest(previous))
    seeds = [seed for one in signers for seed in _seeds(one)[:NEED]]
    return sign_statement("root", made, list(dict.fromkeys(seeds)), CRYPTO)


FIRST = root(1, b"", "A", "A")
SECOND = root(2, FIRST, "A", "A", "planned")
THIRD = root(3, SECOND, "B", "AB", "stolen", epoch=2)
FOURTH = root(4, THIRD, "B", "B", "again", epoch=2)
HONEST = [SECOND, THIRD, FOURTH]
"""The keys A are replaced by B in root 3."""

BESIDE_SECOND = [root(2, FIRST, "A", "A", f"rival {at}") for at in range(6)]
DEEPER = root(3, BESIDE_SECOND[0], "A", "A", "deeper")
DEEPEST = root(4, DEEPER, "A", "A", "deepest")
BESIDE_THIRD = [root(3, SECOND, "A", "A", f"third {at}", epoch) for at in range(3) for epoch in (1, 2)]
RIVALS = [*BESIDE_SECOND, DEEPER, DEEPEST, *BESIDE_THIRD]
"""By the keys A, and resting on them."""
BY_STRANGERS = [
    root(2, FIRST, "T", "AT", "captured"),
    root(3, SECOND, "T", "AT", "captured"),
    root(4, THIRD, "T", "AT", "captured"),
    root(5, FOURTH, "A", "A", "captured", epoch=2),
]
"""By the keys A, resting on keys of the thief's own."""


def hear(chain, statements):
    for statement in statements:
        with contextlib.suppress(IdentityError):
            chain.extend(statement)
    return chain


def restarted(chain):
    """What the journal keeps, read again."""
    return hear(RootChain.trust(FIRST, CRYPTO), [*chain.statements[1:], *chain.disputed])


def payloads(chain):
    return [link.envelope.payload for link in chain.links]


WHOLE = payloads(hear(RootChain.trust(FIRST, CRYPTO), HONEST))


def check_order(order, restarts):
    """Everything in some order, with restarts; then a peer hands the chain over, oldest first."""
    chain = RootChain.trust(FIRST, CRYPTO)
    everything = [*HONEST, *RIVALS]
    for at, one in enumerate(order):
        hear(chain, [everything[one]])
        if at in restarts:
            chain = restarted(chain)
    hear(chain, HONEST)
    assert payloads(chain) == WHOLE
    assert not chain.is_forked
    hear(chain, [*RIVALS, *BY_STRANGERS])
    assert payloads(restarted(chain)) == payloads(chain) == WHOLE


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(st.permutations(range(len(HONEST) + len(RIVALS))), st.sets(st.integers(0, 16), max_size=4))
def test_a_chain_that_replaced_the_keys_wins_over_their_rivals_in_any_order(order, restarts):
    check_order(order, restarts)


def test_a_node_that_heard_the_rival_first_takes_the_chain():
    """No fork alarm for ever: the rival rests on keys that the chain replaced."""
    second = root(2, FIRST, "B", "AB", "all new")
    third = root(3, second, "B", "B", "later")
    for rival in BESIDE_SECOND:
        chain = hear(RootChain.trust(FIRST, CRYPTO), [rival])
        assert payloads(hear(chain, [second, third])) == payloads(
            hear(RootChain.trust(FIRST, CRYPTO), [second, third, rival])
        )
        assert chain.current.version == 3
        assert not chain.is_forked


@settings(max_examples=100, deadline=None, report_multiple_bugs=False)
@given(st.lists(st.sampled_from([*RIVALS, *BY_STRANGERS]), max_size=20))
def test_a_node_that_knows_the_keys_to_be_replaced_is_moved_by_none_of_them(attacks):
    chain = hear(RootChain.trust(FIRST, CRYPTO), HONEST)
    for attack in attacks:
        hear(chain, [attack])
        assert payloads(chain) == WHOLE
        assert not chain.is_forked


KNOWS_A = 2
"""Roots of the honest chain in which the keys A still are the root keys."""


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(st.integers(1, len(WHOLE)), st.lists(st.sampled_from([*RIVALS, *BY_STRANGERS]), max_size=12))
@example(1, [BY_STRANGERS[0]])
@example(2, [BESIDE_THIRD[0], BY_STRANGERS[1]])
@example(3, BY_STRANGERS)
def test_replaced_keys_take_only_who_was_off_since_and_met_their_own_root_first(known, attacks):
    """What no protocol can give: both roots carry all that root N asks for, and only people know better."""
    chain = hear(RootChain.trust(FIRST, CRYPTO), HONEST[: known - 1])
    hear(chain, attacks)
    hear(chain, HONEST)
    rivals = BY_STRANGERS[:known] if known <= KNOWS_A else []
    if not set(rivals) & set(attacks):
        assert payloads(chain) == WHOLE
        assert not chain.is_forked
        return
    if set(attacks) <= set(rivals):  # Beside others, which take the places of rivals, they need not get so far.
        assert payloads(chain) != WHOLE, "who stole the keys speaks for the root role until the chain is known"
    assert payloads(chain)[:1] == WHOLE[:1], "nothing is taken back that stood before these keys were the root's"
    whole = hear(RootChain.trust(FIRST, CRYPTO), HONEST)
    for rival in rivals:
        with pytest.raises(RivalRootError):
            whole.extend(rival)
    assert payloads(whole) == WHOLE, "it takes nobody else along"


def test_the_root_role_that_signs_two_successors_picks_none():
    """And goes on, everywhere, with a root that replaces the keys that did."""
    one, other = BESIDE_SECOND[:2]
    for order in ((one, other), (other, one)):
        chain = hear(RootChain.trust(FIRST, CRYPTO), order)
        assert chain.is_forked
        assert restarted(chain).is_forked
        assert payloads(chain) == WHOLE[:1]
        hear(chain, [root(2, FIRST, "B", "AB", "mended")])
        assert not chain.is_forked
        assert chain.current.version == 2
        hear(chain, [one, other])
        assert not chain.is_forked


def test_what_is_kept_of_a_fork_is_bounded():
    chain = RootChain.trust(FIRST, CRYPTO)
    for at in range(40):
        hear(chain, [root(2, FIRST, "A", "A", f"flood {at}")])
    assert len(chain.disputed) <= 4
    hear(chain, HONEST)
    assert payloads(chain) == WHOLE


def test_a_root_weighs_as_it_travels_on():
    """Signatures by keys of another branch are not kept with it, so they move nobody: nodes that restart, and those
    that hear it from others, could not know of them."""
    mine = root(2, FIRST, "B", "AB", "mine")
    crossed = root(2, FIRST, "C", "ACB", "crossed")
    chain = hear(RootChain.trust(FIRST, CRYPTO), [mine])
    with pytest.raises(RivalRootError):
        chain.extend(crossed)
    told = hear(hear(RootChain.trust(FIRST, CRYPTO), [mine]), chain.statements[1:])
    assert payloads(told) == payloads(chain)


def test_a_fork_below_a_fork_keeps_its_branches():
    """Each is there still when a root comes that follows it."""
    deep = [root(3, SECOND, "A", "A", word) for word in ("one", "other")]
    chain = hear(RootChain.trust(FIRST, CRYPTO), [SECOND, *deep])
    assert chain.is_forked
    hear(chain, [BESIDE_SECOND[0]])
    assert len(chain.disputed) == 4
    last = root(4, deep[1], "B", "AB", "mended")
    hear(chain, [last])
    assert payloads(chain) == payloads(hear(RootChain.trust(FIRST, CRYPTO), [SECOND, deep[1], last]))
    assert not chain.is_forked
