"""Runtimes that hang, crash, answer NaN or run out of memory: the supervisor brings the eye back or steps it down."""

import asyncio
import re
from pathlib import Path

import pytest

from swarmd.eye import supervisor
from swarmd.eye.ipc import Choice, Configure, Problem, Ready, Stats, SwapDone, SwapModel
from swarmd.eye.supervisor import EyeSupervisor
from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
from tests.support.eye_process import FARM, Watched
from tests.support.paths import python_path


@pytest.fixture(autouse=True)
def _bad_runtimes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("SWARMD_TEST_ONCE", str(tmp_path / "once"))


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("Hangs", "stall: one frame takes"),
        ("HangsWithTheLock", "silence: no word for"),
        ("Crashes", "signal: SIGSEGV"),
        ("RunsOutOfMemory", "exit: status 1"),
        ("FailsAndHangsAtExit", "exit: status 1"),
    ],
)
def test_a_runtime_that_fails_once_costs_seconds(runtime: str, reason: str) -> None:
    async def scenario() -> None:
        async with Watched(FARM + "&pace=max", backends=(f"tests.support.bad_runtimes:{runtime}",)) as eye:
            await eye.until(lambda: len(eye.of(Ready)) == 2, "the second life")
            seen = eye.frames()
            await eye.until(lambda: eye.frames() > seen + 30, "frames of the second life")
            died = [text for event, text in eye.log if event == "eye_died"]
            assert len(died) == 1
            assert died[0].startswith(reason), died
            assert eye.supervisor.restarts == 1
            if runtime == "RunsOutOfMemory":
                assert "MemoryError" in died[0] or "no memory" in died[0], "the log says what the eye said"

    asyncio.run(scenario())


def test_an_eye_that_lives_and_never_loads_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STEP_LIMIT_S", 6.0)

    async def scenario() -> None:
        async with Watched(FARM, backends=("tests.support.bad_runtimes:NeverLoads",)) as eye:
            await eye.until(lambda: eye.frames() > 3, "frames of the second life")
            died = [text for event, text in eye.log if event == "eye_died"]
            assert died
            assert all(text.startswith("load: it lives, and gets nowhere for") for text in died), died

    asyncio.run(scenario())


def test_a_runtime_that_answers_nan_is_stepped_over_at_once() -> None:
    async def scenario() -> None:
        async with Watched(backends=("tests.support.bad_runtimes:AnswersNan", "litert")) as eye:
            await eye.until(lambda: eye.supervisor.state == "degraded" and eye.frames() > 3, "frames on LiteRT")
            said = [problem.text for problem in eye.of(Problem)]
            assert any("NaN or infinity" in text for text in said)
            assert any(text.startswith("the eye steps down to backend litert") for text in said)
            assert [ready.backend for ready in eye.of(Ready)][-1] == "litert"
            assert eye.supervisor.restarts == 1

    asyncio.run(scenario())


def test_a_model_fails_and_the_next_one_is_taken() -> None:
    async def scenario() -> None:
        eye = Watched(backends=("tests.support.bad_runtimes:AnswersNan",))
        config = Configure(FARM, "zoo:small-320", backends=("tests.support.bad_runtimes:AnswersNan",))
        eye.supervisor = EyeSupervisor(config, eye.said.append, ("zoo:small-320",), lambda e, t: eye.log.append((e, t)))
        async with eye:
            await eye.until(lambda: any("steps down to model zoo:small-320" in t for _, t in eye.log), "the step")

    asyncio.run(scenario())


def test_runtimes_that_are_not_there_are_stepped_over_aloud() -> None:
    async def scenario() -> None:
        async with Watched(backends=("no.such:Runtime", "tensorrt", "litert")) as eye:
            await eye.until(lambda: eye.of(Ready), "ready")
            said = [problem.text for problem in eye.of(Problem)]
            assert any("no.such:Runtime cannot be imported" in text and "trying the next" in text for text in said)
            if eye.of(Ready)[0].backend != "tensorrt":
                assert any(text.startswith("backend tensorrt cannot be used (") for text in said)
            assert eye.supervisor.restarts == 0

    asyncio.run(scenario())


