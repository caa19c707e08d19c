"""A batch over the whole fleet: jobs wait in one queue, and each device that has done one is given the next.

```
 put ──▶ waiting ──take: a lease──▶ at a puller ──done──▶ answered, once
            ▲                           │ failed, gone, or the lease is over
            └───────── first in line ◀──┘
```

- A puller is this device or a lender that offers the bundle. It holds as many leases as hide the way there, so an
  answer is what asks for the next job, and who is slow asks seldom.
- A job goes to a puller only if, were all that waits given to whoever finishes first, that one would be given some of
  it: a slow device does not take one of the last jobs and have all others wait for it.
- Where nothing waits any more, an idle puller doubles a lease that it would finish well before its holder: the tail of
  a batch is not a device that hangs. The first answer counts; a job is answered once.
- A lease ends: by an answer, by a failure, with its puller, or when it takes several times as long as expected; then
  the job is first in line. A puller that failed is left alone for a moment, longer each time in a row.

It sees numbers, never a frame. Jobs of one pool are of one bundle and taken for equally long.

Source:
    Blumofe and Leiserson (1999), "Scheduling multithreaded computations by work stealing"; Graham (1969) for the bound
    of list scheduling; Dean and Ghemawat (2004), "MapReduce", section 3.6, for doubling the last jobs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

JOBS_MAX = 256
"""Waiting or leased at once in one pool; who has more keeps them."""
PULLERS_MAX = 64
"""As many as offers are kept."""
WINDOW_MAX = 4
"""Leases of one puller: as many jobs of one borrower as a lender takes by default (`lending.max_jobs_each`)."""
TRIES_MAX = 8
"""Leases that one job may see fail; then it has no answer."""
_COPIES = 2
"""Leases of one job at once."""
_NEWEST = 0.3
"""Weight of the newest time in a puller's averages."""
_PATIENCE = 4.0
"""Times what it was expected to take that a lease lasts, ..."""
_PATIENCE_LEAST_NS = 2_000_000_000
"""... and at least so long: the way there and back over a radio that retransmits."""
_SOONER = 0.7
"""A lease is doubled where the idle puller would be done in less than this of what its holder still needs."""
_BAR_NS, _BAR_MAX_NS = 250_000_000, 8_000_000_000
"""A puller that failed is left alone for so long, twice as long each time in a row: a busy one is idle soon."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One job at one puller."""

    number: int
    job: int
    puller: str
    until_ns: int


