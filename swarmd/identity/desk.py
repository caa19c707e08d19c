"""What officers do with a fleet's folder: prepare statements from it, and put into it what enough of them signed.

    FLEET/officers/NAME.pub        public halves, so that people see names instead of key ids
    FLEET/pending/0001.prepared    a first root on its way; the folder is no fleet before it is submitted

The folder holds no officer's key. Everything is judged by the folder's newest root, under a lock on the folder, before
anything is written; each file appears whole or not at all, and none is ever overwritten. A root that another desk
replaced meanwhile, and a group key under a number that is taken, are refused with what to do.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from swarmd.identity.files import write_public_file, write_secret_file
from swarmd.identity.fleet import Fleet, next_counter
from swarmd.identity.names import check_known, check_name
from swarmd.identity.officers import OfficerKeyError, PublicHalf, distinct, parse_public, read_public
from swarmd.identity.prepared import Prepared, PreparedError, prepare, statement_of
from swarmd.identity.role_keys import FleetError, locked_folder, make_folder
from swarmd.identity.words import parse_root, roles_of
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.releases import statements as models
from swarmd_protocols.trust.envelopes import ROLE_OF, decode_envelope, key_id
from swarmd_protocols.trust.identity import certificate_rank, read_certificate
from swarmd_protocols.trust.payloads import GROUP_KEY_BYTES, Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import ROLES, Root, make_root, mark, root_digest
from swarmd_protocols.trust.trust import Trust

ROLE_NAMES = ("root", *ROLES)
"""Every role that a root may name."""
Holders = Mapping[str, tuple[int, Sequence[PublicHalf]]]
"""Role to how many must sign, and whose keys."""
_CRYPTO = NaClCrypto()
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a statement."""

    kind: str
    statement: bytes
    path: Path
    is_new: bool
    notes: tuple[str, ...] = ()
    """What is to be done next, for people."""


# --- prepare --------------------------------------------------------------------------------------------------------


def prepare_first_root(name: str, holders: Holders) -> Prepared:
    """The root that a fleet begins with.

    Args:
        name: The fleet's name.
        holders: Must name every role; a role that nobody holds can be given later, by a new root.

    Raises:
        DaemonError: A name or a number does not do.
    """
    if "root" not in holders:
        raise FleetError("say who holds the role root: --root NEED PUB...")
    _check_holders(holders)
    return prepare("root", _encode(make_root(check_name(name, "a fleet"), _publics(holders))), b"", _everybody(holders))


def prepare_root(fleet: Fleet, holders: Holders, *, stolen: bool = False, keep: Sequence[Path] = ()) -> Prepared:
    """The next root: these roles change hands, the others stay.

    Args:
        fleet: The fleet.
        holders: The roles that change.
        stolen: Start a new epoch, in which what was signed before counts no more, but for what the folder holds.
        keep: Statement files from elsewhere that are right too.

    Raises:
        DaemonError: A role is unknown, or a number does not do.
    """
    if not holders and not stolen:
        raise FleetError("say which role changes: --role ROLE NEED PUB..., or --stolen for a new epoch")
    _check_holders(holders)
    new = fleet.next_root(_publics(holders), stolen=stolen, keep=keep)
    return prepare(
        "root", _encode(new), fleet.roots()[-1], [*_everybody(holders), *known_halves(fleet)], _kept(fleet, new)
    )


def _kept(fleet: Fleet, new: Root) -> list[bytes]:
    """The statements that a root keeps by name, for the words; group keys are secret and stay here."""
    found = [one for swarm in fleet.swarms() for one in _certificates(fleet, swarm)]
    found += [one for swarm in fleet.swarms() for kind, one in fleet.statements(swarm) if kind == "revoke"]
    return [one for one in dict.fromkeys(found) if mark(decode_envelope(one)) in new.kept]


def prepare_revocation(fleet: Fleet, swarm: str, nodes: Sequence[bytes], reason: str) -> Prepared:
    """Shut nodes out.

    Raises:
        FleetError: All of them are out already.
    """
    trust = fleet.trust_of(swarm)
    fresh = [node for node in nodes if node not in trust.revoked]
    if not fresh:
        raise FleetError("every one of these nodes is revoked already")
    payload = Revocation(swarm, next_counter(()), tuple(fresh), reason)
    spoken_of = [statement for statement in _certificates(fleet, swarm) if read_certificate(statement).node in fresh]
    return _prepare(fleet, "revoke", _encode(payload), spoken_of)


