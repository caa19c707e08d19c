"""What one blob's exchange asks for, one action at a time: plain frozen values."""

from typing import TypeAlias

import msgspec

from swarmd_protocols.ids import NodeId


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Ask `to` for a chunk."""

    to: NodeId
    index: int


class Give(msgspec.Struct, frozen=True, gc=False):
    """Send `to` a chunk."""

    to: NodeId
    index: int


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Tell `to` to ask another for this chunk: too many wait here."""

    to: NodeId
    index: int


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Tell `to` which chunks it may ask for (all of those shown so far)."""

    to: NodeId
    mask: int


class Blame(msgspec.Struct, frozen=True, gc=False):
    """A peer sent bytes that are not the chunk; it is asked for nothing of this blob for a while."""

    peer: NodeId
    reason: str


SwarmAction: TypeAlias = Ask | Give | Refuse | Tell | Blame
