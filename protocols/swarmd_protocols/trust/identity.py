"""A node's identity: its key, its certificate, and the trust it starts with; how nodes are enrolled."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from swarmd_protocols.crypto import SEED_BYTES, Crypto, NaClCrypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.envelopes import DAMAGE, decode_envelope, sign_statement
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS, Certificate, GroupKey
from swarmd_protocols.trust.roots import make_root
from swarmd_protocols.trust.trust import JOURNALLED, TRUST_JOURNAL, Trust

_encode = msgspec.msgpack.Encoder().encode

_FORK_ROUNDS = 3
"""How often the roots of a fork are heard again at boot: branches that beat each other in a ring never come to rest."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Everything a node was given at enrolment; secret: it holds the node's seed and the group keys.

    `to_bytes` and `from_bytes` are its form at rest (a 0600 file or a systemd credential).
    """

    seed: bytes
    certificate: bytes
    roots: tuple[bytes, ...]
    group_keys: tuple[bytes, ...]
    revocations: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """The form at rest."""
        return b"swarmd-identity-1\n" + _encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Identity":
        """Parse the form at rest; raises `IdentityError` that says what is wrong."""
        head, _, body = data.partition(b"\n")
        if head != b"swarmd-identity-1":
            raise IdentityError("not an identity file of swarmd (it starts with swarmd-identity-1)")
        try:
            identity = msgspec.msgpack.decode(body, type=Identity)
        except DAMAGE as error:
            raise IdentityError(f"the identity is damaged: {error}") from error
        if len(identity.seed) != SEED_BYTES or not identity.roots:
            raise IdentityError("the identity is damaged: its seed or its root chain is missing")
        return identity

    def claims(self) -> Certificate:
        """The own certificate's content, unverified (name, swarm, node id for display before a `Trust` exists)."""
        return read_certificate(self.certificate)

    @property
    def node(self) -> NodeId:
        """The node's id: the hash of its key."""
        return NodeId(self.claims().node)

    @property
    def name(self) -> str:
        """The name it was enrolled under."""
        return self.claims().name

    @property
    def swarm(self) -> str:
        """The swarm it was enrolled in."""
        return self.claims().swarm

    def trust(self, crypto: Crypto) -> Trust:
        """The trust this identity starts with, and a check that the identity itself holds.

        Raises:
            IdentityError: Its certificate, chain or group keys do not hold, or its seed is another node's.
        """
        trust = Trust(self.swarm, self.roots, crypto)
        own = trust.begin(self.certificate, self.revocations, self.group_keys)
        if own.public_key != crypto.public_key(self.seed):
            raise IdentityError("the identity's seed does not belong to its certificate")
        return trust

    def curve_keys(self) -> tuple[bytes, bytes]:
        """(public, secret) of this node's own X25519 pair, 32 raw bytes each, for ZeroMQ CURVE as a client."""
        crypto = NaClCrypto()
        secret = crypto.exchange_secret(self.seed)
        return crypto.ephemeral_public(secret), secret

    def group_curve_keys(self) -> tuple[bytes, bytes]:
        """(public, secret) of the pair that every holder of the newest group key derives: the CURVE server key."""
        newest = max(
            (msgspec.msgpack.decode(decode_envelope(item).payload, type=GroupKey) for item in self.group_keys),
            key=lambda group: group.counter,
        )
        return group_curve_keys(newest.key)


def read_certificate(statement: bytes) -> Certificate:
    """A certificate's content, unverified.

    Raises:
        IdentityError: It is none.
    """
    try:
        return msgspec.msgpack.decode(decode_envelope(statement).payload, type=Certificate)
    except (*DAMAGE, WireError) as error:
        raise IdentityError(f"not a node's certificate: {error}") from error


def certificate_rank(statement: bytes) -> tuple[int, bytes]:
    """Which of two certificates of one name, or of one node, replaces the other, as every node decides: the higher.

    Raises:
        IdentityError: It is none.
    """
    return read_certificate(statement).counter, decode_envelope(statement).digest


def group_curve_keys(group_key: bytes) -> tuple[bytes, bytes]:
    """(public, secret) X25519 pair derived from a group key, 32 raw bytes each."""
    secret = blake2b(group_key, digest_size=32, person=b"swarmd-curve").digest()
    return NaClCrypto().ephemeral_public(secret), secret


