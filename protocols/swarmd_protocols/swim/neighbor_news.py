"""What neighbours in a partial view tell each other in pings: addresses, size of the swarm, own fingerprints."""

from collections.abc import Callable

import msgspec

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.members import LINKS, MEMBERS, META, Member
from swarmd_protocols.swim.messages import Fingerprints, MetaEntry, NeighborAddresses, SizeEstimate, Want
from swarmd_protocols.swim.rules import fingerprint, pack_fingerprints, unpack_fingerprints
from swarmd_protocols.swim.sizing import SizeSketch

_S = 1_000_000_000
_ESTIMATE_PERIODS, _ESTIMATE_ANYWAY = 4, 20
"""A neighbour is told changed minima after so many protocol periods, unchanged ones after so many times as many."""
_EPOCH_PERIODS = 120
"""Protocol periods of an epoch (30 s at the default rate): minima cross any swarm in some 20, the rest is reserve."""
_ADDRESSES_TOLD_MAX = 12
"""Addresses in a message: more than the neighbours that a node holds."""
_SETTLE_NS = 1 * _S
"""Neighbours must have been the same for so long before they are told, nanoseconds: a join changes several."""
_REPAIR_GAP_NS = 2 * _S
"""Shortest time between two repairs of what one neighbour says of itself, nanoseconds."""


class NeighborNews:
    """Composes and takes what rides between neighbours."""

    def __init__(
        self, core: Core, accusations: Accusations, links: LinkReports, own_meta_fp: Callable[[], int]
    ) -> None:
        self.core = core
        self._accusations = accusations
        self._links = links
        self._own_meta_fp = own_meta_fp
        """The sum over this node's own metadata."""
        self.sketch = SizeSketch(core.rng, _EPOCH_PERIODS * core.config.protocol_period_ns)
        self.neighbors_changed_ns = 0

    def riders(self, member: Member) -> list[bytes]:
        """What rides in a ping or ack to a neighbour."""
        core = self.core
        if member.where < 0:
            return []
        riders = []
        if member.overlay.addresses_told_ns <= self.neighbors_changed_ns <= core.now_ns - _SETTLE_NS:
            member.overlay.addresses_told_ns = core.now_ns
            riders.append(
                encode(NeighborAddresses(tuple(other.address for other in core.table.reachable[:_ADDRESSES_TOLD_MAX])))
            )
        estimate = self._estimate_for(member)
        return riders if estimate is None else [*riders, estimate]

    def on_neighbor_addresses(self, member: Member, message: NeighborAddresses) -> None:
        """Where a neighbour's neighbours are."""
        if member.where >= 0:
            member.overlay.neighbor_addresses = message.addresses

    def warn(self, member: Member, accusation: bytes) -> None:
        """This node misses a neighbour and is the first or the second to say so: its other neighbours look at once."""
        core = self.core
        if self._accusations.confirmations(member) > 1:
            return
        for address in member.overlay.neighbor_addresses:
            other = core.table.by_address.get(address)
            if other is not None and other.where >= 0:
                core.port.push(other, [accusation])
            elif address != core.own.address:
                core.port.hello(address, False, extra=accusation)

    def _estimate_for(self, member: Member) -> bytes | None:
        """For one that was not told the newest minima, or nothing for long."""
        core = self.core
        since_ns = core.now_ns - member.overlay.estimate_told_ns
        gap_ns = _ESTIMATE_PERIODS * core.config.protocol_period_ns
        if since_ns < gap_ns or (
            member.overlay.estimate_told_ns >= self.sketch.changed_ns and since_ns < _ESTIMATE_ANYWAY * gap_ns
        ):
            return None
        member.overlay.estimate_told_ns = core.now_ns
        own = pack_fingerprints([core.own.fp, self._own_meta_fp(), self._links.own_fp])
        return encode(SizeEstimate(self.sketch.epoch, self.sketch.minima, own))

    def on_size_estimate(self, member: Member, message: SizeEstimate) -> None:
        """A neighbour's minima, and what it says of itself: what differs here is asked for."""
        core = self.core
        if member.where < 0:
            return
        if self.sketch.merge(message.epoch, message.minima, core.now_ns):
            member.overlay.estimate_told_ns = min(
                member.overlay.estimate_told_ns, core.now_ns - _S, self.sketch.changed_ns - 1
            )
        record, meta, links = unpack_fingerprints(message.own)
        if core.now_ns - member.repair.sync_ns < _REPAIR_GAP_NS:
            return
        parts = []
        if record != member.repair.fp_record:
            parts.append(encode(Want(MEMBERS, pack_fingerprints([record]))))
        if links not in (0, member.repair.fp_links):
            parts.append(encode(Want(LINKS, pack_fingerprints([links]))))
        if meta != member.repair.fp_meta:
            bodies = [
                msgspec.msgpack.decode(encoded, type=MetaEntry).body
                for _, _, encoded in (member.repair.meta or {}).values()
            ]
            parts.append(encode(Fingerprints(META, -1, pack_fingerprints([fingerprint(body) for body in bodies]))))
        if parts:
            member.repair.sync_ns = core.now_ns
            core.port.push(member, parts)
