"""What detectors said of rendered traffic, as the simulator replays it."""

from pathlib import Path

from swarmd_models.bundle import load_bundle
from swarmd_sim.run.offload_fleet import TRAFFIC
from swarmd_sim.run.offload_looks import JUDGES, UNITS
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.world import recorded_looks
from swarmd_sim.world.judges import LARGEST, SMALL, accuracy, mean_ap, walked
from tests.support.paths import ROOT

FILE = Path(recorded_looks.__file__).with_name("traffic_looks.json")


def test_the_record_is_small_and_of_the_models_that_are_committed() -> None:
    assert FILE.stat().st_size < 300_000
    text = FILE.read_text(encoding="utf-8")
    for path in sorted((ROOT / "tests" / "bench" / "traffic").glob("*.toml")):
        assert load_bundle(str(path)).digest in text, f"{path.name} has changed: record anew"


def test_each_camera_has_its_own_crossing_and_a_look_its_number() -> None:
    looks = [recorded_looks.recorded_look(host, 7) for host in range(10, 210)]
    assert len({(one.is_there, one.scores) for one in looks}) > 100
    assert looks == [recorded_looks.recorded_look(host, 7) for host in range(10, 210)]
    assert recorded_looks.recorded_look(10, 7) == recorded_looks.recorded_look(210, 7)
    assert 0.25 < sum(one.is_there for one in looks) / len(looks) < 0.5


def test_a_plan_learnt_on_other_crossings_keeps_the_largest_s_quality_for_fewer_asks() -> None:
    looks = [recorded_looks.recorded_look(host, seed) for host in range(10, 210) for seed in range(10)]
    plan = recorded_looks.recorded_plan(TRAFFIC[0], JUDGES, UNITS)
    ours = walked(plan, looks, JUDGES)
    small, largest = ([one.scores[judge] for one in looks] for judge in (SMALL, LARGEST))
    assert accuracy(looks, ours.said) >= 0.98 * accuracy(looks, largest) > accuracy(looks, small)
    assert mean_ap(looks, ours.said) >= 0.97 * mean_ap(looks, largest) > mean_ap(looks, small)
    assert sum(ours.asks) < 0.8 * len(looks)


def test_the_scenario_draws_its_judges_unless_told_otherwise() -> None:
    assert load_scenario("offload-traffic-200", {}).offload.judges == "drawn"
    assert load_scenario("offload-traffic-200", {"offload.judges": "traffic"}).offload.judges == "traffic"
