"""What a merge costs, whoever speaks: its memory, its slices, and that neither shows in what comes out."""

import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning import merging
from swarmd_protocols.learning.form import Delta, Session
from swarmd_protocols.learning.merging import AUTHORS_MERGED, AUTHORS_MIN, STALE_ROUNDS, Merger, drawn, robust_mean

SLICE_DELTAS = 32
"""Deltas that may be read between two turns: 32 x 512 entries take some 5 ms."""

Rounds = list[dict[NodeId, Delta]]


def author(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def rounds_of(session: Session, authors: int, count: int, speaks: float = 1.0, seed: int = 1) -> Rounds:
    """Every author says as much as a delta holds, in each round with this probability."""
    rng = Random(seed)
    found: Rounds = []
    for number in range(count):
        found.append({})
        for at in range(authors):
            if rng.random() >= speaks:
                continue
            indices = tuple(sorted(rng.sample(range(session.dim), session.entries)))
            values = tuple(rng.choice((-5, 7, 100)) for _ in indices)
            raw = number.to_bytes(2, "big") + at.to_bytes(4, "big") + bytes([seed])
            found[-1][author(at)] = Delta(author(at), session.id, number, 1, 3, indices, values, raw)
    return found


def merged(merger: Merger, session: Session, rounds: Rounds) -> tuple[Sequence[int], int]:
    """What comes out, and the slices it took."""
    steps = list(merger.merge(session, rounds))
    assert steps[-1] is not None
    assert not any(steps[:-1])
    return steps[-1], len(steps) - 1


def from_scratch(session: Session, rounds: Rounds) -> list[int]:
    """The rule, with the sums of everybody that ever spoke."""
    reach = merging.REACH_MAX
    step: Sequence[int] = [0] * session.dim
    moved = [0] * session.dim
    for number in range(len(rounds)):
        sums: dict[NodeId, list[int]] = {}
        last: dict[NodeId, int] = {}
        for at, deltas in enumerate(rounds[: number + 1]):
            for one, delta in deltas.items():
                last[one] = at
                told = sums.setdefault(one, [0] * session.dim)
                for index, change in delta.units():
                    told[index] += change
        everybody = sorted(one for one in sums if number - last[one] <= STALE_ROUNDS)
        bad, heard = merging.bad_among(len(everybody)), drawn(everybody, session.id, number)
        if len(heard) >= AUTHORS_MIN:
            *_, mean = _returned(robust_mean([sums[one] for one in heard], bad))
            largest = merging.largest_honest([merging.length(sums[one]) for one in heard], bad)
            step, way, reach = merging.bounded(step, mean, reach, largest)
            moved = [one + other for one, other in zip(moved, way, strict=True)]
    return moved


def _returned(steps: Iterator[None]) -> Iterator[Sequence[int]]:
    yield (yield from steps)  # type: ignore[misc]


def test_what_a_merge_holds_does_not_grow_with_those_who_speak() -> None:
    """Hundreds that all say what they may: what is held is that of the 64 who are drawn, and small while it is made."""
    session = Session(b"m" * 32, 1024, 8, 32)
    rounds = rounds_of(session, 600, 1)
    merger = Merger()
    tracemalloc.start()
    try:
        merged(merger, session, rounds)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * AUTHORS_MERGED * session.dim * 8, "sums, mixtures, and the numbers at work: 600 would be 5 MB"


def test_states_are_small() -> None:
    """After more rounds than are remembered, hundreds of authors are still 64."""
    session = Session(b"m" * 32, 12, 4, 32)
    merger = Merger()
    merged(merger, session, rounds_of(session, 300, merging.KEPT + 2))
    assert [len(one.sums) for one in merger._states.values()] == [AUTHORS_MERGED] * merging.KEPT


def test_a_slice_reads_a_few_deltas_and_no_more() -> None:
    """Neither who says much nor how many rounds there were makes the loop wait, also where all is known already."""
    with pytest.MonkeyPatch.context() as patch:
        read_in_slices(patch)


def read_in_slices(patch: pytest.MonkeyPatch) -> None:
    """Count what each slice reads."""
    session = Session(b"m" * 32, 16, 4, 32)
    rounds = rounds_of(session, 200, 8)
    read = [0]
    for name in ("digest", "units"):
        whole = Delta.__dict__[name]

        def counted(self: Delta, whole: object = whole) -> object:
            read[0] += 1
            return whole.fget(self) if isinstance(whole, property) else whole(self)  # type: ignore[operator]

        patch.setattr(Delta, name, property(counted) if name == "digest" else counted)
    merger = Merger()
    for _ in range(2):
        at = [0]
        for _ in merger.merge(session, rounds):
            at.append(read[0])
        assert max(after - before for before, after in pairwise(at)) <= SLICE_DELTAS
        assert at[-1] >= 8 * 200
        read[0] = 0


def test_slices_are_of_one_size() -> None:
    """As many turns as there is work: of 40 rows 780 pairs, 40 mixtures of 32, and each weight of the mean."""
    rows = [[at * 1000 + index for index in range(4096)] for at in range(40)]
    slices = sum(1 for _ in robust_mean(rows, 8))
    work = 4096 * (40 * 39 // 2 + 40 * 32 + 40)
    assert slices == work // 65_536


@pytest.mark.parametrize("seed", range(3))
def test_what_is_remembered_does_not_show(seed: int) -> None:
    """Authors come and go and are drawn or not; who starts from nothing comes to the same."""
    session = Session(b"m" * 32, 6, 4, 32)
    for authors, speaks in ((5, 0.4), (80, 0.5)):
        rounds = rounds_of(session, authors, 6, speaks, seed)
        merger = Merger()
        for number in range(1, len(rounds) + 1):
            found, _ = merged(merger, session, rounds[:number])
            if authors < 50 or number == len(rounds):
                assert list(found) == from_scratch(session, rounds[:number])


def test_a_round_of_too_few_is_not_lost() -> None:
    """Five speak, then two, three times over, then five: what the two said meanwhile is in their sums."""
    session = Session(b"m" * 32, 6, 4, 32)
    rounds = rounds_of(session, 5, 6)
    for number in range(1, 5):
        rounds[number] = {one: delta for one, delta in rounds[number].items() if one in (author(0), author(1))}
    found, _ = merged(Merger(), session, rounds)
    assert list(found) == from_scratch(session, rounds)
