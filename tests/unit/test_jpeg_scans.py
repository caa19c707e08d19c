"""What is judged of a coded picture before it is decoded: its scan, its sides, and the request around it."""

import asyncio
import contextlib
import json
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd.worker import oip
from swarmd.worker.forms import Forms
from swarmd.worker.oip import FormError, OipError
from swarmd.worker.pictures import RAW, as_jpeg, from_jpeg
from swarmd_models.backends.base import Array
from swarmd_models.service import Port


class Counted(bytes):
    """Counts what is copied or looked through of it, and of its copies."""

    looked = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            Counted.looked += len(found)
            return Counted(found)
        return found

    def replace(self, *about: Any) -> "Counted":
        Counted.looked += len(self)
        return Counted(super().replace(*about))


def with_restarts(rows: int, columns: int, interval: int, channels: int = 1) -> tuple[Array, bytes]:
    image = np.random.default_rng(3).integers(0, 256, (rows, columns, channels), np.uint8)
    about = [cv2.IMWRITE_JPEG_QUALITY, 70, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    return image, bytes(cv2.imencode(".jpg", image, about)[1])


def scan_of(data: bytes) -> tuple[bytes, bytes]:
    """What stands before a JPEG's pixels, and them."""
    at = data.index(b"\xff\xda")
    at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data[:at], data[at:-2]


def test_a_scan_is_looked_through_once_however_many_markers_it_has() -> None:
    for rows in (128, 1_024):
        image, data = with_restarts(rows, 1_024, 1)
        assert data.count(b"\xff\xd7") == rows * 16 // 8 - (rows * 16 % 8 == 0), "one a block"
        Counted.looked = 0
        assert from_jpeg(Counted(data), image.shape).shape == image.shape
        assert Counted.looked <= len(data), "its head, and no copy of the rest for each marker"
    head, _ = scan_of(as_jpeg(np.zeros((700, 900, 3), np.uint8), 90) or b"")
    Counted.looked = 0
    with pytest.raises(ValueError, match="restarts"):
        from_jpeg(Counted(head + b"\xff\xd0" * 400_000 + b"\xff\xd9"), (700, 900, 3))
    assert Counted.looked < 2_000


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interval", [1, 3, 7])
def test_restarts_are_those_that_the_header_says(channels: int, interval: int) -> None:
    for rows, columns in ((64, 96), (61, 97), (16, 16), (8, 130)):
        image, data = with_restarts(rows, columns, interval, channels)
        whole = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED).reshape(image.shape)
        assert np.array_equal(from_jpeg(data, image.shape), whole)
        head, scan = scan_of(data)
        number = sum(scan.count(bytes((0xFF, kind))) for kind in range(0xD0, 0xD8))
        said = b"\xff\xdd\0\4" + interval.to_bytes(2, "big")
        assert said in head
        bad = [
            head + scan + bytes((0xFF, 0xD0 + number % 8)), head + b"\xff\xd1" + scan, head + scan + b"\xff",
            head + scan + b"\xff\xff\0\xd0", data.replace(said, b"\xff\xdd\0\5\0" + said[-2:])[:-2],
        ]  # fmt: skip
        if number:
            bad += [data.replace(said, b"")[:-2], data.replace(said, b"\xff\xdd\0\4\0\0")[:-2]]
        for one in bad:
            with pytest.raises(ValueError, match="JPEG"):
                from_jpeg(one + b"\xff\xd9", image.shape)


LARGE = with_restarts(1_024, 1_024, 16)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 1 << 20), st.binary(min_size=1, max_size=4), st.integers(1, 1 << 18), st.booleans(),
)  # fmt: skip
@example(700, b"\xff\xd0", 1 << 18, True)
@example(700, b"\xff\0", 1 << 18, True)
@example(700, b"\xff", 1 << 18, False)
def test_no_large_picture_raises_anything_else(at: int, what: bytes, times: int, is_over: bool) -> None:
    image, data = LARGE
    some = (what * times)[: len(data) // 2]
    at %= len(data)
    for changed in (
        data[:at] + some + data[at + len(some) * is_over :],
        some + data,
        data[: at // 2] + some + data[-2:],
    ):
        with contextlib.suppress(ValueError):
            assert from_jpeg(changed, image.shape).shape == image.shape


def test_a_side_that_no_jpeg_has_is_none() -> None:
    for sides in ((2, 65_500, 1), (65_500, 1, 3)):
        image = np.zeros(sides, np.uint8)
        assert from_jpeg(as_jpeg(image, 90) or b"", sides).shape == sides
    for sides in ((2, 65_501, 1), (70_000, 1, 3)):
        image = np.zeros(sides, np.uint8)
        assert as_jpeg(image, 90) is None
        one = Forms(90)
        for _ in range(5):
            one.link.note(10_000, 80_000_000, 1)
        content = json.dumps(
            {"inputs": [{"name": "image", "shape": sides, "datatype": "UINT8",
                         "parameters": {"binary_data_size": image.nbytes}}]}
        ).encode()  # fmt: skip
        shares = dict(one._shares)
        dressed = asyncio.run(one.dress(content + image.tobytes(), len(content), 60_000, "", False))
        assert (dressed.form, dressed.is_exact) == (RAW, True)
        assert one._shares == shares, "it says nothing about other pictures"


INPUTS = (Port("image", (-1, -1, 1), np.dtype(np.uint8)), Port("other", (1,), np.dtype(np.float32)))
OUTPUTS = (Port("scores", (-1,), np.dtype(np.float32)),)


@pytest.mark.parametrize(
    ("tail", "change"),
    [
        (b"x", {}), (b"", {"parameters": {"priority": 9}}), (b"", {"parameters": {"timeout": -1}}),
        (b"", {"parameters": {"copies": 3}}), (b"", {"outputs": [{"name": "none"}]}), (b"", {"other": "image"}),
        (b"", {"other": ""}), (b"", {"other": "more"}), (b"", {"datatype": "FP64"}), (b"", {"data": [1, 2]}),
        (b"", {"data": ["text"]}),
    ],
)  # fmt: skip
def test_nothing_is_decoded_of_a_request_that_is_wrong_otherwise(
    tail: bytes, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("from_jpeg", "from_differences", "unpacked"):
        monkeypatch.setattr(oip, name, lambda *about: pytest.fail("it was decoded"))
    picture = {"name": "image", "shape": [8, 8, 1], "datatype": "UINT8"}
    for coding in ("br", "diff-br", "jpeg"):
        said = {"binary_data_size": 5, "coding": coding}
        other = {
            "name": change.get("other", "other"), "shape": [1], "datatype": change.get("datatype", "FP32"),
            "data": change.get("data", [1.0]),
        }  # fmt: skip
        head = {"inputs": [{**picture, "parameters": said}, other][: 1 if change.get("other") == "" else 2]}
        head |= {name: row for name, row in change.items() if name in ("parameters", "outputs")}
        content = json.dumps(head).encode()
        with pytest.raises(OipError) as found:
            oip.read_question(content + b"12345" + tail, len(content), INPUTS, OUTPUTS)
        assert not isinstance(found.value, FormError)
