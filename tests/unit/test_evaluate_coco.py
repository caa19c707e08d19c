"""COCO's figures of a model on somebody's pictures, by pycocotools."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate_coco import judge, main
from swarmd_models.labelling.coco import read_coco
from swarmd_models.types import Detection

pytest.importorskip("pycocotools", reason="pycocotools is not installed (make setup-extras)")
SIZE = (200, 200)
BOXES = {"a.png": [("cat", (10, 10, 60, 60)), ("dog", (100, 20, 180, 90))], "b.png": [("cat", (30, 40, 110, 120))]}


def _document(**more: Any) -> dict[str, Any]:
    images = [{"id": 7 + n, "file_name": f"train/{name}"} for n, name in enumerate(BOXES)]
    kinds = {"cat": 3, "dog": 9, "emu": 11}
    rows = []
    for n, boxes in enumerate(BOXES.values()):
        for name, (x1, y1, x2, y2) in boxes:
            rows.append({"image_id": 7 + n, "category_id": kinds[name], "bbox": [x1, y1, x2 - x1, y2 - y1]})
    categories = [{"id": number, "name": name} for name, number in kinds.items()]
    return {"images": images, "annotations": rows, "categories": categories, **more}


def _folder(tmp_path: Path) -> Path:
    for name in BOXES:
        cv2.imwrite(str(tmp_path / name), np.zeros((200, 200, 3), np.uint8))
    return tmp_path


def _judged(folder: Path, says: dict[str, Sequence[Detection]], labels: Sequence[str] = ("Cat", "dog", "bus")) -> Any:
    return judge(read_coco(_document(), vouched=True), folder, labels, lambda path: (says[path.name], SIZE))


def _all(shift: float = 0.0) -> dict[str, list[Detection]]:
    kinds = {"cat": "Cat", "dog": "dog"}
    return {
        name: [Detection(0, kinds[k], 0.9, (b[0] + shift, b[1], b[2] + shift, b[3])) for k, b in boxes]
        for name, boxes in BOXES.items()
    }


def test_a_model_that_is_right_has_one_and_classes_meet_by_name(tmp_path: Path) -> None:
    figures = _judged(_folder(tmp_path), _all())
    assert (figures["ap"], figures["ap50"], figures["ar_100"]) == (1.0, 1.0, 1.0)
    assert figures["ap_by_class"] == {"cat": 1.0, "dog": 1.0}
    assert figures["not_judged"] == ["bus"]
    assert figures["pictures"] == 2
    assert figures["ap_small"] == -1.0, "nothing is that small"


def test_boxes_beside_the_thing_count_at_the_overlaps_that_they_have(tmp_path: Path) -> None:
    """Ten pixels beside: overlaps of 0.67, 0.75 and 0.78, so 0.5 is passed by all and 0.9 by none."""
    figures = _judged(_folder(tmp_path), _all(10.0))
    assert figures["ap50"] == 1.0
    assert 0.4 < figures["ap"] < 0.6
    assert figures["ap_by_class"]["dog"] > figures["ap_by_class"]["cat"] - 0.2


def test_what_is_missed_and_what_is_not_there_cost(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    says: dict[str, Sequence[Detection]] = _all()  # type: ignore[assignment]
    says["b.png"] = [Detection(0, "Cat", 0.95, (150, 150, 190, 190))]
    figures = _judged(folder, says)
    assert figures["ap_by_class"]["dog"] == 1.0
    assert figures["ap_by_class"]["cat"] < 0.5
    assert _judged(folder, dict.fromkeys(BOXES, ()))["ap"] == 0.0


def test_a_crowd_counts_for_nothing(tmp_path: Path) -> None:
    document = _document()
    document["annotations"].append({"image_id": 8, "category_id": 3, "bbox": [140, 140, 55, 55], "iscrowd": 1})
    says = _all()
    says["b.png"].append(Detection(0, "Cat", 0.99, (150, 150, 190, 190)))
    folder = _folder(tmp_path)
    labels = ("Cat", "dog")
    with_crowd = judge(read_coco(document, vouched=True), folder, labels, lambda path: (says[path.name], SIZE))
    assert with_crowd["ap"] == 1.0
    assert _judged(folder, says)["ap"] < 1.0


def test_a_set_that_cannot_be_judged_says_why(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"lacks 2 of 2 pictures, as 'train/a\.png'"):
        _judged(tmp_path, _all())
    with pytest.raises(ArtefactError, match="no class in common"):
        _judged(_folder(tmp_path), _all(), ("bus",))


def test_the_command_judges_a_real_model_or_says_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, labels = _folder(tmp_path), tmp_path / "labels.json"
    document = _document(categories=[{"id": n, "name": name} for n, name in ((3, "hot-spot"), (9, "cracking"))])
    labels.write_text(json.dumps(document))
    assert main(["--labels", str(labels), "--pictures", str(folder), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["ap"] <= 0.1, "there is nothing in these pictures"
    assert set(figures["ap_by_class"]) == {"hot-spot", "cracking"}
    for text in ("[", "[]", '{"images": 3}'):
        labels.write_text(text)
        assert main(["--labels", str(labels), "--pictures", str(folder)]) == 1
        assert capsys.readouterr().err.startswith("error: ")
    assert main(["--labels", str(tmp_path / "none.json"), "--pictures", str(folder)]) == 1
