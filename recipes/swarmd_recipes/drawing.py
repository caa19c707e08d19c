"""Who draws the frames of a recipe, and what can be in them: modules of a solar farm, or traffic at crossings."""

from typing import Protocol

from swarmd_models.synthetic.scenes import Scene, SceneMaker, SceneOptions
from swarmd_models.synthetic.thermal import FAULT_LABELS, Crops
from swarmd_recipes.traffic_scenes import LABELS, TrafficMaker, TrafficOptions


class Maker(Protocol):
    """Draws frames by number."""

    def scene(self, index: int) -> Scene:
        """Frame number `index` (>= 0)."""


def maker_of(options: SceneOptions | TrafficOptions, seed: int, crops: Crops | None) -> Maker:
    """Who draws frames with these options; crops, where there are any, of the training split."""
    if isinstance(options, TrafficOptions):
        return TrafficMaker(options, seed)
    return SceneMaker(options, seed, crops, split=0)


def labels_of(options: SceneOptions | TrafficOptions) -> tuple[str, ...]:
    """The classes of such frames."""
    return LABELS if isinstance(options, TrafficOptions) else FAULT_LABELS
