"""The messages of the Open Inference Protocol over gRPC, and the same requests and answers as over HTTP.

A request becomes what `oip.py` reads, raw bytes behind JSON, so that both doors have one reader with its bounds; an
answer's raw bytes become `raw_output_contents`.

Source:
    KServe, "Open Inference Protocol (V2)", gRPC API, and Triton's extension of it by ModelStreamInfer and
    RepositoryIndex: service `inference.GRPCInferenceService`; the field numbers below are theirs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from swarmd.worker.oip import DATATYPES, MAX_TENSORS, OipError
from swarmd.worker.protobuf import Field, ProtobufError, Schema, decode, encode
from swarmd.worker.residency import TEXT_SUFFIX

_NAME_BYTES = 1_024
"""Of a request, within which its model's name stands: clients write it first."""
_ANSWER_HEAD_MAX_BYTES = 128 << 10
"""Before the raw bytes of an answer, which is its lender's word: 256 outputs, a name and a shape each."""
_PARAMETER: Schema = {
    1: Field("bool_param", "bool"), 2: Field("int64_param", "int64"), 3: Field("string_param", "string"),
    4: Field("double_param", "double"), 5: Field("uint64_param", "uint64"),
}  # fmt: skip
_CONTENTS: Schema = {
    1: Field("bool_contents", "bool", "repeated"), 2: Field("int_contents", "int32", "repeated"),
    3: Field("int64_contents", "int64", "repeated"), 4: Field("uint_contents", "uint32", "repeated"),
    5: Field("uint64_contents", "uint64", "repeated"), 6: Field("fp32_contents", "float", "repeated"),
    7: Field("fp64_contents", "double", "repeated"), 8: Field("bytes_contents", "bytes", "repeated"),
}  # fmt: skip
_TENSOR: Schema = {
    1: Field("name", "string"), 2: Field("datatype", "string"), 3: Field("shape", "int64", "repeated"),
    4: Field("parameters", _PARAMETER, "map"), 5: Field("contents", _CONTENTS),
}  # fmt: skip
_WANTED: Schema = {1: Field("name", "string"), 2: Field("parameters", _PARAMETER, "map")}
INFER_REQUEST: Schema = {
    1: Field("model_name", "string"), 2: Field("model_version", "string"), 3: Field("id", "string"),
    4: Field("parameters", _PARAMETER, "map"), 5: Field("inputs", _TENSOR, "repeated"),
    6: Field("outputs", _WANTED, "repeated"), 7: Field("raw_input_contents", "bytes", "repeated"),
}  # fmt: skip
INFER_RESPONSE: Schema = {
    1: Field("model_name", "string"), 2: Field("model_version", "string"), 3: Field("id", "string"),
    4: Field("parameters", _PARAMETER, "map"), 5: Field("outputs", _TENSOR, "repeated"),
    6: Field("raw_output_contents", "bytes", "repeated"),
}  # fmt: skip
STREAM_RESPONSE: Schema = {1: Field("error_message", "string"), 2: Field("infer_response", INFER_RESPONSE)}
NAMED: Schema = {1: Field("name", "string"), 2: Field("version", "string")}
"""ModelReadyRequest, ModelMetadataRequest."""
NOTHING: Schema = {}
LIVE: Schema = {1: Field("live", "bool")}
READY: Schema = {1: Field("ready", "bool")}
SERVER_METADATA: Schema = {
    1: Field("name", "string"), 2: Field("version", "string"), 3: Field("extensions", "string", "repeated"),
}  # fmt: skip
_PORT: Schema = {1: Field("name", "string"), 2: Field("datatype", "string"), 3: Field("shape", "int64", "repeated")}
MODEL_METADATA: Schema = {
    1: Field("name", "string"), 2: Field("versions", "string", "repeated"), 3: Field("platform", "string"),
    4: Field("inputs", _PORT, "repeated"), 5: Field("outputs", _PORT, "repeated"),
}  # fmt: skip
_INDEX_ROW: Schema = {
    1: Field("name", "string"), 2: Field("version", "string"), 3: Field("state", "string"),
    4: Field("reason", "string"),
}  # fmt: skip
REPOSITORY_INDEX: Schema = {1: Field("models", _INDEX_ROW, "repeated")}
_CONTENTS_OF = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


def read_named(data: bytes) -> tuple[str, str]:
    """A model's name and version; raises `OipError`."""
    message = _decoded(NAMED, data)
    return message.get("name", ""), message.get("version", "")


def read_infer(data: bytes) -> tuple[str, str, bytearray, int]:
    """A ModelInferRequest as it would come over HTTP.

    Returns:
        The model's name and version, the body, and the length of its JSON part.

    Raises:
        OipError: It is none, or its tensors contradict themselves.
    """
    message = _decoded(INFER_REQUEST, data)
    tensors, raws = message.get("inputs", []), message.get("raw_input_contents", [])
    if len(tensors) > MAX_TENSORS or (raws and len(raws) != len(tensors)):
        raise OipError(400, f"{len(tensors)} inputs (at most {MAX_TENSORS}) and {len(raws)} of raw bytes")
    rows, tail = [], []
    for index, tensor in enumerate(tensors):
        if raws and tensor.get("contents"):
            raise OipError(400, "an input has both contents and raw_input_contents")
        raw = raws[index] if raws else _contents(tensor)
        rows.append(
            {
                "name": tensor.get("name", ""),
                "shape": tensor.get("shape", []),
                "datatype": tensor.get("datatype", ""),
                "parameters": {"binary_data_size": len(raw)},
            }
        )
        tail.append(raw)
    wanted = [{"name": one.get("name", ""), "parameters": _values(one)} for one in message.get("outputs", [])]
    head = {
        "id": message.get("id", ""),
        "inputs": rows,
        "outputs": wanted,
        "parameters": {**_values(message), "binary_data_output": True},
    }
    text = msgspec.json.encode(head)
    body = bytearray(text)
    for raw in tail:
        body += raw
    return message.get("model_name", ""), message.get("model_version", ""), body, len(text)


