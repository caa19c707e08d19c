"""What a FLIR camera measured, out of its JPEG: written here as ExifTool describes the format, and damaged."""

import math
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from swarmd_models.radiometric import MAX_PIXELS, MAX_SIDE, kelvin_of
from swarmd_models.sources import open_source, read_picture

R1, B, F, OFFSET, R2 = 17096.453, 1428.0, 1.0, -370, 0.048084795
"""Constants of a real drone camera."""
REFLECTED_K = 295.15
Values: TypeAlias = npt.NDArray[Any]


def counts_for(kelvin: Values, emissivity: float) -> Values:
    """What the sensor counts: the object's own radiation, and what it mirrors of its surroundings."""

    def of(temperature: Values | float) -> Values:
        return R1 / (R2 * (np.exp(B / np.asarray(temperature)) - F)) - OFFSET

    return np.rint(emissivity * of(kelvin) + (1 - emissivity) * of(REFLECTED_K)).astype(np.uint16)


def camera_info(order: str, emissivity: float, **other: float) -> bytes:
    data = bytearray(900)
    struct.pack_into(order + "H", data, 0, 2)
    struct.pack_into(order + "3f", data, 32, emissivity, 20.0, other.get("reflected_k", REFLECTED_K))
    struct.pack_into(order + "3f", data, 88, other.get("r1", R1), B, F)
    struct.pack_into(order + "if", data, 776, OFFSET, R2)
    return bytes(data)


def raw_data(order: str, counts: Values, as_png: bool) -> bytes:
    height, width = counts.shape
    head = struct.pack(order + "3H", 2, width, height).ljust(32, b"\0")
    if as_png:
        return head + cv2.imencode(".png", counts.byteswap())[1].tobytes()
    return head + counts.astype(np.dtype(np.uint16).newbyteorder(order)).tobytes()


def fff(records: dict[int, bytes], order: str = ">") -> bytes:
    """A file of records, the directory after the header."""
    directory, body, at = b"", b"", 64 + 32 * len(records)
    for kind, data in records.items():
        entry = bytearray(32)
        struct.pack_into(order + "H", entry, 0, kind)
        struct.pack_into(order + "2I", entry, 12, at + len(body), len(data))
        directory, body = directory + bytes(entry), body + data
    head = b"FFF\0" + b"test".ljust(16, b"\0") + struct.pack(order + "3I", 101, 64, len(records))
    return head.ljust(64, b"\0") + directory + body


def jpeg_with(data: bytes, piece: int = 60_000) -> bytes:
    """A picture of another size, with the file in its segments."""
    picture = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)] or [b""]
    segments = b""
    for number, one in enumerate(pieces):
        body = b"FLIR\0\x01" + bytes((number, len(pieces) - 1)) + one
        segments += b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    return picture[:2] + segments + picture[2:]


def scene() -> Values:
    kelvin = np.full((60, 80), 300.0)
    kelvin[20:30, 30:40] = 330.0
    return kelvin


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("as_png", [True, False])
@pytest.mark.parametrize("emissivity", [1.0, 0.7])
def test_what_was_measured_comes_back(order: str, as_png: bool, emissivity: float) -> None:
    counts = counts_for(scene(), emissivity)
    records = {1: raw_data(order, counts, as_png), 32: camera_info(order, emissivity)}
    kelvin = kelvin_of(jpeg_with(fff(records, order), piece=3_000))
    assert kelvin is not None
    assert kelvin.shape == (60, 80)
    assert np.abs(kelvin - scene()).max() < 0.1, "one count is some hundredths of a kelvin"


def test_the_eye_sees_the_measurements_and_says_what_a_level_means(tmp_path: Path) -> None:
    path = tmp_path / "flir.jpg"
    path.write_bytes(jpeg_with(fff({1: raw_data("<", counts_for(scene(), 0.95), True), 32: camera_info("<", 0.95)})))
    frame = open_source(str(path)).read()
    assert frame is not None
    assert frame.image.shape == (60, 80)
    assert frame.level is not None
    hot, cool = int(frame.image[25, 35]), int(frame.image[5, 5])
    for grey, kelvin in ((hot, 330.0), (cool, 300.0)):
        assert abs(frame.level.zero + frame.level.step * grey - kelvin) < 1.0


