"""The arithmetic of trust behind one small interface: sign, verify, agree on a key, seal, open.

`NaClCrypto` is libsodium. `ModelCrypto` gives the same sizes and the same verdicts for simulations of thousands of
nodes, without the arithmetic: a wrong key, a changed byte or a made-up signature fails there too; nothing is secret.
Both are deterministic: nonces and seeds come from the caller.
"""

from collections.abc import Hashable
from hashlib import blake2b
from typing import Protocol, TypeVar, cast
from zlib import crc32

from nacl import bindings
from nacl.exceptions import CryptoError

from swarmd_protocols.errors import IdentityError

SEED_BYTES = 32
"""Private half of an Ed25519 or X25519 key."""
PUBLIC_KEY_BYTES = 32
"""Ed25519 and X25519."""
SIGNATURE_BYTES = 64
"""Ed25519."""
NONCE_BYTES = 24
"""XSalsa20."""
SEAL_BYTES = 16
"""What a seal adds to the plaintext."""

_VERDICTS_KEPT = 4_096
"""Signatures whose verdict is remembered, 68 KiB from the start: gossip shows each statement many times, and a table
that filled would look like a leak for hours. A newer verdict takes the place of one that falls to the same place."""
_QUESTION_BYTES = 16
"""Of the hash by which a question is known again."""
_T = TypeVar("_T", bound=Hashable)


