"""The paths of the Open Inference Protocol over what this worker serves.

    GET  /v2/health/live, /v2/health/ready          200, or 503 while the first bundle is being loaded
    GET  /v2                                        the server's metadata
    GET  /v2/models/M[/versions/V][/ready]          a model's metadata; 200 or 404
    POST /v2/models/M[/versions/V]/infer            tensors in, tensors out
    POST /v2/models/M[/versions/V]/generate[_stream]  a text in, a text out, whole or bit by bit (`texting.py`)
    POST /v2/repository/index                       what is served

`M` is a bundle's name (its graph's tensors) or that and `.detect` (a picture in, detections out); `V` is a bundle's
digest. Every answer names the digest that gave it as `model_version`.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from swarmd import __version__
from swarmd.worker.answers import JSON, able_named, binary, borrowed, json_answer, late, metadata
from swarmd.worker.batcher import HIGH, LENT, LOW, NORMAL, Batcher, Refusal, Request, Target
from swarmd.worker.borrowing import (
    Borrowing,
    cause_of,
    judge_copies,
    may_leave,
    wants_fleet,
    wants_plan,
    wants_quickest,
    wants_split,
)
from swarmd.worker.elsewhere import (
    TIMEOUT_MAX_MS,
    UNITS_MAX,
    Elsewhere,
    Errand,
    Own,
    errand_of,
    json_length,
    keep_ms_of,
)
from swarmd.worker.for_others import ForOthers
from swarmd.worker.forms import Forms, wish_of
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.leaving import CROPS, FRAMES, LEVELS
from swarmd.worker.lent import INFER, METADATA
from swarmd.worker.oip import OipError, Question, read_question, write_answer
from swarmd.worker.residency import NotResidentError, Residency, Resident, lane_of
from swarmd.worker.runner import Outcome, Ran, Runner, Task
from swarmd.worker.words import Lend
from swarmd_models.errors import FrameError, ModelError
from swarmd_models.service import DETECT, TEXT, Run, Tensors

if TYPE_CHECKING:
    from swarmd.worker.cascade import Cascading
    from swarmd.worker.fleet import Fleet
    from swarmd.worker.lane import Fetcher, Shelf
    from swarmd.worker.splitting import Splitting
    from swarmd.worker.texting import Texting

DIGEST_CHARS = 64
"""Of a bundle's digest."""
EXTENSIONS = ("binary_tensor_data", "schedule_policy", "model_repository")
_PRIORITIES = {0: NORMAL, 1: HIGH, 2: NORMAL, 3: LOW}


class BusyError(OipError):
    """This device has the model and no time for the request."""


@dataclass(slots=True)
class _Pending:
    """A request that was taken and has no answer yet."""

    request: Request
    run: Run
    resident: Resident
    answer: "asyncio.Future[Tensors]"
    taken_ns: int


def _ring(pending: _Pending, counters: Counter[str]) -> None:
    """Its deadline has come."""
    if not pending.answer.done():
        counters["late"] += 1
        pending.answer.set_exception(late())


