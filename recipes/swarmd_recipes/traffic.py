"""Detectors of traffic at crossings, in three sizes: trained, exported, calibrated and scored. Needs the extra `train`.

    python -m swarmd_recipes traffic-192 traffic-384 traffic-288 [--work DIR] [--out DIR]

The nets, their training and their INT8 export are those of the zoo (`train.py`, `export.py`), on frames that
`traffic_scenes.py` draws. What is drawn is known, so there is no teacher and no second stage. Scores are calibrated on
crossings that no net is taught on, and scored on others.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import lenient
from swarmd_recipes.traffic_scenes import LABELS, TrafficMaker, TrafficOptions
from swarmd_recipes.traffic_scores import (
    CALIBRATING,
    HELD_OUT,
    SEED,
    calibration_of,
    claims,
    heard,
    mean_ap,
    scenes_of,
)

RECIPES = ("traffic-192", "traffic-288", "traffic-384")
"""From the smallest to the largest."""
ABOUT = "road users at drawn crossings; taught and scored on drawn frames, never on photographs"
_HASHED = 64
"""Frames of those that teach whose bytes name the data."""
_PULL = 2.0
"""Of a class's calibration towards that of all."""


def make_traffic(recipe: Any, work: Path, out: Path, say: Callable[[str], None], share: float = 1.0) -> dict[str, Any]:
    """Train, export, calibrate and score one size, and write its bundle.

    Args:
        recipe: A `train.Recipe` with a `[traffic]` table.
        work: For checkpoints.
        out: The folder for the bundle.
        say: Told about progress.
        share: Of the usual frames.

    Returns:
        The bundle's provenance.
    """
    from swarmd_recipes.export import export_model, write_bundle
    from swarmd_recipes.net import million_macs
    from swarmd_recipes.train import train

    net = train(recipe, None, work / recipe.name)
    macs = round(million_macs(net, recipe.scene.height, recipe.scene.width), 1)
    say(f"{recipe.name}: exporting")
    exported = export_model(net, recipe, None, work / recipe.name, with_onnx=False, share=share)
    provenance: dict[str, Any] = {
        "about": ABOUT,
        "recipe": {name: part for name, part in asdict(recipe).items() if part is not None},
        "trained_steps": recipe.train.steps,
        "data_sha256": data_sha256(recipe.scene, recipe.seed),
        "million_macs": macs,
        "sqnr_db": {name: round(value, 2) for name, value in exported.sqnr_db.items()},
        "correlation": {name: round(value, 5) for name, value in exported.correlation.items()},
    }
    rule: dict[str, Any] = {"score_threshold": 0.5}

    def write() -> Bundle:
        return load_bundle(write_bundle(exported, recipe, out, rule, provenance, with_float=False))

    rule |= calibrated(write(), share)
    provenance["scores"] = scores_of(write(), share)
    write()
    say(f"{recipe.name}: {json.dumps(provenance['scores'])}")
    return provenance


def data_sha256(options: TrafficOptions, seed: int) -> str:
    """Of the first frames that teach, with what is true of them."""
    maker, digest = TrafficMaker(options, seed), hashlib.sha256()
    for index in range(_HASHED):
        scene = maker.scene(index)
        for part in (scene.image, scene.boxes.round(2), scene.label_index):
            digest.update(part.tobytes())
    return digest.hexdigest()


def calibrated(bundle: Bundle, share: float = 1.0) -> dict[str, list[float]]:
    """Scales and biases, one a class, with which a score is the share of such detections that are right.

    A small net that is sure that there is a person far away misses the person's outline by half: of one class the same
    logit means something else than of another.
    """
    frames = CALIBRATING[:: max(1, round(1 / share))]
    detector = Detector.open(lenient(bundle), DetectorOptions())
    rows: list[list[tuple[float, bool]]] = [[] for _ in LABELS]
    for scene in scenes_of(frames, TrafficMaker(TrafficOptions(), SEED)):
        said = heard(detector, scene.image)
        for one, at in zip(said, claims(scene, said), strict=True):
            rows[one.kind].append((one.score, at >= 0))
    detector.close()
    common = calibration_of([row for of_class in rows for row in of_class])
    each = [calibration_of(of_class, common, _PULL) if of_class else common for of_class in rows]
    return {"scale": [round(scale, 4) for scale, _ in each], "bias": [round(bias, 4) for _, bias in each]}


def scores_of(bundle: Bundle, share: float = 1.0) -> dict[str, Any]:
    """mAP at an overlap of a half on the crossings held out, of the INT8 file."""
    detector = Detector.open(lenient(bundle), DetectorOptions())
    scenes = scenes_of(HELD_OUT[:: max(1, round(1 / share))], TrafficMaker(TrafficOptions(), SEED))
    whole, by_class = mean_ap(scenes, [heard(detector, scene.image) for scene in scenes])
    detector.close()
    return {
        "frames": len(scenes),
        "road_users": sum(int((scene.label_index >= 0).sum()) for scene in scenes),
        "map_50": round(whole, 4),
        "ap_50": {label: round(value, 4) for label, value in by_class.items()},
    }
