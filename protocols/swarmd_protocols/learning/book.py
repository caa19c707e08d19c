"""The deltas of one session that are here: one of each author and round, or the proof that the author lies. Pure.

What is here is a set that only grows, and what it means is a function of it: so nodes that hold the same mean the same,
in whatever order it came. An author whose two deltas of one round differ counts with nothing; the two are the proof and
travel on, so that it counts with nothing anywhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Delta, Session
from swarmd_protocols.learning.messages import GIVE_MAX, GIVE_MAX_BYTES, HAVE_MAX, Have, Row

_FRAMED_BYTES = 2
"""What a delta takes in a frame beside its own."""


class Book:
    """See the module.

    Args:
        session: Of all that is in it.
        counts: Whether an author counts: it is enrolled, and not shut out.
    """

    def __init__(self, session: Session, counts: Callable[[NodeId], bool]) -> None:
        self.session = session
        self.id = session.id
        self._counts = counts
        self._held: dict[NodeId, dict[int, Delta]] = {}
        self._lies: dict[NodeId, tuple[Delta, Delta]] = {}
        self._mark = 0

    # --- what can be read -------------------------------------------------------------------------------------------

    @property
    def summary(self) -> bytes:
        """16 bytes, equal where the same is held of the same session."""
        return self.id[:8] + self._mark.to_bytes(8, "little")

    @property
    def liars(self) -> list[NodeId]:
        """Who said two things in one round."""
        return sorted(self._lies)

    @property
    def authors(self) -> list[NodeId]:
        """Whose deltas count."""
        return sorted(self._held)

    def rounds(self, until: int) -> list[dict[NodeId, Delta]]:
        """Deltas that count, by round, of the first so many."""
        found: list[dict[NodeId, Delta]] = [{} for _ in range(until)]
        for author, deltas in self._held.items():
            for number, delta in deltas.items():
                if number < until:
                    found[number][author] = delta
        return found

    def of(self, author: NodeId) -> dict[int, Delta]:
        """One author's, by round."""
        return self._held.get(author, {})

    def rows(self) -> int:
        """Rows that authors say to have learned from: of each its last word."""
        return sum(deltas[max(deltas)].rows for deltas in self._held.values())

    def has(self, delta: Delta) -> bool:
        """Whether nothing comes of this one: it is here, or its author is known to lie."""
        if delta.author in self._lies:
            return True
        held = self._held.get(delta.author, {}).get(delta.round)
        return held is not None and held.raw == delta.raw

    def is_full(self, author: NodeId) -> bool:
        """Whether there is no room for one more author."""
        return author not in self._held and len(self._held) + len(self._lies) >= HAVE_MAX

    # --- what changes it --------------------------------------------------------------------------------------------

    def add(self, delta: Delta) -> bool:
        """Keep one whose signature holds, that `fits`, and that is not here; whether its author turns out to lie."""
        held = self._held.setdefault(delta.author, {})
        other = held.get(delta.round)
        if other is None:
            held[delta.round] = delta
            self._mark ^= _mark_of(delta)
            return False
        self._forget(delta.author)
        self._lies[delta.author] = (other, delta)
        self._mark ^= _mark_of_liar(delta.author)
        return True

    def on_trust(self) -> None:
        """Drop what authors said that do not count any more."""
        for author in [one for one in self._held if not self._counts(one)]:
            self._forget(author)
        for author in [one for one in self._lies if not self._counts(one)]:
            del self._lies[author]
            self._mark ^= _mark_of_liar(author)

    def _forget(self, author: NodeId) -> None:
        for delta in self._held.pop(author).values():
            self._mark ^= _mark_of(delta)

    # --- what is said of it -----------------------------------------------------------------------------------------

    def have(self, *, answer: bool) -> Have:
        """What is here, for a peer whose summary differs."""
        rows = [Row(author, *_rounds_of(deltas), False) for author, deltas in self._held.items()]
        rows += [Row(author, 0, 0, True) for author in self._lies]
        return Have(self.id, answer, tuple(sorted(rows, key=lambda row: row.author)[:HAVE_MAX]))

    def lacks(self, have: Have) -> bool:
        """Whether a peer has what is not here."""
        for row in have.rows:
            author = NodeId(row.author)
            if author in self._lies or not self._counts(author):
                continue
            held, mark = _rounds_of(self._held.get(author, {}))
            if row.lies or row.rounds & ~held or (row.rounds == held and row.mark != mark):
                return True
        return False

    def missing(self, have: Have) -> Iterator[Delta]:
        """What a peer lacks: proofs first, then older rounds first."""
        theirs = {NodeId(row.author): row for row in have.rows}
        for author in self.liars:
            if author not in theirs or not theirs[author].lies:
                yield from self._lies[author]
        found = []
        for author, deltas in self._held.items():
            row = theirs.get(author)
            if row is None or not row.lies:
                mask = 0 if row is None or _contradicts(row, deltas) else row.rounds
                found += [(number, author, delta) for number, delta in deltas.items() if not mask >> number & 1]
        for _, _, delta in sorted(found, key=lambda one: one[:2]):
            yield delta


def framed(deltas: Iterator[Delta], limit_bytes: int = GIVE_MAX_BYTES) -> Sequence[bytes]:
    """As many as one `Give` carries: one at least, more within a limit."""
    found: list[bytes] = []
    size = 1
    for delta in deltas:
        size += len(delta.raw) + _FRAMED_BYTES
        if found and (len(found) == GIVE_MAX or size > min(limit_bytes, GIVE_MAX_BYTES)):
            break
        found.append(delta.raw)
    return found


def _rounds_of(deltas: Mapping[int, Delta]) -> tuple[int, int]:
    """Bits of the rounds, and the mark, as a `Row` has them."""
    rounds = mark = 0
    for number, delta in deltas.items():
        rounds |= 1 << number
        mark ^= _mark_of(delta) & 0xFFFFFFFF
    return rounds, mark


def _contradicts(row: Row, deltas: Mapping[int, Delta]) -> bool:
    """Whether a peer holds other deltas of the same rounds."""
    rounds, mark = _rounds_of(deltas)
    return row.rounds == rounds and row.mark != mark


def _mark_of(delta: Delta) -> int:
    return int.from_bytes(delta.digest[:8], "little")


def _mark_of_liar(author: NodeId) -> int:
    return int.from_bytes(blake2b(author, digest_size=8, person=b"swarmd-liar").digest(), "little")
