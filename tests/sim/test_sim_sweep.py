"""Sweeps: the same table on processes and on Ray, as CSV, as Parquet and as plots."""

import csv
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from swarmd_sim.errors import ExecutorError, ScenarioError
from swarmd_sim.run.sweep import COLUMNS, SweepOutcome, SweepPlan, sweep, write_tables

SMALL: dict[str, Any] = {"swarm.nodes": 4, "swarm.seconds": 20, "checks.settle_s": 10.0, "fault": []}
SMALL |= {"drones.work": "none", "checks.cells_done": False}
PLAN = SweepPlan("partition-heal", SMALL, {"radio.loss": (0.0, 0.2)}, (1, 2))


@pytest.fixture(scope="module")
def swept() -> SweepOutcome:
    return sweep(PLAN, "local", jobs=1)


def test_the_table_holds_every_point_in_order(swept: SweepOutcome) -> None:
    points = [(row["radio.loss"], row["seed"]) for row in swept.rows]
    assert points == [(0.0, 1), (0.0, 2), (0.2, 1), (0.2, 2)]
    assert all(set(COLUMNS) <= set(row) for row in swept.rows)
    assert len(swept.table()) == 3
    assert "radio.loss" in swept.table()[0]


def test_csv_and_plots_are_written(swept: SweepOutcome, tmp_path: Path) -> None:
    files = write_tables(swept, tmp_path / "new" / "folder")
    rows = list(csv.DictReader((tmp_path / "new" / "folder" / "results.csv").read_text().splitlines()))
    assert [row["trace_digest"] for row in rows] == [row["trace_digest"] for row in swept.rows]
    plots = [path for path in files if path.suffix == ".svg"]
    assert any(path.name == "bytes_per_node_s-by-radio-loss.svg" for path in plots)
    for path in plots:
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")


def test_parquet_holds_the_same_table(swept: SweepOutcome, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
    mixed = [{**row, "radio.loss": value} for row, value in zip(swept.rows, (0, 0.5, "x", None), strict=True)]
    write_tables(swept, tmp_path)
    read = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["trace_digest"] for row in read] == [row["trace_digest"] for row in swept.rows]
    assert [row["radio.loss"] for row in read] == [0.0, 0.0, 0.2, 0.2]
    assert [row["detection_p50_s"] for row in read] == [row["detection_p50_s"] for row in swept.rows]
    write_tables(SweepOutcome(PLAN, mixed), tmp_path)
    read = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["radio.loss"] for row in read] == ["0", "0.5", "x", None]


def test_two_processes_give_the_same_table_as_one(swept: SweepOutcome) -> None:
    rows = sweep(SweepPlan("partition-heal", SMALL, {"radio.loss": (0.2,)}, (1, 2)), "local", jobs=2).rows
    assert [row["trace_digest"] for row in rows] == [row["trace_digest"] for row in swept.rows[2:]]


def test_a_sweep_on_ray_without_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match=r"install swarmd\[ray\]"):
        sweep(PLAN, "ray")


def test_a_sweep_on_ray_gives_the_same_table(swept: SweepOutcome) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    seen: list[int] = []
    rows = sweep(PLAN, "ray", 2, lambda: seen.append(1)).rows
    assert [row["trace_digest"] for row in rows] == [row["trace_digest"] for row in swept.rows]
    assert len(seen) == 4


def test_points_that_cannot_be_run_are_refused_before_any_is() -> None:
    with pytest.raises(ScenarioError, match=r"radio\.loss is 3"):
        sweep(SweepPlan("jammer", {}, {"radio.loss": (0.1, 3.0)}, (1,)), "local", 1)
    with pytest.raises(ExecutorError, match="at most 100000"):
        sweep(SweepPlan("jammer", {}, {"radio.loss": (0.1,)}, tuple(range(100_001))), "local", 1)
