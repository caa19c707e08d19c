"""Sets what a trained bundle leaves open, on crops that no student has seen: how two stages are joined, and thresholds.

The crops are those that `Crops.with_part_held_back` took out of the training split. Nothing here looks at the
validation split. Numbers come from the INT8 files as they will fly.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle
from swarmd_models.bundle_rules import Reference
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import nominal_pixel_m, score_crops
from swarmd_models.metrics import auroc, macro_f1
from swarmd_models.reference import FRAMES, measure
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.thermal import HELD_BACK, NORMAL_LABEL, Crops
from swarmd_recipes.logistic import regression

Floats = npt.NDArray[np.float64]
FALSE_PER_1000 = 0.6
"""Aimed at for real crops, by the tail of those held back."""
FALSE_PER_1000_DRAWN = 0.1
FIRST_SHARE = 0.3
"""Of the first stage's logit, to 1 of the second's."""
_TAIL = 0.05
"""The share of healthy modules whose scores the tail is fitted to."""
_POOLED_TAIL, _CENSORED = 0.1, 0.1
"""The share of healthy modules whose scores a curve's tail is fitted to, and of those the share that only counts as
high; of three ways that were tried this one came nearest to what other crops gave (docs/performance/models.md)."""
_LEAST_HEARD = 10
"""Detections from which a tail is fitted."""
_CONTROL_FRAMES = 480
_FAULT_FRAMES = 240
_LOGITS = (-0.8, 9.9)
"""Between which thresholds may lie."""
_LENIENT = 0.02


def frames(bundle: Bundle, crops: Crops | None, prevalence: float, count: int, seed: int) -> Iterable[Scene]:
    """Composed frames for a bundle: of the crops held back, or drawn where there are none."""
    options = SceneOptions(
        width=bundle.input.width,
        height=bundle.input.height,
        pixel_m=nominal_pixel_m(bundle),
        fault_share=prevalence,
        plain_share=0.0,
        real_share=1.0,
        dense_share=0.0,
        scale_jitter=0.08,
        max_tilt_rad=0.12,
    )
    maker = SceneMaker(options, seed, crops, HELD_BACK)
    return (maker.scene(index) for index in range(count))


# --- Joining two stages ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opinions:
    """What each stage says of the same crops, each shown as in flight."""

    first: Floats
    """Shape (n,): the first stage's logit."""
    second: Floats
    """Shape (n,): the second stage's."""
    first_kinds: Floats
    second_kinds: Floats
    """Shape (n, classes): each stage's logits of the kinds, the best is 0."""


def opinions(bundle: Bundle, crops: Crops, judged: npt.NDArray[np.int64]) -> Opinions:
    """Ask both stages of a bundle apart.

    Args:
        bundle: With a second stage.
        crops: Where the judged and their neighbours come from.
        judged: Indices.

    Returns:
        Their opinions, in the order of `judged`.
    """
    rule = bundle.second
    assert rule is not None
    alone = dataclasses.replace(rule, bias=0.0, budget_ms=0.0)
    first = dataclasses.replace(bundle, second=None)
    second = dataclasses.replace(
        bundle, second=dataclasses.replace(alone, first_weight=0.0, second_weight=1.0, kind_weight=0.0)
    )
    said = [_logit(score_crops(b, crops, judged)) for b in (first, second)]
    best = [logits.max(axis=1) for logits in said]
    return Opinions(best[0], best[1], said[0] - best[0][:, None], said[1] - best[1][:, None])


def _logit(score: npt.NDArray[np.floating]) -> Floats:
    p = np.clip(np.asarray(score, np.float64), 1e-7, 1.0 - 1e-7)
    return np.asarray(np.log(p / (1.0 - p)))


