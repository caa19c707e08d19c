"""What one member can prepare so that a single event of everybody else's would be long: work is counted, not timed."""

import random
from collections.abc import Callable

import pytest

from swarmd_protocols.state import projection as projection_module
from swarmd_protocols.state.clock import stamp_of
from swarmd_protocols.state.crdt import store as store_module
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.facts import Done, Facts
from swarmd_protocols.state.crdt.log import OriginLog
from swarmd_protocols.state.crdt.messages import HELD, POSITIONS_MAX
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.quota import BATCH_UNITS
from tests.support.mutants import assert_found
from tests.support.state_mesh import Mesh, S
from tests.support.state_pen import pen_of

BATCHES = 400


def law_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that all come due at one moment are read in slices, and all are shown in the end."""
    mesh = Mesh(3)
    member, pen = mesh.members[0], pen_of(2)
    replica = member.replica
    assert replica is not None
    now_ns = member.local_ns(mesh.now_ns)
    stamp = stamp_of(replica.clock.physical_ms(now_ns) + 60_000)
    for number in range(BATCHES):
        batch = pen.write(Facts([], [], [Done(number.to_bytes(6, "big"), 1)]), stamp)
        replica._holdings.join(batch, now_ns)
    assert len(replica._holdings.deferred) == BATCHES
    read, most, decode = [0], 0, projection_module.decode_facts

    def counted(body: bytes) -> Facts:
        read[0] += 1
        return decode(body)

    with monkeypatch.context() as patch:
        patch.setattr(projection_module, "decode_facts", counted)
        for step in range(200):
            read[0] = 0
            at_ns = now_ns + 61 * S + step * 10_000_000
            for timer in [key for key, due_ns in replica._timers.items() if due_ns <= at_ns]:
                read[0] = 0
                replica.on_timer(timer, at_ns)
                most = max(most, read[0])
    assert not replica._holdings.deferred
    assert len(replica._projection.survey.claims.done) == BATCHES
    assert most <= 2 * mesh.config.slice_units // BATCH_UNITS


def test_law_what_comes_due_at_one_moment_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    law_of_one_moment(monkeypatch)


def test_a_moment_at_which_all_is_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Holdings, now_ns: int) -> None:
        for digest, batch in list(self.deferred.items()):
            if self.clock.observe(batch.stamp, now_ns):
                del self.deferred[digest]
                self.projection.take(batch, self.projection.read(batch), now_ns)

    assert_found(
        lambda patch: patch.setattr(Holdings, "take_due", at_once), lambda: law_of_one_moment(monkeypatch), monkeypatch
    )


class Looked:
    """Stands for a batch of a log and counts how often somebody asks which it is."""

    def __init__(self, dot: tuple[int, int]) -> None:
        self._dot = dot
        self.looks = 0

    @property
    def dot(self) -> tuple[int, int]:
        self.looks += 1
        return self._dot


def law_of_runs() -> None:
    """However many runs a summary names, each batch of a log is looked at a few times."""
    log = OriginLog(pen_of(1).node)
    batches = {(5, n): Looked((5, n)) for n in range(1, 2_001)}
    log.facts = dict(batches)  # type: ignore[arg-type]
    held = [(HELD, 5, 3_000 + n, (1).to_bytes(4, "little")) for n in range(POSITIONS_MAX)]
    Store(10, 1)._beyond(log, {}, held)
    assert max(batch.looks for batch in batches.values()) <= 3


def each_against_all(
    self: Store, log: OriginLog, frontier: dict[int, int], held: list[tuple[int, int, int, bytes]]
) -> list[Batch]:
    lacking = list(log.after(frontier))
    for _, incarnation, first, count in held:
        run = range(first, first + int.from_bytes(count, "little"))
        lacking = [batch for batch in lacking if batch.dot[0] != incarnation or batch.dot[1] not in run]
    return lacking


def test_law_runs_of_a_summary_are_looked_up() -> None:
    law_of_runs()


def test_runs_that_are_each_held_against_all_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(lambda patch: patch.setattr(Store, "_beyond", each_against_all), law_of_runs, monkeypatch)


Runs = list[tuple[int, int, int, bytes]]


@pytest.mark.parametrize("seed", range(20))
def test_runs_hold_what_they_say_whatever_their_order(seed: int) -> None:
    rng = random.Random(seed)
    held: Runs = [
        (HELD, rng.randrange(1, 4), rng.randrange(30), rng.randrange(9).to_bytes(4, "little")) for _ in range(12)
    ]
    runs = store_module._runs(held)
    is_within: Callable[..., bool] = store_module._is_within
    for life in range(5):
        for n in range(45):
            expected = any(
                life == incarnation and n in range(first, first + int.from_bytes(count, "little"))
                for _, incarnation, first, count in held
            )
            assert is_within(runs, (life, n)) == expected
