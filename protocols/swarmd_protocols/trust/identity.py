"""Who may speak in a swarm: the fleet's root, roles, certificates, group keys and revocations, as signed bytes.

    root (k of n offline keys) ── names the keys and thresholds of ──▶ roles: enrol, revoke, release, floor, heartbeat
    enrol  ── signs ──▶ certificate {node id, Ed25519 key, name, roles, swarm, counter}     one per node
    enrol  ── signs ──▶ group key   {swarm, counter, 32-byte key}                            seals first contact
    revoke ── signs ──▶ revocation  {swarm, node ids, counter, reason}                       shuts nodes out

Rules that this file keeps: the bytes that are shipped are the bytes that are signed (`Envelope`); a signature covers a
type tag and the length, so a statement of one type never passes for another; verify first, parse second; thresholds
count distinct keys; nothing expires by a clock. Everything here is a pure function.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import msgspec

from swarmd_protocols.crypto import SEED_BYTES, Crypto, NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of

STATEMENT_MAX_BYTES = 65_536
ROOT_CHAIN_MAX = 256
NAME_MAX_CHARS = 64
KEY_ID_BYTES = 16
GROUP_KEY_BYTES = 32
CERTIFICATES_MAX = 8_192
"""Certificates kept by one node: twice `gossip.members_max`; some 3 MB."""
ROLES = ("enrol", "revoke", "release", "floor", "heartbeat")
"""What a root hands out besides itself."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A signed statement as it travels: the payload's bytes and (key id, signature) pairs."""

    payload: bytes
    signatures: tuple[tuple[bytes, bytes], ...]


class Role(msgspec.Struct, frozen=True, array_like=True):
    """Which keys speak for a role, and how many of them it takes."""

    name: str
    threshold: int
    key_ids: tuple[bytes, ...]


class Root(msgspec.Struct, frozen=True, array_like=True):
    """Payload "root": version n+1 carries the signatures of the thresholds of both n and n+1."""

    swarm_fleet: str
    version: int
    epoch: int
    previous: bytes
    keys: tuple[bytes, ...]
    roles: tuple[Role, ...]


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """Payload "node": this key is this node of this swarm; a higher counter replaces a lower one."""

    node: bytes
    public_key: bytes
    name: str
    roles: tuple[str, ...]
    swarm: str
    counter: int


class GroupKey(msgspec.Struct, frozen=True, array_like=True):
    """Payload "group": the symmetric key that seals first contact; highest counter seals, all known ones open."""

    swarm: str
    counter: int
    key: bytes


class Revocation(msgspec.Struct, frozen=True, array_like=True):
    """Payload "revoke": these nodes are out for good, wherever this is heard."""

    swarm: str
    counter: int
    nodes: tuple[bytes, ...]
    reason: str


