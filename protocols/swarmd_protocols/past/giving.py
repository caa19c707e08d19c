"""Who is given pages of the past, and how much of them: the last of all that a node sends.

Rules this file keeps:

- Only members are heard, and where roles are named only those whose certificate has one of them.
- All pages together keep to a budget that gives way to everything else that the node sends (`UploadBudget`), and each
  asker to half of its rate. Whoever asks has one question open; the next replaces it. Askers take turns, one answer
  each, whoever has had fewest bytes first, and one answer is looked up at a time.
- A question costs at least `ANSWER_LEAST_BYTES` of what its asker may have, so that asking for nothing is bounded too;
  what there is is told out of the same budget.
- Where too many wait, whoever has had more than the others makes room for who has had less.
- The driver has `READ_NS` to look something up; then the asker is told to come again, and the next one has its turn.
"""

from collections.abc import Callable

import msgspec

from swarmd_protocols.effects import Order, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.pages import PAGE_MAX_BYTES
from swarmd_protocols.releases.allowance import Seldom
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.subprotocol import Priority, Send, SubEffect

NAME = "past"
GIVE: TimerKey = (NAME, "give")
GIVE_BYTES_S = 16 << 10
"""Bytes a second that a node gives by default: a day of one drone (2 MB) in four minutes, and an eighth of what chunks
of a release may take."""
ASKER_SHARE = 2
"""One asker gets one part in so many of the rate: two ground stations that come late at once are served alike."""
ANSWER_LEAST_BYTES = 1_024
"""What a question costs its asker at least: eight a second at the default rate."""
ASKERS_MAX = 16
"""Questions that wait; as many observers as no fleet has. Others are told to come again."""
BUSY_MS = 10_000
"""When they are told to, milliseconds: a turn of sixteen askers at the default rate takes as long."""
LIST_EVERY_NS = 5_000_000_000
"""One asker is told what there is once in so long, nanoseconds: a list of 256 authors has 8 kB."""
READ_NS = 30_000_000_000
"""A look-up that takes longer, nanoseconds, does not come: a slow card reads 64 KiB in a tenth of a second."""
_BURST_S = 3
"""So many seconds' worth at once: what is asked for first comes without waiting."""
_DEBTORS_MAX = 1_024
"""Askers of whom it is kept what they had; one that is forgotten begins with a burst."""
_AGAIN_NS = 250_000_000
"""A giver whose budget is spent looks again after so long, nanoseconds: a quarter of a second's worth."""


class GivingConfig(msgspec.Struct, frozen=True):
    """What a node gives; it may differ between nodes."""

    bytes_s: int = GIVE_BYTES_S
    """Over any ten seconds; 0: it gives nothing, and says so."""
    roles: frozenset[str] = frozenset()
    """Roles of certificates that are given to; empty: every member."""


class _Asked(msgspec.Struct, frozen=True):
    peer: NodeId
    ask: messages.Ask | messages.List
    due_ns: int