def fit_weights(said: Opinions, faulty: npt.NDArray[np.bool_]) -> tuple[float, float, float]:
    """Weights of the first and the second logit and the bias, by logistic regression (Newton's method).

    The first stage's share is set, not fitted: for telling crops apart the second stage alone is as good, but with a
    little of the first fewer healthy modules reach the scores of the surest faults.
    """
    x = np.stack([FIRST_SHARE * said.first + said.second, np.ones(len(faulty))], axis=1)
    scale, bias = regression(x, faulty)
    return FIRST_SHARE * float(scale), float(scale), float(bias)


def join(bundle: Bundle, crops: Crops) -> tuple[dict[str, Any], dict[str, float]]:
    """How the two stages of a bundle are joined best.

    Args:
        bundle: With a second stage; the weights it has are not looked at.
        crops: Of which some are held back.

    Returns:
        Keys of the bundle's `[second]` table, and the figures on the crops held back.
    """
    judged = np.flatnonzero(crops.split == HELD_BACK).astype(np.int64)
    names = [*bundle.labels, NORMAL_LABEL]
    truth = np.array([names.index(crops.labels[i]) for i in crops.label_index[judged]])
    faulty = truth < len(names) - 1
    said = opinions(bundle, crops, judged)
    first_weight, second_weight, bias = fit_weights(said, faulty)
    joined = first_weight * said.first + second_weight * said.second + bias
    score = 1.0 / (1.0 + np.exp(-joined))
    best = (0.0, 0.0, 0.5)
    for kind_weight in (0.0, 0.1, 0.2, 0.3, 0.5, 0.8):
        kind = (said.second_kinds + kind_weight * said.first_kinds).argmax(axis=1)
        for threshold in np.round(np.arange(0.3, 0.71, 0.05), 2):
            named = np.where(score >= threshold, kind, len(names) - 1)
            best = max(best, (macro_f1(truth, named, len(names)), kind_weight, float(threshold)))
    candidates = 1.0 / (1.0 + np.exp(-said.first[faulty]))
    rule = {
        "candidate_threshold": round(float(np.clip(np.quantile(candidates, 0.01), 0.01, 0.3)), 4),
        "first_weight": round(first_weight, 4),
        "second_weight": round(second_weight, 4),
        "bias": round(bias, 4),
        "kind_weight": best[1],
    }
    figures = {
        "n": float(len(judged)),
        "auroc": auroc(joined, faulty),
        "auroc_first": auroc(said.first, faulty),
        "auroc_second": auroc(said.second, faulty),
        "macro_f1": best[0],
        "crop_threshold": best[2],
    }
    return rule, {key: round(value, 4) for key, value in figures.items()}


def crop_threshold(bundle: Bundle, crops: Crops) -> float:
    """The score at which the twelve classes are told apart best (macro F1) on the crops held back."""
    judged = np.flatnonzero(crops.split == HELD_BACK).astype(np.int64)
    scores = score_crops(bundle, crops, judged)
    names = [*bundle.labels, NORMAL_LABEL]
    actual: npt.NDArray[np.int64] = np.array([names.index(crops.labels[i]) for i in crops.label_index[judged]])
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    steps = np.round(np.arange(0.1, 0.91, 0.02), 2)
    figures = [macro_f1(actual, np.where(best >= t, kind, len(names) - 1), len(names)) for t in steps]
    return float(steps[int(np.argmax(figures))])


# --- Thresholds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """Scores by the class that was said."""

    score: Floats
    kind: npt.NDArray[np.int64]
    modules: int
    """In the frames, to relate numbers to."""


def _detector(bundle: Bundle) -> Detector:
    """One that says all it thinks."""
    decode = dataclasses.replace(bundle.decode, max_detections=1000)
    if bundle.second is not None:
        second = dataclasses.replace(bundle.second, score_threshold=_LENIENT, class_thresholds={}, budget_ms=0.0)
        return Detector.open(dataclasses.replace(bundle, decode=decode, second=second), DetectorOptions())
    decode = dataclasses.replace(decode, score_threshold=_LENIENT, class_thresholds={})
    return Detector.open(dataclasses.replace(bundle, decode=decode), DetectorOptions())


