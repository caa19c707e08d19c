"""The one chain of roots: who may say what, with how many signatures, and what still counts.

A root names keys, and for each role which of them speak for it and how many must. Root N+1 needs the threshold of N
**and** of N+1; nodes keep and serve the whole chain, so one that was off for two years walks it.

**Rivals.** Of two branches that begin with different roots N+1, one *bows* to the other if the other holds a root that
enough of its own newest root keys have signed. Where one bows and the other does not, the other one is the chain, in
whichever order they came: its root keys replaced those of the first. Where both bow, the root role itself has signed
two successors: the chain stops at N, nothing is picked, and it goes on when a branch comes to which all the others bow.
Where neither bows, the branch that is held stays: a stranger's root keys prove nothing. Of three that bow in a ring the
one that came last is the chain.

**What counts** (decided anew for everything whenever the chain grows):

    A root *vouches* for a statement that enough keys of its role have signed, and for a statement of `kept` that an
    earlier root vouched for.
    A statement counts while the newest root vouches for it.

So keys that were replaced decide nothing any more, whether as planned or because they were stolen, and what they had
signed stays where the new root names it as right (docs/decisions/0023-a-new-root-names-what-stays-right.md).

Source: TUF 1.0.34, section 5.3 (update the root role).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.trust.envelopes import (
    DAMAGE,
    DIGEST_BYTES,
    KEY_BYTES,
    MARK_BYTES,
    MAX_SIGNATURES,
    ROLE_OF,
    Envelope,
    KeyId,
    Verify,
    decode_envelope,
    key_id,
    meets_threshold,
    merge_signatures,
    signers,
)

ROOT_CHAIN_MAX = 256
"""Roots of one fleet: one a week for five years."""
RIVALS_MAX = 4
"""Branches kept while a chain stands at a fork; of more, the latest. Peers hand a chain over in order, so the branch
that ends the fork grows to its end before others push it out."""
KEPT_MAX = 2_048
"""Statements that one root can name: 36 KiB of the 48 that a payload takes."""
ROLES = ("enrol", "revoke", "release", "floor", "heartbeat", "operator")
"""What a root hands out besides itself."""


class RivalRootError(IdentityError):
    """A root beside the chain, by a threshold of root keys that the chain has replaced: they are in wrong hands, or the
    chain that is held here is."""


_Id = Annotated[KeyId, Meta(min_length=16, max_length=16)]
_PublicKey = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Mark = Annotated[bytes, Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]


class Role(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which keys speak for a role, and how many of them it takes."""

    name: Annotated[str, Meta(max_length=32)]
    threshold: Annotated[int, Meta(ge=1, le=16)]
    key_ids: Annotated[tuple[_Id, ...], Meta(max_length=16)]


