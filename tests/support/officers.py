"""Officers for tests: one key each, known by name, and a fleet whose root names them."""

from collections.abc import Mapping, Sequence

from swarmd.identity.officers import PublicHalf
from swarmd.identity.signers import SeedSigner
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.payloads import Certificate
from swarmd_protocols.trust.roots import Root, make_root

CRYPTO = NaClCrypto()
NAMES = ("alice", "bob", "carol", "dave", "erin", "mallory")


def officer(name: str) -> SeedSigner:
    """The officer of this name; always the same key."""
    seed = bytes([NAMES.index(name) + 1]) * 32
    return SeedSigner(PublicHalf(CRYPTO.public_key(seed), name), seed)


HALVES = tuple(officer(name).half for name in NAMES)

ROLES: Mapping[str, tuple[int, Sequence[str]]] = {
    "root": (2, ("alice", "bob", "carol")),
    "enrol": (1, ("dave",)),
    "revoke": (2, ("alice", "bob", "carol")),
    "release": (2, ("alice", "bob", "carol")),
    "floor": (2, ("alice", "bob", "carol")),
    "heartbeat": (1, ("erin",)),
}


def compose(roles: Mapping[str, tuple[int, Sequence[str]]] = ROLES, version: int = 1, previous: bytes = b"") -> Root:
    """A root of these roles."""
    keys = {role: (need, [officer(name).half.public for name in names]) for role, (need, names) in roles.items()}
    return make_root("acme", keys, version=version, previous=previous)


def signed_root(root: Root, *names: str) -> bytes:
    """A root statement with these officers' signatures."""
    return sign_statement("root", root, [officer(name).seed for name in names], CRYPTO)


def certificate(name: str, by: str = "dave", swarm: str = "farm", seed: bytes = bytes(32)) -> tuple[bytes, bytes]:
    """A node's id and its certificate."""
    public = CRYPTO.public_key(seed)
    node = node_id_of(public)
    payload = Certificate(node, public, name, (), swarm, 1)
    return node, sign_statement("node", payload, [officer(by).seed], CRYPTO)
