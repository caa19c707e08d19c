"""Spot checks: whether what a lender answered is what the own model answers for the same input.

Runtimes differ in the last digits, so two answers agree where nobody would decide otherwise by them:

- A graph's tensors: same types and shapes, NaN in the same places, no number further off than a tenth of its output's
  range.
- Detections: each has one of the other's, of its class, with an IoU of a half and a score within 0.15. One in five, and
  one more, may have none where its score lies near the threshold.

A check runs behind everything else that the worker does, within a minute or not at all.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import numpy as np

from swarmd.worker.oip import OipError
from swarmd_models.backends.base import Array
from swarmd_models.service import DETECT, SERIES, TEXT, Tensors

OPEN_MAX = 16
"""Checks at once: 4 MiB of inputs. Further ones are left out; a lender's first answers come one after the other."""
PATIENCE_S = 60.0
"""Seconds that a check may wait for the device to have time."""
AGAIN_S = 0.5
"""Seconds after which a queue that was full is tried again."""
_FAR_SHARE = 0.1
"""Of an output's range: a lie has to be larger to change what anybody does."""
_FAR_STEPS = 3
"""Of a quantised output: two runtimes round differently."""
_SCORE_FAR = 0.15
_NEAR_MARGIN = 0.1
"""Logits between a token and the next best: float32 graphs in two runtimes differ by less than a thousandth of that."""
_NEAR_THRESHOLD = 0.1
_IOU_LEAST = 0.5
_LOOSE_SHARE = 0.2


class Threshold(Protocol):
    """The score from which a detection of a label counts."""

    def __call__(self, label: str, /) -> float:
        """`Bundle.threshold_of`."""


def agrees(lane: str, own: Mapping[str, Array], theirs: Mapping[str, Array], threshold_of: Threshold) -> bool:
    """Whether an answer is as good as the own model's.

    Args:
        lane: Of the model.
        own: All that the own model gives.
        theirs: What the lender gave, of these.
        threshold_of: See `Threshold`.
    """
    if not theirs or not theirs.keys() <= own.keys():
        return False
    if any(theirs[name].dtype != own[name].dtype or theirs[name].ndim != own[name].ndim for name in theirs):
        return False
    if lane == DETECT:
        return _detections_agree(own, theirs, threshold_of)
    if lane == TEXT:
        return _texts_agree(own, theirs)
    if lane == SERIES:
        return _series_agree(own, theirs)
    return all(_numbers_agree(own[name], theirs[name]) for name in theirs)


def _texts_agree(own: Mapping[str, Array], theirs: Mapping[str, Array]) -> bool:
    """The same tokens, up to one that is hardly likelier than the next: runtimes round, and all behind it differs."""
    here, there = own["tokens"], theirs.get("tokens")
    if there is None:
        return False
    for place, token in enumerate(here.tolist()):
        if place >= len(there) or token != int(there[place]):
            return float(own["margins"][place]) <= _NEAR_MARGIN
    return len(here) == len(there)


def _series_agree(own: Mapping[str, Array], theirs: Mapping[str, Array]) -> bool:
    """As numbers; a window's label may be another where the own scores hardly tell the two apart."""
    for name, array in theirs.items():
        if not array.dtype.hasobject:
            if not _numbers_agree(own[name], array):
                return False
        elif len(array) != len(own[name]):
            return False
        elif name == "labels":
            tops = np.sort(own["scores"], axis=1)[:, -2:] if own["scores"].shape[1] > 1 else None
            is_sure = np.ones(len(array), np.bool_) if tops is None else tops[:, 1] - tops[:, 0] > _SCORE_FAR
            if (is_sure & (own[name] != array)).any():
                return False
    return True


def _numbers_agree(own: Array, theirs: Array) -> bool:
    if own.shape != theirs.shape:
        return False
    if own.size == 0 or own.dtype.hasobject:
        return bool(np.array_equal(own, theirs))
    left, right = own.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return False
    known = np.isfinite(left)
    if not known.any():
        return True
    left, right = left[known], right[known]
    steps = _FAR_STEPS if own.dtype.kind in "iu" else 1e-3 * float(np.abs(left).max()) + 1e-6
    return bool(np.abs(left - right).max() <= max(steps, _FAR_SHARE * float(np.ptp(left))))