TRUST_JOURNAL = b"node/trust/"
"""Journal keys: this, the kind, a slash, and what tells statements of the kind apart."""
JOURNALLED = ("root", "revoke", "node", "seen", "group")
"""In the order in which they are taken in; "seen" are certificates that replaced nothing."""
_DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding bytes from outside raises: wrong types, text that is not UTF-8, arrays nested without end."""
_GROUP_COUNTER_MAX = 2**32 - 1
_T = TypeVar("_T")
_ENVELOPE = msgspec.msgpack.Decoder(Envelope)
_encode = msgspec.msgpack.Encoder().encode


def key_id_of(public_key: bytes) -> bytes:
    """The 16-byte id of a role key; one key cannot carry two ids."""
    return blake2b(public_key, digest_size=KEY_ID_BYTES, person=b"swarmd-key-id").digest()


def signing_bytes(kind: str, payload: bytes) -> bytes:
    """What a signature covers: type tag, length, payload.

    >>> signing_bytes("node", b"xy")
    b'swarmd/node/v1\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00xy'
    """
    return b"swarmd/" + kind.encode() + b"/v1\0" + len(payload).to_bytes(8, "little") + payload


def sign_statement(kind: str, payload: msgspec.Struct | bytes, seeds: Sequence[bytes], crypto: Crypto) -> bytes:
    """Sign a statement with one or several role keys.

    Args:
        kind: Type tag, such as "node" or "release".
        payload: A struct of this module, or bytes of another room's own format; at most 64 KiB encoded.
        seeds: Ed25519 seeds of the signers, 32 bytes each.
        crypto: The library to sign with.

    Returns:
        The encoded `Envelope`.
    """
    body = payload if isinstance(payload, bytes) else _encode(payload)
    message = signing_bytes(kind, body)
    pairs = tuple((key_id_of(crypto.public_key(seed)), crypto.sign(seed, message)) for seed in seeds)
    return _encode(Envelope(body, pairs))


def add_signature(kind: str, statement: bytes, seed: bytes, crypto: Crypto) -> bytes:
    """The same statement with one more signature (k-of-n signing on separate machines)."""
    envelope = decode_envelope(statement)
    pair = (key_id_of(crypto.public_key(seed)), crypto.sign(seed, signing_bytes(kind, envelope.payload)))
    others = tuple(old for old in envelope.signatures if old[0] != pair[0])
    return _encode(Envelope(envelope.payload, (*others, pair)))


def decode_envelope(statement: bytes) -> Envelope:
    """Parse an envelope without trusting it; raises `IdentityError`."""
    if len(statement) > STATEMENT_MAX_BYTES:
        raise IdentityError(f"statement of {len(statement)} bytes; at most {STATEMENT_MAX_BYTES} are read")
    try:
        return _ENVELOPE.decode(statement)
    except _DAMAGE as error:
        raise IdentityError(f"not a signed statement: {error}") from error


def open_statement(
    kind: str, statement: bytes, keys: Mapping[bytes, bytes], threshold: int, crypto: Crypto, payload_type: type[_T]
) -> _T:
    """Verify a statement and parse its payload, in this order.

    Args:
        kind: The type tag it must be signed under.
        statement: An encoded envelope, from anywhere.
        keys: Key id to public key of those that may sign.
        threshold: How many distinct keys must have signed; at least 1.
        crypto: The library to verify with.
        payload_type: The struct the payload must be.

    Returns:
        The payload.

    Raises:
        IdentityError: Too few valid signatures of distinct keys, or the payload is malformed.
    """
    envelope = decode_envelope(statement)
    message = signing_bytes(kind, envelope.payload)
    signers = set()
    for key_id, signature in envelope.signatures[:64]:
        key = keys.get(key_id)
        if key is not None and key_id not in signers and crypto.verify(key, message, signature):
            signers.add(key_id)
    if len(signers) < max(1, threshold):
        raise IdentityError(f"{kind} statement carries {len(signers)} valid signatures; it takes {threshold}")
    try:
        return msgspec.msgpack.decode(envelope.payload, type=payload_type)
    except _DAMAGE as error:
        raise IdentityError(f"{kind} statement is signed but malformed: {error}") from error


@dataclass(frozen=True, slots=True)
class TrustChanged:
    """Detail of `StateChanged("node", ...)`: a root, revocation or group key was taken; group keys may be new."""

    kind: str
    """"root", "revoke" or "group"."""


@dataclass(frozen=True, slots=True)
class AddStatement:
    """Request to the sub-protocol "node": take a root, revocation or group key that the operator signed."""

    kind: str
    """"root", "revoke" or "group"."""
    statement: bytes


class _Certified(msgspec.Struct, frozen=True, eq=False):
    """A certificate that verified, and the bytes that did."""

    certificate: Certificate
    statement: bytes

    @property
    def rank(self) -> tuple[int, bytes]:
        """Which of two replaces the other: the counter; where two desks used one, the same one for everybody."""
        return _rank(self.certificate, self.statement)


def _rank(certificate: Certificate, statement: bytes) -> tuple[int, bytes]:
    return certificate.counter, blake2b(decode_envelope(statement).payload, digest_size=16).digest()


class Trust:
    """What a node believes about its fleet: the newest root, revocations, group keys. Valid statements change it."""

    __slots__ = (
        "_by_name",
        "_by_node",
        "_crypto",
        "_group_statements",
        "_news",
        "_role_keys",
        "_spread",
        "group_keys",
        "revision",
        "revocations",
        "revoked",
        "root",
        "roots",
        "swarm",
    )

    def __init__(self, swarm: str, roots: Sequence[bytes], crypto: Crypto) -> None:
        """Start from a root chain whose first link is trusted as given (it was installed at enrolment).

        Raises:
            IdentityError: The chain is empty, too long, or one link does not follow from the one before.
        """
        if not 0 < len(roots) <= ROOT_CHAIN_MAX:
            raise IdentityError(f"a root chain has 1 to {ROOT_CHAIN_MAX} links; this one has {len(roots)}")
        self.swarm = swarm
        self._crypto = crypto
        self.roots: list[bytes] = [roots[0]]
        self.root = _open_first_root(roots[0], crypto)
        self._role_keys = _role_table(self.root)
        self.revocations: dict[int, bytes] = {}
        self.revoked: set[bytes] = set()
        self.group_keys: dict[int, GroupKey] = {}
        self._group_statements: dict[int, bytes] = {}
        self.revision = 0
        """See `swarmd_protocols.trust.view`."""
        self._by_node: dict[bytes, _Certified] = {}
        """The best certificate of each node; one holds where it is also the best of its name."""
        self._by_name: dict[str, _Certified] = {}
        self._spread: dict[bytes, None] = {}
        """Nodes whose certificate replaced another, so that everybody has to learn it."""
        self._news: list[tuple[str, bytes]] = []
        for link in roots[1:]:
            self.add_root(link)

    def role(self, name: str) -> tuple[Mapping[bytes, bytes], int]:
        """Key id to public key, and the threshold, of a role; empty and 1 where the root names none."""
        return self._role_keys.get(name, ({}, 1))

    def add_root(self, statement: bytes) -> bool:
        """Follow the chain by one link; False where the link is already known. Raises `IdentityError`."""
        if any(root_digest(statement) == root_digest(root) for root in self.roots):
            return False
        old_keys, old_threshold = self.role("root")
        new = open_statement("root", statement, old_keys, old_threshold, self._crypto, Root)
        _check_root(new)
        new_keys, new_threshold = _role_table(new)["root"]
        open_statement("root", statement, new_keys, new_threshold, self._crypto, Root)
        if new.version != self.root.version + 1:
            raise IdentityError(f"root version {new.version} does not follow {self.root.version}")
        if new.previous != root_digest(self.roots[-1]) or len(self.roots) >= ROOT_CHAIN_MAX:
            raise IdentityError("root does not name the one before it, or the chain is full")
        self.roots.append(statement)
        self.root = new
        self._role_keys = _role_table(new)
        self._news.append(("root", statement))
        self._judge_certificates()
        return True

    def certificate(self, statement: bytes) -> Certificate:
        """Verify a node's certificate without keeping it; raises `IdentityError`, also for the replaced."""
        certificate = self._open_certificate(statement)
        best = self._by_name.get(certificate.name)
        if best is not None and best.certificate.node != certificate.node and best.rank > _rank(certificate, statement):
            raise IdentityError(f"node {certificate.name!r} was enrolled again; this certificate is of its older key")
        return certificate

    def holds(self, statement: bytes) -> bool:
        """Whether `certificate` would take it."""
        try:
            self.certificate(statement)
        except IdentityError:
            return False
        return True

    def _open_certificate(self, statement: bytes) -> Certificate:
        keys, threshold = self.role("enrol")
        certificate = open_statement("node", statement, keys, threshold, self._crypto, Certificate)
        if certificate.swarm != self.swarm:
            raise IdentityError(f"certificate is for swarm {certificate.swarm!r}; this is {self.swarm!r}")
        if len(certificate.public_key) != SEED_BYTES or certificate.node != node_id_of(certificate.public_key):
            raise IdentityError("certificate's node id is not the hash of its key")
        if not 0 < len(certificate.name) <= NAME_MAX_CHARS:
            raise IdentityError(f"certificate's name has {len(certificate.name)} characters; 1 to {NAME_MAX_CHARS}")
        if certificate.node in self.revoked:
            raise IdentityError(f"node {certificate.name!r} is revoked")
        return certificate

    def add_revocation(self, statement: bytes) -> frozenset[bytes]:
        """Take a revocation; returns the node ids that it newly shuts out. Raises `IdentityError`."""
        keys, threshold = self.role("revoke")
        revocation = open_statement("revoke", statement, keys, threshold, self._crypto, Revocation)
        if revocation.swarm != self.swarm:
            raise IdentityError(f"revocation is for swarm {revocation.swarm!r}; this is {self.swarm!r}")
        fresh = frozenset(revocation.nodes) - self.revoked
        if fresh:
            self.revocations[revocation.counter] = statement
            self.revoked |= fresh
            self._news.append(("revoke", statement))
            self._judge_certificates()
        return fresh

    # --- certificates that are kept ----------------------------------------------------------------------------------

    def certified(self, node: NodeId) -> Certificate | None:
        """See `TrustView.certified`."""
        held = self._by_node.get(node)
        return held.certificate if held is not None and self._by_name.get(held.certificate.name) is held else None

    def certificate_statement(self, node: NodeId) -> bytes | None:
        """See `TrustView.certificate_statement`."""
        return self._by_node[node].statement if self.certified(node) is not None else None

    def admit_certificate(self, statement: bytes) -> Certificate:
        """See `TrustView.admit_certificate`."""
        certificate = self._open_certificate(statement)
        self._place(_Certified(certificate, self._crypto.share(statement)))
        holds = self.certified(NodeId(certificate.node))
        if holds is None:
            raise IdentityError(f"node {certificate.name!r} was enrolled again; this certificate is of its older key")
        return holds

    @property
    def has_news(self) -> bool:
        """Whether `take_news` has something."""
        return bool(self._news)

    def take_news(self) -> list[tuple[str, bytes]]:
        """Certificates kept since the last call: ("node", statement) replaced another and spreads, "seen" did not."""
        news, self._news = self._news, []
        return news

    def _tell(self, node: bytes) -> None:
        """This node's certificate replaced another: everybody has to learn it."""
        self.revision += 1
        self._spread[node] = None
        self._news.append(("node", self._by_node[node].statement))

    def _place(self, new: "_Certified") -> None:
        """Keep the best of each node and of each name; the order in which certificates come makes no difference."""
        node, name = new.certificate.node, new.certificate.name
        of_node, of_name = self._by_node.get(node), self._by_name.get(name)
        replaces = False
        for held in {id(one): one for one in (of_node, of_name) if one is not None}.values():
            replaces |= held.rank != new.rank
        if of_node is None or of_node.rank < new.rank:
            self._by_node[node] = new
        if of_name is None or of_name.rank < new.rank:
            self._by_name[name] = new
        best = self._by_name[name]
        if replaces:
            self._tell(best.certificate.node)
        elif of_node is None:
            self._news.append(("seen", new.statement))
        while len(self._by_node) > CERTIFICATES_MAX:
            gone = self._by_node.pop(next(iter(self._by_node)))
            if self._by_name.get(gone.certificate.name) is gone:
                del self._by_name[gone.certificate.name]

    def _judge_certificates(self) -> None:
        """Everything anew under the trust that now is in force."""
        self.revision += 1
        kept = {id(one): one for one in (*self._by_node.values(), *self._by_name.values())}
        self._by_node, self._by_name = {}, {}
        news = list(self._news)
        spread = dict(self._spread)
        for one in kept.values():
            try:
                self._open_certificate(one.statement)
            except IdentityError:
                continue
            self._place(one)
        self._news = news
        self._spread = {node: None for node in spread if self.certified(NodeId(node)) is not None}

    def add_group_key(self, statement: bytes) -> bool:
        """Take a group key; False where it is already known. Raises `IdentityError`."""
        keys, threshold = self.role("enrol")
        group = open_statement("group", statement, keys, threshold, self._crypto, GroupKey)
        if group.swarm != self.swarm or len(group.key) != GROUP_KEY_BYTES:
            raise IdentityError("group key is for another swarm or of the wrong length")
        if not 0 < group.counter <= _GROUP_COUNTER_MAX:
            raise IdentityError(f"group key's counter is {group.counter}; 1 to {_GROUP_COUNTER_MAX} travel in a frame")
        if group.counter in self.group_keys:
            return False
        self.group_keys[group.counter] = group
        self._group_statements[group.counter] = statement
        self.revision += 1
        self._news.append(("group", statement))
        return True

    def statements(self) -> list[tuple[str, bytes]]:
        """Everything that a peer may lack, as (kind, statement), in an order in which it can be taken."""
        found = [("root", root) for root in self.roots[1:]]
        found += [("revoke", statement) for _, statement in sorted(self.revocations.items())]
        found += [("node", held) for node in self._spread if (held := self.certificate_statement(NodeId(node)))]
        return found + [("group", statement) for _, statement in sorted(self._group_statements.items())]

    def add(self, kind: str, statement: bytes) -> bool:
        """Take a statement from anywhere.

        Returns:
            Whether it was new.

        Raises:
            IdentityError: It does not hold, or is of a kind that is not taken here.
        """
        if kind == "root":
            return self.add_root(statement)
        if kind == "group":
            return self.add_group_key(statement)
        if kind == "revoke":
            return bool(self.add_revocation(statement))
        if kind == "node":
            certificate = self.admit_certificate(statement)
            known = certificate.node in self._spread
            if not known:
                self._tell(certificate.node)
            return not known
        raise IdentityError(f"statements of kind {kind!r} are not taken here")


