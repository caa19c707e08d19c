"""How one solar module looks to a thermal camera, by fault class: drawn by procedure, or taken from real crops.

A *patch* is float32, grey levels relative to the module's own level (0 = an ordinary part of a healthy module), in plan
view with the module's long side along the columns: shape (rows, columns) = (depth, width). Who places a patch adds the
level of the scene. The procedure follows what the crops of RaptorMaps' InfraredSolarModules show; it is simpler than
they are, and a model that is to be judged on real crops is trained on real crops too.

Rules: every random number comes from the generator passed in; no file is read but the one given to `Crops.load`.
"""

import dataclasses
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import ArtefactError

Patch: TypeAlias = npt.NDArray[np.float32]

FAULT_LABELS = (
    "cell",
    "cell-multi",
    "cracking",
    "diode",
    "diode-multi",
    "hot-spot",
    "hot-spot-multi",
    "offline-module",
    "shadowing",
    "soiling",
    "vegetation",
)
"""The fault classes, in the order of the crop set without its `No-Anomaly`; also the order of the zoo's labels."""

NORMAL_LABEL = "no-anomaly"

HELD_BACK = 2
"""Split of the training crops that students do not see."""

# Modules have 10 x 6 cells in three strings of two columns; the crops are 40 x 24, four pixels a cell.
_CELL_ROWS, _CELL_COLUMNS = 6, 10
_MAX_CROPS = 200_000
"""Crops of a file; the public set has 20,000."""
_MAX_FILE_BYTES = 256 << 20
"""Of a file of crops, packed."""
_MAX_UNPACKED_BYTES = 512 << 20
"""Of the same, unpacked: a bomb stops here."""
_UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, TypeError, SyntaxError, MemoryError, NotImplementedError, RuntimeError,
    UnicodeError, zipfile.BadZipFile, zlib.error, struct.error, AttributeError, OverflowError,
)  # fmt: skip
"""What numpy and zipfile raise for damaged files."""


def _grid(rows: int, columns: int) -> tuple[Patch, Patch]:
    """Row and column of every pixel's centre as fractions of the module, each shape (rows, columns)."""
    y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
    return y.astype(np.float32), x.astype(np.float32)


def _blob(y: Patch, x: Patch, centre: tuple[float, float], radius: tuple[float, float], power: float = 2.0) -> Patch:
    """A soft ellipse of height 1; `power` 2 is a Gaussian, 6 nearly a filled cell."""
    distance = ((y - centre[0]) / radius[0]) ** 2 + ((x - centre[1]) / radius[1]) ** 2
    return np.exp(-0.5 * distance ** (power / 2.0)).astype(np.float32)


