"""Bundles and bare models: what is used, and the sentence with which the rest is refused."""

import io
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from swarmd.eye.ipc import MAX_MESSAGE_BYTES
from swarmd_models import golden as golden_module
from swarmd_models.bundle import DEFAULT_MODEL, LABELS_BYTES_MAX, Golden, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, BackendError, ModelError
from swarmd_models.golden import check_golden
from swarmd_models.tflite_file import embedded_labels, parse_labels
from tests.support.bundles import ZOO_MODEL, ZOO_TOML, write_bundle


def test_the_default_model_loads_and_agrees_with_its_golden_vector() -> None:
    detector = Detector.open(load_bundle(DEFAULT_MODEL), DetectorOptions())
    assert check_golden(detector) == ""
    assert detector._preprocessor.is_bit_flip, "the INT8 contract (scale 1/255, zero point -128) must hold"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decoder": 'decoder = "magic"'}, "decoder is 'magic'; it must be one of ssd, anchor_free, yolo, classifier"),
        ({"decoder": ""}, "decoder is missing"),
        ({"labels": ""}, "labels or labels_file is missing"),
        ({"labels": 'labels = ["", 3]'}, "labels must be a list of strings"),
        ({"model": '[model]\nfile = "model.tflite"\nsha256 = "00"'}, "is not the file that the bundle was made with"),
        ({"model": '[model]\nfile = "../../etc/passwd"\nsha256 = "00"'}, "leads out of the bundle's folder"),
        ({"model": '[model]\nfile = "gone.tflite"\nsha256 = "00"'}, "cannot read model gone.tflite: No such file"),
        ({"model": ""}, "model.file is missing"),
        ({"input": '[input]\nwidth = -1\nchannels = "gray"'}, "input.width is -1"),
        ({"input": '[input]\nchannels = "infrared"'}, "input.channels is 'infrared'"),
        ({"input": '[input]\nstd = 0.0\nchannels = "gray"'}, "input.std is 0.0"),
        ({"decode": "[decode]\nstrides = []"}, "decode.strides must be a list of 1 to 16"),
        (
            {"decode": "[decode]\nscore_treshold = 0.4"},
            "unknown key decode.score_treshold; did you mean score_threshold?",
        ),
        ({"extra": "[decode.class_thresholds]\ndragon = 0.5"}, "names 'dragon', which is no label"),
        ({"extra": "[calibration]\nscale = [1.0, 2.0]"}, "scale has 2 numbers; give one, or one for each of the 11"),
        ({"extra": "[golden]\nfile = 'no.npz'\nsha256 = '00'"}, "cannot read golden vector no.npz"),
        ({"format": "format = 2"}, "format is 2"),
        ({"extra": "nonsense ="}, "is no valid TOML"),
        ({"extra": "[[model]]"}, "is no valid TOML"),
    ],
)
def test_a_wrong_bundle_is_refused_with_the_reason(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ArtefactError) as caught:
        load_bundle(write_bundle(tmp_path, None, **changes))
    assert sentence in str(caught.value)


def test_a_pipe_in_the_place_of_a_model_is_a_reason_and_holds_nobody(tmp_path: Path) -> None:
    """Whoever loaded it waited until somebody wrote into it."""
    path = write_bundle(tmp_path, None)
    (model,) = tmp_path.glob("*.tflite")
    model.unlink()
    os.mkfifo(model)
    with pytest.raises(ArtefactError, match="it is no regular file"):
        load_bundle(path)


