"""Errors of the release service.

ReleaseError(DaemonError)    the message names the thing and the remedy
├── DeltaError               a delta cannot be made or applied; nothing was changed
└── SlotError                the slots' record or a blob cannot be read or written
"""

from swarmd.errors import DaemonError


class ReleaseError(DaemonError):
    """Base of what goes wrong with releases on this node."""


class DeltaError(ReleaseError):
    """A delta cannot be made or applied; nothing was changed."""


class SlotError(ReleaseError):
    """The slots' record or a blob cannot be read or written."""
