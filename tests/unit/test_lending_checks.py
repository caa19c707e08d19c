"""A lender that lies in proper form is found out by the own model, and the own model answers where nobody else does."""

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.worker import checks, elsewhere
from swarmd.worker.api import InferenceApi
from swarmd.worker.checks import OPEN_MAX, SpotChecks, agrees
from swarmd.worker.http_server import Call
from swarmd.worker.lent import complaint_of, is_answer, is_body, open_answer, pack_answer, pack_complaint
from swarmd.worker.oip import MAX_JSON_BYTES, OUTPUTS_MAX, OipError, Wanted, read_answer, write_answer
from swarmd_models.service import DETECT, GRAPH
from swarmd_protocols.offload.dispatcher import Dispatcher
from tests.support.lending_pair import Free, Pair
from tests.support.mutants import assert_found
from tests.support.offload_swarm import DIGEST
from tests.unit.test_inference_api_laws import law


def half(label: str) -> float:
    return 0.5


# --- what agrees ----------------------------------------------------------------------------------------------------


def seen(*rows: tuple[float, float, str]) -> dict[str, np.ndarray]:
    """Detections by x, score and label; each box has sides of 20."""
    return {
        "boxes": np.array([[x, 10, x + 20, 30] for x, _, _ in rows], np.float32).reshape(-1, 4),
        "scores": np.array([score for _, score, _ in rows], np.float32),
        "classes": np.array([len(label) for _, _, label in rows], np.int32),
        "labels": np.array([label for _, _, label in rows], object),
    }


FOUND = seen((0, 0.9, "hot"), (40, 0.8, "string"), (80, 0.7, "hot"), (120, 0.55, "hot"))


@pytest.mark.parametrize(
    "theirs",
    [
        FOUND,
        seen((80, 0.7, "hot"), (0, 0.95, "hot"), (41, 0.75, "string"), (120, 0.52, "hot")),
        seen((0, 0.9, "hot"), (40, 0.8, "string"), (80, 0.7, "hot")),
        {name: FOUND[name] for name in ("scores", "labels")},
    ],
)
def test_what_differs_as_two_runtimes_do_agrees(theirs: dict[str, np.ndarray]) -> None:
    assert agrees(DETECT, FOUND, theirs, half)


LIES = {
    "nothing": seen(),
    "no such outputs": {},
    "one is missing that is sure": seen((40, 0.8, "string"), (80, 0.7, "hot"), (120, 0.55, "hot")),
    "one too many that is sure": seen(*((x, 0.9, "hot") for x in (0, 40, 80, 120, 160))),
    "everything is faulty": seen(*((x, 0.99, "hot") for x in range(0, 2000, 20))),
    "another label": seen((0, 0.9, "cold"), (40, 0.8, "string"), (80, 0.7, "hot"), (120, 0.55, "hot")),
    "elsewhere": seen((15, 0.9, "hot"), (55, 0.8, "string"), (95, 0.7, "hot"), (135, 0.55, "hot")),
    "other scores": seen((0, 0.6, "hot"), (40, 0.5, "string"), (80, 0.5, "hot"), (120, 0.5, "hot")),
    "NaN": {**FOUND, "scores": np.full(4, np.nan, np.float32)},
    "boxes of three": {**FOUND, "boxes": np.zeros((4, 3), np.float32)},
    "different counts": {**FOUND, "scores": FOUND["scores"][:3]},
    "another type": {**FOUND, "scores": FOUND["scores"].astype(np.float64)},
    "another output": {**FOUND, "extra": FOUND["scores"]},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_does_not_agree(lie: dict[str, np.ndarray]) -> None:
    assert not agrees(DETECT, FOUND, lie, half)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.integers(0, 39), st.floats(0.2, 10.0))
