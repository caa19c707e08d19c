"""Trains and judges a shape for a search: shortly for a trial, in full for a finalist, and the member that comes out.

The score is the average precision of the INT8 files, both stages, in frames composed of the crops held back (drawn
modules, where there are no crops), as a bundle would fly. The second stage is the zoo's; both are joined in the ratio
that every bundle has (`settings.FIRST_SHARE`), so no trial sets anything on the crops that it is judged on. Needs
PyTorch (extra `train`).
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import torch

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import evaluate_frames
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.thermal import Crops
from swarmd_recipes import settings
from swarmd_recipes.export import convert, sample_frames, write_bundle
from swarmd_recipes.judge import JudgeOptions
from swarmd_recipes.net import million_macs
from swarmd_recipes.pipeline import Paths, committed_second, make_model
from swarmd_recipes.space import SECOND, Plan, Shape, recipe_of, recipe_toml
from swarmd_recipes.train import Recipe, fingerprint, load_recipe, say, train

_PREVALENCE = 0.085
"""Of faults in the frames that are judged: real farms' upper end, where a few dozen frames hold enough of them."""
_SEED = 81
"""Of those frames; no other step of a recipe has it."""
_CALIBRATION_FRAMES = 16
"""For trials and finalists, whose files are judged and thrown away; the member is exported like every model."""
_CANDIDATE = 0.05
"""First-stage score from which the second is asked, for all alike; a member's own is set when it is made."""


class Proxies:
    """Shapes of one search, judged on the same data."""

    def __init__(self, plan: Plan, crops: Path | None, work: Path, threads: int) -> None:
        """Load the data.

        Args:
            plan: Of the search.
            crops: Real module crops; None: drawn modules only.
            work: A folder for each shape goes there.
            threads: For training.
        """
        torch.set_num_threads(threads)
        self._plan, self._crops_path, self._work = plan, crops, work
        self._crops = Crops.load(crops).with_part_held_back() if crops is not None else None
        self._data = hashlib.sha256(crops.read_bytes()).hexdigest() if crops is not None else "drawn"
        self._second = committed_second(SECOND)
        self._flips = JudgeOptions().flips

    def judge(self, shape: Shape) -> dict[str, float]:
        """Train a shape shortly and judge it; what was done before a kill is not done again."""
        return self._judged(shape, is_full=False)

    def full(self, shape: Shape) -> dict[str, float]:
        """Train a finalist in full and judge it on the same frames as its trial."""
        return self._judged(shape, is_full=True)

    def _judged(self, shape: Shape, is_full: bool) -> dict[str, float]:
        folder = self._work / ("full" if is_full else "trials") / shape.name
        note = folder / "figures.json"
        recipe = self._recipe(shape, folder, is_full)
        judged_on = f"{fingerprint(recipe)} {self._data} {self._plan.proxy.frames}"
        if note.exists():
            kept = json.loads(note.read_text(encoding="utf-8"))
            if kept["of"] == judged_on:
                figures: dict[str, float] = kept["figures"]
                return figures
        net = train(recipe, self._crops, folder / recipe.name)
        macs = million_macs(net, shape.height, shape.width)
        frames = np.stack(sample_frames(recipe, self._crops, 2 * _CALIBRATION_FRAMES, 0))
        seen, others = frames[:_CALIBRATION_FRAMES], frames[_CALIBRATION_FRAMES:]
        exported = convert(
            net, recipe.name, ("cls", "dist"), seen, others, folder / "export", with_onnx=False, with_float=False
        )
        rule = {
            "score_threshold": 0.5,
            "second": {
                "flips": self._flips,
                "candidate_threshold": _CANDIDATE,
                "first_weight": settings.FIRST_SHARE,
                "second_weight": 1.0,
                "kind_weight": 0.0,
                "score_threshold": 0.5,
            },
        }
        assert isinstance(recipe.scene, SceneOptions)  # Searches are of modules.
        about = {"recipe": {"scene": {"pixel_m": recipe.scene.pixel_m}}}
        bundle = load_bundle(write_bundle(exported, recipe, folder / "bundle", rule, about, self._second))
        figures = {
            "score": self._score(bundle),
            "score_first": self._score(dataclasses.replace(bundle, second=None)),
            "million_macs": round(macs, 2),
            "sqnr_db": round(exported.sqnr_db["cls"], 2),
        }
        with contextlib.suppress(OSError):
            shutil.rmtree(folder / "export")
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps({"of": judged_on, "figures": figures}), encoding="utf-8")
        draft.replace(note)
        return figures

    def _score(self, bundle: Bundle) -> float:
        scenes = settings.frames(bundle, self._crops, _PREVALENCE, self._plan.proxy.frames, _SEED)
        return float(evaluate_frames(bundle, scenes)["ap"] or 0.0)

    def _recipe(self, shape: Shape, folder: Path, is_full: bool) -> Recipe:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "recipe.toml"
        path.write_text(recipe_toml(recipe_of(self._plan, shape, is_full), "Written by a search."), encoding="utf-8")
        return load_recipe(str(path))

    def score_of(self, name: str) -> dict[str, float]:
        """A bundle of the zoo on frames of the same modules, of its own size."""
        return {"score": self._score(load_bundle(name))}

    def member(self, recipe: Path, shape_name: str) -> None:
        """Make the bundle of the best finalist; its training is taken from where it was judged.

        Raises:
            ArtefactError: It was not trained in full.
        """
        folder = self._work / "full" / shape_name
        loaded = load_recipe(str(recipe))
        if not (folder / loaded.name / "checkpoint.pt").exists():
            raise ArtefactError(f"{shape_name} was not trained in full in {self._work}")
        make_model(loaded, Paths(self._crops_path, folder, self._work / "zoo"), say)
