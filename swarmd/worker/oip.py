"""The Open Inference Protocol, version 2: requests and answers as JSON, tensors as JSON lists or raw bytes behind it.

```
 POST /v2/models/NAME/infer              Inference-Header-Content-Length: n   (absent: the whole body is JSON)
 ├──────────── n bytes ─────────────┼─ binary_data_size of the 1st input ─┼─ of the 2nd ─ …
 │ JSON: inputs, outputs, id, …      │ little endian, C order              │
```

Nothing here runs a model. Sizes are judged before anything is made from them.

Source:
    KServe, "Open Inference Protocol (V2)", required API; Triton's extensions binary_data, schedule_policy (priority,
    timeout in microseconds) and model_repository (index).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from swarmd.worker.coding import CODING, packed, unpacked
from swarmd.worker.pictures import DIFF, JPEG, from_differences, from_jpeg
from swarmd_models.backends.base import Array
from swarmd_models.service import Port

MAX_JSON_BYTES = 4 << 20
"""Of the JSON part: lists of numbers take ten times their size once read; larger tensors go as raw bytes."""
OWN_JSON_BYTES = 4 * MAX_JSON_BYTES
"""Of the JSON part of an answer to a program here, at least; another device reads no more than `MAX_JSON_BYTES`."""
MAX_TENSORS = 32
"""Inputs, or outputs, that a request may name."""
OUTPUTS_MAX = 256
"""Of an answer: a request that names none gets all that a model has."""
MAX_AXES = 8
MAX_SIDE_ITEMS = 1 << 31
"""Along an axis of any size: no body holds as many."""
MAX_ID_CHARS = 256
COPIES_MAX = 2
"""Devices that may work on one request at once: one death is survived, and the work doubles and no more."""
JSON_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {
    "BOOL": np.dtype(np.bool_), "UINT8": np.dtype(np.uint8), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"), "INT8": np.dtype(np.int8), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"), "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


class OipError(Exception):
    """A request cannot be answered: an HTTP status and a sentence for its sender."""

    def __init__(self, status: int, text: str) -> None:
        """`status` as RFC 9110 means it."""
        super().__init__(text)
        self.status = status


class FormError(OipError):
    """A coded tensor cannot be read: the sender's doing, whatever else is right."""

    def __init__(self, text: str) -> None:
        """Status 400."""
        super().__init__(400, text)


def few(kind: Any, most: int) -> Any:
    """The type of a JSON array of so many of a kind at most; one that is longer is refused before it is made.

    A body is its sender's word: a list of millions of small things takes the worker a hundred times its bytes, and its
    loop for as long.
    """
    fields = [(f"at{index}", kind | None, None) for index in range(most)]
    return msgspec.defstruct("Few", fields, array_like=True, forbid_unknown_fields=True, frozen=True)


def some(array: Any) -> list[Any]:
    """What is in such an array."""
    return [one for one in msgspec.structs.astuple(array) if one is not None]


_Scalar = int | float | bool | str | None


class _Beside(msgspec.Struct, frozen=True):
    """Parameters of a tensor; what else is there is passed over, and not made."""

    binary_data_size: _Scalar = None
    coding: _Scalar = None
    binary_data: _Scalar = None
    classification: _Scalar | msgspec.UnsetType = msgspec.UNSET


class _Wishes(msgspec.Struct, frozen=True):
    """Likewise of a request."""

    binary_data_output: _Scalar = None
    coding_output: _Scalar = None
    priority: _Scalar = 0
    timeout: _Scalar = 0
    copies: _Scalar = 0


_Shape = few(int, MAX_AXES)


class _Tensor(msgspec.Struct, frozen=True):
    name: str
    sides: _Shape = msgspec.field(default=_Shape(), name="shape")  # type: ignore[valid-type]
    datatype: str = ""
    parameters: _Beside = _Beside()
    data: msgspec.Raw = msgspec.Raw()
    """As it stands there: nothing is made of it before name, type and shape are what the model wants."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sides."""
        return tuple(some(self.sides))


_Tensors = few(_Tensor, MAX_TENSORS)


class _Request(msgspec.Struct, frozen=True):
    inputs: _Tensors  # type: ignore[valid-type]
    id: str = ""
    outputs: _Tensors = _Tensors()  # type: ignore[valid-type]
    parameters: _Wishes = _Wishes()


