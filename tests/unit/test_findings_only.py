"""What leaves the eye shows findings and a little around them, and nothing else, unless whole frames are wanted."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.config.privacy import PrivacySection
from swarmd.eye.ipc import Configure, PrivateRule, ShowFrames
from swarmd.eye.pictures import PictureMaker, pictures_of
from swarmd.worker.leaving import redacted
from swarmd_models.frame_ring import FrameRing
from swarmd_models.redaction import SHOWN_AROUND, SHOWN_LEAST_PX, Box, Redactor, only_findings
from swarmd_models.types import Detection, EyeResult, Frame, Image, TrackEvent

WIDE, TALL = 320, 240
MARK = 255
"""Brightness of somebody in these frames; nothing else is brighter than 100."""
BRIGHT = 170
"""Brighter than a JPEG makes anything of 100, darker than it makes a person."""
FINDING: Box = (60.0, 60.0, 110.0, 100.0)


class Sure:
    """A detector that would be sure from 0.45 on."""

    class bundle:
        digest = "d"

    @staticmethod
    def sure_from(label: str) -> float:
        return 0.45


def asked(*, shows_frames: bool = False) -> PictureMaker:
    private = PrivateRule(("rider",), shows_frames=shows_frames)
    maker = pictures_of(Configure("s", "m", thumbnails=True, private=private), print)
    maker.want(ShowFrames(1, WIDE, 95))
    return maker


def looked(*people: Box, detections: tuple[Detection, ...] = ()) -> tuple[Frame, EyeResult]:
    """A frame with people whom no model knows, and what the model saw in it."""
    rows, columns = np.mgrid[0:TALL, 0:WIDE]
    image = ((rows + columns) % 100).astype(np.uint8)
    for x1, y1, x2, y2 in people:
        image[int(y1) : int(y2), int(x1) : int(x2)] = MARK
    events = [TrackEvent("new", at, 0, one.label, 0.9, one.box, 0, 3, None) for at, one in enumerate(detections)]
    return Frame(0, 10**9, image), EyeResult(0, 10**9, list(detections), events, {})


def what_leaves(maker: PictureMaker, frame: Frame, result: EyeResult, folder: Path) -> list[Image]:
    """Pixels of all that leaves: for recordings and MQTT, for peers and judges, for people who label."""
    shown = maker.picture(frame, result.detections)
    assert shown is not None
    jpegs = [shown.jpeg, *(crop.jpeg for crop in maker.crops(frame, result))]
    maker.ring = FrameRing(folder, 1 << 20)
    maker.keep(frame, result, Sure(), 0.0)  # type: ignore[arg-type]
    maker.finish()
    kept = [np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.png"))]
    coded = [*(np.frombuffer(one, np.uint8) for one in jpegs), *kept]
    return [np.asarray(cv2.imdecode(one, cv2.IMREAD_UNCHANGED), dtype=np.uint8) for one in coded]


def finding(box: Box = FINDING, label: str = "hot-spot") -> Detection:
    return Detection(0, label, 0.5, box)


def test_findings_alone_are_what_the_configuration_shows_where_it_says_nothing() -> None:
    assert PrivacySection().show == "findings"
    assert not Configure("s", "m").private.shows_frames
    assert not Redactor().shows_frames
    assert not pictures_of(Configure("s", "m"), print).redactor.shows_frames


def test_whoever_stands_beside_a_finding_is_in_nothing_that_leaves(tmp_path: Path) -> None:
    frame, result = looked((140.0, 20.0, 180.0, 160.0), detections=(finding(),))
    leaves = what_leaves(asked(), frame, result, tmp_path)
    assert len(leaves) == 3, "a picture, a thumbnail, a kept frame"
    assert max(int(one.max()) for one in leaves) < BRIGHT
    whole = what_leaves(asked(shows_frames=True), frame, result, tmp_path / "whole")
    assert max(int(one.max()) for one in whole) == MARK


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nobody_outside_of_findings_is_in_anything_that_leaves(data: st.DataObject, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    """Law: whatever boxes there are, nothing beyond their margin is seen."""
    sides = st.integers(6, 90)

    def box(name: str) -> Box:
        across, down = data.draw(sides, name), data.draw(sides, name)
        left, top = data.draw(st.integers(-20, WIDE - 6), name), data.draw(st.integers(-20, TALL - 6), name)
        return float(left), float(top), float(left + across), float(top + down)

    found = tuple(finding(box("finding")) for _ in range(data.draw(st.integers(1, 3), "findings")))
    frame, result = looked(detections=found)
    seen = np.zeros((TALL, WIDE), bool)
    for one in found:
        x1, y1, x2, y2 = one.box
        dx, dy = (max(SHOWN_LEAST_PX, SHOWN_AROUND * side) + 1 for side in (x2 - x1, y2 - y1))
        seen[max(0, int(y1 - dy)) : int(y2 + dy) + 1, max(0, int(x1 - dx)) : int(x2 + dx) + 1] = True
    frame.image[~seen] = np.where(np.indices((TALL, WIDE)).sum(axis=0) % 7 == 0, MARK, frame.image)[~seen]
    for one in what_leaves(asked(), frame, result, tmp_path_factory.mktemp("ring")):
        assert int(one.max()) < BRIGHT


def test_a_finding_is_shown_as_it_is_and_a_little_around_it(tmp_path: Path) -> None:
    frame, result = looked(detections=(finding(),))
    x1, y1, x2, y2 = (int(side) for side in FINDING)
    kept = what_leaves(asked(), frame, result, tmp_path)[-1]
    inside = slice(y1 - 10, y2 + 10), slice(x1 - 12, x2 + 12)
    assert np.array_equal(kept[inside], frame.image[inside])
    rest = np.ones(kept.shape, bool)
    rest[y1 - 11 : y2 + 11, x1 - 14 : x2 + 14] = False
    assert len(np.unique(kept[rest])) == 1


@pytest.mark.parametrize("label", ["person", "rider on a bike", "Number Plate"])
def test_a_private_finding_shows_nothing_of_itself(label: str, tmp_path: Path) -> None:
    """A thumbnail of it is not made; what is kept is a few flat squares, also within another finding's margin."""
    person: Box = (112.0, 62.0, 140.0, 98.0)
    frame, result = looked(detections=(finding(), finding(person, label)))
    frame.image[62:98:2, 105:140:2] = MARK
    leaves = what_leaves(asked(), frame, result, tmp_path)
    assert len(leaves) == 2
    for one in leaves:
        assert int(one.max()) < BRIGHT


