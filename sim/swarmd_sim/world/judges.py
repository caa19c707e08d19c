"""Detectors of several sizes as statistics: what each would say of a road user at a crossing, or of clutter.

A *look* is one track's crop, asked about once. What is there is a road user (a car, a cyclist, a pedestrian, each
harder than the one before) or clutter. Each judge sees the same evidence through a haze that all of them share (a crop
that is truly ambiguous is so for every model) and through one of its own, which is thinner the larger the judge is.
What it says of itself is surer than it should be, as networks are.

`learned_plan` does what a recipe would: it fits calibration, weights and bands of doubt on looks of its own, which no
run ever sees. Nothing here is a picture: the figures are worth what the model of the judges is worth.
`recorded_looks.py` has what real detectors said of rendered traffic instead.

Source:
    The equal-variance Gaussian model of signal detection: Green and Swets (1966).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt

from swarmd_protocols.offload.cascade import Plan, Step, Walk, confidence, logit

CLASSES = ("car", "cyclist", "pedestrian")
_SIGNAL = (1.7, 1.3, 1.1)
"""Evidence of each class far away, in the unit of the hazes below."""
_NEAR, _NEAR_SHARE = 1.8, 0.6
"""So many tracks are near, and show so many times the evidence."""
_PRIOR = 0.3
"""Share of tracks that are road users; the rest is shadow, rain and foliage."""
_SHARED = 0.5
"""Standard deviation of the haze that all judges share."""
SMALL, LARGER, LARGEST = range(3)
_OWN = (1.2, 0.6, 0.3)
"""Standard deviation of each judge's own haze. Accuracies: about 0.93, 0.985, 0.995."""
_BOAST = (1.8, 1.4, 1.2)
"""How much surer each says it is than it should be."""
_LEARNT_ON = 4_000
_GRID = tuple(round(0.5 * 0.8**step, 6) for step in range(24))
"""Doubts (the smaller of p and 1 - p) from which a step is asked, least work first: 0.5 to 0.003."""


@dataclass(frozen=True, slots=True)
class Look:
    """One track's crop.

    Attributes:
        kind: Index into `CLASSES`, or into the labels of the recorded ones.
        is_there: Whether it is a road user.
        scores: What each judge says, small to largest.
    """

    kind: int
    is_there: bool
    scores: tuple[float, float, float]


def look(seed: int) -> Look:
    """The look with this number, on every machine."""
    rng = random.Random(seed)
    kind = int(rng.random() * len(CLASSES))
    is_there = rng.random() < _PRIOR
    signal = _SIGNAL[kind] * (_NEAR if rng.random() < _NEAR_SHARE else 1.0)
    shared = _normal(rng) * _SHARED
    scores = []
    for own, boast in zip(_OWN, _BOAST, strict=True):
        seen = (signal if is_there else -signal) + shared + own * _normal(rng)
        odds = 2.0 * signal * seen / (_SHARED**2 + own**2) + logit(_PRIOR)
        scores.append(round(confidence(boast * odds), 9))
    return Look(kind, is_there, (scores[0], scores[1], scores[2]))


def _normal(rng: random.Random) -> float:
    # Two uniform draws; `gauss` keeps a half of its pair between calls and differs between Pythons.
    radius = sqrt(-2.0 * log(1.0 - rng.random()))
    return radius * _COSINES[int(rng.random() * len(_COSINES))]


def _cosines() -> list[float]:
    # By the recurrence of Chebyshev: no cosine of a C library, whose last bits differ.
    count, first = 4_096, 1.0 - 2.0 * 0.0  # cos 0
    step = 0.9999988234517019  # cos(2 pi / 4096)
    found = [first, step]
    while len(found) < count:
        found.append(2.0 * step * found[-1] - found[-2])
    return found


_COSINES = _cosines()


# --- How good an answer is --------------------------------------------------------------------------------------------


