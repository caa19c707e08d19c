"""An officer's key: made on the officer's own machine, sealed by a passphrase; everybody else gets the public half.

The public half is one line as OpenSSH writes it, so a key of `ssh-keygen -t ed25519` serves as well:

    ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI... alice

The key itself is a small text file, 0600:

    swarmd-officer-key-1
    ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI... alice
    argon2id OPERATIONS MEMORY_KIB SALT
    sealed NONCE_AND_SEALED_SEED

The sealing key is BLAKE2b over the first three lines under what Argon2id makes of the passphrase: nobody can change a
line, or ask for less work, without knowing the passphrase. A passphrase comes from the terminal, a file descriptor or a
systemd credential; never from an argument or the environment, which others on the machine can read.
"""

import base64
import binascii
import getpass
import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

from nacl import bindings, exceptions, pwhash

from swarmd.errors import DaemonError
from swarmd.identity import ssh_agent
from swarmd.identity.files import read_secret_file, write_public_file, write_secret_file
from swarmd.identity.names import check_name, is_name
from swarmd_protocols.crypto import NONCE_BYTES, SEED_BYTES, NaClCrypto
from swarmd_protocols.trust.envelopes import key_id

HEADER = "swarmd-officer-key-1"
PASSPHRASE_MIN_CHARS = 10
"""Characters; with Argon2id at 256 MiB a guess costs half a second of a core, so ten random letters last."""
PASSPHRASE_MAX_BYTES = 1_024
"""Bytes read of a descriptor or a credential."""
PUBLIC_MAX_BYTES = 4_096
"""Bytes of a public half's or a key's file; an OpenSSH line of Ed25519 has about 100."""
_SALT_BYTES = pwhash.argon2id.SALTBYTES
_OPERATIONS = pwhash.argon2id.OPSLIMIT_MODERATE
_MEMORY_KIB = pwhash.argon2id.MEMLIMIT_MODERATE // 1024
"""KiB; libsodium's "moderate": 256 MiB and 0.58 s of a server's core, which a guessing rig feels."""
_OPERATIONS_MAX, _MEMORY_MAX_KIB = 16, 1 << 20
"""What a file from outside may make us spend: 1 GiB."""
_SEALED_BYTES = NONCE_BYTES + SEED_BYTES + 16
_CRYPTO = NaClCrypto()


class OfficerKeyError(DaemonError):
    """A key or its public half cannot be used; nothing was signed or written."""


@dataclass(frozen=True, slots=True)
class PublicHalf:
    """What an officer hands over."""

    public: bytes
    """The Ed25519 key, 32 bytes."""
    name: str
    """Whose it is, for people; no signature covers it."""

    @property
    def key_id(self) -> bytes:
        """What signatures name it by, 16 bytes."""
        return key_id(self.public)

    @property
    def line(self) -> str:
        """The form in which it is handed over."""
        blob = base64.b64encode(ssh_agent.public_blob(self.public)).decode("ascii")
        return f"{ssh_agent.KEY_TYPE.decode()} {blob} {self.name}"

    @property
    def fingerprint(self) -> str:
        """To compare over the phone, as `ssh-keygen -l` prints it."""
        digest = sha256(ssh_agent.public_blob(self.public)).digest()
        return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def parse_public(text: str, fallback_name: str = "") -> PublicHalf:
    """Read a public half.

    Args:
        text: One line as OpenSSH writes it.
        fallback_name: Whose it is where the line's comment is no name.

    Raises:
        OfficerKeyError: It is none, or its key is no point that can sign.
    """
    fields = text.strip().split(None, 2)
    if len(text) > PUBLIC_MAX_BYTES or len(fields) < 2 or "\n" in text.strip():
        raise OfficerKeyError("a public half is one line: ssh-ed25519, the key, a name")
    if fields[0] != ssh_agent.KEY_TYPE.decode():
        raise OfficerKeyError(
            f"{fields[0][:40]!r} is no key that can sign here; make one with `swarmd keys officer new`"
        )
    try:
        public = ssh_agent.parse_public_blob(base64.b64decode(fields[1], validate=True))
    except (binascii.Error, ValueError, ssh_agent.AgentError) as error:
        raise OfficerKeyError(f"the public half is damaged: {error}") from error
    if public is None or not bindings.crypto_core_ed25519_is_valid_point(public):
        raise OfficerKeyError("the public half is no valid Ed25519 key; ask for it again")
    names = [*fields[2:], *(comment.partition("@")[0] for comment in fields[2:]), fallback_name]
    name = next((one for one in names if is_name(one)), "")
    if not name:
        raise OfficerKeyError("the public half does not say whose it is; add a name of letters and digits at its end")
    return PublicHalf(public, name)


def read_public(path: Path) -> PublicHalf:
    """Read a public half's file, or the public half in a key's file.

    Raises:
        OfficerKeyError: It is neither.
    """
    text = _read_text(path)
    lines = text.split("\n")
    line = lines[1] if lines[0] == HEADER and len(lines) > 1 else text
    try:
        return parse_public(line, path.stem)
    except OfficerKeyError as error:
        raise OfficerKeyError(f"{path}: {error}") from error


