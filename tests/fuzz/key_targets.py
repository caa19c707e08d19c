"""Fuzz targets of what officers and devices hand to each other: prepared statements, key files, public halves, agents'
answers, enrolments, join tokens, requests, and both sides of joining by a token."""

import contextlib
from collections.abc import Callable

import msgspec
from nacl import bindings

from swarmd.errors import DaemonError
from swarmd.identity import join_channel
from swarmd.identity.enrolment import Enrolment, decode_enrolment
from swarmd.identity.join_tokens import Token, parse_token
from swarmd.identity.node_requests import parse_request
from swarmd.identity.officers import parse_public, parse_sealed, seal_key
from swarmd.identity.prepared import add_signature, decode, encode, merge, missing, prepare, words
from swarmd.identity.ssh_agent import parse_keys, parse_signature, public_blob
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.roots import root_digest
from tests.support.officers import HALVES, certificate, compose, officer, signed_root


def prepared_corpus() -> list[bytes]:
    """A half-signed revocation, and a root."""
    root = signed_root(compose(), "alice", "bob")
    node, statement = certificate("drone-3")
    payload = msgspec.msgpack.encode(Revocation("farm", 7, (node,), "lost"))
    revocation = add_signature(prepare("revoke", payload, root, HALVES, [statement]), officer("alice"))
    following = msgspec.msgpack.encode(compose(version=2, previous=root_digest(root)))
    return [encode(revocation), encode(prepare("root", following, root, HALVES))]


def read_prepared(data: bytes) -> None:
    """Everything that a desk does with a file before a key is touched."""
    with contextlib.suppress(DaemonError):
        prepared = decode(data)
        words(prepared)
        missing(prepared)
        merge(prepared, prepared)
        assert decode(encode(prepared)).payload == prepared.payload, "what is signed stays"


def key_corpus() -> list[bytes]:
    """A sealed key, a public half, an agent's list and its signature, a node's enrolment."""
    blob = public_blob(HALVES[0].public)
    sized = len(blob).to_bytes(4, "big") + blob
    listed = b"\x0c\0\0\0\x02" + (sized + b"\0\0\0\x05alice") * 2
    signed = b"\x0e\0\0\0\x53\0\0\0\x0bssh-ed25519\0\0\0\x40" + bytes(64)
    key = seal_key(bytes(32), "alice", "correct horse", operations=1, memory_kib=8)
    enrolment = b"swarmd-enrolment-1\n" + msgspec.msgpack.encode(Enrolment(b"certificate", (b"root",), (b"group",), ()))
    return [key, HALVES[0].line.encode(), listed, signed, enrolment]


def read_keys(data: bytes) -> None:
    """Every reader of keys from outside."""
    readers: tuple[Callable[[bytes], object], ...] = (
        parse_sealed,
        parse_keys,
        parse_signature,
        decode_enrolment,
        lambda raw: parse_public(raw.decode("ascii", "replace")),
    )
    for reader in readers:
        with contextlib.suppress(DaemonError):
            reader(data)


TOKEN = Token(b"i" * 8, b"s" * 32, b"r" * 32, "drone-1", "farm", ("10.0.0.5:7990",))


def joining_corpus() -> list[bytes]:
    """A token, a request, a question and its inside, an answer and its inside."""
    question = join_channel.ask(TOKEN, bytes(32))
    asked = join_channel.open_question(question.frame, TOKEN.key)
    answer = join_channel.Answer("enrolled", "welcome", b"enrolment")
    request = join_channel._Request(asked.public, bytes(64))
    made = b"swarmd-request-1\n" + HALVES[0].line.encode() + b"\nsignature " + b"00" * 64 + b"\n"
    inside = [msgspec.msgpack.encode(one) for one in (request, answer)]
    return [TOKEN.text.encode(), made, question.frame, join_channel.seal_answer(asked, answer), *inside]


def read_joining(data: bytes) -> None:
    """Every reader of what a device and a desk say to each other, sealed rightly too."""
    question = join_channel.ask(TOKEN, bytes(32))
    asked = join_channel.open_question(question.frame, TOKEN.key)
    key = join_channel._derive(TOKEN.key, b"question", question.head)
    secret = b"\1" * 32
    head = bindings.crypto_scalarmult_base(secret)
    shared = join_channel._shared(secret, asked.device)
    other = join_channel._derive(TOKEN.key, b"answer", asked.head + head + shared)
    sealed = head + join_channel._seal(other, asked.head + head, data)
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_token(data.decode("utf-8", "replace")),
        lambda: parse_request(data),
        lambda: join_channel.open_question(data, TOKEN.key),
        lambda: join_channel.open_question(
            question.head + join_channel._seal(key, question.head, data[:256]), TOKEN.key
        ),
        lambda: join_channel.open_answer(TOKEN, question, data),
        lambda: join_channel.open_answer(TOKEN, question, sealed),
    )
    for reader in readers:
        with contextlib.suppress(DaemonError):
            reader()
