"""Who should answer a request: what lenders offer, what they were measured at, and a choice between two of them.

- Feasible is a lender whose newest offer is fresh, has the bundle by its digest (or one of the ability and the grade
  that were asked for), takes the request's size, is reachable and not ejected, and would by its measured times answer
  before the deadline, and asks no more than the request may
  cost (`purse.py`). What a request may not leave the device for is not offered to anybody.
- Of the quickest feasible ones two are drawn and the quicker is taken (power of two choices): the best one alone would
  be the best one of everybody at once.
- What a lender asks counts as waiting, at the rates that the owner has set.
- The time of a lender is a peak-sensitive average: it rises at once and falls slowly. What is so large that others hand
  it on as a stream is measured apart, as a multiple of what it should take: a long way says nothing of a short word.

Source:
    Mitzenmacher (2001), "The power of two choices in randomized load balancing"; Finagle's peak EWMA;
    Dean and Barroso (2013), "The tail at scale", for hedging at the 95th percentile.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.purse import FREE, Cost, CostRule, cost
from swarmd_protocols.subprotocol import FAR_BURST_BYTES, FAR_BYTES_S, FAR_LEAST_BYTES_S

FRESH_NS = 2_000_000_000
"""An offer that says nothing else names nobody after this: two periods of the gossip that carries it."""
AWAITED_NS = 10_000_000_000
"""A lender that is reached is waited for so long after its offer has lapsed: ways over others are known 5 s after they
have changed, and of ten far borrowers each is told in 10 s."""
NEAR = 1.5
"""Times the quickest one's time that is still near it: what a radio's jitter makes of equal ones."""
_WITHOUT_TICKET = 2.0
"""Times a lender's time where there is no ticket of its: two ways there and back instead of one."""
OFFERED_MAX = 16
"""Bundles in one offer."""
_FALL_NS = 10_000_000_000
"""In which an average falls by 1 - 1/e towards shorter times: a lender that was loaded is tried again in seconds."""
_FAR_NS = 200_000_000
"""What the way there and back takes over others, before it is measured: of 0.1 s at p99 each, on four hops."""
_STREAM_NS = 1_000_000_000
"""Streams of all sizes are measured as if each should take so long."""
_SAMPLES = 64
"""Times kept for the percentile: some seconds of a busy lender."""
_MIN_SAMPLES = 8
"""Fewer show no percentile; twice the average stands for it."""
WAY_NS = 10_000_000
"""The way there and back to a lender that has answered nothing yet, beside what it says of itself: two bursts of some
kilobytes each over a radio. Without it whoever is unknown looked quicker than all who are known, and every second
request to one was hedged before it could have been back."""
_WAY_RISE = 4
"""A way that was measured is believed to have grown by a quarter at each longer measure: one lost frame, sent again
after 200 ms, is no longer way."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One bundle that a lender would run for others."""

    digest: bytes
    unit_ns: int
    """Its own measure of one inference."""
    queue_ns: int
    """Work before a new request, by its own measure."""
    ability: int = 0
    """What it is able to, as `ability_number`; 0: it does not say."""
    grade_milli: int = 0
    """How well, by its recipe's own measure, thousandths; comparable inside one ability only."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a lender said last."""

    node: NodeId
    bundles: tuple[Offered, ...]
    request_bytes_max: int
    heard_ns: int
    """On this node's monotonic clock."""
    is_reachable: bool = True
    good_ns: int = FRESH_NS
    """It is believed for so long after it was heard."""
    price_micro_s: int = 0
    """What a second of its inference costs (`purse.py`)."""
    charge_ppb_s: int = 0
    is_far: bool = False
    """It is out of this radio's reach: others hand on what goes there."""

    def cost_of(self, need: "Need") -> Cost:
        """What a request would cost there."""
        if not (self.price_micro_s or self.charge_ppb_s) or (offered := self.of(need)) is None:
            return Cost()
        return self.cost(offered.digest, need.units)

    def cost(self, digest: bytes, units: int) -> Cost:
        """Of so many inferences of one bundle; nothing of one that it does not offer."""
        unit_ns = next((one.unit_ns for one in self.bundles if one.digest == digest), 0)
        return cost(self.price_micro_s, self.charge_ppb_s, unit_ns * units)

    def is_out_of_reach(self, need: "Need", left: CostRule | None) -> bool:
        """Whether the request's own rule would let it be asked, and what is left of the hour does not."""
        cost = self.cost_of(need)
        is_had = need.may_leave and self.of(need) is not None and cost.is_within(need.rule)
        return is_had and (left is None or not cost.is_within(left))

    def is_fresh(self, now_ns: int) -> bool:
        """Whether it is still to be believed."""
        return now_ns - self.heard_ns <= self.good_ns

    def of(self, need: "Need") -> Offered | None:
        """What it offers for a request: the bundle by its digest, or the quickest one that is able to do it."""
        if not need.ability:
            return next((one for one in self.bundles if one.digest == need.digest), None)
        able = [one for one in self.bundles if one.ability == need.ability and one.grade_milli >= need.grade_min_milli]
        return min(able, key=lambda one: (one.queue_ns + one.unit_ns * need.units, one.digest), default=None)


