"""What a thermal camera measures, 16 bits or floats, reaches the model as a picture in which something can be seen."""

import contextlib
import json
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.cli.main import main
from swarmd_models.bundle import load_bundle
from swarmd_models.errors import FrameError, SourceError
from swarmd_models.frame_ring import FrameRing, export_coco
from swarmd_models.levelling import HIGH_GREY, LOW_GREY, Leveller
from swarmd_models.sources import SourceOptions, open_source, read_picture
from swarmd_models.types import Detection

AMBIENT, A_LEVEL = 29_000, 4
"""Counts of the coldest grey, and of one grey level: 20 degrees over a scene, at 0.02 K a count."""


def _picture() -> np.ndarray:
    """The golden picture of the zoo: modules with faults, 8 bits."""
    golden = load_bundle("zoo:small-320").golden
    assert golden is not None
    with np.load(golden.path) as arrays:
        return np.asarray(arrays["image"], np.uint8)


def _counts() -> np.ndarray:
    return (AMBIENT + A_LEVEL * _picture().astype(np.uint16)).astype(np.uint16)


def _found(spec: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main(["detect", "--source", spec, "--model", "zoo:small-320", "--json", "--false-per-1000", "30"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", ["a.tiff", "a.png", "a.pgm", "kelvin.tiff"])
def test_a_radiometric_picture_shows_what_its_eight_bit_twin_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """By its upper byte alone the scene would be four grey levels, and nothing would be found."""
    cv2.imwrite(str(tmp_path / "twin.png"), _picture())
    raw = _counts() if name != "kelvin.tiff" else (_counts() * 0.01).astype(np.float32)
    cv2.imwrite(str(tmp_path / name), raw)
    (twin,), (levelled,) = _found(str(tmp_path / "twin.png"), capsys), _found(str(tmp_path / name), capsys)
    assert twin["detections"]
    assert [one["label"] for one in levelled["detections"]] == [one["label"] for one in twin["detections"]]
    frame = open_source(str(tmp_path / name)).read()
    assert frame is not None
    assert frame.level is not None
    back = frame.level.zero + frame.level.step * frame.image.astype(np.float64)
    inside = (frame.image > 0) & (frame.image < 255)
    assert np.abs(back - raw)[inside].max() <= frame.level.step * 0.51
    assert inside.mean() > 0.99


def test_a_radiometric_recording_keeps_its_sixteen_bits(tmp_path: Path) -> None:
    path, raw = tmp_path / "flight.mkv", _counts()
    writer = cv2.VideoWriter(
        str(path), cv2.CAP_FFMPEG, cv2.VideoWriter_fourcc(*"FFV1"), 10, raw.shape[::-1],
        [cv2.VIDEOWRITER_PROP_DEPTH, cv2.CV_16U, cv2.VIDEOWRITER_PROP_IS_COLOR, 0],
    )  # fmt: skip
    if not writer.isOpened():
        pytest.skip("this OpenCV writes no FFV1 of 16 bits")
    for _ in range(3):
        writer.write(raw)
    writer.release()
    source = open_source(str(path), SourceOptions(loop=True))  # Opened again after three.
    for _ in range(5):
        frame = source.read()
        assert frame is not None
        assert frame.level is not None
        assert frame.image.shape == raw.shape
        assert np.ptp(frame.image) > 100
    source.close()


def test_ordinary_pictures_have_no_level(tmp_path: Path) -> None:
    for name, image in {"c.png": np.dstack([_picture()] * 3), "g.tiff": _picture(), "g.jpg": _picture()}.items():
        cv2.imwrite(str(tmp_path / name), image)
        frame = open_source(str(tmp_path / name)).read()
        assert frame is not None
        assert frame.level is None
        assert frame.image.shape == (*_picture().shape, 3)


def test_kept_frames_say_what_their_grey_levels_mean(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.tiff"), _counts())
    frame = open_source(str(tmp_path / "a.tiff")).read()
    assert frame is not None
    assert frame.level is not None
    ring = FrameRing(tmp_path / "kept", 1 << 20)
    assert ring.consider(frame, [Detection(0, "cell", 0.5, (1.0, 1.0, 9.0, 9.0), None)], lambda label: 0.5, 0.0, "ab")
    assert export_coco(tmp_path / "kept", tmp_path / "out") == (1, 1)
    (image,) = json.loads((tmp_path / "out/annotations.json").read_text())["images"]
    assert image["level"] == {"zero": frame.level.zero, "step": frame.level.step}


def test_levels_follow_the_scene_and_begin_anew_with_another() -> None:
    """A hot thing that comes into the picture does not darken every module at once."""
    leveller, scene = Leveller(), _counts()
    before, level = leveller.level(scene)
    with_sun = scene.copy()
    with_sun[:40] = AMBIENT + 4 * int(scene.max() - AMBIENT)
    after, _ = leveller.level(with_sun)
    alone, _ = Leveller().level(with_sun)
    fall, fall_alone = (float(np.median(before[60:].astype(int) - picture[60:])) for picture in (after, alone))
    assert 0 < fall < 0.7 * fall_alone
    for _ in range(40):
        after, _ = leveller.level(with_sun)
    assert abs(int(np.median(after[60:])) - int(np.median(alone[60:]))) <= 1, "in the end it is followed"
    far, moved = leveller.level((scene + 20_000).astype(np.uint16))
    assert np.array_equal(far, before)
    assert moved.zero == pytest.approx(level.zero + 20_000)


def test_an_even_scene_stays_even() -> None:
    noise = np.random.default_rng(1).integers(-3, 4, (240, 320))
    image, level = Leveller().level((30_000 + noise).astype(np.uint16))
    assert level.step == pytest.approx(1.0)
    assert image.std() < 3


def test_dead_pixels_are_cold_and_a_dead_frame_is_refused() -> None:
    kelvin = np.full((40, 40), 300.0, np.float32)
    kelvin[20:] = 320.0
    kelvin[0, 0], kelvin[0, 1], kelvin[0, 2] = np.nan, np.inf, -np.inf
    image, _ = Leveller().level(kelvin)
    assert image[0, :3].tolist() == [round(LOW_GREY), 255, 0]
    with pytest.raises(FrameError, match="every pixel"):
        Leveller().level(np.full((8, 8), np.nan, np.float32))


def _packed_tiff(side: int, order: str) -> bytes:
    """Doubles, all zero: each row is the same few bytes of the file."""
    row = zlib.compress(bytes(side * 8))
    offsets = 8 + len(row)
    tags = [
        (256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 64), (259, 3, 1, 8), (262, 3, 1, 1), (273, 4, side, offsets),
        (277, 3, 1, 1), (278, 4, 1, 1), (279, 4, side, offsets + 4 * side), (339, 3, 1, 3),
    ]  # fmt: skip
    words = [struct.pack(f"{order}{side}I", *[value] * side) for value in (8, len(row))]
    values = {3: "HH", 4: "I"}
    rows = [
        struct.pack(f"{order}HHI{values[kind]}", tag, kind, count, *((value, 0) if kind == 3 else (value,)))
        for tag, kind, count, value in tags
    ]
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", offsets + 8 * side)
    return b"".join([head, row, *words, struct.pack(order + "H", len(tags)), *rows, bytes(4)])


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_small_file_of_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.tiff").write_bytes(_packed_tiff(64, order))
    assert read_picture(tmp_path / "small.tiff").shape == (64, 64)
    (tmp_path / "bomb.tiff").write_bytes(_packed_tiff(6_000, order))
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 16_000, 16_000, 16, 0, 0, 0, 0, 0)
    png += struct.pack(">I4sI", 0, b"IEND", 0)
    (tmp_path / "bomb.png").write_bytes(png)
    monkeypatch.setattr(cv2, "imdecode", lambda *asked: pytest.fail("it was decoded"))
    for name in ("bomb.tiff", "bomb.png"):
        with pytest.raises(SourceError, match="MiB of measurements"):
            read_picture(tmp_path / name)


def test_a_torn_header_is_its_decoders_to_name(tmp_path: Path) -> None:
    whole = _packed_tiff(8, "<")
    for length in range(1, len(whole), 3):
        (tmp_path / "torn.tiff").write_bytes(whole[:length])
        with contextlib.suppress(SourceError):
            read_picture(tmp_path / "torn.tiff")


@pytest.mark.parametrize("none", [-9999.0, 1e30, 1e308, -1e308])
def test_a_frame_of_numbers_that_are_no_temperature_blinds_nobody(none: float) -> None:
    """The range would be as wide as they are, and follow the scene back over hundreds of frames."""
    leveller, scene = Leveller(), (_counts() * 0.01).astype(np.float64)
    before, _ = leveller.level(scene)
    torn = scene.copy()
    torn[:, : scene.shape[1] // 10] = none
    during, _ = leveller.level(torn)
    after, _ = leveller.level(scene)
    assert set(during[:, 0].tolist()) == {round(LOW_GREY)}
    for picture in (during, after):
        assert np.abs(picture[:, -40:].astype(int) - before[:, -40:]).max() <= 8


def test_a_frame_is_dead_where_all_of_it_is() -> None:
    """And not where the pixels are that the range is read off."""
    kelvin = np.full((40, 40), np.nan, np.float32)
    kelvin[1::4, 1::4] = 300.0
    assert Leveller().level(kelvin)[1].zero < 300.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 60_000), st.integers(1, 5_000))
def test_what_is_hotter_is_never_darker(seed: int, low: int, span: int) -> None:
    raw = np.minimum(low + np.random.default_rng(seed).integers(0, span + 1, (32, 40)), 65_535).astype(np.uint16)
    image, level = Leveller().level(raw)
    order = np.argsort(raw.ravel(), kind="stable")
    assert (np.diff(image.ravel()[order].astype(int)) >= 0).all()
    assert level.step >= 1.0 - 1e-9
    assert LOW_GREY < HIGH_GREY < 255
