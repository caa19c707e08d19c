"""A fleet on the operator's disk: role keys, the root chain, and each swarm's group keys, revocations and nodes.

    FLEET/roots/0001.root ...             the chain; public
    FLEET/keys/ROLE-N.key                 one role key a file, 0600, to be moved to its keeper (`--key FILE`)
    FLEET/swarms/SWARM/group-COUNTER      signed group keys; secret, 0600
    FLEET/swarms/SWARM/revoke-COUNTER-ID  signed revocations; public
    FLEET/swarms/SWARM/node-NAME-ID       the node's certificate; public

What was signed by keys that were replaced since stays where it is; it counts where the newest root says so.
A development fleet (`fleet.secret`) has no key files: its keys derive from that secret. Every write is whole or absent,
one desk at a time decides and writes, and nothing is ever overwritten: a statement that was signed once may be out
there.
"""

import contextlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swarmd.identity.files import (
    DEV_SWARM,
    FLEET_SECRET_FILE,
    dev_fleet_secret,
    read_secret_file,
    write_secret_file,
)
from swarmd.identity.names import check_name, is_name
from swarmd.identity.role_keys import (
    FleetError,
    RoleKey,
    all_or_none,
    draw_keys,
    key_files,
    key_number,
    key_path,
    locked_folder,
    read_role_key,
    refuse_existing,
    write_public,
    write_role_key,
)
from swarmd_protocols.crypto import SEED_BYTES, NaClCrypto
from swarmd_protocols.errors import IdentityError, ProtocolError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import (
    REMOVALS,
    ROLE_OF,
    Envelope,
    decode_envelope,
    key_id,
    sign_statement,
)
from swarmd_protocols.trust.identity import (
    DEV_ROLES,
    Identity,
    certificate_rank,
    dev_role_seeds,
    dev_root,
    enrol,
    make_dev_identity,
    read_certificate,
)
from swarmd_protocols.trust.payloads import GROUP_KEY_BYTES, Certificate, GroupKey, Revocation, read_payload
from swarmd_protocols.trust.roots import KEPT_MAX, Root, RootChain, make_root, mark, next_root
from swarmd_protocols.trust.trust import Trust

DEFAULT_ROLES: Mapping[str, tuple[int, int]] = {
    "root": (2, 3),
    "enrol": (1, 1),
    "revoke": (1, 2),
    "release": (2, 3),
    "floor": (2, 3),
    "heartbeat": (1, 1),
}
"""Role to (signatures needed, keys made) of a new fleet."""
_CRYPTO = NaClCrypto()


@dataclass(frozen=True, slots=True)
class Statement:
    """A signed statement and where it lies."""

    kind: str
    data: bytes
    path: Path


def create_fleet(folder: Path, name: str, roles: Mapping[str, tuple[int, int]] = DEFAULT_ROLES) -> "Fleet":
    """Draw all role keys and sign the first root.

    Args:
        folder: Must not hold a fleet yet.
        name: The fleet's name.
        roles: Role to (signatures needed, keys made); must name root.

    Raises:
        FleetError: There is a fleet already, or the numbers make no sense.
    """
    check_name(name, "a fleet")
    keys = {role: draw_keys(role, need, count) for role, (need, count) in roles.items()}
    with locked_folder(folder, make=True):
        _begin(folder, name, roles, keys)
    return Fleet(folder)


def _begin(folder: Path, name: str, roles: Mapping[str, tuple[int, int]], keys: Mapping[str, list[RoleKey]]) -> None:
    if any((folder / "roots").glob("*.root")) or (folder / FLEET_SECRET_FILE).exists():
        raise FleetError(f"{folder} holds a fleet already; choose another folder")
    for role, drawn in keys.items():
        for number, path in enumerate(key_path(folder, role, at) for at in range(1, len(drawn) + 1)):
            if path.exists():
                drawn[number] = read_role_key(path)  # Of a run that was killed before the root that names it.
    root = make_root(name, {role: (roles[role][0], [key.public for key in keys[role]]) for role in roles})
    signed = sign_statement("root", root, [key.seed for key in keys["root"]], _CRYPTO)
    path = folder / "roots" / "0001.root"
    with all_or_none(path) as written:
        for role, drawn in keys.items():
            for number, key in enumerate(drawn, 1):
                if key_path(folder, role, number).exists():
                    continue
                write_role_key(key_path(folder, role, number), key)
                written.append(key_path(folder, role, number))
        write_public(path, signed)