def seal_key(
    seed: bytes, name: str, passphrase: str, *, operations: int = _OPERATIONS, memory_kib: int = _MEMORY_KIB
) -> bytes:
    """A key's file.

    Args:
        seed: The Ed25519 seed, 32 bytes.
        name: Whose it is.
        passphrase: At least `PASSPHRASE_MIN_CHARS` characters.
        operations: Passes of Argon2id.
        memory_kib: Memory of Argon2id, KiB.

    Raises:
        OfficerKeyError: The passphrase is too short.
    """
    if len(passphrase) < PASSPHRASE_MIN_CHARS:
        raise OfficerKeyError(f"the passphrase has {len(passphrase)} characters; it takes {PASSPHRASE_MIN_CHARS}")
    half = PublicHalf(_CRYPTO.public_key(seed), check_name(name, "an officer"))
    salt = secrets.token_bytes(_SALT_BYTES)
    head = f"{HEADER}\n{half.line}\nargon2id {operations} {memory_kib} {salt.hex()}\n"
    key = _sealing_key(head, passphrase, salt, operations, memory_kib)
    nonce = secrets.token_bytes(NONCE_BYTES)
    return f"{head}sealed {(nonce + _CRYPTO.seal(key, nonce, seed)).hex()}\n".encode("ascii")


def open_key(data: bytes, passphrase: str) -> bytes:
    """The seed in a key's file.

    Raises:
        OfficerKeyError: It is no such file, or the passphrase is not the one.
    """
    sealed = parse_sealed(data)
    key = _sealing_key(sealed.head, passphrase, sealed.salt, sealed.operations, sealed.memory_kib)
    seed = _CRYPTO.open(key, sealed.box[:NONCE_BYTES], sealed.box[NONCE_BYTES:])
    if seed is None:
        raise OfficerKeyError("the passphrase is not the one that sealed this key, or the file was changed")
    if _CRYPTO.public_key(seed) != sealed.half.public:
        raise OfficerKeyError("the key's file is damaged: its seed is not that of its public half")
    return seed


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A key's file, read and not opened."""

    half: PublicHalf
    head: str
    operations: int
    memory_kib: int
    salt: bytes
    box: bytes


def parse_sealed(data: bytes) -> SealedKey:
    """Read a key's file without its passphrase.

    Raises:
        OfficerKeyError: It is none, or asks for more work than a file may.
    """
    try:
        lines = data[: PUBLIC_MAX_BYTES + 1].decode("ascii").split("\n")
        header, public, derived, sealed, end = lines
        method, operations, memory_kib, salt = derived.split(" ")
        word, box = sealed.split(" ")
        if (header, end, method, word) != (HEADER, "", "argon2id", "sealed") or not (
            operations.isdecimal() and memory_kib.isdecimal() and len(operations) < 4 and len(memory_kib) < 9
        ):
            raise ValueError
        found = SealedKey(
            parse_public(public),
            f"{header}\n{public}\n{derived}\n",
            int(operations),
            int(memory_kib),
            bytes.fromhex(salt),
            bytes.fromhex(box),
        )
    except ValueError as error:
        raise OfficerKeyError(f"not an officer's key (it starts with {HEADER}), or damaged") from error
    if not (1 <= found.operations <= _OPERATIONS_MAX and 8 <= found.memory_kib <= _MEMORY_MAX_KIB):
        raise OfficerKeyError(
            f"the key asks for {found.operations} passes over {found.memory_kib} KiB; at most {_OPERATIONS_MAX} over "
            f"{_MEMORY_MAX_KIB} KiB are done"
        )
    if len(found.salt) != _SALT_BYTES or len(found.box) != _SEALED_BYTES:
        raise OfficerKeyError("the officer's key is damaged: its salt or its sealed part has the wrong length")
    return found


def new_key(path: Path, name: str, passphrase: str) -> PublicHalf:
    """Draw a key and write its file; the public half goes beside it, as FILE.pub.

    Raises:
        OfficerKeyError: A file is there already, or the passphrase is too short.
        IdentityFileError: The file cannot be written.
    """
    public_path = path.with_name(path.name + ".pub")
    for there in (path, public_path):
        if there.exists():
            raise OfficerKeyError(f"{there} exists already; choose another file (a key is never overwritten)")
    data = seal_key(secrets.token_bytes(SEED_BYTES), name, passphrase)
    half = parse_sealed(data).half
    write_pair(path, data, public_path, half)
    return half


def complete_pair(path: Path, name: str) -> PublicHalf | None:
    """Write the public half of a key whose maker was killed before it; None where there is nothing to complete.

    Raises:
        OfficerKeyError: The file is no key.
    """
    public_path = path.with_name(path.name + ".pub")
    if not path.exists() or public_path.exists():
        return None
    half = parse_sealed(read_secret_file(path, "give an officer's key")).half
    if half.name != name:
        return None
    write_public_file(public_path, f"{half.line}\n".encode("ascii"))
    return half


