"""The second stage: cutting, joining, what is skipped, and how a bundle carries it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swarmd.release.author import bundle_files
from swarmd_models.bundle import ZOO, Bundle, SecondRule, load_bundle
from swarmd_models.detector import SECOND, STAGES, Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, BackendError
from swarmd_models.evaluate import FrameSpec, ModuleScorer, evaluate_frames, frames_of
from swarmd_models.golden import check_golden
from swarmd_models.second import SecondStage, cut_out, fuse, sigmoid
from swarmd_models.service import DETECT, Service
from swarmd_models.types import Image
from tests.support.second_stage import HEIGHT, WIDTH, brightness_model, linear_model, load_second, write_second

RULE = SecondRule(Path("x.tflite"))


def _open(bundle: Bundle, **options: float) -> Detector:
    return Detector.open(bundle, DetectorOptions(**options))  # type: ignore[arg-type]


def _picture() -> Image:
    """A golden frame, in which small-320 sees something at a low threshold."""
    with np.load(ZOO / "small-320.golden.npz") as arrays:
        image: Image = arrays["image"]
    return image


# --- Cutting ---------------------------------------------------------------------------------------------------------


def test_a_cut_of_whole_pixels_is_those_pixels() -> None:
    canvas = np.random.default_rng(1).integers(0, 256, (100, 200), dtype=np.uint8)
    cut = cut_out(canvas, np.array([[30, 20, 70, 44]]), 0.0, "none", 40, 24)
    assert np.array_equal(cut[0], canvas[20:44, 30:70])


def test_a_margin_grows_every_side_by_its_share() -> None:
    canvas = np.random.default_rng(1).integers(0, 256, (100, 200), dtype=np.uint8)
    cut = cut_out(canvas, np.array([[50, 40, 70, 52]]), 0.5, "none", 40, 24)
    assert np.array_equal(cut[0], canvas[34:58, 40:80])


def test_a_standing_box_is_turned_for_a_lying_input() -> None:
    canvas = np.random.default_rng(1).integers(0, 256, (200, 100), dtype=np.uint8)
    cut = cut_out(canvas, np.array([[20, 30, 44, 70]]), 0.0, "none", 40, 24)
    assert np.array_equal(cut[0], canvas[30:70, 20:44].T)


def test_beyond_the_border_the_edge_goes_on() -> None:
    canvas = np.full((50, 60), 7, np.uint8)
    boxes = np.array([[-30, -30, -5, -15], [50, 40, 90, 64], [1e9, 0, 2e9, 1e9], [10, 10, 10, 10]])
    assert (cut_out(canvas, boxes, 0.2, "none", 40, 24) == 7).all()


def test_levels_can_be_centred() -> None:
    canvas = np.full((50, 60), 30, np.uint8)
    canvas[10:14, 10:14] = 60
    cut = cut_out(canvas, np.array([[0, 0, 60, 50]]), 0.0, "median", 60, 50)[0]
    assert np.median(cut) == 128
    assert cut.max() == 158


def test_colour_is_cut_too() -> None:
    canvas = np.random.default_rng(1).integers(0, 256, (100, 200, 3), dtype=np.uint8)
    cut = cut_out(canvas, np.array([[30, 20, 70, 44]]), 0.0, "none", 40, 24)
    assert np.array_equal(cut[0], canvas[20:44, 30:70])


# --- Joining ---------------------------------------------------------------------------------------------------------


def test_both_opinions_are_joined_by_the_bundles_weights() -> None:
    rule = replace(RULE, first_weight=0.5, second_weight=2.0, bias=-1.0, kind_weight=1.0)
    answers = np.array([[3.0, 0.0, 1.0]], np.float32)  # Two faults and the healthy class.
    logits, kinds = fuse(rule, np.array([4.0], np.float32), np.array([[0.0, 5.0]], np.float32), answers)
    assert logits[0] == pytest.approx(0.5 * 4 + 2 * (np.log(np.exp(3) + 1) - 1) - 1, abs=1e-5)
    assert kinds.tolist() == [[-2.0, 0.0]], "the first stage's kind outweighs the second's"
    assert sigmoid(np.array([-1e9, 0.0, 1e9], np.float32)).tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_one_logit_says_how_sure_and_leaves_the_kind_to_the_first_stage() -> None:
    logits, kinds = fuse(RULE, np.array([2.0], np.float32), np.array([[1.0, 3.0]], np.float32), np.array([[-4.0]]))
    assert logits[0] == -3.0
    assert kinds.argmax() == 1


# --- In the detector -------------------------------------------------------------------------------------------------


def test_the_second_stage_scores_and_names_what_the_first_suspects(tmp_path: Path) -> None:
    """The joined score is exactly that of the second net here, for its weight is 1 and the first's is 0."""
    bundle = load_second(
        tmp_path, candidate_threshold="candidate_threshold = 0.001", threshold="score_threshold = 0.001"
    )
    detector = _open(bundle)
    image = _picture()
    found = detector.detect(image)
    assert found
    assert {d.label for d in found} == {bundle.labels[3]}, "the second net names class 3 only"
    assert detector.second is not None
    assert detector.second.counts.examined >= len(found)
    for d in found:
        box = np.array([d.whole_box or d.box])
        answer = detector.second.judge(image, box)
        joined, _ = fuse(detector.second.rule, np.zeros(1, np.float32), None, answer)
        assert d.score == pytest.approx(float(sigmoid(joined)[0]), abs=1e-6)
    assert detector.stage_ns.keys() == {*STAGES, SECOND}
    detector.close()


