"""The bars of a mesh, each over many seeds: one line a run into a file, one JSON with each bar, its figure and "met".

    python -m tests.bench.bench_mesh_bars --results out/mesh-bars.jsonl --seeds 20
    python -m tests.bench.bench_mesh_bars --results out/mesh-bars.jsonl --report        what is there, without runs

A run that stands in the file is not made again, by scenario, seed and revision (a digest of the sources of protocols
and simulator): the program may be ended at any time and goes on where it was. Runs of few nodes come first, so that
what is there says something early. With a compiled copy first on PYTHONPATH (`tests/bench/compile_sim.py`) it takes
half the time, and the revision is that of the copy.

Bytes of a formed swarm count from its formation to the end of the run, those of an idle one from 60 s on, and false
verdicts from the formation where a bar speaks of a warm-up; each bar says so. Where a bar bounds bytes or formation the
seed that is worst has to hold it; medians stand beside. An incident is false verdicts, failed or unreachable, of any
pairs, with less than 10 s between one and the next. Events do not count that are said while a host is down: it may be
all that joins two parts.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import swarmd_protocols
import swarmd_sim
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.bench.bench_relay import relayed

Row: TypeAlias = dict[str, Any]
S = 1_000_000_000
_IDLE = {
    "workload.user_events_per_min": 0,
    "workload.detections_per_min": 0,
    "fault": [],
    "swarm.seconds": 180,
}
_SETTLED_S = 60
"""Who is idle is looked at from here on: what was said at the start has been compared and renewed by then."""
_APART_S = 10
"""False verdicts with less time between them are one incident: on a line one lost link cuts off half of a swarm."""
_CUT_S = 5
"""An event does not count that is said while a host is down, or so long before it falls and after it is up again."""
_KILLED = {"fault": [{"kind": "kill", "at_s": 25.0, "duration_s": 15.0, "nodes": [3]}]}
_END_IS_DARK = {"fault": [{"kind": "power_loss", "at_s": 25.0, "duration_s": 15.0, "nodes": [0]}]}
"""Of a line: a dark node inside it cuts it in two, and is unreachable for both."""
_SHAPES = ("line", "grid", "random")
_SIZES = (20, 50, 200)
_FALSE = "membership.false_unreachable"


@dataclass(frozen=True)
class Case:
    """What is run with each seed."""

    name: str
    scenario: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    speed_m_s: float = 0.0
    """Of a case that measures the relay; 0: its scenario's own."""
    relays: bool = False
    first: int = 1
    every: int = 1
    """Its seed s has its turn with seed `first + every * (s - 1)` of the cases that take least."""


def _static() -> Iterator[Case]:
    for nodes in _SIZES:
        turn = {20: (1, 1), 50: (3, 3), 200: (5, 5)}[nodes]
        for shape in _SHAPES:
            size = {"swarm.nodes": nodes}
            dark = _END_IS_DARK if shape == "line" else {}
            for kind, more in (("dark", dark), ("kill", _KILLED), ("idle", _IDLE)):
                name = f"{shape}-{nodes}-{kind}"
                yield Case(name, f"mesh-{shape}", {**size, **more}, first=turn[0], every=turn[1])


CASES = (
    *_static(),
    Case("mobile-5", "mesh-mobile-50", first=1, every=1),
    Case("mobile-15", "mesh-mobile-50", {"mobility.speed_m_s": 15.0}, first=1, every=1),
    Case("mule", "mesh-mule"),
    Case("lossy-line", "mesh-line", {"radio.loss": 0.3, "swarm.seconds": 400, "fault": []}),
    *(Case(f"hall-{e}", "warehouse-robots-50", {"radio.exponent": e}, first=2, every=1) for e in (2.9, 3.2, 3.5)),
    Case("solar-50m", "solar-farm-20", {"radio.range_m": 50.0}),
    Case("relay-static", "mesh-random", relays=True),
    Case("relay-5", "mesh-mobile-50", speed_m_s=5.0, relays=True),
    Case("relay-15", "mesh-mobile-50", speed_m_s=15.0, relays=True),
)


def ordered(cases: Sequence[Case], seeds: int) -> list[tuple[Case, int]]:
    """Every run, those first that say most for their time."""
    runs = [(case, seed) for case in cases for seed in range(1, seeds + 1)]
    return sorted(runs, key=lambda run: (run[0].first + run[0].every * (run[1] - 1), cases.index(run[0])))


