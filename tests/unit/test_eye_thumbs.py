"""Thumbnails at the eye: of the best look, small, and never of people or of what is beside them."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.config.sections import EyeSection
from swarmd.eye.ipc import Crop
from swarmd.eye.pictures import PictureMaker
from swarmd.eye.thumbs import AGAIN_NS, PRIVATE_NS, TRACKS_MAX, ThumbMaker
from swarmd_models.frame_ring import PRIVATE_LABELS
from swarmd_models.types import Detection, EyeResult, Frame, TrackEvent
from swarmd_protocols.thumbs.form import HEIGHT_MAX, WIDTH_MAX, problem_of

Box = tuple[float, float, float, float]
S = 1_000_000_000
MARK = 255
"""The brightness of a person in these frames; nothing else is brighter than 100."""


def event(track: int, box: Box, label: str = "hot-spot", score: float = 0.9, kind: str = "update") -> TrackEvent:
    return TrackEvent(kind, track, 0, label, score, box, 0, 3, None)  # type: ignore[arg-type]


def seen(
    maker: ThumbMaker, at_s: float, *events: TrackEvent, people: tuple[tuple[str, Box], ...] = (), size=(480, 640)
) -> list[Crop]:
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    image = ((rows + columns) % 100).astype(np.uint8)
    for _, (x1, y1, x2, y2) in people:
        image[int(y1) : int(y2), int(x1) : int(x2)] = MARK
    found = [Detection(0, label, 0.8, box) for label, box in people]
    frame = Frame(0, round(at_s * S), image, None)
    return maker.crops(frame, EyeResult(0, frame.captured_ns, found, events))


def brightest(crop: Crop) -> int:
    return int(cv2.imdecode(np.frombuffer(crop.jpeg, np.uint8), cv2.IMREAD_GRAYSCALE).max())


def test_a_track_has_a_picture_with_its_first_event_and_it_has_the_form() -> None:
    (crop,) = seen(ThumbMaker(), 0, event(7, (300, 200, 340, 230), kind="new"))
    assert (crop.track_id, crop.label, problem_of(crop.jpeg)) == (7, "hot-spot", "")
    image = cv2.imdecode(np.frombuffer(crop.jpeg, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert image.shape == (66, 88)  # Its surroundings, four to three, not scaled up.


def test_a_large_thing_is_scaled_down() -> None:
    (crop,) = seen(ThumbMaker(), 0, event(7, (10, 10, 600, 400)))
    image = cv2.imdecode(np.frombuffer(crop.jpeg, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert image.shape == (HEIGHT_MAX, WIDTH_MAX)


def test_a_better_look_comes_after_a_while_or_with_the_end() -> None:
    maker, box, border = ThumbMaker(), (300.0, 200.0, 340.0, 230.0), (0.0, 200.0, 40.0, 230.0)
    assert len(seen(maker, 0, event(1, border, score=0.5))) == 1
    assert seen(maker, 1, event(1, border, score=0.52)) == []
    assert seen(maker, 2, event(1, box, score=0.9)) == []  # Better, and too soon.
    assert seen(maker, 3, event(1, border, score=0.6)) == []
    (better,) = seen(maker, 1 + AGAIN_NS / S, event(1, box, score=0.6))
    assert seen(maker, 2 * AGAIN_NS / S + 2, event(1, box, score=0.6)) == []
    assert seen(maker, 30, event(1, (310.0, 210.0, 420.0, 290.0), score=0.99)) != [better]
    assert seen(maker, 31, event(1, box, kind="end")) == []
    late = ThumbMaker()
    seen(late, 0, event(2, border, score=0.5))
    seen(late, 1, event(2, box, score=0.9))
    assert len(seen(late, 2, event(2, box, kind="end"))) == 1
    assert seen(late, 3, event(2, box, kind="end")) == []


def test_what_ends_with_the_source_has_its_last_word() -> None:
    maker = ThumbMaker()
    seen(maker, 0, event(1, (0, 200, 40, 230), score=0.5))
    seen(maker, 1, event(1, (300, 200, 340, 230)))
    assert [crop.track_id for crop in maker.last([1, 2], 2 * S)] == [1]


@pytest.mark.parametrize("label", [*PRIVATE_LABELS, "Person walking", *EyeSection().thumbnails_never])
def test_people_never(label: str) -> None:
    maker = ThumbMaker(EyeSection().thumbnails_never)
    box = (300.0, 200.0, 340.0, 280.0)
    assert seen(maker, 0, event(1, box, label), people=((label, box),)) == []
    assert seen(maker, 9, event(1, box, label, kind="end")) == []
    # A thing beside whom somebody was seen: not then, and not before he is out of the picture for a while.
    assert seen(maker, 10, event(2, (345.0, 200.0, 380.0, 230.0)), people=((label, box),)) == []
    assert seen(maker, 10 + PRIVATE_NS / S, event(2, (345.0, 200.0, 380.0, 230.0))) == []
    assert len(seen(maker, 10.1 + PRIVATE_NS / S, event(2, (345.0, 200.0, 380.0, 230.0)))) == 1
    # One that is far from everybody has its picture.
    assert len(seen(maker, 20, event(3, (20.0, 20.0, 60.0, 50.0)), people=((label, box),))) == 1


def test_an_empty_list_leaves_what_is_always_private() -> None:
    maker = ThumbMaker(("",))
    assert seen(maker, 0, event(1, (300, 200, 340, 280), "person")) == []
    assert len(seen(maker, 0, event(2, (20, 20, 60, 50), "hot-spot"))) == 1


def test_a_track_that_turns_out_to_be_somebody_gives_nothing_any_more() -> None:
    maker, box = ThumbMaker(), (300.0, 200.0, 340.0, 230.0)
    seen(maker, 0, event(1, (0, 200, 40, 230), score=0.4))
    seen(maker, 1, event(1, box))  # Waits for its time.
    assert seen(maker, 2, event(1, box, "person")) == []
    assert seen(maker, 3, event(1, box, "person", kind="end")) == []


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_nobody_is_ever_in_a_picture(data: st.DataObject) -> None:
    """Wherever people and things are: no pixel of somebody who was detected shows in any picture."""

    def box() -> Box:
        x, y = data.draw(st.integers(0, 600)), data.draw(st.integers(0, 440))
        return x, y, x + data.draw(st.integers(2, 120)), y + data.draw(st.integers(2, 120))

    maker = ThumbMaker()
    for at_s in range(data.draw(st.integers(1, 4))):
        people = tuple(("person", box()) for _ in range(data.draw(st.integers(0, 3))))
        things = [event(track, box()) for track in range(data.draw(st.integers(0, 6)))]
        for crop in seen(maker, at_s, *things, people=people):
            assert brightest(crop) < MARK - 60
            assert problem_of(crop.jpeg) == ""


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.floats(-2000, 2000) | st.floats()] * 4),
    st.sampled_from([(480, 640), (8, 8), (7, 300), (36, 48), (3, 3)]),
)
def test_no_box_and_no_frame_breaks_it(box: Box, size: tuple[int, int]) -> None:
    for crop in seen(ThumbMaker(), 0, event(1, box), size=size):
        assert problem_of(crop.jpeg) == ""


def test_the_tracks_are_bounded() -> None:
    maker = ThumbMaker()
    for track in range(TRACKS_MAX + 50):
        seen(maker, 0, event(track, (100, 100, 120, 120)), size=(240, 320))
    assert len(maker._looks) == TRACKS_MAX


def test_off_makes_nothing() -> None:
    frame = Frame(0, 0, np.zeros((48, 64), np.uint8), None)
    result = EyeResult(0, 0, [], [event(1, (10, 10, 30, 30))])
    assert PictureMaker().crops(frame, result) == []
    assert PictureMaker().last_crops([1], 0) == []
    assert not EyeSection().thumbnails
