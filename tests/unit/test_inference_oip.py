"""The Open Inference Protocol's bytes: what is written reads back, and no body does worse than be refused."""

import contextlib
import json
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from swarmd.worker import oip
from swarmd.worker.oip import DATATYPES, OipError, Wanted, read_outputs, read_question, write_answer
from swarmd_models.service import Port
from tests.support.mutants import assert_found

PORTS = (Port("a", (-1, 2, 3), np.dtype(np.int8)), Port("b", (-1,), np.dtype(np.float32)))
OUT = (Port("x", (-1, 4), np.dtype(np.float32)), Port("names", (-1,), np.dtype(object)))
A, B = np.arange(12, dtype=np.int8).reshape(2, 2, 3), np.array([0.5, -1.5, 3.0], np.float32)


def body_of(
    changes: Mapping[str, Any] | None = None, binary: bool = True, tail: bytes | None = None
) -> tuple[bytes, int]:
    """A request for `PORTS`; `changes` are of the first input."""
    inputs: list[dict[str, Any]] = [
        {"name": "a", "shape": [2, 2, 3], "datatype": "INT8"},
        {"name": "b", "shape": [3], "datatype": "FP32"},
    ]
    for row, array in zip(inputs, (A, B), strict=True):
        if binary:
            row["parameters"] = {"binary_data_size": array.nbytes}
        else:
            row["data"] = array.tolist()
    inputs[0] |= changes or {}
    head = json.dumps({"id": "7", "inputs": inputs, "parameters": {"priority": 1, "timeout": 5000}}).encode()
    return head + ((A.tobytes() + B.tobytes() if binary else b"") if tail is None else tail), len(head)


@pytest.mark.parametrize("binary", [True, False])
def test_a_request_reads_back(binary: bool) -> None:
    body, length = body_of(binary=binary)
    question = read_question(body, length if binary else None, PORTS, OUT)
    assert (question.id, question.priority, question.timeout_us) == ("7", 1, 5000)
    assert np.array_equal(question.inputs["a"], A)
    assert np.array_equal(question.inputs["b"], B)
    assert [one.name for one in question.wanted] == ["x", "names"], "who names no output gets all"


@given(
    hnp.arrays(st.sampled_from([d for d in DATATYPES.values() if not d.hasobject]), hnp.array_shapes(max_dims=4)),
    st.lists(st.text(max_size=20), max_size=5),
)
def test_an_answer_reads_back(array: np.ndarray, texts: list[str]) -> None:
    outputs = {"x": array, "names": np.array(texts, object)}
    pieces, length = write_answer({"id": "1"}, outputs, [Wanted("x", True), Wanted("names", True)])
    whole = b"".join(pieces)
    assert length is not None
    found = dict(read_outputs(json.loads(whole[:length])["outputs"], whole[length:]))
    assert found["x"].tobytes() == array.tobytes()
    assert found["x"].shape == array.shape
    assert found["x"].dtype == array.dtype
    assert found["names"].tolist() == texts


def test_an_answer_in_json() -> None:
    outputs = {"x": np.array([1.5, np.nan], np.float32), "names": np.array(["hot", "Zürich"], object)}
    pieces, length = write_answer({}, outputs, [Wanted("x", False), Wanted("names", False)])
    assert length is None
    assert [row["data"] for row in json.loads(b"".join(pieces))["outputs"]] == [[1.5, None], ["hot", "Zürich"]]