def test_a_tensor_agrees_with_itself_and_not_with_one_number_far_off(
    numbers: list[float], index: int, share: float
) -> None:
    own = np.array(numbers, np.float32)
    assert agrees(GRAPH, {"x": own}, {"x": own.copy()}, half)
    lie = own.copy()
    lie[index % len(lie)] += share * max(np.ptp(own), 0.1 * np.abs(own).max(), 1.0)
    assert not agrees(GRAPH, {"x": own}, {"x": lie}, half)
    lie[index % len(lie)] = np.nan
    assert not agrees(GRAPH, {"x": own}, {"x": lie}, half)
    assert not agrees(GRAPH, {"x": own}, {"x": own[None]}, half)
    assert not agrees(GRAPH, {"x": own}, {"x": np.append(own, own)}, half)


def test_a_quantised_tensor_may_round_differently() -> None:
    own = np.array([1, 1, 2], np.int8)
    assert agrees(GRAPH, {"x": own}, {"x": own + np.int8(3)}, half)
    assert not agrees(GRAPH, {"x": own}, {"x": own + np.int8(4)}, half)


# --- how an answer is read that comes from anywhere ------------------------------------------------------------------


@pytest.mark.parametrize("is_binary", [True, False])
def test_an_answer_reads_back(is_binary: bool) -> None:
    wanted = [Wanted(name, is_binary) for name in FOUND]
    pieces, json_bytes = write_answer({"model_version": DIGEST.hex()}, FOUND, wanted)
    back = read_answer(b"".join(pieces), json_bytes)
    assert agrees(DETECT, FOUND, back, half)
    assert {name: array.dtype for name, array in back.items()} == {name: one.dtype for name, one in FOUND.items()}


@given(st.integers(0, 400), st.integers(0, 255), st.booleans())
def test_no_answer_raises_anything_else(at: int, value: int, is_binary: bool) -> None:
    pieces, json_bytes = write_answer({}, FOUND, [Wanted(name, is_binary) for name in FOUND])
    body = bytearray(b"".join(pieces))
    body[at % len(body)] = value
    try:
        theirs = read_answer(bytes(body), json_bytes)
    except OipError:
        return
    agrees(DETECT, FOUND, theirs, half)