def prepare_group_key(fleet: Fleet, swarm: str) -> Prepared:
    """A new group key; the file holds it."""
    trust = fleet.trust_of(swarm)
    counter = next_counter(trust.group_keys)
    key = secrets.token_bytes(GROUP_KEY_BYTES)
    return _prepare(fleet, "group", _encode(GroupKey(swarm, counter, key, trust.known_first())))


def prepare_certificate(fleet: Fleet, swarm: str, name: str, public: bytes, roles: Sequence[str] = ()) -> Prepared:
    """Let a node in whose key was made elsewhere.

    Args:
        fleet: The fleet.
        swarm: The swarm that it joins.
        name: The node's name; a certificate for a name replaces the older one.
        public: The node's Ed25519 key.
        roles: What it may besides being a member.
    """
    known = [statement for statement in _certificates(fleet, swarm) if read_certificate(statement).name == name]
    counter = next_counter(read_certificate(statement).counter for statement in known)
    payload = Certificate(node_id_of(public), public, check_name(name, "a node"), tuple(roles), swarm, counter)
    return _prepare(fleet, "node", _encode(payload), known)


def prepare_again(fleet: Fleet, swarm: str, name: str) -> Prepared:
    """The newest certificate of a name once more, for the keys in force to sign: the node keeps its key.

    Raises:
        FleetError: Nobody is enrolled by the name, or the node is revoked.
    """
    newest = next((one for one in fleet.nodes(swarm) if one.name == name), None)
    newest = check_renewable(newest, fleet.trust_of(swarm), swarm, name)
    return prepare_certificate(fleet, swarm, name, newest.public_key, newest.roles)


def check_renewable(newest: Certificate | None, trust: Trust, swarm: str, name: str) -> Certificate:
    """The newest certificate of a name, where it may be signed anew.

    Raises:
        FleetError: Nobody is enrolled by the name, or the node is revoked.
    """
    if newest is None:
        raise FleetError(f"nobody is enrolled as {name!r} in swarm {swarm}; `swarmd keys show` lists who is")
    if newest.node in trust.revoked:
        raise FleetError(f"{name!r} is revoked in swarm {swarm}; to let the device in again make it a new key")
    return newest


def certificate_path(folder: Path, certificate: Certificate, payload: bytes) -> Path:
    """Where a certificate lies in a fleet's folder."""
    digest = blake2b(payload, digest_size=4).hexdigest()
    return folder / "swarms" / certificate.swarm / f"node-{certificate.name}-{certificate.node.hex()[:8]}-{digest}"


def prepare_model_statement(fleet: Fleet, kind: str, payload: bytes) -> Prepared:
    """A statement about models.

    Raises:
        FleetError: It names another epoch than the fleet's root.
    """
    statement = models.parse_statement(kind, payload)
    epoch = fleet.root().epoch
    if statement.epoch != epoch:
        raise FleetError(
            f"the statement is of epoch {statement.epoch}; the fleet's root is of epoch {epoch}: nobody takes it"
        )
    return _prepare(fleet, kind, payload)


def officers(fleet: Fleet) -> dict[bytes, str]:
    """Key id to name of all whose public half lies in the folder."""
    return {half.key_id: half.name for half in known_halves(fleet)}


def check_role(fleet: Fleet, role: str, half: PublicHalf) -> None:
    """Refuse a key that the fleet's root does not name for a role.

    Raises:
        FleetError: Names the roles that it has, and whose keys it takes.
    """
    roles, names = roles_of(fleet.root()), officers(fleet)
    if role in roles and half.key_id in roles[role].key_ids:
        return
    held = [name for name, one in sorted(roles.items()) if half.key_id in one.key_ids]
    is_of = f"is a key of {', '.join(held)}" if held else "is no key of this fleet"
    who = ", ".join(sorted(names.get(key, key.hex()[:8]) for key in roles[role].key_ids)) if role in roles else "nobody"
    raise FleetError(f"{half.name} {is_of}; this takes keys of the role {role}: {who}; nothing was signed")


