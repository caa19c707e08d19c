"""Root, roles, certificates, group keys, revocations: what holds and what does not."""

import pytest

from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust import envelopes, identity, payloads, roots
from swarmd_protocols.trust import trust as trusts

SECRET = b"a fleet for tests only"
CRYPTOS = [NaClCrypto(), ModelCrypto()]


@pytest.fixture(params=CRYPTOS, ids=["nacl", "model"])
def crypto(request):
    return request.param


def seeds(*numbers):
    return [bytes((number,)) * 32 for number in numbers]


def publics(crypto, *numbers):
    return [crypto.public_key(seed) for seed in seeds(*numbers)]


def fleet(crypto, *, version=1, previous=b"", root=(1, 2, 3), enrol=(4, 5), revoke=(6,)):
    return roots.make_root(
        "fleet",
        {
            "root": (2, publics(crypto, *root)),
            "enrol": (1, publics(crypto, *enrol)),
            "revoke": (1, publics(crypto, *revoke)),
        },
        version=version,
        previous=previous,
    )


def test_signature_covers_type_and_length():
    assert envelopes.signed_bytes("a", b"b") != envelopes.signed_bytes("ab", b"")
    assert envelopes.signed_bytes("root", b"x") == b"swarmd/root/v1\0" + bytes((1, 0, 0, 0, 0, 0, 0, 0)) + b"x"


