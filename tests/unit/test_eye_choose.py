"""Which model of a zoo is flown, and when another is."""

from pathlib import Path

from eye_helpers import write_bundle

from swarmd_models.choose import CALM_NS, Conditions, Ladder, Rung, climb, measure_zoo, temperature_c
from swarmd_models.detector import DetectorOptions

RUNGS = [Rung(Path("tiny"), "tiny", 2.0), Rung(Path("small"), "small", 6.0), Rung(Path("medium"), "medium", 30.0)]
GOOD = Conditions(50.0, 900, 20.0)


def test_the_dearest_model_that_keeps_up_is_taken() -> None:
    assert [climb(RUNGS, ms) for ms in (100.0, 33.0, 8.0, 1.0)] == [2, 1, 0, 0]


def test_heat_battery_and_lateness_step_down_at_once_and_never_below_the_lowest() -> None:
    for strain in (Conditions(85.0), Conditions(battery_milli=100), Conditions(latency_ms=150.0)):
        ladder = Ladder(RUNGS, 2, 100.0)
        assert ladder.step(strain, 0)
        assert ladder.rung.name == "small"
        assert ladder.step(strain, 1)
        assert not ladder.step(strain, 2)
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


def test_the_hottest_zone_counts(tmp_path: Path) -> None:
    assert temperature_c(tmp_path) is None
    for index, text in enumerate(("45000", "71500", "-274000", "torn")):
        zone = tmp_path / f"thermal_zone{index}"
        zone.mkdir()
        (zone / "temp").write_text(text)
    assert temperature_c(tmp_path) == 71.5
