"""A device's request to be enrolled, as a file: its key, the name that it asks for, and proof that the key is its own.

    swarmd-request-1
    ssh-ed25519 AAAA... drone-1
    signature 128 HEX DIGITS

The signature covers the name and the key. Nothing in it is secret, and nothing is believed for it: an officer compares
the fingerprint with what the device says.
"""

from pathlib import Path

from swarmd.errors import DaemonError
from swarmd.identity.enrolment import EnrolmentError, new_node_key, read_node_key
from swarmd.identity.files import write_public_file
from swarmd.identity.officers import PublicHalf, parse_public
from swarmd_protocols.crypto import NaClCrypto

HEADER = "swarmd-request-1"
REQUEST_MAX_BYTES = 4_096
"""Bytes of a request: it has some 250."""
_CRYPTO = NaClCrypto()


def make_request(folder: Path, name: str, out: Path) -> PublicHalf:
    """Write a device's request; its key is made where it has none.

    Args:
        folder: Where the identity will lie.
        name: The name that it asks for.
        out: The request's file.

    Raises:
        EnrolmentError: The device has an identity, or its key was made under another name.
    """
    half = device_key(folder, name)
    signature = _CRYPTO.sign(read_node_key(folder), _signed(half))
    write_public_file(out, f"{HEADER}\n{half.line}\nsignature {signature.hex()}\n".encode("ascii"))
    return half


def device_key(folder: Path, name: str) -> PublicHalf:
    """The public half of a device's key, which is made where there is none.

    Raises:
        EnrolmentError: The device has an identity, or its key was made under another name.
    """
    if (folder / f"{name}.pub").exists() and (folder / "node.seed").exists():
        return PublicHalf(_CRYPTO.public_key(read_node_key(folder)), name)
    return new_node_key(folder, name)


def is_request(path: Path) -> bool:
    """Whether a file begins as a request does."""
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER) + 1) == HEADER.encode("ascii") + b"\n"
    except OSError:
        return False


def read_request(path: Path) -> PublicHalf:
    """The key that asks, and the name that it asks for.

    Raises:
        EnrolmentError: It is no request, or its signature does not hold.
    """
    try:
        with path.open("rb") as file:
            data = file.read(REQUEST_MAX_BYTES + 1)
    except OSError as error:
        raise EnrolmentError(f"cannot read {path}: {error.strerror}") from error
    try:
        return parse_request(data)
    except DaemonError as error:
        raise EnrolmentError(f"{path}: {error}") from error


def parse_request(data: bytes) -> PublicHalf:
    """Read a request's bytes from anywhere.

    Raises:
        DaemonError: It is no request, or its signature does not hold.
    """
    text = data.decode("ascii", "replace")
    lines = text.split("\n")
    if len(data) > REQUEST_MAX_BYTES or lines[0] != HEADER or len(lines) != 4 or lines[3]:
        raise EnrolmentError(f"no request of swarmd; it starts with {HEADER} and has three lines")
    half = parse_public(lines[1])
    try:
        signature = bytes.fromhex(lines[2].removeprefix("signature "))
    except ValueError:
        signature = b""
    if len(signature) != 64 or not _CRYPTO.verify(half.public, _signed(half), signature):
        raise EnrolmentError("the request is not signed by the key that it brings; ask for it again")
    return half


def _signed(half: PublicHalf) -> bytes:
    return b"swarmd/request/v1\0" + half.name.encode("ascii") + b"\0" + half.public
