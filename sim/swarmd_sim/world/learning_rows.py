"""Labelled rows of drawn modules: what the zoo's small detector makes of each, and what fault is there.

Scenes are drawn, the detector runs as it does on a device, and a row is what its heads read at the middle of a faulty
module. A site's camera has less contrast than those that the detector was made for, so its own head errs more there.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import load_bundle
from swarmd_models.evaluate import nominal_pixel_m
from swarmd_models.heads import Features, find_heads, read_head
from swarmd_models.synthetic.scenes import SceneMaker, SceneOptions
from swarmd_models.synthetic.targets import STRIDE

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
MODEL = "zoo:small-320"
_MIDDLE = 128.0
"""Grey about which contrast is lost."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Modules with a fault."""

    features: F64
    """Shape (rows, inputs + 1): what the heads read, and a 1 for the bias."""
    labels: I64
    """Shape (rows,): class of each."""

    def part(self, chosen: I64 | slice) -> "Rows":
        """Some of them."""
        return Rows(self.features[chosen], self.labels[chosen])


@lru_cache(maxsize=1)
def _net() -> tuple[Features, F64, bytes]:
    bundle = load_bundle(MODEL)
    path = Path(bundle.model_path)
    data = path.read_bytes()
    tensor, heads = find_heads(data, len(bundle.labels))
    kernel, bias = read_head(data, heads["kind"])
    return Features(path, tensor), np.concatenate([kernel, bias[:, None]], axis=1), bytes.fromhex(bundle.digest)


def base_head() -> F64:
    """The detector's own head for kinds, shape (classes, inputs + 1)."""
    return _net()[1].copy()


def base_digest() -> bytes:
    """32 bytes that name the bundle."""
    return _net()[2]


@lru_cache(maxsize=8)
def drawn_rows(seed: int, scenes: int, contrast: float) -> Rows:
    """Rows of some scenes, some forty of each.

    Args:
        seed: Of the scenes.
        scenes: How many.
        contrast: 1: as the detector knows it; 0: grey.
    """
    net = _net()[0]
    bundle = load_bundle(MODEL)
    options = SceneOptions(
        bundle.input.width,
        bundle.input.height,
        pixel_m=nominal_pixel_m(bundle),
        fault_share=0.9,
        plain_share=0.0,
        real_share=0.0,
        dense_share=1.0,
    )
    maker = SceneMaker(options, seed, None)
    columns, lines = bundle.input.width // STRIDE, bundle.input.height // STRIDE
    features, labels = [], []
    for index in range(scenes):
        scene = maker.scene(index)
        image = np.clip(_MIDDLE + (scene.image.astype(np.float64) - _MIDDLE) * contrast, 0, 255).astype(np.uint8)
        cells = net.of(image)
        for box, label in zip(scene.boxes, scene.label_index, strict=True):
            column, line = int((box[0] + box[2]) / 2 // STRIDE), int((box[1] + box[3]) / 2 // STRIDE)
            if label >= 0 and 0 <= column < columns and 0 <= line < lines:
                features.append(cells[line * columns + column])
                labels.append(int(label))
    found = np.array(features, np.float64)
    return Rows(np.concatenate([found, np.ones((len(found), 1))], axis=1), np.array(labels, np.int64))


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
