"""Each rule between neighbouring swarms taken out once: a law must see it."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarmd_protocols.federation.allowance import Allowance, Numbers
from swarmd_protocols.federation.wire import Lock
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.neighbours import border, hearing, neighbours
from swarmd_protocols.neighbours.hearing import Hearing
from swarmd_protocols.neighbours.space import Holds
from swarmd_protocols.neighbours.words import Signed, read_word
from swarmd_protocols.state.claims.covers import Covers
from tests.support import neighbour_laws as laws

Patch = pytest.MonkeyPatch


def both() -> None:
    """The law of agreement, over a few drawn histories."""
    for seed in range(6):
        laws.both_must_agree(random.Random(seed))


def clear() -> None:
    """The law of space, over a few drawn histories."""
    for seed in range(6):
        laws.keep_clear(random.Random(seed))


def unsigned(patch: Patch) -> None:
    """A signature is not looked at."""
    patch.setattr(Signed, "holds", lambda self, kind, public, verify: True)


def any_member(patch: Patch) -> None:
    """Any member of a neighbour's speaks for it, and any key that says so."""
    patch.setattr(Hearing, "_is_gateway", lambda self, public, node: True)
    real = hearing.Hearing.tell

    def tell(self: Any, statement: bytes, now_ms: int) -> bool:
        node = node_id_of(read_word(statement)[0].public)
        if self.gateways:
            self.gateways.setdefault(node, next(iter(self.gateways.values())))
        return real(self, statement, now_ms)

    patch.setattr(Hearing, "tell", tell)


def for_anybody(patch: Patch) -> None:
    """A word for another swarm is taken for a word for this one."""
    real = hearing.read_word

    class Anybody(bytes):
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = bytes.__hash__

    def replaced(statement: bytes) -> Any:
        signed, word = real(statement)
        return signed, msgspec.structs.replace(word, to=Anybody(bytes(16)))

    patch.setattr(hearing, "read_word", replaced)


def no_quota(patch: Patch) -> None:
    """Nothing is ever over its quota."""
    patch.setattr(Allowance, "pause_ms", lambda self, now_ns: 0)


def all_claims(patch: Patch) -> None:
    """Claims count beyond what was agreed."""
    patch.setattr(Hearing, "_agreed", lambda self, word: iter(word.claims))


def no_gap(patch: Patch) -> None:
    """Words are taken as often as they come."""
    patch.setattr(hearing, "GAP_MS", 1)
    patch.setattr(hearing, "WORD_BYTES_S", 1 << 30)
    patch.setattr(hearing, "stamp_of", lambda at_ms, now_ms: at_ms)


def copies(patch: Patch) -> None:
    """A frame counts as often as it comes."""
    patch.setattr(Numbers, "is_copy", lambda self, life, number: False)


def open_lock(patch: Patch) -> None:
    """Introductions are sealed with a key that everybody has."""
    real = Lock.__init__
    patch.setattr(Lock, "__init__", lambda self, crypto, key: real(self, crypto, bytes(32)))


def real_names(patch: Patch) -> None:
    """A member is told by its own id."""
    patch.setattr(border, "alias_of", lambda secret, to, named: named[:4])


def one_alias(patch: Patch) -> None:
    """Two neighbours are told the same names, and can compare."""
    real = border.alias_of
    patch.setattr(border, "alias_of", lambda secret, to, named: real(secret, bytes(16), named))


def one_yes(patch: Patch) -> None:
    """One side's yes is enough."""
    patch.setattr(Hearing, "agrees", lambda self, now_ms: self.agreement.is_in_force(now_ms))


def yes_for_ever(patch: Patch) -> None:
    """Who has once said yes is told for ever."""
    patch.setattr(Hearing, "may_be_told", lambda self, now_ms: self.consent is not None)


def any_operator(patch: Patch) -> None:
    """Anybody's key says yes for a swarm."""

    class Everybody(frozenset[bytes]):
        def __contains__(self, one: object) -> bool:
            return True

    patch.setattr(neighbours, "operators_of", lambda chain: Everybody())


def any_yes(patch: Patch) -> None:
    """A yes to another swarm is taken for a yes to this one."""
    real, taken = hearing.read_agreement, Hearing._take_consent

    def take(self: Any, statement: bytes) -> None:
        def read(statement: bytes) -> Any:
            signed, said = real(statement)
            return signed, msgspec.structs.replace(said, root=self.own_root, other=self.own_name)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(hearing, "read_agreement", read)
            taken(self, statement)

    patch.setattr(Hearing, "_take_consent", take)


def begins_anyway(patch: Patch) -> None:
    """A neighbour's claim keeps nobody from beginning."""
    patch.setattr(Covers, "forbids", lambda self, key, now_ns: False)
    patch.setattr(Covers, "stands", lambda self, key, now_ns: False)


def both_have_the_way(patch: Patch) -> None:
    """Where both have claimed, both begin."""
    patch.setattr(neighbours, "right_of_way", lambda own, other, now_ms: True)


def never_spent(patch: Patch) -> None:
    """A neighbour may keep a place for ever."""
    patch.setattr(Holds, "count", lambda self, covered, now_ms: dict(covered))


def revoked_speak(patch: Patch) -> None:
    """A neighbour is not told which gateways were shut out."""
    patch.setattr(border.Border, "_revoked_gateways", lambda self: [])


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (unsigned, laws.write_as_another),
        (any_member, laws.write_as_another),
        (for_anybody, laws.write_as_another),
        (revoked_speak, laws.speak_after_revocation),
        (no_quota, laws.flood),
        (all_claims, laws.flood),
        (no_gap, laws.flood),
        (copies, laws.play_back),
        (open_lock, laws.read_what_is_not_shared),
        (real_names, laws.read_what_is_not_shared),
        (one_alias, laws.read_what_is_not_shared),
        (one_yes, both),
        (yes_for_ever, both),
        (any_operator, laws.agree_by_nobody),
        (any_yes, laws.introduce_unasked),
        (begins_anyway, clear),
        (both_have_the_way, clear),
        (never_spent, laws.hold_for_ever),
    ],
    ids=lambda one: one.__name__,
)
def test_a_law_sees_it(mutant: Callable[[Patch], None], law: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            law()
