"""The contact sheet of the surest false alarms: what it counts, and what it shows."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd_models.bundle import load_bundle
from swarmd_models.errors import ArtefactError
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops
from swarmd_recipes.contact_sheet import agreed, costs, make, nearest, recall_at, sheet


def test_a_label_that_all_models_doubt_costs_the_recall_that_is_counted() -> None:
    """One healthy crop above all faults: at 1 in 1,000 of 1,000 it hides nothing, at fewer it hides them all."""
    faulty = np.arange(1100) >= 1000
    best = np.where(faulty, 2.0, -2.0)
    best[7] = 5.0
    assert recall_at(best, faulty, 0.5) == 0.0
    assert recall_at(best, faulty, 1.0) == 1.0
    other = best + np.where(np.arange(1100) == 9, 6.0, 0.0)
    assert agreed({"one": best, "other": other}, faulty, 2.0).tolist() == [7]
    best[8] = 4.0
    told = costs({"one": best}, faulty)
    assert told["agreed"] == 10
    assert told["recall"]["one"]["1"] == [0.0, round(102 / 110, 3)]


def test_beside_a_crop_stands_the_nearest_of_the_fault_that_it_is_taken_for() -> None:
    best, said = np.array([3.0, 2.5, 9.0, 3.1]), np.array([1, 1, 1, 2])
    assert nearest(0, best, said, np.array([-1, 1, 1, 2])) == 1
    assert nearest(0, best, said, np.array([-1, 2, 2, 2])) == -1


def test_a_sheet_has_a_row_for_eight_crops() -> None:
    crop = np.arange(40 * 24, dtype=np.uint8).reshape(40, 24)
    page = sheet([crop] * 9, [("a", "b")] * 9)
    assert page.shape == (2 * 198, 8 * 104)
    with pytest.raises(ArtefactError, match="no crops"):
        sheet([], [])


def test_it_is_made_of_crops_and_a_bundle(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    images = np.clip(rng.normal(120, 12, (36, 40, 24)), 0, 255).astype(np.uint8)
    index = np.where(np.arange(36) % 3 == 0, np.arange(36) % 11, 11).astype(np.int64)
    crops = Crops(images, (*FAULT_LABELS, NORMAL_LABEL), index, np.ones(36, np.uint8))
    figures = make(crops, [load_bundle("zoo:small-320")], tmp_path / "out")
    assert (figures["healthy"], figures["faulty"]) == (24, 12)
    assert json.loads((tmp_path / "out" / "figures.json").read_bytes()) == figures
    assert cv2.imread(str(tmp_path / "out" / "sheet.png")) is not None
    assert len((tmp_path / "out" / "crops.csv").read_text().splitlines()) == 25
