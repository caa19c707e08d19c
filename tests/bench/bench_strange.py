"""What the judge that rejects (`swarmd_models.strange`) rejects, and what it should not have.

    python -m tests.bench.bench_strange [--crops FILE.npz] [--model zoo:small-320] [--frames 200] [--pictures FOLDER]

One JSON object. `good`: frames like those that the model was made for, composed of real crops (with `--crops`) and
drawn, other seeds than the reference's, and a rendered flight: every rejection in them is false. `bad`: the same frames
through a covered or half covered lens, out of focus, of noise that gain made large, faint, or with the palette turned
round; and the pictures of a folder, such as another sensor's. `patches`: in good frames a pattern of the size of a
module, made by hill climbing (`--steps` tries each) to be taken for a fault, of cells of 2, 4 and 8 pixels: how many
fool the model, and how many of those pass the judge. A smoother pattern fools less often and is rejected less often.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import FrameSpec, frames_of, lenient
from swarmd_models.strange import StrangeJudge
from swarmd_models.types import Image
from swarmd_sim.world.address import FarmUrl
from swarmd_sim.world.source import FarmSource

PATCH = (22, 40)
"""Rows and columns of a module at 4.5 cm a pixel."""
EVERY = 5
"""Frames of the flight: neighbours show the same."""


class Bench:
    """One model with its judge."""

    def __init__(self, model: str) -> None:
        self.bundle = load_bundle(model)
        self.detector = Detector.open(self.bundle, DetectorOptions())
        self._heard = Detector.open(lenient(self.bundle), DetectorOptions())
        """Says what it thinks far below its thresholds: what a pattern is made better by."""

    def count(self, images: Iterable[Image]) -> dict[str, Any]:
        """Frames, what is rejected by reason, and detections before and after."""
        judge = StrangeJudge(self.bundle.reference)
        frames = before = after = 0
        for image in images:
            found = self.detector.detect(image)
            kept, _ = judge.judge(image, self.detector, found)
            frames, before, after = frames + 1, before + len(found), after + len(kept)
        rejected = {reason: count for reason, count in judge.counts.items() if count}
        return {"frames": frames, "rejected": rejected, "detections": before, "left": after}

    def patches(self, images: list[Image], cell: int, steps: int, rng: np.random.Generator) -> dict[str, int]:
        """Patterns that fool the model, and those of them that pass."""
        said = Counter({"tried": 0, "fool": 0, "pass": 0})
        judge = StrangeJudge(self.bundle.reference)
        for image in images:
            rows, columns = image.shape[0] - PATCH[0], image.shape[1] - PATCH[1]
            y, x = int(rng.integers(0, rows)), int(rng.integers(0, columns))
            pattern = rng.integers(0, 256, (-(-PATCH[0] // cell), -(-PATCH[1] // cell)))
            if any(_touches(one.box, y, x) for one in self.detector.detect(image)):
                continue  # A fault of the frame's own.
            best = self._score(_pasted(image, pattern, cell, y, x), y, x)
            for _ in range(steps):
                other = pattern.copy()
                where = rng.integers(0, pattern.size, int(rng.integers(1, max(2, pattern.size // 4))))
                other.flat[where] = rng.integers(0, 256, len(where))
                score = self._score(_pasted(image, other, cell, y, x), y, x)
                if score >= best:
                    pattern, best = other, score
            said["tried"] += 1
            shown = _pasted(image, pattern, cell, y, x)
            found = [one for one in self.detector.detect(shown) if _touches(one.box, y, x)]
            if found:
                said["fool"] += 1
                kept, _ = judge.judge(shown, self.detector, found)
                said["pass"] += bool(kept)
        return dict(said)

    def _score(self, image: Image, y: int, x: int) -> float:
        return max((one.score for one in self._heard.detect(image) if _touches(one.box, y, x)), default=0.0)


def _pasted(image: Image, pattern: Any, cell: int, y: int, x: int) -> Image:
    shown = image.copy()
    big = np.kron(pattern, np.ones((cell, cell)))[: PATCH[0], : PATCH[1]].astype(np.uint8)
    shown[y : y + PATCH[0], x : x + PATCH[1]] = big
    return shown


def _touches(box: tuple[float, float, float, float], y: int, x: int) -> bool:
    return box[0] < x + PATCH[1] and x < box[2] and box[1] < y + PATCH[0] and y < box[3]


def flight(size: str) -> Iterator[Image]:
    """Every few frames of one lane's flight over a rendered farm."""
    source = FarmSource(FarmUrl(drone=1, of=1, seed=7, faults=0.05, fly="lanes", pace="max", frames=600, size=size))
    index = 0
    while (frame := source.read()) is not None:
        if index % EVERY == 0:
            yield np.ascontiguousarray(frame.image)
        index += 1


def _noisy(image: Any, sigma: float, rng: np.random.Generator) -> Image:
    return np.clip(image + rng.normal(0.0, sigma, image.shape), 0, 255).astype(np.uint8)


def _folder(folder: Path, width: int, height: int) -> Iterator[Image]:
    for path in sorted(folder.iterdir()):
        picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if picture is not None:
            yield np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="zoo:small-320")
    parser.add_argument("--crops", default="", metavar="FILE.npz")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--pictures", type=Path, nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--patches", type=int, default=10)
    options = parser.parse_args()
    bench, rng = Bench(options.model), np.random.default_rng(18)
    width, height = bench.bundle.input.width, bench.bundle.input.height

    def scenes(crops: str, prevalence: float, seed: int) -> list[Image]:
        spec = FrameSpec(prevalence=prevalence, frames=options.frames, seed=seed, crops=crops)
        return [scene.image for scene in frames_of(spec, bench.bundle)]

    drawn = scenes("", 0.05, 181)
    good = {"drawn": drawn, "flight": list(flight(f"{width}x{height}"))}
    if options.crops:
        good["of real crops"] = scenes(options.crops, 0.05, 182)
    base = good.get("of real crops", drawn)
    flat, ramp = np.ones((height, width)), np.linspace(-12, 12, width)[None] + np.linspace(-8, 8, height)[:, None]
    turned: dict[str, Callable[[Image], Image]] = {
        "covered": lambda image: _noisy(flat * float(image.mean()), 1.5, rng),
        "covered, uneven": lambda image: _noisy(float(image.mean()) + ramp, 1.5, rng),
        "noise made large": lambda image: _noisy(flat * 128.0, float(rng.uniform(10, 60)), rng),
        "half covered": lambda image: np.where(np.arange(width)[None] < 0.6 * width, 30, image).astype(np.uint8),
        "out of focus": lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 8.0), np.uint8),
        "faint": lambda image: (128 + 0.3 * (image.astype(np.float32) - 128)).astype(np.uint8),
        "palette turned round": lambda image: (255 - image).astype(np.uint8),
    }
    bad = {name: bench.count(turn(image) for image in base) for name, turn in turned.items()}
    for folder in options.pictures:
        bad[folder.name] = bench.count(_folder(folder, width, height))
    answer = {
        "model": bench.bundle.name,
        "good": {name: bench.count(images) for name, images in good.items()},
        "bad": bad,
        "patches": {
            f"{cell} pixels": bench.patches(base[: options.patches], cell, options.steps, rng) for cell in (2, 4, 8)
        },
    }
    print(json.dumps(answer, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