def test_a_private_finding_opens_no_margin_around_itself() -> None:
    """From the air a person is a few pixels, of which a quarter is less than what is shown around a finding."""
    person: Box = (200.0, 120.0, 208.0, 136.0)
    frame, _ = looked()
    frame.image[112:144, 192:216] = MARK  # Whoever stands beside, and what of it the box has missed.
    for shown in (
        Redactor().clean(frame.image, [finding(person, "person")]),
        Redactor(never=("rider",)).clean(frame.image, [finding(person, "rider")]),
    ):
        assert shown is not None
        assert int(shown.max()) < BRIGHT


def test_a_frame_of_private_findings_alone_is_not_kept(tmp_path: Path) -> None:
    frame, result = looked(detections=(finding(label="rider"),))
    assert len(what_leaves(asked(), frame, result, tmp_path)) == 1
    assert len(what_leaves(asked(shows_frames=True), frame, result, tmp_path / "whole")) == 2


@pytest.mark.parametrize("shows_frames", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_of_somebody_of_whom_nothing_says_where_no_picture_is_made(bad: float, shows_frames: bool) -> None:
    frame, _ = looked()
    somebody = finding((bad, 10.0, 50.0, 50.0), "person")
    assert Redactor(shows_frames=shows_frames).clean(frame.image, [finding(), somebody]) is None


def test_a_frame_without_a_finding_is_not_kept(tmp_path: Path) -> None:
    frame, result = looked()
    leaves = what_leaves(asked(), frame, result, tmp_path)
    assert len(leaves) == 1
    assert len(np.unique(leaves[0])) == 1


@pytest.mark.parametrize("bad", [(np.nan, 0.0, 10.0, 10.0), (-np.inf, 0.0, np.inf, 10.0), (50.0, 50.0, -90.0, -90.0)])
def test_a_box_that_is_none_shows_nothing(bad: Box) -> None:
    frame, _ = looked()
    assert len(np.unique(only_findings(frame.image, [bad]))) == 1


def test_what_is_lent_as_crops_is_cut_by_the_same_rule() -> None:
    frame, _ = looked()
    colour = np.repeat(frame.image[..., None], 3, axis=2)
    shown = redacted(colour, np.array([FINDING]))
    assert np.array_equal(shown, only_findings(colour, [FINDING]))


def test_the_flat_rest_of_a_large_frame_is_its_median_nearly() -> None:
    image = np.random.default_rng(4).integers(40, 61, (1_200, 1_600, 3), dtype=np.uint8)
    assert (np.abs(only_findings(image, []).astype(int) - 50) <= 1).all()