def said_of(bundle: Bundle, scenes: Iterable[Scene], faults: bool) -> Said:
    """What a bundle says in frames.

    Args:
        bundle: Its thresholds are not looked at.
        scenes: Composed frames.
        faults: True: the surest detection on each faulty module (0 where there is none); False: every detection on a
            healthy one, or beside any.
    """
    detector = _detector(bundle)
    scores: list[float] = []
    kinds: list[int] = []
    modules = 0
    for scene in scenes:
        boxes = scene.boxes
        wanted = np.flatnonzero((scene.label_index >= 0) == faults)
        modules += len(wanted)
        best: dict[int, tuple[float, int]] = dict.fromkeys(wanted.tolist(), (0.0, 0)) if faults else {}
        for found in detector.detect(scene.image):
            x, y = (found.box[0] + found.box[2]) / 2, (found.box[1] + found.box[3]) / 2
            inside = (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])
            owners = np.flatnonzero(inside).tolist()
            if faults:
                for owner in owners:
                    if owner in best:
                        best[owner] = max(best[owner], (found.score, found.class_index))
            elif not any(scene.label_index[owner] >= 0 for owner in owners):
                scores.append(found.score)
                kinds.append(found.class_index)
        scores += [score for score, _ in best.values()]
        kinds += [kind for _, kind in best.values()]
    detector.close()
    return Said(np.array(scores), np.array(kinds, dtype=np.int64), modules)


def thresholds(bundle: Bundle, crops: Crops | None, share: float = 1.0) -> dict[str, Any]:
    """The thresholds by class that find most faults and cry wolf on no more than `FALSE_PER_1000` healthy modules.

    Healthy modules are those of the crops held back, and drawn ones; each kind by itself keeps the limit.

    Args:
        bundle: Its own thresholds are not looked at.
        crops: Of which some are held back; None: drawn modules only.
        share: Of the usual number of frames.

    Returns:
        `score_threshold` and `class_thresholds`.
    """
    limits = [FALSE_PER_1000, FALSE_PER_1000_DRAWN] if crops is not None else [FALSE_PER_1000_DRAWN]
    healthy, faulty = heard(bundle, crops, share)
    return choose(bundle.labels, list(zip(healthy, limits, strict=True)), faulty)


def heard(bundle: Bundle, crops: Crops | None, share: float) -> tuple[list[Said], list[Said]]:
    """What a bundle says on healthy and on faulty modules: of the crops held back, where there are some, and drawn."""
    sources = [crops, None] if crops is not None else [None]
    fault_count = max(8, round(_FAULT_FRAMES * share))
    healthy = heard_of_healthy(bundle, crops, share)
    faulty = [said_of(bundle, frames(bundle, source, 0.3, fault_count, 79), faults=True) for source in sources]
    return healthy, faulty


def heard_of_healthy(bundle: Bundle, crops: Crops | None, share: float) -> list[Said]:
    """What a bundle says of healthy modules: of the crops held back, where there are some, and drawn ones."""
    sources = [crops, None] if crops is not None else [None]
    count = max(8, round(_CONTROL_FRAMES * share))
    return [said_of(bundle, frames(bundle, source, 0.0, count, 77), faults=False) for source in sources]