def _detections_agree(own: Mapping[str, Array], theirs: Mapping[str, Array], threshold_of: Threshold) -> bool:
    counts = {len(array) for array in theirs.values()}
    if len(counts) != 1 or ("boxes" in theirs and theirs["boxes"].shape[1:] != (4,)):
        return False
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in theirs.values()):
        return False
    here, there = len(own["scores"]), counts.pop()
    loose = 1 + int(_LOOSE_SHARE * max(here, there))
    if abs(here - there) > loose:
        return False
    fits = np.ones((here, there), np.bool_)
    for name in ("classes", "labels"):
        if name in theirs:
            fits &= own[name][:, None] == theirs[name][None, :]
    if "scores" in theirs:
        fits &= np.abs(own["scores"][:, None] - theirs["scores"][None, :]) <= _SCORE_FAR
    if "boxes" in theirs:
        fits &= _ious(own["boxes"], theirs["boxes"]) >= _IOU_LEAST
    free = set(range(there))
    alone = []
    for row in range(here):
        found = next((column for column in np.flatnonzero(fits[row]).tolist() if column in free), None)
        if found is None:
            alone.append((float(own["scores"][row]), str(own["labels"][row])))
        else:
            free.discard(found)
    labels = theirs.get("labels")
    for column in sorted(free):
        # What says no score, or no label, cannot be near a threshold.
        score = float(theirs["scores"][column]) if "scores" in theirs else np.inf
        alone.append((score, str(labels[column]) if labels is not None else ""))
    near = all(score <= threshold_of(label) + _NEAR_THRESHOLD for score, label in alone)
    return near and len(alone) <= loose


def _ious(own: Array, theirs: Array) -> Array:
    """Intersection over union, each with each; shape (own, theirs)."""
    left, right = own[:, None, :].astype(np.float64), theirs[None, :, :].astype(np.float64)
    sides = np.minimum(left[..., 2:], right[..., 2:]) - np.maximum(left[..., :2], right[..., :2])
    common = np.prod(np.clip(sides, 0.0, None), axis=-1)
    areas = np.prod(left[..., 2:] - left[..., :2], axis=-1) + np.prod(right[..., 2:] - right[..., :2], axis=-1)
    ious: Array = common / np.maximum(areas - common, 1e-9)
    return ious


class SpotChecks:
    """Checks under way."""

    def __init__(self, judge: Callable[[int, bool], None]) -> None:
        """`judge` tells the brain what came of a check, by the number of the request."""
        self._judge = judge
        self._open: set[asyncio.Task[None]] = set()
        self.counters: Counter[str] = Counter()
        """checks_right, checks_wrong, and checks_left_out: there was no time or room for them."""

    def begin(
        self,
        number: int,
        run: Callable[[float], Awaitable[Tensors]],
        compare: Callable[[Tensors], bool],
        done: Callable[[], None],
    ) -> None:
        """Check one answer when there is time.

        Args:
            number: Of the borrowed request.
            run: Has the own model answer within so many seconds; raises `OipError` (503: ask again in a moment).
            compare: Whether the lender's answer is as good as that.
            done: Called once, whatever came of it.
        """
        if len(self._open) >= OPEN_MAX:
            self.counters["checks_left_out"] += 1
            done()
            return
        task = asyncio.create_task(self._check(number, run, compare))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: done())

    async def _check(
        self, number: int, run: Callable[[float], Awaitable[Tensors]], compare: Callable[[Tensors], bool]
    ) -> None:
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0.0:
            try:
                own = await run(left_s)
            except OipError as error:
                if error.status != 503:
                    break  # The own model cannot say.
                await asyncio.sleep(AGAIN_S)
                continue
            is_right = compare(own)
            self.counters["checks_right" if is_right else "checks_wrong"] += 1
            self._judge(number, is_right)
            return
        self.counters["checks_left_out"] += 1