def read_text(data: bytes) -> tuple[str, str, bytes] | None:
    """A request for a text, as `generate_stream` takes it; None: it is of another model.

    Returns:
        The model's name and version, and the body.

    Raises:
        OipError: It has not one input `text_input` with one text.
    """
    if TEXT_SUFFIX.encode() not in data[:_NAME_BYTES]:
        return None
    message = _decoded(INFER_REQUEST, data)
    name = message.get("model_name", "")
    if not name.endswith(TEXT_SUFFIX):
        return None
    tensors, raws = message.get("inputs", []), message.get("raw_input_contents", [])
    texts = raws or (tensors[0].get("contents", {}).get("bytes_contents", []) if tensors else [])
    if [(one.get("name"), one.get("datatype")) for one in tensors] != [("text_input", "BYTES")] or len(texts) != 1:
        raise OipError(400, "a text model takes one input, text_input, BYTES, with one text")
    text = bytes(texts[0])
    if raws:  # A length of four bytes before the text.
        size, text = int.from_bytes(text[:4], "little"), text[4:]
        if size != len(text):
            raise OipError(400, f"text_input says {size} bytes and has {len(text)}")
    try:
        asked = {"text_input": text.decode(), "id": message.get("id", ""), "parameters": _values(message)}
    except UnicodeDecodeError as error:
        raise OipError(400, "text_input is no UTF-8") from error
    return name, message.get("model_version", ""), msgspec.json.encode(asked)


def write_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """A piece of a text as a ModelInferResponse; raises `OipError` for the event of an error."""
    if "error" in row:
        raise OipError(row["status"], row["error"])
    text = row["text_output"].encode()
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
    return {
        "model_name": row["model_name"], "model_version": row["model_version"], "id": row["id"],
        "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1]}],
        "raw_output_contents": [len(text).to_bytes(4, "little") + text],
        "parameters": {name: {kinds[type(value)]: value} for name, value in row["parameters"].items()},
    }  # fmt: skip


def write_infer(pieces: Sequence[bytes], json_bytes: int, lender: str, form: str = "") -> dict[str, Any]:
    """A ModelInferResponse of what would go over HTTP; raises `OipError` (502) for a lender's that does not hold."""
    whole = b"".join(pieces)
    if json_bytes > _ANSWER_HEAD_MAX_BYTES:
        raise OipError(502, f"the answer does not hold: {json_bytes} bytes stand before its tensors")
    try:
        head, tail = msgspec.json.decode(whole[:json_bytes]), memoryview(whole)[json_bytes:]
        outputs, raws = [], []
        for row in head["outputs"]:
            size = row["parameters"]["binary_data_size"]
            shape = [int(side) for side in row["shape"]]
            outputs.append({"name": str(row["name"]), "datatype": str(row["datatype"]), "shape": shape})
            raws.append(tail[:size])
            tail = tail[size:]
        message: dict[str, Any] = {
            "model_name": str(head.get("model_name", "")),
            "model_version": str(head["model_version"]),
            "id": str(head.get("id", "")),
            "outputs": outputs,
            "raw_output_contents": raws,
        }
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise OipError(502, f"the answer does not hold: {str(error)[:120]}") from error
    if said := {name: {"string_param": text} for name, text in (("lender", lender), ("form", form)) if text}:
        message["parameters"] = said
    return message


def encoded(schema: Schema, message: Mapping[str, Any]) -> bytes:
    """A message's bytes."""
    return encode(schema, message)


def _decoded(schema: Schema, data: bytes) -> dict[str, Any]:
    try:
        return decode(schema, data)
    except ProtobufError as error:
        raise OipError(400, f"the message cannot be read: {error}") from error


def _values(message: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without the word that says of what type each is."""
    found = {}
    for name, value in message.get("parameters", {}).items():
        if isinstance(value, dict) and value:
            found[name] = next(iter(value.values()))
    return {name: value for name, value in found.items() if not (isinstance(value, float) and not math.isfinite(value))}


def _contents(tensor: Mapping[str, Any]) -> bytes:
    """The numbers of an input as raw bytes."""
    contents, datatype = tensor.get("contents", {}), tensor.get("datatype", "")
    name = _CONTENTS_OF.get(datatype)
    if name is None or set(contents) - {name}:
        raise OipError(
            400, f"input {str(tensor.get('name', ''))[:80]}: its contents do not fit {datatype[:20]!r}; send raw bytes"
        )
    try:
        return np.array(contents.get(name, []), DATATYPES[datatype]).tobytes()
    except (ValueError, OverflowError, TypeError) as error:
        raise OipError(400, f"input contents do not fit {datatype}: {str(error)[:120]}") from error
