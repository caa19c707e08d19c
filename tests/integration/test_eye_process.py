"""The real eye process under a real supervisor: kills, stops, crashes, hangs, swaps, and every end it can come to."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd.errors import EyeError
from swarmd.eye import supervisor as supervising
from swarmd.eye.ipc import (
    AssignCell,
    CellDone,
    CellReached,
    Crop,
    Finished,
    FrameDone,
    Here,
    Problem,
    Ready,
    SourceState,
    Stats,
    SwapBack,
    SwapDone,
    SwapModel,
)
from swarmd.eye.link import WorkClock
from swarmd_models.bundle import load_bundle
from swarmd_models.scale import trained_pixel_m
from tests.support.daemons import has_ended, wait_for
from tests.support.eye_process import FARM, Watched

EYE_RSS_LIMIT_KB = 110_000


def _rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_an_eye_says_ready_sees_frames_and_ends() -> None:
    async def scenario() -> None:
        async with Watched(FARM + "&pace=max&frames=60") as eye:
            await eye.until(lambda: eye.of(Finished), "the end of the source")
            assert eye.task is not None
            await eye.task
        ready = eye.of(Ready)[0]
        assert ready.model.startswith("solar")
        assert len(ready.digest) == 64
        assert eye.frames() == eye.of(Finished)[0].frames == 60, "a file read as fast as possible loses no frame"
        events = [event for message in eye.of(FrameDone) for event in message.events]
        began = {e.track_id for e in events if e.kind == "new"}
        assert began
        assert began == {e.track_id for e in events if e.kind == "end"}
        assert all(e.position is not None for e in events)
        assert eye.supervisor.state == "finished"

    asyncio.run(scenario())


def test_a_thumbnail_says_how_much_ground_its_pixels_show() -> None:
    """Of frames of the model's own size: what it was trained for, and more where the picture was scaled down."""

    async def scenario() -> None:
        async with Watched(FARM + "&pace=max&frames=60", thumbnails=True) as eye:
            await eye.until(lambda: eye.of(Finished), "the end of the source")
        crops = eye.of(Crop)
        assert crops
        assert min(crop.pixel_m for crop in crops) >= trained_pixel_m(load_bundle("zoo:small-320")) - 1e-9

    asyncio.run(scenario())


def test_every_picture_of_a_folder_is_seen_whatever_the_pace(tmp_path: Path) -> None:
    import cv2
    import numpy as np

    for index in range(25):
        cv2.imwrite(str(tmp_path / f"{index:02d}.png"), np.full((256, 320), index * 10, np.uint8))
    (tmp_path / "12.png").write_bytes(b"torn")

    async def scenario() -> None:
        async with Watched(str(tmp_path)) as eye:
            await eye.until(lambda: eye.of(Finished), "the end of the folder")
        assert eye.frames() == 24
        assert eye.of(Stats)[-1].counters["frames_unusable"] == 1
        assert any("12.png cannot be decoded" in problem.text for problem in eye.of(Problem))

    asyncio.run(scenario())


def test_counters_whereabouts_memory_and_cells() -> None:
    async def scenario() -> None:
        async with Watched(FARM.replace("fly=lanes", "fly=claims")) as eye:
            await eye.until(lambda: eye.of(Ready), "ready")
            assert eye.supervisor.send(AssignCell("c00"))
            assert eye.supervisor.send(AssignCell("dragon")), "a cell that is none must not hurt"
            await eye.until(lambda: eye.of(CellDone), "the cell to be done")
            assert eye.of(CellReached)[0].cell_id == "c00"
            assert eye.of(CellDone)[0].quality_milli > 0
            await eye.until(
                lambda: any(one.pose is not None and one.battery_milli > 0 for one in eye.of(Here)), "where"
            )
            await eye.until(lambda: any("dragon" in problem.text for problem in eye.of(Problem)), "what is no cell")
            await eye.until(lambda: eye.of(Stats) and eye.of(Stats)[-1].counters.get("frames_inferred"), "counters")
            pid = eye.supervisor.pid
            assert pid is not None
            assert _rss_kb(pid) <= EYE_RSS_LIMIT_KB

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGKILL, "signal: SIGKILL"), (signal.SIGSEGV, "signal: SIGSEGV"), (signal.SIGSTOP, "silence: no word")],
    ids=["killed", "segfault", "stopped"],
)
def test_an_eye_that_dies_or_freezes_is_started_again(number: signal.Signals, reason: str) -> None:
    async def scenario() -> None:
        async with Watched() as eye:
            await eye.until(lambda: eye.of(FrameDone) and any(m.events for m in eye.of(FrameDone)), "a track")
            first, seen = eye.supervisor.pid, eye.frames()
            assert first is not None
            os.kill(first, number)
            await eye.until(lambda: len(eye.of(Ready)) == 2 and eye.frames() > seen + 3, "frames after the restart")
            assert eye.supervisor.pid != first
            assert eye.supervisor.restarts == 1
            assert any(event == "eye_died" and reason in text for event, text in eye.log), eye.log
            assert sum(eye.supervisor.counters.values()) == 1
        events = [event for message in eye.of(FrameDone) for event in message.events]
        began = [e.track_id for e in events if e.kind == "new"]
        ended = [e.track_id for e in events if e.kind == "end"]
        assert len(began) == len(set(began)), "an id is never used again, also not after a restart"
        assert sorted(ended) == sorted(began), "tracks that died with the eye are ended too"

    asyncio.run(scenario())


