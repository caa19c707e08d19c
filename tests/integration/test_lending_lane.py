"""The tensor lane: what is too large for the brains goes from worker to worker, and hostile ends gain nothing by it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import zmq
import zmq.asyncio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zmq.utils import z85

from swarmd.errors import TransportError
from swarmd.worker import lane
from swarmd.worker.http_server import Call
from swarmd.worker.lane import CHUNK_BYTES, Fetcher, Shelf
from swarmd.worker.lent import Place, token_of
from swarmd.worker.oip import JSON_LENGTH, OipError
from swarmd_models.service import Port
from swarmd_protocols.offload import messages
from tests.support.lending_pair import Free, Pair
from tests.support.offload_swarm import DIGEST
from tests.unit.test_inference_api_laws import law

NUMBERS = 1 << 20


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how soon a busy machine sends a chunk."""
    monkeypatch.setattr(lane, "STALL_S", 60.0)


MIB = 1 << 20
PATIENCE_S = 60.0


class Wide(Free):
    """A bundle of 4 MiB in and 4 MiB out."""

    def inputs(self, lane: str) -> tuple[Port, ...]:
        return (Port("x", (-1, NUMBERS), np.dtype(np.float32)),)

    outputs = inputs

    def _steps(self, items: Any) -> Any:
        yield None
        yield {"x": np.asarray(items + np.float32(self.plus), np.float32)}


@contextlib.asynccontextmanager
async def pair(own: Free | None, lent: Free) -> AsyncIterator[Pair]:
    one = Pair(own, lent, has_lane=True)
    try:
        yield one
    finally:
        one.close()


def body(array: np.ndarray) -> tuple[bytes, int]:
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": array.shape,
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": array.nbytes},
                }
            ],
            "parameters": {"timeout": 60_000_000, "binary_data_output": True},
        }
    ).encode()
    return head + array.tobytes(), len(head)


async def ask(one: Pair, array: np.ndarray, borrow: str = "yes") -> tuple[np.ndarray | OipError, str]:
    data, length = body(array)
    headers = {"swarmd-borrow": borrow, JSON_LENGTH.lower(): str(length)}
    call = Call("POST", f"/v2/models/m/versions/{DIGEST.hex()}/infer", headers, bytearray(data))
    try:
        answer = await one.borrower.api.handle(call)
    except OipError as error:
        return error, ""
    whole = b"".join(answer.pieces)
    found = dict(answer.headers)
    return np.frombuffer(whole[int(found[JSON_LENGTH]) :], np.float32), found.get("Swarmd-Lender", "")


ARRAY = np.arange(NUMBERS, dtype=np.float32)[None]


def is_through(one: Pair) -> bool:
    assert one.borrower.shelf is not None
    assert one.lender.fetcher is not None
    return not one.borrower.shelf._laid and not one.lender.fetcher._held


@law
async def test_a_tensor_goes_and_comes_from_worker_to_worker() -> None:
    """And nothing of it through the brains, while its ticket pays for it."""
    async with pair(None, Wide()) as one:
        found, by = await ask(one, ARRAY)
        assert isinstance(found, np.ndarray), found
        assert np.array_equal(found, ARRAY[0] + 1)
        assert by == one.lender.node.hex()
        assert is_through(one)
        assert max(len(messages.encode_message(word)) for *_, word in one.swarm.said) < 2_000
        counts = one.swarm.nodes[one.borrower.node].counts()
        assert counts["borrow_request_bytes"] >= ARRAY.nbytes


