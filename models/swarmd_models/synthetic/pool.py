"""Which real crop to place next: near the frame's level, in a mix of classes that teaches.

Brightness is not temperature: the level of a crop says what its camera was set to. So a frame has one level and takes
crops whose own median lies near it, and the little that a level does tell of a class stays in the frame.
"""

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.compose import MODULE_COLUMNS, MODULE_ROWS
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, Patch

_WINDOW_LEVELS = 10.0
"""Grey levels around the wanted one within which a crop may stand in."""
_LEAST = 150
"""A window holds at least so many crops, however odd its level."""


class CropPool:
    """The crops of one split, drawn by level. Not thread-safe."""

    def __init__(self, crops: Crops, split: int, fault_share: float) -> None:
        """Weigh and sort the crops.

        Args:
            crops: Where they come from.
            split: 0 train, 1 validation.
            fault_share: Of all that are drawn; within the faults, classes weigh by the root of their number.
        """
        self.crops = crops
        chosen = np.flatnonzero(crops.split == split)
        medians = np.median(crops.images[chosen].reshape(len(chosen), -1), axis=1)
        order = np.argsort(medians, kind="stable")
        self._index = chosen[order]
        self._median = medians[order]
        self._patches = {int(i): _to_module(crops.images[i]) for i in self._index}
        self._level_of = dict(zip((int(i) for i in self._index), (float(m) for m in self._median), strict=True))
        names = np.array(crops.labels)[crops.label_index[self._index]]
        healthy = names == NORMAL_LABEL
        weight = np.zeros(len(names))
        for label in FAULT_LABELS:
            weight[names == label] = 1.0 / np.sqrt(max(int((names == label).sum()), 1))
        weight *= fault_share / max(weight.sum(), 1e-9)
        weight[healthy] = (1.0 - fault_share) / max(int(healthy.sum()), 1)
        self._all = np.concatenate([[0.0], np.cumsum(weight)])
        self._healthy = np.concatenate([[0.0], np.cumsum(healthy.astype(np.float64))])

    def level(self, rng: np.random.Generator) -> float:
        """A level as likely as the crops' own."""
        return float(self._median[self._pick(self._all, 0, len(self._index), rng)])

    def draw(self, level: float, rng: np.random.Generator, healthy: bool = False) -> int:
        """Index of a crop whose median lies near `level`; only a healthy one if so wished."""
        low = int(np.searchsorted(self._median, level - _WINDOW_LEVELS))
        high = int(np.searchsorted(self._median, level + _WINDOW_LEVELS))
        lack = _LEAST - (high - low)
        if lack > 0:
            low, high = max(low - lack, 0), min(high + lack, len(self._index))
        sums = self._healthy if healthy else self._all
        if healthy and sums[high] - sums[low] < 1.0:
            low, high = 0, len(self._index)
        return int(self._index[self._pick(sums, low, high, rng)])

    def patch(self, index: int) -> Patch:
        """A crop of this split at the size of a module on the plan, relative to its median."""
        return self._patches[index].astype(np.float32) - np.float32(self._level_of[index])

    @staticmethod
    def _pick(sums: npt.NDArray[np.float64], low: int, high: int, rng: np.random.Generator) -> int:
        where = rng.uniform(sums[low], sums[high])
        return min(max(int(np.searchsorted(sums, where, side="right")) - 1, low), high - 1)


def _to_module(crop: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    plan = np.ascontiguousarray(np.rot90(crop))
    return np.asarray(cv2.resize(plan, (MODULE_COLUMNS, MODULE_ROWS), interpolation=cv2.INTER_LINEAR), dtype=np.uint8)