def revision() -> str:
    """A digest of the sources that runs are made of."""
    digest = hashlib.sha256()
    for package in (swarmd_protocols, swarmd_sim):
        folder = Path(str(package.__file__)).parent
        for path in sorted(one for one in folder.rglob("*") if one.suffix in (".py", ".toml")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def run_case(case: Case, seed: int) -> Row:
    """One run: the figures that bars are made of."""
    if case.relays:
        sent, took_ms, bytes_node_s = relayed(case.scenario, case.speed_m_s, seed, 40, 40)
        return {"sent": sent, "arrived": len(took_ms), "bytes_node_s": bytes_node_s}
    seen: list[tuple[int, int, int]] = []
    """(time, false verdicts of failure, and of being unreachable)."""

    def look(run: Simulation) -> Callable[[int], None]:
        def looks(now_ns: int) -> None:
            unreachable = sum(one.rule == _FALSE for one in run.watch.violations)
            seen.append((now_ns, run.watch.false_positives, unreachable))

        return looks

    run = Simulation(load_scenario(case.scenario, dict(case.overrides)), seed, Options(look=look))
    figures: dict[str, Any] = run.run().figures
    formed_ns, end_ns = run.milestones.formed_ns, run.engine.now_ns
    rules: dict[str, int] = {}
    for violation in run.watch.violations:
        rules[violation.rule] = rules.get(violation.rule, 0) + 1
    incidents = incidents_of([(at_ns, failed + unreachable) for at_ns, failed, unreachable in seen])
    return {
        "rules": rules,
        "nodes": len(run.hosts),
        "virtual_s": end_ns / S,
        "trace": figures["trace_digest"],
        "formed_s": formed_ns / S if formed_ns >= 0 else None,
        "bytes_node_s": figures["bytes_per_node_s"],
        "bytes_formed_node_s": _bytes_from(run, formed_ns),
        "bytes_settled_node_s": _bytes_from(run, _SETTLED_S * S),
        "wrong": run.watch.false_positives + rules.get(_FALSE, 0),
        "incidents": len(incidents),
        "incidents_formed": sum(at_ns > formed_ns for at_ns in incidents) if formed_ns >= 0 else None,
        "formed_for_s": (end_ns - formed_ns) / S if formed_ns >= 0 else 0.0,
        "detected_ms": sorted(one // 1_000_000 for one in run.watch.detection_ns),
        "event_last_ms": _event_last_ms(run, formed_ns),
        "clock_ms": round(float(figures["clock_spread_s"] or 0.0) * 1_000),
        "cells": figures["claims"]["cells"],
        "cells_done": figures["claims"]["done"],
        "cells_twice": figures["claims"]["duplicate_work"],
    }


def incidents_of(seen: Sequence[tuple[int, int]]) -> list[int]:
    """When each incident began.

    Args:
        seen: Time and how many false verdicts there were by then, in order.
    """
    rises = [at_ns for (_, before), (at_ns, wrong) in pairwise([(0, 0), *seen]) if wrong > before]
    return [at_ns for last_ns, at_ns in pairwise([-_APART_S * S, *rises]) if at_ns - last_ns >= _APART_S * S]


def _bytes_from(run: Simulation, from_ns: int) -> float | None:
    """Bytes a node that runs and second, from the first look after a time to the last."""
    samples = [one for one in run.milestones.samples if 0 <= from_ns <= one.at_ns]
    if len(samples) < 2:
        return None
    node_s = sum((later.at_ns - earlier.at_ns) / S * earlier.live for earlier, later in pairwise(samples))
    return round((samples[-1].sent_bytes - samples[0].sent_bytes) / node_s, 1)


def _event_last_ms(run: Simulation, formed_ns: int) -> list[int]:
    """Of each event since the formation, how long it took to the last of those that ran all the time since."""
    down = [(fault.at_ns - _CUT_S * S, fault.end_ns + _CUT_S * S) for fault in run.injector.script]
    took = []
    for at_ns, origin, name in run.ledger.events:
        heard = run.ledger.event_deliveries.get(name, {})
        there = [host for host in heard if host != origin and run.hosts[host].life.started_ns <= at_ns]
        if there and 0 <= formed_ns <= at_ns and not any(first < at_ns < last for first, last in down):
            took.append((max(heard[host] for host in there) - at_ns) // 1_000_000)
    return sorted(took)


# --- Bars ------------------------------------------------------------------------------------------------------------

Figure: TypeAlias = Callable[[Sequence[Row]], Any]
Told: TypeAlias = tuple[Any, Any]
"""A figure that is judged, and the median of the seeds or whatever stands beside it."""


@dataclass(frozen=True)
class Bar:
    """One thing that was asked for.

    Attributes:
        name: In words.
        cases: Whose runs it is about.
        figure: Of all their runs; None where there is none.
        bound: What it may be; at least so much where `least`.
        unit: Of both.
        beside: Another figure for people.
    """

    name: str
    cases: tuple[str, ...]
    figure: Figure
    bound: float
    unit: str
    beside: Figure | None = None
    least: bool = False


def total(key: str) -> Figure:
    """The sum over all runs."""
    return lambda rows: sum(row[key] for row in rows)


def worst(key: str, scale: float = 1.0) -> Figure:
    """The greatest of all runs; infinite where one has none, as of a swarm that never formed."""
    return lambda rows: max(float("inf") if row[key] is None else round(row[key] / scale, 3) for row in rows)


def middle(key: str, scale: float = 1.0) -> Figure:
    """The median of all runs."""
    return lambda rows: round(median(row[key] if row[key] is not None else float("inf") for row in rows) / scale, 3)


def percentile(key: str, percent: int) -> Figure:
    """Of the values of all runs together, milliseconds, as seconds."""

    def of(rows: Sequence[Row]) -> float | None:
        values = sorted(value for row in rows for value in row[key])
        return values[max(0, -(-len(values) * percent // 100) - 1)] / 1_000 if values else None

    return of


def broken(rows: Sequence[Row]) -> int:
    """Rules that were broken, of all runs."""
    return sum(sum(row["rules"].values()) for row in rows)


def misses(rows: Sequence[Row]) -> int:
    """Runs at whose end somebody missed somebody."""
    return sum("membership.views_differ" in row["rules"] for row in rows)


def diverged(rows: Sequence[Row]) -> int:
    """Runs at whose end not all held the same."""
    return sum(any(rule.startswith("state.") for rule in row["rules"]) for row in rows)


def rate(key: str, seconds: str) -> Figure:
    """Events in ten thousand node-seconds."""
    return lambda rows: round(
        10_000 * sum(row[key] or 0 for row in rows) / max(1e-9, sum(row["nodes"] * row[seconds] for row in rows)), 3
    )


def share(rows: Sequence[Row]) -> float:
    """Of what was sent, per cent."""
    arrived: int = sum(row["arrived"] for row in rows)
    sent: int = sum(row["sent"] for row in rows)
    return round(100 * arrived / sent, 3)


def _static_bars() -> Iterator[Bar]:
    for nodes in _SIZES:
        for shape in _SHAPES:
            at, dark, kill, idle = (
                f"{shape} of {nodes}",
                *((f"{shape}-{nodes}-{k}",) for k in ("dark", "kill", "idle")),
            )
            work = (*dark, *kill)
            yield Bar(f"{at}: false verdicts", (*work, *idle), total("wrong"), 0, "pairs")
            yield Bar(f"{at}: rules broken", (*work, *idle), broken, 0, "times")
            yield Bar(f"{at}: views that miss somebody", (*work, *idle), misses, 0, "runs")
            yield Bar(f"{at}: dark, p50", dark, percentile("detected_ms", 50), 2.5, "s")
            yield Bar(f"{at}: dark, most", dark, percentile("detected_ms", 100), 5.0, "s")
            yield Bar(f"{at}: SIGKILL, p50", kill, percentile("detected_ms", 50), 1.2, "s")
            yield Bar(f"{at}: formation, worst seed", work, worst("formed_s"), 10.0, "s", middle("formed_s"))
            with_work = f"{at}: with work, from formation, worst seed"
            yield Bar(
                with_work, work, worst("bytes_formed_node_s", 1e3), 2.5, "kB/s", middle("bytes_formed_node_s", 1e3)
            )
            yield Bar(
                f"{at}: idle, from 60 s on, worst seed",
                idle,
                worst("bytes_settled_node_s", 1e3),
                0.6,
                "kB/s",
                middle("bytes_settled_node_s", 1e3),
            )
            yield Bar(f"{at}: event at the last, p99", work, percentile("event_last_ms", 99), 1.0, "s")
            yield Bar(f"{at}: clocks, worst seed", work, worst("clock_ms"), 100, "ms", middle("clock_ms"))


def _formed(name: str, case: str, bound: float) -> Bar:
    figure = "bytes_formed_node_s"
    return Bar(f"{name}, from formation, worst seed", (case,), worst(figure, 1e3), bound, "kB/s", middle(figure, 1e3))


BARS = (
    *(
        bar
        for exponent in (2.9, 3.2, 3.5)
        for bar in (
            Bar(f"hall, exponent {exponent}: rules broken", (f"hall-{exponent}",), broken, 0, "times"),
            Bar(
                f"hall, exponent {exponent}: whole run, worst seed",
                (f"hall-{exponent}",),
                worst("bytes_node_s", 1e3),
                8.0,
                "kB/s",
                middle("bytes_node_s", 1e3),
            ),
        )
    ),
    *_static_bars(),
    Bar("fifty at 5 m/s: false verdicts", ("mobile-5",), total("wrong"), 0, "pairs"),
    _formed("fifty at 5 m/s", "mobile-5", 3.5),
    Bar("fifty at 15 m/s: incidents", ("mobile-15",), rate("incidents", "virtual_s"), 1, "in 10^4 node-seconds"),
    _formed("fifty at 15 m/s", "mobile-15", 5.0),
    Bar(
        "line of 20 at 30 % loss: incidents, from formation",
        ("lossy-line",),
        rate("incidents_formed", "formed_for_s"),
        1,
        "in 10^4 node-seconds",
    ),
    Bar("mule: runs at whose end digests differ", ("mule",), diverged, 0, "runs"),
    Bar("mule: false verdicts", ("mule",), total("wrong"), 0, "pairs"),
    Bar("mule: whole run, worst seed", ("mule",), worst("bytes_node_s", 1e3), 2.0, "kB/s", middle("bytes_node_s", 1e3)),
    Bar("solar farm at 50 m: cells flown twice", ("solar-50m",), total("cells_twice"), 0, "cells"),
    Bar("relay, nobody moves", ("relay-static",), share, 99.5, "%", least=True),
    Bar("relay, 5 m/s", ("relay-5",), share, 99.0, "%", least=True),
    Bar("relay, 15 m/s", ("relay-15",), share, 98.0, "%", least=True),
)


def judged(rows: Sequence[Row], bars: Sequence[Bar] = BARS) -> list[Row]:
    """Each bar with its figure, how many seeds it has of each case, and whether it is met; None where nothing ran."""
    said = []
    for bar in bars:
        mine = [row for row in rows if row["case"] in bar.cases]
        figure = bar.figure([row["figures"] for row in mine]) if mine else None
        met = None if figure is None else figure >= bar.bound if bar.least else figure <= bar.bound
        said.append(
            {
                "bar": bar.name,
                "figure": figure,
                **({"median": bar.beside([row["figures"] for row in mine])} if bar.beside and mine else {}),
                "bound": bar.bound,
                "unit": bar.unit,
                "seeds": min(len({row["seed"] for row in mine if row["case"] == case}) for case in bar.cases),
                "met": met,
            }
        )
    return said


def read(path: Path, made_of: str) -> list[Row]:
    """The runs of a revision that a file holds; a line that was cut short counts for nothing."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row["revision"] == made_of:
            rows.append(row)
    return rows


def go_on(path: Path, cases: Sequence[Case], seeds: int, made_of: str) -> Iterator[Row]:
    """Make the runs that are not in the file yet, one after the other, each of which is in it when it is told."""
    done = {(row["case"], row["seed"]) for row in read(path, made_of)}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with path.open("a") as file:
            file.write("\n")
    for case, seed in ordered(cases, seeds):
        if (case.name, seed) in done:
            continue
        began_s = time.process_time()
        figures = run_case(case, seed)
        row = {
            "case": case.name,
            "seed": seed,
            "revision": made_of,
            "cpu_s": round(time.process_time() - began_s, 1),
            "load": round(os.getloadavg()[0], 1),
            "figures": figures,
        }
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        yield row


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("out/mesh-bars.jsonl"), metavar="FILE")
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this")
    parser.add_argument("--report", action="store_true", help="say what is there and run nothing")
    args = parser.parse_args()
    made_of = revision()
    cases = [case for case in CASES if args.only in case.name]
    if not args.report:
        for row in go_on(args.results, cases, args.seeds, made_of):
            print(f"{row['case']} seed {row['seed']}: {row['cpu_s']} s", flush=True)
    rows = read(args.results, made_of)
    named = {case.name for case in cases}
    bars = [bar for bar in BARS if named.issuperset(bar.cases)]
    print(json.dumps({"revision": made_of, "runs": len(rows), "bars": judged(rows, bars)}, indent=1))


if __name__ == "__main__":
    main()