class Crypto(Protocol):
    """What identity and channel ask of a cryptographic library; no method keeps a secret it was not given."""

    checks: int
    """Signatures checked so far, answers from memory apart: the unit of work in which strangers' words are paid."""

    def public_key(self, seed: bytes) -> bytes:
        """The Ed25519 public key of a 32-byte seed."""
        ...

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """A detached 64-byte Ed25519 signature."""
        ...

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the signature holds; False, never an exception, for anything malformed."""
        ...

    def exchange_secret(self, seed: bytes) -> bytes:
        """The X25519 secret that belongs to an Ed25519 seed."""
        ...

    def exchange_public(self, public_key: bytes) -> bytes:
        """The X25519 public key that belongs to an Ed25519 public key; raises `IdentityError` for a bad point."""
        ...

    def ephemeral_public(self, secret: bytes) -> bytes:
        """The X25519 public key of an X25519 secret."""
        ...

    def shared_key(self, secret: bytes, public: bytes) -> bytes:
        """32 bytes that both sides of a pair compute; raises `IdentityError` for a bad point."""
        ...

    def seal(self, key: bytes, nonce: bytes, plaintext: bytes) -> bytes:
        """Authenticated encryption (XSalsa20-Poly1305); 16 bytes longer than the plaintext."""
        ...

    def open(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
        """The plaintext, or None where key, nonce or bytes are not those that were sealed."""
        ...

    def share(self, item: _T) -> _T:
        """An equal immutable item to keep instead of this one: where many nodes live in one process, one for all."""
        ...


class NaClCrypto:
    """libsodium through PyNaCl's bindings, with expanded keys and verdicts remembered (bounded)."""

    __slots__ = ("_expanded", "_questions", "_verdicts", "checks")

    def __init__(self) -> None:
        self.checks = 0
        self._expanded: dict[bytes, tuple[bytes, bytes]] = {}
        self._questions = bytearray(_VERDICTS_KEPT * _QUESTION_BYTES)
        self._verdicts = bytearray(_VERDICTS_KEPT)

    def _keypair(self, seed: bytes) -> tuple[bytes, bytes]:
        pair = self._expanded.get(seed)
        if pair is None:
            if len(self._expanded) >= 64:
                self._expanded.clear()
            pair = self._expanded[seed] = bindings.crypto_sign_seed_keypair(seed)
        return pair

    def public_key(self, seed: bytes) -> bytes:
        """See `Crypto.public_key`."""
        return self._keypair(seed)[0]

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """See `Crypto.sign`."""
        return bytes(bindings.crypto_sign(message, self._keypair(seed)[1])[:SIGNATURE_BYTES])

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """See `Crypto.verify`; a repeated question costs a hash instead of 40 microseconds."""
        if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
            return False
        question = blake2b(public_key + signature + message, digest_size=_QUESTION_BYTES).digest()
        place = int.from_bytes(question[:4], "little") % _VERDICTS_KEPT
        at = place * _QUESTION_BYTES
        if self._questions[at : at + _QUESTION_BYTES] == question:
            return bool(self._verdicts[place])
        self.checks += 1
        try:
            bindings.crypto_sign_open(signature + message, public_key)
            verdict = True
        except (CryptoError, ValueError):
            verdict = False
        self._questions[at : at + _QUESTION_BYTES] = question
        self._verdicts[place] = verdict
        return verdict

    def exchange_secret(self, seed: bytes) -> bytes:
        """See `Crypto.exchange_secret`."""
        return bytes(bindings.crypto_sign_ed25519_sk_to_curve25519(self._keypair(seed)[1]))

    def exchange_public(self, public_key: bytes) -> bytes:
        """See `Crypto.exchange_public`."""
        try:
            return bytes(bindings.crypto_sign_ed25519_pk_to_curve25519(public_key))
        except (CryptoError, ValueError, TypeError) as error:
            raise IdentityError("the public key is no valid Ed25519 point") from error

    def ephemeral_public(self, secret: bytes) -> bytes:
        """See `Crypto.ephemeral_public`."""
        return bytes(bindings.crypto_scalarmult_base(secret))

    def shared_key(self, secret: bytes, public: bytes) -> bytes:
        """See `Crypto.shared_key`."""
        try:
            return bytes(bindings.crypto_box_beforenm(public, secret))
        except (CryptoError, ValueError, TypeError) as error:
            raise IdentityError("the public key is no valid X25519 point") from error

    def seal(self, key: bytes, nonce: bytes, plaintext: bytes) -> bytes:
        """See `Crypto.seal`."""
        return bytes(bindings.crypto_secretbox_easy(plaintext, nonce, key))

    def open(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
        """See `Crypto.open`."""
        if len(sealed) < SEAL_BYTES:
            return None
        try:
            return bytes(bindings.crypto_secretbox_open_easy(sealed, nonce, key))
        except (CryptoError, ValueError):
            return None

    def share(self, item: _T) -> _T:
        """See `Crypto.share`: a daemon holds each record once anyway."""
        return item


class ModelCrypto:
    """Same sizes, same verdicts, no secrecy: for simulations only; the daemon cannot select it."""

    __slots__ = ("_shared", "checks")

    def __init__(self) -> None:
        self.checks = 0
        self._shared: dict[object, object] = {}

    def public_key(self, seed: bytes) -> bytes:
        """See `Crypto.public_key`."""
        return blake2b(seed, digest_size=32, person=b"model-public").digest()

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """See `Crypto.sign`."""
        return blake2b(message, key=self.public_key(seed)).digest()

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """See `Crypto.verify`."""
        self.checks += 1
        if len(public_key) != PUBLIC_KEY_BYTES:
            return False
        return blake2b(message, key=public_key).digest() == signature

    def exchange_secret(self, seed: bytes) -> bytes:
        """See `Crypto.exchange_secret`: here the X25519 public key itself stands for the secret."""
        return self.exchange_public(self.public_key(seed))

    def exchange_public(self, public_key: bytes) -> bytes:
        """See `Crypto.exchange_public`."""
        if len(public_key) != PUBLIC_KEY_BYTES:
            raise IdentityError("the public key is no valid Ed25519 point")
        return blake2b(public_key, digest_size=32, person=b"model-exchange").digest()

    def ephemeral_public(self, secret: bytes) -> bytes:
        """See `Crypto.ephemeral_public`."""
        return secret

    def shared_key(self, secret: bytes, public: bytes) -> bytes:
        """See `Crypto.shared_key`."""
        if len(public) != PUBLIC_KEY_BYTES:
            raise IdentityError("the public key is no valid X25519 point")
        low, high = (secret, public) if secret < public else (public, secret)
        return blake2b(low + high, digest_size=32, person=b"model-shared").digest()

    def seal(self, key: bytes, nonce: bytes, plaintext: bytes) -> bytes:
        """See `Crypto.seal`: the plaintext with a checksum over key, nonce and text where the tag would be."""
        return plaintext + b"%016x" % crc32(plaintext, crc32(nonce, crc32(key)))

    def open(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
        """See `Crypto.open`."""
        plaintext = sealed[:-SEAL_BYTES]
        return plaintext if sealed[-SEAL_BYTES:] == b"%016x" % crc32(plaintext, crc32(nonce, crc32(key))) else None

    def share(self, item: _T) -> _T:
        """See `Crypto.share`: all nodes of a simulation keep the first of equal ones."""
        return cast(_T, self._shared.setdefault(item, item))
