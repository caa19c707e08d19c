"""The members as rows for people: names, states, and the quality of each link in words."""

from collections.abc import Mapping

from swarmd_protocols.effects import MemberState
from swarmd_protocols.summary import MemberView
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import LINK_INDIRECT, LINK_LATE, LINK_ONE_WAY

_QUALITY = {0: "good", LINK_ONE_WAY: "heard-only", LINK_INDIRECT: "indirect", LINK_LATE: "late"}
"""Words for a link."""
_LOSSY = 0.2
"""A link that loses a larger share of pings is called lossy."""


def own_state(core: Core) -> MemberState:
    """What this node is to the others."""
    if core.own.left:
        return MemberState.LEFT
    return MemberState.AWAY if core.own.away_until_ns else MemberState.ALIVE


def member_rows(
    core: Core, own_links: tuple[tuple[bytes, int], ...], own_meta: Mapping[str, bytes]
) -> list[MemberView]:
    """All known members, this node included, sorted by name."""
    own = core.own
    rows = [
        MemberView(
            own.node,
            own.name,
            own.address,
            own_state(core),
            own.incarnation,
            0,
            0.0,
            "self",
            _links_of(core, own.name, own_links),
            own.version,
            own.capability,
            own_meta,
        )
    ]
    rows += [
        _row(core, member) for member in core.table.by_node.values() if member.overlay.active and not member.unheard
    ]
    return sorted(rows, key=lambda row: (row.name, row.node))


def _row(core: Core, member: Member) -> MemberView:
    link = member.link
    quality = _QUALITY[link.quality]
    if link.rtt_ns == 0 or member.where < 0:
        quality = "none" if link.quality == 0 else quality
    elif quality == "good" and link.loss > _LOSSY:
        quality = "lossy"
    return MemberView(
        member.node,
        member.name,
        member.address,
        member.state,
        member.incarnation,
        link.rtt_ns or None,
        round(link.loss, 4),
        quality,
        _links_of(core, member.name, member.report.links),
        member.version,
        member.capability,
        {key: value for key, (_, value, _) in (member.repair.meta or {}).items() if value},
    )


def _links_of(core: Core, reporter: str, entries: tuple[tuple[bytes, int], ...]) -> tuple[str, ...]:
    said = []
    for node, quality in entries:
        member = core.table.by_node.get(node)
        subject = core.own.name if node == core.own.node else member.name if member else node.hex()[:8]
        if quality == LINK_ONE_WAY:
            said.append(f"{reporter} hears {subject}, {subject} does not hear {reporter}")
        elif quality == LINK_INDIRECT:
            said.append(f"{reporter} reaches {subject} only through others")
        else:
            said.append(f"{subject} answers {reporter} late")
    return tuple(said)
