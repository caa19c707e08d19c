"""Two lenders at work on one request: how a program asks for it over each door, and that it is never dropped unsaid."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from swarmd.brain.lending import LendingLink
from swarmd.errors import WorkerError
from swarmd.worker import api as worker_api
from swarmd.worker import asking, oip_grpc, words
from swarmd.worker import elsewhere as worker_elsewhere
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.elsewhere import Elsewhere
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.offload import COPIES_MAX
from tests.support.mutants import assert_found
from tests.unit.test_inference_api_laws import World, law
from tests.unit.test_lending import ALLOWED, BODY, DIGEST, Brain, answer, ask, body, link


def borrower(**about: Any) -> tuple[Brain, World]:
    brain, world = Brain(answer()), World(**about)
    world.api.elsewhere = Elsewhere(brain.borrowing, None, world.batcher, world.api.residency, world.api._run_behind)
    return brain, world


@law
async def two_lenders_are_asked_for_by_a_parameter() -> None:
    """For a model that is not here, and for one that is, where this device is too busy or another is quicker."""
    brain, world = borrower()
    for copies, told in ((0, 1), (1, 1), (2, 2)):
        found = await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body(copies=copies))
        assert (found.status, brain.asked[-1].copies) == (200, told)
    assert (await ask(world.api, f"gone/versions/{DIGEST}/infer", ALLOWED, body())).status == 200
    assert brain.asked[-1].copies == 1
    brain, world = borrower(max_requests=1)
    first = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    world.held.bundle.digest = DIGEST
    assert (await ask(world.api, "m/infer", ALLOWED, body(copies=2))).status == 200
    assert [word.copies for word in brain.asked] == [2]
    world.held.go.release()
    await first


@law
async def what_cannot_be_had_is_refused() -> None:
    """Three; two without leave to ask others; two of a job that one idle device takes."""
    brain, world = borrower()
    path = f"gone/versions/{DIGEST}/infer"
    for copies in (3, -1, True, 2.0, "2"):
        content = json.dumps({**BODY, "parameters": {"copies": copies}}).encode()
        assert await ask(world.api, path, ALLOWED, content) == 400
    assert await ask(world.api, "m/infer", {}, body(copies=2)) == 400
    assert await ask(world.api, path, {"swarmd-borrow": "fleet"}, body(copies=2)) == 400
    assert not brain.asked


LAWS = [two_lenders_are_asked_for_by_a_parameter, what_cannot_be_had_is_refused]


@pytest.mark.parametrize("one", LAWS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_law(one: Any) -> None:
    one()


def _copies_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    whole = Borrowing._ask

    async def once(self: Borrowing, *about: Any) -> words.Borrowed:
        return await whole(self, *about[:-2], 1, about[-1])

    patch.setattr(Borrowing, "_ask", once)


def _whoever_asks_gets_one(patch: pytest.MonkeyPatch) -> None:
    for module in (worker_api, worker_elsewhere):
        patch.setattr(module, "judge_copies", lambda call, copies: None)


@pytest.mark.parametrize(("mutant", "at"), [(_copies_are_forgotten, 0), (_whoever_asks_gets_one, 1)])
def test_mutant_is_found(mutant: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, LAWS[at], monkeypatch)


def test_the_brain_asks_two() -> None:
    one, commands, _ = link()
    assert isinstance(one, LendingLink)
    for copies in (1, 2):
        one.take(words.decode_from_worker(words.encode(words.Borrow(copies, DIGEST, b"data", 1, 500, copies=copies))))  # type: ignore[arg-type]
        request = commands.pop()
        assert isinstance(request, requests.Borrow)
        assert request.copies == copies <= COPIES_MAX


def test_grpc_says_it_as_http_does() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2]}
    message = {
        "model_name": "m", "parameters": {"copies": {"int64_param": 2}}, "inputs": [tensor],
        "raw_input_contents": [np.zeros(2, np.float32).tobytes()],
    }  # fmt: skip
    _, _, sent, length = oip_grpc.read_infer(oip_grpc.encoded(oip_grpc.INFER_REQUEST, message))
    assert json.loads(bytes(sent[:length]))["parameters"]["copies"] == 2


def test_a_client_says_it_where_it_is_wanted() -> None:
    said: list[dict[str, Any]] = []

    class Connection:
        def request(self, method: str, path: str, content: bytes, headers: dict[str, str]) -> None:
            said.append(json.loads(content[: int(headers["Inference-Header-Content-Length"])])["parameters"])
            raise ConnectionError

    port, connection = {"name": "x", "shape": [2]}, Connection()
    for wish in (asking.Wish(borrow="yes", copies=2), asking.Wish(borrow="yes")):
        with pytest.raises(ConnectionError):
            asking._infer(connection, "/m", np.zeros(2, np.float32), wish, port)  # type: ignore[arg-type]
    assert [one.get("copies") for one in said] == [2, None]


@pytest.mark.parametrize(("copies", "borrow"), [(2, ""), (2, "split"), (2, "fleet"), (3, "yes"), (0, "yes")])
def test_a_client_that_wants_what_cannot_be_had_is_told(copies: int, borrow: str) -> None:
    with pytest.raises(WorkerError, match="copies"):
        asking.Wish(borrow=borrow, copies=copies)
