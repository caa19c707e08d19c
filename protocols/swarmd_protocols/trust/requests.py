"""What is asked of the trust that a node holds, and what it says to others of the same device."""

import msgspec


class TrustChanged(msgspec.Struct, frozen=True, gc=False):
    """Detail of `StateChanged("node", ...)`: a statement of trust was taken; group keys may be new."""

    kind: str
    """"root", "revoke", "node" or "group"."""


class AddStatement(msgspec.Struct, frozen=True, gc=False):
    """Request to the sub-protocol "node": take a statement of trust that the operator signed."""

    kind: str
    """"root", "revoke", "node" or "group"."""
    statement: bytes
