"""Which model of a zoo is flown, and when another is."""

from pathlib import Path

from swarmd.eye.choice import ModelChoice
from swarmd.eye.ipc import Configure, SwapDone
from swarmd_models.bundle import load_bundle
from swarmd_models.choose import CALM_NS, DWELL_NS, Conditions, Ladder, Rung, climb, measure_zoo, rungs_of, zoo_of
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.device import Device, battery_milli, describe, temperature_c
from swarmd_models.eye import Eye, EyeOptions
from tests.support.bundles import write_bundle
from tests.support.second_stage import write_second

RUNGS = [Rung(Path("tiny"), "tiny", 2.0), Rung(Path("small"), "small", 6.0), Rung(Path("medium"), "medium", 30.0)]
GOOD = Conditions(50.0, 900, 20.0)


def test_the_dearest_model_that_keeps_up_is_taken() -> None:
    assert [climb(RUNGS, ms) for ms in (100.0, 33.0, 8.0, 1.0)] == [2, 1, 0, 0]


def test_heat_battery_and_lateness_step_down_at_once_and_never_below_the_lowest() -> None:
    for strain in (Conditions(85.0), Conditions(battery_milli=100), Conditions(latency_ms=150.0)):
        ladder = Ladder(RUNGS, 2, 100.0)
        assert ladder.step(strain, 0)
        assert ladder.rung.name == "small"
        assert not ladder.step(strain, DWELL_NS - 1), "a step takes time to help"
        assert ladder.step(strain, DWELL_NS)
        assert not ladder.step(strain, 3 * DWELL_NS)
        assert ladder.rung.name == "tiny"


def test_it_climbs_again_only_after_a_minute_of_calm_and_not_beyond_its_start() -> None:
    ladder = Ladder(RUNGS, 1, 100.0)
    ladder.step(Conditions(85.0), 0)
    assert not ladder.step(Conditions(75.0), CALM_NS), "neither hot nor cool: wait"
    assert not ladder.step(GOOD, CALM_NS + 1)
    assert not ladder.step(GOOD, 2 * CALM_NS)
    assert ladder.step(GOOD, 2 * CALM_NS + 1)
    assert ladder.index == 1
    assert not ladder.step(GOOD, 10 * CALM_NS)


def test_what_is_not_known_strains_nobody() -> None:
    ladder = Ladder(RUNGS, 2, 100.0)
    assert not any(ladder.step(Conditions(battery_milli=-1), t * CALM_NS) for t in range(5))
    assert ladder.index == 2


def test_a_zoo_is_measured_and_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / "bad.toml").write_text("format = 3")
    rungs, problems = measure_zoo(DetectorOptions(), tmp_path)
    assert [rung.name for rung in rungs] == ["bundle"]
    assert rungs[0].latency_ms > 0
    assert len(problems) == 1
    assert problems[0].startswith("bad.toml cannot be used here")


def test_models_that_would_enlarge_the_frames_are_passed_over() -> None:
    rungs = [Rung(Path("a"), "a", 1.0, 224), Rung(Path("b"), "b", 2.0, 320), Rung(Path("c"), "c", 9.0, 640)]
    assert [climb(rungs, 100.0, width) for width in (0, 160, 300, 320, 640, 1920)] == [2, 0, 1, 1, 2, 2]


def test_a_model_that_could_not_be_taken_is_left_out_for_good() -> None:
    ladder = Ladder(RUNGS, 2, 100.0)
    assert ladder.step(Conditions(85.0), 0)
    assert ladder.refuse(Path("small"))
    assert ladder.rung.name == "tiny"
    assert ladder.step(GOOD, CALM_NS)
    assert ladder.rung.name == "medium", "the next one up"
    assert ladder.refuse(Path("tiny"))
    assert not ladder.refuse(Path("medium")), "something must run"
    assert ladder.rung.name == "medium"


def test_the_second_stage_is_a_rung_of_its_own(tmp_path: Path) -> None:
    path = write_second(tmp_path, budget_ms="budget_ms = 7.0")
    rungs, problems = measure_zoo(DetectorOptions(), tmp_path)
    assert problems == []
    assert [rung.second for rung in rungs] == [False, True]
    assert rungs[1].latency_ms == rungs[0].latency_ms + 7.0
    assert [rung.latency_ms for rung in rungs_of(path, load_bundle(path), 0.0)] == [0.0, 7.0]


def test_a_first_stage_that_tells_too_little_alone_is_no_rung() -> None:
    for name, stages in (("nano-160", [True]), ("tiny-224", [False, True]), ("small-320", [False, True])):
        bundle = load_bundle(f"zoo:{name}")
        assert [rung.second for rung in rungs_of(Path(name), bundle, 1.0)] == stages, name


