"""A node's key made on the device itself: nobody else ever has it.

    device    swarmd keys node new DIR --name drone-1          DIR/node.seed, 0600, and DIR/drone-1.pub to hand over
    officer   swarmd keys enrol FLEET drone-1 --public drone-1.pub --swarm farm --out DIR     DIR/drone-1.enrolment
    device    swarmd keys node install DIR drone-1.enrolment   DIR/node.identity; the seed's file goes

An enrolment holds the certificate, the root chain, the group keys and who is out: what an identity holds besides the
seed. It is secret by its group keys, and of no use for any other key.
"""

import secrets
from pathlib import Path

import msgspec

from swarmd.errors import DaemonError
from swarmd.identity.files import (
    IDENTITY_FILE,
    load_identity,
    read_secret_file,
    write_public_file,
    write_secret_file,
)
from swarmd.identity.fleet import Fleet
from swarmd.identity.names import check_name
from swarmd.identity.officers import PublicHalf, write_pair
from swarmd_protocols.crypto import SEED_BYTES, NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust.identity import Identity, certificate_rank, read_certificate

SEED_FILE = "node.seed"
ENROLMENT_MAX_BYTES = 4 << 20
"""Bytes; what an identity's file may have."""
_HEADER = b"swarmd-enrolment-1\n"
_SEED_HEADER = b"swarmd-node-seed-1\n"
_CRYPTO = NaClCrypto()


class EnrolmentError(DaemonError):
    """A key or an enrolment cannot be used; nothing has changed."""


class Enrolment(msgspec.Struct, frozen=True, array_like=True):
    """What an officer gives to a device."""

    certificate: bytes
    roots: tuple[bytes, ...]
    group_keys: tuple[bytes, ...]
    revocations: tuple[bytes, ...]


def new_node_key(folder: Path, name: str) -> PublicHalf:
    """Draw a device's key.

    Args:
        folder: Where the identity will lie.
        name: The node's name.

    Returns:
        The public half, which also lies in `NAME.pub`.

    Raises:
        EnrolmentError: There is a key or an identity already.
    """
    check_name(name, "a node")
    public = folder / f"{name}.pub"
    if (folder / SEED_FILE).exists() and not public.exists() and not (folder / IDENTITY_FILE).exists():
        # A run that was killed between the two files.
        half = PublicHalf(_CRYPTO.public_key(read_node_key(folder)), name)
        write_public_file(public, f"{half.line}\n".encode("ascii"))
        return half
    for there in (folder / IDENTITY_FILE, folder / SEED_FILE, public):
        if there.exists():
            raise EnrolmentError(f"{there} exists already; a key is never overwritten")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seed = secrets.token_bytes(SEED_BYTES)
    half = PublicHalf(_CRYPTO.public_key(seed), name)
    write_pair(folder / SEED_FILE, _SEED_HEADER + seed, public, half)
    return half


def read_node_key(folder: Path) -> bytes:
    """The seed that `new_node_key` left.

    Raises:
        IdentityFileError: There is none, or others can read it.
        EnrolmentError: The file is something else.
    """
    held = read_secret_file(folder / SEED_FILE, "make the key first: swarmd enrol, or swarmd keys node new")
    if not held.startswith(_SEED_HEADER) or len(held) != len(_SEED_HEADER) + SEED_BYTES:
        raise EnrolmentError(f"{folder / SEED_FILE} is no node's key; remove it and make another")
    return held[len(_SEED_HEADER) :]


def make_enrolment(fleet: Fleet, swarm: str, name: str) -> bytes:
    """What the node that holds this name in the swarm needs.

    Args:
        fleet: The fleet's folder; the certificate lies in it.
        swarm: The swarm.
        name: The node's name.

    Raises:
        EnrolmentError: Nobody of this name is enrolled, the node is revoked, or the swarm has no group key.
    """
    place = fleet.folder / "swarms" / swarm
    found = [path.read_bytes() for path in sorted(place.glob("node-*"))]
    own = [statement for statement in found if read_certificate(statement).name == name]
    if not own:
        raise EnrolmentError(f"nobody is enrolled as {name!r} in swarm {swarm}; `swarmd keys show` lists who is")
    newest = max(own, key=certificate_rank)
    trust = fleet.trust_of(swarm)
    if read_certificate(newest).node in trust.revoked:
        raise EnrolmentError(
            f"{name!r} is revoked in swarm {swarm}, and an enrolment would hand it the group key; "
            "to let the device in again make it a new key: swarmd keys node new"
        )
    known = trust.statements()
    groups = tuple(statement for kind, statement in known if kind == "group")
    if not groups:
        raise EnrolmentError(f"swarm {swarm} has no group key; make one first: swarmd keys prepare group-key")
    revocations = tuple(statement for kind, statement in known if kind == "revoke")
    whole = Enrolment(newest, tuple(fleet.roots()), groups, revocations)
    return _HEADER + msgspec.msgpack.encode(whole)


def decode_enrolment(data: bytes) -> Enrolment:
    """Read an enrolment.

    Raises:
        EnrolmentError: It is none.
    """
    if not data.startswith(_HEADER) or len(data) > ENROLMENT_MAX_BYTES:
        raise EnrolmentError("not an enrolment of swarmd (it starts with swarmd-enrolment-1)")
    try:
        return msgspec.msgpack.decode(data[len(_HEADER) :], type=Enrolment)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EnrolmentError(f"the enrolment is damaged: {error}") from error


def install(folder: Path, data: bytes) -> Identity:
    """Make a device's identity of its own key and an enrolment; the key's file goes last.

    Args:
        folder: Where `new_node_key` left the key.
        data: The enrolment.

    Raises:
        EnrolmentError: The enrolment is another key's, or does not hold.
    """
    path = folder / IDENTITY_FILE
    if path.exists():
        identity = load_identity(folder)
        if (folder / SEED_FILE).exists() and read_node_key(folder) == identity.seed:
            (folder / SEED_FILE).unlink()  # A run that was killed between the two files.
            return identity
        raise EnrolmentError(f"{path} exists already; remove it if the node is to get a new identity")
    seed = read_node_key(folder)
    given = decode_enrolment(data)
    identity = Identity(seed, given.certificate, given.roots, given.group_keys, given.revocations)
    try:
        identity.trust(_CRYPTO)
    except IdentityError as error:
        raise EnrolmentError(f"the enrolment does not fit this device: {error}") from error
    write_secret_file(path, identity.to_bytes())
    (folder / SEED_FILE).unlink()
    return identity
