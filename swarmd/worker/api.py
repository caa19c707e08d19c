"""The paths of the Open Inference Protocol over what this worker serves.

    GET  /v2/health/live, /v2/health/ready          200, or 503 while the first bundle is being loaded
    GET  /v2                                        the server's metadata
    GET  /v2/models/M[/versions/V][/ready]          a model's metadata; 200 or 404
    POST /v2/models/M[/versions/V]/infer            tensors in, tensors out
    POST /v2/repository/index                       what is served

`M` is a bundle's name (its graph's tensors) or that and `.detect` (a picture in, detections out); `V` is a bundle's
digest. Every answer names the digest that gave it as `model_version`.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec

from swarmd import __version__
from swarmd.worker.batcher import HIGH, LOW, NORMAL, Batcher, Refusal, Request, Target
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.oip import JSON_LENGTH, OipError, Question, port_row, read_question, write_answer
from swarmd.worker.residency import NotResidentError, Residency, Resident
from swarmd.worker.runner import Ran, Runner, Task
from swarmd_models.errors import FrameError, ModelError
from swarmd_models.service import Run, Tensors

UNITS_MAX = 64
"""Items in one request: what one batch may have."""
TIMEOUT_MAX_MS = 60_000
"""A request may name no later deadline: what waits longer is a batch job."""
EXTENSIONS = ("binary_tensor_data", "schedule_policy", "model_repository")
_JSON = ("Content-Type", "application/json")
_PRIORITIES = {0: NORMAL, 1: HIGH, 2: NORMAL, 3: LOW}


@dataclass(slots=True)
class _Pending:
    """A request that was taken and has no answer yet."""

    request: Request
    run: Run
    resident: Resident
    answer: "asyncio.Future[Tensors]"
    taken_ns: int


class InferenceApi:
    """Answers calls; owns the queue."""

    def __init__(self, batcher: Batcher, runner: Runner, deadline_ms: int) -> None:
        """Serve nothing yet; `residency.add` does."""
        self.residency = Residency(lambda resident: runner.call(resident.service.close))
        self._batcher = batcher
        self._runner = runner
        self._deadline_ms = deadline_ms
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _Pending] = {}
        self._numbers = 0
        self.counters: Counter[str] = Counter()
        """answered, units, batches, outranked, and requests without an answer by reason."""
        self.wait_ns = self.eye_wait_ns = self.run_ns = 0
        """In the queue, for the eye, and in the runtime, summed."""

    async def handle(self, call: Call) -> Answer:
        """Answer one call; raises `OipError`."""
        parts = [unquote(part) for part in call.path.strip("/").split("/")]
        match call.method, parts:
            case "GET" | "HEAD", ["v2"]:
                return _json({"name": "swarmd", "version": __version__, "extensions": EXTENSIONS})
            case "GET" | "HEAD", ["v2", "health", "live"]:
                return Answer(200)
            case "GET" | "HEAD", ["v2", "health", "ready"]:
                return Answer(200 if self.residency.names() else 503)
            case "POST", ["v2", "repository", "index"]:
                return _json([row for name in self.residency.names() for row in self._index(name)])
            case _, ["v2", "models", name, "versions", version, *rest]:
                return await self._model(call, name, version, rest)
            case _, ["v2", "models", name, *rest]:
                return await self._model(call, name, "", rest)
            case _:
                raise OipError(404, f"no such path {call.path[:100]!r}; the API begins at /v2")

    @staticmethod
    def complain(status: int, text: str) -> Answer:
        """An error's answer."""
        return _json({"error": text}, status)

    def gauges(self) -> dict[str, float]:
        """Numbers of now."""
        return {
            "waiting": float(self._batcher.waiting),
            "waiting_bytes": float(self._batcher.waiting_bytes),
            "models": float(len(self.residency.names())),
            "wait_s": self.wait_ns / 1e9,
            "eye_wait_s": self.eye_wait_ns / 1e9,
            "run_s": self.run_ns / 1e9,
        }

    # --- Models -------------------------------------------------------------------------------------------------

    async def _model(self, call: Call, name: str, version: str, rest: list[str]) -> Answer:
        try:
            resident, lane = self.residency.find(name, version)
        except NotResidentError as error:
            self.counters["not_resident"] += rest == ["infer"]
            raise OipError(404, str(error)) from error
        match call.method, rest:
            case "GET" | "HEAD", ["ready"]:
                return Answer(200)
            case "GET" | "HEAD", []:
                return _json(self._metadata(name, resident, lane))
            case "POST", ["infer"]:
                return await self._infer(call, name, resident, lane)
            case _:
                raise OipError(405, "GET a model's metadata or `ready`; POST `infer`")

    def _metadata(self, name: str, resident: Resident, lane: str) -> Mapping[str, Any]:
        service = resident.service
        return {
            "name": name,
            "versions": self.residency.versions(name),
            "platform": f"swarmd_{service.backend.kind}",
            "inputs": [port_row(port) for port in service.inputs(lane)],
            "outputs": [port_row(port) for port in service.outputs(lane)],
            "parameters": {"release": service.bundle.version, "labels": service.bundle.labels},
        }

    def _index(self, name: str) -> list[dict[str, str]]:
        return [{"name": name, "version": one, "state": "READY", "reason": ""} for one in self.residency.versions(name)]

    # --- Inference ----------------------------------------------------------------------------------------------

    async def _infer(self, call: Call, name: str, resident: Resident, lane: str) -> Answer:
        stated = call.headers.get(JSON_LENGTH.lower())
        if stated is not None and not (stated.isascii() and stated.isdigit() and len(stated) < 12):
            raise OipError(400, f"{JSON_LENGTH} is {stated[:20]!r}, which is no length")
        service = resident.service
        try:
            question = read_question(
                call.body, None if stated is None else int(stated), service.inputs(lane), service.outputs(lane)
            )
        except OipError:
            self.counters["malformed"] += 1
            raise
        run = service.steps(lane, question.inputs)
        if run.units > UNITS_MAX:
            self.counters["malformed"] += 1
            raise OipError(400, f"the request has {run.units} items; at most {UNITS_MAX} in one")
        began_ns = time.monotonic_ns()
        outputs = await self._answer(self._admit(question, run, resident, lane, len(call.body)))
        head = {
            "model_name": name,
            "model_version": resident.digest,
            "id": question.id,
            "parameters": {"took_us": (time.monotonic_ns() - began_ns) // 1000},
        }
        pieces, json_bytes = write_answer(head, outputs, question.wanted)
        self.counters["answered"] += 1
        if json_bytes is None:
            return Answer(200, pieces, (_JSON,))
        return Answer(200, pieces, (("Content-Type", "application/octet-stream"), (JSON_LENGTH, str(json_bytes))))

    def _admit(self, question: Question, run: Run, resident: Resident, lane: str, size_bytes: int) -> _Pending:
        now_ns = time.monotonic_ns()
        timeout_ns = question.timeout_us * 1000 or self._deadline_ms * 1_000_000
        deadline_ns = now_ns + min(timeout_ns, TIMEOUT_MAX_MS * 1_000_000)
        self._numbers += 1
        request = Request(
            self._numbers, Target(resident.digest, lane), _PRIORITIES[question.priority], run.units, size_bytes,
            deadline_ns,
        )  # fmt: skip
        refusal, pushed_out = self._batcher.offer(request, now_ns)
        for victim in pushed_out:
            self._fail(victim.number, "pushed_out", OipError(503, "more urgent requests have filled the queue"))
        if refusal is Refusal.FULL:
            self.counters["full"] += 1
            raise OipError(503, "the queue is full; ask again in a moment, or another device")
        if refusal is Refusal.LATE:
            self.counters["refused_late"] += 1
            raise OipError(503, "this device cannot answer by the deadline; ask another, or allow more time")
        self.residency.acquire(resident)
        pending = _Pending(request, run, resident, self._loop.create_future(), now_ns)
        self._pending[request.number] = pending
        if self._batcher.is_outranked():
            self._runner.outrank()
        self._pump()
        return pending

    async def _answer(self, pending: _Pending) -> Tensors:
        try:
            async with asyncio.timeout(max(0.0, (pending.request.deadline_ns - time.monotonic_ns()) / 1e9)):
                return await pending.answer
        except TimeoutError as error:
            self.counters["late"] += 1
            raise _late() from error
        finally:
            # One that already runs keeps its bundle until it has run.
            if self._batcher.withdraw(pending.request.number):
                self._forget(pending.request.number)

    def _pump(self) -> None:
        """Start the next batch, if none runs."""
        now_ns = time.monotonic_ns()
        for request in self._batcher.expire(now_ns):
            self._fail(request.number, "late", _late())
        batch = self._batcher.take(now_ns)
        if batch is None:
            return
        tasks = []
        for request in batch.requests:
            pending = self._pending[request.number]
            self.wait_ns += now_ns - pending.taken_ns
            tasks.append(Task(request.number, pending.run, self._from_runner(self._ran)))
        self._runner.submit(tasks, self._from_runner(partial(self._batch_ran, len(tasks))))

    def _from_runner(self, handle: Callable[..., None]) -> Callable[..., None]:
        """What the runner's thread may call so that the loop does it."""

        def hand_over(*arguments: object) -> None:
            # A worker that ends does not wait for the inference at hand: its loop may be gone, and with it who asked.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(handle, *arguments)

        return hand_over

    def _ran(self, number: int, outcome: Tensors | ModelError) -> None:
        """One request of the running batch has run; in the loop."""
        pending = self._pending[number]
        if isinstance(outcome, FrameError):
            self._fail(number, "malformed", OipError(400, str(outcome)))
        elif isinstance(outcome, ModelError):
            self._fail(number, "failed", OipError(500, str(outcome)))
        else:
            if not pending.answer.done():
                pending.answer.set_result(outcome)
            self._forget(number)

    def _batch_ran(self, size: int, ran: Ran) -> None:
        self._batcher.finish(ran.done, ran.units, ran.took_ns)
        self.counters["batches"] += 1
        self.counters["units"] += ran.units
        self.counters["outranked"] += size - ran.done
        self.run_ns += ran.took_ns
        self.eye_wait_ns += ran.waited_ns
        self._pump()

    def _fail(self, number: int, reason: str, error: OipError) -> None:
        pending = self._pending[number]
        if not pending.answer.done():
            self.counters[reason] += 1
            pending.answer.set_exception(error)
        self._forget(number)

    def _forget(self, number: int) -> None:
        pending = self._pending.pop(number)
        self.residency.release(pending.resident)


def _late() -> OipError:
    return OipError(504, "the deadline has passed")


def _json(value: object, status: int = 200) -> Answer:
    return Answer(status, (msgspec.json.encode(value),), (_JSON,))
