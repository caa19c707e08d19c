"""The bars of a mesh are judged by what runs gave, a run is made once, and what was cut short is made again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import bench_mesh_bars as bench
from tests.bench.bench_mesh_bars import BARS, CASES, Case, go_on, judged, ordered, read, run_case

GOOD: dict[str, Any] = {
    "rules": {},
    "nodes": 20,
    "virtual_s": 60.0,
    "formed_s": 5.0,
    "formed_for_s": 55.0,
    "bytes_node_s": 1_500.0,
    "bytes_formed_node_s": 400.0,
    "bytes_settled_node_s": 400.0,
    "wrong": 0,
    "incidents": 0,
    "incidents_formed": 0,
    "detected_ms": [300, 900],
    "event_last_ms": [90],
    "clock_ms": 40,
    "cells_twice": 0,
    "sent": 200,
    "arrived": 200,
}


def row(case: str, seed: int = 1, **figures: Any) -> dict[str, Any]:
    return {"case": case, "seed": seed, "revision": "r", "figures": {**GOOD, **figures}}


def verdicts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["bar"]: one["met"] for one in judged(rows)}


def test_every_bar_is_about_cases_that_run_and_every_case_is_judged() -> None:
    named = {case.name for case in CASES}
    assert len(named) == len(CASES)
    assert {case for bar in BARS for case in bar.cases} == named
    assert len({bar.name for bar in BARS}) == len(BARS)


def test_good_runs_meet_every_bar_and_nothing_is_said_of_none() -> None:
    assert set(verdicts([]).values()) == {None}
    assert set(verdicts([row(case.name) for case in CASES]).values()) == {True}


@pytest.mark.parametrize(
    ("case", "bad", "bar"),
    [
        ("grid-20-dark", {"wrong": 1}, "grid of 20: false verdicts"),
        ("grid-20-kill", {"rules": {"state.event_lost": 1}}, "grid of 20: rules broken"),
        ("grid-20-idle", {"rules": {"membership.views_differ": 3}}, "grid of 20: views that miss somebody"),
        ("line-200-dark", {"detected_ms": [2_600]}, "line of 200: dark, p50"),
        ("line-200-dark", {"detected_ms": [1, 2, 5_001]}, "line of 200: dark, most"),
        ("random-50-kill", {"detected_ms": [1_300]}, "random of 50: SIGKILL, p50"),
        ("random-50-kill", {"formed_s": None}, "random of 50: formation, worst seed"),
        ("random-50-dark", {"bytes_formed_node_s": 2_501.0}, "random of 50: with work, from formation, worst seed"),
        ("random-50-idle", {"bytes_settled_node_s": 601.0}, "random of 50: idle, from 60 s on, worst seed"),
        ("grid-200-dark", {"event_last_ms": [1_001]}, "grid of 200: event at the last, p99"),
        ("hall-3.2", {"rules": {"membership.false_failed": 2}}, "hall, exponent 3.2: rules broken"),
        ("hall-3.2", {"bytes_node_s": 8_100.0}, "hall, exponent 3.2: whole run, worst seed"),
        ("mobile-5", {"bytes_formed_node_s": 3_501.0}, "fifty at 5 m/s, from formation, worst seed"),
        ("mobile-15", {"incidents": 1}, "fifty at 15 m/s: incidents"),
        ("lossy-line", {"incidents_formed": 1}, "line of 20 at 30 % loss: incidents, from formation"),
        ("mule", {"rules": {"state.diverged": 1}}, "mule: runs at whose end digests differ"),
        ("solar-50m", {"cells_twice": 1}, "solar farm at 50 m: cells flown twice"),
        ("relay-5", {"arrived": 197}, "relay, 5 m/s"),
    ],
)
def test_one_bad_run_of_one_case_breaks_its_bar(case: str, bad: dict[str, Any], bar: str) -> None:
    rows = [row(one.name) if one.name != case else row(case, **bad) for one in CASES]
    assert verdicts(rows)[bar] is False
    assert verdicts([*rows, row(case, 2)])[bar] is False or "p50" in bar or bar.startswith("relay"), "hidden by another"


def test_a_rate_is_of_all_node_seconds() -> None:
    rows = [row("mobile-15", seed, incidents=int(seed == 1)) for seed in range(1, 10)]
    (said,) = (one for one in judged(rows) if one["bar"] == "fifty at 15 m/s: incidents")
    assert said == {**said, "figure": round(10_000 / (9 * 20 * 60), 3), "seeds": 9, "met": True}


def test_false_verdicts_close_together_are_one_incident() -> None:
    seconds = [(at * bench.S, wrong) for at, wrong in ((1, 0), (2, 7), (3, 9), (11, 10), (12, 10), (30, 10), (31, 11))]
    assert bench.incidents_of(seconds) == [2 * bench.S, 31 * bench.S]
    assert bench.incidents_of([]) == []
    assert bench.incidents_of([(5 * bench.S, 3)]) == [5 * bench.S]


def test_a_run_is_made_once_and_one_that_was_cut_short_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def runs(case: Case, seed: int) -> dict[str, Any]:
        made.append((case.name, seed))
        return dict(GOOD)

    monkeypatch.setattr(bench, "run_case", runs)
    results = tmp_path / "out" / "results.jsonl"
    few = CASES[:2]
    whole = list(go_on(results, few, 2, "r"))
    assert [(one["case"], one["seed"]) for one in whole] == made == [(c.name, s) for s in (1, 2) for c in few]
    assert read(results, "r") == whole
    assert read(results, "another") == []
    assert list(go_on(results, few, 2, "r")) == []
    results.write_text(results.read_text()[:-30])
    again = list(go_on(results, few, 2, "r"))
    assert [(one["case"], one["seed"]) for one in again] == made[-1:]
    assert len(read(results, "r")) == 4
    assert json.loads(results.read_text().splitlines()[-1]) == again[0]


def test_runs_of_few_nodes_come_first_and_large_ones_not_last_of_all() -> None:
    names = [(case.name, seed) for case, seed in ordered(CASES, 20)]
    assert len(names) == 20 * len(CASES)
    assert names.index(("line-20-dark", 5)) < names.index(("grid-200-dark", 1)) < names.index(("line-20-dark", 20))


def test_a_short_run_of_four_gives_all_figures() -> None:
    short = {"swarm.nodes": 4, "swarm.seconds": 30, "checks.settle_s": 8.0, "workload.user_events_per_min": 60}
    dark = [{"kind": "power_loss", "at_s": 15.0, "duration_s": 6.0, "nodes": [3]}]
    told = run_case(Case("four", "mesh-line", {**short, "fault": dark}), 1)
    assert GOOD.keys() - {"sent", "arrived"} <= told.keys()
    assert told["bytes_settled_node_s"] is None, "it ends before"
    assert (told["rules"], told["wrong"], told["incidents_formed"], told["nodes"]) == ({}, 0, 0, 4)
    assert len(told["detected_ms"]) == 3
    assert told["event_last_ms"]
    assert 0 < told["bytes_formed_node_s"] < 3_000
    assert 0 < told["formed_s"] < 10
