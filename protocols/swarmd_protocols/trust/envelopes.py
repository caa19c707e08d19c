"""Signed bytes: what is signed is what is shipped, with its type and length in front.

An envelope is `[type, payload, [[key id, signature], …]]` in deterministic CBOR. A signature covers

    b"swarmd/" type b"/v1\\0" ‖ u64le(len(payload)) ‖ payload

so a statement of one type can never be read as another's. Verify first, parse second, never re-serialise. The identity
of a statement is the digest of the bytes that are signed, without the signatures: two officers who sign at different
desks produce two envelopes of one statement, and `merge_signatures` joins them.

Source: the pre-authentication encoding of DSSE; thresholds count distinct keys, as TUF 1.0.34, section 5, warns.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import NewType, TypeAlias

from nacl import exceptions
from nacl.bindings import crypto_sign as _crypto_sign
from nacl.bindings import crypto_sign_open, crypto_sign_seed_keypair

from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.trust import canonical

KeyId = NewType("KeyId", bytes)
"""16 bytes: BLAKE2b-128 of an Ed25519 public key, so that one key cannot carry two ids."""

Verify: TypeAlias = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) -> holds."""

KINDS = frozenset(
    {"release", "delta", "floor", "model-revoke", "heartbeat", "force", "halt", "health"},
)
MAX_PAYLOAD_BYTES = 49_152
MAX_SIGNATURES = 32
KEY_BYTES, SIGNATURE_BYTES, DIGEST_BYTES = 32, 64, 32


def key_id(public_key: bytes) -> KeyId:
    """The id of an Ed25519 public key."""
    return KeyId(blake2b(public_key, digest_size=16, person=b"swarmd-key-id").digest())


def signed_bytes(kind: str, payload: bytes) -> bytes:
    """What a signature covers.

    >>> signed_bytes("floor", b"ab")
    b'swarmd/floor/v1\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00ab'
    """
    return b"swarmd/" + kind.encode() + b"/v1\0" + len(payload).to_bytes(8, "little") + payload


@dataclass(frozen=True, slots=True)
class Envelope:
    """One statement with the signatures gathered so far, sorted by key id, one a key."""

    kind: str
    payload: bytes
    signatures: tuple[tuple[KeyId, bytes], ...] = ()

    @property
    def digest(self) -> bytes:
        """32 bytes that name the statement, whoever signed it."""
        return sha256(signed_bytes(self.kind, self.payload)).digest()

    def encode(self) -> bytes:
        """The one encoding."""
        return canonical.encode([self.kind, self.payload, [[key, signature] for key, signature in self.signatures]])


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope from outside; the payload stays unread bytes until its signatures hold.

    Raises:
        WireError: Not an envelope, of an unknown kind, too large, or with unsorted or repeated key ids.
    """
    match canonical.decode(data):
        case [str() as kind, bytes() as payload, list() as pairs]:
            pass
        case _:
            raise WireError("an envelope is [kind, payload, signatures]")
    if kind not in KINDS:
        raise WireError(f"unknown kind of statement {kind[:20]!r}")
    if len(payload) > MAX_PAYLOAD_BYTES or len(pairs) > MAX_SIGNATURES:
        raise WireError(f"envelope with {len(payload)} payload bytes and {len(pairs)} signatures is too large")
    signatures = tuple(_pair(pair) for pair in pairs)
    if any(one[0] >= other[0] for one, other in pairwise(signatures)):
        raise WireError("signatures are not sorted by key id, one a key")
    return Envelope(kind, payload, signatures)


def _pair(pair: canonical.Value) -> tuple[KeyId, bytes]:
    match pair:
        case [bytes() as key, bytes() as signature] if len(key) == 16 and len(signature) == SIGNATURE_BYTES:
            return KeyId(key), signature
        case _:
            raise WireError("a signature is [16-byte key id, 64-byte signature]")


def merge_signatures(one: Envelope, other: Envelope) -> Envelope:
    """The same statement with the signatures of both; of two by one key, the lower bytes.

    Raises:
        IdentityError: The two are different statements.
    """
    if one.kind != other.kind or one.payload != other.payload:
        raise IdentityError(f"these are two different {one.kind} statements; only signatures of one can be joined")
    merged: dict[KeyId, bytes] = {}
    for key, signature in sorted((*one.signatures, *other.signatures)):
        merged.setdefault(key, signature)
    return Envelope(one.kind, one.payload, tuple(sorted(merged.items())[:MAX_SIGNATURES]))


def sign(kind: str, payload: bytes, seed: bytes) -> tuple[KeyId, bytes]:
    """Sign a payload; needs no network and no state.

    Args:
        kind: The type of the statement.
        payload: The exact bytes that will be shipped.
        seed: 32-byte Ed25519 seed.

    Returns:
        The signer's key id and the signature.
    """
    public, secret = crypto_sign_seed_keypair(seed)
    return key_id(public), _crypto_sign(signed_bytes(kind, payload), secret)[:SIGNATURE_BYTES]


def add_signature(envelope: Envelope, seed: bytes) -> Envelope:
    """The envelope with one more signature."""
    pair = sign(envelope.kind, envelope.payload, seed)
    return merge_signatures(envelope, Envelope(envelope.kind, envelope.payload, (pair,)))


def verify_ed25519(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature holds; libsodium refuses non-canonical scalars and small-order keys."""
    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except (exceptions.BadSignatureError, ValueError):
        return False
    return True


def signers(envelope: Envelope, keys: Mapping[KeyId, bytes], verify: Verify) -> frozenset[KeyId]:
    """The distinct keys among `keys` whose signature on the envelope holds."""
    message = signed_bytes(envelope.kind, envelope.payload)
    return frozenset(
        key for key, signature in envelope.signatures if key in keys and verify(keys[key], message, signature)
    )


def meets_threshold(good: Iterable[KeyId], role_keys: Iterable[KeyId], threshold: int) -> bool:
    """Whether enough **distinct** keys of a role have signed; a threshold below one never holds."""
    return threshold >= 1 and len(set(good) & set(role_keys)) >= threshold
