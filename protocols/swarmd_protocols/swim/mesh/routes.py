"""Which near members lead to a far one, and at what cost. Pure; follows from who hears whom, as `graph.py` does.

The cost of a chain is what its transmissions are expected to be. What is left of it must fall at each hop, by each
hop's own reckoning: so nothing that is handed on goes in a circle, however old anybody's reports are.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Heard, Key, beginnings, reached


class Way(NamedTuple):
    """One way to a far member; they sort by cost."""

    cost: int
    """What all of it is expected to cost, quarters of a transmission."""
    rest: int
    """What is left of it for the near member; 0: that is the one meant."""
    near: Key
    """Who is near and leads there."""


class Routes:
    """Ways of one node, from the links that both ends report. Empty where there is no mesh."""

    def __init__(self) -> None:
        """There is nobody."""
        self._own: Key = b""
        self._near: Heard = {}
        self._links: Mapping[Key, Heard] = {}
        self.costs: Mapping[Key, int] = {}
        """Who is reached, and what the cheapest chain to each costs."""
        self._ways: dict[Key, list[Way]] = {}
        """What was asked for since the links changed; one list for each member at most."""

    def know(self, own: Key, near: Heard, links: Mapping[Key, Heard]) -> None:
        """The links have changed.

        Args:
            own: This node.
            near: Whom it hears, and what each link costs.
            links: By author, whom each other member hears that hears it too (`graph.agreed`).
        """
        if (own, near, links) != (self._own, self._near, self._links):
            self._ways.clear()
        self._own, self._near, self._links = own, near, links
        self.costs = reached(own, near, links)

    def beginnings(self) -> Mapping[Key, Key]:
        """With which near member the cheapest chain to each that is reached begins."""
        return beginnings(self._own, self._near, self._links, self.costs)

    def lead_to(self, members: Sequence[Member]) -> bool:
        """Whether there are some, all of them far, and others hand on what goes to them: a datagram that goes straight
        there, as one does now and then to find out whether it comes, is expected to fail.
        """
        return bool(members) and all(one.where < 0 and one.node[:KEY_BYTES] in self.costs for one in members)

    def ways(self, target: Key) -> list[Way]:
        """The ways to a member, the cheapest first; none leads through this node a second time.

        None begins with who says that it hears others and not this node: where many are in range each has a few near,
        and from somebody else it takes nothing that is to be handed on.

        >>> routes = Routes()
        >>> links = {b"b": {b"a": 4, b"d": 4}, b"c": {b"a": 5, b"d": 4}, b"e": {b"d": 4}}
        >>> routes.know(b"a", {b"b": 4, b"c": 5, b"e": 4}, {**links, b"d": {b"b": 4, b"c": 4, b"e": 4}})
        >>> routes.ways(b"d")
        [Way(cost=8, rest=4, near=b'b'), Way(cost=9, rest=4, near=b'c')]
        """
        found = self._ways.get(target)
        return self._reckon(target) if found is None else found

    def are_reckoned(self, target: Key) -> bool:
        """Whether the ways to a member are held; to reckon them takes a look at each link."""
        return target in self._ways

    def _reckon(self, target: Key) -> list[Way]:
        around = {key: heard for key, heard in self._links.items() if key != self._own}
        rest = reached(target, around.get(target, {}), around)
        found = self._ways[target] = sorted(
            Way(cost + rest[key], rest[key], key)
            for key, cost in self._near.items()
            if key in rest and self._own in self._links.get(key, (self._own,))
        )
        return found
