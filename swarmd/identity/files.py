"""A node's identity on disk: a 0600 file, a systemd credential, or a throw-away fleet for development.

    DIR/node.identity        the node's seed, certificate, root chain and group keys; 0600
    DIR/fleet.secret         of a development fleet alone: whoever reads it owns the fleet; 0600

A secret never travels by argument or environment: both are readable by others on the device. Files that others can
read are refused, and a file appears whole or not at all.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from swarmd.durable import sync_folder
from swarmd.errors import DaemonError
from swarmd.identity.names import check_name
from swarmd.transports.curve import CurveKeys
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.trust.identity import Identity, group_curve_keys, make_dev_identity

IDENTITY_FILE = "node.identity"
FLEET_SECRET_FILE = "fleet.secret"
DEV_SWARM = "dev"
_FLEET_SECRET_BYTES = 32
_FLEET_HEADER = b"swarmd-dev-fleet-1\n"
_FILE_MAX_BYTES = 4 * 1024 * 1024
_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}")
DRAFT_S = 60.0
"""Seconds after which a draft is nobody's: a write takes milliseconds, and its writer may be stopped for a while."""


class IdentityFileError(DaemonError):
    """An identity cannot be read or written; nothing has changed."""


def load_identity(directory: Path) -> Identity:
    """Read and check the identity that `swarmd keys enrol` wrote.

    Args:
        directory: Holds `node.identity`, or is that file itself.

    Returns:
        An identity whose certificate, root chain and group keys hold.

    Raises:
        IdentityFileError: Names the file, what is wrong with it, and the remedy.
    """
    path = directory / IDENTITY_FILE if directory.is_dir() or not directory.exists() else directory
    return _parse(path, read_secret_file(path, "enrol this node: swarmd enrol, or swarmd keys enrol"))


def load_credentials() -> Identity | None:
    """Read the identity that systemd hands over.

    Either `LoadCredential=node.identity:FILE`, or the whole folder by `LoadCredential=swarmd:FOLDER`, as our unit does:
    the folder may be empty, and systemd then names each file `swarmd_<file>`.

    Returns:
        The identity; None where no such credential was handed over.

    Raises:
        IdentityFileError: It was handed over and does not hold.
    """
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")  # A path, not a secret.
    places = [Path(directory) / name for name in (IDENTITY_FILE, f"swarmd_{IDENTITY_FILE}")] if directory else []
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return None
    try:
        return _parse(path, path.read_bytes()[: _FILE_MAX_BYTES + 1])
    except OSError as error:
        raise IdentityFileError(f"cannot read the credential {path}: {error.strerror}; see LoadCredential=") from error


def open_dev_fleet(directory: Path, name: str, swarm: str = DEV_SWARM, roles: Sequence[str] = ()) -> Identity:
    """Enrol a node by its name in a throw-away fleet, which is created on first use.

    Safe for many processes at once. The same directory, swarm and name give the same identity, so that a restarted
    process is the same node.

    Args:
        directory: Made if absent; whoever can read it owns the fleet.
        name: The node's name, unique in the swarm.
        swarm: The swarm's name.
        roles: What the certificate allows besides membership.

    Returns:
        The node's identity.

    Raises:
        IdentityFileError: Names the file, what is wrong with it, and the remedy.
        NameRefused: The name does not do.
    """
    check_name(name, "a node")
    secret = dev_fleet_secret(directory)
    try:
        return make_dev_identity(secret, swarm, name, NaClCrypto(), roles=roles)
    except IdentityError as error:
        raise IdentityFileError(f"cannot enrol {name!r} in the development fleet {directory}: {error}") from error


def dev_fleet_secret(directory: Path) -> bytes:
    """The secret of a development fleet, drawn on first use.

    Raises:
        IdentityFileError: The directory or the file cannot be made or read.
    """
    path = directory / FLEET_SECRET_FILE
    remedy = f"remove {directory} for a new fleet"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(directory):
            if not path.exists():
                write_secret_file(path, _FLEET_HEADER + secrets.token_bytes(_FLEET_SECRET_BYTES))
            data = read_secret_file(path, remedy)
    except OSError as error:
        raise IdentityFileError(f"cannot use the development fleet {directory}: {error.strerror}") from error
    if not data.startswith(_FLEET_HEADER) or len(data) != len(_FLEET_HEADER) + _FLEET_SECRET_BYTES:
        raise IdentityFileError(f"{path} is no development fleet's secret; {remedy}")
    return data[len(_FLEET_HEADER) :]


def dev_fleet_warning(directory: Path) -> str:
    """What to tell the operator, loudly, when a node runs in a development fleet."""
    return (
        f"DEVELOPMENT FLEET: whoever can read {directory} can join, command and revoke this swarm. "
        "Use `swarmd keys` and --identity for anything that flies."
    )