def enrol(
    seed: bytes,
    name: str,
    swarm: str,
    roots: Sequence[bytes],
    group_keys: Iterable[bytes],
    enrol_seeds: Sequence[bytes],
    crypto: Crypto,
    *,
    roles: Sequence[str] = (),
    counter: int = 1,
    revocations: Iterable[bytes] = (),
) -> Identity:
    """Make a node's identity: certify the key of `seed` under `name`, checked before it is returned.

    Raises:
        IdentityError: The enrol keys are not those the root names, or a group key does not hold.
    """
    if not 0 < len(name) <= NAME_MAX_CHARS:
        raise IdentityError(f"a node's name has 1 to {NAME_MAX_CHARS} characters; {name!r} has {len(name)}")
    public = crypto.public_key(seed)
    certificate = Certificate(node_id_of(public), public, name, tuple(roles), swarm, counter)
    signed = sign_statement("node", certificate, enrol_seeds, crypto)
    identity = Identity(seed, signed, tuple(roots), tuple(group_keys), tuple(revocations))
    identity.trust(crypto)
    return identity


def make_dev_identity(
    fleet_secret: bytes,
    swarm: str,
    name: str,
    crypto: Crypto | None = None,
    *,
    fresh_seed: bytes | None = None,
    roles: Sequence[str] = (),
) -> Identity:
    """A throw-away identity: everything derives from one secret, so any process with it enrols itself.

    Args:
        fleet_secret: At least 16 bytes; whoever holds them owns the fleet.
        swarm: The swarm's name.
        name: The node's name, unique in the swarm.
        crypto: `ModelCrypto()` in simulations; libsodium where absent.
        fresh_seed: A random 32-byte node key; derived from secret and name where absent, so the id is stable.
        roles: What the certificate allows besides membership; one with roles replaces one without.

    Returns:
        An identity; equal arguments give equal bytes.
    """
    if len(fleet_secret) < 16:
        raise IdentityError("a development fleet's secret has at least 16 bytes")
    library = crypto or NaClCrypto()
    root = dev_root(fleet_secret, library)
    enrol_seeds = dev_role_seeds(fleet_secret, "enrol")
    group = GroupKey(swarm, 1, _derive(fleet_secret, "group:" + swarm))
    group_key = sign_statement("group", group, enrol_seeds, library)
    node_seed = fresh_seed or _derive(fleet_secret, f"node:{swarm}:{name}")
    counter = 2 if roles else 1
    return enrol(node_seed, name, swarm, [root], [group_key], enrol_seeds, library, roles=roles, counter=counter)


DEV_ROLES: Mapping[str, tuple[int, int]] = {
    "root": (1, 1),
    "enrol": (1, 1),
    "revoke": (1, 3),
    "release": (2, 3),
    "floor": (2, 3),
    "heartbeat": (1, 2),
}
"""A development fleet's roles: (threshold, keys)."""


def dev_role_seeds(fleet_secret: bytes, role: str) -> tuple[bytes, ...]:
    """All key seeds of one role of a development fleet, in a fixed order (`DEV_ROLES` has their number)."""
    return tuple(_derive(fleet_secret, f"role:{role}:{index}") for index in range(DEV_ROLES[role][1]))


def dev_root(fleet_secret: bytes, crypto: Crypto) -> bytes:
    """The signed root of a development fleet."""
    roles = {
        role: (threshold, [crypto.public_key(seed) for seed in dev_role_seeds(fleet_secret, role)])
        for role, (threshold, _) in DEV_ROLES.items()
    }
    return sign_statement("root", make_root("dev", roles), dev_role_seeds(fleet_secret, "root"), crypto)


def _derive(secret: bytes, purpose: str) -> bytes:
    key = blake2b(secret, digest_size=64, person=b"swarmd-dev").digest()
    return blake2b(purpose.encode(), key=key, digest_size=SEED_BYTES).digest()


def open_trust(identity: Identity, restored: Mapping[bytes, bytes], crypto: Crypto) -> Trust:
    """The trust of a node at boot: what its identity says, and what it has learned in its earlier lives.

    Args:
        identity: The node's own.
        restored: All journal records of the node.
        crypto: The library to verify with.

    Raises:
        IdentityError: The identity itself does not hold. Journal records that do not are left aside.
    """
    trust = identity.trust(crypto)
    for kind in JOURNALLED:
        prefix = TRUST_JOURNAL + kind.encode() + b"/"
        # Root links only follow one by one: as many rounds as there are links.
        waiting = found = [value for key, value in sorted(restored.items()) if key.startswith(prefix)]
        for _ in range(len(waiting)):
            waiting = [statement for statement in waiting if not _takes(trust, kind, statement)]
        if kind == "root":
            _settle(trust, found)
    trust.news.take()
    return trust


def _settle(trust: Trust, roots: Sequence[bytes]) -> None:
    """Roots of a fork once more: one that gave way to a branch may stand beside what has followed there since."""
    for _ in range(_FORK_ROUNDS):
        before = trust.roots, trust.chain.disputed
        for root in roots:
            _takes(trust, "root", root)
        if (trust.roots, trust.chain.disputed) == before:
            return


def _takes(trust: Trust, kind: str, statement: bytes) -> bool:
    try:
        if kind == "seen":
            trust.admit_certificate(statement)
        else:
            trust.add(kind, statement)
    except IdentityError:
        return False
    return True
