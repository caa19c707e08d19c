"""Pictures that leave the eye: people and vehicles are looked for by a detector of its own."""

import shutil
from hashlib import sha256
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd.config.privacy import PrivacySection, mask_problem
from swarmd.eye.ipc import Configure, ShowFrames
from swarmd.eye.pictures import PictureMaker
from swarmd.eye.thumbs import AGAIN_NS, ThumbMaker
from swarmd_models.frame_ring import INTERVAL_NS, FrameRing
from swarmd_models.redaction import TILED_FROM_PX, Redactor, read_masks
from swarmd_models.types import Detection, EyeResult, Frame, Image, TrackEvent

PERSON = (80.0, 40.0, 120.0, 160.0)


class Found(Redactor):
    """A redactor whose detector finds what it is told."""

    def __init__(self, *boxes: tuple[float, float, float, float], masks: tuple[str, ...] = ()) -> None:
        super().__init__(masks, model="told", shows_frames=True)
        self.boxes, self.asked = list(boxes), 0

    def _search(self, image: Image) -> list[tuple[float, float, float, float]]:
        self.asked += 1
        return self.boxes


def textured(height: int = 240, width: int = 320) -> Image:
    return np.random.default_rng(3).integers(0, 256, (height, width), dtype=np.uint8)


BUNDLE = """format = 1
name = "people"
version = "1"
decoder = "ssd"
labels_file = "people.labels"
[model]
file = "{model.name}"
sha256 = "{sha256}"
[input]
width = 300
height = 300
channels = "rgb"
resize = "stretch"
mean = 128.0
std = 128.0
[decode]
score_threshold = 0.3
iou_threshold = 0.5
max_detections = 10
classes = ["person"]
[track]
min_hits = 1
"""


def test_people_of_a_real_video_are_covered(shared: Path, tmp_path: Path) -> None:
    """A man who walks through a room; figures of all its frames: docs/performance/eye.md."""
    video = cv2.VideoCapture(str(shared / "data/video/one-by-one-person-detection.mp4"))
    video.set(cv2.CAP_PROP_POS_FRAMES, 150)
    _, frame = video.read()
    model = tmp_path / "people.tflite"
    shutil.copy(shared / "data/models/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", model)
    (tmp_path / "people.labels").write_text("\n".join(["person", *(f"c{number}" for number in range(89))]) + "\n")
    text = BUNDLE.format(model=model, sha256=sha256(model.read_bytes()).hexdigest())
    (tmp_path / "people.toml").write_text(text)
    redactor = Redactor(model=str(tmp_path / "people.toml"))
    boxes = redactor.find(np.asarray(frame, dtype=np.uint8))
    assert boxes is not None
    assert any(box[0] < 400 and box[2] > 490 and box[1] < 40 and box[3] > 360 for box in boxes)
    assert redactor.found == 1


def test_what_it_finds_is_covered_though_the_running_model_saw_nothing() -> None:
    image = textured()
    clean = Found(PERSON).clean(image)
    assert clean is not None
    inside = clean[40:160, 80:120]
    assert len(np.unique(inside)) <= 36
    assert np.array_equal(clean[:, :70], image[:, :70])
    assert np.array_equal(image, textured()), "the frame itself is as it was"


def test_masks_are_covered_whatever_is_found_and_without_the_detector_too() -> None:
    image = textured()
    for redactor in (Found(masks=("0,0,0.5,0.5",)), Redactor(("0,0,0.5,0.5",), shows_frames=True)):
        clean = redactor.clean(image)
        assert clean is not None
        assert len(np.unique(clean[:120, :160])) <= 36
        assert np.array_equal(clean[120:], image[120:])


@pytest.mark.parametrize(
    "text", ["", "0,0,1", "0,0,1,1,1", "0.5,0,0.4,1", "0,0,1.1,1", "-0.1,0,1,1", "a,b,c,d", "nan,0,1,1"]
)
def test_a_mask_that_is_none_shows_nothing_and_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is no mask"):
        read_masks((text,))
    assert mask_problem(text)
    said: list[str] = []
    redactor = Redactor((text,), said.append)
    assert redactor.clean(textured()) is None
    assert "no picture leaves this device" in said[0]


