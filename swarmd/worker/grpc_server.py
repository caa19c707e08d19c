"""gRPC for the inference API, on loopback only: the same calls as over HTTP, for clients that speak it.

Generic handlers, so that no generated code and no Protocol Buffers library is needed. What one client can hold is
bounded: calls at once, a message (before it is read), the bodies of all calls together. Browsers do not speak gRPC.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
import msgspec

from swarmd.api.loopback import is_loopback
from swarmd.errors import TransportError
from swarmd.worker import oip_grpc
from swarmd.worker.borrowing import BORROW_HEADER, GRADE_HEADER, KEEP_HEADER
from swarmd.worker.forms import FORM_HEADER
from swarmd.worker.grpc_streams import STREAMS_MAX, Stream, StreamPlaces
from swarmd.worker.http_server import Answer, Call
from swarmd.worker.oip import JSON_LENGTH, OipError
from swarmd.worker.protobuf import Schema
from swarmd.worker.texting import row_of

CALLS_MAX = 2 * STREAMS_MAX
"""At once, streams among them."""
BODIES_MAX_BYTES = 64 << 20
"""Of all calls that are being answered."""
_HEAD_BYTES = 64 << 10
"""Of a message, beside its tensors."""
_SERVICE = "inference.GRPCInferenceService"
_WISHES = (BORROW_HEADER, FORM_HEADER, GRADE_HEADER, KEEP_HEADER)
"""Of a call's metadata what is heard."""
_LENDER = "swarmd-lender"
"""As the answer's header over HTTP is called, in lower case."""
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 403: grpc.StatusCode.PERMISSION_DENIED, 404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
"""By the status over HTTP; others are INTERNAL."""

Handler = Callable[[Call], Awaitable[Answer]]


