"""Pictures in forms, between two devices: whose pixels the own model sees, whoever is answered first."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from swarmd.worker import words
from swarmd.worker.http_server import Answer
from tests.support.offload_swarm import MS
from tests.unit.test_inference_api_laws import law
from tests.unit.test_picture_forms import ODD, Seer, body, infer, pair_of, score_of

FAR_MS = 60_000
"""A deadline that no machine is too slow for: what happens at it is brought about by the protocols' clock."""
_NEARLY_MS, _STEP_MS = 55_000, 10


class Own:
    """A pair whose lender is silent; the protocols' clock goes on when it is told to."""

    def __init__(self, has_lane: bool = False) -> None:
        self.own = Seer()
        self.pair = pair_of(self.own, Seer(), 10, own_unit_ns=200 * MS, has_lane=has_lane)
        self.pair.lender.worker._lend = lambda word: None  # type: ignore[method-assign]
        self.runs = 0
        lend = self.pair.borrower.worker._lend

        def told(word: words.Lend) -> None:
            self.runs += 1
            lend(word)

        self.pair.borrower.worker._lend = told  # type: ignore[method-assign]

    async def asked(self) -> asyncio.Task[Answer]:
        """A request that is under way."""
        number = len(self.said())
        task = asyncio.ensure_future(infer(self.pair, body(ODD, timeout=FAR_MS * 1_000)))
        while len(self.said()) == number:
            await asyncio.sleep(0.001)
        return task

    def said(self) -> list[Any]:
        return [word for word in self.pair.borrower.said if isinstance(word, words.Borrow)]

    async def until_runs(self, runs: int) -> None:
        """Time goes on until the own model was asked so often."""
        until_ns = self.pair.swarm.now_ns + FAR_MS * MS
        while self.runs < runs and self.pair.swarm.now_ns < until_ns:
            await asyncio.sleep(0)
            self.pair.now()
            self.pair.swarm.later(_STEP_MS)
            self.pair.pump()
        assert self.runs == runs

    async def answer(self, task: asyncio.Task[Answer]) -> Answer:
        while not task.done():
            await asyncio.sleep(0.001)
            self.pair.pump()
        return await task


@law
async def the_own_model_answers_with_the_programs_pixels() -> None:
    """At the last moment, where the lender that got a JPEG is silent; inline and over the lane."""
    for has_lane in (False, True):
        one = Own(has_lane)
        try:
            task = await one.asked()
            one.pair.swarm.later(_NEARLY_MS)
            await one.until_runs(1)
            answer = await one.answer(task)
        finally:
            one.pair.close()
        assert "Swarmd-Lender" not in dict(answer.headers)
        assert score_of(answer) == pytest.approx(200 / 255)
        assert len(one.own.saw) == 1
        assert np.array_equal(one.own.saw[0], ODD)
        assert not one.pair.borrower.borrowing._exact


@law
async def of_two_equal_requests_each_is_answered_with_the_programs_pixels() -> None:
    """Also the one that is answered second."""
    one = Own()
    try:
        first = await one.asked()
        await asyncio.sleep(10 * _STEP_MS / 1e3)  # Its deadline comes first.
        second = await one.asked()
        data = [word.data for word in one.said()]
        assert data[0] == data[1]
        one.pair.swarm.later(_NEARLY_MS)
        await one.until_runs(1)
        answers = [await one.answer(first)]
        assert not second.done()
        await one.until_runs(2)
        answers.append(await one.answer(second))
    finally:
        one.pair.close()
    assert ["Swarmd-Lender" in dict(answer.headers) for answer in answers] == [False, False]
    assert [score_of(answer) for answer in answers] == [pytest.approx(200 / 255)] * 2
    assert all(np.array_equal(saw, ODD) for saw in one.own.saw)
    assert not one.pair.borrower.borrowing._exact


LAWS: list[Callable[[], None]] = [
    the_own_model_answers_with_the_programs_pixels, of_two_equal_requests_each_is_answered_with_the_programs_pixels,
]  # fmt: skip


@pytest.mark.parametrize("one", LAWS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_law(one: Callable[[], None]) -> None:
    one()
