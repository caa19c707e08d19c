"""What is missing of everybody's past, whom to ask for it, and what became of that.

Rules this file keeps:

- Wanted are stretches of time of every member. The newest missing hour of anybody goes first, so that a page that shows
  the last hour is whole before one that shows the day.
- The author is asked first; where it cannot be reached, whoever has listed pages of it. Givers take turns
  (`givers.py`), after each answer: none keeps another from being asked, however slow or long its answers are.
- A walk goes from the newest page down and ends with a stretch that the giver has told all of. Of its own past an
  author's word for "there is no more" counts: the rest is a gap that it names. Of another's it only means that somebody
  else is asked.
- Nothing is kept that its author has not signed under a certificate that holds now. A giver that answers anything else
  (garbage, another author's pages, pages that were not asked for, times to come) is named and left for `LEFT_NS`,
  whatever it says meanwhile, and whether or not it was out of reach in between.
- What cannot be had is said, with why (`stretches`); silence is never taken for calm.
"""

from collections.abc import Callable, Iterable, Sequence, Set

import msgspec

from swarmd_protocols.effects import Alarm, Order, Rejected
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, short
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.authors import AUTHORS_MAX, Author, make_room
from swarmd_protocols.past.givers import SLOW_NS, Givers, Walk
from swarmd_protocols.past.giving import NAME
from swarmd_protocols.past.pages import NUMBER_MAX, PAGE_MAX_MS, TIME_MAX_MS, holds, read_page
from swarmd_protocols.past.spans import JOIN_MS, Span, common, joined, without
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect
from swarmd_protocols.trust.view import TrustView

_S = 1_000_000_000
WINDOW_MS = 3_600_000
"""One walk tells of so much at most, milliseconds: an hour."""
TIMEOUT_NS = 60 * _S
"""An answer that has not come by then does not come: four of a giver's asker wait before it at the default rate."""
LIST_NS = 60 * _S
"""A member is asked what it keeps once in so long, nanoseconds; twice as seldom after each time that it did not answer
or that nothing came of it, down to `LIST_MAX_NS`."""
LIST_MAX_NS = 3_600 * _S
"""Nanoseconds: a member of an older version costs one small frame an hour."""
LISTS_AT_ONCE = 4
"""Members asked what they keep in one second: 200 in less than a minute."""
LEFT_NS = 600 * _S
"""A giver that lied is asked nothing for so long."""
TICK_NS = 1 * _S
"""Nanoseconds between two looks at what is missing, while anything is."""
FUTURE_MS = 10_000
"""A page that ends later than this from now, milliseconds, tells of times to come: clocks of a swarm agree to
milliseconds."""
SETTLE_MS = 8_000
"""The last so many milliseconds are not asked for: an author closes its open page for an asker once it is five seconds
old, so what is older is written down, clocks that differ included, and its word that there is no more is its last."""
SPANS_MAX = 256
"""Stretches kept of one author, the newest: each end is a restart of its daemon or a page that was lost."""
WANTED_MAX = 64
"""Stretches that are wanted; more are joined from the oldest on."""
_NAMED_NS = 60 * _S
"""A giver that lies is named in an alarm once in so long, nanoseconds."""

WHOLE, WAITING, EXPIRED, OFF, REFUSED, UNREACHABLE, SILENT, LIED, REVOKED = (
    "whole", "waiting", "expired", "off", "refused", "unreachable", "silent", "lied", "revoked",
)  # fmt: skip
"""What is known of a stretch of an author's past. WHOLE: its pages are here. WAITING: they are on their way. EXPIRED:
they were dropped, for want of room or for their age. OFF: the author wrote nothing down, by its own word. REFUSED: it
does not give to this node. UNREACHABLE: nobody can be reached who keeps them. SILENT: nobody answers. LIED: who has
them answered what does not hold. REVOKED: the author is shut out."""


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Some time of one node's past."""

    author: NodeId
    from_ms: int
    to_ms: int
    what: str
    """One of the words above."""


