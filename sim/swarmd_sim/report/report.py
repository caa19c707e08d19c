"""One HTML page about one run: map, timeline, convergence, traffic, figures. Nothing in it is fetched or scripted."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from swarmd_sim.faults.faults import FAULTS
from swarmd_sim.report.svg import COLOURS, Bar, lanes, line_chart, site_map
from swarmd_sim.run.replay import code_mark
from swarmd_sim.run.result import Result
from swarmd_sim.run.simulation import Simulation

_TIMELINE_LINES = 2_000
_MODULES_DRAWN = 4_000
_FAULTS_DRAWN = 200
_NODES_DRAWN = 60
_UP, _DOWN = "#8fc79a", "#d9534f"
_FAMILIES = ("link", "process", "cpu", "disk", "clock", "people", "hostile")
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.5rem 0}td,th{border:1px solid #ddd;padding:.2rem .6rem;text-align:left}
pre{max-height:32rem;overflow:auto;background:#f6f6f6;padding:.6rem;font-size:12px}
.bad{color:#b00020;font-weight:bold}.good{color:#2f7d32;font-weight:bold}svg{max-width:100%;height:auto}
"""


def write_report(simulation: Simulation, result: Result, path: Path) -> None:
    """Write the page.

    Args:
        simulation: The run, finished.
        result: Its result, with a timeline.
        path: The file; its folder is created when missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(simulation, result), encoding="utf-8")


def render(simulation: Simulation, result: Result) -> str:
    """The page as text.

    Args:
        simulation: The run, finished.
        result: Its result, with a timeline.

    Returns:
        A whole HTML document that refers to nothing outside itself.
    """
    scenario = simulation.scenario
    title = f"{scenario.title or scenario.name}, seed {simulation.seed}"
    violations = len(result.violations)
    verdict = f'<p class="bad">{violations} violations</p>' if violations else '<p class="good">no rule broken</p>'
    sections = [
        f"<h1>{escape(title)}</h1>",
        verdict,
        f"<p>swarmd sim run {escape(scenario.name)} --seed {simulation.seed}; code {code_mark()}</p>",
        _violations(result),
        "<h2>Map</h2>" + _map(simulation) if simulation.site.modules else "",
        "<h2>Timeline</h2>" + _fault_chart(simulation, result) + _node_chart(simulation, result),
        "<h2>Convergence</h2>" + _convergence(result),
        "<h2>Traffic</h2>" + _traffic(simulation, result),
        _models(simulation),
        "<h2>Figures</h2>" + _figures(result.figures),
        "<h2>What happened</h2>" + _lines(result),
    ]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{head}<style>{_STYLE}</style></head><body>{''.join(sections)}</body></html>"


def _violations(result: Result) -> str:
    if not result.violations:
        return ""
    rows = "".join(
        f"<tr><td>{v.at_ns / 1e9:.3f} s</td><td>{escape(v.rule)}</td><td>{escape(v.text)}</td></tr>"
        for v in result.violations
    )
    return f"<table><tr><th>when</th><th>rule</th><th>what</th></tr>{rows}</table>"


def _map(simulation: Simulation) -> str:
    site = simulation.site
    step = max(1, len(site.modules) // _MODULES_DRAWN)
    found, alarms = simulation.truth.placed()
    return site_map(
        "Modules, flown paths, faults (filled: found), false alarms (crosses)",
        site.extent_cm,
        [(module.east_cm, module.north_cm) for module in site.modules[::step]],
        [(module.east_cm, module.north_cm, module.asset in found) for module in site.faults],
        [[(east, north) for _at, east, north in path] for path in simulation.fleet.paths.values() if path],
        alarms,
    )


def _fault_chart(simulation: Simulation, result: Result) -> str:
    """One bar a fault over time, coloured by family; broken rules and the operator's doings as marks."""
    rows = []
    for fault in result.script[:_FAULTS_DRAWN]:
        colour = COLOURS[_FAMILIES.index(FAULTS[fault.kind].family) % len(COLOURS)]
        nodes = ", ".join(f"n{node}" for node in fault.nodes[:4]) + ("…" if len(fault.nodes) > 4 else "")
        bar = Bar(fault.at_ns / 1e9, fault.end_ns / 1e9, colour, fault.describe())
        rows.append((f"{fault.kind} [{nodes}]", [bar]))
    return lanes("Faults (coloured by family)", simulation.engine.now_ns / 1e9, rows, _marks(simulation, result))


