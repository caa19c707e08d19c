"""The lender's side: what it offers, whom it lets in, what it runs for others, and what it answers.

- Its own work comes first: a request is taken only if, behind all that waits already, it can still be answered by its
  deadline, and a battery that is low lends nothing.
- Nobody is served without a ticket, and what a ticket bounds is judged before anything is handed to a runtime.
- What it took runs in the order of turns (`turns.py`): urgent work first, within each borrower's share.
- Every table is bounded: jobs in all and of each borrower, tickets and borrowers (`tickets.py`).
- What another lender works on is held: it takes a place and its input's bytes, and no work until its time has come.
- A job ends once: by what came out, by its deadline, by a cancel, or when its borrower is no member any more.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import CancelTimer, Order, Rejected, SetTimer, TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.ledger import Ledger
from swarmd_protocols.offload.messages import (
    PAYLOAD_MAX_BYTES,
    REASONS,
    UNKNOWN_BATTERY,
    Answer,
    Ask,
    Bound,
    Deny,
    Descriptor,
    Grant,
    Message,
    Offered,
    Refusal,
    Request,
    Row,
)
from swarmd_protocols.offload.placement import OFFERED_MAX, ability_number
from swarmd_protocols.offload.purse import CHARGE_MAX_PPB_S, price_micro
from swarmd_protocols.offload.tickets import Grants, GrantsConfig
from swarmd_protocols.offload.turns import HIGH, PRIORITIES, Turns, Waiting
from swarmd_protocols.releases.allowance import Allowance
from swarmd_protocols.subprotocol import Priority, Send, SubEffect

NAME = "offload"
_MS = 1_000_000
WORDS_PER_S, WORDS_BURST = 64, 1_024
"""Words of one borrower that are answered: four tickets are good for 1,024 requests in half a minute. What is beyond
has no answer, so that nobody makes a lender send by asking."""
TICKET_MAX_BYTES = 16 << 20
"""Of all inputs under one ticket: with four tickets of thirty seconds (for two bundles, and to renew them), 2 MiB/s of
one borrower."""
_BOOT_SHIFT = 28
"""Offers of one boot: 2^28, eight years at one a second."""
_RESERVED = 4
"""One place in so many is kept for borrowers that have no job here: three that take all they may leave it free."""
_UNMEASURED_NS = 100_000_000
"""What a bundle is said to take that has not run yet: its lender should not look like the quickest."""


@dataclass(frozen=True, slots=True)
class LendingConfig:
    """What a lender gives away."""

    battery_min_milli: int = 400
    """Below this charge nothing is lent: what is left brings the device home."""
    jobs_max: int = 16
    """Of others, at once: 4 MiB of inputs."""
    jobs_each: int = 4
    """Of one borrower: its eye's objects of a frame, and no more."""
    turn_ns: int = 100_000_000
    """Several items in one request may take so long: nothing of the device's own runs between them."""
    input_bytes_max: int = PAYLOAD_MAX_BYTES
    price_micro_s: int = 0
    """What a second of inference costs who borrows it, millionths of a unit of money."""
    grants: GrantsConfig = field(
        default_factory=lambda: GrantsConfig(
            tickets_max=4, bytes_max=TICKET_MAX_BYTES, request_bytes_max=PAYLOAD_MAX_BYTES
        )
    )


@dataclass(frozen=True, slots=True)
class _Job:
    bound: Bound
    time_ns: int
    """That it is expected to take."""
    size_bytes: int
    """Of its input."""
    turn_ns: int
    until_ns: int
    """Its deadline."""
    taken_ns: int
    held: Request | None = None
    """What was asked, while another lender works on it."""


