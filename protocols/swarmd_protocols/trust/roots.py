"""The chain of roots as releases need it: who may say what, with how many signatures, and in which epoch.

The statements are those of `swarmd_protocols.trust.identity`: one root for the whole fleet. Root N+1 needs the
threshold of N **and** of N+1; nodes keep and serve the whole chain, so one that was off for two years walks it. Two
different valid roots N+1 are a proof that the root role itself equivocates: the chain stops at N and raises an alarm;
it never picks.

`epoch` rises by one when release or floor keys are replaced because they were stolen. What the old keys signed then
counts no more, except where the new keys sign the same bytes again (docs/protocols/releases.md, "Recovery").

Source: TUF 1.0.34, section 5.3 (update the root role).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust import identity
from swarmd_protocols.trust.envelopes import Envelope, KeyId, Verify, key_id, meets_threshold, signers

MAX_ROLE_KEYS = 16
_PLAIN_ROOT = msgspec.msgpack.Decoder(identity.Root)


@dataclass(frozen=True, slots=True)
class Role:
    """Keys of which `threshold` distinct ones must sign."""

    keys: tuple[KeyId, ...]
    threshold: int


@dataclass(frozen=True, slots=True)
class Root:
    """One link of the chain, read."""

    version: int
    epoch: int
    previous: bytes
    keys: Mapping[KeyId, bytes]
    roles: Mapping[str, Role]
    payload: bytes
    """The bytes that were signed: what makes two roots the same."""


_NOBODY = Role((), 1)


def read_root(statement: bytes) -> Root:
    """Read a root without trusting it.

    Raises:
        IdentityError: It is no root.
    """
    payload = identity.decode_envelope(statement).payload
    try:
        plain = _PLAIN_ROOT.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IdentityError(f"root statement is malformed: {error}") from error
    keys = {key_id(key): key for key in plain.keys}
    roles = {role.name: Role(tuple(KeyId(one) for one in role.key_ids), role.threshold) for role in plain.roles}
    for name, role in roles.items():
        listed = set(role.keys) <= set(keys) and len(role.keys) <= MAX_ROLE_KEYS
        if not listed or not 1 <= role.threshold <= len(set(role.keys)):
            raise IdentityError(f"root: role {name!r} asks for {role.threshold} of {len(role.keys)} known keys")
    if "root" not in roles:
        raise IdentityError("root: names no role root")
    return Root(plain.version, plain.epoch, plain.previous, keys, roles, payload)


def is_signed_by(envelope: Envelope, root: Root, role: str, verify: Verify) -> bool:
    """Whether a root's role has signed with enough distinct keys."""
    wanted = root.roles.get(role, _NOBODY)
    keys = {key: root.keys[key] for key in wanted.keys}
    return meets_threshold(signers(envelope, keys, verify), wanted.keys, wanted.threshold)


def _as_envelope(statement: bytes) -> Envelope:
    plain = identity.decode_envelope(statement)
    return Envelope("root", plain.payload, tuple((KeyId(key), signature) for key, signature in plain.signatures[:64]))


@dataclass(slots=True)
class RootChain:
    """The roots a node trusts, oldest first; grows only by `extend`. The first comes with the node's identity."""

    crypto: Crypto
    statements: list[bytes] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    forks: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Proofs that the root role signed two successors of one root; the chain stands still from there."""

    @classmethod
    def trust(cls, first: bytes, crypto: Crypto) -> "RootChain":
        """Begin with a root that was installed with the node, which must at least hold by its own keys.

        Raises:
            IdentityError: It does not, or it is no root.
        """
        root = read_root(first)
        if not is_signed_by(_as_envelope(first), root, "root", crypto.verify):
            raise IdentityError("the installed root is not signed by its own root role; enrol the node again")
        return cls(crypto, [first], [root])

    @property
    def current(self) -> Root:
        """The newest root."""
        return self.roots[-1]

    @property
    def verify(self) -> Verify:
        """How signatures are checked."""
        return self.crypto.verify

    def extend(self, statement: bytes) -> bool:
        """Take one more root.

        Args:
            statement: A root statement from outside.

        Returns:
            True when the chain grew or a new fork was proven; False for one that is known.

        Raises:
            IdentityError: Not signed as it must be, or no successor of a root here.
        """
        root = read_root(statement)
        at = root.version - self.roots[0].version
        if not 0 <= at <= len(self.roots):
            raise IdentityError(f"root {root.version} does not follow root {self.current.version}; send those between")
        if at < len(self.roots) and self.roots[at].payload == root.payload:
            return False
        if at == 0:
            raise IdentityError("another first root than the installed one; this node belongs to another fleet")
        self._check_successor(at - 1, statement, root)
        if at < len(self.roots):
            return self._prove_fork(at, statement)
        if any(read_root(one).version == root.version for one, _ in self.forks):
            return self._again_after_fork(statement, root)
        if len(self.roots) >= identity.ROOT_CHAIN_MAX:
            raise IdentityError(f"{identity.ROOT_CHAIN_MAX} roots are as many as a chain may have")
        self.statements.append(statement)
        self.roots.append(root)
        return True

    def _check_successor(self, at: int, statement: bytes, new: Root) -> None:
        old = self.roots[at]
        envelope = _as_envelope(statement)
        if new.previous != identity.root_digest(self.statements[at]):
            raise IdentityError(f"root {new.version} does not name the root {old.version} of this chain")
        if new.epoch - old.epoch not in (0, 1):
            raise IdentityError(f"root {new.version} moves the epoch from {old.epoch} to {new.epoch}")
        if not is_signed_by(envelope, old, "root", self.verify):
            raise IdentityError(f"root {new.version} is not signed by the keys of root {old.version}")
        if not is_signed_by(envelope, new, "root", self.verify):
            raise IdentityError(f"root {new.version} is not signed by its own keys")

    def _prove_fork(self, at: int, statement: bytes) -> bool:
        """Two valid successors: go back to the last root that both agree on, and stay there."""
        self.forks.append((self.statements[at], statement))
        del self.statements[at:], self.roots[at:]
        return True

    def _again_after_fork(self, statement: bytes, root: Root) -> bool:
        known = {read_root(one).payload for pair in self.forks for one in pair}
        if root.payload in known:
            return False
        raise IdentityError(f"the root role signed several roots {root.version}; stopped before them")