def curve_keys(identity: Identity, group_keys: Sequence[bytes] = ()) -> CurveKeys:
    """The CURVE keys of a node.

    Args:
        identity: The node's own.
        group_keys: All raw group keys that the node holds by now, newest first; those of the identity where empty.

    Returns:
        The newest group key's pair, the public halves of the older ones, and the node's own pair.
    """
    known = group_keys or _group_keys_of(identity)
    newest, *older = [group_curve_keys(key) for key in known]
    return CurveKeys(*newest, *identity.curve_keys(), tuple(public for public, _ in older))


def _group_keys_of(identity: Identity) -> list[bytes]:
    groups = identity.trust(NaClCrypto()).group_keys
    return [groups[counter].key for counter in sorted(groups, reverse=True)]


def read_secret_file(path: Path, remedy: str) -> bytes:
    """Read a file that only its owner may read.

    Args:
        path: A regular file of ours or of root's, mode 0600 or stricter, at most 4 MiB.
        remedy: What to do when there is none.

    Raises:
        IdentityFileError: It is missing, readable by others, somebody else's, or no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise IdentityFileError(f"there is no {path}; {remedy}") from error
    except OSError as error:
        cause = "it is a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or errno.EIO)
        raise IdentityFileError(f"cannot read {path}: {cause}") from error
    try:
        _check_private(path, os.fstat(descriptor))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(_FILE_MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def write_secret_file(path: Path, data: bytes) -> None:
    """Write a 0600 file so that it appears whole or not at all, and lasts.

    Raises:
        IdentityFileError: The folder cannot be written; the old file, if any, is untouched.
    """
    _write(path, data, 0o600)


def write_public_file(path: Path, data: bytes) -> None:
    """Write a file that everybody may read, as `write_secret_file` does."""
    _write(path, data, 0o644)


def read_to_rewrite(path: Path) -> tuple[bytes, os.stat_result]:
    """What a regular file says, not behind a link, and whose it is: for `rewrite_file`.

    Raises:
        IdentityFileError: It cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(), os.fstat(file.fileno())
    except OSError as error:
        raise IdentityFileError(f"cannot read {path}: {os.strerror(error.errno or errno.EIO)}") from error


def rewrite_file(path: Path, data: bytes, held: os.stat_result) -> None:
    """Write a file anew as `write_secret_file` does; owner and mode are those of the file that was read.

    They go to the new file before it has a name: whose folder it is may put a link to another's there at any moment.
    """
    _write(path, data, stat.S_IMODE(held.st_mode) & 0o777, (held.st_uid, held.st_gid))


def write_named_file(path: Path, data: bytes) -> None:
    """Write where a user said: a file, also behind a link, whole or not at all; a pipe or a terminal as it is.

    Raises:
        IdentityFileError: The file cannot be written; what was there stays as it was.
        OSError: A pipe or a terminal does not take it.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # /dev/stdout: nothing takes its place.
    else:
        write_public_file(path.resolve(), data)


def _write(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    _sweep(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if owner is not None:
                    with contextlib.suppress(OSError):  # Only root gives files away.
                        os.fchown(file.fileno(), *owner)
                os.fchmod(file.fileno(), mode)  # Whatever the umask was.
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise IdentityFileError(f"cannot write {path}: {os.strerror(error.errno or errno.EIO)}") from error


def _sweep(folder: Path) -> None:
    """Remove drafts of writers that were killed: they may hold secrets, and nobody else would ever look at them."""
    with contextlib.suppress(OSError):
        for draft in folder.glob(".*"):
            if _DRAFT.fullmatch(draft.name) and time.time() - draft.lstat().st_mtime > DRAFT_S:
                draft.unlink(missing_ok=True)


def _parse(path: Path, data: bytes) -> Identity:
    if len(data) > _FILE_MAX_BYTES:
        raise IdentityFileError(f"{path} exceeds {_FILE_MAX_BYTES} bytes; it is no identity")
    try:
        identity = Identity.from_bytes(data)
        identity.trust(NaClCrypto())
    except IdentityError as error:
        raise IdentityFileError(f"{path} does not hold: {error}; enrol this node anew") from error
    return identity


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise IdentityFileError(f"{path} is no regular file; a secret lies in one")
    if status.st_uid not in (os.geteuid(), 0):
        raise IdentityFileError(f"{path} belongs to user {status.st_uid}; `chown` it to the user that runs swarmd")
    if status.st_mode & 0o077:
        raise IdentityFileError(f"{path} can be read by others (mode {status.st_mode & 0o777:04o}); `chmod 600 {path}`")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Exclusive among processes; the lock ends with the descriptor, also when a process dies."""
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
