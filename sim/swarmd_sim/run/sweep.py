"""Many parameters times many seeds, on a process pool or on Ray: a results table (CSV, Parquet) and plots (SVG)."""

import csv
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from swarmd_sim.errors import ExecutorError
from swarmd_sim.report.svg import line_chart
from swarmd_sim.run.replay import Replay
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options

RUNS_MAX = 100_000
COLUMNS = (
    "virtual_s",
    "wall_s",
    "cpu_s",
    "events",
    "violations",
    "convergence_s",
    "formation_s",
    "detection_p50_s",
    "detection_p99_s",
    "false_positives",
    "bytes_per_node_s",
    "packets_per_node_s",
    "user_event_p50_s",
    "recall",
    "duplicates",
    "distinct_lost",
    "cells_done",
    "duplicate_work",
    "makespan_s",
    "trace_digest",
)
PLOTTED = ("detection_p50_s", "convergence_s", "bytes_per_node_s", "recall")


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to run."""

    scenario: str
    overrides: Mapping[str, Any]
    vary: Mapping[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    mutant: str = ""

    def points(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Every (parameters, seed), in a fixed order."""
        for values in itertools.product(*self.vary.values()):
            for seed in self.seeds:
                yield dict(zip(self.vary, values, strict=True)), seed

    @property
    def size(self) -> int:
        """How many runs."""
        total = len(self.seeds)
        for values in self.vary.values():
            total *= len(values)
        return total


@dataclass(slots=True)
class SweepOutcome:
    """The table."""

    plan: SweepPlan
    rows: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def table(self) -> list[str]:
        """One line a point, medians over the seeds."""
        keys = list(self.plan.vary)
        shown = ("violations", *PLOTTED, "duplicate_work", "makespan_s")
        lines = ["  ".join([*keys, *shown])]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[key] for key in keys), []).append(row)
        for values, rows in groups.items():
            cells = [str(value) for value in values] + [_text(_median(rows, column)) for column in shown]
            lines.append("  ".join(cells))
        return lines


def run_point(plan: SweepPlan, parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run one point; executed in a worker.

    Args:
        plan: The sweep.
        parameters: Overrides of this point.
        seed: Its seed.

    Returns:
        One row of the table.
    """
    scenario = load_scenario(plan.scenario, {**plan.overrides, **parameters})
    figures = Replay(scenario, seed, mutant=plan.mutant).run(Options()).figures
    return {**parameters, "seed": seed, **flatten(figures)}


def flatten(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the table out of a run's figures."""
    flat = dict(figures)
    flat["violations"] = len(figures["violations"])
    flat["detection_p50_s"] = figures["detection_s"]["p50"]
    flat["detection_p99_s"] = figures["detection_s"]["p99"]
    flat["user_event_p50_s"] = figures["user_event_s"]["p50"]
    flat["cells_done"] = figures["claims"]["done"]
    flat.update({key: figures["truth"][key] for key in ("recall", "duplicates", "distinct_lost")})
    flat.update({key: figures["claims"][key] for key in ("duplicate_work", "makespan_s")})
    return {column: flat[column] for column in COLUMNS}


def sweep(
    plan: SweepPlan, engine: str = "local", jobs: int = 2, progress: Callable[[], None] | None = None
) -> SweepOutcome:
    """Run every point.

    Args:
        plan: What to run.
        engine: "local" (processes of this machine) or "ray".
        jobs: Processes of the local engine; Ray decides for itself.
        progress: Called after each run.

    Returns:
        The table, in the plan's order.

    Raises:
        ExecutorError: Too many runs, Ray is not installed, or a worker died.
        ScenarioError: A point cannot be run.
    """
    if plan.size > RUNS_MAX:
        raise ExecutorError(f"this sweep has {plan.size} runs; at most {RUNS_MAX}: vary fewer values or seeds")
    points = list(plan.points())
    for parameters in {repr(parameters): parameters for parameters, _seed in points}.values():
        load_scenario(plan.scenario, {**plan.overrides, **parameters})
    started = time.perf_counter()
    rows: list[dict[str, Any]] = [{} for _ in points]
    run = _run_ray if engine == "ray" else _run_local
    for index, row in run(plan, points, jobs):
        rows[index] = row
        if progress is not None:
            progress()
    return SweepOutcome(plan, rows, time.perf_counter() - started, sum(row["cpu_s"] for row in rows))


_Points = Sequence[tuple[dict[str, Any], int]]


def _run_local(plan: SweepPlan, points: _Points, jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    if jobs <= 1:
        for index, (parameters, seed) in enumerate(points):
            yield index, run_point(plan, parameters, seed)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_point, plan, parameters, seed): i for i, (parameters, seed) in enumerate(points)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except Exception as error:
            for future in futures:
                future.cancel()
            raise ExecutorError(f"a run of the sweep failed: {type(error).__name__}: {error}") from error


def _run_ray(plan: SweepPlan, points: _Points, jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import ray
    except ImportError as error:
        raise ExecutorError("the engine ray needs Ray; install swarmd[ray], or use --engine local") from error
    own = not ray.is_initialized()
    if own:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        remote = ray.remote(run_point)
        waiting = {remote.remote(plan, parameters, seed): i for i, (parameters, seed) in enumerate(points)}
        while waiting:
            ready, _rest = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(ready[0]), ray.get(ready[0])
    except ray.exceptions.RayError as error:
        raise ExecutorError(f"a run of the sweep failed on Ray: {error}") from error
    finally:
        if own:
            ray.shutdown()


def write_tables(outcome: SweepOutcome, folder: Path) -> list[Path]:
    """Write `results.csv`, `results.parquet` (needs the extra parquet), and one SVG a varied parameter and figure.

    Args:
        outcome: The table.
        folder: Created when missing.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "results.csv"]
    columns = [*outcome.plan.vary, "seed", *COLUMNS]
    with files[0].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(outcome.rows)
    files += _write_parquet(outcome, columns, folder)
    for key in outcome.plan.vary:
        for figure in PLOTTED:
            svg = _plot(outcome, key, figure)
            if svg:
                path = folder / f"{figure}-by-{key.replace('.', '-')}.svg"
                path.write_text(svg, encoding="utf-8")
                files.append(path)
    return files


def _write_parquet(outcome: SweepOutcome, columns: Sequence[str], folder: Path) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return []
    path = folder / "results.parquet"
    table = pyarrow.table({column: _one_kind([row[column] for row in outcome.rows]) for column in columns})
    pyarrow.parquet.write_table(table, path)
    return [path]


def has_parquet() -> bool:
    """Whether the package that writes Parquet is installed."""
    return find_spec("pyarrow") is not None


def _one_kind(values: list[Any]) -> list[Any]:
    """A column of one type: numbers stay numbers, anything mixed becomes text; None stays a null."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _plot(outcome: SweepOutcome, key: str, figure: str) -> str:
    """Median over the seeds against a numeric parameter; "" when there is nothing to draw."""
    values = [value for value in outcome.plan.vary[key] if isinstance(value, (int, float))]
    points = []
    for value in values:
        middle = _median([row for row in outcome.rows if row[key] == value], figure)
        if middle is not None:
            points.append((float(value), float(middle)))
    return line_chart(f"{figure} by {key}", key, figure, {"median": points}) if len(points) > 1 else ""


def _median(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    numbers = [row[column] for row in rows if row[column] is not None]
    return median(numbers) if numbers else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
