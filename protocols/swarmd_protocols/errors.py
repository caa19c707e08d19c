"""Errors of the protocols.

    ProtocolError
    ├── WireError        bytes from outside are no valid message; no state has changed
    ├── IdentityError    a certificate, key or signature does not hold; no state has changed
    └── StateError       a local request cannot be carried out (unknown cell, full table); no state has changed

A peer never makes `handle` raise: bad bytes stop at the codec as `WireError`, are counted and dropped, and a
well-formed but nonsensical message gives a `Rejected` effect.
"""


class ProtocolError(Exception):
    """Base of every error that this package raises."""


class WireError(ProtocolError):
    """Bytes from outside are no valid message. No state has changed."""


class IdentityError(ProtocolError):
    """A certificate, key or signature does not hold. No state has changed."""


class StateError(ProtocolError):
    """A local request cannot be carried out as asked. No state has changed."""
