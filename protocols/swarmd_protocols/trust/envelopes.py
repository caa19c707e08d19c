"""Signed bytes: what is signed is what is shipped, with its type and length in front.

An envelope is `[kind, payload, [[key id, signature], …]]`, an array of msgpack. A signature covers

    b"swarmd/" kind b"/v1\\0" ‖ u64le(len(payload)) ‖ payload

so a statement of one kind can never be read as another's. Verify first, parse second, never re-serialise a payload.
The identity of a statement is the digest of the bytes that are signed, without the signatures: two officers who sign at
different desks produce two envelopes of one statement, and `merge_signatures` joins them.

Source: the pre-authentication encoding of DSSE; thresholds count distinct keys, as TUF 1.0.34, section 5, warns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import Annotated, NewType, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError

KeyId = NewType("KeyId", bytes)
"""16 bytes: BLAKE2b-128 of an Ed25519 public key, so that one key cannot carry two ids."""

Verify: TypeAlias = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) -> holds."""

ROLE_OF: Mapping[str, str] = {
    "root": "root",
    "node": "enrol",
    "group": "enrol",
    "revoke": "revoke",
    "release": "release",
    "delta": "release",
    "force": "release",
    "floor": "floor",
    "model-revoke": "revoke",
    "halt": "revoke",
    "heartbeat": "heartbeat",
}
"""The role whose keys must sign each kind of statement."""
KINDS = frozenset({*ROLE_OF, "health"})
"""All kinds; a "health" report is signed by the node that it is about."""
REMOVALS = frozenset({"revoke", "model-revoke", "halt", "floor"})
"""What can only take away; where one falls by a planned root, nodes raise an alarm."""

MAX_PAYLOAD_BYTES = 49_152
"""A root that names `roots.KEPT_MAX` statements, with room for its keys."""
MAX_SIGNATURES = 32
"""Of one statement: more officers than a threshold ever needs."""
STATEMENT_MAX_BYTES = 65_536
"""The largest payload with all its signatures; a stream frame takes several."""
KEY_BYTES, SIGNATURE_BYTES, DIGEST_BYTES, MARK_BYTES = 32, 64, 32, 16
DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding bytes from outside raises: wrong types, text that is not UTF-8, arrays nested without end."""

_Key = Annotated[KeyId, Meta(min_length=16, max_length=16)]
_Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One statement with the signatures gathered so far, sorted by key id, one a key."""

    kind: Annotated[str, Meta(max_length=16)]
    payload: Annotated[bytes, Meta(max_length=MAX_PAYLOAD_BYTES)]
    signatures: Annotated[tuple[tuple[_Key, _Signature], ...], Meta(max_length=MAX_SIGNATURES)] = ()

    @property
    def digest(self) -> bytes:
        """32 bytes that name the statement, whoever signed it."""
        return sha256(signed_bytes(self.kind, self.payload)).digest()

    def encode(self) -> bytes:
        """As it travels."""
        return _encode(self)


_encode = msgspec.msgpack.Encoder().encode
_ENVELOPE = msgspec.msgpack.Decoder(Envelope)


def key_id(public_key: bytes) -> KeyId:
    """The id of an Ed25519 public key."""
    return KeyId(blake2b(public_key, digest_size=16, person=b"swarmd-key-id").digest())


def signed_bytes(kind: str, payload: bytes) -> bytes:
    """What a signature covers.

    >>> signed_bytes("floor", b"ab")
    b'swarmd/floor/v1\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00ab'
    """
    return b"swarmd/" + kind.encode() + b"/v1\0" + len(payload).to_bytes(8, "little") + payload


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope from outside; the payload stays unread bytes until its signatures hold.

    Raises:
        WireError: Not an envelope, of an unknown kind, too large, or with unsorted or repeated key ids.
    """
    if len(data) > STATEMENT_MAX_BYTES:
        raise WireError(f"statement of {len(data)} bytes; at most {STATEMENT_MAX_BYTES} are read")
    try:
        envelope = _ENVELOPE.decode(data)
    except DAMAGE as error:
        raise WireError(f"not a signed statement: {error}") from error
    if envelope.kind not in KINDS:
        raise WireError(f"unknown kind of statement {envelope.kind!r}")
    if any(one[0] >= other[0] for one, other in pairwise(envelope.signatures)):
        raise WireError("signatures are not sorted by key id, one a key")
    return envelope


def mark_of(statement: bytes) -> bytes:
    """What a statement counts as in comparisons: what it says, and which keys have signed it.

    Not the bytes of a signature: who holds a key makes as many that verify as it likes.

    Raises:
        WireError: As `decode_envelope`.
    """
    envelope = decode_envelope(statement)
    return envelope.digest + b"".join(key for key, _ in envelope.signatures)


def merge_signatures(one: Envelope, other: Envelope) -> Envelope:
    """The same statement with the signatures of both; of two by one key, that of `one`.

    So what is held is the union of the keys that have signed, and a key that signs once more brings nothing, whatever
    the bytes. This does not look at the signatures: verify what comes out (`RootChain.verified`), or join what was
    verified.

    Raises:
        IdentityError: The two are different statements.
    """
    if one.kind != other.kind or one.payload != other.payload:
        raise IdentityError(f"these are two different {one.kind} statements; only signatures of one can be joined")
    merged = dict(other.signatures) | dict(one.signatures)
    return Envelope(one.kind, one.payload, tuple(sorted(merged.items())))


def sign_statement(kind: str, payload: msgspec.Struct | bytes, seeds: Sequence[bytes], crypto: Crypto) -> bytes:
    """Sign a statement with one or several role keys; needs no network and no state.

    Args:
        kind: One of `KINDS`.
        payload: A struct, or the exact bytes that will be shipped.
        seeds: Ed25519 seeds of the signers, 32 bytes each.
        crypto: The library to sign with.

    Returns:
        The encoded `Envelope`.
    """
    envelope = Envelope(kind, payload if isinstance(payload, bytes) else _encode(payload))
    for seed in seeds:
        envelope = add_signature(envelope, seed, crypto)
    return envelope.encode()


def add_signature(envelope: Envelope, seed: bytes, crypto: Crypto) -> Envelope:
    """The same statement with one more signature (k-of-n signing on separate machines)."""
    signature = crypto.sign(seed, signed_bytes(envelope.kind, envelope.payload))
    pair = (key_id(crypto.public_key(seed)), signature)
    others = tuple(old for old in envelope.signatures if old[0] != pair[0])
    return Envelope(envelope.kind, envelope.payload, tuple(sorted((*others, pair))))


def signers(envelope: Envelope, keys: Mapping[KeyId, bytes], verify: Verify) -> frozenset[KeyId]:
    """The distinct keys among `keys` whose signature on the envelope holds."""
    message = signed_bytes(envelope.kind, envelope.payload)
    return frozenset(
        key for key, signature in envelope.signatures if key in keys and verify(keys[key], message, signature)
    )


def meets_threshold(good: Iterable[KeyId], role_keys: Iterable[KeyId], threshold: int) -> bool:
    """Whether enough **distinct** keys of a role have signed; a threshold below one never holds."""
    return threshold >= 1 and len(set(good) & set(role_keys)) >= threshold
