"""Pascal VOC's folders of labels: what they mean, what is refused, and that they are judged as COCO's."""

import json
import os
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate_coco import judge, main
from swarmd_models.labelling import voc
from swarmd_models.labelling.coco import read_coco
from swarmd_models.labelling.forms import MAX_BOXES, LabelError, Labelled
from swarmd_models.labelling.voc import Counts, read_voc, read_voc_folder
from swarmd_models.types import Detection
from tests.fuzz.label_targets import VOC

SIZE = (320, 240)
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b"<annotation><filename>&b;</filename></annotation>"
)
OUTSIDE = (
    b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><annotation><object><name>&a;</name></object></annotation>'
)


def thing(name: str, box: tuple[float, ...], more: str = "") -> str:
    """An `<object>`; corners as they are given."""
    corners = "".join(f"<{k}>{v!r}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name>{more}<bndbox>{corners}</bndbox></object>"


def xml(*objects: str, filename: str = "<filename>a.png</filename>", size: tuple[int, int] = SIZE) -> bytes:
    """A file."""
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation>{filename}{sides}{''.join(objects)}</annotation>".encode()


def test_corners_count_from_one_and_are_within_and_parts_are_no_objects() -> None:
    counts = Counts()
    one = read_voc(VOC, "000001", counts=counts)
    assert one == Labelled(
        "000001.jpg",
        (("dog", (47.0, 239.5, 195.0, 371.0)),),
        unsure=(("person", (0.0, 0.0, 353.0, 500.0)),),
        size=(353, 500),
    )
    assert counts == Counts(objects=2, difficult=1, truncated=1)
    assert read_voc(VOC, "000001", 0).boxes == (("dog", (48.0, 240.5, 195.0, 371.0)),)


def test_a_picture_without_things_and_one_that_the_file_does_not_name() -> None:
    assert read_voc(b"<annotation><filename>b/c.jpg</filename></annotation>", "x") == Labelled("b/c.jpg")
    assert read_voc(b"<annotation/>", "x") == Labelled("x")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (BOMB, "declares a document type or an entity"),
        (OUTSIDE, "declares a document type or an entity"),
        (b"<annotation>", "it is no XML"),
        (b"\xff\xfe", "it is no XML"),
        (b"<annotations/>", r"first element is <annotations>; Pascal VOC's is <annotation>"),
        (b"<annotation>" + b"<a>" * 40, "16 deep"),
        (b"<annotation>" + b"<a/>" * (64 * MAX_BOXES) + b"</annotation>", "128000 elements"),
        (xml(thing("dog", (0, 5, 9, 9))), "begins at pixel 0 and Pascal VOC's first is 1; --first-pixel 0"),
        (xml(thing("dog", (9, 5, 8, 9))), "object 0 has no area"),
        (xml(thing("dog", (1, 2, float("nan"), 4))), "<xmax> of object 0 is 'nan'"),
        (xml(thing("dog", (1, 2, 3, 4)), thing("", (1, 2, 3, 4))), "<name> of object 1 is ''"),
        (xml(thing("dog", (1, 2, 3, 4), "<difficult>2</difficult>")), "<difficult> of object 0 is '2'"),
        (xml(thing("dog", (1, 2, 3, 4), "<truncated>yes</truncated>")), "<truncated> of object 0 is 'yes'"),
        (xml(thing("dog", (1, 2, 3, 4), "<name>cat</name>")), "object 0 has <name> twice"),
        (xml("<object><name>dog</name><polygon/></object>"), "object 0 has no <xmin>"),
        (xml(filename="<filename>a</filename><filename>b</filename>"), "it has <filename> twice"),
        (xml(size=(0, 240)), "<width> is '0'"),
        (b"<annotation><size><width>9</width></size></annotation>", "<size> has one side"),
        (xml(*(thing("dog", (1, 2, 3, 4)),) * (MAX_BOXES + 1)), "more than 2000 boxes"),
        (xml(filename=f"<filename>{'a' * 5000}</filename>"), "longer than 4096 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_what_it_is(data: bytes, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        read_voc(data, "x")


def test_a_list_names_files_with_spaces_and_with_a_classs_own_word_behind_them(tmp_path: Path) -> None:
    for name in ("roof 3", "roof 3 1", "7"):
        (tmp_path / f"{name}.xml").write_bytes(xml(filename=""))
    for text, names in (
        ("roof 3\n7\n", ["7", "roof 3"]),
        ("roof 3 -1\r\n7  1\n\n", ["7", "roof 3"]),
        ("roof 3 1\n", ["roof 3 1"]),
    ):
        labelled, _ = read_voc_folder(tmp_path, only=list(voc.listed(text)))
        assert [one.name for one in labelled] == names


def test_a_folder_says_which_file_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LabelError, match=r"has no \.xml; .*Annotations"):
        read_voc_folder(tmp_path)
    with pytest.raises(LabelError, match=r"cannot read .*none"):
        read_voc_folder(tmp_path / "none")
    (tmp_path / "1.xml").write_bytes(xml())
    (tmp_path / "2.XML").write_bytes(xml(filename=""))
    (tmp_path / "notes.txt").write_bytes(b"<")
    labelled, _ = read_voc_folder(tmp_path)
    assert [one.name for one in labelled] == ["a.png", "2"]
    assert [one.name for one in read_voc_folder(tmp_path, only=["2"])[0]] == ["2"]
    with pytest.raises(LabelError, match=r"lacks 1 of 2 files listed, as '7'\.xml"):
        read_voc_folder(tmp_path, only=["2", "7"])
    (tmp_path / "3.xml").write_bytes(xml())
    with pytest.raises(LabelError, match=r"1\.xml and 3\.xml are both of picture 'a\.png'"):
        read_voc_folder(tmp_path)
    (tmp_path / "3.xml").write_bytes(b"<annotation>")
    with pytest.raises(LabelError, match=r"3\.xml: it is no XML"):
        read_voc_folder(tmp_path)
    monkeypatch.setattr(voc, "MAX_FILE_BYTES", 20)
    with pytest.raises(LabelError, match=r"1\.xml is larger than 0 MiB"):
        read_voc_folder(tmp_path)


def test_a_pipe_in_a_files_place_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.xml")
    with pytest.raises(LabelError, match=r"cannot read .*1\.xml"):
        read_voc_folder(tmp_path)


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, bytes], dict[str, list[Detection]]]:
    """Twelve pictures in both forms, and what a middling detector says of them."""
    rng = random.Random(seed)
    kinds = ["cat", "dog", "emu"]
    images, rows, files, says = [], [], {}, {}
    for image in range(12):
        name, objects, told = f"{image}.png", [], []
        for _ in range(rng.randrange(6)):
            x1, y1 = rng.randrange(200), rng.randrange(150)
            x2, y2 = x1 + rng.randrange(8, 120), y1 + rng.randrange(8, 90)
            kind, is_hard = rng.randrange(3), rng.random() < 0.2
            rows.append({"image_id": image, "category_id": kind, "bbox": [x1, y1, x2 - x1, y2 - y1]})
            if is_hard:  # COCO's file has no such thing: it is compared without them.
                rows.pop()
            flags = f"<truncated>{rng.randrange(2)}</truncated><difficult>{int(is_hard)}</difficult>"
            objects.append(thing(kinds[kind], (x1 + 1, y1 + 1, x2, y2), flags))
            if rng.random() < 0.8 and not is_hard:
                shaken = tuple(side + rng.gauss(0, 4) for side in (x1, y1, x2, y2))
                said = kind if rng.random() < 0.9 else rng.randrange(3)
                told.append(Detection(said, kinds[said], rng.random(), shaken))
        if rng.random() < 0.5:
            told.append(Detection(0, kinds[0], rng.random(), (280.0, 200.0, 318.0, 238.0)))
        images.append({"id": image, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        files[f"{image}.xml"], says[name] = xml(*objects, filename=f"<filename>{name}</filename>"), told
    categories = [{"id": n, "name": kind} for n, kind in enumerate(kinds)]
    return {"images": images, "annotations": rows, "categories": categories}, files, says


def _pictures(folder: Path, names: list[str]) -> Path:
    folder.mkdir()
    for name in names:
        cv2.imwrite(str(folder / name), np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
    return folder


@pytest.mark.parametrize("seed", range(4))
def test_the_same_boxes_have_the_same_figures_as_in_cocos_form(seed: int, tmp_path: Path) -> None:
    """All twelve, to every digit; nobody sees the difficult ones here, and nobody is blamed for it."""
    pytest.importorskip("pycocotools", reason="pycocotools is not installed (make setup-extras)")
    document, files, says = drawn(seed)
    pictures = _pictures(tmp_path / "pictures", list(says))
    (tmp_path / "Annotations").mkdir()
    for name, data in files.items():
        (tmp_path / "Annotations" / name).write_bytes(data)
    labelled, counts = read_voc_folder(tmp_path / "Annotations")
    of_voc, of_coco = (
        judge(one, pictures, ("cat", "dog", "emu"), lambda path: (says[path.name], SIZE))
        for one in (labelled, read_coco(document, vouched=True))
    )
    assert counts.difficult > 0
    assert counts.objects == len(document["annotations"]) + counts.difficult
    assert of_voc["ap"] > 0.1
    assert of_voc == of_coco


def test_a_difficult_thing_is_neither_found_nor_false_and_of_its_own_class_alone(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools", reason="pycocotools is not installed (make setup-extras)")
    hard = thing("cat", (101, 101, 200, 200), "<difficult>1</difficult>")
    one = read_voc(xml(thing("cat", (1, 1, 60, 60)), thing("dog", (61, 1, 99, 60)), hard), "a")
    pictures = _pictures(tmp_path / "pictures", ["a.png"])
    right = [Detection(0, "cat", 0.5, (0, 0, 60, 60)), Detection(1, "dog", 0.5, (60, 0, 99, 60))]

    def by_class(*more: Detection) -> Any:
        return judge([one], pictures, ("cat", "dog"), lambda path: ([*right, *more], SIZE))["ap_by_class"]

    there = (100.0, 100.0, 200.0, 200.0)
    assert by_class() == {"cat": 1.0, "dog": 1.0}
    assert by_class(Detection(0, "cat", 0.9, there)) == {"cat": 1.0, "dog": 1.0}
    assert by_class(Detection(1, "dog", 0.9, there)) == {"cat": 1.0, "dog": 0.5}


def test_a_picture_of_another_size_or_named_twice_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools", reason="pycocotools is not installed (make setup-extras)")
    pictures = _pictures(tmp_path / "pictures", ["a.png", "b.png"])
    one = read_voc(xml(thing("cat", (1, 1, 60, 60)), size=(240, 320)), "a")
    with pytest.raises(ArtefactError, match=r"a\.png is 320x240 and its labels are of 240x320"):
        judge([one], pictures, ("cat",), lambda path: ((), SIZE))
    same = [Labelled(name, (("cat", (1, 1, 9, 9)),)) for name in ("train/a.png", "a")]
    with pytest.raises(ArtefactError, match=r"name picture 'a\.png' twice"):
        judge(same, pictures, ("cat",), lambda path: ((), SIZE))


def test_the_command_judges_a_folder_or_says_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pycocotools", reason="pycocotools is not installed (make setup-extras)")
    pictures, labels = _pictures(tmp_path / "pictures", ["a.png"]), tmp_path / "Annotations"
    labels.mkdir()
    command = ["--labels", str(labels), "--pictures", str(pictures), "--json"]
    (labels / "1.xml").write_bytes(xml(thing("hot-spot", (1, 1, 60, 60), "<truncated>1</truncated>")))
    (labels / "2.xml").write_bytes(xml(filename="<filename>gone.png</filename>"))
    chosen = tmp_path / "val.txt"
    chosen.write_text("1\n")
    assert main([*command, "--list", str(chosen)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["ap"] <= 0.1, "there is nothing in this picture"
    assert (figures["objects"], figures["difficult"], figures["truncated"]) == (1, 0, 1)

    def refused(*more: str) -> str:
        assert main([*command, *more]) == 1
        return capsys.readouterr().err

    assert "lacks 1 of 2 pictures, as 'gone.png'" in refused()
    (labels / "1.xml").write_bytes(xml(thing("hot-spot", (0, 1, 60, 60))))
    assert "1.xml: object 0 begins at pixel 0" in refused("--list", str(chosen))
    assert main([*command, "--list", str(chosen), "--first-pixel", "0"]) == 0
    capsys.readouterr()
    chosen.write_bytes(b"\xff")
    assert "no list of names" in refused("--list", str(chosen))
    chosen.write_bytes(b" \n")
    assert "names no picture" in refused("--list", str(chosen))
    command[1] = str(chosen)
    assert "are for a folder of Pascal VOC's" in refused("--first-pixel", "1")
