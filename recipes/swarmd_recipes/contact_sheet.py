"""The surest "false" alarms as a contact sheet, and what they cost: for people to see whether model or label is wrong.

    python -m swarmd_recipes.contact_sheet --crops modules_ir_visible.npz [--out out/contact-sheet] [--model zoo:…]

Every crop of the validation split is shown to each bundle as in flight. The sheet has the healthy crops that the
bundles together are surest of, each beside a crop of the fault that the first bundle takes it for: that of the nearest
score. With it stand the figures: the recall at some false alarms in 1,000 as labelled, and as it would be if the labels
were wrong on which all bundles agree. The truth lies between the two; nobody here can look at the modules again.
"""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.evaluate import choose_split, score_crops
from swarmd_models.synthetic.thermal import NORMAL_LABEL, Crops

MODELS = ("zoo:small-320", "zoo:tiny-224", "zoo:medium-640")
SHOWN = 48
"""Pairs of a sheet: what fits a screen at a size at which a cell of a module is seen."""
COLUMNS = 8
AGREED_PER_1000 = 10.0
"""Of the healthy crops, the surest of each bundle; a crop that is among them for all bundles is one they agree on."""
RATES = (1.0, 3.0, 10.0, 30.0)
"""False alarms in 1,000 healthy modules."""
_TILE_WIDTH, _TILE_HEIGHT, _CAPTION = 96, 160, 30
"""Pixels of one crop, and of the two lines below it."""

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def logits(scores: npt.NDArray[np.floating]) -> Floats:
    """Log-odds of scores, kept finite."""
    kept = np.clip(scores.astype(np.float64), 1e-6, 1.0 - 1e-6)
    return np.asarray(np.log(kept / (1.0 - kept)), np.float64)


def recall_at(best: Floats, faulty: Flags, rate: float) -> float:
    """The share of faults above the threshold that lets so many healthy ones in 1,000 through.

    Args:
        best: Log-odds of each crop that it has a fault.
        faulty: Which have.
        rate: False alarms in 1,000 healthy ones.

    >>> recall_at(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True]), 500.0)
    1.0
    """
    healthy = np.sort(best[~faulty])[::-1]
    let_through = int(len(healthy) * rate / 1000.0)
    threshold = healthy[let_through] if let_through < len(healthy) else -np.inf
    return float((best[faulty] > threshold).mean())


def agreed(by_model: Mapping[str, Floats], faulty: Flags, per_1000: float = AGREED_PER_1000) -> npt.NDArray[np.int64]:
    """Healthy crops that are among the surest of every bundle, the surest first.

    Args:
        by_model: Log-odds of each crop by bundle.
        faulty: Which have a fault, as labelled.
        per_1000: How many of the healthy ones are a bundle's surest.
    """
    healthy = np.flatnonzero(~faulty)
    count = max(1, round(len(healthy) * per_1000 / 1000.0))
    together = set(healthy.tolist())
    for best in by_model.values():
        together &= set(healthy[np.argsort(-best[healthy], kind="stable")[:count]].tolist())
    mean = np.mean(list(by_model.values()), axis=0)
    return np.array(sorted(together, key=lambda at: -mean[at]), np.int64)


def costs(by_model: Mapping[str, Floats], faulty: Flags) -> dict[str, Any]:
    """Recall by bundle and rate, as labelled, and with the crops that all agree on taken for what they are called."""
    doubted = agreed(by_model, faulty)
    corrected = faulty.copy()
    corrected[doubted] = True
    return {
        "healthy": int((~faulty).sum()),
        "faulty": int(faulty.sum()),
        "agreed": len(doubted),
        "recall": {
            name: {
                f"{rate:g}": [round(recall_at(best, labels, rate), 3) for labels in (faulty, corrected)]
                for rate in RATES
            }
            for name, best in by_model.items()
        },
    }