class Lender:
    """What one device does for others."""

    def __init__(
        self,
        node: NodeId,
        seed: bytes,
        crypto: Crypto,
        config: LendingConfig,
        boot: int,
        numbers: Iterator[int],
        physical_ms: Callable[[int], int],
        ledger: Ledger,
        is_worthless: Callable[[bytes], bool] = lambda data: False,
    ) -> None:
        """Have nothing to lend yet; the arguments are those of `Offload`, and `numbers` gives each job its own."""
        self._is_worthless = is_worthless
        self._ledger = ledger
        self._node = node
        self._seed = seed
        self._crypto = crypto
        self._config = config
        self._numbers = numbers
        self._physical_ms = physical_ms
        self._grants = Grants(node, seed, crypto, config.grants, boot)
        self._number = boot << _BOOT_SHIFT
        self._stock = requests.Stock((), 0, None)
        self._jobs: dict[int, _Job] = {}
        self._words = Allowance(WORDS_PER_S, WORDS_BURST)
        self._turns = Turns()
        self.counts: Counter[str] = Counter()

    @property
    def jobs(self) -> int:
        """Of others, that have no answer yet."""
        return len(self._jobs)

    def jobs_by_borrower(self) -> dict[NodeId, int]:
        """The same, by who asked."""
        return dict(Counter(job.bound.borrower for job in self._jobs.values()))

    def held_for(self, borrower: NodeId) -> list[int]:
        """Numbers of its requests, as they were on the wire, that are held for it."""
        return [one.bound.id for one in self._jobs.values() if one.held is not None and one.bound.borrower == borrower]

    def on_stock(self, stock: requests.Stock) -> None:
        """What the device could lend has changed."""
        self._stock = stock

    def offer(self, good_ms: int) -> Offered:
        """What it would run for others now, signed; no rows when it lends nothing."""
        self._number += 1
        battery = self._stock.battery_milli
        rows = tuple(
            Row(
                held.digest,
                self._unit_ns(held) // 1000,
                self._queue_ns() // 1000,
                ability_number(held.ability),
                held.grade_milli,
            )
            for held in self._stock.held[:OFFERED_MAX]
        )
        milli = UNKNOWN_BATTERY if battery is None else battery
        said = (self._node, self._number, good_ms, milli, self._config.input_bytes_max, rows if self.is_willing else ())
        asks = self._config.price_micro_s, min(self._stock.charge_ppb_s, CHARGE_MAX_PPB_S)
        body = messages.encode_descriptor(Descriptor(*said, *asks))
        return Offered(body, self._crypto.sign(self._seed, messages.offer_bytes(body)))

    @property
    def is_willing(self) -> bool:
        """Whether it has something to lend and the charge for it."""
        battery = self._stock.battery_milli
        return bool(self._stock.held) and (battery is None or battery >= self._config.battery_min_milli)

    def on_ask(self, borrower: NodeId, digest: bytes, now_ns: int, *, is_far: bool = False) -> list[SubEffect]:
        """Somebody wants a ticket; of one who `is_far` requests may be under way until their deadline."""
        if not self._words.take(borrower, 1, now_ns):
            return self._unheard(borrower)
        if not self.is_willing or self._held(digest) is None:
            self._ledger.note("denied_not-lending", borrower)  # Its digest is the borrower's word.
            return [_say(borrower, Deny(digest, REASONS.index("not-lending")))]
        ticket = self._grants.grant(
            borrower, digest, self._physical_ms(now_ns), messages.DEADLINE_MAX_MS if is_far else 0
        )
        if ticket is None:
            self.counts["denied"] += 1
            self._ledger.note("denied_spent", borrower, digest)
            return [_say(borrower, Deny(digest, REASONS.index("spent")))]
        self.counts["granted"] += 1
        self._ledger.note("granted", borrower, digest)
        return [_say(borrower, Grant(ticket))]

    def on_request(self, borrower: NodeId, request: Request, now_ns: int) -> list[SubEffect]:
        """Somebody wants an answer."""
        if not self._words.take(borrower, 1, now_ns):
            return self._unheard(borrower)
        known = next((job for job, one in self._jobs.items() if one.bound.borrower == borrower
                      and one.bound.id == request.id), 0)  # fmt: skip
        if known:
            one = self._jobs[known]
            is_to_begin = one.held is not None and not request.held_ms and one.bound.digest == request.digest
            # Nobody else works on it any more; else it runs, or is held, already.
            return [CancelTimer(_held(known)), *self.on_held(known, now_ns)] if is_to_begin else []
        size, held = len(request.data) + request.lane_bytes, self._held(request.digest)
        reason = self._grants.spend(request.ticket, borrower, request.digest, size, self._physical_ms(now_ns))
        open_jobs = [job.bound for job in self._jobs.values() if job.bound.borrower == borrower]
        if not reason and (held is None or not self.is_willing):
            reason = "not-lending"
        time_ns = 0 if held is None else self._unit_ns(held) * request.units
        if not reason and request.units > 1 and time_ns > self._config.turn_ns:
            reason = "too-large"
        if not reason and max(self._queue_ns(), request.held_ms * _MS) + time_ns >= request.left_ms * _MS:
            reason = "late"
        room: list[SubEffect] = []
        if not reason and not self._has_room(len(open_jobs)):
            room = [] if request.held_ms else self._make_room(borrower, len(open_jobs))
            reason = "" if room else "busy"
        if reason:
            return [self._refuse(borrower, request.id, reason, b"" if held is None else held.digest, size)]
        job = next(self._numbers)
        until_ns = now_ns + request.left_ms * _MS
        bound = Bound(borrower, self._node, request.id, request.digest, sha256(request.data).digest())
        one = self._jobs[job] = _Job(bound, time_ns, size, 0, until_ns, now_ns, held=request)
        self.counts["taken"] += 1
        due = SetTimer(_due(job), until_ns)
        if request.held_ms:
            self.counts["held"] += 1
            return [due, SetTimer(_held(job), now_ns + request.held_ms * _MS)]
        return [*room, due, *self._begin(job, one, request, now_ns)]

    def on_held(self, job: int, now_ns: int) -> list[SubEffect]:
        """What another lender works on is not answered yet: it is begun here, where there is time for it."""
        one = self._jobs.get(job)
        if one is None or one.held is None:
            return []
        reason = "" if self.is_willing and self._held(one.bound.digest) is not None else "not-lending"
        if not reason and self._queue_ns() + one.time_ns >= one.until_ns - now_ns:
            reason = "late"
        if not reason:
            return self._begin(job, one, one.held, now_ns)
        del self._jobs[job]
        return [CancelTimer(_due(job)), self._refuse_job(one, reason)]

    def _begin(self, job: int, one: _Job, request: Request, now_ns: int) -> list[SubEffect]:
        """Hand it to the runtime, in its turn."""
        borrower = one.bound.borrower
        turn_ns = self._turn(borrower, request.priority, one.time_ns, now_ns)
        self._jobs[job] = replace(one, turn_ns=turn_ns, taken_ns=now_ns, held=None)
        order = requests.Infer(
            job, request.digest, request.data, request.units, one.until_ns, borrower, request.lane_bytes, turn_ns,
            request.id,
        )  # fmt: skip
        return [Order(NAME, order)]

    def on_outside(self, sender: NodeId, message: Ask | Request, rule: str, now_ns: int) -> list[SubEffect]:
        """Somebody asks whom a rule of the owner leaves out: it is told which, and nothing is done for it."""
        if not self._words.take(sender, 1, now_ns):
            return self._unheard(sender)
        reason = f"outside-{rule}"
        self.counts[f"refused_{reason}"] += 1
        self._ledger.note(f"refused_{reason}", sender)
        number = REASONS.index(reason)
        said = Deny(message.digest, number) if isinstance(message, Ask) else Refusal(message.id, number)
        return [_say(sender, said)]

    def on_cancel(self, borrower: NodeId, request: int) -> list[SubEffect]:
        """Nobody waits for it any more."""
        return self._end([job for job, one in self._jobs.items() if one.bound.borrower == borrower
                          and one.bound.id == request])  # fmt: skip

    def on_ran(self, job: int, data: bytes | None, now_ns: int) -> list[SubEffect]:
        """What came of a job; nothing where it has ended already."""
        one = self._jobs.pop(job, None)
        if one is None:
            return []
        bound = one.bound
        if data is None or len(data) > PAYLOAD_MAX_BYTES:
            return [CancelTimer(_due(job)), self._refuse_job(one, "failed" if data is None else "too-large")]
        self.counts["answered"] += 1
        price = 0 if self._is_worthless(data) else price_micro(self._config.price_micro_s, one.time_ns)
        self.counts["price_micro"] += price
        took_ns = now_ns - one.taken_ns
        self._ledger.note("lent", bound.borrower, bound.digest, one.size_bytes, data, price, took_ns)
        signature = self._crypto.sign(self._seed, messages.answer_bytes(bound, data))
        return [CancelTimer(_due(job)), _say(bound.borrower, Answer(bound.id, data, signature))]

    def on_due(self, job: int) -> list[SubEffect]:
        """A job's deadline has passed: whoever asked knows."""
        self.counts["overdue"] += job in self._jobs
        return self._end([job] if job in self._jobs else [])

    def on_gone(self, borrower: NodeId) -> list[SubEffect]:
        """It is no member any more, or cannot be reached: what it holds is good for nothing."""
        self._grants.withdraw(borrower)
        return self._end([job for job, one in self._jobs.items() if one.bound.borrower == borrower])

    def borrowers(self) -> list[NodeId]:
        """Who holds a ticket or has a job."""
        return sorted({job.bound.borrower for job in self._jobs.values()} | self._grants.borrowers())

    def _has_room(self, has: int) -> bool:
        """Whether one more of a borrower that has so many here is taken; the last places are for who has none."""
        config, held = self._config, len(self._jobs)
        is_crowded = held >= config.jobs_max - config.jobs_max // _RESERVED
        return held < config.jobs_max and has < config.jobs_each and not (is_crowded and has)

    def _make_room(self, borrower: NodeId, has: int) -> list[SubEffect]:
        """For one that is to begin at once: the newest that is held goes, of whoever has most of those.

        What is held costs its borrower no work, so that it must not keep anybody's work out.
        """
        is_own = has >= self._config.jobs_each
        held = {
            job: one
            for job, one in self._jobs.items()
            if one.held is not None and (one.bound.borrower == borrower or not is_own)
        }
        if not held:
            return []
        each = Counter(one.bound.borrower for one in held.values())
        job = max(held, key=lambda job: (each[held[job].bound.borrower], job))
        return [*self._end([job]), self._refuse_job(held[job], "busy")]

    def _refuse_job(self, one: _Job, reason: str) -> SubEffect:
        return self._refuse(one.bound.borrower, one.bound.id, reason, one.bound.digest, one.size_bytes)

    def _refuse(self, borrower: NodeId, number: int, reason: str, digest: bytes, size_bytes: int) -> SubEffect:
        """Count it, write it down and say it."""
        self.counts[f"refused_{reason}"] += 1
        self._ledger.note(f"refused_{reason}", borrower, digest, size_bytes)
        return _say(borrower, Refusal(number, REASONS.index(reason)))

    def _turn(self, borrower: NodeId, priority: int, time_ns: int, now_ns: int) -> int:
        """When a request that is taken has its turn; how urgent its borrower calls its work is written down."""
        begun = [one for one in self._jobs.values() if one.held is None]
        waiting = [Waiting(one.turn_ns, one.time_ns, one.until_ns) for one in begun]
        sharing = len({one.bound.borrower for one in begun} | {borrower})
        turn = self._turns.take(borrower, priority, time_ns, sharing, waiting, now_ns)
        self.counts[f"taken_{PRIORITIES[priority]}"] += 1
        if priority == HIGH:
            self._ledger.note("urgent", borrower)
        if not turn.is_in_share:
            self.counts["over_share"] += 1
            self._ledger.note("over_share", borrower)
        return turn.at_ns

    def _end(self, jobs: list[int]) -> list[SubEffect]:
        effects: list[SubEffect] = []
        for job in jobs:
            is_begun = self._jobs.pop(job).held is None
            effects += [
                CancelTimer(_due(job)),
                Order(NAME, requests.Drop(job)) if is_begun else CancelTimer(_held(job)),
            ]
        return effects

    def _unheard(self, borrower: NodeId) -> list[SubEffect]:
        self.counts["over_rate"] += 1
        self._ledger.note("over_rate", borrower)
        return [Rejected(borrower.hex(), "asks to borrow more often than one member may")]

    def _held(self, digest: bytes) -> requests.Held | None:
        return next((held for held in self._stock.held if held.digest == digest), None)

    def _unit_ns(self, held: requests.Held) -> int:
        return held.unit_ns or _UNMEASURED_NS

    def _queue_ns(self) -> int:
        return self._stock.queue_ns + sum(job.time_ns for job in self._jobs.values() if job.held is None)


def is_small(message: Message) -> bool:
    """Whether a message may stand before others on the way."""
    return not isinstance(message, Request | Answer)


def _say(to: NodeId, message: Message) -> Send:
    priority = Priority.SYNC if is_small(message) else Priority.BULK
    return Send(to, messages.encode_message(message), True, priority)


def _due(job: int) -> TimerKey:
    return (NAME, "job", job)


def _held(job: int) -> TimerKey:
    return (NAME, "held", job)