def change_passphrase(path: Path, passphrases: "Passphrases") -> PublicHalf:
    """Seal a key anew, in place; a copy elsewhere keeps the old passphrase.

    Raises:
        OfficerKeyError: It is no officer's key, or a passphrase does not do. The file is as it was.
    """
    data = read_secret_file(path, "give an officer's key")
    half = parse_sealed(data).half
    seed = open_key(data, passphrases.get(f"{half.name} ({path}), the old one"))
    write_secret_file(path, seal_key(seed, half.name, passphrases.get(f"{half.name}, the new one", twice=True)))
    return half


def write_pair(path: Path, data: bytes, public_path: Path, half: PublicHalf) -> None:
    """Write a key and its public half: both, or neither."""
    write_secret_file(path, data)
    try:
        write_public_file(public_path, f"{half.line}\n".encode("ascii"))
    except BaseException:
        if not public_path.exists():
            path.unlink(missing_ok=True)  # A key whose public half nobody has seen is of no use.
        raise


def _sealing_key(head: str, passphrase: str, salt: bytes, operations: int, memory_kib: int) -> bytes:
    try:
        drawn = pwhash.argon2id.kdf(32, passphrase.encode(), salt, operations, memory_kib * 1024)
    except (exceptions.CryptoError, MemoryError, ValueError) as error:
        raise OfficerKeyError(f"cannot derive the key ({memory_kib} KiB of memory are needed): {error}") from error
    return blake2b(head.encode("ascii"), key=drawn, digest_size=32, person=b"swarmd-officer").digest()


class Passphrases:
    """Where passphrases come from: the terminal, or line by line from a descriptor, or a credential."""

    def __init__(self, descriptor: int | None = None, credential: str = "") -> None:
        """Choose the source.

        Args:
            descriptor: An open file descriptor; one passphrase a line, in the order in which keys are named.
            credential: The name of a file in `$CREDENTIALS_DIRECTORY`; its first line serves for every key.
        """
        self._lines: Iterator[str] | None = None
        self._credential = credential
        if descriptor is not None:
            self._lines = iter(_read_descriptor(descriptor))

    def get(self, what: str, *, twice: bool = False) -> str:
        """The next passphrase.

        Args:
            what: Of which key, for whoever types it.
            twice: Ask again and compare (a new key).

        Raises:
            OfficerKeyError: There is none.
        """
        if self._credential:
            return _read_credential(self._credential)
        if self._lines is not None:
            try:
                return next(self._lines)
            except StopIteration as error:
                raise OfficerKeyError(f"the descriptor holds no passphrase for {what}; one a line") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", getpass.GetPassWarning)  # It would show what is typed.
                typed = getpass.getpass(f"passphrase of {what}: ")
                if twice and typed != getpass.getpass("once more: "):
                    raise OfficerKeyError("the two passphrases differ; nothing was written")
        except (EOFError, OSError, getpass.GetPassWarning) as error:
            raise OfficerKeyError("no terminal to ask for a passphrase; give --passphrase-fd N") from error
        return typed


def _read_descriptor(descriptor: int) -> list[str]:
    data = b""
    try:
        while len(data) <= PASSPHRASE_MAX_BYTES and (piece := os.read(descriptor, PASSPHRASE_MAX_BYTES + 1)):
            data += piece
        lines = data.decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OfficerKeyError(f"cannot read a passphrase from descriptor {descriptor}: {error}") from error
    if len(data) > PASSPHRASE_MAX_BYTES:
        raise OfficerKeyError(f"descriptor {descriptor} gives more than {PASSPHRASE_MAX_BYTES} bytes of passphrases")
    return lines[:-1] if lines[-1] == "" else lines


def _read_credential(name: str) -> str:
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")  # A path, not a secret.
    if not folder or "/" in name:
        raise OfficerKeyError(f"no credential {name!r}: CREDENTIALS_DIRECTORY is set by systemd (LoadCredential=)")
    try:
        data = (Path(folder) / name).read_bytes()[:PASSPHRASE_MAX_BYTES]
        return data.decode().split("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise OfficerKeyError(f"cannot read the credential {name!r}: {error}") from error


def distinct(halves: Sequence[PublicHalf]) -> Sequence[PublicHalf]:
    """The same halves.

    Raises:
        OfficerKeyError: One key comes twice, or two officers have the same name.
    """
    for position, half in enumerate(halves):
        for other in halves[:position]:
            if half.public == other.public:
                raise OfficerKeyError(f"{other.name} and {half.name} are one key; every officer makes an own one")
            if half.name == other.name:
                raise OfficerKeyError(f"two different keys are named {half.name}; change the name at the line's end")
    return halves


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(PUBLIC_MAX_BYTES + 1).decode("ascii")
    except OSError as error:
        raise OfficerKeyError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OfficerKeyError(f"{path} is no public half; it is one line that starts with ssh-ed25519") from error
