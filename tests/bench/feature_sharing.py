"""What a few bytes of how a thing looks would tell, beside its picture, where places are too poor to tell things apart.

    python -m tests.bench.feature_sharing [--things 600] [--others 4]

Each thing (a drawn faulty module) is seen twice, by two devices: turned, shifted, scaled, blurred, warmer or colder,
with the noise of a sensor. Each first look is held against the second look of the same thing and of some others that
could be it by their place; the average precision of the order that a measure puts these pairs in is what it is worth.

- `picture`: the cut of one is sent as JPEG, and correlated with the other over small shifts.
- `features`: the lowest frequencies (DCT) of the cut without its mean and spread, 8 bits each; their cosine.
- `judge`: the twelve logits of small-320's second stage for the cut, whitened; their cosine.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd_models.backends.base import Array, Artefact
from swarmd_models.backends.onnx import OnnxBackend
from swarmd_models.bundle import ZOO
from swarmd_models.onnx_file import read_onnx
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.synthetic.thermal import FAULT_LABELS, draw_module

WIDTH, HEIGHT = 48, 24
"""Of a cut: what the second stage looks at."""
NOISES = (2.0, 6.0, 12.0)
"""Grey levels, standard deviation: a good sensor, an ordinary one, a poor one or a long way off."""
LOWEST = ((2, 4), (4, 4), (4, 8), (8, 8))
"""Frequencies kept down and across: 8 to 64 bytes."""
Measure = Callable[[int, int], float]


def look(patch: Array, rng: np.random.Generator, noise: float) -> Array:
    """One look at a thing."""
    rows, columns = patch.shape
    turn = cv2.getRotationMatrix2D((columns / 2, rows / 2), rng.normal(0, 2), 1 + rng.normal(0, 0.04))
    turn[:, 2] += rng.normal(0, 0.03, 2) * [columns, rows]
    seen = cv2.warpAffine(patch, turn, (columns, rows), borderMode=cv2.BORDER_REFLECT)
    seen = cv2.GaussianBlur(seen, (0, 0), abs(rng.normal(1.5, 0.5)) + 0.5)
    seen = cv2.resize(seen, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    seen = seen * rng.uniform(0.8, 1.2) + rng.normal(0, 3) + rng.normal(0, noise, seen.shape)
    cut: Array = np.clip(seen + 110, 0, 255).astype(np.uint8)
    return cut


def correlation(left: Array, right: Array) -> float:
    """Of two pictures, over shifts of a few pixels."""
    left, right = cv2.GaussianBlur(left, (0, 0), 1.0), cv2.GaussianBlur(right, (0, 0), 1.0)
    wide = cv2.copyMakeBorder(left, 2, 2, 3, 3, cv2.BORDER_REFLECT)
    return float(cv2.matchTemplate(wide, right, cv2.TM_CCOEFF_NORMED).max())


def features(cut: Array, down: int, across: int) -> Array:
    """The lowest frequencies, 8 bits each."""
    small = cv2.resize(cv2.GaussianBlur(cut, (0, 0), 1.0), (32, 16), interpolation=cv2.INTER_AREA).astype(np.float32)
    small -= small.mean()
    lowest = cv2.dct(small / (np.linalg.norm(small) + 1e-6))[:down, :across].ravel()
    return np.round(lowest / (np.abs(lowest).max() + 1e-6) * 127).astype(np.int8)


def average_precision(scores: Array, is_same: Array) -> float:
    """Of the order by score; equal scores count against."""
    order = np.lexsort((is_same, -scores))
    hits = is_same[order]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1) * hits).sum() / hits.sum())


def judge() -> Callable[[Array], Array]:
    """The logits of the second stage."""
    graph = OnnxGraph(read_onnx(ZOO / "small-320.second.qdq.onnx"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.onnx"
        path.write_bytes(graph.part(None, graph.cuts()[-1]))
        head = OnnxBackend.load(Artefact("head", None, path), 1, lambda text: None)

    def logits(cut: Array) -> Array:
        np.copyto(head.input_view(), cut[None].astype(np.float32) / 255.0)
        head.infer()
        return np.array(head.output_views()[0], np.float32).ravel()

    return logits


def cosines(left: Array, right: Array) -> Measure:
    """Between rows."""
    a, b = (one.astype(np.float32) / (np.linalg.norm(one.astype(np.float32), axis=1, keepdims=True) + 1e-6)
            for one in (left, right))  # fmt: skip
    return lambda i, j: float(a[i] @ b[j])


def study(noise: float, things: int, others: int) -> dict[str, Any]:
    """One row."""
    rng = np.random.default_rng(5)
    patches = [draw_module(rng.choice(FAULT_LABELS), 96, 192, rng) for _ in range(things)]
    first, second = ([look(patch, rng, noise) for patch in patches] for _ in range(2))
    pairs = [(i, i) for i in range(things)]
    pairs += [(i, int(j)) for i in range(things) for j in rng.choice(np.delete(np.arange(things), i), others, False)]
    is_same = np.array([i == j for i, j in pairs], np.float64)

    def worth(measure: Measure) -> float:
        return round(average_precision(np.array([measure(i, j) for i, j in pairs]), is_same), 4)

    jpeg = np.mean([len(cv2.imencode(".jpg", cut, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]) for cut in first])
    row: dict[str, Any] = {
        "noise": noise, "picture_bytes": round(float(jpeg)),
        "picture": worth(lambda i, j: correlation(first[i], second[j])),
    }  # fmt: skip
    for down, across in LOWEST:
        told = [np.array([features(cut, down, across) for cut in cuts]) for cuts in (first, second)]
        row[f"features_{down * across}"] = worth(cosines(*told))
    logits = judge()
    said = [np.array([logits(cut) for cut in cuts]) for cuts in (first, second)]
    every = np.concatenate(said)
    row["judge_12"] = worth(cosines(*((one - every.mean(0)) / (every.std(0) + 1e-6) for one in said)))
    return row


def main() -> None:
    """Print a JSON row for each noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--things", type=int, default=600)
    parser.add_argument("--others", type=int, default=4)
    options = parser.parse_args()
    for noise in NOISES:
        print(json.dumps(study(noise, options.things, options.others)))


if __name__ == "__main__":
    main()