MIB = 1 << 20
HEAD = b'{"model_version":"%b","outputs":[' % DIGEST.hex().encode()
ROW = b'{"name":"x","shape":[1],"datatype":"FP32",'
BOMBS = {
    "outputs": HEAD + b"{}," * (MIB // 3) + b"{}]}",
    "parameters": HEAD + ROW + b'"parameters":{"a":[' + b"[]," * (MIB // 3) + b"[]]}}]}",
    "data": HEAD + ROW + b'"data":[' + b"[]," * (MIB // 3) + b"[]]}]}",
    "shape": HEAD
    + b'{"name":"x","shape":['
    + b"2147483647," * (MIB // 11)
    + b'1],"datatype":"FP32","parameters":{"coding":"br","binary_data_size":0}}]}',
}
"""Answers of a lender that make much of little, where all of it is read."""


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_no_answer_makes_more_than_a_few_times_its_bytes(bomb: bytes) -> None:
    """Lists in lists take a hundred times what they are, and sides by the thousand minutes to be multiplied."""
    tracemalloc.start()
    try:
        for json_bytes in (None, len(bomb)):
            is_body(DIGEST, bomb, json_bytes)
            with contextlib.suppress(OipError):
                read_answer(bomb, json_bytes)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_an_answer_of_more_json_than_is_read_is_refused_unread() -> None:
    text = b'{"outputs":[]}'
    assert read_answer(text.ljust(MAX_JSON_BYTES), None) == {}
    with pytest.raises(OipError, match="are read"):
        read_answer(text.ljust(MAX_JSON_BYTES + 1), None)


def test_an_answer_has_as_many_outputs_as_a_model_may() -> None:
    array = np.arange(2, dtype=np.float32)
    outputs = {f"x{number}": array for number in range(OUTPUTS_MAX + 1)}
    for count, holds in ((OUTPUTS_MAX, True), (OUTPUTS_MAX + 1, False)):
        wanted = [Wanted(name, True) for name in list(outputs)[:count]]
        pieces, json_bytes = write_answer({"model_version": DIGEST.hex()}, outputs, wanted)
        assert is_body(DIGEST, b"".join(pieces), json_bytes) is holds
        if holds:
            assert len(read_answer(b"".join(pieces), json_bytes)) == count


def test_a_complaint_travels_as_an_answer_of_its_bundle() -> None:
    packed = pack_complaint(DIGEST.hex(), OipError(400, "input x has shape [3]; [2] is wanted" + "!" * 10_000))
    assert is_answer(DIGEST, packed)
    error = complaint_of(*open_answer(packed))
    assert error is not None
    assert (error.status, str(error)[:20], len(str(error))) == (400, "input x has shape [3", 500)
    for other in ({"error": "x", "status": 503}, {"error": "", "status": 400}, {"outputs": []}, [1], {"error": 1}):
        assert complaint_of(*open_answer(pack_answer([json.dumps(other).encode()], None))) is None


# --- two devices ----------------------------------------------------------------------------------------------------


async def ask(pair: Pair, item: float = 1.0, borrow: str = "quickest") -> tuple[Any, str]:
    """What came out, or a status; and who answered."""
    body = {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [item]}],
        "parameters": {"timeout": 60_000_000},
    }
    path = f"/v2/models/m/versions/{DIGEST.hex()}/infer"
    call = Call("POST", path, {"swarmd-borrow": borrow}, bytearray(json.dumps(body).encode()))
    try:
        answer = await pair.borrower.api.handle(call)
    except OipError as error:
        return error, ""
    return json.loads(b"".join(answer.pieces))["outputs"][0]["data"][0], dict(answer.headers).get("Swarmd-Lender", "")


async def checked(pair: Pair) -> None:
    assert pair.borrower.api.elsewhere is not None
    spot = pair.borrower.api.elsewhere._checks
    await pair.borrower.world.until(lambda: not spot._open, "the spot checks to end")


def is_ejected(pair: Pair) -> bool:
    return pair.swarm.nodes[pair.borrower.node].is_ejected(pair.lender.node, pair.swarm.now_ns)


@law
async def test_a_liar_is_asked_no_more_after_twenty_checks() -> None:
    """And from then on every answer is the own model's: recall is what it is alone."""
    pair = Pair(Free(), Free(plus=7.0))
    answers = []
    for _ in range(40):
        answers.append(await ask(pair))
        await checked(pair)
    wrong = [index for index, (value, _) in enumerate(answers) if value != 2.0]
    assert wrong, "the liar was never asked"
    assert len(wrong) <= 20
    assert wrong == list(range(len(wrong))), "it was asked again"
    assert is_ejected(pair)
    assert pair.borrower.api.counts()["checks_wrong"] == len(wrong)
    assert all(by == "" for _, by in answers[len(wrong) :])


@law
async def test_an_honest_lender_stays_and_its_first_answers_are_checked() -> None:
    pair = Pair(Free(), Free())
    for _ in range(20):
        assert await ask(pair) == (2.0, pair.lender.node.hex())
        await checked(pair)
    assert not is_ejected(pair)
    counts = pair.borrower.api.counts()
    assert counts["checks_right"] >= 8
    assert counts.get("checks_wrong", 0) == 0


@law
async def test_who_complains_about_what_fits_is_found_out_too() -> None:
    pair = Pair(Free(), Free())

    async def complains(word: Any) -> bytes:
        raise OipError(413, "it is too large")

    pair.lender.api.lend = complains  # type: ignore[method-assign]
    for _ in range(20):
        await ask(pair)
        await checked(pair)
    assert is_ejected(pair)
    assert await ask(pair) == (2.0, "")


@law
async def test_the_own_model_answers_at_the_last_moment() -> None:
    """The lender has taken the request and says nothing."""
    pair = Pair(Free(), Free())

    async def stalls(word: Any) -> bytes:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    pair.lender.api.lend = stalls  # type: ignore[method-assign]
    asked = asyncio.create_task(ask(pair))
    await pair.borrower.world.until(lambda: pair.lender.worker._lent, "the lender to have it")
    keys = [key for node, key in pair.swarm.timers if node == pair.borrower.node and key[-1] == "last-moment"]
    assert keys, "the own model has no last moment"
    (key,) = keys
    pair.swarm.now_ns = pair.swarm.timers[pair.borrower.node, key]
    pair.swarm.perform(pair.borrower.node, pair.swarm.nodes[pair.borrower.node].on_timer(key, pair.swarm.now_ns))
    pair.pump()
    assert await asked == (2.0, "")
    await pair.borrower.world.until(lambda: not pair.lender.worker._lent, "the lender to be told")


@law
async def test_a_program_that_has_gone_has_nothing_at_any_device() -> None:
    pair = Pair(None, Free())
    for _ in range(3):
        pair.lender.api.lend = lambda word: asyncio.get_running_loop().create_future()  # type: ignore[assignment,method-assign,return-value]
        asked = asyncio.create_task(ask(pair, borrow="yes"))
        await pair.borrower.world.until(lambda: pair.lender.worker._lent, "the lender to have it")
        asked.cancel()
        await pair.borrower.world.until(lambda: not pair.lender.worker._lent, "the lender to be told")
        assert pair.swarm.nodes[pair.borrower.node].open_requests == 0
        assert pair.borrower.borrowing._open == {}


@law
async def test_what_does_not_fit_is_told_with_the_reason() -> None:
    """By a device that has not the model: its shape is known only to the lender."""
    pair = Pair(None, Free())
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}
    path = f"/v2/models/m/versions/{DIGEST.hex()}/infer"
    call = Call("POST", path, {"swarmd-borrow": "yes"}, bytearray(json.dumps(body).encode()))
    with pytest.raises(OipError, match=r"input x has shape \[1, 2\]; \[-1\] is wanted") as told:
        await pair.borrower.api.handle(call)
    assert told.value.status == 400


@law
async def test_checks_are_bounded() -> None:
    ended: list[int] = []
    spot = SpotChecks(lambda number, is_right: None)

    async def waits(left_s: float) -> dict[str, np.ndarray]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    for number in range(OPEN_MAX + 5):
        spot.begin(number, waits, lambda own: True, lambda number=number: ended.append(number))  # type: ignore[misc]
    assert len(ended) == 5 == spot.counters["checks_left_out"]
    for task in list(spot._open):
        task.cancel()
    await asyncio.gather(*spot._open, return_exceptions=True)
    assert len(ended) == OPEN_MAX + 5


# --- mutants --------------------------------------------------------------------------------------------------------


def _everything_agrees(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elsewhere, "agrees", lambda *arguments: True)


def _checks_are_not_wanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_is_worth_a_check", lambda self, lender: False)


def _any_complaint_is_right(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elsewhere, "_HEAD_BYTES", 1 << 30)


def _no_fallback(patch: pytest.MonkeyPatch) -> None:
    whole = InferenceApi._borrow

    async def without(self: InferenceApi, errand: Any, own: Any = None) -> Any:
        return await whole(self, errand, None)

    patch.setattr(InferenceApi, "_borrow", without)


def _complaints_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd.worker.process.PASSED_ON", ())


def _near_is_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "_NEAR_THRESHOLD", 1.0)


def _one_is_missing() -> None:
    test_a_lie_does_not_agree(LIES["one is missing that is sure"])


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_everything_agrees, test_a_liar_is_asked_no_more_after_twenty_checks),
    (_checks_are_not_wanted, test_a_liar_is_asked_no_more_after_twenty_checks),
    (_any_complaint_is_right, test_who_complains_about_what_fits_is_found_out_too),
    (_no_fallback, test_the_own_model_answers_at_the_last_moment),
    (_complaints_are_kept, test_what_does_not_fit_is_told_with_the_reason),
    (_near_is_anywhere, _one_is_missing),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_of_checks_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
