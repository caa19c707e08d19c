"""The sub-protocol `learning`: members tell what their labels mean for the head of the model that runs, and merge it.

A session is one base model (`form.py`). In each of its rounds a node merges what it holds of the rounds before
(`merging.py`), has its own labels train the head from there (`Train`, answered by `Trained`), and tells the largest
entries of what it has not told yet (`sparse.py`), signed. It pushes its own delta to the members it knows; what is
missing comes by comparison: summaries ride in probes, `Have` and `Give` mend a difference (`messages.py`). A round is
over after `round_ns`, once all that spoke last time have spoken again, or after `patience` times as long.

What comes out is said to the daemon (`HeadMerged`) and nothing else: no model changes here. Only own deltas are
journalled, before they are sent: a node that restarts says the same again or waits until others have brought it back,
and one that tries another model and takes it back has not forgotten what it said.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec

from swarmd_protocols.effects import Alarm, Order, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.book import Book, framed
from swarmd_protocols.learning.form import (
    DELTA_MAX_BYTES,
    SESSION_BYTES,
    Delta,
    Session,
    fits,
    open_delta,
    sign_delta,
    verify_delta,
)
from swarmd_protocols.learning.merging import Merger
from swarmd_protocols.learning.messages import GIVE_MAX_BYTES, Give, Have, decode, encode
from swarmd_protocols.learning.privacy import Privacy, epsilon, hidden
from swarmd_protocols.learning.requests import JOURNAL, NAME, HeadMerged, Learn, LearningView, Train, Trained
from swarmd_protocols.learning.sparse import in_units, top_k
from swarmd_protocols.releases.allowance import Allowance, Seldom
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect
from swarmd_protocols.trust.view import TrustView

_LOOK: TimerKey = (NAME, "look")
_MERGE: TimerKey = (NAME, "merge")
_GIVE: TimerKey = (NAME, "give")
LOOK_NS = 1_000_000_000
"""Between two looks whether a round is over."""
GIVE_NS = 250_000_000
"""Until what had to wait for the budget is tried again."""
TURN_NS = 1_000_000
"""The next slice of a merge: the loop turns."""
ASK_NS = 5_000_000_000
"""Between two comparisons that this node begins, and how long it waits after news: pushes are still on their way."""
GIVEN_PER_S, GIVEN_BURST = 4_000, 131_072
"""Bytes of deltas that one member is given: the burst is all that forty members say in a session."""
GIVEN_S = 2
"""Seconds of the budget that one frame may take."""
HAVES_PER_S, HAVES_BURST = 1, 8
"""Comparisons of one member that are looked at: an honest one begins one in five seconds."""
NAMED_NS = 600_000_000_000
"""Between two alarms about one member."""
_NAMED_MAX = 256
"""Members of whom it is known when they were last named."""
SESSIONS_KEPT = 2
"""Sessions that are over, of which own deltas are kept, 64 KiB each: a model that was tried is taken back."""
_PUSHES_MAX = 1_024
"""Own words that wait for the budget: one to each member of the largest full view, four times."""


class LearningConfig(msgspec.Struct, frozen=True):
    """What a node does; it may differ between nodes, but for `round_ns`, which the slowest decide."""

    round_ns: int = 300_000_000_000
    """Least length of a round."""
    patience: int = 3
    """A round waits so many times as long for members that spoke in the one before."""
    settle_ns: int = 10_000_000_000
    """Before the first word of a session in a life: what this node said in an earlier one comes back."""
    bytes_s: int = 4_000
    """Bytes a second that are told and given, over any ten seconds; 0: no bound."""
    privacy: Privacy | None = None


class Learning:
    """See the module.

    Args:
        node: This node.
        signer: Its key; verifies others' deltas.
        trust: Who counts.
        config: Rates, and noise where the fleet asks for it.
        rng: For the noise; the system's in a daemon.
        restored: The journal's records that begin with `JOURNAL`.
        merger: Merges; in simulations one for all nodes.
    """

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        trust: TrustView,
        config: LearningConfig,
        rng: Random,
        restored: Mapping[bytes, bytes],
        merger: Merger | None = None,
    ) -> None:
        self._node = node
        self._signer = signer
        self._trust = trust
        self._config = config
        self._rng = rng
        self._restored = {key: raw for key, raw in sorted(restored.items()) if key.startswith(JOURNAL)}
        """Own deltas of other sessions, the longest over first."""
        self._merger = merger or Merger()
        self._book: Book | None = None
        self._round = -1
        """The last that this node has entered."""
        self._entered_ns = 0
        self._merging: Iterator[Sequence[int] | None] | None = None
        self._asked: int | None = None
        """The round that `Train` was ordered for."""
        self._told_of = b""
        """The book's summary when its end was told."""
        self._news_ns = 0
        self._ask_ns = 0
        self._peers: Mapping[NodeId, Peer] = {}
        self._pushes: deque[tuple[NodeId, bytes]] = deque()
        self._owed: dict[NodeId, Have] = {}
        self._budget = UploadBudget(config.bytes_s)
        self._given = Allowance(GIVEN_PER_S, GIVEN_BURST)
        self._heard = Allowance(HAVES_PER_S, HAVES_BURST)
        self._named = Seldom(NAMED_NS, _NAMED_MAX)
        self._armed: set[TimerKey] = set()
        self.counts = dict.fromkeys(("told", "learned", "given", "refused", "elsewhere", "sent_bytes", "merged"), 0)

    # --- what can be read -------------------------------------------------------------------------------------------

    @property
    def traffic(self) -> UploadBudget:
        """What gives way to everything else that the node sends."""
        return self._budget

    def view(self) -> LearningView:
        """For people."""
        book, privacy = self._book, self._config.privacy
        if book is None:
            return LearningView(None, 0, (), (), 0, dict(self.counts), None)
        spent = None if privacy is None else epsilon(privacy.noise, book.session.rounds)
        deltas = [len(one) for one in book.rounds(book.session.rounds)]
        said = dict(self.counts)
        told = (book.session, max(0, self._round), deltas, book.liars, book.rows(), said, spent)
        return LearningView(*told, tuple(book.authors))

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys and the prefix of journal keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """The driver says which model runs."""
        return []

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Whom to tell, and who is heard."""
        self._peers = {peer.node: peer for peer in peers if peer.public_key}
        self._owed = {node: have for node, have in self._owed.items() if node in self._peers}
        return []

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """Whoever is shut out has said nothing."""
        if self._book is not None:
            self._book.on_trust()
        return []

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """`Learn` or `Trained`; raises `StateError` for anything else, and for weights that are no numbers."""
        match request:
            case Learn(session):
                return self._learn(session, now_ns)
            case Trained():
                return self._on_trained(request, now_ns)
            case _:
                raise StateError(f"`{NAME}` knows no request {type(request).__name__}")

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """Look whether a round is over, merge a slice further, or give what waits."""
        if key not in self._armed:
            return []
        self._armed.discard(key)
        if key == _GIVE:
            return self._drain(now_ns)
        if key == _MERGE:
            return self._merge_on(now_ns)
        return [*self._look(now_ns), *(self._arm(_LOOK, now_ns + LOOK_NS) if self._book is not None else [])]

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """Deltas, or what a peer has of them; whatever the bytes are, nothing is raised."""
        if sender not in self._peers:
            return []
        try:
            message = decode(payload)
            deltas = [open_delta(raw) for raw in message.deltas] if isinstance(message, Give) else []
        except WireError as error:
            return self._refuse(sender, sender, str(error), now_ns)
        if isinstance(message, Have):
            return self._on_have(sender, message, now_ns)
        effects: list[SubEffect] = []
        for delta in deltas:
            effects += self._on_delta(sender, delta, now_ns)
        return effects

    def summary(self) -> bytes:
        """Equal where the same deltas of the same session are held; nothing without a session."""
        return b"" if self._book is None else self._book.summary

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """A peer holds others: compare, now and then, when no more is on its way."""
        book = self._book
        if book is None or summary == book.summary or summary[:8] != book.summary[:8] or sender not in self._peers:
            return []
        if now_ns < max(self._ask_ns, self._news_ns) + ASK_NS:
            return []
        self._ask_ns = now_ns
        return self._say(sender, book.have(answer=True), now_ns)

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Nothing here rides along."""
        return []

    # --- the session ------------------------------------------------------------------------------------------------

    def _learn(self, session: Session | None, now_ns: int) -> list[SubEffect]:
        if self._book is not None and session == self._book.session:
            return []
        self._merging, self._asked, self._round, self._told_of = None, None, -1, b""
        self._pushes.clear()
        self._owed.clear()
        said = dict(self._restored)
        if self._book is not None:  # A model that is tried may be taken back: then this was said already.
            old = self._book
            said |= {_key(old.id, number): delta.raw for number, delta in old.of(self._node).items()}
        self._book = None if session is None else Book(session, self._is_certified)
        taken = {key for key, raw in said.items() if self._take_back(key, raw)}
        kept = list(dict.fromkeys(_session_of(key) for key in said if key not in taken))[-SESSIONS_KEPT:]
        self._restored = {key: raw for key, raw in said.items() if key not in taken and _session_of(key) in kept}
        effects: list[SubEffect] = [Persist(key, None) for key in said if key not in taken | self._restored.keys()]
        self._entered_ns = now_ns
        return effects + ([] if session is None else self._arm(_LOOK, now_ns + LOOK_NS))

    def _take_back(self, key: bytes, raw: bytes) -> bool:
        """Take an own delta out of the journal; False where it is none of this session."""
        book = self._book
        try:
            delta = open_delta(raw)
        except WireError:
            return False
        if book is None or delta.author != self._node or key != _key(book.id, delta.round):
            return False
        if delta.session != book.id or fits(delta, book.session) or book.has(delta):
            return False
        book.add(delta)
        return True

    def _is_certified(self, author: NodeId) -> bool:
        return author == self._node or self._trust.certified(author) is not None

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _look(self, now_ns: int) -> list[SubEffect]:
        book = self._book
        if book is None or self._merging is not None:
            return []
        due = self._due_round(book, now_ns)
        if due is None:
            return []
        self._round, self._entered_ns, self._asked = due, now_ns, None
        self._merging = self._merger.merge(book.session, book.rounds(due))
        self._told_of = book.summary
        return self._merge_on(now_ns)

    def _due_round(self, book: Book, now_ns: int) -> int | None:
        """The round to enter now, or None; at the end the last one again, where news came since."""
        age_ns, config = now_ns - self._entered_ns, self._config
        if self._round < 0:
            return self._joined(book) if age_ns >= config.settle_ns else None
        if age_ns < config.round_ns:
            return None
        if self._round >= book.session.rounds:
            return None if self._told_of == book.summary else self._round
        ahead = self._joined(book)
        if ahead > self._round:
            return ahead
        rounds = book.rounds(self._round + 1)
        before = rounds[self._round - 1] if self._round else rounds[0]
        if rounds[self._round].keys() >= before.keys() or age_ns >= config.patience * config.round_ns:
            return self._round + 1
        return None

    def _joined(self, book: Book) -> int:
        """The round that most authors have reached, for who comes late: a quarter of the members pushes nobody on."""
        last = sorted((max(book.of(author)) for author in book.authors if author != self._node), reverse=True)
        needed = max(len(last), (len(self._peers) + 2) // 2) // 2
        return last[needed] if needed < len(last) else 0

    def _merge_on(self, now_ns: int) -> list[SubEffect]:
        book = self._book
        if self._merging is None or book is None:
            return []
        moved = next(self._merging)
        if moved is None:
            return self._arm(_MERGE, now_ns + TURN_NS)
        self._merging = None
        self.counts["merged"] += 1
        session = book.session
        effects: list[SubEffect] = []
        if self._round:
            told = HeadMerged(session, self._round, moved, len(book.authors), book.rows(), len(book.liars))
            effects.append(StateChanged(NAME, told))
        if self._round < session.rounds and self._round not in book.of(self._node) and self._node not in book.liars:
            self._asked = self._round
            effects.append(Order(NAME, Train(session, self._round, moved)))
        return effects

    def _on_trained(self, trained: Trained, now_ns: int) -> list[SubEffect]:
        book = self._book
        if book is None or trained.session != book.id or trained.round != self._asked:
            return []  # Too late: the round, or the model, is another one by now.
        self._asked = None
        if not trained.rows or trained.round in book.of(self._node):
            return []
        session, privacy = book.session, self._config.privacy
        if len(trained.change) != session.dim:
            raise StateError(f"{len(trained.change)} weights were trained; the head has {session.dim}")
        meant = in_units(trained.change)
        if privacy is not None:
            meant = in_units(hidden(trained.change, privacy, self._rng))
        exponent, entries = top_k(meant, self._told(book, trained.round), session.entries)
        delta = sign_delta(self._node, book.id, trained.round, trained.rows, exponent, entries, self._signer)
        book.add(delta)
        self.counts["told"] += 1
        near = [node for node, peer in self._peers.items() if peer.reachable and not peer.far]
        self._pushes += [(node, delta.raw) for node in near[: _PUSHES_MAX - len(self._pushes)]]
        return [Persist(_key(book.id, trained.round), delta.raw), *self._drain(now_ns)]

    def _told(self, book: Book, until: int) -> list[int]:
        """The sum of own deltas of the rounds before: what the others hold of this node."""
        told = [0] * book.session.dim
        for number, delta in book.of(self._node).items():
            if number < until:
                for index, change in delta.units():
                    told[index] += change
        return told

    # --- what others say --------------------------------------------------------------------------------------------

    def _on_delta(self, sender: NodeId, delta: Delta, now_ns: int) -> list[SubEffect]:
        book = self._book
        if book is None or delta.session != book.id:
            self.counts["elsewhere"] += 1
            return []
        if book.has(delta) or book.is_full(delta.author):
            return []
        certificate = self._trust.certified(delta.author)
        if certificate is None:
            return []  # Not known here yet, or no longer; it comes again.
        if not verify_delta(delta, certificate.public_key, self._signer):
            return self._refuse(sender, sender, "a delta without a valid signature", now_ns)
        wrong = fits(delta, book.session)
        if wrong:
            return self._refuse(sender, delta.author, f"a delta with {wrong}", now_ns)
        is_lie = book.add(delta)
        self.counts["learned"] += 1
        self._news_ns = now_ns
        if not is_lie:
            return [Persist(_key(book.id, delta.round), delta.raw)] if delta.author == self._node else []
        text = f"{self._called(delta.author)} said two things in round {delta.round} of learning; nothing of it counts"
        return [Alarm("learning-liar", text)]

    def _on_have(self, sender: NodeId, have: Have, now_ns: int) -> list[SubEffect]:
        book = self._book
        if not self._heard.take(sender, 1, now_ns):
            return self._refuse(sender, sender, "more comparisons than one member may begin", now_ns)
        if book is None or have.session != book.id:
            self.counts["elsewhere"] += 1
            return []
        effects: list[SubEffect] = []
        if have.answer and book.lacks(have):
            effects += self._say(sender, book.have(answer=False), now_ns)
        self._owed.pop(sender, None)
        self._owed[sender] = have
        return effects + self._drain(now_ns)

    # --- giving -----------------------------------------------------------------------------------------------------

    def _drain(self, now_ns: int) -> list[SubEffect]:
        """Own words first, then what others lack, as far as the budget goes."""
        effects: list[SubEffect] = []
        while self._pushes:
            to, raw = self._pushes[0]
            if not self._budget.take(len(raw), now_ns):
                return effects + self._arm(_GIVE, now_ns + GIVE_NS)
            self._pushes.popleft()
            if to in self._peers:
                effects += self._send(to, encode(Give((raw,))))
        while self._owed and self._book is not None:
            to, have = next(iter(self._owed.items()))
            raws = framed(self._book.missing(have), GIVEN_S * self._config.bytes_s or GIVE_MAX_BYTES)
            size = sum(map(len, raws))
            if not raws or not self._given.take(to, size, now_ns):
                del self._owed[to]
                continue
            if not self._budget.take(size, now_ns):
                self._given.take(to, -size, now_ns)
                return effects + self._arm(_GIVE, now_ns + GIVE_NS)
            del self._owed[to]
            self.counts["given"] += len(raws)
            effects += self._send(to, encode(Give(tuple(raws))))
        return effects

    def _say(self, to: NodeId, have: Have, now_ns: int) -> list[SubEffect]:
        """What is here, if the budget allows and no own words wait; else it is said another time."""
        if self._pushes:
            return []
        payload = encode(have)
        return self._send(to, payload) if self._budget.take(len(payload), now_ns) else []

    def _send(self, to: NodeId, payload: bytes) -> list[SubEffect]:
        self.counts["sent_bytes"] += len(payload)
        return [Send(to, payload, True, Priority.BULK)]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _refuse(self, sender: NodeId, guilty: NodeId, what: str, now_ns: int) -> list[SubEffect]:
        """Count it; name who is guilty, seldom."""
        self.counts["refused"] += 1
        effects: list[SubEffect] = [Rejected(sender.hex(), what)]
        if self._named.is_due(guilty, now_ns):
            effects.append(Alarm("learning-garbage", f"{self._called(guilty)} says what nobody can learn from: {what}"))
        return effects

    def _called(self, node: NodeId) -> str:
        peer = self._peers.get(node)
        return node.hex()[:8] if peer is None else peer.name

    def _arm(self, key: TimerKey, at_ns: int) -> list[SubEffect]:
        if key in self._armed:
            return []
        self._armed.add(key)
        return [SetTimer(key, at_ns)]


def _session_of(key: bytes) -> bytes:
    return key[: len(JOURNAL) + SESSION_BYTES]


def _key(session: bytes, number: int) -> bytes:
    return JOURNAL + session + bytes((number,))


assert DELTA_MAX_BYTES + 3 <= GIVE_MAX_BYTES
