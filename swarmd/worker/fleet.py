"""Batches over the whole fleet: jobs of programs here, done by whoever is idle, this device or a lender.

A program sends many requests with `Swarmd-Borrow: fleet`, each a job; `swarmd_protocols.offload.stealing` says who does
which, and an answer asks for the next. On this device a job runs as at a lender, behind all that programs want at once,
and beside the spot checks that find a lender who lies. What is on its way to one that dies comes back and goes to
another.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from swarmd.worker.answers import JSON, binary, borrowed, late
from swarmd.worker.batcher import LENT, LOW, Batcher
from swarmd.worker.elsewhere import Elsewhere, Errand, Found, Own, errand_of, json_length
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.lent import INFER
from swarmd.worker.oip import OipError, read_question, write_answer
from swarmd.worker.residency import NotResidentError, Residency, Resident, lane_of
from swarmd.worker.words import Lenders
from swarmd_models.service import Tensors
from swarmd_protocols.offload.stealing import Lease, Pool

_HERE = ""
"""This device, among pullers."""
_POOLS_MAX = 8
"""Bundles of batches at once."""
_LOOK_S = 0.1
"""Seconds between two looks at leases that are over and pullers that are idle again."""
_UNMEASURED_NS = 100_000_000
"""What a model is taken to need that has not run yet."""
_DIGEST_CHARS = 64


class Device(Protocol):
    """What batches need of the worker (`InferenceApi`)."""

    residency: Residency
    batcher: Batcher
    elsewhere: Elsewhere | None

    async def run_own(self, own: Own, priority: int, deadline_ns: int) -> Tensors:
        """Have the own model answer; raises `OipError`."""
        ...


@dataclass(slots=True)
class _Job:
    errand: Errand
    own: Own | None
    name: str
    until_ns: int
    answer: "asyncio.Future[Answer]"
    error: OipError
    """Why it has none so far."""


@dataclass(slots=True)
class _Batch:
    """All jobs of one bundle and lane."""

    digest: str
    resident: Resident | None
    pool: Pool
    jobs: dict[int, _Job]
    tasks: dict[int, "asyncio.Task[None]"]
    """By lease."""


class Fleet:
    """Batches of this device's programs."""

    def __init__(self, device: Device) -> None:
        """Nobody lends yet."""
        self._device = device
        self._lenders: dict[str, dict[str, int]] = {}
        self._batches: dict[tuple[str, str], _Batch] = {}
        self._numbers = 0
        self._looking: asyncio.Task[None] | None = None
        self._ended: Counter[str] = Counter()

    @property
    def counters(self) -> Counter[str]:
        """fleet_leases, fleet_doubled, fleet_failed, fleet_overdue, fleet_answered, fleet_too_late, fleet_given_up."""
        pools = (batch.pool.counts for batch in self._batches.values())
        return Counter({f"fleet_{name}": count for name, count in sum(pools, self._ended).items()})

    def on_lenders(self, word: Lenders) -> None:
        """Who lends what just now."""
        self._lenders = word.bundles
        self._pump()

    async def handle(self, call: Call, name: str, version: str, deadline_ms: int) -> Answer:
        """Answer a program whose request is a job of a batch; raises `OipError`."""
        lane = lane_of(name)
        resident = self._resident(name, version)
        digest = version if resident is None else resident.digest
        if len(digest) != _DIGEST_CHARS:
            raise OipError(404, f"{name[:80]!r} is not served here; name the digest of what lenders are to run")
        errand = errand_of(call, INFER, lane, digest, deadline_ms)
        own = None
        if resident is not None:
            service = resident.service
            question = read_question(call.body, json_length(call), service.inputs(lane), service.outputs(lane))
            own = Own(resident, lane, question, errand.units, False)
        batch = self._batch(digest, lane, resident)
        self._numbers += 1
        number, until_ns = self._numbers, time.monotonic_ns() + errand.left_ms * 1_000_000
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if not batch.pool.put(number):
            raise OipError(503, "too many jobs of batches wait; send the next when one is answered")
        batch.jobs[number] = _Job(errand, own, name, until_ns, answer, late())
        self._pump()
        try:
            async with asyncio.timeout(errand.left_ms / 1e3):
                return await answer
        except TimeoutError as error:
            raise late() from error
        finally:
            batch.jobs.pop(number, None)
            for lease in batch.pool.drop(number):
                self._cancel(batch, lease)
            if not batch.jobs:
                self._ended += batch.pool.counts
                batch.pool.counts.clear()

    def _resident(self, name: str, version: str) -> Resident | None:
        try:
            return self._device.residency.find(name, version)[0]
        except NotResidentError:
            return None

    def _batch(self, digest: str, lane: str, resident: Resident | None) -> _Batch:
        key = digest, lane
        found = self._batches.get(key)
        if found is None:
            for idle in [key for key, one in self._batches.items() if not one.jobs]:
                del self._batches[idle]
            if len(self._batches) >= _POOLS_MAX:
                raise OipError(503, f"batches of {_POOLS_MAX} models are under way; ask again when one is through")
            found = self._batches[key] = _Batch(digest, resident, Pool(), {}, {})
        found.resident = resident
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return found

    async def _look(self) -> None:
        while any(batch.jobs for batch in self._batches.values()):
            await asyncio.sleep(_LOOK_S)
            for batch in self._batches.values():
                for lease in batch.pool.overdue(time.monotonic_ns()):
                    self._cancel(batch, lease)
                    self._settle_given_up(batch, lease.job)
            self._pump()

    def _pump(self) -> None:
        """Send what is to be sent now."""
        for batch in self._batches.values():
            units_ns = dict(self._lenders.get(batch.digest, {}))
            if batch.resident is not None:
                units_ns[_HERE] = self._device.batcher.unit_ns(batch.digest) or _UNMEASURED_NS
            for lease in batch.pool.offered(units_ns):
                self._cancel(batch, lease)
            for lease in batch.pool.take(time.monotonic_ns()):
                batch.tasks[lease.number] = asyncio.create_task(self._run(batch, lease))

    def _cancel(self, batch: _Batch, lease: Lease) -> None:
        task = batch.tasks.pop(lease.number, None)
        if task is not None:
            task.cancel()

    async def _run(self, batch: _Batch, lease: Lease) -> None:
        job, began_ns = batch.jobs[lease.job], time.monotonic_ns()
        try:
            answer = await self._ask(job, lease)
        except OipError as error:
            job.error = error
            if lease.puller == _HERE and error.status == 400 and not job.answer.done():
                job.answer.set_exception(error)  # The own model's word: it would be the same everywhere.
            batch.tasks.pop(lease.number, None)
            if batch.pool.failed(lease.number, time.monotonic_ns()) is not None:
                self._settle_given_up(batch, lease.job)
        else:
            batch.tasks.pop(lease.number, None)
            now_ns = time.monotonic_ns()
            ran_ns = now_ns - began_ns if lease.puller == _HERE else 0
            found = batch.pool.done(lease.number, ran_ns, now_ns)
            if found is not None:
                for other in found[1]:
                    self._cancel(batch, other)
                if not job.answer.done():
                    job.answer.set_result(answer)
        self._pump()

    def _settle_given_up(self, batch: _Batch, number: int) -> None:
        job = batch.jobs.get(number)
        if job is not None and number not in batch.pool and not job.answer.done():
            job.answer.set_exception(OipError(503, f"nobody of the fleet has done the job: {job.error}"))

    async def _ask(self, job: _Job, lease: Lease) -> Answer:
        left_ms = (min(lease.until_ns, job.until_ns) - time.monotonic_ns()) // 1_000_000
        if left_ms < 1:
            raise late()
        if lease.puller == _HERE:
            assert job.own is not None
            return await self._here(job, job.own, time.monotonic_ns() + left_ms * 1_000_000)
        elsewhere, errand = self._device.elsewhere, job.errand
        assert elsewhere is not None
        placed = Errand(
            errand.digest, INFER, errand.lane, errand.json_bytes, errand.body, errand.units, left_ms, by_lane=True,
            only=lease.puller, is_patient=False, priority=LOW, form=errand.form,
        )  # fmt: skip
        found: Found = await elsewhere.ask(placed, job.own)  # Which holds it against the own model now and then.
        return borrowed(found)

    async def _here(self, job: _Job, own: Own, deadline_ns: int) -> Answer:
        began_ns = time.monotonic_ns()
        outputs = await self._device.run_own(own, LENT, deadline_ns)
        head = {
            "model_name": job.name, "model_version": own.resident.digest, "id": own.question.id,
            "parameters": {"took_us": (time.monotonic_ns() - began_ns) // 1000},
        }  # fmt: skip
        pieces, json_bytes = write_answer(head, outputs, own.question.wanted)
        return Answer(200, pieces, (JSON,) if json_bytes is None else binary(json_bytes))