def nearest(of: int, best: Floats, said: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> int:
    """The crop that has the fault which this one is taken for, with the nearest score; -1 where none has."""
    same = np.flatnonzero(truth == said[of])
    return int(same[np.abs(best[same] - best[of]).argmin()]) if len(same) else -1


def sheet(crops: Sequence[npt.NDArray[np.uint8]], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.uint8]:
    """Crops in a grid of `COLUMNS`, each stretched to all greys, with its caption below.

    Raises:
        ArtefactError: There is nothing to show.
    """
    if not crops:
        raise ArtefactError("no crops to show")
    rows = -(-len(crops) // COLUMNS)
    width, height = _TILE_WIDTH + 8, _TILE_HEIGHT + _CAPTION + 8
    page = np.full((rows * height, COLUMNS * width), 255, np.uint8)
    for at, (crop, lines) in enumerate(zip(crops, captions, strict=True)):
        top, left = at // COLUMNS * height + 4, at % COLUMNS * width + 4
        low, high = (float(level) for level in np.percentile(crop, (1, 99)))
        spread = np.clip((crop.astype(np.float32) - low) * (255.0 / max(high - low, 1.0)), 0, 255).astype(np.uint8)
        page[top : top + _TILE_HEIGHT, left : left + _TILE_WIDTH] = cv2.resize(
            spread, (_TILE_WIDTH, _TILE_HEIGHT), interpolation=cv2.INTER_NEAREST
        )
        for line, text in enumerate(lines[:2]):
            where = (left, top + _TILE_HEIGHT + 12 + 14 * line)
            cv2.putText(page, text[:20], where, cv2.FONT_HERSHEY_SIMPLEX, 0.33, 0, 1, cv2.LINE_AA)
    return page


def make(crops: Crops, bundles: Sequence[Bundle], out: Path) -> dict[str, Any]:
    """Write the sheet, its list and its figures into a folder; returns the figures.

    Raises:
        ArtefactError: The crops or bundles cannot be used, or nothing can be written.
    """
    judged = choose_split(crops, None)
    truth = np.array([crops.labels.index(crops.labels[at]) for at in crops.label_index[judged]], np.int64)
    faulty: Flags = np.array([crops.labels[at] != NORMAL_LABEL for at in crops.label_index[judged]], np.bool_)
    scores = {bundle.name: score_crops(bundle, crops, judged) for bundle in bundles}
    by_model = {name: logits(said.max(axis=1)) for name, said in scores.items()}
    first = bundles[0]
    named = np.array([crops.labels.index(first.labels[at]) for at in scores[first.name].argmax(axis=1)], np.int64)
    mean = np.mean(list(by_model.values()), axis=0)
    healthy = np.flatnonzero(~faulty)
    surest = healthy[np.argsort(-mean[healthy], kind="stable")[: SHOWN // 2]]
    doubted = set(agreed(by_model, faulty).tolist())
    tiles: list[npt.NDArray[np.uint8]] = []
    captions: list[tuple[str, str]] = []
    rows = []
    for at in surest.tolist():
        beside = nearest(at, by_model[first.name], named, np.where(faulty, truth, -1))
        label = crops.labels[named[at]]
        tiles.append(crops.images[judged[at]])
        captions.append((f"'healthy' {mean[at]:+.1f}{' *' if at in doubted else ''}", f"as {label}"))
        if beside >= 0:
            tiles.append(crops.images[judged[beside]])
            captions.append((f"{label} {by_model[first.name][beside]:+.1f}", "so labelled"))
        rows.append([int(judged[at]), label, at in doubted, *(round(float(one[at]), 3) for one in by_model.values())])
    figures = costs(by_model, faulty)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(str(out / "sheet.png"), sheet(tiles, captions)):
            raise ArtefactError(f"{out / 'sheet.png'} cannot be written")
        with (out / "crops.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["crop", "taken_for", "agreed", *by_model], *rows])
        (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ArtefactError(f"the sheet cannot be written into {out}: {error.strerror}") from error
    return figures


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.contact_sheet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--crops", type=Path, required=True, metavar="FILE.npz", help="as modules_ir_visible.npz")
    parser.add_argument(
        "--out", type=Path, default=Path("out/contact-sheet"), help="folder (default out/contact-sheet)"
    )
    parser.add_argument("--model", action="append", metavar="BUNDLE", help="may be repeated (default: the zoo's three)")
    options = parser.parse_args(arguments)
    try:
        bundles = [load_bundle(name) for name in options.model or MODELS]
        figures = make(Crops.load(options.crops), bundles, options.out)
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(json.dumps({"sheet": str(options.out / "sheet.png"), **figures}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
