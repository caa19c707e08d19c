"""What members told a node that starts of how far each origin was delivered, while others may still deny it. Pure.

A node that starts asks whomever it meets, and begins where the higher of the first two answers says, so that nobody
alone brings back what was said long ago. What one member says alone is not kept: where two others have delivered less,
theirs counts; where two have delivered as much and still say so, it stays. Who was misled as this node was takes its
word back; against the one that is left then three count. In a mesh, who has delivered as much may be of the same side,
and who has less may hear the other side only through this node: there one that has less is believed, whoever spoke
before it, unless one of those shows the event (`event_doubts.py`).
"""

from collections.abc import Mapping
from typing import NamedTuple

_DOUBTED_NS = 30_000_000_000
"""The first answer may be denied for so long, nanoseconds: many probes, of which each compares views that differ. Later
on, others may have delivered less for reasons of their own, such as a restart."""
_AGREE_MAX = 24
"""Members of which it is remembered that they have delivered as much: as many as are ever near in a mesh."""
_DENIALS = 2
"""So many members have to deny it, so that one stolen key brings back nothing old; in a swarm of three, or in a
mesh, one."""
ANSWERS = 2
"""So many members are heard on what was said before; with one key stolen one of them is honest."""
SECOND_NS = 1_000_000_000
"""After the first answer the second is awaited for so long, nanoseconds: others are asked three times in it."""
_LATE_NS = 5_000_000_000
"""For so long after it is known where this node begins, nanoseconds, an event that only one of the answers has may turn
out to be news: it was said between the two, and is on its way here."""
_UNHEARD_NS = 3_000_000_000
"""Who has asked for so long and had no answer, nanoseconds, is not heard: of ten questions each would be lost."""
_UNASKED_MAX = 64
"""Members of which it is kept what they told unasked, one word each."""
_ASKED_MAX = 1_024
"""Members that count as asked; a node asks whom it meets and one more every 300 ms, until it knows."""
_BROUGHT_EACH, _ORIGINS_MAX = 64, 1_024
"""Newest events of each origin, and origins, that came before it is known where this node begins, and of which it is
known who brought them: as many as others keep of an origin for repair. Of those beyond, what was said before is as the
answers have it; nobody who says much, or brings much that is old, takes this place from another's news."""


class Answers:
    """Who was asked what was said before this node came, what they answered, and what came by itself meanwhile."""

    def __init__(self) -> None:
        self.is_told = False
        """Whether anybody who was asked has answered."""
        self._asked: set[bytes] = set()
        self._asked_ns = 0
        """When the first was."""
        self._told: dict[bytes, dict[bytes, int]] = {}
        self._unasked: dict[bytes, dict[bytes, int]] = {}
        self._brought: dict[bytes, dict[int, bytes]] = {}
        """By origin and number: who brought it, or the origin itself once it is news."""
        self._unsure: dict[bytes, tuple[int, int]] = {}
        """By origin, how far all have delivered it and how far one has, where that differs."""
        self._unsure_until_ns = 0

    def __len__(self) -> int:
        return len(self._told)

    def ask(self, peer: bytes, now_ns: int) -> None:
        """A member is being asked."""
        if not self._asked:
            self._asked_ns = now_ns
        if len(self._asked) < _ASKED_MAX:
            self._asked.add(peer)

    def take(self, peer: bytes, told: Mapping[bytes, int]) -> bool:
        """A member answers: how far it has delivered each origin. False where it was not asked, or has answered."""
        if peer not in self._asked or peer in self._told:
            self.take_question(peer, told)
            return False
        self._told[peer] = dict(told)
        self.is_told = True
        return True

    def take_question(self, peer: bytes, told: Mapping[bytes, int]) -> None:
        """A member that asks says how far it is, or less: whoever is in doubt asks for more than it lacks.

        So it is no answer, and counts where there are too few.
        """
        if len(self._unasked) < _UNASKED_MAX:
            self._unasked.setdefault(peer, dict(told))

    def take_unasked(self, now_ns: int) -> bool:
        """Whether nobody hears what this node asks: then what members have told it unasked is how far it was."""
        if self.is_told or not self._unasked or not self._asked or now_ns - self._asked_ns < _UNHEARD_NS:
            return False
        self._told |= self._unasked
        return True

    def has_told(self, peer: bytes) -> bool:
        """Whether a member has answered."""
        return peer in self._told

    def came(self, origin: bytes, sequence: int, via: bytes) -> None:
        """An event that was verified came by itself."""
        of_origin = self._brought.get(origin, {})
        if sequence in of_origin:
            self.came_again(origin, sequence, via)
            return
        if len(of_origin) >= _BROUGHT_EACH:
            oldest = min(of_origin)
            if sequence < oldest:
                return
            del of_origin[oldest]
        elif not of_origin:
            if len(self._brought) >= _ORIGINS_MAX:
                return
            self._brought[origin] = of_origin
        of_origin[sequence] = via

    def came_again(self, origin: bytes, sequence: int, via: bytes) -> bool:
        """It came again: it is news where its origin brings it, or two members do. Whether it has become news by it."""
        of_origin = self._brought.get(origin, {})
        if of_origin.get(sequence, via) in (via, origin):
            return False
        of_origin[sequence] = origin
        return True

    def is_news(self, origin: bytes, sequence: int) -> bool:
        """Whether an event was said after this node began, for all that one member can do."""
        return self._brought.get(origin, {}).get(sequence) == origin

    def may_pass_on(self, origin: bytes, sequence: int, *, has_begun: bool) -> bool:
        """Whether others hear of an event from this node: two that start together would make news of anything else."""
        return has_begun or self.is_news(origin, sequence)

    def is_unsure(self, origin: bytes, sequence: int, now_ns: int) -> bool:
        """Whether one answer has an event that the other has not, a short while ago."""
        if now_ns > self._unsure_until_ns:
            self._unsure.clear()
            self._brought.clear()
            return False
        all_have, one_has = self._unsure.get(origin, (0, 0))
        return all_have < sequence <= one_has

    def close(self, now_ns: int) -> tuple[dict[bytes, int], dict[bytes, dict[bytes, int]]]:
        """It is known where this node begins: of those who were asked, and were heard in time, the higher word counts.

        Returns:
            By origin, the highest that was told; and by member, in the order of their answers, what it told.
        """
        if len(self._told) < ANSWERS:
            asked = [peer for peer in self._unasked if peer in self._asked and peer not in self._told]
            self._told |= {peer: self._unasked[peer] for peer in asked}
        begins: dict[bytes, int] = {}
        for told in self._told.values():
            for origin, delivered in told.items():
                begins[origin] = max(delivered, begins.get(origin, 0))
        tellers = dict(self._told)
        for origin, delivered in begins.items():
            fewest = min(told.get(origin, 0) for told in self._told.values())
            if fewest < delivered:
                self._unsure[origin] = fewest, delivered
        self._unsure_until_ns = now_ns + _LATE_NS
        self._asked.clear()
        self._told.clear()
        self._unasked.clear()
        return begins, tellers