def test_all_problems_of_a_bundle_are_told_at_once(tmp_path: Path) -> None:
    path = write_bundle(tmp_path, None, decoder='decoder = "x"', labels="", input="[input]\npad = 300")
    with pytest.raises(ArtefactError) as caught:
        load_bundle(path)
    assert all(part in str(caught.value) for part in ("decoder is 'x'", "labels or labels_file", "input.pad is 300"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decode": "[decode]\nstrides = [8, 16]"}, "the head is (1, 1280, 11)"),
        ({"labels": 'labels = ["a", "b"]'}, "2 labels need (1, 1280, 2)"),
        ({"input": '[input]\nwidth = 640\nheight = 256\nchannels = "gray"'}, "bundle says 640x256"),
        ({"input": '[input]\nchannels = "bgr"'}, "feeds bgr into an input of 1 channels"),
        ({"decoder": 'decoder = "ssd"'}, "an SSD with postprocess has four outputs"),
        ({"decoder": 'decoder = "yolo"'}, "a YOLO head has one output"),
        ({"decoder": 'decoder = "classifier"'}, "a classifier has one output"),
        ({"extra": "[decode.outputs]\ncls = 'nowhere'"}, "no output 'nowhere' for cls"),
    ],
)
def test_a_bundle_that_its_model_contradicts_is_refused(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ArtefactError) as caught:
        Detector.open(load_bundle(write_bundle(tmp_path, None, **changes)), DetectorOptions())
    assert sentence in str(caught.value)


def test_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no model at"):
        load_bundle(tmp_path / "nowhere.tflite")
    with pytest.raises(ArtefactError, match="no model at small-320; zoo:small-320 is one"):
        load_bundle("small-320")
    with pytest.raises(ArtefactError, match="the zoo has no model 'dragon'; it has"):
        load_bundle("zoo:dragon")
    other = tmp_path / "model.pt"
    other.write_bytes(b"x")
    with pytest.raises(ArtefactError, match="neither a bundle"):
        load_bundle(other)


@pytest.mark.parametrize("size", [0, 3, 7])
def test_empty_or_headless_model(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(ZOO_MODEL.read_bytes()[:size])
    with pytest.raises(ArtefactError, match="no LiteRT model"):
        load_bundle(path)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_truncated_model(tmp_path: Path, share: float) -> None:
    data = ZOO_MODEL.read_bytes()
    path = tmp_path / "m.tflite"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"truncated|refuses"):
        Detector.open(load_bundle(path), DetectorOptions())


def test_corrupt_model(tmp_path: Path) -> None:
    data = bytearray(ZOO_MODEL.read_bytes())
    data[8:4096] = b"\xff" * 4088
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError):
        Detector.open(load_bundle(path), DetectorOptions())
    # Beside a bundle the digest tells before any runtime sees the bytes.
    bundle = write_bundle(tmp_path)
    (tmp_path / "model.tflite").write_bytes(data)
    with pytest.raises(ArtefactError, match="is not the file that the bundle was made with"):
        load_bundle(bundle)


@pytest.mark.shared
def test_model_with_several_inputs(shared: Path) -> None:
    path = shared / "data/models/traffic_model.tflite"
    with pytest.raises(ArtefactError, match=r"has 3 inputs .*init_lstm_c.* carries no state"):
        Detector.open(load_bundle(path), DetectorOptions())


@pytest.mark.shared
def test_model_that_the_runtime_refuses(shared: Path) -> None:
    path = shared / "data/models/person_detect_micro.tflite"
    with pytest.raises(BackendError, match=r"LiteRT refuses person_detect_micro.tflite: quantized_dimension"):
        Detector.open(load_bundle(path), DetectorOptions())


@pytest.mark.shared
def test_model_without_labels_asks_for_them(shared: Path) -> None:
    models = shared / "data/models"
    with pytest.raises(ArtefactError, match="no labels inside; give them with --labels"):
        Detector.open(load_bundle(models / "mobilenet_v2_1.0_224_quant.tflite"), DetectorOptions())
    bundle = load_bundle(models / "mobilenet_v2_1.0_224_quant.tflite", models / "coco_labelmap.txt")
    with pytest.raises(ArtefactError, match="1001 classes apart; there are 90 labels"):
        Detector.open(bundle, DetectorOptions())


