"""`swarmd detect` as people run it: published results on real pictures, and each bad input with its exit status."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def _detect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarmd", "detect", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT, env=os.environ)


@pytest.mark.shared
def test_the_published_detections_of_the_ssd(shared: Path) -> None:
    models, images = shared / "data/models", shared / "data/images"
    done = _detect("--source", images / "cats_and_dogs.jpg", "--labels", models / "coco_labelmap.txt", "--json",
                   "--model", models / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite")  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == (
        "swarmd detect: model coco_ssd_mobilenet_v1_1.0_quant_2018_06_29 has no bundle; read as SSD with postprocess "
        "inside; stretch to 300x300, rgb, -1 to 1, by its scale 0.0078125 and zero point 128; 90 labels\n"
    )
    (line,) = done.stdout.splitlines()
    frame = json.loads(line)
    assert list(frame) == ["frame", "t_ns", "detections"]
    assert frame["frame"] == 0
    published = json.loads((models / "expected.json").read_text())["published"][0]["detections"]
    assert len(frame["detections"]) == len(published) == 4
    for want, got in zip(published, frame["detections"], strict=True):
        assert list(got) == ["class", "label", "score", "box"]
        x, y, w, h = want["box"]
        assert (got["class"], got["label"]) == (want["index"], want["label"])
        assert got["score"] == pytest.approx(want["score"], abs=0.05)
        assert got["box"] == pytest.approx([x, y, x + w, y + h], abs=10)


@pytest.mark.shared
def test_the_published_class_of_the_classifier(shared: Path) -> None:
    model = shared / "data/models/mobilenet_v1_0.25_224_quant.tflite"
    done = _detect("--source", shared / "data/images/burger.jpg", "--model", model, "--json")
    assert done.returncode == 0
    (found,) = json.loads(done.stdout)["detections"]
    assert (found["class"], found["label"]) == (934, "cheeseburger")
    assert found["score"] == pytest.approx(0.96, abs=0.05)
    assert found["box"] == [0, 0, 480, 325]


@pytest.mark.shared
def test_a_video_gives_a_line_a_frame(shared: Path) -> None:
    model = shared / "data/models/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
    video = shared / "data/video/one-by-one-person-detection.mp4"
    done = _detect("--source", video, "--model", model, "--json", "--max-frames", "30")
    assert done.returncode == 0
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["frame"] for frame in frames] == list(range(30))
    assert {round((b["t_ns"] - a["t_ns"]) / 1e6) for a, b in itertools.pairwise(frames)} == {100}


def test_the_simulated_farm_is_seen_with_positions() -> None:
    farm = "sim://farm?drone=1&of=1&seed=7&fly=lanes&faults=0.2&pace=max&frames=30"
    done = _detect("--source", farm, "--json", "--tracks")
    assert done.returncode == 0
    tracks = [track for line in done.stdout.splitlines() for track in json.loads(line)["tracks"]]
    assert any(track["event"] == "new" for track in tracks)
    assert all({"latitude_deg", "longitude_deg", "covariance_m2"} <= track.keys() for track in tracks)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--source", "nowhere.jpg"], 1, "no source at nowhere.jpg"),
        (["--source", "README.md"], 1, "cannot be opened"),
        (["--source", "docs"], 1, "holds no pictures"),
        (["--source", "x.jpg", "--model", "nowhere.tflite"], 1, "no model at nowhere.tflite"),
        (["--source", "x.jpg", "--model", "README.md"], 1, "neither a bundle (.toml) nor a LiteRT or ONNX model"),
        (["--source", "x.jpg", "--labels", "nowhere.txt"], 1, "cannot read labels"),
        (["--source", "x.jpg", "--pose", "moon"], 1, "pose 'moon' cannot be used"),
        (["--source", "x.jpg", "--backend", "magic"], 1, "no backend is called 'magic'"),
        (["--model", "zoo:small-320"], 2, "--source"),
        (["--source", "x.jpg", "--max-frames", "-1"], 2, "must not be negative"),
        (["--source", "x.jpg", "--threads", "0"], 2, "must be 1 to 64"),
    ],
)
def test_bad_input_has_a_sentence_and_an_exit_status(arguments: list[str], status: int, sentence: str) -> None:
    done = _detect(*arguments)
    assert done.returncode == status, done
    assert sentence in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["text.mp4", "text.avi", "empty.mkv"])
def test_what_is_no_video_costs_one_sentence(tmp_path: Path, name: str) -> None:
    """OpenCV has a warning of its own for it, which would stand before ours."""
    path = tmp_path / name
    path.write_text("" if name.startswith("empty") else "no video\n" * 100)
    done = _detect("--source", path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"swarmd detect: video {path} cannot be opened: ")


def test_a_corrupt_picture(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(b"\xff\xd8 no picture")
    done = _detect("--source", path)
    assert done.returncode == 1
    assert "truncated: the JPEG has no end" in done.stderr or "cannot be decoded" in done.stderr


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "sentence"),
    [("traffic_model.tflite", "has 3 inputs"), ("person_detect_micro.tflite", "LiteRT refuses person_detect_micro")],
)
def test_models_that_the_eye_refuses(shared: Path, name: str, sentence: str) -> None:
    done = _detect("--source", shared / "data/images/burger.jpg", "--model", shared / "data/models" / name)
    assert done.returncode == 1
    assert sentence in done.stderr


def test_a_bad_picture_of_a_folder_is_passed_over_and_the_exit_status_tells(tmp_path: Path) -> None:
    import cv2
    import numpy as np

    for name in ("1", "3"):
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((256, 320), 90, np.uint8))
    (tmp_path / "2.png").write_bytes(b"torn")
    done = _detect("--source", tmp_path, "--json")
    assert done.returncode == 1
    assert [json.loads(line)["frame"] for line in done.stdout.splitlines()] == [0, 2]
    assert "2.png cannot be decoded" in done.stderr


def test_a_video_that_breaks_off_shows_what_it_had_and_fails(tmp_path: Path) -> None:
    import cv2
    import numpy as np

    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (320, 256))
    for index in range(60):
        writer.write(np.full((256, 320, 3), index, np.uint8))
    writer.release()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = _detect("--source", path, "--json")
    assert done.returncode == 1
    assert "breaks off after" in done.stderr or "cannot be opened" in done.stderr


def _swarmd(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarmd", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT)


def test_bench_infer_measures_what_is_installed_and_says_what_is_not() -> None:
    done = _swarmd("bench", "infer", "--backend", "all", "--seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    found = {figures["backend"]: figures for figures in json.loads(done.stdout)["backends"]}
    assert list(found) == ["litert", "onnx", "openvino", "tensorrt"]
    litert = found["litert"]
    assert litert["golden"] == "ok"
    assert litert["stages_ms"].keys() >= {"total", "preprocess", "infer", "decode", "nms"}
    assert 0 < litert["infer_share"] < 1
    for figures in found.values():
        assert "error" in figures or figures["frames"] > 0
    assert _swarmd("bench", "infer", "--backend", "magic").returncode == 1
    assert _swarmd("bench").returncode == 2


def test_frames_export_says_when_there_is_nothing(tmp_path: Path) -> None:
    done = _swarmd("frames", "export", "--folder", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "no kept frames" in done.stderr
