"""`swarmd bundle init`: what it writes can be used, and answers as the bare model does."""

import io
import json
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.cli.main import main
from swarmd_models.bundle import GivenInput, load_bundle
from swarmd_models.bundle_init import InitOptions, init_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError
from swarmd_models.golden import check_golden
from swarmd_models.model_notes import notes_of, notes_of_table
from tests.support.bundles import ZOO_MODEL
from tests.support.onnx_models import COLOURS, colour_onnx, colour_tflite, constant_onnx, picture, ultralytics

BACKENDS = ("litert", "onnx")


def _quiet(text: str) -> None:
    """Nobody listens."""


def _seen(path: Path, labels: Path | None, image: np.ndarray) -> list[tuple[str, float, tuple[float, ...]]]:
    detector = Detector.open(load_bundle(path, labels), DetectorOptions(BACKENDS))
    return [(one.label, round(one.score, 5), one.box) for one in detector.detect(image)]


@pytest.mark.parametrize("kind", ["v8", "v5", "imagenet int8", "uint8 -1 to 1", "int8"])
def test_a_bundle_that_is_written_answers_as_the_bare_model_does(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("onnxruntime")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(COLOURS))
    content = {
        "imagenet int8": lambda: colour_tflite(0.0187, -14),
        "uint8 -1 to 1": lambda: colour_tflite(1 / 128, 128, kind="uint8"),
        "int8": colour_tflite,
    }.get(kind, lambda: colour_onnx(kind, notes=ultralytics()))()
    model = tmp_path / ("m.onnx" if kind.startswith("v") else "m.tflite")
    model.write_bytes(content)
    cv2.imwrite(str(tmp_path / "p.png"), picture(200, 100, "green"))
    labels = None if kind.startswith("v") else names
    options = InitOptions(picture=tmp_path / "p.png", labels_path=labels, backends=BACKENDS)
    made = init_bundle(model, options, _quiet)
    assert made.path == model.with_suffix(".toml")
    assert "green" in {one.label for one in made.detections}
    for image in (picture(), picture(128, 96, "blue", 200, at=40), picture(64, 64, "green", 90)):
        assert _seen(made.path, None, image) == _seen(model, labels, image)
    with pytest.raises(ArtefactError, match="exists already; --force"):
        init_bundle(model, options, _quiet)


def test_golden_vectors_of_a_trial_run_catch_a_score_that_is_wrong(tmp_path: Path) -> None:
    """A score from 0 to 1 lies beside boxes of 64 pixels: against their reach alone an error of 0.2 would pass."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(colour_onnx(notes=ultralytics()))
    made = init_bundle(tmp_path / "m.onnx", InitOptions(backends=("onnx",)), _quiet)
    assert made.bundle.golden is not None
    detector = Detector.open(load_bundle(made.path), DetectorOptions(("onnx",)))
    assert check_golden(detector) == ""
    honest = detector.backend.output_views

    def wrong() -> list[np.ndarray]:
        (view,) = (np.array(one) for one in honest())
        view[5, 3] += 0.2
        return [view]

    detector.backend.output_views = wrong  # type: ignore[method-assign]
    assert "differs by 51" in check_golden(detector)


def test_two_readings_are_settled_by_a_person(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(colour_onnx("yolox", notes={"names": str(list(COLOURS))}))
    with pytest.raises(ArtefactError, match=r"can be read as v6 .*yolox .*obb"):
        init_bundle(tmp_path / "m.onnx", InitOptions(), _quiet)
    options = InitOptions(head="yolox", given=GivenInput("rgb", "letterbox", 0.0, 255.0), classes=("red",))
    made = init_bundle(tmp_path / "m.onnx", options, _quiet)
    found = [one for one in _seen(made.path, None, picture(96, 48, at=24)) if one[1] > 0.5]
    assert found
    assert {one[0] for one in found} == {"red"}
    assert not [one for one in _seen(made.path, None, picture(96, 48, "green")) if one[1] > 0.5]


def test_mean_and_std_may_be_given_for_each_channel(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(colour_onnx(notes=ultralytics()))
    given = GivenInput(mean=(55.0, 0.0, 0.0), std=(200.0, 255.0, 510.0))
    made = init_bundle(tmp_path / "m.onnx", InitOptions(given=given), _quiet)
    best = {colour: _seen(made.path, None, picture(64, 64, colour, 255))[0][:2] for colour in COLOURS}
    assert best["red"] == ("red", 1.0)
    assert best["green"] == ("green", 1.0)
    assert best["blue"] == ("blue", 0.5)


def test_the_zoos_own_head_keeps_its_vectors_by_name(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(ZOO_MODEL.read_bytes())
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"class{i}" for i in range(11)))
    # One stride of 8 alone is no head that a bare model is known by: a bundle says so, and `init` writes none.
    with pytest.raises(ArtefactError, match="outputs that no decoder here knows"):
        init_bundle(tmp_path / "m.tflite", InitOptions(labels_path=names), _quiet)


def test_the_verb_says_the_reading_and_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(colour_onnx(notes=ultralytics()))
    cv2.imwrite(str(tmp_path / "p.png"), picture(64, 64, "blue"))
    out = tmp_path / "made" / "b.toml"
    arguments = ["bundle", "init", str(tmp_path / "m.onnx"), "--picture", str(tmp_path / "p.png"), "-o", str(out)]
    assert main([*arguments, "--rename", "blue=water", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["reading"].startswith("YOLOv8 or 11 (84 boxes, 3 classes); letterbox to 64x64")
    assert "water" in {one["label"] for one in said["detections"]}
    assert said["digest"] == load_bundle(out).digest
    assert main(["bundle", "init", str(out)]) == 1
    assert "is a bundle already" in capsys.readouterr().err
    assert main([*arguments, "--force", "--classes", "purple"]) == 1
    assert "'purple' is no label" in capsys.readouterr().err


@pytest.mark.parametrize("label", ["\x1b[2J", "a\nb", "a\u2028b", "\u202egnp"])
def test_a_label_that_no_terminal_or_line_can_hold_is_no_label(label: str) -> None:
    names = {"0": label, "1": "b"}
    for text in (json.dumps({"names": names, "stride": 32}), json.dumps({"names": list(names.values())})):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("metadata.json", text)
        assert notes_of(b"\0\0\0\0TFL3" + packed.getvalue(), is_onnx=False).labels == ()
    assert notes_of_table({"names": f"{{0: '{label}', 1: 'b'}}"}).labels == ()


def test_a_complaint_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "init", str(tmp_path / "a\x1b[2Jb\u202e.onnx")]) == 1
    said = capsys.readouterr().err
    assert "a?[2Jb?.onnx" in said
    assert said.removesuffix("\n").isprintable()


def test_a_release_of_a_model_that_cannot_be_decoded_is_not_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    rows = {"output0": np.zeros((1, 7, 99), np.float32)}
    (tmp_path / "bad.onnx").write_bytes(constant_onnx(rows, notes=ultralytics()))
    (tmp_path / "good.onnx").write_bytes(colour_onnx(notes=ultralytics()))
    build = ["model", "build", "--model", "m", "--version", "1", "--epoch", "1"]
    assert main([*build, str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "bad.onnx is not packed: output output0 (1, 7, 99)" in said
    assert "fits no YOLO head" in said
    assert not (tmp_path / "out").exists()
    assert main([*build, str(tmp_path / "good.onnx"), "-o", str(tmp_path / "out")]) == 0
    assert "tried with onnxruntime" in capsys.readouterr().out
