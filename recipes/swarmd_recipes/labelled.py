"""Trains the heads of a detector on pictures that people have labelled, and judges it beside the model that runs.

    python -m swarmd_recipes.labelled zoo:small-320 OUT SET [SET …] --version 4

What `heads.py` does, with the sets' pictures: those held back only judge, the last fifth of the others chooses how far
to go, the rest teaches, with drawn frames among them so that what the model knew is not forgotten. A result that is
worse on what was held back, or has forgotten, is refused. The new bundle's `[provenance.labels]` names every set by
its digest, who labelled, and both models' figures.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.draft_folder import drafted, sweep_drafts
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.evaluate import evaluate_frames
from swarmd_models.head_bundle import write_bundle
from swarmd_models.heads import (
    F32,
    Features,
    TuneOptions,
    Weights,
    find_heads,
    joined,
    loss_and_gradient,
    read_all,
    read_head,
    train_heads,
)
from swarmd_models.labelling.forms import Box
from swarmd_models.labelling.scenes import LabelledScene, scene_of
from swarmd_models.labelling.training_set import TrainingSet, load_set
from swarmd_models.synthetic.scenes import Scene
from swarmd_models.synthetic.targets import Targets, grid_of, targets_of
from swarmd_recipes import heads

LEAST_TAUGHT = 10
LEAST_HELD = 4
"""Pictures below which a figure is chance."""
REPLAY_SHARE = 2.0
"""Drawn frames for each labelled one. Source: docs/performance/models.md, with half of one what was known is lost."""
FORGOTTEN = 1.1
"""Of the loss on drawn frames, from which the model counts as having forgotten."""
WORSE_AP = 0.01
"""Average precision that a better loss may cost on what was held back."""
_DRAWN_HELD = 16

Frame = tuple[F32, Targets]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model makes of the pictures held back, and of drawn frames."""

    loss: float
    average_precision: float | None
    """None where no picture held back was looked at as a whole."""
    recall: float | None
    precision: float | None
    drawn_loss: float


@dataclass(frozen=True, slots=True)
class Learned:
    """A bundle that has learned from labels."""

    path: Path
    before: Judged
    after: Judged
    changed: int
    """Weights that have another INT8 value than before."""
    taught: int
    held: int


def targets_with_gaps(one: LabelledScene) -> Targets:
    """The targets of a labelled picture: cells that nobody has judged teach nothing, where something was denied none.

    Args:
        one: With what is unclear, and what is nothing.
    """
    height, width = one.scene.image.shape
    wanted, grid = targets_of(one.scene), grid_of(width, height)
    weight = wanted.weight.copy()
    if not one.is_whole:
        judged = [tuple(box) for box in one.scene.boxes.tolist()]
        weight *= _within(grid, [*judged, *one.nothing])
    weight[_within(grid, one.unclear) & (wanted.fault == 0)] = 0.0
    return Targets(wanted.fault, wanted.kind, weight, wanted.distance)


def _within(grid: F32, boxes: Sequence[Box]) -> Any:
    inside = np.zeros(len(grid), bool)
    for x1, y1, x2, y2 in boxes:
        inside |= (grid[:, 0] >= x1) & (grid[:, 0] <= x2) & (grid[:, 1] >= y1) & (grid[:, 1] <= y2)
    return inside