@dataclass(frozen=True, slots=True)
class Wanted:
    """An output as the sender wants it."""

    name: str
    is_binary: bool
    is_coded: bool = False
    """Packed, where that is possible (`coding.py`)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that has been read and fits the model."""

    id: str
    inputs: Mapping[str, Array]
    wanted: tuple[Wanted, ...]
    priority: int
    """0: not said."""
    timeout_us: int
    """0: not said."""
    copies: int = 1
    """Devices that are to work on it at once, where others answer."""


_REQUESTS = msgspec.json.Decoder(_Request)
_NUMBERS = msgspec.json.Decoder(list[int | float | bool | None])


def read_question(
    body: bytes | bytearray,
    json_bytes: int | None,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    not_decoded: str = "",
) -> Question:
    """Read a request for a lane that takes `inputs` and gives `outputs`.

    Args:
        body: All of it; the arrays are views of it.
        json_bytes: The header `Inference-Header-Content-Length`; None: it was absent.
        inputs: What the model takes.
        outputs: What it gives.
        not_decoded: Why no coded tensor is; "": each is.

    Raises:
        OipError: Status 400, 404 (an output that the model lacks) or 413.
    """
    length = len(body) if json_bytes is None else json_bytes
    if not 0 <= length <= len(body):
        raise OipError(400, f"{JSON_LENGTH} is {length}; the body has {len(body)} bytes")
    if length > MAX_JSON_BYTES:
        raise OipError(413, f"the JSON part has {length} bytes, at most {MAX_JSON_BYTES}; send tensors as binary data")
    try:
        request = _REQUESTS.decode(memoryview(body)[:length])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise OipError(400, f"the JSON part is no inference request: {error}") from error
    if len(request.id) > MAX_ID_CHARS:
        raise OipError(400, f"an id has {MAX_ID_CHARS} characters at most")
    all_binary = request.parameters.binary_data_output is True
    all_coded = all_binary and request.parameters.coding_output == CODING
    wanted = tuple(_wanted(one, all_binary, outputs) for one in some(request.outputs))
    priority, timeout_us = _whole(request.parameters, "priority", 3), _whole(request.parameters, "timeout", 1 << 40)
    copies = _whole(request.parameters, "copies", COPIES_MAX) or 1
    # The last thing that may be wrong: unpacking costs time.
    arrays = _read_inputs(some(request.inputs), memoryview(body)[length:], inputs, not_decoded)
    wanted = wanted or tuple(Wanted(port.name, all_binary, all_coded) for port in outputs)
    return Question(request.id, arrays, wanted, priority, timeout_us, copies)


def peek(body: bytes | bytearray, json_bytes: int | None) -> tuple[int, int, int, int]:
    """Items (1 where nothing says otherwise), timeout in microseconds and priority (0: not said), copies of a request.

    For a model that is not here, whose inputs nobody here knows.

    Raises:
        OipError: Status 400 or 413.
    """
    length = len(body) if json_bytes is None else json_bytes
    if not 0 <= length <= min(len(body), MAX_JSON_BYTES):
        raise OipError(400, f"{JSON_LENGTH} is {length}; the body has {len(body)} bytes")
    try:
        request = _REQUESTS.decode(memoryview(body)[:length])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise OipError(400, f"the JSON part is no inference request: {error}") from error
    shape = next((one.shape for one in some(request.inputs)), ())
    timeout_us, priority = _whole(request.parameters, "timeout", 1 << 40), _whole(request.parameters, "priority", 3)
    copies = _whole(request.parameters, "copies", COPIES_MAX) or 1
    return max(1, shape[0] if shape else 1), timeout_us, priority, copies


