"""How much of what one member says to all is looked at and passed on: its record, links, events, metadata. Pure.

Every byte that an author has passed on costs each relay several bytes, since it tells several others. Five accounts:

- **Looked at**, by number, is as much as a healed partition brings at once; each word costs a check of a signature.
  What the author brings itself has an account of its own, so that nobody who repeats its old words takes from it.
- **Pushed** at once is what an author says now and then. Beyond that, news of it rides in probes that have room to
  spare: so one author never spends what the relay may push for all others.
- **Passed on** at all, pushed, riding or in answer to a comparison, is what a whole log and all metadata of an honest
  member weigh, and the rate that a node may send in all. Beyond that the author floods: what it says is kept and
  delivered here, and whoever lacks it asks the author itself, who pays for its own words.
- **Repaired**, in answers to comparisons, is twice what all metadata of a member weigh, and half that rate, whether it
  floods here or not: where it floods one member alone, the others repair among themselves what that one passes on.
  A quarter of it at once, the rest at four times a node's budget.
- **Given back** to the author itself is a copy of what it said before its present life, where all of that is spent: who
  has lost its disk cannot be asked for its own words, so that they would go at what is left here to all that lack them.
  It has the pace of repairs.

A flood stops no comparison of what others say: changes by a flooder do not count as news that is on its way.
"""

from swarmd_protocols.effects import Alarm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.config import SwimConfig

_S = 1_000_000_000
_PUSH_BURST_SHARE, _PUSH_RATE_SHARE = 8, 12
"""One part in so many of the borrowed bytes and of the budget is for pushes of one author: told to four members, these
are half of what news may borrow, and what it earns (a third of the budget)."""
_BURST_PER_MEMBER = 256
"""Bytes more that an author may have pushed for each member known, as news may borrow 2,048 more for each."""
_WORDS_PER_S, _WORDS_BURST = 50, 136
"""Newer words of one author that are looked at: a healed partition brings 64 events, 64 metadata keys, a record and a
link report at most. With 75 microseconds a check the burst takes 10 ms, and the rate 0.4 % of a core."""
_REPAIRED, _REPAIR_RATE_SHARE = 2, 2
"""All metadata of an author so many times are sent in answers to comparisons at once, as where a partition heals; then
one part in so many of the budget. Two members that hold what the other lacks send it without knowing whether the other
has newer: without an account, ever new keys told to one member cost each other ten times the budget."""
_SOON, _SOON_RATE = 2, 4
"""One part in so many of all metadata of an author is repaired at once, and then so many budgets a second while the
account above lasts: so what a storm may cost in its first ten seconds, beside a model that is fetched, is 70 KB and not
128. Of a healed partition most is repaired at once, and the fullest author's in a quarter of a minute. User events are
not held up by it: they come in order, so that a pause holds up all that follow."""
_ASKERS_MAX, _ASKER_RATE_SHARE = 64, 4
"""Askers of whom it is kept what they were sent of an author, and how much of its rate one may have once it has had one
copy and half of the account is spent: so whoever asks without end leaves a copy, and then most of the rate, to the
others. The one with most left is forgotten first."""
_REFUSED_MAX = 128
"""So much refused since the account was last full is a flood to be named: a partition that heals brings 64 events and
64 metadata keys of a member at most, and they are no flood."""
_AUTHORS_MAX = 1_024
"""Authors whose accounts are kept; the one heard longest ago is forgotten first."""


class _Author:
    """What is left of one author's accounts."""

    __slots__ = (
        "askers",
        "at_ns",
        "floods",
        "given_back",
        "left",
        "named",
        "pushes",
        "refused",
        "repairs",
        "since_ns",
        "soon",
        "spent",
        "words",
    )

    def __init__(self, left: float, pushes: float, repairs: float, soon: float, now_ns: int) -> None:
        self.left = left
        self.pushes = pushes
        self.repairs = repairs
        self.soon = soon
        """What may be repaired now, of what may be repaired at all."""
        self.askers: dict[bytes, tuple[float, int]] = {}
        """What each may still be sent of a copy of its own, and when that was."""
        self.at_ns = self.since_ns = now_ns
        self.given_back = 0.0
        """What it was sent of a copy of its own words, less what time has paid."""
        self.floods = False
        self.named = False
        self.refused = 0
        self.spent = 0
        self.words = [float(_WORDS_BURST), float(_WORDS_BURST)]
        """Words that are looked at: brought by others, and by the author itself."""