def test_dev_identity_is_a_function_of_its_arguments(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    assert one == identity.make_dev_identity(SECRET, "s", "a", crypto)
    assert one.node != identity.make_dev_identity(SECRET, "s", "b", crypto).node
    assert one.node != identity.make_dev_identity(SECRET, "s", "a", crypto, fresh_seed=bytes(32)).node
    assert (one.name, one.swarm) == ("a", "s")
    with pytest.raises(IdentityError, match="16 bytes"):
        identity.make_dev_identity(b"short", "s", "a", crypto)


def test_identity_at_rest(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    data = one.to_bytes()
    assert identity.Identity.from_bytes(data) == one
    for bad in (b"", b"nonsense", data[:-3], data[:40], data.replace(b"identity-1", b"identity-2")):
        with pytest.raises(IdentityError):
            identity.Identity.from_bytes(bad)


def test_curve_keys_belong_to_the_identity():
    crypto = NaClCrypto()
    one, two = (identity.make_dev_identity(SECRET, "s", name, crypto) for name in "ab")
    public, secret = one.curve_keys()
    assert public == crypto.exchange_public(one.claims().public_key)
    assert crypto.shared_key(secret, two.curve_keys()[0]) == crypto.shared_key(two.curve_keys()[1], public)
    assert one.group_curve_keys() == two.group_curve_keys()
    assert one.group_curve_keys() != identity.make_dev_identity(SECRET, "t", "a", crypto).group_curve_keys()


def test_certificates_hold_only_for_their_fleet_swarm_and_key(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    trust = one.trust(crypto)
    assert trust.certificate(one.certificate).name == "a"
    others = [
        identity.make_dev_identity(b"another fleet's secret", "s", "a", crypto).certificate,
        identity.make_dev_identity(SECRET, "t", "a", crypto).certificate,
        envelopes.sign_statement("node", one.claims(), [bytes(32)], crypto),
        envelopes.sign_statement("root", one.claims(), identity.dev_role_seeds(SECRET, "enrol"), crypto),
        envelopes.sign_statement(
            "node",
            payloads.Certificate(bytes(16), one.claims().public_key, "a", (), "s", 1),
            identity.dev_role_seeds(SECRET, "enrol"),
            crypto,
        ),
        one.certificate[:-1],
        b"\xff" * 70_000,
    ]
    for certificate in others:
        with pytest.raises(IdentityError):
            trust.certificate(certificate)


def test_every_changed_byte_of_a_certificate_is_refused(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    trust = one.trust(crypto)
    for at in range(len(one.certificate)):
        changed = bytearray(one.certificate)
        changed[at] ^= 0x20
        with pytest.raises(IdentityError):
            trust.certificate(bytes(changed))


def test_a_seed_of_another_node_is_refused(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    stolen = identity.Identity(bytes(32), one.certificate, one.roots, one.group_keys)
    with pytest.raises(IdentityError, match="does not belong"):
        stolen.trust(crypto)


def test_thresholds_count_distinct_keys(crypto):
    """TUF specification, section 5: each key counts once, however often it signed."""
    root = fleet(crypto)
    alone = envelopes.sign_statement("root", root, seeds(1), crypto)
    twice = envelopes.sign_statement("root", root, seeds(1, 1, 1), crypto)
    stranger = envelopes.sign_statement("root", root, seeds(1, 9), crypto)
    for statement in (alone, twice, stranger):
        with pytest.raises(IdentityError, match="not signed by its own root role"):
            trusts.Trust("s", [statement], crypto)
    both = envelopes.add_signature(envelopes.decode_envelope(alone), seeds(3)[0], crypto).encode()
    assert trusts.Trust("s", [both], crypto).root == root


def test_root_rotation_takes_old_and_new_thresholds(crypto):
    first = envelopes.sign_statement("root", fleet(crypto), seeds(1, 2), crypto)
    second_root = fleet(crypto, version=2, previous=roots.root_digest(first), root=(3, 7, 8), enrol=(9,))
    good = envelopes.sign_statement("root", second_root, seeds(2, 3, 7), crypto)
    for signers in ((2, 3), (3, 7), (7, 8), (1, 2)):
        trust = trusts.Trust("s", [first], crypto)
        with pytest.raises(IdentityError):
            trust.add("root", envelopes.sign_statement("root", second_root, seeds(*signers), crypto))
    trust = trusts.Trust("s", [first], crypto)
    assert trust.add("root", good)
    assert not trust.add("root", good), "known already"
    assert set(trust.role("enrol")[0].values()) == set(publics(crypto, 9))
    skipped = fleet(crypto, version=3, previous=roots.root_digest(first))
    with pytest.raises(IdentityError, match="root 3 does not follow root 1"):
        trusts.Trust("s", [first], crypto).add("root", envelopes.sign_statement("root", skipped, seeds(1, 2), crypto))
    forked = fleet(crypto, version=2, previous=b"x" * 32)
    with pytest.raises(IdentityError, match="does not name the root 1"):
        trusts.Trust("s", [first], crypto).add("root", envelopes.sign_statement("root", forked, seeds(1, 2), crypto))


def test_the_order_of_signatures_does_not_name_another_root(crypto):
    root = fleet(crypto)
    one, two = (envelopes.sign_statement("root", root, seeds(*order), crypto) for order in ((1, 2), (2, 1)))
    assert roots.root_digest(one) == roots.root_digest(two)


@pytest.mark.parametrize(
    "roles",
    [
        {"enrol": (1, (1,))},
        {"root": (0, (1,))},
        {"root": (2, (1,))},
        {"root": (2, (1, 1))},
    ],
)
def test_roots_that_nobody_could_satisfy_are_refused(roles):
    crypto = NaClCrypto()
    with pytest.raises(IdentityError):
        roots.make_root("fleet", {name: (need, publics(crypto, *keys)) for name, (need, keys) in roles.items()})


def test_a_revoked_node_is_out_and_stays_out(crypto):
    one, two = (identity.make_dev_identity(SECRET, "s", name, crypto) for name in "ab")
    trust = one.trust(crypto)
    revocation = payloads.Revocation("s", 1, (two.node,), "lost in the field")
    signed = envelopes.sign_statement("revoke", revocation, identity.dev_role_seeds(SECRET, "revoke")[1:2], crypto)
    assert trust.add("revoke", signed)
    assert trust.revoked == {two.node}
    assert not trust.add("revoke", signed)
    with pytest.raises(IdentityError, match="revoked"):
        trust.certificate(two.certificate)
    forged = envelopes.sign_statement("revoke", revocation, identity.dev_role_seeds(SECRET, "enrol"), crypto)
    with pytest.raises(IdentityError):
        one.trust(crypto).add("revoke", forged)
    elsewhere = payloads.Revocation("t", 1, (two.node,), "")
    with pytest.raises(IdentityError, match="for swarm 't'"):
        one.trust(crypto).add(
            "revoke", envelopes.sign_statement("revoke", elsewhere, identity.dev_role_seeds(SECRET, "revoke"), crypto)
        )


def test_group_keys_rotate_by_statement(crypto):
    one = identity.make_dev_identity(SECRET, "s", "a", crypto)
    trust = one.trust(crypto)
    rotated = envelopes.sign_statement(
        "group", payloads.GroupKey("s", 2, b"n" * 32), identity.dev_role_seeds(SECRET, "enrol"), crypto
    )
    assert trust.add("group", rotated)
    assert not trust.add("group", rotated)
    assert sorted(trust.group_keys) == [1, 2]
    assert ("group", rotated) in trust.statements()
    short = envelopes.sign_statement(
        "group", payloads.GroupKey("s", 3, b"n"), identity.dev_role_seeds(SECRET, "enrol"), crypto
    )
    with pytest.raises(IdentityError):
        trust.add("group", short)
    with pytest.raises(IdentityError, match="not taken"):
        trust.add("release", rotated)


def test_model_crypto_has_the_same_sizes_as_libsodium():
    real, model = CRYPTOS
    seed, nonce = bytes(32), bytes(24)
    for left, right in (
        (real.public_key(seed), model.public_key(seed)),
        (real.sign(seed, b"m"), model.sign(seed, b"m")),
        (real.exchange_secret(seed), model.exchange_secret(seed)),
        (real.seal(seed, nonce, b"text"), model.seal(seed, nonce, b"text")),
    ):
        assert len(left) == len(right)


def test_verdicts_are_remembered_and_right(crypto):
    public = crypto.public_key(bytes(32))
    signature = crypto.sign(bytes(32), b"m")
    for _ in range(3):
        assert crypto.verify(public, b"m", signature)
        assert not crypto.verify(public, b"n", signature)
        assert not crypto.verify(public, b"m", signature[:-1])
        assert not crypto.verify(public[:-1], b"m", signature)
        assert not crypto.verify(public, b"m", bytes(64))


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a+b", "a#", "-f", "", "a b", "a\n", "a\0", "ä", "x" * 65])
def test_no_node_takes_a_certificate_for_what_cannot_be_a_file_or_a_topic(name: str) -> None:
    """Also one that enough enrol keys have signed: a name becomes a path on every member."""
    for node, swarm in ((name, "farm"), ("a", name)):
        with pytest.raises(IdentityError):
            identity.make_dev_identity(bytes(32), swarm, node, NaClCrypto())
