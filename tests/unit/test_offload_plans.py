"""Plans in the daemon: what a file of them may hold, how objects are fused, and that asking is never worse."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.worker import cascade
from swarmd.worker.cascade import OBJECTS_MAX, Asking, Cascading, PlanError, Scene, read_plans
from swarmd.worker.elsewhere import Errand, Found, Own
from swarmd.worker.lent import INFER
from swarmd.worker.oip import OipError, Question, Wanted, write_answer
from swarmd_models.bundle import load_bundle
from swarmd_models.service import DETECT, Tensors
from swarmd_protocols.offload.cascade import STEPS_MAX, Plan, Step
from tests.support.mutants import assert_found

OWN, LARGER, LARGEST = "aa" * 32, "bb" * 32, "cc" * 32
PLAN = f"""
[[plan]]
own = "{OWN}"
missing = 0.1
[[plan.step]]
model = "{LARGER}"
low = 0.2
high = 0.9
[[plan.step]]
model = "{LARGEST}"
low = 0.4
high = 0.6
"""


def plans(tmp_path: Path, text: str) -> dict[str, Asking]:
    path = tmp_path / "plans.toml"
    path.write_text(text)
    return read_plans(str(path))


def detections(*rows: tuple[int, float, str]) -> Tensors:
    """Objects by where they are, their score and label."""
    return {
        "boxes": np.array([[20 * at, 0, 20 * at + 10, 10] for at, _, _ in rows], np.float32).reshape(-1, 4),
        "scores": np.array([score for _, score, _ in rows], np.float32),
        "classes": np.zeros(len(rows), np.int32),
        "labels": np.array([label for _, _, label in rows], object),
    }


class World:
    """A walker whose own model and lenders say what they are told to."""

    def __init__(self, asking: Asking, own: Tensors | OipError, **lenders: Tensors | OipError | bytes) -> None:
        self.asked: list[Errand] = []
        self.own, self.lenders = own, {"bb" * 32: lenders.get("larger"), "cc" * 32: lenders.get("largest")}
        self.walker = Cascading({OWN: asking}, self._run, self._ask)

    async def _run(self, own: Own, priority: int, until_ns: int) -> Tensors:
        if isinstance(self.own, OipError):
            raise self.own
        return self.own

    async def _ask(self, errand: Errand) -> Found:
        self.asked.append(errand)
        said = self.lenders[errand.digest]
        if said is None or isinstance(said, OipError):
            raise said or OipError(503, "nobody")
        if isinstance(said, bytes):
            return Found(said, None, "n1")
        body, length = write_answer({"model_version": errand.digest}, said, [Wanted(name, True) for name in said])
        return Found(b"".join(body), length, "n1")

    def look(self) -> tuple[list[tuple[int, str, float]], list[str], list[str]]:
        bundle = SimpleNamespace(name="tiny", labels=("hot", "cold"))
        resident: Any = SimpleNamespace(digest=OWN, service=SimpleNamespace(bundle=bundle))
        question = Question("", {}, tuple(Wanted(name, False) for name in detections()), 0, 0)
        errand = Errand(OWN, INFER, DETECT, None, bytearray(b"x"), 1, 1_000)
        outputs, parts, lenders = asyncio.run(
            self.walker.look(Own(resident, DETECT, question, 1, False), errand, 1)
        )  # fmt: skip
        columns = zip(outputs["boxes"], outputs["labels"], outputs["scores"], strict=True)
        rows = [(int(box[0]) // 20, str(label), round(float(score), 3)) for box, label, score in columns]
        return sorted(rows), parts, lenders


ASKING = Asking(Plan(Step(bytes.fromhex(OWN)), (Step(bytes.fromhex(LARGER), 0.2, 0.9),)), 0.1, 0.5)


def test_what_is_sure_is_asked_of_nobody() -> None:
    world = World(ASKING, detections((0, 0.95, "hot"), (1, 0.97, "cold")), larger=detections())
    assert world.look() == ([(0, "hot", 0.95), (1, "cold", 0.97)], [OWN], [])
    assert world.asked == []
    assert world.walker.counters == {"cascade_sure": 1}


def test_what_is_in_doubt_is_decided_by_the_larger_and_the_rest_stays() -> None:
    own = detections((0, 0.95, "hot"), (1, 0.7, "hot"), (2, 0.7, "hot"), (3, 0.7, "cold"))
    larger = detections((1, 0.99, "hot"), (3, 0.99, "hot"), (4, 0.8, "hot"))
    world = World(ASKING, own, larger=larger)
    rows, parts, lenders = world.look()
    # 0 was sure; 1 is confirmed; 2 is not seen; of 3 the larger says another label; 4 only the larger sees.
    assert rows == [(0, "hot", 0.95), (1, "hot", 0.99), (3, "hot", 0.99), (4, "hot", 0.8)]
    assert (parts, lenders) == ([OWN, LARGER], ["n1"])
    (errand,) = world.asked
    assert (errand.digest, 1 <= errand.left_ms <= 900) == (LARGER, True), "a tenth of the time is left to answer in"


def test_a_picture_in_which_nothing_was_seen_is_one_object_with_the_score_missing() -> None:
    for missing, asks in ((0.1, 0), (0.3, 1)):
        asking = Asking(ASKING.plan, missing, 0.5)
        world = World(asking, detections(), larger=detections((1, 0.99, "hot")))
        assert world.look()[0] == ([(1, "hot", 0.99)] if asks else [])
        assert len(world.asked) == asks


def test_without_time_of_its_own_the_larger_alone_answers() -> None:
    world = World(ASKING, OipError(503, "full"), larger=detections((1, 0.99, "hot")))
    assert world.look() == ([(1, "hot", 0.99)], [LARGER], ["n1"])
    world = World(ASKING, OipError(503, "full"))
    with pytest.raises(OipError, match="neither this device nor another"):
        world.look()


BROKEN: list[bytes | OipError | Tensors] = [
    OipError(503, "nobody"), b"nothing of the kind", b'{"outputs": []}', {"boxes": np.zeros((2, 3), np.float32)},
    {**detections((0, 0.5, "hot")), "scores": np.full(1, np.nan, np.float32)},
    {**detections((0, 0.5, "hot")), "boxes": np.full((1, 4), np.inf, np.float32)},
    {**detections((0, 0.5, "hot")), "scores": np.ones(3, np.float32)},
    {**detections((0, 0.5, "hot")), "labels": np.zeros(1, np.int32)},
]  # fmt: skip


@pytest.mark.parametrize("said", BROKEN, ids=str)
def test_a_step_that_brings_nothing_usable_leaves_what_was_known(said: Any) -> None:
    world = World(ASKING, detections((1, 0.7, "hot")), larger=said)
    assert world.look() == ([(1, "hot", 0.7)], [OWN], [])
    assert +world.walker.counters == {"cascade_unheard": 1}


def test_each_step_is_asked_once_and_only_by_what_is_in_its_band(tmp_path: Path) -> None:
    asking = plans(tmp_path, PLAN)[OWN]
    own = detections((0, 0.5, "hot"), (1, 0.25, "hot"))
    for said, asked in ((0.5, [LARGER, LARGEST]), (0.95, [LARGER])):
        world = World(asking, own, larger=detections((0, said, "hot"), (1, 0.1, "hot")), largest=detections())
        world.look()
        assert [errand.digest for errand in world.asked] == asked


def test_what_one_step_has_settled_no_further_step_is_asked_about_where_nothing_is_seen() -> None:
    steps = (Step(bytes.fromhex(LARGER), 0.2, 0.9, keep=1.0), Step(bytes.fromhex(LARGEST), 0.2, 0.9))
    plan = Plan(Step(bytes.fromhex(OWN)), steps)
    for missing, own, asked in (
        (0.3, detections(), [LARGER]),  # 0.3 twice is 0.16.
        (0.48, detections(), [LARGER, LARGEST]),
        (0.1, OipError(503, "full"), [LARGER]),
        (0.3, OipError(503, "full"), [LARGER, LARGEST]),
    ):
        world = World(Asking(plan, missing, 0.5), own, larger=detections(), largest=detections())
        assert world.look()[0] == []
        assert [errand.digest for errand in world.asked] == asked


SCORE = st.floats(0.0, 1.0, allow_nan=False, width=32)
ROWS = st.lists(st.tuples(st.integers(0, 5), SCORE, st.sampled_from(["hot", "cold"])), max_size=6)


@given(own=ROWS, larger=ROWS, low=SCORE, high=SCORE, missing=SCORE, keep=SCORE, weight=SCORE)
@settings(max_examples=150, deadline=None)
def test_sure_objects_stay_and_everything_is_a_probability(
    own: Any, larger: Any, low: float, high: float, missing: float, keep: float, weight: float
) -> None:
    low, high = sorted((low, high))
    plan = Plan(Step(bytes.fromhex(OWN)), (Step(bytes.fromhex(LARGER), low, high, keep, weight),))
    scene = Scene(Asking(plan, missing, 0.0))
    scene.begin(OWN, detections(*own))
    before = [(one.box.tolist(), one.label, one.walk.confidence) for one in scene.objects]
    digest = scene.wanted(1 << 40)
    doubt = [low <= known <= high for _, _, known in before]
    assert (digest is not None) == (any(doubt) or (not own and scene.empty is not None and digest is not None))
    if digest is not None:
        scene.join(digest, detections(*larger))
    assert scene.wanted(1 << 40) is None, "a step is asked once"
    for (box, label, known), is_doubted, now in zip(before, doubt, scene.objects, strict=False):
        assert is_doubted or (now.box.tolist(), now.label, now.walk.confidence) == (box, label, known)
    out = scene.outputs(("hot",))
    assert ((out["scores"] >= 0) & (out["scores"] <= 1)).all()
    assert list(out["scores"]) == sorted(out["scores"], reverse=True)
    assert len({len(array) for array in out.values()}) == 1
    assert len(scene.objects) <= len(own) + len(larger)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "plan"),
        ("[[plan]", "plans.toml"),
        (f'[[plan]]\nown = "{OWN}"\nstep = []\n', "1 to 4"),
        (PLAN.replace("low = 0.2", "low = 0.95"), "low <= high"),
        (PLAN.replace("low = 0.2", "low = nan"), "low <= high"),
        (PLAN.replace("low = 0.2", "lowest = 0.2"), "lowest"),
        (PLAN.replace("missing = 0.1", "missing = 2.0"), "missing"),
        (PLAN.replace(LARGEST, LARGER), "bundle of its own"),
        (PLAN.replace(LARGER, "zoo:nothing"), "nothing"),
        (PLAN + PLAN, "same bundle"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(PlanError, match=r"lending\.plan .*plans\.toml") as caught:
        plans(tmp_path, text)
    assert why in str(caught.value)


def test_a_bundle_may_be_named_as_the_eye_names_it(tmp_path: Path) -> None:
    text = PLAN.replace(OWN, "zoo:tiny-224").replace(LARGER, "zoo:small-320")
    (own,) = found = plans(tmp_path, text)
    assert own == load_bundle("zoo:tiny-224").digest
    assert found[own].plan.steps[0].digest.hex() == load_bundle("zoo:small-320").digest


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _garbage_is_fused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cascade, "_judged", lambda outputs: outputs)


def _any_two_boxes_are_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cascade, "_SAME_IOU", 0.0)


def _no_time_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cascade, "_RESERVE", 0.0)


def _one_nan() -> None:
    test_a_step_that_brings_nothing_usable_leaves_what_was_known(BROKEN[4])


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_garbage_is_fused, _one_nan),
        (_any_two_boxes_are_one, test_what_is_in_doubt_is_decided_by_the_larger_and_the_rest_stays),
        (_no_time_is_kept, test_what_is_in_doubt_is_decided_by_the_larger_and_the_rest_stays),
    ],
)
def test_mutants(fault: Any, law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(fault, law, monkeypatch)


def test_lenders_that_name_all_they_may_are_held_against_what_is_known_in_one_step_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = [bytes([1 + at]) * 32 for at in range(STEPS_MAX)]
    scene = Scene(Asking(Plan(Step(bytes(32)), tuple(Step(one) for one in digests)), 0.1, 0.0))
    scene.begin(OWN, detections((0, 0.5, "crack")))
    steps, ious = 0, cascade._ious

    def counted(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
        nonlocal steps
        steps += 1
        return ious(boxes, box)

    monkeypatch.setattr(cascade, "_ious", counted)
    for lender, digest in enumerate(digests):
        rows = range(1 + lender * OBJECTS_MAX, 1 + (lender + 1) * OBJECTS_MAX)
        scene.join(digest, detections(*((at, 0.5, "crack") for at in rows)))
    assert len(scene.objects) == 1 + STEPS_MAX * OBJECTS_MAX
    assert steps == STEPS_MAX * OBJECTS_MAX
