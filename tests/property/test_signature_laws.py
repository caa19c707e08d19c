"""Law: a key that has signed a statement brings nothing by signing it once more, whatever the bytes of the signature.

Who holds an Ed25519 key makes as many signatures of one statement that verify as it likes: of each nonce one. Honest
libraries make one. Keys that were replaced, and single keys of a role that needs more, may vouch beside others; so were
each new form of a signature news, one stolen key could have all judge, tell and write without end.
"""

from hashlib import sha512
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.statements import Heartbeat
from swarmd_protocols.swim import rules
from swarmd_protocols.swim.rules import trust_mark
from swarmd_protocols.trust import envelopes
from swarmd_protocols.trust.envelopes import Envelope, decode_envelope, key_id, mark_of, sign_statement, signed_bytes
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.payloads import Certificate, GroupKey
from swarmd_protocols.trust.roots import root_digest
from swarmd_protocols.trust.trust import Trust
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.release_world import Keys

CRYPTO = NaClCrypto()
KEYS = Keys("f", CRYPTO)
OLD, NEW = KEYS.seeds("enrol")[0], KEYS.seeds("enrol", 1)[0]
SEED = b"n" * 32


def signatures_of(seed: bytes, message: bytes, count: int, rng: Random) -> list[bytes]:
    """So many signatures of one key on one message, all of which verify, no two alike."""
    digest = bytearray(sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    secret = bindings.crypto_core_ed25519_scalar_reduce(bytes(digest) + bytes(32))
    public, found = CRYPTO.public_key(seed), []
    for _ in range(count):
        nonce = bindings.crypto_core_ed25519_scalar_reduce(rng.randbytes(64))
        point = bindings.crypto_scalarmult_ed25519_base_noclamp(nonce)
        challenge = bindings.crypto_core_ed25519_scalar_reduce(sha512(point + public + message).digest())
        product = bindings.crypto_core_ed25519_scalar_mul(challenge, secret)
        found.append(point + bindings.crypto_core_ed25519_scalar_add(nonce, product))
        assert CRYPTO.verify(public, message, found[-1])
    return found


def trust() -> tuple[Trust, dict[str, tuple[bytes, bytes]]]:
    """A node's trust after enrol keys were replaced; by kind, a statement that it holds and a key that may vouch."""
    first = KEYS.root()
    second = KEYS.root(2, 2, root_digest(first), {"enrol": 1})
    public = CRYPTO.public_key(SEED)
    certificate = sign_statement("node", Certificate(node_id_of(public), public, "n", (), "s", 1), [NEW], CRYPTO)
    group = sign_statement("group", GroupKey("s", 1, b"1" * 32), [NEW], CRYPTO)
    opened = open_trust(Identity(SEED, certificate, (first, second), (group,)), {}, CRYPTO)
    return opened, {
        "node": (certificate, OLD),
        "group": (group, OLD),
        "root": (second, KEYS.seeds("root")[4]),
    }


def with_signature(statement: bytes, seed: bytes, signature: bytes) -> bytes:
    held = decode_envelope(statement)
    pairs = dict(held.signatures) | {key_id(CRYPTO.public_key(seed)): signature}
    return Envelope(held.kind, held.payload, tuple(sorted(pairs.items()))).encode()


def is_told_once(kind: str, count: int, seed: int) -> None:
    """In descending order, so that each would be the lower bytes."""
    held, vouchers = trust()
    statement, key = vouchers[kind]
    message = signed_bytes(kind, decode_envelope(statement).payload)
    forms = sorted(signatures_of(key, message, count, Random(seed)), reverse=True)
    revision = held.revision
    news = [held.add(kind, with_signature(statement, key, form)) for form in forms]
    assert sum(news) <= 1 >= held.revision - revision, (sum(news), held.revision - revision)
    marks = {trust_mark(with_signature(statement, key, form)) for form in forms}
    assert len(marks) == 1, "two nodes that hold two forms of it hold the same"


@settings(deadline=None, max_examples=9)
@given(st.sampled_from(["node", "group", "root"]), st.integers(2, 12), st.integers(0, 999))
def test_who_signs_again_brings_nothing(kind: str, count: int, seed: int) -> None:
    is_told_once(kind, count, seed)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8), st.integers(0, 99))
def test_joins_end_with_the_same_marks_in_any_order(signed: list[tuple[int, int]], seed: int) -> None:
    """Of four keys with four forms each, whatever came first: what is held counts the same."""
    rng = Random(seed)
    bare = Envelope("floor", b"x")
    message = signed_bytes("floor", b"x")
    forms = {key: signatures_of(bytes([key]) * 32, message, 4, rng) for key in range(4)}
    said = [with_signature(bare.encode(), bytes([key]) * 32, forms[key][form]) for key, form in signed]
    marks = set()
    for _ in range(3):
        rng.shuffle(said)
        held = bare
        for one in said:
            held = envelopes.merge_signatures(held, decode_envelope(one))
        marks.add(mark_of(held.encode()))
    assert len(marks) == 1


def models_hear_it_once() -> None:
    """The statements about models are held by the same rule."""
    chain = trust()[0].chain
    key = KEYS.seeds("heartbeat")[0]
    statement = sign_statement("heartbeat", Heartbeat(2, 1, 1), [key], CRYPTO)
    forms = sorted(signatures_of(key, signed_bytes("heartbeat", decode_envelope(statement).payload), 6, Random(1)))
    held: versions.State = {}
    news = 0
    for form in reversed(forms):
        envelope = decode_envelope(with_signature(statement, key, form))
        entry = versions.admit(envelope, chain, held.get(envelope.digest))
        joined = versions.join(held, {envelope.digest: entry})
        news += joined != held
        held = joined
    assert news == 1, news


def told_once() -> None:
    for kind in ("node", "group", "root"):
        is_told_once(kind, 6, 1)


def _lower_bytes_win(patch: pytest.MonkeyPatch) -> None:
    def merge(one: Envelope, other: Envelope) -> Envelope:
        merged: dict[envelopes.KeyId, bytes] = {}
        for key, signature in sorted((*one.signatures, *other.signatures)):
            merged.setdefault(key, signature)
        return Envelope(one.kind, one.payload, tuple(sorted(merged.items())))

    for module in (envelopes, versions):
        patch.setattr(module, "merge_signatures", merge)
    patch.setattr("swarmd_protocols.trust.trust.merge_signatures", merge)
    patch.setattr("swarmd_protocols.trust.roots.merge_signatures", merge)


def _bytes_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "mark_of", lambda statement: statement)


PAIRS: list[tuple[Law, Mutant]] = [
    (told_once, _lower_bytes_win),
    (told_once, _bytes_count),
    (models_hear_it_once, _lower_bytes_win),
]


@each_law(PAIRS)
def test_the_unbroken_protocol_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