@pytest.mark.shared
def test_labels_inside_the_model_are_found(shared: Path) -> None:
    models = shared / "data/models"
    inside = load_bundle(models / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite").labels
    assert inside == parse_labels((models / "coco_labelmap.txt").read_bytes(), "x")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "are empty"),
        (b"\n\n", "are empty"),
        (b"\xff\xfe\x00a", "no UTF-8 text"),
        (b"a\x00b\n", "no list of labels"),
        (b"x" * 300, "no list of labels"),
        (b"a\n" * 70_000, "at most 65536"),
        (b"a" * (2 << 20), "larger than 1 MiB"),
    ],
)
def test_bad_labels(data: bytes, sentence: str) -> None:
    with pytest.raises(ArtefactError, match=sentence):
        parse_labels(data, "labels.txt")


def test_missing_labels() -> None:
    with pytest.raises(ArtefactError, match=r"cannot read labels nowhere\.txt: No such file"):
        load_bundle(ZOO_TOML, "nowhere.txt")


@pytest.mark.parametrize("is_zip64", [False, True])
def test_an_archive_of_ever_so_many_entries_is_not_opened(is_zip64: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of 47 bytes takes half a kilobyte of memory: 256 MiB of them would end a device."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = entry * 30_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 30_000, 30_000, len(directory), 0, 0)
    if is_zip64:
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 30_000, 30_000, len(directory), 8)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, 8 + len(directory), 1)
        end = wide + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0, 0, 0)
    opened: list[int] = []
    init = zipfile.ZipInfo.__init__

    def count(self: zipfile.ZipInfo, *arguments: Any, **named: Any) -> None:
        opened.append(1)
        init(self, *arguments, **named)

    monkeypatch.setattr(zipfile.ZipInfo, "__init__", count)
    assert embedded_labels(b"\0\0\0\0TFL3" + directory + end) == ()
    assert opened == []


def test_a_torn_archive_behind_the_model_is_no_labels() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", "a\nb\n" * 50)
    whole = ZOO_MODEL.read_bytes()[:1000] + packed.getvalue()
    assert len(embedded_labels(whole)) == 100
    for cut in range(1, len(packed.getvalue()), 7):
        assert embedded_labels(whole[:-cut]) == ()


@pytest.mark.parametrize("kind", ["large", "many", "lies", "open", "crooked", "none", "torn"])
def test_a_golden_vector_that_unpacks_without_end_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle comes from outside, and a megabyte of its golden vector was a gigabyte in the eye."""
    monkeypatch.setattr(golden_module, "MAX_GOLDEN_BYTES", 1 << 20)
    path = tmp_path / "golden.npz"
    if kind == "large":
        np.savez_compressed(path, image=np.zeros((1 << 12, 1 << 12), np.uint8))
    elif kind == "many":
        np.savez(path, **{f"a{number}": np.zeros(1) for number in range(30)})
    else:
        with zipfile.ZipFile(path, "w") as archive:
            odd = {"lies": "(1099511627776,)", "open": "((8", "crooked": "(1,), 'a':\n   3\n  4"}
            shape = odd.get(kind, "(8,)")
            head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            archive.writestr("image.npy", b"\x93NUMPY\x01\x00\x76\x00" + head.encode())
    if kind in ("none", "torn"):
        path.write_bytes(path.read_bytes()[:60] if kind == "torn" else b"PK\x03\x04")
    detector = SimpleNamespace(
        bundle=SimpleNamespace(golden=Golden(path, 8)), raw_outputs=lambda image: pytest.fail("it was taken")
    )
    tracemalloc.start()
    try:
        assert "golden vector golden.npz cannot be read" in check_golden(cast("Any", detector))
        # What an array's own header says is given as addresses, and none of it is ever filled.
        assert kind == "lies" or tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_labels_that_the_eye_could_not_tell_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("\n".join(f"{number:05d}{'é' * 100}" for number in range(3_000)))
    with pytest.raises(ArtefactError, match=r"the labels of .* take 624000 bytes, 524288 at most; shorten them"):
        load_bundle(ZOO_MODEL, path)
    with pytest.raises(ArtefactError, match=r"; and \d+ more$") as refused:
        load_bundle(ZOO_TOML, path)  # Each label has no threshold there.
    assert len(str(refused.value)) < 20_000
    assert LABELS_BYTES_MAX <= MAX_MESSAGE_BYTES // 2