def learn(
    model: str | Path, out: Path, sets: Sequence[TrainingSet], version: str, options: TuneOptions | None = None
) -> Learned:
    """Make a new version of a bundle whose heads have learned from labelled pictures.

    Args:
        model: The bundle that runs: a TOML, or such as "zoo:small-320".
        out: A new folder for the new one.
        sets: What people have labelled.
        version: What the new bundle calls itself.
        options: How long and how fast; `frames` and `held_out` do not count.

    Raises:
        ModelError: A set or the bundle cannot be used, or the result is not better.
    """
    chosen = options or TuneOptions()
    bundle = load_bundle(model)
    if out.exists():
        raise ArtefactError(f"{out} is there already; name a new folder")
    sweep_drafts(out.parent)
    source = Path(bundle.model_path)
    data = source.read_bytes()
    tensor, found = find_heads(data, len(bundle.labels))
    taught, held = _pictures(bundle, sets)
    net = Features(source, tensor)

    def seen(scenes: Sequence[LabelledScene]) -> list[Frame]:
        return [(net.of(one.scene.image), targets_with_gaps(one)) for one in scenes]

    def drawn(seed: int, count: int) -> list[Frame]:
        return [(net.of(one.image), targets_of(one)) for one in heads.scenes_of(bundle, seed, count)]

    choosing = max(2, len(taught) // 5)
    frames = seen(taught[:-choosing]) + drawn(chosen.seed, round(len(taught) * REPLAY_SHARE))
    judge = seen(taught[-choosing:]) + drawn(chosen.seed + 2, max(2, round(choosing * REPLAY_SHARE)))
    start = {name: read_head(data, head) for name, head in found.items()}
    *_, (_, _, end) = train_heads(start, frames, chosen)
    new, changed = heads.best_on_the_way(data, found, start, end, judge)
    held_frames, drawn_frames = seen(held), drawn(chosen.seed + 1, _DRAWN_HELD)
    wholes = [one.scene for one in held if one.is_whole]
    # Judged elsewhere: what was refused, or cut short, must not lie about like a model.
    try:
        with drafted(out) as draft:
            path = write_bundle(bundle, draft, new, version)
            before = _judged(bundle, start, held_frames, drawn_frames, wholes)
            after = _judged(load_bundle(path), read_all(new, found), held_frames, drawn_frames, wholes)
            _refuse_worse(before, after)
            learned = Learned(path, before, after, changed, len(taught), len(held))
            _write_lineage(learned, bundle, sets)
            load_bundle(path)
            draft.chmod(0o755)
    except OSError as error:
        raise ArtefactError(f"{out} cannot be written: {error.strerror or error}") from error
    return replace(learned, path=out / path.name)


def _pictures(bundle: Bundle, sets: Sequence[TrainingSet]) -> tuple[list[LabelledScene], list[LabelledScene]]:
    """(those that teach, those held back); a picture held back in one set teaches in none."""
    held = {picture.sha256 for one in sets for picture in one.pictures if picture.is_held}
    known: set[str] = set()
    parts: tuple[list[LabelledScene], list[LabelledScene]] = ([], [])
    for one in sets:
        for picture in one.pictures:
            if picture.sha256 not in known:
                known.add(picture.sha256)
                parts[picture.sha256 in held].append(scene_of(bundle, one, picture))
    if len(parts[0]) < LEAST_TAUGHT or len(parts[1]) < LEAST_HELD:
        raise ArtefactError(
            f"{len(parts[0])} pictures to learn from and {len(parts[1])} held back; at least {LEAST_TAUGHT} and "
            f"{LEAST_HELD} are needed: label more, or choose another --held-share at the import"
        )
    return parts


def _judged(
    bundle: Bundle, weights: Weights, held: Sequence[Frame], drawn: Sequence[Frame], wholes: Sequence[Scene]
) -> Judged:
    said: dict[str, Any] = evaluate_frames(bundle, wholes) if wholes else {}
    return Judged(
        _loss(weights, held),
        said.get("ap"),
        said.get("recall"),
        said.get("precision"),
        _loss(weights, drawn),
    )


def _loss(weights: Weights, frames: Sequence[Frame]) -> float:
    features = np.concatenate([one for one, _ in frames]).astype(np.float64)
    loss, _ = loss_and_gradient(weights, features, joined([one for _, one in frames]))
    return round(loss, 5)


def _refuse_worse(before: Judged, after: Judged) -> None:
    """Raise `ArtefactError` unless the new model is better where it was not taught, and knows what it knew."""
    if not after.loss < before.loss:  # Nor what is no number.
        raise ArtefactError(f"no better on what was held back: loss {before.loss:.4f} -> {after.loss:.4f}; label more")
    was, now = before.average_precision, after.average_precision
    if was is not None and now is not None and now < was - WORSE_AP:
        raise ArtefactError(f"it finds less on what was held back: average precision {was:.3f} -> {now:.3f}")
    if not after.drawn_loss <= before.drawn_loss * FORGOTTEN:
        raise ArtefactError(
            f"it has forgotten: loss on drawn frames {before.drawn_loss:.4f} -> {after.drawn_loss:.4f}; train with a "
            "lower --rate, or from the start with `make model`"
        )


def _write_lineage(learned: Learned, was: Bundle, sets: Sequence[TrainingSet]) -> None:
    """Say in the new bundle's provenance what it learned from; an earlier lineage of its model is replaced, for the
    model that it names (`from`) bears it."""
    text = learned.path.read_text(encoding="utf-8")
    text = re.sub(r"^\[provenance\.labels\]\n(?:(?!\[).*\n?)*", "", text, flags=re.MULTILINE)
    people = sorted({name for one in sets for name in one.labelled_by})
    lines = [
        "[provenance.labels]",
        f"from = {json.dumps(was.digest)}",
        f"sets = {json.dumps([one.digest for one in sets])}",
        f"labelled_by = {json.dumps(people, ensure_ascii=False)}",
        f"taught = {learned.taught}",
        f"held = {learned.held}",
        *(f"loss_{name} = {one.loss}" for name, one in (("before", learned.before), ("after", learned.after))),
    ]
    for name, one in (("before", learned.before), ("after", learned.after)):
        if one.average_precision is not None:
            lines.append(f"ap_{name} = {one.average_precision}")
    learned.path.write_text(text.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.labelled", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="the bundle that runs")
    parser.add_argument("out", type=Path, help="a new folder for the new one")
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET", help="what `swarmd frames import` made")
    parser.add_argument("--version", required=True)
    defaults = TuneOptions()
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--rate", type=float, default=defaults.rate)
    args = parser.parse_args(arguments)
    try:
        sets = [load_set(folder) for folder in args.sets]
        options = TuneOptions(steps=args.steps, rate=args.rate, seed=args.seed)
        learned = learn(args.model, args.out, sets, args.version, options)
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(json.dumps({**asdict(learned), "path": str(learned.path)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
