"""Pictures leave the eye only when somebody asks, small, at the rate asked for, with people made unreadable."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest

from swarmd.api.daemon import PictureSeen
from swarmd.brain.pictures import Pictures
from swarmd.eye.ipc import FromEye, Picture, ShowFrames, ToEye, decode_from_eye, decode_to_eye, encode
from swarmd.eye.pictures import PICTURE_MAX_BYTES, PictureMaker
from swarmd_models.types import Detection, Frame, Image

MS = 1_000_000


def frame(at_ms: int, image: Image | None = None) -> Frame:
    noise = np.random.default_rng(1).integers(0, 255, (512, 640), dtype=np.uint8)
    return Frame(at_ms, at_ms * MS, noise if image is None else image)


def pixels(picture: Picture) -> Image:
    return np.asarray(cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), cv2.IMREAD_UNCHANGED), dtype=np.uint8)


def test_nothing_leaves_unasked_and_nothing_after_the_end() -> None:
    maker = PictureMaker()
    assert maker.picture(frame(0), []) is None
    maker.want(ShowFrames(100))
    assert maker.picture(frame(1), []) is not None
    maker.want(ShowFrames())
    assert maker.picture(frame(1000), []) is None


def test_pictures_come_at_the_rate_and_size_that_was_asked_for() -> None:
    maker = PictureMaker()
    maker.want(ShowFrames(500, 160, 60))
    shown = [picture for at in range(0, 3000, 33) if (picture := maker.picture(frame(at), [])) is not None]
    assert len(shown) == 6
    assert {(picture.width, picture.height) for picture in shown} == {(160, 128)}
    assert pixels(shown[0]).shape[:2] == (128, 160)


def test_a_picture_has_a_bound_whatever_is_in_it() -> None:
    maker = PictureMaker()
    maker.want(ShowFrames(1, 4096, 100))
    noise = np.random.default_rng(2).integers(0, 255, (2160, 3840, 3), dtype=np.uint8)
    picture = maker.picture(frame(0, noise), [])
    assert picture is None or len(picture.jpeg) <= PICTURE_MAX_BYTES
    calm = maker.picture(frame(10), [])
    assert calm is not None
    assert 0 < len(calm.jpeg) <= PICTURE_MAX_BYTES


@pytest.mark.parametrize(("label", "is_hidden"), [("person", True), ("license plate", True), ("hot-spot", False)])
def test_people_are_made_unreadable(label: str, is_hidden: bool) -> None:
    maker = PictureMaker()
    maker.want(ShowFrames(1, 640, 95))
    fine = np.zeros((480, 640), dtype=np.uint8)
    fine[::2, ::2] = 255
    picture = maker.picture(frame(0, fine), [Detection(0, label, 0.9, (100.0, 100.0, 300.0, 300.0))])
    assert picture is not None
    inside = pixels(picture)[150:250, 150:250].astype(float)
    assert bool(inside.std() < 20) is is_hidden


def test_the_messages_cross_the_socket_pair() -> None:
    wish: ToEye = ShowFrames(500, 320, 50)
    assert decode_to_eye(encode(wish)[4:]) == wish
    picture: FromEye = Picture(3, 4, 5, 6, b"\xff\xd8")
    assert decode_from_eye(encode(picture)[4:]) == picture


def test_several_wishes_are_one_for_the_eye_and_each_gets_its_own_rate() -> None:
    sent: list[ToEye] = []
    pictures = Pictures(sent.append)
    seen: dict[str, list[int]] = {"slow": [], "fast": []}

    def into(name: str) -> Callable[[PictureSeen], None]:
        return lambda picture: seen[name].append(picture.captured_ns // MS)

    end_slow = pictures.watch(ShowFrames(1000, 320, 90), into("slow"))
    end_fast = pictures.watch(ShowFrames(200, 640, 50), into("fast"))
    assert sent[-1] == ShowFrames(200, 640, 90)
    for at in range(0, 3000, 200):
        pictures.take(Picture(0, at * MS, 640, 480, b""))
    assert len(seen["fast"]) == 15
    assert seen["slow"] == [0, 1000, 2000]
    end_fast()
    end_fast()
    assert sent[-1] == ShowFrames(1000, 320, 90)
    end_slow()
    assert sent[-1] == ShowFrames()
    assert not pictures.wanted
