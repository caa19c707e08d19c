"""The keys that a ZeroMQ transport needs, as raw bytes.

All members listen under the **group's** CURVE key: who does not know the group's secret does not know the public key to
greet, and is turned away during the handshake. Each member dials with its **own** X25519 key.
"""

from dataclasses import dataclass, field

KEY_BYTES = 32
"""Bytes of a Curve25519 key. Source: RFC 7748, section 5."""


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """Two X25519 key pairs, 32 bytes a key."""

    group_public: bytes
    group_secret: bytes = field(repr=False)
    own_public: bytes
    own_secret: bytes = field(repr=False)
    older_group_publics: tuple[bytes, ...] = ()
    """Public keys of former group keys, newest first: a member that was away while the key was changed still listens
    under one of them."""

    @property
    def server_publics(self) -> tuple[bytes, ...]:
        """Every key under which a member may listen, most likely first."""
        return (self.group_public, *self.older_group_publics)

    def __post_init__(self) -> None:
        for name in ("group_public", "group_secret", "own_public", "own_secret"):
            if len(getattr(self, name)) != KEY_BYTES:
                raise ValueError(f"{name} has {len(getattr(self, name))} bytes; an X25519 key has {KEY_BYTES}")
        if any(len(key) != KEY_BYTES for key in self.older_group_publics):
            raise ValueError(f"a former group key's public half does not have {KEY_BYTES} bytes")
