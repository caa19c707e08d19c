"""Who is to know what the officers have handed over: whoever could have heard it from somebody.

What was handed over in one part of a swarm is known in another only where somebody has carried it there. So a node is
to know what was handed over at itself, and what anybody was to know or knew with whom it has been for `TOGETHER_S`:
then both, and all between them, were linked all the time. What a thief said is nobody's to know, whoever believes it.
"""

from collections import deque
from dataclasses import dataclass

from swarmd_protocols.trust.trust import Trust
from swarmd_sim.run.host import Host
from swarmd_sim.run.officers import Officers

TOGETHER_S = 10
"""Looks, one a second, at which two nodes must have been in one part before one is to know what the other does: within
so long a revocation takes effect wherever its news can come."""


@dataclass(frozen=True, slots=True)
class Words:
    """What somebody knows of the officers' words."""

    roots: int = 0
    """How many."""
    revoked: frozenset[bytes] = frozenset()
    groups: frozenset[int] = frozenset()

    def __or__(self, other: "Words") -> "Words":
        return Words(max(self.roots, other.roots), self.revoked | other.revoked, self.groups | other.groups)

    def __and__(self, other: "Words") -> "Words":
        return Words(min(self.roots, other.roots), self.revoked & other.revoked, self.groups & other.groups)

    def lacks(self, other: "Words") -> list[str]:
        """What of another's words is not known here, in kinds.

        >>> Words(1, frozenset(), frozenset({1})).lacks(Words(2, frozenset(), frozenset({1, 2})))
        ['roots', 'group keys']
        """
        kinds = {
            "roots": self.roots >= other.roots,
            "revocations": self.revoked >= other.revoked,
            "group keys": self.groups >= other.groups,
        }
        return [kind for kind, holds in kinds.items() if not holds]


def words_of(trust: Trust) -> Words:
    """What a node knows."""
    return Words(len(trust.roots), frozenset(trust.revoked), frozenset(trust.group_keys))


class Told:
    """See the module.

    Args:
        officers: Who hands over.
    """

    def __init__(self, officers: Officers) -> None:
        self._officers = officers
        self._words: dict[int, Words] = {}
        self._parts: deque[dict[int, int]] = deque(maxlen=TOGETHER_S)
        """At each of the last looks, by host the first of its part."""

    def on_step(self, parts: list[list[Host]]) -> None:
        """About once a second.

        Args:
            parts: The sets of live hosts that reach each other over fair links.
        """
        self._parts.append({host.index: part[0].index for part in parts for host in part})
        together: dict[tuple[int, ...], list[int]] = {}
        for part in parts:
            for host in part:
                self._words[host.index] = self._known_at(host)
                went = tuple(then.get(host.index, -1) for then in self._parts)
                if len(went) == TOGETHER_S and -1 not in went:
                    together.setdefault(went, []).append(host.index)
        for group in together.values():
            words = Words()
            for index in group:
                words |= self._words[index]
            self._words |= dict.fromkeys(group, words)

    def known_in(self, part: list[Host]) -> Words:
        """What everybody in a part is to know that has been one for long."""
        words = Words()
        for host in part:
            words |= self._known_at(host)
        return words

    def _known_at(self, host: Host) -> Words:
        said = Words(len(self._officers.roots), frozenset(self._officers.revoked_ns), frozenset(self._officers.groups))
        handed = Words(*self._officers.handed.get(host.index, ()))
        return self._words.get(host.index, Words()) | handed | (words_of(host.node._core.trust) & said)
