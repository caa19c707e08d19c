"""The bars, and the table that shows both peers against them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Bar:
    """One figure, where it is found, and what it may be at most."""

    name: str
    path: tuple[str, ...]
    limit: float | Callable[[int], float]
    profiles: tuple[str, ...] = ("lan", "lean")
    unit: str = "s"


BARS = (
    Bar("kill, all know, p50", ("kill", "all_know_s", "p50"), 0.8, ("lan",)),
    Bar("kill, all know, p99", ("kill", "all_know_s", "p99"), 1.5, ("lan",)),
    Bar("kill, all know, p50 (lean)", ("kill", "all_know_s", "p50"), 3.0, ("lean",)),
    Bar("kill, never learned", ("kill", "never_learned"), 0, unit=""),
    Bar("kill, false failed", ("kill", "false_failed"), 0, unit=""),
    Bar("steady bytes", ("steady", "bytes_per_s"), 1_000, ("lan",), "B/s"),
    Bar("steady bytes (lean)", ("steady", "bytes_per_s"), 300, ("lean",), "B/s"),
    Bar("steady packets", ("steady", "packets_per_s"), 12, unit="/s"),
    Bar("steady CPU", ("steady", "cpu_s_per_minute"), 0.20, unit="s/min"),
    Bar("memory, median", ("steady", "rss_mb_median"), 32, unit="MB"),
    Bar("blackout, all know, p50", ("blackout", "all_know_s", "p50"), 2.0),
    Bar("blackout, all know, p99", ("blackout", "all_know_s", "p99"), 4.0),
    Bar("10 % loss, false failed", ("loss10", "false_failed"), 0, unit=""),
    Bar("30 % loss, false failed", ("loss30", "false_failed"), 0, unit=""),
    Bar("30 % loss, traffic / steady", ("loss30", "bytes_ratio"), 2.0, unit="x"),
    Bar("freezes of 5 s, false failed", ("freeze5", "false_failed"), 0, unit=""),
    Bar("freezes of 5 s, frozen called failed", ("freeze5", "abnormal_failed"), 0, unit=""),
    Bar("freezes of 5 s, back at all, p99", ("freeze5", "back_at_all_s", "p99"), 1.0),
    Bar("freezes of 16 s, false failed", ("freeze16", "false_failed"), 0, unit=""),
    Bar("freezes of 16 s, back at all, p99", ("freeze16", "back_at_all_s", "p99"), 1.0),
    Bar("formation after the last is up", ("form", "from_last_up_s"), lambda n: 1.0 if n <= 32 else 4.0),
    Bar("formation, missing pairs", ("form", "missing_pairs"), 0, unit=""),
    Bar("halves cut, healed", ("partition", "healed_s"), 3.0),
    Bar("user event to the last, p50", ("event", "to_last_s", "p50"), 0.1),
    Bar("user event, pairs missed", ("event", "missing_pairs"), 0, unit=""),
    Bar("all restarted, full view", ("restart", "from_last_up_s"), 3.0),
)


def held_bars(count: int, results: Results, profile: str) -> list[dict[str, Any]]:
    """Every bar whose scenario was run, with both figures, their ratio, and whether swarmd holds it."""
    for found in results.values():
        if "loss30" in found and "steady" in found:
            ratio = found["loss30"]["bytes_per_s"] / max(1.0, found["steady"]["bytes_per_s"])
            found["loss30"]["bytes_ratio"] = round(ratio, 2)
    rows = []
    for bar in BARS:
        ours, theirs = (_figure(results.get(peer, {}), bar.path) for peer in ("swarmd", "serf"))
        if profile not in bar.profiles or bar.path[0] not in results.get("swarmd", {}):
            continue
        limit = bar.limit(count) if callable(bar.limit) else bar.limit
        # No thaw was noticed at all: nobody had to come back.
        nothing = bar.path[1] == "back_at_all_s" and ours is None
        rows.append(
            {
                "name": bar.name,
                "unit": bar.unit,
                "bar": limit,
                "swarmd": ours,
                "serf": theirs,
                "serf_over_swarmd": round(theirs / ours, 2) if ours and theirs is not None else None,
                "held": nothing or (ours is not None and ours <= limit),
            }
        )
    return rows


def print_table(report: dict[str, Any]) -> None:
    """Both columns and the ratios, for people."""
    print(f"N = {report['n']}, {report['cores']} cores, profile {report['profile']}")
    for peer, found in report["peers"].items():
        others = found.get("steady", {}).get("other_cpu_cores", "-")
        print(f"  {peer}: {found['version']}, load before {found['load_before']:.1f}, other CPU while steady {others}")
    print(f"{'':38}{'bar':>9}{'swarmd':>10}{'serf':>10}{'serf/swarmd':>13}")
    for row in report["bars"]:
        figures = [_text(row[key]) for key in ("bar", "swarmd", "serf", "serf_over_swarmd")]
        verdict = "" if row["held"] else "  NOT HELD"
        cells = "".join(figure.rjust(width) for figure, width in zip(figures, (9, 10, 10, 13), strict=True))
        print(f"{row['name'] + ' ' + row['unit']:38}{cells}{verdict}")


def _figure(found: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = found
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