@dataclass(slots=True)
class _Puller:
    unit_ns: float
    """What a job takes it."""
    way_ns: float = 0.0
    """The way there and back."""
    leases: dict[int, int] = field(default_factory=dict)
    """Numbers, and when each began; the oldest first."""
    barred_ns: int = -(1 << 62)
    """Left alone until then."""
    bar_ns: int = _BAR_NS
    told_ns: int = 0
    """When its newest answer came."""

    @property
    def window(self) -> int:
        """Leases that keep it busy while answers and jobs are on their way."""
        return min(WINDOW_MAX, 2 + int(self.way_ns // max(1.0, self.unit_ns)))

    def free_ns(self, now_ns: int) -> float:
        """When it will be through with what it has."""
        if not self.leases:
            return float(now_ns)
        first_ns = max(next(iter(self.leases.values())) + self.way_ns, float(self.told_ns))
        return max(float(now_ns), first_ns + self.unit_ns * len(self.leases))


@dataclass(slots=True)
class _Job:
    leases: list[int] = field(default_factory=list)
    failures: int = 0


class Pool:
    """The jobs of one bundle, and who does them."""

    def __init__(self) -> None:
        """Nothing waits and nobody pulls."""
        self._pullers: dict[str, _Puller] = {}
        self._jobs: dict[int, _Job] = {}
        self._waiting: list[int] = []
        """The first in line first."""
        self._leases: dict[int, Lease] = {}
        self._numbers = 0
        self.counts: Counter[str] = Counter()
        """leases, doubled, failed, overdue, answered, too_late, given_up."""

    @property
    def size(self) -> int:
        """Jobs without an answer."""
        return len(self._jobs)

    def __contains__(self, job: int) -> bool:
        """Whether a job has no answer and is not given up."""
        return job in self._jobs

    @property
    def pullers(self) -> list[str]:
        """Who pulls."""
        return list(self._pullers)

    def put(self, job: int) -> bool:
        """A job waits; False: there are too many."""
        assert job not in self._jobs
        if len(self._jobs) >= JOBS_MAX:
            return False
        self._jobs[job] = _Job()
        self._waiting.append(job)
        return True

    def drop(self, job: int) -> list[Lease]:
        """Nobody waits for a job any more; the leases that are to be cancelled."""
        one = self._jobs.pop(job, None)
        if one is None:
            return []
        if job in self._waiting:
            self._waiting.remove(job)
        return [self._end(number) for number in list(one.leases)]

    def offered(self, units_ns: Mapping[str, int]) -> list[Lease]:
        """Who would pull now, and what a job takes each by its own word; the leases of those who have gone."""
        lost: list[Lease] = []
        for name in [name for name in self._pullers if name not in units_ns]:
            for number in list(self._pullers[name].leases):
                lost.append(self._leases[number])
                self._back(number)
            del self._pullers[name]
        for name, unit_ns in units_ns.items():
            if name not in self._pullers and len(self._pullers) < PULLERS_MAX:
                self._pullers[name] = _Puller(float(unit_ns))
        return lost

    def take(self, now_ns: int) -> list[Lease]:
        """What is to be sent now; nothing more until something has happened."""
        found = []
        plan = self._plan(now_ns)
        for name, count in plan.items():
            puller = self._pullers[name]
            for _ in range(min(count, puller.window - len(puller.leases))):
                if self._waiting:
                    found.append(self._lease(self._waiting.pop(0), name, now_ns))
        return found if self._waiting else found + self._doubled(now_ns)

    def overdue(self, now_ns: int) -> list[Lease]:
        """Leases that are over: their jobs wait again, and who held them is to be told."""
        found = [lease for lease in self._leases.values() if now_ns >= lease.until_ns]
        for lease in found:
            self.counts["overdue"] += 1
            self.failed(lease.number, now_ns)
        return found

    def done(self, number: int, ran_ns: int, now_ns: int) -> tuple[int, list[Lease]] | None:
        """An answer has come.

        Args:
            number: Of the lease.
            ran_ns: What the puller says that it ran; 0: it does not say.
            now_ns: Monotonic.

        Returns:
            The job that it answers, and the other leases of it, which are to be cancelled; None: it comes too late.
        """
        lease = self._leases.get(number)
        if lease is None:
            self.counts["too_late"] += 1
            return None
        self._measure(lease, ran_ns, now_ns)
        self.counts["answered"] += 1
        one = self._jobs[lease.job]
        others = [self._leases[other] for other in one.leases if other != number]
        for ended in list(one.leases):
            self._end(ended)
        del self._jobs[lease.job]
        return lease.job, others

    def failed(self, number: int, now_ns: int) -> int | None:
        """A lease has brought nothing; the job that is given up for it, None: none is."""
        lease = self._leases.get(number)
        if lease is None:
            return None
        puller = self._pullers[lease.puller]
        puller.barred_ns = now_ns + puller.bar_ns
        puller.bar_ns = min(_BAR_MAX_NS, 2 * puller.bar_ns)
        self.counts["failed"] += 1
        one = self._jobs[lease.job]
        one.failures += 1
        self._back(number)
        if one.failures < TRIES_MAX or one.leases:
            return None  # Whoever else holds it may answer.
        self.counts["given_up"] += 1
        self.drop(lease.job)
        return lease.job

    # --- inside -------------------------------------------------------------------------------------------------

    def _plan(self, now_ns: int) -> dict[str, int]:
        """How many of the waiting jobs each puller would be given, each going to whoever is through with it first."""
        free = {name: (puller.free_ns(now_ns), bool(puller.leases)) for name, puller in self._usable(now_ns).items()}
        counts: dict[str, int] = {}
        for _ in self._waiting if free else ():
            ends = {}
            for name, (free_ns, is_busy) in free.items():
                puller = self._pullers[name]
                # Behind other work the way there costs nothing: the job is there when its turn comes.
                ends[name] = max(free_ns, now_ns + puller.way_ns) + puller.unit_ns if is_busy else (
                    free_ns + puller.way_ns + puller.unit_ns
                )  # fmt: skip
            best = min(ends, key=lambda name: (ends[name], name))
            counts[best] = counts.get(best, 0) + 1
            free[best] = ends[best], True
        return counts

    def _doubled(self, now_ns: int) -> list[Lease]:
        found = []
        for name, puller in self._usable(now_ns).items():
            if puller.leases:
                continue
            takes_ns = puller.way_ns + puller.unit_ns
            slowest, left_ns = None, 0.0
            for lease in self._leases.values():
                one = self._jobs[lease.job]
                may_double = len(one.leases) < _COPIES and one.failures < TRIES_MAX
                if may_double and self._left_ns(lease, now_ns) > left_ns:
                    slowest, left_ns = lease, self._left_ns(lease, now_ns)
            if slowest is not None and takes_ns < _SOONER * left_ns:
                self.counts["doubled"] += 1
                found.append(self._lease(slowest.job, name, now_ns))
        return found

    def _left_ns(self, lease: Lease, now_ns: int) -> float:
        """What a lease still needs; one that should be over needs as long again as it is late."""
        puller = self._pullers[lease.puller]
        place = list(puller.leases).index(lease.number) + 1
        begun_ns = puller.leases[lease.number]
        first_ns = max(next(iter(puller.leases.values())) + puller.way_ns, float(puller.told_ns))
        ends_ns = max(first_ns + puller.unit_ns * place, begun_ns + puller.way_ns + puller.unit_ns)
        return ends_ns - now_ns if ends_ns > now_ns else now_ns - ends_ns

    def _usable(self, now_ns: int) -> dict[str, _Puller]:
        return {name: puller for name, puller in self._pullers.items() if now_ns >= puller.barred_ns}

    def _lease(self, job: int, name: str, now_ns: int) -> Lease:
        puller = self._pullers[name]
        self._numbers += 1
        expected_ns = puller.free_ns(now_ns) - now_ns + puller.way_ns + puller.unit_ns
        until_ns = now_ns + max(_PATIENCE_LEAST_NS, round(_PATIENCE * expected_ns))
        lease = self._leases[self._numbers] = Lease(self._numbers, job, name, until_ns)
        puller.leases[lease.number] = now_ns
        self._jobs[job].leases.append(lease.number)
        self.counts["leases"] += 1
        return lease

    def _measure(self, lease: Lease, ran_ns: int, now_ns: int) -> None:
        puller = self._pullers[lease.puller]
        begun_ns = puller.leases[lease.number]
        took_ns = now_ns - begun_ns
        # What it did since its last answer, or since the job was sent: a job that waited behind another waited there.
        alone_ns = now_ns - max(begun_ns, puller.told_ns)
        ran_ns = min(took_ns, ran_ns) if ran_ns > 0 else alone_ns
        unit_ns = min(ran_ns, alone_ns) if puller.told_ns > begun_ns else ran_ns
        is_first = puller.told_ns == 0
        puller.unit_ns += (1.0 if is_first else _NEWEST) * (unit_ns - puller.unit_ns)
        if puller.told_ns <= begun_ns:  # It was idle when the job was sent, so all the rest was the way.
            puller.way_ns += (1.0 if is_first else _NEWEST) * (max(0, took_ns - ran_ns) - puller.way_ns)
        puller.told_ns = now_ns
        puller.bar_ns, puller.barred_ns = _BAR_NS, -(1 << 62)

    def _back(self, number: int) -> None:
        """The job of a lease that ends without an answer waits again, unless another holds it too."""
        lease = self._end(number)
        if not self._jobs[lease.job].leases:
            self._waiting.insert(0, lease.job)

    def _end(self, number: int) -> Lease:
        lease = self._leases.pop(number)
        del self._pullers[lease.puller].leases[number]
        one = self._jobs.get(lease.job)
        if one is not None:
            one.leases.remove(number)
        return lease
