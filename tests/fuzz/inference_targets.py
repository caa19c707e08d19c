"""Fuzz targets of the inference API: what programs and borrowers send, and what lenders answer."""

import contextlib

import numpy as np

from swarmd.worker import pictures
from swarmd.worker.coding import CODED_MAX_BYTES, packed
from swarmd.worker.http_head import HeadError, read_head
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
        b'{"inputs":[{"name":"image","shape":[24,32,1],"datatype":"UINT8","parameters":'
        b'{"coding":"jpeg","binary_data_size":%d}}]}' % len(jpegs()[0]) + jpegs()[0],
    ]


_SIDES = ((24, 32, 1), (24, 32, 3), (16, 48, 1))
_SHADES = np.add.outer(np.arange(24), np.arange(32)).astype(np.uint8)[..., None]


def differences() -> list[bytes]:
    """Pictures as `diff-br`."""
    found = (pictures.differences(np.repeat(np.tile(_SHADES, (2, 2, 1)), count, axis=2)) for count in (1, 3))
    return [one for one in found if one is not None] + [b""]


def read_differences(data: bytes) -> None:
    """The picture that was said, or none."""
    for sides in (*_SIDES, (48, 64, 1), (48, 64, 3), (1 << 20, 1 << 20, 3)):
        with contextlib.suppress(ValueError):
            assert pictures.from_differences(data, sides).shape == sides


def jpegs() -> list[bytes]:
    """Pictures as `jpeg`."""
    return [
        pictures.as_jpeg(np.repeat(_SHADES, count, axis=2), quality) or b"" for count in (1, 3) for quality in (5, 95)
    ]


def read_jpeg(data: bytes) -> None:
    """The picture that was said, or none."""
    for sides in (*_SIDES, (1 << 16, 1 << 16, 3)):
        with contextlib.suppress(ValueError):
            assert pictures.from_jpeg(data, sides).shape == sides


def read_request(data: bytes) -> None:
    """Cut at several places."""
    end = data.rfind(b"}") + 1
    for taken in _PORTS:
        for length in (None, end, len(data) // 2):
            with contextlib.suppress(OipError):
                question = read_question(data, length, taken, _OUT)
                assert question.inputs.keys() == {port.name for port in taken}


def heads() -> list[bytes]:
    """Heads of HTTP."""
    return [
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n",
        b"GET /v2?a=b HTTP/1.0\nConnection: keep-alive, close\nX:\ty z\n",
    ]


def read_some_head(data: bytes) -> None:
    """A head, or none; never two."""
    with contextlib.suppress(HeadError):
        head = read_head(data)
        assert 0 <= head.length < 10**20
        assert not any(set("\r\n\x00") & set(text) for text in (head.method, head.path, *head.headers.values()))


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


MAKERS = {
    "inference-requests": lambda: (requests(), read_request, 4),
    "inference-heads": lambda: (heads(), read_some_head, 4),
    "inference-answers": lambda: (answers(), read_an_answer, 4),
    "picture-differences": lambda: (differences(), read_differences, 4),
    "picture-jpegs": lambda: (jpegs(), read_jpeg, 8),
}
"""Corpus, target and cost of each."""
