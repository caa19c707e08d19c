"""Bytes from outside against everything of the eye that reads them. SWARMD_FUZZ_ROUNDS says how many (default few)."""

import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from swarmd.errors import EyeError
from swarmd.eye.ipc import Configure, FrameDone, Splitter, Stats, decode_from_eye, decode_to_eye, encode
from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.decoders import make_decoder
from swarmd_models.errors import BackendError, ModelError
from swarmd_models.geo.calibration import parse_calibration
from swarmd_models.geo.poses import read_dataflash
from swarmd_models.sources import read_picture
from swarmd_models.tflite_file import embedded_labels
from tests.support.bundles import ZOO_TOML, copy_what_the_zoo_names

ROUNDS = int(os.environ.get("SWARMD_FUZZ_ROUNDS", "300"))


def _mutated(rng: random.Random, data: bytes, junk: bytes = bytes(range(256))) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if not out:
            break
        at = rng.randrange(len(out))
        what = rng.randrange(4)
        if what == 0:
            out[at] = rng.choice(junk)
        elif what == 1:
            del out[at : at + rng.randint(1, 40)]
        elif what == 2:
            out[at:at] = bytes(rng.choices(junk, k=rng.randint(1, 20)))
        else:
            out[at : at + 1] = out[max(0, at - 30) : at]
    return bytes(out)


def test_messages_decode_or_raise_eye_error() -> None:
    rng = random.Random(1)
    good = [
        encode(Configure("s", "m")),
        encode(Stats({"a": 1}, {"b": 1.0})),
        encode(FrameDone(1, 2, 3, 4, 0.5, (), {})),
    ]
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS * 10):
        data = _mutated(rng, rng.choice(good))
        try:
            bodies = Splitter().feed(data)
        except EyeError:
            outcomes["no frame"] += 1
            continue
        for body in bodies:
            for decode in (decode_from_eye, decode_to_eye):
                try:
                    decode(body)
                except EyeError:
                    outcomes["no message"] += 1
                else:
                    outcomes["read"] += 1
    assert set(outcomes) == {"no frame", "no message", "read"}


def test_bundles_load_or_raise_model_error(tmp_path: Path) -> None:
    rng = random.Random(2)
    text = ZOO_TOML.read_bytes()
    path = tmp_path / "b.toml"
    copy_what_the_zoo_names(tmp_path)
    refused = 0
    for step in range(ROUNDS):
        junk = bytes(range(256)) if step % 4 == 0 else b'0123456789.-"=[]{}, \ntruefalsenan'
        path.write_bytes(_mutated(rng, text, junk))
        try:
            load_bundle(path)
        except ModelError:
            refused += 1
    assert 0 < refused < ROUNDS


def test_archives_behind_models_give_labels_or_nothing() -> None:
    import io
    import zipfile

    rng = random.Random(3)
    for way in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", way) as archive:
            archive.writestr("labels.txt", "one\ntwo\n")
        whole = b"TFL3" * 10 + packed.getvalue()
        right = ("one", "two") if way in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) else ()
        assert embedded_labels(whole) == right
        found = {embedded_labels(_mutated(rng, whole)) for _ in range(ROUNDS)}
        assert {(), right} <= found


