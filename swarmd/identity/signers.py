"""Something that signs as one key: an officer's sealed file, a key in `ssh-agent`, a role key of a first try.

A signer is found by what people type, and says whose signature it will be before any passphrase is asked for.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from swarmd.identity import ssh_agent
from swarmd.identity.files import read_secret_file
from swarmd.identity.names import is_name
from swarmd.identity.officers import OfficerKeyError, Passphrases, PublicHalf, open_key, parse_sealed, read_public
from swarmd.identity.role_keys import ROLE_HEADER, read_role_key
from swarmd_protocols.crypto import NaClCrypto

AGENT_PREFIX = "agent:"
_CRYPTO = NaClCrypto()


class Signer(Protocol):
    """Something that signs as one key; where a passphrase is needed it is asked for at the first signature."""

    @property
    def half(self) -> PublicHalf:
        """Whose signature it will be."""
        ...

    @property
    def role(self) -> str:
        """The role that the key's file names; empty where the root alone says it."""
        ...

    def sign(self, message: bytes) -> bytes:
        """64 bytes; raises `DaemonError` where it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class SeedSigner:
    """A key that is here unsealed: of an all-in-one folder, or of a development fleet."""

    half: PublicHalf
    seed: bytes = field(repr=False)
    role: str = ""

    def sign(self, message: bytes) -> bytes:
        """See `Signer.sign`."""
        return _CRYPTO.sign(self.seed, message)


@dataclass(frozen=True, slots=True)
class FileSigner:
    """An officer's key in its file."""

    half: PublicHalf
    path: Path
    data: bytes = field(repr=False)
    passphrases: Passphrases
    role: str = ""
    _seed: list[bytes] = field(default_factory=list, repr=False)

    def sign(self, message: bytes) -> bytes:
        """See `Signer.sign`."""
        return _CRYPTO.sign(self.unlock(), message)

    def unlock(self) -> bytes:
        """The seed; the passphrase is asked for once."""
        if not self._seed:
            try:
                self._seed.append(open_key(self.data, self.passphrases.get(f"{self.half.name} ({self.path})")))
            except OfficerKeyError as error:
                raise OfficerKeyError(f"{self.path}: {error}") from error
        return self._seed[0]


@dataclass(frozen=True, slots=True)
class AgentSigner:
    """An officer's key in `ssh-agent`."""

    half: PublicHalf
    place: Path
    role: str = ""

    def sign(self, message: bytes) -> bytes:
        """See `Signer.sign`; what the agent gives back is checked."""
        signature = ssh_agent.sign(self.place, self.half.public, message)
        if not _CRYPTO.verify(self.half.public, message, signature):
            raise OfficerKeyError(f"the ssh-agent at {self.place} gave a signature that does not hold")
        return signature


def open_signer(reference: str, passphrases: Passphrases) -> Signer:
    """Find a key.

    Args:
        reference: An officer's key file, a role key's file, a public half (its key lies in the agent), or `agent:NAME`
            with the key's comment, fingerprint, or the first eight or more hex digits of its id.
        passphrases: Where to ask.

    Raises:
        OfficerKeyError: There is no such key.
        IdentityFileError: The file can be read by others.
    """
    if reference.startswith(AGENT_PREFIX):
        return _find_in_agent(reference.removeprefix(AGENT_PREFIX))
    path = Path(reference)
    if _begins_with(path, ssh_agent.KEY_TYPE):
        half = read_public(path)
        return _find_in_agent(half.fingerprint, half.name)
    data = read_secret_file(path, "give an officer's key, or agent:NAME for one in ssh-agent")
    if data.startswith(ROLE_HEADER.encode()):
        return _role_signer(path)
    try:
        return FileSigner(parse_sealed(data).half, path, data, passphrases)
    except OfficerKeyError as error:
        raise OfficerKeyError(f"{path}: {error}") from error


def _begins_with(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError:
        return False  # `read_secret_file` says why.


def read_seed(reference: str, passphrases: Passphrases, role: str = "") -> bytes:
    """The seed of a key that is to sign here and now.

    Args:
        reference: As `open_signer` takes it.
        passphrases: Where to ask.
        role: The role that it is to sign for, where there is only one.

    Raises:
        OfficerKeyError: It is a key of another role, or lies in an agent, which gives no seed away.
    """
    signer = open_signer(reference, passphrases)
    if role and signer.role not in ("", role):
        raise OfficerKeyError(f"{reference} is a key of the role {signer.role}; this takes keys of the role {role}")
    if isinstance(signer, SeedSigner):
        return signer.seed
    if isinstance(signer, FileSigner):
        return signer.unlock()
    raise OfficerKeyError(
        f"{reference} lies in ssh-agent; it signs prepared statements: swarmd keys prepare, keys sign"
    )


def _role_signer(path: Path) -> SeedSigner:
    key = read_role_key(path)
    return SeedSigner(PublicHalf(key.public, path.stem), key.seed, key.role)


def _find_in_agent(wanted: str, name: str = "") -> AgentSigner:
    place = ssh_agent.agent_socket()
    keys = ssh_agent.list_keys(place)
    found = [key for key in keys if _is_meant(key, wanted)]
    if len(found) != 1:
        listed = ", ".join(_shown(key.comment) for key in keys[:20]) or "none"
        many = "several Ed25519 keys" if found else "no Ed25519 key"
        raise OfficerKeyError(f"{many} in the ssh-agent known as {wanted[:80]!r}; it holds: {listed}")
    comment = found[0].comment
    label = next((one for one in (name, comment, comment.partition("@")[0]) if is_name(one)), found[0].public.hex()[:8])
    return AgentSigner(PublicHalf(found[0].public, label), place)


def _is_meant(key: ssh_agent.AgentKey, wanted: str) -> bool:
    half = PublicHalf(key.public, "x")
    by_id = len(wanted) >= 8 and half.key_id.hex().startswith(wanted)
    return bool(wanted) and (key.comment == wanted or half.fingerprint == wanted or by_id)


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:80])
