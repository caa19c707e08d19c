"""Fuzz targets of corrected labels: what labelling tools, and whoever hands over their files, send back."""

import contextlib
import json
import math

from swarmd_models.labelling import forms
from swarmd_models.labelling.coco import read_coco
from swarmd_models.labelling.cvat import read_cvat
from swarmd_models.labelling.forms import LabelError, Labelled
from swarmd_models.labelling.label_studio import read_label_studio

CVAT = b"""<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><name>farm</name><owner><username>alice</username></owner></task></meta>
<image id="0" name="images/a.png" width="320" height="256">
<box label="hot-spot" occluded="0" xtl="10.5" ytl="20" xbr="50" ybr="44" z_order="0"></box>
<polygon label="cell" points="1,2;30,4;5,60" z_order="0"/></image>
<image id="1" name="images/b.png" width="320" height="256"></image></annotations>"""

COCO = {
    "images": [{"id": 1, "file_name": "images/a.png", "width": 320, "height": 256}, {"id": 2, "file_name": "b.png"}],
    "categories": [{"id": 1, "name": "hot-spot"}, {"id": 2, "name": "cell"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10.5, 20, 39.5, 24]},
        {"id": 2, "image_id": 1, "category_id": 2, "bbox": [1, 2, 29, 58], "score": 0.4, "reviewed_by": ["alice"]},
        {"id": 3, "image_id": 2, "category_id": 2, "bbox": [1, 2, 29, 58], "iscrowd": 1},
    ],
}

_SHAPE = {"type": "rectanglelabels", "value": {"x": 3.28125, "y": 7.8125, "width": 12.34375, "height": 9.375}}
STUDIO = [
    {
        "id": 1,
        "data": {"image": "/data/upload/1/0123abcd-a.png"},
        "annotations": [
            {
                "completed_by": {"email": "alice"},
                "created_at": "2026-11-01",
                "result": [{**_SHAPE, "value": {**_SHAPE["value"], "rectanglelabels": ["hot-spot"]}}],  # type: ignore[dict-item]
            }
        ],
    },
    {"image": "b.png", "annotator": 1, "label": [{**_SHAPE["value"], "rectanglelabels": ["cell"]}]},  # type: ignore[dict-item]
]


def json_corpus() -> list[bytes]:
    """One file of each form in JSON."""
    return [json.dumps(COCO).encode(), json.dumps(STUDIO).encode()]


def read_json(data: bytes) -> None:
    """Both forms of JSON; what they let through holds its bounds."""
    with contextlib.suppress(LabelError):
        document = forms.parse_json(data)
        for vouched in (False, True):
            with contextlib.suppress(LabelError):
                _check(read_coco(document, vouched))
        _check(read_label_studio(document))


def read_xml(data: bytes) -> None:
    """CVAT's form."""
    with contextlib.suppress(LabelError):
        _check(read_cvat(data))


def _check(found: list[Labelled]) -> None:
    assert len(found) <= forms.MAX_PICTURES
    for one in found:
        assert len(one.boxes) <= forms.MAX_BOXES
        assert all(len(name) <= forms.MAX_NAME for name in one.by)
        for label, box in one.boxes:
            assert label.isprintable()
            assert 0 < len(label.encode()) <= forms.MAX_NAME
            assert all(map(math.isfinite, box))
            assert box[0] < box[2]
            assert box[1] < box[3]
