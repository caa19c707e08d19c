"""How high the ground lies under each member, so that others know its altitude: positions carry heights above ground.

    metadata "ground" = "431.2"      metres above the WGS 84 ellipsoid; "" where this node does not know

An autopilot gives both its height above the ground and, where its receiver is good enough, above the ellipsoid. Their
difference is that of the place it took off from, so it changes rarely and is told rarely.
"""

import math
import time
from collections.abc import Callable, Sequence

from swarmd.api.bus import Bus, Notice
from swarmd.api.daemon import PoseSeen
from swarmd_protocols.effects import MemberChanged, SetMeta
from swarmd_protocols.ids import NodeId
from swarmd_protocols.summary import MemberView

GROUND_KEY = "ground"
NEWS_M = 3.0
"""Metres by which the ground must have moved to be told again: the heights of a receiver wander by so much."""
TELL_S = 30.0
"""Seconds between two words on it, at least: each goes to the whole swarm."""
READ_S = 1.0
"""Seconds between two readings of what the members tell, at least."""
LOWEST_M, HIGHEST_M = -1_000.0, 10_000.0
"""Where ground can be: the shores of the Dead Sea and Everest, with room for the geoid and for receivers."""
_TEXT_MAX_BYTES = 16


class Grounds:
    """What this node tells of its ground, and what the others tell of theirs."""

    def __init__(
        self, bus: Bus, node: NodeId, members: Callable[[], Sequence[MemberView]], say: Callable[[SetMeta], None]
    ) -> None:
        """Nothing is known.

        Args:
            bus: Where own poses and changes of members are heard of.
            node: This one.
            members: Gives all members with their metadata.
            say: Gives the node a local request.
        """
        self._node = node
        self._members = members
        self._say = say
        self._told_m: float | None = None
        self._told_s = float("-inf")
        self._grounds: dict[NodeId, float] = {}
        self._is_stale = True
        self._read_s = float("-inf")
        bus.subscribe(self.on_notice)

    def begin(self) -> None:
        """Take back what an earlier life told: the device may have been carried elsewhere."""
        if any(member.node == self._node and member.meta.get(GROUND_KEY) for member in self._members()):
            self._say(SetMeta(GROUND_KEY, b""))

    def of(self, node: NodeId) -> float | None:
        """Metres above the ellipsoid of the ground under a member; None where it does not tell."""
        now_s = time.monotonic()
        if self._is_stale and now_s - self._read_s >= READ_S:
            found = {member.node: ground_of(member.meta.get(GROUND_KEY, b"")) for member in self._members()}
            self._grounds = {one: ground_m for one, ground_m in found.items() if ground_m is not None}
            self._is_stale, self._read_s = False, now_s
        return self._grounds.get(node)

    def on_notice(self, notice: Notice) -> None:
        """A pose of this node, or a member that may tell something else."""
        if isinstance(notice, MemberChanged):
            self._is_stale = True
        elif isinstance(notice, PoseSeen) and notice.has_fix and notice.altitude_m is not None:
            self._tell(notice.altitude_m - notice.height_agl_m)

    def _tell(self, ground_m: float) -> None:
        now_s = time.monotonic()
        is_news = self._told_m is None or abs(ground_m - self._told_m) > NEWS_M
        if is_news and now_s - self._told_s >= TELL_S and LOWEST_M <= ground_m <= HIGHEST_M:
            self._told_m, self._told_s = ground_m, now_s
            self._say(SetMeta(GROUND_KEY, f"{ground_m:.1f}".encode("ascii")))


def ground_of(told: bytes) -> float | None:
    """What a member tells, or None where it tells nothing that could be ground.

    >>> ground_of(b"431.2"), ground_of(b""), ground_of(b"1e9"), ground_of(b"nan")
    (431.2, None, None, None)
    """
    try:
        ground_m = float(told[:_TEXT_MAX_BYTES].decode("ascii"))
    except ValueError:
        return None
    return ground_m if math.isfinite(ground_m) and LOWEST_M <= ground_m <= HIGHEST_M else None
