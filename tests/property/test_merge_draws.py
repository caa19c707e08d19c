"""Above 64 authors a draw is merged, and it may hold more bad ones than the fifth that all have."""

from math import comb
from random import Random

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning import merging
from swarmd_protocols.learning.form import Delta, Session
from swarmd_protocols.learning.merging import AUTHORS_MERGED, DRAWN_BAD_MAX, Merger, bad_among, drawn

DIM, ROUNDS = 6, 12
WANTS = 20
"""What an honest member asks of each weight at most, in units of its exponent."""
LOUD = 9
"""Exponent of a bad member's words: 64 times an honest one's."""


def author(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def first_round(session: Session, authors: int, bad: int, rng: Random) -> dict[NodeId, Delta]:
    """Honest members agree but for a tenth; bad ones agree to ask for the opposite, loudly."""
    found = {}
    for at in range(authors):
        values = tuple(-6 * WANTS if at < bad else rng.randint(WANTS - 2, WANTS) for _ in range(DIM))
        name = author(at)
        exponent = LOUD if at < bad else 3
        found[name] = Delta(name, session.id, 0, 1, exponent, tuple(range(DIM)), values, b"%d" % at)
    return found


def heads(authors: int, bad: int, count: int) -> list[tuple[int, list[int]]]:
    """Of some sessions: how many bad ones the first round drew, and the head after it."""
    found = []
    for seed in range(count):
        session = Session(seed.to_bytes(32, "big"), DIM, DIM, ROUNDS)
        deltas = first_round(session, authors, bad, Random(seed))
        held = sum(one in {author(at) for at in range(bad)} for one in drawn(sorted(deltas), session.id, 0))
        *_, head = Merger().merge(session, [deltas])
        assert head is not None
        found.append((held, list(head)))
    return found


def nobody_is_moved(authors: int, bad: int, count: int) -> None:
    """Heads go where honest ones want them, however many bad ones the draw held; some draws hold more than a fifth."""
    ((_, honest),) = _one().units()
    found = heads(authors, bad, count)
    assert max(held for held, _ in found) > AUTHORS_MERGED // merging.BAD_SHARE, "no draw is worth looking at"
    for held, head in found:
        assert min(head) > 0, f"{held} of {AUTHORS_MERGED} turned the head round"
        assert max(head) <= 3 * honest // 2 + 1


def _one() -> Delta:
    return Delta(author(0), b"s" * 16, 0, 1, 3, (0,), (WANTS,), b"")


@pytest.mark.parametrize(("authors", "bad"), [(65, 13), (100, 20), (200, 40), (100, 23)])
def test_a_draw_that_holds_more_bad_ones_than_a_fifth_is_not_moved(authors: int, bad: int) -> None:
    nobody_is_moved(authors, bad, 12)


def test_up_to_64_authors_a_fifth_is_cut_off_as_ever() -> None:
    assert [bad_among(count) for count in range(3, AUTHORS_MERGED + 1)] == [
        count // merging.BAD_SHARE for count in range(3, AUTHORS_MERGED + 1)
    ]


def test_a_draw_holds_no_more_than_is_cut_off_but_in_one_of_2900() -> None:
    """Exactly, of however many; between 65 and 124 all the bad ones there are may be drawn."""
    for authors in range(AUTHORS_MERGED + 1, 125):
        assert bad_among(authors) == authors // merging.BAD_SHARE
    for authors in (125, 200, 1_000, 10_000):
        bad = authors // merging.BAD_SHARE
        more = range(bad_among(authors) + 1, min(AUTHORS_MERGED, bad) + 1)
        ways = sum(comb(bad, held) * comb(authors - bad, AUTHORS_MERGED - held) for held in more)
        assert ways * 2_800 < comb(authors, AUTHORS_MERGED)
    assert 2 * DRAWN_BAD_MAX < AUTHORS_MERGED
