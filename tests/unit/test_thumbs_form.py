"""The one form of picture that travels: what an eye writes has it, and nothing else does."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import WireError
from swarmd_protocols.thumbs import messages
from swarmd_protocols.thumbs.form import HEIGHT_MAX, THUMB_MAX_BYTES, WIDTH_MAX, name_of, problem_of
from swarmd_sim.run.thumbs import picture_of
from tests.support.thumb_pictures import hostile, jpeg


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("size", [(WIDTH_MAX, HEIGHT_MAX), (8, 8), (64, 48), (192, 9)])
def test_what_an_eye_writes_has_the_form(size: tuple[int, int], components: int) -> None:
    data = jpeg(3, *size, components)
    assert problem_of(data) == ""
    assert messages.decode(messages.encode(messages.Here(name_of(data), data))) == messages.Here(name_of(data), data)


def test_a_simulated_picture_has_the_form_and_decodes() -> None:
    data = picture_of(0xFF01)
    assert problem_of(data) == ""
    assert name_of(data) != name_of(picture_of(2))


@pytest.mark.parametrize("what", hostile())
def test_nothing_else_has_it(what: str) -> None:
    data = hostile()[what]
    assert problem_of(data), what
    with pytest.raises(WireError):
        messages.decode(messages.encode(messages.Here(name_of(data), data)))


def test_a_picture_under_another_name_is_refused() -> None:
    with pytest.raises(WireError, match="is not"):
        messages.decode(messages.encode(messages.Here(name_of(jpeg(1)), jpeg(2))))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_taken_decodes_to_a_small_picture_or_to_none(data: st.DataObject) -> None:
    """Whatever is changed in a picture: what still has the form is no more work than the picture was."""
    good = bytearray(jpeg(data.draw(st.integers(0, 9)), 64, 48, data.draw(st.sampled_from([1, 3]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "double"]))
        if how == "flip":
            good[at] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(good) > 8:
            del good[at : at + data.draw(st.integers(1, 40))]
        else:
            good[at:at] = good[at : at + 20]
    if len(good) > THUMB_MAX_BYTES or problem_of(bytes(good)):
        return
    image = cv2.imdecode(np.frombuffer(bytes(good), np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is None or (image.shape[0] <= HEIGHT_MAX and image.shape[1] <= WIDTH_MAX)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: jpeg(1, 8, 8, 1)[:100] + tail + b"\xff\xd9"))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    problem_of(data)
    try:
        message = messages.decode(data)
    except WireError:
        return
    assert messages.encode(message) == data
