"""Writes a bundle's `[curve]`: its thresholds over the rate of false alarms, on the crops held back.

`python -m swarmd_recipes.curve --model BUNDLE.toml --crops modules_ir_visible.npz`
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from swarmd_models.bundle import Bundle, load_bundle, resolve
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.operating_point import Curve
from swarmd_models.synthetic.thermal import Crops
from swarmd_recipes import settings

RATES = (0.1, 0.3, 0.6, 1.0, 3.0, 10.0, 30.0)
"""False alarms in 1,000 healthy modules."""


def measure(bundle: Bundle, crops: Crops, share: float = 1.0, rates: Sequence[float] = RATES) -> Curve:
    """The threshold at each rate, on composed frames of the crops held back; one for all classes.

    A threshold for each class finds less at the same number of false alarms: a class's own tail is a handful of crops,
    and what seems cheap on them is not on others (docs/performance/models.md).

    Args:
        bundle: Its own thresholds are not looked at.
        crops: With a part held back.
        share: Of the usual number of frames.
        rates: False alarms in 1,000 healthy modules, ascending.
    """
    real, drawn = settings.heard_of_healthy(bundle, crops, share)
    # Drawn modules are told apart more easily: the limit on them is as much stricter as for the bundle's own point.
    strict = settings.FALSE_PER_1000_DRAWN / settings.FALSE_PER_1000
    values = [max(settings.pooled_threshold(real, r), settings.pooled_threshold(drawn, r * strict)) for r in rates]
    return Curve(tuple(rates), dict.fromkeys(bundle.labels, tuple(values)))


def write(path: Path, curve: Curve) -> None:
    """Replace the tables of the curve in a bundle's TOML, before its `[provenance]`; raises `ArtefactError`."""
    lines = ["[curve]", f"false_per_1000 = {list(curve.rates)}", "[curve.thresholds]"]
    lines += [f'"{label}" = {[round(value, 5) for value in values]}' for label, values in curve.thresholds.items()]
    table = "\n".join(lines) + "\n\n"
    try:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^\[curve\]\n(?:(?!\[(?!curve\.)).*\n)*", "", text, flags=re.MULTILINE)
        before, mark, after = text.partition("[provenance]")
        path.write_text(before.rstrip("\n") + "\n\n" + table + mark + after, encoding="utf-8")
    except OSError as error:
        raise ArtefactError(f"the curve cannot be written into {path}: {error.strerror}") from error


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.curve", description="Writes a bundle's [curve].")
    parser.add_argument("--model", required=True, help="the bundle's .toml, or zoo:NAME; it is changed")
    parser.add_argument(
        "--crops", required=True, metavar="FILE.npz", help="real module crops, as modules_ir_visible.npz"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of frames (default 1)")
    options = parser.parse_args(arguments)
    try:
        path = resolve(options.model)
        bundle = load_bundle(path)
        curve = measure(bundle, Crops.load(Path(options.crops)).with_part_held_back(), options.share)
        write(path, curve)
        load_bundle(path)
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{path}: {len(curve.rates)} points from {curve.rates[0]:g} to {curve.rates[-1]:g} in 1,000\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
