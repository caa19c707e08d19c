"""Officers' keys as files, and how a fleet's files are written: each whole or absent, and nothing is overwritten.

swarmd-role-key-1
role ROLE
seed 64 HEX DIGITS
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.identity.files import read_secret_file, write_public_file, write_secret_file
from swarmd_protocols.crypto import SEED_BYTES, NaClCrypto
from swarmd_protocols.trust.envelopes import key_id

ROLE_HEADER = "swarmd-role-key-1"
"""A role key of an all-in-one folder: not sealed, and it says which role it is for."""
_CRYPTO = NaClCrypto()


class FleetError(DaemonError):
    """The fleet's files do not allow what was asked; nothing has changed."""


@dataclass(frozen=True, slots=True)
class RoleKey:
    """One officer's key."""

    role: str
    seed: bytes = field(repr=False)

    @property
    def public(self) -> bytes:
        """The Ed25519 public key, 32 bytes."""
        return _CRYPTO.public_key(self.seed)

    @property
    def key_id(self) -> bytes:
        """What signatures name it by, 16 bytes."""
        return key_id(self.public)


def read_role_key(path: Path) -> RoleKey:
    """Read one officer's key.

    Raises:
        IdentityFileError: It is missing or can be read by others.
        FleetError: It is no role key.
    """
    lines = read_secret_file(path, "give the role key's file").decode("ascii", "replace").split("\n")
    try:
        if lines[0] != ROLE_HEADER or not lines[1].startswith("role ") or not lines[2].startswith("seed "):
            raise ValueError
        seed = bytes.fromhex(lines[2].removeprefix("seed "))
        if len(seed) != SEED_BYTES:
            raise ValueError
    except (ValueError, IndexError) as error:
        raise FleetError(f"{path} is no role key of swarmd; it starts with {ROLE_HEADER}") from error
    return RoleKey(lines[1].removeprefix("role "), seed)


def write_role_key(path: Path, key: RoleKey) -> None:
    """Write one officer's key, 0600; refuses to overwrite."""
    refuse_existing(path)
    write_secret_file(path, f"{ROLE_HEADER}\nrole {key.role}\nseed {key.seed.hex()}\n".encode("ascii"))


def draw_keys(role: str, need: int, count: int) -> list[RoleKey]:
    """So many new keys of a role.

    Raises:
        FleetError: The name or the numbers make no sense.
    """
    if not re.fullmatch(r"[a-z][a-z-]{0,31}", role):
        raise FleetError(f"{role!r} cannot name a role; lower-case letters and dashes")
    if not 1 <= need <= count <= 16:
        raise FleetError(f"role {role!r}: {need} of {count} keys cannot sign; 1 <= needed <= keys <= 16")
    return [RoleKey(role, secrets.token_bytes(SEED_BYTES)) for _ in range(count)]


def key_files(folder: Path, role: str) -> list[Path]:
    """The files of a role's keys in a fleet's folder, sorted by name."""
    return [path for path in sorted((folder / "keys").glob(f"{role}-*.key")) if key_number(path)]


def key_number(path: Path) -> int:
    """Which of its role's keys a file holds; 0 for a file of another name."""
    text = path.stem.rpartition("-")[2]
    return int(text) if text.isdigit() else 0


def key_path(folder: Path, role: str, number: int) -> Path:
    """Where a role's key lies in a fleet's folder."""
    return folder / "keys" / f"{role}-{number}.key"


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters; no matter if it is there.

    Raises:
        FleetError: The system refuses.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FleetError(f"cannot make {folder}: {error.strerror}") from error


def refuse_existing(path: Path) -> None:
    """Make the folder of a file that must not be there yet.

    Raises:
        FleetError: It is there.
    """
    make_folder(path.parent)
    if path.exists():
        raise FleetError(f"{path} exists already; nothing was written")


def write_public(path: Path, data: bytes) -> None:
    """Write a file that everybody may read.

    Raises:
        FleetError: It is there already.
    """
    refuse_existing(path)
    write_public_file(path, data)


@contextlib.contextmanager
def locked_folder(folder: Path, *, make: bool = False) -> Iterator[None]:
    """One desk at a time decides and writes; the lock ends with the descriptor, also when the process dies.

    Raises:
        FleetError: The folder cannot be made or opened.
    """
    if make:
        make_folder(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FleetError(f"cannot open {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def certifying(fleet: Path) -> contextlib.AbstractContextManager[None]:
    """One at a time certifies nodes of a fleet, from the look at who is enrolled to the record of it.

    Of two certificates with one number nobody could say which is void.

    Raises:
        FleetError: The folder cannot be made or opened.
    """
    return locked_folder(fleet / "swarms", make=True)


@contextlib.contextmanager
def all_or_none(last: Path) -> Iterator[list[Path]]:
    """Take back the keys that were written where the root that names them is not: they are of no use."""
    written: list[Path] = []
    try:
        yield written
    except BaseException:
        if not last.exists():
            for path in written:
                path.unlink(missing_ok=True)
        raise
