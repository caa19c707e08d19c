"""The inference API over gRPC: NVIDIA's client unchanged, and what no client may do to it."""

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swarmd.worker.oip_grpc import INFER_REQUEST, INFER_RESPONSE
from swarmd.worker.protobuf import decode, encode
from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.integration.test_inference_api import LABELS, bundle
from tests.support.inference_worker import working
from tests.support.mutants import assert_found
from tests.support.paths import ROOT
from tests.unit.test_inference_api_laws import World, law

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (swarmd[grpc])")
from swarmd.worker import grpc_server, grpc_streams  # noqa: E402
from swarmd.worker.grpc_server import GrpcServer  # noqa: E402

PATIENCE_S = 60.0
CLIENT = ROOT / ".venv-extras" / "tritonclient" / "bin" / "python"
INFER = "/inference.GRPCInferenceService/ModelInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.mark.skipif(not CLIENT.exists(), reason="tritonclient over gRPC is not installed (make setup-extras)")
def test_nvidias_client_works_unchanged(tmp_path: Path) -> None:
    path = bundle(tmp_path / "one", LABELS)
    digest = load_bundle(path).digest
    with working(grpc="127.0.0.1:0") as worker:
        worker.load(path)
        serving = next(word for word in worker.said if getattr(word, "grpc", ""))
        script = ROOT / "tests" / "support" / "triton_grpc.py"
        done = subprocess.run(
            [str(CLIENT), str(script), serving.grpc, "m", digest],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["live"] == [True, True]
    assert seen["ready"] == [True, True, False]
    assert seen["server"]["name"] == "swarmd"
    assert seen["model"]["versions"] == [digest]
    assert seen["model"]["inputs"][0]["shape"][1:] == ["256", "320", "1"]
    assert seen["index"] == ["m", "m.detect"]
    assert (seen["id"], seen["version"]) == ("7", digest)
    picture = (np.arange(256 * 320) % 251).astype(np.uint8).reshape(256, 320)
    mine = Detector.open(load_bundle(path), DetectorOptions()).detect(picture)
    assert seen["labels"] == [one.label for one in mine]
    assert seen["scores"] == pytest.approx([one.score for one in mine])
    assert seen["shapes"] == {"boxes": [len(mine), 4], "scores": [len(mine)], "labels": [len(mine)]}
    assert seen["async"] == seen["scores"]
    assert seen["stream"] == ["0", "1", "2", "error", "4", "5"], "in order, and an error ends nothing"
    refused = seen["refused"]
    assert refused["unknown"][0] == refused["version"][0] == "StatusCode.NOT_FOUND"
    assert refused["shape"][0] == "StatusCode.INVALID_ARGUMENT"
    assert "has shape [256, 320]; [-1, -1, -1] is wanted" in refused["shape"][1]


# --- laws -----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(
    max_body_bytes: int = 1 << 20, options: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[tuple[World, GrpcServer, Any]]:
    world = World()
    server = GrpcServer(world.api.handle, max_body_bytes)
    address = await server.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield world, server, channel
    finally:
        for _ in range(1000):
            world.held.go.release()
        await server.close()


def question(*items: float, name: str = "m") -> bytes:
    row = {"name": "x", "datatype": "FP32", "shape": [len(items)]}
    raw = np.array(items, np.float32).tobytes()
    parameters = {"timeout": {"int64_param": 60_000_000}}
    message = {"model_name": name, "parameters": parameters, "inputs": [row], "raw_input_contents": [raw]}
    return encode(INFER_REQUEST, message)


def numbers(data: bytes) -> list[float]:
    (raw,) = decode(INFER_RESPONSE, data)["raw_output_contents"]
    return np.frombuffer(raw, np.float32).tolist()  # type: ignore[no-any-return]


@law
async def test_a_client_that_hangs_up_frees_its_request() -> None:
    async with served() as (world, server, channel):
        call = channel.unary_unary(INFER)
        first = asyncio.ensure_future(_awaited(call(question(1.0))))
        await world.until(lambda: world.held.began, "the first to run")
        gone = [call(question(2.0)) for _ in range(5)]
        await world.until(lambda: world.batcher.waiting == 5, "five to wait")
        for one in gone:
            one.cancel()
        await world.until(lambda: world.batcher.waiting == 0, "what they asked to be forgotten")
        world.held.go.release()
        assert numbers(await first) == [2.0]
        assert world.held.began == [1.0]
        await world.until(lambda: server.held_bytes == 0, "their bytes to be free")


@law
async def test_a_stream_keeps_its_order_and_has_one_question_under_way() -> None:
    async with served() as (world, _, channel):
        stream = channel.stream_stream(STREAM)()
        for number in range(3):
            await stream.write(question(float(number)))
        for number in range(3):
            await world.until(lambda number=number: len(world.held.began) == number + 1, "the next to run")  # type: ignore[misc]
            assert world.batcher.waiting == 0
            world.held.go.release()
            async with asyncio.timeout(PATIENCE_S):
                await stream.read()
        await stream.done_writing()
        assert world.held.began == [0.0, 1.0, 2.0]


@law
async def test_bounds_are_told_as_such() -> None:
    async with served(max_body_bytes=1 << 16) as (world, server, channel):
        call = channel.unary_unary(INFER)
        for data, code in (
            (bytes(1 << 18), "RESOURCE_EXHAUSTED"),
            (b"\xff" * 10, "INVALID_ARGUMENT"),
            (question(1.0, name="none"), "NOT_FOUND"),
        ):
            assert await _code(call(data)) == code
        server._held_bytes = grpc_server.BODIES_MAX_BYTES
        assert await _code(call(question(1.0))) == "UNAVAILABLE"
        assert world.held.began == []


@law
async def test_streams_that_nobody_asks_keep_nobody_out() -> None:
    """Who comes when all places are taken has that of the stream that waited longest; one that is answered stays."""
    async with served() as (world, server, channel):
        busy = channel.stream_stream(STREAM)()
        await busy.write(question(0.0))
        await world.until(lambda: world.held.began == [0.0], "the first to run")
        idle, answered = [], 0
        with contextlib.suppress(TimeoutError):
            for _ in range(2 * grpc_server.CALLS_MAX):
                idle.append(channel.stream_stream(STREAM)())
                async with asyncio.timeout(PATIENCE_S):
                    await idle[-1].write(b"\xff" * 10)
                    answered += await idle[-1].read() != grpc.aio.EOF
        assert answered == 2 * grpc_server.CALLS_MAX
        assert await _code(channel.unary_unary(LIVE)(b"")) == "OK"
        async with asyncio.timeout(PATIENCE_S):
            assert await idle[0].code() == grpc.StatusCode.UNAVAILABLE
            assert "waited longest" in await idle[0].details()
        world.held.go.release()
        async with asyncio.timeout(PATIENCE_S):
            assert await busy.read() != grpc.aio.EOF
        for stream in (busy, *idle):
            stream.cancel()
        await world.until(lambda: not len(server._streams), "all to be over")


@law
async def test_streams_that_nobody_reads_keep_nobody_out() -> None:
    """They ask without end and take no answer: after a while their places are others'. Of two places, to fill them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpc_streams, "STREAMS_MAX", 2)
        await _nobody_reads()


async def _nobody_reads() -> None:
    few = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]  # What a client takes unread.
    async with served(options=few) as (world, server, channel):
        streams = [channel.stream_stream(STREAM)() for _ in range(2)]

        async def asks(stream: Any) -> None:
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, asyncio.CancelledError):
                while True:
                    await stream.write(b"\xff" * 10)

        asking = [asyncio.ensure_future(asks(stream)) for stream in streams]
        telling = server._streams._telling
        stuck = grpc_streams.UNREAD_S / 2
        await world.until(
            lambda: len(telling) == len(streams) and max(telling.values()) < time.monotonic() - stuck, "all to be stuck"
        )
        await asyncio.sleep(stuck)
        first = next(iter(telling))
        another, answered = channel.stream_stream(STREAM)(), False
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with asyncio.timeout(PATIENCE_S):
                await another.write(b"\xff" * 10)
                answered = await another.read() != grpc.aio.EOF
        assert answered
        assert len(server._streams) == 2
        await world.until(lambda: first._task is not None and first._task.done(), "the one that lost its place to end")
        for one in (another, *streams):
            one.cancel()
        await asyncio.wait(asking)
        await world.until(lambda: not len(server._streams), "all to be over")


async def _awaited(call: Any) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return bytes(await call)


async def _code(call: Any) -> str:
    try:
        await _awaited(call)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


def _errors_have_no_code(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grpc_server, "_CODES", {})


def _streams_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grpc_streams.StreamPlaces, "enter", lambda self, stream: self._working.add(stream))
    patch.setitem(globals(), "PATIENCE_S", 5.0)


def _whoever_is_told_works(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grpc_streams, "UNREAD_S", 1.0)
    enter = grpc_streams.StreamPlaces.enter

    def enters(self: grpc_streams.StreamPlaces, stream: grpc_streams.Stream) -> None:
        telling, self._telling = self._telling, {}
        try:
            enter(self, stream)
        finally:
            self._telling = telling

    patch.setattr(grpc_streams.StreamPlaces, "enter", enters)


def _who_lost_its_place_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grpc_streams.Stream, "cut", lambda self: None)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_errors_have_no_code, test_bounds_are_told_as_such),
    (_streams_stay, test_streams_that_nobody_asks_keep_nobody_out),
    (_whoever_is_told_works, test_streams_that_nobody_reads_keep_nobody_out),
    (_who_lost_its_place_goes_on, test_streams_that_nobody_reads_keep_nobody_out),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_of_grpc_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
