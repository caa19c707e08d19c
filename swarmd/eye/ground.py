"""From what the configuration says of the ground to what the eye takes."""

from typing import TYPE_CHECKING

from swarmd.eye.ipc import TerrainWords
from swarmd_models.errors import SourceError

if TYPE_CHECKING:
    from swarmd.config.sections import PoseSection
    from swarmd_models.geo.terrain import Terrain

SIGMA_MAX_M = 1000.0
"""Metres; the most that `pose.terrain_sigma_m` may say, so that a flag takes no more than the configuration."""


def terrain_words(pose: "PoseSection") -> TerrainWords:
    """What `[pose]` says of the ground."""
    return TerrainWords(pose.terrain, pose.terrain_sigma_m, pose.terrain_home, pose.terrain_unknown == "level")


def open_terrain(words: TerrainWords, *, is_ahead: bool = False) -> "Terrain | None":
    """The height model that is named, or none.

    Args:
        words: What is said of it.
        is_ahead: Frames do not wait for the file (`swarmd_models.geo.ahead`).

    Raises:
        SourceError: It cannot be used.
    """
    # The brain reads this module, and no NumPy.
    from swarmd_models.geo.terrain import Terrain, TerrainRule, parse_home

    if not words.path:
        return None
    if not 0.0 <= words.sigma_m <= SIGMA_MAX_M:
        raise SourceError(f"a height model's error of {words.sigma_m:g} m; give 0 to {SIGMA_MAX_M:g}")
    try:
        home = parse_home(words.home)
    except ValueError as error:
        raise SourceError(f"the home of the height model: {error}; give LAT,LON in degrees") from error
    return Terrain.open(TerrainRule(words.path, words.sigma_m, home, words.level), is_ahead=is_ahead)
