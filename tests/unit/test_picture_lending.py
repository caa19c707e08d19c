"""Pictures in forms, between two devices: whose pixels the own model sees, whoever is answered first."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from swarmd.worker import words
from swarmd.worker.forms import LENDERS_MAX, UNREAD_NS, Unread
from swarmd.worker.http_server import Answer
from swarmd.worker.lent import Left, is_worthless, pack_answer, pack_complaint, pack_left
from swarmd.worker.oip import OipError
from swarmd.worker.pictures import RAW
from tests.support.lending_pair import Pair
from tests.support.offload_swarm import DIGEST, MS, NODES
from tests.unit.test_inference_api_laws import law
from tests.unit.test_picture_forms import ODD, SMOOTH, Seer, body, infer, pair_of, score_of

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


Read = Callable[[Any, Any, Any, str, str], Any]


def reads(pair: Pair, change: Callable[[Read], Read]) -> None:
    """The lender reads requests in another way."""
    pair.lender.api.read = change(pair.lender.api.read)  # type: ignore[method-assign]


def older(read: Read) -> Read:
    """A version that knows no forms."""
    return lambda body, length, resident, lane, hushed: read(
        body, length, resident, lane, hushed or "it is coded in no way that is known here; 'br' is"
    )


def sour(text: str) -> Callable[[Read], Read]:
    def refuse(*about: Any) -> Any:
        raise OipError(400, text)

    return lambda read: refuse


def borrows(pair: Pair) -> list[words.Borrow]:
    return [word for word in pair.borrower.said if isinstance(word, words.Borrow)]


def lends(pair: Pair, *nodes: Any) -> None:
    """The brain says who lends."""
    elsewhere = pair.borrower.api.elsewhere
    assert elsewhere is not None
    elsewhere.lenders = {DIGEST.hex(): {node.hex(): 1 for node in nodes}}


async def judged(pair: Pair) -> Counter[str]:
    """What came of the check of each answer that was to be checked."""
    checks = pair.borrower.api.elsewhere._checks  # type: ignore[union-attr]
    while checks._open:
        await asyncio.sleep(0.001)
    return checks.counters


async def form_of(pair: Pair) -> str:
    """In which a picture was read; "": it was not."""
    try:
        return dict((await infer(pair, body(SMOOTH))).headers)["Swarmd-Form"]
    except OipError:
        return ""


@law
async def an_older_lender_is_right_and_pictures_travel_to_it_once() -> None:
    pair = pair_of(Seer(), Seer(), 0)
    lends(pair, NODES[1])
    reads(pair, older)
    try:
        forms = [await form_of(pair) for _ in range(4)]
        counters = await judged(pair)
    finally:
        pair.close()
    assert forms == [RAW] * 4
    assert len(borrows(pair)) == 5, "the first one twice"
    assert pair.borrower.api.counts()["forms_refused"] == 1
    assert counters["checks_right"] == 4
    assert not counters["checks_wrong"]


@law
async def who_complains_of_the_picture_as_it_is_too_is_wrong() -> None:
    pair = pair_of(Seer(), Seer(), 0)
    reads(pair, sour("input image is coded in no way that is known here"))
    try:
        with pytest.raises(OipError, match="coded"):
            await infer(pair, body(SMOOTH))
        counters = await judged(pair)
    finally:
        pair.close()
    assert len(borrows(pair)) == 2
    assert (counters["checks_wrong"], counters["checks_right"]) == (1, 0)


@law
async def a_complaint_about_something_else_is_the_programs_and_judged() -> None:
    pair = pair_of(Seer(), Seer(), 0)
    reads(pair, sour("3 bytes are left over"))
    try:
        with pytest.raises(OipError, match="left over"):
            await infer(pair, body(SMOOTH))
        counters = await judged(pair)
    finally:
        pair.close()
    assert len(borrows(pair)) == 1
    assert counters["checks_wrong"] == 1
    assert "forms_refused" not in pair.borrower.api.counts()


@law
async def a_form_goes_to_who_reads_it_and_where_nobody_answers_the_picture_to_all() -> None:
    lent = Seer()
    pair = pair_of(None, lent, 0)
    lends(pair, *NODES[1:3])
    pair.borrower.api.elsewhere._forms.unread.note(NODES[1].hex(), pair.swarm.now_ns)  # type: ignore[union-attr]
    try:
        answer = await infer(pair, body(SMOOTH))
    finally:
        pair.close()
    assert [word.but for word in borrows(pair)] == [[NODES[1].hex()], []]
    assert dict(answer.headers)["Swarmd-Form"] == RAW
    assert len(lent.saw) == 1


@law
async def a_complaint_costs_nothing() -> None:
    pair = pair_of(None, Seer(), 0, price_micro_s=10**6)
    sides = [pair.swarm.nodes[node] for node in NODES[:2]]

    def paid() -> list[int]:
        return [sides[0].counts()["borrow_price_micro"], sides[1].counts()["lent_price_micro"]]

    try:
        await infer(pair, body(SMOOTH))
        before = paid()
        assert before[0] == before[1] > 0
        left = sides[0]._borrower._purse._aside_ns
        reads(pair, sour("no"))
        with pytest.raises(OipError, match="no"):
            await infer(pair, body(SMOOTH))
    finally:
        pair.close()
    assert paid() == before
    assert sides[0]._borrower._purse._aside_ns == left == 0, "and nothing stays set aside for it"


def test_which_complaints_are_worth_nothing() -> None:
    said = {status: pack_complaint(DIGEST.hex(), OipError(status, "no")) for status in (400, 404, 413)}
    assert {status: is_worthless(data) for status, data in said.items()} == {400: True, 404: True, 413: False}
    assert not is_worthless(pack_answer([b'{"model_version": "' + DIGEST.hex().encode() + b'"}'], None))
    assert not is_worthless(pack_left(Left(None, 9, bytes(32))))


def test_who_reads_no_forms_is_remembered_for_minutes_and_not_without_bound() -> None:
    unread = Unread()
    for at in range(10 * LENDERS_MAX):
        unread.note(f"{at}", at)
    assert unread.nodes(0) == {f"{at}" for at in range(9 * LENDERS_MAX, 10 * LENDERS_MAX)}
    assert not unread.nodes(UNREAD_NS + 10 * LENDERS_MAX)


LAWS: list[Callable[[], None]] = [
    the_own_model_answers_with_the_programs_pixels, of_two_equal_requests_each_is_answered_with_the_programs_pixels,
    an_older_lender_is_right_and_pictures_travel_to_it_once, who_complains_of_the_picture_as_it_is_too_is_wrong,
    a_complaint_about_something_else_is_the_programs_and_judged, a_complaint_costs_nothing,
    a_form_goes_to_who_reads_it_and_where_nobody_answers_the_picture_to_all,
]  # fmt: skip


@pytest.mark.parametrize("one", LAWS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_law(one: Callable[[], None]) -> None:
    one()
