"""Lending in the daemon: how a request travels, what a worker does for others, what leaves it, what outlives it."""

import asyncio
import contextlib
import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.brain.lending import LendingLink
from swarmd.worker import api as worker_api
from swarmd.worker import borrowing as worker_borrowing
from swarmd.worker import lent, words
from swarmd.worker.api import InferenceApi
from swarmd.worker.batcher import LENT
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.elsewhere import Elsewhere
from swarmd.worker.http_server import Call
from swarmd.worker.lent import INFER, METADATA, is_answer, open_answer, open_request, pack_answer, pack_request
from swarmd.worker.oip import OipError, Wanted, write_answer
from swarmd.worker.process import WorkerProcess
from swarmd_models.service import DETECT, GRAPH
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.placement import Offer, Offered
from tests.support.mutants import assert_found
from tests.unit.test_inference_api_laws import World, law

DIGEST = "ab" * 32
BODY = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}], "parameters": {}}
ALLOWED = {"swarmd-borrow": "yes"}


def body(**parameters: int) -> bytes:
    return json.dumps({**BODY, "parameters": parameters}).encode()


# --- how it travels -------------------------------------------------------------------------------------------------


def test_a_request_and_an_answer_travel_as_they_are() -> None:
    for lane in (GRAPH, DETECT):
        for what, length in ((INFER, 3), (METADATA, None)):
            assert open_request(pack_request(what, lane, length, b"body")) == lent.Lent(what, lane, length, b"body")
    assert open_answer(pack_answer([b"ab", b"c"], 2)) == (b"abc", 2)
    assert lent.PAYLOAD_MAX_BYTES == messages.PAYLOAD_MAX_BYTES
    with pytest.raises(OipError, match="go to another device"):
        pack_request(INFER, GRAPH, None, bytes(lent.PAYLOAD_MAX_BYTES))


def answer(version: str = DIGEST, size: object = 4, tail: bytes = b"1234", cut: int = 0) -> bytes:
    head = {"model_version": version, "outputs": [{"name": "x", "parameters": {"binary_data_size": size}}]}
    text = json.dumps(head).encode()
    return pack_answer([text, tail], len(text) - cut)


def test_an_answer_names_its_bundle_and_has_all_that_it_says() -> None:
    digest = bytes.fromhex(DIGEST)
    assert is_answer(digest, answer())
    for bad in (
        b"", b"\0" * 4, answer("cd" * 32), answer(size=5), answer(size=-4), answer(size="4"),
        answer(size=True, tail=b"1"),
        answer(tail=b""), answer(cut=1), answer(cut=-1), pack_answer([b"[" * 100_000], None),
        pack_answer([b"null"], None), answer()[:-1], answer() + b"x",
    ):  # fmt: skip
        assert not is_answer(digest, bad), bad[:80]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 1 << 32), st.integers(0, 255))
def test_no_bytes_raise_anything_else(data: bytes, at: int, value: int) -> None:
    changed = bytearray(answer())
    changed[at % len(changed)] = value
    for one in (data, bytes(changed)):
        is_answer(bytes(32), one)
        with contextlib.suppress(OipError):
            open_request(one)


# --- the worker -----------------------------------------------------------------------------------------------------


class Brain:
    """What the worker asks of it, and what it answers."""

    def __init__(self, reply: bytes | None) -> None:
        self.asked: list[words.Borrow] = []
        self.reply = reply
        self.replies: list[words.Borrowed] = []
        """Where it says something else each time."""
        self.borrowing = Borrowing(self.on_word)

    def on_word(self, word: words.Borrow) -> None:
        self.asked.append(word)
        told = words.Borrowed(word.number, self.reply, "a", "" if self.reply else "nobody has it")
        if self.replies:
            told = msgspec.structs.replace(self.replies.pop(0), number=word.number)
        asyncio.get_running_loop().call_soon(self.borrowing.on_answer, told)


async def ask(api: InferenceApi, path: str, headers: dict[str, str], content: bytes = b"", method: str = "POST") -> Any:
    try:
        return await api.handle(Call(method, f"/v2/models/{path}", headers, bytearray(content)))
    except OipError as error:
        return error.status


@law
async def test_nothing_leaves_that_may_not() -> None:
    """Neither without the program's word, nor where the device does not borrow, nor without a digest."""
    brain = Brain(answer())
    world = World()
    assert await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body()) == 404
    world.api.elsewhere = Elsewhere(brain.borrowing, None, world.batcher, world.api.residency, world.api._run_behind)
    assert await ask(world.api, f"gone/versions/{DIGEST}/infer", {}, body()) == 404
    assert await ask(world.api, f"gone/versions/{DIGEST}/infer", {"swarmd-borrow": "no"}, body()) == 404
    assert await ask(world.api, "gone/infer", ALLOWED, body()) == 404
    assert await ask(world.api, f"gone/versions/{DIGEST[1:]}/infer", ALLOWED, body()) == 404
    assert await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, bytes(lent.PAYLOAD_MAX_BYTES)) == 400
    assert not brain.asked