def _read_inputs(
    tensors: Sequence[_Tensor], tail: memoryview, ports: Sequence[Port], not_decoded: str
) -> Mapping[str, Array]:
    """The inputs by name; nothing is unpacked before all else is right with every one of them."""
    known = {port.name: port for port in ports}
    arrays: dict[str, Array] = {}
    coded: dict[str, tuple[_Tensor, np.dtype[Any], memoryview]] = {}
    for tensor in tensors:
        port = known.get(tensor.name)
        if port is None or tensor.name in arrays or tensor.name in coded:
            raise OipError(400, f"input {tensor.name[:80]!r} is not wanted (or twice); wanted: {', '.join(known)}")
        dtype = _judged(tensor, port)
        size = tensor.parameters.binary_data_size
        if size is None:
            arrays[tensor.name] = _listed(tensor, dtype)
            continue
        wanted_bytes = math.prod(tensor.shape) * dtype.itemsize
        if tensor.parameters.coding is not None:
            packed_bytes = _judge_coded(tensor, size, len(tail), not_decoded)
            coded[tensor.name] = tensor, dtype, tail[:packed_bytes]
            tail = tail[packed_bytes:]
            continue
        if isinstance(size, bool) or size != wanted_bytes or wanted_bytes > len(tail):
            raise OipError(
                400,
                f"input {tensor.name}: binary_data_size is {_shown(size)}, shape and datatype make {wanted_bytes}, "
                f"{len(tail)} bytes are left",
            )
        arrays[tensor.name] = np.frombuffer(tail[:wanted_bytes], dtype).reshape(tensor.shape)
        tail = tail[wanted_bytes:]
    if len(tail):
        raise OipError(400, f"{len(tail)} bytes are left over behind the last tensor")
    for name in known:
        if name not in arrays and name not in coded:
            raise OipError(400, f"input {name} is missing")
    return arrays | {name: _decoded_input(*one) for name, one in coded.items()}


def _judge_coded(tensor: _Tensor, size: Any, left_bytes: int, not_decoded: str) -> int:
    """How many bytes a packed input has, where all holds that can be said before it is unpacked; else `FormError`."""
    if not_decoded:
        raise FormError(f"input {tensor.name}: {not_decoded}")
    if type(size) is not int or not 0 <= size <= left_bytes:
        raise FormError(f"input {tensor.name}: binary_data_size is {_shown(size)}; {left_bytes} bytes are left")
    if tensor.parameters.coding not in (CODING, DIFF, JPEG):
        raise FormError(f"input {tensor.name} is coded in no way that is known here; {CODING}, {DIFF} and {JPEG} are")
    return size


def _decoded_input(tensor: _Tensor, dtype: "np.dtype[Any]", piece: memoryview) -> Array:
    """A packed input, or a picture in one of its forms; its size is judged before and while it is unpacked."""
    coding, data = tensor.parameters.coding, bytes(piece)
    try:
        if coding == CODING:
            wanted_bytes = math.prod(tensor.shape) * dtype.itemsize
            return np.frombuffer(unpacked(data, wanted_bytes), dtype).reshape(tensor.shape)
        if dtype != np.uint8:
            raise ValueError("only a picture (UINT8) has such a form")
        return from_differences(data, tensor.shape) if coding == DIFF else from_jpeg(data, tensor.shape)
    except ValueError as error:
        raise FormError(f"input {tensor.name} as {coding}: {error}") from error


def _judged(tensor: _Tensor, port: Port) -> "np.dtype[Any]":
    dtype = DATATYPES.get(tensor.datatype)
    if dtype is None or dtype != port.dtype or dtype.hasobject:
        raise OipError(400, f"input {port.name} is {tensor.datatype[:20]!r}; {datatype_of(port.dtype)} is wanted")
    fits = len(tensor.shape) == len(port.shape) <= MAX_AXES and all(
        (0 < n <= MAX_SIDE_ITEMS if want == -1 else n == want) for n, want in zip(tensor.shape, port.shape, strict=True)
    )
    if not fits:
        shape = ", ".join(map(_shown, tensor.shape[:MAX_AXES]))
        raise OipError(400, f"input {port.name} has shape [{shape}]; {list(port.shape)} is wanted")
    return dtype


def _listed(tensor: _Tensor, dtype: "np.dtype[Any]") -> Array:
    data, wanted = bytes(tensor.data), math.prod(tensor.shape)
    if not data.startswith(b"["):
        raise OipError(400, f"input {tensor.name} has neither data nor binary_data_size")
    try:
        if (found := data.count(b",") + 1) != wanted:
            raise ValueError(f"{found} numbers for {wanted}")
        # Lists in lists are numbers in the same order; made as lists they take a hundred times their bytes.
        return np.array(_NUMBERS.decode(b"[" + data.translate(None, b"[]") + b"]"), dtype).reshape(tensor.shape)
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise OipError(
            400, f"input {tensor.name}: data and {tensor.datatype} do not fit: {str(error)[:120]}"
        ) from error


