"""What a node holds, for people: members with their states and the quality of each link in words, and its trust."""

from collections.abc import Iterator, Mapping

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Peer
from swarmd_protocols.summary import MemberView, TrustSummary
from swarmd_protocols.swim.core import Core, Own
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.messages import LINK_INDIRECT, LINK_LATE, LINK_ONE_WAY
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.payloads import plain
from swarmd_protocols.trust.roots import role_of

_QUALITY = {0: "good", LINK_ONE_WAY: "heard-only", LINK_INDIRECT: "indirect", LINK_LATE: "late"}
"""Words for a link."""
MEMBERS_A_PART = 64
"""Members of one part of a long answer: told, they take about a millisecond."""
_LOSSY = 0.2
"""A link that loses a larger share of pings is called lossy."""


def own_state(core: Core) -> MemberState:
    """What this node is to the others."""
    if core.own.left:
        return MemberState.LEFT
    return MemberState.AWAY if core.own.away_until_ns else MemberState.ALIVE


def trust_summary(core: Core, why_out: str) -> TrustSummary:
    """What a node holds of the fleet's trust."""
    trust = core.trust
    statement = trust.certificate_statement(core.own.node)
    revoked = {NodeId(node): one.reason for one in trust.revocations for node in one.nodes}
    return TrustSummary(
        trust.root.version,
        trust.root.epoch,
        max(trust.group_keys),
        decode_envelope(statement).digest.hex()[:16] if statement else "",
        why_out,
        {node: plain(revoked[node]) for node in sorted(revoked)},
        trust.chain.is_forked,
        tuple(sorted(role_of(trust.chain.current, "operator")[0].values())),
    )


def peers_of(core: Core) -> list[Peer]:
    """What the sub-protocols may know of the members, sorted by node."""
    swarm, costs, over = core.view.swarm(), core.view.routes.costs, core.view.routes.beginnings()
    held = (core.table.by_node[node] for node in sorted(core.table.by_node))
    return [
        Peer(
            one.node,
            one.name,
            one.public_key,
            one.state in REACHABLE,
            swarm,
            one.where < 0,
            costs.get(one.node[:KEY_BYTES], 0),
            over.get(one.node[:KEY_BYTES], b""),
        )
        for one in held
        if one.overlay.active
    ]


def names(core: Core) -> dict[NodeId, str]:
    """Node to name of everybody that `member_rows` tells of."""
    return {core.own.node: core.own.name, **{member.node: member.name for member in _shown(core)}}


def member_rows(
    core: Core,
    own_links: tuple[tuple[bytes, int], ...],
    own_meta: Mapping[str, bytes],
    state: MemberState | None = None,
) -> Iterator[list[MemberView]]:
    """All known members, or those in one state, this node included, sorted by name; a few at a time.

    Who is forgotten between two parts is left out.
    """
    found: list[Own | Member] = [member for member in _shown(core) if state in (None, member.state)]
    if state in (None, own_state(core)):
        found.append(core.own)
    found.sort(key=lambda one: (one.name, one.node))
    for at in range(0, len(found), MEMBERS_A_PART):
        part = found[at : at + MEMBERS_A_PART]
        yield [
            _own_row(core, own_links, own_meta) if isinstance(one, Own) else _row(core, one)
            for one in part
            if isinstance(one, Own) or core.table.by_node.get(one.node) is one
        ]


def _shown(core: Core) -> Iterator[Member]:
    return (member for member in core.table.by_node.values() if member.overlay.active and not member.unheard)


def _own_row(core: Core, links: tuple[tuple[bytes, int], ...], meta: Mapping[str, bytes]) -> MemberView:
    own = core.own
    return MemberView(
        own.node,
        own.name,
        own.address,
        own_state(core),
        own.incarnation,
        0,
        0.0,
        "self",
        _links_of(core, own.name, links),
        own.version,
        own.capability,
        meta,
        _row_of(links),
    )


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
        _row_of(member.report.links),
        link.source,
        core.view.unheard_since_ns(member),
    )


def _row_of(entries: tuple[tuple[bytes, int], ...]) -> tuple[tuple[NodeId, str], ...]:
    return tuple((NodeId(node), _QUALITY.get(quality, "late")) for node, quality in entries)


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
