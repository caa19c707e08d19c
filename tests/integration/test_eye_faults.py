"""Runtimes that hang, crash, answer NaN or run out of memory: the supervisor brings the eye back or steps it down."""

import asyncio
import os
from pathlib import Path

import pytest
from eye_process_helpers import FARM, Watched

from swarmd.eye.ipc import Problem, Ready, Stats

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _bad_runtimes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("SWARMD_TEST_ONCE", str(tmp_path / "once"))


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("Hangs", "stall: one frame takes"),
        ("HangsWithTheLock", "silence: no word for"),
        ("Crashes", "signal: SIGSEGV"),
        ("RunsOutOfMemory", "exit: status 1"),
    ],
)
def test_a_runtime_that_fails_once_costs_seconds(runtime: str, reason: str) -> None:
    async def scenario() -> None:
        async with Watched(FARM + "&pace=max", backends=(f"eye_bad_runtimes:{runtime}",)) as eye:
            await eye.until(lambda: len(eye.of(Ready)) == 2, "the second life", 60)
            seen = eye.frames()
            await eye.until(lambda: eye.frames() > seen + 30, "frames of the second life")
            died = [text for event, text in eye.log if event == "eye_died"]
            assert len(died) == 1
            assert died[0].startswith(reason), died
            assert eye.supervisor.restarts == 1
            if runtime == "RunsOutOfMemory":
                assert "MemoryError" in died[0] or "no memory" in died[0], "the log says what the eye said"

    asyncio.run(scenario())


def test_a_runtime_that_answers_nan_is_stepped_over_at_once() -> None:
    async def scenario() -> None:
        async with Watched(backends=("eye_bad_runtimes:AnswersNan", "litert")) as eye:
            await eye.until(lambda: eye.supervisor.state == "degraded" and eye.frames() > 3, "frames on LiteRT", 60)
            said = [problem.text for problem in eye.of(Problem)]
            assert any("NaN or infinity" in text for text in said)
            assert any(text.startswith("the eye steps down to backend litert") for text in said)
            assert [ready.backend for ready in eye.of(Ready)][-1] == "litert"
            assert eye.supervisor.restarts == 1

    asyncio.run(scenario())


def test_a_model_fails_and_the_next_one_is_taken() -> None:
    async def scenario() -> None:
        from swarmd.eye.ipc import Configure
        from swarmd.eye.supervisor import EyeSupervisor

        eye = Watched(backends=("eye_bad_runtimes:AnswersNan",))
        config = Configure(FARM, "zoo:small-320", backends=("eye_bad_runtimes:AnswersNan",))
        eye.supervisor = EyeSupervisor(config, eye.said.append, ("zoo:small-320",), lambda e, t: eye.log.append((e, t)))
        async with eye:
            await eye.until(lambda: any("steps down to model zoo:small-320" in t for _, t in eye.log), "the step", 60)

    asyncio.run(scenario())


def test_a_runtime_of_ones_own_that_is_not_there() -> None:
    async def scenario() -> None:
        async with Watched(backends=("no.such:Runtime", "litert")) as eye:
            await eye.until(lambda: eye.of(Ready), "ready")
            assert any("no.such:Runtime cannot be imported" in p.text for p in eye.of(Problem))

    asyncio.run(scenario())


def test_the_zoo_is_measured_and_the_choice_is_told() -> None:
    async def scenario() -> None:
        async with Watched(model="zoo:auto") as eye:
            await eye.until(lambda: eye.frames() > 2, "frames")
            assert any(
                p.text.startswith("model ") and " chosen for 100 ms a frame (" in p.text for p in eye.of(Problem)
            )

    asyncio.run(scenario())


def test_unsure_frames_are_kept_only_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "kept"

    async def scenario() -> None:
        async with Watched(FARM + "&pace=max&frames=80", keep_frames=str(folder), score_threshold=0.4) as eye:
            assert eye.task is not None
            await eye.task
            assert eye.of(Stats)[-1].counters.get("frames_kept", 0) == len(list(folder.glob("*.png")))

    asyncio.run(scenario())
    assert list(folder.glob("*.png")), "the farm shows something that the model is unsure of"
    assert (folder.stat().st_mode & 0o777) == 0o700
    assert all((path.stat().st_mode & 0o777) == 0o600 for path in folder.iterdir())
