"""How deltas become one head: the same on every node that holds the same deltas, in whole numbers. Pure.

Of each author the sum of its deltas up to a round stands for what its labels mean (`sparse.py`). In a round these sums
are mixed, each with the four fifths of all that lie nearest to it, and the mixtures are averaged weight by weight
without the highest and the lowest fifth. So a fifth of the authors may say what they like: whoever is far away is mixed
into few, and what it moves there is cut off. Labels that differ from device to device are no reason to be cut off:
mixing brings honest ones together first. Where authors are drawn, more than a fifth of those drawn may be bad: then as
many are cut off as a draw may hold of them (`bad_among`).

The step is half of the one before and this average, one and a half times, **within a reach**. Words may be late: told
of a head that has moved since, or of one that lacked what others had said. Whoever follows them again and again goes
past what they ask for, further each time. So no step is longer than what honest members ask for in its round
(`largest_honest`), nor than the reach: what they asked for first, halved whenever the words turn against the last step,
of which nothing is left then. A reach never grows.

Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, Fixing by Mixing (2023): nearest-neighbour mixing before
a coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett, 2018).
"""

from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isqrt
from operator import add, mul, sub

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Delta, Session

BAD_SHARE = 5
"""One author in so many may say what it likes."""
AUTHORS_MIN = 3
"""Below, nothing is merged: two cannot outvote one."""
AUTHORS_MERGED = 64
"""Authors in one round's merge, by draw where there are more: distances are counted for each pair."""
DRAWN_BAD_MAX = 24
"""Of those who are drawn so many may be bad. Where a fifth of all is, a draw holds more in one round of 2,900 at most,
however many authors there are (binomial, 64 draws at 0.2), and in none where they are fewer than 125."""
STALE_ROUNDS = 2
"""What an author means is counted in so many rounds after its last word: a device may miss one."""
REACH_MAX = 1 << 60
"""Before the first merge: longer than any words are, 2^-24 of a weight each, 2^40 of them at most in one of 4,096."""
_SLICE = 65_536
"""Multiplications, or additions, between two turns of the loop: some 4 ms."""
_DELTA_WORK = 2_048
"""What it takes to name a delta or to add one up, in multiplications: 512 entries are read and added one by one."""
KEPT = 4
"""States that are remembered, of the last rounds, since older deltas seldom come. One holds the sums of those whom its
round drew and no others', however many have spoken: `AUTHORS_MERGED` x 8 bytes x `DIM_MAX`, 2 MB."""

Deltas = Mapping[NodeId, Delta]
Units = Sequence[int]


class _State:
    """The head after some rounds, and what those meant by then whom the last of them drew."""

    __slots__ = ("moved", "reach", "step", "sums")

    def __init__(self, moved: Units, step: Units, reach: int, sums: dict[NodeId, "array[int]"]) -> None:
        self.moved, self.step, self.reach, self.sums = moved, step, reach, sums


