"""Collections in slices: none walks what has been held for long, and cycles that die late do not pile up."""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarmd.brain import garbage, heap
from swarmd.brain.garbage import Slices, look_at_all, sliced
from swarmd.cli.main import main
from tests.support.mutants import assert_found
from tests.support.state_mesh import Mesh, detection

ROUND = 4_000
"""Objects made at a time."""
PYTHONS_OWN = (700, 10, 10)
"""Of CPython 3.11's collector."""


class Knot:
    """A dead one refers to itself, so that only the collector finds it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    gc.collect()
    Knot.alive = 0
    of_the_suite = gc.get_threshold()
    gc.set_threshold(*PYTHONS_OWN)  # As a daemon has it.
    before = gc.get_threshold(), len(gc.callbacks), gc.isenabled()
    yield
    assert (gc.get_threshold(), len(gc.callbacks), gc.isenabled()) == before, "Python's own rhythm is back"
    gc.set_threshold(*of_the_suite)
    gc.collect()


def law_of_late_deaths(held: Callable[[], int] = int) -> None:
    """Cycles that die long after they were frozen, without end: no more of them stay than may grow, and a slice."""
    slices, lives = Slices(), deque[list[Knot]]()
    slices.held = held
    slices.begin()
    most: list[int] = []
    try:
        for _ in range(240):
            lives.append([Knot() for _ in range(ROUND // 4)])
            young = [[number] for number in range(ROUND)]  # So that the collector runs.
            if len(lives) > 40:
                lives.popleft()
            if slices.is_due:
                slices.run()
            del young
            most.append(Knot.alive - sum(map(len, lives)))
    finally:
        slices.end()
        lives.clear()
    bound = garbage.GROWTH_MAX + 40_000
    assert max(most) <= bound, f"{max(most)} dead cycles were held at once"
    assert max(most[120:]) <= max(most[:120]) + ROUND * garbage.RUNS, f"they pile up: {most[::40]}"


def test_law_cycles_that_die_late_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "GROWTH_MAX", 20_000)
    law_of_late_deaths()


def test_cycles_that_nobody_looks_for_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(garbage, "GROWTH_MAX", 20_000)
        patch.setattr(Slices, "run_all", lambda self: setattr(self, "_kept", 1 << 40))

    assert_found(never, law_of_late_deaths, monkeypatch)


def law_of_what_is_held(count: int) -> None:
    """Whatever is held: a slice walks what is new, and no collection between slices walks more."""
    slices, walked = Slices(), list[int]()

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            walked.append(len(gc.get_objects()))

    slices.begin()
    held = [[number] for number in range(count)]
    slices.run_all()
    gc.callbacks.append(look)
    try:
        for number in range(60):
            held += [[number] for _ in range(1_000)]
            if slices.is_due:
                slices.run()
    finally:
        gc.callbacks.remove(look)
        slices.end()
    assert walked, "nothing was ever collected"
    assert max(walked) <= 7_700 * garbage.RUNS + 10_000, f"{max(walked)} objects were walked in one go"


def test_law_a_slice_walks_what_is_new() -> None:
    law_of_what_is_held(200_000)


def test_collections_that_walk_all_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def thaw(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(garbage.gc, "freeze", lambda: None)

    assert_found(thaw, lambda: law_of_what_is_held(100_000), monkeypatch)


def law_of_what_a_swarm_sees() -> None:
    """However many things a swarm sees, in one go or over time, not all that is held is looked at for it."""
    looks, run_all = list[int](), Slices.run_all
    slices = Slices()
    mesh = Mesh(4, seed=3, wall=True)
    mesh.run(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slices, "run_all", lambda self: (looks.append(gc.get_freeze_count()), run_all(self))[1])
        patch.setattr(garbage, "GROWTH_MAX", 2_000)
        slices.held = lambda: sum(replica.views.health()["sightings"] for replica in mesh.replicas)
        slices.begin()
        try:
            for number in range(400):
                for index in (1, 2, 3):
                    now_ns = mesh.members[index].local_ns(mesh.now_ns)
                    place = number % 40 * 900, number // 40 * 900 + index // 3 * 9_000_000
                    mesh.see(index, detection(now_ns, number, *place))
                if number % 4 == 3:
                    mesh.run(0.2)
                if slices.is_due or number % 20 == 19:
                    slices.run()
            mesh.run(5)
            slices.run()
            grown = gc.get_freeze_count() - looks[0]
        finally:
            slices.end()
    assert slices.held() == 4 * 1_200
    assert grown > 2 * garbage.EACH * 1_200, f"{grown} objects more are held"
    assert len(looks) == 1, f"all was looked at {len(looks) - 1} times, of {looks} objects"


def test_law_what_a_swarm_sees_has_nobody_look_at_all() -> None:
    law_of_what_a_swarm_sees()


def test_looks_at_all_for_what_is_seen_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(lambda patch: patch.setattr(garbage, "EACH", 0), law_of_what_a_swarm_sees, monkeypatch)


def test_law_what_dies_late_is_found_beside_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sightings that are held all the time, or go, explain nothing."""
    monkeypatch.setattr(garbage, "GROWTH_MAX", 20_000)
    held = iter(range(100_000, 0, -100))
    law_of_late_deaths(lambda: next(held))


def test_slices_run_between_the_events_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, run = [], Slices.run
    monkeypatch.setattr(Slices, "run", lambda self: (runs.append(asyncio.get_running_loop()), run(self)))

    async def live() -> None:
        with sliced(asyncio.get_running_loop()):
            held = []
            for number in range(60):
                held.append([[number] for _ in range(1_000)])
                before = len(runs)
                held.append([[number] for _ in range(1_000)])
                assert len(runs) == before, "in the middle of an event"
                await asyncio.sleep(0)
            look_at_all()

    asyncio.run(live())
    assert runs
    look_at_all()  # Where nothing is sliced, nothing is frozen.


def test_what_outlived_the_young_and_died_is_freed_though_little_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that allocates little comes to no slice for hours; the heap's rounds bring one about."""
    monkeypatch.setattr(heap, "GIVE_BACK_S", 0.0)

    async def live(is_kept_small: bool) -> int:
        with sliced(asyncio.get_running_loop()):
            knots = [Knot() for _ in range(500)]
            gc.collect(1)
            knots.clear()
            task = asyncio.create_task(heap.keep_heap_small() if is_kept_small else asyncio.sleep(60))
            for _ in range(20):
                await asyncio.sleep(0)
            task.cancel()
            return Knot.alive

    assert asyncio.run(live(False)) == 500
    gc.collect()
    assert asyncio.run(live(True)) == 0


def test_the_daemon_collects_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    class Stub:
        def __init__(self, *_: object) -> None:
            pass

        async def run(self, *, events: bool) -> int:
            seen.append(garbage._sliced is not None)
            return 0

    monkeypatch.setattr("swarmd.brain.brain.Brain", Stub)
    config = tmp_path / "swarmd.toml"
    config.write_text('[node]\nname = "one"\n')
    assert main(["run", "--config", str(config)]) == 0
    assert seen == [True]
    assert garbage._sliced is None
