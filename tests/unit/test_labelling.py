"""Corrected labels come back: each form says the same of the same pictures, and what cannot be right is refused."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd.cli.main import main
from swarmd_models.labelling import forms, training_set
from swarmd_models.labelling.cvat import read_cvat
from swarmd_models.labelling.forms import LabelError
from swarmd_models.labelling.training_set import import_labels, load_set
from tests.unit.test_frame_reviews import exported, keep, objects, thing

BOX = (10.0, 20.0, 42.0, 52.0)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return make_export(tmp_path)


def make_export(tmp_path: Path) -> Path:
    """Four exported pictures of 320 x 256, each with one guess."""
    folder = tmp_path / "export"
    (folder / "images").mkdir(parents=True)
    images, guesses = [], []
    for at in range(4):
        assert cv2.imwrite(str(folder / "images" / f"{at}.png"), np.full((256, 320), 40 + at, np.uint8))
        images.append({"id": at, "file_name": f"images/{at}.png", "width": 320, "height": 256, "captured_ns": at})
        images[-1]["model"] = "ab" * 32
        guesses.append({"id": at, "image_id": at, "category_id": 1, "bbox": [1, 1, 9, 9], "score": 0.4})
    document = {"images": images, "annotations": guesses, "categories": [{"id": 1, "name": "cell"}]}
    (folder / "annotations.json").write_text(json.dumps(document))
    return folder


def coco(export: Path, **changes: Any) -> bytes:
    document = json.loads((export / "annotations.json").read_bytes())
    x1, y1, x2, y2 = BOX
    right = {"id": 1, "image_id": 1, "category_id": 2, "bbox": [x1, y1, x2 - x1, y2 - y1]}
    categories = [{"id": 1, "name": "cell"}, {"id": 2, "name": "hot-spot"}]
    return json.dumps({**document, "annotations": [right], "categories": categories, **changes}).encode()


def cvat(export: Path) -> bytes:
    del export
    x1, y1, x2, y2 = BOX
    box = f'<box label="hot-spot" xtl="{x1}" ytl="{y1}" xbr="{x2}" ybr="{y2}"/>'
    return "<annotations>{}</annotations>".format(
        "".join(f'<image name="{at}.png" width="320" height="256">{box if at == 1 else ""}</image>' for at in range(4))
    ).encode()


def studio(export: Path) -> bytes:
    del export
    x1, y1, x2, y2 = BOX
    value = {"x": x1 / 3.2, "y": y1 / 2.56, "width": (x2 - x1) / 3.2, "height": (y2 - y1) / 2.56}
    shape = {"type": "rectanglelabels", "value": {**value, "rectanglelabels": ["hot-spot"]}}
    tasks = [
        {
            "data": {"image": f"/data/upload/3/0a1b2c3d-{at}.png"},
            "annotations": [{"result": [shape] if at == 1 else []}],
        }
        for at in range(4)
    ]
    return json.dumps(tasks).encode()


@pytest.mark.parametrize("form", [coco, cvat, studio])
def test_every_form_says_the_same(export: Path, tmp_path: Path, form: Callable[[Path], bytes]) -> None:
    (tmp_path / "labels").write_bytes(form(export))
    made, _ = import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    assert [one.boxes for one in made.pictures] == [(), (("hot-spot", BOX),), (), ()]
    assert [one.is_held for one in made.pictures] == [False, False, False, True], "the last ones"
    assert all(one.is_whole and one.by == ("alice",) and one.model == "ab" * 32 for one in made.pictures)
    assert load_set(tmp_path / "set") == made
    lineage = json.loads((tmp_path / "set" / "set.json").read_bytes())["made_from"]
    assert [one["what"] for one in lineage] == ["labels", "export"]


def test_the_command_says_what_it_made(export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "labels").write_bytes(cvat(export))
    command = ["frames", "import", "--export", str(export), "--labels", str(tmp_path / "labels"), "--by", "alice"]
    assert main([*command, "--out", str(tmp_path / "set"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["images"], said["held_back"], said["boxes"], said["form"]) == (4, 1, 1, "cvat")
    assert main([*command, "--out", str(tmp_path / "set")]) == 1, "a set is never changed"


def test_guesses_that_nobody_has_judged_are_no_labels(export: Path, tmp_path: Path) -> None:
    """The export itself, vouched for or not, and a tool's file that still bears scores."""
    with pytest.raises(LabelError, match="--by NAME"):
        import_labels(export, export / "annotations.json", tmp_path / "set")
    with pytest.raises(LabelError, match="nothing that a person has judged"):
        import_labels(export, export / "annotations.json", tmp_path / "set", by="alice")
    assert not (tmp_path / "set").exists()