@pytest.mark.parametrize(("most_bytes", "most"), [(None, oip.OWN_JSON_BYTES), (64 << 20, oip.MAX_JSON_BYTES)])
@pytest.mark.parametrize(("kind", "least"), [(np.float32, 4), (np.int8, 2)])
def test_an_answer_of_very_many_numbers_is_not_written_as_json(
    most_bytes: int | None, most: int, kind: type, least: int
) -> None:
    """Nine million of them, or one output 32 times, took a second of the loop and half a gigabyte, at lenders too."""
    outputs = {"x": np.broadcast_to(np.array(1, kind), most // least // 8)}
    tracemalloc.start()
    try:
        with pytest.raises(OipError, match="binary data") as refused:
            write_answer({}, outputs, [Wanted("x", False)] * 9, most_bytes)
        assert refused.value.status == 413
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    pieces, _ = write_answer({}, outputs, [Wanted("x", False), *[Wanted("x", True)] * 9], most_bytes)
    assert len(pieces) == 10


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "c"}, "'c' is not wanted"),
        ({"name": "b"}, "is not wanted|is 'INT8'; FP32"),
        ({"datatype": "FP32"}, "'FP32'; INT8 is wanted"),
        ({"datatype": "BYTES"}, "'BYTES'; INT8 is wanted"),
        ({"datatype": "nonsense"}, "INT8 is wanted"),
        ({"shape": [2, 2]}, "shape"),
        ({"shape": [2, 3, 2]}, "shape"),
        ({"shape": [0, 2, 3]}, "shape"),
        ({"shape": [-2, 2, 3]}, "shape"),
        ({"shape": [1 << 30, 2, 3]}, "binary_data_size"),
        ({"shape": [1 << 70, 2, 3]}, "shape"),
        ({"parameters": {"binary_data_size": -12}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": True}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": "12"}}, "binary_data_size"),
        ({"parameters": {"binary_data_size": 1 << 60}}, "binary_data_size"),
        ({"parameters": {}}, "neither data nor"),
        ({"parameters": {}, "data": ["x"] * 12}, "do not fit"),
        ({"parameters": {}, "data": [300] * 12}, "do not fit"),
        ({"parameters": {}, "data": [[1, 2], [3]]}, "do not fit"),
        ({"parameters": {}, "data": [1] * 11}, "do not fit"),
        ({"parameters": {}, "data": {"a": 1}}, "neither data nor"),
    ],
)
def test_a_request_that_does_not_hold_is_refused_with_the_reason(changes: dict[str, Any], sentence: str) -> None:
    body, length = body_of(changes)
    with pytest.raises(OipError, match=sentence) as caught:
        read_question(body, length, PORTS, OUT)
    assert caught.value.status == 400


@pytest.mark.parametrize(("shape", "size"), [([-1, -1, 1], 1), ([-1, 1, 1], -1), ([1, -1, -1], 1), ([0, 1, 1], 0)])
def test_a_length_that_a_model_leaves_open_is_one_all_the_same(shape: list[int], size: int) -> None:
    """A port says -1 for any length; a request that says so too has none."""
    ports = (Port("image", (-1, -1, -1), np.dtype(np.uint8)),)
    row = {"name": "image", "shape": shape, "datatype": "UINT8", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [row]}).encode()
    with pytest.raises(OipError, match="has shape") as refused:
        read_question(head + b"x" * abs(size), len(head), ports, OUT)
    assert refused.value.status == 400


def test_bounds_of_a_request() -> None:
    body, length = body_of(tail=A.tobytes() + B.tobytes() + b"!")
    with pytest.raises(OipError, match="left over"):
        read_question(body, length, PORTS, OUT)
    with pytest.raises(OipError, match="at most") as caught:
        read_question(b" " * ((4 << 20) + 1), None, PORTS, OUT)
    assert caught.value.status == 413
    for length in (-1, 10_000):
        with pytest.raises(OipError, match="the body has"):
            read_question(b"{}", length, PORTS, OUT)
    with pytest.raises(OipError, match="no inference request"):
        read_question(b"[" * 100_000, None, PORTS, OUT)
    digits = b"9" * 5000
    for text in (b'"shape": [%b, 2, 3]', b'"shape": [2, 2, 3], "parameters": {"binary_data_size": %b}'):
        head = b'{"inputs": [{"name": "a", "datatype": "INT8", ' + text % digits + b"}]}"
        with pytest.raises(OipError):
            read_question(head, None, PORTS, OUT)
    with pytest.raises(OipError):
        read_question(b'{"inputs": [], "parameters": {"timeout": %b}}' % digits, None, (), OUT)
    many = json.dumps({"inputs": [{"name": "a"}] * 33}).encode()
    with pytest.raises(OipError, match="at most length 32"):
        read_question(many, None, PORTS, OUT)
    with pytest.raises(OipError, match="is missing"):
        read_question(b'{"inputs": []}', None, PORTS, OUT)


@pytest.mark.parametrize(
    ("parameters", "outputs", "status"),
    [
        ({"priority": 4}, [], 400),
        ({"priority": "high"}, [], 400),
        ({"timeout": -1}, [], 400),
        ({"timeout": 1.5}, [], 400),
        ({}, [{"name": "nothing"}], 404),
        ({}, [{"name": "x", "parameters": {"classification": 3}}], 400),
    ],
)
def test_what_is_asked_for_beside_the_tensors(parameters: Any, outputs: Any, status: int) -> None:
    body, length = body_of()
    head = json.loads(body[:length]) | {"parameters": parameters, "outputs": outputs}
    text = json.dumps(head).encode()
    with pytest.raises(OipError) as caught:
        read_question(text + body[length:], len(text), PORTS, OUT)
    assert caught.value.status == status


