"""What the daemon asks of the sub-protocol `beside`, and what it is told."""

from collections.abc import Mapping

import msgspec

from swarmd_protocols.neighbours.words import ClaimRow, PlaceRow


class Agree(msgspec.Struct, frozen=True):
    """Request: take an agreement that an operator of this swarm has signed."""

    statement: bytes


class Bring(msgspec.Struct, frozen=True):
    """Request of this node's gateway: a neighbour has said this."""

    key: bytes
    kind: str
    """`words.INTRODUCTION` or `words.WORD`."""
    statement: bytes


class NeighbourChanged(msgspec.Struct, frozen=True, gc=False):
    """Detail of `StateChanged("beside", …)`: a neighbour's word or the agreement with it changed."""

    key: bytes


class NeighbourView(msgspec.Struct, frozen=True):
    """One neighbour, as this node knows it."""

    key: bytes
    name: str
    """What it is called here."""
    swarm: str
    """Its own name."""
    state: str
    """`ended` (by this side), `waiting` (its yes was never heard), `refused` (it has ended it), `silent` (nothing heard
    for a minute) or `agreed`."""
    until_ms: int
    heard_ms: int
    """When it last said anything, milliseconds since 1970; 0 for never."""
    gateways: int
    places: tuple[tuple[PlaceRow, int], ...]
    """With the age of each, milliseconds."""
    claims: tuple[tuple[ClaimRow, int], ...]
    """With how long each stands yet, milliseconds."""
    spent_cells: int
    """Own cells that it has kept for longer than agreed: its claims there do not count."""
    counts: Mapping[str, int]
