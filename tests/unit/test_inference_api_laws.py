"""One answer a request, whatever becomes of it: late, outranked, abandoned, pushed out, its bundle retired."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partialmethod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from swarmd.worker.api import InferenceApi
from swarmd.worker.batcher import Batcher, BatcherConfig, Target
from swarmd.worker.http_server import Call
from swarmd.worker.oip import OipError
from swarmd.worker.residency import Residency
from swarmd.worker.runner import Runner
from swarmd_models.backends.base import Array
from swarmd_models.errors import BackendError
from swarmd_models.service import GRAPH, Port, Run, Tensors
from tests.support.mutants import assert_found

PORT = Port("x", (-1,), np.dtype(np.float32))


class Held:
    """A bundle whose every inference waits until the test lets it go."""

    lanes = (GRAPH,)

    def __init__(self, digest: str = "aa") -> None:
        self.bundle = SimpleNamespace(name="m", digest=digest, version="1", labels=())
        self.backend = SimpleNamespace(kind="held")
        self.go = threading.Semaphore(0)
        self.began: list[float] = []
        self.closed = 0
        self.fails = False

    def inputs(self, lane: str) -> tuple[Port, ...]:
        return (PORT,)

    outputs = inputs

    def steps(self, lane: str, inputs: Tensors) -> Run:
        return Run(len(inputs["x"]), lambda: self._steps(inputs["x"]))

    def _steps(self, items: Array) -> Iterator[Tensors | None]:
        for item in items:
            assert not self.closed, "a bundle ran after it was closed"
            self.began.append(float(item))
            self.go.acquire()
            if self.fails:
                raise BackendError("it fails")
            yield None
        yield {"x": items + 1}

    def close(self) -> None:
        self.closed += 1


class World:
    """The API without its socket."""

    def __init__(self, **config: int) -> None:
        self.runner = Runner()
        self.batcher = Batcher(BatcherConfig(**config))
        self.api = InferenceApi(self.batcher, self.runner, 20_000)
        self.held = Held()
        self.resident = self.api.residency.add(self.held)  # type: ignore[arg-type]

    async def ask(self, *items: float, priority: int = 2, timeout_us: int = 0, version: str = "") -> Any:
        body = {
            "inputs": [{"name": "x", "shape": [len(items)], "datatype": "FP32", "data": items}],
            "parameters": {"priority": priority, "timeout": timeout_us},
        }
        path = "/v2/models/m" + (f"/versions/{version}" if version else "") + "/infer"
        try:
            answer = await self.api.handle(Call("POST", path, {}, bytearray(json.dumps(body).encode())))
        except OipError as error:
            return error.status
        return json.loads(b"".join(answer.pieces))["outputs"][0]["data"]

    async def until(self, done: Callable[[], object], what: str, tries: int = 2000) -> None:
        for _ in range(tries):
            if done():
                return
            await asyncio.sleep(0.005)
        pytest.fail(f"waited for {what}")

    async def settled(self) -> None:
        """Nothing is left of any request."""
        await self.until(lambda: not self.api._pending, "every request to be forgotten")
        assert self.batcher.waiting == 0
        assert self.resident.in_use == 0, "a bundle is held for a request that has gone"


def law(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A law as a plain test, so that a mutant can run it too."""

    def run() -> None:
        asyncio.run(test())

    run.__doc__ = test.__doc__
    return run


@law
async def test_a_request_that_is_late_in_the_queue_has_its_504() -> None:
    world = World()
    first = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    assert await world.ask(2.0, timeout_us=30_000) == 504
    world.held.go.release()
    assert await first == [2.0]
    await world.settled()
    assert world.held.began == [1.0], "a request ran that had its answer"
    assert world.api.counters["late"] == 1


@law
async def test_a_request_that_is_late_while_it_runs_has_its_504_at_its_deadline() -> None:
    world = World()
    assert await world.ask(1.0, timeout_us=30_000) == 504
    assert world.resident.in_use == 1, "its bundle is held while it runs"
    world.held.go.release()
    await world.settled()
    assert (world.api.counters["late"], world.api.counters["answered"]) == (1, 0)


@law
async def test_what_is_outranked_waits_again_and_has_one_answer() -> None:
    world = World(batch_ns=3_600_000_000_000)
    world.batcher._limits[Target("aa", GRAPH)] = 4
    blocker = asyncio.create_task(world.ask(0.0))
    await world.until(lambda: world.held.began, "the first to run")
    low = [asyncio.create_task(world.ask(float(n), priority=3)) for n in (1, 2, 3)]
    await world.until(lambda: world.batcher.waiting == 3, "three to wait")
    world.held.go.release()
    await world.until(lambda: len(world.held.began) == 2, "the batch of three to begin")
    high = asyncio.create_task(world.ask(9.0, priority=1))
    await world.until(lambda: world.batcher.waiting == 1, "the urgent one to wait")
    world.held.go.release(5)
    assert await high == [10.0]
    assert [await one for one in (blocker, *low)] == [[1.0], [2.0], [3.0], [4.0]]
    assert world.held.began.index(9.0) == 2, "the urgent one waited for more than one inference"
    await world.settled()
    assert world.api.counters["outranked"] == 2
    assert world.api.counters["answered"] == 5


