"""Labelled rows of drawn modules: what the zoo's small detector makes of each, and what fault is there.

Scenes are drawn, the detector runs as it does on a device, and a row is what its heads read at the middle of a faulty
module. A site's camera has less contrast than those that the detector was made for, so its own head errs more there.
"""

from functools import lru_cache

import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.head_rows import F64, HeadNet, Rows, drawn_scenes

MODEL = "zoo:small-320"


@lru_cache(maxsize=1)
def _net() -> HeadNet:
    return HeadNet(load_bundle(MODEL))


def base_head() -> F64:
    """The detector's own head for kinds, shape (classes, inputs + 1)."""
    return _net().head.copy()


def base_digest() -> bytes:
    """32 bytes that name the bundle."""
    return bytes.fromhex(_net().bundle.digest)


@lru_cache(maxsize=8)
def drawn_rows(seed: int, scenes: int, contrast: float) -> Rows:
    """Rows of some scenes, some forty of each.

    Args:
        seed: Of the scenes.
        scenes: How many.
        contrast: 1: as the detector knows it; 0: grey.
    """
    net = _net()
    return net.rows(drawn_scenes(net.bundle, seed, scenes, contrast))


def dealt(rows: Rows, count: int, alpha: float, rng: np.random.Generator) -> list[Rows]:
    """Rows dealt out so that members see different kinds: of each class, shares by Dirichlet.

    Args:
        rows: All.
        count: Among so many.
        alpha: The smaller, the more unequal.
        rng: Draws.

    Source:
        Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution (2019).
    """
    parts: list[list[int]] = [[] for _ in range(count)]
    for label in range(int(rows.labels.max()) + 1):
        there = rng.permutation(np.flatnonzero(rows.labels == label))
        cuts = (np.cumsum(rng.dirichlet([alpha] * count))[:-1] * len(there)).astype(int)
        for part, some in zip(parts, np.split(there, cuts), strict=True):
            part.extend(int(one) for one in some)
    return [rows.part(np.array(sorted(part), np.int64)) for part in parts]
