"""Sources and poses: what they give, and every bad input by name."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from swarmd_models import sources
from swarmd_models.errors import FrameError, SourceError
from swarmd_models.geo.geolocate import rotate
from swarmd_models.geo.poses import PoseTrack, ReplayedPoses, make_pose, open_poses, read_dataflash
from swarmd_models.sources import (
    CaptureSource,
    PictureSource,
    ReconnectingSource,
    SourceOptions,
    VideoSource,
    is_live,
    open_source,
    read_picture,
    redacted,
)
from swarmd_models.types import Frame, FrameSource


def _video(folder: Path, frames: int = 40) -> Path:
    path = folder / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (64, 48))
    for index in range(frames):
        writer.write(np.full((48, 64, 3), index, np.uint8))
    writer.release()
    return path


def _all(source: FrameSource) -> list[Frame]:
    frames = []
    while (frame := source.read()) is not None:
        frames.append(frame)
    source.close()
    return frames


def test_a_video_keeps_its_own_time_line(tmp_path: Path) -> None:
    frames = _all(open_source(str(_video(tmp_path))))
    assert [frame.index for frame in frames] == list(range(40))
    steps = {round((b.captured_ns - a.captured_ns) / 1e6) for a, b in itertools.pairwise(frames)}
    assert steps == {50}


def test_a_looped_video_goes_on_in_time(tmp_path: Path) -> None:
    source = open_source(str(_video(tmp_path, 5)), SourceOptions(loop=True))
    frames = [source.read() for _ in range(12)]
    source.close()
    times = [frame.captured_ns for frame in frames if frame is not None]
    assert len(times) == 12
    assert all(b > a for a, b in itertools.pairwise(times))


def test_a_paced_video_waits_for_its_time_and_stops_at_once_when_closed(tmp_path: Path) -> None:
    now = [0]
    source = VideoSource(_video(tmp_path, 5), SourceOptions(paced=True), clock=lambda: now[0])
    assert source.read() is not None
    now[0] = 10**12  # Late: nothing is waited for.
    assert source.read() is not None
    now[0] = 0
    source.close()
    assert source.read() is None


@pytest.mark.parametrize("spec", ["997", "camera:997"])
def test_a_camera_is_named_by_its_number(spec: str) -> None:
    assert is_live(spec)
    with pytest.raises(SourceError, match="camera /dev/video997 cannot be opened"):
        open_source(spec)


def test_missing_video(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no source at"):
        open_source(str(tmp_path / "nowhere.mp4"))


def test_empty_video(tmp_path: Path) -> None:
    path = tmp_path / "empty.mp4"
    path.touch()
    with pytest.raises(SourceError, match="it is empty"):
        open_source(str(path))


def test_corrupt_video(tmp_path: Path) -> None:
    path = tmp_path / "noise.mp4"
    path.write_bytes(np.random.default_rng(1).bytes(20_000))
    with pytest.raises(SourceError, match="cannot be opened: truncated, or of a format"):
        open_source(str(path))


def test_a_video_of_larger_frames_than_may_be_is_refused_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(_video(tmp_path, 3))
    monkeypatch.setattr(sources, "MAX_VIDEO_PIXELS", 64 * 48)
    open_source(path).close()
    monkeypatch.setattr(sources, "MAX_VIDEO_PIXELS", 64 * 48 - 1)
    with pytest.raises(SourceError, match=r"clip\.avi has frames of 64 x 48; 0 million pixels are read"):
        open_source(path)


def test_truncated_video(tmp_path: Path) -> None:
    data = _video(tmp_path).read_bytes()
    path = tmp_path / "cut.avi"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=r"breaks off after \d+ of 40 frames|cannot be opened|holds no frame"):
        _all(open_source(str(path)))


@pytest.mark.shared
def test_truncated_mp4(shared: Path, tmp_path: Path) -> None:
    data = (shared / "data/video/car-detection.mp4").read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(data[: len(data) // 3])
    with pytest.raises(SourceError, match=r"breaks off after \d+ of \d+ frames|cannot be opened"):
        _all(open_source(str(path)))


def test_a_video_that_vanishes_while_it_loops(tmp_path: Path) -> None:
    path = _video(tmp_path, 3)
    source = open_source(str(path), SourceOptions(loop=True))
    for _ in range(3):
        source.read()
    path.unlink()
    with pytest.raises(SourceError, match="No such file"):
        source.read()


def _jpeg() -> bytes:
    picture = np.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", picture)[1].tobytes()


def test_missing_image(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read picture"):
        read_picture(tmp_path / "x.jpg")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (_jpeg()[: len(_jpeg()) // 2], "truncated: the JPEG has no end"),
        (cv2.imencode(".png", np.zeros((9, 9), np.uint8))[1].tobytes()[:-20], "truncated: the PNG has no end"),
        (b"\xff\xd8" + b"noise" * 50 + b"\xff\xd9", "cannot be decoded"),
        (b"GIF89a" + bytes(50), "cannot be decoded"),
    ],
    ids=["empty", "truncated jpeg", "truncated png", "corrupt jpeg", "no picture"],
)
def test_bad_image(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=sentence):
        read_picture(path)


def test_a_folder_goes_on_after_a_bad_picture(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(_jpeg())
    (tmp_path / "2.jpg").write_bytes(b"bad")
    (tmp_path / "3.jpg").write_bytes(_jpeg())
    (tmp_path / "notes.txt").write_text("no picture")
    source = open_source(str(tmp_path))
    assert source.read() is not None
    with pytest.raises(FrameError, match=r"picture .*2.jpg cannot be decoded"):
        source.read()
    frame = source.read()
    assert frame is not None
    assert frame.index == 2
    assert source.read() is None


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no pictures"):
        open_source(str(tmp_path))


def test_pictures_can_be_shown_again_and_again() -> None:
    source = PictureSource([], loop=False)
    assert source.read() is None
    source.close()


def test_a_camera_that_is_not_there() -> None:
    with pytest.raises(SourceError, match="camera /dev/video77 cannot be opened: absent"):
        open_source("camera:77")


def test_a_stream_that_is_not_there() -> None:
    with pytest.raises(SourceError, match=r"stream rtsp://\*\*\*@127.0.0.1:1/x cannot be opened") as caught:
        open_source("rtsp://user:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    assert redacted("rtsp://10.0.0.1/x") == "rtsp://10.0.0.1/x"


def test_gstreamer_that_this_opencv_does_not_have() -> None:
    if cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        pytest.skip("this OpenCV has GStreamer")
    with pytest.raises(SourceError, match="this OpenCV has no GStreamer"):
        open_source("gst:videotestsrc ! appsink")


class _Flaky:
    """A camera that gives two frames and is unplugged."""

    def __init__(self) -> None:
        self.left = 2
        self.is_closed = False

    def read(self) -> Frame | None:
        self.left -= 1
        if self.left < 0:
            raise SourceError("camera gives no more frames")
        return Frame(self.left, 5, np.zeros((4, 4), np.uint8))

    def close(self) -> None:
        self.is_closed = True


def _flaky(fail_first: int) -> tuple[Callable[[], FrameSource], list[_Flaky]]:
    made: list[_Flaky] = []
    attempts = [0]

    def opener() -> FrameSource:
        attempts[0] += 1
        if attempts[0] <= fail_first:
            raise SourceError("absent")
        made.append(_Flaky())
        return made[-1]

    return opener, made


def test_a_camera_that_disappears_is_opened_again_with_back_off_and_counted() -> None:
    opener, made = _flaky(fail_first=3)
    waits: list[float] = []
    told: list[str] = []
    source = ReconnectingSource(opener, told.append, lambda s: bool(waits.append(s)))
    frames = [source.read() for _ in range(6)]
    assert [f.index for f in frames if f is not None] == [0, 1, 2, 3, 4, 5], "frames count on across reconnects"
    assert waits == [0.5, 1.0, 2.0, 0.5, 0.5], "back-off doubles, and a frame resets it"
    assert source.reconnects == 5
    assert told[0] == "absent; trying again in 0.5 s"
    assert told[3] == "", "said once, when frames come again"
    assert all(flaky.is_closed for flaky in made[:-1])


def test_a_camera_whose_frame_nobody_can_decode_is_opened_again() -> None:
    """A camera that is pulled out gives an empty JPEG as its last, and OpenCV raises its own kind of error for it."""

    class Capture:
        is_empty = True

        def read(self) -> tuple[bool, np.ndarray]:
            if Capture.is_empty:
                Capture.is_empty = False
                cv2.imdecode(np.empty(0, np.uint8), cv2.IMREAD_COLOR)
            return True, np.zeros((4, 4, 3), np.uint8)

        def release(self) -> None:
            pass

    said: list[str] = []
    source = ReconnectingSource(lambda: CaptureSource(Capture(), "camera 0"), said.append, lambda seconds: False)
    frame = source.read()
    assert frame is not None
    assert source.reconnects == 1
    assert "camera 0 gives what is no frame" in said[0]


def test_a_reconnecting_source_stops_in_the_middle_of_a_back_off() -> None:
    opener, _ = _flaky(fail_first=99)
    source = ReconnectingSource(opener, lambda text: None, lambda s: True)
    assert source.read() is None
    source.close()
    assert source.read() is None


# --- Poses -----------------------------------------------------------------------------------------------------------


def test_a_fixed_pose_looks_down_by_default() -> None:
    poses = open_poses("fixed:-18.9,-70.1,30")
    assert poses is not None
    pose = poses.at(77)
    assert pose is not None
    assert pose.captured_ns == 77
    assert pose.camera_to_ned == pytest.approx((math.sqrt(0.5), 0, -math.sqrt(0.5), 0))
    assert open_poses("") is None


def test_each_angle_of_a_fixed_pose_may_be_left_out_from_the_end() -> None:
    def attitude(spec: str) -> tuple[float, ...]:
        poses = open_poses(spec)
        assert poses is not None
        pose = poses.at(0)
        assert pose is not None
        return pose.camera_to_ned

    assert attitude("fixed:1,2,3,90") == attitude("fixed:1,2,3,90,-90") == attitude("fixed:1,2,3,90,-90,0")
    assert attitude("fixed:1,2,3") == attitude("fixed:1,2,3,0,-90,0") != attitude("fixed:1,2,3,90")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("fixed:1,2", "needs LAT,LON,AGL"),
        ("fixed:1,2,3,4,5,6,7", "3 to 6 finite numbers"),
        ("fixed:a,b,c", "no number"),
        ("fixed:nan,2,3", "needs LAT"),
        ("fixed:91,2,3", "latitude must be within"),
        ("fixed:1,2,-3", "height above ground"),
        ("gps", "write fixed:LAT,LON,AGL"),
        ("csv:nowhere.csv", "cannot read pose log"),
        ("dataflash:nowhere.bin", "cannot read log"),
    ],
)
def test_bad_pose_descriptions(spec: str, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        open_poses(spec)


def _csv(folder: Path, text: str) -> str:
    path = folder / "p.csv"
    path.write_text(text)
    return f"csv:{path}"


HEADER = "t_s,latitude_deg,longitude_deg,height_agl_m,yaw_deg,pitch_deg,roll_deg,fix\n"


def test_a_csv_log_is_replayed_from_the_first_frame_and_interpolated(tmp_path: Path) -> None:
    rows = "100.0,47.0,8.0,30,350,-90,0,1\n100.5,47.001,8.002,32,10,-90,0,1\n"
    rows += "105,47,8,30,0,-90,0,1\n105.5,47,8,30,0,-90,0,0\n"
    poses = open_poses(_csv(tmp_path, HEADER + rows))
    assert poses is not None
    start = 5_000_000_000
    first, middle = poses.at(start), poses.at(start + 250_000_000)
    assert first is not None
    assert middle is not None
    assert (first.latitude_deg, first.has_fix) == (47.0, True)
    assert (middle.latitude_deg, middle.longitude_deg, middle.height_agl_m) == pytest.approx((47.0005, 8.001, 31))
    up = rotate(middle.camera_to_ned, (0.0, 0.0, -1.0))
    assert up == pytest.approx((1, 0, 0), abs=1e-6), "350 and 10 degrees meet at 0, not at 180"
    assert poses.at(start + 2_000_000_000) is None, "a hole in the log is no pose"
    unfixed = poses.at(start + 5_250_000_000)
    assert unfixed is not None
    assert not unfixed.has_fix
    assert poses.at(start + 60_000_000_000) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "lacks the columns t_s, latitude_deg"),
        (HEADER, "has no rows"),
        (HEADER.replace("yaw_deg,", ""), "lacks the columns yaw_deg; which way the camera looks is not guessed"),
        (HEADER + "1,1,8,30,,-90,0,1\n", "line 2: yaw_deg is empty"),
        (HEADER + "1,x,8,30,0,0,0,1\n", "line 2: could not convert"),
        (HEADER + "1,inf,8,30,0,0,0,1\n", "line 2: latitude_deg is inf"),
    ],
)
def test_bad_pose_logs(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        open_poses(_csv(tmp_path, text))


def test_live_poses_age(tmp_path: Path) -> None:
    track = PoseTrack(keep=4)
    assert track.at(0) is None
    for t in range(20):
        track.push(make_pose(t * 100_000_000, 47.0, 8.0 + t, 30.0, 0.0, -90.0, 0.0))
    pose = track.at(1_850_000_000)
    assert pose is not None
    assert pose.longitude_deg == pytest.approx(26.5)
    assert track.at(2_050_000_000) is not None
    assert track.at(2_150_000_000) is None, "a stale pose is no pose"
    assert len(track._poses) <= 8
    track.push(make_pose(5, 1.0, 1.0, 1.0, 0, 0, 0))
    assert track.at(1_850_000_000) is None, "time went back: the old ones are another flight's"


@pytest.mark.shared
def test_a_real_flight(shared: Path) -> None:
    poses = read_dataflash(shared / "data/logs/quad_flight_log171.bin")
    assert len(poses) == 1199
    fixed = [pose for pose in poses if pose.has_fix]
    assert max(pose.height_agl_m for pose in fixed) < 15, (
        "the false heights of rows without a fix must not come through"
    )
    spread = (max(p.latitude_deg for p in fixed) - min(p.latitude_deg for p in fixed)) * 111_000
    assert 30 < spread < 90
    assert ReplayedPoses(poses).at(123) is not None
