"""Scenario files: TOML with comments in, one checked `Scenario` out, all problems at once.

Units stand in the names; everything is converted to integers here, once. An unknown key is an error with a
suggestion, and a scenario that cannot happen (a fault after the end, a host that does not exist, more loss than all)
is an error too. The scenarios that ship lie beside this file in `scenarios/`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from swarmd_models.toml_reader import parse_toml
from swarmd_sim.errors import ScenarioError
from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.faults import FAULT_KINDS, FAULTS, RELEASE_KINDS
from swarmd_sim.run.sections import FaultTable, Scenario

NS_PER_S = 1_000_000_000
NODES_MAX = 20_000
_FILE_MAX_BYTES = 1 << 20
_LIST_MAX = 10_000


PIXEL_DRONES_MAX = 20
PIXEL_TICK_MS_MAX = 200
"""At 10 m/s and 25 m height the eye's tracker then sees a module in several frames."""

_CHOICES = {
    ("swarm", "formation"): ("together", "staggered"),
    ("layout", "kind"): ("homes", "line", "grid", "random", "islands", "drawn"),
    ("mobility", "kind"): ("none", "waypoint", "groups", "mule", "drawn"),
    ("site", "kind"): ("farm", "file", "none"),
    ("drones", "work"): ("claims", "lanes", "log", "none"),
    ("radio", "model"): ("disc", "pathloss"),
    ("release", "revoke"): ("bad", "running", "either"),
    ("offload", "fleet"): ("drones", "traffic", "parts", "batch"),
    ("offload", "rule"): ("ours", "local", "always", "if"),
    ("offload", "judges"): ("drawn", "traffic"),
    ("learning", "lie"): ("sign", "scaled", "same", "other", "equivocate", "garbage", "mixed"),
}
_RANGES: dict[tuple[str, str], tuple[float, float]] = {
    ("swarm", "nodes"): (1, NODES_MAX),
    ("swarm", "seconds"): (1, 86_400),
    ("swarm", "start_within_s"): (0, 3_600),
    ("swarm", "seeds"): (1, 64),
    ("site", "tables"): (1, 2_000),
    ("site", "modules"): (1, 200),
    ("site", "faults"): (0, 1),
    ("site", "cell_m"): (2, 500),
    ("layout", "spacing_m"): (1, 100_000),
    ("layout", "degree"): (2, 100),
    ("mobility", "speed_m_s"): (0.1, 100),
    ("mobility", "groups"): (2, 16),
    ("mobility", "period_s"): (1, 3_600),
    ("drones", "speed_m_s"): (0.1, 60),
    ("drones", "drain_per_s"): (0, 1),
    ("drones", "reserve"): (0, 0.9),
    ("drones", "tick_ms"): (20, 10_000),
    ("drones", "passes"): (1, 20),
    ("detector", "footprint_m"): (0.5, 100),
    ("detector", "recall"): (0, 1),
    ("detector", "edge_recall"): (0, 1),
    ("detector", "confusion"): (0, 1),
    ("detector", "false_alarms_per_look"): (0, 1),
    ("detector", "asset_probability"): (0, 1),
    ("detector", "drift_m"): (0, 100),
    ("radio", "rate_mbit_s"): (0.01, 10_000),
    ("radio", "latency_ms"): (0, 5_000),
    ("radio", "jitter_ms"): (0, 5_000),
    ("radio", "loss"): (0, 0.95),
    ("radio", "retries"): (0, 10),
    ("radio", "carrier_sense_m"): (10, 100_000),
    ("device", "fsync_ms"): (0, 5_000),
    ("device", "cpu_us_per_event"): (0, 1_000_000),
    ("device", "wake_us"): (0, 1_000_000),
    ("device", "drift_ppm"): (0, 100_000),
    ("faults", "per_minute"): (0, 600),
    ("release", "model_kb"): (8, 4_096),
    ("release", "soak_s"): (0, 3_600),
    ("release", "chance"): (0, 1),
    ("release", "turn_s"): (0.1, 3_600),
    ("offload", "requests_per_s"): (0, 1_000),
    ("offload", "strong"): (0, NODES_MAX),
    ("offload", "busy"): (0, NODES_MAX),
    ("offload", "clouds"): (0, NODES_MAX),
    ("offload", "jobs"): (1, 100_000),
    ("offload", "owners"): (0, NODES_MAX),
    ("offload", "offers_per_s"): (1, 1_000),
    ("offload", "copies_share"): (0, 1),
    ("offload", "repeat_share"): (0, 1),
    ("offload", "keep_s"): (0, 600),
    ("offload", "release_at_s"): (0, 86_400),
    ("offload", "release_over_s"): (1, 3_600),
    ("offload", "deadline_ms"): (1, 60_000),
    ("offload", "input_bytes"): (10, 256 << 10),
    ("neighbours", "agree_at_s"): (0, 86_400),
    ("neighbours", "cut_at_s"): (0, 86_400),
    ("neighbours", "cut_s"): (0, 86_400),
    ("neighbours", "hostile_at_s"): (0, 86_400),
    ("neighbours", "hold_s"): (10, 86_400),
    ("learning", "labelled"): (0, NODES_MAX),
    ("learning", "bad"): (0, NODES_MAX),
    ("learning", "alpha"): (0.01, 100),
    ("learning", "scenes"): (6, 1_000),
    ("learning", "round_s"): (1, 3_600),
    ("learning", "rounds"): (1, 32),
    ("learning", "share"): (0.001, 0.5),
    ("learning", "noise"): (0, 1_000),
    ("learning", "length"): (0.001, 1_000),
    ("checks", "settle_s"): (0, 3_600),
}


