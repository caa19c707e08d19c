"""A real eye on `zoo:auto` takes another model when heat, battery or load ask for it, and comes back."""

import asyncio
from pathlib import Path

import pytest

from swarmd.eye.ipc import Choice, Ready, Stats, SwapDone, SwapModel
from tests.support.eye_process import FARM, Watched
from tests.support.paths import python_path

WIDE = FARM + "&size=640x512"


class System:
    """A tree such as `/sys`: one thermal zone, one battery."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.zone = root / "class/thermal/thermal_zone0/temp"
        battery = root / "class/power_supply/BAT0"
        self.capacity = battery / "capacity"
        for folder in (self.zone.parent, battery):
            folder.mkdir(parents=True)
        (battery / "type").write_text("Battery\n")
        (battery / "status").write_text("Discharging\n")
        self.set(45.0, 90)

    def set(self, celsius: float, percent: int) -> None:
        """Make it so warm and so full."""
        for path, text in ((self.zone, f"{celsius * 1000:.0f}\n"), (self.capacity, f"{percent}\n")):
            part = path.with_suffix(".new")
            part.write_text(text)
            part.replace(path)


def _said(eye: Watched) -> list[str]:
    return [choice.text for choice in eye.of(Choice)]


def test_heat_and_an_empty_battery_swap_the_model_and_calm_brings_it_back(tmp_path: Path) -> None:
    system = System(tmp_path)

    async def scenario() -> None:
        async with Watched(
            WIDE, model="zoo:auto", frame_interval_ms=5000.0, system=str(tmp_path), calm_s=0.5, dwell_s=0.2
        ) as eye:
            await eye.until(lambda: eye.frames() > 3, "frames")
            first = eye.of(Ready)[0].model
            assert eye.of(Ready)[0].device["cores"]
            assert any(f"model {first}" in text and "chosen for 5000 ms a frame" in text for text in _said(eye))

            swaps = 0

            async def next_model() -> str:
                nonlocal swaps
                swaps += 1
                await eye.until(lambda: len(eye.of(SwapDone)) >= swaps, f"swap {swaps}")
                done = eye.of(SwapDone)[swaps - 1]
                assert done.ok, done
                assert done.chosen
                return done.model

            system.set(91.0, 90)
            assert await next_model() != first
            assert any(" is taken now: 91 °C" in text for text in _said(eye))
            system.set(45.0, 90)
            await eye.until(lambda: eye.of(SwapDone)[-1].model == first, "the way back")
            swaps = len(eye.of(SwapDone))
            system.set(45.0, 5)
            assert await next_model() != first
            assert any("battery 5 %" in text for text in _said(eye))
            assert eye.supervisor.restarts == 0

    asyncio.run(scenario())


def test_an_order_is_not_overruled(tmp_path: Path) -> None:
    system = System(tmp_path)

    async def scenario() -> None:
        async with Watched(
            WIDE, model="zoo:auto", frame_interval_ms=5000.0, system=str(tmp_path), calm_s=0.1, dwell_s=0.1
        ) as eye:
            await eye.until(lambda: eye.frames() > 3, "frames")
            eye.supervisor.send(SwapModel("zoo:small-320"))
            await eye.until(lambda: eye.of(SwapDone), "the swap")
            assert not eye.of(SwapDone)[0].chosen
            assert eye.of(SwapDone)[0].path == "zoo:small-320"
            system.set(99.0, 5)
            seen = len(eye.of(Stats))
            await eye.until(lambda: len(eye.of(Stats)) > seen + 5, "time to reconsider")
            system.set(40.0, 95)
            seen = len(eye.of(Stats))
            await eye.until(lambda: len(eye.of(Stats)) > seen + 5, "time to reconsider")
            assert len(eye.of(SwapDone)) == 1

    asyncio.run(scenario())


def test_frames_that_take_too_long_swap_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load: the runtime becomes slow, as on a board that something else has taken over."""
    once = tmp_path / "slow"
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("SWARMD_TEST_ONCE", str(once))
    System(tmp_path)

    async def scenario() -> None:
        async with Watched(
            WIDE,
            model="zoo:auto",
            backends=("tests.support.bad_runtimes:Slow",),
            frame_interval_ms=400.0,
            system=str(tmp_path),
            dwell_s=0.5,
        ) as eye:
            await eye.until(lambda: eye.frames() > 3, "frames")
            first = eye.of(Ready)[0].model
            once.write_text("1.0")
            await eye.until(lambda: any("is taken now" in text for text in _said(eye)), "the choice", 60)
            once.unlink()
            await eye.until(lambda: eye.of(SwapDone), "the swap", 60)
            assert eye.of(SwapDone)[0].ok, eye.of(SwapDone)[0]
            assert eye.of(SwapDone)[0].model != first
            assert any(" ms a frame" in text and "is taken now" in text for text in _said(eye))

    asyncio.run(scenario())