def known_halves(fleet: Fleet) -> list[PublicHalf]:
    """The public halves that lie in the folder."""
    found = []
    for path in sorted((fleet.folder / "officers").glob("*.pub"))[:256]:
        with contextlib.suppress(OfficerKeyError):
            found.append(read_public(path))
    return found


def _prepare(fleet: Fleet, kind: str, payload: bytes, certificates: Sequence[bytes] = ()) -> Prepared:
    root = fleet.root()
    role = ROLE_OF[kind]
    if role not in roles_of(root):
        raise FleetError(
            f"root {root.version} names no keys for the role {role}; give it some: swarmd keys prepare root"
        )
    concerned = set(roles_of(root)[role].key_ids)
    halves = [half for half in known_halves(fleet) if half.key_id in concerned]
    return prepare(kind, payload, fleet.roots()[-1], halves, certificates[:1_024])


def _check_holders(holders: Holders) -> None:
    for role, (need, halves) in holders.items():
        check_known(role, ROLE_NAMES, "role")
        distinct([half for half in halves if half.name != "-"])
        if not 1 <= need <= len(halves) <= 16:
            raise FleetError(f"role {role}: {need} of {len(halves)} keys cannot sign; 1 <= needed <= keys <= 16")
    distinct(_everybody(holders))


def _publics(holders: Holders) -> dict[str, tuple[int, list[bytes]]]:
    return {role: (need, [half.public for half in halves]) for role, (need, halves) in holders.items()}


def _everybody(holders: Holders) -> list[PublicHalf]:
    """Each named half once."""
    return list(dict.fromkeys(half for _, halves in holders.values() for half in halves if half.name != "-"))


def _certificates(fleet: Fleet, swarm: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((fleet.folder / "swarms" / swarm).glob("node-*"))]


def node_rows(fleet: Fleet, swarm: str) -> list[dict[str, object]]:
    """Every key that was ever enrolled in a swarm: its name, its state, and why it is out."""
    trust = fleet.trust_of(swarm)
    reasons: dict[bytes, str] = {}
    for kind, statement in trust.statements():
        if kind == "revoke":
            out = msgspec.msgpack.decode(decode_envelope(statement).payload, type=Revocation)
            reasons |= dict.fromkeys(out.nodes, out.reason)
    found = map(read_certificate, sorted(_certificates(fleet, swarm), key=certificate_rank))
    newest = {one.node: one for one in found}
    rows = []
    for one in sorted(newest.values(), key=lambda one: (one.name, one.counter)):
        state = "revoked" if one.node in trust.revoked else "in force" if trust.certified(NodeId(one.node)) else "void"
        rows.append(
            {
                "swarm": swarm,
                "name": one.name,
                "node": one.node.hex(),
                "roles": list(one.roles),
                "state": state,
                "revoked": state == "revoked",
                "reason": reasons.get(one.node, ""),
            }
        )
    return rows


# --- submit ---------------------------------------------------------------------------------------------------------


def submit(folder: Path, prepared: Prepared) -> Submitted:
    """Put a statement that enough officers signed into a fleet's folder.

    Args:
        folder: The fleet's; a first root makes it.
        prepared: The statement.

    Returns:
        What was done; `is_new` is False where the folder held the very statement already.

    Raises:
        PreparedError: Too few have signed, or another desk's statement stands in its place. Nothing was written.
        FleetError: No node would take it. Nothing was written.
    """
    with locked_folder(folder, make=prepared.kind == "root" and not prepared.root):
        if prepared.kind == "root":
            return _submit_root(folder, prepared)
        fleet = Fleet(folder)
        if prepared.kind not in ("node", "group", "revoke"):
            data = statement_of(prepared, fleet.root())
            path = folder / "statements" / f"{prepared.kind}-{_digest(prepared)}.swm"
            return _put(path, prepared, data)
        return _submit_trust(fleet, prepared)