def test_without_its_model_no_picture_leaves_and_it_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    redactor = Redactor((), said.append, str(tmp_path / "nothing.toml"))
    maker = PictureMaker(ThumbMaker((), redactor), redactor)
    maker.want(ShowFrames(1, 640, 95))
    frame = Frame(0, 10**9, textured())
    assert maker.picture(frame, []) is None
    assert maker.crops(frame, EyeResult(0, 10**9, [], [_event()], {})) == []
    ring = FrameRing(tmp_path / "ring", 1 << 20)
    assert not ring.consider(frame, [Detection(0, "x", 0.5, PERSON)], lambda label: 0.45, 0.0, "m", (), redactor.clean)
    assert list((tmp_path / "ring").iterdir()) == []
    assert len(said) == 1


def _event() -> TrackEvent:
    return TrackEvent("new", 7, 0, "hot-spot", 0.9, PERSON, 0, 3, None)


def test_a_thumbnail_with_somebody_is_not_made_and_tried_again_later() -> None:
    redactor = Found(PERSON)
    maker = ThumbMaker((), redactor)
    result = EyeResult(0, 0, [], [_event()], {})
    for step in range(20):
        assert maker.crops(Frame(step, step * 10**8, textured()), result) == []
    assert redactor.asked == 1, "a picture is searched when it would go, not for each frame"
    redactor.boxes = []
    assert maker.last([7], AGAIN_NS) == [], "what was not shown is not shown at the end"
    assert len(maker.crops(Frame(99, 2 * AGAIN_NS, textured()), result)) == 1


def test_a_thumbnail_shows_nothing_of_a_mask() -> None:
    maker = ThumbMaker((), Found(masks=("0,0,0.3,1",)))
    assert maker.crops(Frame(0, 0, textured()), EyeResult(0, 0, [], [_event()], {})) == []


def test_frames_to_be_labelled_are_searched_beside_the_eye(tmp_path: Path) -> None:
    class Sure:
        class bundle:
            digest = "d"

        @staticmethod
        def sure_from(label: str) -> float:
            return 0.45

    redactor = Found(PERSON)
    maker = PictureMaker(None, redactor)
    maker.ring = FrameRing(tmp_path, 1 << 20)
    detections = [Detection(0, "hot-spot", 0.5, PERSON)]
    for index in range(2):
        frame = Frame(index, index * INTERVAL_NS, textured())
        maker.keep(frame, EyeResult(index, frame.captured_ns, detections, [], {}), Sure(), 0.0)  # type: ignore[arg-type]
        maker.finish()
    assert maker.ring.kept == 2
    kept = cv2.imread(str(min(tmp_path.glob("*.png"))), cv2.IMREAD_UNCHANGED)
    assert kept is not None
    assert len(np.unique(kept[40:160, 80:120])) <= 36


def test_no_detector_is_named_by_itself_and_the_models_own_word_covers() -> None:
    assert PrivacySection().detector == Configure("s", "m").private.detector == ""
    image = textured()
    clean = Redactor(shows_frames=True).clean(image, [Detection(0, "person", 0.5, PERSON)])
    assert clean is not None
    assert len(np.unique(clean[40:160, 80:120])) <= 36
    assert np.array_equal(clean[:, :60], image[:, :60])


def test_a_large_picture_is_searched_in_parts_too() -> None:
    """Found in a part, a box is where it is in the whole picture."""
    seen: list[tuple[int, ...]] = []

    class Detector:
        @staticmethod
        def detect(image: Image) -> list[Detection]:
            seen.append(image.shape)
            height, width = image.shape[:2]
            return [Detection(0, "person", 0.9, (width - 20.0, height - 40.0, width - 10.0, height - 10.0))]

    redactor = Redactor(model="told")
    redactor._detector = Detector()  # type: ignore[assignment]
    boxes = redactor.find(textured(500, TILED_FROM_PX))
    assert boxes is not None
    assert len(seen) == len(boxes) == 5
    assert boxes[1] == (360 - 22.5, 300 - 47.5, 360 - 7.5, 300 - 2.5)
    assert boxes[4] == boxes[0] == (TILED_FROM_PX - 22.5, 500 - 47.5, TILED_FROM_PX - 7.5, 500 - 2.5)
    seen.clear()
    redactor.find(textured(400, TILED_FROM_PX - 1))
    assert len(seen) == 1
