"""Our reading and writing of Protocol Buffers, held against Google's; and what hostile bytes can do: nothing."""

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.worker import oip_grpc
from swarmd.worker.oip import DATATYPES, OipError, read_question
from swarmd.worker.oip_grpc import INFER_REQUEST, INFER_RESPONSE, MODEL_METADATA, STREAM_RESPONSE, read_infer
from swarmd.worker.protobuf import ITEMS_MAX, Field, ProtobufError, Schema, decode, encode
from swarmd_models.service import Port

pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is not installed (swarmd[otel])")
from google.protobuf import descriptor_pool, json_format, message_factory  # noqa: E402

SCHEMAS = {"Request": INFER_REQUEST, "Response": INFER_RESPONSE, "Metadata": MODEL_METADATA, "Stream": STREAM_RESPONSE}
KINDS = {
    "bool": 8,
    "int32": 5,
    "int64": 3,
    "uint32": 13,
    "uint64": 4,
    "float": 2,
    "double": 1,
    "string": 9,
    "bytes": 12,
}


def _add(parent: Any, name: str, schema: Schema) -> None:
    one = parent.add(name=name)
    for number, field in schema.items():
        row = one.field.add(name=field.name, number=number, label=3 if field.form else 1)
        if field.form == "map":
            entry = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
            _add(one.nested_type, entry, {1: Field("key", "string"), 2: Field("value", field.kind)})
            one.nested_type[-1].options.map_entry = True
            row.type, row.type_name = 11, entry
        elif isinstance(field.kind, str):
            row.type = KINDS[field.kind]
        else:
            _add(one.nested_type, "M" + field.name, field.kind)
            row.type, row.type_name = 11, "M" + field.name


def _classes() -> dict[str, Any]:
    file = pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    for name, schema in SCHEMAS.items():
        _add(file.message_type, name, schema)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in SCHEMAS}


CLASSES = _classes()
INTEGERS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1), "uint32": (0, (1 << 32) - 1)}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if not isinstance(kind, str):
        return messages(kind)
    if kind == "bool":
        return st.booleans()
    if kind in ("float", "double"):
        return st.floats(width=32, allow_nan=False)
    if kind in ("string", "bytes"):
        return st.text(max_size=8) if kind == "string" else st.binary(max_size=8)
    return st.integers(*INTEGERS.get(kind, (0, (1 << 64) - 1)))


def messages(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    fields = {}
    for field in schema.values():
        one = values(field.kind)
        if field.form == "map":
            one = st.dictionaries(st.text(max_size=4), one, min_size=1, max_size=2)
        elif field.form == "repeated":
            one = st.lists(one, min_size=1, max_size=3)
        fields[field.name] = one
    return st.fixed_dictionaries({}, optional=fields)


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def fill(message: Any, value: dict[str, Any]) -> Any:
    for name, item in value.items():
        there = getattr(message, name)
        if isinstance(item, dict) and hasattr(there, "items"):
            for key, one in item.items():
                fill(there[key], one)
        elif isinstance(item, dict):
            there.SetInParent()
            fill(there, item)
        elif isinstance(item, list):
            for one in item:
                fill(there.add(), one) if isinstance(one, dict) else there.append(plain(one))
        else:
            setattr(message, name, plain(item))
    return message


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_google_reads_and_the_other_way_round(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(messages(SCHEMAS[name]))
    def law(value: dict[str, Any]) -> None:
        theirs = fill(CLASSES[name](), value)
        assert CLASSES[name].FromString(encode(SCHEMAS[name], value)) == theirs
        again = fill(CLASSES[name](), decode(SCHEMAS[name], theirs.SerializeToString()))
        assert json_format.MessageToDict(again) == json_format.MessageToDict(theirs)

    law()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for schema in SCHEMAS.values():
        with contextlib.suppress(ProtobufError):
            encode(schema, decode(schema, data))
    with contextlib.suppress(OipError):
        read_infer(data)


@pytest.mark.parametrize(
    "data",
    [b"\x90\x06\x01" * ITEMS_MAX + b"\x90\x06\x01", b"\x2a\x00" * (ITEMS_MAX + 1), b"\x22\x00" * (ITEMS_MAX + 1)],
    ids=["unknown fields", "inputs", "parameters"],
)
def test_what_is_read_of_one_message_is_bounded(data: bytes) -> None:
    with pytest.raises(ProtobufError, match="more than"):
        decode(INFER_REQUEST, data)


def test_packed_numbers_are_bounded_over_all_inputs() -> None:
    one = {"shape": [1] * (ITEMS_MAX // 4)}
    decode(INFER_REQUEST, encode(INFER_REQUEST, {"inputs": [one] * 3}))
    with pytest.raises(ProtobufError, match="more than"):
        decode(INFER_REQUEST, encode(INFER_REQUEST, {"inputs": [one] * 4}))


def ports(dtype: Any) -> tuple[Port, ...]:
    return (Port("x", (-1, 2), np.dtype(dtype)),)


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name not in ("BYTES", "FP16")])
@pytest.mark.parametrize("is_raw", [True, False])
def test_a_tensor_is_the_same_either_way(datatype: str, is_raw: bool) -> None:
    dtype = DATATYPES[datatype]
    array = np.array([[0, 1], [1, 1]], dtype)
    row: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": [2, 2]}
    message: dict[str, Any] = {"model_name": "m", "id": "7", "inputs": [row]}
    if is_raw:
        message["raw_input_contents"] = [array.tobytes()]
    else:
        row["contents"] = {oip_grpc._CONTENTS_OF[datatype]: array.ravel().tolist()}
    message["parameters"] = {"priority": {"uint64_param": 1}, "timeout": {"int64_param": 5_000}}
    name, version, body, length = read_infer(encode(INFER_REQUEST, message))
    question = read_question(body, length, ports(dtype), ports(dtype))
    assert (name, version, question.id, question.priority, question.timeout_us) == ("m", "", "7", 1, 5_000)
    assert np.array_equal(question.inputs["x"], array)
    assert all(one.is_binary for one in question.wanted)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"inputs": [{"datatype": "INT8", "contents": {"fp32_contents": [1.0]}}]}, "send raw bytes"),
        ({"inputs": [{"datatype": "INT8", "contents": {"int_contents": [300]}}]}, "do not fit"),
        ({"inputs": [{"datatype": "NONE", "contents": {}}]}, "send raw bytes"),
        ({"inputs": [{}], "raw_input_contents": [b"", b""]}, "2 of raw bytes"),
        ({"inputs": [{"contents": {"int_contents": [1]}}], "raw_input_contents": [b"1"]}, "has both"),
        ({"inputs": [{"name": "x"}] * 33}, "at most 32"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(message: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OipError, match=sentence) as told:
        read_infer(encode(INFER_REQUEST, message))
    assert told.value.status == 400


def test_a_number_that_json_lacks_is_no_parameter() -> None:
    message = {"parameters": {"a": {"double_param": math.nan}, "b": {"bool_param": True}}}
    _, _, body, _ = read_infer(encode(INFER_REQUEST, message))
    assert b'"a"' not in body
    assert b'"b":true' in body


@pytest.mark.parametrize("head", [b"", b"[]", b"{}", b'{"model_version":1,"outputs":[{}]}', b'{"outputs":3}'])
def test_a_lenders_answer_that_does_not_hold_is_told(head: bytes) -> None:
    with pytest.raises(OipError) as told:
        oip_grpc.write_infer([head], len(head), "a")
    assert told.value.status == 502
