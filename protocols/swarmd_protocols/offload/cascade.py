"""A plan of several steps: a small model here, a larger one elsewhere where that is unsure, the largest where both are.

```
 own answer ─▶ confidence ── sure ──────────────────────────────▶ that is the answer
                  │ in doubt, and there is time
                  └─▶ step 1 (a bundle, by its digest) ─▶ fused ── sure ─▶ answer
                                                           └─ in doubt ─▶ step 2 …
```

- A plan belongs to one release: it names its bundles by their digests, and only what they have answered is fused. An
  answer of any other bundle leaves the confidence as it was.
- What a model says of itself is no confidence before it is calibrated; scale, offset and weights come with the plan,
  from data that the models were not trained on.
- A step that brings no answer leaves what was known: asking is never worse than not asking.

It sees numbers, never a tensor: whoever runs models reads a score out of an answer.

Source:
    Platt (1999), "Probabilistic outputs for support vector machines"; Guo et al. (2017), "On calibration of modern
    neural networks"; Chen, Zaharia, Zou (2023), "FrugalGPT", for cascades whose bands are chosen on held-out data.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import exp, log

SCORE_EDGE = 1e-6
"""Scores are read as if they were no nearer to 0 or 1 than this: a model is never as sure as its arithmetic."""
STEPS_MAX = 4
"""Of one plan."""


@dataclass(frozen=True, slots=True)
class Step:
    """One bundle's part in a plan.

    The confidence after it has, as a logit, `offset + keep * known + weight * said`.

    Attributes:
        digest: Of the bundle.
        low, high: It is asked while the confidence so far is within [low, high]; the own model's are not looked at.
        keep, weight, offset: How its answer joins what was known.
        least_ns: With less time than this left it is not asked.
    """

    digest: bytes
    low: float = 0.0
    high: float = 1.0
    keep: float = 0.0
    weight: float = 1.0
    offset: float = 0.0
    least_ns: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a release says about asking.

    Attributes:
        own: The device's own model; None: it has none.
        steps: Those that are asked, the cheapest first.
        prior: Confidence where nothing has been said.
    """

    own: Step | None
    steps: tuple[Step, ...]
    prior: float = 0.5

    def __post_init__(self) -> None:
        """Raise `ValueError` for a plan that cannot be walked."""
        if len(self.steps) > STEPS_MAX or len({step.digest for step in self.steps}) != len(self.steps):
            raise ValueError(f"{len(self.steps)} steps; a plan has at most {STEPS_MAX}, each with a bundle of its own")


def logit(score: float) -> float:
    """Log odds of a score; one that is no number says nothing."""
    if score != score:
        return 0.0
    score = min(1.0 - SCORE_EDGE, max(SCORE_EDGE, score))
    return log(score / (1.0 - score))


def confidence(log_odds: float) -> float:
    """The probability with these log odds.

    >>> round(confidence(logit(0.25)), 9)
    0.25
    """
    return 1.0 / (1.0 + exp(-min(60.0, max(-60.0, log_odds))))


@dataclass(slots=True)
class Walk:
    """One request on its way through a plan.

    Attributes:
        plan: Of one release.
        parts: Digests of the bundles whose answers are in the confidence.
        counts: What was left out, and why.
    """

    plan: Plan
    parts: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _known: float = 0.0
    _at: int = 0
    _given: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Know what the plan knows of everything."""
        self._known = logit(self.plan.prior)

    @property
    def confidence(self) -> float:
        """Of what was asked about, by all that counts so far."""
        return confidence(self._known)

    def next_step(self, left_ns: int) -> Step | None:
        """Whom to ask now; None: the confidence stands. A step is given once.

        Args:
            left_ns: Time until the deadline.
        """
        while self._at < len(self.plan.steps):
            step = self.plan.steps[self._at]
            self._at += 1
            if not self.parts or step.low <= self.confidence <= step.high:
                if left_ns > step.least_ns:
                    self._given.append(step)
                    return step
                self.counts["no_time"] += 1
        return None

    def add(self, digest: bytes, score: float) -> bool:
        """An answer has come; whether it counts.

        Args:
            digest: Of the bundle that gave it.
            score: What it says, as it says it.
        """
        own = self.plan.own
        steps = [*([own] if own is not None else []), *self._given]
        step = next((one for one in steps if one.digest == digest), None)
        if step is None or digest in self.parts or not 0.0 <= score <= 1.0:
            self.counts["left_out"] += 1
            return False
        keep = step.keep if self.parts else 0.0
        weight, offset = (step.weight, step.offset) if self.parts or step is own else (1.0, 0.0)
        self._known = offset + keep * self._known + weight * logit(score)
        self.parts.append(digest)
        return True
