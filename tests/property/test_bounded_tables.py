"""Tables with a bound are joins: what is kept is a function of what was offered, and a key pushes out only its own."""

import contextlib
import random
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.statements import Revoke
from swarmd_protocols.trust import trust as trust_module
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import RootChain, make_root, mark, root_digest
from swarmd_protocols.trust.trust import Trust
from tests.support.release_world import MODEL, make_release

CRYPTO = ModelCrypto()
SWARM = "farm"
ROOM, ROOM_BYTES = 3, 150
seeds = st.integers(0, 2**32)


def _seed(word):
    return blake2b(word.encode(), digest_size=32).digest()


def _root(kept=(), previous=b"", revokers=(0, 1, 2)):
    roles = {role: (1, [CRYPTO.public_key(_seed(role))]) for role in ("root", "enrol", "release", "floor", "heartbeat")}
    roles["revoke"] = (1, [CRYPTO.public_key(_seed(f"revoke{at}")) for at in revokers])
    version = 2 if previous else 1
    root = make_root("laws", roles, version=version, previous=previous and root_digest(previous), kept=kept)
    return sign_statement("root", root, [_seed("root")], CRYPTO)


FIRST = _root()


def _revocation(rng, at):
    who = [_seed(f"revoke{one}") for one in rng.sample(range(3), rng.choice((1, 1, 1, 2)))]
    told = Revocation(SWARM, rng.randrange(1, 4), (bytes([at]) * 16,), "x" * rng.choice((1, 1, 40, 80)))
    return "revoke", sign_statement("revoke", told, who, CRYPTO)


def _certificate(rng, at):
    public = CRYPTO.public_key(_seed(f"node{rng.randrange(6)}"))
    told = Certificate(node_id_of(public), public, "abcdef"[rng.randrange(6)], (), SWARM, rng.randrange(1, 4))
    return "node", sign_statement("node", told, [_seed("enrol")], CRYPTO)


def _group(rng, at):
    told = GroupKey(SWARM, rng.randrange(1, 9), bytes([rng.randrange(2)]) * 32)
    return "group", sign_statement("group", told, [_seed("enrol")], CRYPTO)


def offers(rng):
    made = [rng.choice((_revocation, _revocation, _certificate, _group))(rng, at) for at in range(30)]
    named = [mark(decode_envelope(one)) for kind, one in made if kind == "revoke" and rng.random() < 0.2]
    return [("root", _root(named, FIRST)), *made]


@contextlib.contextmanager
def small_tables():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust_module, "REVOCATIONS_PER_KEY", ROOM)
        patch.setattr(trust_module, "REVOCATION_BYTES_PER_KEY", ROOM_BYTES)
        patch.setattr(trust_module, "CERTIFICATES_MAX", ROOM)
        patch.setattr(trust_module, "GROUP_KEYS_MAX", ROOM)
        patch.setattr(versions, "MAX_REMOVALS", ROOM)
        yield


def heard(statements):
    trust = Trust(SWARM, [FIRST], CRYPTO)
    for kind, statement in statements:
        with contextlib.suppress(IdentityError):
            trust.add(kind, statement)
    return trust


NODES = [NodeId(node_id_of(CRYPTO.public_key(_seed(f"node{at}")))) for at in range(6)]


def decides(trust):
    return (
        trust.revoked,
        sorted(trust._revocations),
        {counter: (one.digest, trust.group_keys[counter].key) for counter, one in sorted(trust._groups.items())},
        {node: trust.certificate_statement(node) for node in NODES},
        sorted((node, one.digest) for node, one in trust._by_node.items()),
        sorted((name, one.digest) for name, one in trust._by_name.items()),
    )


