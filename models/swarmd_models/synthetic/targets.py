"""What every cell of the output grid should say of a scene."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.scenes import Scene
from swarmd_models.synthetic.thermal import FAULT_LABELS

STRIDE = 8
"""Pixels a cell of the target grid, that of the detector's finest scale."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Wanted outputs, one row a cell; cells row by row."""

    fault: npt.NDArray[np.float32]
    """Shape (cells,): probability that there is a fault."""
    kind: npt.NDArray[np.float32]
    """Shape (cells, classes): probability of each kind, given that there is one."""
    weight: npt.NDArray[np.float32]
    """Shape (cells,): 0 = say what you like."""
    distance: npt.NDArray[np.float32]
    """Shape (cells, 4): left, top, right, bottom in strides; -1 where there is no module."""


def grid_of(width: int, height: int) -> npt.NDArray[np.float32]:
    """Centres of the cells, shape (cells, 2), pixels x then y."""
    columns, rows = width // STRIDE, height // STRIDE
    y, x = np.mgrid[0:rows, 0:columns]
    return ((np.stack([x.ravel(), y.ravel()], axis=1) + 0.5) * STRIDE).astype(np.float32)


def targets_of(
    scene: Scene, soft: npt.NDArray[np.float32] | None = None, trust: float = 0.5, classes: int = len(FAULT_LABELS)
) -> Targets:
    """Targets of one scene.

    The cells near the centre of a faulty module are to name its class; the rest of that module is left open (its box
    suppresses it). All cells near the centre of any module learn its box, healthy or not.

    Args:
        scene: With boxes of all modules.
        soft: A teacher's probabilities (crops, fault classes + healthy) of each real crop;
            None, or a row of zeros: the label alone.
        trust: Weight of the teacher against the label, 0 to 1.
        classes: That the scene's labels count.

    Returns:
        The targets.
    """
    height, width = scene.image.shape
    grid = grid_of(width, height)
    cells = len(grid)
    fault, kind = np.zeros(cells, np.float32), np.full((cells, classes), 1.0 / classes, np.float32)
    weight, distance = np.ones(cells, np.float32), np.full((cells, 4), -1.0, np.float32)
    shape = (width // STRIDE, height // STRIDE)
    for box, label in zip(scene.boxes, scene.label_index, strict=True):
        if label >= 0:
            weight[_cells(box, 0.5, 0.5, *shape)] = 0.0
    # A second pass: the open rim of one module must not silence the core of the next.
    for box, label, crop in zip(scene.boxes, scene.label_index, scene.crop_index, strict=True):
        core = core_cells(box, *shape)
        weight[core] = 1.0
        point = grid[core]
        distance[core] = np.maximum(np.concatenate([point - box[:2], box[2:] - point], axis=1) / STRIDE, 0.0)
        sure, kinds = float(label >= 0), np.zeros(classes, np.float32)
        if label >= 0:
            kinds[label] = 1.0
        if soft is not None and crop >= 0 and soft[crop].any():
            said = soft[crop]
            among = said[:classes] / max(float(said[:classes].sum()), 1e-6)
            kinds = among if label < 0 else (1 - trust) * kinds + trust * among
            sure = (1 - trust) * sure + trust * float(said[:classes].sum())
        fault[core] = sure
        if kinds.any():
            kind[core] = kinds
    return Targets(fault, kind, weight, distance)


def core_cells(box: npt.NDArray[np.float32], columns: int, rows: int) -> npt.NDArray[np.int64]:
    """Cells near the centre of a box, at least one if the centre is in the frame."""
    core = _cells(box, 0.3, 0.36, columns, rows)
    if len(core):
        return core
    x, y = int((box[0] + box[2]) / 2 / STRIDE), int((box[1] + box[3]) / 2 / STRIDE)
    inside = 0 <= x < columns and 0 <= y < rows
    return np.array([y * columns + x] if inside else [], dtype=np.int64)


def _cells(
    box: npt.NDArray[np.float32], reach_x: float, reach_y: float, columns: int, rows: int
) -> npt.NDArray[np.int64]:
    """Indices of the cells whose centres lie within a share of a box's sides from its centre."""
    x1, y1, x2, y2 = (float(v) for v in box)
    cx, cy, dx, dy = (x1 + x2) / 2, (y1 + y2) / 2, (x2 - x1) * reach_x, (y2 - y1) * reach_y
    first_x = max(int(np.ceil((cx - dx) / STRIDE - 0.5)), 0)
    last_x = min(int(np.floor((cx + dx) / STRIDE - 0.5)), columns - 1)
    first_y = max(int(np.ceil((cy - dy) / STRIDE - 0.5)), 0)
    last_y = min(int(np.floor((cy + dy) / STRIDE - 0.5)), rows - 1)
    if last_x < first_x or last_y < first_y:
        return np.zeros(0, np.int64)
    y, x = np.mgrid[first_y : last_y + 1, first_x : last_x + 1]
    return np.asarray((y * columns + x).ravel(), dtype=np.int64)