def root_digest(statement: bytes) -> bytes:
    """32 bytes that name one link of the root chain: over what is signed, so the order of signatures is free."""
    payload = decode_envelope(statement).payload
    return blake2b(signing_bytes("root", payload), digest_size=32, person=b"swarmd-root").digest()


def _open_first_root(statement: bytes, crypto: Crypto) -> Root:
    try:
        claimed = msgspec.msgpack.decode(decode_envelope(statement).payload, type=Root)
    except _DAMAGE as error:
        raise IdentityError(f"root statement is malformed: {error}") from error
    _check_root(claimed)
    keys, threshold = _role_table(claimed)["root"]
    return open_statement("root", statement, keys, threshold, crypto, Root)


def _check_root(root: Root) -> None:
    names = [role.name for role in root.roles]
    if "root" not in names or len(names) != len(set(names)):
        raise IdentityError("a root names the role root, and each role once")
    known = {key_id_of(key) for key in root.keys}
    for role in root.roles:
        if not 0 < role.threshold <= len(set(role.key_ids)) or not set(role.key_ids) <= known:
            raise IdentityError(f"role {role.name!r} asks for {role.threshold} of {len(role.key_ids)} known keys")


def _role_table(root: Root) -> dict[str, tuple[dict[bytes, bytes], int]]:
    by_id = {key_id_of(key): key for key in root.keys}
    return {role.name: ({key_id: by_id[key_id] for key_id in role.key_ids}, role.threshold) for role in root.roles}


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
        except _DAMAGE as error:
            raise IdentityError(f"the identity is damaged: {error}") from error
        if len(identity.seed) != SEED_BYTES or not identity.roots:
            raise IdentityError("the identity is damaged: its seed or its root chain is missing")
        return identity

    def claims(self) -> Certificate:
        """The own certificate's content, unverified (name, swarm, node id for display before a `Trust` exists)."""
        try:
            return msgspec.msgpack.decode(decode_envelope(self.certificate).payload, type=Certificate)
        except _DAMAGE as error:
            raise IdentityError(f"the identity's certificate is damaged: {error}") from error

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
        if trust.admit_certificate(self.certificate).public_key != crypto.public_key(self.seed):
            raise IdentityError("the identity's seed does not belong to its certificate")
        for statement in self.group_keys:
            trust.add_group_key(statement)
        for statement in self.revocations:
            trust.add_revocation(statement)
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


