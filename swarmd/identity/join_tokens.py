"""Join tokens: one device, one name, a limited time. Whoever brings one in time is enrolled under its name.

    swarmd-join-BASE64     what a device is given: id, secret, digest of the fleet's first root, name, swarm, addresses
    FLEET/tokens/ID        what the desk keeps, 0600: the key that derives from the secret, name, expiry, who used it

A token is a secret until it is used. It belongs to the first key that comes with it: the same device may ask again (an
answer may be lost), any other is refused, and the officer reads who was first. Time is judged by the desk's clock
alone; a device may have none.
"""

import base64
import binascii
import contextlib
import secrets
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from swarmd.errors import DaemonError
from swarmd.identity.files import IdentityFileError, read_secret_file, write_secret_file
from swarmd.identity.fleet import Fleet
from swarmd.identity.names import check_name, is_name
from swarmd.identity.role_keys import make_folder
from swarmd_protocols.trust.roots import root_digest

PREFIX = "swarmd-join-"
LIFE_S = 3_600
"""Seconds that a token is taken by default: an hour, as long as somebody stands beside the device."""
LIFE_MAX_S = 30 * 86_400
"""Seconds that a token is taken at most: a token is a secret on paper."""
TOKENS_MAX = 1_024
"""Tokens that a desk keeps; those that are over for a month make room."""
TEXT_MAX_CHARS = 2_048
"""Characters of a token: three times the longest."""
_KEEP_S = 30 * 86_400
_CHECK_BYTES = 4
_Id = Annotated[bytes, Meta(min_length=8, max_length=8)]
_Secret = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Text = Annotated[str, Meta(max_length=64)]


class TokenError(DaemonError):
    """A token does not do; nothing has changed."""


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a device is given."""

    id: _Id
    secret: _Secret
    root: _Secret
    """Digest of the fleet's first root: the device believes no other fleet's desk."""
    name: _Text
    swarm: _Text
    addresses: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=8)]
    """Where a desk listens, `host:port`."""

    @property
    def key(self) -> bytes:
        """What the desk keeps instead of the secret."""
        return blake2b(self.secret, digest_size=32, person=b"swarmd-join-key").digest()

    @property
    def text(self) -> str:
        """The form in which it is handed over."""
        data = msgspec.msgpack.encode(self)
        return PREFIX + base64.urlsafe_b64encode(data + _check(data)).decode("ascii").rstrip("=")


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the desk keeps of a token."""

    key: str
    name: str
    swarm: str
    roles: tuple[str, ...]
    expires_s: int
    """UNIX seconds of the desk's clock."""
    replace: bool = False
    """Whether a node of this name may be in force: its key is void once this one is heard of."""
    public: str = ""
    """The device's Ed25519 key, hex digits, once one came."""


def parse_token(text: str) -> Token:
    """Read a token.

    Raises:
        TokenError: It is none, or was not copied whole.
    """
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > TEXT_MAX_CHARS:
        raise TokenError(f"no join token; it starts with {PREFIX} and is one line")
    body = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        if not secrets.compare_digest(data[-_CHECK_BYTES:], _check(data[:-_CHECK_BYTES])):
            raise TokenError("the join token was not copied whole; copy all of its line")
        token = msgspec.msgpack.decode(data[:-_CHECK_BYTES], type=Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise TokenError(f"the join token is damaged: {error}") from error
    if not is_name(token.name) or not is_name(token.swarm):
        raise TokenError("the join token names no node and swarm")
    return token


def make_token(
    fleet: Fleet,
    swarm: str,
    name: str,
    addresses: Sequence[str],
    *,
    roles: Sequence[str] = (),
    life_s: int = LIFE_S,
    replace: bool = False,
) -> Token:
    """Draw a token and keep it in the fleet's folder.

    Args:
        fleet: The fleet.
        swarm: Which swarm the device joins.
        name: The node's name.
        addresses: Where the desk will listen, `host:port`.
        roles: What the certificate allows besides membership.
        life_s: Seconds that it is taken; up to `LIFE_MAX_S`.
        replace: Whether the name may be in force for another key.

    Raises:
        TokenError: A number does not do, or too many tokens are open.
    """
    check_name(name, "a node")
    if not 0 < life_s <= LIFE_MAX_S:
        raise TokenError(f"a token is taken for 1 second to {LIFE_MAX_S // 86_400} days")
    sweep(fleet.folder)
    if len(list(_folder(fleet.folder).glob("*"))) >= TOKENS_MAX:
        raise TokenError(f"{TOKENS_MAX} tokens are kept in {_folder(fleet.folder)}; remove those that nobody will use")
    root = root_digest(fleet.roots()[0])
    token = Token(secrets.token_bytes(8), secrets.token_bytes(32), root, name, swarm, tuple(addresses))
    kept = Kept(token.key.hex(), name, swarm, tuple(roles), int(time.time()) + life_s, replace)
    make_folder(_folder(fleet.folder))
    keep(fleet.folder, token.id, kept)
    return token


def keep(folder: Path, number: bytes, kept: Kept) -> None:
    """Write what is kept of a token."""
    write_secret_file(_folder(folder) / number.hex(), msgspec.json.encode(kept) + b"\n")


def kept_of(folder: Path, number: bytes) -> Kept | None:
    """What is kept of a token; None where nothing is."""
    path = _folder(folder) / number.hex()
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_secret_file(path, "make another token"), type=Kept)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TokenError(f"{path} is damaged: {error}; remove it and make another token") from error


def kept_tokens(folder: Path) -> list[Kept]:
    """All that is kept, by name and expiry; damaged files are left aside."""
    found = []
    for path in sorted(_folder(folder).glob("[0-9a-f]*"))[:TOKENS_MAX]:
        with contextlib.suppress(TokenError, IdentityFileError, ValueError):
            kept = kept_of(folder, bytes.fromhex(path.name))
            found += [kept] if kept is not None else []
    return sorted(found, key=lambda kept: (kept.name, kept.expires_s))


def take_back(folder: Path, name: str) -> None:
    """Forget every token for a name: whoever brings one is refused."""
    for path in _folder(folder).glob("[0-9a-f]*"):
        with contextlib.suppress(TokenError, IdentityFileError, ValueError):
            kept = kept_of(folder, bytes.fromhex(path.name))
            if kept is not None and kept.name == name:
                path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Forget tokens that have been over for a month."""
    for path in _folder(folder).glob("[0-9a-f]*"):
        with contextlib.suppress(TokenError, IdentityFileError, ValueError, OSError):
            kept = kept_of(folder, bytes.fromhex(path.name))
            if kept is not None and kept.expires_s + _KEEP_S < time.time():
                path.unlink(missing_ok=True)


def _folder(folder: Path) -> Path:
    return folder / "tokens"


def _check(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECK_BYTES, person=b"swarmd-join-sum").digest()
