"""Fuzz targets of the inference API: what programs and borrowers send, and what lenders answer."""

import contextlib

import numpy as np

from swarmd.worker.coding import CODED_MAX_BYTES, packed
from swarmd.worker.oip import OipError, Wanted, read_answer, read_question, write_answer
from swarmd_models.service import Port

_PORTS = (
    (Port("a", (-1, 2, 3), np.dtype(np.int8)),),
    (Port("image", (-1, -1, -1), np.dtype(np.uint8)),),
)
_OUT = (Port("x", (-1, 4), np.dtype(np.float32)),)


def requests() -> list[bytes]:
    """JSON and raw bytes behind it, some of them packed."""
    tensor, picture, small = bytes(12), bytes(64), packed(bytes(1_200)) or b""
    return [
        b'{"inputs":[{"name":"a","shape":[2,2,3],"datatype":"INT8","parameters":{"binary_data_size":12}}]}' + tensor,
        b'{"id":"7","inputs":[{"name":"a","shape":[1,2,3],"datatype":"INT8","data":[1,2,3,4,5,6]}],'
        b'"parameters":{"priority":1,"timeout":5000,"binary_data_output":true}}',
        b'{"inputs":[{"name":"image","shape":[8,8,1],"datatype":"UINT8","parameters":{"binary_data_size":64}}],'
        b'"outputs":[{"name":"x","parameters":{"binary_data":true}}]}' + picture,
        b'{"inputs":[{"name":"a","shape":[200,2,3],"datatype":"INT8","parameters":'
        b'{"coding":"br","binary_data_size":%d}}],"parameters":{"coding_output":"br","binary_data_output":true}}'
        % len(small)
        + small,
    ]


def read_request(data: bytes) -> None:
    """Cut at several places."""
    end = data.rfind(b"}") + 1
    for taken in _PORTS:
        for length in (None, end, len(data) // 2):
            with contextlib.suppress(OipError):
                question = read_question(data, length, taken, _OUT)
                assert question.inputs.keys() == {port.name for port in taken}


def answers() -> list[bytes]:
    """Tensors, some of them packed."""
    outputs = {"x": np.zeros((1, 2_000), np.int8), "y": np.arange(4, dtype=np.float32)}
    bodies = []
    for is_binary, is_coded in ((True, True), (True, False), (False, False)):
        pieces, _ = write_answer({}, outputs, [Wanted(name, is_binary, is_coded) for name in outputs])
        bodies.append(b"".join(pieces))
    return bodies


def read_an_answer(data: bytes) -> None:
    """No more comes out than shapes say, or the bytes could hold."""
    for length in (None, data.rfind(b"}") + 1, data.find(b"]}") + 2):
        with contextlib.suppress(OipError):
            for array in read_answer(data, length).values():
                assert array.dtype.hasobject or array.nbytes <= max(CODED_MAX_BYTES, 64 * len(data))
