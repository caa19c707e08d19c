"""One HTML page about one run: map, timeline, convergence, traffic, figures. Nothing in it is fetched or scripted."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from swarmd_sim.faults import FAULTS
from swarmd_sim.replay import code_mark
from swarmd_sim.result import Result
from swarmd_sim.simulation import Simulation
from swarmd_sim.svg import COLOURS, WIDTH, line_chart, site_map

_TIMELINE_LINES = 2_000
_MODULES_DRAWN = 4_000
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
        "<h2>Timeline of faults</h2>" + _fault_chart(simulation, result),
        "<h2>Convergence</h2>" + _convergence(result),
        "<h2>Traffic</h2>" + _traffic(simulation, result),
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
    """One bar a fault over time, coloured by family."""
    end_ns = max(1, simulation.engine.now_ns)
    rows = result.script[:200]
    height = 30 + 14 * max(1, len(rows))
    scale = (WIDTH - 240) / end_ns
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="10"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for number, fault in enumerate(rows):
        y = 8 + 14 * number
        colour = COLOURS[_FAMILIES.index(FAULTS[fault.kind].family) % len(COLOURS)]
        x, width = 230 + fault.at_ns * scale, max(2.0, fault.duration_ns * scale)
        nodes = ", ".join(f"n{node}" for node in fault.nodes[:6]) + ("…" if len(fault.nodes) > 6 else "")
        parts.append(f'<text x="4" y="{y + 9}">{escape(fault.kind)} [{nodes}]</text>')
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="10" fill="{colour}"/>')
    parts.append(f'<text x="230" y="{height - 4}">0 s</text>')
    parts.append(f'<text x="{WIDTH - 50}" y="{height - 4}">{end_ns / 1e9:g} s</text></svg>')
    return "".join(parts)


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
        f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>"
        for key, value in figures.items()
        if key not in ("violations", "faults")
    )
    return f"<table>{rows}</table>"


def _lines(result: Result) -> str:
    entries = result.timeline[-_TIMELINE_LINES:]
    lines = (f"{at / 1e9:10.4f} s {'swarm' if host < 0 else f'n{host}':>6}  {text}" for at, host, text in entries)
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