def test_a_model_too_large_for_the_memory_is_told_and_left_out(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    small, roomy = Device("x", 1, 64, 32, ("litert",)), Device("x", 4, 4000, 2000, ("litert",))
    rungs, problems = measure_zoo(DetectorOptions(), tmp_path, small)
    assert rungs == []
    assert "32 MB are free" in problems[0]
    assert len(measure_zoo(DetectorOptions(), tmp_path, roomy)[0]) == 1


def test_a_zoo_of_ones_own_is_named_by_its_folder(tmp_path: Path) -> None:
    assert zoo_of("zoo:small-320") is None
    assert zoo_of(f"auto:{tmp_path}") == tmp_path


# --- The choice in the eye -------------------------------------------------------------------------------------------


class _Swaps:
    """A swapper that only notes what is asked of it."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, bool, bool]] = []
        self.is_busy = False

    def begin(self, model: str, labels: str, chosen: bool = False, looks_twice: bool = True) -> None:
        self.begun.append((Path(model).name, chosen, looks_twice))


def _zoo(tmp_path: Path) -> Path:
    """Two models, the dearer one with a second stage."""
    write_second(tmp_path, budget_ms="budget_ms = 900.0")
    write_bundle(tmp_path)
    return tmp_path


def _choice(tmp_path: Path) -> tuple[ModelChoice, Eye, _Swaps, list[str]]:
    said: list[str] = []
    config = Configure("x", f"auto:{_zoo(tmp_path)}", frame_interval_ms=1e7, calm_s=0.0, dwell_s=0.0)
    choice, swaps = ModelChoice(config, describe(), said.append, said.append), _Swaps()
    start = choice.at_start(320)
    eye = Eye.open(load_bundle(start), EyeOptions())
    choice.started(eye, swaps, start)  # type: ignore[arg-type]
    return choice, eye, swaps, said


def _done(path: Path, ok: bool = True, chosen: bool = True) -> SwapDone:
    return SwapDone(ok, "m", "1", "00", (), "" if ok else "no good", str(path), chosen)


def test_strain_spares_the_second_stage_first_and_then_takes_another_model(tmp_path: Path) -> None:
    choice, eye, swaps, said = _choice(tmp_path)
    assert eye.detector.looks_twice
    assert "with its second stage chosen for" in said[-1]
    assert describe().machine in said[-1]
    hot, cool = Conditions(temperature_c=90.0), Conditions(temperature_c=40.0)
    seen = []
    for _ in range(2):
        choice.reconsider(hot)
        seen.append((eye.detector.looks_twice, list(swaps.begun)))
    assert seen[0][0] is False or swaps.begun, "something was given up"
    assert "90 °C" in said[-1]
    assert len(swaps.begun) <= 1
    for _ in range(3):
        choice.reconsider(cool)
    assert "with its second stage is taken now: 40 °C" in said[-1]


def test_an_order_ends_the_choosing_among_the_zoo(tmp_path: Path) -> None:
    choice, eye, swaps, _ = _choice(tmp_path)
    eye.replace_detector(Detector.open(load_bundle(tmp_path / "bundle.toml"), DetectorOptions()))
    choice.swapped(_done(tmp_path / "bundle.toml", chosen=False))
    for _ in range(4):
        choice.reconsider(Conditions(temperature_c=90.0))
    assert swaps.begun == []


def test_a_choice_that_fails_is_told_and_not_tried_again(tmp_path: Path) -> None:
    choice, _, swaps, said = _choice(tmp_path)
    for _ in range(6):
        choice.reconsider(Conditions(temperature_c=90.0))
        while swaps.begun:
            name, chosen, _ = swaps.begun.pop()
            assert chosen
            choice.swapped(_done(tmp_path / name, ok=False))
    assert sum("could not be taken and is left out: no good" in text for text in said) <= 1
    for _ in range(3):
        choice.reconsider(Conditions(temperature_c=90.0))
    assert swaps.begun == []


def test_wide_models_are_left_when_the_first_frame_is_narrow() -> None:
    said: list[str] = []
    config = Configure("x", "zoo:auto", frame_interval_ms=1e6)
    choice, swaps = ModelChoice(config, describe(), said.append, said.append), _Swaps()
    start = choice.at_start(0)
    assert Path(start).stem == "medium-640", "the dearest, while nothing is known of the frames"
    eye = Eye.open(load_bundle(start), EyeOptions())
    choice.started(eye, swaps, start)  # type: ignore[arg-type]
    choice.see_width(640)
    assert swaps.begun == []
    choice.see_width(320)
    assert [name for name, _, _ in swaps.begun] == ["small-320.toml"]
    assert "frames are 320 pixels wide" in said[-1]


# --- The device ------------------------------------------------------------------------------------------------------


def test_the_hottest_zone_counts(tmp_path: Path) -> None:
    assert temperature_c(tmp_path) is None
    for index, text in enumerate(("45000", "71500", "-274000", "torn")):
        zone = tmp_path / f"thermal_zone{index}"
        zone.mkdir()
        (zone / "temp").write_text(text)
    assert temperature_c(tmp_path) == 71.5


def _supply(folder: Path, name: str, **words: str) -> None:
    (folder / name).mkdir()
    for word, text in words.items():
        (folder / name / word).write_text(text + "\n")


def test_the_emptiest_battery_in_use_counts(tmp_path: Path) -> None:
    assert battery_milli(tmp_path) is None
    _supply(tmp_path, "AC", type="Mains", online="1")
    _supply(tmp_path, "mouse", type="Battery", scope="Device", capacity="3", status="Discharging")
    _supply(tmp_path, "torn", type="Battery", capacity="x", status="Discharging")
    assert battery_milli(tmp_path) is None
    _supply(tmp_path, "BAT0", type="Battery", capacity="64", status="Discharging")
    _supply(tmp_path, "BAT1", type="Battery", capacity="17", status="Unknown")
    assert battery_milli(tmp_path) == 170
    (tmp_path / "BAT1/status").write_text("Charging\n")
    assert battery_milli(tmp_path) == 640


def test_a_device_describes_itself(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        4028416 kB\nMemFree: 1 kB\nMemAvailable:    2014208 kB\nx\n")
    device = describe(tmp_path)
    assert (device.memory_mb, device.free_memory_mb) == (3934, 1967)
    assert device.cores >= 1
    assert "litert" in device.backends
    assert "1967 of 3934 MB free" in str(device)
    assert describe(tmp_path / "nowhere").memory_mb == 0
