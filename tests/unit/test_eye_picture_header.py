"""A picture's size by its header: as its decoder has it, and refused before it is decoded."""

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.cli import bundle_cut, infer, infer_batch
from swarmd.errors import EyeError, WorkerError
from swarmd_models import trial_run
from swarmd_models.errors import FrameError, SourceError
from swarmd_models.picture_file import MAX_IMAGE_SIDE
from swarmd_models.picture_header import read_header
from swarmd_models.sources import read_picture

COLOUR = np.random.default_rng(1).integers(0, 256, (23, 41, 3), np.uint8)
GREY = COLOUR[..., 0].copy()
DEEP = GREY.astype(np.uint16) * 200
WRITTEN = [
    (".png", COLOUR, []),
    (".png", GREY, []),
    (".png", DEEP, []),
    (".jpg", COLOUR, []),
    (".jpg", GREY, []),
    (".jpg", COLOUR, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    (".jpg", COLOUR, [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]),
    (".bmp", COLOUR, []),
    (".webp", COLOUR, [cv2.IMWRITE_WEBP_QUALITY, 50]),
    (".webp", COLOUR, [cv2.IMWRITE_WEBP_QUALITY, 101]),
    (".tiff", COLOUR, []),
    (".tiff", DEEP, []),
    (".tiff", GREY.astype(np.float32), []),
    (".ppm", COLOUR, []),
    (".pgm", GREY, []),
    (".pgm", DEEP, []),
]


def _png(width: int, height: int) -> bytes:
    """A whole PNG of 8 bits of grey, all black."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = zlib.compress(bytes((width + 1) * min(height, 10)))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _tiff(width: int, height: int, *more: tuple[int, int]) -> bytes:
    entries = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (277, 1), *more]
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(4)


def _jpeg(width: int, height: int) -> bytes:
    data = cv2.imencode(".jpg", GREY)[1].tobytes()
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


@pytest.mark.parametrize(("suffix", "picture", "how"), WRITTEN)
def test_headers_say_what_decoders_make_of_them(suffix: str, picture: np.ndarray, how: list[int]) -> None:
    data = cv2.imencode(suffix, picture, how)[1].tobytes()
    header = read_header(data)
    assert header is not None
    assert (header.width, header.height) == (41, 23)
    assert header.raw_bytes == (picture.nbytes if picture.itemsize > 1 else 0)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.png", _png(20_000, 10)),
        ("a.tiff", _tiff(20_000, 10)),
        ("a.tif", _tiff(10, 10, (256, 20_000))),
        ("a.jpg", _jpeg(20_000, 10)),
        ("a.bmp", b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 20_000, -10, 1, 24, 0) + bytes(20)),
        ("a.webp", b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (19_999).to_bytes(3, "little") + bytes(3)),
        ("a.pgm", b"P5 20000 10 255 " + bytes(20_000)),
        ("b.png", b"\x89PNG" + _png(16_000, 16_000)[4:]),
        ("b.jpg", _jpeg(16_000, 16_000)),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_decoded(
    name: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    monkeypatch.setattr(cv2, "imdecode", lambda *asked: pytest.fail("it was decoded"))
    sentence = f"wider or higher than {MAX_IMAGE_SIDE}" if name.startswith("a") else "million pixels"
    with pytest.raises(SourceError, match=sentence):
        read_picture(path)


def _of_batch(folder: Path) -> None:
    [(_, image)] = infer_batch.frames_of(folder)
    if image is None:
        raise SourceError("as told")


@pytest.mark.parametrize(
    "read",
    [
        lambda path: trial_run.read_picture(path, 320, 320),
        infer._read,
        lambda path: _of_batch(path.parent),
        lambda path: bundle_cut._pictures([path]),
    ],
    ids=["bundle init", "infer", "infer of a folder", "bundle cut"],
)
def test_nobody_decodes_a_picture_whose_header_was_not_read(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    assert cv2.imwrite(str(path), np.full((20, 30), 7, np.uint8))
    read(path)
    monkeypatch.setattr(cv2, "imdecode", lambda *asked: pytest.fail("it was decoded"))
    path.write_bytes(_png(16_000, 16_000))
    with pytest.raises((FrameError, SourceError, EyeError, WorkerError)):
        read(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100),  # JPEG 2000, which OpenCV would read under any name
        b"v/1\x01" + bytes(100),
        b"GIF89a" + bytes(100),
        b"II*\0" + struct.pack("<IH", 8, 1) + struct.pack("<HHII", 256, 16, 1, 20_000),
        b"\xff\xd8" + b"\xff\xe0\0\x02" * 20_000 + b"\xff\xd9",
    ],
)
def test_a_format_whose_size_is_not_known_is_not_decoded(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    monkeypatch.setattr(cv2, "imdecode", lambda *asked: pytest.fail("it was decoded"))
    with pytest.raises(SourceError, match="cannot be decoded"):
        read_picture(path)


@pytest.mark.parametrize(
    "head",
    [
        b"P5 4#200\n5 255\n",
        b"P5 4 #\r200 7\n5 255\n",
        b"P5 4 00000000500\n255\n",
        b"P5 4 5 00000000065535\n",
        b"P5 4" + b" " * 2043 + b"500\n255\n",
        b"P4 4 00000000500\n",
    ],
    ids=["comment behind a number", "return in a comment", "zeros", "deep", "cut off", "bitmap"],
)
def test_a_netpbm_header_says_what_its_decoder_reads_or_nothing(head: bytes) -> None:
    image = cv2.imdecode(np.frombuffer(head + bytes(4000), np.uint8), cv2.IMREAD_UNCHANGED)
    header = read_header(head + bytes(4000))
    assert header is None or (image is not None and header.height == image.shape[0])
    assert header is None or (image is not None and bool(header.raw_bytes) == (image.itemsize > 1))


def test_a_tiff_whose_tile_is_far_larger_than_its_picture_is_not_decoded() -> None:
    """Its decoder makes room for the tile: 16 KB of file took 64 MiB for 16 x 16 pixels, and nearly a gigabyte goes."""
    assert read_header(_tiff(16, 16, (322, 256), (323, 256))) is not None
    assert read_header(_tiff(16, 16, (322, 30_000), (323, 30_000))) is None


def test_whatever_decodes_has_the_size_that_its_header_says() -> None:
    """The law behind the limit: damaged or made up, no picture is larger, or takes more, than what was let through."""
    rng = random.Random(3)
    Path("/proc/self/clear_refs").write_text("5")  # The peak counts from here.
    before_kib = _kib("VmRSS")
    whole = [cv2.imencode(suffix, picture, how)[1].tobytes() for suffix, picture, how in WRITTEN]
    decoded = 0
    for _ in range(2000):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(len(data), 120))
            data[at] = rng.choice((0, 1, 2, 16, 64, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            at = rng.randrange(8, min(len(data), 120))
            data[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x40\0\0\0"))
        header = read_header(bytes(data))
        if header is None or header.width * header.height > 250_000:
            continue
        try:
            image = cv2.imdecode(np.frombuffer(bytes(data), np.uint8), cv2.IMREAD_COLOR)
        except cv2.error:
            continue
        if image is not None:
            decoded += 1
            assert sorted(image.shape[:2]) == sorted((header.height, header.width))
    assert decoded > 200
    assert _kib("VmHWM") - before_kib < 64 << 10


def _kib(field: str) -> int:
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(field))
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("kind", "says"), [(b"IDAT", 1 << 30), (b"tEXt", 0xFFFF_FFFF)], ids=["pixels", "a text, more than there is"]
)
def test_a_png_that_says_to_hold_more_than_it_does_is_not_decoded(kind: bytes, says: int) -> None:
    whole = _png(16, 16)
    assert read_header(whole) is not None
    assert read_header(whole[:33] + struct.pack(">I", says) + kind + whole[33:]) is None
    empty = bytes(4) + b"tEXt" + struct.pack(">I", zlib.crc32(b"tEXt"))
    assert read_header(whole[:33] + empty * 10_000 + whole[33:]) is not None
    assert read_header(whole[:33] + empty * 100_000 + whole[33:]) is None, "each of them costs time"
