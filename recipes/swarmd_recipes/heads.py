"""Fine-tunes the three output layers of an INT8 detector, with nothing but numpy and the LiteRT runtime.

What `swarmd_models.heads` does, on the recipe's scenes and targets. That is what an officer can do to a model at a
field desk, without the training environment; a better one comes from `train.py`.

    python -m swarmd_recipes.heads zoo:small-320 OUT --version 3 [--frames 96 --steps 200 --rate 0.001 --seed 77]
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import evaluate_frames, nominal_pixel_m
from swarmd_models.head_bundle import write_bundle
from swarmd_models.heads import (
    F32,
    Features,
    Head,
    TuneOptions,
    Weights,
    find_heads,
    joined,
    loss_and_gradient,
    read_all,
    read_head,
    train_heads,
    write_head,
)
from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.targets import Targets, targets_of


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model makes of frames that it was not tuned on."""

    loss: float
    average_precision: float | None
    found: float | None
    """Share of the faults that were found, by the bundle's own thresholds."""
    false_per_1000: float | None
    """Detections that are none, for each 1,000 healthy modules."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuned bundle and what it is worth."""

    path: Path
    before: Scores
    after: Scores
    changed: int
    """Weights that have another INT8 value than before."""


# --- The tuning ---


def scenes_of(bundle: Bundle, seed: int, count: int) -> Iterator[Scene]:
    """Drawn scenes of the bundle's frame size."""
    options = SceneOptions(
        bundle.input.width, bundle.input.height, pixel_m=nominal_pixel_m(bundle), real_share=0.0, plain_share=0.1
    )
    maker = SceneMaker(options, seed, None)
    return (maker.scene(index) for index in range(count))


def tune_heads(model: str | Path, out: Path, version: str, options: TuneOptions | None = None) -> Tuned:
    """Make a new version of a bundle whose heads were trained some steps further.

    Args:
        model: The bundle: a TOML, or such as "zoo:small-320".
        out: A new folder for it.
        version: What it calls itself.
        options: How long and how fast.

    Raises:
        ArtefactError: The bundle has no such heads, or the training made it worse on frames held out.
    """
    chosen = options or TuneOptions()
    bundle = load_bundle(model)
    source = Path(bundle.model_path)
    data = source.read_bytes()
    tensor, heads = find_heads(data, len(bundle.labels))
    net = Features(source, tensor)
    frames = [(net.of(scene.image), targets_of(scene)) for scene in scenes_of(bundle, chosen.seed, chosen.frames)]
    held_out = list(scenes_of(bundle, chosen.seed + 1, chosen.held_out))
    checked = [(net.of(scene.image), targets_of(scene)) for scene in held_out]
    weights = {name: read_head(data, head) for name, head in heads.items()}
    *_, (_, _, end) = train_heads(weights, frames, chosen)
    choosing = [(net.of(scene.image), targets_of(scene)) for scene in scenes_of(bundle, chosen.seed + 2, 16)]
    new, changed = best_on_the_way(data, heads, weights, end, choosing)
    path = write_bundle(bundle, out, new, version)
    before = _scores(bundle, weights, checked, held_out)
    after = _scores(load_bundle(path), read_all(new, heads), checked, held_out)
    if not after.loss < before.loss:  # Nor what is no number.
        raise ArtefactError(f"tuning made it worse on frames held out: loss {before.loss:.4f} -> {after.loss:.4f}")
    return Tuned(path, before, after, changed)


def best_on_the_way(
    data: bytes, heads: dict[str, Head], start: Weights, end: Weights, choosing: Sequence[tuple[F32, Targets]]
) -> tuple[bytes, int]:
    """How far to go from the old weights to the trained ones, by frames that neither training nor scores see."""
    features = np.concatenate([one for one, _ in choosing]).astype(np.float64)
    wanted = joined([one for _, one in choosing])
    best: tuple[float, bytes, int] | None = None
    for share in (1.0, 0.5, 0.25, 0.1):
        new = bytearray(data)
        changed = 0
        for name, head in heads.items():
            kernel, bias = (old + share * (far - old) for old, far in zip(start[name], end[name], strict=True))
            changed += write_head(new, head, kernel, bias)
        loss, _ = loss_and_gradient(read_all(bytes(new), heads), features, wanted)
        if best is None or loss < best[0]:
            best = loss, bytes(new), changed
    assert best is not None
    return best[1], best[2]


def _scores(
    bundle: Bundle, weights: Weights, checked: Sequence[tuple[F32, Targets]], scenes: Sequence[Scene]
) -> Scores:
    """The loss by the quantised heads, and what the whole INT8 bundle finds."""
    features = np.concatenate([one for one, _ in checked]).astype(np.float64)
    loss, _ = loss_and_gradient(weights, features, joined([one for _, one in checked]))
    said: dict[str, Any] = evaluate_frames(bundle, scenes)
    return Scores(round(loss, 5), said["ap"], said["recall"], said["false_per_1000_normal"])


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.heads", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--version", required=True)
    defaults = TuneOptions()
    for name in ("frames", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--rate", type=float, default=defaults.rate)
    args = parser.parse_args(arguments)
    options = TuneOptions(frames=args.frames, steps=args.steps, rate=args.rate, seed=args.seed)
    try:
        tuned = tune_heads(args.model, args.out, args.version, options)
    except ArtefactError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    said = {"path": str(tuned.path), "before": asdict(tuned.before), "after": asdict(tuned.after)}
    sys.stdout.write(json.dumps(said | {"changed": tuned.changed}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
