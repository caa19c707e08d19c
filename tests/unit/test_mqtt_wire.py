"""The properties that we write ourselves are what paho reads, for any message."""

import contextlib
import socket
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers

from swarmd.bridges.mqtt.link import CORRELATION_MAX_BYTES
from swarmd.bridges.mqtt.wire import Client, Packed, field, usual_content, usual_properties

seconds = st.one_of(st.none(), st.integers(1, 2**32 - 1))


def read(packed: bytes) -> dict[str, Any]:
    properties = Properties(PacketTypes.PUBLISH)
    _, length = properties.unpack(packed)
    assert length == len(packed)
    found: dict[str, Any] = properties.json()
    return found


def usual(expiry_s: int | None) -> dict[str, Any]:
    expiry = {} if expiry_s is None else {"MessageExpiryInterval": expiry_s}
    return {"PayloadFormatIndicator": 1, "ContentType": "application/json", **expiry}


@given(seconds)
def test_usual_properties_read_as_they_were_meant(expiry_s: int | None) -> None:
    assert read(usual_properties(expiry_s).pack()) == usual(expiry_s)


@given(seconds, st.text(max_size=64), st.binary(max_size=CORRELATION_MAX_BYTES), st.integers(1, 65_535))
def test_what_follows_reads_too_at_any_length(expiry_s: int | None, trace: str, correlation: bytes, alias: int) -> None:
    trace = trace.replace("\0", "").encode("utf-8", "ignore").decode()
    content = usual_content(expiry_s) + b"\x26" + field(b"traceparent") + field(trace.encode())
    content += b"\x09" + field(correlation) + b"\x23" + alias.to_bytes(2, "big")
    told = read(Packed(content).pack())
    assert told.pop("UserProperty") == [("traceparent", trace)]
    assert told.pop("CorrelationData") == correlation.hex()
    assert told.pop("TopicAlias") == alias
    assert told == usual(expiry_s)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 15), st.binary(max_size=24), st.binary(max_size=48))
def test_law_what_cannot_be_read_is_acknowledged_and_forgotten(flags: int, topic: bytes, rest: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        client, heard = Client("me", 1_024), []
        client.on_message = lambda _client, _data, message: heard.append(message.topic)
        client._sock = near
        body = field(topic) + rest
        far.sendall(bytes((0x30 | flags, len(body))) + body)
        problem = client.loop_read()
        assert not client._in_messages, "what is never finished would be kept"
        is_one = flags >> 1 & 3 < 2 and len(rest) >= (flags & 2)
        assert (problem == 0, len(heard) + client.unreadable) == (is_one, int(is_one))
        far.setblocking(False)
        answer = b""
        with contextlib.suppress(BlockingIOError):
            answer = far.recv(99)
        assert answer == (b"\x40\x02" + rest[:2] if is_one and flags & 2 else b"")
        client._sock = None


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("one", [b"\x26\0\0\0\0", b"\x0b\x01"])
def test_a_message_of_many_properties_costs_what_its_bytes_do(one: bytes, qos: int) -> None:
    many = one * (48_000 // len(one))
    body = field(b"t") + b"\x12\x34" * qos + VariableByteIntegers.encode(len(many)) + many
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        client = Client("me", 65_536)
        client._sock = near
        far.sendall(bytes((0x30 | qos << 1,)) + VariableByteIntegers.encode(len(body)) + body)
        before_s = time.process_time()
        assert client.loop_read() == 0
        assert time.process_time() - before_s < 0.1
        assert client.unreadable == 1
        assert not qos or far.recv(99) == b"\x40\x02\x12\x34"
        client._sock = None


def test_an_answer_of_many_properties_ends_the_connection() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        client = Client("me", 65_536)
        client._sock = near
        body = b"\x12\x34" + VariableByteIntegers.encode(40_000) + b"\x26\0\0\0\0" * 8_000 + b"\0"
        far.sendall(b"\x90" + VariableByteIntegers.encode(len(body)) + body)
        before_s = time.process_time()
        assert client.loop_read() != 0
        assert time.process_time() - before_s < 0.1
        assert client.problem == f"it answers with a packet of {len(body)} bytes; 4096 are read"