class Relays:
    """Accounts of all authors; bounded."""

    def __init__(self, config: SwimConfig) -> None:
        self._per_s = float(config.budget_bytes_s)
        self._burst = float(config.meta_bytes_max)
        self._pushes_per_s = config.budget_bytes_s / _PUSH_RATE_SHARE
        self._pushes_burst = config.budget_burst_bytes / _PUSH_BURST_SHARE
        self._authors: dict[bytes, _Author] = {}
        self._floods = 0

    def __len__(self) -> int:
        return len(self._authors)

    def _author(self, node: bytes, members: int, now_ns: int) -> _Author:
        pushes_most = self._pushes_burst + _BURST_PER_MEMBER * members
        author = self._authors.pop(node, None)
        if author is None:
            author = _Author(self._burst, pushes_most, _REPAIRED * self._burst, self._burst / _SOON, now_ns)
            if len(self._authors) >= _AUTHORS_MAX:
                self._floods -= self._authors.pop(next(iter(self._authors))).floods
        self._authors[node] = author
        author.pushes = min(pushes_most, author.pushes)
        if now_ns > author.at_ns:
            elapsed_s = (now_ns - author.at_ns) / _S
            author.at_ns = now_ns
            author.pushes = min(pushes_most, author.pushes + elapsed_s * self._pushes_per_s)
            author.left = min(self._burst, author.left + elapsed_s * self._per_s)
            author.repairs = min(_REPAIRED * self._burst, author.repairs + elapsed_s * self._per_s / _REPAIR_RATE_SHARE)
            author.given_back = max(0.0, author.given_back - elapsed_s * self._per_s / _REPAIR_RATE_SHARE)
            author.soon = min(self._burst / _SOON, author.soon + elapsed_s * self._per_s * _SOON_RATE)
            author.words = [min(float(_WORDS_BURST), left + elapsed_s * _WORDS_PER_S) for left in author.words]
        if author.left >= self._burst:
            self._floods -= author.floods
            author.floods = author.named = False
            author.refused = author.spent = 0
            author.since_ns = now_ns
        return author

    def may_say(self, node: bytes, members: int, now_ns: int, *, direct: bool) -> bool:
        """Whether one more newer word of an author is looked at.

        Args:
            node: The author.
            members: Members known.
            now_ns: The time.
            direct: It brings the word itself.
        """
        return node not in self._authors or self._author(node, members, now_ns).words[direct] >= 1

    def said(self, node: bytes, members: int, now_ns: int, *, direct: bool) -> None:
        """The word was looked at, and is its own."""
        words = self._author(node, members, now_ns).words
        words[direct] = max(0.0, words[direct] - 1)

    def may_pass_on(self, node: bytes, size: int, members: int, now_ns: int) -> bool:
        """Whether so many new bytes of an author are passed on; they are spent if so.

        Args:
            node: The author.
            size: Bytes of one message of its.
            members: Members known.
            now_ns: The time.
        """
        author = self._author(node, members, now_ns)
        author.spent += size
        if author.left < size:
            self._floods += not author.floods
            author.floods = True
            author.refused += 1
            return False
        author.left -= size
        return True

    def may_push(self, node: bytes, size: int, members: int, now_ns: int) -> bool:
        """Whether they may be pushed at once, before what others say; spent if so."""
        author = self._author(node, members, now_ns)
        if author.pushes <= 0:
            return False
        author.pushes -= size
        return True

    def may_repair(
        self, node: bytes, size: int, members: int, now_ns: int, asker: bytes = b"", *, at_once: bool = False
    ) -> bool:
        """Whether a comparison is answered with these bytes of an author; they are spent if so.

        The last ones may be more than is left, so that nothing large waits behind small things for ever.

        Args:
            node: The author.
            size: Bytes of one message of its.
            members: Members known.
            now_ns: The time.
            asker: Who is answered.
            at_once: The whole account may go at once.
        """
        author = self._author(node, members, now_ns)
        left = author.repairs if at_once else min(author.repairs, author.soon)
        if left <= 0 or (author.floods and author.left <= 0):
            return False
        left, at_ns = author.askers.pop(asker, (self._burst, now_ns))
        rate = self._per_s / _REPAIR_RATE_SHARE / _ASKER_RATE_SHARE
        left = min(self._burst, left + max(0, now_ns - at_ns) / _S * rate)
        if len(author.askers) >= _ASKERS_MAX:
            del author.askers[max(author.askers, key=lambda one: author.askers[one])]
        is_served = left > 0 or 2 * author.repairs >= _REPAIRED * self._burst
        author.askers[asker] = (left - size if is_served else left), now_ns
        if not is_served:
            return False
        author.repairs -= size
        author.soon -= size
        if author.floods:
            author.left -= size
        return True

    def may_give_back(self, node: bytes, size: int, members: int, now_ns: int) -> bool:
        """Whether an author is sent so many bytes of what it said in an earlier life; they are spent if so.

        Asked once a repair may not answer with them (`may_repair`).

        Args:
            node: The author, which asks.
            size: Bytes of one message of its.
            members: Members known.
            now_ns: The time.
        """
        author = self._author(node, members, now_ns)
        if author.soon <= 0 or author.given_back >= self._burst:
            return False
        author.soon -= size
        author.given_back += size
        return True

    @property
    def anybody_floods(self) -> bool:
        """Whether more came of any author than is passed on."""
        return self._floods > 0

    def floods(self, node: bytes) -> bool:
        """Whether more came of this author than is passed on."""
        author = self._authors.get(node) if self._floods else None
        return author is not None and author.floods

    def name(self, node: NodeId, name: str, evidence: str, now_ns: int) -> Alarm | None:
        """An alarm about who floods, once a flood."""
        author = self._authors.get(node)
        if author is None or author.named or author.refused <= _REFUSED_MAX:
            return None
        author.named = True
        seconds = (now_ns - author.since_ns) / _S
        return Alarm(
            "member-flood",
            f"member {name!r} ({node.hex()}) said {author.spent:,} bytes to all in {seconds:.0f} s, more than "
            f"{self._burst:,.0f} and {self._per_s:,.0f} a second: the rest is not passed on; signed by it "
            f"last: {evidence}",
        )
