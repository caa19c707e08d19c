"""Pairs of real `.tflite` files that differ as a fine-tune makes them differ.

No training here: INT8 weights move by noise in proportion to each channel's own spread, scales drift and are computed
anew, biases move. Figures for deltas of really trained pairs are made by `python -m tests.bench.bench_release --pairs`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from swarmd.release.delta import flatbuffer

ZOO = Path(__file__).parents[2] / "models" / "swarmd_models" / "zoo" / "small-320.tflite"


def tuned(
    data: bytes, level: float, seed: int = 0, only: Callable[[int, int], bool] = lambda index, count: True
) -> bytes:
    """The file after a fine-tune of this strength; `only(index, count)` chooses which tensors were trained."""
    rng = np.random.default_rng(seed)
    out = bytearray(data)
    regions = flatbuffer.regions(data)
    scales = {one.name.rpartition("/")[0]: one for one in regions if one.name.endswith("/2") and one.kind == "f4"}
    trained = [one for one in regions if one.kind in ("i1", "i4") and one.size >= 256 and not one.name.endswith("/2")]
    for index, region in enumerate(trained):
        if not only(index, len(trained)):
            continue
        if region.kind == "i4":
            bias = np.frombuffer(data, "<i4", region.size // 4, region.start).astype(np.float64)
            bias += rng.normal(0, 1, bias.shape) * (np.abs(bias).mean() + 1) * level
            out[region.start : region.start + region.size] = np.rint(bias).astype("<i4").tobytes()
            continue
        weights = np.frombuffer(data, np.int8, region.size, region.start).astype(np.float64)
        scale = scales.get(region.name)
        channels = scale.size // 4 if scale and region.size % (scale.size // 4) == 0 else 1
        rows = weights.reshape(channels, -1)
        spread = rows.std(1, keepdims=True) + 0.5
        rows = rows * (1 + rng.normal(0, level * 0.3, (channels, 1)))
        rows = rows + rng.normal(0, 1, rows.shape) * spread * level * rng.lognormal(0, 0.5, (channels, 1))
        if scale and channels > 1:
            largest = np.maximum(np.abs(rows).max(1, keepdims=True), 1e-6)
            rows = rows * (127 / largest)
            old = np.frombuffer(data, "<f4", channels, scale.start)
            out[scale.start : scale.start + scale.size] = (old * (largest[:, 0] / 127)).astype("<f4").tobytes()
        out[region.start : region.start + region.size] = np.clip(np.rint(rows), -127, 127).astype(np.int8).tobytes()
    return bytes(out)


def head_only(index: int, count: int) -> bool:
    return index >= count - 2