class GrpcServer:
    """The Open Inference Protocol over gRPC."""

    def __init__(self, handle: Handler, max_body_bytes: int) -> None:
        """`handle` answers calls as they would come over HTTP; a message has `max_body_bytes` of tensors at most."""
        self._handle = handle
        self._max_body_bytes = max_body_bytes
        self._held_bytes = 0
        self._streams = StreamPlaces()
        self._server: Any = None

    @property
    def held_bytes(self) -> int:
        """Of requests that are being answered."""
        return self._held_bytes

    async def start(self, listen: str) -> str:
        """Bind to a loopback HOST:PORT; the address. Raises `TransportError`."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        if not is_loopback(host) or not port.isdigit():
            raise TransportError(f"inference.grpc is {listen}: a loopback address and port, such as 127.0.0.1:7985")
        largest_bytes = self._max_body_bytes + _HEAD_BYTES
        options = [
            ("grpc.max_receive_message_length", largest_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", CALLS_MAX),
            ("grpc.max_metadata_size", 16 << 10),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS_MAX)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, self._methods()),))
        try:
            bound = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise TransportError(f"inference.grpc {listen} cannot be bound; choose another port") from error
        await self._server.start()
        return f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    async def close(self) -> None:
        """Stop; calls under way are ended."""
        if self._server is not None:
            await self._server.stop(None)

    def _methods(self) -> dict[str, Any]:
        answers = {
            "ServerLive": self._live, "ServerReady": self._ready, "ModelReady": self._model_ready,
            "ServerMetadata": self._metadata, "ModelMetadata": self._model_metadata,
            "RepositoryIndex": self._index, "ModelInfer": self._infer,
        }  # fmt: skip
        methods = {name: grpc.unary_unary_rpc_method_handler(_unary(answer)) for name, answer in answers.items()}
        return methods | {"ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream)}

    # --- One message in, one out --------------------------------------------------------------------------------

    async def _live(self, data: bytes, context: Any) -> bytes:
        return _said(oip_grpc.LIVE, {"live": True})

    async def _ready(self, data: bytes, context: Any) -> bytes:
        return _said(oip_grpc.READY, {"ready": (await self._get("/v2/health/ready", context)).status == 200})

    async def _metadata(self, data: bytes, context: Any) -> bytes:
        row = _row(await self._get("/v2", context))
        return _said(oip_grpc.SERVER_METADATA, row)

    async def _model_ready(self, data: bytes, context: Any) -> bytes:
        try:
            await self._get(_path(*oip_grpc.read_named(data)) + "/ready", context)
        except OipError as error:
            if error.status != 404:
                raise
            return _said(oip_grpc.READY, {"ready": False})
        return _said(oip_grpc.READY, {"ready": True})

    async def _model_metadata(self, data: bytes, context: Any) -> bytes:
        row = _row(await self._get(_path(*oip_grpc.read_named(data)), context))
        try:
            ports = {
                side: [{"name": one["name"], "datatype": one["datatype"], "shape": one["shape"]} for one in row[side]]
                for side in ("inputs", "outputs")
            }
            named = {"name": row["name"], "versions": row["versions"], "platform": row["platform"]}
            return _said(oip_grpc.MODEL_METADATA, named | ports)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OipError(502, "a lender's metadata does not hold") from error

    async def _index(self, data: bytes, context: Any) -> bytes:
        answer = await self._handle(Call("POST", "/v2/repository/index", {}, bytearray()))
        return _said(oip_grpc.REPOSITORY_INDEX, {"models": msgspec.json.decode(b"".join(answer.pieces))})

    async def _infer(self, data: bytes, context: Any) -> bytes:
        return _said(oip_grpc.INFER_RESPONSE, await self._inferred(data, context))

    # --- A stream -----------------------------------------------------------------------------------------------

    async def _stream(self, questions: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Each request has its answer, a text many, in order; one that is refused ends nothing."""
        try:
            with Stream(self._streams) as stream:
                while (data := await stream.next(questions)) is not None:
                    async for message in self._streamed(data, context):
                        with stream.telling():
                            yield _said(oip_grpc.STREAM_RESPONSE, message)
        except OipError as error:
            await context.abort(_CODES[error.status], str(error))

    async def _streamed(self, data: bytes, context: Any) -> AsyncIterator[dict[str, Any]]:
        """What a stream says to one request."""
        try:
            if (asked := oip_grpc.read_text(data)) is not None:
                async for message in self._told(*asked, context):
                    yield {"infer_response": message}
                return
            message = await self._inferred(data, context)
        except OipError as error:
            yield {"error_message": str(error)}
            return
        message.setdefault("parameters", {})["triton_final_response"] = {"bool_param": True}
        yield {"infer_response": message}

    # --- inside -------------------------------------------------------------------------------------------------

    async def _inferred(self, data: bytes, context: Any) -> dict[str, Any]:
        if self._held_bytes + len(data) > BODIES_MAX_BYTES:
            raise OipError(503, "too many large requests at once; ask again in a moment")
        self._held_bytes += len(data)
        try:
            name, version, body, length = oip_grpc.read_infer(data)
            headers = _headers(context) | {JSON_LENGTH.lower(): str(length)}
            answer = await self._handle(Call("POST", _path(name, version) + "/infer", headers, body))
        finally:
            self._held_bytes -= len(data)
        said = dict(answer.headers)
        json_bytes = int(said.get(JSON_LENGTH, sum(map(len, answer.pieces))))
        return oip_grpc.write_infer(
            answer.pieces, json_bytes, said.get("Swarmd-Lender", ""), said.get("Swarmd-Form", "")
        )

    async def _told(self, name: str, version: str, body: bytes, context: Any) -> AsyncIterator[dict[str, Any]]:
        """A text bit by bit: many answers to one request, the last of them marked."""
        call = Call("POST", f"{_path(name, version)}/generate_stream", _headers(context), bytearray(body))
        answer = await self._handle(call)
        assert answer.stream is not None
        try:
            async for event in answer.stream:
                yield oip_grpc.write_text(row_of(event))
        finally:
            if isinstance(answer.stream, AsyncGenerator):
                await answer.stream.aclose()

    async def _get(self, path: str, context: Any) -> Answer:
        return await self._handle(Call("GET", path, _headers(context), bytearray()))


def _unary(answer: Callable[[bytes, Any], Awaitable[bytes]]) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def call(data: bytes, context: Any) -> bytes:
        try:
            return await answer(data, context)
        except OipError as error:
            return await context.abort(_CODES.get(error.status, grpc.StatusCode.INTERNAL), str(error))  # type: ignore[no-any-return]

    return call


def _headers(context: Any) -> dict[str, str]:
    """What a call says beside its message, as far as anybody here wants to know."""
    return {key: str(value) for key, value in context.invocation_metadata() or () if key in _WISHES}


def _path(name: str, version: str) -> str:
    return f"/v2/models/{quote(name, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def _row(answer: Answer) -> dict[str, Any]:
    row = msgspec.json.decode(b"".join(answer.pieces))
    if not isinstance(row, dict):
        raise OipError(502, "a lender's metadata does not hold")
    return row


def _said(schema: Schema, message: dict[str, Any]) -> bytes:
    return oip_grpc.encoded(schema, message)
