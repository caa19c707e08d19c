"""Bare models are read off what they are, or refused with every reading named; never guessed.

The detectors here are small and really see: each cell answers with the mean colour under it (`onnx_models.py`). What
is found in a picture therefore proves pixels, places and scores at once.
"""

import io
import json
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models.bundle import load_bundle
from swarmd_models.decoders.yolo_heads import read_head
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, OutputError
from swarmd_models.input_reading import UNIT, range_of
from swarmd_models.model_notes import notes_of
from swarmd_models.onnx_file import field, onnx_metadata
from swarmd_models.types import Detection
from tests.support.bundles import spec
from tests.support.onnx_models import (
    COLOURS,
    colour_onnx,
    colour_tflite,
    constant_onnx,
    picture,
    ultralytics,
)

LETTERBOX_GREY = 0.46
"""What the border of a letterbox (114 of 255) gives every class, and a little."""


def _open(folder: Path, data: bytes, labels: tuple[str, ...] = (), suffix: str = ".onnx") -> tuple[Detector, list[str]]:
    path, names, said = folder / f"m{suffix}", folder / "names.txt", list[str]()
    path.write_bytes(data)
    names.write_text("\n".join(labels))
    if suffix == ".onnx":
        pytest.importorskip("onnxruntime")
    bundle = load_bundle(path, names if labels else None)
    return Detector.open(bundle, DetectorOptions(), said.append), said


def _sure(found: list[Detection]) -> list[Detection]:
    return [one for one in found if one.score > 0.5]


@pytest.mark.parametrize("kind", ["v8", "v8-rows", "v5", "seg", "pose"])
def test_an_onnx_file_alone_finds_a_red_square_where_it_is(tmp_path: Path, kind: str) -> None:
    labelled = kind in ("v8", "pose")
    data = colour_onnx(
        kind.removesuffix("-rows").replace("pose", "v8"),
        notes=ultralytics("pose" if kind == "pose" else "detect") if labelled else None,
        boxes_last=kind != "v8-rows",
        extra=np.full((51, 84), 0.9) if kind == "pose" else None,
    )
    detector, said = _open(tmp_path, data, () if labelled else COLOURS)
    found = _sure(detector.detect(picture(96, 48, at=24)))
    assert {one.label for one in found} == {"red"}
    boxes = np.array([one.box for one in found])
    # Letterboxed: cells of 8 and 16 of 64 are 12 and 24 of the picture's 96 in both directions. Stretched, they lie.
    assert (boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()) == ([24.0, 24.0], [48.0, 48.0])
    assert any("read as" in text and "letterbox" in text for text in said), said


def test_a_v8_head_at_640_has_8400_boxes_and_one_with_anchors_25200() -> None:
    coco = {80: "v8", 79: None, 81: None}
    for labels, wanted in coco.items():
        if wanted:
            assert read_head([spec("o", (1, 84, 8400))], labels, (640, 640)).kind == "v8"
            assert read_head([spec("o", (1, 25200, 85))], labels, (640, 640)).kind == "v5"
            continue
        with pytest.raises(ArtefactError, match=f"80 classes.*{labels} labels|{labels} labels.*80 classes"):
            read_head([spec("o", (1, 84, 8400))], labels, (640, 640))
        with pytest.raises(ArtefactError, match=f"80 classes.*{labels} labels"):
            read_head([spec("o", (1, 25200, 85))], labels, (640, 640))


@pytest.mark.parametrize(
    ("shape", "labels", "size", "sentence"),
    [
        ((1, 20, 8400), 15, (640, 640), "v6 .*yolox .*obb "),
        ((1, 8400, 85), 80, (640, 640), "v6 .*yolox .*obb .*YOLOv8 or 11 with 81 classes"),
        ((1, 300, 84), 80, (640, 640), "fits no YOLO head.*8,400, 25,200.*RT-DETR"),
        ((1, 300, 7), 15, (640, 640), "fits no YOLO head"),
        ((1, 7, 99), 3, (64, 64), "fits no YOLO head"),
        ((1, 84, 84), 80, (64, 64), "can be read as v8 .*as v8 "),
        ((1, 9, 84), 80, (32, 32), "check the labels"),
    ],
)
def test_where_several_readings_are_left_all_are_named(
    shape: tuple[int, ...], labels: int, size: tuple[int, int], sentence: str
) -> None:
    with pytest.raises(ArtefactError, match=sentence):
        read_head([spec("o", shape)], labels, size)
    if "fits no" in sentence:  # Nor when the exporter says that it is a detector.
        with pytest.raises(ArtefactError, match="fits no YOLO head"):
            read_head([spec("o", shape)], labels, size, ("v8", "v5", "end2end"))