def test_a_bundle_without_one_works_as_before() -> None:
    detector = _open(replace(load_bundle("zoo:small-320"), second=None))
    assert detector.stage_ns.keys() == set(STAGES)
    assert not detector.looks_twice
    detector.close()


def test_throttled_the_first_stage_decides_alone(tmp_path: Path) -> None:
    image = _picture()
    alone, both = _open(replace(load_second(tmp_path), second=None)), _open(load_second(tmp_path))
    both.looks_twice = False
    assert both.detect(image) == alone.detect(image)
    assert both.second is not None
    assert both.second.counts.examined == 0


def test_what_the_first_stage_is_sure_of_skips_the_second(tmp_path: Path) -> None:
    bundle = load_second(tmp_path, sure="sure_above = 0.0001", candidate_threshold="candidate_threshold = 0.001")
    image, early = _picture(), _open(bundle)
    alone = _open(replace(bundle, second=None))
    assert [(d.box, d.score) for d in early.detect(image)] == [(d.box, d.score) for d in alone.detect(image)]
    assert early.second is not None
    assert early.second.counts.examined == 0
    assert early.second.counts.sure > 0


def test_too_many_candidates_are_left_to_the_first_stage(tmp_path: Path) -> None:
    bundle = load_second(tmp_path, candidate_threshold="candidate_threshold = 0.001", most="max_candidates = 2")
    detector = _open(bundle)
    detector.detect(_picture())
    assert detector.second is not None
    assert detector.second.counts.examined == 2
    assert detector.second.counts.late > 0


def test_a_frame_out_of_time_is_left_to_the_first_stage(tmp_path: Path) -> None:
    bundle = load_second(tmp_path, candidate_threshold="candidate_threshold = 0.001", budget_ms="budget_ms = 0.000001")
    detector, alone = _open(bundle), _open(replace(bundle, second=None))
    image = _picture()
    assert [(d.box, d.score) for d in detector.detect(image)] == [(d.box, d.score) for d in alone.detect(image)]
    assert detector.second is not None
    assert detector.second.counts.examined == 0
    assert detector.second.counts.late > 0


def test_a_request_is_answered_alike_however_busy_the_machine(tmp_path: Path) -> None:
    """No frame's budget: a spot check would find an honest lender wrong that had no time."""
    answers = []
    for at, budget in enumerate(("0.000001", "10000.0")):
        (folder := tmp_path / str(at)).mkdir()
        bundle = load_second(
            folder, candidate_threshold="candidate_threshold = 0.001", budget_ms=f"budget_ms = {budget}"
        )
        service = Service.open(bundle, DetectorOptions(), lambda text: None)
        run = service.steps(DETECT, {"image": _picture()[..., None]})
        run.step()
        given = run.result()
        answers.append((given["boxes"].tolist(), given["scores"].tolist()))
        service.close()
    assert answers[0] == answers[1]
    first_stage = _open(replace(bundle, second=None)).detect(_picture())
    assert [one.score for one in first_stage] != answers[0][1], "the second stage has a word in it"


def test_flips_are_averaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    weights = rng.integers(-20, 21, (12, HEIGHT * WIDTH)).astype(np.int8)
    path = write_second(tmp_path, linear_model(weights, [0.0] * 12, 1 / 4096), flips="flips = 4")
    detector = _open(load_bundle(path))
    canvas = rng.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    boxes = np.array([[0, 0, WIDTH, HEIGHT]])
    second = detector.second
    assert second is not None
    second.rule = replace(second.rule, margin=0.0)
    answer = second.judge(canvas, boxes)[0]
    planes = weights.reshape(12, HEIGHT, WIDTH) / 4096
    mean = sum(v for v in (planes, planes[:, ::-1], planes[:, :, ::-1], planes[:, ::-1, ::-1])) / 4
    assert np.allclose(answer, (mean * (canvas / 255)).sum(axis=(1, 2)), atol=0.125)


def test_an_override_of_the_threshold_holds_for_both_stages(tmp_path: Path) -> None:
    detector = _open(load_second(tmp_path), score_threshold=0.3)
    assert detector.bundle.threshold == 0.3
    assert detector.bundle.decode.score_threshold == 0.3


# --- In the bundle ---------------------------------------------------------------------------------------------------