@law
async def test_what_is_late_when_it_comes_back_is_forgotten() -> None:
    world = World(batch_ns=3_600_000_000_000)
    world.batcher._limits[Target("aa", GRAPH)] = 4
    blocker = asyncio.create_task(world.ask(0.0))
    await world.until(lambda: world.held.began, "the first to run")
    low = [asyncio.create_task(world.ask(float(n), priority=3, timeout_us=n * 400_000)) for n in (3, 1)]
    await world.until(lambda: world.batcher.waiting == 2, "two to wait")
    world.held.go.release()
    await world.until(lambda: len(world.held.began) == 2, "their batch to begin")
    assert sorted([await one for one in low]) == [504, 504]
    high = asyncio.create_task(world.ask(9.0, priority=1))
    await world.until(lambda: world.batcher.waiting == 1, "the urgent one to wait")
    world.held.go.release(5)
    assert (await high, await blocker) == ([10.0], [1.0])
    await world.settled()
    assert world.api.counters["late"] == 2, "a late request was counted twice"


@law
async def test_an_abandoned_request_leaves_nothing() -> None:
    world = World()
    running = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    waiting = asyncio.create_task(world.ask(2.0))
    await world.until(lambda: world.batcher.waiting == 1, "the second to wait")
    for task in (running, waiting):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    world.held.go.release(2)
    await world.settled()
    assert world.held.began == [1.0], "a request ran that nobody waits for"


@law
async def test_a_full_queue_refuses_and_an_urgent_request_pushes_out() -> None:
    world = World(max_requests=2)
    tasks = [asyncio.create_task(world.ask(1.0, priority=3))]
    await world.until(lambda: world.held.began, "the first to run")
    tasks.append(asyncio.create_task(world.ask(2.0, priority=3)))
    await world.until(lambda: world.batcher.waiting == 1, "the second to wait")
    assert await world.ask(3.0, priority=3) == 503
    urgent = asyncio.create_task(world.ask(4.0, priority=1))
    assert await tasks[1] == 503
    world.held.go.release(3)
    assert (await tasks[0], await urgent) == ([2.0], [5.0])
    await world.settled()
    assert (world.api.counters["full"], world.api.counters["pushed_out"]) == (1, 1)


@law
async def test_a_retired_bundle_answers_what_it_took_and_is_closed_once() -> None:
    world = World()
    running = asyncio.create_task(world.ask(1.0))
    await world.until(lambda: world.held.began, "the first to run")
    waiting = asyncio.create_task(world.ask(2.0))
    await world.until(lambda: world.batcher.waiting == 1, "the second to wait")
    others = [Held("bb"), Held("cc")]
    for one in others:
        world.api.residency.add(one)  # type: ignore[arg-type]
    assert await world.ask(3.0, version="aa") == 404
    assert world.held.closed == 0
    world.held.go.release(2)
    assert (await running, await waiting) == ([2.0], [3.0])
    await world.until(lambda: world.held.closed, "the retired bundle to be closed")
    assert (world.held.closed, others[0].closed) == (1, 0)
    await world.settled()


@law
async def test_a_runtime_that_fails_is_told_and_the_next_runs() -> None:
    world = World()
    world.held.fails = True
    world.held.go.release(2)
    assert await world.ask(1.0) == 500
    world.held.fails = False
    assert await world.ask(2.0) == [3.0]
    await world.settled()


@law
async def test_more_items_than_a_batch_may_have_are_refused() -> None:
    world = World()
    assert await world.ask(*map(float, range(65))) == 400
    await world.settled()


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _abandoned_requests_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "withdraw", lambda self, number: False)


def _what_comes_back_is_never_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "until", partialmethod(World.until, tries=400))  # What the law waits for never comes.
    patch.setattr(Batcher, "expire", lambda self, now_ns: [])


def _nobody_is_outranked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "is_outranked", lambda self: False)


def _a_bundle_is_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Residency, "acquire", lambda self, resident: None)
    patch.setattr(Residency, "release", lambda self, resident: None)
    patch.setattr(Residency, "_retire", lambda self, resident: self._close(resident))


@pytest.mark.parametrize(
    ("fault", "found_by"),
    [
        (_abandoned_requests_stay, test_an_abandoned_request_leaves_nothing),
        (_what_comes_back_is_never_looked_at, test_what_is_late_when_it_comes_back_is_forgotten),
        (_nobody_is_outranked, test_what_is_outranked_waits_again_and_has_one_answer),
        (_a_bundle_is_not_held, test_a_retired_bundle_answers_what_it_took_and_is_closed_once),
    ],
)
def test_mutants(
    fault: Callable[[pytest.MonkeyPatch], None], found_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(fault, found_by, monkeypatch)


def test_an_inference_that_outlasts_its_worker_s_loop_ends_without_a_word() -> None:
    """A worker that ends waits for no inference; what it gives then goes nowhere, and its thread goes on to the end."""

    async def begin() -> World:
        world = World()
        running = asyncio.create_task(world.ask(1.0))
        await world.until(lambda: world.held.began, "the inference to run")
        running.cancel()
        return world

    world = asyncio.run(begin())
    world.held.go.release()
    world.runner.stop()
    world.runner._thread.join(30)
    assert not world.runner._thread.is_alive()
    assert world.runner.busy_ns == 0
