"""This node's own log: facts become signed batches, and old batches are cleaned away.

Rules this file keeps:

- A dot is used once. The incarnation is higher in every life, whatever became of the disk.
- A batch fits a datagram.
- A stamp bounds the times of the facts under it. What an earlier moment knew better is kept while the fact lives and is
  said again when the clock is set forward: a clock that was wrong for a moment makes nothing old.
- The log stays within about twice the facts that still matter: when more than half of its rows have been said again or
  have died, the oldest batch's living facts are said again and `base` moves past it. So neither updates nor
  reboots grow the state. Everybody holds what each of a swarm leaves, so the more there are, the less each may leave.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import LOGICAL_BITS
from swarmd_protocols.state.crdt.batch import (
    BATCH_MAX_BYTES,
    HASH_BYTES,
    HEAD_BYTES,
    Batch,
    Dot,
    Signer,
    Stream,
    seal_batch,
)
from swarmd_protocols.state.crdt.facts import (
    ROWS_MAX,
    Done,
    Facts,
    Join,
    NotePut,
    NoteRemoval,
    Sighting,
    decode_facts,
    encode_facts,
)
from swarmd_protocols.state.crdt.reviews import SignedReview

Fact: TypeAlias = Sighting | Join | Done | NotePut | NoteRemoval | SignedReview
FactId: TypeAlias = tuple[object, ...]

_BODY_MAX_BYTES = BATCH_MAX_BYTES - HEAD_BYTES - SIGNATURE_BYTES
_ROWS_A_BATCH = 40
"""Rows tried in one batch when the log is written anew: some 20 bytes each fill it."""
_INCARNATIONS_KEPT = 4
"""Lives whose logs stay apart; with more the log is written anew."""
_SLACK_OF_ALL_ROWS, _SLACK_MIN_ROWS = 512, 2
"""Dead rows beside as many as live that all members of a swarm together may leave with each, and that one may in any
case: 128 each, which small ones may, were 25,600 rows at 200 members, a day's sightings and more."""


def fact_id(fact: Fact) -> FactId:
    """What a fact is about: a later fact of the same id replaces it."""
    match fact:
        case Sighting():
            return (0, fact.label, fact.kind, fact.place)
        case Join():
            return (1, fact.origin, fact.key)
        case Done():
            return (2, fact.cell)
        case NotePut():
            return (3, fact.incarnation, fact.serial)
        case NoteRemoval():
            return (4, fact.key, fact.removes)
        case SignedReview():
            return (5, fact.public, fact.review.target, fact.review.is_note)


def facts_of(facts: Facts) -> list[Fact]:
    """All facts of a batch in one list."""
    return [*facts.sightings, *facts.joins, *facts.dones, *facts.puts, *facts.removals, *facts.reviews]


def as_facts(items: list[Fact]) -> Facts:
    """The inverse of `facts_of`."""
    facts = Facts([], [], [], [], [], [])
    for item in items:
        match item:
            case Sighting():
                facts.sightings = [*facts.sightings, item]
            case Join():
                facts.joins = [*facts.joins, item]
            case Done():
                facts.dones = [*facts.dones, item]
            case NotePut():
                facts.puts = [*facts.puts, item]
            case NoteRemoval():
                facts.removals = [*facts.removals, item]
            case SignedReview():
                facts.reviews = [*facts.reviews, item]
    return facts


def bounded(fact: Fact, stamp: int) -> Fact:
    """A fact whose times do not lie beyond the stamp of the batch that says it."""
    if isinstance(fact, Sighting | Join) and fact.last > stamp:
        last = stamp >> LOGICAL_BITS << LOGICAL_BITS
        return fact._replace(first=min(fact.first, last), last=last)
    return fact


