"""A farm whose modules are real crops: what drones see when they fly over a plant of photographed faults.

Places, lanes and cells are the farm's own. A flight has one grey level, as a camera that looks at one plant, and takes
crops whose own median lies near it; faulty modules take a crop of a class drawn by the root of how often the crops show
it, as composed frames do. The same seed gives the same plant.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from swarmd_models.synthetic.pool import CropPool
from swarmd_models.synthetic.thermal import Crops, Patch
from swarmd_sim.world.farm import Farm, Module

_CONTRAST = 0.08
"""Standard deviation of the logarithm by which a plant's contrast differs from its crops', as in composed frames."""
_SOIL_LEVELS = 45.0
"""Grey levels by which soil differs from the modules, standard deviation."""
_TABLE_LEVELS = 2.5
"""Likewise, a table from the next; modules of one table differ by 1.5 (`render.py`)."""
_SHADOW_LEVELS = (30.0, 90.0)
"""By which the shadow beside a table is darker than the modules."""
_OFFLINE_SHARE, _OFFLINE_LEVELS = 0.15, (10.0, 40.0)
"""Of `offline-module` crops, those that are warmer than their neighbours in flight, and by how much: a crop alone shows
no neighbours."""

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class Scenery:
    """What a farm's modules, soil and shadows look like."""

    level: float
    """Grey level of an ordinary part of a healthy module."""
    ground_level: float
    shadow_level: float
    table_levels: float
    """Standard deviation from table to table."""
    patches: dict[str, Patch] = field(repr=False)
    """By asset, at the size of a module on the plan, relative to `level`."""
    crops: dict[str, int] = field(repr=False)
    """By asset: which crop it is."""


def plant(farm: Farm, crops: Crops, split: int) -> tuple[Farm, Scenery]:
    """Put real crops in the places of a farm's modules.

    Args:
        farm: Which of its modules are faulty stays; how they are faulty is drawn anew.
        crops: Where the modules come from.
        split: Which of them may be used: 0 train, 1 validation, `thermal.HELD_BACK`.

    Returns:
        The farm with its faults' labels, and what it looks like.
    """
    rng = np.random.default_rng([abs(farm.seed), 8, split])
    pool = CropPool(crops, split, fault_share=1.0)
    own = np.flatnonzero(crops.split == split)
    level = float(np.median(crops.images[int(rng.choice(own))]))
    contrast = np.float32(np.exp(rng.normal(0, _CONTRAST)))
    modules: list[Module] = []
    patches: dict[str, Patch] = {}
    chosen: dict[str, int] = {}
    for module in farm.modules:
        crop = pool.draw(level, rng, healthy=not module.label)
        label = crops.labels[crops.label_index[crop]] if module.label else ""
        patch = pool.patch(crop) * contrast
        flips = int(rng.integers(4))
        patch = patch[:: (-1 if flips & 1 else 1), :: (-1 if flips & 2 else 1)]
        if label == "offline-module" and rng.random() < _OFFLINE_SHARE:
            patch = patch + np.float32(rng.uniform(*_OFFLINE_LEVELS))
        modules.append(replace(module, label=label))
        patches[module.asset], chosen[module.asset] = patch, crop
    scenery = Scenery(
        level,
        float(np.clip(level + rng.normal(0, _SOIL_LEVELS), 20, 235)),
        max(level - float(rng.uniform(*_SHADOW_LEVELS)), 0.0),
        _TABLE_LEVELS,
        patches,
        chosen,
    )
    return replace(farm, modules=tuple(modules)), scenery
