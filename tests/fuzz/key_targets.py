"""Fuzz targets of what officers hand to each other: prepared statements, key files, public halves, agents' answers,
enrolments."""

import contextlib
from collections.abc import Callable

import msgspec

from swarmd.errors import DaemonError
from swarmd.identity.enrolment import Enrolment, decode_enrolment
from swarmd.identity.officers import parse_public, parse_sealed, seal_key
from swarmd.identity.prepared import add_signature, decode, encode, merge, missing, prepare, words
from swarmd.identity.ssh_agent import parse_keys, parse_signature, public_blob
from swarmd_protocols.trust.roots import root_digest
from swarmd_protocols.trust.trust import Revocation
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
