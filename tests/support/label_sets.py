"""Training sets of drawn modules, made as people make them: an export, labels in COCO, `frames import`'s own code."""

import json
from collections.abc import Sequence
from pathlib import Path

import cv2

from swarmd_models.bundle import load_bundle
from swarmd_models.head_rows import drawn_scenes
from swarmd_models.labelling.training_set import TrainingSet, import_labels
from swarmd_models.synthetic.thermal import FAULT_LABELS

MODEL = "zoo:small-320"
CONTRAST = 0.45
"""Of the site's camera, beside those that the detector knows."""


def drawn_set(
    folder: Path, seed: int, count: int, *, classes: Sequence[int] = (), held_share: float = 0.25, shift: int = 0
) -> TrainingSet:
    """A set of drawn pictures.

    Args:
        folder: A new one.
        seed: Of the pictures.
        count: Of them.
        classes: Only faults of these are labelled; none: all.
        held_share: Of the pictures, that only judge.
        shift: Labels are wrong by so many classes.
    """
    export = folder.with_name(f"{folder.name}-export")
    (export / "images").mkdir(parents=True)
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for index, scene in enumerate(drawn_scenes(load_bundle(MODEL), seed, count, CONTRAST)):
        name = f"images/{index:04}.png"
        cv2.imwrite(str(export / name), scene.image)
        height, width = scene.image.shape
        entry = {"id": index + 1, "file_name": name, "width": width, "height": height, "captured_ns": index + 1}
        images.append({**entry, "model": ""})
        for box, label in zip(scene.boxes.tolist(), scene.label_index.tolist(), strict=True):
            x1, y1, x2, y2 = max(box[0], 0.0), max(box[1], 0.0), min(box[2], width), min(box[3], height)
            if label < 0 or (classes and label not in classes) or x2 - x1 < 2 or y2 - y1 < 2:
                continue
            category = (label + shift) % len(FAULT_LABELS) + 1
            row = {"id": len(annotations) + 1, "image_id": index + 1, "category_id": category, "iscrowd": 0}
            annotations.append({**row, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)})
    categories = [{"id": at + 1, "name": name} for at, name in enumerate(FAULT_LABELS)]
    document = {"images": images, "annotations": [], "categories": categories}
    (export / "annotations.json").write_text(json.dumps(document))
    labels = folder.with_name(f"{folder.name}-labels.json")
    labels.write_text(json.dumps({**document, "annotations": annotations}))
    return import_labels(export, labels, folder, "alice", held_share)[0]
