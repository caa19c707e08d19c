"""Statements that count, as the tables of `trust.py` hold them."""

from collections.abc import Hashable, Mapping, Set
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


def still(held: Held, chain: RootChain, signers: Mapping[str, Set[KeyId]]) -> Held | None:
    """What counts of a statement: with no signature by a key of a root that is not in the chain any longer.

    Args:
        held: A statement that counted, its signatures verified.
        chain: The roots as they are now.
        signers: `chain.signers_of` of each kind.
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
