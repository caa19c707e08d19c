"""Decoders against heads written by hand, in float and in 8 bits."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from swarmd_models.bundle import Calibration
from swarmd_models.decoders import Candidates, make_decoder
from swarmd_models.decoders.anchor_free import cell_grid
from swarmd_models.decoders.base import MAX_CANDIDATES, check_finite
from swarmd_models.detector import Detector
from swarmd_models.errors import ArtefactError, BackendError, OutputError
from swarmd_models.nms import suppress
from tests.support.bundles import head_bundle, spec

CELLS = 4 * 4 + 2 * 2 + 1


def _anchor_free(cls: np.ndarray, dist: np.ndarray, scale: float = 0.0, **decode: object) -> Candidates:
    kind = str(cls.dtype)
    specs = [
        spec("cls", (1, CELLS, 3), kind, scale, -28),
        spec("dist", (1, CELLS, 4), kind, scale, -128 if scale else 0),
    ]
    decoder = make_decoder(head_bundle(3, **decode), specs, 32, 32)
    return decoder.decode([cls, dist])


def test_a_cell_says_where_its_box_lies() -> None:
    cls, dist = np.full((CELLS, 3), -9.0, np.float32), np.zeros((CELLS, 4), np.float32)
    cls[16 + 3, 2] = 2.0  # Second stride (16 px), lower right cell, centre (24, 24).
    dist[16 + 3] = (1.0, 0.5, 0.25, 0.125)
    found = _anchor_free(cls, dist)
    assert found.classes.tolist() == [2]
    assert found.scores[0] == pytest.approx(1 / (1 + np.exp(-2.0)))
    assert found.xywh[0].tolist() == [24 - 16, 24 - 8, 16 * 1.25, 16 * 0.625]


def test_eight_bits_give_what_floats_give() -> None:
    rng = np.random.default_rng(3)
    cls = rng.integers(-128, 128, (CELLS, 3)).astype(np.int8)
    dist = rng.integers(-128, 128, (CELLS, 4)).astype(np.int8)
    ours = _anchor_free(cls, dist, 0.05, score_threshold=0.6)
    real = _anchor_free(
        (cls.astype(np.float32) + 28) * 0.05, (dist.astype(np.float32) + 128) * 0.05, score_threshold=0.6
    )
    order, real_order = np.lexsort((ours.classes, ours.scores)), np.lexsort((real.classes, real.scores))
    assert len(ours.scores) > 5
    np.testing.assert_allclose(ours.xywh[order], real.xywh[real_order], atol=1e-3)
    np.testing.assert_allclose(ours.scores[order], real.scores[real_order], atol=1e-5)


def test_a_threshold_that_no_raw_value_reaches_gives_nothing() -> None:
    cls, dist = np.full((CELLS, 3), 127, np.int8), np.zeros((CELLS, 4), np.int8)
    assert len(_anchor_free(cls, dist, 0.01, score_threshold=0.99).scores) == 0


def test_classes_may_have_thresholds_and_calibrations_of_their_own() -> None:
    cls, dist = np.full((CELLS, 3), 0.0, np.float32), np.ones((CELLS, 4), np.float32)
    found = _anchor_free(cls, dist, score_threshold=0.9, class_thresholds={"class1": 0.4})
    assert set(found.classes.tolist()) == {1}
    from dataclasses import replace

    bundle = replace(head_bundle(3, score_threshold=0.9), calibration=Calibration((1.0, 1.0, 2.0), (0.0, 0.0, 3.0)))
    specs = [spec("cls", (1, CELLS, 3)), spec("dist", (1, CELLS, 4))]
    found = make_decoder(bundle, specs, 32, 32).decode([cls, dist])
    assert set(found.classes.tolist()) == {2}
    assert found.scores[0] == pytest.approx(1 / (1 + np.exp(-3.0)))


def test_outputs_are_told_apart_by_their_last_axis_whatever_their_order() -> None:
    specs = [spec("a", (1, CELLS, 4)), spec("b", (1, CELLS, 3))]
    decoder = make_decoder(head_bundle(3), specs, 32, 32)
    cls, dist = np.full((CELLS, 3), 3.0, np.float32), np.ones((CELLS, 4), np.float32)
    assert len(decoder.decode([dist, cls]).scores) == CELLS * 3


def test_nan_is_an_error_of_the_runtime() -> None:
    cls, dist = np.zeros((CELLS, 3), np.float32), np.zeros((CELLS, 4), np.float32)
    cls[3, 1] = np.nan
    with pytest.raises(BackendError, match="NaN or infinity in cls"):
        _anchor_free(cls, dist)
    dist[:] = np.inf
    with pytest.raises(BackendError, match="in dist"):
        _anchor_free(np.full((CELLS, 3), 5.0, np.float32), dist)


def test_a_model_gone_mad_gives_a_bounded_number_of_candidates() -> None:
    cells = 80 * 80
    specs = [spec("cls", (1, cells, 3)), spec("dist", (1, cells, 4))]
    decoder = make_decoder(head_bundle(3, strides=(8,)), specs, 640, 640)
    found = decoder.decode([np.full((cells, 3), 9.0, np.float32), np.ones((cells, 4), np.float32)])
    assert len(found.scores) == MAX_CANDIDATES


def test_cells_of_a_size_that_no_stride_divides_are_rounded_up() -> None:
    centres, strides = cell_grid(20, 12, (8,))
    assert centres.tolist() == [[4, 4], [12, 4], [20, 4], [4, 12], [12, 12], [20, 12]]
    assert strides.tolist() == [8] * 6


def _ssd_views() -> list[np.ndarray]:
    boxes = np.array([[0.1, 0.2, 0.5, 0.6], [0.5, 0.5, 0.4, 0.9], [-1, -1, 2, 2], [0, 0, 1, 1]], np.float32)
    return [
        boxes,
        np.array([1, 0, 7, 0], np.float32),
        np.array([0.9, 0.8, 0.7, 0.2], np.float32),
        np.array([4.0], np.float32),
    ]


def test_ssd_boxes_are_put_in_order_clipped_and_filtered() -> None:
    names = ("TFLite_Detection_PostProcess", "TFLite_Detection_PostProcess:1", "TFLite_Detection_PostProcess:2")
    specs = [
        spec(names[0], (1, 4, 4)), spec(names[1], (1, 4)), spec(names[2], (1, 4)), spec(names[0] + ":3", (1,))
    ]  # fmt: skip
    decoder = make_decoder(head_bundle(3, "ssd", score_threshold=0.5), specs, 100, 200)
    found = decoder.decode(_ssd_views())
    # The second is inside out, the last below the threshold; class 7 has no label and keeps its number.
    assert found.classes.tolist() == [1, 7]
    np.testing.assert_allclose(found.xywh, [[20, 20, 40, 80], [0, 0, 100, 200]], atol=1e-4)
    assert found.is_final
    views = _ssd_views()
    views[3][0] = 1e9
    assert len(decoder.decode(views).scores) == 2
    views[2][0] = np.nan
    with pytest.raises(BackendError, match="in scores"):
        decoder.decode(views)


@pytest.mark.parametrize("kind", ["v8", "v8-rows", "v8-fraction", "v5"])
def test_yolo_boxes(kind: str) -> None:
    boxes, classes = 84 * (3 if kind == "v5" else 1), 3
    width = 4 + classes + (kind == "v5")
    rows = np.zeros((boxes, width), np.float32)
    rows[:, 0] = np.linspace(0, 64, boxes)
    rows[5, :4] = (32, 16, 10, 20)
    if kind == "v5":
        rows[5, 4:] = (0.8, 0.1, 0.9, 0.0)
    else:
        rows[5, 4:] = (0.1, 0.72, 0.0)
    if kind == "v8-fraction":
        rows[:, :4] /= 64
    view = rows.T if kind in ("v8", "v8-fraction") else rows
    decoder = make_decoder(head_bundle(classes, "yolo"), [spec("o", (1, *view.shape))], 64, 64)
    found = decoder.decode([view])
    assert found.classes.tolist() == [1]
    assert found.scores[0] == pytest.approx(0.72)
    np.testing.assert_allclose(found.xywh[0], [27, 6, 10, 20], atol=1e-4)


def test_yolo_in_eight_bits() -> None:
    rows = np.full((84, 7), -128, np.int8)
    rows[:, 0] = np.linspace(-128, 127, 84).astype(np.int8)
    rows[5] = (0, 0, -100, -100, -128, 100, -128)
    decoder = make_decoder(head_bundle(3, "yolo"), [spec("o", (1, 84, 7), "int8", 1 / 255, -128)], 64, 64)
    found = decoder.decode([rows])
    assert found.classes.tolist() == [1]
    assert found.scores[0] == pytest.approx(228 / 255, abs=1e-3)


@pytest.mark.parametrize(
    ("values", "kind", "scale", "zero", "score"),
    [
        (np.array([10, 246, 0], np.uint8), "uint8", 1 / 256, 0, 246 / 256),
        (np.array([-100, 118, -128], np.int8), "int8", 1 / 256, -128, 246 / 256),
        (np.array([0.1, 0.7, 0.2], np.float32), "float32", 0.0, 0, 0.7),
        (np.array([0.0, 3.0, 0.0], np.float32), "float32", 0.0, 0, np.exp(3) / (np.exp(3) + 2)),
        (np.array([58, 88, 58], np.uint8), "uint8", 0.1, 58, np.exp(3) / (np.exp(3) + 2)),
    ],
)
def test_classifier_scores(values: np.ndarray, kind: str, scale: float, zero: int, score: float) -> None:
    decoder = make_decoder(head_bundle(3, "classifier"), [spec("o", (1, 3), kind, scale, zero)], 224, 224)
    found = decoder.decode([values])
    assert found.classes.tolist() == [1]
    assert found.scores[0] == pytest.approx(score, abs=1e-4)
    assert found.covers_frame


def test_a_classifier_that_is_unsure_says_nothing() -> None:
    decoder = make_decoder(head_bundle(3, "classifier", score_threshold=0.9), [spec("o", (1, 3))], 1, 1)
    assert len(decoder.decode([np.zeros(3, np.float32)]).scores) == 0


def test_wrong_heads_are_refused() -> None:
    with pytest.raises(ArtefactError, match="two outputs"):
        make_decoder(head_bundle(3), [spec("x", (1, CELLS, 3))], 32, 32)
    with pytest.raises(ArtefactError, match="no boxes, classes, scores and count"):
        make_decoder(head_bundle(3, "ssd"), [spec(str(i), (1, 4)) for i in range(4)], 32, 32)
    with pytest.raises(ArtefactError, match="check the labels"):
        make_decoder(head_bundle(3, "yolo"), [spec("o", (1, 9, 84))], 32, 32)


def _boxes(*rows: tuple[float, float, float, float, float, int]) -> Candidates:
    values = np.asarray(rows, np.float32)
    return Candidates(values[:, :4], values[:, 4], values[:, 5].astype(np.intp))


def test_of_boxes_that_overlap_the_best_stays() -> None:
    boxes = _boxes((0, 0, 10, 10, 0.6, 0), (1, 1, 10, 10, 0.9, 0), (50, 50, 10, 10, 0.5, 0), (1, 1, 10, 10, 0.8, 1))
    assert suppress(boxes, 0.5, 10, class_agnostic=False) == [1, 3, 2]
    assert suppress(boxes, 0.5, 10, class_agnostic=True) == [1, 2]
    assert suppress(boxes, 0.5, 1, class_agnostic=False) == [1]


def test_finite_numbers_that_make_no_box_are_an_error_of_the_model() -> None:
    """A distance of 5e37 strides of 8: the box is infinite, and half of it is NaN once it is cut to the frame."""
    cls, dist = np.full((CELLS, 3), -9.0, np.float32), np.zeros((CELLS, 4), np.float32)
    cls[3, 1], dist[3] = 4.0, 5e37
    view = np.zeros((32, 32, 3), np.float32)
    backend = SimpleNamespace(
        inputs=(spec("image", (1, 32, 32, 3)),),
        outputs=(spec("cls", (1, CELLS, 3)), spec("dist", (1, CELLS, 4))),
        input_view=lambda: view,
        infer=lambda: None,
        output_views=lambda: [cls, dist],
    )
    detector = Detector(head_bundle(3), cast("Any", backend))
    image = np.zeros((32, 32, 3), np.uint8)
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(OutputError, match="the boxes"):
        detector.detect(image)
    dist[3] = 1.0
    assert len(detector.detect(image)) == 1


def test_half_precision_is_no_infinity() -> None:
    """The sum of a healthy output in pixels passes what a half can hold."""
    check_finite(np.full((84, 8_400), 300.0, np.float16), "the output")
    with pytest.raises(OutputError):
        check_finite(np.array([1.0, np.inf], np.float16), "the output")
