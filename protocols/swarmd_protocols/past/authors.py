"""Whose past is followed, and what is known of it. Pure."""

from collections.abc import Set
from itertools import islice

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages
from swarmd_protocols.past.spans import Span
from swarmd_protocols.trust.view import TrustView

AUTHORS_MAX = 1_024
"""Nodes whose past is followed: four full views; members first, then whom others list."""


class Author(msgspec.Struct):
    """What is known of one node's past."""

    held: list[Span] = []
    floor_ms: int = 0
    """What ended before it went here."""
    told: dict[NodeId, list[Span]] = {}
    """Giver to the stretches that it has told all of."""
    expired_ms: int = 0
    """What ended before it went at the author."""
    rows: dict[NodeId, messages.Row] = {}
    """Keeper to what it listed."""


def make_room(
    authors: dict[NodeId, Author], nodes: Set[NodeId], walked: Set[NodeId], trust: TrustView, are_members: bool
) -> None:
    """Where some nodes do not fit in, drop names that no certificate bears and of which nothing is kept.

    For members any; for names that are only listed those that nobody lists any more. So nobody fills the table with
    names that it made up.

    Args:
        authors: What is known; changed.
        nodes: Who is to be in it.
        walked: Whose pages are being asked for; they stay.
        trust: Who counts.
        are_members: Whether the nodes are.
    """
    over = len(authors) + len(nodes - authors.keys()) - AUTHORS_MAX
    if over <= 0:
        return
    bare = (
        node
        for node, one in authors.items()
        if not one.held
        and (are_members or not one.rows)
        and node not in nodes
        and node not in walked
        and trust.certified(node) is None
    )
    for node in list(islice(bare, over)):
        del authors[node]
