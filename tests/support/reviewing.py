"""Operators of tests: keys, a root that names them, and what they say of things."""

from hashlib import blake2b

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.state.crdt.places import ASSET
from swarmd_protocols.state.crdt.reviews import Review, encode_review, join_review, message_of
from swarmd_protocols.state.observations import SayReview
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.state.reviews import compose
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import DEV_ROLES, dev_role_seeds
from swarmd_protocols.trust.roots import make_root, root_digest
from tests.support.state_mesh import CRYPTO as CRYPTO
from tests.support.state_mesh import FLEET, Mesh

ALICE, BOB, CAROL = (blake2b(name, digest_size=32).digest() for name in (b"alice", b"bob", b"carol"))


def public(seed: bytes) -> bytes:
    return CRYPTO.public_key(seed)


def signed(review: Review, seed: bytes, crypto: Crypto = CRYPTO) -> bytes:
    """The statement of a review by a key."""
    payload = encode_review(review)
    return join_review(crypto.public_key(seed), crypto.sign(seed, message_of(payload)), payload)


def review(
    verdict: str = "confirm",
    text: str = "",
    *,
    asset: str = "t01",
    revision: int = 1,
    made_ms: int = 1_000,
    seen: str = "hot-spot",
    swarm: str = "mesh",
    by: str = "",
) -> Review:
    """A statement about an asset, before it is signed."""
    return Review(swarm, b"", "hot-spot", ASSET, asset, verdict, text, seen, bytes(8), revision, made_ms, by)


def name_operators(mesh: Mesh, *seeds: bytes) -> None:
    """The officers name exactly these operators in a new root, and everybody hears of it."""
    crypto = mesh.crypto
    roles = {
        role: (threshold, [crypto.public_key(seed) for seed in dev_role_seeds(FLEET, role)])
        for role, (threshold, _) in DEV_ROLES.items()
    }
    if seeds:
        roles["operator"] = (1, [crypto.public_key(seed) for seed in seeds])
    root = make_root("dev", roles, version=len(mesh.roots) + 1, previous=root_digest(mesh.roots[-1]))
    mesh.roots.append(sign_statement("root", root, dev_role_seeds(FLEET, "root"), crypto))
    mesh.state("root", mesh.roots[-1])


def say(
    mesh: Mesh,
    index: int,
    seed: bytes,
    verdict: str,
    text: str = "",
    *,
    object_id: str = "",
    made_ms: int = 1_000,
    by: str = "",
) -> bytes:
    """An operator at one member reviews an object (the first one shown there); returns the statement."""
    replica = mesh.members[index].replica
    assert replica is not None
    views = replica.views
    subject = views.review_subject(object_id or views.objects()[0].object_id)
    assert subject is not None
    statement = signed(compose(subject, verdict, text, made_ms, by), seed, mesh.crypto)
    mesh.command(index, SayReview(statement))
    return statement


def shown(replica: Replica, at: int = 0) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Of an object: what operators agree on, its label, and (name, verdict, text) of each statement."""
    one = replica.views.objects()[at]
    return one.review, one.label, [(said.operator, said.verdict, said.text) for said in one.reviews]