def test_a_runtime_that_prepares_itself_is_seen_to() -> None:
    async def scenario() -> None:
        async with Watched(backends=("tests.support.bad_runtimes:BuildsFirst",)) as eye:
            await eye.until(lambda: eye.frames() > 2, "frames")
            assert "building_engine" in eye.states
            assert eye.supervisor.state == "running"
            told = [p.text for p in eye.of(Problem) if p.text.startswith("building_engine")]
            once = [f"building_engine: {percent} %" for percent in range(0, 101, 20)]
            assert told == once * (1 if load_bundle(DEFAULT_MODEL).second is None else 2)  # Each stage is built.

    asyncio.run(scenario())


def _bad_bundles(folder: Path) -> dict[str, Path]:
    """Models that nothing can be done with, each with a digest that is right, and the words that say so."""
    from tests.support.bundles import ZOO_MODEL, write_bundle

    data = ZOO_MODEL.read_bytes()
    cases: dict[str, tuple[bytes, dict[str, str]]] = {
        "LiteRT refuses|truncated|out of range": (data[: len(data) // 3], {}),
        "is no LiteRT model": (b"\0" * 5000, {}),
        r"bundle says 224x224; the model's input is 320x256": (
            data, {"input": '[input]\nwidth = 224\nheight = 224\nchannels = "gray"'}
        ),
        r"the head is .* need": (data, {"labels": 'labels = ["one", "two"]'}),
    }  # fmt: skip
    found = {}
    for number, (words, (content, changes)) in enumerate(cases.items()):
        (folder / str(number)).mkdir()
        found[words] = write_bundle(folder / str(number), content, **changes)
    return found


def test_models_that_cannot_be_used_never_stop_the_one_that_runs(tmp_path: Path) -> None:
    bad = _bad_bundles(tmp_path)

    async def scenario() -> None:
        async with Watched() as eye:
            await eye.until(lambda: eye.frames() > 3, "frames")
            for number, (words, path) in enumerate(bad.items(), 1):
                eye.supervisor.send(SwapModel(str(path)))
                await eye.until(lambda number=number: len(eye.of(SwapDone)) == number, f"an answer to {words}")  # type: ignore[misc]
                done = eye.of(SwapDone)[-1]
                assert not done.ok
                assert re.search(words, done.text), done.text
            seen = eye.frames()
            await eye.until(lambda: eye.frames() > seen + 3, "frames of the old model")
            assert eye.supervisor.restarts == 0
            assert eye.supervisor.state == "running"

    asyncio.run(scenario())


def test_an_eye_that_cannot_use_its_model_takes_the_next_one_aloud(tmp_path: Path) -> None:
    bad = list(_bad_bundles(tmp_path).values())

    async def scenario() -> None:
        eye = Watched(model=str(bad[0]))
        eye.supervisor = EyeSupervisor(
            eye.supervisor.config, eye.said.append, (str(bad[2]), "zoo:small-320"), lambda e, t: eye.log.append((e, t))
        )
        async with eye:
            await eye.until(lambda: eye.frames() > 3, "frames")
            steps = [text for event, text in eye.log if event == "eye_degraded"]
            assert len(steps) == 2
            assert "zoo:small-320 instead of" in steps[1]
            assert "the model's input is 320x256" in steps[1], "the reason is told"
            assert [p.text for p in eye.of(Problem) if p.text.startswith("the eye steps down")] == steps
            assert eye.supervisor.state == "degraded"
            assert eye.supervisor.counters["degradations"] == 2

    asyncio.run(scenario())


def test_the_zoo_is_measured_and_the_choice_is_told() -> None:
    async def scenario() -> None:
        async with Watched(model="zoo:auto") as eye:
            await eye.until(lambda: eye.frames() > 2, "frames")
            told = [choice.text for choice in eye.of(Choice)]
            assert any(text.startswith("model ") and " chosen for 100 ms a frame on " in text for text in told)
            assert eye.of(Problem) == [], "what is chosen in the ordinary course of things is no problem"

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
