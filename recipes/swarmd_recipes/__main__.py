"""`python -m swarmd_recipes`: trains the zoo's models from nothing and writes their bundles."""

import argparse
import sys
from pathlib import Path

import torch

from swarmd_models.errors import ArtefactError
from swarmd_recipes import text
from swarmd_recipes.pipeline import Paths, make_model
from swarmd_recipes.traffic import make_traffic
from swarmd_recipes.traffic_scenes import TrafficOptions
from swarmd_recipes.train import SHORT_SHARE, ZOO_RECIPES, load_recipe, say


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes", description=__doc__.splitlines()[0])
    whole = [*ZOO_RECIPES, text.NAME]
    parser.add_argument("recipes", nargs="*", default=whole, help="such as small-320; default: the whole zoo")
    parser.add_argument("--crops", type=Path, help="npz of real module crops; without it all modules are drawn")
    parser.add_argument("--soft", type=Path, help="npz of a teacher's probabilities; default: train the teacher too")
    parser.add_argument("--work", type=Path, default=Path("build/model"), help="checkpoints; resumed when they fit")
    parser.add_argument("--out", type=Path, help="folder for the bundles; default: zoo in the work directory")
    parser.add_argument("--profile", choices=["full", "short"], default="full")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        out, share = options.out or options.work / "zoo", 1.0 if options.profile == "full" else SHORT_SHARE
        for name in options.recipes:
            if name == text.NAME:
                text.make_text(options.work / name, out, say, share)
                continue
            recipe = load_recipe(name, options.profile)
            if isinstance(recipe.scene, TrafficOptions):
                make_traffic(recipe, options.work, out, say, share)
                continue
            make_model(recipe, Paths(options.crops, options.work, out, options.soft), say, share=share)
    except ArtefactError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
