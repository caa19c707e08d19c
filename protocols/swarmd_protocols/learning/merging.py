"""How deltas become one head: the same on every node that holds the same deltas, in whole numbers. Pure.

Of each author the sum of its deltas up to a round stands for what its labels mean (`sparse.py`). In a round these sums
are mixed, each with the four fifths of all that lie nearest to it, and the mixtures are averaged weight by weight
without the highest and the lowest fifth. So a fifth of the authors may say what they like: whoever is far away is mixed
into few, and what it moves there is cut off. Labels that differ from device to device are no reason to be cut off:
mixing brings honest ones together first. The step is half of
the one before and this average, one and a half times.

Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, Fixing by Mixing (2023): nearest-neighbour mixing before
a coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett, 2018).
"""

from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import add, mul, sub

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Delta, Session

BAD_SHARE = 5
"""One author in so many may say what it likes."""
AUTHORS_MIN = 3
"""Below, nothing is merged: two cannot outvote one."""
AUTHORS_MERGED = 64
"""Authors in one round's merge, by draw where there are more: distances are counted for each pair."""
STALE_ROUNDS = 2
"""What an author means is counted in so many rounds after its last word: a device may miss one."""
_SLICE = 65_536
"""Multiplications between two turns of the loop: some 4 ms."""
KEPT = 4
"""States that are remembered, 2 MB each at the very most: of the last rounds, since older deltas seldom come."""

Deltas = Mapping[NodeId, Delta]
Units = Sequence[int]


class _State:
    """The head after some rounds."""

    __slots__ = ("last", "moved", "step", "sums")

    def __init__(self, moved: Units, step: Units, sums: dict[NodeId, Units], last: dict[NodeId, int]) -> None:
        self.moved, self.step, self.sums, self.last = moved, step, sums, last


class Merger:
    """Merges, and remembers what it merged: each round goes on from the one before, unless older deltas came."""

    def __init__(self, kept: int = KEPT) -> None:
        """Remember so many states at most."""
        self._kept = kept
        self._states: dict[bytes, _State] = {}

    def merge(self, session: Session, rounds: Sequence[Deltas]) -> Iterator[Units | None]:
        """Merge the deltas of some rounds, a slice of work at a time.

        Args:
            session: Of all of them; each of them `fits` it.
            rounds: By round, from the first: by author.

        Yields:
            None after a slice; at last by how much each weight is moved, in 2^-24.
        """
        mark = session.id
        state = _State([0] * session.dim, [0] * session.dim, {}, {})
        for number, deltas in enumerate(rounds):
            chosen = sorted(deltas)
            digests = b"".join(deltas[author].digest for author in chosen)
            mark = blake2b(mark + digests, digest_size=16).digest()
            known = self._states.get(mark)
            if known is None:
                known = yield from self._next(session, state, number, [deltas[author] for author in chosen])
                if len(self._states) >= self._kept:
                    del self._states[next(iter(self._states))]
                self._states[mark] = known
            state = known
        yield state.moved

    def _next(
        self, session: Session, before: _State, number: int, deltas: Sequence[Delta]
    ) -> Generator[None, None, _State]:
        """One round further."""
        sums, last = dict(before.sums), dict(before.last)
        for delta in deltas:
            told = array("q", sums.get(delta.author) or bytes(8 * session.dim))
            for index, change in delta.units():
                told[index] += change
            sums[delta.author], last[delta.author] = told, number
        heard = [author for author in sorted(sums) if number - last[author] <= STALE_ROUNDS]
        heard = drawn(heard, session.id, number)
        if len(heard) < AUTHORS_MIN:
            return _State(before.moved, before.step, sums, last)
        mean = yield from robust_mean([sums[author] for author in heard])
        step = [one // 2 + other for one, other in zip(before.step, mean, strict=True)]
        moved = [one + 3 * other // 2 for one, other in zip(before.moved, step, strict=True)]
        return _State(moved, step, sums, last)


def drawn(authors: Sequence[NodeId], session: bytes, number: int) -> list[NodeId]:
    """At most `AUTHORS_MERGED` of them, the same on every node, others each round."""

    def ticket(author: NodeId) -> bytes:
        return blake2b(session + number.to_bytes(2, "little") + author, digest_size=8).digest()

    return sorted(sorted(authors, key=ticket)[:AUTHORS_MERGED])


def robust_mean(rows: Sequence[Units]) -> Generator[None, None, Units]:
    """What most of the rows mean; a fifth of them may be anything.

    Args:
        rows: One an author, of equal length.

    Yields:
        None after a slice of work.

    Returns:
        The mean, rounded down.
    """
    count, dim = len(rows), len(rows[0])
    bad = count // BAD_SHARE
    distances = [[0] * count for _ in rows]
    work = 0
    for one in range(count):
        for other in range(one):
            apart = list(map(sub, rows[one], rows[other]))
            distances[one][other] = distances[other][one] = sum(map(mul, apart, apart))
            work += dim
            if work >= _SLICE:
                work = 0
                yield None
    mixed: list[Units] = []
    for one in range(count):
        near = sorted(range(count), key=distances[one].__getitem__)[: count - bad]  # Of equal ones, the first.
        total: Units = [0] * dim
        for at in near:
            total = list(map(add, total, rows[at]))
        mixed.append([value // len(near) for value in total])
        work += dim * len(near)
        if work >= _SLICE:
            work = 0
            yield None
    mean: list[int] = []
    for values in zip(*mixed, strict=True):
        kept = sorted(values)[bad : count - bad]
        mean.append(sum(kept) // len(kept))
        work += count
        if work >= _SLICE:
            work = 0
            yield None
    return mean
