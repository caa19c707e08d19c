"""The bookkeeping of `tests/bench/traffic_cascade.py`, on frames in which a pretended detector has looked."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from swarmd.worker.leaving import CROPS, FRAMES
from swarmd_models.synthetic.scenes import Scene
from swarmd_protocols.offload.cascade import Plan, Step
from swarmd_recipes.traffic_scenes import LABELS
from swarmd_recipes.traffic_scores import Found, calibration_of, claims, mean_ap
from tests.bench import traffic_cascade as bench
from tests.bench.traffic_frames import (
    DIGESTS,
    LARGER,
    LARGEST,
    SMALL,
    Judged,
    Table,
    accuracy,
    banded,
    learned,
    outcome,
    walked,
)
from tests.bench.traffic_record import recorded, rows_of

HAZE = (1.6, 0.7, 0.3)
"""Of each pretended detector's logits, small to largest."""


def frame(rng: np.random.Generator) -> Judged:
    """Some road users and some clutter apart from each other, and what three detectors make of them."""
    count = int(rng.integers(0, 5))
    corners = np.array([[20.0 + 70.0 * at, 30.0] for at in range(count)]).reshape(-1, 2)
    boxes = np.hstack([corners, corners + np.array([30.0, 20.0])]).astype(np.float32).reshape(-1, 4)
    labels = np.where(rng.random(count) < 0.5, rng.integers(0, len(LABELS), count), -1).astype(np.int64)
    said = []
    for haze in HAZE:
        found = []
        for box, label in zip(boxes.tolist(), labels.tolist(), strict=True):
            score = 1.0 / (1.0 + np.exp(-((2.0 if label >= 0 else -2.0) + haze * rng.normal())))
            if score > 0.05:
                x, y = rng.normal(0, haze, 2)
                kind = label if label >= 0 else int(rng.integers(len(LABELS)))
                found.append(Found((box[0] + x, box[1] + y, box[2] + x, box[3] + y), kind, float(score)))
        said.append(sorted(found, key=lambda one: -one.score))
    scene = Scene(np.zeros((256, 384), np.uint8), boxes, labels, np.full(count, -1, np.int64))
    return Judged(scene, (said[0], said[1], said[2]), (0, 600, 1000))


def frames(seed: int, count: int = 120) -> list[Judged]:
    """So many."""
    rng = np.random.default_rng(seed)
    return [frame(rng) for _ in range(count)]


LEARNT, TESTED = frames(1), frames(2)
MACS = (10.0, 80.0, 300.0)


