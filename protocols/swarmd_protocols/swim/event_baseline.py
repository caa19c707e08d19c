"""What one member told a node that starts of how far each origin was delivered, while others may still deny it. Pure.

A node that starts takes the first answer, so that what is said from then on reaches it at once. What one member says
alone is not kept: where two others have delivered less, theirs counts; where another has delivered as much, it stays.
In a mesh, who has delivered as much may be of the same side, and who has less may hear the other side only through
this node: there one that has less is believed, whoever spoke before it.
"""

from collections.abc import Mapping

_DOUBTED_NS = 30_000_000_000
"""The first answer may be denied for so long, nanoseconds: many probes, of which each compares views that differ. Later
on, others may have delivered less for reasons of their own, such as a restart."""
_AGREE_MAX = 24
"""Members of which it is remembered that they have delivered as much: as many as are ever near in a mesh."""
_DENIALS = 2
"""So many members have to deny it, so that one stolen key brings back nothing old; in a swarm of three, or in a
mesh, one."""


class Baseline:
    """The first answer, by origin, as far as nobody else has confirmed it."""

    def __init__(self) -> None:
        self._teller = b""
        self._taken: dict[bytes, int] = {}
        self._words: dict[bytes, dict[bytes, int]] = {}
        self._agree: dict[bytes, set[bytes]] = {}
        """By origin: who has said that it delivered as much. If it has less later on, it has restarted."""
        self._until_ns = 0

    def take(self, teller: bytes, taken: Mapping[bytes, int], now_ns: int) -> None:
        """A member has said how far origins were delivered, and that is where this node begins.

        Args:
            teller: The member.
            taken: By origin, the last event that counts as delivered.
            now_ns: The time.
        """
        self._teller, self._taken, self._until_ns = teller, dict(taken), now_ns + _DOUBTED_NS

    def denied(
        self, peer: bytes, told: Mapping[bytes, int], members: int, now_ns: int, *, is_mesh: bool = False
    ) -> list[tuple[bytes, int, int]]:
        """A member says how far it has delivered each origin.

        Args:
            peer: The member.
            told: By origin, its last one delivered; none for an origin that is absent.
            members: Members that can be reached; 2 in a mesh.
            now_ns: The time.
            is_mesh: Whether members hear each other through others, such as this node: it need not know at first.

        Returns:
            What does not hold: origin, the event that counted as the last delivered, and the one that does.
        """
        if not self._taken or peer == self._teller:
            return []
        if now_ns > self._until_ns:
            self._taken.clear()
            self._words.clear()
            self._agree.clear()
            return []
        found = []
        for origin, taken in list(self._taken.items()):
            word = told.get(origin, 0)
            agree = self._agree.setdefault(origin, set())
            if word >= taken:
                self._words.pop(origin, None)
                if len(agree) < _AGREE_MAX:
                    agree.add(peer)
                continue
            if peer in agree or (agree and not is_mesh):
                continue
            words = self._words.setdefault(origin, {})
            words[peer] = word
            if len(words) >= (_DENIALS if members > 2 else 1):
                found.append((origin, taken, max(words.values())))
                del self._taken[origin], self._words[origin], self._agree[origin]
        return found
