"""The daemon asks another judge by itself: a real brain with its worker, two models of the zoo, and a drawn frame."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from swarmd.brain import judging
from swarmd.brain.brain import Brain
from swarmd.config.loading import load
from swarmd.errors import ConfigError
from swarmd.logs import Logger
from swarmd_models.bundle import ZOO, load_bundle
from swarmd_protocols.state.observations import DetectionView, LocalDetection, Observed
from swarmd_protocols.thumbs.form import name_of, problem_of
from swarmd_protocols.thumbs.requests import Shelve
from tests.support.daemons import PATIENCE_S, Start, wait_for

pytestmark = pytest.mark.timeout(280)
SMALL, MEDIUM = load_bundle("zoo:small-320"), load_bundle("zoo:medium-640")


def pictures() -> Iterator[bytes]:
    """A drawn frame in the form in which an eye keeps pictures, each time a little otherwise: another look."""
    image = np.load(ZOO / "tiny-224.golden.npz")["image"].squeeze()
    small = cv2.resize(image, (192, 144), interpolation=cv2.INTER_AREA)
    for quality in cycle(range(80, 40, -1)):
        ok, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, quality])
        assert ok
        assert not problem_of(data.tobytes())
        yield bytes(data.tobytes())


def flags(folder: Path, **more: object) -> dict[str, object]:
    """A daemon without an eye's process: what its eye has seen the test says, as `TrackFeed` does."""
    return {
        "eye.enabled": False, "eye.thumbnails": True, "node.name": "drone", "node.origin": (48.0, 11.0),
        "swarm.dev_fleet": str(folder / "fleet"),
        "state.dir": str(folder / "state"), "node.control": str(folder / "control"), "http.listen": "off",
        "transport.listen": "127.0.0.1:0", "inference.listen": "127.0.0.1:0", "inference.models": ("zoo:medium-640",),
        "dedup.judge_confirms": True,
        "judge.model": "zoo:medium-640", "judge.per_minute": 600.0, "judge.deadline_s": 60.0, "judge.need": 0.01,
        **more,
    }  # fmt: skip