class InferenceApi:
    """Answers calls; owns the queue."""

    def __init__(
        self,
        batcher: Batcher,
        runner: Runner,
        deadline_ms: int,
        borrowing: Borrowing | None = None,
        shelf: "Shelf | None" = None,
        fetcher: "Fetcher | None" = None,
        leave: str = FRAMES,
        jpeg_quality: int = 0,
    ) -> None:
        """Serve nothing yet; `residency.add` does.

        Args:
            batcher: Decides what runs next.
            runner: Runs it.
            deadline_ms: Of requests that name none.
            borrowing: Asks other devices; None: no request leaves this one.
            shelf: Where they fetch what is large; None: nothing large leaves.
            fetcher: Fetches what is large from them; None: nothing large is taken.
            leave: What may leave at most: one of `leaving.LEVELS`.
            jpeg_quality: Of pictures that may leave with other pixels; 0: none does.
        """
        self._leave = leave
        self.residency = Residency(lambda resident: runner.call(resident.service.close))
        self.elsewhere: Elsewhere | None = None
        """Has other devices answer; None: this one does not borrow."""
        if borrowing is not None:
            self.elsewhere = Elsewhere(
                borrowing, shelf, batcher, self.residency, self._run_behind, fetcher, leave, Forms(jpeg_quality)
            )
        self.cascading: Cascading | None = None
        """Walks plans; None: there is none."""
        self.splitting: Splitting | None = None
        """Walks models in parts; None: there is none."""
        self.fleet: Fleet | None = None
        """Batches over the fleet; None: this device does not borrow."""
        self.texting: Texting | None = None
        """Makes texts of language models."""
        self.on_malformed: Callable[[str], None] = lambda borrower: None
        """Is told of a borrower whose picture is in no form that can be read."""
        self._for_others = ForOthers(self, shelf, fetcher)
        self.batcher = batcher
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
                return json_answer({"name": "swarmd", "version": __version__, "extensions": EXTENSIONS})
            case "GET" | "HEAD", ["v2", "health", "live"]:
                return Answer(200)
            case "GET" | "HEAD", ["v2", "health", "ready"]:
                return Answer(200 if self.residency.names() else 503)
            case "POST", ["v2", "repository", "index"]:
                return json_answer(
                    [
                        {"name": name, "version": one, "state": "READY", "reason": ""}
                        for name in self.residency.names()
                        for one in self.residency.versions(name)
                    ]
                )
            case _, ["v2", "models", name, "versions", version, *rest]:
                return await self._model(call, name, version, rest)
            case _, ["v2", "models", name, *rest]:
                return await self._model(call, name, "", rest)
            case _:
                raise OipError(404, f"no such path {call.path[:100]!r}; the API begins at /v2")

    @staticmethod
    def complain(status: int, text: str) -> Answer:
        """An error's answer."""
        return json_answer({"error": text}, status)

    def counts(self) -> dict[str, int]:
        """Of requests, spot checks and tensors on the lane, by what became of them."""
        parts = (self._for_others, self.elsewhere, self.cascading, self.splitting, self.fleet, self.texting)
        return dict(sum((one.counters for one in parts if one is not None), self.counters.copy()))

    def gauges(self) -> dict[str, float]:
        """Numbers of now."""
        return {
            "waiting": float(self.batcher.waiting),
            "waiting_bytes": float(self.batcher.waiting_bytes),
            "models": float(len(self.residency.names())),
            "wait_s": self.wait_ns / 1e9,
            "eye_wait_s": self.eye_wait_ns / 1e9,
            "run_s": self.run_ns / 1e9,
        }

    # --- Models -------------------------------------------------------------------------------------------------

    async def _model(self, call: Call, name: str, version: str, rest: list[str]) -> Answer:
        if self.texting is not None and rest in (["generate"], ["generate_stream"]):
            return await self.texting.handle(call, name, version, rest[0])
        if lane_of(name) == TEXT and rest == ["infer"]:
            raise OipError(400, "a text is asked for by generate, generate_stream, or gRPC's ModelStreamInfer")
        able = able_named(call, name)
        if wants_split(call):
            if self.splitting is None:
                raise OipError(400, "`Swarmd-Borrow: split` wants lending.borrow and lending.split")
            self._judge_place(call)
            return await self.splitting.handle(call, name, version, rest, _PRIORITIES)
        if wants_fleet(call) and rest == ["infer"] and self.fleet is not None and self._leave == FRAMES:
            return await self.fleet.handle(call, name, version, self._deadline_ms)
        try:
            resident, lane = self.residency.find_able(name, *able) if able[0] else self.residency.find(name, version)
        except NotResidentError as error:
            if self.elsewhere is not None and may_leave(call):
                return await self._borrow_unknown(call, name, version, rest, able)
            self.counters["not_resident"] += rest == ["infer"]
            raise OipError(404, str(error)) from error
        match call.method, rest:
            case "GET" | "HEAD", ["ready"]:
                return Answer(200)
            case "GET" | "HEAD", []:
                return json_answer(metadata(self.residency, name, resident, lane))
            case "POST", ["infer"]:
                return await self._infer_somewhere(call, name, resident, lane, able)
            case _:
                raise OipError(405, "GET a model's metadata or `ready`; POST `infer`")

    # --- For other devices, and by them -------------------------------------------------------------------------

    def stock(self) -> tuple[dict[str, int], int, dict[str, tuple[str, int]]]:
        """What could be lent: times by digest, this device's own work before it, and abilities by digest."""
        times = {one: self.batcher.unit_ns(one) for one in self.residency.digests()}
        return times, self.batcher.own_ns, self.residency.abilities()

    def asks(self) -> list[str]:
        """Digests of bundles that plans here may ask others for."""
        return [] if self.cascading is None else self.cascading.asks()

    async def lend(self, word: Lend) -> bytes:
        """Answer another device's request, behind all of this one's own; raises `OipError`."""
        return await self._for_others.lend(word)

    def exact_of(self, asked: int) -> tuple[bytes | bytearray, int | None] | None:
        """See `Elsewhere.exact_of`."""
        return None if self.elsewhere is None else self.elsewhere.exact_of(asked)

    async def run_lent(self, word: Lend, question: Question, resident: Resident, lane: str, size_bytes: int) -> Tensors:
        """Have a model run for another device, or again for this one; raises `OipError`."""
        run = resident.service.steps(lane, question.inputs)
        if run.units > word.units:
            self.counters["malformed"] += 1
            raise OipError(400, f"a borrowed request has {run.units} items and says {word.units}")
        deadline_ns = time.monotonic_ns() + word.left_ms * 1_000_000
        priority = _PRIORITIES[question.priority] if word.is_own else LENT
        outputs = await self.run_steps(resident, lane, run, size_bytes, priority, deadline_ns, word.turn_ns)
        self.counters["lent"] += not word.is_own
        return outputs

    async def _borrow_unknown(
        self, call: Call, name: str, version: str, rest: list[str], able: tuple[str, int]
    ) -> Answer:
        """Have another device answer for a model that is not here."""
        if rest == ["infer"]:
            self._judge_place(call)
        if not able[0] and not (len(version) == DIGEST_CHARS and set(version) <= set("0123456789abcdef")):
            raise OipError(
                404,
                f"{name[:80]!r} is not served here; to borrow it name its digest, all {DIGEST_CHARS} digits: "
                "/v2/models/NAME/versions/DIGEST, or `swarmd infer --version DIGEST`",
            )
        lane = lane_of(name)
        match call.method, rest:
            case "GET" | "HEAD", []:
                what = METADATA
            case "POST", ["infer"]:
                what = INFER
            case _:
                raise OipError(404, "only a model's metadata and `infer` can be borrowed")
        return await self._borrow(errand_of(call, what, lane, "" if able[0] else version, self._deadline_ms, able))

    async def _borrow(self, errand: Errand, own: Own | None = None) -> Answer:
        assert self.elsewhere is not None
        try:
            found = await self.elsewhere.ask(errand, own)
        except OipError:
            self.counters["not_borrowed"] += 1
            raise
        self.counters["borrowed" if found.lender else "answered"] += 1
        return borrowed(found)

    async def _run_behind(self, own: Own, deadline_ns: int) -> Tensors:
        """Have the own model answer when there is nothing else to do."""
        return await self.run_own(own, LENT, deadline_ns)

    async def run_own(self, own: Own, priority: int, deadline_ns: int) -> Tensors:
        """Have the own model answer; raises `OipError`."""
        inputs = own.question.inputs
        steps = own.resident.service.steps(own.lane, inputs)
        size_bytes = sum(array.nbytes for array in inputs.values())
        return await self.run_steps(own.resident, own.lane, steps, size_bytes, priority, deadline_ns)

    async def run_steps(
        self, resident: Resident, lane: str, run: Run, size_bytes: int, priority: int, deadline_ns: int,
        turn_ns: int = 0,
    ) -> Tensors:  # fmt: skip
        """Have a model that is here do something; raises `OipError`."""
        return await self._answer(self._admit(run, resident, lane, size_bytes, priority, deadline_ns, turn_ns))

    async def _infer_somewhere(
        self, call: Call, name: str, resident: Resident, lane: str, able: tuple[str, int]
    ) -> Answer:
        """Here, or where the program allows it, at another: where this device is too busy, or another is quicker."""
        least = CROPS if wants_plan(call) else FRAMES
        # What may not leave is answered here, as if the program had not said that it may.
        is_free = LEVELS.index(self._leave) >= LEVELS.index(least)
        elsewhere = self.elsewhere if may_leave(call) and is_free else None
        wants_soonest = elsewhere is not None and wants_quickest(call) and elsewhere.may_travel(call.body)
        is_busy = not (wants_soonest and self.batcher.unit_ns(resident.digest))
        walks = elsewhere is not None and wants_plan(call)
        if is_busy and not walks:
            try:
                return await self._infer(call, name, resident, lane)
            except BusyError:
                if elsewhere is None:
                    raise
        json_bytes = json_length(call)
        question = self.read(call.body, json_bytes, resident, lane)
        self._judge_place(call, question.priority)
        judge_copies(call, question.copies)
        units = self._units(resident.service.steps(lane, question.inputs))
        left_ms = min(TIMEOUT_MAX_MS, question.timeout_us // 1000) or self._deadline_ms
        priority = _PRIORITIES[question.priority]
        errand = Errand(
            resident.digest, INFER, lane, json_bytes, call.body, units, left_ms, able, keep_ms_of(call),
            priority=priority, cause=cause_of(call), copies=question.copies, form=wish_of(call),
        )  # fmt: skip
        own = Own(resident, lane, question, units, is_busy)
        if not walks:
            return await self._borrow(errand, own)
        if self.cascading is None or lane != DETECT:
            raise OipError(400, "`Swarmd-Borrow: unsure` wants lending.plan, and a picture (MODEL.detect)")
        answer = await self.cascading.answer(name, own, errand, priority)
        self.counters["answered"] += 1
        return answer

    # --- Inference ----------------------------------------------------------------------------------------------

    async def _infer(self, call: Call, name: str, resident: Resident, lane: str) -> Answer:
        question = self.read(call.body, json_length(call), resident, lane)
        self._judge_place(call, question.priority)
        judge_copies(call, question.copies)
        run = resident.service.steps(lane, question.inputs)
        self._units(run)
        timeout_ns = question.timeout_us * 1000 or self._deadline_ms * 1_000_000
        deadline_ns = time.monotonic_ns() + min(timeout_ns, TIMEOUT_MAX_MS * 1_000_000)
        priority = _PRIORITIES[question.priority]
        pieces, json_bytes = await self._run(name, question, run, resident, lane, len(call.body), priority, deadline_ns)
        self.counters["answered"] += 1
        return Answer(200, pieces, (JSON,) if json_bytes is None else binary(json_bytes))

    def read(
        self, body: bytes | bytearray, json_bytes: int | None, resident: Resident, lane: str, not_decoded: str = ""
    ) -> Question:
        """Read a request for a model that is here; raises `OipError`."""
        service = resident.service
        try:
            return read_question(body, json_bytes, service.inputs(lane), service.outputs(lane), not_decoded)
        except OipError:
            self.counters["malformed"] += 1
            raise

    def _judge_place(self, call: Call, priority: int = NORMAL) -> None:
        """Whether a request may be begun although all places are taken."""
        if call.is_extra and priority != HIGH:
            self.counters["full"] += 1
            raise OipError(503, "too many programs wait for an answer; ask again in a moment, or with priority 1")

    def _units(self, run: Run) -> int:
        if run.units > UNITS_MAX:
            self.counters["malformed"] += 1
            raise OipError(400, f"the request has {run.units} items; at most {UNITS_MAX} in one")
        return run.units

    async def _run(
        self,
        name: str,
        question: Question,
        run: Run,
        resident: Resident,
        lane: str,
        size_bytes: int,
        priority: int,
        deadline_ns: int,
    ) -> tuple[list[bytes], int | None]:
        began_ns = time.monotonic_ns()
        outputs = await self._answer(self._admit(run, resident, lane, size_bytes, priority, deadline_ns))
        head = {
            "model_name": name, "model_version": resident.digest, "id": question.id,
            "parameters": {"took_us": (time.monotonic_ns() - began_ns) // 1000},
        }  # fmt: skip
        return write_answer(head, outputs, question.wanted)

    def _admit(
        self, run: Run, resident: Resident, lane: str, size_bytes: int, priority: int, deadline_ns: int,
        turn_ns: int = 0,
    ) -> _Pending:  # fmt: skip
        now_ns = time.monotonic_ns()
        self._numbers += 1
        target = Target(resident.digest, lane)
        request = Request(self._numbers, target, priority, run.units, size_bytes, deadline_ns, turn_ns)
        refusal, pushed_out = self.batcher.offer(request, now_ns)
        for victim in pushed_out:
            self._fail(victim.number, "pushed_out", OipError(503, "more urgent requests have filled the queue"))
        if refusal is Refusal.FULL:
            self.counters["full"] += 1
            raise BusyError(503, "the queue is full; ask again in a moment, or another device")
        if refusal is Refusal.LATE:
            self.counters["refused_late"] += 1
            raise BusyError(503, "this device cannot answer by the deadline; ask another, or allow more time")
        self.residency.acquire(resident)
        pending = _Pending(request, run, resident, self._loop.create_future(), now_ns)
        self._pending[request.number] = pending
        if self.batcher.is_outranked():
            self._runner.outrank()
        self._pump()
        return pending

    async def _answer(self, pending: _Pending) -> Tensors:
        left_s = max(0.0, (pending.request.deadline_ns - time.monotonic_ns()) / 1e9)
        alarm = self._loop.call_later(left_s, _ring, pending, self.counters)
        try:
            return await pending.answer
        finally:
            alarm.cancel()
            # One that already runs keeps its bundle until it has run.
            if self.batcher.withdraw(pending.request.number):
                self._forget(pending.request.number)

    def _pump(self) -> None:
        """Start the next batch, if none runs."""
        now_ns = time.monotonic_ns()
        for request in self.batcher.expire(now_ns):
            self._fail(request.number, "late", late())
        batch = self.batcher.take(now_ns)
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

    def _ran(self, number: int, outcome: Outcome) -> None:
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
        if ran.last is not None:
            self._ran(*ran.last)
        self.batcher.finish(ran.done, ran.units, ran.took_ns)
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