@pytest.fixture(autouse=True)
def few_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds instead of minutes."""
    monkeypatch.setattr(bench, "GRID", bench.GRID[::3])
    monkeypatch.setattr(bench, "CROPS_GRID", bench.CROPS_GRID[::5])


def perfect(frame: Judged) -> list[Found]:
    """What is there, for sure."""
    rows = zip(frame.scene.boxes.tolist(), frame.scene.label_index.tolist(), strict=True)
    return [Found((box[0], box[1], box[2], box[3]), label, 0.9) for box, label in rows if label >= 0]


def test_who_is_right_about_everything_has_the_whole_area_and_swapped_labels_have_none() -> None:
    scenes = [one.scene for one in TESTED]
    said = [perfect(one) for one in TESTED]
    assert mean_ap(scenes, said)[0] == 1.0
    assert accuracy(TESTED, said) == 1.0
    swapped = [[Found(one.box, (one.kind + 1) % len(LABELS), one.score) for one in told] for told in said]
    assert mean_ap(scenes, swapped)[0] == 0.0
    one_class = [[Found(one.box, 4 if one.kind == 3 else one.kind, one.score) for one in told] for told in said]
    assert 0.5 < mean_ap(scenes, one_class)[0] < 1.0


def test_a_thing_is_claimed_once_by_the_surest_box_that_overlaps_it_by_half() -> None:
    scene = Scene(
        np.zeros((256, 384), np.uint8), np.array([[0, 0, 20, 10], [100, 0, 120, 10]], np.float32),
        np.array([0, -1]), np.array([-1, -1]),
    )  # fmt: skip
    sure, again, shifted = Found((0, 0, 20, 10), 0, 0.9), Found((1, 0, 21, 10), 0, 0.8), Found((11, 0, 31, 10), 0, 0.7)
    other, clutter = Found((0, 0, 20, 10), 1, 0.6), Found((100, 0, 120, 10), 0, 0.5)
    assert claims(scene, [sure, again, shifted, other, clutter]) == [0, -1, -1, -1, -1]
    assert claims(scene, [shifted, again]) == [-1, 0]


def test_calibration_takes_a_boast_back() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(-(0.5 * logits - 1.0)))
    scale, bias = calibration_of(zip((1 / (1 + np.exp(-logits))).tolist(), right.tolist(), strict=True))
    assert (round(scale, 1), round(bias, 1)) == (0.5, -1.0)


@pytest.mark.parametrize("judges", [(LARGER, LARGEST), (LARGEST,)])
def test_bands_tried_on_the_table_ask_and_say_what_the_daemons_walk_does(judges: tuple[int, ...]) -> None:
    plan = learned(LEARNT, judges)
    table = Table.of(TESTED, plan, judges)
    for doubts in ((0.05, 0.2), (0.1, 0.1), (0.3, 0.4)):
        found = outcome(table, doubts[: len(judges)])
        walk = bench.of_plan(banded(plan, doubts[: len(judges)]), TESTED)
        asked = dict(zip(judges, found.asked, strict=True))
        assert walk["asked"] == [asked.get(LARGER, 0), asked.get(LARGEST, 0)]
        assert walk["bytes_a_frame"] == pytest.approx(found.bytes / len(TESTED), abs=0.06)
        assert walk["mean_ap"] == pytest.approx(found.mean_ap, abs=2e-4)
        assert walk["accuracy"] == pytest.approx(found.accuracy, abs=2e-4)


def laws(found: dict[str, Any]) -> None:
    """What must be so of any report."""
    ours, oracle = found["cascade"], found["oracle"]
    assert oracle["accuracy"] >= max(found[row]["accuracy"] for row in ("cascade", "small", "larger", "largest"))
    assert oracle["bytes_a_frame"] <= ours["bytes_a_frame"], "who knows every answer asks no more"
    assert ours["bytes_of_hindsight"] >= 1.0, "the best bands are at least as good as any"
    assert ours["work_of_hindsight"] >= 1.0
    assert found["small"]["bytes_a_frame"] == 0.0
    assert found["largest"]["bytes_of_always"] == 1.0
    assert found["small"]["mean_ap"] < ours["mean_ap"]
    assert ours["mean_ap_of_largest"] > 0.95
    assert ours["bytes_of_always"] < 0.8


def test_the_report_keeps_its_laws() -> None:
    laws(bench.report(LEARNT, TESTED, MACS)[0])


def _asks_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench, "oracle", lambda frame, plan: (frame.said[LARGEST], (LARGER, LARGEST)))


def _hindsight_is_blind(patch: pytest.MonkeyPatch) -> None:
    """What is taken for the best bands on the very frames are the widest."""
    whole, own = bench.cheapest, iter([True, False, False] * 2)

    def blind(table: Table, wanted: Any, units: Any = (), grid: Any = ()) -> Any:
        return whole(table, wanted if next(own) else bench.Wanted(2.0, 2.0), units, grid)

    patch.setattr(bench, "cheapest", blind)


def _others_are_believed_upside_down(patch: pytest.MonkeyPatch) -> None:
    fitted = bench.learned

    def turned(frames: Any, judges: Any) -> Plan:
        plan = fitted(frames, judges)
        steps = tuple(Step(s.digest, s.low, s.high, s.keep, -s.weight, s.offset) for s in plan.steps)
        return Plan(plan.own, steps, plan.prior)

    patch.setattr(bench, "learned", turned)


@pytest.mark.parametrize("mutant", [_asks_everything, _hindsight_is_blind, _others_are_believed_upside_down])
def test_a_report_that_is_wrong_breaks_them(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        laws(bench.report(LEARNT, TESTED, MACS)[0])


def test_where_crops_leave_nobody_is_asked_about_a_frame_in_which_nothing_is_seen() -> None:
    crops = [replace(one, bytes=(0, 200, 300), leave=CROPS) for one in TESTED]
    plan = learned(LEARNT, (LARGEST,))
    unseen = [one for one in crops if not one.said[SMALL]]
    assert unseen
    assert all(walked(banded(plan, (0.0,)), one) == ([], ()) for one in unseen)
    assert walked(banded(plan, (0.0,)), replace(unseen[0], leave=FRAMES))[1] == (LARGEST,)
    learnt = [replace(one, bytes=(0, 200, 300), leave=CROPS) for one in LEARNT]
    found = bench.report_crops((LEARNT, TESTED), (learnt, crops), MACS)
    assert found["crops always"]["bytes_of_always"] == 0.3
    assert found["crops direct"]["bytes_of_always"] <= 0.3
    assert found["crops direct"]["bytes_of_hindsight"] >= 0.95
    assert found["crops direct"]["bytes_of_oracle"] > 1.0


def test_the_oracle_takes_the_cheapest_of_equal_answers() -> None:
    plan = learned(LEARNT, (LARGER, LARGEST))
    easy = [one for one in TESTED if len(one.scene.label_index) == 0]
    assert easy
    assert bench.oracle(easy[0], plan)[1] == ()
    assert walked(plan, easy[0])[0] == []
    assert DIGESTS[SMALL] == plan.own.digest if plan.own is not None else False


def test_the_record_has_a_row_a_thing_and_says_who_made_it() -> None:
    rows = [row for one in TESTED for row in rows_of(one)]
    assert len(rows) == sum(len(one.scene.label_index) for one in TESTED)
    right = [
        np.mean([(scores[size] >= 0.5) == there for _, there, scores in rows]) for size in (SMALL, LARGER, LARGEST)
    ]
    assert right == sorted(right)
    told = json.loads(recorded(LEARNT, TESTED, [at // 40 for at in range(len(TESTED))], []))
    assert sorted(told["seen"]) == ["0", "1", "2"]
    dense = [row for camera in sorted(told["seen"]) for row in told["seen"][camera]]
    assert [(kind, bool(there)) for kind, there, *_ in dense] == [(kind, there) for kind, there, _ in rows]
    assert all(0 <= score <= 10_000 for _, _, *scores in dense for score in scores)