def check_tables(seed, shuffler):
    with small_tables():
        made = offers(random.Random(seed))
        whole = decides(heard(made))
        parts = []
        for _ in range(3):
            order = [*made[1:], *shuffler.sample(made[1:], 8)]
            shuffler.shuffle(order)
            order.insert(0, made[0])
            assert decides(heard(order)) == whole
            half = heard([made[0], *order[: len(order) // 2]])
            rest = heard([made[0], *order[len(order) // 2 :]])
            parts.append(decides(heard([*half.journalled(), *rest.journalled()])))
        assert parts == [whole] * 3, "the join of two halves is the whole"


@pytest.mark.slow
@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(seeds, st.randoms(use_true_random=False))
def test_the_tables_of_trust_know_no_order(seed, shuffler):
    check_tables(seed, shuffler)


def test_a_flood_by_one_key_pushes_out_its_own_alone():
    """Nor what the newest root names, whoever signed it."""
    with small_tables():
        signed = [
            sign_statement("revoke", Revocation(SWARM, 9, (word * 16,), ""), [_seed(f"revoke{key}")], CRYPTO)
            for word, key in ((b"a", 1), (b"b", 0))
        ]
        trust = heard(
            [("root", _root([mark(decode_envelope(signed[1]))], FIRST)), *(("revoke", one) for one in signed)]
        )
        for at in range(40):
            flood = Revocation(SWARM, 1 + at % 8, (bytes([at]) * 16,), "")
            with contextlib.suppress(IdentityError):
                trust.add("revoke", sign_statement("revoke", flood, [_seed("revoke0")], CRYPTO))
        assert {b"a" * 16, b"b" * 16} < trust.revoked
        assert len(trust.revocations) == 2 + ROOM


def test_what_a_stolen_key_pushed_out_is_back_with_the_next_root():
    """The thief of one revoke key lets in whom this very key alone had shut out, nobody else, and not for good."""
    with small_tables():
        mine, others = (
            sign_statement("revoke", Revocation(SWARM, 9, (word * 16,), ""), [_seed(f"revoke{key}")], CRYPTO)
            for word, key in ((b"a", 0), (b"b", 1))
        )
        trust = heard([("revoke", mine), ("revoke", others)])
        for at in range(ROOM):
            flood = Revocation(SWARM, 1, (bytes([at]) * 16,), "")
            trust.add("revoke", sign_statement("revoke", flood, [_seed("revoke0")], CRYPTO))
        assert b"a" * 16 not in trust.revoked, "the bound that holds: its own words"
        assert b"b" * 16 in trust.revoked
        named = [mark(decode_envelope(one)) for one in (mine, others)]
        trust.add("root", _root(named, FIRST, (5, 6)))
        trust.add("revoke", mine)
        assert trust.revoked == {b"a" * 16, b"b" * 16}, "what is right stands, and nothing of the flood"
        with pytest.raises(IdentityError):
            trust.add(
                "revoke", sign_statement("revoke", Revocation(SWARM, 1, (bytes(16),), ""), [_seed("revoke0")], CRYPTO)
            )


def test_what_one_key_revokes_has_a_bound_in_bytes_too():
    """A revocation may hold 1,024 ids: a number of statements alone lets one key cost tens of megabytes."""
    trust = heard([])
    ids = [at.to_bytes(16, "big") for at in range(1, 80 * 1_024 + 1)]
    for at in range(80):
        many = Revocation(SWARM, at + 1, tuple(ids[at * 1_024 : (at + 1) * 1_024]), "")
        with contextlib.suppress(IdentityError):
            trust.add("revoke", sign_statement("revoke", many, [_seed("revoke0")], CRYPTO))
    assert (
        trust_module.REVOCATION_BYTES_PER_KEY // 18 <= len(trust.revoked) < trust_module.REVOCATION_BYTES_PER_KEY // 16
    )
    assert ids[0] in trust.revoked
    other = sign_statement("revoke", Revocation(SWARM, 999, (bytes(16),), ""), [_seed("revoke1")], CRYPTO)
    assert trust.add("revoke", other), "another key has room of its own"
    assert bytes(16) in trust.revoked


def test_a_key_at_its_bound_is_told_so():
    with small_tables():
        trust = heard([])
        for at in range(1, ROOM + 1):
            trust.add(
                "revoke", sign_statement("revoke", Revocation(SWARM, at, (bytes(16),), ""), [_seed("revoke0")], CRYPTO)
            )
        late = sign_statement("revoke", Revocation(SWARM, 99, (bytes(16),), ""), [_seed("revoke0")], CRYPTO)
        with pytest.raises(IdentityError, match="replace that key"):
            trust.add("revoke", late)


def test_what_is_refused_for_want_of_room_leaves_nothing_behind():
    """Whoever has one stolen key signs as much as it likes: none of it was held, so no journal has to forget it."""
    with small_tables():
        trust = heard([])
        keys = sorted((_seed(f"far{at}") for at in range(2 * ROOM)), key=lambda one: node_id_of(CRYPTO.public_key(one)))
        offered = [
            sign_statement("revoke", Revocation(SWARM, at + 1, (bytes([at]) * 16,), ""), [_seed("revoke0")], CRYPTO)
            for at in range(2 * ROOM)
        ]
        for at, seed in enumerate(keys):
            public = CRYPTO.public_key(seed)
            one = Certificate(node_id_of(public), public, f"n{at}", (), SWARM, 1)
            offered.append(sign_statement("node", one, [_seed("enrol")], CRYPTO))
        held = 0
        for statement in offered:
            with contextlib.suppress(IdentityError):
                if decode_envelope(statement).kind == "revoke":
                    trust.add("revoke", statement)
                else:
                    trust.admit_certificate(statement)
            held += len(trust.news.take())
        assert held == 2 * ROOM
        assert trust.news.take_gone() == []


def _removals(rng):
    chain = RootChain.trust(FIRST, CRYPTO)
    releases = [make_release(bytes([at]) * 9, at + 1, b"p" * 32 if at else b"").payload() for at in range(2)]
    made = [("release", payload, [_seed("release")]) for payload in releases]
    about = [decode_envelope(sign_statement(*made[0][:2], made[0][2], CRYPTO)).digest]
    for at in range(20):
        target = rng.choice([*about, bytes([at]) * 32])
        who = [_seed(f"revoke{one}") for one in rng.sample(range(3), rng.choice((1, 1, 2)))]
        kind = rng.choice(("model-revoke", "halt"))
        made.append((kind, Revoke(MODEL, 1, target, str(rng.randrange(3))).payload(), who))
    entries = {}
    for kind, payload, who in made:
        envelope = decode_envelope(sign_statement(kind, payload, who, CRYPTO))
        entries[envelope.digest] = versions.admit(envelope, chain)
    return entries


def check_removals(seed, shuffler, is_release_first):
    """Nodes that heard in different orders and then tell each other all that they hold: they hold the same.

    It is a function of what was offered where the releases came first; a removal about a release that is not known here
    may be beyond its key's room until then.
    """
    with small_tables():
        entries = _removals(random.Random(seed))
        states = []
        for _ in range(3):
            items = list(entries.items())
            shuffler.shuffle(items)
            if is_release_first:
                items.sort(key=lambda one: one[1].envelope.kind != "release")
            state = {}
            for digest, entry in items:
                state = versions.join(state, {digest: entry})
            states.append(state)
        for _ in range(4):
            for at, _ in enumerate(states):
                for other in states:
                    states[at] = versions.join(states[at], other)
        assert states[0] == states[1] == states[2]
        assert not is_release_first or states[0] == versions.prune(entries)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(seeds, st.randoms(use_true_random=False), st.booleans())
def test_the_removals_of_models_know_no_order(seed, shuffler, is_release_first):
    check_removals(seed, shuffler, is_release_first)