@contextlib.asynccontextmanager
async def stranger() -> AsyncIterator[tuple[int, list[int]]]:
    """Somebody's TCP port, and how often it was knocked at."""
    knocks: list[int] = []

    async def knock(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knocks.append(1)
        writer.close()

    server = await asyncio.start_server(knock, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], knocks
    finally:
        server.close()


@law
async def test_who_says_to_be_where_it_is_not_sends_no_lender_there() -> None:
    """A record says only its own address: a lender connects to no host from which the borrower is not heard."""
    async with stranger() as (port, knocks), pair(None, Wide()) as one:
        one.members[0].heard_at = "10.0.0.66:7946"
        assert one.borrower.shelf is not None
        one.borrower.shelf._address = ("127.0.0.1", port)
        data, length = body(ARRAY)
        data = data.replace(b"60000000", b"  900000", 1)
        headers = {"swarmd-borrow": "yes", JSON_LENGTH.lower(): str(length)}
        call = Call("POST", f"/v2/models/m/versions/{DIGEST.hex()}/infer", headers, bytearray(data))
        with pytest.raises(OipError):
            await one.borrower.api.handle(call)
        assert knocks == []


@law
async def test_a_port_where_nobody_speaks_is_knocked_at_once() -> None:
    lane.STALL_S = 1.0  # The fixture puts it back.
    fetcher = Fetcher(MIB)
    try:
        async with stranger() as (port, knocks):
            with pytest.raises(OipError, match="cannot be reached"):
                async with fetcher.visit("127.0.0.1", Place(port, bytes(32), bytes(16), 10, bytes(32))) as visit:
                    await visit.fetch()
            assert knocks == [1]
    finally:
        fetcher.close()


@law
async def test_what_comes_back_to_this_device_is_answered_here() -> None:
    """The lender takes it and fails; the own model answers, with the tensor as it lies."""
    async with pair(Wide(), Wide(plus=5.0)) as one:

        async def fails(word: Any) -> bytes:
            raise OipError(503, "no")

        one.lender.api.lend = fails  # type: ignore[method-assign]
        found, by = await ask(one, ARRAY, "quickest")
        assert isinstance(found, np.ndarray), found
        assert np.array_equal(found, ARRAY[0] + 1)
        assert by == ""
        assert is_through(one)


@law
async def test_a_lender_that_leaves_something_else_than_it_signed_is_asked_no_more() -> None:
    async with pair(None, Wide()) as one:
        whole = lane.Visit.leave

        async def leaves(self: lane.Visit, answer: bytes) -> bytes:
            await whole(self, answer[:-1] + b"!")
            return sha256(answer).digest()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lane.Visit, "leave", leaves)
            found, _ = await ask(one, ARRAY)
        assert isinstance(found, OipError), "it was believed"
        assert found.status == 503
        assert is_through(one)
        node = one.swarm.nodes[one.borrower.node]
        assert node.is_ejected(one.lender.node, one.swarm.now_ns)


# --- the shelf ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def shelf(max_bytes: int = 16 * MIB) -> AsyncIterator[Shelf]:
    one = Shelf(max_bytes)
    one.start("127.0.0.1:0")
    try:
        yield one
    finally:
        one.close()


@contextlib.asynccontextmanager
async def visit(place: Place) -> AsyncIterator[lane.Visit]:
    fetcher = Fetcher(16 * MIB)
    try:
        async with fetcher.visit("127.0.0.1", place) as one:
            yield one
    finally:
        fetcher.close()


DATA = bytes(range(256)) * 4096
"""1 MiB."""


@law
async def test_a_token_opens_one_body_until_its_request_has_ended() -> None:
    async with shelf() as one:
        with one.lay_out(DATA, sha256(DATA).digest()) as place:
            async with visit(place) as lender:
                assert await lender.fetch() == DATA
                assert await one.take(place, 5, await lender.leave(b"hello")) == b"hello"
                assert await one.take(place, 6, sha256(b"hello").digest()) is None
                assert one.held_bytes == 0
            async with visit(replace(place, token=bytes(16))) as stranger:
                with pytest.raises(OipError, match="waits no more"):
                    await stranger.fetch()
                with pytest.raises(OipError, match=r"does not take|out of order"):
                    await stranger.leave(b"hello")
        standing = visit(place)
        async with standing as lender:
            with pytest.raises(OipError, match="waits no more"):
                await lender.fetch()
        assert one.counters["lane_unknown"] >= 3
        assert one.held_bytes == 0


@law
async def test_a_connection_that_stands_is_worth_nothing_once_its_request_has_ended() -> None:
    async with shelf() as one:
        with one.lay_out(DATA, sha256(DATA).digest()) as place:
            lender = visit(place)
            at = await lender.__aenter__()
            assert await at.fetch() == DATA
        with pytest.raises(OipError, match="waits no more"):
            await at.fetch()
        with pytest.raises(OipError, match=r"does not take|out of order"):
            await at.leave(b"late")
        await lender.__aexit__(None, None, None)


@law
async def test_who_knows_not_the_key_shakes_no_hands() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "STALL_S", 1.0)
        async with shelf() as one:
            with one.lay_out(DATA, sha256(DATA).digest()) as place:
                other = z85.decode(zmq.curve_keypair()[0])
                async with visit(replace(place, key=other)) as stranger:
                    with pytest.raises(OipError):
                        await stranger.fetch()
                assert not one.counters
                patch.undo()
                async with visit(place) as lender:
                    assert await lender.fetch() == DATA


