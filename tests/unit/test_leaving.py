"""What may leave a device: levels, redacted pictures, and that the door is where everything passes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from swarmd.worker.batcher import Batcher, BatcherConfig
from swarmd.worker.cascade import Cascading
from swarmd.worker.elsewhere import Elsewhere, Errand, Found, Own
from swarmd.worker.http_server import Call
from swarmd.worker.leaving import CROPS, FEATURES, FRAMES, LEVELS, NEVER, judge, redacted
from swarmd.worker.lent import INFER, METADATA
from swarmd.worker.oip import OipError, Question, Wanted, read_question
from swarmd.worker.residency import Residency
from swarmd_models.service import _IMAGE, _SEEN, DETECT
from swarmd_protocols.offload import messages
from tests.support.lending_pair import Free, Pair
from tests.support.mutants import assert_found
from tests.support.offload_swarm import DIGEST
from tests.unit.test_offload_plans import ASKING, LARGER, OWN, detections


def test_each_level_lets_out_what_those_before_it_do() -> None:
    for at, allowed in enumerate(LEVELS):
        for what_at, what in enumerate(LEVELS):
            if what_at <= at:
                judge(what, allowed)
                continue
            with pytest.raises(OipError, match=f"let {what} leave") as found:
                judge(what, allowed)
            assert found.value.status == 403


def test_nothing_passes_the_door_that_may_not() -> None:
    sent: list[str] = []

    async def ask(digest: str, *_: object) -> Any:
        sent.append(digest)
        raise OipError(503, "nobody")

    borrowing: Any = SimpleNamespace(ask=ask, judge=lambda *_: None, counters={})

    async def passes(allowed: str, what: int, lets_out: str) -> bool:
        door = Elsewhere(borrowing, None, Batcher(BatcherConfig()), Residency(lambda _: None), ask, leave=allowed)
        sent.clear()
        with pytest.raises(OipError):
            await door.ask(Errand("ab", what, DETECT, None, b"x", 1, 100, lets_out=lets_out))
        return bool(sent)

    async def run() -> None:
        for at, allowed in enumerate(LEVELS):
            for lets_out in (FEATURES, CROPS, FRAMES):
                assert await passes(allowed, INFER, lets_out) == (LEVELS.index(lets_out) <= at), (allowed, lets_out)
            assert await passes(allowed, METADATA, FRAMES), "a question about a model holds nothing of this device"
        assert not await passes(NEVER, INFER, FEATURES)

    asyncio.run(run())


@pytest.mark.parametrize("size_bytes", [1_000, 100_000, 1_000_000])
def test_what_is_sent_along_with_a_question_about_a_model_stays(size_bytes: int) -> None:
    """Through the brains, on the lane, and where it is so large that it would leave as an inference."""

    async def run() -> None:
        lent = Free()
        lent.text = None  # type: ignore[attr-defined]
        one = Pair(None, lent, has_lane=True)
        try:
            one.borrower.api._leave = one.borrower.api.elsewhere.leave = NEVER  # type: ignore[union-attr]
            path, headers = f"/v2/models/m/versions/{DIGEST.hex()}", {"swarmd-borrow": "yes"}
            secret = b"secret" * (size_bytes // 6)
            async with asyncio.timeout(20):
                await one.borrower.api.handle(Call("GET", path, headers, bytearray(secret)))
            sent = [message for _, _, message in one.swarm.said if isinstance(message, messages.Request)]
            assert [(b"secret" in message.data, message.lane_bytes) for message in sent] == [(False, 0)]
        finally:
            one.close()

    asyncio.run(run())


def test_of_a_redacted_picture_nothing_is_left_but_its_boxes() -> None:
    image = np.random.default_rng(2).integers(0, 255, (60, 80, 1), np.uint8)
    found = redacted(image, np.array([[20.0, 10.0, 40.0, 30.0], [70.0, 50.0, 90.0, 70.0]]))
    kept = np.zeros((60, 80), bool)
    kept[2:38, 12:48] = True  # Eight pixels around, the least.
    kept[42:60, 62:80] = True
    np.testing.assert_array_equal(found[kept], image[kept])
    assert len(np.unique(found[~kept])) == 1
    assert len(np.unique(redacted(image, np.zeros((0, 4))))) == 1


def looked(allowed: str, own: Any) -> list[Errand]:
    """What left for a picture with one object in doubt."""
    left: list[Errand] = []

    async def run(one: Own, priority: int, until_ns: int) -> Any:
        return own

    async def ask(errand: Errand) -> Found:
        judge(errand.lets_out, allowed)
        left.append(errand)
        raise OipError(503, "nobody")

    image = np.random.default_rng(3).integers(0, 255, (64, 96, 1), np.uint8)
    resident: Any = SimpleNamespace(
        digest=OWN, service=SimpleNamespace(bundle=SimpleNamespace(name="t", labels=("hot",)))
    )
    question = Question("", {"image": image}, tuple(Wanted(name, False) for name in detections()), 0, 0)
    walker = Cascading({OWN: ASKING}, run, ask, allowed)
    whole = Errand(OWN, INFER, DETECT, None, bytearray(b"x"), 1, 1_000)
    asyncio.run(walker.look(Own(resident, DETECT, question, 1, False), whole, 1))
    return left


def test_a_doubtful_object_leaves_without_its_picture() -> None:
    (errand,) = looked(CROPS, detections((1, 0.7, "hot")))
    assert (errand.digest, errand.lets_out) == (LARGER, CROPS)
    sent = read_question(errand.body, errand.json_bytes, (_IMAGE,), _SEEN).inputs["image"]
    assert sent.shape == (64, 96, 1)
    _, counts = np.unique(sent, return_counts=True)
    assert counts.max() > sent.size * 0.7, "all but the box and what is around it is one grey"
    (errand,) = looked(FRAMES, detections((1, 0.7, "hot")))
    assert errand.body == b"x"
    assert looked(FEATURES, detections((1, 0.7, "hot"))) == []


def _whole_pictures_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd.worker.cascade.redacted", lambda image, boxes: image)


def _the_door_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd.worker.elsewhere.judge_leaving", lambda what, allowed: None)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_whole_pictures_leave, test_a_doubtful_object_leaves_without_its_picture),
        (_the_door_is_open, test_nothing_passes_the_door_that_may_not),
    ],
)
def test_mutants(fault: Any, law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(fault, law, monkeypatch)