class Root(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Payload "root"."""

    fleet: Annotated[str, Meta(max_length=64)]
    version: Annotated[int, Meta(ge=1, le=1 << 32)]
    epoch: Annotated[int, Meta(ge=1, le=1 << 32)]
    previous: Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
    """`root_digest` of the link before; b"" for the first."""
    keys: Annotated[tuple[_PublicKey, ...], Meta(max_length=128)]
    roles: Annotated[tuple[Role, ...], Meta(max_length=16)]
    kept: Annotated[tuple[Mark, ...], Meta(max_length=KEPT_MAX)] = ()
    """`mark` of statements by keys that this root no longer names, and that are right all the same."""


_ROOT = msgspec.msgpack.Decoder(Root)


def mark(envelope: Envelope) -> bytes:
    """What a root names a statement by in `kept`."""
    return envelope.digest[:MARK_BYTES]


def root_digest(statement: bytes) -> bytes:
    """32 bytes that name one link of the chain: over what is signed, so the order of signatures is free."""
    return decode_envelope(statement).digest


def make_root(
    fleet: str,
    roles: Mapping[str, tuple[int, Sequence[bytes]]],
    *,
    version: int = 1,
    epoch: int = 1,
    previous: bytes = b"",
    kept: Iterable[bytes] = (),
) -> Root:
    """Compose a root from roles; public halves are enough.

    Args:
        fleet: The fleet's name.
        roles: Role name to (threshold, public keys); must hold "root".
        version: 1 for the first; one more than the previous otherwise.
        epoch: One more where keys are replaced because they were stolen.
        previous: `root_digest` of the link before; b"" for the first.
        kept: `mark` of statements that stay right though their keys go.

    Returns:
        The payload to give to `sign_statement("root", ...)`.

    Raises:
        IdentityError: The numbers make no sense.
    """
    keys = tuple(sorted({key for _, members in roles.values() for key in members}))
    table = tuple(
        Role(name, threshold, tuple(sorted(key_id(key) for key in members)))
        for name, (threshold, members) in sorted(roles.items())
    )
    root = Root(fleet, version, epoch, previous, keys, table, tuple(sorted(set(kept))))
    if len(root.kept) > KEPT_MAX:
        raise IdentityError(f"{len(root.kept)} statements are to stay; a root can name {KEPT_MAX}")
    Link.of(Envelope("root", msgspec.msgpack.encode(root)))
    return root


class Link(msgspec.Struct, frozen=True):
    """One root of the chain, read."""

    root: Root
    envelope: Envelope
    keys: Mapping[KeyId, bytes]
    roles: Mapping[str, Role]
    kept: frozenset[bytes]

    @property
    def version(self) -> int:
        """Counted from 1."""
        return self.root.version

    @property
    def epoch(self) -> int:
        """Rises when keys were stolen."""
        return self.root.epoch

    @staticmethod
    def of(envelope: Envelope) -> "Link":
        """Read a root without trusting it.

        Raises:
            IdentityError: It is no root.
        """
        try:
            root = _ROOT.decode(envelope.payload)
        except DAMAGE as error:
            raise IdentityError(f"root statement is malformed: {error}") from error
        keys = {key_id(key): key for key in root.keys}
        roles = {role.name: role for role in root.roles}
        if "root" not in roles or len(roles) != len(root.roles):
            raise IdentityError("a root names the role root, and each role once")
        for role in root.roles:
            if not set(role.key_ids) <= set(keys) or role.threshold > len(set(role.key_ids)):
                raise IdentityError(f"role {role.name!r} asks for {role.threshold} of {len(role.key_ids)} known keys")
        return Link(root, envelope, keys, roles, frozenset(root.kept))

    def has_threshold(self, good: Iterable[KeyId], name: str) -> bool:
        """Whether these keys are enough for a role."""
        keys, threshold = role_of(self, name)
        return meets_threshold(good, keys, threshold)


def role_of(link: Link, name: str) -> tuple[dict[KeyId, bytes], int]:
    """Key id to public key, and the threshold, of a role; empty and 1 where the root names none."""
    role = link.roles.get(name)
    return ({key: link.keys[key] for key in role.key_ids}, role.threshold) if role else ({}, 1)


class RootChain(msgspec.Struct):
    """The roots a node trusts, oldest first; grows only by `extend`. The first comes with the node's identity."""

    crypto: Crypto
    links: list[Link] = msgspec.field(default_factory=list)
    rivals: list[list[Link]] = msgspec.field(default_factory=list)
    """Where the root role signed several successors of the newest root: the branches, of which none wins yet."""

    @classmethod
    def trust(cls, first: bytes, crypto: Crypto) -> "RootChain":
        """Begin with a root that was installed with the node, which must at least hold by its own keys.

        Raises:
            IdentityError: It does not, or it is no root.
        """
        link = _read(first)
        if not link.has_threshold(signers(link.envelope, role_of(link, "root")[0], crypto.verify), "root"):
            raise IdentityError("the installed root is not signed by its own root role; enrol the node again")
        return cls(crypto, [link])

    @property
    def current(self) -> Link:
        """The newest root."""
        return self.links[-1]

    @property
    def verify(self) -> Verify:
        """How signatures are checked."""
        return self.crypto.verify

    @property
    def statements(self) -> list[bytes]:
        """The roots as they travel, oldest first."""
        return [link.envelope.encode() for link in self.links]

    @property
    def is_forked(self) -> bool:
        """Whether the chain stands still because the root role signed several successors of its newest root."""
        return bool(self.rivals)

    @property
    def disputed(self) -> list[bytes]:
        """The roots of all branches of a fork, as they travel: the proof that it is one."""
        return list(dict.fromkeys(link.envelope.encode() for branch in self.rivals for link in branch))

    # --- what counts --------------------------------------------------------------------------------------------------

    def verified(self, envelope: Envelope) -> Envelope:
        """The envelope with those signatures that hold, by keys that a root of the chain names for its role."""
        role = ROLE_OF.get(envelope.kind, "")
        newest: dict[KeyId, int] = {}
        keys: dict[KeyId, bytes] = {}
        for link in self.links:
            for key, public in role_of(link, role)[0].items():
                keys[key], newest[key] = public, link.version
        good = signers(envelope, keys, self.crypto.verify)
        best = sorted(good, key=lambda key: (-newest[key], key))[:MAX_SIGNATURES]
        return Envelope(envelope.kind, envelope.payload, tuple(one for one in envelope.signatures if one[0] in best))

    def signers_of(self, kind: str) -> frozenset[KeyId]:
        """The keys that a root of the chain names for the role of this kind."""
        role = ROLE_OF[kind]
        return frozenset(key for link in self.links for key in role_of(link, role)[0])

    def counts(self, verified: Envelope) -> bool:
        """Whether a statement holds under the chain as it is now; every signature on it was verified."""
        role = ROLE_OF.get(verified.kind, "")
        good = [key for key, _ in verified.signatures]
        named, vouched, by_newest = mark(verified), False, False
        for link in self.links:
            by_newest = link.has_threshold(good, role) or (vouched and named in link.kept)
            vouched = vouched or by_newest
        return by_newest

    def admit(self, envelope: Envelope, known: Envelope | None = None) -> Envelope:
        """Verify a statement from outside: what counts, with the signatures that hold and no others.

        Args:
            envelope: From anywhere.
            known: The same statement as it is held here, whose signatures stay.

        Raises:
            IdentityError: Too few distinct keys of its role have signed, or they were replaced.
        """
        verified = self.verified(envelope)
        if known is not None:
            verified = self.verified(merge_signatures(known, verified))
        if not self.counts(verified):
            role = ROLE_OF.get(envelope.kind, "")
            wanted = self.current.roles.get(role)
            raise IdentityError(
                f"{envelope.kind} statement lacks {wanted.threshold if wanted else 1} good signatures of role {role}"
            )
        return verified

    # --- growing ------------------------------------------------------------------------------------------------------

    def extend(self, statement: bytes) -> bytes | None:
        """Take one more root.

        Args:
            statement: A root statement from outside.

        Returns:
            The root with its good signatures, if the chain changed, a fork was proven or ended, or a known root has
            more good signatures now; else None.

        Raises:
            IdentityError: Not signed as it must be, or no successor of a root here.
        """
        signed = _read(statement)
        if signed.version == self.links[0].version:
            if signed.envelope.payload == self.links[0].envelope.payload:
                return None
            raise IdentityError("another first root than the installed one; this node belongs to another fleet")
        path = self._path_to(signed)
        link = self._checked_successor(path[-1], signed)
        at = len(path)
        if at < len(self.links) and self.links[at].envelope.payload == link.envelope.payload:
            return self._merge(at, link)
        if any(
            len(branch) > at - len(self.links) >= 0
            and branch[at - len(self.links)].envelope.payload == link.envelope.payload
            for branch in self.rivals
        ):
            return None
        if at >= ROOT_CHAIN_MAX:
            raise IdentityError(f"{ROOT_CHAIN_MAX} roots are as many as a chain may have")
        self._branch([*path, link])
        return link.envelope.encode()

    def _path_to(self, new: Link) -> list[Link]:
        """The roots before a new one, from the first on."""
        for path in (self.links, *([*self.links, *branch] for branch in self.rivals)):
            at = new.version - self.links[0].version
            if 0 < at <= len(path) and path[at - 1].envelope.digest == new.root.previous:
                return path[:at]
        if 0 < new.version - self.links[0].version <= len(self.links):
            raise IdentityError(f"root {new.version} does not name the root {new.version - 1} of this chain")
        raise IdentityError(f"root {new.version} does not follow root {self.current.version}; send those between")

    def _branch(self, path: list[Link]) -> None:
        """Weigh a branch that was just made longer by one root against what is held.

        Roots weigh as they are kept and travel on, without signatures by keys of other branches: who restarts and who
        hears them from here decides alike.
        """
        base = next((at for at, one in enumerate(self.links) if path[at] is not one), len(self.links))
        mine, new = self.links[base:], path[base:]
        if not mine:
            others = [one for one in self.rivals if one != new[:-1]]
            self._settle([*others[1 - RIVALS_MAX :], new])
            return
        held = [[*mine, *one] for one in self.rivals] or [mine]
        is_bowed_to = any(self._bows(new, one) for one in held)
        if not all(self._bows(one, new) for one in held):
            if is_bowed_to:
                raise IdentityError(f"another root {new[-1].version}, by root keys that were replaced since")
            raise RivalRootError(
                f"another root {new[-1].version}, by root keys that were replaced since, with root keys of its own"
            )
        del self.links[base:]
        self._settle([*held[1 - RIVALS_MAX :], new] if is_bowed_to else [new])

    def _settle(self, branches: list[list[Link]]) -> None:
        """Go on with the roots that one of these branches has and to which all that have others bow, and it to none."""
        while branches:
            sure = next((one for one in branches if self._beats(one, branches)), None)
            if sure is None:
                break
            self.links.append(sure[0])
            branches = [one[1:] for one in branches if one[0] is sure[0] and len(one) > 1]
        self.rivals = branches

    def _beats(self, one: list[Link], branches: list[list[Link]]) -> bool:
        others = [other for other in branches if other[0] is not one[0]]
        return all(self._bows(other, one) and not self._bows(one, other) for other in others)

    def _checked_successor(self, old: Link, new: Link) -> Link:
        """The link with its good signatures only, if it may follow the old one."""
        if new.epoch - old.epoch not in (0, 1):
            raise IdentityError(f"root {new.version} moves the epoch from {old.epoch} to {new.epoch}")
        good = signers(new.envelope, {**role_of(old, "root")[0], **role_of(new, "root")[0]}, self.crypto.verify)
        if not old.has_threshold(good, "root"):
            raise IdentityError(f"root {new.version} is not signed by the keys of root {old.version}")
        if not new.has_threshold(good, "root"):
            raise IdentityError(f"root {new.version} is not signed by its own keys")
        pairs = tuple(one for one in new.envelope.signatures if one[0] in good)
        return msgspec.structs.replace(new, envelope=Envelope("root", new.envelope.payload, pairs))

    def _merge(self, at: int, again: Link) -> bytes | None:
        known = self.links[at]
        merged = merge_signatures(known.envelope, again.envelope)
        if merged == known.envelope:
            return None
        self.links[at] = msgspec.structs.replace(known, envelope=merged)
        return merged.encode()

    def _bows(self, one: Sequence[Link], other: Sequence[Link]) -> bool:
        """Whether enough of one branch's newest root keys have signed a root of the other."""
        keys = role_of(one[-1], "root")[0]
        return any(one[-1].has_threshold(signers(link.envelope, keys, self.verify), "root") for link in other)


def _read(statement: bytes) -> Link:
    try:
        envelope = decode_envelope(statement)
    except WireError as error:
        raise IdentityError(str(error)) from error
    if envelope.kind != "root":
        raise IdentityError(f"a {envelope.kind} statement is no root")
    return Link.of(envelope)


def next_root(
    chain: RootChain,
    roles: Mapping[str, tuple[int, Sequence[bytes]]],
    right: Iterable[Envelope] = (),
    *,
    stolen: bool = False,
) -> Root:
    """Compose the root that follows a chain, unsigned, from public halves.

    Args:
        chain: All roots so far.
        roles: Role to (signatures needed, public keys), for those that change.
        right: Statements that are to stay: those that would fall for want of keys are named in `kept`.
        stolen: Start a new epoch. Else what the old root names as right stays named, held here or not.

    Raises:
        IdentityError: The numbers make no sense, or more is to stay than a root can name.
    """
    old = chain.current
    members: dict[str, tuple[int, Sequence[bytes]]] = {
        role.name: (role.threshold, [old.keys[key] for key in role.key_ids]) for role in old.root.roles
    }

    def make(kept: Iterable[bytes]) -> Root:
        return make_root(
            old.root.fleet,
            {**members, **roles},
            version=old.version + 1,
            epoch=old.epoch + stolen,
            previous=old.envelope.digest,
            kept=kept,
        )

    bare = Link.of(Envelope("root", msgspec.msgpack.encode(make(()))))
    after = RootChain(chain.crypto, [*chain.links, bare])
    verified = [chain.verified(one) for one in right]
    falling = [mark(one) for one in verified if chain.counts(one) and not after.counts(one)]
    return make([*falling, *(() if stolen else old.kept)])
