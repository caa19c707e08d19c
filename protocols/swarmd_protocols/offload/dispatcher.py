"""What becomes of each request: a lender, another where the first is slow, the own model at the last moment, an answer.

```
 Asked ──▶ lender ──answer──▶ Deliver
   │          │ slower than its own 95th percentile, and the budget allows: a second lender (hedge)
   │          │ fails, goes, is withdrawn, its connection breaks: another, at once (broken, and no other: it, again)
   ├──▶ nobody just now, and one that was heard lately is reached: its next offer
   └──────────┴─ the last moment at which the own model can still answer: the own model
                 the deadline: Deliver nothing
```

- Each request has exactly one `Deliver`, at its deadline at the latest. The first answer counts; the others are
  cancelled, and what still comes of them is only a measure.
- The own model is asked while it can still answer, so borrowing is never worse than thinking alone. A device without
  one gets no answer then.
- Hedges are paid from a budget that each request fills by a twentieth.
- A request that wants two copies has two lenders from the start, and a new one for each that fails. The second holds
  what it was asked, and begins when the first is slower than its own 95th percentile, while it can still answer, or as
  soon as nobody else works on it.
- Some answers are checked afterwards against the own model; who is often wrong is asked no more (`reputation.py`).

Deterministic; time and randomness come in.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.attempts import Attempts, Shunned
from swarmd_protocols.offload.decisions import (
    Abandoned,
    Answered,
    Asked,
    Attempt,
    Begin,
    Cancel,
    Check,
    Checked,
    Deliver,
    Doubted,
    Effect,
    Event,
    Failed,
    Left,
    Moved,
    OfferHeard,
    SetTimer,
    TimerFired,
)
from swarmd_protocols.offload.placement import (
    Need,
    Offer,
    Times,
    awaited_until_ns,
    choose,
    feasible,
    stream_ns,
)
from swarmd_protocols.offload.reputation import Reputation, ReputationConfig

TIMERS = _HEDGE, _LAST_MOMENT, _PATIENCE, _DEADLINE = "hedge", "last-moment", "patience", "deadline"
"""Words of `SetTimer`."""
_DOUBT_NS = 2_000_000_000
"""For so long a lender whose connection broke is asked only where there is no other, unless it is heard before:
two periods of offers, after which membership has named a dead one."""
_DOUBT_GAP_NS = 1_000_000_000
"""One broken connection of a lender in a second sends requests to others: who hangs up all the time cannot double all
work."""


@dataclass(frozen=True, slots=True)
class DispatcherConfig:
    """Bounds and habits of a borrower."""

    requests_max: int = 64
    """Open at once, 16 MiB of inputs; a further one is told at once that there is no answer."""
    lenders_max: int = 64
    """Offers kept; the one heard longest ago goes."""
    attempts_max: int = 3
    """Lenders that one request may be sent to."""
    hedge_share: float = 0.05
    """Of requests that may be sent twice."""
    hedge_burst: float = 2.0
    """Hedges that may be saved up."""
    check_share: float = 0.02
    """Of lenders' answers that are checked, where there is an own model: a fiftieth of thinking alone."""
    check_first: int = 8
    """First answers of each lender that are all checked, so that a liar is known after as many as eject it."""
    local_margin: float = 1.5
    """Times its measured time that the own model is given before the deadline."""
    reputation: ReputationConfig = field(default_factory=ReputationConfig)