def _healthy(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """A module without a fault: slight gradients, cooler frame, often a warmer junction box end."""
    patch = rng.normal(0, 3.0) * (y - 0.5) + rng.normal(0, 4.0) * (x - 0.5)
    edge = np.minimum(np.minimum(y, 1 - y) * y.shape[0], np.minimum(x, 1 - x) * y.shape[1])
    patch -= rng.uniform(4.0, 14.0) * np.exp(-edge / 0.7)
    if rng.random() < 0.5:  # Bands across, as the crops of crystalline modules have them.
        patch += rng.uniform(0.5, 2.0) * np.sin(x * rng.uniform(6, 40) + rng.uniform(0, 6.28))
    if rng.random() < 0.4:
        patch += rng.uniform(1.0, 4.0) * np.exp(-x * y.shape[1] / 4.0)
    return (patch + rng.normal(0, rng.uniform(0.3, 1.2), y.shape)).astype(np.float32)


def _hot_cells(y: Patch, x: Patch, rng: np.random.Generator, count: int) -> Patch:
    """`count` hot cells of the 6 x 10 grid, the later ones near the first."""
    patch = np.zeros_like(y)
    row, column = int(rng.integers(_CELL_ROWS)), int(rng.integers(_CELL_COLUMNS))
    for _ in range(count):
        centre = ((row + 0.5) / _CELL_ROWS, (column + 0.5) / _CELL_COLUMNS)
        radius = (rng.uniform(0.75, 1.0) * 0.5 / _CELL_ROWS, rng.uniform(0.75, 1.0) * 0.5 / _CELL_COLUMNS)
        patch = np.maximum(patch, rng.uniform(55.0, 100.0) * _blob(y, x, centre, radius, power=4.0))
        row = int(np.clip(row + rng.integers(-2, 3), 0, _CELL_ROWS - 1))
        column = int(np.clip(column + rng.integers(-3, 4), 0, _CELL_COLUMNS - 1))
    return patch


def _cell(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _hot_cells(y, x, rng, 1)


def _cell_multi(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _hot_cells(y, x, rng, int(rng.integers(3, 6)))


def _cracking(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """Many irregular hot islands over the whole module."""
    patch = np.zeros_like(y)
    for _ in range(int(rng.integers(5, 9))):
        centre = (rng.uniform(0.08, 0.92), rng.uniform(0.05, 0.95))
        radius = (rng.uniform(0.05, 0.10), rng.uniform(0.03, 0.07))
        patch = np.maximum(patch, rng.uniform(50.0, 110.0) * _blob(y, x, centre, radius, power=3.0))
    return patch


def _strings(y: Patch, x: Patch, rng: np.random.Generator, count: int) -> Patch:
    """`count` of the three strings are bypassed: bands along the module, warm all over."""
    patch = np.zeros_like(y)
    for string in rng.choice(3, size=count, replace=False):
        inside = (y >= string / 3.0) & (y < (string + 1) / 3.0)
        patch += np.where(inside, rng.uniform(29.0, 44.0), 0.0).astype(np.float32)
    return patch


def _diode(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _strings(y, x, rng, 1)


def _diode_multi(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _strings(y, x, rng, 2)


def _spots(y: Patch, x: Patch, rng: np.random.Generator, count: int) -> Patch:
    """Round, soft spots that keep to no cell, with a faint halo."""
    patch = np.zeros_like(y)
    for _ in range(count):
        centre = (rng.uniform(0.2, 0.8), rng.uniform(0.12, 0.88))
        size = rng.uniform(0.07, 0.11)
        patch += rng.uniform(45.0, 85.0) * _blob(y, x, centre, (size, size * 0.5))
        patch += rng.uniform(8.0, 16.0) * _blob(y, x, centre, (size * 3.0, size * 1.5))
    return patch


def _hot_spot(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _spots(y, x, rng, 1)


def _hot_spot_multi(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    return _spots(y, x, rng, int(rng.integers(2, 4)))


def _offline(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """Not connected: all of it warmer than its neighbours."""
    return np.full_like(y, rng.uniform(36.0, 54.0))


def _shadowing(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """A cold shadow with a straight border; the strings it starves are warmer."""
    angle = rng.uniform(-0.5, 0.5) + (0.0 if rng.random() < 0.5 else np.pi)
    side = (y - 0.5) * np.sin(angle) + (x - 0.5) * np.cos(angle) - rng.uniform(-0.05, 0.2)
    shadow = 1.0 / (1.0 + np.exp(-side * 40.0))
    patch = rng.uniform(8.0, 16.0) * (1 - shadow) - rng.uniform(26.0, 45.0) * shadow
    return np.asarray(patch, dtype=np.float32)


def _soiling(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """Dirt along one long edge: a broad, uneven warm stripe."""
    edge = y if rng.random() < 0.5 else 1 - y
    ripple = 0.16 + 0.05 * np.sin(x * rng.uniform(8, 20) + rng.uniform(0, 6.28))
    stripe = 1.0 / (1.0 + np.exp((edge - ripple - rng.uniform(0.0, 0.12)) * 30.0))
    return np.asarray(rng.uniform(30.0, 60.0) * stripe, dtype=np.float32)


def _vegetation(y: Patch, x: Patch, rng: np.random.Generator) -> Patch:
    """Plants over one corner: cold leaves and the hot cells that they shade."""
    corner = (float(rng.integers(2)), float(rng.integers(2)))
    patch = -rng.uniform(22.0, 40.0) * _blob(y, x, corner, (0.35, 0.16), power=4.0)
    for _ in range(int(rng.integers(2, 4))):
        centre = (abs(corner[0] - rng.uniform(0.2, 0.6)), abs(corner[1] - rng.uniform(0.12, 0.3)))
        patch += rng.uniform(30.0, 65.0) * _blob(y, x, centre, (0.09, 0.05), power=3.0)
    return patch.astype(np.float32)


_DRAW: dict[str, Callable[[Patch, Patch, np.random.Generator], Patch]] = {
    "cell": _cell,
    "cell-multi": _cell_multi,
    "cracking": _cracking,
    "diode": _diode,
    "diode-multi": _diode_multi,
    "hot-spot": _hot_spot,
    "hot-spot-multi": _hot_spot_multi,
    "offline-module": _offline,
    "shadowing": _shadowing,
    "soiling": _soiling,
    "vegetation": _vegetation,
}


def draw_module(label: str, rows: int, columns: int, rng: np.random.Generator) -> Patch:
    """Draw one module by procedure.

    Args:
        label: One of `FAULT_LABELS`, or "" for a healthy module.
        rows: Of the patch, pixels; >= 8.
        columns: Of the patch, pixels; >= 8.
        rng: Where all variation comes from.

    Returns:
        Shape (rows, columns), float32, grey levels relative to the scene's module level.

    Raises:
        KeyError: The label is none of ours.
    """
    y, x = _grid(rows, columns)
    patch = _healthy(y, x, rng)
    if label:
        patch = patch + _DRAW[label](y, x, rng)
    return patch.astype(np.float32, copy=False)


def _whole_file(path: Path) -> io.BytesIO:
    """The file in memory, so that no reader leaks it; refuses what is too large, packed or unpacked."""
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"larger than {_MAX_FILE_BYTES >> 20} MiB")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED_BYTES:
            raise ValueError(f"unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MiB")
    return io.BytesIO(data)


@dataclass(frozen=True)
class Crops:
    """Real module crops: what `modules_ir_visible.npz` holds, checked."""

    images: npt.NDArray[np.uint8]
    """Shape (n, 40, 24): portrait, as stored."""
    labels: tuple[str, ...]
    """Label of every class index; kebab-case."""
    label_index: npt.NDArray[np.int64]
    """Shape (n,): index into `labels`."""
    split: npt.NDArray[np.uint8]
    """Shape (n,): 0 train, 1 validation. All zero when the file has no split."""

    @classmethod
    def load(cls, path: Path) -> "Crops":
        """Read and check an `.npz` of crops.

        Args:
            path: File with `images` (n, rows, columns) uint8, `label` (n,), `classes` (names) and, optionally, `split`.

        Returns:
            The crops; images in the stored (portrait) orientation.

        Raises:
            ArtefactError: The file is missing, unreadable, too large or inconsistent.
        """
        try:
            with np.load(_whole_file(path), allow_pickle=False) as data:
                names = [str(name) for name in data["classes"].tolist()]
                images = np.asarray(data["images"])
                label_index = np.asarray(data["label"]).astype(np.int64)
                split = np.asarray(data["split"]) if "split" in data.files else np.zeros(len(images), np.uint8)
        except _UNREADABLE as error:
            raise ArtefactError(f"{path}: cannot be read as module crops ({error})") from error
        if not images.ndim or label_index.ndim != 1 or split.ndim != 1 or split.dtype.kind not in "iub":
            raise ArtefactError(f"{path}: `images`, `label` and `split` are not what module crops have")
        if images.ndim != 3 or images.dtype != np.uint8 or not 0 < len(images) <= _MAX_CROPS:
            raise ArtefactError(f"{path}: `images` is {images.dtype} {images.shape}; expected uint8 (n, rows, columns)")
        if min(images.shape[1:]) < 8 or max(images.shape[1:]) > 512:
            raise ArtefactError(f"{path}: crops of {images.shape[1:]} pixels; expected 8 to 512 a side")
        if len(label_index) != len(images) or len(split) != len(images):
            raise ArtefactError(f"{path}: `label` or `split` is not as long as `images`")
        if label_index.min() < 0 or label_index.max() >= len(names):
            raise ArtefactError(f"{path}: a label index lies outside `classes`")
        labels = tuple(name.strip().lower().replace("_", "-").replace(" ", "-") for name in names)
        unknown = sorted(set(labels) - set(FAULT_LABELS) - {NORMAL_LABEL})
        if unknown:
            raise ArtefactError(f"{path}: unknown classes {', '.join(unknown)}; known: {', '.join(FAULT_LABELS)}")
        return cls(images, labels, label_index, split.astype(np.uint8))

    def where(self, label: str, split: int | None = None) -> npt.NDArray[np.int64]:
        """Indices of the crops of one class, optionally of one split only."""
        if label not in self.labels:
            return np.zeros(0, np.int64)
        chosen = self.label_index == self.labels.index(label)
        if split is not None:
            chosen &= self.split == split
        return np.flatnonzero(chosen).astype(np.int64)

    def with_part_held_back(self, one_in: int = 8, seed: int = 4) -> "Crops":
        """The same crops, one in `one_in` of the training split moved to split `HELD_BACK`.

        Students never see these; thresholds and the weights of two stages are set on them, so that the validation
        split serves for figures alone.
        """
        train = np.flatnonzero(self.split == 0)
        split = self.split.copy()
        split[np.random.default_rng(seed).permutation(train)[: len(train) // one_in]] = HELD_BACK
        return dataclasses.replace(self, split=split)

    def patch(self, index: int) -> tuple[Patch, float]:
        """One crop in plan view (long side along the columns) relative to its median, and that median."""
        plan = np.rot90(self.images[index]).astype(np.float32)
        level = float(np.median(plan))
        return plan - level, level
