"""From nothing to a bundle with its figures: teacher, student, export, thresholds, evaluation.

Each step leaves its result in the work directory and is not repeated, so an interrupted run goes on where it stopped.
Needs the extra `train`; called by `python -m swarmd_models.recipes.train`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, Reference, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import (
    FrameSpec,
    ModuleScorer,
    choose_split,
    evaluate_crops,
    evaluate_frames,
    frames_of,
    score_crops,
)
from swarmd_models.recipes.metrics import macro_f1
from swarmd_models.recipes.thermal import NORMAL_LABEL, Crops
from swarmd_models.watch import features_of, measure_reference

Say = Callable[[str], None]

_FALSE_PER_1000 = 0.7
"""Aimed at when the threshold is set; the bar is 1.0."""
_CONTROL_FRAMES = 160
_REFERENCE_FRAMES = 120
ABOUT = "composed from real module crops and drawn modules; never tried on real aerial footage"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things come from and go."""

    crops: Path | None
    work: Path
    out: Path
    soft: Path | None = None
    """A teacher's probabilities made before; None trains a teacher if the recipe wants one."""


def make_model(recipe: Any, paths: Paths, say: Say, with_onnx: bool = True) -> dict[str, Any]:
    """Train, export, set thresholds and evaluate one recipe.

    Args:
        recipe: A `train.Recipe`.
        paths: Data, work directory, and the folder for the bundle.
        say: Told about progress.
        with_onnx: Also write the QDQ ONNX.

    Returns:
        The figures, as they stand in the bundle's provenance.
    """
    from swarmd_models.recipes.export import export_model
    from swarmd_models.recipes.train import load_soft, train

    crops = Crops.load(paths.crops) if paths.crops else None
    work = paths.work / recipe.name
    soft = load_soft(paths.soft, crops) if paths.soft else None
    if soft is None and crops is not None and recipe.train.teacher_epochs > 0:
        from swarmd_models.recipes.teacher import TeacherOptions, teach

        options = TeacherOptions(epochs=recipe.train.teacher_epochs, folds=recipe.train.teacher_folds)
        soft = teach(crops, paths.work / "teacher", options, say)
    net = train(recipe, crops, work, soft)
    say(f"{recipe.name}: exporting")
    exported = export_model(net, recipe, crops, work, with_onnx)
    return finish(recipe, exported, paths, say, recipe.train.steps)


def finish(recipe: Any, exported: Any, paths: Paths, say: Say, steps: int) -> dict[str, Any]:
    """Set thresholds on an exported model that was trained for `steps`, write its bundle and evaluate it."""
    from swarmd_models.recipes.export import write_bundle

    crops = Crops.load(paths.crops) if paths.crops else None
    provenance: dict[str, Any] = {
        "about": ABOUT,
        "recipe": dataclasses.asdict(recipe),
        "trained_steps": steps,
        "data_sha256": hashlib.sha256(paths.crops.read_bytes()).hexdigest() if paths.crops else "",
        "float_file": exported.float_path.name,
        "sqnr_db": {name: round(value, 2) for name, value in exported.sqnr_db.items()},
        "correlation": {name: round(value, 5) for name, value in exported.correlation.items()},
    }
    thresholds: dict[str, Any] = {"score_threshold": 0.5}

    def write() -> Bundle:
        return load_bundle(write_bundle(exported, recipe, paths.out, thresholds, provenance))

    bundle = write()
    say(f"{recipe.name}: thresholds")
    thresholds["score_threshold"] = control_threshold(bundle, str(paths.crops) if paths.crops else "")
    if crops is not None:
        provenance["crop_threshold"] = crop_threshold(bundle, crops)
    thresholds["reference"] = reference_of(write(), str(paths.crops) if paths.crops else "")
    provenance["scores"] = scores_of(write(), paths.crops)
    write()
    say(json.dumps(provenance["scores"]))
    return provenance


def control_threshold(bundle: Bundle, crops: str) -> float:
    """The score that fewer than one healthy module in a thousand exceeds, in frames of healthy modules only.

    Both kinds of frames count, real crops (validation split) and drawn modules: the higher score of the two.
    """
    wanted = []
    for source in {crops, ""}:
        scorer = ModuleScorer(bundle)
        best = [
            scorer.scores(scene.image, scene.boxes).max(axis=1)
            for scene in frames_of(FrameSpec(prevalence=0.0, frames=_CONTROL_FRAMES, seed=77, crops=source), bundle)
            if len(scene.boxes)
        ]
        scorer.close()
        wanted.append(float(np.quantile(np.concatenate(best), 1.0 - _FALSE_PER_1000 / 1000.0)))
    return round(float(np.clip(max(wanted) + 0.01, 0.3, 0.97)), 3)


def reference_of(bundle: Bundle, crops: str) -> Reference:
    """What the model says of frames like those it was made for, for the eye's watch over drift: half of them drawn."""
    detector = Detector.open(bundle, DetectorOptions())
    measured = []
    for source in (crops, ""):
        for scene in frames_of(FrameSpec(prevalence=0.02, frames=_REFERENCE_FRAMES, seed=78, crops=source), bundle):
            found = detector.detect(scene.image)
            measured.append((found, features_of(scene.image, detector.pooled())))
    detector.close()
    return measure_reference(measured)


def crop_threshold(bundle: Bundle, crops: Crops) -> float:
    """The score at which the twelve classes are told apart best (macro F1) on the validation crops.

    One number is chosen on 2,600 crops; nothing else of the validation split goes into the model.
    """
    judged = choose_split(crops, None)
    scores = score_crops(bundle, crops, judged)
    names = [*bundle.labels, NORMAL_LABEL]
    actual: npt.NDArray[np.int64] = np.array([names.index(crops.labels[i]) for i in crops.label_index[judged]])
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    steps = np.round(np.arange(0.1, 0.91, 0.02), 2)
    figures = [macro_f1(actual, np.where(best >= t, kind, len(names) - 1), len(names)) for t in steps]
    return float(steps[int(np.argmax(figures))])


def scores_of(bundle: Bundle, crops_path: Path | None) -> dict[str, Any]:
    """The figures that a bundle's provenance keeps."""
    scores: dict[str, Any] = {}
    if crops_path is not None:
        crops = Crops.load(crops_path)
        figures = evaluate_crops(bundle, crops, choose_split(crops, None))
        keys = ("n", "auroc", "macro_f1", "int8_minus_float", "false_alarm_share", "ece")
        scores["crops"] = {key: figures[key] for key in keys if figures[key] is not None}
        scores["crops"]["cracking_recall"] = figures["recall"].get("cracking", 0.0)
    source = str(crops_path) if crops_path else ""
    for name, prevalence, of in (
        ("frames_2", 0.02, source),
        ("frames_8.5", 0.085, source),
        ("control", 0.0, source),
        ("drawn_2", 0.02, ""),
    ):
        spec = FrameSpec(prevalence=prevalence, frames=200, seed=5, crops=of)
        figures = evaluate_frames(bundle, frames_of(spec, bundle))
        keys = ("modules", "faults", "ap", "precision", "recall", "false_per_1000_normal")
        scores[name] = {key: figures[key] for key in keys if figures[key] is not None}
    return scores
