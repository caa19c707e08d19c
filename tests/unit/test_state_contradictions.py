"""An author that tells two parts of a swarm different things under one number, goes on alike, and is gone."""

from collections.abc import Callable

import pytest

from swarmd_protocols.state.contradictions import Contradictions
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.facts import Done, Facts
from tests.support.mutants import assert_found
from tests.support.state_mesh import Mesh, detection
from tests.support.state_pen import Pen, pen_of

LIAR = 3


def give(mesh: Mesh, to: int, *batches: Batch) -> None:
    member = mesh.members[to]
    assert member.replica is not None
    payload = messages.encode(messages.Batches(tuple(batch.raw for batch in batches)))
    effects = member.replica.on_message(mesh.members[LIAR].node, payload, member.local_ns(mesh.now_ns))
    mesh.perform(member, effects)


def row(number: int) -> Facts:
    return Facts([], [], [Done(bytes([number]) * 6, 1)])


def two_under_one(pen: Pen) -> tuple[Batch, Batch]:
    before = pen.n, pen.previous
    one = pen.write(row(2))
    pen.n, pen.previous = before
    return one, pen.write(row(3))


def below_the_head(pen: Pen) -> tuple[list[Batch], list[Batch]]:
    first = pen.write(row(1))
    one, other = two_under_one(pen)
    last = pen.write(row(4))
    return [first, one, last], [first, other, last]


def above_a_gap(pen: Pen) -> tuple[list[Batch], list[Batch]]:
    first = pen.write(row(1))
    pen.write(row(9))
    one, other = two_under_one(pen)
    return [first, one], [first, other]


Lie = Callable[[Pen], tuple[list[Batch], list[Batch]]]


def law(lie: Lie, members: int = 4, loss: float = 0.0) -> None:
    """Both parts come to one state, name who lied, and are quiet then."""
    mesh = Mesh(members, seed=5, loss=loss)
    mesh.run(3)
    mesh.crash(LIAR)
    mesh.partition(lambda index: index % 2)
    mesh.run(1)
    one, other = lie(pen_of(LIAR))
    for member in mesh.members:
        if member.replica is not None:
            give(mesh, member.index, *(other if member.index % 2 else one))
    mesh.run(5)
    mesh.partition(lambda index: 0)
    mesh.run(30)
    assert mesh.agree(), "two parts hold different things of one author for good"
    assert all(replica.views.health()["quarantined"] == 1 for replica in mesh.replicas)
    before = mesh.bytes_sent
    mesh.run(20)
    assert mesh.bytes_sent - before < 40 * 20 * members


@pytest.mark.parametrize("lie", [below_the_head, above_a_gap])
@pytest.mark.parametrize(("members", "loss"), [(4, 0.0), (4, 0.3), (28, 0.0)])
def test_law_who_went_on_alike_is_convicted_all_the_same(lie: Lie, members: int, loss: float) -> None:
    law(lie, members, loss)


def check_that_honest_ones_are_not_looked_through(members: int, loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[Batch] = []
    to_name = Contradictions.to_name

    def counted(self: Contradictions, *args: object) -> list[Batch]:
        found = to_name(self, *args)  # type: ignore[arg-type]
        named.extend(found)
        return found

    monkeypatch.setattr(Contradictions, "to_name", counted)
    mesh = Mesh(members, seed=3, loss=loss)
    for second in range(30):
        if second % 10 == 4:
            mesh.partition(lambda index: index % 2)
        elif second % 10 == 8:
            mesh.partition(lambda index: 0)
        member = mesh.members[second % members]
        mesh.see(member.index, detection(member.local_ns(mesh.now_ns), second + 1, 1_000 * second, 0))
        mesh.run(1)
    assert not named


@pytest.mark.parametrize(("members", "loss"), [(6, 0.0), (6, 0.3), (28, 0.1)])
def test_honest_authors_are_not_looked_through(members: int, loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_honest_ones_are_not_looked_through(members, loss, monkeypatch)


def nothing_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Contradictions, "to_name", lambda self, peer, have, differing, muted: [])


def positions_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Contradictions, "is_in_vain", lambda self, peer, theirs: False)


def the_same_part_each_time(patch: pytest.MonkeyPatch) -> None:
    part = Contradictions._part

    def first(self: Contradictions, groups: list[int]) -> list[Batch]:
        self._turn = 0
        return part(self, groups)

    patch.setattr(Contradictions, "_part", first)


def late_in_a_long_log(pen: Pen) -> tuple[list[Batch], list[Batch]]:
    long = [pen.write(row(7)) for _ in range(messages.IDS_MAX + 20)]
    one, other = two_under_one(pen)
    last = pen.write(row(4))
    return [*long, one, last], [*long, other, last]


def test_law_long_logs_are_looked_through() -> None:
    law(late_in_a_long_log)


@pytest.mark.parametrize(
    ("mutant", "lie"),
    [
        (nothing_is_named, below_the_head),
        (positions_are_believed, above_a_gap),
        (the_same_part_each_time, late_in_a_long_log),
    ],
)
def test_a_law_finds_its_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], lie: Lie, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, lambda: law(lie), monkeypatch)