def _submit_root(folder: Path, prepared: Prepared) -> Submitted:
    root = parse_root(prepared.payload)
    path = folder / "roots" / f"{root.version:04}.root"
    if not path.exists() and (folder / "fleet.secret").exists():
        raise FleetError(f"{folder} is a development fleet; its keys derive from one secret and no officer holds them")
    if path.exists():
        if decode_envelope(path.read_bytes()).payload == prepared.payload:
            # Whoever was killed in between has put nothing aside.
            return Submitted("root", path.read_bytes(), path, is_new=False, notes=tuple(_put_aside(Fleet(folder))))
        raise PreparedError(
            f"{path} is another root {root.version}, from another desk: whatever you changed is not in it; prepare "
            "yours anew, upon that one"
        )
    if root.version == 1:
        data = statement_of(prepared)
        _check_chain([data])
        _write_officers(folder, prepared)
        _write_public(path, data)
        return Submitted("root", data, path, is_new=True)
    fleet = Fleet(folder)
    if prepared.root != fleet.roots()[-1] and root_digest(prepared.root) != root_digest(fleet.roots()[-1]):
        raise PreparedError(f"it follows another root than the newest of {folder} (root {fleet.root().version})")
    data = statement_of(prepared, fleet.root())
    _check_chain([*fleet.roots(), data])
    _write_officers(folder, prepared)
    _write_public(path, data)
    return Submitted("root", data, path, is_new=True, notes=tuple(_put_aside(fleet)))


def _submit_trust(fleet: Fleet, prepared: Prepared) -> Submitted:
    data = statement_of(prepared, fleet.root())
    swarm = _swarm_of(prepared)
    place = fleet.folder / "swarms" / swarm
    digest = _digest(prepared)
    match prepared.kind:
        case "revoke":
            counter = msgspec.msgpack.decode(prepared.payload, type=Revocation).counter
            path = place / f"revoke-{counter:020}-{digest}"
        case "node":
            certificate = read_certificate(data)
            path = certificate_path(fleet.folder, certificate, prepared.payload)
            if not path.exists():
                _check_newer(fleet, certificate)
        case _:
            counter = msgspec.msgpack.decode(prepared.payload, type=GroupKey).counter
            path = place / f"group-{counter:020}"
            if path.exists() and decode_envelope(path.read_bytes()).payload != prepared.payload:
                raise PreparedError(
                    f"swarm {swarm} has another group key of number {counter}, from another desk; nothing was written: "
                    "that one will do, or prepare another"
                )
    trust = fleet.trust_of(swarm)
    try:
        if prepared.kind == "node" and not path.exists():
            trust.admit_certificate(data)  # Refuses a node that is out, too.
        else:
            trust.add(prepared.kind, data)
    except IdentityError as error:
        raise FleetError(f"no node would take it: {error}; nothing was written") from error
    done = _put(path, prepared, data, is_secret=prepared.kind == "group")
    return replace(done, notes=tuple(_next_steps(fleet, prepared, swarm)))


def _check_newer(fleet: Fleet, certificate: Certificate) -> None:
    """Refuse what would not replace the certificate in force of its name, or would by chance alone.

    Raises:
        PreparedError: Another desk's has its number, or a higher one.
    """
    held = next((one for one in fleet.nodes(certificate.swarm) if one.name == certificate.name), None)
    if held is None or held.counter < certificate.counter:
        return
    if fleet.trust_of(certificate.swarm).certified(NodeId(held.node)) is not None:
        raise PreparedError(
            f"swarm {certificate.swarm} has another certificate of {certificate.name!r}, from another desk, number "
            f"{held.counter}, for node {held.node.hex()}; this one has number {certificate.counter}; nothing was "
            "written: that one counts, or prepare this one anew"
        )


def _next_steps(fleet: Fleet, prepared: Prepared, swarm: str) -> list[str]:
    """What a statement leaves to do."""
    if prepared.kind == "revoke":
        return [f"who is out knows the group key: swarmd keys prepare group-key {fleet.folder} --swarm {swarm} -o FILE"]
    if prepared.kind == "node":
        name = msgspec.msgpack.decode(prepared.payload, type=Certificate).name
        return [f"for the device: swarmd keys enrolment {fleet.folder} {name} --swarm {swarm} -o {name}.enrolment"]
    return []