def test_logs_give_poses_or_say_why_not(tmp_path: Path) -> None:
    pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra mavlink)")
    path = tmp_path / "flight.bin"
    rng = random.Random(4)
    fmt = b"\xa3\x95\x80" + bytes([7, 3 + 8 + 4 + 4 + 1]) + b"GPS\x00" + b"QLLB".ljust(16, b"\x00")
    fmt += b"TimeUS,Lat,Lng,Status".ljust(64, b"\x00")
    row = b"\xa3\x95\x07" + (1_000_000).to_bytes(8, "little") + (470_000_000).to_bytes(4, "little") * 2 + b"\x03"
    path.write_bytes(fmt + row * 3)
    assert len(read_dataflash(path)) == 3
    refused = 0
    for _ in range(ROUNDS // 3):
        for data in (fmt + row * 5, rng.randbytes(200)):
            path.write_bytes(_mutated(rng, data))
            try:
                read_dataflash(path)
            except ModelError:
                refused += 1
    assert 0 < refused < ROUNDS // 3 * 2


def test_calibrations_are_cameras_or_value_errors() -> None:
    rng = random.Random(6)
    text = "image_width: 640\nimage_height: 480\ncamera_matrix:\n  data: [430, 0, 306, 0, 430, 227, 0, 0, 1]\n"
    text += "distortion_model: plumb_bob\ndistortion_coefficients:\n  data: [-0.3, 0.1, 0.001, 0.002, 0.0]\n"
    read = 0
    for _ in range(ROUNDS):
        damaged = _mutated(rng, text.encode(), b"0123456789eE+-.,:[]\n _d").decode()
        try:
            camera = parse_calibration(damaged)
        except ValueError:
            continue
        read += 1
        for u, v in ((0.0, 0.0), (camera.width, camera.height), (1e6, -1e6)):
            ray = camera.ray(u, v)
            assert ray is None or camera.pixel(*ray) is not None
    assert read > ROUNDS // 50


def test_pictures_decode_or_raise_model_error(tmp_path: Path) -> None:
    import cv2

    rng = random.Random(5)
    picture = np.random.default_rng(1).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    path = tmp_path / "p.jpg"
    for suffix in (".jpg", ".png", ".bmp"):
        data = cv2.imencode(suffix, picture)[1].tobytes()
        path.write_bytes(data)
        assert read_picture(path).shape == (24, 32, 3)
        refused = 0
        for _ in range(ROUNDS // 3):
            path.write_bytes(_mutated(rng, data))
            try:
                read_picture(path)
            except ModelError:
                refused += 1
        assert refused, suffix


@pytest.mark.parametrize("decoder", ["anchor_free", "ssd", "yolo", "classifier"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "float32"])
def test_decoders_survive_any_numbers(decoder: str, kind: str) -> None:
    rng = np.random.default_rng(6)
    shapes = {
        "anchor_free": [(1, 84, 3), (1, 84, 4)],
        "ssd": [(1, 10, 4), (1, 10), (1, 10), (1,)],
        "yolo": [(1, 7, 84)],
        "classifier": [(1, 3)],
    }[decoder]
    quantised = kind != "float32"
    # A YOLO whose scores lie on steps of 0.1 is refused: its boxes' scale left none of them.
    step = (0.04 if decoder == "yolo" else 0.1) if quantised else 0.0
    specs = [TensorSpec(f"o{i}", s, np.dtype(kind), step, 3) for i, s in enumerate(shapes)]
    bundle = Bundle("m", "1", decoder, ("a", "b", "c"), Path("m"), "00")
    made = make_decoder(bundle, specs, 64, 64)
    for round_ in range(max(20, ROUNDS // 10)):
        views = []
        for spec in specs:
            shape = spec.shape[1:] if len(spec.shape) > 1 else spec.shape
            if quantised:
                info = np.iinfo(spec.dtype)
                views.append(rng.integers(info.min, info.max + 1, shape).astype(spec.dtype))
            else:
                view = (rng.normal(0, 10.0 ** rng.integers(-3, 20), shape)).astype(np.float32)
                if round_ % 3 == 0:
                    view.flat[rng.integers(view.size)] = rng.choice([np.nan, np.inf, -np.inf])
                views.append(view)
        with np.errstate(all="ignore"):
            try:
                found = made.decode(views)
            except BackendError:
                continue
        assert np.isfinite(found.scores).all()
        assert ((found.scores >= 0) & (found.scores <= 1)).all()
        assert np.isfinite(found.xywh).all()
        assert len(found.scores) <= 1000