@settings(max_examples=200, deadline=None)
@given(
    classes=st.integers(1, 100),
    labels=st.integers(1, 100),
    wide=st.sampled_from([96, 320, 416, 640, 1280]),
    high=st.sampled_from([96, 256, 320, 640]),
    anchors=st.sampled_from([1, 3]),
    strides=st.sampled_from([(8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64)]),
    rows=st.booleans(),
)
def test_a_head_is_read_with_its_own_number_of_classes_or_not_at_all(
    classes: int, labels: int, wide: int, high: int, anchors: int, strides: tuple[int, ...], rows: bool
) -> None:
    boxes = anchors * sum(-(-wide // s) * -(-high // s) for s in strides)
    numbers = classes + (5 if anchors == 3 else 4)
    shape = (1, boxes, numbers) if rows else (1, numbers, boxes)
    refusal = ""
    try:
        found = read_head([spec("o", shape)], labels, (wide, high))
    except ArtefactError as error:
        refusal = str(error)
    assert (labels == classes) == (not refusal) or "can be read as" in refusal, refusal
    if not refusal:
        assert (found.kind, found.boxes, found.rows_are_boxes) == ("v8" if anchors == 1 else "v5", boxes, rows)


@pytest.mark.parametrize(
    ("scale", "zero_point", "kind", "level", "score"),
    [
        (1 / 255, -128, "int8", 160, 160 / 255),
        (1 / 255, 0, "uint8", 160, 160 / 255),
        (2 / 255, -1, "int8", 220, 220 / 127.5 - 1),
        (1 / 128, 128, "uint8", 220, 220 / 127.5 - 1),
        # ImageNet's mean and deviation: the file that gave 6 of 53 boxes when its bytes were fed as they are.
        (0.0187, -14, "int8", 160, (160 - 123.675) / 58.395),
    ],
)
def test_pixels_are_brought_to_the_range_that_the_input_was_quantised_for(
    tmp_path: Path, scale: float, zero_point: int, kind: str, level: int, score: float
) -> None:
    detector, _ = _open(tmp_path, colour_tflite(scale, zero_point, kind=kind), COLOURS, ".tflite")
    found = _sure(detector.detect(picture(64, 64, level=level)))
    assert {one.label for one in found} == {"red"}
    assert max(one.score for one in found) == pytest.approx(score, abs=2 * scale)


def test_an_input_of_no_usual_range_is_refused_with_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"scale 0\.011 and zero point 3, values from -1\.44 to 1\.36.*bundle"):
        _open(tmp_path, colour_tflite(0.011, 3), COLOURS, ".tflite")
    with pytest.raises(ArtefactError, match="is int8 without a scale"):
        range_of("m", spec("i", (1, 64, 64, 3), "int8"), UNIT)


def test_pixels_and_scores_on_one_scale_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"boxes in pixels and scores .* steps of 0\.251: no score is left"):
        _open(tmp_path, colour_tflite(in_pixels=True), COLOURS, ".tflite")


def test_floats_of_an_unknown_family_are_refused(tmp_path: Path) -> None:
    rows = np.array([[[10, 10, 30, 30, 0.9, 2]]], np.float32)
    with pytest.raises(ArtefactError, match="does not say of which range"):
        _open(tmp_path, constant_onnx({"output0": rows}), COLOURS)


def test_a_head_with_nms_inside_gives_its_rows(tmp_path: Path) -> None:
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, :3] = [[0, 16, 32, 48, 0.9, 2], [0, 16, 32, 48, 0.8, 1], [8, 8, 8, 20, 0.7, 0]]
    detector, said = _open(tmp_path, constant_onnx({"output0": rows}, notes=ultralytics()))
    found = detector.detect(picture(128, 64))
    # Two that overlap stay both: the model has judged; a box without an area does not.
    assert [(one.label, one.box) for one in found] == [
        ("blue", (0.0, 0.0, 64.0, 64.0)),
        ("green", (0.0, 0.0, 64.0, 64.0)),
    ]
    assert "NMS inside" in said[-1]
    rows[0, 0, 4] = 77.0
    detector, _ = _open(tmp_path, constant_onnx({"output0": rows}, notes=ultralytics()))
    with pytest.raises(OutputError, match="the fifth number of a row is 77"):
        detector.detect(picture())


def test_oriented_boxes_give_the_upright_box_around_them(tmp_path: Path) -> None:
    quarter = np.full((1, 84), np.pi / 4)
    detector, _ = _open(tmp_path, colour_onnx("v8", notes=ultralytics("obb"), extra=quarter))
    found = _sure(detector.detect(picture(64, 64, at=16)))
    whole = [one.whole_box or one.box for one in found if one.box[2] - one.box[0] > 20]
    assert whole, found
    side = 16 * np.sqrt(2)
    assert [round(edge, 2) for edge in whole[0]] == [round(e, 2) for e in (24 - side / 2,) * 2 + (24 + side / 2,) * 2]