_LISTS = b"[" + b"[]," * 200_000 + b"[]]"


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[{"name":"b","shape":[1],"datatype":"FP32","data":%b}]}' % _LISTS,
        b'{"inputs":[{"name":"b","shape":[200001],"datatype":"FP32","data":%b}]}' % _LISTS,
        b'{"inputs":[{"name":"b","parameters":{"x":%b,"coding":"br"}}]}' % _LISTS,
        b'{"inputs":[{"name":"b","parameters":{"coding":%b}}]}' % _LISTS,
        b'{"inputs":[],"parameters":{"x":%b}}' % _LISTS,
        b'{"inputs":[],"parameters":{"priority":%b}}' % _LISTS,
        b'{"inputs":[%b{"name":""}]}' % (b'{"name":""},' * 50_000),
        b'{"inputs":[],"outputs":[%b{"name":""}]}' % (b'{"name":""},' * 50_000),
        b'{"inputs":[{"name":"b","shape":[%b1]}]}' % (b"1," * 300_000),
        b'{"inputs":[],"parameters":{%b"x":1}}' % b"".join(b'"%d":1,' % at for at in range(60_000)),
        b'{"inputs":[{"name":"b","shape":[1],"datatype":"FP32","data":[%b1]}]}' % (b"1.5," * 150_000),
    ],
)
def test_a_body_of_small_things_is_refused_before_they_are_made(body: bytes) -> None:
    """Made, a body of nothing but small lists takes a hundred times its bytes, and its reader's loop for as long."""
    readers: list[Callable[[], object]] = [
        lambda: read_question(body, None, PORTS[1:], OUT), lambda: oip.peek(body, None),
    ]  # fmt: skip
    for read in readers:
        tracemalloc.start()
        try:
            with contextlib.suppress(OipError):
                read()
                assert read is readers[1], "it was taken"
            assert tracemalloc.get_traced_memory()[1] < 5 * len(body)
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("data", ["[1[2],3]", "[[1]2,3]", "[1,[2 3]]", "[[],1,2]", "[1,2,[]]", '["1",2,3]', "[1,2,{}]"])
def test_lists_in_lists_are_no_way_to_write_other_numbers(data: str) -> None:
    body = '{"inputs":[{"name":"b","shape":[3],"datatype":"FP32","data":%s}]}'
    assert read_question((body % "[[1],[2],[3]]").encode(), None, PORTS[1:], OUT).inputs["b"].tolist() == [1, 2, 3]
    with pytest.raises(OipError):
        read_question((body % data).encode(), None, PORTS[1:], OUT)


def test_every_truncation_and_flip_is_read_or_refused() -> None:
    body, length = body_of()
    for size in range(len(body)):
        _read_or_refuse(body[:size], min(length, size))
        _read_or_refuse(body[:size], None)
    for at in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[at] ^= 1 << bit
            _read_or_refuse(flipped, length)


@given(st.binary(max_size=300), st.none() | st.integers(-5, 400))
@settings(max_examples=200)
def test_noise_is_refused(body: bytes, length: int | None) -> None:
    _read_or_refuse(body, length)


def _read_or_refuse(body: bytes | bytearray, length: int | None) -> None:
    try:
        question = read_question(body, length, PORTS, OUT)
    except OipError:
        return
    assert {name: (array.dtype, array.ndim) for name, array in question.inputs.items()} == {
        port.name: (port.dtype, len(port.shape)) for port in PORTS
    }, "an array that does not fit the model came through"
    assert question.inputs["a"].shape[1:] == (2, 3), "an array that does not fit the model came through"


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _any_shape(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oip, "_judged", lambda tensor, port: DATATYPES.get(tensor.datatype, port.dtype))


def _all_json_is_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oip, "MAX_JSON_BYTES", 1 << 40)


def _what_is_left_over_is_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = oip._read_inputs
    patch.setattr(
        oip, "_read_inputs", lambda tensors, tail, *about: whole(tensors, tail[: A.nbytes + B.nbytes], *about)
    )


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (
            _any_shape,
            lambda: test_a_request_that_does_not_hold_is_refused_with_the_reason({"shape": [2, 3, 2]}, "shape"),
        ),
        (_what_is_left_over_is_nothing, test_bounds_of_a_request),
        (_all_json_is_read, test_bounds_of_a_request),
    ],
)
def test_mutants(fault, law, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(fault, law, monkeypatch)