def _marks(simulation: Simulation, result: Result) -> list[tuple[float, str, str]]:
    marks = [
        (violation.at_ns / 1e9, "#b00020", f"{violation.rule}: {violation.text}") for violation in result.violations
    ]
    story = simulation.releases.story if simulation.releases is not None else []
    marks += [(at_ns / 1e9, "#1f6fb4", text) for at_ns, text in story]
    return [*marks, (simulation.quiet_ns / 1e9, "#888888", "quiet from here on")]


def _node_chart(simulation: Simulation, result: Result) -> str:
    """When each node's process ran; "" for swarms of which the lanes would fill pages."""
    if len(simulation.hosts) > _NODES_DRAWN:
        return ""
    end_s = simulation.engine.now_ns / 1e9
    since: dict[int, tuple[float, str]] = {}
    bars: dict[int, list[Bar]] = {host.index: [] for host in simulation.hosts}
    for at_ns, host, text in result.timeline:
        is_start, is_end = text.startswith("starts (life"), text.startswith("process gone")
        if host < 0 or not (is_start or is_end):
            continue
        before_s, what = since.pop(host, (-1.0, ""))
        if before_s >= 0:
            colour = _UP if what.startswith("starts") else _DOWN
            bars[host].append(Bar(before_s, at_ns / 1e9, colour, f"n{host}: {what}"))
        since[host] = (at_ns / 1e9, text)
    for host, (before_s, what) in since.items():
        bars[host].append(Bar(before_s, end_s, _UP if what.startswith("starts") else _DOWN, f"n{host}: {what}"))
    rows = [(f"n{host}", found) for host, found in bars.items()]
    return lanes("Processes (green: runs, red: gone)", end_s, rows, _marks(simulation, result))


def _models(simulation: Simulation) -> str:
    """How many eyes ran which model over time, and what the operator did."""
    world = simulation.releases
    if world is None:
        return ""
    counts: dict[str, int] = {}
    runs: dict[int, str] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for run in world.runs:
        for name, change in ((runs.get(run.host), -1), (world.version_of(run.release), 1)):
            if name is not None:
                line = lines.setdefault(name, [(0.0, 0.0)])
                line.append((run.at_ns / 1e9, float(counts.get(name, 0))))
                counts[name] = counts.get(name, 0) + change
                line.append((run.at_ns / 1e9, float(counts[name])))
        runs[run.host] = world.version_of(run.release)
    for name, line in lines.items():
        line.append((simulation.engine.now_ns / 1e9, float(counts[name])))
    story = "".join(f"<li>{at_ns / 1e9:.1f} s: {escape(text)}</li>" for at_ns, text in world.story)
    return f"<h2>Models</h2>{line_chart('Eyes by the model they run', 'seconds', 'eyes', lines)}<ul>{story}</ul>"


def _convergence(result: Result) -> str:
    digests = [(sample.at_ns / 1e9, float(sample.digests)) for sample in result.samples]
    live = [(sample.at_ns / 1e9, float(sample.live)) for sample in result.samples]
    return line_chart(
        "Different states in the swarm", "seconds", "count", {"distinct digests": digests, "live nodes": live}
    )


def _traffic(simulation: Simulation, result: Result) -> str:
    points = []
    nodes = len(simulation.hosts)
    for before, after in zip(result.samples, result.samples[1:], strict=False):
        seconds = (after.at_ns - before.at_ns) / 1e9
        points.append((after.at_ns / 1e9, (after.sent_bytes - before.sent_bytes) / seconds / nodes))
    return line_chart("Bytes sent by a node in a second", "seconds", "B/s", {"mean": points})


def _figures(figures: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{_value(value)}</td></tr>"
        for key, value in figures.items()
        if key not in ("violations", "faults")
    )
    return f"<table>{rows}</table>"


def _value(value: Any) -> str:
    if not isinstance(value, Mapping):
        return escape(str(value))
    rows = "".join(f"<tr><td>{escape(str(key))}</td><td>{escape(str(one))}</td></tr>" for key, one in value.items())
    return f"<table>{rows}</table>" if rows else "-"


def _lines(result: Result) -> str:
    entries = result.timeline[-_TIMELINE_LINES:]
    lines = (f"{at / 1e9:10.4f} s {'swarm' if host < 0 else f'n{host}':>6}  {text}" for at, host, text in entries)
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