class Dispatcher:
    """A borrower's requests."""

    def __init__(
        self,
        config: DispatcherConfig,
        rng: random.Random,
        has_ticket: Callable[[NodeId, bytes, int], bool] = lambda lender, digest, now_ns: True,
    ) -> None:
        """Know no lender.

        Args:
            config: Bounds and habits.
            rng: For choices between lenders.
            has_ticket: Whether a lender's bundle may be asked without asking for a ticket first.
        """
        self._has_ticket = has_ticket
        self._config = config
        self._rng = rng
        self._open: dict[int, Attempts] = {}
        self._offers: dict[NodeId, Offer] = {}
        self.times: dict[NodeId, Times] = {}
        """Kept when an offer is withdrawn: else whoever answers nobody would withdraw and be as good as new. The one
        that was asked longest ago first."""
        self._doubts: dict[NodeId, tuple[int, bool]] = {}
        """When a lender's connection last broke, and whether it has not been heard since; the oldest first."""
        self._hedges = config.hedge_burst
        self._checks: dict[NodeId, int] = {}
        """How many of a lender's first answers were checked; the one that answered longest ago first."""
        self.reputation = Reputation(config.reputation)
        self.counts: Counter[str] = Counter()

    def offers(self, now_ns: int) -> list[Offer]:
        """Of lenders that are believed."""
        return [
            offer for node, offer in self._offers.items()
            if offer.is_fresh(now_ns) and not self.reputation.is_ejected(node, now_ns)
        ]  # fmt: skip

    @property
    def open_requests(self) -> int:
        """Requests without an answer so far."""
        return len(self._open)

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """What to do about an event."""
        match event:
            case Asked(need):
                return self._on_asked(need, now_ns)
            case OfferHeard(offer):
                return self._on_offer(offer, now_ns)
            case Answered(number, attempt):
                return self._on_answer(number, attempt, now_ns)
            case Failed(number, attempt, is_its_fault):
                return self._on_failed(number, attempt, now_ns, is_its_fault)
            case Left(number, attempt):
                return self._on_left(number, attempt, now_ns)
            case Checked(lender, is_right):
                self.reputation.note(lender, is_right, now_ns)
                self.counts["checked_right" if is_right else "checked_wrong"] += 1
                return []
            case Doubted(lender):
                return self._on_doubted(lender, now_ns)
            case Moved(lender, is_far):
                return self._on_moved(lender, is_far, now_ns)
            case Abandoned(number):
                return self._end(number, "abandoned") if number in self._open else []
            case TimerFired(number, what):
                return self._on_timer(number, what, now_ns)
            case _:
                assert_never(event)

    def _on_asked(self, need: Need, now_ns: int) -> list[Effect]:
        assert need.number not in self._open
        self.counts["asked"] += 1
        self._hedges = min(self._config.hedge_burst, self._hedges + self._config.hedge_share)
        if len(self._open) >= self._config.requests_max or need.deadline_ns <= now_ns:
            self.counts["none"] += 1
            return [Deliver(need.number, None)]
        one = self._open[need.number] = Attempts(need)
        effects: list[Effect] = [SetTimer(need.number, _DEADLINE, need.deadline_ns)]
        if need.local_ns:
            effects.append(SetTimer(need.number, _LAST_MOMENT, max(now_ns, self._last_moment_ns(need))))
        return effects + self._go_on(one, now_ns)

    def _on_offer(self, offer: Offer, now_ns: int) -> list[Effect]:
        before = self._offers.pop(offer.node, None)
        changed = [offer] if before is None else [offer, before]
        self._believe(offer.node)
        if not offer.is_reachable:
            failed = [
                effect
                for number, one in list(self._open.items())
                for attempt in sorted(one.live)
                if one.tried[attempt] == offer.node
                for effect in self._on_failed(number, attempt, now_ns)
            ]
            return failed + self._look_again(changed, now_ns)
        self._offers[offer.node] = offer
        while len(self._offers) > self._config.lenders_max:
            changed.append(self._offers.pop(next(iter(self._offers))))
        return self._look_again(changed, now_ns)

    def _look_again(self, changed: list[Offer], now_ns: int) -> list[Effect]:
        """Of requests for which nobody could be asked: a lender was heard, or is not waited for any more.

        Those that none of the changed offers is about, as it was or as it is, would be where they were.
        """
        effects: list[Effect] = []
        waiting = [one for one in self._open.values() if one.waits_ns and any(offer.of(one.need) for offer in changed)]
        shunned = self._shunned(now_ns) if waiting else None  # Once: it costs more than all else here.
        for one in waiting:
            if not one.live:
                effects += self._go_on(one, now_ns, shunned)
                continue
            found = self._choose(one, now_ns, one.tried[min(one.live)], shunned)
            if found is not None:
                effects += self._ask(one, found[0], now_ns)
        return effects

    def _on_moved(self, lender: NodeId, is_far: bool, now_ns: int) -> list[Effect]:
        offer = self._offers.get(lender)
        if offer is None or offer.is_far == is_far:
            return []
        self._offers[lender] = replace(offer, is_far=is_far)
        return self._doubt(lender, now_ns) if is_far else []

    def _on_doubted(self, lender: NodeId, now_ns: int) -> list[Effect]:
        last = self._doubts.get(lender)
        if lender not in self._offers or (last is not None and now_ns - last[0] < _DOUBT_GAP_NS):
            return []
        return self._doubt(lender, now_ns)

    def _doubt(self, lender: NodeId, now_ns: int) -> list[Effect]:
        """What only this lender works on is asked of another too; its own answer still counts, if it comes first.

        Where there is no other and no own model, of it once more: what a connection held is lost when it breaks.
        """
        self._doubts.pop(lender, None)
        self._doubts[lender] = now_ns, True
        while len(self._doubts) > self._config.reputation.lenders_max:
            del self._doubts[next(iter(self._doubts))]
        effects: list[Effect] = []
        for one in list(self._open.values()):
            others = [attempt for attempt in sorted(one.live) if one.tried[attempt] != lender]
            if not one.live or any(one.begun_ns[attempt] <= now_ns for attempt in others):
                continue
            if one.need.only is not None:
                # Whoever placed it there places it anew.
                effects += [effect for attempt in sorted(one.live)
                            for effect in self._on_failed(one.need.number, attempt, now_ns)]  # fmt: skip
                continue
            if others:
                effects += self._begin_held(one, now_ns, others[0])
                continue
            found, what = self._choose(one, now_ns), "rerouted"
            if found is None and not (one.need.local_ns and None not in one.tried):
                found, what = self._choose(one, now_ns, again=lender), "asked_again"
                if found is None:
                    one.waits_ns = one.need.deadline_ns
                    continue
            effects += self._ask(one, found[0] if found is not None else None, now_ns)
            self.counts[what] += 1
        return effects

    def _on_answer(self, number: int, attempt: int, now_ns: int) -> list[Effect]:
        one = self._open.get(number)
        if one is None or attempt not in one.live:
            return []
        lender = one.tried[attempt]
        if lender is not None:
            self._believe(lender)
        if now_ns > one.need.deadline_ns:
            return self._on_timer(number, _DEADLINE, now_ns)  # The timer is late, where the process was busy or frozen.
        self._measure(one, attempt, now_ns, is_answer=True)
        for other in sorted(one.live - {attempt}):
            self._outrun(one, other, now_ns)
        del self._open[number]
        effects: list[Effect] = [Deliver(number, attempt)]
        effects += [Cancel(number, other) for other in sorted(one.live - {attempt})]
        self.counts["local" if lender is None else "borrowed"] += 1
        has_own = one.need.local_ns > 0 or one.need.may_check
        if lender is not None and has_own and self._is_worth_a_check(lender):
            effects.append(Check(number, attempt, lender))
        return effects

    def _on_failed(self, number: int, attempt: int, now_ns: int, is_its_fault: bool = True) -> list[Effect]:
        one = self._open.get(number)
        if one is None or attempt not in one.live:
            return []
        if is_its_fault:
            self._measure(one, attempt, now_ns, one.need.deadline_ns - now_ns)
        one.live.discard(attempt)
        self.counts["failed" if is_its_fault else "unpaid"] += 1
        if not one.live:
            return self._go_on(one, now_ns)
        held = [] if one.lenders_at_work(now_ns) else one.held(now_ns)
        return [*(self._begin_held(one, now_ns, held[0]) if held else ()), *self._copy(one, now_ns)]

    def _on_timer(self, number: int, what: str, now_ns: int) -> list[Effect]:
        one = self._open.get(number)
        if one is None:
            return []
        need = one.need
        if what == _DEADLINE and now_ns >= need.deadline_ns:
            for attempt in sorted(one.live):
                self._measure(one, attempt, now_ns)
            return self._end(number, "none")
        if what == _LAST_MOMENT and need.local_ns and None not in one.tried and now_ns >= self._last_moment_ns(need):
            self.counts["last_moment"] += 1
            return self._ask(one, None, now_ns)
        if what == _PATIENCE and not one.live and now_ns >= one.waits_ns:
            return self._go_on(one, now_ns)
        if what == _HEDGE and one.live and need.copies == 1 and self._hedges >= 1.0:
            found = self._choose(one, now_ns)
            if found is not None:
                self._hedges -= 1.0
                self.counts["hedged"] += 1
                return self._ask(one, found[0], now_ns)
        return []

    def _go_on(self, one: Attempts, now_ns: int, shunned: Shunned | None = None) -> list[Effect]:
        """Ask whoever is quickest and has not been asked; where nobody is left, say at once that there is no answer.

        A lender that is reached, and has said nothing since its offer has lapsed, is not gone: it is waited for.
        """
        shunned = shunned or self._shunned(now_ns)
        need, found = one.need, self._choose(one, now_ns, None, shunned)
        has_own = need.local_ns > 0 and None not in one.tried
        if found is not None and (not has_own or found[1] < need.local_ns + need.local_wait_ns):
            return self._ask(one, found[0], now_ns) + self._copy(one, now_ns)
        if has_own:
            return self._ask(one, None, now_ns)
        barred = self._barred(one, shunned)
        until_ns = 0 if barred is None else awaited_until_ns(need, self._offers.values(), self.times, barred, now_ns)
        if until_ns > now_ns:
            self.counts["waited"] += not one.waits_ns
            one.waits_ns = until_ns
            return [SetTimer(need.number, _PATIENCE, until_ns)]
        del self._open[need.number]
        self.counts["none"] += 1
        return [Deliver(need.number, None)]

    def _end(self, number: int, what: str) -> list[Effect]:
        """A request is through without an answer."""
        one = self._open.pop(number)
        self.counts[what] += 1
        return [Deliver(number, None), *(Cancel(number, attempt) for attempt in sorted(one.live))]

    def _copy(self, one: Attempts, now_ns: int) -> list[Effect]:
        """Further lenders, until as many are at work as the request wants."""
        effects: list[Effect] = []
        while one.need.copies > 1 and sum(one.tried[attempt] is not None for attempt in one.live) < one.need.copies:
            found = self._choose(one, now_ns)
            if found is None:
                break
            self.counts["copied"] += 1
            effects += self._ask(one, found[0], now_ns, one.begins_ns(found[1], now_ns))
        return effects

    def _begin_held(self, one: Attempts, now_ns: int, attempt: int) -> list[Effect]:
        """Whoever holds a request begins: nobody else works on it."""
        one.begun_ns[attempt] = now_ns
        one.was_held.discard(attempt)
        self.counts["begun"] += 1
        return [Begin(one.need.number, attempt), *self._hedge_after(one, attempt, 1, now_ns)]

    def _ask(self, one: Attempts, offer: Offer | None, now_ns: int, begins_ns: int = 0) -> list[Effect]:
        need, attempt = one.need, len(one.tried)
        one.waits_ns = 0
        one.tried.append(None if offer is None else offer.node)
        one.begun_ns.append(max(begins_ns, now_ns))
        one.streams_ns.append(0 if offer is None else stream_ns(offer, need))
        one.live.add(attempt)
        if begins_ns > now_ns:
            one.was_held.add(attempt)
        offered = None if offer is None else offer.of(need)
        digest = need.digest if offered is None else offered.digest
        effects: list[Effect] = [Attempt(need.number, attempt, one.tried[attempt], digest, need.deadline_ns, begins_ns)]
        if offer is not None and begins_ns <= now_ns:
            ways = 1 if self._is_ready(offer, need, now_ns) else 2
            effects += self._hedge_after(one, attempt, ways, now_ns)
        return effects

    def _on_left(self, number: int, attempt: int, now_ns: int) -> list[Effect]:
        one = self._open.get(number)
        if one is None or attempt not in one.live or one.begun_ns[attempt] > now_ns:
            return []
        one.begun_ns[attempt] = now_ns
        return self._hedge_after(one, attempt, 1, now_ns) if attempt == len(one.tried) - 1 else []

    def _hedge_after(self, one: Attempts, attempt: int, ways: int, now_ns: int) -> list[Effect]:
        """A timer for when a lender is slower than it ever is, if it still offers it, and there is still time then."""
        lender, stated = one.tried[attempt], one.stated_ns(attempt, self._offers)
        if lender is None or stated is None:
            return []
        p95_ns = self.times_of(lender).p95_ns(stated, now_ns, one.streams_ns[attempt])
        one.late_ns = now_ns + ways * round(p95_ns)
        return [SetTimer(one.need.number, _HEDGE, one.late_ns)] if one.late_ns < one.need.deadline_ns else []

    def _choose(
        self, one: Attempts, now_ns: int, again: NodeId | None = None, shunned: Shunned | None = None
    ) -> tuple[Offer, float] | None:
        """Whoever is soonest of those that have not been asked, or of them and `again`."""
        shunned = shunned or self._shunned(now_ns)
        barred = self._barred(one, shunned, again)
        if barred is None:
            return None
        found = feasible(one.need, self._offers.values(), self.times, [*barred, *shunned.doubted], now_ns)
        if not found and shunned.doubted:
            found = feasible(one.need, self._offers.values(), self.times, barred, now_ns)
        return choose(
            one.need, found, self.times, self._rng, now_ns, lambda offer: self._is_ready(offer, one.need, now_ns)
        )

    def _shunned(self, now_ns: int) -> Shunned:
        return Shunned(
            [node for node in self._offers if self.reputation.is_ejected(node, now_ns)],
            [node for node, (at_ns, silent) in self._doubts.items() if silent and now_ns - at_ns < _DOUBT_NS],
        )

    def _barred(self, one: Attempts, shunned: Shunned, again: NodeId | None = None) -> list[NodeId] | None:
        """Who is not asked, since it has been, or is not believed; None: enough have been."""
        asked = [node for node in one.tried if node is not None]
        if len(asked) >= self._config.attempts_max:
            return None
        return [*(node for node in asked if node != again), *shunned.bad]

    def _believe(self, lender: NodeId) -> None:
        """It has been heard: whatever broke, it lives."""
        if lender in self._doubts:
            self._doubts[lender] = self._doubts[lender][0], False

    def _is_ready(self, offer: Offer, need: Need, now_ns: int) -> bool:
        offered = offer.of(need)
        return offered is not None and self._has_ticket(offer.node, offered.digest, now_ns)

    def _measure(
        self, one: Attempts, attempt: int, now_ns: int, penalty_ns: int = 0, *, is_answer: bool = False
    ) -> None:
        """What an attempt took; a failure counts as the whole time that the request had left."""
        lender, stated = one.tried[attempt], one.stated_ns(attempt, self._offers)
        if lender is not None and not (is_answer and one.has_not_waited(attempt, stated or 0, now_ns)):
            took_ns = now_ns - one.begun_ns[attempt] + max(0, penalty_ns)
            self.times_of(lender).note(took_ns, now_ns, is_answer=is_answer, stream_ns=one.streams_ns[attempt])

    def _outrun(self, one: Attempts, attempt: int, now_ns: int) -> None:
        """Another has answered first: this one takes at least as long as it has taken, which may be more than it did.

        Else a lender that says nothing, and is made good by a hedge each time, would look as quick as it says.
        """
        lender, stated = one.tried[attempt], one.stated_ns(attempt, self._offers)
        if lender is None or stated is None:
            return
        took_ns, times, stream = now_ns - one.begun_ns[attempt], self.times_of(lender), one.streams_ns[attempt]
        if took_ns > times.mean_ns(stated, now_ns, stream):
            times.note(took_ns, now_ns, is_answer=False, stream_ns=stream)

    def times_of(self, lender: NodeId) -> Times:
        """What is known of one."""
        times = self.times[lender] = self.times.pop(lender, Times())
        while len(self.times) > self._config.reputation.lenders_max:
            del self.times[next(iter(self.times))]
        return times

    def _is_worth_a_check(self, lender: NodeId) -> bool:
        """The first answers of a lender, as long as it is remembered, and a share of the rest."""
        checked = self._checks.pop(lender, 0)
        is_drawn = self._rng.random() < self._config.check_share
        self._checks[lender] = min(checked + 1, self._config.check_first)
        while len(self._checks) > self._config.reputation.lenders_max:
            del self._checks[next(iter(self._checks))]
        return is_drawn or checked < self._config.check_first

    def _last_moment_ns(self, need: Need) -> int:
        return need.deadline_ns - round(need.local_ns * self._config.local_margin)
