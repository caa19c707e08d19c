"""Statements that count, as the tables of `trust.py` hold them."""

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import TypeVar

import msgspec

from swarmd_protocols.trust.envelopes import Envelope, KeyId, decode_envelope
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import RootChain

_Key = TypeVar("_Key", bound=Hashable)


class Held(msgspec.Struct, frozen=True, eq=False):
    """A statement that counts: what it says, its digest, and the bytes as they travel on."""

    value: Certificate | GroupKey | Revocation
    digest: bytes
    statement: bytes

    @property
    def rank(self) -> tuple[int, bytes]:
        """Which of two replaces the other: the counter; where two desks used one, the same one for everybody."""
        return self.value.counter, self.digest


def signers_of(chain: RootChain) -> dict[str, frozenset[KeyId]]:
    """Whose signatures are kept with each kind of statement."""
    return {kind: chain.signers_of(kind) for kind in ("node", "group", "revoke")}


def still(held: Held, chain: RootChain, signers: Mapping[str, Set[KeyId]]) -> Held | None:
    """What counts of a statement: with no signature by a key of a root that is not in the chain any longer.

    Args:
        held: A statement that counted, its signatures verified.
        chain: The roots as they are now.
        signers: `signers_of` the chain.
    """
    envelope = decode_envelope(held.statement)
    pairs = tuple(pair for pair in envelope.signatures if pair[0] in signers[envelope.kind])
    fit = Envelope(envelope.kind, envelope.payload, pairs)
    if not chain.counts(fit):
        return None
    return held if len(pairs) == len(envelope.signatures) else Held(held.value, held.digest, fit.encode())


def all_still(table: Mapping[_Key, Held], chain: RootChain, signers: Mapping[str, Set[KeyId]]) -> dict[_Key, Held]:
    """A table of what counts, judged anew; see `still`."""
    judged = ((key, still(one, chain, signers)) for key, one in table.items())
    return {key: one for key, one in judged if one is not None}


def those_still(given: Iterable[Held], chain: RootChain) -> list[Held]:
    """The same of a list."""
    return [*all_still(dict(enumerate(given)), chain, signers_of(chain)).values()]


def regained(groups: Mapping[int, Held], given: Iterable[Held], heard: Set[bytes], room: int) -> list[Held]:
    """Group keys of the node's identity for which there is room again: they are there, as after a restart.

    Args:
        groups: Those that are held, by counter.
        given: What counts of the identity.
        heard: Marks of all revocations that are held.
        room: Group keys that may be held.
    """
    keys = [one for one in given if isinstance(one.value, GroupKey) and one.value.counter not in groups]
    known = [one for one in keys if heard >= frozenset(group_key_of(one).after)]
    return sorted(known, key=lambda one: one.rank, reverse=True)[: max(0, room - len(groups))]


def certificate_of(held: Held) -> Certificate:
    """What it says."""
    assert isinstance(held.value, Certificate), "tables of certificates hold certificates"
    return held.value


def group_key_of(held: Held) -> GroupKey:
    """What it says."""
    assert isinstance(held.value, GroupKey), "tables of group keys hold group keys"
    return held.value


def by_counter(held: Mapping[int, Held]) -> dict[int, GroupKey]:
    """What they say."""
    return {counter: group_key_of(held[counter]) for counter in sorted(held)}


def revocation_of(held: Held) -> Revocation:
    """What it says."""
    assert isinstance(held.value, Revocation), "tables of revocations hold revocations"
    return held.value
