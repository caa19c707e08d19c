"""What a few bytes of how a thing looks would tell, beside its picture, where places are too poor to tell things apart.

    python -m tests.bench.feature_sharing [--crops FILE.npz] [--things 600] [--others 4]

Each thing (a faulty module of the validation split, or a drawn one without crops) is seen twice, by two devices:
turned, shifted, scaled, blurred, warmer or colder, with the noise of a sensor (`swarmd_recipes.looks.look`); every
second second look is upside down. Each first look is held against the second look of the same thing and of some others
that could be it by their place; the average precision of the order that a measure puts these pairs in is what it is
worth.

- `picture`: the cut of one is sent as JPEG, and correlated with the other over small shifts, both ways up.
- `looks`: 17 bytes, as sightings carry them (`swarmd_models.looks`).
- `frequencies`: the lowest 16 (DCT) of the cut without its mean and spread, 8 bits each; their cosine, both ways up.
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
from swarmd_models.looks import frequencies_of, head
from swarmd_models.onnx_file import read_onnx
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.synthetic.thermal import Crops
from swarmd_protocols.state.dedup.looks import LIKE_MIN_MILLI, likeness_milli
from swarmd_recipes.looks import NOISES, look, patches_of

Measure = Callable[[int, int], float]


def correlation(left: Array, right: Array) -> float:
    """Of two pictures, over shifts of a few pixels."""
    left, right = cv2.GaussianBlur(left, (0, 0), 1.0), cv2.GaussianBlur(right, (0, 0), 1.0)
    wide = cv2.copyMakeBorder(left, 2, 2, 3, 3, cv2.BORDER_REFLECT)
    return float(cv2.matchTemplate(wide, right, cv2.TM_CCOEFF_NORMED).max())


def turned(cut: Array) -> Array:
    """Upside down."""
    return np.ascontiguousarray(cut[::-1, ::-1])


def lowest(cut: Array) -> Array:
    """The 16 lowest frequencies, 8 bits each."""
    kept = frequencies_of(cut).reshape(8, 8)[:4, :4].ravel()
    return np.round(kept / (np.abs(kept).max() + 1e-6) * 127)


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


def study(crops: Crops | None, noise: float, things: int, others: int) -> dict[str, Any]:
    """One row."""
    rng = np.random.default_rng(5)
    patches = patches_of(crops, 1, things, rng)
    things = len(patches)
    first, second = ([look(patch, rng, noise) for patch in patches] for _ in range(2))
    second = [turned(cut) if n % 2 else cut for n, cut in enumerate(second)]
    pairs = [(i, i) for i in range(things)]
    pairs += [(i, int(j)) for i in range(things) for j in rng.choice(np.delete(np.arange(things), i), others, False)]
    is_same = np.array([i == j for i, j in pairs], np.float64)

    def worth(measure: Measure) -> float:
        return round(average_precision(np.array([measure(i, j) for i, j in pairs]), is_same), 4)

    def either(measure: Measure, upside_down: Measure) -> Measure:
        return lambda i, j: max(measure(i, j), upside_down(i, j))

    jpeg = np.mean([len(cv2.imencode(".jpg", cut, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]) for cut in first])
    told = [[b"model" + head().features(cut) for cut in cuts] for cuts in (first, second)]
    alike = np.array([likeness_milli(told[0][i], told[1][j]) or 0 for i, j in pairs])
    low = [np.array([lowest(cut) for cut in cuts]) for cuts in (first, second, map(turned, second))]
    row: dict[str, Any] = {
        "noise": noise, "pairs": len(pairs), "jpeg_bytes": round(float(jpeg)),
        "picture": worth(either(lambda i, j: correlation(first[i], second[j]),
                                lambda i, j: correlation(first[i], turned(second[j])))),
        "looks": round(average_precision(alike, is_same), 4),
        "frequencies": worth(either(cosines(low[0], low[1]), cosines(low[0], low[2]))),
        "unlike_of_one": round(float((alike[is_same > 0] < LIKE_MIN_MILLI).mean()), 4),
        "unlike_of_two": round(float((alike[is_same == 0] < LIKE_MIN_MILLI).mean()), 4),
    }  # fmt: skip
    logits = judge()
    said = [np.array([logits(cut) for cut in cuts]) for cuts in (first, second)]
    every = np.concatenate(said)
    row["judge"] = worth(cosines(*((one - every.mean(0)) / (every.std(0) + 1e-6) for one in said)))
    return row


def main() -> None:
    """Print a JSON row for each noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crops", type=Path, metavar="FILE.npz", help="real modules; without it they are drawn")
    parser.add_argument("--things", type=int, default=600)
    parser.add_argument("--others", type=int, default=4)
    options = parser.parse_args()
    crops = Crops.load(options.crops) if options.crops else None
    for noise in NOISES:
        print(json.dumps(study(crops, noise, options.things, options.others)))


if __name__ == "__main__":
    main()