class _Debts:
    """What each asker may have at the moment: below zero it waits.

    >>> debts, peer = _Debts(100), NodeId(b"p" * 16)
    >>> debts.spend(peer, 400, 0)
    >>> debts.may_have(peer, 0), debts.may_have(peer, 2_000_000_000)
    (False, True)
    """

    def __init__(self, bytes_s: int) -> None:
        self._bytes_s = bytes_s
        self._left: dict[NodeId, tuple[int, int, int]] = {}
        """Bytes, when that was, and what it had ever; whoever was given something longest ago is forgotten first."""
        self._had_bytes = 0
        """What whoever had something last had before: who is new, or had less, counts as if it had as much."""

    def may_have(self, peer: NodeId, now_ns: int) -> bool:
        return self._left_of(peer, now_ns) > 0

    def spend(self, peer: NodeId, size: int, now_ns: int) -> None:
        left = self._left_of(peer, now_ns) - size
        self._had_bytes = self.turn_of(peer)
        self._left.pop(peer, None)
        if len(self._left) >= _DEBTORS_MAX:
            del self._left[next(iter(self._left))]
        self._left[peer] = left, now_ns, self._had_bytes + size

    def turn_of(self, peer: NodeId) -> int:
        """Whoever has the lowest is next: bytes that it had, from where the others were when it came."""
        return max(self._had_bytes, self._left.get(peer, (0, 0, 0))[2])

    def _left_of(self, peer: NodeId, now_ns: int) -> int:
        most = _BURST_S * self._bytes_s
        left, since_ns, _ = self._left.get(peer, (most, now_ns, 0))
        return min(most, left + max(0, now_ns - since_ns) * self._bytes_s // 1_000_000_000)


class _Ready(msgspec.Struct, frozen=True):
    """An answer that waits for the budget."""

    peer: NodeId
    payload: bytes


class Giver:
    """See the module.

    Args:
        node: This node.
        config: See `GivingConfig`.
        roles_of: The roles of a member's certificate; None where none holds.
        statement_of: The bytes of a node's certificate; None where none holds.
    """

    def __init__(
        self,
        node: NodeId,
        config: GivingConfig,
        roles_of: Callable[[NodeId], tuple[str, ...] | None],
        statement_of: Callable[[NodeId], bytes | None],
    ) -> None:
        self._node = node
        self._config = config
        self._roles_of = roles_of
        self._statement_of = statement_of
        self.budget = UploadBudget(max(1, config.bytes_s))
        """Of all pages; charged with what else the node sends."""
        self._answer_bytes = max(PAGE_MAX_BYTES, min(messages.ANSWER_BYTES, config.bytes_s))
        self._each = _Debts(max(1, config.bytes_s // ASKER_SHARE))
        self._listed = Seldom(LIST_EVERY_NS, 256)
        self._waiting: dict[tuple[NodeId, bool], messages.Ask | messages.List] = {}
        """(asker, whether it asks what there is) to its question."""
        self._reading: tuple[int, _Asked] | None = None
        self._ready: _Ready | None = None
        self._ticket = 0
        self._armed_ns: int | None = None
        self.counts = {"given_pages": 0, "given_bytes": 0, "denied": 0}

    # --- what others ask --------------------------------------------------------------------------------------------

    def on_list(self, peer: NodeId, ask: messages.List, now_ns: int) -> list[SubEffect]:
        """Whose pages are kept here."""
        if not self._gives_to(peer):
            return self._deny(peer, ask.number, messages.REFUSED, messages.RETRY_MAX_MS)
        if not self._listed.is_due(peer, now_ns):
            return self._deny(peer, ask.number, messages.BUSY, BUSY_MS)
        return self._wait(peer, ask, now_ns)

    def on_ask(self, peer: NodeId, ask: messages.Ask, now_ns: int) -> list[SubEffect]:
        """Some pages."""
        if not self._gives_to(peer):
            return self._deny(peer, ask.number, messages.REFUSED, messages.RETRY_MAX_MS)
        if self._statement_of(NodeId(ask.author)) is None:
            return self._deny(peer, ask.number, messages.UNKNOWN, messages.RETRY_MAX_MS)
        return self._wait(peer, ask, now_ns)

    def _wait(self, peer: NodeId, ask: messages.Ask | messages.List, now_ns: int) -> list[SubEffect]:
        """A question waits for its turn; where too many do, whoever has had most is put off."""
        effects: list[SubEffect] = []
        key = peer, isinstance(ask, messages.List)
        same = [one for one in self._waiting if one[1] is key[1]]
        if key not in same and len(same) >= ASKERS_MAX:
            last = max(same, key=lambda one: self._each.turn_of(one[0]))
            if self._each.turn_of(last[0]) <= self._each.turn_of(peer):
                return self._deny(peer, ask.number, messages.BUSY, BUSY_MS)
            effects += self._deny(last[0], self._waiting.pop(last).number, messages.BUSY, BUSY_MS)
        self._waiting[key] = ask
        return effects + self.serve(now_ns)

    # --- what the driver found ----------------------------------------------------------------------------------------

    def on_rows(self, found: requests.Rows, now_ns: int) -> list[SubEffect]:
        """Tell who asked, as soon as the budget has room."""
        asked = self._take_reading(found.ticket)
        if asked is not None and self._gives_to(asked.peer):
            held = tuple(row for row in found.rows if self._statement_of(NodeId(row.author)) is not None)
            listing = messages.Listing(asked.ask.number, held[: messages.ROWS_MAX])
            self._ready = _Ready(asked.peer, messages.encode_message(listing))
        return self.serve(now_ns)

    def on_pages(self, found: requests.Pages, now_ns: int) -> list[SubEffect]:
        """Give them as soon as the budget has room."""
        asked = self._take_reading(found.ticket)
        if asked is None or not isinstance(asked.ask, messages.Ask):
            return []
        if found.is_failed:
            return self._deny(asked.peer, asked.ask.number, messages.BUSY, BUSY_MS) + self.serve(now_ns)
        if self._gives_to(asked.peer):
            author = NodeId(asked.ask.author)
            statement = b"" if author == self._node else self._statement_of(author) or b""
            answer = messages.Answer(asked.ask.number, found.pages, found.more, found.floor_ms, statement)
            self._ready = _Ready(asked.peer, messages.encode_message(answer))
            self.counts["given_pages"] += len(found.pages)
        return self.serve(now_ns)

    def _take_reading(self, ticket: int) -> _Asked | None:
        """What was looked up under a ticket; None where nobody waits for it any more."""
        if self._reading is None or self._reading[0] != ticket:
            return None
        (_, asked), self._reading = self._reading, None
        return asked

    # --- in turn ------------------------------------------------------------------------------------------------------

    def serve(self, now_ns: int) -> list[SubEffect]:
        """Send what is ready, and look up what is next, as far as the budget goes."""
        effects: list[SubEffect] = []
        if self._ready is not None:
            size = len(self._ready.payload)
            if not self.budget.take(size, now_ns):
                return self._again(now_ns)
            effects.append(_send(self._ready.peer, self._ready.payload))
            self.counts["given_bytes"] += size
            self._each.spend(self._ready.peer, max(size, ANSWER_LEAST_BYTES), now_ns)
            self._ready = None
        if self._reading is not None and self._reading[1].due_ns <= now_ns:
            (_, late), self._reading = self._reading, None
            effects += self._deny(late.peer, late.ask.number, messages.BUSY, BUSY_MS)
        if self._reading is not None or not self._waiting:
            return effects
        ready = [key for key in self._waiting if self._each.may_have(key[0], now_ns)]
        turn = min(ready, key=lambda key: self._each.turn_of(key[0]), default=None)
        if turn is None or self.budget.is_spent(self._answer_bytes, now_ns):
            return effects + self._again(now_ns)
        ask = self._waiting.pop(turn)
        self._ticket += 1
        self._reading = self._ticket, _Asked(turn[0], ask, now_ns + READ_NS)
        order: requests.FindRows | requests.FindPages = requests.FindRows(self._ticket)
        if isinstance(ask, messages.Ask):
            order = requests.FindPages(
                self._ticket, NodeId(ask.author), ask.from_ms, ask.to_ms, ask.below_ms, ask.below_number,
                self._answer_bytes,
            )  # fmt: skip
        return [*effects, Order(NAME, order), *self._look_at(now_ns + READ_NS)]

    def on_timer(self, now_ns: int) -> list[SubEffect]:
        """Look again."""
        self._armed_ns = None
        return self.serve(now_ns) + ([] if self._reading is None else self._look_at(self._reading[1].due_ns))

    def on_peers(self, nodes: set[NodeId]) -> None:
        """Whoever is no member any more waits for nothing."""
        for key in [key for key in self._waiting if key[0] not in nodes]:
            del self._waiting[key]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _gives_to(self, peer: NodeId) -> bool:
        roles = self._roles_of(peer)
        config = self._config
        return bool(config.bytes_s) and roles is not None and (not config.roles or not config.roles.isdisjoint(roles))

    def _deny(self, peer: NodeId, number: int, reason: int, retry_ms: int) -> list[SubEffect]:
        self.counts["denied"] += 1
        return [_send(peer, messages.encode_message(messages.Deny(number, reason, retry_ms)))]

    def _again(self, now_ns: int) -> list[SubEffect]:
        return self._look_at(now_ns + _AGAIN_NS)

    def _look_at(self, due_ns: int) -> list[SubEffect]:
        """Look again at a moment, or before."""
        if self._armed_ns is not None and self._armed_ns <= due_ns:
            return []
        self._armed_ns = due_ns
        return [SetTimer(GIVE, due_ns)]


def _send(peer: NodeId, payload: bytes) -> Send:
    return Send(peer, payload, True, Priority.BULK)