class Drone:
    """A living brain, and what its eye tells it."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self.tracks = count(1)

    def see(self, jpeg: bytes, east_m: float, track: int = 0) -> None:
        driver = self.brain.parts.driver
        driver.command("thumbs", Shelve(jpeg))
        look = LocalDetection(
            "new", track or next(self.tracks), "cell", 700, round(east_m * 100), 0, (100, 0, 100), "", False,
            time.monotonic_ns(), bytes.fromhex(SMALL.digest)[:8], name_of(jpeg), need_milli=990,
        )  # fmt: skip
        driver.command("state", Observed((look,)))
        driver.command("state", Observed((replace(look, kind="end"),)))

    def counts(self) -> dict[str, int]:
        worker = self.brain.parts.worker
        return {} if worker is None else worker.judge_counts()

    def verdicts(self) -> list[DetectionView]:
        """Own words that come of no look of the eye."""
        rows = self.brain.parts.replica.views.detections()
        return [row for row in rows if row.model_digest[:8] == bytes.fromhex(MEDIUM.digest)[:8]]

    async def judged(self) -> DetectionView:
        """Have looks judged until one is something to the judge: its second stage has a budget of time, which a loaded
        machine may not keep, and then it sees nothing."""
        async with asyncio.timeout(PATIENCE_S):
            for jpeg in pictures():
                before = self.over()
                self.see(jpeg, 3.0, track=1)
                while self.over() == before:
                    await asyncio.sleep(0.05)
                if found := [one for one in self.verdicts() if one.score_milli]:
                    return found[0]
        raise AssertionError

    def over(self) -> int:
        """Questions of which something has become."""
        told = self.counts()
        return told.get("answered", 0) + told.get("given_up", 0)

    async def until(self, done: Callable[[], Any], what: str) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := done()):
                await asyncio.sleep(0.05)
        return found


async def lived(settings: dict[str, object], story: Callable[[Drone], Any]) -> None:
    """One life of a daemon in which something happens."""
    loaded = load(None, {}, settings)
    brain = Brain(loaded, Logger("drone"))
    life = asyncio.create_task(brain.run())
    drone = Drone(brain)
    try:
        while not hasattr(brain, "parts") or brain.parts.worker is None:
            assert not life.done(), life.exception()
            await asyncio.sleep(0.05)
        await story(drone)
    finally:
        brain.stop()
        await life


def grey() -> bytes:
    """A picture in which there is nothing, as an eye writes one."""
    ok, data = cv2.imencode(".jpg", np.full((96, 128), 128, np.uint8))
    assert ok
    return bytes(data.tobytes())


def test_a_larger_model_judges_what_the_eye_doubts_and_changes_its_mind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "LOOKS_MAX", 1 << 30)

    async def story(drone: Drone) -> None:
        verdict = await drone.judged()
        assert (verdict.reports, verdict.thumb, 0 < verdict.score_milli <= 1000) == (0, b"", True)
        [thing] = drone.brain.parts.replica.views.objects()
        assert (thing.tier, thing.reports, len(thing.observers)) == ("confirmed", 1, 1)
        told = drone.counts()
        assert (told["stated"], told["borrowed"], told["own_us"] > 0) == (1, 0, True)
        drone.see(grey(), 3.0, track=1)
        await drone.until(lambda: drone.counts().get("withdrawn"), "another mind")
        [verdict] = drone.verdicts()
        assert verdict.score_milli == 0
        [thing] = drone.brain.parts.replica.views.objects()
        assert thing.tier == "candidate"
        assert b"swarmd_judge" in drone.brain.parts.metrics.render()

    asyncio.run(lived(flags(tmp_path), story))


def test_a_worker_that_dies_over_a_question_leaves_no_verdict_and_the_next_life_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "REST_S", 0.0)
    monkeypatch.setattr(judging, "LOOKS_MAX", 1 << 30)

    async def story(drone: Drone) -> None:
        worker = drone.brain.parts.worker
        assert worker is not None
        pid = int((await drone.until(lambda: worker.address and worker.status(), "a worker"))["pid"])
        os.kill(pid, signal.SIGSTOP)  # So that it cannot answer before it dies.
        drone.see(next(pictures()), 3.0, track=1)
        await drone.until(lambda: drone.counts().get("asked"), "a question")
        os.kill(pid, signal.SIGKILL)
        assert not drone.verdicts()
        await drone.judged()
        assert len(drone.verdicts()) == 1
        assert drone.counts()["unanswered"] >= 1

    asyncio.run(lived(flags(tmp_path, **{"judge.deadline_s": 5.0}), story))


def test_a_model_of_another_member_judges_where_both_say_so(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lender = start(
        "lender", "--no-eye", "--inference", "127.0.0.1:0", "--set", "inference.models=zoo:medium-640",
        "--set", "lending.lend=true", "--set", "node.origin=48.0,11.0", "--set", "dedup.judge_confirms=true",
    ).up()  # fmt: skip
    wait_for(lambda: (lender.status().get("inference") or {}).get("models"), "a served model", seen=lender.log)
    monkeypatch.setattr(judging, "LOOKS_MAX", 1 << 30)

    async def story(drone: Drone) -> None:
        lending = drone.brain.parts.worker and drone.brain.parts.worker.lending
        assert lending is not None
        await drone.until(lambda: lending.status()["lenders"], "a lender")
        verdict = await drone.judged()
        assert verdict.origin == drone.brain.parts.identity.node
        assert drone.counts()["borrowed"] >= 1

    settings = flags(tmp_path, **{
        "judge.borrow": True, "lending.borrow": True, "inference.models": ("zoo:tiny-224",),
        "swarm.join": (lender.status()["address"],),
    })  # fmt: skip
    asyncio.run(lived(settings, story))


@pytest.mark.parametrize(
    ("less", "why"),
    [
        ({"eye.thumbnails": False}, "needs pictures of candidates"),
        ({"inference.listen": ""}, "needs a worker"),
        ({"judge.borrow": True}, "needs lending.borrow"),
    ],
)
def test_what_a_judge_needs_is_said_when_it_is_configured(tmp_path: Path, less: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(None, {}, flags(tmp_path, **less))