def _wanted(tensor: _Tensor, all_binary: bool, ports: Sequence[Port]) -> Wanted:
    if tensor.name not in {port.name for port in ports}:
        raise OipError(404, f"no output {tensor.name[:80]!r}; there are {', '.join(port.name for port in ports)}")
    if tensor.parameters.classification is not msgspec.UNSET:
        raise OipError(400, "the classification extension is not served; ask for the scores")
    said = tensor.parameters.binary_data
    return Wanted(tensor.name, all_binary if said is None else said is True)


def _whole(parameters: _Wishes, name: str, high: int) -> int:
    value = getattr(parameters, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise OipError(400, f"parameter {name} is {_shown(value)}; 0 to {high} is wanted")
    return value


def _shown(value: object) -> str:
    """A value of the sender's in an error; a number of thousands of digits would raise one of its own."""
    is_short = isinstance(value, int | float) and abs(value) < MAX_SIDE_ITEMS
    return str(value) if is_short else f"a {type(value).__name__}"


def datatype_of(dtype: "np.dtype[Any]") -> str:
    """The protocol's name of a type."""
    return _NAMES[dtype]


def port_row(port: Port) -> dict[str, Any]:
    """A tensor in a model's metadata; a quantised one says what its steps are worth."""
    row: dict[str, Any] = {"name": port.name, "datatype": datatype_of(port.dtype), "shape": list(port.shape)}
    if port.scale:
        row["parameters"] = {"scale": port.scale, "zero_point": port.zero_point}
    return row


def write_answer(
    head: Mapping[str, Any], outputs: Mapping[str, Array], wanted: Sequence[Wanted], most_bytes: int | None = None
) -> tuple[list[bytes], int | None]:
    """An answer's body in pieces, and the length of its JSON part where raw bytes follow.

    Args:
        head: What stands beside the outputs: model_name, model_version, id, parameters.
        outputs: Every output of the model.
        wanted: Which, and how. JSON has no NaN: such numbers become null there.
        most_bytes: Nothing is written that has more for certain; None: no bound.

    Raises:
        OipError: Status 413.
    """
    least = sum(_least_bytes(one, outputs[one.name]) for one in wanted if not one.is_coded)
    if most_bytes is not None and least > most_bytes:
        raise OipError(413, f"the answer has {least} bytes or more; at most {most_bytes} are wanted")
    json_bytes = sum(_least_bytes(one, outputs[one.name]) for one in wanted if not one.is_binary)
    if json_bytes > (OWN_JSON_BYTES if most_bytes is None else MAX_JSON_BYTES):  # A number takes its writer 60 bytes.
        raise OipError(413, f"the answer has {json_bytes} bytes of JSON or more; ask for it as binary data")
    rows: list[dict[str, Any]] = []
    tails: list[bytes] = []
    for one in wanted:
        array = outputs[one.name]
        row: dict[str, Any] = {"name": one.name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if one.is_binary:
            tails.append(_texts(array) if array.dtype.hasobject else np.ascontiguousarray(array).tobytes())
            row["parameters"] = {}
            if one.is_coded and not array.dtype.hasobject and (small := packed(tails[-1])) is not None:
                tails[-1], row["parameters"] = small, {"coding": CODING}
            row["parameters"]["binary_data_size"] = len(tails[-1])
        else:
            row["data"] = array.ravel().tolist()
        rows.append(row)
    text = msgspec.json.encode({**head, "outputs": rows})
    return [text, *tails], len(text) if tails else None


def _least_bytes(one: Wanted, array: Array) -> int:
    """What an output takes at least: in JSON a digit and a comma for each number, and of one with a fraction `0.0,`."""
    if one.is_binary and not array.dtype.hasobject:
        return array.nbytes
    return (4 if array.dtype.kind == "f" else 2) * array.size


def _texts(array: Array) -> bytes:
    """Texts as the protocol packs them: a length of four bytes, little endian, before each."""
    encoded = [str(text).encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def write_question(inputs: Mapping[str, Array], timeout_us: int) -> tuple[bytes, int]:
    """A request for all outputs, and the length of its JSON part; inputs and outputs are packed where that is possible.

    Args:
        inputs: Every input, numbers all.
        timeout_us: Until its deadline; 0: none is named.
    """
    rows: list[dict[str, Any]] = []
    tails: list[bytes] = []
    for name, array in inputs.items():
        tail = np.ascontiguousarray(array).tobytes()
        small = packed(tail)
        tails.append(tail if small is None else small)
        size = {"binary_data_size": len(tails[-1])} | ({} if small is None else {"coding": CODING})
        rows.append(
            {"name": name, "shape": list(array.shape), "datatype": datatype_of(array.dtype), "parameters": size}
        )
    wish = {"binary_data_output": True, "coding_output": CODING, "timeout": timeout_us}
    text = msgspec.json.encode({"inputs": rows, "parameters": wish})
    return b"".join([text, *tails]), len(text)


def read_outputs(rows: Sequence[Mapping[str, Any]], tail: bytes) -> Iterator[tuple[str, Array]]:
    """A client's side: the outputs of an answer whose outputs are all raw bytes; raises `OipError` (502)."""
    for row in rows:
        try:
            size, shape = row["parameters"]["binary_data_size"], row["shape"]
            if len(shape) > MAX_AXES:
                raise ValueError(f"{len(shape)} sides")
            dtype, piece, tail = DATATYPES[row["datatype"]], tail[:size], tail[size:]
            array: Array
            if dtype.hasobject:
                array = np.array(list(_packed_texts(piece)), object).reshape(shape)
            else:
                if row["parameters"].get("coding") == CODING:
                    piece = unpacked(piece, math.prod(shape) * dtype.itemsize)
                array = np.frombuffer(piece, dtype).reshape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise OipError(502, f"the server's answer does not hold: {error}") from error
        yield str(row["name"]), array


class _Said(msgspec.Struct, frozen=True):
    binary_data_size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    coding: str = ""


_Sides = few(Annotated[int, msgspec.Meta(ge=0, le=MAX_SIDE_ITEMS)], MAX_AXES)


class _Row(msgspec.Struct, frozen=True):
    name: str
    shape: _Sides  # type: ignore[valid-type]
    datatype: str
    parameters: _Said = _Said()
    data: list[int | float | str | None] | None = None
    """Flat: lists in it would be as many as bytes."""


_Rows = few(_Row, OUTPUTS_MAX)


class _Given(msgspec.Struct, frozen=True):
    outputs: _Rows  # type: ignore[valid-type]


_ANSWERS = msgspec.json.Decoder(_Given)


def read_answer(body: bytes, json_bytes: int | None) -> dict[str, Array]:
    """The outputs of an answer that came from anywhere; raises `OipError` (502) for one that does not hold."""
    length = len(body) if json_bytes is None else json_bytes
    if length > MAX_JSON_BYTES:
        raise OipError(502, f"the answer's JSON part has {length} bytes; at most {MAX_JSON_BYTES} are read")
    outputs: dict[str, Array] = {}
    try:
        rows, tail = some(_ANSWERS.decode(body[:length]).outputs), body[length:]
        for row in rows:
            size, shape = row.parameters.binary_data_size, some(row.shape)
            if size is not None:
                said = {"binary_data_size": size, "coding": row.parameters.coding}
                binary = {"name": row.name, "shape": shape, "datatype": row.datatype, "parameters": said}
                outputs.update(read_outputs([binary], tail))
                tail = tail[size:]
                continue
            dtype = DATATYPES[row.datatype]
            data = [math.nan if one is None else one for one in row.data] if dtype.kind == "f" else row.data
            with np.errstate(over="ignore"):
                outputs[row.name] = np.array(data, dtype).reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise OipError(502, f"the answer does not hold: {str(error)[:120]}") from error
    return outputs


def _packed_texts(data: bytes) -> Iterator[str]:
    while data:
        size = int.from_bytes(data[:4], "little")
        yield data[4 : 4 + size].decode()
        data = data[4 + size :]
