"""Laws of a batch over the fleet: near the best makespan, each job answered once, whatever pullers do."""

import heapq
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.offload import stealing
from swarmd_protocols.offload.stealing import JOBS_MAX, TRIES_MAX, Lease, Pool
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

MS = 1_000_000
S = 1_000 * MS


@dataclass
class Device:
    """What a puller truly is."""

    unit_ns: int
    way_ns: int
    dies_ns: int = 1 << 62
    """It answers nothing from then on; told by its absence two seconds later."""
    fails: float = 0.0
    free_ns: int = 0


class Fleet:
    """A pool and its pullers on virtual time; who asks keeps so many jobs in it, as the program does."""

    def __init__(self, devices: dict[str, Device], works: list[float], seed: int, shown: int = 48) -> None:
        self.pool, self.devices, self.works = Pool(), devices, works
        self.rng = random.Random(seed)
        self.shown = shown
        self.now_ns = 0
        self.next_job = 0
        self.answered: list[int] = []
        self.given_up: list[int] = []
        self.ran_ns = 0
        self.events: list[tuple[int, int, str, Lease | None]] = []
        self.order = 0

    def at(self, at_ns: int, what: str, lease: Lease | None = None) -> None:
        self.order += 1
        heapq.heappush(self.events, (at_ns, self.order, what, lease))

    def run(self) -> int:
        """The makespan."""
        self.at(0, "tick")
        while len(self.answered) + len(self.given_up) < len(self.works):
            self.now_ns, _, what, lease = heapq.heappop(self.events)
            assert self.now_ns < 200 * S, "it has no end"
            if what == "tick":
                self.at(self.now_ns + 100 * MS, "tick")
                told = {name: one for name, one in self.devices.items() if self.now_ns < one.dies_ns + 2 * S}
                self.pool.offered({name: device.unit_ns for name, device in told.items()})
                for over in self.pool.overdue(self.now_ns):
                    self._note_given_up(over.job)
            elif lease is not None and what == "failed":
                given_up = self.pool.failed(lease.number, self.now_ns)
                if given_up is not None:
                    self.given_up.append(given_up)
            elif lease is not None:
                found = self.pool.done(lease.number, self.devices[lease.puller].unit_ns, self.now_ns)
                if found is not None:
                    self.answered.append(found[0])
            while self.next_job < len(self.works) and self.pool.size < self.shown:
                assert self.pool.put(self.next_job)
                self.next_job += 1
            for new in self.pool.take(self.now_ns):
                self.begin(new)
        return self.now_ns

    def _note_given_up(self, job: int) -> None:
        if job not in self.pool._jobs and job not in self.answered:
            self.given_up.append(job)

    def begin(self, lease: Lease) -> None:
        device = self.devices[lease.puller]
        if self.rng.random() < device.fails:
            self.at(self.now_ns + device.way_ns, "failed", lease)
            return
        work_ns = round(device.unit_ns * self.works[lease.job])
        begins_ns = max(device.free_ns, self.now_ns + device.way_ns // 2)
        device.free_ns = begins_ns + work_ns
        self.ran_ns += work_ns
        ends_ns = device.free_ns + device.way_ns // 2
        if device.free_ns <= device.dies_ns:
            self.at(ends_ns, "done", lease)

    def bound_ns(self) -> float:
        """Σ work / Σ speed, or the longest job and its way at the quickest device."""
        speed = sum(1.0 / device.unit_ns for device in self.devices.values())
        longest = max(self.works) * min(device.unit_ns + device.way_ns for device in self.devices.values())
        return max(sum(self.works) / speed, longest)


def fleet_of(seed: int, jobs: int = 400, *, is_even: bool = False) -> Fleet:
    rng = random.Random(seed)
    devices = {}
    for index in range(rng.randint(1, 8)):
        unit_ns = rng.choice((5, 10, 20, 40, 90)) * MS
        # Four jobs at once hide a way that takes twice as long as the work, and no longer one.
        devices[f"n{index}"] = Device(unit_ns, round(unit_ns * rng.choice((0.0, 0.1, 0.5, 2.0))))
    works = [1.0 if is_even else rng.uniform(0.5, 2.0) for _ in range(jobs)]
    return Fleet(devices, works, seed)


def law_a_batch_takes_hardly_longer_than_the_best_schedule_could() -> None:
    """Goal: makespan ≤ 1.10 × max(Σ work / Σ speed, longest job + transfer), in each of forty fleets."""
    for seed in range(40):
        fleet = fleet_of(seed)
        ratio = fleet.run() / fleet.bound_ns()
        assert ratio <= 1.10, f"fleet {seed}: {ratio:.3f}"
        assert sorted(fleet.answered) == list(range(400))
        units = sum(fleet.works) * max(device.unit_ns for device in fleet.devices.values())
        assert fleet.pool.counts["doubled"] <= 0.05 * 400, "the tail is doubled, not the batch"
        assert fleet.ran_ns <= units * 1.05


@given(st.integers(0, 1_000_000))
@settings(max_examples=80, deadline=None, report_multiple_bugs=False)
def law_each_job_is_answered_once_whoever_dies(seed: int) -> None:
    """Devices die, refuse and hang; as long as one of them works, every job is answered, and none twice."""
    fleet = fleet_of(seed, 60)
    rng = random.Random(seed)
    names = list(fleet.devices)
    for name in names[1:]:
        device = fleet.devices[name]
        if rng.random() < 0.5:
            device.dies_ns = rng.randint(0, 2 * S)
        elif rng.random() < 0.5:
            device.fails = rng.uniform(0.1, 1.0)
    fleet.run()
    assert sorted(fleet.answered + fleet.given_up) == list(range(60)), "a job is lost, or answered twice"
    if not any(fleet.devices[name].fails for name in names):
        assert fleet.given_up == []


def law_what_a_dead_device_held_is_done_again_and_little_else() -> None:
    """One of four dies in the middle: the makespan is as good as the others' could be, and its patience."""
    for seed in range(10):
        devices = {f"n{index}": Device((10, 20, 20, 40)[index] * MS, 4 * MS) for index in range(4)}
        devices[f"n{seed % 4}"].dies_ns = 700 * MS
        fleet = Fleet(devices, [1.0] * 400, seed)
        makespan_ns = fleet.run()
        left = {name: device for name, device in devices.items() if name != f"n{seed % 4}"}
        before = Fleet(left, [1.0] * 400, seed)
        assert sorted(fleet.answered) == list(range(400))
        assert makespan_ns <= 1.10 * before.bound_ns(), f"{makespan_ns / before.bound_ns():.2f}"


def law_a_slow_device_does_not_keep_all_others_waiting() -> None:
    """One device of a tenth of the speed: the batch is not longer with it than without."""
    for jobs in (5, 9, 17, 40):
        quick = {"a": Device(20 * MS, MS), "b": Device(20 * MS, MS)}
        alone = Fleet(dict(quick), [1.0] * jobs, 1).run()
        quick = {name: Device(20 * MS, MS) for name in ("a", "b")}
        fleet = Fleet({**quick, "slow": Device(200 * MS, MS)}, [1.0] * jobs, 1)
        together = fleet.run()
        assert together <= alone + 20 * MS, f"{jobs} jobs: {together / alone:.2f} of without"
        assert fleet.pool.counts["doubled"] == 0, "it took a job that others had to do after all"


def test_a_pool_is_bounded_and_a_job_that_always_fails_is_given_up() -> None:
    pool = Pool()
    assert all(pool.put(job) for job in range(JOBS_MAX))
    assert not pool.put(JOBS_MAX)
    for job in range(1, JOBS_MAX):
        assert pool.drop(job) == []
    pool.offered({"a": MS})
    now_ns = 0
    for failure in range(TRIES_MAX):
        (lease,) = pool.take(now_ns)
        given_up = pool.failed(lease.number, now_ns)
        assert given_up == (0 if failure == TRIES_MAX - 1 else None)
        assert pool.failed(lease.number, now_ns) is None, "a lease fails once"
        assert pool.take(now_ns) == [], "it is left alone for a moment"
        now_ns += 60 * S
    assert pool.size == 0


def test_a_job_is_not_given_up_while_somebody_works_on_it() -> None:
    """The last failure allowed, of one lease of two: the other may still answer, and no third is begun."""
    pool, now_ns = Pool(), 0
    pool.offered({"a": 1_000 * MS})
    pool.put(1)
    for _ in range(TRIES_MAX - 1):
        (lease,) = pool.take(now_ns)
        assert pool.failed(lease.number, now_ns) is None
        now_ns += 60 * S
    (slow,) = pool.take(now_ns)
    now_ns += 1_500 * MS
    pool.offered({"a": 1_000 * MS, "b": 10 * MS, "c": 10 * MS})
    (double,) = pool.take(now_ns)
    assert pool.failed(double.number, now_ns) is None
    assert pool.take(now_ns) == []
    found = pool.done(slow.number, 0, now_ns + MS)
    assert found == (1, [])
    assert pool.size == 0


def test_who_leaves_gives_its_jobs_back_first_in_line() -> None:
    pool = Pool()
    pool.offered({"a": 10 * MS})
    for job in range(6):
        pool.put(job)
    held = [lease.job for lease in pool.take(0)]
    assert held == [0, 1]
    lost = pool.offered({"b": 10 * MS})
    assert [lease.job for lease in lost] == [0, 1]
    assert {lease.job for lease in pool.take(0)} == {0, 1}
    assert pool.done(lost[0].number, 0, 5 * MS) is None, "its answer comes too late"
    assert pool.counts["too_late"] == 1


def test_the_other_lease_of_a_job_is_ended_by_the_first_answer() -> None:
    pool = Pool()
    pool.offered({"a": 1_000 * MS, "b": 10 * MS})
    pool.put(1)
    pool.put(2)
    first = pool.take(0)
    assert {lease.puller for lease in first} == {"b"}
    pool.offered({"b": 10 * MS, "a": 1_000 * MS})
    dropped = pool.drop(1)
    assert [lease.job for lease in dropped] == [1]
    (other,) = [lease for lease in first if lease.job == 2]
    pool.offered({"b": 10 * MS, "c": 10 * MS})
    (double,) = pool.take(500 * MS)
    assert (double.job, double.puller) == (2, "c"), "it is long overdue"
    found = pool.done(double.number, 0, 520 * MS)
    assert found is not None
    assert (found[0], [lease.number for lease in found[1]]) == (2, [other.number])
    assert pool.done(other.number, 0, 530 * MS) is None


def gives_all_to_whoever_is_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "_plan", lambda self, now_ns: dict.fromkeys(self._usable(now_ns), 99))


def never_doubles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "_doubled", lambda self, now_ns: [])


def one_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stealing, "WINDOW_MAX", 1)


def forgets_what_the_dead_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "_back", lambda self, number: self._end(number))


PAIRS: list[tuple[Law, Mutant]] = [
    (law_a_batch_takes_hardly_longer_than_the_best_schedule_could, one_at_a_time),
    (law_a_slow_device_does_not_keep_all_others_waiting, gives_all_to_whoever_is_idle),
    (law_each_job_is_answered_once_whoever_dies, forgets_what_the_dead_held),
    (law_what_a_dead_device_held_is_done_again_and_little_else, never_doubles),
]


@each_law(PAIRS)
def test_law(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_each_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