@pytest.mark.parametrize("head", ["yolox", "v6"])
def test_yolox_and_v6_are_read_when_a_bundle_says_which(tmp_path: Path, head: str) -> None:
    import hashlib

    data = colour_onnx(head)
    (tmp_path / "m.onnx").write_bytes(data)
    (tmp_path / "m.toml").write_text(
        f'format = 1\ndecoder = "yolo"\nlabels = ["red", "green", "blue"]\n[model]\nfile = "m.onnx"\n'
        f'sha256 = "{hashlib.sha256(data).hexdigest()}"\n[input]\nchannels = "rgb"\n[decode]\nhead = "{head}"\n'
    )
    pytest.importorskip("onnxruntime")
    detector = Detector.open(load_bundle(tmp_path / "m.toml"), DetectorOptions(("onnx",)))
    boxes = np.array([one.box for one in _sure(detector.detect(picture(96, 48, at=24)))])
    assert (boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()) == ([24.0, 24.0], [48.0, 48.0])


def test_boxes_and_classes_apart_that_may_be_anothers_are_refused(tmp_path: Path) -> None:
    nas = {"boxes": np.zeros((1, 84, 4), np.float32), "scores": np.zeros((1, 84, 3), np.float32)}
    with pytest.raises(ArtefactError, match=r"swarmd's anchor-free head .*or another's .*YOLO-NAS"):
        _open(tmp_path, constant_onnx(nas), COLOURS)


def _zipped(name: str, text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("first.bin", b"\xff\xfe\x00")
        archive.writestr(name, text)
    return packed.getvalue()


def test_labels_inside_the_file_are_read_wherever_exporters_put_them() -> None:
    names = {0: "person", 1: "dog's bed", 2: "}]"}
    notes = {"stride": 32, "task": "segment", "names": names}
    model = colour_tflite()
    for name, text in (
        ("metadata.json", json.dumps(notes)),
        ("temp_meta.txt", str(notes)),
        ("meta.txt", str({"stride": 32, "names": list(names.values())})),
        ("labels.txt", "\n".join(names.values())),
    ):
        found = notes_of(model + _zipped(name, text), is_onnx=False)
        assert found.labels == tuple(names.values()), name
        assert found.task == ("segment" if "task" in text else "")
    onnx = colour_onnx(notes=ultralytics(labels=tuple(names.values())))
    assert notes_of(onnx, is_onnx=True).labels == tuple(names.values())
    gap = colour_onnx(notes={"names": "{0: 'a', 2: 'b'}", "stride": "32"})
    assert notes_of(gap, is_onnx=True).labels == ()


def test_a_truncated_onnx_file_is_refused_before_any_runtime_sees_it(tmp_path: Path) -> None:
    data, path = colour_onnx(notes=ultralytics()), tmp_path / "m.onnx"
    for size in (0, 1, 3, 40, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ArtefactError, match=r"no ONNX model|truncated"):
            load_bundle(path)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_hostile_metadata_never_raises(noise: bytes, at: int, patch: bytes) -> None:
    data = bytearray(colour_onnx(notes=ultralytics())[-300:])
    data[at : at + len(patch)] = patch
    for one in (noise, bytes(data), noise + bytes(data)):
        onnx_metadata(one)
        notes_of(one, is_onnx=True)
        notes_of(one + _zipped("temp_meta.txt", noise.decode("latin-1")), is_onnx=False)


def test_classes_that_nobody_asked_for_are_not_reported_and_names_may_be_others(tmp_path: Path) -> None:
    import hashlib

    pytest.importorskip("onnxruntime")
    data = colour_onnx()
    (tmp_path / "m.onnx").write_bytes(data)

    def found(rules: str, colour: str) -> set[tuple[int, str]]:
        (tmp_path / "m.toml").write_text(
            f'format = 1\ndecoder = "yolo"\nlabels = ["red", "green", "blue"]\n[model]\nfile = "m.onnx"\n'
            f'sha256 = "{hashlib.sha256(data).hexdigest()}"\n[input]\nchannels = "rgb"\n[decode]\n{rules}\n'
        )
        detector = Detector.open(load_bundle(tmp_path / "m.toml"), DetectorOptions(("onnx",)))
        return {(one.class_index, one.label) for one in detector.detect(picture(64, 64, colour))}

    assert found('classes = ["green"]', "red") == set()
    assert found('classes = ["red"]', "red") == {(0, "red")}
    merged = '[decode.rename]\ngreen = "cold"\nblue = "cold"'
    assert found(merged, "green") == found(merged, "blue") == {(1, "cold")}
    with pytest.raises(ArtefactError, match="classes or rename names 'grün', which is no label"):
        found('classes = ["grün"]', "red")


def test_notes_of_many_fields_are_none() -> None:
    many = field(14, b"\x18\x00" * 60_000) * 100
    before_s = time.process_time()
    assert onnx_metadata(many) == {}
    assert time.process_time() - before_s < 0.5
    assert onnx_metadata(field(14, field(1, b"names") + field(2, b"x"))) == {"names": "x"}
