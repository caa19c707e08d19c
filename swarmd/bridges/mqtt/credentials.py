"""What proves who we are to the broker: a password that only its owner may read, certificates and keys."""

import ssl
from pathlib import Path

from swarmd.config.bridges import MqttConfig
from swarmd.errors import TransportError


def read_secret(path: str) -> str:
    """The first line of a file that only its owner may read.

    Args:
        path: The file; a systemd credential is fine.

    Returns:
        The line without its end.

    Raises:
        TransportError: The file is missing, or others may read it.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode & 0o077
        text = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TransportError(f"password_file {path}: {error}; create it with mode 0600") from error
    if mode & 0o044 and "credentials" not in file.parts:
        raise TransportError(f"password_file {path} can be read by others; run: chmod 600 {path}")
    return text[0] if text else ""


class _ClosedOnFailure(ssl.SSLSocket):
    """paho forgets the socket of a handshake that failed; every attempt would leave one open until it is collected."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except (OSError, ValueError):
            self.close()
            raise


def tls_context(config: MqttConfig) -> ssl.SSLContext:
    """What a connection is opened with.

    Raises:
        TransportError: A file is missing or no PEM; names the three.
    """
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslsocket_class = _ClosedOnFailure
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (config.ca_file, config.cert_file, config.key_file) if file)
        raise TransportError(f"cannot use ca_file/cert_file/key_file ({files}): {error}") from error
    return context
