"""The sealed exchange by which a device is enrolled over a network: one question, one answer; no I/O.

    question   "swj1" 4B · token id 8B · device's X25519 key 32B · nonce 24B · sealed [Ed25519 key, signature]
    answer     desk's X25519 key 32B · nonce 24B · sealed [kind, text, payload]
    refused    one byte: the token is not known here, or the question does not open

Both are sealed with XChaCha20-Poly1305 by keys that derive from the token; the answer's key from both X25519 keys as
well, so that who finds a used token later cannot open what was recorded. Only who has the token can make either, so
each side proves itself by answering. The question's signature is by the device's own key over all that came before:
nobody enrols a key that is another's. A question that is played again gives an answer that the player cannot open.

Source:
    Perrin, "The Noise Protocol Framework" (2018), pattern NNpsk0.
"""

import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta
from nacl import bindings
from nacl.exceptions import CryptoError

from swarmd.errors import DaemonError
from swarmd.identity.join_tokens import Token
from swarmd_protocols.crypto import NaClCrypto

QUESTION_MAX_BYTES = 512
"""Bytes of a question: it has some 190."""
ANSWER_MAX_BYTES = (4 << 20) + 4_096
"""Bytes of an answer: an enrolment, and what seals it."""
REFUSED = b"\0"
_MAGIC = b"swj1"
_NONCE_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_HEAD_BYTES = len(_MAGIC) + 8 + 32
_CRYPTO = NaClCrypto()
_Key = Annotated[bytes, Meta(min_length=32, max_length=32)]


class JoinError(DaemonError):
    """The other side does not prove that it knows the token; nothing has changed."""


class _Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    public: _Key
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the desk says."""

    kind: Annotated[str, Meta(max_length=16)]
    """"enrolled", "waiting" or "refused"."""
    text: Annotated[str, Meta(max_length=1_024)]
    """For people."""
    payload: Annotated[bytes, Meta(max_length=4 << 20)] = b""
    """The enrolment."""


@dataclass(frozen=True, slots=True)
class Question:
    """The device's side of one exchange."""

    frame: bytes
    """What goes to the desk."""
    head: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """The desk's side of one exchange: who asks."""

    public: bytes
    """The Ed25519 key that is to be enrolled; its owner signed the question."""
    head: bytes
    device: bytes
    key: bytes = field(repr=False)


def ask(token: Token, seed: bytes) -> Question:
    """Make a question.

    Args:
        token: The device's.
        seed: The device's own key; it signs and is not sent.
    """
    secret = secrets.token_bytes(32)
    head = _MAGIC + token.id + bindings.crypto_scalarmult_base(secret)
    request = _Request(_CRYPTO.public_key(seed), _CRYPTO.sign(seed, _signed(head)))
    return Question(
        head + _seal(_derive(token.key, b"question", head), head, msgspec.msgpack.encode(request)), head, secret
    )


def token_id(frame: bytes) -> bytes:
    """Which token a question is about.

    Raises:
        JoinError: It is no question.
    """
    if not _HEAD_BYTES < len(frame) <= QUESTION_MAX_BYTES or not frame.startswith(_MAGIC):
        raise JoinError("not a device's question of swarmd")
    return frame[len(_MAGIC) : len(_MAGIC) + 8]


def open_question(frame: bytes, key: bytes) -> Asked:
    """Read a question.

    Args:
        frame: From the network.
        key: What the desk keeps of the token.

    Raises:
        JoinError: It was not made with this token, or by another than the key's owner.
    """
    token_id(frame)
    head = frame[:_HEAD_BYTES]
    try:
        body = _open(_derive(key, b"question", head), head, frame[_HEAD_BYTES:])
        request = msgspec.msgpack.decode(body, type=_Request)
    except (CryptoError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JoinError("the question was not made with this token") from error
    if not _CRYPTO.verify(request.public, _signed(head), request.signature):
        raise JoinError("the question is not signed by the key that it brings")
    return Asked(request.public, head, head[-32:], key)


def seal_answer(asked: Asked, answer: Answer) -> bytes:
    """The frame that carries an answer.

    Raises:
        JoinError: The device's key is none.
    """
    secret = secrets.token_bytes(32)
    head = bindings.crypto_scalarmult_base(secret)
    shared = _shared(secret, asked.device)
    key = _derive(asked.key, b"answer", asked.head + head + shared)
    return head + _seal(key, asked.head + head, msgspec.msgpack.encode(answer))


def open_answer(token: Token, question: Question, frame: bytes) -> Answer:
    """Read an answer.

    Raises:
        JoinError: It does not come from a desk that knows the token.
    """
    if frame == REFUSED:
        raise JoinError(
            "the desk refuses the token: it is another fleet's, was taken back, or is over for long; ask for another"
        )
    head = frame[:32]
    try:
        key = _derive(token.key, b"answer", question.head + head + _shared(question.secret, head))
        return msgspec.msgpack.decode(_open(key, question.head + head, frame[32:]), type=Answer)
    except (CryptoError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JoinError("whoever answers does not know the token; nothing was taken from it") from error


def _signed(head: bytes) -> bytes:
    return b"swarmd/join/v1\0" + head


def _shared(secret: bytes, public: bytes) -> bytes:
    try:
        return bytes(bindings.crypto_scalarmult(secret, public))
    except (CryptoError, ValueError, TypeError, RuntimeError) as error:
        raise JoinError("the other side shows no key") from error


def _derive(key: bytes, purpose: bytes, context: bytes) -> bytes:
    return blake2b(context, key=key, digest_size=32, person=b"swj1-" + purpose).digest()


def _seal(key: bytes, context: bytes, body: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(body, context, nonce, key)


def _open(key: bytes, context: bytes, sealed: bytes) -> bytes:
    if len(sealed) < _NONCE_BYTES + 16:
        raise CryptoError("too short")
    nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    return bytes(bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(body, context, nonce, key))
