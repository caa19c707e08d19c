"""The properties that we write ourselves are what paho reads, for any message."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from swarmd.bridges.mqtt.link import CORRELATION_MAX_BYTES
from swarmd.bridges.mqtt.wire import Packed, field, usual_content, usual_properties

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
