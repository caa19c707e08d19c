"""What a bundle says for the tracker and for drift: two tables of its TOML, and how they are read."""

from dataclasses import dataclass

from swarmd_models.motion import MOVING_LOST_MS, STILL_LOST_MS
from swarmd_models.toml_reader import TomlReader


@dataclass(frozen=True, slots=True)
class TrackRule:
    """What the model's things are like to a tracker."""

    min_hits: int = 2
    lost_ms: int = MOVING_LOST_MS
    static: bool = False
    ground_point: str = "centre"
    """"centre" of the box (flat things) or its "bottom" (standing ones)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the model says on the data it was made for; drift is measured against it."""

    score_histogram: tuple[float, ...] = ()
    """Shares of scores in ten equal bins from 0 to 1."""
    detections_per_frame: float = 0.0
    feature_mean: tuple[float, ...] = ()
    feature_std: tuple[float, ...] = ()
    """Of `watch.features_of` over the reference frames."""
    feature_deciles: tuple[float, ...] = ()
    """Nine a feature: a tenth of the reference frames lies between two neighbours."""
    detail: tuple[float, ...] = ()
    """Least and greatest fine detail of a frame, greatest of a detection's box (`strange.py`), grey levels; or none."""


def read_track_rule(table: TomlReader) -> TrackRule:
    """The table `[track]`."""
    return TrackRule(
        static=(is_static := table.boolean("static", False)),
        min_hits=table.integer("min_hits", 2, 1, 100),
        lost_ms=table.integer("lost_ms", STILL_LOST_MS if is_static else MOVING_LOST_MS, 1, 600_000),
        ground_point=table.choice("ground_point", ("centre", "bottom"), "centre"),
    )


def read_reference(table: TomlReader) -> Reference:
    """The table `[reference]`."""
    mean, std = table.numbers("feature_mean", -1e6, 1e6), table.numbers("feature_std", 0.0, 1e6)
    if len(mean) != len(std):
        table.problem("feature_mean and feature_std have different lengths")
    histogram = table.numbers("score_histogram", 0.0, 1e12)
    if len(histogram) not in (0, 10):
        table.problem(f"score_histogram has {len(histogram)} bins; 10 are needed")
    deciles = table.numbers("feature_deciles", -1e6, 1e6)
    if len(deciles) not in (0, 9 * len(mean)):
        table.problem(f"feature_deciles has {len(deciles)} numbers; {9 * len(mean)} are needed, nine a feature")
    if len(detail := table.numbers("detail", 0.0, 1e6)) not in (0, 3):
        table.problem("detail holds three numbers: a frame's least and greatest, a box's greatest")
    return Reference(histogram, table.number("detections_per_frame", 0.0, 0.0, 1e6), mean, std, deciles, detail)
