"""Fuzz targets of corrected labels: what labelling tools, and whoever hands over their files, send back."""

import contextlib
import json
import math

from swarmd_models.labelling import forms
from swarmd_models.labelling.coco import read_coco
from swarmd_models.labelling.cvat import read_cvat
from swarmd_models.labelling.forms import LabelError, Labelled
from swarmd_models.labelling.label_studio import read_label_studio
from swarmd_models.labelling.voc import read_voc

CVAT = b"""<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><name>farm</name><owner><username>alice</username></owner></task></meta>
<image id="0" name="images/a.png" width="320" height="256">
<box label="hot-spot" occluded="0" xtl="10.5" ytl="20" xbr="50" ybr="44" z_order="0"></box>
<polygon label="cell" points="1,2;30,4;5,60" z_order="0"/></image>
<image id="1" name="images/b.png" width="320" height="256"></image></annotations>"""

VOC = b"""<annotation><folder>VOC2007</folder><filename>000001.jpg</filename><source><database>x</database></source>
<size><width>353</width><height>500</height><depth>3</depth></size><segmented>0</segmented>
<object><name>dog</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>
<bndbox><xmin>48</xmin><ymin>240.5</ymin><xmax>195</xmax><ymax>371</ymax></bndbox>
<part><name>head</name><bndbox><xmin>49</xmin><ymin>241</ymin><xmax>60</xmax><ymax>250</ymax></bndbox></part></object>
<object><name>person</name><difficult>1</difficult>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>353</xmax><ymax>500</ymax></bndbox></object></annotation>"""

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


def read_voc_xml(data: bytes) -> None:
    """Pascal VOC's form, of either first pixel; a picture's name is no more than a name."""
    for first_pixel in (0, 1):
        with contextlib.suppress(LabelError):
            one = read_voc(data, "000001", first_pixel)
            _check([one])
            _check([Labelled(one.name, one.unsure)])
            assert one.name


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
