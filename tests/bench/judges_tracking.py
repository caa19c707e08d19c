"""TrackEval as the judge of tracks, and `trackers.eval`, which says that it computes the same, beside it.

Both are strangers' code: nothing here computes a figure. TrackEval is fed as its own datasets feed it, with identities
that count from 0 and with its own overlap of boxes. Runs in `.venv-judges` (`make setup-extras`).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Named: TypeAlias = tuple[int, float, float, float, float]
"""An identity and its box."""
APART = 1e-9
"""How far both judges may be from each other: sums of the same terms in another order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says of one clip."""

    idf1: float
    hota: float
    deta: float
    assa: float
    switches: int


class _Sides:
    """Truth and answers of a clip, frame by frame, with identities that count from 0."""

    def __init__(self, truth: Sequence[Sequence[Named]], told: Sequence[Sequence[Named]]) -> None:
        self.counts: list[int] = []
        self.ids: list[list[Any]] = []
        self.boxes: list[list[Any]] = []
        for frames in (truth, told):
            names: dict[int, int] = {}
            self.ids.append(
                [np.array([names.setdefault(one[0], len(names)) for one in frame], np.int64) for frame in frames]
            )
            self.boxes.append([np.array([one[1:] for one in frame], np.float64).reshape(-1, 4) for frame in frames])
            self.counts.append(len(names))


def by_trackeval(truth: Sequence[Sequence[Named]], told: Sequence[Sequence[Named]]) -> Verdict:
    """HOTA, identity and CLEAR MOT by TrackEval's own metrics."""
    import trackeval
    from trackeval.datasets._base_dataset import _BaseDataset

    sides = _Sides(truth, told)
    data = {
        "num_timesteps": len(truth),
        "gt_ids": sides.ids[0],
        "tracker_ids": sides.ids[1],
        "num_gt_ids": sides.counts[0],
        "num_tracker_ids": sides.counts[1],
        "num_gt_dets": sum(map(len, truth)),
        "num_tracker_dets": sum(map(len, told)),
        "similarity_scores": [
            _BaseDataset._calculate_box_ious(one, other, box_format="x0y0x1y1")
            for one, other in zip(*sides.boxes, strict=True)
        ],
    }
    metrics = trackeval.metrics
    higher = metrics.HOTA().eval_sequence(data)
    identity = metrics.Identity({"PRINT_CONFIG": False}).eval_sequence(data)
    clear = metrics.CLEAR({"PRINT_CONFIG": False}).eval_sequence(data)
    hota, deta, assa = (float(np.mean(higher[name])) for name in ("HOTA", "DetA", "AssA"))
    return Verdict(float(identity["IDF1"]), hota, deta, assa, int(clear["IDSW"]))


def by_trackers(truth: Sequence[Sequence[Named]], told: Sequence[Sequence[Named]]) -> Verdict:
    """The same by `trackers.eval`."""
    from trackers.eval.box import box_iou
    from trackers.eval.clear import compute_clear_metrics
    from trackers.eval.hota import compute_hota_metrics
    from trackers.eval.identity import compute_identity_metrics

    sides = _Sides(truth, told)
    likeness = [
        box_iou(one, other, "xyxy") if len(one) and len(other) else np.zeros((len(one), len(other)))
        for one, other in zip(*sides.boxes, strict=True)
    ]
    identity = compute_identity_metrics(*sides.ids, likeness)
    higher = compute_hota_metrics(*sides.ids, likeness)
    switches = int(compute_clear_metrics(*sides.ids, likeness)["IDSW"])
    hota, deta, assa = (float(higher[name]) for name in ("HOTA", "DetA", "AssA"))
    return Verdict(float(identity["IDF1"]), hota, deta, assa, switches)


def apart(one: Verdict, other: Verdict) -> float:
    """The largest difference of two verdicts on one clip; infinite where they count other switches."""
    if one.switches != other.switches:
        return float("inf")
    pairs = ((one.idf1, other.idf1), (one.hota, other.hota), (one.deta, other.deta), (one.assa, other.assa))
    return max(abs(a - b) for a, b in pairs)


def judge(truth: Sequence[Sequence[Named]], told: Sequence[Sequence[Named]]) -> Verdict:
    """TrackEval's verdict; ends the process where `trackers.eval` has another."""
    verdict, second = by_trackeval(truth, told), by_trackers(truth, told)
    if apart(verdict, second) > APART:
        sys.exit(f"TrackEval and trackers.eval differ on a clip: {verdict} and {second}")
    return verdict