NONE = np.zeros((60, 80), np.uint16)
GOOD = fff({1: raw_data(">", counts_for(scene(), 1.0), False), 32: camera_info(">", 1.0)})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"FFF\0",
        fff({32: camera_info(">", 1.0)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), False)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), False)[:-2], 32: camera_info(">", 1.0)}),
        fff({1: struct.pack(">3H", 2, 60_000, 60_000).ljust(64, b"\0"), 32: camera_info(">", 1.0)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), True), 32: camera_info(">", math.nan)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), True), 32: camera_info(">", 0.0)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), True), 32: camera_info(">", 0.9, reflected_k=0.0)}),
        fff({1: raw_data(">", counts_for(scene(), 1.0), True), 32: camera_info(">", 1.0, r1=-1.0)}),
        # The PNG says another size than the record: its pixels are not made.
        fff({1: raw_data(">", NONE, True)[:32] + raw_data(">", NONE[:9, :9], True)[32:], 32: camera_info(">", 1.0)}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_measurement_is_read_as_a_picture(data: bytes, tmp_path: Path) -> None:
    jpeg = jpeg_with(data)
    assert kelvin_of(jpeg) is None
    path = tmp_path / "picture.jpg"
    path.write_bytes(jpeg)
    assert read_picture(path).shape == (48, 64, 3)


def test_a_file_that_is_damaged_anywhere_raises_nothing() -> None:
    jpeg, rng = jpeg_with(GOOD), np.random.default_rng(5)
    assert kelvin_of(jpeg) is not None
    for end in range(0, len(jpeg), 97):
        kelvin_of(jpeg[:end])
    for _ in range(400):
        damaged = bytearray(jpeg)
        for at in rng.integers(2, 1_400, 3):
            damaged[at] = int(rng.integers(0, 256))
        kelvin = kelvin_of(bytes(damaged))
        assert kelvin is None or np.nanmin(kelvin) >= 50.0


def test_a_segment_that_is_missing_is_no_measurement() -> None:
    jpeg = jpeg_with(GOOD, piece=3_000)
    second = jpeg.index(b"FLIR\0\x01\x01")
    assert kelvin_of(jpeg[: second - 4] + jpeg[second - 4 + 2 + 3_000 + 10 :]) is None


def test_entries_that_all_point_to_the_whole_file_are_read_once() -> None:
    entries = dict.fromkeys(range(1, 257), b"")
    data = bytearray(fff(entries).ljust(2_000_000, b"\0"))
    for at in range(64, 64 + 32 * len(entries), 32):
        struct.pack_into(">2I", data, at + 12, 0, len(data))
    jpeg = jpeg_with(bytes(data))
    tracemalloc.start()
    try:
        assert kelvin_of(jpeg) is None
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()


def test_more_pixels_than_any_sensor_has_are_not_unpacked() -> None:
    counts = np.zeros((MAX_SIDE, MAX_PIXELS // MAX_SIDE + 1), np.uint16)
    jpeg = jpeg_with(fff({1: raw_data(">", counts, True), 32: camera_info(">", 1.0)}))
    assert len(jpeg) < 50_000
    before_s = time.process_time()
    assert kelvin_of(jpeg) is None
    assert time.process_time() - before_s < 0.1


def test_many_pixels_take_some_bytes_each() -> None:
    counts = counts_for(np.full((1024, 1024), 300.0), 1.0)
    jpeg = jpeg_with(fff({1: raw_data(">", counts, True), 32: camera_info(">", 1.0)}))
    tracemalloc.start()
    try:
        kelvin = kelvin_of(jpeg)
        assert tracemalloc.get_traced_memory()[1] < 20 * counts.size
    finally:
        tracemalloc.stop()
    assert kelvin is not None
    assert np.abs(kelvin - 300.0).max() < 0.1