def pooled_threshold(said: Said, rate: float) -> float:
    """The score that so many of 1,000 healthy modules reach, whatever class is said of them.

    The logits of the highest tenth are taken for an exponential tail, fitted as one that is censored at its own upper
    tenth: that one crop of 665 is surely a fault with a wrong label must not set the slope for all.

    Args:
        said: Detections on healthy modules.
        rate: False alarms in 1,000 of them, > 0.

    Returns:
        0 to 1; 0 where so few were said that nothing limits.

    Source:
        Maximum likelihood of an exponential under type II censoring (Epstein and Sobel, 1953).
    """
    top = min(len(said.score), round(_POOLED_TAIL * said.modules))
    if top < _LEAST_HEARD:
        return 0.0
    logits = np.sort(_logit(said.score))[::-1][:top]
    start, censored = float(logits[-1]), max(1, round(_CENSORED * top))
    kept = np.minimum(logits, logits[censored - 1]) - start
    slope = float(kept.sum()) / max(top - censored, 1)
    beyond = 1000.0 * top / (max(said.modules, 1) * rate)
    return float(1.0 / (1.0 + np.exp(-(start + slope * np.log(max(beyond, 1.0))))))


def choose(labels: tuple[str, ...], healthy: list[tuple[Said, float]], faulty: list[Said]) -> dict[str, Any]:
    """Thresholds by class that find most of the faulty within the limit on each set of healthy ones.

    Args:
        labels: Of the classes.
        healthy: False detections, and how many of 1,000 modules may have one; each set keeps its limit by itself.
        faulty: Detections on faulty modules.

    Returns:
        `score_threshold` and `class_thresholds`.
    """
    steps = np.round(1.0 / (1.0 + np.exp(-np.arange(*_LOGITS, 0.1))), 5)
    classes = len(labels)
    found = np.zeros((classes, len(steps)))
    for said in faulty:
        found += _reaching(said, classes, steps) / max(said.modules, 1)
    false = [false_rates(said, classes, steps) / limit for said, limit in healthy]
    chosen = np.full(classes, len(steps) - 1)
    for price in np.geomspace(1e-6, 10.0, 160):  # Of a false alarm, in faults found: as low as the limit lets.
        worth = found - price * sum(false, np.zeros_like(found))
        best = len(steps) - 1 - worth[:, ::-1].argmax(axis=1)  # The highest among equals.
        if all(one[np.arange(classes), best].sum() <= 1.0 for one in false):
            chosen = best
            break
    by_class = {name: float(steps[index]) for name, index in zip(labels, chosen, strict=True)}
    return {"score_threshold": max(by_class.values()), "class_thresholds": by_class}


def false_rates(said: Said, classes: int, steps: Floats) -> Floats:
    """How many of 1,000 healthy modules are taken for each class at each threshold, shape (classes, steps).

    A few hundred crops cannot show directly what happens to one in a thousand: the highest of 665 scores is passed by
    three in two thousand others. So the logits of the highest twentieth are taken for an exponential tail, whose slope
    all classes share; each class has its share of it, and half a module more. Where more were counted, that counts.
    """
    counted = 1000.0 * _reaching(said, classes, steps) / max(said.modules, 1)
    top = min(len(said.score), round(_TAIL * said.modules))
    if top < 10:
        return np.asarray(counted + 500.0 / max(said.modules, 1))
    order = np.argsort(said.score)[::-1][:top]
    logits = _logit(said.score[order])
    start = float(logits[-1])
    slope = max(float((logits - start).mean()), 1e-3)
    share = np.bincount(said.kind[order], minlength=classes) + 0.5
    tail = np.exp(-np.maximum(_logit(steps) - start, 0.0) / slope)
    return np.asarray(np.maximum(counted, 1000.0 * share[:, None] * tail / max(said.modules, 1)))


def _reaching(said: Said, classes: int, steps: Floats) -> Floats:
    """How many scores of each class reach each step, shape (classes, steps)."""
    return np.stack([(said.score[said.kind == k][:, None] >= steps).sum(axis=0) for k in range(classes)]).astype(float)


def reference_of(bundle: Bundle, crops: Crops | None, share: float = 1.0) -> Reference:
    """What the model says of frames like those it was made for, for the eye's watch over drift: half of them drawn."""
    count = max(20, round(FRAMES * share))
    sources = [crops, None] if crops is not None else [None]
    return measure(bundle, (scene.image for source in sources for scene in frames(bundle, source, 0.02, count, 78)))