@law
async def test_what_is_not_here_is_borrowed_by_its_digest() -> None:
    brain, world = Brain(answer()), World()
    world.api.elsewhere = Elsewhere(brain.borrowing, None, world.batcher, world.api.residency, world.api._run_behind)
    found = await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body(timeout=250_000))
    assert found.status == 200
    assert dict(found.headers)["Swarmd-Lender"] == "a"
    assert b"".join(found.pieces) == open_answer(answer())[0]
    (word,) = brain.asked
    assert (word.digest, word.units, word.left_ms) == (DIGEST, 2, 250)
    assert open_request(word.data) == lent.Lent(INFER, GRAPH, None, body(timeout=250_000))
    found = await ask(world.api, f"gone.detect/versions/{DIGEST}", ALLOWED, method="GET")
    assert open_request(brain.asked[-1].data) == lent.Lent(METADATA, DETECT, None, b"")
    brain.reply = None
    assert await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body()) == 503
    assert world.api.counters["not_borrowed"] == 1


@law
async def test_what_all_lenders_refuse_is_asked_again_while_one_offers_it_and_there_is_time() -> None:
    nobody = words.Borrowed(0, None, "", "nobody")
    refused = words.Borrowed(0, None, "", "busy", is_offered=True)
    answered = words.Borrowed(0, answer(), "a")
    for replies, left_ms, outcome, times in (
        ([refused, refused, answered], 20_000, 200, 3),
        ([nobody, answered], 20_000, 503, 1),
        ([refused, nobody, answered], 20_000, 503, 2),
        ([refused] * 9, 20_000, 503, 1 + len(worker_borrowing.PAUSES_S)),
        ([refused, answered], 90, 503, 1),
    ):
        brain, world = Brain(None), World()
        brain.replies, asked = list(replies), brain.asked
        world.api.elsewhere = Elsewhere(
            brain.borrowing, None, world.batcher, world.api.residency, world.api._run_behind
        )
        found = await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body(timeout=left_ms * 1000))
        assert (found if isinstance(found, int) else found.status, len(asked)) == (outcome, times)
        assert [word.left_ms for word in asked] == sorted((word.left_ms for word in asked), reverse=True)
        assert len({word.number for word in asked}) == times, "each is a request of its own"
        assert world.api.counts().get("borrowed_again", 0) == times - 1


@law
async def test_a_worker_that_is_too_busy_borrows_what_it_has_itself() -> None:
    brain, world = Brain(answer("aa")), World(max_requests=1)
    world.api.elsewhere = Elsewhere(brain.borrowing, None, world.batcher, world.api.residency, world.api._run_behind)
    first = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    assert await ask(world.api, "m/infer", {}, body()) == 503
    assert not brain.asked
    world.held.bundle.digest = DIGEST
    found = await ask(world.api, "m/infer", ALLOWED, body())
    assert found.status == 200
    assert [word.digest for word in brain.asked] == [DIGEST]
    world.held.go.release()
    await first


def lend(job: int = 1, digest: str = "aa", units: int = 2, is_own: bool = False) -> words.Lend:
    return words.Lend(job, digest, pack_request(INFER, GRAPH, None, body()), units, 20_000, is_own)


@law
async def test_what_is_lent_waits_behind_everything_of_ones_own() -> None:
    world = World()
    running = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    lent_out = asyncio.create_task(world.api.lend(lend()))
    await world.until(lambda: world.batcher.waiting == 1, "the lent one to wait")
    own = asyncio.create_task(world.ask(9.0, priority=3))
    await world.until(lambda: world.batcher.waiting == 2, "the own one to wait")
    for _ in range(4):
        world.held.go.release()
    data = await lent_out
    await asyncio.gather(running, own)
    assert world.held.began == [1.0, 9.0, 1.0, 2.0]
    assert json.loads(open_answer(data)[0])["model_version"] == "aa"
    assert world.api.counters["lent"] == 1
    await world.settled()


@law
async def test_a_lender_runs_the_bundle_that_was_asked_for_and_no_more_than_was_said() -> None:
    world = World()
    for word in (lend(digest="bb"), lend(units=1), words.Lend(1, "aa", b"", 1, 100, False)):
        with pytest.raises(OipError):
            await world.api.lend(word)
    assert world.held.began == []
    await world.settled()