class Fetcher:
    """See the module.

    Args:
        node: This node.
        signer: Verifies.
        trust: Who counts.
        now_ms: Swarm time at a moment of the monotonic clock.
    """

    def __init__(self, node: NodeId, signer: Signer, trust: TrustView, now_ms: Callable[[int], int]) -> None:
        self._node = node
        self._signer = signer
        self._trust = trust
        self._now_ms = now_ms
        self._wanted: list[Span] = []
        self._authors: dict[NodeId, Author] = {}
        self._turns = Givers()
        self._givers = self._turns.near
        self._walks = self._turns.walks
        self._number = 0
        self._named_ns: dict[NodeId, int] = {}
        self.counts = {"fetched_pages": 0, "fetched_bytes": 0, "refused_pages": 0, "liars": 0}

    # --- what can be read ---------------------------------------------------------------------------------------------

    @property
    def is_wanting(self) -> bool:
        """Whether anything is fetched at all."""
        return bool(self._wanted)

    def stretches(self, from_ms: int, to_ms: int) -> list[Stretch]:
        """What is known of a stretch of time, by author and in order; authors of whom nobody knows anything are left
        out.
        """
        found: list[Stretch] = []
        for node, author in sorted(self._authors.items()):
            if self._trust.certified(node) is None and node not in self._trust.revoked:
                continue
            found += [Stretch(node, *span, WHOLE) for span in common((from_ms, to_ms), author.held)]
            for gap in without((from_ms, to_ms), author.held):
                found += self._why(node, author, gap)
        return sorted(found, key=lambda one: (one.author, one.from_ms))

    # --- what the driver says -----------------------------------------------------------------------------------------

    def on_want(self, want: requests.Want) -> None:
        """One more stretch is wanted."""
        if want.to_ms > want.from_ms:
            self._wanted = joined([*self._wanted, (want.from_ms, want.to_ms)])
            while len(self._wanted) > WANTED_MAX:
                self._wanted[:2] = [(self._wanted[0][0], self._wanted[1][1])]

    def on_held(self, held: requests.Held) -> list[SubEffect]:
        """What is kept of one author; of one that was shut out meanwhile nothing stays."""
        if held.author in self._trust.revoked:
            return [Order(NAME, requests.Forget(held.author))] if held.spans else []
        self._make_room({held.author}, are_members=True)
        author = self._author(held.author)
        if author is not None:
            author.held = joined(held.spans)[-SPANS_MAX:]
            author.floor_ms = held.floor_ms
        return []

    # --- who is there -------------------------------------------------------------------------------------------------

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> None:
        """Members: whose past there is, and who can be asked."""
        self._make_room({peer.node for peer in peers}, are_members=True)
        for peer in peers:
            self._author(peer.node)
        near = {peer.node for peer in peers if peer.reachable and not peer.far and peer.public_key}
        for gone in self._turns.meet(near, LIST_NS, now_ns):
            for author in self._authors.values():
                author.rows.pop(gone, None)
                if author is not self._authors.get(gone):
                    author.told.pop(gone, None)

    def on_trust(self) -> list[SubEffect]:
        """Somebody may be shut out."""
        out: list[SubEffect] = []
        for node in sorted(self._authors):
            if node in self._trust.revoked and self._authors[node].held:
                self._authors[node] = Author()
                out.append(Order(NAME, requests.Forget(node)))
        return out

    # --- the next questions -------------------------------------------------------------------------------------------

    def on_tick(self, now_ns: int) -> list[SubEffect]:
        """Give up what did not come, and ask for what is missing."""
        for node in [node for node, walk in self._walks.items() if walk.due_ns <= now_ns]:
            self._turns.end(node, now_ns)
            self._put_off(node, SILENT, now_ns + TIMEOUT_NS)
        return self._ask_for_lists(now_ns) + self._ask_next(now_ns)

    def _ask_next(self, now_ns: int) -> list[SubEffect]:
        """As many as there is room for."""
        effects: list[SubEffect] = []
        while self._turns.has_room(now_ns):
            found = self._next(now_ns)
            if found is None:
                break
            giver, author, span = found
            below, rest = (TIME_MAX_MS - 1, NUMBER_MAX), self._givers[giver].rest
            if rest is not None and rest.author == author and rest.span[0] < span[1] <= rest.below[0]:
                span, below = rest.span, rest.below
            self._number += 1
            walk = Walk(author, span, self._number, below, now_ns, now_ns + TIMEOUT_NS)
            self._turns.begin(giver, walk)
            effects.append(_send(giver, messages.Ask(walk.number, author, *span, *below)))
        return effects

    def _ask_for_lists(self, now_ns: int) -> list[SubEffect]:
        effects: list[SubEffect] = []
        for node, giver in self._givers.items():
            if giver.list_ns > now_ns or (giver.reason and giver.denied_ns > now_ns):
                continue
            if giver.listing:  # The last question has no answer.
                giver.pause_ns = min(2 * giver.pause_ns, LIST_MAX_NS)
                if not giver.has_listed:
                    giver.reason, giver.denied_ns = SILENT, now_ns
            self._number += 1
            giver.listing = self._number
            giver.list_ns = now_ns + giver.pause_ns
            effects.append(_send(node, messages.List(self._number)))
            if len(effects) >= LISTS_AT_ONCE:
                break
        return effects

    def _next(self, now_ns: int) -> tuple[NodeId, NodeId, Span] | None:
        """Of whose turn it is, the newest stretch that is missing and it may have: (giver, author, stretch)."""
        best: tuple[tuple[int, int], NodeId, NodeId, Span] | None = None
        now_ms = self._now_ms(now_ns)
        for node, author in self._authors.items():
            if node == self._node or node in self._trust.revoked or any(w.author == node for w in self._walks.values()):
                continue
            missing = self._missing(author, now_ms)
            for giver in self._keepers(node, author) if missing else ():
                if not self._is_idle(giver, now_ns):
                    continue
                spans = self._could_tell(node, author, giver, missing)
                if spans:
                    begin, end = spans[-1]
                    place = -self._turns.turn_of(giver), end
                    if best is None or place > best[0]:
                        best = (place, giver, node, (max(begin, end - WINDOW_MS), end))
                    break
        return None if best is None else best[1:]

    def _missing(self, author: Author, now_ms: int) -> list[Span]:
        found: list[Span] = []
        for begin, end in self._wanted:
            found += without((max(begin, author.floor_ms), min(end, now_ms - SETTLE_MS)), author.held)
        return found

    def _keepers(self, node: NodeId, author: Author) -> Iterable[NodeId]:
        if node in self._givers:
            yield node
        yield from sorted(author.rows)

    def _is_idle(self, node: NodeId, now_ns: int) -> bool:
        giver = self._givers.get(node)
        return giver is not None and giver.has_listed and giver.denied_ns <= now_ns and node not in self._walks

    @staticmethod
    def _could_tell(node: NodeId, author: Author, giver: NodeId, missing: Sequence[Span]) -> list[Span]:
        told = author.told.get(giver, [])
        spans = [part for span in missing for part in without(span, told)]
        if giver != node:
            row = author.rows[giver]
            spans = [part for span in spans for part in common(span, [(row.from_ms, row.to_ms)])]
        return [span for span in spans if span[1] - span[0] > JOIN_MS]

    # --- answers ------------------------------------------------------------------------------------------------------

    def on_listing(self, sender: NodeId, said: messages.Listing, now_ns: int) -> list[SubEffect]:
        """A member says what it keeps."""
        giver = self._givers.get(sender)
        if giver is None or giver.listing != said.number or not said.number:
            return _unasked(sender)
        giver.pause_ns = LIST_NS if giver.has_helped or not giver.has_listed else min(2 * giver.pause_ns, LIST_MAX_NS)
        giver.list_ns = now_ns + giver.pause_ns
        giver.listing, giver.has_listed, giver.has_helped = 0, True, False
        if giver.reason in (SILENT, WAITING) or giver.is_left:
            giver.reason, giver.denied_ns, giver.is_left = "", 0, False
        before = {node: author.rows.pop(sender, None) for node, author in self._authors.items()}
        self._make_room({NodeId(row.author) for row in said.rows})
        for row in said.rows:
            node = NodeId(row.author)
            author_of = self._author(node)
            if author_of is not None and node != self._node:
                author_of.rows[sender] = row
                if node != sender and row != before.get(node):
                    author_of.told.pop(sender, None)  # It has come to keep more since it was asked.
        if sender in self._authors:
            self._hear_own_row(sender, now_ns)
        return []

    def _hear_own_row(self, sender: NodeId, now_ns: int) -> None:
        """What an author says of its own pages saves questions about times of which there are none."""
        author = self._authors[sender]
        row = author.rows.get(sender)
        settled_ms = self._now_ms(now_ns) - SETTLE_MS
        begin = settled_ms if row is None else min(row.from_ms, settled_ms)
        author.expired_ms = 0 if row is None else row.floor_ms
        self._tell(author, sender, (0, begin))

    def on_deny(self, sender: NodeId, said: messages.Deny, now_ns: int) -> list[SubEffect]:
        """A member gives nothing, or not now."""
        giver, walk = self._givers.get(sender), self._walks.get(sender)
        is_listing = giver is not None and 0 < giver.listing == said.number
        if giver is None or not (is_listing or (walk is not None and walk.number == said.number)):
            return _unasked(sender)
        pause_ns = min(said.retry_ms, messages.RETRY_MAX_MS) * 1_000_000
        if is_listing:
            giver.listing, giver.list_ns = 0, now_ns + max(pause_ns, TICK_NS)
        elif walk is not None:
            self._turns.end(sender, now_ns)
            if said.reason == messages.UNKNOWN:
                author = self._authors.get(walk.author)
                if author is not None:
                    self._tell(author, sender, walk.span)
                return []
        self._put_off(sender, REFUSED if said.reason == messages.REFUSED else WAITING, now_ns + pause_ns)
        return []

    def on_answer(self, sender: NodeId, said: messages.Answer, now_ns: int) -> list[SubEffect]:
        """Pages came: what holds is kept, and the walk goes on or ends."""
        walk = self._walks.get(sender)
        if walk is None or walk.number != said.number:
            return _unasked(sender)
        self._turns.end(sender, now_ns)
        author = self._authors[walk.author]
        good, spans, below, problem = self._judge(walk, said, now_ns)
        effects: list[SubEffect] = []
        giver = self._givers.get(sender)
        if giver is not None and not problem:
            giver.reason, giver.has_helped = "", giver.has_helped or bool(good)
        if good:
            author.held = joined([*author.held, *spans])[-SPANS_MAX:]
            self.counts["fetched_pages"] += len(good)
            self.counts["fetched_bytes"] += sum(map(len, good))
            effects.append(Order(NAME, requests.KeepPages(walk.author, tuple(good))))
        if problem:
            self.counts["refused_pages"] += len(said.pages) - len(good)
            return effects + self._leave(sender, problem, now_ns)
        if self._certificate(walk.author) is None:
            # Revoked while the pages were on their way: that is nobody's lie, and nothing of it is taken.
            self._tell(author, sender, walk.span)
            return effects
        if sender == walk.author:
            author.expired_ms = said.floor_ms
        begin, end = walk.span
        if said.more and below[0] > begin:
            self._tell(author, sender, (max(begin, below[0]), end))
            walk.below = below
            if giver is not None:
                giver.rest = walk
            return effects + self._ask_next(now_ns)
        self._tell(author, sender, walk.span)
        return effects

    def _judge(
        self, walk: Walk, said: messages.Answer, now_ns: int
    ) -> tuple[list[bytes], list[Span], tuple[int, int], str]:
        """Pages that hold, of which times they are, the place of the last, and what is wrong with the rest."""
        good: list[bytes] = []
        spans: list[Span] = []
        below, latest_ms = walk.below, self._now_ms(now_ns) + FUTURE_MS
        key = self._certificate(walk.author)
        if key is None and said.certificate and walk.author not in self._trust.revoked:
            try:
                self._trust.admit_certificate(said.certificate)
            except IdentityError as error:
                return good, spans, below, f"a certificate that does not hold ({error})"
            key = self._certificate(walk.author)
        if key is None:
            is_lie = bool(said.pages) and walk.author not in self._trust.revoked
            return good, spans, below, "pages of somebody whom no certificate names" if is_lie else ""
        for data in said.pages:
            try:
                page = read_page(data)
            except WireError as error:
                return good, spans, below, f"what is no page ({error})"
            if page.author != walk.author:
                return (
                    good,
                    spans,
                    below,
                    f"a page of {page.author.hex()[:8]} where {short(walk.author)}'s was asked for",
                )
            place = (page.to_ms, page.number)
            if place >= below or page.from_ms > walk.span[1] or page.to_ms < walk.span[0]:
                return good, spans, below, "a page that was not asked for"
            if page.to_ms > latest_ms:
                return good, spans, below, "a page of times to come"
            if not holds(data, key, self._signer):
                return good, spans, below, "a page that its author has not signed"
            below = place
            good.append(data)
            spans.append((page.from_ms, page.to_ms))
        return good, spans, below, ""

    # --- inside -------------------------------------------------------------------------------------------------------

    def _certificate(self, node: NodeId) -> bytes | None:
        certificate = self._trust.certified(node)
        return None if certificate is None else certificate.public_key

    def _author(self, node: NodeId) -> Author | None:
        found = self._authors.get(node)
        if found is None and len(self._authors) < AUTHORS_MAX:
            found = self._authors[node] = Author()
        return found

    def _make_room(self, nodes: Set[NodeId], *, are_members: bool = False) -> None:
        make_room(self._authors, nodes, {walk.author for walk in self._walks.values()}, self._trust, are_members)

    @staticmethod
    def _tell(author: Author, giver: NodeId, span: Span) -> None:
        """A giver has told all that it has of a stretch."""
        if span[1] > span[0]:
            author.told[giver] = joined([*author.told.get(giver, []), span])[-SPANS_MAX:]

    def _put_off(self, node: NodeId, reason: str, until_ns: int) -> None:
        giver = self._givers.get(node)
        if giver is not None and not (giver.is_left and giver.denied_ns >= until_ns):
            giver.reason, giver.denied_ns = reason, until_ns

    def _leave(self, sender: NodeId, what: str, now_ns: int) -> list[SubEffect]:
        """A giver lied: it is asked nothing for a while, and named."""
        self.counts["liars"] += 1
        self._put_off(sender, LIED, now_ns + LEFT_NS)
        for author in self._authors.values():
            author.rows.pop(sender, None)
        giver = self._givers.get(sender)
        if giver is not None:
            giver.is_left, giver.listing, giver.list_ns = True, 0, now_ns + LEFT_NS
        effects: list[SubEffect] = [Rejected(sender.hex(), f"answers about the past with {what}")]
        if now_ns - self._named_ns.get(sender, -_NAMED_NS) >= _NAMED_NS:
            self._named_ns[sender] = now_ns
            while len(self._named_ns) > 64:
                del self._named_ns[next(iter(self._named_ns))]
            text = (
                f"member {short(sender)} ({sender.hex()}) was asked for the past and answers with {what}; it is asked "
                f"nothing for {LEFT_NS // _S // 60} minutes; revoke it if it goes on"
            )
            effects.append(Alarm("past-liar", text))
        return effects

    def _why(self, node: NodeId, author: Author, gap: Span) -> list[Stretch]:
        """Why a stretch is not here, in pieces."""
        if node in self._trust.revoked:
            return [Stretch(node, *gap, REVOKED)]
        found = [Stretch(node, *part, EXPIRED) for part in common(gap, [(0, author.floor_ms)])]
        own_told = author.told.get(node, []) if node != self._node else [gap]
        for part in common((max(gap[0], author.floor_ms), gap[1]), own_told):
            found += [Stretch(node, *one, EXPIRED) for one in common(part, [(0, author.expired_ms)])]
            if part[1] > author.expired_ms:
                found.append(Stretch(node, max(part[0], author.expired_ms), part[1], OFF))
        for part in without((max(gap[0], author.floor_ms), gap[1]), own_told):
            found.append(Stretch(node, *part, self._state_of(node, author, part)))
        return [one for one in found if one.to_ms > one.from_ms]

    def _state_of(self, node: NodeId, author: Author, part: Span) -> str:
        """Why nobody has told of a stretch so far."""
        reasons = []
        for keeper in self._keepers(node, author):
            if self._could_tell(node, author, keeper, [part]):
                giver = self._givers[keeper]
                reasons.append(giver.reason or WAITING)
        if not reasons:
            return UNREACHABLE
        return min(reasons, key=(WAITING, LIED, REFUSED, SILENT).index)


def _unasked(sender: NodeId) -> list[SubEffect]:
    return [Rejected(sender.hex(), "an answer about the past to nothing that is open")]


def _send(node: NodeId, message: messages.Message) -> Send:
    return Send(node, messages.encode_message(message), True, Priority.BULK)


assert SETTLE_MS < PAGE_MAX_MS
assert TIMEOUT_NS <= 4 * SLOW_NS
