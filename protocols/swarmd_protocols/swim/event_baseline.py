"""What one member told a node that starts of how far each origin was delivered, while others may still deny it. Pure.

A node that starts takes the first answer, so that what is said from then on reaches it at once. What one member says
alone is not kept: where two others have delivered less, theirs counts; where another has delivered as much, it stays.
"""

from collections.abc import Mapping

_DOUBTED_NS = 30_000_000_000
"""The first answer may be denied for so long, nanoseconds: many probes, of which each compares views that differ. Later
on, others may have delivered less for reasons of their own, such as a restart."""
_DENIALS = 2
"""So many members have to deny it, so that one stolen key brings back nothing old; in a swarm of three, or in a
mesh, one."""


class Baseline:
    """The first answer, by origin, as far as nobody else has confirmed it."""

    def __init__(self) -> None:
        self._teller = b""
        self._taken: dict[bytes, int] = {}
        self._words: dict[bytes, dict[bytes, int]] = {}
        self._until_ns = 0

    def take(self, teller: bytes, taken: Mapping[bytes, int], now_ns: int) -> None:
        """A member has said how far origins were delivered, and that is where this node begins.

        Args:
            teller: The member.
            taken: By origin, the last event that counts as delivered.
            now_ns: The time.
        """
        self._teller, self._taken, self._until_ns = teller, dict(taken), now_ns + _DOUBTED_NS

    def denied(self, peer: bytes, told: Mapping[bytes, int], members: int, now_ns: int) -> list[tuple[bytes, int, int]]:
        """A member says how far it has delivered each origin.

        Args:
            peer: The member.
            told: By origin, its last one delivered; none for an origin that is absent.
            members: Members that can be reached; 2 in a mesh.
            now_ns: The time.

        Returns:
            What does not hold: origin, the event that counted as the last delivered, and the one that does.
        """
        if not self._taken or peer == self._teller:
            return []
        if now_ns > self._until_ns:
            self._taken.clear()
            self._words.clear()
            return []
        found = []
        for origin, taken in list(self._taken.items()):
            word = told.get(origin, 0)
            if word >= taken:
                del self._taken[origin]
                self._words.pop(origin, None)
                continue
            words = self._words.setdefault(origin, {})
            words[peer] = word
            if len(words) >= (_DENIALS if members > 2 else 1):
                found.append((origin, taken, max(words.values())))
                del self._taken[origin], self._words[origin]
        return found