@dataclass(frozen=True, slots=True)
class Need:
    """One request, as far as placing goes."""

    number: int
    digest: bytes
    """Of the bundle that is to answer; with `ability`, of this device's own, if any."""
    units: int
    size_bytes: int
    deadline_ns: int
    """Monotonic."""
    may_leave: bool = True
    """Whether its tensors may leave this device."""
    local_ns: int = 0
    """What the own model takes for it, by measure; 0: this device has none."""
    local_wait_ns: int = 0
    """Before it could begin now."""
    ability: int = 0
    """Any bundle that is able to it may answer; 0: `digest` alone."""
    grade_min_milli: int = 0
    """The least grade of a lender's bundle, with `ability`."""
    copies: int = 1
    """Lenders that have it at once; with 2 no single death costs an answer that the other has time for."""
    only: NodeId | None = None
    """This lender or none: who asks has placed it (`stealing.py`)."""
    may_check: bool = False
    """Answers can be held against an own model that is not to answer itself; with `local_ns` they can be anyway."""
    but: tuple[NodeId, ...] = ()
    """Not these lenders."""
    rule: CostRule = FREE
    """What it may cost."""


class Times:
    """How long one lender takes, as seen from here: the way there and back included."""

    def __init__(self) -> None:
        """Nothing measured."""
        self._mean_ns = 0.0
        self._at_ns = 0
        self._samples: list[int] = []
        self._best_ns = 0
        """The least of them: looked at for each lender of each request, and changed by an answer alone."""
        self.way_ns = 0
        """There and back, by a word that no work stands behind; 0: not measured."""
        self.wants_way = False
        """Whether a word should be sent to measure it: the first one was refuted, which waited for a connection."""
        self._is_refuted = False
        self._streamed: Times | None = None
        """Of what goes to it as a stream, as if each should take `_STREAM_NS`; None: nothing has."""

    def met(self, took_ns: int) -> None:
        """It has answered a word at once, and that took so long."""
        self.way_ns = min(took_ns, self.way_ns + self.way_ns // _WAY_RISE) if self.way_ns else took_ns

    def note(self, took_ns: int, now_ns: int, *, is_answer: bool = True, stream_ns: int = 0) -> None:
        """An answer, or a wait that was given up; `stream_ns` of what goes as a stream: what it should have taken."""
        if stream_ns:
            self._streamed = self._streamed or Times()
            self._streamed.note(took_ns * _STREAM_NS // stream_ns, now_ns, is_answer=is_answer)
            return
        if took_ns >= self._mean_ns or not self._mean_ns:
            self._mean_ns = float(took_ns)
        else:
            share = min(1.0, max(0, now_ns - self._at_ns) / _FALL_NS)
            self._mean_ns += (took_ns - self._mean_ns) * max(share, 1 / _SAMPLES)
        self._at_ns = now_ns
        if is_answer and self.way_ns > took_ns:  # It came back sooner than a word was said to: so that was no way.
            self.way_ns, self.wants_way, self._is_refuted = 0, not self._is_refuted, True
        if is_answer:
            self._samples = [*self._samples, took_ns][-_SAMPLES:]
            self._best_ns = min(self._samples)

    def mean_ns(self, stated_ns: int, now_ns: int, stream_ns: int = 0) -> float:
        """Of a request; `stated_ns`, the lender's own word, and the way there and back, until there is a measure.

        What is long ago falls back to the quickest of its answers, or to its word where it has given none: so a lender
        that failed once, and is asked no more for it, is tried again.
        """
        if stream_ns:
            return (self._streamed or _UNMEASURED).mean_ns(_STREAM_NS, now_ns) * stream_ns / _STREAM_NS
        if not self._mean_ns:
            return float(stated_ns + (self.way_ns or WAY_NS))
        best_ns = min(self._mean_ns, max(stated_ns, self._best_ns or stated_ns + (self.way_ns or WAY_NS)))
        share = min(1.0, max(0, now_ns - self._at_ns) / _FALL_NS)
        return self._mean_ns + (best_ns - self._mean_ns) * share

    def p95_ns(self, stated_ns: int, now_ns: int, stream_ns: int = 0) -> float:
        """What one request in twenty exceeds."""
        if stream_ns:
            return (self._streamed or _UNMEASURED).p95_ns(_STREAM_NS, now_ns) * stream_ns / _STREAM_NS
        if len(self._samples) < _MIN_SAMPLES:
            return 2.0 * self.mean_ns(stated_ns, now_ns)
        return float(sorted(self._samples)[-(-len(self._samples) * 95 // 100) - 1])


_UNMEASURED = Times()


def ability_number(name: str) -> int:
    """How an ability, say "classify/pv-module", is named in offers: four bytes of SHA-256, never 0; 0 for ""."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") or 1 if name else 0


def stated_ns(offer: Offer, need: Need) -> int:
    """What a request would take by the lender's own word, and by the way to it where others hand it on."""
    offered = offer.of(need)
    assert offered is not None
    way_ns = 0
    if offer.is_far:
        way_ns = _FAR_NS + max(0, need.size_bytes - FAR_BURST_BYTES) * 1_000_000_000 // FAR_BYTES_S
    return way_ns + offered.queue_ns + offered.unit_ns * need.units


def stream_ns(offer: Offer, need: Need) -> int:
    """What a request should take that goes to its lender as a stream; 0: it does not."""
    return stated_ns(offer, need) if offer.is_far and need.size_bytes > FAR_BURST_BYTES else 0


def come_by_ns(offer: Offer | None, size_bytes: int, now_ns: int) -> int:
    """When a request that leaves now is there at the latest: whoever is far may get it as slowly as a stream may be."""
    is_stream = offer is not None and offer.is_far
    return now_ns + (_FAR_NS + size_bytes * 1_000_000_000 // FAR_LEAST_BYTES_S if is_stream else 0)


def feasible(
    need: Need, offers: Iterable[Offer], times: Mapping[NodeId, Times], ejected: Iterable[NodeId], now_ns: int
) -> list[Offer]:
    """The lenders that could answer in time, in the order of `offers`."""
    fresh = [offer for offer in offers if offer.is_fresh(now_ns)]
    return _suitable(need, fresh, times, frozenset(ejected), now_ns)


def awaited_until_ns(
    need: Need, offers: Iterable[Offer], times: Mapping[NodeId, Times], ejected: Iterable[NodeId], now_ns: int
) -> int:
    """Until when one is waited for that could answer in time, by an offer that has lapsed; 0: there is none.

    Who has placed a request, or leaves lenders out, has something else in mind where the others say nothing.
    """
    if need.only is not None or need.but:
        return 0
    lapsed = [offer for offer in offers if not offer.is_fresh(now_ns)]
    found = _suitable(need, lapsed, times, frozenset(ejected), now_ns)
    return min(need.deadline_ns, max((offer.heard_ns + offer.good_ns + AWAITED_NS for offer in found), default=0))


def _suitable(
    need: Need, offers: Iterable[Offer], times: Mapping[NodeId, Times], barred: frozenset[NodeId], now_ns: int
) -> list[Offer]:
    """Those of the lenders that could answer in time by what they have said, however long ago."""
    if not need.may_leave:
        return []
    found = []
    for offer in offers:
        fits = (
            offer.is_reachable
            and (need.only is None or offer.node == need.only)
            and offer.node not in barred
            and offer.node not in need.but
            and offer.of(need) is not None
            and need.size_bytes <= offer.request_bytes_max
            and offer.cost_of(need).is_within(need.rule)
        )
        if fits and now_ns + time_ns(offer, need, times, now_ns) < need.deadline_ns:
            found.append(offer)
    return found


def choose(
    need: Need,
    candidates: list[Offer],
    times: Mapping[NodeId, Times],
    rng: random.Random,
    now_ns: int,
    has_ticket: Callable[[Offer], bool] = lambda offer: True,
) -> tuple[Offer, float] | None:
    """The quicker of two that are drawn, and what it is expected to take; None where there is no candidate.

    Drawn are those that are not much slower than the quickest: devices differ tenfold, and two slow ones drawn together
    would be worse than any crowd at the quick ones. One whose ticket must be asked for first takes another way there
    and back: it counts twice.
    """
    if not candidates:
        return None
    took = {
        offer.node: time_ns(offer, need, times, now_ns) * (1.0 if has_ticket(offer) else _WITHOUT_TICKET)
        + offer.cost_of(need).worth_ns(need.rule)
        for offer in candidates
    }
    quickest = min(took.values())
    near = [offer for offer in candidates if took[offer.node] <= NEAR * quickest]
    drawn = near if len(near) <= 2 else rng.sample(near, 2)
    best = min(drawn, key=lambda offer: (took[offer.node], offer.node))
    return best, time_ns(best, need, times, now_ns)


def time_ns(offer: Offer, need: Need, times: Mapping[NodeId, Times], now_ns: int) -> float:
    """What a request is expected to take: the measure, but never less than the lender says of its queue and its way."""
    stated, known = stated_ns(offer, need), times.get(offer.node, _UNMEASURED)
    return max(known.mean_ns(stated, now_ns, stream_ns(offer, need)), float(stated + known.way_ns))
