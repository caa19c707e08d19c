"""The step of a round, where words are late, sparse or told of a head that others do not have: it has an end."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import Delta, Session
from swarmd_protocols.learning.merging import BAD_SHARE, Merger, bounded, length
from swarmd_protocols.learning.sparse import top_k
from tests.property.test_merge_bounds import author

DIM, ROUNDS = 12, 24
UNIT = 1 << 24
LATE_MAX = 5
"""Rounds that a word lags at most: a training that takes five rounds."""
FAR = LATE_MAX + 4
"""The head is never further from what labels want, in times of the first distance: so many steps go past at most,
until the words turn. Without a bound on a step it is thousands."""


@dataclass
class Swarm:
    """Members whose labels want a head each, and whose trainings lag: what is told is told of an earlier head."""

    count: int
    seed: int
    late: str
    entries: int
    speaks: float
    liars: bool

    def run(self) -> tuple[list[list[int]], list[list[int]], list[list[list[int]]]]:
        """The heads by round, what each member's labels want, and what honest ones had told by each round."""
        rng = Random(self.seed)
        session = Session(b"m" * 32, DIM, self.entries, ROUNDS)
        wants = [[round(UNIT * (at % 3 - 1 + rng.uniform(-0.1, 0.1)) / 2) for at in range(DIM)] for _ in self.members]
        parts = [rng.uniform(0.3, 1.0) for _ in range(DIM)]
        lags = [rng.randrange(LATE_MAX + 1) for _ in self.members]
        told = [[0] * DIM for _ in self.members]
        bad = self.count // BAD_SHARE if self.liars else 0
        heads, rounds, words = [[0] * DIM], list[dict[NodeId, Delta]](), list[list[list[int]]]()
        merger = Merger()
        for number in range(ROUNDS):
            rounds.append({})
            for one in self.members:
                if rng.random() >= self.speaks and not self.liars:  # A fifth of those who are heard, no more.
                    continue
                first = number if number <= LATE_MAX else 0
                lag = {"each its own": lags[one], "drawn": rng.randrange(LATE_MAX + 1), "at first": first}[self.late]
                head = heads[max(0, number - lag)]
                meant = [round(part * (a - b)) for part, a, b in zip(parts, wants[one], head, strict=True)]
                if one < bad:
                    meant = [rng.choice((-100, 100)) * UNIT for _ in range(DIM)]
                exponent, entries = top_k(meant, told[one], self.entries)
                for at, value in entries:
                    told[one][at] += value << exponent
                raw = bytes([number, one])
                indices, values = tuple(at for at, _ in entries), tuple(value for _, value in entries)
                rounds[-1][author(one)] = Delta(author(one), session.id, number, 1, exponent, indices, values, raw)
            words.append([told[one][:] for one in self.members[bad:]])
            *_, found = merger.merge(session, rounds)
            assert found is not None
            heads.append(list(found))
        return heads, wants[bad:], words

    @property
    def members(self) -> range:
        return range(self.count)


def apart(one: Sequence[int], other: Sequence[int]) -> float:
    return length([a - b for a, b in zip(one, other, strict=True)])


SWARMS = st.builds(
    Swarm,
    count=st.integers(3, 11),
    seed=st.integers(0, 10_000),
    late=st.sampled_from(["each its own", "drawn", "at first"]),
    entries=st.sampled_from([3, 6, DIM]),
    speaks=st.sampled_from([0.5, 0.8, 1.0]),
    liars=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(swarm=SWARMS)
def test_no_step_is_longer_than_an_honest_word(swarm: Swarm) -> None:
    """However late or sparse words are, and whatever a fifth says."""
    heads, _, words = swarm.run()
    for number, told in enumerate(words):
        step = apart(heads[number + 1], heads[number])
        assert step <= max(length(row) for row in told), f"round {number}"


@settings(max_examples=60, deadline=None)
@given(swarm=SWARMS)
def test_late_words_do_not_drive_the_head_away(swarm: Swarm) -> None:
    """It passes what labels want by so many steps as words are late, and ends no further off than that."""
    heads, wants, _ = swarm.run()
    middle = [sum(column) // len(column) for column in zip(*wants, strict=True)]
    first = apart(heads[0], middle)
    assert max(apart(head, middle) for head in heads) <= FAR * first


def test_all_words_of_the_first_head_come_at_once() -> None:
    """Five rounds of words told of one head, since others' were not there: each is followed once, and what comes of
    it is turned round; the head ends where labels want it."""
    heads, wants, _ = Swarm(3, 1, "at first", DIM, 1.0, False).run()
    middle = [sum(column) // len(column) for column in zip(*wants, strict=True)]
    assert apart(heads[-1], middle) < apart(heads[0], middle)


@settings(max_examples=200, deadline=None)
@given(
    before=st.lists(st.integers(-(1 << 40), 1 << 40), min_size=4, max_size=4),
    mean=st.lists(st.integers(-(1 << 40), 1 << 40), min_size=4, max_size=4),
    reach=st.integers(0, 1 << 45),
    largest=st.integers(0, 1 << 45),
)
def test_a_step_stays_within_its_reach_to_the_last_bit(
    before: list[int], mean: list[int], reach: int, largest: int
) -> None:
    _, step, after = bounded(before, mean, reach, largest)
    assert sum(one * one for one in step) <= min(after, largest) ** 2
    assert after in (reach, reach // 2), "a reach never grows"


def test_silence_takes_no_reach_away() -> None:
    """Where nobody asks for anything in the first rounds, what is asked for later is followed."""
    session = Session(b"m" * 32, 1, 1, 4)
    rounds: list[dict[NodeId, Delta]] = []
    for number in range(3):
        rounds.append({})
        for one in range(3):
            value = 50 if number == 2 else 0
            raw = bytes([number, one])
            entries = ((0,), (value,)) if value else ((), ())
            rounds[-1][author(one)] = Delta(author(one), session.id, number, 1, 3, *entries, raw)
    *_, found = Merger().merge(session, rounds)
    assert found is not None
    assert found[0] > 0
