"""How often a model may cry wolf: a bundle's thresholds by class as a curve over false alarms in 1,000 healthy modules.

The curve belongs to what decides in the end: the joined scores where there is a second stage, else the first's.
Between two points thresholds are interpolated, their logits over the logarithm of the rate; beyond the ends nothing
was measured.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swarmd_models.errors import ArtefactError
from swarmd_models.toml_reader import TomlReader

_LEAST, _MOST = 0.001, 1000.0
"""False alarms in 1,000 that a curve may speak of."""


@dataclass(frozen=True, slots=True)
class Alike:
    """How alike looks at one healthy module are: correlations of their logits, as `swarmd_recipes.alike` measures them.

    The upper ends of their intervals: two looks that are taken for more alike than they are cost a person a picture,
    the other way round they confirm what is not there.
    """

    drone: float
    """Two looks of one drone in one pass, 0 to 1."""
    drones: float
    """Two drones' looks on one day."""
    day: float
    """Looks on different days; at most `drones`."""
    pairs: int
    """Pairs of looks behind the three."""
    seed: int
    """Of what was drawn for them."""
    data: str
    """SHA-256 of what they were measured on, hexadecimal digits."""


def alike_milli(curve: "Curve | None") -> tuple[int, int]:
    """What a sighting says of how alike looks are, in a pass and on different days, thousandths; 0: not measured.

    >>> alike_milli(Curve(alike=Alike(0.98, 0.96, 0.9, 100, 1, "")))
    (960, 900)
    """
    if curve is None or curve.alike is None:
        return 0, 0
    return max(1, math.ceil(curve.alike.drones * 1000)), max(1, math.ceil(curve.alike.day * 1000))


@dataclass(frozen=True, slots=True)
class Curve:
    """Thresholds by label at each of some rates."""

    rates: tuple[float, ...] = ()
    """False alarms in 1,000 healthy things, ascending."""
    thresholds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By label, as many as `rates`; they fall as the rate rises."""
    alike: Alike | None = None
    """How alike looks are, where that was measured."""

    def at(self, rate: float) -> dict[str, float]:
        """Thresholds by label for a rate.

        Raises:
            ArtefactError: The curve does not reach so far.

        >>> Curve((1.0, 10.0), {"a": (0.9, 0.5)}).at(10.0)
        {'a': 0.5}
        """
        rates = self.rates
        if not rates or not rates[0] <= rate <= rates[-1]:
            reach = f"runs from {rates[0]:g} to {rates[-1]:g}" if rates else "is empty"
            raise ArtefactError(f"{rate:g} false alarms in 1,000: the model's curve {reach}")
        above = bisect_left(rates, rate)
        if rates[above] == rate:
            return {label: values[above] for label, values in self.thresholds.items()}
        share = math.log(rate / rates[above - 1]) / math.log(rates[above] / rates[above - 1])
        return {
            label: _sigmoid(_logit(values[above - 1]) * (1.0 - share) + _logit(values[above]) * share)
            for label, values in self.thresholds.items()
        }


def read_curve(table: TomlReader, labels: Sequence[str]) -> Curve | None:
    """The table `[curve]` of a bundle, None where there is none; problems are told to the reader."""
    rates = table.numbers("false_per_1000", _LEAST, _MOST)
    by_label = table.table("thresholds")
    thresholds = {label: by_label.numbers(label, 0.0, 1.0) for label in labels if by_label.has(label)}
    if not rates and not thresholds:
        return None
    if list(rates) != sorted(set(rates)):
        table.problem("curve.false_per_1000 must ascend")
    for label in labels:
        values = thresholds.get(label, ())
        if len(values) != len(rates):
            table.problem(f"curve.thresholds has {len(values)} numbers for {label!r}; {len(rates)} are needed")
        elif list(values) != sorted(values, reverse=True):
            table.problem(f"curve.thresholds of {label!r} must not rise with the rate")
    return Curve(rates, thresholds, _read_alike(table.table("alike")) if table.has("alike") else None)


def _read_alike(table: TomlReader) -> Alike:
    missing = [key for key in ("drone", "drones", "day") if not table.has(key)]
    drone, drones, day = (table.number(key, 1.0, 0.0, 1.0) for key in ("drone", "drones", "day"))
    if missing:
        table.problem(f"curve.alike needs {' and '.join(missing)}: correlations, 0 to 1")
    elif day > drones:
        table.problem("curve.alike.day must not exceed curve.alike.drones: another day's look is no more alike")
    pairs, seed = table.integer("pairs", 0, 0, 1 << 53), table.integer("seed", 0, 0, 1 << 53)
    return Alike(drone, drones, day, pairs, seed, table.text("data", ""))


def _logit(value: float) -> float:
    value = min(max(value, 1e-6), 1.0 - 1e-6)
    return math.log(value / (1.0 - value))


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