class Fleet:
    """A fleet's folder. Reads anew on every question, so that two commands never work from different pictures."""

    def __init__(self, folder: Path, given_keys: Iterable[Path | RoleKey] = ()) -> None:
        """Open a fleet.

        Args:
            folder: Made by `create_fleet`, or a development fleet.
            given_keys: Role keys that lie elsewhere.

        Raises:
            FleetError: There is no fleet, or its root chain does not hold.
        """
        self.folder = folder
        self._dev_secret = dev_fleet_secret(folder) if (folder / FLEET_SECRET_FILE).exists() else None
        self._given = [key if isinstance(key, RoleKey) else read_role_key(key) for key in given_keys]
        if self._dev_secret is None and not (folder / "roots" / "0001.root").exists():
            raise FleetError(f"there is no fleet in {folder}; make one with `swarmd keys root {folder} --name NAME`")
        self.trust_of(DEV_SWARM)

    @property
    def is_dev(self) -> bool:
        """Whether this is a throw-away fleet."""
        return self._dev_secret is not None

    def roots(self) -> list[bytes]:
        """The root chain, oldest first."""
        later = [path.read_bytes() for path in sorted((self.folder / "roots").glob("*.root"))]
        return [dev_root(self._dev_secret, _CRYPTO), *later] if self._dev_secret is not None else later

    def trust_of(self, swarm: str) -> Trust:
        """What a member of a swarm that has heard everything believes.

        Raises:
            FleetError: A statement in the folder does not hold.
        """
        check_name(swarm, "a swarm")
        try:
            trust = Trust(swarm, self.roots(), _CRYPTO)
            found = [("revoke", path.read_bytes()) for path in sorted(self._swarm(swarm).glob("revoke-*"))]
            void: set[bytes] = set()
            for kind, statement in [*found, *(("group", one) for one in self._group_statements(swarm))]:
                if _is_void(trust, statement):
                    void.add(mark(decode_envelope(statement)))
                elif kind != "group" or void.isdisjoint(_after(statement)):
                    trust.add(kind, statement)  # Else it has fallen with a revocation that it names.
            for path in sorted(self._swarm(swarm).glob("node-*")):
                with contextlib.suppress(IdentityError):  # Void since, replaced, or revoked.
                    trust.admit_certificate(path.read_bytes())
        except ProtocolError as error:
            raise FleetError(f"the fleet in {self.folder} does not hold: {error}; restore it from a copy") from error
        return trust

    def root(self) -> Root:
        """The newest root."""
        return self.trust_of(DEV_SWARM).root

    def seeds(self, role: str) -> list[bytes]:
        """As many of a role's present keys as its threshold asks for.

        Raises:
            FleetError: Too few are here; names the key ids that are missing.
        """
        found, missing = self._present_keys(role)
        _, threshold = self.trust_of(DEV_SWARM).role(role)
        if not found and not missing:
            raise FleetError(
                f"the root names no role {role!r}; give it keys with `swarmd keys role {self.folder} {role}`"
            )
        if len(found) < threshold:
            raise FleetError(
                f"role {role!r} takes {threshold} signatures and {len(found)} of its keys are here; give more with "
                f"--key FILE (missing: {', '.join(key_id.hex()[:8] for key_id in missing)})"
            )
        return found[:threshold]

    def change_role(
        self, role: str, need: int, count: int, *, stolen: bool = False, keep: Sequence[Path] = ()
    ) -> Statement:
        """Draw new keys for a role and sign the next root, which names them instead of the old ones.

        Args:
            role: An existing role or a new one.
            need: Signatures the role will take.
            count: Keys to draw.
            stolen: Start a new epoch: what was signed in the old one counts no more, but for what is in this folder.
            keep: Statement files from elsewhere that are right too.

        Returns:
            The new root.

        Raises:
            FleetError: Too few root keys are here, or the numbers make no sense.
        """
        drawn = draw_keys(role, need, count)
        with locked_folder(self.folder):
            return self._change_role(drawn, need, stolen, keep)

    def _change_role(self, drawn: Sequence[RoleKey], need: int, stolen: bool, keep: Sequence[Path]) -> Statement:
        role, old = drawn[0].role, self.root()
        signers = self.seeds("root")  # Before anything is written.
        new = self.next_root({role: (need, [key.public for key in drawn])}, stolen=stolen, keep=keep)
        if role == "root":
            signers = [*signers, *(key.seed for key in drawn[:need])]
        signed = sign_statement("root", new, list(dict.fromkeys(signers)), _CRYPTO)
        self._check("root", signed, DEV_SWARM)
        first = 1 + max((key_number(path) for path in key_files(self.folder, role)), default=0)
        path = self.folder / "roots" / f"{old.version + 1:04}.root"
        with all_or_none(path) as written:
            for number, key in enumerate(drawn, first):
                write_role_key(key_path(self.folder, role, number), key)
                written.append(key_path(self.folder, role, number))
            write_public(path, signed)
        return Statement("root", signed, path)

    def next_root(
        self, roles: Mapping[str, tuple[int, Sequence[bytes]]], *, stolen: bool = False, keep: Sequence[Path] = ()
    ) -> Root:
        """Compose the next root from public halves, unsigned.

        It names every certificate, group key and removal of this folder (who is out; floors and revocations of models
        in `statements/`) that is right and that would count no more for want of keys: no node has to be enrolled again,
        and nobody and nothing that was shut out comes back.

        Args:
            roles: Role to (signatures needed, public keys), for those that change.
            stolen: Start a new epoch.
            keep: Statement files from elsewhere that are right too.

        Raises:
            FleetError: The numbers make no sense, or a file of `keep` holds nothing that counts.
        """
        chain = self.trust_of(DEV_SWARM).chain
        right = [*self._removals(), *(self._counting(path, chain) for path in keep)]
        right += [decode_envelope(one) for swarm in self.swarms() for one in self._right(swarm)]
        try:
            return next_root(chain, roles, right, stolen=stolen)
        except IdentityError as error:
            remedy = (
                "; in two steps it can: a root that names the new keys beside the old ones, certificates signed by the "
                "new ones (swarmd keys prepare enrol FLEET NODE), then a root without the old ones"
            )
            raise FleetError(f"this root cannot be made: {error}{remedy * (len(right) > KEPT_MAX)}") from error

    def _removals(self) -> list[Envelope]:
        """Floors, revocations and halts of models."""
        found = [decode_envelope(path.read_bytes()) for path in sorted((self.folder / "statements").glob("*.swm"))]
        return [one for one in found if one.kind in REMOVALS]

    @staticmethod
    def _counting(path: Path, chain: RootChain) -> Envelope:
        try:
            return chain.admit(decode_envelope(path.read_bytes()))
        except (OSError, ProtocolError) as error:
            raise FleetError(f"{path} holds no statement that counts: {error}") from error

    def _right(self, swarm: str) -> list[bytes]:
        """All that counts of a swarm: revocations, group keys, and the certificates that hold."""
        trust = self.trust_of(swarm)
        found = [statement for kind, statement in trust.statements() if kind in ("revoke", "group")]
        held = [trust.certificate_statement(NodeId(one.node)) for one in self.nodes(swarm)]
        return found + [one for one in held if one is not None]

    def enrol(self, name: str, swarm: str, roles: Sequence[str] = ()) -> Identity:
        """Make a node's identity and record its certificate; see `make_identity`."""
        identity = self.make_identity(name, swarm, roles)
        self.record(identity)
        return identity

    def make_identity(self, name: str, swarm: str, roles: Sequence[str] = ()) -> Identity:
        """Make a node's identity; the swarm's first group key is drawn where it has none.

        The same name again gives the node a new key and a certificate that replaces the old one. `record` follows once
        the identity is safe.

        Raises:
            FleetError: The enrol keys are not here, or the name does not do.
        """
        trust = self.trust_of(swarm)
        check_name(name, "a node")
        if self._dev_secret is None and not trust.group_keys:
            with locked_folder(self.folder):
                if not self.trust_of(swarm).group_keys:  # Nobody else began the swarm meanwhile.
                    self._rotate(swarm)
            trust = self.trust_of(swarm)
        groups, out = (tuple(one for kind, one in trust.statements() if kind == what) for what in ("group", "revoke"))
        if self._dev_secret is not None:
            identity = make_dev_identity(self._dev_secret, swarm, name, _CRYPTO)
        else:
            try:
                identity = enrol(
                    secrets.token_bytes(SEED_BYTES),
                    name,
                    swarm,
                    self.roots(),
                    groups,
                    self.seeds("enrol"),
                    _CRYPTO,
                    roles=roles,
                    counter=next_counter(self._certificate_counters(swarm, name)),
                    revocations=out,  # Group keys that were drawn after them name them.
                )
            except IdentityError as error:
                raise FleetError(f"cannot enrol {name!r}: {error}") from error
        groups = groups or identity.group_keys
        return msgspec.structs.replace(identity, roots=tuple(self.roots()), group_keys=groups, revocations=out)

    def record(self, identity: Identity) -> bool:
        """Keep a node's certificate in the folder; False where it is there already."""
        digest = identity.node.hex()[:8]
        path = self._swarm(identity.swarm) / f"node-{identity.name}-{digest}"
        if path.exists():
            return False
        write_public(path, identity.certificate)
        return True

    def rotate(self, swarm: str) -> Statement:
        """Draw and sign the swarm's next group key.

        Raises:
            FleetError: The enrol keys are not here.
        """
        with locked_folder(self.folder):
            return self._rotate(swarm)

    def _rotate(self, swarm: str) -> Statement:
        trust = self.trust_of(swarm)
        counter = next_counter(trust.group_keys)
        payload = GroupKey(swarm, counter, secrets.token_bytes(GROUP_KEY_BYTES), trust.known_first())
        signed = sign_statement("group", payload, self.seeds("enrol"), _CRYPTO)
        self._check("group", signed, swarm)
        path = self._swarm(swarm) / f"group-{counter:020}"
        refuse_existing(path)
        write_secret_file(path, signed)
        return Statement("group", signed, path)

    def revoke(self, swarm: str, nodes: Sequence[bytes], reason: str) -> Statement:
        """Sign that these nodes are out for good.

        Raises:
            FleetError: The revoke keys are not here, or all of them are out already.
        """
        trust = self.trust_of(swarm)
        fresh = [node for node in nodes if node not in trust.revoked]
        if not fresh:
            raise FleetError("every one of these nodes is revoked already")
        counter = next_counter(one.counter for one in trust.revocations)
        signed = sign_statement(
            "revoke", Revocation(swarm, counter, tuple(fresh), reason), self.seeds("revoke"), _CRYPTO
        )
        self._check("revoke", signed, swarm)
        digest = decode_envelope(signed).digest.hex()[:8]  # Two desks may draw one counter; both hold.
        path = self._swarm(swarm) / f"revoke-{counter:020}-{digest}"
        write_public(path, signed)
        return Statement("revoke", signed, path)

    def nodes(self, swarm: str) -> list[Certificate]:
        """The newest certificate of every enrolled node, sorted by name."""
        found = {path: _read_certificate(path) for path in self._swarm(swarm).glob("node-*")}
        ranked = sorted(found, key=lambda path: certificate_rank(path.read_bytes()))
        newest = {found[path].name: found[path] for path in ranked}
        return [newest[name] for name in sorted(newest)]

    def find_node(self, swarm: str, text: str) -> list[bytes]:
        """Node ids that a name, or the first eight or more hex digits of an id, stands for.

        A name stands for every key that was ever enrolled under it: whoever has an old one is shut out too.

        Raises:
            FleetError: Nobody is known by it; a full id of 32 digits is always taken.
        """
        all_known = [_read_certificate(path) for path in sorted(self._swarm(swarm).glob("node-*"))]
        if self._dev_secret is not None:
            all_known.append(
                make_dev_identity(self._dev_secret, swarm, text if is_name(text) else "x", _CRYPTO).claims()
            )
        by_name = [certificate.node for certificate in all_known if certificate.name == text]
        if by_name and not re.fullmatch(r"[0-9a-f]{32}", text):
            return sorted(set(by_name))
        if re.fullmatch(r"[0-9a-f]{32}", text):
            return [bytes.fromhex(text)]
        by_id = {c.node for c in all_known if len(text) >= 8 and c.node.hex().startswith(text)}
        if len(by_id) != 1:
            raise FleetError(
                f"{'several nodes' if by_id else 'no node'} of swarm {swarm!r} known as {text!r}; "
                f"`swarmd keys show {self.folder} --swarm {swarm}` lists them"
            )
        return sorted(by_id)

    def statements(self, swarm: str) -> list[tuple[str, bytes]]:
        """Everything that a running node may lack, in an order in which it can be taken."""
        trust = self.trust_of(swarm)
        found = trust.statements()
        signed = [path.read_bytes() for path in sorted(self._swarm(swarm).glob("node-*"))]
        of_name = Counter(read_certificate(one).name for one in signed)
        told = {one for _, one in found}
        again = [one for one in signed if of_name[read_certificate(one).name] > 1 and trust.holds(one)]
        best = [one for one in again if one == trust.certificate_statement(NodeId(read_certificate(one).node))]
        return [*found, *(("node", one) for one in best if one not in told)]

    def swarms(self) -> list[str]:
        """Every swarm that anything was signed for, sorted."""
        return sorted(path.name for path in (self.folder / "swarms").glob("*") if path.is_dir())

    # --- inside ------------------------------------------------------------------------------------------------------

    def _present_keys(self, role: str) -> tuple[list[bytes], list[bytes]]:
        """Seeds that are here, and ids of keys that are not."""
        wanted, _ = self.trust_of(DEV_SWARM).role(role)
        seeds = [key.seed for key in self._given]
        seeds += [read_role_key(path).seed for path in key_files(self.folder, role)]
        if self._dev_secret is not None and role in DEV_ROLES:
            seeds += dev_role_seeds(self._dev_secret, role)
        found: dict[bytes, bytes] = {}
        for seed in seeds:
            found.setdefault(key_id(_CRYPTO.public_key(seed)), seed)
        present = [found[key_id] for key_id in sorted(found) if key_id in wanted]
        return present, [key_id for key_id in sorted(wanted) if key_id not in found]

    def _group_statements(self, swarm: str) -> list[bytes]:
        first = []
        if self._dev_secret is not None:
            first = list(make_dev_identity(self._dev_secret, swarm, "x", _CRYPTO).group_keys)
        return first + [
            read_secret_file(path, "restore it from a copy") for path in sorted(self._swarm(swarm).glob("group-*"))
        ]

    def _swarm(self, swarm: str) -> Path:
        return self.folder / "swarms" / swarm

    def _certificate_counters(self, swarm: str, name: str) -> list[int]:
        known = [_read_certificate(path) for path in self._swarm(swarm).glob("node-*")]
        return [certificate.counter for certificate in known if certificate.name == name]

    def _check(self, kind: str, statement: bytes, swarm: str) -> None:
        """Prove that a member would take a statement, before it is written anywhere."""
        try:
            self.trust_of(swarm).add(kind, statement)
        except IdentityError as error:
            raise FleetError(f"the statement would not hold: {error}; nothing was written") from error


def _is_void(trust: Trust, statement: bytes) -> bool:
    """Whether a statement held once, by keys that were replaced since."""
    chain = trust.chain
    envelope = decode_envelope(statement)
    good = [key for key, _ in chain.verified(envelope).signatures]
    held = any(link.has_threshold(good, ROLE_OF[envelope.kind]) for link in chain.links)
    return held and not chain.counts(chain.verified(envelope))


def _after(group: bytes) -> Sequence[bytes]:
    """The revocations that a group key names."""
    value = read_payload("group", decode_envelope(group).payload)
    return value.after if isinstance(value, GroupKey) else ()


def _read_certificate(path: Path) -> Certificate:
    try:
        return read_certificate(path.read_bytes())
    except IdentityError as error:
        raise FleetError(f"{path}: {error}; restore it from a copy") from error


def next_counter(used: Iterable[int]) -> int:
    """Higher than any before; seconds in 32 bits, since officers at two desks seldom sign in the same one."""
    return max([*(counter + 1 for counter in used), int(time.time())])