def accuracy(looks: Sequence[Look], said: Sequence[float | None]) -> float:
    """Share of looks whose answer is on the right side; None, no answer, is on the wrong one."""
    right = sum(p is not None and (p >= 0.5) == one.is_there for one, p in zip(looks, said, strict=True))
    return right / max(1, len(looks))


def mean_ap(looks: Sequence[Look], said: Sequence[float | None]) -> float:
    """Mean over the classes of the area under precision and recall; what has no answer is never found.

    Source:
        Everingham et al. (2010), PASCAL VOC, with every point of the curve.
    """
    found = []
    for kind in range(1 + max((one.kind for one in looks), default=-1)):
        rows = [(p, one.is_there) for one, p in zip(looks, said, strict=True) if one.kind == kind and p is not None]
        there = sum(one.is_there for one in looks if one.kind == kind)
        if there:
            found.append(_area(rows, there))
    return sum(found) / max(1, len(found))


def _area(rows: list[tuple[float, bool]], there: int) -> float:
    hits, area = 0, 0.0
    points = []
    for at, (_, is_there) in enumerate(sorted(rows, reverse=True), start=1):
        hits += is_there
        points.append((hits / there, hits / at))
    best, before = 0.0, points[-1][0] if points else 0.0
    for recall, precision in reversed(points):
        area += best * (before - recall)
        best, before = max(best, precision), recall
    return area + best * before


# --- What a recipe learns ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Costs:
    """What a plan costs over some looks, had every step been answered."""

    asks: tuple[int, ...]
    """Of each step."""
    said: list[float]

    def work(self, units: Sequence[float]) -> float:
        """Of the steps' models together, in the unit of `units`."""
        return sum(count * unit for count, unit in zip(self.asks, units, strict=True))