@law
async def test_an_answer_that_is_too_large_to_travel_is_none_and_ends_no_worker() -> None:
    """A borrower chooses the outputs, one of them 32 times if it likes; the brain ends a worker for too long a line."""
    world = World()
    world.held._steps = lambda items: iter([*[None] * len(items), {"x": np.full(1 << 16, 0.1)}])  # type: ignore[method-assign]
    with pytest.raises(OipError, match="go to another device"):
        await world.api.lend(lend())
    await world.settled()
    for word in (
        words.Ran(1 << 62, bytes(lent.PAYLOAD_MAX_BYTES)),
        words.Borrow(1, DIGEST, bytes(1 << 18), 64, 60_000),
    ):
        assert len(words.encode(word)) < words.MAX_LINE_BYTES


@law
async def test_an_answer_that_cannot_travel_is_not_written_at_all() -> None:
    """One output 32 times as JSON took the worker's loop a second and half a gigabyte, for a request of 600 bytes."""
    world = World()
    world.held._steps = lambda items: iter([*[None] * len(items), {"x": np.zeros(1 << 16, np.float32)}])  # type: ignore[method-assign]
    wanted = json.dumps({**BODY, "outputs": [{"name": "x"}] * 32}).encode()
    with pytest.raises(OipError, match="or more; at most"):
        await world.api.lend(words.Lend(1, "aa", pack_request(INFER, GRAPH, None, wanted), 2, 20_000, False))
    await world.settled()


def test_what_an_answer_takes_at_least_is_no_more_than_it_has() -> None:
    for array in (np.zeros(9, np.float32), np.zeros(9, np.uint8), np.zeros(9, bool), np.array([""] * 9, object)):
        for is_binary in (False, True):
            pieces, _ = write_answer({}, {"x": array}, [Wanted("x", is_binary)])
            size = sum(map(len, pieces))
            assert write_answer({}, {"x": array}, [Wanted("x", is_binary)], size)[0] == pieces


@law
async def test_a_lent_job_that_nobody_waits_for_is_forgotten() -> None:
    world = World()
    running = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    lent_out = asyncio.create_task(world.api.lend(lend()))
    await world.until(lambda: world.batcher.waiting == 1, "the lent one to wait")
    lent_out.cancel()
    await world.until(lambda: world.batcher.waiting == 0, "it to be withdrawn")
    world.held.go.release()
    await running
    await world.settled()
    assert world.held.began == [1.0]


@law
async def test_a_request_that_finds_a_bug_keeps_no_job() -> None:
    """Else four of them take all that one borrower may have, and four borrowers the lender, for a minute each time."""
    out = io.BytesIO()
    worker = WorkerProcess(words.Serve("127.0.0.1:0"), out)

    async def broken(word: words.Lend) -> bytes:
        raise ValueError("nobody has thought of this")

    worker._api.lend = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="nobody"):
        await worker._answer(lend(7))
    assert words.decode_from_worker(out.getvalue()) == words.Ran(7, None)


@law
async def test_a_worker_that_does_not_understand_its_brain_ends() -> None:
    """It said that it lives once a second, and did nothing more for anybody: no model, no answer of a lender."""
    for line in (b"{}\n", b'{"type":"Drop"}\n', b"[" * (words.MAX_LINE_BYTES + 1) + b"\n"):
        worker = WorkerProcess(words.Serve("127.0.0.1:0"), io.BytesIO())
        reader = asyncio.StreamReader(words.MAX_LINE_BYTES)
        reader.feed_data(line)
        async with asyncio.timeout(5):
            assert await worker.run(reader) == 0


# --- the brain ------------------------------------------------------------------------------------------------------


def link(refuses: bool = False, has_worker: bool = True) -> tuple[LendingLink, list[Any], list[Any]]:
    commands: list[Any] = []
    said: list[Any] = []

    def command(name: str, request: object) -> None:
        if refuses and isinstance(request, requests.Borrow):
            raise StateError("it does not travel")
        commands.append(request)

    nobody: Any = SimpleNamespace(offers=lambda now_ns: [], node=bytes(16))
    one = LendingLink(nobody, command, lambda: 700, lambda node: node.hex())
    one.bind(lambda word: said.append(word) is None and has_worker)
    return one, commands, said


INFER_ORDER = requests.Infer(5, bytes(32), b"data", 1, 1 << 62, None)


def test_the_brain_passes_on_both_ways() -> None:
    one, commands, said = link()
    one.take(words.Pulse(0, {}, {}, {DIGEST: 7}, 9))
    assert commands.pop() == requests.Stock((requests.Held(bytes.fromhex(DIGEST), 7),), 9, 700)
    one.take(words.Borrow(3, DIGEST, b"data", 1, 500))
    one.carry_out(requests.Settle(commands.pop().number, b"out", b"\1", bytes(32), False))  # type: ignore[arg-type]
    assert said.pop() == words.Borrowed(3, b"out", "01", digest="00" * 32, node="01")
    one.carry_out(INFER_ORDER)
    assert (said[-1].job, said[-1].is_own) == (5, True)
    one.take(words.Ran(5, b"out"))
    assert commands.pop() == requests.Ran(5, b"out")