def group_curve_keys(group_key: bytes) -> tuple[bytes, bytes]:
    """(public, secret) X25519 pair derived from a group key, 32 raw bytes each."""
    secret = blake2b(group_key, digest_size=32, person=b"swarmd-curve").digest()
    return NaClCrypto().ephemeral_public(secret), secret


def make_root(
    fleet: str,
    roles: Mapping[str, tuple[int, Sequence[bytes]]],
    *,
    version: int = 1,
    epoch: int = 1,
    previous: bytes = b"",
) -> Root:
    """Compose a root from roles.

    Args:
        fleet: The fleet's name.
        roles: Role name to (threshold, public keys); must hold "root".
        version: 1 for the first; one more than the previous otherwise.
        epoch: One more where release or floor keys are replaced because they leaked.
        previous: `root_digest` of the link before; b"" for the first.

    Returns:
        The payload to give to `sign_statement("root", ...)`.
    """
    keys = tuple(sorted({key for _, members in roles.values() for key in members}))
    table = tuple(
        Role(name, threshold, tuple(sorted(key_id_of(key) for key in members)))
        for name, (threshold, members) in sorted(roles.items())
    )
    root = Root(fleet, version, epoch, previous, keys, table)
    _check_root(root)
    return root


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
    fleet_secret: bytes, swarm: str, name: str, crypto: Crypto | None = None, *, fresh_seed: bytes | None = None
) -> Identity:
    """A throw-away identity: everything derives from one secret, so any process with it enrols itself.

    Args:
        fleet_secret: At least 16 bytes; whoever holds them owns the fleet.
        swarm: The swarm's name.
        name: The node's name, unique in the swarm.
        crypto: `ModelCrypto()` in simulations; libsodium where absent.
        fresh_seed: A random 32-byte node key; derived from secret and name where absent, so the id is stable.

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
    return enrol(node_seed, name, swarm, [root], [group_key], enrol_seeds, library)


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
        waiting = [value for key, value in sorted(restored.items()) if key.startswith(prefix)]
        for _ in range(len(waiting)):
            waiting = [statement for statement in waiting if not _takes(trust, kind, statement)]
    trust.take_news()
    return trust


def _takes(trust: Trust, kind: str, statement: bytes) -> bool:
    try:
        if kind == "seen":
            trust.admit_certificate(statement)
        else:
            trust.add(kind, statement)
    except IdentityError:
        return False
    return True