class Denial(NamedTuple):
    """What was said of an origin does not hold."""

    origin: bytes
    taken: int
    """The event that counted as the last delivered."""
    delivered: int
    """The one that does."""
    vouchers: tuple[tuple[bytes, int], ...]
    """Who still says more than that, and how much, where one member alone denies it."""


class Baseline:
    """What a node that starts was told, by origin, as far as it may be denied."""

    def __init__(self) -> None:
        self._tellers: dict[bytes, bytes] = {}
        self._taken: dict[bytes, int] = {}
        self._words: dict[bytes, dict[bytes, int]] = {}
        self._agree: dict[bytes, set[bytes]] = {}
        """By origin: who else has said that it delivered as much."""
        self._less: dict[bytes, dict[bytes, int]] = {}
        """By origin: who told of less when this node began, and of how much. It may be true where more was invented."""
        self._until_ns = 0

    def take(self, teller: bytes, taken: Mapping[bytes, int], now_ns: int) -> None:
        """A member has said how far origins were delivered, and that is where this node begins.

        Args:
            teller: The member.
            taken: By origin, the last event that counts as delivered.
            now_ns: The time.
        """
        for origin, delivered in taken.items():
            before = self._taken.get(origin, 0)
            if not delivered:
                continue
            if delivered == before and self._tellers[origin] != teller:
                self._agree[origin].add(teller)
            elif delivered < before and self._tellers[origin] != teller:
                self._less[origin][teller] = delivered
            else:
                said = dict.fromkeys((self._tellers[origin], *self._agree[origin]), before) if before else {}
                self._less[origin] = self._less.get(origin, {}) | said
                self._less[origin].pop(teller, None)
                self._taken[origin], self._tellers[origin] = delivered, teller
                self._agree[origin], self._words[origin] = set(), {}
        self._until_ns = now_ns + _DOUBTED_NS

    def denied(
        self, peer: bytes, told: Mapping[bytes, int], members: int, now_ns: int, *, is_mesh: bool = False
    ) -> list[Denial]:
        """A member says how far it has delivered each origin.

        Args:
            peer: The member.
            told: By origin, its last one delivered; none for an origin that is absent.
            members: Members that can be reached; 2 in a mesh.
            now_ns: The time.
            is_mesh: Whether members hear each other through others, such as this node: it need not know at first.

        Returns:
            What does not hold.
        """
        if not self._taken:
            return []
        if now_ns > self._until_ns:
            for table in (self._taken, self._tellers, self._words, self._agree, self._less):
                table.clear()
            return []
        found = []
        for origin, taken in list(self._taken.items()):
            word, agree, words = told.get(origin, 0), self._agree[origin], self._words[origin]
            if word < self._less[origin].get(peer, 0):
                del self._less[origin][peer]
            if word >= taken:
                words.pop(peer, None)
                if peer != self._tellers[origin] and len(agree) < _AGREE_MAX:
                    agree.add(peer)
            elif peer == self._tellers[origin]:
                self._tellers[origin] = b""  # It was told otherwise itself, or has restarted: nothing speaks from it.
            elif peer in agree:
                agree.discard(peer)
            elif peer in words or len(words) < _AGREE_MAX:
                words[peer] = word
            others = 0 if is_mesh else len(agree)
            if len(words) >= (_DENIALS if members > 2 else 1) + others and others + bool(self._tellers[origin]) < 2:
                found.append(self._denial(origin, is_asked=is_mesh or len(words) < _DENIALS))
                for table in (self._taken, self._tellers, self._words, self._agree, self._less):
                    del table[origin]
        return found

    def _denial(self, origin: bytes, *, is_asked: bool) -> Denial:
        taken, delivered = self._taken[origin], max(self._words[origin].values())
        said = self._less[origin] | dict.fromkeys((self._tellers[origin], *self._agree[origin]), taken)
        more = sorted((peer, number) for peer, number in said.items() if peer and number > delivered)
        return Denial(origin, taken, delivered, tuple(more) if is_asked else ())
