"""A daemon elsewhere, as `--control tls://HOST[:PORT]` names it, and how its door for operators is reached.

The folder `$SWARMD_OPERATOR`, else `$XDG_CONFIG_HOME/swarmd/operator`, else `~/.config/swarmd/operator` holds

    operator.pem    this operator's certificate
    operator.key    its key, 0600; may be sealed, then a passphrase is asked for
    ca.pem          the authority that certified the devices
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmd.errors import ControlError

if TYPE_CHECKING:
    import ssl  # A running brain reads this file and has no use for OpenSSL.

SCHEME = "tls://"
DEFAULT_PORT = 7981
"""TCP port where nothing is said: the one after the pages'; not registered for anything else at IANA."""


class Remote(msgspec.Struct, frozen=True):
    """A daemon's door for operators."""

    host: str
    """A name or a numeric address, as the device's certificate carries it; IPv6 without brackets."""
    port: int

    def __str__(self) -> str:
        """As it is typed."""
        return f"{SCHEME}[{self.host}]:{self.port}" if ":" in self.host else f"{SCHEME}{self.host}:{self.port}"


def place(text: str) -> Path | Remote:
    """What `--control` names; raises `ControlError`.

    >>> str(place("tls://drone-1")), str(place("tls://[::1]:7000"))
    ('tls://drone-1:7981', 'tls://[::1]:7000')
    """
    if not text.startswith(SCHEME):
        return Path(text)
    rest = text.removeprefix(SCHEME)
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65_535
    if not bare or not is_port or (":" in bare) != host.startswith("["):
        raise ControlError(f"{text!r} names no daemon: write tls://HOST:PORT, such as tls://drone-1.example:7981")
    return Remote(bare, int(port))


def folder_of(environment: Mapping[str, str]) -> Path:
    """Where this operator's files lie."""
    if environment.get("SWARMD_OPERATOR"):
        return Path(environment["SWARMD_OPERATOR"])
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(home) / "swarmd" / "operator"


def connect(remote: Remote, timeout_s: float) -> "ssl.SSLSocket":
    """Reach a daemon's door.

    Raises:
        ControlError: A file is missing or does not do, nobody answers there, or its certificate is not right.
    """
    import ssl

    folder = folder_of(os.environ)
    context = _context(folder)
    try:
        sock = socket.create_connection((remote.host, remote.port), timeout_s)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ControlError(
            f"{remote}: nobody answers ({reason}); the device opens a door where `operators.listen` says"
        ) from error
    try:
        return context.wrap_socket(sock, server_hostname=remote.host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ControlError(
            f"{remote}: its certificate is not accepted: {error.verify_message}; {folder}/ca.pem is to be the devices' "
            "authority, and what follows tls:// a name that the certificate carries"
        ) from error
    except OSError as error:
        sock.close()
        raise ControlError(f"{remote}: {refusal(error)}") from error


def refusal(error: OSError) -> str:
    """Why a connection ended, for people: under TLS 1.3 a client hears of a refusal with its first answer."""
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ConnectionError) or type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError"):
        return "the daemon hung up; its log may say why"
    if "ALERT" in reason:
        said = reason.partition("ALERT_")[2].lower().replace("_", " ")
        return f"it does not accept this operator's certificate ({said}); its log says why, as `operator_refused`"
    if reason:
        return f"no TLS connection ({reason.lower().replace('_', ' ')}); is that the operators' port?"
    return error.strerror or str(error)


def _context(folder: Path) -> "ssl.SSLContext":
    import ssl

    key = folder / "operator.key"
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise ControlError(
            f"{key}: {error.strerror}; an operator's folder holds operator.pem, operator.key, ca.pem (SWARMD_OPERATOR "
            "names another folder)"
        ) from error
    if mode & 0o077:
        raise ControlError(f"{key} can be read by others; run: chmod 600 {key}")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / "operator.pem", key)
    except (OSError, ssl.SSLError) as error:
        raise ControlError(f"cannot use operator.pem, operator.key, ca.pem in {folder}: {error}") from error
    return context