def test_an_eye_that_dies_again_and_again_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    # Deaths within a minute count together: four lives of a busy machine may take longer.
    monkeypatch.setattr(supervising, "DEGRADE_WINDOW_S", 3_600.0)

    async def scenario() -> None:
        async with Watched(backends=("openvino", "litert")) as eye:
            for life in range(supervising.DEGRADE_DEATHS):
                await eye.until(lambda life=life: len(eye.of(Ready)) > life, f"life {life}")
                assert eye.supervisor.config.backends == ("openvino", "litert")
                pid = eye.supervisor.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                await eye.until(lambda life=life: eye.supervisor.restarts > life, "the death to be seen")
            await eye.until(lambda: eye.supervisor.state == "degraded", "the step down")
            assert eye.supervisor.config.backends == ("litert",)
            assert eye.supervisor.restarts == supervising.DEGRADE_DEATHS
            assert any("steps down to backend litert instead of openvino" in p.text for p in eye.of(Problem))

    asyncio.run(scenario())


def test_a_stalled_frame_is_told_from_a_slow_start() -> None:
    eye = Watched()
    supervisor = eye.supervisor
    assert supervisor.stall_limit_s() == 30.0
    for _ in range(100):
        supervisor._note_frame(FrameDone(0, 0, 0, 0, 0.0, (), {"infer": 5_000_000}))
    assert supervisor.stall_limit_s() == 2.0
    for _ in range(100):
        supervisor._note_frame(FrameDone(0, 0, 0, 0, 0.0, (), {"infer": 400_000_000}))
    assert supervisor.stall_limit_s() == pytest.approx(8.0)
    supervisor._is_ready, supervisor._last_word, supervisor._busy_s = True, 100.0, 9.0
    assert supervisor._verdict(100.5).startswith("stall: one frame takes 9.0 s")
    supervisor._busy_s = 7.0
    assert supervisor._verdict(100.5) == ""
    assert supervisor._verdict(104.0).startswith("silence")
    supervisor._gaps_s.extend([0.05, 1.0, 0.2])
    assert supervisor.silence_limit_s() == 8.0, "a machine under load is given more time"
    assert supervisor._verdict(104.0) == ""
    supervisor._gaps_s.append(60.0)
    assert supervisor.silence_limit_s() == 30.0


def test_a_brain_that_was_stopped_itself_takes_no_eye_for_stuck() -> None:
    supervisor = Watched().supervisor
    supervisor._is_ready, supervisor._last_word = True, 100.0
    supervisor._excuse(100.1, 109.1)
    assert supervisor._verdict(109.1) == "", "nine seconds in which nobody could be heard"
    for look in range(20):
        supervisor._excuse(109.1 + look / 4, 109.35 + look / 4)
    assert supervisor._verdict(114.1).startswith("silence"), "from then on it is"


def test_an_eye_that_was_stopped_has_not_worked_meanwhile() -> None:
    """A stop of three seconds within a frame is no stall; a frame that takes three seconds is one."""
    stopped, stalled = WorkClock(50), WorkClock(50)
    for now in range(1_000, 1_500, 50):
        assert stopped.busy_ns(now, 990) == stalled.busy_ns(now, 990) == now - 990
    assert stopped.busy_ns(4_500, 990) < 500
    assert [stalled.busy_ns(now, 990) for now in range(1_500, 4_550, 50)][-1] == 3_510
    assert stopped.busy_ns(4_550, 4_540) == 10, "the next frame has its own time"
    assert stopped.busy_ns(4_600, 0) == 0


def test_the_eye_ends_with_its_brain(tmp_path: Path) -> None:
    """A brain that is SIGKILLed leaves no orphan, not even a stopped one."""
    script = tmp_path / "brain.py"
    script.write_text(
        "import asyncio, sys\nfrom swarmd.eye.supervisor import EyeSupervisor\n"
        "from swarmd.eye.ipc import Configure, Ready\n"
        "def on(m):\n    if isinstance(m, Ready): print(sup.pid, flush=True)\n"
        f"sup = EyeSupervisor(Configure({FARM!r}, 'zoo:small-320'), on)\nasyncio.run(sup.run())\n"
    )
    for freeze in (False, True):
        brain = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        assert brain.stdout is not None
        pid = int(brain.stdout.readline())
        if freeze:
            os.kill(pid, signal.SIGSTOP)
        brain.kill()
        brain.wait()
        brain.stdout.close()
        wait_for(lambda pid=pid: has_ended(pid), "the eye's end with its brain")  # type: ignore[misc]