def _swarm_of(prepared: Prepared) -> str:
    kinds: dict[str, type[Revocation] | type[Certificate] | type[GroupKey]] = {
        "revoke": Revocation,
        "node": Certificate,
        "group": GroupKey,
    }
    return check_name(msgspec.msgpack.decode(prepared.payload, type=kinds[prepared.kind]).swarm, "a swarm")


def _put(path: Path, prepared: Prepared, data: bytes, *, is_secret: bool = False) -> Submitted:
    if path.exists():
        return Submitted(prepared.kind, path.read_bytes(), path, is_new=False)
    make_folder(path.parent)
    (write_secret_file if is_secret else write_public_file)(path, data)
    return Submitted(prepared.kind, data, path, is_new=True)


def _put_aside(fleet: Fleet) -> list[str]:
    """Move what the newest root no longer stands behind into `former/`; say what is to be signed again."""
    notes = []
    chain = fleet.roots()
    for swarm in fleet.swarms():
        trust = Trust(swarm, chain, _CRYPTO)
        place = fleet.folder / "swarms" / swarm
        fell: list[Path] = []
        for kind in ("revoke", "group"):
            for path in sorted(place.glob(f"{kind}-*")):
                try:
                    trust.add(kind, path.read_bytes())
                except IdentityError:
                    fell.append(path)
        for path in sorted(fell):  # Group keys before the revocations that they name: what is left stands for itself.
            (place / "former").mkdir(mode=0o700, exist_ok=True)
            path.rename(place / "former" / path.name)
        known = [one for one in _certificates(fleet, swarm) if read_certificate(one).node not in trust.revoked]
        names = {read_certificate(one).name for one in known}
        void = len(names - {read_certificate(one).name for one in known if trust.holds(one)})
        again = f"{fleet.folder} --swarm {swarm}"
        if any(path.name.startswith("revoke-") for path in fell):
            notes.append(f"swarm {swarm}: say again who is out: swarmd keys prepare revoke {again} --again")
        groups = sorted(path.name for path in place.rglob("group-*"))
        if groups and not (place / groups[-1]).exists():  # Also where somebody was killed after it was put aside.
            notes.append(f"swarm {swarm}: make a group key: swarmd keys prepare group-key {again}")
        if void:
            notes.append(f"swarm {swarm}: {void} certificates are void under this root; enrol those nodes again")
    return notes


def formerly_revoked(fleet: Fleet, swarm: str) -> list[bytes]:
    """Nodes that keys which were replaced since have shut out, and the keys in force have not."""
    now = fleet.trust_of(swarm).revoked
    found: set[bytes] = set()
    for path in sorted((fleet.folder / "swarms" / swarm / "former").glob("revoke-*")):
        payload = decode_envelope(path.read_bytes()).payload
        found.update(msgspec.msgpack.decode(payload, type=Revocation).nodes)
    return sorted(found - now)


def _check_chain(roots: Sequence[bytes]) -> None:
    try:
        Trust("check", roots, _CRYPTO)
    except IdentityError as error:
        raise FleetError(f"no node would take this root: {error}; nothing was written") from error


def _write_officers(folder: Path, prepared: Prepared) -> None:
    """Keep the public halves of whoever holds a role by this root; another key under a known name gets its id added."""
    keys = {key_id(key) for key in parse_root(prepared.payload).keys}
    known = {half.key_id for half in map(read_public, (folder / "officers").glob("*.pub"))}
    for line in prepared.officers:
        half = parse_public(line)
        if half.key_id not in keys or half.key_id in known:
            continue
        path = folder / "officers" / f"{half.name}.pub"
        if path.exists():
            path = path.with_name(f"{half.name}-{half.key_id.hex()[:8]}.pub")
        _write_public(path, f"{half.line}\n".encode("ascii"))


def _digest(prepared: Prepared) -> str:
    return blake2b(prepared.payload, digest_size=4).hexdigest()


def _write_public(path: Path, data: bytes) -> None:
    make_folder(path.parent)
    write_public_file(path, data)
