"""Energy of an inference: which meter a device has, and what its readings say, on recorded trees of sysfs."""

import random
from pathlib import Path

import pytest

from swarmd.worker.energy import EnergyModel, EnergyWatch, battery_joules, find_meter

ORIN = {  # A Jetson Orin Nano at work: hwmon of its INA3221.
    "class/hwmon/hwmon0/name": "thermal-fan", "class/hwmon/hwmon1/name": "ina3221",
    "class/hwmon/hwmon1/in1_label": "VDD_IN", "class/hwmon/hwmon1/in1_input": "4976",
    "class/hwmon/hwmon1/curr1_input": "1128", "class/hwmon/hwmon1/in2_label": "VDD_CPU_GPU_CV",
    "class/hwmon/hwmon1/in2_input": "4968", "class/hwmon/hwmon1/curr2_input": "280",
}  # fmt: skip
NUC = {
    "class/powercap/intel-rapl:0/name": "package-0", "class/powercap/intel-rapl:0/energy_uj": "262143000000",
    "class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
    "class/powercap/intel-rapl:0:0/name": "core", "class/powercap/intel-rapl:0:0/energy_uj": "9",
}  # fmt: skip
LAPTOP = {
    "class/power_supply/AC/type": "Mains", "class/power_supply/BAT0/type": "Battery",
    "class/power_supply/BAT0/status": "Discharging", "class/power_supply/BAT0/current_now": "-1250000",
    "class/power_supply/BAT0/voltage_now": "12000000", "class/power_supply/BAT0/charge_full": "4000000",
    "class/power_supply/BAT0/voltage_min_design": "11400000",
}  # fmt: skip


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder


def test_a_jetsons_whole_rail_is_read(tmp_path: Path) -> None:
    meter, problem = find_meter(tree(tmp_path, ORIN | LAPTOP))
    assert (meter.kind, meter.detail, problem) == ("ina", "ina3221, VDD_IN", "")
    assert meter.watts() == pytest.approx(5.613, abs=1e-3)


def test_a_battery_says_its_power_only_while_it_discharges(tmp_path: Path) -> None:
    system = tree(tmp_path, LAPTOP)
    meter, _ = find_meter(system)
    assert (meter.kind, meter.watts()) == ("battery", pytest.approx(15.0))
    assert battery_joules(system) == pytest.approx(4.0 * 11.4 * 3600)
    tree(tmp_path, {"class/power_supply/BAT0/status": "Charging"})
    assert meter.watts() is None


def test_a_device_without_a_meter_says_so(tmp_path: Path) -> None:
    meter, problem = find_meter(tmp_path)
    assert meter is None
    assert problem == ("energy cannot be measured here: no INA sensor, no RAPL counter and no battery gauge in /sys")
    assert battery_joules(tmp_path) is None


def test_a_counter_that_only_root_may_read_is_named(tmp_path: Path) -> None:
    files = {name: text for name, text in NUC.items() if not name.endswith("energy_uj")}
    meter, problem = find_meter(tree(tmp_path, files))
    assert meter is None
    assert "intel-rapl:0/energy_uj may be read by root alone" in problem


def test_a_counter_that_begins_anew_costs_nothing(tmp_path: Path) -> None:
    system = tree(tmp_path, NUC)
    meter, _ = find_meter(system)
    assert meter.kind == "rapl"
    watch, rng, joules, run_ns = EnergyWatch(meter, ""), random.Random(5), 262_143.0, 0
    for second in range(200):
        watch.sample(second * 10**9, run_ns, False)
        busy = rng.random()
        run_ns += round(busy * 1e9)
        joules = (joules + 4.0 + 6.0 * busy + rng.gauss(0, 0.2)) % 262_143.328850
        tree(tmp_path, {"class/powercap/intel-rapl:0/energy_uj": str(round(joules * 1e6))})
    assert watch.watts() == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_what_inference_adds_is_told_from_what_else_runs(seed: int) -> None:
    rng, model, other = random.Random(seed), EnergyModel(), 0.0
    for _ in range(1_200):  # Five minutes, four looks a second; other work comes and goes.
        other = max(0.0, other + rng.gauss(0.0, 0.2) - 0.02 * other)
        busy = float(rng.random() < 0.3)
        model.add(busy, 5.0 + other + 3.0 * busy + rng.gauss(0.0, 0.3))
    assert model.watts() == pytest.approx(3.0, rel=0.2)


def test_nothing_is_said_where_nothing_is_clear() -> None:
    rng, idle, noise = random.Random(1), EnergyModel(), EnergyModel()
    for _ in range(1_000):
        idle.add(0.0, 5.0 + rng.gauss(0.0, 0.3))
        noise.add(float(rng.random() < 0.5), 5.0 + rng.gauss(0.0, 0.3))
    assert idle.watts() is None
    assert noise.watts() is None
    few = EnergyModel()
    few.add(0.0, 5.0)
    few.add(1.0, 8.0)
    assert few.watts() is None