class OwnLog:
    """Writer of this node's FACTS stream."""

    def __init__(self, node: NodeId, incarnation: int, signer: Signer, slack_rows: int = 128) -> None:
        """Begin a life; `adopt` brings in the batches of earlier ones."""
        self._node = node
        self._signer = signer
        self._most_slack_rows = self._slack_rows = slack_rows
        self.incarnation = incarnation
        self._n = 0
        self._previous = bytes(HASH_BYTES)
        self._base: Dot = (0, 0)
        self._rows: dict[Dot, int] = {}
        self._raws: dict[Dot, bytes] = {}
        self._live: dict[FactId, Dot] = {}
        self._cut: dict[FactId, tuple[Sighting | Join, int]] = {}
        """Living facts whose times a batch of this life had to cut: as they were, and when that was by today's clock;
        nothing was seen later than that."""
        self._spent: dict[FactId, None] = {}
        """Living facts that are not to be said again, unless they come to matter before their batch goes."""
        self._total = 0
        self._lives = 1
        self._cleaned: Dot = (0, 0)
        self.may_clean = False
        """Whether older own batches that this node does not know of can be ruled out."""

    def adopt(self, batch: Batch, items: list[Fact]) -> None:
        """A batch of an earlier life, from the journal or from a peer."""
        if batch.dot in self._raws or batch.dot < self._base:
            return
        self._raws[batch.dot] = batch.raw
        self._rows[batch.dot] = len(items)
        self._total += len(items)
        self._lives = len({dot[0] for dot in self._raws} | {self.incarnation})
        for item in items:
            name = fact_id(item)
            if self._live.get(name, (-1, 0)) < batch.dot:
                self._live[name] = batch.dot
        self._base = max(self._base, batch.base)
        for dot in [dot for dot in self._raws if dot < self._base]:
            self._forget(dot)

    def know_swarm(self, members: int) -> None:
        """So many members each hold what all leave."""
        self._slack_rows = min(self._most_slack_rows, max(_SLACK_MIN_ROWS, _SLACK_OF_ALL_ROWS // members))

    def notes(self) -> list[FactId]:
        """The living puts and removals of operator notes."""
        return [name for name in self._live if name[0] in (3, 4)]

    @property
    def written(self) -> int:
        """How many batches this life has written."""
        return self._n

    def restart(self, incarnation: int) -> None:
        """Go on under a higher incarnation, because a peer holds more of this node's past than this node does."""
        self.incarnation = incarnation
        self._n = 0
        self._previous = bytes(HASH_BYTES)

    def is_live(self, fact: Fact, dot: Dot) -> bool:
        """Whether a fact of one batch has not been said again since."""
        return self._live.get(fact_id(fact)) == dot

    def kill(self, name: FactId) -> None:
        """A fact no longer matters; its row is dead."""
        self._live.pop(name, None)
        self._cut.pop(name, None)
        self._spent.pop(name, None)

    def spend(self, names: Iterable[FactId]) -> None:
        """These living facts, and no others, go with the batches that say them."""
        self._spent = dict.fromkeys(names)

    def uncut(self, step: int) -> list[Fact]:
        """Facts to be said again when the clock has been set forward, with the times that a slower one cut.

        Args:
            step: By how much it was set, as stamps count; below 0 where it was set back.
        """
        again: list[Fact] = []
        for name, (item, cut) in self._cut.items():
            self._cut[name] = item, cut + step
            last = min(item.last, max(0, cut + step))
            again.append(item._replace(first=min(item.first, last), last=last))
        return again

    def _bounded(self, item: Fact, stamp: int) -> Fact:
        """See `bounded`; what is cut is kept, until as much is said again."""
        said = bounded(item, stamp)
        if isinstance(item, Sighting | Join) and isinstance(said, Sighting | Join):
            name = fact_id(item)
            known, _ = self._cut.get(name, (None, 0))
            if said.last < item.last and (known is None or known.last < item.last):
                self._cut[name] = item, said.last
            elif known is not None and known.last <= said.last:
                del self._cut[name]
        return said

    def append(self, items: list[Fact], stamp_of: Callable[[], int]) -> list[Batch]:
        """Sign facts, in as many batches as they need, and clean.

        Args:
            items: New facts; at most a few hundred.
            stamp_of: Gives a new stamp for each batch.
        """
        items = list({fact_id(item): item for item in items}.values())
        if self.may_clean:
            items += self._clean(items)
        out: list[Batch] = []
        at = 0
        while at < len(items):
            stamp = stamp_of()
            size = min(_ROWS_A_BATCH, len(items) - at)
            items[at : at + size] = [self._bounded(item, stamp) for item in items[at : at + size]]
            body = encode_facts(as_facts(items[at : at + size]))
            while len(body) > _BODY_MAX_BYTES and size > 1:
                size = max(1, min(size - 1, size * _BODY_MAX_BYTES // len(body)))
                body = encode_facts(as_facts(items[at : at + size]))
            # The base may only pass what is said again once all of it has been said.
            base = self._pending_base() if at + size == len(items) else self._base
            out.append(self._seal(items[at : at + size], base, body, stamp))
            at += size
        return out

    def _seal(self, items: list[Fact], base: Dot, body: bytes, stamp: int) -> Batch:
        self._n += 1
        dot = (self.incarnation, self._n)
        batch = seal_batch(Stream.FACTS, self._node, dot, base, self._previous, stamp, body, self._signer)
        assert len(batch.raw) <= BATCH_MAX_BYTES, "one fact alone must fit a batch"
        self._previous = batch.digest
        self._raws[dot] = batch.raw
        self._rows[dot] = len(items)
        self._total += len(items)
        for item in items:
            self._live[fact_id(item)] = dot
        if base > self._base:
            self._base = base
            for old in [old for old in self._raws if old < base]:
                self._forget(old)
            for name in [name for name in self._spent if self._live.get(name, dot) < base]:
                self.kill(name)
        return batch

    def _pending_base(self) -> Dot:
        """The lowest dot that will hold a living fact once the batch now being written is out."""
        return max(self._base, self._cleaned)

    def _clean(self, new: list[Fact]) -> list[Fact]:
        """Facts of the oldest batches to be said again; sets how far the base may move after that."""
        living = len(self._live) - len(self._spent)
        if self._total <= 2 * living + self._slack_rows and self._lives <= _INCARNATIONS_KEPT:
            return []
        left_out = {*self._spent, *(fact_id(item) for item in new)}
        again: list[Fact] = []
        total = self._total
        dots = sorted(self._raws)
        for index, dot in enumerate(dots):
            self._lives = len({other[0] for other in dots[index:]} | {self.incarnation})
            if total <= 2 * living + self._slack_rows and self._lives <= _INCARNATIONS_KEPT:
                break
            kept = [
                item
                for item in facts_of(decode_facts(self._raws[dot][HEAD_BYTES:-SIGNATURE_BYTES]))
                if self._live.get(fact_id(item)) == dot and fact_id(item) not in left_out
            ]
            if len(again) + len(kept) > ROWS_MAX:
                break
            again += kept
            total -= self._rows[dot]
            after = dots[index + 1] if index + 1 < len(dots) else (self.incarnation, self._n + 1)
            self._cleaned = max(self._cleaned, after)
        return again

    def rewrite(self, dots: Collection[Dot]) -> list[Fact]:
        """The living facts of some batches, to be appended next; the base does not move."""
        return [
            item
            for dot in sorted(self._raws)
            if dot in dots
            for item in facts_of(decode_facts(self._raws[dot][HEAD_BYTES:-SIGNATURE_BYTES]))
            if self._live.get(fact_id(item)) == dot
        ]

    def _forget(self, dot: Dot) -> None:
        del self._raws[dot]
        self._total -= self._rows.pop(dot)
