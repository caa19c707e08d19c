"""How the head of `swarmd_models.looks` is learnt: `python -m swarmd_recipes.looks --crops FILE.npz --out looks.npz`.

Each thing is looked at twice: turned, shifted, scaled, blurred, warmer or colder, with a sensor's noise. What differs
between two looks at one thing is noise, what differs between things is signal; the head is the linear map that has most
signal for its noise (Fisher's discriminant, a class a thing), for each kind of frequency by itself. Numpy alone: there
is nothing to train step by step, and equal crops and seed give equal bytes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.looks import CUT, EVEN, HALF, ODD, Floats, Head, frequencies_of
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, draw_module
from swarmd_models.types import Image

SEED = 15
THINGS = 4_000
"""Things looked at twice."""
NOISES = (2.0, 6.0, 12.0)
"""Grey levels, standard deviation: a good sensor, an ordinary one, a poor one or a long way off."""
_SIDES = (192, 96)
"""Columns and rows of a patch."""
_RIDGE = 1e-7
"""Added to the noise of every frequency: those that no lens shows have neither signal nor noise."""

Patch = npt.NDArray[np.float32]


def look(patch: Patch, rng: np.random.Generator, noise: float) -> Image:
    """One look at a thing.

    Args:
        patch: Shape (96, 192), grey levels about the median of the thing.
        rng: What differs from look to look.
        noise: Of the sensor, grey levels, standard deviation.

    Returns:
        Shape (24, 48), uint8.
    """
    rows, columns = patch.shape
    turn = np.asarray(cv2.getRotationMatrix2D((columns / 2, rows / 2), rng.normal(0, 2), 1 + rng.normal(0, 0.04)))
    turn[:, 2] = turn[:, 2] + rng.normal(0, 0.03, 2) * [columns, rows]
    seen = cv2.warpAffine(patch, turn, (columns, rows), borderMode=cv2.BORDER_REFLECT)
    seen = cv2.GaussianBlur(seen, (0, 0), abs(rng.normal(1.5, 0.5)) + 0.5)
    seen = cv2.resize(seen, CUT, interpolation=cv2.INTER_AREA)
    seen = seen * rng.uniform(0.8, 1.2) + rng.normal(0, 3) + rng.normal(0, noise, seen.shape)
    return np.asarray(np.clip(seen + 110, 0, 255), np.uint8)


def patches_of(crops: Crops | None, split: int, count: int, rng: np.random.Generator) -> list[Patch]:
    """Faulty modules, lying, without their median: real ones, or drawn ones where there are no crops."""
    if crops is None:
        return [draw_module(rng.choice(FAULT_LABELS), _SIDES[1], _SIDES[0], rng) for _ in range(count)]
    faulty = np.flatnonzero((crops.split == split) & (crops.label_index != crops.labels.index(NORMAL_LABEL)))
    chosen = rng.choice(faulty, min(count, len(faulty)), replace=False)
    return [_patch(crops.images[index]) for index in chosen]


def _patch(crop: Image) -> Patch:
    lying = crop.T.astype(np.float32)
    return np.asarray(cv2.resize(lying - np.median(lying), _SIDES, interpolation=cv2.INTER_CUBIC), np.float32)


def learn(patches: Sequence[Patch], rng: np.random.Generator) -> Head:
    """The head for two looks at each of these."""
    pairs = [(look(patch, rng, noise), look(patch, rng, noise)) for patch in patches for noise in [rng.choice(NOISES)]]
    first, second = (np.stack([frequencies_of(pair[n]) for pair in pairs]).astype(np.float64) for n in range(2))
    mean = np.concatenate([first, second])[:, EVEN].mean(axis=0)
    even = _most_signal(first[:, EVEN] - mean, second[:, EVEN] - mean)
    return Head(even, _most_signal(first[:, ODD], second[:, ODD]), mean.astype(np.float32))


def _most_signal(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> Floats:
    """Columns by signal to noise, the best first, each with noise 1."""
    within = np.cov((first - second).T / np.sqrt(2.0)) + _RIDGE * np.eye(first.shape[1])
    both = np.concatenate([first, second])
    values, vectors = np.linalg.eigh(within)
    whiten = vectors / np.sqrt(values)
    order, best = np.linalg.eigh(whiten.T @ (both.T @ both / len(both) - within) @ whiten)
    found = (whiten @ best[:, np.argsort(-order)])[:, :HALF]
    # An eigenvector's sign is the library's choice: the largest part is positive, so that machines agree.
    signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(HALF)])
    return np.asarray(found * signs, np.float32)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crops", type=Path, help="npz of real module crops; without it modules are drawn")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(SEED)
    found = learn(patches_of(Crops.load(options.crops) if options.crops else None, 0, THINGS, rng), rng)
    np.savez(options.out, even=found.even, odd=found.odd, mean=found.mean)
    return 0


if __name__ == "__main__":
    sys.exit(main())