class _Work:
    """Says when enough was done for one slice."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def add(self, units: int) -> Iterator[None]:
        """So much was done; one turn of the loop where a slice is full."""
        self._done += units
        if self._done >= _SLICE:
            self._done = 0
            yield None


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
        mark, work = session.id, _Work()
        state = _State([0] * session.dim, [0] * session.dim, REACH_MAX, {})
        for number, deltas in enumerate(rounds):
            name = blake2b(mark, digest_size=16)
            for author in sorted(deltas):
                name.update(deltas[author].digest)
                yield from work.add(_DELTA_WORK)
            mark = name.digest()
            known = self._states.get(mark)
            if known is None:
                known = yield from _next(session, state, number, rounds, work)
                if len(self._states) >= self._kept:
                    del self._states[next(iter(self._states))]
                self._states[mark] = known
            state = known
        yield state.moved


def _next(
    session: Session, before: _State, number: int, rounds: Sequence[Deltas], work: _Work
) -> Generator[None, None, _State]:
    """One round further."""
    heard = sorted({author for deltas in rounds[max(0, number - STALE_ROUNDS) : number + 1] for author in deltas})
    bad = bad_among(len(heard))
    heard = drawn(heard, session.id, number)
    if len(heard) < AUTHORS_MIN:
        return _State(before.moved, before.step, before.reach, {})
    sums = {}
    for author in heard:
        told, first = array("q", bytes(8 * session.dim)), 0
        if author in before.sums:
            told, first = before.sums[author][:], number
        for deltas in rounds[first : number + 1]:
            if author in deltas:
                for index, change in deltas[author].units():
                    told[index] += change
                yield from work.add(_DELTA_WORK)
        sums[author] = told
    mean = yield from robust_mean(list(sums.values()), bad)
    lengths = []
    for told in sums.values():
        lengths.append(length(told))
        yield from work.add(session.dim)
    step, way, reach = bounded(before.step, mean, before.reach, largest_honest(lengths, bad))
    return _State(list(map(add, before.moved, way)), step, reach, sums)


def bounded(before: Units, mean: Units, reach: int, largest: int) -> tuple[Units, Units, int]:
    """The next step.

    Args:
        before: The last one.
        mean: What most ask for.
        reach: Of the last round; `REACH_MAX` where nobody has asked for anything yet.
        largest: The longest that an honest word is.

    Returns:
        What the next round goes on from; the step, no longer than the reach and `largest`; and the reach.

    >>> bounded([0, 0], [6, 8], 100, 20), bounded([0, 0], [6, 8], 100, 5), bounded([6, 8], [-2, 0], 10, 10)
    (([6, 8], [9, 12], 100), ([2, 2], [3, 4], 100), ([-2, 0], [-3, 0], 5))
    """
    if reach == REACH_MAX and largest:
        reach = largest
    if sum(map(mul, before, mean)) < 0:
        before, reach = [0] * len(before), reach // 2
    longest = min(reach, largest)
    step = [one // 2 + other for one, other in zip(before, mean, strict=True)]
    way = [3 * one // 2 for one in step]
    square = sum(map(mul, way, way))
    if square > longest * longest:
        long = isqrt(square - 1) + 1  # Rounded up, and each weight towards zero: what comes out is never too long.
        way = [one * longest // long if one > 0 else -(-one * longest // long) for one in way]
        step = [2 * one // 3 for one in way]
    return step, way, reach


def length(row: Units) -> int:
    """Of a row, rounded down."""
    return isqrt(sum(map(mul, row, row)))


def largest_honest(lengths: Sequence[int], bad: int) -> int:
    """What the longest honest word is as long as, at most, where so many may be of any length.

    >>> largest_honest([5, 7, 900, 6, 4], 1)
    7
    """
    return sorted(lengths, reverse=True)[bad]


def bad_among(authors: int) -> int:
    """How many of those whom a merge draws may be bad, where a fifth of all authors is.

    >>> [bad_among(count) for count in (3, 20, 64, 100, 1_000)]
    [0, 4, 12, 20, 24]
    """
    return min(authors // BAD_SHARE, DRAWN_BAD_MAX)


def drawn(authors: Sequence[NodeId], session: bytes, number: int) -> list[NodeId]:
    """At most `AUTHORS_MERGED` of them, the same on every node, others each round."""

    def ticket(author: NodeId) -> bytes:
        return blake2b(session + number.to_bytes(2, "little") + author, digest_size=8).digest()

    return sorted(sorted(authors, key=ticket)[:AUTHORS_MERGED])


def robust_mean(rows: Sequence[Units], bad: int) -> Generator[None, None, Units]:
    """What most of the rows mean.

    Args:
        rows: One an author, of equal length; numbers of 40 bits, since 32 rounds of a delta add up to no more.
        bad: How many of them may be anything; less than half.

    Yields:
        None after a slice of work.

    Returns:
        The mean, rounded down.
    """
    count, dim = len(rows), len(rows[0])
    work = _Work()
    distances = [[0] * count for _ in rows]
    for one in range(count):
        for other in range(one):
            apart = list(map(sub, rows[one], rows[other]))
            distances[one][other] = distances[other][one] = sum(map(mul, apart, apart))
            yield from work.add(dim)
    mixed: list[Units] = []
    for one in range(count):
        near = sorted(range(count), key=distances[one].__getitem__)[: count - bad]  # Of equal ones, the first.
        total: Units = [0] * dim
        for at in near:
            total = list(map(add, total, rows[at]))
            yield from work.add(dim)
        mixed.append(array("q", [value // len(near) for value in total]))
    mean: list[int] = []
    for values in zip(*mixed, strict=True):
        kept = sorted(values)[bad : count - bad]
        mean.append(sum(kept) // len(kept))
        yield from work.add(count)
    return mean