def test_the_identity_of_a_bundle_covers_both_nets(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = load_second(tmp_path / "a")
    other = load_bundle(write_second(tmp_path / "b", brightness_model(named=4)))
    assert one.digest != other.digest
    assert one.digest != load_bundle("zoo:small-320").digest
    assert [path.name for path in one.files()] == [
        "small-320.tflite",
        "small-320.qdq.onnx",
        "head.tflite",
        "golden.npz",
    ]


def test_a_second_stage_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = write_second(tmp_path)
    data = bytearray((tmp_path / "head.tflite").read_bytes())
    data[-5] ^= 1
    (tmp_path / "head.tflite").write_bytes(data)
    with pytest.raises(ArtefactError, match=r"second stage head\.tflite is not the file that the bundle was made with"):
        load_bundle(path)
    (tmp_path / "head.tflite").unlink()
    with pytest.raises(ArtefactError, match=r"cannot read second stage head\.tflite"):
        load_bundle(path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"file": ""}, "second.file is missing"),
        ({"x": "flips = 3"}, "it must be 1, 2 or 4"),
        ({"x": 'level = "mean"'}, "it must be one of none, median"),
        ({"x": "candidate_treshold = 0.1"}, "did you mean candidate_threshold"),
        ({"x": '[second.class_thresholds]\n"dragon" = 0.5'}, "names 'dragon', which is no label"),
    ],
)
def test_what_is_wrong_with_it_is_said(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    path = write_second(tmp_path, **changes)
    with pytest.raises(ArtefactError, match=sentence):
        load_bundle(path)


def test_a_net_that_is_no_second_stage_is_refused(tmp_path: Path) -> None:
    weights = np.zeros((5, HEIGHT * WIDTH), np.int8)
    path = write_second(tmp_path, linear_model(weights, [0.0] * 5))
    with pytest.raises(ArtefactError, match="11 labels need 12 logits"):
        _open(load_bundle(path))
    (tmp_path / "two").mkdir()
    path = write_second(tmp_path / "two")
    bundle = load_bundle(path)
    assert bundle.second is not None
    with pytest.raises(BackendError, match=r"second.*no \.onnx file"):
        _open_on(bundle, ("onnx",))


def test_openvino_leaves_the_second_stage_to_litert(tmp_path: Path) -> None:
    second = SecondStage.open(load_second(tmp_path), ("openvino", "litert"), 1, lambda text: None)
    assert second.backend.kind == "litert"
    second.close()


def _open_on(bundle: Bundle, backends: tuple[str, ...]) -> Detector:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (extra onnx)")
    return Detector.open(bundle, DetectorOptions(backends))


def test_golden_vectors_cover_both_stages(tmp_path: Path) -> None:
    bundle = load_second(tmp_path)
    detector = _open(bundle)
    assert check_golden(detector) == ""
    assert bundle.golden is not None
    with np.load(bundle.golden.path) as arrays:
        stored = {name: arrays[name] for name in arrays.files}
    spoilt = {**stored, "second_cls": stored["second_cls"] + np.int8(30)}
    np.savez(bundle.golden.path, **spoilt)
    assert "second_cls differs by 30.0 steps" in check_golden(detector)
    del stored["second_cls"]
    np.savez(bundle.golden.path, **stored)
    assert "no second_image and second_cls" in check_golden(detector)


def test_a_release_ships_every_file_and_one_of_them_is_the_model(tmp_path: Path) -> None:
    path = write_second(tmp_path)
    files = bundle_files(path)
    assert {name: role for name, (role, _) in files.items()} == {
        "golden.npz": "golden",
        "head.tflite": "other",
        "small-320.qdq.onnx": "other",
        "small-320.tflite": "model",
        "small-320.toml": "bundle",
    }
    installed = tmp_path / "installed"
    installed.mkdir()
    for name, (_, data) in files.items():
        (installed / name).write_bytes(data)
    assert load_bundle(installed / "small-320.toml").digest == load_bundle(path).digest


def test_a_release_ships_the_file_of_labels(tmp_path: Path) -> None:
    """Without it the installed bundle could not be read."""
    text = (ZOO / "small-320.toml").read_text()
    labels = next(line for line in text.splitlines() if line.startswith("labels"))
    (tmp_path / "labels.txt").write_text("\n".join(load_bundle("zoo:small-320").labels))
    (tmp_path / "m.toml").write_text(text.replace(labels, 'labels_file = "labels.txt"'))
    for path in load_bundle("zoo:small-320").files():
        shutil.copy(path, tmp_path)
    assert bundle_files(tmp_path / "m.toml")["labels.txt"][0] == "labels"


# --- In the evaluation -----------------------------------------------------------------------------------------------


def test_evaluation_hears_both_stages(tmp_path: Path) -> None:
    bundle = load_second(tmp_path, candidate_threshold="candidate_threshold = 0.05")
    scenes = list(frames_of(FrameSpec(prevalence=0.1, frames=3, seed=4), bundle))
    scorer = ModuleScorer(bundle)
    alone = ModuleScorer(replace(bundle, second=None))
    one, other = (s.scores(scenes[0].image, scenes[0].boxes) for s in (scorer, alone))
    assert one.shape == other.shape
    assert not np.allclose(one, other)
    judged = one.max(axis=1) > 0
    assert (one[judged].argmax(axis=1) == 3).all(), "the second net names class 3 only"
    figures = evaluate_frames(bundle, iter(scenes))
    assert figures["second_stage"]["examined"] > 0
    assert figures["stage_ms"].keys() == {*STAGES, SECOND}
    assert figures["threshold"] == 0.5