def scenario_names() -> list[str]:
    """The scenarios that ship, sorted."""
    folder = resources.files("swarmd_sim") / "scenarios"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load_scenario(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read and check a scenario.

    Args:
        name_or_path: One of `scenario_names()`, or the path of a TOML file (ends in ".toml").
        overrides: Dotted keys, such as {"swarm.nodes": 50}, that replace what the file says.

    Returns:
        The scenario.

    Raises:
        ScenarioError: It cannot be read or does not hold; names every problem.
    """
    text, folder, name = _read(name_or_path)
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise ScenarioError(f"{name_or_path} is not TOML: {error}") from error
    for key, value in sorted((overrides or {}).items()):
        _override(table, key, value)
    return scenario_from_table(table, name=name, folder=folder)


def scenario_from_table(table: dict[str, Any], *, name: str, folder: str = "") -> Scenario:
    """Check a scenario that was read already.

    Args:
        table: Parsed TOML.
        name: The scenario's name.
        folder: Where relative paths start.

    Returns:
        The scenario.

    Raises:
        ScenarioError: It does not hold; names every problem.
    """
    problems: list[str] = []
    table = {key: value for key, value in table.items() if key not in ("name", "folder")}
    built = cast(Scenario, _build(Scenario, {**table, "name": name, "folder": folder}, "", problems))
    if not problems:
        problems += _impossible(built)
    if problems:
        raise ScenarioError(f"scenario {name}:\n" + "\n".join(f"  {problem}" for problem in problems))
    return built


def _read(name_or_path: str) -> tuple[str, str, str]:
    if not name_or_path.endswith(".toml"):
        names = scenario_names()
        if name_or_path not in names:
            near = get_close_matches(name_or_path, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}, or give a .toml file"
            raise ScenarioError(f"no scenario {name_or_path!r}{hint}")
        text = (resources.files("swarmd_sim") / "scenarios" / f"{name_or_path}.toml").read_text("utf-8")
        return text, "", name_or_path
    path = Path(name_or_path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from error
    if len(raw) > _FILE_MAX_BYTES:
        raise ScenarioError(f"{path} is larger than {_FILE_MAX_BYTES >> 20} MiB; that is no scenario")
    try:
        return raw.decode("utf-8"), str(path.parent), path.stem
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path} is not UTF-8 text: {error}") from error


def _override(table: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ScenarioError(f"cannot set {dotted}: {section} is no section")
        table = inner
    table[last] = value


def _build(kind: type, table: dict[str, Any], where: str, problems: list[str]) -> object:
    """A dataclass from a table; adds to `problems` what does not hold."""
    hints = get_type_hints(kind)
    known = {item.name: item for item in fields(kind)}
    section = where.rstrip(".")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            near = get_close_matches(key, list(known), 1)
            hint = f"; did you mean {where}{near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
            problems.append(f"unknown key {where}{key}{hint}")
            continue
        converted = _convert(hints[key], value, f"{where}{key}", problems)
        if converted is not None:
            values[key] = converted
            _check_range(section, key, converted, problems)
    for key, item in known.items():
        if key not in values and item.default is _MISSING and item.default_factory is _MISSING and key not in table:
            problems.append(f"{where}{key} is missing")
    try:
        return kind(**values)
    except TypeError:
        return None


_MISSING = next(iter(fields(FaultTable))).default_factory


def _check_range(section: str, key: str, value: Any, problems: list[str]) -> None:
    allowed = _CHOICES.get((section, key))
    if allowed is not None and value not in allowed:
        problems.append(f"{section}.{key} is {value!r}; it is one of {', '.join(allowed)}")
    span = _RANGES.get((section, key))
    if span is not None and not span[0] <= value <= span[1]:
        problems.append(f"{section}.{key} is {value}; it must be within {span[0]} and {span[1]}")


def _convert(hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    origin = get_origin(hint)
    if is_dataclass(hint):
        if isinstance(value, dict):
            return _build(cast(type, hint), value, f"{where}.", problems)
        problems.append(f"{where} must be a section")
        return None
    if origin is tuple:
        return _convert_tuple(get_args(hint), value, where, problems)
    if origin is not None and issubclass(origin, Mapping):
        if isinstance(value, dict) and all(isinstance(item, (int, float, bool, str)) for item in value.values()):
            return value
        problems.append(f"{where} must be a section of plain values")
        return None
    allowed = get_args(hint) if origin in (Union, UnionType) else (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) not in allowed:
        wanted = " or ".join(item.__name__ for item in allowed)
        problems.append(f"{where} is {value!r}; it must be {wanted}")
        return None
    if isinstance(value, float) and not (value == value and abs(value) < 1e15):
        problems.append(f"{where} is {value!r}; it must be a finite number")
        return None
    return value


def _convert_tuple(inner: tuple[Any, ...], value: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > _LIST_MAX:
        problems.append(f"{where} must be a list of at most {_LIST_MAX} items")
        return None
    if inner[-1] is Ellipsis:
        kinds = [inner[0]] * len(value)
    elif len(inner) != len(value):
        problems.append(f"{where} must have {len(inner)} items; it has {len(value)}")
        return None
    else:
        kinds = list(inner)
    items = [
        _convert(kind, item, f"{where}[{i}]", problems) for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
    ]
    return None if any(item is None for item in items) else tuple(items)


def _impossible(scenario: Scenario) -> list[str]:
    """What is well-formed but cannot happen."""
    swarm, checks = scenario.swarm, scenario.checks
    problems = []
    if checks.settle_s >= swarm.seconds:
        problems.append(f"checks.settle_s is {checks.settle_s:g}; the run has only {swarm.seconds} s")
    if swarm.observers > swarm.nodes:
        problems.append(f"swarm.observers is {swarm.observers}; there are only {swarm.nodes} nodes")
    if swarm.seeds > swarm.nodes:
        problems.append(f"swarm.seeds is {swarm.seeds}; there are only {swarm.nodes} nodes")
    learners = scenario.learning.labelled + scenario.learning.bad
    if scenario.learning.labelled and learners > swarm.nodes:
        problems.append(
            f"learning.labelled and learning.bad are {learners} together; there are only {swarm.nodes} nodes"
        )
    if scenario.site.kind == "file" and not scenario.site.file:
        problems.append('site.kind is "file"; site.file must name a CSV of panels')
    if scenario.drones.work == "log" and not scenario.drones.flight_log:
        problems.append('drones.work is "log"; drones.flight_log must name a log')
    if scenario.drones.work in ("claims", "lanes") and scenario.site.kind == "none":
        problems.append(f'drones.work is "{scenario.drones.work}" but site.kind is "none": there are no cells to fly')
    problems += _impossible_layout(scenario)
    problems += _impossible_pixels(scenario)
    problems += _impossible_release(scenario)
    lenders = scenario.offload.strong + scenario.offload.clouds + scenario.offload.busy
    for liar in scenario.offload.liars:
        if not 0 <= liar < min(lenders, swarm.nodes):
            problems.append(f"offload.liars: node {liar} lends nothing; lenders are 0 to {lenders - 1}")
    problems += [p for number, fault in enumerate(scenario.fault) for p in _impossible_fault(scenario, number, fault)]
    for kind in scenario.faults.kinds:
        if kind != "all" and kind not in FAULT_KINDS:
            problems.append(_unknown_fault("faults.kinds", kind))
    for kind in (*scenario.faults.attacks, *scenario.faults.attacks_off):
        if kind != "all" and kind not in ATTACK_KINDS:
            problems.append(_unknown_fault("faults.attacks", kind, ATTACK_KINDS))
    return problems


def _impossible_layout(scenario: Scenario) -> list[str]:
    """Layouts and moves are of radios with a range; drones that fly cells go where those are."""
    layout, mobility, radio = scenario.layout, scenario.mobility, scenario.radio
    problems = []
    chosen = [f"layout.kind is {layout.kind!r}"] if layout.kind != "homes" else []
    chosen += [f"mobility.kind is {mobility.kind!r}"] if mobility.kind != "none" else []
    for what in chosen:
        if radio.model != "disc" or radio.range_m <= 0:
            problems.append(f'{what}; it needs radio.model "disc" with a radio.range_m above 0')
        if scenario.drones.work != "none":
            problems.append(f'{what}; drones.work must be "none"')
    if layout.kind in ("line", "grid") and layout.spacing_m > radio.range_m > 0:
        problems.append(f"layout.spacing_m is {layout.spacing_m:g}; radio.range_m is only {radio.range_m:g}")
    if (layout.kind == "islands") != (mobility.kind == "mule"):
        problems.append('layout.kind "islands" and mobility.kind "mule" go together')
    if layout.kind == "islands" and scenario.swarm.nodes < 3:
        problems.append(f'layout.kind is "islands"; swarm.nodes is {scenario.swarm.nodes}, of at least 3')
    return problems


def _impossible_release(scenario: Scenario) -> list[str]:
    """Versions come one after the other, before the quiet time, and only where there are any."""
    release = scenario.release
    steps = [("publish_at_s", release.publish_at_s), ("bad_at_s", release.bad_at_s)]
    steps += [("revoke_at_s", release.revoke_at_s)]
    problems = []
    for (before, before_s), (after, after_s) in pairwise(steps):
        if after_s and not 0 < before_s < after_s:
            problems.append(f"release.{after} is {after_s:g}; release.{before} must come before it ({before_s:g})")
    if release.next_at_s and not 0 < max(release.publish_at_s, release.bad_at_s) < release.next_at_s:
        problems.append(f"release.next_at_s is {release.next_at_s:g}; it must come after the other versions")
    quiet_s = scenario.swarm.seconds - scenario.checks.settle_s
    for name, at_s in (*steps, ("next_at_s", release.next_at_s)):
        if at_s > quiet_s:
            problems.append(f"release.{name} is {at_s:g}; the quiet time at the end begins at {quiet_s:g} s")
    if not all(8 <= size <= 4_096 for size in release.model_sizes_kb):
        problems.append(f"release.model_sizes_kb is {list(release.model_sizes_kb)}; each must be 8 to 4096")
    stages = release.rollout
    if not stages or stages[-1] != 100 or list(stages) != sorted(set(stages)) or stages[0] < 1 or len(stages) > 8:
        problems.append(f"release.rollout is {list(stages)}; stages are rising percentages that end with 100")
    if not release.publish_at_s:
        named = [fault.kind for fault in scenario.fault] + list(scenario.faults.kinds)
        for kind in sorted({kind for kind in named if kind in RELEASE_KINDS}):
            problems.append(f"the fault {kind} needs releases; set release.publish_at_s")
    return problems


def _impossible_pixels(scenario: Scenario) -> list[str]:
    """What rendered frames need: a farm that can be drawn, few drones, and several looks at each module."""
    if not scenario.detector.pixels:
        return []
    drones = scenario.swarm.nodes - scenario.swarm.observers
    problems = []
    if scenario.site.kind != "farm":
        problems.append(f'detector.pixels renders the generated farm; site.kind is "{scenario.site.kind}", not "farm"')
    if drones > PIXEL_DRONES_MAX:
        problems.append(f"detector.pixels is for at most {PIXEL_DRONES_MAX} drones; there are {drones}")
    if scenario.drones.tick_ms > PIXEL_TICK_MS_MAX:
        problems.append(
            f"detector.pixels needs a frame every {PIXEL_TICK_MS_MAX} ms or more often; drones.tick_ms is "
            f"{scenario.drones.tick_ms}"
        )
    return problems


def _unknown_fault(where: str, kind: str, known: Iterable[str] = FAULT_KINDS) -> str:
    near = get_close_matches(kind, list(known), 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{where}: no fault {kind!r}; {hint}"


def _impossible_fault(scenario: Scenario, number: int, fault: FaultTable) -> list[str]:
    where = f"fault[{number}]"
    seconds, nodes = scenario.swarm.seconds, scenario.swarm.nodes
    problems = []
    if fault.kind not in FAULTS:
        problems.append(_unknown_fault(where, fault.kind, FAULTS))
    if fault.at_s < 0 or fault.duration_s < 0:
        problems.append(f"{where}: at_s and duration_s cannot be negative")
    if fault.at_s >= seconds:
        problems.append(f"{where}: at_s is {fault.at_s:g}; the run ends at {seconds} s")
    if fault.at_s + fault.duration_s > seconds - scenario.checks.settle_s:
        problems.append(
            f"{where}: it lasts into the quiet time at the end (checks.settle_s = {scenario.checks.settle_s:g})"
        )
    bad = [node for node in fault.nodes if not 0 <= node < nodes]
    if bad:
        problems.append(f"{where}: nodes {bad} do not exist; there are 0 to {nodes - 1}")
    return problems
