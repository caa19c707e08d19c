"""What a device says of itself at a scrape, from the files of kernels that this machine has not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.api.metrics import Metrics, Ratios
from swarmd.brain.host_metrics import register_host


def scrape(folder: Path) -> dict[str, float]:
    metrics = Metrics()
    register_host(metrics, folder, folder / "proc", folder / "sys")
    rows = [line for line in metrics.render().decode().splitlines() if line.startswith("swarmd_host")]
    return {row.rpartition(" ")[0]: float(row.rpartition(" ")[2]) for row in rows}


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_processors_memory_and_heat_are_read_in_base_units(tmp_path: Path) -> None:
    write(
        tmp_path,
        proc__stat="cpu  300 0 100 1600 50 0 10 0 0 0\ncpu0 1 2 3\n",
        proc__meminfo="MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nSwapTotal: 8 kB\nSwapFree: 8 kB\n",
        sys__class__thermal__thermal_zone0__temp="41000\n",
        sys__class__thermal__thermal_zone1__temp="67500\n",
    )
    found = scrape(tmp_path)
    assert found['swarmd_host_cpu_seconds_total{mode="user"}'] == 3.0
    assert found['swarmd_host_cpu_seconds_total{mode="idle"}'] == 16.0
    assert found['swarmd_host_memory_bytes{what="total"}'] == 1_024_000
    assert found['swarmd_host_memory_bytes{what="available"}'] == 409_600
    assert found["swarmd_host_temperature_celsius"] == 67.5
    assert 0 < found['swarmd_host_disk_bytes{what="available"}'] <= found['swarmd_host_disk_bytes{what="total"}']


@pytest.mark.parametrize(
    ("path", "text", "series", "value"),
    [
        ("sys__class__drm__card1__device__gpu_busy_percent", "37\n", 'busy_ratio{gpu="card1"}', 0.37),
        ("sys__class__drm__card1__device__mem_info_vram_used", "4096\n", 'memory_bytes{gpu="card1"}', 4096.0),
        ("sys__devices__gpu.0__load", "512\n", 'busy_ratio{gpu="gpu.0"}', 0.512),
        ("sys__devices__platform__gpu.0__load", "1000\n", 'busy_ratio{gpu="gpu.0"}', 1.0),
    ],
    ids=["amd", "amd memory", "jetson", "a newer jetson"],
)
def test_graphics_are_read_where_the_kernel_tells_of_them(
    path: str, text: str, series: str, value: float, tmp_path: Path
) -> None:
    write(tmp_path, **{path: text})
    (tmp_path / "sys/class/drm/card1-HDMI-A-1/device").mkdir(parents=True)
    assert {name: number for name, number in scrape(tmp_path).items() if "gpu" in name} == {
        f"swarmd_host_gpu_{series}": value
    }


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu x y\n", "\x00"])
def test_what_cannot_be_read_is_absent(text: str, tmp_path: Path) -> None:
    write(tmp_path, proc__stat=text, proc__meminfo=text, sys__devices__gpu="no folder")
    found = scrape(tmp_path)
    assert not [name for name in found if "cpu_seconds" in name or "memory" in name or "gpu" in name]


@given(st.lists(st.floats(-0.5, 1.5)))
def test_every_score_is_in_the_first_tenth_that_holds_it(values: list[float]) -> None:
    held = Ratios()
    for value in values:
        held.add(value)
    rows = [row.rpartition(" ")[2] for row in held.rows("x")]
    for index in range(10):
        bound = (index + 1) / 10
        surely = sum(value <= bound - 1e-6 for value in values)
        perhaps = sum(value <= bound + 1e-6 for value in values) if index < 9 else len(values)
        assert surely <= int(rows[index]) <= perhaps
    assert int(rows[10]) == int(rows[12]) == len(values)


def test_a_bound_is_in_its_own_bucket() -> None:
    held = Ratios()
    for tenth in range(11):
        held.add(tenth / 10)
    assert held.counts == [2, 1, 1, 1, 1, 1, 1, 1, 1, 1]