@pytest.mark.parametrize(
    "change",
    [{"size_bytes": 2 * MIB}, {"size_bytes": 5}, {"sha256": bytes(32)}],
    ids=["longer", "shorter", "other bytes"],
)
def test_a_body_counts_only_as_it_was_told(change: dict[str, Any]) -> None:
    async def run() -> None:
        async with shelf() as one:
            with one.lay_out(DATA, sha256(DATA).digest()) as place:
                async with visit(replace(place, **change)) as lender:
                    with pytest.raises(OipError):
                        await lender.fetch()

    asyncio.run(run())


@law
async def test_a_borrower_that_lays_nothing_out_costs_a_pause() -> None:
    """Nobody listens at the port it says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "STALL_S", 0.2)
        async with visit(Place(9, z85.decode(zmq.curve_keypair()[0]), bytes(16), 10, bytes(32))) as lender:
            with pytest.raises(OipError, match=r"do not come|cannot be reached"):
                await lender.fetch()


@law
async def test_what_one_device_may_have_fetched_is_bounded() -> None:
    fetcher = Fetcher(16 * MIB)
    place = Place(9, z85.decode(zmq.curve_keypair()[0]), bytes(16), 16 * MIB, bytes(32))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(fetcher.close)
        for _ in range(2):
            await stack.enter_async_context(fetcher.visit("127.0.0.1", place))
        with pytest.raises(OipError, match="at once"):
            await stack.enter_async_context(fetcher.visit("127.0.0.1", place))
        await stack.enter_async_context(fetcher.visit("127.0.0.2", place))
        with pytest.raises(OipError, match="at most"):
            await stack.enter_async_context(fetcher.visit("127.0.0.3", replace(place, size_bytes=17 * MIB)))
    assert not fetcher._held


@law
async def test_answers_are_bounded() -> None:
    async with shelf(max_bytes=MIB) as one:
        with one.lay_out(DATA, sha256(DATA).digest()) as place:
            async with visit(place) as lender:
                with pytest.raises(OipError, match=r"does not take|out of order"):
                    await lender.leave(DATA + b"!")
            async with visit(place) as lender:
                for number in range(3):
                    await lender.leave(bytes(number + 1))
            assert one.held_bytes == 3, "one answer of a lender, the newest"


HONEST, LIAR = bytes(8), b"\1" * 8
PART = 100
"""Bytes of a chunk of what hostile lenders say."""


def put(token: bytes, digest: bytes, size_bytes: int, offset: int, chunk: bytes) -> bytes:
    return lane._PUT.pack(b"P", token, digest, size_bytes, offset) + chunk


HOSTILE = st.lists(
    st.tuples(
        st.integers(0, 2),  # whose request
        st.integers(0, 5),  # by which connection
        st.integers(0, 5),  # under which SHA-256
        st.sampled_from([1, PART, 5 * PART, 10 * PART, 11 * PART, 1 << 40]),
        st.integers(0, 3),  # from which chunk on
        st.integers(0, 11),  # how many
        st.sampled_from([0, 1, PART - 1, PART, PART]),
    ),
    max_size=30,
)


@given(HOSTILE)
@settings(deadline=None, report_multiple_bugs=False)
@example([(which, 1, 1, 10 * PART, 0, 7, PART) for which in range(3)])
def test_law_what_one_lender_leaves_takes_no_room_of_anothers(said: list[tuple[int, ...]]) -> None:
    """It knows its own tokens, comes by as many connections as it likes, and begins what it never ends."""
    most = 10 * PART
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(lane, "TOTAL_MAX_BYTES", 2 * most)
        patch.setattr(lane, "_resident_bytes", lambda: 0)
        one = Shelf(most)
        stack.callback(one._context.term)
        places = [stack.enter_context(one.lay_out(DATA, bytes(32))) for _ in range(3)]
        for which, sender, number, size_bytes, first, count, length in said:
            token, digest = token_of(places[which].lane_key, LIAR), bytes([number]) * 32
            for at in range(first, first + count):
                one._reply(bytes([sender]), put(token, digest, size_bytes, at * PART, bytes(length)))
            assert one.held_bytes <= most, "more than half of all"
        answer = bytes(range(PART)) * 10
        token, digest = token_of(places[0].lane_key, HONEST), sha256(answer).digest()
        for offset in range(0, most, PART):
            word = put(token, digest, most, offset, answer[offset : offset + PART])
            assert one._reply(b"honest", word) == token + offset.to_bytes(8, "little"), "its answer is not taken"
        assert asyncio.run(one.take(places[0], most, digest)) == answer
    assert not one._known
    assert not one.held_bytes


@law
async def test_each_lender_is_told_a_token_of_its_own() -> None:
    """From worker to worker, with both brains between them: what the lender uses is not what its borrower keeps."""
    async with pair(None, Wide()) as one:
        assert one.borrower.shelf is not None
        find, used = one.borrower.shelf._find, []

        def found(token: bytes) -> Any:
            used.append(token)
            return find(token)

        one.borrower.shelf._find = found  # type: ignore[method-assign]
        await ask(one, ARRAY)
        assert {token[:8] for token in used} == {one.lender.node[:8]}


@law
async def test_a_port_that_is_lost_is_listened_at_again() -> None:
    """Whoever took it for a moment, the watch goes on: large requests are refused until it is free, and then served."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "REBIND_S", 0.01)
        async with shelf() as one:
            bind, tries = one._bind, []

            def taken(host: str, port: int) -> None:
                tries.append(port)
                if len(tries) < 4:
                    raise TransportError("lending.tensors: address already in use; choose another port")
                bind(host, port)

            one._bind = taken  # type: ignore[method-assign]
            with one.lay_out(DATA, sha256(DATA).digest()):
                before = lane._resident_bytes
                patch.setattr(lane, "_resident_bytes", lambda: before() + 80 * MIB)
                try:
                    async with asyncio.timeout(PATIENCE_S / 4):
                        while not (one.is_open and tries):
                            await asyncio.sleep(0.01)
                except TimeoutError:
                    pytest.fail("it listens no more")
                patch.setattr(lane, "_resident_bytes", before)
            assert one.counters["lane_unbound"] == 3
            assert len(set(tries)) == 1
            await _serves(one)


