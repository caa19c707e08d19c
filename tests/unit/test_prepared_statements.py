"""Prepared statements: what they say, who may sign them, who is missing, and how two desks' files are joined."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.identity.prepared import (
    FILE_MAX_BYTES,
    Prepared,
    PreparedError,
    add_signature,
    decode,
    encode,
    merge,
    missing,
    prepare,
    read,
    statement_of,
    words,
    write_joined,
    write_new,
)
from swarmd.identity.words import WordsError
from swarmd_protocols.releases.statements import Floor, Force, Halt, Heartbeat, Revoke
from swarmd_protocols.releases.versions import admit
from swarmd_protocols.trust.envelopes import decode_envelope as decode_model_envelope
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.roots import RootChain, root_digest
from swarmd_protocols.trust.trust import Trust
from tests.support.officers import CRYPTO, HALVES, NAMES, ROLES, certificate, compose, officer, signed_root

ROOT = signed_root(compose(), "alice", "bob")
NODE, CERTIFICATE = certificate("drone-3")
encode_payload = msgspec.msgpack.encode


def revocation(reason: str = "lost over the sea", nodes: tuple[bytes, ...] = (NODE,)) -> Prepared:
    payload = encode_payload(Revocation("farm", 7, nodes, reason))
    return prepare("revoke", payload, ROOT, HALVES, [CERTIFICATE])


def test_a_revocation_says_whom_it_shuts_out_and_takes_two_of_three() -> None:
    prepared = revocation()
    told = words(prepared)
    assert told.title == "a revocation of nodes"
    assert f"  drone-3 (node {NODE.hex()})" in told.effects
    assert any("lost over the sea" in line for line in told.effects)
    assert missing(prepared) == ["revoke takes 2 signatures and has 0; 2 of: alice, bob, carol"]
    assert b"missing: revoke takes 2 signatures and has 0; 2 of: alice, bob, carol" in encode(prepared)
    once = add_signature(prepared, officer("alice"))
    assert b"missing: revoke takes 2 signatures and has 1; 1 of: bob, carol" in encode(once)
    assert b"missing" not in encode(add_signature(once, officer("bob")))
    assert missing(once) == ["revoke takes 2 signatures and has 1; 1 of: bob, carol"]
    with pytest.raises(PreparedError, match=r"not signed by enough officers.*1 of: bob, carol"):
        statement_of(once)
    trust = Trust("farm", [ROOT], CRYPTO)
    assert trust.add("revoke", statement_of(add_signature(once, officer("carol"))))
    assert trust.revoked == {NODE}


def test_a_key_of_another_role_and_a_stranger_are_refused_at_once() -> None:
    with pytest.raises(PreparedError, match=r"erin is a key of heartbeat; this takes keys of the role revoke: alice"):
        add_signature(revocation(), officer("erin"))
    with pytest.raises(PreparedError, match="mallory is no key of this fleet"):
        add_signature(revocation(), officer("mallory"))
    with pytest.raises(PreparedError, match="alice has signed this already"):
        add_signature(add_signature(revocation(), officer("alice")), officer("alice"))


def test_the_words_in_the_file_are_for_readers_and_change_nothing() -> None:
    honest = revocation()
    lying = encode(honest).replace(b"shuts out of the swarm", b"honours in the swarm  ")
    assert b"honours" in lying
    assert words(decode(lying)) == words(honest)
    assert b"honours" not in encode(decode(lying))


def test_a_name_that_nobody_vouches_for_is_not_shown() -> None:
    _, forged = certificate("drone-4", by="mallory")
    payload = encode_payload(Revocation("farm", 7, (NODE,), "x"))
    told = words(prepare("revoke", payload, ROOT, HALVES, [forged]))
    assert f"  node {NODE.hex()} (its name is not known here)" in told.effects


def test_text_in_a_statement_cannot_steer_a_terminal_or_add_a_line() -> None:
    evil = "fine\x1b[2J\nshuts out nobody"
    node, named = certificate(evil)
    payload = encode_payload(Revocation("farm", 7, (node,), evil))
    told = words(prepare("revoke", payload, ROOT, HALVES, [named]))
    assert any("fine?[2J?shuts out nobody" in line for line in told.effects)
    assert all("\x1b" not in line and "\n" not in line for line in told.effects)


@given(st.sets(st.sampled_from(NAMES[:3]), min_size=0), st.sets(st.sampled_from(NAMES[:3]), min_size=0))
def test_signatures_of_two_desks_are_joined_whoever_comes_first(one: set[str], other: set[str]) -> None:
    left, right = revocation(), revocation()
    for name in sorted(one):
        left = add_signature(left, officer(name))
    for name in sorted(other):
        right = add_signature(right, officer(name))
    joined = merge(left, right)
    assert {entry.key for entry in joined.signatures} == {officer(name).half.key_id.hex() for name in one | other}
    assert joined.signatures == merge(right, left).signatures
    assert merge(joined, left).signatures == joined.signatures
    assert (missing(joined) == []) == (len(one | other) >= 2)


def test_joining_keeps_no_signature_that_does_not_hold() -> None:
    good = add_signature(revocation(), officer("alice"))
    zeroed = msgspec.structs.replace(good.signatures[0], signature=bytes(64))
    bad = msgspec.structs.replace(good, signatures=(zeroed,))
    assert merge(bad, good).signatures == merge(good, bad).signatures == good.signatures
    assert missing(bad) == missing(revocation())
    assert missing(add_signature(bad, officer("bob"))) == ["revoke takes 2 signatures and has 1; 1 of: alice, carol"]
    assert len(add_signature(bad, officer("bob")).signatures) == 1


def test_two_statements_are_not_joined() -> None:
    with pytest.raises(PreparedError, match="different statements"):
        merge(revocation("a"), revocation("b"))


def test_a_root_takes_the_old_keys_and_the_new_ones() -> None:
    roles = {**ROLES, "root": (2, ("carol", "dave", "erin"))}
    new = compose(roles, 2, root_digest(ROOT))
    prepared = prepare("root", encode_payload(new), ROOT, HALVES)
    told = words(prepared)
    assert "  out: alice, bob" in told.effects
    assert "  in: dave, erin" in told.effects
    for name in ("alice", "dave"):
        prepared = add_signature(prepared, officer(name))
    assert missing(prepared) == [
        "root takes 2 signatures and has 1; 1 of: bob, carol",
        "root takes 2 signatures and has 1; 1 of: carol, erin",
    ]
    prepared = add_signature(prepared, officer("carol"))  # Counts for both.
    trust = Trust("farm", [ROOT], CRYPTO)
    assert trust.add("root", statement_of(prepared))
    assert RootChain.trust(ROOT, CRYPTO).extend(statement_of(prepared))


def test_a_first_root_is_judged_by_itself_and_says_who_holds_what() -> None:
    prepared = prepare("root", encode_payload(compose()), b"", HALVES)
    told = words(prepared)
    assert "release: 2 of 3 (alice, bob, carol) release models" in told.effects
    for name in ("alice", "carol"):
        prepared = add_signature(prepared, officer(name))
    Trust("farm", [statement_of(prepared)], CRYPTO)


@pytest.mark.parametrize(
    ("roles", "warning"),
    [
        ({**ROLES, "release": (1, ("alice", "bob", "carol"))}, "role release takes 1 signatures instead of 2: weaker"),
        ({**ROLES, "release": (1, ("alice",))}, "one key alone can release models: alice"),
        ({name: ROLES[name] for name in ROLES if name != "revoke"}, "nobody can shut nodes out"),
        ({**ROLES, "relaese": (1, ("alice",))}, "role relaese is none that swarmd knows"),
        (ROLES, "it changes no role"),
    ],
)
def test_a_root_that_weakens_says_so(roles: dict[str, tuple[int, tuple[str, ...]]], warning: str) -> None:
    prepared = prepare("root", encode_payload(compose(roles, 2, root_digest(ROOT))), ROOT, HALVES)
    assert any(warning in line for line in words(prepared).warnings), words(prepared).warnings


def test_a_root_that_does_not_follow_is_refused() -> None:
    for version, previous in ((3, root_digest(ROOT)), (2, bytes(32)), (1, root_digest(ROOT))):
        with pytest.raises(WordsError, match="prepare it anew"):
            prepare("root", encode_payload(compose(ROLES, version, previous)), ROOT, HALVES)


def test_every_statement_about_models_is_said_and_holds_for_a_node() -> None:
    digest = bytes(range(32))
    told = {
        "floor": (Floor("faults", 1, 4, 1_700_000_000), "below version 4", ("alice", "bob")),
        "model-revoke": (Revoke("faults", 1, digest, "bad", 1_700_000_000), "never runs again", ("alice", "carol")),
        "halt": (Halt("faults", 1, digest, "drifts", 1_700_000_000), "stops the rollout", ("alice", "bob")),
        "force": (Force("faults", 1, digest, 2, 1_700_000_000), "opens stage 2", ("bob", "carol")),
        "heartbeat": (Heartbeat(1, 9, 1_700_000_000), "number 9", ("erin",)),
    }
    chain = RootChain.trust(ROOT, CRYPTO)
    for kind, (statement, phrase, signers) in told.items():
        prepared = prepare(kind, statement.payload(), ROOT, HALVES)
        assert any(phrase in line for line in words(prepared).effects), kind
        assert "dated 2023-11-14 22:13:20 UTC" in words(prepared).effects
        for name in signers:
            assert missing(prepared)
            prepared = add_signature(prepared, officer(name))
        admit(decode_model_envelope(statement_of(prepared)), chain)


def test_a_group_key_is_secret_and_its_file_too(tmp_path: Path) -> None:
    prepared = prepare("group", encode_payload(GroupKey("farm", 3, bytes(32))), ROOT, HALVES)
    assert words(prepared).is_secret
    write_new(tmp_path / "group.json", prepared)
    assert (tmp_path / "group.json").stat().st_mode & 0o777 == 0o600


def test_a_file_is_never_overwritten_and_keeps_what_another_desk_added(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_new(path, revocation())
    with pytest.raises(PreparedError, match="exists already"):
        write_new(path, revocation())
    seen_by_both = read(path)
    write_joined(path, add_signature(seen_by_both, officer("alice")))
    write_joined(path, add_signature(seen_by_both, officer("bob")))
    assert missing(read(path)) == []
    with pytest.raises(PreparedError, match="different statements"):
        write_joined(path, revocation("another"))
    assert missing(read(path)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind": "revoke"', b'"kind": "bogus"'),
        (b'"format": "swarmd-prepared-1"', b'"format": "swarmd-prepared-2"'),
        (b'"kind"', b'"extra": 1, "kind"'),
        (b'"signatures": []', b'"signatures": [{"key": "xx", "signature": ""}]'),
    ],
)
def test_what_is_no_prepared_statement_is_refused(old: bytes, new: bytes) -> None:
    data = encode(revocation())
    assert old in data
    with pytest.raises(PreparedError):
        decode(data.replace(old, new))


def test_a_file_is_bounded() -> None:
    with pytest.raises(PreparedError, match="at most"):
        decode(b" " * (FILE_MAX_BYTES + 1))
    with pytest.raises((PreparedError, WordsError)):
        prepare("floor", bytes(50_000), ROOT)


@given(st.sampled_from(["root", "node", "group", "revoke", "release", "halt", "floor"]), st.binary(max_size=200))
def test_any_payload_is_said_or_refused(kind: str, payload: bytes) -> None:
    try:
        prepare(kind, payload, ROOT)
    except (PreparedError, WordsError):
        return
