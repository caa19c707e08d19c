"""Which request runs next, with which others, and which is refused: decisions without I/O.

```
 offer ──▶ waiting ──take──▶ batch ──finish──▶ gone        what did not get its turn goes back to waiting
   │          │ deadline passed: expire ──▶ gone
   └ FULL, LATE (refused)   └ pushed out by a more urgent one ──▶ gone
```

- Order: priority, then deadline, then arrival; what other devices asked goes by its turn (`swarmd_protocols.offload.
  turns`) in place of its deadline. A batch holds requests of one bundle digest, one lane and one priority.
- A request waits only while its deadline is ahead; one that by the measured times cannot be answered in time is
  refused at once, so that its sender can ask elsewhere.
- The queue is bounded in requests and bytes. A full one takes a more urgent request and pushes out the least urgent.
- The size of a batch follows additive increase, multiplicative decrease: one unit more after a full batch that kept to
  its time, half after one that did not. Its time is `batch_ns`, or less where a deadline in it is nearer.

Source:
    Clipper (Crankshaw et al., 2017), section 4.3.1, for the size of batches; Triton's queue policies for priorities
    and timeouts.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

HIGH, NORMAL, LOW, LENT = 1, 2, 3, 4
"""Priorities; Triton's numbers: lower is more urgent. `LENT` is other devices' work."""
_NEWEST_SHARE = 0.2
"""Weight of the newest batch in the typical time of a unit: the last ten or so count."""


class Target(NamedTuple):
    """What requests of one batch have in common, besides their priority."""

    digest: str
    """Of the bundle."""
    lane: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as far as the order of work goes."""

    number: int
    """Unique in this process."""
    target: Target
    priority: int
    units: int
    """Inferences that it takes; >= 1."""
    size_bytes: int
    deadline_ns: int
    """Monotonic."""
    turn_ns: int = 0
    """Of other devices' work (monotonic): it goes by this in place of the deadline; 0: it has none."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Lower goes first."""
        return (self.priority, self.turn_ns or self.deadline_ns, self.number)


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that run one after the other without a decision between them, unless a more urgent one comes."""

    target: Target
    priority: int
    requests: tuple[Request, ...]
    budget_ns: int
    """How long it may take."""

    @property
    def units(self) -> int:
        """Inferences of all its requests."""
        return sum(request.units for request in self.requests)


class Refusal(Enum):
    """Why a request was not taken."""

    FULL = "full"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class BatcherConfig:
    """Bounds."""

    max_requests: int = 256
    """Held at once, those of the running batch included."""
    max_bytes: int = 64 << 20
    """Of their tensors: what four clients of the largest size send."""
    max_units: int = 64
    """In one batch."""
    batch_ns: int = 20_000_000
    """How long a batch may hold the device: a fifth of the frame interval that an eye has by default."""


class Batcher:
    """The queue of one device."""

    def __init__(self, config: BatcherConfig) -> None:
        """Start empty."""
        self._config = config
        self._waiting: dict[int, Request] = {}
        self._bytes = 0
        self._running: Batch | None = None
        self._limits: dict[Target, int] = {}
        self._unit_ns: dict[Target, float] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Their bytes."""
        return self._bytes

    @property
    def own_ns(self) -> int:
        """What waits and is not other devices' work, by the measured times; unknown ones count nothing."""
        own = (one for one in self._waiting.values() if one.priority < LENT)
        return round(sum(self._unit_ns.get(one.target, 0.0) * one.units for one in own))

    def unit_ns(self, digest: str) -> int:
        """Measured time of one inference of a bundle, in the slower of its lanes; 0: none has run yet."""
        return round(max((ns for target, ns in self._unit_ns.items() if target.digest == digest), default=0.0))

    def limit_of(self, target: Target) -> int:
        """Units that the next batch of a target may have."""
        return self._limits.get(target, 1)

    def offer(self, request: Request, now_ns: int) -> tuple[Refusal | None, list[Request]]:
        """Take a request or refuse it.

        Returns:
            Why it was refused (None: it was taken), and the requests that it pushed out.
        """
        if request.deadline_ns <= now_ns + self._ahead_ns(request):
            return Refusal.LATE, []
        victims = self._victims(request)
        if victims is None:
            return Refusal.FULL, []
        for victim in victims:
            self._drop(victim)
        self._waiting[request.number] = request
        self._bytes += request.size_bytes
        return None, victims

    def expire(self, now_ns: int) -> list[Request]:
        """The waiting requests whose deadline has passed, most urgent first; they are gone."""
        late = sorted((one for one in self._waiting.values() if one.deadline_ns <= now_ns), key=lambda one: one.rank)
        for request in late:
            self._drop(request)
        return late

    def withdraw(self, number: int) -> bool:
        """Forget a request whose sender has gone; False where it no longer waits."""
        request = self._waiting.get(number)
        if request is not None:
            self._drop(request)
        return request is not None

    def take(self, now_ns: int) -> Batch | None:
        """The next batch; None where nothing waits or one is running. Call `expire` before."""
        if self._running is not None:
            return None
        ordered = sorted((one for one in self._waiting.values() if one.deadline_ns > now_ns), key=lambda one: one.rank)
        if not ordered:
            return None
        first = ordered[0]
        limit, units = self.limit_of(first.target), 0
        chosen: list[Request] = []
        for request in ordered:
            if request.target != first.target or request.priority != first.priority:
                continue
            if chosen and units + request.units > limit:
                break
            chosen.append(request)
            units += request.units
        for request in chosen:
            self._drop(request)
        budget_ns = min(self._config.batch_ns, *(one.deadline_ns - now_ns for one in chosen))
        self._running = Batch(first.target, first.priority, tuple(chosen), budget_ns)
        return self._running

    def is_outranked(self) -> bool:
        """Whether something more urgent than the running batch waits."""
        running = self._running
        return running is not None and any(one.priority < running.priority for one in self._waiting.values())

    def finish(self, done: int, units: int, took_ns: int) -> None:
        """The running batch has ended; what did not get its turn waits again.

        Args:
            done: How many of its requests ran, the first ones.
            units: Inferences that were run.
            took_ns: How long, waiting for others not counted.
        """
        batch = self._running
        assert batch is not None
        self._running = None
        for request in batch.requests[done:]:
            self._waiting[request.number] = request
            self._bytes += request.size_bytes
        if not units:
            return
        target, limit = batch.target, self.limit_of(batch.target)
        sample = took_ns / units
        typical = self._unit_ns.get(target, sample)
        self._unit_ns[target] = typical + (sample - typical) * _NEWEST_SHARE
        if took_ns > batch.budget_ns:
            self._limits[target] = max(1, limit // 2)
        elif units >= limit:
            self._limits[target] = min(self._config.max_units, limit + 1)

    def forget(self, digest: str) -> None:
        """Drop what was learnt of a bundle that is served no more."""
        for table in (self._limits, self._unit_ns):
            for target in [target for target in table if target.digest == digest]:
                del table[target]

    def _ahead_ns(self, request: Request) -> float:
        """What runs before a request's answer, itself included, by the measured times; unknown ones count nothing."""
        before = [one for one in self._waiting.values() if one.rank < request.rank]
        return sum(self._unit_ns.get(one.target, 0.0) * one.units for one in (*before, request))

    def _victims(self, request: Request) -> list[Request] | None:
        """Whom to push out so that the request fits, least urgent first; None where it does not."""
        # What runs may come back, so its place is kept.
        held = () if self._running is None else self._running.requests
        excess_bytes = self._bytes + sum(one.size_bytes for one in held) + request.size_bytes - self._config.max_bytes
        excess = len(self._waiting) + len(held) + 1 - self._config.max_requests
        if excess <= 0 and excess_bytes <= 0:
            return []
        victims: list[Request] = []
        for one in sorted(self._waiting.values(), key=lambda one: one.rank, reverse=True):
            if one.priority <= request.priority:
                break
            victims.append(one)
            excess -= 1
            excess_bytes -= one.size_bytes
            if excess <= 0 and excess_bytes <= 0:
                return victims
        return None

    def _drop(self, request: Request) -> None:
        del self._waiting[request.number]
        self._bytes -= request.size_bytes
