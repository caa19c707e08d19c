"""A narrow place in a model: less travels, the parts are the whole to the bit, and what is lost is small."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.worker.coding import packed
from swarmd.worker.splitting import read_splits
from swarmd_models.backends.base import Array
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_models.choose import measure_zoo
from swarmd_models.detector import Detector
from swarmd_models.errors import ArtefactError
from swarmd_models.evaluate import FrameSpec, frames_of
from swarmd_models.onnx_file import field, read_onnx, varint
from swarmd_models.onnx_narrow import _GRAPH, _INT8, _NODE, _WEIGHT, NARROW, _node, levels_of, narrowed
from swarmd_models.onnx_parts import OnnxGraph
from swarmd_models.part_export import Cutter
from swarmd_models.types import Image
from swarmd_recipes.narrow import ONNX, _toml, coder_for, load, run

MODEL, CUT = ZOO / "tiny-224.qdq.onnx", "hardtanh_4_QuantizeLinear_Output"


def pictures(seed: int, count: int) -> list[Image]:
    """Drawn frames."""
    scenes = frames_of(FrameSpec(0.085, count, seed), load_bundle("zoo:tiny-224"))
    return [scene.image for scene in scenes]


@pytest.fixture(scope="module")
def fitted() -> tuple[list[Array], list[Array], list[Image]]:
    """Inputs to learn from, inputs to judge by, and the frames of the latter."""
    detector, frames = Detector.open(load_bundle("zoo:tiny-224"), ONNX), pictures(5, 6)
    found = [detector.fitted(one) for one in pictures(11, 24)], [detector.fitted(one) for one in frames], frames
    detector.close()
    return found


@pytest.fixture(scope="module")
def model(fitted: tuple[list[Array], list[Array], list[Image]]) -> bytes:
    """tiny-224 with a narrow place."""
    data = read_onnx(MODEL)
    return narrowed(data, CUT, coder_for(data, CUT, fitted[0]))


def test_law_less_travels_than_a_jpeg_and_the_outputs_hardly_move(
    model: bytes, fitted: tuple[list[Array], list[Array], list[Image]], tmp_path: Path
) -> None:
    (tmp_path / "narrow.onnx").write_bytes(model)
    (tmp_path / "head.onnx").write_bytes(OnnxGraph(model).part(None, NARROW))
    whole, narrow, head = load(MODEL), load(tmp_path / "narrow.onnx"), load(tmp_path / "head.onnx")
    _, items, frames = fitted
    sizes = [len(packed(run(head, one)[0].tobytes()) or b"?" * 99_999) for one in items]
    jpegs = [cv2.imencode(".jpg", one, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].size for one in frames]
    assert sum(sizes) < 0.75 * sum(jpegs)
    before = np.concatenate([np.ravel(run(whole, one)[0]) for one in items]).astype(np.float64)
    after = np.concatenate([np.ravel(run(narrow, one)[0]) for one in items]).astype(np.float64)
    assert np.corrcoef(before, after)[0, 1] > 0.95


def test_law_the_parts_are_the_whole_to_the_bit(
    model: bytes, fitted: tuple[list[Array], list[Array], list[Image]], tmp_path: Path
) -> None:
    graph = OnnxGraph(model)
    assert NARROW in graph.cuts()
    (tmp_path / "whole.onnx").write_bytes(model)
    (tmp_path / "head.onnx").write_bytes(graph.part(None, NARROW))
    whole, head = load(tmp_path / "whole.onnx"), load(tmp_path / "head.onnx")
    (tmp_path / "tail.onnx").write_bytes(graph.part(head.outputs[0], None))
    tail = load(tmp_path / "tail.onnx")
    for one in fitted[1]:
        assert [out.tobytes() for out in run(whole, one)] == [out.tobytes() for out in run(tail, run(head, one)[0])]


def test_a_narrow_model_is_a_bundle_of_its_own_that_can_be_lent_in_parts(model: bytes, tmp_path: Path) -> None:
    path, source = tmp_path / "tiny-224-narrow.onnx", load_bundle("zoo:tiny-224")
    path.write_bytes(model)
    for name in ("small-320.second.tflite", "small-320.second.qdq.onnx"):
        shutil.copy(ZOO / name, tmp_path)
    toml = tmp_path / "tiny-224-narrow.toml"
    toml.write_text(_toml((ZOO / "tiny-224.toml").read_text("utf-8"), source, path), "utf-8")
    bundle = load_bundle(toml)
    assert (bundle.name, bundle.labels) == ("solar-tiny-224-narrow", source.labels)
    assert bundle.digest != source.digest, "an answer of it is never taken for one of the other"
    parts = tmp_path / "parts"
    parts.mkdir()
    split = Cutter(bundle, pictures(5, 1), parts, lambda data: len(packed(data) or data)).write([NARROW])
    (read,) = read_splits(str(split)).values()
    assert read.digest == bundle.digest
    assert read.parts.sizes[1] < 9_000, "what lies at the narrow place"


def test_law_the_zoos_narrow_model_sends_less_than_a_jpeg_and_its_parts_are_the_whole(
    fitted: tuple[list[Array], list[Array], list[Image]], tmp_path: Path
) -> None:
    """And it says what it was made of and how good it is."""
    bundle, source = load_bundle("zoo:tiny-224-narrow"), load_bundle("zoo:tiny-224")
    said = bundle.provenance["narrow"]
    assert bundle.provenance["made_of_digest"] == source.digest
    assert said["data_sha256"] == source.provenance["data_sha256"]
    assert said["packed_bytes"] < 0.65 * said["jpeg_95_bytes"]
    assert said["narrow"]["modules"] == said["whole"]["modules"] > 4_000
    assert said["narrow"]["ap"] > said["whole"]["ap"] - 0.01
    path = bundle.artefact().onnx
    assert path is not None
    graph = OnnxGraph(read_onnx(path))
    (tmp_path / "head.onnx").write_bytes(graph.part(None, NARROW))
    whole, head = load(path), load(tmp_path / "head.onnx")
    (tmp_path / "tail.onnx").write_bytes(graph.part(head.outputs[0], None))
    tail = load(tmp_path / "tail.onnx")
    _, items, frames = fitted
    sent = [run(head, one)[0] for one in items]
    for one, cut in zip(items, sent, strict=True):
        assert [out.tobytes() for out in run(whole, one)] == [out.tobytes() for out in run(tail, cut)]
    jpegs = [cv2.imencode(".jpg", one, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].size for one in frames]
    assert sum(len(packed(cut.tobytes()) or cut.tobytes()) for cut in sent) < 0.75 * sum(jpegs)


def test_the_eye_chooses_no_model_that_is_made_for_parts() -> None:
    rungs, problems = measure_zoo(ONNX)
    assert "tiny-224-narrow.toml" not in {rung.path.name for rung in rungs}
    assert "narrow" not in "".join(problems)


def test_there_must_be_such_a_tensor() -> None:
    data = read_onnx(MODEL)
    scale, zero = levels_of(data, CUT)
    assert (round(scale * 255, 3), zero) == (6.0, -128)
    for name in ("nonsense", "hardtanh_4", "cls"):
        with pytest.raises(ArtefactError, match="QuantizeLinear"):
            levels_of(data, name)
    with pytest.raises(ArtefactError):
        levels_of(data[: len(data) // 2], CUT)


def test_equal_frames_give_equal_bytes(model: bytes, fitted: tuple[list[Array], list[Array], list[Image]]) -> None:
    data = read_onnx(MODEL)
    assert narrowed(data, CUT, coder_for(data, CUT, fitted[0])) == model


@pytest.mark.parametrize(
    "zero",
    [field(9, b""), varint(2 << 3) + varint(1) + field(9, np.float32("nan").tobytes())],
    ids=["without a number", "no number"],
)
def test_a_graph_whose_zero_point_is_none_is_refused(zero: bytes) -> None:
    scale = varint(2 << 3) + varint(1) + field(9, np.float32(0.5).tobytes())
    weights = field(_WEIGHT, scale + field(8, b"s")) + field(_WEIGHT, zero + field(8, b"z"))
    graph = field(_NODE, _node("QuantizeLinear", ["in", "s", "z"], "cut")) + weights
    with pytest.raises(ArtefactError, match="no QuantizeLinear with a zero point"):
        levels_of(field(_GRAPH, graph), "cut")


def test_a_zero_point_of_many_bytes_costs_no_more_than_ten() -> None:
    """Their square, before: a megabyte took minutes."""
    scale = varint(2 << 3) + varint(1) + field(9, np.float32(0.5).tobytes()) + field(8, b"s")
    zero = varint(2 << 3) + varint(_INT8) + field(5, b"\x83" + b"\xff" * (1 << 20)) + field(8, b"z")
    graph = field(_NODE, _node("QuantizeLinear", ["in", "s", "z"], "cut")) + field(_WEIGHT, scale)
    assert levels_of(field(_GRAPH, graph + field(_WEIGHT, zero)), "cut") == (0.5, -125)
