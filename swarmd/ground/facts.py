"""What the protocols know, as rows: one function for each kind of thing."""

import math
from collections.abc import Mapping

from swarmd.api.views import object_row, review_row, trust_row
from swarmd.events.record import SUBJECT_MAX_CHARS, TEXT_MAX_CHARS, clean
from swarmd.ground.rows import Cell, Member, Object
from swarmd.records import Review
from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellView, ObjectView, ReviewView
from swarmd_protocols.summary import MemberView

REVIEWS_MAX = 32
"""Statements that a row shows: both of sixteen operators."""
NEVER_MET = "never met "
"""Beginning of the id of a member of which this node knows the name alone."""
Names = Mapping[NodeId, str]


def said(text: str, most: int = SUBJECT_MAX_CHARS) -> str:
    """What another node says, so that nobody can use it to write backwards, over several lines or without end."""
    return clean(text, most)


def member_of(view: MemberView, since_s: float | None, *, is_self: bool, is_mesh: bool = False) -> Member:
    """A member.

    Args:
        view: What the node knows of it.
        since_s: When it came to its state, as far as anybody here knows.
        is_self: Whether it is the node that looks.
        is_mesh: Whether who looks reaches some members through others only.
    """
    is_relayed = is_mesh and view.state is MemberState.ALIVE and view.quality == "none"
    trust = trust_row(view)
    return Member(
        id=view.node.hex(),
        name=said(view.name),
        state=view.state.value,
        # Downwards: a state that began in the future would be a clock that lies.
        since_s=None if since_s is None else math.floor(since_s * 10) / 10,
        is_self=is_self,
        # Two digits: a round trip that differs by less is no news.
        rtt_ms=None if view.rtt_ns is None else float(f"{view.rtt_ns / 1e6:.2g}"),
        loss=round(view.loss, 2),
        quality="relayed" if is_relayed else view.quality,
        broken=[said(link, TEXT_MAX_CHARS) for link in view.links],
        capability=said(view.capability),
        version=said(view.version),
        address=said(view.address, TEXT_MAX_CHARS),
        root=trust["root"],
        group_key=trust["group_key"],
        certificate=trust["certificate"],
        row=[(node.hex(), quality) for node, quality in view.row],
    )


def never_met(name: str, since_s: float) -> Member:
    """A member that others saw fail before this node came."""
    return Member(
        id=NEVER_MET + said(name), name=said(name), state="failed", since_s=math.floor(since_s * 10) / 10,
        is_self=False, rtt_ms=None, loss=0.0, quality="none", broken=[], capability="", version="", address="",
        root=None, group_key=None, certificate=None,
    )  # fmt: skip


def object_of(view: ObjectView, names: Names) -> Object:
    """An object."""
    row = object_row(view, names)
    del row["confirmed"], row["evidence"]  # `tier` says it.
    row["label"], row["asset"], row["detected"] = said(view.label), said(view.asset), said(view.detected)
    row["thumb"] = view.thumb.hex()
    row["reviews"] = [review_of(one) for one in view.reviews[:REVIEWS_MAX]]
    return Object(**row)


def review_of(view: ReviewView) -> Review:
    """What one operator says of an object."""
    row = review_row(view)
    for name in ("operator", "text", "seen"):
        row[name] = said(row[name], TEXT_MAX_CHARS)
    return Review(**row)


def cell_of(view: CellView, names: Names) -> Cell:
    """A cell."""
    return Cell(
        view.cell_id,
        view.centre_east_cm / 100,
        view.centre_north_cm / 100,
        view.state,
        "" if view.holder is None else names.get(view.holder, view.holder.hex()),
        [names.get(node, node.hex()) for node in view.done_by],
    )