def test_a_cancelled_supervisor_leaves_no_eye_behind() -> None:
    async def scenario() -> None:
        eye = Watched()
        task = asyncio.create_task(eye.supervisor.run())
        while not eye.of(Ready):
            await asyncio.sleep(0.02)
        pid = eye.supervisor.pid
        assert pid is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert has_ended(pid)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("source", "changes", "sentence"),
    [
        ("nowhere.mp4", {}, "no source at nowhere.mp4"),
        ("sim://farm?dragons=1", {}, "unknown key 'dragons'"),
        ("sim://moon", {}, "sim://farm"),
        (FARM, {"model": "nowhere.tflite"}, "no model at nowhere.tflite"),
        (FARM, {"labels": "nowhere.txt"}, "cannot read labels nowhere.txt"),
        (FARM, {"pose": "fixed:x"}, "no number"),
        (FARM, {"backends": ("magic",)}, "no backend is called 'magic'"),
    ],
    ids=["video", "sim key", "sim world", "model", "labels", "pose", "backend"],
)
def test_what_can_never_work_is_said_once_and_not_tried_again(
    source: str, changes: dict[str, object], sentence: str
) -> None:
    async def scenario() -> None:
        eye = Watched(source, **changes)  # type: ignore[arg-type]
        with pytest.raises(EyeError) as caught:
            await asyncio.wait_for(eye.supervisor.run(), 120)
        assert sentence in str(caught.value)
        assert eye.supervisor.state == "failed"
        assert eye.supervisor.restarts == 0
        assert [p.fatal for p in eye.of(Problem)] == [True]

    asyncio.run(scenario())


@pytest.mark.shared
def test_a_video_that_breaks_off_is_told(shared: Path, tmp_path: Path) -> None:
    import cv2
    import numpy as np

    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (64, 48))
    for index in range(60):
        writer.write(np.full((48, 64, 3), index, np.uint8))
    writer.release()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    model = str(shared / "data/models/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite")

    async def scenario() -> None:
        eye = Watched(str(path), model=model, paced=False)
        with pytest.raises(EyeError, match=r"breaks off after|cannot be opened|holds no frame"):
            await asyncio.wait_for(eye.supervisor.run(), 120)

    asyncio.run(scenario())


def test_a_camera_that_is_not_there_is_waited_for() -> None:
    async def scenario() -> None:
        async with Watched("camera:77") as eye:
            await eye.until(lambda: len(eye.of(SourceState)) >= 2, "two attempts")
            assert all("/dev/video77 cannot be opened" in s.problem for s in eye.of(SourceState))
            assert eye.supervisor.state == "source_lost"
            assert not eye.of(Problem)
            await eye.until(lambda: eye.of(Stats)[-1].counters["source_reconnects"] >= 2, "counted reconnects")
            assert eye.supervisor.restarts == 0, "the eye itself is well"

    asyncio.run(scenario())


def test_a_model_is_swapped_between_two_frames_and_back(tmp_path: Path) -> None:
    from tests.support.bundles import write_bundle

    other = write_bundle(tmp_path, extra='[track]\nstatic = true\n\n[provenance]\nabout = "another threshold"')

    async def scenario() -> int:
        async with Watched() as eye:
            await eye.until(lambda: eye.frames() > 5, "frames")
            eye.supervisor.send(SwapBack())
            await eye.until(lambda: len(eye.of(SwapDone)) == 1, "nothing to go back to")
            assert eye.of(SwapDone)[0].text == "there is no model to go back to"
            eye.said.clear()
            eye.supervisor.send(SwapModel(str(tmp_path / "nowhere.toml")))
            await eye.until(lambda: len(eye.of(SwapDone)) == 1, "a refusal")
            refused = eye.of(SwapDone)[0]
            assert not refused.ok
            assert "no model at" in refused.text
            assert refused.model.startswith("solar"), "the old model still runs"
            eye.supervisor.send(SwapModel(str(other)))
            await eye.until(lambda: len(eye.of(SwapDone)) == 2, "the swap")
            assert eye.of(SwapDone)[1].ok, eye.of(SwapDone)[1]
            assert eye.of(SwapDone)[1].model == "bundle"
            eye.supervisor.send(SwapBack())
            await eye.until(lambda: len(eye.of(SwapDone)) == 3, "the return")
            assert eye.of(SwapDone)[2].model.startswith("solar")
            eye.supervisor.send(SwapBack())
            await eye.until(lambda: len(eye.of(SwapDone)) == 4, "forward again")
            assert eye.of(SwapDone)[3].model == "bundle", "both stay loaded"
        indices = [m.frame_index for m in eye.of(FrameDone) if m.frame_index >= 0]
        return max(b - a for a, b in itertools.pairwise(indices))

    gaps: list[int] = []
    while len(gaps) < 4 and min(gaps, default=9) > 2:  # A live source drops frames on a busy machine, swap or none.
        gaps.append(asyncio.run(scenario()))
    assert min(gaps) <= 2, "a swap loses at most one frame"


def test_the_eye_is_not_started_by_hand() -> None:
    for arguments in ([], ["--fd", "x"], ["--fd", "99"]):
        done = subprocess.run(
            [sys.executable, "-m", "swarmd.eye", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "swarmd" in done.stderr
