"""An officer's key in `ssh-agent`: it signs there, and what is secret never comes here.

The agent listens on a Unix socket that `$SSH_AUTH_SOCK` names (a path, not a secret). Two questions are asked:

    u32 length ‖ 11                                                  which keys are there?
    u32 length ‖ 12 ‖ u32 count ‖ count x (string key ‖ string comment)
    u32 length ‖ 13 ‖ string key ‖ string data ‖ u32 flags           sign this
    u32 length ‖ 14 ‖ string (string "ssh-ed25519" ‖ string signature)
    u32 length ‖ 5                                                   refused, whatever was asked

An Ed25519 key signs the data itself, without a hash or a name space of SSH, so an agent's signature is the same 64
bytes as anybody's. It cannot be mistaken for a login: what a login signs starts with the length of a session id, what
swarmd signs with "swarmd/". Keys on FIDO tokens (`sk-ssh-ed25519`) sign something else and are left out.

Source: draft-ietf-sshm-ssh-agent; RFC 8709 (ssh-ed25519 keys and signatures).
"""

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from swarmd.errors import DaemonError

KEY_TYPE = b"ssh-ed25519"
ANSWER_MAX_BYTES = 256 * 1024
"""What OpenSSH itself reads from an agent (AGENT_MAX_LEN)."""
KEYS_MAX = 2_048
"""Keys in one agent (OpenSSH: MAX_AGENT_IDENTITIES)."""
CONFIRM_TIMEOUT_S = 60.0
"""`ssh-add -c` asks a person before each signature."""
_FAILURE, _LIST, _LISTED, _SIGN, _SIGNED = 5, 11, 12, 13, 14


class AgentError(DaemonError):
    """The agent is not there, refuses, or answers nonsense; nothing was signed."""


@dataclass(frozen=True, slots=True)
class AgentKey:
    """An Ed25519 key that an agent holds."""

    public: bytes
    """32 bytes."""
    comment: str


def agent_socket() -> Path:
    """Where the agent of this session listens.

    Raises:
        AgentError: `$SSH_AUTH_SOCK` names nothing.
    """
    place = os.environ.get("SSH_AUTH_SOCK", "")
    if not place:
        raise AgentError("no ssh-agent: SSH_AUTH_SOCK is not set; start one with `eval $(ssh-agent)` and `ssh-add KEY`")
    return Path(place)


def list_keys(place: Path) -> list[AgentKey]:
    """The Ed25519 keys of an agent.

    Raises:
        AgentError: It cannot be asked.
    """
    return parse_keys(_ask(place, bytes([_LIST])))


def sign(place: Path, public: bytes, message: bytes) -> bytes:
    """Have an agent sign with one of its keys.

    Args:
        place: The agent's socket.
        public: The 32-byte key.
        message: What to sign.

    Returns:
        The 64-byte Ed25519 signature.

    Raises:
        AgentError: It cannot be asked, has no such key, or its person said no.
    """
    return parse_signature(_ask(place, bytes([_SIGN]) + _string(public_blob(public)) + _string(message) + b"\0\0\0\0"))


def public_blob(public: bytes) -> bytes:
    """A public key in SSH's form: `string "ssh-ed25519" ‖ string key`."""
    return _string(KEY_TYPE) + _string(public)


def parse_public_blob(blob: bytes) -> bytes | None:
    """The 32-byte key of such a form; None for keys of other types.

    Raises:
        AgentError: The form is broken.
    """
    reader = _Reader(blob)
    if reader.string() != KEY_TYPE:
        return None
    public = reader.string()
    if len(public) != 32 or reader.left:
        raise AgentError("an ssh-ed25519 key has 32 bytes and nothing after them")
    return public


def parse_keys(answer: bytes) -> list[AgentKey]:
    """Read an agent's list of keys; keys of other types are left out.

    Raises:
        AgentError: It is none.
    """
    reader = _Reader(answer)
    if reader.byte() != _LISTED:
        raise AgentError("the agent does not list its keys; is it locked (`ssh-add -X`)?")
    count = reader.number()
    if count > KEYS_MAX:
        raise AgentError(f"the agent says that it holds {count} keys; at most {KEYS_MAX} are read")
    found = []
    for _ in range(count):
        blob, comment = reader.string(), reader.string()
        public = parse_public_blob(blob)
        if public is not None:
            found.append(AgentKey(public, comment.decode("utf-8", "replace")))
    return found


def parse_signature(answer: bytes) -> bytes:
    """Read an agent's signature.

    Raises:
        AgentError: It refused, or it is no Ed25519 signature.
    """
    reader = _Reader(answer)
    if reader.byte() != _SIGNED:
        raise AgentError("the agent refused to sign; has its person said no, or was the key removed (`ssh-add -l`)?")
    signed = _Reader(reader.string())
    if signed.string() != KEY_TYPE:
        raise AgentError("the agent's signature is no Ed25519 signature")
    signature = signed.string()
    if len(signature) != 64 or signed.left:
        raise AgentError("the agent's signature does not have 64 bytes")
    return signature


class _Reader:
    """SSH's number and string, from bytes of another program."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise AgentError("the agent's answer ends too early")
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def byte(self) -> int:
        return self._take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def string(self) -> bytes:
        return self._take(self.number())


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _ask(place: Path, question: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(CONFIRM_TIMEOUT_S)
            link.connect(str(place))
            link.sendall(_string(question))
            size = int.from_bytes(_receive(link, 4), "big")
            if not 0 < size <= ANSWER_MAX_BYTES:
                raise AgentError(f"the agent answers {size} bytes; 1 to {ANSWER_MAX_BYTES} are read")
            return _receive(link, size)
    except OSError as error:
        raise AgentError(f"cannot ask the ssh-agent at {place}: {error.strerror or error}") from error


def _receive(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise AgentError("the agent hung up in the middle of its answer")
        data += piece
    return bytes(data)