def test_what_operators_said_of_things_is_the_same_statement(tmp_path: Path) -> None:
    """Confirmed, relabelled and rejected things become boxes and denials; the rest of the picture teaches nothing."""
    keep(tmp_path / "kept", 0, 1_000, 2_000, 3_000)
    exported(tmp_path)
    reviews = objects(
        tmp_path,
        thing("a", 5, "relabelled", "crack", "class0"),
        thing("b", 1_000, "rejected"),
        thing("c", 2_000, "confirmed"),
        thing("d", 3_000, "disputed"),
    )
    made, form = import_labels(tmp_path / "coco", reviews, tmp_path / "set", held_share=0)
    [picture] = made.pictures
    assert form == "reviews"
    assert [label for label, _ in picture.boxes] == ["crack", "class0"]
    assert (len(picture.nothing), len(picture.unclear), picture.is_whole) == (1, 2, False)
    assert made.labelled_by == ("alice",)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (b'{"images": 7}', "categories is None; a list is needed"),
        (b"no labels", "no JSON"),
        (b"<task/>", "CVAT for images 1.1"),
        (b"<annotations><track/></annotations>", "not for video"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><annotations/>", "document type"),
        (b'[{"data": {"text": "x"}, "annotations": []}]', "names no picture"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_by_name(
    export: Path, tmp_path: Path, labels: bytes, message: str
) -> None:
    (tmp_path / "labels").write_bytes(labels)
    with pytest.raises(LabelError, match=message) as refused:
        import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    assert str(tmp_path / "labels") in str(refused.value)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["export", "labels"], "nothing is left behind"


def test_pictures_of_another_export_or_size_are_refused(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_bytes(cvat(export).replace(b'"3.png"', b'"../../etc/passwd"'))
    with pytest.raises(LabelError, match="1 pictures that the export has not"):
        import_labels(export, path, tmp_path / "set", by="alice")
    path.write_bytes(cvat(export).replace(b'width="320"', b'width="640"'))
    with pytest.raises(LabelError, match="was 640x256 in the tool"):
        import_labels(export, path, tmp_path / "set", by="alice")


def test_a_set_whose_picture_was_changed_is_refused(export: Path, tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(cvat(export))
    made, _ = import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    (made.folder / made.pictures[0].file).write_bytes(b"another")
    with pytest.raises(LabelError, match="not the picture that was labelled"):
        made.read(made.pictures[0])


def test_files_and_pictures_have_bounds(export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = '<box label="a" xtl="1" ytl="1" xbr="2" ybr="2"/>' * (forms.MAX_BOXES + 1)
    with pytest.raises(LabelError, match="more than 2000 boxes"):
        read_cvat(f'<annotations><image name="0.png" width="9" height="9">{box}</image></annotations>'.encode())
    (tmp_path / "labels").write_bytes(cvat(export))
    monkeypatch.setattr(training_set.forms, "MAX_FILE_BYTES", 100)
    with pytest.raises(LabelError, match="more than 0 MiB; export it in parts"):
        training_set.read_labels(tmp_path / "labels", {}, b"", "alice")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file_name": "a\0.png"}, "file_name"),
        ({"file_name": "\ud800.png"}, "file_name"),
        ({"id": 0}, "stands twice"),
        ({"id": []}, "id is"),
        ({"captured_ns": []}, "captured_ns"),
        ({"width": 65_536, "height": 65_536}, "million pixels"),
    ],
    ids=repr,
)
def test_an_export_that_cannot_be_right_is_refused_by_name(
    export: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    (tmp_path / "labels").write_bytes(cvat(export))
    path = export / "annotations.json"
    document = json.loads(path.read_bytes())
    document["images"][1].update(changes)
    path.write_text(json.dumps(document))
    with pytest.raises(LabelError, match=message) as refused:
        import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    assert str(path) in str(refused.value)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["export", "labels"], "nothing is left behind"


def test_times_in_text_and_names_that_are_no_text_are_read_as_what_they_are(export: Path, tmp_path: Path) -> None:
    path = export / "annotations.json"
    document = json.loads(path.read_bytes())
    document["images"][0].update(captured_ns="5", model="\ud800")
    document["images"][1].update(captured_ns=(1 << 60) + 1)
    path.write_text(json.dumps(document))
    (tmp_path / "labels").write_bytes(cvat(export))
    made, _ = import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    assert sorted(one.captured_ns for one in made.pictures) == [2, 3, 5, (1 << 60) + 1]


def test_the_lineage_names_the_bytes_that_were_read(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that vanishes, or is another one a moment later, while it is read."""
    (tmp_path / "labels").write_bytes(cvat(export))
    digest = sha256(cvat(export)).hexdigest()

    def read_and_lose(data: bytes) -> list[forms.Labelled]:
        (tmp_path / "labels").unlink()
        return read_cvat(data)

    monkeypatch.setattr(training_set, "read_cvat", read_and_lose)
    made, _ = import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")
    assert json.loads((made.folder / "set.json").read_bytes())["made_from"][0]["sha256"] == digest


def test_a_category_that_stands_twice_is_refused(export: Path, tmp_path: Path) -> None:
    categories = [{"id": 2, "name": "cell"}, {"id": 2, "name": "hot-spot"}]
    (tmp_path / "labels").write_bytes(coco(export, categories=categories))
    with pytest.raises(LabelError, match="id 2 stands twice"):
        import_labels(export, tmp_path / "labels", tmp_path / "set", by="alice")


def test_a_name_that_cannot_be_written_down_vouches_for_nothing(export: Path, tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(cvat(export))
    with pytest.raises(LabelError, match="no name that can be written down"):
        import_labels(export, tmp_path / "labels", tmp_path / "set", by="a\nb")


def reviewed(label: str, verdict: str = "confirmed") -> dict[str, Any]:
    """A feature as `swarmd objects --geojson` writes it, at the one place."""
    said = {"operator": "alice", "verdict": "confirm" if verdict == "confirmed" else "reject"}
    told = {"id": "a1", "label": label, "detected": "cell", "review": verdict, "reviews": [said]}
    return {"geometry": {"coordinates": [8.0, 47.0]}, "properties": {**told, "covariance_m2": [0.1, 0.0, 0.1]}}


@pytest.mark.parametrize(
    ("features", "boxes"),
    [
        ([reviewed("cell"), reviewed("cell")], 1),
        ([reviewed("cell"), reviewed("hot-spot")], None),
        ([reviewed("cell"), reviewed("cell", "rejected")], None),
    ],
    ids=["twice", "with two labels", "with two verdicts"],
)
def test_a_review_that_is_told_twice_counts_once_or_not_at_all(
    export: Path, tmp_path: Path, features: list[Any], boxes: int | None
) -> None:
    path = export / "annotations.json"
    document = json.loads(path.read_bytes())
    place = {"latitude_deg": 47.0, "longitude_deg": 8.0, "covariance_m2": [0.1, 0.0, 0.1]}
    document["annotations"][0].update(detected="cell", **place)
    document["annotations"][1].update(detected="cell", **{**place, "covariance_m2": 5})
    path.write_text(json.dumps(document))
    (tmp_path / "labels").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    if boxes is None:
        with pytest.raises(LabelError, match="says nothing that a person has judged"):
            import_labels(export, tmp_path / "labels", tmp_path / "set")
        return
    made, form = import_labels(export, tmp_path / "labels", tmp_path / "set")
    assert (form, sum(len(one.boxes) for one in made.pictures)) == ("reviews", boxes)


def test_reviews_that_cannot_be_right_are_refused_by_the_files_name(export: Path, tmp_path: Path) -> None:
    broken = reviewed("cell")
    broken["geometry"]["coordinates"] = [10**400, 0]
    (tmp_path / "labels").write_text(json.dumps({"type": "FeatureCollection", "features": [broken]}))
    with pytest.raises(LabelError, match="no GeoJSON of objects") as refused:
        import_labels(export, tmp_path / "labels", tmp_path / "set")
    assert str(tmp_path / "labels") in str(refused.value)
