"""The worker process: a socket on loopback, a thread that infers, a thread that loads.

The loop reads requests and decides; it never runs a model. What a hang in native code stops is the runner's thread:
the pulse says for how long, requests get their 504, and the brain ends the process.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from swarmd.ends import run_and_end
from swarmd.errors import TransportError
from swarmd.eye.gate import EyeGate
from swarmd.eye.link import die_with_parent
from swarmd.worker.api import InferenceApi
from swarmd.worker.batcher import Batcher, BatcherConfig
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.energy import EnergyWatch, find_meter
from swarmd.worker.http_server import InferenceServer
from swarmd.worker.lent import PASSED_ON, pack_complaint
from swarmd.worker.oip import OipError
from swarmd.worker.residency import NotResidentError
from swarmd.worker.runner import Runner, run_only_when_idle
from swarmd.worker.texting import Texting
from swarmd.worker.words import (
    CANNOT_BIND_STATUS,
    MAX_LINE_BYTES,
    Borrowed,
    Drop,
    FromWorker,
    Lend,
    Lenders,
    Load,
    Loaded,
    Look,
    Looked,
    Malformed,
    Problem,
    Pulse,
    Ran,
    Serve,
    Serving,
    ToWorker,
    decode_to_worker,
    encode,
)
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.detector import DetectorOptions
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.opencv import ready, use_threads
from swarmd_models.service import Service

if TYPE_CHECKING:
    from swarmd.worker.grpc_server import GrpcServer
    from swarmd.worker.lane import Fetcher, Shelf

PULSE_S = 1.0
"""Seconds between two pulses."""
LOOKS = 4
"""At the power meter between two pulses; a sensor on a bus takes a millisecond."""
PROBLEM_MAX_CHARS = 2_000
"""Of a sentence about a bundle, which may quote it: the brain ends a worker whose line passes `MAX_LINE_BYTES`."""


class WorkerProcess:
    """Everything of one worker."""

    def __init__(self, config: Serve, out: BinaryIO) -> None:
        """Prepare; `run` binds."""
        self._config = config
        self._out = out
        self._runner = Runner(EyeGate(config.gate_fd) if config.gate_fd >= 0 else None)
        batching = BatcherConfig(config.max_requests, batch_ns=round(config.batch_ms * 1e6))
        self._borrowing = Borrowing(self._say) if config.borrows else None
        self._shelf: Shelf | None = None
        self._fetcher: Fetcher | None = None
        if config.lane or config.lends or config.split:
            from swarmd.worker import lane

            self._shelf = lane.Shelf(config.max_request_bytes, self._bodies_bytes) if config.lane else None
            self._fetcher = lane.Fetcher(config.max_request_bytes) if config.lends or config.split else None
        self._api = InferenceApi(
            Batcher(batching),
            self._runner,
            config.deadline_ms,
            self._borrowing,
            self._shelf,
            self._fetcher,
            config.leave,
            config.jpeg_quality,
        )
        self._api.on_malformed = lambda borrower: self._say(Malformed(borrower))
        if config.is_idle or config.lends:
            ready()  # Now: beside an eye there may be no time for it later, and a borrower's deadline would pass by it.
        self._file_problems: list[str] = []
        """What is wrong with files that the configuration names; the rest is served."""
        self._read_files()
        self._energy = EnergyWatch(*find_meter())
        self._lent: dict[int, asyncio.Task[None]] = {}
        """Jobs of other devices."""
        self._server = InferenceServer(self._api.handle, self._api.complain, config.max_request_bytes)
        self._grpc: GrpcServer | None = None
        self._grpc_problem = ""
        self._loader = ThreadPoolExecutor(1, "load")
        self._looker = ThreadPoolExecutor(1, "look")
        """Asks for the own brain; what it has to wait for, others wait behind."""
        self._address = ""
        self._stop = asyncio.Event()
        self._loading: set[asyncio.Task[None]] = set()

    def _read_files(self) -> None:
        config, api = self._config, self._api
        api.texting = Texting(api, config.deadline_ms, config.session_key)
        if api.elsewhere is None:
            return
        from swarmd.worker.fleet import Fleet

        api.fleet = Fleet(api)
        if config.plan:
            from swarmd.worker.cascade import Cascading, PlanError, read_plans

            try:
                api.cascading = Cascading(read_plans(config.plan), api.run_own, api.elsewhere.ask, config.leave)
            except PlanError as error:
                self._file_problems.append(str(error))
        if config.split:
            from swarmd.worker.splitting import SplitError, Splitting, read_splits

            try:
                api.splitting = Splitting(read_splits(config.split), api, config.deadline_ms)
            except SplitError as error:
                self._file_problems.append(str(error))

    def _bodies_bytes(self) -> int:
        grpc_bytes = 0 if self._grpc is None else self._grpc.held_bytes
        return self._server.held_bytes + grpc_bytes + (0 if self._fetcher is None else self._fetcher.held_bytes)

    async def run(self, words: asyncio.StreamReader) -> int:
        """Serve until the brain has gone or hears no more; the exit status."""
        if self._config.is_idle and (problem := run_only_when_idle()):
            self._say(Problem(problem))
        try:
            lane = "" if self._shelf is None else self._shelf.start(self._config.lane)
            address = await self._server.start(self._config.listen)
            self._address = address
            self._say(Serving(address, lane, await self._start_grpc()))
        except TransportError as error:
            self._say(Problem(str(error)))
            return CANNOT_BIND_STATUS
        for problem in filter(None, (self._grpc_problem, *self._file_problems)):  # `Serving` clears older ones.
            self._say(Problem(problem))
        pulse = asyncio.create_task(self._pulse())
        obey = asyncio.create_task(self._obey(words))
        await self._stop.wait()
        for task in (pulse, obey):
            task.cancel()
        await self._server.close()
        if self._grpc is not None:
            await self._grpc.close()
        for one in (self._shelf, self._fetcher):
            if one is not None:
                one.close()
        return 0

    async def _start_grpc(self) -> str:
        """gRPC's address; without its library the rest is served all the same. Raises `TransportError`."""
        if not self._config.grpc:
            return ""
        try:
            from swarmd.worker.grpc_server import GrpcServer
        except ImportError as error:
            self._grpc_problem = f"inference.grpc: {error}; install it: pip install 'swarmd[grpc]'"
            return ""
        self._grpc = GrpcServer(self._api.handle, self._config.max_request_bytes)
        return await self._grpc.start(self._config.grpc)

    def _say(self, word: FromWorker) -> None:
        try:
            self._out.write(encode(word))
            self._out.flush()
        except OSError:
            self._stop.set()

    async def _pulse(self) -> None:
        while True:
            counters = self._api.counts() | {"connections_refused": self._server.refused}
            gauges = self._api.gauges() | {"connections": float(self._server.connections)}
            watts = self._energy.watts() or 0.0
            busy_ms = self._runner.busy_ns // 1_000_000
            self._say(Pulse(busy_ms, counters, gauges, *self._api.stock(), watts, self._energy.told, self._api.asks()))
            for _ in range(LOOKS):
                self._energy.sample(time.monotonic_ns(), self._api.run_ns, self._runner.busy_ns > 0)
                await asyncio.sleep(PULSE_S / LOOKS)

    async def _obey(self, words: asyncio.StreamReader) -> None:
        """Until the brain has gone; a line that cannot be read, or done, ends a worker that would be well, and deaf."""
        try:
            while line := await words.readline():
                self._do(decode_to_worker(line))
        finally:
            self._stop.set()

    def _do(self, word: ToWorker) -> None:
        match word:
            case Load():
                self._keep(self._load(word))
            case Lend():
                self._lend(word)
            case Lenders():
                if self._api.fleet is not None:
                    self._api.fleet.on_lenders(word)
                if self._api.elsewhere is not None:
                    self._api.elsewhere.lenders = word.bundles
            case Look():
                self._keep(self._look(word))
            case Drop(job):
                if (lent := self._lent.get(job)) is not None:
                    lent.cancel()
            case Borrowed():
                if self._borrowing is not None:
                    self._borrowing.on_answer(word)
            case Serve():
                self._say(Problem("a worker is configured once; the second configuration was ignored"))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _look(self, word: Look) -> None:
        from swarmd.worker.looking import look

        try:
            served = self._served(word.model)
            said = await asyncio.get_running_loop().run_in_executor(self._looker, look, word, self._address, served)
        except Exception as error:  # The brain waits for one answer, and asks nothing else before it.
            said = Looked(word.number, None, reason=f"{type(error).__name__}: {error}"[:300])
        self._say(said)

    def _served(self, model: str) -> Bundle | None:
        """The newest bundle that is served under a name; None: there is none."""
        try:
            return self._api.residency.find(model)[0].service.bundle
        except NotResidentError:
            return None

    def _lend(self, word: Lend) -> None:
        task = self._lent[word.job] = asyncio.create_task(self._answer(word))
        task.add_done_callback(lambda _: self._lent.pop(word.job, None))

    async def _answer(self, word: Lend) -> None:
        try:
            data: bytes | None = await self._api.lend(word)
        except OipError as error:  # The borrower asks another, unless all would say the same; the counters say why.
            data = pack_complaint(word.digest, error) if error.status in PASSED_ON else None
        except Exception:  # A bug that a borrower has found must not keep its job here until the deadline.
            self._say(Ran(word.job, None))
            raise  # asyncio tells it.
        self._say(Ran(word.job, data))

    async def _load(self, word: Load) -> None:
        loop, model = asyncio.get_running_loop(), word.model
        try:
            service = await loop.run_in_executor(self._loader, self._open, model, word.labels)
        except ModelError as error:
            self._say(Problem(str(error)[:PROBLEM_MAX_CHARS], model=model))
            return
        except Exception as error:  # Files that are no model make a runtime raise anything; the others are served on.
            text = f"{model} cannot be loaded: {type(error).__name__}: {error}"
            self._say(Problem(text[:PROBLEM_MAX_CHARS], model=model))
            return
        try:
            self._api.residency.add(service, word.ability, word.grade_milli)
        except NotResidentError as error:
            self._runner.call(service.close)
            self._say(Problem(str(error), model=model))
            return
        bundle = service.bundle
        self._say(Loaded(model, bundle.name, bundle.version, bundle.digest, service.backend.kind))

    def _open(self, model: str, labels: str) -> Service:
        options = DetectorOptions(self._config.backends, self._config.threads)
        bundle = load_bundle(model, labels or None)
        service = Service.open(bundle, options, lambda text: None)
        # The runtime has opened the files again: what was replaced in between must not answer under this digest.
        try:
            if load_bundle(model, labels or None).digest != bundle.digest:
                raise ArtefactError(f"{model} has changed while it was loaded; load it again")
        except ModelError:
            service.close()
            raise
        return service


async def _main(config: Serve, out: BinaryIO) -> int:
    reader = asyncio.StreamReader(MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return await WorkerProcess(config, out).run(reader)


def main() -> int:
    """Run as the child of a brain, which speaks on standard input."""
    faulthandler.enable()
    die_with_parent()
    # Ctrl-C reaches the whole process group; the brain decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_threads(1)
    # Native libraries print where they like; our words have a descriptor of their own.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Unbuffered: what follows the first line belongs to the loop.
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    try:
        config: ToWorker | None = decode_to_worker(line)
    except msgspec.DecodeError:
        config = None
    if not isinstance(config, Serve):
        sys.stderr.write("swarmd.worker is started by swarmd, not by hand; see docs/inference-api.md\n")
        return 2
    return run_and_end(lambda: asyncio.run(_main(config, out)))