@given(st.binary(max_size=120), st.sampled_from([b"", b"G", b"P"]), st.booleans())
def test_no_word_raises_anything(word: bytes, kind: bytes, knows_token: bool) -> None:
    one = Shelf(MIB)
    with one.lay_out(DATA, bytes(32)) as place:
        data = kind + (place.token if knows_token else b"") + word
        one._reply(b"me", data)
        one._reply(b"me", data[:25])
    assert one.held_bytes == 0
    one._context.term()


@law
async def test_a_message_of_many_frames_is_thrown_away() -> None:
    async with shelf() as one:
        with one.lay_out(DATA, sha256(DATA).digest()) as place:
            async with visit(place) as lender:
                for _ in range(100):
                    await lender._socket.send(bytes(CHUNK_BYTES), zmq.SNDMORE)
                await lender._socket.send(b"")
                async with asyncio.timeout(PATIENCE_S):
                    while not (one.counters["lane_unknown"] or one.counters["lane_reset"]):
                        await asyncio.sleep(0.01)
        await _serves(one)


@law
async def test_a_socket_that_holds_too_much_is_thrown_away_with_it() -> None:
    """As it would look while a message of endless frames comes in: the process grows by what nobody asked for."""
    with pytest.MonkeyPatch.context() as patch:
        async with shelf() as one:
            with one.lay_out(DATA, sha256(DATA).digest()) as place:
                before = lane._resident_bytes
                patch.setattr(lane, "_resident_bytes", lambda: before() + 80 * MIB)
                async with asyncio.timeout(PATIENCE_S):
                    while not one.counters["lane_reset"]:
                        await asyncio.sleep(0.01)
                assert one.counters["lane_reset"] == 1, "it is the new floor"
                patch.setattr(lane, "STALL_S", 1.0)
                async with visit(place) as lender:
                    with pytest.raises(OipError):
                        await lender.fetch()
                patch.undo()
            await _serves(one)


async def _serves(one: Shelf) -> None:
    with one.lay_out(DATA, sha256(DATA).digest()) as place:
        async with visit(place) as lender:
            assert await lender.fetch() == DATA, "others are served"


@law
async def test_a_frame_of_a_hundred_megabytes_ends_its_connection() -> None:
    """It is not read: ZeroMQ judges the length that it says, and hangs up."""
    async with shelf() as one:
        with one.lay_out(DATA, sha256(DATA).digest()) as place:
            async with visit(place) as lender:
                assert await lender.fetch() == DATA
                ended = lender._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                try:
                    await lender._socket.send(bytes(100 * MIB))
                    async with asyncio.timeout(PATIENCE_S):
                        await ended.recv_multipart()
                finally:
                    lender._socket.disable_monitor()
                    ended.close(linger=0)
        assert one.counters["lane_unknown"] == 0, "it has come through"
        await _serves(one)