BORROWER = NodeId(b"b" * 16)


@pytest.mark.parametrize(
    ("address", "heard_at", "quality", "host"),
    [
        ("10.0.0.5:7946", "10.0.0.5:7946", "good", "10.0.0.5"),
        ("10.0.0.5:7946", "10.0.0.5:40000", "none", "10.0.0.5"),  # Behind a port of its router's.
        ("10.0.0.5:7946+[fe80::5]:7946", "[fe80::5%3]:7946", "lossy", "fe80::5%3"),
        ("10.0.0.5:7946", "10.0.0.66:7946", "good", ""),  # It borrows an address.
        ("10.0.0.5:7946", "10.0.0.5:7946", "heard-only", ""),  # It borrows it in its frames, too.
        ("10.0.0.5:7946", "10.0.0.5:7946", "indirect", ""),
        ("10.0.0.5:7946", "", "none", ""),
        ("", "", "good", ""),
    ],
)
def test_a_lender_fetches_only_from_where_the_borrower_is_heard(
    address: str, heard_at: str, quality: str, host: str
) -> None:
    one, _, said = link()
    member = SimpleNamespace(node=BORROWER, address=address, heard_at=heard_at, quality=quality)
    one._members = lambda: [member]  # type: ignore[list-item]
    one.carry_out(requests.Infer(5, bytes(32), b"data", 1, 1 << 62, BORROWER, 1 << 20))
    assert said[-1].host == host


def test_a_worker_that_has_gone_owes_nothing_and_gets_nothing() -> None:
    """Its jobs end at once, lenders hear that nobody waits, and no answer for it reaches the next one's same number."""
    one, commands, said = link()
    one.take(words.Borrow(1, DIGEST, b"first life", 1, 500))
    old = commands.pop().number
    one.carry_out(INFER_ORDER)
    one.on_worker_gone()
    assert commands == [requests.Stock((), 0, 700), requests.Abandon(old), requests.Ran(5, None)]
    one.take(words.Borrow(1, DIGEST, b"second life", 1, 500))
    said.clear()
    one.carry_out(requests.Settle(old, b"out of the first life", None, bytes(32), False))
    assert said == []


def test_where_no_worker_runs_a_job_ends_at_once() -> None:
    one, commands, _ = link(has_worker=False)
    one.carry_out(INFER_ORDER)
    assert commands == [requests.Ran(5, None)]


def test_what_the_protocol_refuses_is_told() -> None:
    one, _, said = link(refuses=True)
    one.take(words.Borrow(3, DIGEST, b"data", 1, 500))
    assert said == [words.Borrowed(3, None, "", "it does not travel")]


# --- mutants --------------------------------------------------------------------------------------------------------


def _once_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker_borrowing, "PAUSES_S", ())


def _all_may_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker_api, "may_leave", lambda call: True)


def _lent_work_is_like_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker_api, "LENT", LENT - 2)


def _units_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    whole = InferenceApi.lend

    async def generous(self: InferenceApi, word: words.Lend) -> bytes:
        # The bundle of the law waits for ever where it runs.
        if word.units == 1 and word.digest == "aa" and word.data:
            return b""
        return await whole(self, word)

    patch.setattr(InferenceApi, "lend", generous)


def _numbers_are_the_workers(patch: pytest.MonkeyPatch) -> None:
    whole = LendingLink.on_worker_gone

    def gone(self: LendingLink) -> None:
        kept = dict(self._asked)
        whole(self)
        self._asked.update(kept)

    patch.setattr(LendingLink, "on_worker_gone", gone)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_all_may_leave, test_nothing_leaves_that_may_not),
    (_once_is_enough, test_what_all_lenders_refuse_is_asked_again_while_one_offers_it_and_there_is_time),
    (_lent_work_is_like_own, test_what_is_lent_waits_behind_everything_of_ones_own),
    (_units_are_not_counted, test_a_lender_runs_the_bundle_that_was_asked_for_and_no_more_than_was_said),
    (_numbers_are_the_workers, test_a_worker_that_has_gone_owes_nothing_and_gets_nothing),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)


def test_the_worker_is_told_who_lends_and_once_that_nobody_does() -> None:
    one, _, said = link()
    offer = Offer(NodeId(bytes(16)), (Offered(bytes.fromhex(DIGEST), 7, 1),), 1, 0)
    one.protocol.offers = lambda now_ns: [offer]  # type: ignore[method-assign]
    pulse = words.Pulse(0, {}, {})
    one.take(pulse)
    assert said == [words.Lenders({DIGEST: {bytes(16).hex(): 7}})]
    one.protocol.offers = lambda now_ns: []  # type: ignore[method-assign]
    one.take(pulse)
    one.take(pulse)
    assert said[1:] == [words.Lenders({})]