def walked(plan: Plan, looks: Sequence[Look], judges: Sequence[int]) -> Costs:
    """What a plan would say of these looks, and what it would ask.

    Args:
        plan: Whose steps are `judges` in this order; its own model is the small one.
        looks: What is judged.
        judges: Index of each step's judge.
    """
    asks, said = [0] * len(judges), []
    judge_of = {step.digest: judge for step, judge in zip(plan.steps, judges, strict=True)}
    for one in looks:
        walk = Walk(plan)
        if plan.own is not None:
            walk.add(plan.own.digest, one.scores[SMALL])
        while (step := walk.next_step(1 << 60)) is not None:
            asks[plan.steps.index(step)] += 1
            walk.add(step.digest, one.scores[judge_of[step.digest]])
        said.append(walk.confidence)
    return Costs(tuple(asks), said)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan must reach."""

    accuracy: float
    mean_ap: float


def banded(plan: Plan, doubts: Sequence[float]) -> Plan:
    """The plan with other bands of doubt."""
    steps = tuple(
        Step(step.digest, doubt, 1.0 - doubt, step.keep, step.weight, step.offset, step.least_ns)
        for step, doubt in zip(plan.steps, doubts, strict=True)
    )
    return Plan(plan.own, steps, plan.prior)


def cheapest(
    plan: Plan, looks: Sequence[Look], judges: Sequence[int], units: Sequence[float], wanted: Wanted
) -> tuple[Plan, float]:
    """The bands of doubt that reach what is wanted on these looks with the least work, and that work.

    The widest bands where none does.
    """
    truth = [one.is_there for one in looks]
    after = _after_each(plan, looks, judges)
    doubts_of = [[min(p, 1.0 - p) for p in said] for said in after]
    best_work, best = float("inf"), (0.0,) * len(plan.steps)
    pairs = [(a,) for a in _GRID] if len(plan.steps) == 1 else [(a, b) for a in _GRID for b in _GRID]
    for doubts in pairs:
        asked = list(range(len(looks)))
        said, work = after[0], 0.0
        for step, doubt in enumerate(doubts):
            asked = [at for at in asked if doubts_of[step][at] >= doubt]
            work += units[step] * len(asked)
            said = [*said] if step == 0 else said
            for at in asked:
                said[at] = after[step + 1][at]
            if work >= best_work:
                break
        if work >= best_work:
            continue
        right = sum((p >= 0.5) == is_there for p, is_there in zip(said, truth, strict=True))
        if right >= wanted.accuracy * len(looks) and mean_ap(looks, said) >= wanted.mean_ap:
            best_work, best = work, doubts
    if best_work == float("inf"):
        best_work = sum(units) * len(looks)
    return banded(plan, best), best_work


def _after_each(plan: Plan, looks: Sequence[Look], judges: Sequence[int]) -> list[list[float]]:
    """Confidence in each look by the own model, and after each step, if each were asked."""
    wide = banded(plan, [0.0] * len(plan.steps))
    found: list[list[float]] = [[] for _ in range(len(judges) + 1)]
    for one in looks:
        walk = Walk(wide)
        if wide.own is not None:
            walk.add(wide.own.digest, one.scores[SMALL])
        found[0].append(walk.confidence)
        for at, judge in enumerate(judges, start=1):
            step = walk.next_step(1 << 60)
            assert step is not None
            walk.add(step.digest, one.scores[judge])
            found[at].append(walk.confidence)
    return found


@lru_cache(maxsize=32)
def learned_plan(digests: tuple[bytes, ...], judges: tuple[int, ...], units: tuple[float, ...]) -> Plan:
    """The plan of a release, from looks that no run sees.

    Args:
        digests: Of the small model and of each step's.
        judges: Index of each step's judge.
        units: Cost of one inference of each step.
    """
    return plan_of([look(-1 - number) for number in range(_LEARNT_ON)], _PRIOR, digests, judges, units)


def plan_of(
    looks: Sequence[Look], prior: float, digests: tuple[bytes, ...], judges: tuple[int, ...], units: tuple[float, ...]
) -> Plan:
    """The plan that these looks teach; `prior` is the share of road users, the rest as for `learned_plan`."""
    truth = [one.is_there for one in looks]
    weight, offset = _fitted([[logit(one.scores[SMALL])] for one in looks], truth)
    own = Step(digests[0], weight=weight, offset=offset)
    known = [offset + weight * logit(one.scores[SMALL]) for one in looks]
    steps = []
    for digest, judge in zip(digests[1:], judges, strict=True):
        rows = [[before, logit(one.scores[judge])] for before, one in zip(known, looks, strict=True)]
        keep, weight, offset = _fitted(rows, truth)
        known = [offset + keep * row[0] + weight * row[1] for row in rows]
        steps.append(Step(digest, 0.0, 1.0, keep, weight, offset))
    largest = [one.scores[LARGEST] for one in looks]
    # A margin above the goals (0.99 of the accuracy, 0.98 of the mAP): the looks of a run are others.
    wanted = Wanted(0.995 * accuracy(looks, largest), 0.985 * mean_ap(looks, largest))
    return cheapest(Plan(own, tuple(steps), prior), looks, judges, units, wanted)[0]


def _fitted(rows: list[list[float]], truth: list[bool]) -> tuple[float, ...]:
    """Logistic regression by Newton's method: a weight for each column, then the offset."""
    size = len(rows[0]) + 1
    found = [0.5] * (size - 1) + [0.0]
    for _ in range(12):
        slope = [1e-3 * weight for weight in found]
        bend = [[1e-3 * (i == j) for j in range(size)] for i in range(size)]
        for row, is_there in zip(rows, truth, strict=True):
            wide = [*row, 1.0]
            p = 1.0 / (1.0 + exp(-min(60.0, max(-60.0, sum(w * x for w, x in zip(found, wide, strict=True))))))
            for i in range(size):
                slope[i] += (p - is_there) * wide[i]
                for j in range(size):
                    bend[i][j] += p * (1.0 - p) * wide[i] * wide[j]
        found = [w - s for w, s in zip(found, _solved(bend, slope), strict=True)]
    return tuple(round(weight, 9) for weight in found)


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss's elimination; the matrix is small and positive definite."""
    size = len(right)
    rows = [[*matrix[i], right[i]] for i in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found
